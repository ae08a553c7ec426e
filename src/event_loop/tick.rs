#![deny(unsafe_code)]
//! The tick: hand over, wait, collect. One call into the kernel, at most.

use std::time::Duration;

use crate::backend::{TickEnd, TickWait};
use crate::error::TickError;
use crate::event::{Event, EventKind, MORE};
use crate::event_loop::Loop;
use crate::event_loop::clock::Clock;
use crate::event_loop::create::this_thread;
use crate::tables::list::List;
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
    /// The clock stands still, and may jump so far.
    Jump(u64),
}

/// The part of the room that is the timers' when some are due: none of one event.
fn share_of_timers(events: &[Event]) -> usize {
    if events.len() < 2 { 0 } else { (events.len() / 4).max(1) }
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
        if let Some(error) = self.late_error.take() {
            return Err(TickError::Backend(error));
        }
        self.counts.ticks += 1;
        self.top_up();
        self.feed_starved();
        self.hand_over_all()?;
        // Some of the room is kept for timers, so that nothing else can starve them.
        let kept = if self.timers.is_empty() { 0 } else { share_of_timers(events) };
        let room = if self.is_timers_turn(events) { 0 } else { events.len() - kept };
        let count = self.take_all_done(&mut events[..room], 0);
        if let Err(error) = self.hand_over_and_wait(wait, count > 0) {
            if count == 0 {
                return Err(error);
            }
            // The events taken are not lost for it.
            if let TickError::Backend(error) = error {
                self.late_error = Some(error);
            }
            self.counts.events += count as u64;
            return Ok(count);
        }
        let count = self.collect(events, count);
        self.counts.events += count as u64;
        Ok(count)
    }

    /// Whether the one place there is belongs to a timer that is due.
    fn is_timers_turn(&mut self, events: &[Event]) -> bool {
        events.len() == 1 && !self.timers_turn && self.is_timer_due(self.now())
    }

    fn is_timer_due(&mut self, now_ns: u64) -> bool {
        let next = self.timers.next_deadline_ns(&mut self.slots, now_ns);
        next.is_some_and(|deadline_ns| deadline_ns <= now_ns)
    }

    fn hand_over_and_wait(&mut self, wait: Wait, ready: bool) -> Result<(), TickError> {
        let longest = match self.plan(wait, ready) {
            Plan::Ready => {
                self.counts.waits.zero_ready += 1;
                return self.wait(TickWait::Zero).map(|_| ());
            }
            Plan::TimerDue => {
                self.counts.waits.zero_timer += 1;
                return self.wait(TickWait::Zero).map(|_| ());
            }
            Plan::Jump(until_ns) => match self.jump(until_ns)? {
                Some(longest) => longest,
                None => return Ok(()),
            },
            Plan::Sleep(longest) if self.options.spin_budget.is_zero() => longest,
            Plan::Sleep(longest) => match self.spin(longest)? {
                Some(left) => left,
                None => return Ok(()),
            },
        };
        let by_time = self.wait(longest)? == TickEnd::TimedOut;
        let waits = &mut self.counts.waits;
        *(if by_time { &mut waits.by_timeout } else { &mut waits.by_event }) += 1;
        Ok(())
    }

    pub(super) fn wait(&mut self, wait: TickWait) -> Result<TickEnd, TickError> {
        assert!(wait != TickWait::AtMost(0), "a zero wait needs one of its three reasons");
        self.driver.tick(wait).map_err(TickError::Backend)
    }

    /// Reads the clock afresh and compares at full precision.
    fn plan(&mut self, wait: Wait, ready: bool) -> Plan {
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
        if let Clock::Stands { now_ns } = self.clock {
            let next = self.timers.next_deadline_ns(&mut self.slots, now_ns).unwrap_or(u64::MAX);
            if next <= now_ns {
                return Plan::TimerDue;
            }
            return Plan::Jump(next.min(now_ns.saturating_add(most_ns)));
        }
        if self.timers.is_empty() && self.closing_check_ns == u64::MAX {
            let forever = most_ns == u64::MAX;
            return Plan::Sleep(if forever {
                TickWait::Forever
            } else {
                TickWait::AtMost(most_ns)
            });
        }
        let backend_now = self.driver.now();
        let now = self.clock.at(backend_now);
        let timer = self.timers.next_deadline_ns(&mut self.slots, now).unwrap_or(u64::MAX);
        if timer <= now || self.closing_check_ns <= backend_now {
            return Plan::TimerDue;
        }
        // What is due meanwhile fires together. Awake, the loop fires each when it sees it due.
        let slack_ns = u64::try_from(self.options.timer_slack.as_nanos()).unwrap_or(u64::MAX);
        let left = timer.saturating_add(slack_ns) - now;
        let left = left.min(self.closing_check_ns - backend_now);
        Plan::Sleep(TickWait::AtMost(most_ns.min(left)))
    }

    /// Polls for the spin budget. Answers what is then left to wait, which is over at once if there
    /// is something; nothing when the time is up.
    fn spin(&mut self, longest: TickWait) -> Result<Option<TickWait>, TickError> {
        let budget = u64::try_from(self.options.spin_budget.as_nanos()).unwrap_or(u64::MAX);
        let begun = self.driver.now();
        loop {
            self.counts.waits.zero_spin += 1;
            let found = self.driver.spin().map_err(TickError::Backend)? == TickEnd::Event;
            let spent = self.driver.now().saturating_sub(begun);
            let left = match longest {
                TickWait::AtMost(most) if spent >= most => return Ok(None),
                TickWait::AtMost(most) => TickWait::AtMost(most - spent),
                TickWait::Forever | TickWait::Zero => longest,
            };
            if found || spent >= budget {
                return Ok(Some(left));
            }
            std::hint::spin_loop();
        }
    }

    /// Hands over what found the backend full, with as many calls as that takes: otherwise it would
    /// wait for a completion that has nothing to do with it. It stays only if a call made no room.
    fn hand_over_all(&mut self) -> Result<(), TickError> {
        let mut left = u32::MAX;
        while self.hand_over() {
            let still = self.unsubmitted.count() + self.uncanceled.count();
            if still >= left {
                break;
            }
            left = still;
            self.counts.waits.zero_ready += 1;
            self.wait(TickWait::Zero)?;
        }
        Ok(())
    }

    /// Receives that found no buffer and accepts that found no row go on, now that there may be one.
    /// All receives: a silent one takes no buffer, and must not be in the way of others.
    fn feed_starved(&mut self) {
        if !self.starved_receives.is_empty() {
            self.top_up_for(1);
            if self.buffers.provided() > 0 {
                let mut starved = std::mem::replace(&mut self.starved_receives, List::EMPTY);
                self.feeding = true;
                while let Some(index) = starved.pop_front(&mut self.slots) {
                    self.go_on(index);
                }
                self.feeding = false;
                self.top_up();
            }
        }
        while self.sockets.has_room() {
            let Some(index) = self.starved_accepts.pop_front(&mut self.slots) else { break };
            self.go_on(index);
        }
    }

    /// Completions, streams that are closing, timers, each with room of its own.
    fn collect(&mut self, events: &mut [Event], mut count: usize) -> usize {
        let watched = !self.timers.is_empty() || self.closing_check_ns < u64::MAX;
        let backend_now = if watched { self.driver.now() } else { 0 };
        let now = self.clock.at(backend_now);
        let due = watched && self.is_timer_due(now);
        let kept = if due { share_of_timers(events) } else { 0 };
        let mut room = events.len() - kept;
        if due && kept == 0 {
            self.timers_turn = !self.timers_turn;
            room = usize::from(!self.timers_turn);
        }
        while count < room {
            let Some(completion) = self.driver.next() else { break };
            if let Some(event) = self.complete(completion) {
                events[count] = event;
                count += 1;
            }
        }
        if watched {
            self.check_closing(backend_now);
            count = self.fire(events, count, now);
        }
        self.take_all_done(events, count)
    }

    /// Fires timers that are due. One that repeats is armed again after all of them have fired, so
    /// that it is not in the way of those behind it, and fires once a tick at most.
    fn fire(&mut self, events: &mut [Event], mut count: usize, now_ns: u64) -> usize {
        let mut repeating = List::EMPTY;
        while count < events.len() {
            let Some(index) = self.timers.pop_due(&mut self.slots, now_ns) else { break };
            let slot = self.slots.get_mut(index);
            debug_assert_eq!(slot.state, State::Armed);
            let kind = EventKind::Timer;
            events[count] = Event { user_data: slot.user_data, kind, ..Event::EMPTY };
            if slot.pointer == 0 {
                self.slots.free(index);
            } else {
                events[count].flags = MORE;
                repeating.push_back(&mut self.slots, index);
            }
            count += 1;
        }
        while let Some(index) = repeating.pop_front(&mut self.slots) {
            let slot = self.slots.get_mut(index);
            // From the previous deadline, never from the clock.
            slot.offset = slot.offset.saturating_add(slot.pointer);
            self.timers.arm(&mut self.slots, index);
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
