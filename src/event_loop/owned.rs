#![deny(unsafe_code)]
//! Operations that work on a buffer of their own, and received bytes on loan.

use std::ops::Range;

use crate::error::SubmitError;
use crate::event::EventKind;
use crate::event_loop::Loop;
use crate::event_loop::submit::Parameters;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::op::{BufferId, Descriptor, Handle, OrphanId, OwnedOperation};
use crate::tables::arena::LeasedBytes;
use crate::tables::orphans::{Ended, OwnedBytes};
use crate::tables::slots::OWNED;

impl Loop {
    /// Takes an operation with the buffer it works on. The loop keeps the buffer until
    /// [`reclaim`](Loop::reclaim) or [`abandon`](Loop::abandon), so it is safe to forget.
    ///
    /// # Errors
    /// As for [`submit`](Loop::submit); the buffer comes back.
    pub fn submit_owned(
        &mut self,
        operation: OwnedOperation,
        bytes: Vec<u8>,
        user_data: u64,
    ) -> Result<(Handle, OrphanId), (SubmitError, Vec<u8>)> {
        let (kind, descriptor, offset) = match operation {
            OwnedOperation::ReadAt { descriptor, offset } => (EventKind::Read, descriptor, offset),
            OwnedOperation::WriteAt { descriptor, offset } => {
                (EventKind::Write, descriptor, offset)
            }
            OwnedOperation::Receive { descriptor } => (EventKind::Receive, descriptor, 0),
            OwnedOperation::Send { descriptor } => (EventKind::Send, descriptor, 0),
        };
        let bytes = OwnedBytes::Heap(bytes);
        self.keep_and_enqueue(kind, descriptor, bytes, (offset, 0), user_data)
            .map_err(|(error, bytes)| (error, self.heap(bytes).unwrap_or_default()))
    }

    /// Sends bytes from `from` on, all of them however many, in as many steps as that takes.
    pub(crate) fn submit_send(
        &mut self,
        descriptor: Descriptor,
        bytes: OwnedBytes,
        from: usize,
        user_data: u64,
    ) -> Result<(Handle, OrphanId), (SubmitError, OwnedBytes)> {
        let at = (from as u64, from);
        self.keep_and_enqueue(EventKind::Send, descriptor, bytes, at, user_data)
    }

    /// `offset` is the operation's, `skipped` the bytes of the buffer it leaves out.
    fn keep_and_enqueue(
        &mut self,
        kind: EventKind,
        descriptor: Descriptor,
        bytes: OwnedBytes,
        (offset, skipped): (u64, usize),
        user_data: u64,
    ) -> Result<(Handle, OrphanId), (SubmitError, OwnedBytes)> {
        if let Err(error) = self.check() {
            return Err((error, bytes));
        }
        let orphan = match self.orphans.keep(bytes) {
            Ok(orphan) => orphan,
            Err(bytes) => return Err((self.full(kind), bytes)),
        };
        self.orphans.set_sent(orphan.index, skipped as u64);
        let (pointer, length) = self.orphans.address(orphan.index);
        let parameters = Parameters {
            pointer: pointer as u64 + skipped as u64,
            offset,
            length: capped(length - skipped),
            extra: orphan.index,
            flags: OWNED,
        };
        match self.enqueue(kind, descriptor, parameters, user_data) {
            Ok(handle) => Ok((handle, orphan)),
            Err(error) => {
                let bytes = match self.orphans.end(orphan.index) {
                    Ended::Kept(orphan) => self.orphans.reclaim(orphan),
                    Ended::Abandoned(bytes) => Some(bytes),
                };
                Err((error, bytes.expect("the buffer was kept above")))
            }
        }
    }

    /// A send of a buffer of its own has sent what one operation may: goes on with the rest. Answers
    /// whether there is some. The slot's offset is where in the buffer it stands.
    pub(super) fn begin_next_part(&mut self, index: u32) -> bool {
        let slot = self.slots.get_mut(index);
        let (address, total) = self.orphans.address(slot.extra);
        let offset = slot.offset + u64::from(slot.length);
        let rest = (total as u64).saturating_sub(offset);
        if rest == 0 {
            return false;
        }
        slot.offset = offset;
        slot.pointer = address as u64 + offset;
        slot.length = capped(rest as usize);
        slot.progress = 0;
        true
    }

    /// Takes an operation's own buffer out, after its final event.
    pub fn reclaim(&mut self, orphan: OrphanId) -> Option<Vec<u8>> {
        let bytes = self.orphans.reclaim(orphan)?;
        self.heap(bytes)
    }

    /// As [`reclaim`](Loop::reclaim), of a send: the buffer and how many of its bytes were sent.
    pub(crate) fn reclaim_sent(&mut self, orphan: OrphanId) -> Option<(OwnedBytes, u64)> {
        let sent = self.orphans.sent(orphan);
        Some((self.orphans.reclaim(orphan)?, sent))
    }

    /// Says that nobody will reclaim the buffer: it is freed now or with the final event.
    pub fn abandon(&mut self, orphan: OrphanId) {
        if let Some(bytes) = self.orphans.abandon(orphan) {
            self.free_bytes(bytes);
        }
    }

    pub(super) fn free_bytes(&mut self, bytes: OwnedBytes) {
        match bytes {
            OwnedBytes::Leased(lease) => self.end_lease(lease),
            OwnedBytes::Heap(bytes) => drop(bytes),
            OwnedBytes::Static(_) => {}
        }
    }

    fn heap(&mut self, bytes: OwnedBytes) -> Option<Vec<u8>> {
        match bytes {
            OwnedBytes::Heap(bytes) => Some(bytes),
            other @ (OwnedBytes::Static(_) | OwnedBytes::Leased(_)) => {
                self.free_bytes(other);
                None
            }
        }
    }

    /// Lends received bytes of a buffer that an event of a stream named. The buffer comes back with
    /// [`end_lease`](Loop::end_lease); the bytes may outlive the loop. Until then, wherever they are,
    /// they are one of the stream's [`leases`](Loop::leases).
    #[track_caller]
    pub(crate) fn lease(
        &mut self,
        of: Descriptor,
        buffer: BufferId,
        range: Range<u32>,
    ) -> LeasedBytes {
        let mut lease = self.buffers.lease(buffer, range);
        if let Some(row) = self.sockets.find_open(of) {
            self.sockets.get_mut(row).leased += 1;
            lease.of = Some(of);
        }
        lease
    }

    /// How many leases of what a stream received have not come back.
    pub(crate) fn leases(&self, of: Descriptor) -> u8 {
        self.sockets.find_open(of).map_or(0, |row| self.sockets.get(row).leased)
    }

    /// Takes a lease back. Receives that wait for a buffer go on with the next tick.
    pub(crate) fn end_lease(&mut self, lease: LeasedBytes) {
        if let Some(row) = lease.of.and_then(|of| self.sockets.find_open(of)) {
            self.sockets.get_mut(row).leased -= 1;
        }
        self.buffers.end_lease(lease);
    }
}

fn capped(length: usize) -> u32 {
    length.min(TRANSFER_BYTES_MAX as usize) as u32
}
