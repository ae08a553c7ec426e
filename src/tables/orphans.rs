#![deny(unsafe_code)]
//! Buffers the loop keeps while an operation uses them. Whoever submitted the operation may be gone
//! by the time it ends: the buffer is then an orphan, and freed with the final event.

use crate::op::OrphanId;
use crate::tables::NONE;
use crate::tables::arena::{Arena, LeasedBytes, Plan, Table};
use crate::tables::slots::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// In flight, and nobody will reclaim it.
    Abandoned,
    /// Its operation has ended.
    Ended,
}

/// A buffer of an operation's own. Its bytes stay where they are while it is moved.
#[derive(Debug)]
pub(crate) enum OwnedBytes {
    /// Memory of the heap.
    Heap(Vec<u8>),
    /// Memory of the program, never written.
    Static(&'static [u8]),
    /// A receive buffer of this loop's, on loan; never written.
    Leased(LeasedBytes),
}

impl OwnedBytes {
    const EMPTY: OwnedBytes = OwnedBytes::Static(&[]);

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            OwnedBytes::Heap(bytes) => bytes,
            OwnedBytes::Static(bytes) => bytes,
            OwnedBytes::Leased(lease) => lease.bytes(),
        }
    }
}

/// What has become of a buffer whose operation has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It waits to be reclaimed.
    Kept(OrphanId),
    /// Nobody wants it.
    Abandoned(OwnedBytes),
}

#[derive(Debug)]
struct Row {
    bytes: OwnedBytes,
    /// Bytes that were sent, of a send.
    sent: u64,
    generation: u32,
    state: State,
    next: u32,
}

/// The buffers in flight.
#[derive(Debug)]
pub(crate) struct Orphans {
    rows: Table<Row>,
    free: u32,
    first_generation: u32,
    usage: Usage,
    abandoned: u64,
}

impl Orphans {
    pub(crate) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Row>(capacity);
    }

    pub(crate) fn new(arena: &mut Arena, capacity: u32, first_generation: u32) -> Orphans {
        let usage = Usage::new(capacity);
        let rows = arena.table(capacity);
        Orphans { rows, free: NONE, first_generation, usage, abandoned: 0 }
    }

    /// Buffers kept, in flight or not yet reclaimed.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// How many were ever abandoned in flight.
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Keeps a buffer. The address of its bytes does not change until it is taken out again.
    pub(crate) fn keep(&mut self, bytes: OwnedBytes) -> Result<OrphanId, OwnedBytes> {
        if !self.usage.take() {
            return Err(bytes);
        }
        if self.free == NONE {
            let generation = self.first_generation;
            let row = Row { bytes, sent: 0, generation, state: State::InFlight, next: NONE };
            let index = self.rows.push(row).expect("as many rows as the limit says");
            return Ok(OrphanId { index, generation });
        }
        let index = self.free;
        let row = &mut self.rows[index];
        self.free = row.next;
        row.bytes = bytes;
        row.sent = 0;
        row.state = State::InFlight;
        Ok(OrphanId { index, generation: row.generation })
    }

    /// The bytes, for the kernel, which writes them only if they are of the heap.
    pub(crate) fn address(&mut self, index: u32) -> (*mut u8, usize) {
        match &mut self.rows[index].bytes {
            OwnedBytes::Heap(bytes) => (bytes.as_mut_ptr(), bytes.len()),
            OwnedBytes::Static(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            OwnedBytes::Leased(lease) => (lease.bytes().as_ptr().cast_mut(), lease.bytes().len()),
        }
    }

    /// Notes how many bytes of a send have gone.
    pub(crate) fn set_sent(&mut self, index: u32, sent: u64) {
        self.rows[index].sent = sent;
    }

    /// How many bytes of an ended send have gone.
    pub(crate) fn sent(&self, orphan: OrphanId) -> u64 {
        self.find(orphan).map_or(0, |index| self.rows[index].sent)
    }

    /// The operation has ended.
    pub(crate) fn end(&mut self, index: u32) -> Ended {
        let row = &mut self.rows[index];
        let generation = row.generation;
        match row.state {
            State::Abandoned => Ended::Abandoned(self.release(index)),
            State::InFlight => {
                row.state = State::Ended;
                Ended::Kept(OrphanId { index, generation })
            }
            State::Free | State::Ended => unreachable!("an operation ended twice"),
        }
    }

    fn find(&self, orphan: OrphanId) -> Option<u32> {
        let live = orphan.index < self.rows.len()
            && self.rows[orphan.index].generation == orphan.generation;
        live.then_some(orphan.index)
    }

    /// Takes the buffer out after its operation has ended.
    pub(crate) fn reclaim(&mut self, orphan: OrphanId) -> Option<OwnedBytes> {
        let index = self.find(orphan).filter(|&index| self.rows[index].state == State::Ended)?;
        Some(self.release(index))
    }

    /// Nobody will reclaim it: hands it out now, or when its operation ends.
    pub(crate) fn abandon(&mut self, orphan: OrphanId) -> Option<OwnedBytes> {
        let index = self.find(orphan)?;
        match self.rows[index].state {
            State::InFlight => {
                self.rows[index].state = State::Abandoned;
                self.abandoned += 1;
                None
            }
            State::Ended => Some(self.release(index)),
            State::Free | State::Abandoned => None,
        }
    }

    fn release(&mut self, index: u32) -> OwnedBytes {
        let free = self.free;
        let row = &mut self.rows[index];
        row.state = State::Free;
        row.generation = row.generation.wrapping_add(1);
        row.next = free;
        let bytes = std::mem::replace(&mut row.bytes, OwnedBytes::EMPTY);
        self.free = index;
        self.usage.give_back();
        bytes
    }

    /// Gives up every buffer still in flight to whatever may still write it.
    pub(crate) fn leak(&mut self) {
        for index in 0..self.rows.len() {
            let row = &mut self.rows[index];
            if matches!(row.state, State::InFlight | State::Abandoned) {
                std::mem::forget(std::mem::replace(&mut row.bytes, OwnedBytes::EMPTY));
            }
        }
    }
}
