#![deny(unsafe_code)]
//! Cancel: a request. The canceled operation's final event is the answer.

use crate::backend::Token;
use crate::event_loop::Loop;
use crate::op::Handle;
use crate::tables::slots::{CANCEL_REQUESTED, CANCEL_SENT, State};
use crate::tables::sockets::direction_of;

impl Loop {
    /// Asks for an operation to end. Its final event comes from a later tick: with what it had
    /// done if something had arrived, or with
    /// [`is_canceled`](crate::Event::is_canceled). False: it is over already, or is a close, which
    /// always runs to its end.
    pub fn cancel(&mut self, handle: Handle) -> bool {
        if self.check().is_err() {
            return false;
        }
        match self.slots.find(handle.index, handle.generation) {
            Some(index) => self.cancel_slot(index),
            None => false,
        }
    }

    /// Moves an armed timer to another deadline; among those of that moment it is the last. False: it
    /// is not armed any more, or this is a child process.
    pub fn reset_timer(&mut self, handle: Handle, deadline_ns: u64) -> bool {
        self.armed_timer(handle).is_some_and(|index| {
            self.timers.disarm(&mut self.slots, index);
            self.slots.get_mut(index).offset = deadline_ns;
            self.timers.arm(&mut self.slots, index);
            true
        })
    }

    /// Takes an armed timer back without an event: who submitted it keeps nothing that an event would
    /// be for. False: it is not armed any more, or this is a child process.
    pub(crate) fn forget_timer(&mut self, handle: Handle) -> bool {
        self.armed_timer(handle).is_some_and(|index| {
            self.timers.disarm(&mut self.slots, index);
            self.slots.free(index);
            true
        })
    }

    fn armed_timer(&self, handle: Handle) -> Option<u32> {
        self.check().ok()?;
        let index = self.slots.find(handle.index, handle.generation)?;
        (self.slots.get(index).state == State::Armed).then_some(index)
    }

    pub(super) fn cancel_slot(&mut self, index: u32) -> bool {
        match self.slots.get(index).state {
            State::Free | State::Closing => false,
            State::Queued => {
                let (row, kind) = (self.slots.get(index).socket, self.slots.get(index).kind);
                if let Some(lane) = self.sockets.lane(row, direction_of(kind)) {
                    lane.waiting.remove(&mut self.slots, index);
                }
                self.settle(index, -libc::ECANCELED);
                true
            }
            // It leaves the queue of the unsubmitted in its order; see `hand_over`.
            State::Unsubmitted => {
                self.slots.get_mut(index).flags |= CANCEL_REQUESTED;
                true
            }
            State::InKernel => {
                self.slots.get_mut(index).flags |= CANCEL_REQUESTED;
                self.send_cancel(index);
                true
            }
            State::Starved => {
                self.unstarve(index);
                self.settle_turn(index, -libc::ECANCELED);
                true
            }
            State::Armed => {
                self.timers.disarm(&mut self.slots, index);
                self.settle(index, -libc::ECANCELED);
                true
            }
            State::Done => {
                let goes_on = self.slots.get(index).event_flags & crate::event::MORE != 0;
                if goes_on {
                    self.slots.get_mut(index).flags |= CANCEL_REQUESTED;
                }
                goes_on
            }
        }
    }

    /// Tells the backend, once; keeps the cancel for later when there is no room.
    fn send_cancel(&mut self, index: u32) {
        if self.slots.get(index).flags & CANCEL_SENT != 0 {
            return;
        }
        self.slots.get_mut(index).flags |= CANCEL_SENT;
        let handle = self.slots.handle(index);
        if !self.uncanceled.is_empty()
            || !self.driver.cancel(Token::new(handle.index, handle.generation))
        {
            self.counts.backend_full += 1;
            let slots = &self.slots;
            self.uncanceled.push(handle, |kept| slots.find(kept.index, kept.generation).is_some());
        }
    }

    /// Whether accepts wait for a row.
    pub(crate) fn accepts_starve(&self) -> bool {
        !self.starved_accepts.is_empty()
    }

    fn unstarve(&mut self, index: u32) {
        if self.slots.get(index).kind == crate::event::EventKind::Accept {
            self.starved_accepts.remove(&mut self.slots, index);
        } else {
            self.starved_receives.remove(&mut self.slots, index);
        }
    }

    /// Hands over what found the backend full. Answers whether something is still left.
    pub(super) fn hand_over(&mut self) -> bool {
        while let Some(handle) = self.uncanceled.front() {
            let live = self.slots.find(handle.index, handle.generation);
            let waits = live.is_some_and(|index| self.slots.get(index).state == State::InKernel);
            if waits && !self.driver.cancel(Token::new(handle.index, handle.generation)) {
                break;
            }
            self.uncanceled.pop();
        }
        // Each is tried once: one that finds the backend full again goes to the back, behind the
        // others of its kind, all of them unordered among each other (a lane has one at most).
        for _ in 0..self.unsubmitted.count() {
            let Some(handle) = self.unsubmitted.pop() else { break };
            let live = self.slots.find(handle.index, handle.generation);
            let waits = live.filter(|&index| self.slots.get(index).state == State::Unsubmitted);
            let Some(index) = waits else { continue };
            if self.slots.get(index).flags & CANCEL_REQUESTED != 0 {
                self.settle_turn(index, -libc::ECANCELED);
                continue;
            }
            let full_before = self.counts.backend_full;
            self.go_on(index);
            if self.counts.backend_full != full_before {
                break;
            }
        }
        !self.unsubmitted.is_empty() || !self.uncanceled.is_empty()
    }
}
