//! The executor's one allocation: a `Shared` block, a table of headers, a table of cells.
//!
//! This file holds unsafe code: it carves typed tables out of one untyped allocation. Its
//! invariants:
//!
//! 1. The allocation lives until `pins` is zero. `pins` starts at the number of headers plus one.
//!    The `Arena` holds one pin until it closes; each header that is not free when the arena closes
//!    holds one until its last waker and join handle are gone. So whoever has an `&Arena`, a waker
//!    or a join handle may read `Shared` and the header.
//! 2. Headers below `headers_touched` are initialised and stay so; nothing above is read.
//! 3. A cell is in exactly one place: above `cells_touched`, in the list of free cells, or at a
//!    header: that of a task without the mark `HEAP`, or one in the list of free places. Its first
//!    bytes are the link of the list of free cells only while it is in there.
//! 4. Plain cells (`Cell`) are read and written by the owner's thread only; another thread touches
//!    the atomics, and the fields that never change after creation.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::AcqRel;

use crate::error::CreateError;
use crate::joiner::Joiner;
use crate::local::Local;
use crate::options::{Options, Oversized, Unpark};
use crate::phase::{JOINED, Phase};
use crate::plan::Plan;
use crate::refused::Refused;
use crate::sync::{
    AtomicBool, AtomicIsize, AtomicU32, AtomicUsize, Cell, Life, OwnerId, alloc, dealloc,
};
use crate::task::Operations;

/// The header of the main future. Its storage is the caller's; it only has wakers.
pub(crate) const MAIN: u32 = 0;
/// No header: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;
/// In place of the remote stack's first header: the executor is gone, nothing is pushed any more.
pub(crate) const CLOSED: u32 = u32::MAX - 1;

/// One task's fixed part: a cache line.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) shared: NonNull<Shared>,
    pub(crate) operations: Cell<&'static Operations>,
    pub(crate) storage: Cell<NonNull<u8>>,
    /// The next header of the run queue or of the free list; `NONE` outside of both.
    pub(crate) next: Cell<u32>,
    /// References counted by the owner's thread alone: the plain half of the count in `waker.rs`.
    pub(crate) references: Cell<i32>,
    pub(crate) phase: Cell<Phase>,
    /// In the run queue.
    pub(crate) queued: Cell<bool>,
    /// `HANDLE`, `ABORT`, `HEAP`, `JOINED`.
    pub(crate) marks: Cell<u8>,
    /// In the remote stack, or about to be pushed.
    pub(crate) remote_queued: AtomicBool,
    /// The next header of the remote stack.
    pub(crate) remote_next: AtomicU32,
    /// References counted by all threads, and whether they are all there are: see `waker.rs`.
    pub(crate) word: AtomicIsize,
    /// Whom to tell when the output is stored.
    joiner: Cell<Joiner>,
}

#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Header>() == 64, "a header is one cache line");

impl Header {
    /// Who has a header has its arena.
    #[inline]
    pub(crate) fn arena(&self) -> &Shared {
        // SAFETY: invariant 1: who can look at the header holds its pin, or what keeps it.
        unsafe { self.shared.as_ref() }
    }

    /// Has the processor bring what the task's next poll looks at first, where it can be told to: a
    /// future's fields begin its storage, and its state ends it (decision 0016).
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let first = self.storage.get().as_ptr().cast::<i8>();
            let last = first.wrapping_add(self.operations.get().layout.size()).wrapping_sub(1);
            for line in [first, first.wrapping_add(64), last.wrapping_sub(64), last] {
                // SAFETY: a hint: nothing is read, whatever lies there.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            }
        }
    }

    #[inline]
    pub(crate) fn has_mark(&self, mark: u8) -> bool {
        self.marks.get() & mark != 0
    }

    #[inline]
    pub(crate) fn set_mark(&self, mark: u8) {
        self.marks.set(self.marks.get() | mark);
    }

    /// Puts in whom to tell, where nobody is: spares a look at what is replaced.
    #[inline]
    pub(crate) fn put_joiner(&self, joiner: Joiner) {
        self.set_mark(JOINED);
        std::mem::forget(self.joiner.replace(joiner));
    }

    /// Takes out whom to tell.
    #[inline]
    pub(crate) fn take_joiner(&self) -> Joiner {
        self.clear_mark(JOINED);
        self.joiner.take()
    }

    #[inline]
    pub(crate) fn clear_mark(&self, mark: u8) {
        self.marks.set(self.marks.get() & !mark);
    }
}

