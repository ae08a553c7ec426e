//! Accepting while the process or the system is out of descriptors or memory.
//!
//! An accept that fails for want of these fails at once, also when no client is there, so trying again
//! at once would spin. The error is told once an *episode*, which ends with the next connection.
//! Meanwhile the listener rests: it tries again when this runtime has closed a descriptor, or after a
//! pause that doubles. Clients wait in the kernel's backlog.

use crate::limits::{ACCEPT_PAUSE_NS_MAX, ACCEPT_PAUSE_NS_MIN};
use crate::op::{Descriptor, Handle, Operation};
use crate::runtime::core::Core;
use crate::runtime::dispatch::{Tag, Wakes, user_data};
use crate::runtime::streams::Listener;

/// An episode.
#[derive(Debug)]
pub(crate) struct Shortage {
    pause_ns: u64,
    /// Nothing is tried for the moment; it stands in [`Core::resting`](crate::runtime::Core).
    pub(crate) rests: bool,
    /// What ends the pause, if a timer could be had.
    pub(crate) timer: Option<Handle>,
}

/// Whether an accept failed for want of descriptors or memory, so that it will again (accept(2)).
pub(crate) fn is_shortage(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
}

impl Core {
    /// An accept failed for a shortage: the listener rests. Answers whom to tell, the first time.
    pub(crate) fn rest(&mut self, listener: Descriptor, errno: i32) -> Wakes {
        let now = self.event_loop.now();
        let Some(row) = self.streams.listener(listener) else {
            return [None, None];
        };
        let begins = row.shortage.is_none();
        let pause_ns = match &row.shortage {
            None => ACCEPT_PAUSE_NS_MIN,
            Some(shortage) => (shortage.pause_ns * 2).min(ACCEPT_PAUSE_NS_MAX),
        };
        let data = user_data(Tag::Rest, listener.index, listener.generation);
        let end = Operation::timer(now.saturating_add(pause_ns));
        let timer = self.event_loop.submit(end, data).ok();
        row.shortage = Some(Shortage { pause_ns, rests: true, timer });
        if self.resting.len() < self.resting.capacity() {
            self.resting.push(listener);
        }
        if timer.is_none() {
            // Every timer is armed, so something will end, and it tries again then.
            self.hold(listener);
        }
        match self.streams.listener(listener) {
            // Told already. Who polls is woken all the same: it may be waiting for the accept to end.
            Some(row) if !begins => [None, row.poller.take()],
            Some(row) => {
                row.failed = Some(errno);
                row.wake_next()
            }
            None => [None, None],
        }
    }

    /// Arms the timer of a pause that found the timer table full. False: it is full still.
    pub(crate) fn rest_with_timer(&mut self, listener: Descriptor) -> bool {
        let now = self.event_loop.now();
        let Some(row) = self.streams.listener(listener) else { return true };
        let Some(shortage) = &mut row.shortage else { return true };
        if !shortage.rests || shortage.timer.is_some() {
            return true;
        }
        let data = user_data(Tag::Rest, listener.index, listener.generation);
        let end = Operation::timer(now.saturating_add(shortage.pause_ns));
        shortage.timer = self.event_loop.submit(end, data).ok();
        shortage.timer.is_some()
    }

    /// The pause of a listener is over: it tries again if someone waits.
    pub(crate) fn resume(&mut self, listener: Descriptor) {
        self.resting.retain(|resting| *resting != listener);
        let Some(row) = self.streams.listener(listener) else {
            return;
        };
        let Some(shortage) = &mut row.shortage else {
            return;
        };
        shortage.rests = false;
        let timer = shortage.timer.take();
        let awaited = row.is_awaited();
        if let Some(timer) = timer {
            // False when it is what ended the pause.
            self.event_loop.cancel(timer);
        }
        // Whatever is wrong now, the next in the queue is told when it is released.
        if awaited && self.arm_accept(listener).is_err() {
            self.hold(listener);
        }
    }

    /// A descriptor was closed, so there may be one for a connection: the chance of a listener that is
    /// awaited. While none is, whoever asks first has it.
    pub(crate) fn resume_one(&mut self) {
        // Whoever polled a listener may care no longer; who stands in its queue does.
        for is_awaited in [Listener::is_queued_for, Listener::is_awaited] {
            let awaited = self.resting.iter().copied().find(|listener| {
                self.streams.listener(*listener).is_some_and(|row| is_awaited(row))
            });
            if let Some(listener) = awaited {
                self.resume(listener);
                return;
            }
        }
        while let Some(listener) = self.resting.first().copied() {
            self.resume(listener);
        }
    }
}
