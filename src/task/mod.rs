//! Tasks: futures that run beside each other on the runtime's thread.
#![deny(unsafe_code)]

mod join_set;
mod local;

pub use rotor_executor::{AbortHandle, JoinError, JoinHandle, SpawnError, YieldNow, yield_now};

pub use self::join_set::{CurrentRuntime, JoinSet};
pub use self::local::{AccessError, LocalKey, TaskLocalFuture};

use crate::runtime::current_named;

/// Spawns a task on the runtime the thread is in. It runs from the next turn on, whether its handle
/// is awaited, kept or dropped; dropping the handle detaches it. It need not be `Send`.
///
/// Awaiting the handle gives what the future gave, or a [`JoinError`] if it panicked or was aborted.
/// A panic stays in its task.
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// let task = rotor::spawn(async { 6 * 7 });
/// assert_eq!(task.await.unwrap(), 42);
/// # }
/// ```
///
/// # Panics
/// Outside a runtime. When the table of tasks is full: raise the option `tasks`, or use
/// [`try_spawn`], whose error has the same words.
// A type of future is mostly spawned in one place. Inlined there, it is built in its cell.
#[inline(always)]
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    current_named("spawn").executor.spawn(future)
}

/// Another name of [`spawn`]: every task stays on the runtime's thread, and none need be `Send`.
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// let shared = std::rc::Rc::new(5);
/// assert_eq!(rotor::task::spawn_local(async move { *shared }).await.unwrap(), 5);
/// # }
/// ```
///
/// # Panics
/// As `spawn`.
#[inline(always)]
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    current_named("spawn_local").executor.spawn(future)
}

/// As [`spawn`], with an error instead of a panic when there is no room.
///
/// # Errors
/// When the table of tasks is full, or the future too large for a cell that may not be boxed. The
/// future is dropped.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub fn try_spawn<F>(future: F) -> Result<JoinHandle<F::Output>, SpawnError>
where
    F: Future + 'static,
    F::Output: 'static,
{
    current_named("try_spawn").executor.try_spawn(future)
}
