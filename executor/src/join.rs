//! Join handles: awaiting a task's output, aborting it, letting it go on by itself.

use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::coop;
use crate::error::JoinError;
use crate::task::Claim;

/// A task's other end: a future of its output.
///
/// Dropping it detaches the task, which goes on by itself; its output is then dropped as soon as it
/// is there. A finished task keeps its place in the table until its handle is awaited or dropped. A
/// handle may outlive the executor: it then gives the output if the task had finished, and
/// otherwise a [`JoinError`] that says it was cancelled.
///
/// It belongs to the executor's thread.
///
/// # Panics
///
/// Polling it again after it gave its output panics.
pub struct JoinHandle<T> {
    state: State<T>,
}

enum State<T> {
    /// The task exists.
    Claimed(Claim<T>),
    /// There never was a task: the executor was shutting down.
    Refused,
    /// The output was given.
    Taken,
}

// A claim is a right to a value and no access to it: a panic elsewhere leaves nothing of it broken.
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    #[inline]
    pub(crate) fn claimed(claim: Claim<T>) -> JoinHandle<T> {
        JoinHandle { state: State::Claimed(claim) }
    }

    pub(crate) fn cancelled() -> JoinHandle<T> {
        JoinHandle { state: State::Refused }
    }

    /// Has the task's future dropped at its next turn instead of polled, or, called by the task
    /// itself, after its current poll, unless that ends the task. The handle then gives a
    /// [`JoinError`] that says it was cancelled. A task that has finished keeps its output.
    pub fn abort(&self) {
        match &self.state {
            State::Claimed(claim) => claim.abort(),
            State::Refused | State::Taken => {}
        }
    }

    /// Whether the task is over and awaiting the handle would not wait.
    pub fn is_finished(&self) -> bool {
        match &self.state {
            State::Claimed(claim) => claim.is_stored(),
            State::Refused | State::Taken => true,
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.state {
            State::Claimed(claim) => {
                if !claim.is_stored() && !claim.wake_when_stored(cx) {
                    return Poll::Pending;
                }
            }
            State::Refused => {
                self.state = State::Taken;
                return Poll::Ready(Err(JoinError::cancelled()));
            }
            State::Taken => panic!("a join handle was polled after it gave its output"),
        }
        ready!(coop::poll_proceed(cx));
        coop::spend();
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Claimed(claim) => Poll::Ready(claim.take()),
            State::Refused | State::Taken => unreachable!("the claim was there a moment ago"),
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}
