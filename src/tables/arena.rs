//! The loop's memory: one allocation, cut into tables at start.
//!
//! # Unsafe
//! Tables are raw slices of the arena. What keeps them sound:
//! - every table is cut from its own range, aligned for its type, and none is cut twice;
//! - a row is read only below `len`, the rows written so far; memory above is never read;
//! - the owner ([`Loop`](crate::Loop)) drops its tables before the arena, or leaks both;
//! - a lease reads bytes that were received before it began. While it lives, `Buffers` keeps its buffer
//!   from the kernel and from everybody else, and it owns a share of the memory, which is freed with
//!   the last share.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::error::CreateError;
use crate::op::Descriptor;

/// The arena's alignment: a page, as a provided-buffer ring needs.
pub(crate) const ARENA_ALIGN: usize = 4096;

/// Adds up what tables will take; [`Arena::table`] cuts by the same rule in the same order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    bytes: usize,
}

impl Plan {
    /// Accounts for `rows` of `T`; answers where they begin.
    pub(crate) fn table<T>(&mut self, rows: u32) -> usize {
        self.range(size_of::<T>() * rows as usize, align_of::<T>().max(64))
    }

    /// Accounts for bytes at an alignment; answers where they begin.
    pub(crate) fn range(&mut self, bytes: usize, align: usize) -> usize {
        let start = self.bytes.next_multiple_of(align);
        self.bytes = start + bytes;
        start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.next_multiple_of(ARENA_ALIGN)
    }
}

/// The memory. The loop has a share of it, and each lease.
struct Memory {
    base: NonNull<u8>,
    /// Set when the memory was allocated here and is to be freed here.
    owned: Cell<Option<Layout>>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(layout) = self.owned.get() {
            // SAFETY: allocated in `Arena::new` with this layout. This was the last share: the loop
            // drops its own only after every operation has ended (or leaks the memory), so neither a
            // table, nor a lease, nor the kernel uses it.
            unsafe { alloc::dealloc(self.base.as_ptr(), layout) }
        }
    }
}

/// The loop's share of the memory, and how much of it is cut.
pub(crate) struct Arena {
    memory: Rc<Memory>,
    bytes: usize,
    plan: Plan,
}

impl Arena {
    /// Reserves memory. It is not zeroed: pages stay untouched until a row is used.
    pub(crate) fn new(bytes: usize) -> Result<Arena, CreateError> {
        let out_of_memory = CreateError::OutOfMemory { needed: bytes };
        let Ok(layout) = Layout::from_size_align(bytes.max(1), ARENA_ALIGN) else {
            return Err(out_of_memory);
        };
        // SAFETY: the layout's size is above zero. The allocation is owned by `Memory` and freed once,
        // in its `Drop`.
        let base = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(out_of_memory)?;
        let memory = Rc::new(Memory { base, owned: Cell::new(Some(layout)) });
        Ok(Arena { memory, bytes, plan: Plan::default() })
    }

    /// Uses memory the program hands in for good.
    pub(crate) fn in_memory(
        memory: &'static mut [MaybeUninit<u8>],
        needed: usize,
    ) -> Result<Arena, CreateError> {
        let address = memory.as_ptr().addr();
        let skip = address.next_multiple_of(ARENA_ALIGN) - address;
        let given = memory.len().saturating_sub(skip);
        if given < needed {
            return Err(CreateError::MemoryTooSmall { needed: needed + ARENA_ALIGN - 1, given });
        }
        let base = NonNull::from(&mut memory[skip..]).cast::<u8>();
        let memory = Rc::new(Memory { base, owned: Cell::new(None) });
        Ok(Arena { memory, bytes: needed, plan: Plan::default() })
    }

    /// Cuts a table of at most `rows`.
    pub(crate) fn table<T>(&mut self, rows: u32) -> Table<T> {
        let start = self.plan.table::<T>(rows);
        assert!(self.plan.bytes <= self.bytes, "the arena was planned too small");
        // SAFETY: `start` lies in the allocation, checked above, so the pointer stays in bounds.
        let first = unsafe { self.memory.base.add(start) }.cast::<T>();
        Table { first, len: 0, capacity: rows }
    }

    /// Never frees the memory, whoever has a share: something may still write it.
    pub(crate) fn leak(&mut self) {
        self.memory.owned.set(None);
    }

