#![deny(unsafe_code)]
//! The tick: hand over, wait, collect. One call into the kernel, at most.

use std::time::Duration;

use crate::backend::{TickEnd, TickWait};
use crate::error::TickError;
use crate::event::{Event, EventKind, MORE};
use crate::event_loop::Loop;
use crate::event_loop::create::this_thread;
use crate::tables::slots::State;

/// How long a tick may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: the caller has something to do.
    Zero,
    /// At most this long.
    AtMost(Duration),
    /// Until something happens.
    Forever,
}

/// What the backend is told, and why if it is not to wait.
enum Plan {
    Ready,
    TimerDue,
    Sleep(TickWait),
}

impl Loop {
    /// Hands over what was submitted, waits as told, no longer than to the next timer, and fills
    /// `events`. Answers how many; the others keep their content. What found no room is delivered
    /// by the next tick.
    ///
    /// # Errors
    /// In a child process, or when the kernel refuses to wait.
    ///
    /// # Panics
    /// On another thread than the loop's own, and with no room for events.
    #[track_caller]
    pub fn tick(&mut self, events: &mut [Event], wait: Wait) -> Result<usize, TickError> {
        assert!(self.thread == this_thread(), "rotor: a loop was ticked on a thread not its own");
        assert!(!events.is_empty(), "rotor: a tick needs room for at least one event");
        self.driver.check().map_err(|_| TickError::Forked)?;
        self.counts.ticks += 1;
        self.top_up();
        self.hand_over_all()?;
        let mut count = self.take_all_done(events, 0);
        match self.plan(wait, count > 0) {
            Plan::Ready => {
                self.counts.waits.zero_ready += 1;
                self.wait(TickWait::Zero)?;
            }
            Plan::TimerDue => {
                self.counts.waits.zero_timer += 1;
                self.wait(TickWait::Zero)?;
            }
            Plan::Sleep(longest) => {
                let longest = if self.options.spin_budget.is_zero() {
                    Some(longest)
                } else {
                    self.spin(longest)?
                };
                if let Some(longest) = longest {
                    let by_time = self.wait(longest)? == TickEnd::TimedOut;
                    let waits = &mut self.counts.waits;
                    *(if by_time { &mut waits.by_timeout } else { &mut waits.by_event }) += 1;
                }
            }
        }
        count = self.collect(events, count);
        self.counts.events += count as u64;
        Ok(count)
    }

    fn wait(&mut self, wait: TickWait) -> Result<TickEnd, TickError> {
        assert!(wait != TickWait::AtMost(0), "a zero wait needs one of its three reasons");
        self.driver.tick(wait).map_err(TickError::Backend)
    }

    /// Reads the clock afresh and compares at full precision.
    fn plan(&self, wait: Wait, ready: bool) -> Plan {
        if ready || wait == Wait::Zero || !self.done.is_empty() {
            return Plan::Ready;
        }
        let most_ns = match wait {
            Wait::AtMost(longest) => u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX),
            Wait::Zero | Wait::Forever => u64::MAX,
        };
        if most_ns == 0 {
            return Plan::Ready;
        }
        let timer = self.timers.next_deadline_ns().unwrap_or(u64::MAX);
        let next = timer.min(self.closing_check_ns);
        if next == u64::MAX {
            let forever = most_ns == u64::MAX;
            return Plan::Sleep(if forever {
                TickWait::Forever
            } else {
                TickWait::AtMost(most_ns)
            });
        }
        let now = self.driver.now();
        if next <= now {
            return Plan::TimerDue;
        }
        Plan::Sleep(TickWait::AtMost(most_ns.min(next - now)))
    }

    /// Polls for the spin budget. Answers what is then left to sleep; nothing when there is no need.
    fn spin(&mut self, longest: TickWait) -> Result<Option<TickWait>, TickError> {
        let budget = u64::try_from(self.options.spin_budget.as_nanos()).unwrap_or(u64::MAX);
        let begun = self.driver.now();
        loop {
            self.counts.waits.zero_spin += 1;
            if self.wait(TickWait::Zero)? == TickEnd::Event {
                return Ok(None);
            }
            let spent = self.driver.now().saturating_sub(begun);
            if let TickWait::AtMost(most) = longest {
                if spent >= most {
                    return Ok(None);
                }
            }
            if spent >= budget {
                return Ok(Some(match longest {
                    TickWait::AtMost(most) => TickWait::AtMost(most - spent),
                    TickWait::Forever | TickWait::Zero => longest,
                }));
            }
            std::hint::spin_loop();
        }
    }

    /// Hands over what found the backend full, with as many calls as that takes: otherwise it would
    /// wait for a completion that has nothing to do with it.
    fn hand_over_all(&mut self) -> Result<(), TickError> {
        let mut left = self.unsubmitted.count() + self.waiting_cancels();
        while left > 0 && self.hand_over() {
            self.wait(TickWait::Zero)?;
            let still = self.unsubmitted.count() + self.waiting_cancels();
            if still >= left {
                break;
            }
            left = still;
        }
        Ok(())
    }

    fn waiting_cancels(&self) -> u32 {
        self.uncanceled.count()
    }

    /// Completions, streams that are closing, timers. When timers are due a quarter of the room is
    /// theirs, so that neither starves the other.
    fn collect(&mut self, events: &mut [Event], mut count: usize) -> usize {
        let watched = self.timers.next_deadline_ns().is_some() || self.closing_check_ns < u64::MAX;
        let now = if watched { self.driver.now() } else { 0 };
        let due = self.timers.next_deadline_ns().is_some_and(|deadline| deadline <= now);
        let room = if due { events.len() - events.len().div_ceil(4) } else { events.len() };
        while count < room.max(1) {
            let Some(completion) = self.driver.next() else { break };
            if let Some(event) = self.complete(completion) {
                events[count] = event;
                count += 1;
            }
        }
        if watched {
            self.check_closing(now);
            count = self.fire(events, count, now);
        }
        self.take_all_done(events, count)
    }

    /// Fires timers that are due and were armed before this tick began to fire them.
    fn fire(&mut self, events: &mut [Event], mut count: usize, now_ns: u64) -> usize {
        let order = self.timers.order();
        while count < events.len() {
            let Some(index) = self.timers.pop_due(&mut self.slots, now_ns, order) else { break };
            let slot = self.slots.get_mut(index);
            let (deadline_ns, period_ns) = (slot.offset, slot.pointer);
            let mut event =
                Event { user_data: slot.user_data, kind: EventKind::Timer, ..Event::EMPTY };
            if period_ns == 0 {
                self.slots.free(index);
            } else {
                event.flags = MORE;
                let next_ns = deadline_ns.saturating_add(period_ns);
                slot.offset = next_ns;
                debug_assert_eq!(slot.state, State::Armed);
                self.timers.arm(&mut self.slots, index, next_ns);
            }
            events[count] = event;
            count += 1;
        }
        count
    }

    fn take_all_done(&mut self, events: &mut [Event], mut count: usize) -> usize {
        while count < events.len() {
            let Some(event) = self.take_done() else { break };
            events[count] = event;
            count += 1;
        }
        count
    }

    /// Provides buffers for the receives that are with the backend.
    pub(super) fn top_up(&mut self) {
        self.top_up_for(self.picking);
    }

    pub(super) fn top_up_for(&mut self, receives: u32) {
        let wanted = receives.min(self.provided_max);
        while self.buffers.provided() < wanted {
            let Some(buffer) = self.buffers.provide() else { return };
            self.driver.provide(buffer);
        }
    }
}
