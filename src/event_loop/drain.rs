#![deny(unsafe_code)]
//! Shutdown: cancel everything, wait until every operation has ended, only then free.

use std::net::Shutdown;
use std::time::Duration;

use crate::backend::Driver;
use crate::event::Event;
use crate::event_loop::{Loop, Wait};
use crate::op::Control;
use crate::tables::slots::State;
use crate::tables::sockets::{Direction, Phase, direction_of};

/// How a drain ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Operations the backend did not end in time. Their memory is kept for good.
    pub leaked: u32,
    /// Streams closed before their peer had taken everything.
    pub resets: u32,
    /// Final events thrown away.
    pub events: u64,
}

impl Loop {
    /// Cancels every operation, closes every descriptor and waits, at most for `bound`, until all
    /// of it has ended. Events are thrown away, connections they bring are closed. With nothing
    /// leaked the loop is as new.
    pub fn drain(&mut self, bound: Duration) -> Drained {
        if self.check().is_err() {
            return Drained::default();
        }
        let resets_before = self.counts.resets;
        let mut drained = Drained::default();
        self.cancel_everything();
        let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        let deadline = self.driver.now().saturating_add(bound_ns);
        let mut events = [Event::EMPTY; 64];
        // The first ticks do not wait: with a bound of zero what can end at once still does.
        let mut wait = Wait::Zero;
        while !self.is_drained() {
            let Ok(count) = self.tick(&mut events, wait) else { break };
            for event in &events[..count] {
                drained.events += 1;
                self.throw_away(event);
            }
            let now = self.driver.now();
            let over = count == 0 && wait != Wait::Zero && now >= deadline;
            let hurried = over && self.give_up_all_sends();
            if over && !hurried {
                break;
            }
            wait = if count > 0 || hurried {
                Wait::Zero
            } else {
                Wait::AtMost(Duration::from_nanos(deadline.saturating_sub(now).max(1)))
            };
        }
        // A connection that is thrown away may linger itself, so until nothing is left of either.
        loop {
            self.close_lingering();
            let Some(event) = self.take_done() else { break };
            self.throw_away(&event);
        }
        self.gave_up = self.in_kernel > 0;
        drained.leaked = self.in_kernel;
        drained.resets = (self.counts.resets - resets_before) as u32;
        drained
    }

    fn is_drained(&self) -> bool {
        self.in_kernel == 0
            && self.done.is_empty()
            && self.unsubmitted.is_empty()
            && self.closing == crate::tables::NONE
    }

    fn cancel_everything(&mut self) {
        for index in 0..self.slots.touched() {
            let state = self.slots.get(index).state;
            // Sends of a stream that is closing are let go in order; its close has a bound. Nothing
            // else is: a read of a pipe that nobody writes would wait for ever.
            let (row, kind) = (self.slots.get(index).socket, self.slots.get(index).kind);
            let lets_go = row != crate::tables::NONE
                && self.sockets.get(row).phase == Phase::Closing
                && direction_of(kind) == Direction::Send;
            if !matches!(state, State::Free | State::Closing | State::Done) && !lets_go {
                self.cancel_slot(index);
            }
        }
        for row in 0..self.sockets.touched() {
            if self.sockets.get(row).lent {
                // Its object closes it; the stream ends here.
                let fd = self.sockets.get(row).fd;
                let _ = self.driver.control(&Control::Shutdown(fd, Shutdown::Write));
            } else if self.sockets.get(row).phase == Phase::Open {
                let descriptor = self.sockets.descriptor(row);
                // The descriptor is open, so there is nothing to refuse.
                let _ = self.begin_close(descriptor, 0);
            }
        }
    }

    fn throw_away(&mut self, event: &Event) {
        if let Some(descriptor) = event.descriptor() {
            let _ = self.begin_close(descriptor, 0);
        }
        if let Some(buffer) = event.buffer() {
            self.return_buffer(buffer);
        }
        if let Some(orphan) = event.orphan() {
            self.abandon(orphan);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if self.driver.check().is_err() {
            // A child process: the ring and the descriptors are the parent's business.
            self.leak();
            return;
        }
        let ending = Ending { event_loop: self };
        if !ending.event_loop.is_drained() || ending.event_loop.sockets.usage().now > 0 {
            let event_loop = &mut *ending.event_loop;
            // What a drain before has waited for in vain is not waited for again.
            let spent = event_loop.gave_up;
            let bound = if spent { Duration::ZERO } else { event_loop.options.drain };
            event_loop.drain(bound);
        }
    }
}

/// Keeps the memory if operations are in the kernel when it is dropped, also by a panic.
struct Ending<'a> {
    event_loop: &'a mut Loop,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.event_loop.in_kernel > 0 {
            self.event_loop.leak();
        }
    }
}

impl Loop {
    /// Keeps for good what the kernel may still write: the arena, the buffers in flight and the
    /// backend itself.
    fn leak(&mut self) {
        self.orphans.leak();
        self.arena.leak();
        std::mem::forget(std::mem::replace(&mut self.driver, Driver::Gone));
    }
}
