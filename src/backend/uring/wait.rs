//! Waiting, and finding out what ended the wait; and the wait that ends all others, before the ring
//! is closed.
#![deny(unsafe_code)]

use std::io;

use io_uring::EnterFlags;
use io_uring::types::{CancelBuilder, Timespec};

use super::reap::{Reaped, reap};
use super::{Pending, Uring, prepare};
use crate::backend::{Completion, TickEnd, TickWait};
use crate::sys::clock;

/// The longest wait handed to the kernel, 146 years: it adds its own clock to a wait in 63 bits of
/// nanoseconds (`io_cqring_wait`). Linux 6.18 takes longer ones well; nothing promises that others do.
pub(super) const WAIT_NS_MAX: u64 = i64::MAX as u64 / 2;

/// Pause between two rounds of cancels while the ring is being closed.
const CLOSE_ROUND_NS: u64 = 10_000_000;

impl Uring {
    /// A tick, whatever is held back.
    pub(super) fn tick_as_told(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        self.publish_buffers();
        // A wait without a watch could sleep through a wake-up.
        let wait = if self.arm_wake() { wait } else { TickWait::Zero };
        match wait {
            TickWait::Zero => {
                let entered = self.poll()?;
                let there = self.peek();
                Ok(match (there, entered) {
                    (true, _) => TickEnd::Event,
                    (false, true) => TickEnd::Polled,
                    (false, false) => TickEnd::NotEntered,
                })
            }
            TickWait::AtMost(_) | TickWait::Forever if self.look() => {
                self.poll()?;
                Ok(TickEnd::Event)
            }
            TickWait::AtMost(wait_ns) => self.wait(Some(wait_ns)),
            TickWait::Forever => self.wait(None),
        }
    }

    /// Queues what was held back, for the kernel to watch. False: there is no room for all of it.
    #[inline]
    pub(super) fn hand_over_held(&mut self) -> bool {
        while let Some(receive) = self.held.last() {
            if !self.push(&prepare::prepare(receive.token, &receive.request())) {
                return false;
            }
            self.held.forget_last();
        }
        true
    }

    /// The next completion in the queue, taking note of this backend's own on the way.
    #[inline(always)]
    pub(super) fn reap_next(&mut self) -> Option<Completion> {
        if let Some(completion) = self.held.next_answer() {
            self.in_flight -= 1;
            return Some(completion);
        }
        loop {
            let entry = self.ring.memory.completion().next()?;
            match reap(entry.user_data(), entry.result(), entry.flags()) {
                Reaped::Completion(completion) => {
                    self.in_flight -= u64::from(!completion.more);
                    return Some(completion);
                }
                Reaped::Wake { rearm } => {
                    self.woken = true;
                    if rearm {
                        // The wakes up to this read are told with this one; a later one leaves the
                        // counter above zero for the next watch to find.
                        self.wake.reset();
                        self.wake_armed = false;
                    }
                }
                Reaped::CancelAcknowledged | Reaped::Unknown => {}
            }
        }
    }

    /// Whether something is there that ends a wait; a wake-up counts once.
    pub(super) fn look(&mut self) -> bool {
        let there = self.peek();
        self.woken = false;
        there
    }

    /// The same, without using a wake-up up.
    pub(super) fn peek(&mut self) -> bool {
        if self.at_hand.is_none() {
            self.at_hand = self.reap_next();
        }
        self.woken || self.at_hand.is_some()
    }

    /// Enters without waiting, if there is a reason to. Answers whether there was.
    pub(super) fn poll(&mut self) -> io::Result<bool> {
        let pending = self.look_at_queues();
        if pending.queued == 0 && !pending.fetch {
            return Ok(false);
        }
        self.statistics.enters += 1;
        match self.ring.enter(pending.queued, 0, EnterFlags::GETEVENTS, None) {
            // What was not taken is queued still, and goes in with the next tick.
            Ok(_) | Err(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(true),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Submits and waits in one call; again, for what is left of the time, if a signal or an answer
    /// of no interest to the loop ended the wait.
    pub(super) fn wait(&mut self, wait_ns: Option<u64>) -> io::Result<TickEnd> {
        let start_ns = if wait_ns.is_some() { clock::now_ns() } else { 0 };
        let mut left_ns = wait_ns;
        loop {
            let queued = self.look_at_queues().queued;
            let time = left_ns.map(timespec);
            let flags = EnterFlags::GETEVENTS | self.wait_flags;
            self.statistics.enters += 1;
            match self.ring.enter(queued, 1, flags, time.as_ref()) {
                Ok(_) | Err(libc::ETIME | libc::EINTR) => {}
                Err(libc::EAGAIN | libc::EBUSY) => return Ok(TickEnd::Polled),
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
            if self.look() {
                return Ok(TickEnd::Event);
            }
            if let Some(wait_ns) = wait_ns {
                let passed_ns = clock::now_ns() - start_ns;
                if passed_ns >= wait_ns {
                    return Ok(TickEnd::TimedOut);
                }
                left_ns = Some(wait_ns - passed_ns);
            }
        }
    }

    fn look_at_queues(&mut self) -> Pending {
        let pending = self.ring.pending();
        self.statistics.overflows += u64::from(pending.overflow && !self.overflowing);
        self.overflowing = pending.overflow;
        pending
    }

    /// Ends every request and reaps it. The loop has done so before, as a rule; this is what makes
    /// the *requests* invariant hold when it has not, for instance when it unwinds.
    pub(super) fn end_all(&mut self) {
        self.at_hand = None;
        self.in_flight -= self.held.clear();
        while self.in_flight > 0 {
            let round = timespec(CLOSE_ROUND_NS);
            // Submitted first, so that the cancel finds it. With nothing left it answers ENOENT;
            // what it cannot stop (a read under way at a disk) ends by itself.
            let queued = self.ring.pending().queued;
            let submitted = self.ring.enter(queued, 0, EnterFlags::GETEVENTS, None);
            let submitter = self.ring.memory.submitter();
            let _ = submitter.register_sync_cancel(Some(round), CancelBuilder::any());
            let waited = self.ring.enter(0, 1, EnterFlags::GETEVENTS, Some(&round));
            while self.reap_next().is_some() {}
            for errno in [submitted.err(), waited.err()].into_iter().flatten() {
                if !matches!(errno, libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) {
                    // Memory the kernel may write would be freed next. There is no other way out.
                    eprintln!("rotor: io_uring_enter fails ({errno}) with requests in flight");
                    std::process::abort();
                }
            }
        }
    }
}

pub(super) fn timespec(ns: u64) -> Timespec {
    let ns = ns.min(WAIT_NS_MAX);
    Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32)
}
