//! A clock that stands still and is moved, for tests.

use std::io;
use std::time::Duration;

use crate::event_loop::Loop;
use crate::runtime::current_named;
use crate::task::yield_now;
use crate::time::sleep::try_sleep;

/// Does something to the clock of the runtime the thread is in.
#[track_caller]
fn with_clock(what: &str, change: impl FnOnce(&mut Loop) -> io::Result<()>) {
    let shared = current_named(what);
    let changed = change(&mut shared.core.borrow_mut().event_loop);
    if let Err(error) = changed {
        panic!("rotor: {what}: {error}");
    }
}

/// Stops the runtime's clock, for a test. From here on time passes by [`advance`], and by itself whenever
/// there is nothing else to do: no task is ready, nothing has come, and what is under way waits for a
/// peer only (an accept, a receive, a wait for readiness). Then the clock jumps to the next deadline. A
/// connect, a send or a file operation that is under way holds it.
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// use std::time::Duration;
/// use rotor::time::{self, Instant, sleep};
///
/// time::pause();
/// let begin = Instant::now();
/// sleep(Duration::from_secs(3600)).await;
/// assert_eq!(begin.elapsed(), Duration::from_secs(3600));
/// # }
/// ```
///
/// # Panics
/// Outside a runtime; when its clock is paused already.
#[track_caller]
pub fn pause() {
    with_clock("pause", Loop::pause_clock);
}

/// Lets the runtime's clock run again, from where it stands.
///
/// # Panics
/// Outside a runtime; when its clock runs.
#[track_caller]
pub fn resume() {
    with_clock("resume", Loop::resume_clock);
}

/// Moves the runtime's clock, which is paused. What is due then fires, and its tasks have a turn, before this
/// is over; timers that they arm have to wait for the next time. Dropping the future before its first poll
/// moves nothing.
///
/// # Panics
/// Outside a runtime; when its clock runs.
pub async fn advance(duration: Duration) {
    let by_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    with_clock("advance", |event_loop| event_loop.advance_clock(by_ns));
    // Due now, and behind all that were due before: its turn comes after theirs.
    match try_sleep(Duration::ZERO) {
        Ok(sleep) => sleep.await,
        Err(_) => yield_now().await,
    }
}
