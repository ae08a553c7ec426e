//! A budget that keeps one task from holding the thread while everything it awaits is ready at
//! once.
//!
//! A leaf future (a socket's read, a channel's receive) asks [`poll_proceed`] before it looks
//! whether it is ready, and calls [`spend`] when it returns ready. After [`BUDGET`] ready leaves in
//! one poll, [`poll_proceed`] wakes the task and returns `Pending`, so that the task goes to the
//! back of the queue.
//!
//! Only ready leaves are charged: a task that waits on a thousand leaves at once must not be told
//! to come back for ever without reaching the last of them.
//!
//! Outside a poll the budget is unlimited: [`Executor::run`](crate::Executor::run) calls [`reset`]
//! before each poll and [`lift`] before it returns; who polls a main future does the same around
//! its poll.

use std::cell::Cell;
use std::task::{Context, Poll};

/// Leaf operations that may be ready in one poll.
pub const BUDGET: u32 = 128;

/// Refusals in one poll after which the budget is renewed. A poll that keeps asking is another
/// executor's blocking loop nested in the task: it would wait for ever for a poll that only begins
/// when it ends.
const REFUSALS_MAX: u32 = 4096;

/// No poll is going on. What is charged then never gets near zero.
const UNLIMITED: i64 = i64::MAX;

thread_local! {
    /// Leaf operations that may be ready still; below zero, the refusals of this poll.
    static LEFT: Cell<i64> = const { Cell::new(UNLIMITED) };
}

/// Whether a leaf operation may look if it is ready. If not, who asks goes on to [`poll_proceed`], which
/// wakes the task.
#[inline]
pub fn may_proceed() -> bool {
    LEFT.with(Cell::get) > 0
}

/// Whether a leaf operation may look if it is ready. `Pending` means the budget is spent; the task
/// was woken.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    if may_proceed() {
        return Poll::Ready(());
    }
    refuse(cx)
}

#[cold]
fn refuse(cx: &mut Context<'_>) -> Poll<()> {
    let left = LEFT.get() - 1;
    if left < -i64::from(REFUSALS_MAX) {
        reset();
        return Poll::Ready(());
    }
    LEFT.set(left);
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Charges one leaf operation that was ready.
#[inline]
pub fn spend() {
    LEFT.with(|left| left.set(left.get() - 1));
}

/// Begins a poll with a full budget.
#[inline]
pub fn reset() {
    // `with` and not `set`, here and below: the compiler does not always inline the latter.
    LEFT.with(|left| left.set(i64::from(BUDGET)));
}

/// Ends a poll: what runs on the thread until the next [`reset`] is not limited.
#[inline]
pub fn lift() {
    LEFT.with(|left| left.set(UNLIMITED));
}