/// What the allocation begins with. The fields up to `unpark` never change after creation.
#[repr(C, align(128))]
pub(crate) struct Shared {
    pub(crate) owner: OwnerId,
    headers: NonNull<Header>,
    cells: NonNull<u8>,
    pub(crate) plan: Plan,
    pub(crate) oversized: Oversized,
    pub(crate) unpark: ManuallyDrop<Unpark>,
    pub(crate) life: Life,
    pub(crate) local: Local,
    pub(crate) remote: Remote,
}

/// A header of the arena that the link itself is a part of.
pub(crate) struct Link(Cell<Option<NonNull<Header>>>);

impl Link {
    pub(crate) fn none() -> Link {
        Link(Cell::new(None))
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&Header> {
        // SAFETY: links are in `Local`, so in the arena, and set to headers of the same arena, which
        // invariant 2 keeps initialised as long as the arena, and so as long as the link.
        self.0.get().map(|header| unsafe { header.as_ref() })
    }

    #[inline]
    pub(crate) fn set(&self, header: Option<&Header>) {
        self.0.set(header.map(NonNull::from));
    }
}

/// The part of `Shared` that other threads write.
#[repr(C, align(128))]
pub(crate) struct Remote {
    /// The first header of the remote stack, `NONE` or `CLOSED`.
    pub(crate) head: AtomicU32,
    /// `unpark` was called since the owner last prepared to wait.
    pub(crate) notified: AtomicBool,
    pins: AtomicUsize,
}

impl Shared {
    /// The header with a number found in a list.
    #[inline]
    pub(crate) fn header(&self, index: u32) -> &Header {
        assert!(index < self.local.headers_touched.get(), "a list holds a header never touched");
        // SAFETY: invariant 2, the header is initialised and stays so; it lives as long as `self`.
        unsafe { self.headers.add(index as usize).as_ref() }
    }

    /// The header with a number another thread pushed to the remote stack, or one to push.
    #[inline]
    pub(crate) fn index_of(&self, header: NonNull<Header>) -> u32 {
        let offset = header.addr().get() - self.headers.addr().get();
        // Fits: `Plan::of` made sure that there are fewer headers than `u32::MAX`.
        (offset / size_of::<Header>()) as u32
    }

    pub(crate) fn headers_in_use(&self) -> u32 {
        self.local.tasks_in_use.get() + self.local.headers_over.get()
    }

    pub(crate) fn headers_touched(&self) -> u32 {
        self.local.headers_touched.get()
    }

    /// Gives a header a cell that has none.
    ///
    /// # Safety
    ///
    /// The header is free and has no cell, there are fewer tasks than cells, and no place is free.
    #[inline]
    pub(crate) unsafe fn give_cell_to(&self, header: &Header) {
        if let Some(cell) = self.local.free_cell.get() {
            // SAFETY: invariant 3, a cell in the free list begins with its link.
            self.local.free_cell.set(unsafe { cell.cast().read() });
            header.storage.set(cell);
            return;
        }
        let index = self.local.cells_touched.get();
        assert!(index < self.plan.tasks, "a cell is taken only when a task is free");
        self.local.cells_touched.set(index + 1);
        // SAFETY: the index is below the number of cells, so the result is within the allocation.
        header.storage.set(unsafe { self.cells.add(index as usize * self.plan.cell_bytes) });
    }

