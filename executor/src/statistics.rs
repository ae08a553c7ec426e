//! What an executor counted.

/// Counts since the executor was created, as given by
/// [`Executor::statistics`](crate::Executor::statistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Tasks accepted.
    pub spawned: u64,
    /// Tasks whose future returned.
    pub completed: u64,
    /// Tasks dropped before they returned: aborted, or alive at shut-down.
    pub cancelled: u64,
    /// Tasks whose future panicked.
    pub panicked: u64,
    /// Spawns refused with a [`SpawnError`](crate::SpawnError).
    pub refused: u64,
    /// Polls of tasks, and turns given to the main future, in the calls of `run` that are over.
    pub polls: u64,
    /// Wakes from other threads that were taken from the remote queue.
    pub wakes_remote: u64,
    /// Tasks that exist now.
    pub tasks_now: u32,
    /// The most tasks that ever existed at once.
    pub tasks_high: u32,
    /// Headers in use now: one a task, one for the main future, one for each finished task a waker
    /// is kept of.
    pub headers_now: u32,
    /// The most headers that were ever in use at once.
    pub headers_high: u32,
    /// Oversized tasks in heap cells now.
    pub heap_cells_now: u32,
    /// Oversized tasks that were ever put in heap cells.
    pub heap_cells_total: u64,
}
