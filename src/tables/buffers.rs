#![deny(unsafe_code)]
//! The receive buffers: who has each one.
//!
//! A buffer is free, provided to the backend, lent to one receive, or held: named by an event and not
//! yet returned, or on loan to a lease. While a receive fills the rest of a held buffer, only the
//! bytes before that may be looked at.

use std::ops::Range;

use crate::limits::BUFFERS_LENT_MAX;
use crate::op::BufferId;
use crate::tables::NONE;
use crate::tables::arena::buffer_stride;
use crate::tables::arena::{Arena, BufferBytes, LeasedBytes, Plan, Table};
use crate::tables::slots::Usage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Free,
    Provided,
    /// With one receive, which alone may write it.
    Lent,
    Held,
    /// Held, and a receive writes the bytes after `filled`.
    Filling,
    /// Held, and a send reads it.
    Sending,
    /// Held by a lease, which may outlive the loop.
    Leased,
}

#[derive(Debug)]
struct Row {
    holder: Holder,
    /// Bytes from the start that have been received.
    filled: u32,
    /// The free list.
    next: u32,
}

/// The buffers. The last returned is the first to be used again, so a small warm set serves.
#[derive(Debug)]
pub(crate) struct Buffers {
    rows: Table<Row>,
    bytes: BufferBytes,
    buffer_bytes: u32,
    free: u32,
    provided: u32,
    lent: u32,
    lent_max: u32,
    held: Usage,
}

impl Buffers {
    pub(crate) fn plan(plan: &mut Plan, count: u32, buffer_bytes: u32) {
        plan.table::<Row>(count);
        let bytes = count as usize * buffer_stride(buffer_bytes);
        plan.range(bytes, crate::tables::arena::ARENA_ALIGN);
    }

    pub(crate) fn new(arena: &mut Arena, count: u32, buffer_bytes: u32) -> Buffers {
        Buffers {
            rows: arena.table(count),
            bytes: BufferBytes::new(arena, count, buffer_bytes),
            buffer_bytes,
            free: NONE,
            provided: 0,
            lent: 0,
            lent_max: BUFFERS_LENT_MAX.min(count / 4),
            held: Usage::new(count),
        }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.bytes.base()
    }

    pub(crate) fn usage(&self) -> Usage {
        self.held
    }

    pub(crate) fn lent(&self) -> u32 {
        self.lent
    }

    pub(crate) fn provided(&self) -> u32 {
        self.provided
    }

    /// Takes a free buffer to provide to the backend.
    pub(crate) fn provide(&mut self) -> Option<u16> {
        let buffer = self.take(Holder::Provided)?;
        self.provided += 1;
        Some(buffer)
    }

    /// Whether fewer are lent than may be.
    pub(crate) fn lends(&self) -> bool {
        self.lent < self.lent_max
    }

    /// Takes a free buffer for one receive: its number, where it lies and its length.
    pub(crate) fn lend(&mut self) -> Option<(u16, *mut u8, u32)> {
        if !self.lends() {
            return None;
        }
        let buffer = self.take(Holder::Lent)?;
        self.lent += 1;
        Some((buffer, self.bytes.address_of(buffer, 0), self.buffer_bytes))
    }

    fn take(&mut self, holder: Holder) -> Option<u16> {
        let index = if self.free == NONE {
            self.rows.push(Row { holder: Holder::Free, filled: 0, next: NONE })?
        } else {
            let index = self.free;
            self.free = self.rows[index].next;
            index
        };
        self.rows[index].holder = holder;
        Some(index as u16)
    }

    /// Bytes came into a buffer that was lent to their receive, or else provided: it is held now.
    pub(crate) fn received(&mut self, buffer: u16, length: u32, lent: bool) {
        self.leave_backend(buffer, lent);
        let row = &mut self.rows[u32::from(buffer)];
        row.holder = Holder::Held;
        row.filled = length.min(self.buffer_bytes);
        self.held.take();
    }

    fn leave_backend(&mut self, buffer: u16, lent: bool) {
        let expected = if lent { Holder::Lent } else { Holder::Provided };
        assert!(
            self.rows[u32::from(buffer)].holder == expected,
            "rotor: the backend named a buffer it was not given"
        );
        *(if lent { &mut self.lent } else { &mut self.provided }) -= 1;
    }

