//! Points in time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

use crate::runtime::clock_now;

/// A point on the clock of the runtime the thread is in, in nanoseconds from an arbitrary start.
///
/// Outside a runtime it is a point on the system's monotonic clock, which is the clock of every
/// runtime on a system's own backend.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    /// This moment: the clock is read.
    pub fn now() -> Instant {
        Instant { ns: clock_now() }
    }

    pub(crate) fn from_ns(ns: u64) -> Instant {
        Instant { ns }
    }

    pub(crate) fn as_ns(self) -> u64 {
        self.ns
    }

    /// The time from `earlier` to this, or zero if that is later.
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// The time from `earlier` to this, or nothing if that is later.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.ns.checked_sub(earlier.ns).map(Duration::from_nanos)
    }

    /// The time from `earlier` to this, or zero if that is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// The time from this to now, or zero if this is in the future.
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// This and a duration, or nothing beyond the clock's 584 years.
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        let ns = u64::try_from(duration.as_nanos()).ok()?;
        self.ns.checked_add(ns).map(Instant::from_ns)
    }

    /// This less a duration, or nothing before the clock's start.
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        let ns = u64::try_from(duration.as_nanos()).ok()?;
        self.ns.checked_sub(ns).map(Instant::from_ns)
    }

    /// The same moment on the standard library's clock, or one a little after it: two clocks cannot be
    /// read at one time. Nothing beyond what that clock knows.
    pub fn into_std(self) -> Option<std::time::Instant> {
        let here = Instant::now();
        let there = std::time::Instant::now();
        match self.checked_duration_since(here) {
            Some(ahead) => there.checked_add(ahead),
            None => there.checked_sub(here - self),
        }
    }

    /// The same moment on this clock, or one a little after it: two clocks cannot be read at one time.
    /// The clock's end or its start where it does not reach.
    pub fn from_std(moment: std::time::Instant) -> Instant {
        let there = std::time::Instant::now();
        let here = Instant::now();
        match moment.checked_duration_since(there) {
            Some(ahead) => here + ahead,
            None => here - (there - moment),
        }
    }
}

/// Beyond the clock's 584 years lies its end, which never comes.
impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        self.checked_add(duration).unwrap_or(Instant { ns: u64::MAX })
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

/// Before the clock's start there is nothing: it is that.
impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        self.checked_sub(duration).unwrap_or(Instant { ns: 0 })
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({:?})", Duration::from_nanos(self.ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_keeps_the_nanosecond_and_the_bounds() {
        let one = Instant::from_ns(1);
        let second = Duration::from_secs(1);
        assert_eq!((one + second).as_ns(), 1_000_000_001);
        assert_eq!((one + second) - second, one);
        assert_eq!((one + second) - one, second);
        assert_eq!(one - (one + second), Duration::ZERO);
        assert_eq!(one.checked_sub(second), None);
        assert_eq!(one.checked_add(Duration::MAX), None);
        assert_eq!((one + Duration::MAX).as_ns(), u64::MAX);
        assert_eq!((one - second).as_ns(), 0);
        assert_eq!(one.checked_duration_since(one + second), None);
        let last = Duration::from_nanos(u64::MAX - 1);
        assert_eq!(one.checked_add(last).map(Instant::as_ns), Some(u64::MAX));
        assert_eq!(one.checked_add(last + Duration::from_nanos(1)), None);
    }

    #[test]
    fn the_standard_clock_has_the_same_moments_and_none_is_early() {
        for _ in 0..1000 {
            let before = std::time::Instant::now();
            let here = Instant::now();
            let after = std::time::Instant::now();
            for distance in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(3600)] {
                assert!((here + distance).into_std().unwrap() >= before + distance);
                assert!(Instant::from_std(after + distance) >= here + distance);
                assert!(Instant::from_std(after - distance) + distance >= here);
            }
            let back = Instant::from_std(here.into_std().unwrap());
            assert!(back >= here, "there and back is not earlier");
        }
        let end = Instant::from_ns(u64::MAX).into_std().map(Instant::from_std);
        assert!(end.is_none_or(|end| end >= Instant::from_ns(u64::MAX / 2)));
    }

    #[test]
    fn the_clock_runs_outside_a_runtime_too() {
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        assert!(before.elapsed() >= Duration::from_millis(1));
    }
}
