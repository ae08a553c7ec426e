#![deny(unsafe_code)]
//! The loop's clock: the backend's, or one that a program has stopped and moves by itself.

use std::io;

use crate::backend::{TickEnd, TickWait};
use crate::error::TickError;
use crate::event::EventKind;
use crate::event_loop::Loop;
use crate::tables::slots::State;

/// How the loop's time follows from the backend's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// So far ahead of it, or behind: the sum wraps.
    Runs { ahead_ns: u64 },
    /// It stands still here.
    Stands { now_ns: u64 },
}

impl Clock {
    /// As it is at the start.
    pub(super) fn new(backend_ns: u64, paused: bool) -> Clock {
        if paused { Clock::Stands { now_ns: backend_ns } } else { Clock::Runs { ahead_ns: 0 } }
    }

    #[inline]
    pub(super) fn at(self, backend_ns: u64) -> u64 {
        match self {
            Clock::Runs { ahead_ns } => backend_ns.wrapping_add(ahead_ns),
            Clock::Stands { now_ns } => now_ns,
        }
    }
}

/// Says that the clock is in the wrong state for what is asked of it.
fn refused(words: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words)
}

impl Loop {
    /// Stops the clock. Timers are due when it is [moved](Loop::advance_clock), and, in a tick that would
    /// otherwise sleep, at once, in their order: the clock jumps to the next deadline, unless an operation is with
    /// the backend that does more than wait for a peer.
    ///
    /// # Errors
    /// When it stands still already.
    pub fn pause_clock(&mut self) -> io::Result<()> {
        match self.clock {
            Clock::Runs { .. } => {
                self.clock = Clock::Stands { now_ns: self.now() };
                Ok(())
            }
            Clock::Stands { .. } => Err(refused("the clock is paused already")),
        }
    }

    /// Lets the clock run again, from where it stands.
    ///
    /// # Errors
    /// When it runs.
    pub fn resume_clock(&mut self) -> io::Result<()> {
        match self.clock {
            Clock::Runs { .. } => Err(refused("the clock is not paused")),
            Clock::Stands { now_ns } => {
                self.clock = Clock::Runs { ahead_ns: now_ns.wrapping_sub(self.driver.now()) };
                Ok(())
            }
        }
    }

    /// Moves a clock that stands still, at most to the last moment before its end, which never comes.
    ///
    /// # Errors
    /// When it runs.
    pub fn advance_clock(&mut self, by_ns: u64) -> io::Result<()> {
        match &mut self.clock {
            Clock::Runs { .. } => Err(refused("the clock is not paused")),
            Clock::Stands { now_ns } => {
                *now_ns = now_ns.saturating_add(by_ns).min(u64::MAX - 1);
                Ok(())
            }
        }
    }

    /// In place of a sleep while the clock stands still: looks for what is there, and if there is nothing that
    /// could come of what was asked for, time passes to `until_ns` and the tick is over. Else it is to wait
    /// as answered, in the backend's time: for as long as it takes, or until a stream that is closing wants a
    /// look.
    pub(super) fn jump(&mut self, until_ns: u64) -> Result<Option<TickWait>, TickError> {
        self.counts.waits.zero_timer += 1;
        if self.wait(TickWait::Zero)? == TickEnd::Event {
            return Ok(None);
        }
        if until_ns < u64::MAX && !self.waits_for_more_than_peers() {
            self.clock = Clock::Stands { now_ns: until_ns };
            return Ok(None);
        }
        if self.closing_check_ns == u64::MAX {
            return Ok(Some(TickWait::Forever));
        }
        let left = self.closing_check_ns.saturating_sub(self.driver.now());
        Ok(Some(TickWait::AtMost(left.max(1))))
    }

    /// Whether an operation is under way that the kernel brings to an end: it takes real time, which the
    /// clock is not to pass by.
    fn waits_for_more_than_peers(&self) -> bool {
        (0..self.slots.touched()).any(|index| {
            let slot = self.slots.get(index);
            match slot.state {
                State::InKernel | State::Unsubmitted => match slot.kind {
                    EventKind::Accept | EventKind::Receive | EventKind::Poll => false,
                    EventKind::Nop
                    | EventKind::Connect
                    | EventKind::Send
                    | EventKind::SendVectored
                    | EventKind::Shutdown
                    | EventKind::Close
                    | EventKind::Read
                    | EventKind::Write
                    | EventKind::Timer => true,
                },
                State::Free
                | State::Queued
                | State::Starved
                | State::Armed
                | State::Closing
                | State::Done => false,
            }
        })
    }
}
