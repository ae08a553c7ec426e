#![deny(unsafe_code)]
//! Closing: queued sends first, receives and polls canceled, and then, for a stream, until the peer
//! has taken what was written.
//!
//! Linux answers a close with unread input by a reset (RFC 2525, 2.17), and a reset makes it throw
//! away what was written and not yet sent. So with input unread or output unsent the write side is
//! shut, and input is discarded until the peer has ended its side or acknowledged everything, within
//! `LINGER_BYTES_MAX` and `LINGER_NS_MAX`; past a bound the stream is closed as it stands, and counted.

use std::net::Shutdown;

use crate::error::SubmitError;
use crate::event::EventKind;
use crate::event_loop::Loop;
use crate::limits::{LINGER_BYTES_MAX, LINGER_NS_MAX, LINGER_PAUSE_NS_MAX, LINGER_PAUSE_NS_MIN};
use crate::op::{Control, Descriptor, Handle, SocketOption};
use crate::tables::NONE;
use crate::tables::slots::State;
use crate::tables::sockets::{DescriptorKind, Linger, Phase};

/// Unread bytes thrown away in one call.
const DISCARD_BYTES: u32 = 1 << 20;

impl Loop {
    pub(super) fn begin_close(
        &mut self,
        descriptor: Descriptor,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        let row = self.open(descriptor)?;
        let close = self.slots.take(EventKind::Close, user_data);
        let slot = close.expect("there is a close slot for each socket");
        self.slots.get_mut(slot).extra = row;
        self.slots.get_mut(slot).state = State::Closing;
        let handle = self.slots.handle(slot);
        let first = self.closing;
        let socket = self.sockets.get_mut(row);
        socket.close = slot;
        socket.lent = false;
        socket.phase = Phase::Closing;
        socket.previous = NONE;
        socket.next = first;
        if first != NONE {
            self.sockets.get_mut(first).previous = row;
        }
        self.sockets.begin_ending(row);
        self.closing = row;
        self.cancel_for_close(row);
        self.try_close(row);
        let socket = self.sockets.get(row);
        if socket.phase == Phase::Closing {
            let bound_ns = match self.sockets.linger(row) {
                Linger::Default => LINGER_NS_MAX,
                Linger::AtMost(bound_ns) => bound_ns,
                Linger::Reset => 0,
            };
            let deadline = self.driver.now().saturating_add(bound_ns);
            self.sockets.ending_mut(row).deadline_ns = deadline;
            self.check_at(row, deadline);
        }
        Ok(handle)
    }

    /// Cancels what a close does not wait for: receives, accepts, polls, a connect.
    fn cancel_for_close(&mut self, row: u32) {
        let sending = self.sockets.get(row).send.current;
        if sending != NONE && self.slots.get(sending).kind == EventKind::Connect {
            self.cancel_sends(row);
        }
        self.cancel_waiting_on(row);
    }

    /// Cancels receives, accepts and polls.
    pub(super) fn cancel_waiting_on(&mut self, row: u32) {
        self.cancel_receives_on(row);
        let mut other = self.sockets.get(row).others.first();
        while let Some(index) = other {
            let next = self.slots.get(index).next;
            other = (next != NONE).then_some(next);
            if self.slots.get(index).kind == EventKind::Poll {
                self.cancel_slot(index);
            }
        }
    }

    /// Cancels receives and accepts.
    pub(super) fn cancel_receives_on(&mut self, row: u32) {
        while let Some(index) = self.sockets.get(row).receive.waiting.first() {
            self.cancel_slot(index);
        }
        let current = self.sockets.get(row).receive.current;
        if current != NONE {
            self.cancel_slot(current);
        }
    }

    fn cancel_sends(&mut self, row: u32) {
        while let Some(index) = self.sockets.get(row).send.waiting.first() {
            self.cancel_slot(index);
        }
        let current = self.sockets.get(row).send.current;
        if current != NONE {
            self.cancel_slot(current);
        }
    }

    /// Goes on closing once no operation is left on a socket.
    #[inline]
    pub(super) fn try_close(&mut self, row: u32) {
        let socket = self.sockets.get(row);
        if socket.phase == Phase::Closing && socket.is_idle() {
            self.shut_or_close(row);
        }
    }

    fn shut_or_close(&mut self, row: u32) {
        let socket = self.sockets.get(row);
        let at_once = socket.kind != DescriptorKind::Stream
            || socket.saw_end
            || socket.overdue
            || self.sockets.linger(row) == Linger::Reset;
        if at_once || !self.has_unread_or_unsent(row) {
            self.close_now(row);
            return;
        }
        let fd = self.sockets.get(row).fd;
        self.counts.immediate.closing += 1;
        // A failure means the connection is gone, and the next look finds its end.
        let _ = self.driver.control(&Control::Shutdown(fd, Shutdown::Write));
        let now = self.driver.now();
        self.sockets.get_mut(row).phase = Phase::Lingering;
        let bound_ns = match self.sockets.linger(row) {
            Linger::AtMost(bound_ns) => bound_ns,
            Linger::Default | Linger::Reset => LINGER_NS_MAX,
        };
        let ending = self.sockets.ending_mut(row);
        ending.deadline_ns = ending.deadline_ns.min(now.saturating_add(bound_ns));
        ending.pause_ns = LINGER_PAUSE_NS_MIN;
        self.check_at(row, now.saturating_add(LINGER_PAUSE_NS_MIN));
    }

    fn has_unread_or_unsent(&mut self, row: u32) -> bool {
        self.look(row, Control::Unread) > 0 || self.look(row, Control::Unsent) > 0
    }

