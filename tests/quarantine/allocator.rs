//! An allocator that never gives freed memory out again: it fills it with a pattern, keeps it, and
//! can say which of it was written since. Of blocks of a page or more, that is; smaller ones go to
//! the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::Mutex;

const PAGE_BYTES: usize = 4096;
/// What freed memory is filled with. No byte the tests move has this value.
const PATTERN: u8 = 0xdb;
/// Blocks that are kept; the test checks that there was room for all.
const BLOCKS_MAX: usize = 8192;
/// Bytes that are kept.
const BYTES_MAX: usize = 4 << 30;

pub(crate) struct Quarantine {
    /// Locked around each use. The table is not in the mutex so that it can be `const`, zeroed memory
    /// that is touched only as used.
    lock: Mutex<()>,
    kept: UnsafeCell<Kept>,
}

struct Kept {
    blocks: [(usize, usize); BLOCKS_MAX],
    count: usize,
    bytes: usize,
    refused: usize,
}

// SAFETY: `kept` is used only while `lock` is held.
unsafe impl Sync for Quarantine {}

/// What was found in freed memory.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Blocks in quarantine, and their bytes.
    pub(crate) blocks: usize,
    pub(crate) bytes: usize,
    /// Blocks of exactly the size asked for in which a byte was written.
    pub(crate) buffers_hit: usize,
    /// Blocks of other sizes in which a byte was written.
    pub(crate) others_hit: usize,
    /// Bytes that were written.
    pub(crate) bytes_written: usize,
    /// Blocks there was no room for, which went back to the system.
    pub(crate) refused: usize,
}

impl Quarantine {
    pub(crate) const fn new() -> Quarantine {
        let kept = Kept { blocks: [(0, 0); BLOCKS_MAX], count: 0, bytes: 0, refused: 0 };
        Quarantine { lock: Mutex::new(()), kept: UnsafeCell::new(kept) }
    }

    fn locked<T>(&self, with: impl FnOnce(&mut Kept) -> T) -> T {
        // Nothing below panics or allocates while it is held.
        let _held = self.lock.lock();
        // SAFETY: the lock is held, and `with` cannot come back here: it does not allocate.
        with(unsafe { &mut *self.kept.get() })
    }

    /// Looks for bytes that were written after they were freed.
    pub(crate) fn look(&self, buffer_bytes: usize) -> Found {
        self.locked(|kept| {
            let mut found = Found { refused: kept.refused, ..Found::default() };
            for &(address, bytes) in &kept.blocks[..kept.count] {
                let pointer: *const u8 = std::ptr::with_exposed_provenance(address);
                let written = (0..bytes)
                    // SAFETY: the block was allocated with this size and is never freed. Volatile,
                    // because what is looked for is a write the compiler does not know of.
                    .filter(|&at| unsafe { pointer.add(at).read_volatile() } != PATTERN)
                    .count();
                found.blocks += 1;
                found.bytes += bytes;
                found.bytes_written += written;
                let hits = if bytes == buffer_bytes {
                    &mut found.buffers_hit
                } else {
                    &mut found.others_hit
                };
                *hits += usize::from(written > 0);
            }
            found
        })
    }
}

/// Large blocks begin at a page, as reads around the page cache need.
fn aligned(layout: Layout) -> Layout {
    if layout.size() < PAGE_BYTES {
        return layout;
    }
    layout.align_to(PAGE_BYTES).unwrap_or(layout)
}

// SAFETY: memory comes from the system allocator, with at least the alignment asked for; a block is
// kept, or given back to it with the layout it came with.
unsafe impl GlobalAlloc for Quarantine {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's word; the larger alignment is a power of two too.
        unsafe { System.alloc(aligned(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let bytes = layout.size();
        if bytes >= PAGE_BYTES {
            // SAFETY: the block is this long, and its owner has given it up.
            unsafe { memory.write_bytes(PATTERN, bytes) };
            let is_kept = self.locked(|kept| {
                if kept.count == BLOCKS_MAX || kept.bytes + bytes > BYTES_MAX {
                    kept.refused += 1;
                    return false;
                }
                kept.blocks[kept.count] = (memory.expose_provenance(), bytes);
                kept.count += 1;
                kept.bytes += bytes;
                true
            });
            if is_kept {
                return;
            }
        }
        // SAFETY: it came from the system with this layout.
        unsafe { System.dealloc(memory, aligned(layout)) }
    }
}
