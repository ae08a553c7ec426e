//! Time: points, sleeps, time-outs and intervals, on the loop's clock.
//!
//! Timers never fire early: a [`Sleep`] is ready only when [`Instant::now`] has reached its
//! deadline, to the nanosecond.
#![deny(unsafe_code)]

mod error;
mod instant;
mod interval;
mod pause;
mod sleep;
mod timeout;

pub use std::time::Duration;

pub use self::error::{Elapsed, TimersFull};
pub use self::instant::Instant;
pub use self::interval::{Interval, MissedTickBehavior};
pub use self::interval::{interval, interval_at, try_interval, try_interval_at};
pub use self::pause::{advance, pause, resume};
pub use self::sleep::{Sleep, sleep, sleep_until, try_sleep, try_sleep_until};
pub use self::timeout::{Timeout, timeout, timeout_at, try_timeout, try_timeout_at};
