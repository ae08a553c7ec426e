//! Join handles: awaiting a task's output, aborting it, letting it go on by itself.

use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::error::JoinError;
use crate::joiner::Member;
use crate::task::{Claim, abort};
use crate::waker::Reference;

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
    claim: Claim<T>,
}

// A claim is a right to a value and no access to it: a panic elsewhere leaves nothing of it broken.
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    #[inline]
    pub(crate) fn claimed(claim: Claim<T>) -> JoinHandle<T> {
        JoinHandle { claim }
    }

    pub(crate) fn cancelled() -> JoinHandle<T> {
        JoinHandle { claim: Claim::refused() }
    }

    /// Has the task's future dropped at its next turn instead of polled, or, called by the task
    /// itself, after its current poll, unless that ends the task. The handle then gives a
    /// [`JoinError`] that says it was cancelled. A task that has finished keeps its output.
    pub fn abort(&self) {
        self.claim.abort();
    }

    /// A handle that can only abort the task and ask whether it is over; any number may exist, and
    /// outlive this one.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { task: self.claim.reference() }
    }

    /// Has the end reported to a set, at once if there was one. The waker is to be woken.
    pub(crate) fn report_to(&self, member: Rc<Member>) -> Option<Waker> {
        self.claim.report_to(member)
    }

    /// The output of a task that has finished.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<T, JoinError> {
        self.claim.take()
    }

    /// Whether the task is over and awaiting the handle would not wait.
    pub fn is_finished(&self) -> bool {
        self.claim.is_over()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.claim.poll_take(cx)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

/// What is left of a [`JoinHandle`] that cannot be awaited: it aborts the task, and tells whether it
/// is over. Made by [`JoinHandle::abort_handle`] and by [`JoinSet::spawn`](crate::JoinSet::spawn).
///
/// It keeps neither the task nor its output. Kept past the task's end it keeps what a waker does: a
/// 64-byte header, of which an executor has twice as many as tasks. It may outlive the executor.
/// Like the join handle it belongs to the executor's thread.
///
/// ```
/// # use std::sync::Arc;
/// # use rotor_executor::{Executor, Options};
/// let executor = Executor::new(Options::default(), Arc::new(|| {}))?;
/// let task = executor.spawn(std::future::pending::<()>());
/// let abort = task.abort_handle();
/// // The task goes on by itself, until:
/// drop(task);
/// abort.abort();
/// let _ = executor.run(&mut 64);
/// assert!(abort.is_finished());
/// # Ok::<(), rotor_executor::CreateError>(())
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    /// Absent if the task was refused, or its output taken before the handle was made.
    task: Option<Reference>,
}

// A reference gives no access to anything of the task's.
impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

impl AbortHandle {
    /// As [`JoinHandle::abort`]. It does nothing to a task that has finished.
    pub fn abort(&self) {
        if let Some(task) = &self.task {
            abort(task.header());
        }
    }

    /// Whether the task has returned, panicked or been dropped. Its output may be waiting for the
    /// join handle.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(|task| task.header().phase.get().is_over())
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("is_finished", &self.is_finished()).finish()
    }
}
