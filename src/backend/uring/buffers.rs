//! The ring of provided buffers: receives pick from it when bytes arrive.
//!
//! # Unsafe
//! The ring's memory is shared with the kernel. Invariants:
//! - *memory*: what [`BufferMemory`] names is valid, and used by nobody else, from `attach` until the
//!   kernel's ring is gone; kept by the loop, which owns the arena and frees it after the backend
//!   (and only when every receive has ended).
//! - *slots*: an entry is written only while the kernel does not own it: between the published tail
//!   and one lap further. Kept by the contract: a number is provided again only after a completion
//!   named it, and no more than `ring_entries` are provided at a time.
//! - *tail*: the ring's tail overlays the last two bytes of entry 0 (io_uring_register_buf_ring(3)).
//!   It is written atomically and by `publish` alone; entries are written field by field and leave
//!   those bytes alone. The kernel only ever reads this memory.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{Submitter, types::BufRingEntry};

use super::BUFFER_GROUP;
use crate::backend::{BufferMemory, Found};

/// The kernel's largest ring (io_uring_register_buf_ring(3)).
const RING_ENTRIES_MAX: u32 = 1 << 15;

pub(super) const LACKING: &str = "io_uring_register refused a ring of provided buffers \
                       (IORING_REGISTER_PBUF_RING, Linux 5.19)";

/// Whether the kernel knows such rings: asked for one at no address, it finds fault with the address, or
/// does not know what is asked for.
pub(super) fn found(submitter: &Submitter<'_>) -> Found {
    // SAFETY: the kernel refuses a ring at address 0, and keeps nothing of it.
    let registered = unsafe { submitter.register_buf_ring_with_flags(0, 1, BUFFER_GROUP, 0) };
    match registered.map_err(|error| error.raw_os_error()) {
        Ok(()) | Err(Some(libc::EFAULT)) => Found::Yes,
        Err(_) => Found::No,
    }
}

/// The ring and the place where its next buffer goes.
#[derive(Debug)]
pub(super) struct BufferRing {
    memory: BufferMemory,
    tail: u16,
    published: u16,
}

impl BufferRing {
    /// Registers the ring, empty.
    pub(super) fn register(
        submitter: &Submitter<'_>,
        memory: BufferMemory,
    ) -> io::Result<BufferRing> {
        let entries = memory.ring_entries;
        if !entries.is_power_of_two() || entries > RING_ENTRIES_MAX || memory.bytes == 0 {
            let rule =
                "a buffer ring has a power of two of entries, 32,768 at most, not empty ones";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, rule));
        }
        // SAFETY: *memory*. Nothing is in it yet: the arena comes zeroed or used, so the tail that
        // the kernel will read is set before the kernel knows the ring.
        unsafe { tail_of(&memory) }.store(0, Ordering::Relaxed);
        // SAFETY: *memory*: the ring holds `entries` entries until the kernel's ring is gone.
        let registered = unsafe {
            let address = memory.ring as u64;
            submitter.register_buf_ring_with_flags(address, entries as u16, BUFFER_GROUP, 0)
        };
        registered?;
        Ok(BufferRing { memory, tail: 0, published: 0 })
    }

    /// Writes the next entry. The kernel sees it with the next [`publish`](BufferRing::publish).
    pub(super) fn provide(&mut self, buffer: u16) {
        let BufferMemory { base, stride, count, bytes, ring, ring_entries } = self.memory;
        assert!(u32::from(buffer) < count, "rotor: buffer {buffer} of {count} was provided");
        let slot = usize::from(self.tail) & (ring_entries as usize - 1);
        let start = base.wrapping_add(usize::from(buffer) * stride);
        // SAFETY: *slots*: this entry is ours until the tail passes it; *memory*: it lies in the ring.
        // The fields are set one by one, so that entry 0 keeps the *tail*.
        unsafe {
            let entry = ring.cast::<BufRingEntry>().add(slot);
            (*entry).set_addr(start as u64);
            (*entry).set_len(bytes);
            (*entry).set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Hands over what was provided since the last time. Called before every entry to the kernel:
    /// receives pick buffers only inside one, because completions are deferred to this thread.
    #[inline]
    pub(super) fn publish(&mut self) {
        if self.published != self.tail {
            // SAFETY: *memory* and *tail*. The release store puts the entries before the tail.
            unsafe { tail_of(&self.memory) }.store(self.tail, Ordering::Release);
            self.published = self.tail;
        }
    }
}

/// The ring's tail.
///
/// # Safety
/// *memory* holds for as long as the result is used, and nobody reads or writes the two bytes in
/// another way.
unsafe fn tail_of(memory: &BufferMemory) -> &AtomicU16 {
    // SAFETY: *memory*: the ring is valid and page-aligned, its entries are plain numbers, and every
    // access to these two bytes is through this function.
    unsafe { AtomicU16::from_ptr(BufRingEntry::tail(memory.ring.cast()).cast_mut()) }
}
