//! What an executor is created with.

use std::sync::Arc;

/// Called from another thread when it woke something and the executor may be asleep: at most once
/// between two calls of [`Executor::prepare_wait`](crate::Executor::prepare_wait).
///
/// It is called while the caller's waker is borrowed and no lock is held, so it may do anything,
/// but it should be short: write an eventfd, unpark a thread. It is dropped with the executor's
/// memory, by whichever thread drops the last waker.
pub type Unpark = Arc<dyn Fn() + Send + Sync>;

/// The limits of an [`Executor`](crate::Executor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many tasks may exist at once: running, waiting, or finished with an output not yet
    /// taken.
    pub tasks: u32,
    /// How many bytes the future of a task, and later its output, may have. Rounded up to 32 or to a
    /// multiple of 64. An output is stored as `Result<T, JoinError>`.
    pub task_bytes: u32,
    /// What happens to a future that is larger than `task_bytes`, or aligned to more than 64.
    pub oversized: Oversized,
}

impl Default for Options {
    /// 1024 tasks of 1024 bytes each; a larger one goes to the heap.
    fn default() -> Options {
        Options { tasks: 1024, task_bytes: 1024, oversized: Oversized::Heap }
    }
}

/// What [`Executor::try_spawn`](crate::Executor::try_spawn) does with a future that does not fit a
/// cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Oversized {
    /// It is put in an allocation of its own, counted in [`Statistics`](crate::Statistics).
    #[default]
    Heap,
    /// It is refused with [`SpawnError::TooLarge`](crate::SpawnError::TooLarge).
    Refuse,
}