    /// Cuts plain bytes.
    pub(crate) fn range(&mut self, bytes: usize, align: usize) -> NonNull<u8> {
        let start = self.plan.range(bytes, align);
        assert!(self.plan.bytes <= self.bytes, "the arena was planned too small");
        // SAFETY: as in `table`.
        unsafe { self.memory.base.add(start) }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A table of at most `capacity` rows; the first `len` are written.
pub(crate) struct Table<T> {
    first: NonNull<T>,
    len: u32,
    capacity: u32,
}

impl<T> Table<T> {
    /// Rows written so far. Rows are recycled by their owner, so this is also the high-water mark.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Writes the next row, if there is one; answers its index.
    pub(crate) fn push(&mut self, row: T) -> Option<u32> {
        if self.len == self.capacity {
            return None;
        }
        let index = self.len;
        // SAFETY: `index < capacity`, so the row lies in the table's own range of the arena, which
        // outlives the table. It was never written, so nothing is overwritten undropped.
        unsafe { self.first.add(index as usize).write(row) };
        self.len += 1;
        Some(index)
    }

    /// The row's address, for the kernel to read or write. Valid as long as the arena.
    pub(crate) fn address_of(&mut self, index: u32) -> *mut T {
        assert!(index < self.len);
        // SAFETY: `index < len <= capacity`, in bounds of the table's range.
        unsafe { self.first.add(index as usize) }.as_ptr()
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        assert!(index < self.len);
        // SAFETY: `index < len`: the row is written and in bounds; the borrow of the table keeps
        // others from writing it.
        unsafe { self.first.add(index as usize).as_ref() }
    }
}

impl<T> IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        assert!(index < self.len);
        // SAFETY: as in `index`, and the table is borrowed mutably.
        unsafe { self.first.add(index as usize).as_mut() }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            for index in 0..self.len {
                // SAFETY: `index < len`: the row is written, and dropped here once.
                unsafe { self.first.add(index as usize).drop_in_place() }
            }
        }
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} of {})", self.len, self.capacity)
    }
}

/// The receive buffers, as one range of bytes. The kernel writes the parts that are out to it.
pub(crate) struct BufferBytes {
    memory: Rc<Memory>,
    base: NonNull<u8>,
    count: u32,
    bytes: u32,
    stride: usize,
}

/// How far apart buffers lie: a cache line more than their size, since buffers a power of two apart
/// would all begin in the same set of the cache (decision 0011).
pub(crate) fn buffer_stride(bytes: u32) -> usize {
    (bytes as usize).next_multiple_of(64) + 64
}

impl BufferBytes {
    pub(crate) fn new(arena: &mut Arena, count: u32, bytes: u32) -> BufferBytes {
        let stride = buffer_stride(bytes);
        let base = arena.range(count as usize * stride, ARENA_ALIGN);
        BufferBytes { memory: arena.memory.clone(), base, count, bytes, stride }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The address of a byte of a buffer, for the kernel to write from there to the buffer's end.
    #[inline]
    pub(crate) fn address_of(&self, buffer: u16, offset: u32) -> *mut u8 {
        assert!(u32::from(buffer) < self.count && offset <= self.bytes);
        // SAFETY: in bounds of the range by the assertion.
        unsafe { self.base.add(buffer as usize * self.stride + offset as usize) }.as_ptr()
    }

    /// Bytes the kernel has written and no longer touches. The caller ([`Buffers`]) has checked that
    /// the buffer is held and that the range ends before what is in flight.
    ///
    /// [`Buffers`]: crate::tables::buffers::Buffers
    #[inline]
    pub(crate) fn read(&self, buffer: u16, start: u32, end: u32) -> &[u8] {
        assert!(start <= end && end <= self.bytes);
        let first = self.address_of(buffer, start);
        // SAFETY: in bounds by the assertions. The bytes are initialised: the kernel reported them
        // received. No request that writes them is in flight: `Buffers` keeps
        // where the kernel may write, and the shared borrow keeps the loop from handing more out.
        unsafe { std::slice::from_raw_parts(first, (end - start) as usize) }
    }

    /// Bytes as a lease. The caller ([`Buffers`]) has checked as for [`read`](BufferBytes::read), and
    /// keeps the buffer from everybody until the lease comes back.
    ///
    /// [`Buffers`]: crate::tables::buffers::Buffers
    pub(crate) fn lease(&self, buffer: u16, start: u32, end: u32) -> LeasedBytes {
        let bytes = self.read(buffer, start, end);
        let (first, length) = (NonNull::from(bytes).cast::<u8>(), end - start);
        LeasedBytes { memory: self.memory.clone(), first, length, buffer, of: None }
    }

    /// Whether a lease is of these buffers.
    pub(crate) fn leased(&self, lease: &LeasedBytes) -> bool {
        Rc::ptr_eq(&self.memory, &lease.memory)
    }

    /// Moves bytes to the buffer's start. No request on the buffer is in flight (`Buffers` checks).
    pub(crate) fn compact(&mut self, buffer: u16, start: u32, end: u32) {
        assert!(start <= end && end <= self.bytes);
        let from = self.address_of(buffer, start);
        let to = self.address_of(buffer, 0);
        // SAFETY: both ranges lie in the buffer; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from, to, (end - start) as usize) };
    }
}

impl fmt::Debug for BufferBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferBytes({} of {} bytes)", self.count, self.bytes)
    }
}

