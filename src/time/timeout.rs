//! A bound on how long a future may take.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::time::error::{Elapsed, TimersFull};
use crate::time::instant::Instant;
use crate::time::sleep::{Sleep, sleep, sleep_until, try_sleep, try_sleep_until};

pin_project! {
    /// The future of [`timeout`]. Dropping it drops the future inside and disarms the timer.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

/// Waits for a future, for no longer than a duration counted from this call. The future is polled
/// first each time: what is ready in time is never given up. With [`Duration::MAX`] there is no bound.
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// use std::time::Duration;
/// use rotor::time::timeout;
///
/// let never = std::future::pending::<()>();
/// assert!(timeout(Duration::from_millis(1), never).await.is_err());
/// assert_eq!(timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
/// # }
/// ```
///
/// # Errors
/// The future gives [`Elapsed`] when the time was up first.
///
/// # Panics
/// As [`sleep`]; [`try_timeout`] gives an error with the same words.
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep(duration) }
}

/// As [`timeout`], with the timer armed at once.
///
/// # Errors
/// When all timers are armed: raise the option `timers`, or wait for one to end. The future is
/// dropped.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn try_timeout<F: IntoFuture>(
    duration: Duration,
    future: F,
) -> Result<Timeout<F::IntoFuture>, TimersFull> {
    let sleep = try_sleep(duration)?;
    Ok(Timeout { future: future.into_future(), sleep })
}

/// As [`timeout`], until a point in time.
///
/// # Errors
/// As [`timeout`].
///
/// # Panics
/// As [`timeout`].
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep_until(deadline) }
}

/// As [`timeout_at`], with the timer armed at once.
///
/// # Errors
/// As [`try_timeout`].
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn try_timeout_at<F: IntoFuture>(
    deadline: Instant,
    future: F,
) -> Result<Timeout<F::IntoFuture>, TimersFull> {
    let sleep = try_sleep_until(deadline)?;
    Ok(Timeout { future: future.into_future(), sleep })
}

impl<F> Timeout<F> {
    /// The future inside.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let parts = self.project();
        if let Poll::Ready(output) = parts.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // A future that is never done spends the whole budget of each poll. Its bound must not be
        // refused a look for that.
        match parts.sleep.poll_unlimited(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Elapsed(()))),
            Poll::Pending => Poll::Pending,
        }
    }
}