    /// Takes the cell of a header.
    ///
    /// # Safety
    ///
    /// The header has a cell, and nothing refers to it or to a value in it any more.
    pub(crate) unsafe fn take_cell_of(&self, header: &Header) {
        let cell = header.storage.get();
        // SAFETY: the cell is the header's, at least 32 bytes large and aligned to as many.
        unsafe { cell.cast().write(self.local.free_cell.get()) };
        self.local.free_cell.set(Some(cell));
    }
}

/// Frees a header that nobody refers to any more, with its cell: to the list of free places, or to
/// its pin's end.
///
/// # Safety
///
/// On the owner's thread. The header is in no list, its cell holds nothing, and no waker or join
/// handle of it is left but the one that is being dropped, which does not touch it again. Unless the
/// caller has an `&Arena`, nothing of the arena may be touched afterwards.
#[inline]
pub(crate) unsafe fn free_place(header: NonNull<Header>) {
    // SAFETY: the caller's word.
    unsafe { free_to(header, |local| &local.free_place) };
}

/// As `free_place`, of a header that has no cell.
///
/// # Safety
///
/// As `free_place`.
unsafe fn free_header(header: NonNull<Header>) {
    // SAFETY: the caller's word.
    unsafe { free_to(header, |local| &local.free_header) };
}

/// # Safety
///
/// As `free_place` or `free_header`, by the list.
#[inline]
unsafe fn free_to(header: NonNull<Header>, list: impl FnOnce(&Local) -> &Cell<u32>) {
    // SAFETY: invariant 1, the header's pin is still held. The references end before `unpin`.
    let shared = unsafe {
        let shared = header.as_ref().shared;
        let (header, local) = (header.as_ref(), &shared.as_ref().local);
        header.phase.set(Phase::Free);
        if !local.closed.get() {
            let index = shared.as_ref().index_of(NonNull::from(header));
            header.next.set(list(local).replace(index));
            return;
        }
        shared
    };
    // SAFETY: the arena is closed and left this header its pin, which is given up once: here.
    unsafe { unpin(shared, 1) };
}

/// As `free_header`, of a header that was no task's any more.
///
/// # Safety
///
/// As `free_header`.
pub(crate) unsafe fn free_header_over(header: NonNull<Header>) {
    // SAFETY: the caller's word, and the header's pin, which is still held.
    unsafe {
        let over = &header.as_ref().shared.as_ref().local.headers_over;
        over.set(over.get() - 1);
        free_header(header);
    }
}

/// Gives up pins; with the last one, frees the allocation.
///
/// # Safety
///
/// The caller holds as many pins, and touches nothing of the arena afterwards. Any thread.
pub(crate) unsafe fn unpin(shared: NonNull<Shared>, pins: usize) {
    // AcqRel: whoever frees has seen everything the others did before they gave up theirs.
    // SAFETY: invariant 1, by the caller's pins.
    if unsafe { shared.as_ref() }.remote.pins.fetch_sub(pins, AcqRel) != pins {
        return;
    }
    // SAFETY: nobody holds a pin, so nobody refers to anything in the allocation, and it was made
    // with this layout. Headers and cells hold nothing to drop: each header was free or had its
    // last reference dropped. `unpark` is moved out first and dropped last: it is foreign code.
    unsafe {
        shared.as_ref().life.ended();
        let unpark = shared.as_ref().unpark_taken();
        let layout = shared.as_ref().plan.layout;
        dealloc(shared.as_ptr().cast(), layout);
        drop(unpark);
    }
}

impl Shared {
    /// # Safety
    ///
    /// Once, by whoever frees the allocation.
    unsafe fn unpark_taken(&self) -> Unpark {
        // SAFETY: the field is never used again.
        ManuallyDrop::into_inner(unsafe { std::ptr::read(&raw const self.unpark) })
    }
}

/// The executor's pin. Dropping it closes the arena; the caller has dropped all tasks before.
pub(crate) struct Arena(NonNull<Shared>);

impl Deref for Arena {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: invariant 1, by the arena's own pin.
        unsafe { self.0.as_ref() }
    }
}