/// Received bytes on loan, and a share of the memory they lie in. They are not written while this
/// lives. It stays on the loop's thread.
pub(crate) struct LeasedBytes {
    memory: Rc<Memory>,
    first: NonNull<u8>,
    length: u32,
    buffer: u16,
    /// The stream that received them, which counts what it lends.
    pub(crate) of: Option<Descriptor>,
}

impl LeasedBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `BufferBytes::lease` made the range from bytes that were received; until this comes
        // back nobody else gets the buffer (`Buffers`), and the share keeps the memory.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.length as usize) }
    }

    pub(crate) fn buffer(&self) -> u16 {
        self.buffer
    }
}

impl fmt::Debug for LeasedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeasedBytes({} of buffer {})", self.length, self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_and_the_arena_agree() {
        let mut plan = Plan::default();
        plan.table::<u8>(3);
        plan.table::<u64>(5);
        plan.range(100, ARENA_ALIGN);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let mut bytes = arena.table::<u8>(3);
        let mut words = arena.table::<u64>(5);
        let page = arena.range(100, ARENA_ALIGN);
        assert_eq!(page.as_ptr().addr() % ARENA_ALIGN, 0);
        for n in 0..3 {
            assert_eq!(bytes.push(n), Some(u32::from(n)));
        }
        assert_eq!(bytes.push(9), None);
        assert_eq!(words.push(77), Some(0));
        assert_eq!((bytes[2], words[0]), (2, 77));
    }

    #[test]
    fn rows_are_dropped_once() {
        let counter = Rc::new(());
        let mut plan = Plan::default();
        plan.table::<Rc<()>>(4);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let mut table = arena.table(4);
        table.push(counter.clone());
        table.push(counter.clone());
        assert_eq!(Rc::strong_count(&counter), 3);
        drop(table);
        assert_eq!(Rc::strong_count(&counter), 1);
    }

    #[test]
    fn a_lease_keeps_the_memory_after_everything_else_is_gone() {
        for leaked in [false, true] {
            let mut plan = Plan::default();
            plan.range(3 * 64, ARENA_ALIGN);
            let mut arena = Arena::new(plan.bytes()).unwrap();
            let bytes = BufferBytes::new(&mut arena, 3, 64);
            // SAFETY: 64 bytes of the buffer, which nobody else uses.
            unsafe { bytes.address_of(1, 0).write_bytes(7, 64) };
            let (lease, other) = (bytes.lease(1, 10, 20), bytes.lease(1, 0, 64));
            assert!(bytes.leased(&lease) && lease.buffer() == 1);
            let count = Rc::strong_count(&lease.memory);
            drop(bytes);
            if leaked {
                arena.leak();
            }
            drop(arena);
            assert_eq!(Rc::strong_count(&lease.memory), count - 2);
            drop(other);
            assert_eq!(lease.bytes(), [7; 10]);
            if leaked {
                // For the leak check of an interpreter: what the kernel might use is freed by hand.
                let layout = Layout::from_size_align(plan.bytes(), ARENA_ALIGN).unwrap();
                lease.memory.owned.set(Some(layout));
            }
        }
    }

    #[test]
    fn memory_handed_in_may_be_unaligned_but_not_short() {
        let memory =
            Box::leak(vec![MaybeUninit::<u8>::uninit(); 3 * ARENA_ALIGN].into_boxed_slice());
        assert!(Arena::in_memory(&mut memory[1..], ARENA_ALIGN).is_ok());
        let memory = Box::leak(vec![MaybeUninit::<u8>::uninit(); 100].into_boxed_slice());
        let error = Arena::in_memory(memory, ARENA_ALIGN).unwrap_err();
        assert!(matches!(error, CreateError::MemoryTooSmall { .. }));
    }
}
