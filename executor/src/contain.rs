//! Where foreign code is called: futures, destructors, wakers. A panic of theirs stops here.

use std::any::Any;
use std::task::Waker;

/// What a panic carried.
pub(crate) type Payload = Box<dyn Any + Send>;

/// Calls foreign code and returns its panic as a value.
///
/// Unwind safety is asserted because every caller leaves the executor's own state consistent before
/// it calls, and drops or replaces the task state the panic may have broken.
#[cfg(not(loom))]
#[inline]
pub(crate) fn contained<R>(call: impl FnOnce() -> R) -> Result<R, Payload> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call))
}

/// Loom reports what it finds by panicking, possibly inside a task: that must not be taken for the
/// task's panic.
#[cfg(loom)]
pub(crate) fn contained<R>(call: impl FnOnce() -> R) -> Result<R, Payload> {
    Ok(call())
}

/// Drops something foreign, whose destructor may panic.
pub(crate) fn discard<T>(value: T) {
    if let Err(payload) = contained(|| drop(value)) {
        discard_payload(payload);
    }
}

/// Drops a panic's payload. A payload may panic when dropped, with a payload that panics when
/// dropped, so the second one is leaked rather than followed.
#[cold]
pub(crate) fn discard_payload(payload: Payload) {
    if let Err(second) = contained(|| drop(payload)) {
        std::mem::forget(second);
    }
}

/// Wakes something foreign, which may panic.
#[cold]
pub(crate) fn wake(waker: Waker) {
    if let Err(payload) = contained(|| waker.wake()) {
        discard(payload);
    }
}