impl Arena {
    pub(crate) fn new(options: &Options, unpark: Unpark) -> Result<Arena, CreateError> {
        let Options { tasks, task_bytes, oversized } = *options;
        if tasks == 0 {
            return Err(CreateError::NoTasks);
        }
        if task_bytes == 0 {
            return Err(CreateError::NoTaskBytes);
        }
        let plan = Plan::of(options).ok_or(CreateError::TooLarge { tasks, task_bytes })?;
        // SAFETY: the layout's size is not zero: it holds a `Shared`.
        let memory = NonNull::new(unsafe { alloc(plan.layout) })
            .ok_or(CreateError::OutOfMemory { bytes: plan.layout.size() })?;
        // SAFETY: both offsets are within the allocation.
        let (headers, cells) =
            unsafe { (memory.add(plan.headers_offset).cast(), memory.add(plan.cells_offset)) };
        let shared = Shared {
            owner: OwnerId::current(),
            headers,
            cells,
            plan,
            oversized,
            unpark: ManuallyDrop::new(unpark),
            life: Life::new(),
            local: Local::new(tasks),
            remote: Remote {
                head: AtomicU32::new(NONE),
                notified: AtomicBool::new(false),
                pins: AtomicUsize::new(plan.headers as usize + 1),
            },
        };
        let memory = memory.cast::<Shared>();
        // SAFETY: the allocation begins with room for a `Shared`, aligned.
        unsafe { memory.write(shared) };
        let arena = Arena(memory);
        if let Some(main) = arena.take_header() {
            main.phase.set(Phase::Main);
            arena.local.headers_over.set(1);
        }
        Ok(arena)
    }

    /// Takes a header with its cell, if one is free.
    #[inline]
    pub(crate) fn take_place(&self) -> Option<&Header> {
        self.take_from(&self.local.free_place)
    }

    /// Takes a header that has no cell: `None` if all are in use, some of them possibly in the
    /// remote stack. Of those that have one none is looked at.
    #[inline]
    pub(crate) fn take_header(&self) -> Option<&Header> {
        self.take_free_header().or_else(|| self.touch_header())
    }

    /// As `take_header`, of those that were in use before.
    #[inline]
    pub(crate) fn take_free_header(&self) -> Option<&Header> {
        self.take_from(&self.local.free_header)
    }

    #[inline]
    fn take_from(&self, list: &Cell<u32>) -> Option<&Header> {
        let free = list.get();
        if free == NONE {
            return None;
        }
        let header = self.header(free);
        list.set(header.next.replace(NONE));
        Some(header)
    }

    /// Takes a header and gives it a cell. No place is free.
    pub(crate) fn make_place(&self) -> Result<&Header, Refused> {
        let header = match self.take_header() {
            Some(header) => header,
            None => self.take_header_let_go()?,
        };
        // SAFETY: the header was in the list of those that have no cell, or is new. The caller has
        // looked whether there is a task to be had, and for a free place.
        unsafe { self.give_cell_to(header) };
        Ok(header)
    }

    /// Takes the header of a free place, and leaves its cell to others.
    pub(crate) fn take_place_apart(&self) -> Option<&Header> {
        let header = self.take_place()?;
        // SAFETY: who is in the list of free places has a cell, and nothing is in it.
        unsafe { self.take_cell_of(header) };
        Some(header)
    }

    fn touch_header(&self) -> Option<&Header> {
        let index = self.local.headers_touched.get();
        if index == self.plan.headers {
            return None;
        }
        let header = Header {
            shared: self.0,
            operations: Cell::new(&Operations::NONE),
            storage: Cell::new(self.cells),
            next: Cell::new(NONE),
            references: Cell::new(0),
            phase: Cell::new(Phase::Free),
            queued: Cell::new(false),
            marks: Cell::new(0),
            remote_queued: AtomicBool::new(false),
            remote_next: AtomicU32::new(NONE),
            word: AtomicIsize::new(0),
            joiner: Cell::new(Joiner::NOBODY),
        };
        // SAFETY: the index is below the number of headers, so the place is within the allocation
        // and aligned; it is above `headers_touched`, so nobody refers to it.
        unsafe { self.headers.add(index as usize).write(header) };
        self.local.headers_touched.set(index + 1);
        Some(self.header(index))
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.close();
        self.local.closed.set(true);
        // Every header that is not free keeps its pin: a waker or a join handle refers to it.
        let pins_free = self.plan.headers - self.headers_in_use();
        // SAFETY: the arena's own pin, and those of the free headers, which nobody else gives up. A
        // header another thread frees after `close` is still counted as in use here.
        unsafe { unpin(self.0, pins_free as usize + 1) };
    }
}
