//! Waiting for a point in time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rotor_executor::coop;

use crate::error::SubmitError;
use crate::op::Operation;
use crate::runtime::{Shared, Wait, current_named, shared_of};
use crate::time::error::TimersFull;
use crate::time::instant::Instant;

/// Waits for a duration, counted from this call. Of [`Duration::ZERO`] it waits for the next tick of
/// the loop, so that everything else that is ready has its turn; of [`Duration::MAX`] for ever.
///
/// Dropping the future disarms the timer.
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// use std::time::Duration;
/// use rotor::time::{Instant, sleep};
///
/// let before = Instant::now();
/// sleep(Duration::from_millis(1)).await;
/// assert!(before.elapsed() >= Duration::from_millis(1));
/// # }
/// ```
///
/// # Panics
/// Outside a runtime. The first poll panics when all timers are armed: raise the option `timers`, or
/// use [`try_sleep`], whose error has the same words.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    let shared = current_named("sleep");
    Sleep::idle(&shared, deadline_in(&shared, duration))
}

/// Waits until a point in time; if that has passed, for the next tick of the loop.
///
/// # Panics
/// As [`sleep`].
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::idle(&current_named("sleep_until"), deadline)
}

/// As [`sleep`], with the timer armed at once.
///
/// # Errors
/// When all timers are armed: raise the option `timers`, or wait for one to end.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn try_sleep(duration: Duration) -> Result<Sleep, TimersFull> {
    let shared = current_named("try_sleep");
    let deadline = deadline_in(&shared, duration);
    armed(&shared, deadline)
}

/// As [`sleep_until`], with the timer armed at once.
///
/// # Errors
/// As [`try_sleep`].
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn try_sleep_until(deadline: Instant) -> Result<Sleep, TimersFull> {
    armed(&current_named("try_sleep_until"), deadline)
}

/// From the clock as it reads now: what the tick read last may be long ago.
fn deadline_in(shared: &Shared, duration: Duration) -> Instant {
    Instant::from_ns(shared.core.borrow().event_loop.now()) + duration
}

fn armed(shared: &Shared, deadline: Instant) -> Result<Sleep, TimersFull> {
    let mut sleep = Sleep::idle(shared, deadline);
    sleep.arm(shared).map_err(TimersFull::new)?;
    Ok(sleep)
}

/// The future of [`sleep`] and [`sleep_until`]. Dropping it disarms the timer.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    loop_id: u32,
    deadline: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not polled yet.
    Idle,
    /// The timer is armed, or due.
    Armed(Wait),
    /// It waits for ever: the clock has no such point. Whoever waits is kept for a reset.
    Never(Option<Waker>),
    /// It has fired.
    Fired,
}

impl Sleep {
    fn idle(shared: &Shared, deadline: Instant) -> Sleep {
        Sleep { loop_id: shared.id, deadline, state: State::Idle }
    }

    /// Looks whether it is over, without asking the cooperative budget.
    #[track_caller]
    pub(crate) fn poll_unlimited(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let State::Fired = self.state {
            return Poll::Ready(());
        }
        let shared = match shared_of(self.loop_id, "Sleep") {
            Ok(shared) => shared,
            Err(error) => panic!("rotor: {error}"),
        };
        if let State::Idle = self.state {
            if let Err(error) = self.arm(&shared) {
                panic!("rotor: {error}");
            }
        }
        match &mut self.state {
            State::Armed(wait) => {
                let event = ready!(wait.poll(&shared, cx));
                debug_assert!(event.result().is_ok(), "a timer that nobody canceled failed");
            }
            State::Never(waker) => {
                if !waker.as_ref().is_some_and(|kept| kept.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                return Poll::Pending;
            }
            State::Idle | State::Fired => unreachable!("rotor: a sleep was armed above"),
        }
        self.state = State::Fired;
        Poll::Ready(())
    }

    /// When it is due.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it is over.
    pub fn is_elapsed(&self) -> bool {
        matches!(self.state, State::Fired)
    }

    /// Moves the end to another point in time, whether it has come or not. A task that waits goes on
    /// waiting, for the new one; it may be woken once in between.
    ///
    /// ```
    /// # #[rotor::main]
    /// # async fn main() {
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use rotor::time::{Instant, sleep};
    ///
    /// let mut sleep = pin!(sleep(Duration::from_secs(3600)));
    /// sleep.as_mut().reset(Instant::now() + Duration::from_millis(1));
    /// sleep.await;
    /// # }
    /// ```
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        let this = &mut *self;
        this.deadline = deadline;
        let never = deadline.as_ns() == u64::MAX;
        let waker = match &mut this.state {
            State::Armed(wait) if !never && wait.reset_timer(deadline.as_ns()) => return,
            State::Armed(wait) => wait.take_waker(),
            State::Never(waker) => waker.take(),
            State::Idle | State::Fired => None,
        };
        // It is armed by the next poll.
        let before = std::mem::replace(&mut this.state, State::Idle);
        drop(before);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn arm(&mut self, shared: &Shared) -> Result<(), SubmitError> {
        if self.deadline.as_ns() == u64::MAX {
            self.state = State::Never(None);
            return Ok(());
        }
        let key = shared.core.borrow_mut().start(Operation::timer(self.deadline.as_ns()))?;
        self.state = State::Armed(Wait::new(shared.id, key));
        Ok(())
    }
}

impl Future for Sleep {
    type Output = ();

    /// # Panics
    /// When all timers are armed at the first poll; inside another runtime than the one it was made
    /// in; when that runtime is gone.
    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(coop::poll_proceed(cx));
        ready!(self.poll_unlimited(cx));
        coop::spend();
        Poll::Ready(())
    }
}