    /// A count the backend gives, 0 if it cannot (an unconnected socket has none).
    fn look(&mut self, row: u32, control: fn(i32) -> Control<i32>) -> u64 {
        self.counts.immediate.closing += 1;
        let fd = self.sockets.get(row).fd;
        self.driver.control(&control(fd)).ok().and_then(|reply| reply.count()).unwrap_or(0)
    }

    fn check_at(&mut self, row: u32, at_ns: u64) {
        self.sockets.ending_mut(row).check_ns = at_ns;
        self.closing_check_ns = self.closing_check_ns.min(at_ns);
    }

    fn close_now(&mut self, row: u32) {
        let socket = self.sockets.get(row);
        let (fd, close) = (socket.fd, socket.close);
        let (previous, next) = (socket.previous, socket.next);
        if previous == NONE {
            self.closing = next;
        } else {
            self.sockets.get_mut(previous).next = next;
        }
        if next != NONE {
            self.sockets.get_mut(next).previous = previous;
        }
        if self.closing == NONE {
            self.closing_check_ns = u64::MAX;
        }
        if let Linger::AtMost(_) = self.sockets.linger(row) {
            // close(2) would wait for the peer and block the thread, on a non-blocking socket too.
            let off = Control::Set(fd, SocketOption::Linger(None));
            self.counts.immediate.closing += 1;
            let _ = self.driver.control(&off);
        }
        if self.sockets.get(row).parted && self.sockets.get(row).kind == DescriptorKind::Stream {
            self.counts.immediate.closing += 1;
            let _ = self.driver.control(&Control::Shutdown(fd, Shutdown::Write));
        }
        self.counts.immediate.closes += 1;
        self.driver.release(fd);
        self.sockets.get_mut(row).phase = Phase::Closed;
        // The row is free when the event is taken: see `take_done`.
        self.settle(close, 0);
    }

    /// Looks at the streams that are closing and whose time for it has come.
    pub(super) fn check_closing(&mut self, now_ns: u64) {
        if now_ns < self.closing_check_ns {
            return;
        }
        self.closing_check_ns = u64::MAX;
        let mut row = self.closing;
        let mut next_check = u64::MAX;
        while row != NONE {
            let next = self.sockets.get(row).next;
            if self.sockets.ending(row).check_ns <= now_ns {
                self.check_one(row, now_ns);
            }
            if matches!(self.sockets.get(row).phase, Phase::Closing | Phase::Lingering) {
                next_check = next_check.min(self.sockets.ending(row).check_ns);
            }
            row = next;
        }
        self.closing_check_ns = next_check;
    }

    fn check_one(&mut self, row: u32, now_ns: u64) {
        if self.sockets.get(row).phase == Phase::Closing {
            self.give_up_sends(row);
            return;
        }
        let ended = self.discard(row);
        let ending = self.sockets.ending(row);
        let (deadline_ns, discarded) = (ending.deadline_ns, ending.discarded);
        if ended || self.look(row, Control::Unsent) == 0 {
            self.close_now(row);
        } else if now_ns >= deadline_ns || discarded > LINGER_BYTES_MAX {
            self.counts.resets += 1;
            self.close_now(row);
        } else {
            let ending = self.sockets.ending_mut(row);
            let pause_ns = ending.pause_ns;
            ending.pause_ns = (pause_ns * 2).min(LINGER_PAUSE_NS_MAX);
            self.check_at(row, now_ns.saturating_add(pause_ns).min(deadline_ns));
        }
    }

    /// The sends a close waits for are stuck: it waits no longer.
    fn give_up_sends(&mut self, row: u32) {
        self.counts.resets += u64::from(!self.sockets.get(row).send.is_idle());
        self.sockets.get_mut(row).overdue = true;
        self.sockets.ending_mut(row).check_ns = u64::MAX;
        self.cancel_sends(row);
        self.try_close(row);
    }

    /// A shutdown ran into its bound: no close waits for its sends any longer. Answers whether one
    /// did.
    pub(super) fn give_up_all_sends(&mut self) -> bool {
        let mut found = false;
        let mut row = self.closing;
        while row != NONE {
            let socket = self.sockets.get(row);
            let next = socket.next;
            let waits = socket.phase == Phase::Closing && !socket.send.is_idle();
            if waits && !socket.overdue {
                found = true;
                self.give_up_sends(row);
            }
            row = next;
        }
        found
    }

    /// Throws away what the peer has sent. Answers whether the peer's side has ended.
    fn discard(&mut self, row: u32) -> bool {
        let fd = self.sockets.get(row).fd;
        loop {
            self.counts.immediate.closing += 1;
            let discarded = self.driver.control(&Control::Discard(fd, DISCARD_BYTES));
            match discarded.map(|reply| reply.count()) {
                Ok(Some(0)) => return true,
                Ok(Some(count)) => {
                    let ending = self.sockets.ending_mut(row);
                    ending.discarded += count;
                    // Input that keeps coming fast deserves an early look.
                    ending.pause_ns = LINGER_PAUSE_NS_MIN;
                    if ending.discarded > LINGER_BYTES_MAX {
                        return false;
                    }
                }
                Ok(None) => return false,
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    /// Closes what still lingers, whatever the peer has taken: a shutdown ran into its bound.
    pub(super) fn close_lingering(&mut self) {
        let mut row = self.closing;
        while row != NONE {
            let next = self.sockets.get(row).next;
            if self.sockets.get(row).phase == Phase::Lingering {
                self.counts.resets += 1;
                self.close_now(row);
            }
            row = next;
        }
    }
}