    #[inline]
    fn held(&self, buffer: BufferId) -> &Row {
        let row = &self.rows[u32::from(buffer.0)];
        let held = match row.holder {
            Holder::Held | Holder::Filling | Holder::Sending => true,
            Holder::Free | Holder::Provided | Holder::Lent | Holder::Leased => false,
        };
        assert!(held, "rotor: {buffer:?} is not held; it was returned already");
        row
    }

    /// Received bytes of a held buffer.
    #[track_caller]
    #[inline]
    pub(crate) fn bytes(&self, buffer: BufferId, range: Range<u32>) -> &[u8] {
        let filled = self.held(buffer).filled;
        assert!(range.end <= filled, "rotor: only {filled} bytes of {buffer:?} were received");
        self.bytes.read(buffer.0, range.start, range.end)
    }

    /// Copies received bytes of a held buffer to `into`, which has as many.
    #[track_caller]
    pub(crate) fn copy_out(&self, buffer: BufferId, range: Range<u32>, into: &mut [u8]) {
        copy(self.bytes(buffer, range), into);
    }

    /// Takes a held buffer back of which these are the last bytes, copied to `into`, which has as many.
    #[inline]
    pub(crate) fn drain(&mut self, buffer: BufferId, range: Range<u32>, into: &mut [u8]) {
        let row = &self.rows[u32::from(buffer.0)];
        assert!(
            row.holder == Holder::Held && range.end <= row.filled,
            "rotor: {buffer:?} is not held, is in use, or has fewer bytes"
        );
        copy(self.bytes.read(buffer.0, range.start, range.end), into);
        self.release(buffer.0);
        self.held.give_back();
    }

    /// Stops unless the buffer is held, idle, and has that many bytes.
    #[track_caller]
    pub(crate) fn check_idle(&self, buffer: BufferId, bytes: u32) {
        let row = self.held(buffer);
        assert!(row.holder == Holder::Held, "rotor: {buffer:?} is in use by an operation");
        let filled = row.filled;
        assert!(bytes <= filled, "rotor: only {filled} bytes of {buffer:?} were received");
    }

    /// A receive is to fill the buffer from `offset`: where to, and how much fits.
    pub(crate) fn begin_filling(&mut self, buffer: BufferId, offset: u32) -> (*mut u8, u32) {
        let row = self.held(buffer);
        assert!(row.holder == Holder::Held, "rotor: {buffer:?} is in use by an operation");
        assert!(offset <= row.filled, "rotor: a receive into {buffer:?} would leave a gap");
        let row = &mut self.rows[u32::from(buffer.0)];
        row.holder = Holder::Filling;
        row.filled = offset;
        (self.bytes.address_of(buffer.0, offset), self.buffer_bytes - offset)
    }

    /// That receive ended.
    pub(crate) fn end_filling(&mut self, buffer: u16, length: u32) {
        let row = &mut self.rows[u32::from(buffer)];
        debug_assert_eq!(row.holder, Holder::Filling);
        row.holder = Holder::Held;
        row.filled += length;
    }

    /// A send is to read received bytes of the buffer: where they lie.
    #[track_caller]
    pub(crate) fn begin_sending(&mut self, buffer: BufferId, range: Range<u32>) -> *const u8 {
        let row = self.held(buffer);
        assert!(row.holder == Holder::Held, "rotor: {buffer:?} is in use by an operation");
        let first = self.bytes(buffer, range).as_ptr();
        self.rows[u32::from(buffer.0)].holder = Holder::Sending;
        first
    }

    /// The operation on a held buffer ended.
    pub(crate) fn end_sending(&mut self, buffer: u16) {
        let row = &mut self.rows[u32::from(buffer)];
        debug_assert_eq!(row.holder, Holder::Sending);
        row.holder = Holder::Held;
    }

    /// Moves bytes to the buffer's start and forgets the rest.
    pub(crate) fn compact(&mut self, buffer: BufferId, range: Range<u32>) {
        let row = self.held(buffer);
        assert!(row.holder == Holder::Held, "rotor: {buffer:?} is in use by an operation");
        assert!(range.end <= row.filled && range.start <= range.end);
        self.bytes.compact(buffer.0, range.start, range.end);
        self.rows[u32::from(buffer.0)].filled = range.end - range.start;
    }

