//! Ticks at a fixed distance.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::time::error::TimersFull;
use crate::time::instant::Instant;
use crate::time::sleep::{Sleep, sleep_until, try_sleep_until};

/// A tick is missed when it is taken so late, or a whole period if that is shorter.
const LATE_MAX: Duration = Duration::from_millis(5);

/// What an [`Interval`] does once its owner comes for a tick too late: five milliseconds, or a period if
/// that is shorter. Ticks that come nearly in time follow from one another, whatever is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Those that were missed come one after another until the interval has caught up. The default.
    #[default]
    Burst,
    /// The next comes a period after the late one was taken; all later ones are put off by as much.
    Delay,
    /// Those that were missed are left out; the next comes when it would have come anyway.
    Skip,
}

impl MissedTickBehavior {
    fn after(self, due: Instant, now: Instant, period: Duration) -> Instant {
        let late = now.duration_since(due);
        if late < LATE_MAX.min(period) {
            return due + period;
        }
        match self {
            MissedTickBehavior::Burst => due + period,
            MissedTickBehavior::Delay => now + period,
            MissedTickBehavior::Skip => {
                // Both fit 64 bits: they come from the clock.
                let over = late.as_nanos() % period.as_nanos();
                now + period - Duration::from_nanos(over as u64)
            }
        }
    }
}

/// Ticks that come once a period, the first at once. Each is due a period after the one before was *due*,
/// not taken, so that nothing adds up.
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// use std::time::Duration;
/// use rotor::time::{Instant, interval};
///
/// let begin = Instant::now();
/// let mut ticks = interval(Duration::from_millis(2));
/// let first = ticks.tick().await;
/// ticks.tick().await;
/// let third = ticks.tick().await;
/// assert_eq!(third - first, Duration::from_millis(4));
/// assert!(begin.elapsed() >= Duration::from_millis(4));
/// # }
/// ```
///
/// # Panics
/// When the period is zero; outside a runtime. The first poll of a tick panics when all timers are armed:
/// raise the option `timers`, or use [`try_interval`], whose error has the same words.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// As [`interval`], with the first tick due at `start`.
///
/// # Panics
/// As [`interval`].
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new(sleep_until(start), period)
}

/// As [`interval`], with the timer of the first tick armed at once.
///
/// # Errors
/// When all timers are armed: raise the option `timers`, or wait for one to end.
///
/// # Panics
/// When the period is zero; outside a runtime.
#[track_caller]
pub fn try_interval(period: Duration) -> Result<Interval, TimersFull> {
    try_interval_at(Instant::now(), period)
}

/// As [`interval_at`], with the timer of the first tick armed at once.
///
/// # Errors
/// As [`try_interval`].
///
/// # Panics
/// As [`try_interval`].
#[track_caller]
pub fn try_interval_at(start: Instant, period: Duration) -> Result<Interval, TimersFull> {
    Ok(Interval::new(try_sleep_until(start)?, period))
}

/// What [`interval`] makes. It holds one timer from the first poll of a tick on; dropping it disarms that.
#[derive(Debug)]
pub struct Interval {
    /// The next tick.
    sleep: Sleep,
    period: Duration,
    behavior: MissedTickBehavior,
}

impl Interval {
    #[track_caller]
    fn new(sleep: Sleep, period: Duration) -> Interval {
        assert!(!period.is_zero(), "rotor: the period of an interval must be above zero");
        Interval { sleep, period, behavior: MissedTickBehavior::default() }
    }

    /// Waits for the next tick; the answer is when it was due. Dropping the future loses no tick.
    ///
    /// # Panics
    /// When all timers are armed; inside another runtime than the one the interval was made in; when
    /// that runtime is gone.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// As [`tick`](Interval::tick), polled by hand. The task that polled last is woken.
    ///
    /// # Panics
    /// As [`tick`](Interval::tick).
    #[track_caller]
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        let next = self.behavior.after(due, Instant::now(), self.period);
        self.reset_at(next);
        Poll::Ready(due)
    }

    /// The next tick comes a period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// The next tick comes at once.
    pub fn reset_immediately(&mut self) {
        self.reset_at(Instant::now());
    }

    /// The next tick comes after so long.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_at(Instant::now() + after);
    }

    /// The next tick comes at a point in time.
    pub fn reset_at(&mut self, deadline: Instant) {
        Pin::new(&mut self.sleep).reset(deadline);
    }

    /// The distance of two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What it does about ticks that were missed.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.behavior
    }

    /// Chooses what it does about ticks that are missed from now on.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.behavior = behavior;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn next(behavior: MissedTickBehavior, period_ns: u64, late_ns: u64) -> u64 {
        let due = Instant::from_ns(1000 * MS);
        let now = Instant::from_ns(1000 * MS + late_ns);
        behavior.after(due, now, Duration::from_nanos(period_ns)).as_ns() - 1000 * MS
    }

    #[test]
    fn what_comes_nearly_in_time_follows_from_what_was_due() {
        use MissedTickBehavior::{Burst, Delay, Skip};
        for behavior in [Burst, Delay, Skip] {
            for late_ns in [0, 1, MS, 5 * MS - 1] {
                assert_eq!(next(behavior, 50 * MS, late_ns), 50 * MS);
            }
            assert_eq!(next(behavior, MS, MS - 1), MS);
        }
    }

    #[test]
    fn what_is_missed_comes_at_once_later_or_never() {
        use MissedTickBehavior::{Burst, Delay, Skip};
        for (late, burst, delay, skip) in [(5, 50, 55, 50), (50, 50, 100, 100), (120, 50, 170, 150)]
        {
            assert_eq!(next(Burst, 50 * MS, late * MS), burst * MS);
            assert_eq!(next(Delay, 50 * MS, late * MS), delay * MS);
            assert_eq!(next(Skip, 50 * MS, late * MS), skip * MS);
        }
        // A period shorter than what is called late.
        assert_eq!(next(Skip, MS, MS), 2 * MS);
        assert_eq!(next(Skip, MS, 3 * MS + 7), 4 * MS);
        assert_eq!(next(Delay, MS, 3 * MS + 7), 4 * MS + 7);
    }

    #[test]
    fn the_longest_period_never_comes_again() {
        let due = Instant::from_ns(7);
        for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
            let far = behavior.after(due, Instant::from_ns(u64::MAX / 2), Duration::MAX);
            assert_eq!(far.as_ns(), u64::MAX);
        }
        let skipped = MissedTickBehavior::Skip.after(due, Instant::from_ns(8), Duration::MAX);
        assert_eq!(skipped.as_ns(), u64::MAX);
        let late =
            MissedTickBehavior::Skip.after(due, Instant::from_ns(u64::MAX / 2), Duration::MAX);
        assert!(late > due);
    }
}