    /// Lends received bytes of a held buffer, which is nobody else's until they come back.
    #[track_caller]
    pub(crate) fn lease(&mut self, buffer: BufferId, range: Range<u32>) -> LeasedBytes {
        self.check_idle(buffer, range.end);
        self.rows[u32::from(buffer.0)].holder = Holder::Leased;
        self.bytes.lease(buffer.0, range.start, range.end)
    }

    /// Takes a lease back.
    pub(crate) fn end_lease(&mut self, lease: LeasedBytes) {
        assert!(self.bytes.leased(&lease), "rotor: a lease came back to another loop");
        let buffer = lease.buffer();
        debug_assert_eq!(self.rows[u32::from(buffer)].holder, Holder::Leased);
        drop(lease);
        self.release(buffer);
        self.held.give_back();
    }

    /// Takes a held buffer back.
    #[track_caller]
    pub(crate) fn give_back(&mut self, buffer: BufferId) {
        let row = self.held(buffer);
        assert!(row.holder == Holder::Held, "rotor: {buffer:?} is in use by an operation");
        self.release(buffer.0);
        self.held.give_back();
    }

    /// Nothing was put into a buffer that was lent to the receive that ends, or else provided.
    pub(crate) fn unused(&mut self, buffer: u16, lent: bool) {
        self.leave_backend(buffer, lent);
        self.release(buffer);
    }

    #[inline]
    fn release(&mut self, buffer: u16) {
        let free = self.free;
        let row = &mut self.rows[u32::from(buffer)];
        row.holder = Holder::Free;
        row.next = free;
        self.free = u32::from(buffer);
    }
}

/// Bytes copied at a time: fewer than those from which glibc uses one instruction for all, `rep movsb`
/// (2,048 or more). AMD's Zen 3 has it take five times as long where the target does not begin on a
/// cache line (decision 0012).
const COPY_BYTES: usize = 1024;

/// Copies bytes to where there is room for as many.
#[inline]
fn copy(from: &[u8], into: &mut [u8]) {
    if from.len() <= COPY_BYTES {
        into.copy_from_slice(from);
        return;
    }
    assert!(from.len() == into.len(), "rotor: {} bytes for {}", from.len(), into.len());
    for (from, into) in from.chunks(COPY_BYTES).zip(into.chunks_mut(COPY_BYTES)) {
        into.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::tables::arena::buffer_stride;

    fn four() -> Buffers {
        let mut plan = Plan::default();
        Buffers::plan(&mut plan, 4, 4096);
        Buffers::new(&mut Arena::new(plan.bytes()).unwrap(), 4, 4096)
    }

    /// Whoever may still write a buffer keeps it: a backend that names another's is stopped.
    #[test]
    fn a_buffer_is_taken_from_the_one_it_was_given_to_and_once() {
        for lent in [false, true] {
            for empty in [false, true] {
                let mut buffers = four();
                let (provided, (own, _, _)) = (buffers.provide().unwrap(), buffers.lend().unwrap());
                let (right, wrong) = if lent { (own, provided) } else { (provided, own) };
                let mut take = |buffer| {
                    catch_unwind(AssertUnwindSafe(|| match empty {
                        true => buffers.unused(buffer, lent),
                        false => buffers.received(buffer, 1, lent),
                    }))
                };
                assert!(take(wrong).is_err() && take(3).is_err());
                assert!(take(right).is_ok());
                assert!(take(right).is_err(), "it is theirs no more");
            }
        }
    }

    #[test]
    fn only_a_quarter_is_lent() {
        let mut buffers = four();
        assert!(buffers.lend().is_some() && buffers.lend().is_none());
        assert_eq!((buffers.lent(), buffers.provided()), (1, 0));
    }

    /// The sets of a cache repeat every power of two.
    #[test]
    fn buffers_of_a_power_of_two_begin_in_different_sets_of_a_cache() {
        for bytes in [4096, 16_384, 65_536] {
            let stride = buffer_stride(bytes);
            assert!(stride >= bytes as usize && stride % 64 == 0);
            let sets: std::collections::BTreeSet<_> = (0..64).map(|n| n * stride % 4096).collect();
            assert_eq!(sets.len(), 64, "of {bytes} bytes");
        }
    }
}
