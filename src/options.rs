//! What a program chooses before the loop starts. Every table is sized here, once.

use std::time::Duration;

/// Limits and times of a loop and its runtime. Memory for all of it is reserved at start, as virtual
/// memory: pages are touched only as rows are used.
///
/// The same words are methods of [`Builder`](crate::runtime::Builder) and arguments of
/// [`#[rotor::main]`](crate::main).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Operations in flight or queued at a time, timers and closes not counted. Default 32,768.
    pub operations: u32,
    /// Descriptors (listeners, streams, files) open at a time. Default 16,384.
    pub sockets: u32,
    /// Timers armed at a time. Default 32,768.
    pub timers: u32,
    /// Tasks alive at a time. Default 16,384.
    pub tasks: u32,
    /// Bytes of a task's recycled cell; a larger future is boxed on the heap and counted. Default 512.
    pub task_bytes: u32,
    /// Receive buffers shared by all streams. Default 16,384.
    pub buffers: u32,
    /// Bytes of a receive buffer. Default 16,384.
    pub buffer_bytes: u32,
    /// Entries of the backend's submission ring, a power of two. More operations than this may be
    /// in flight; it bounds only how many one system call hands over. Default 1,024.
    pub ring_entries: u32,
    /// How long a tick with nothing to do polls before it sleeps, and keeps the core. Worth it for few
    /// streams that wait for an answer each: what a wake-up costs is gone. Default zero: never.
    pub spin_budget: Duration,
    /// How much later than its deadline a timer may fire, so that one wake-up serves several; never
    /// earlier. Default zero: each in its time.
    pub timer_slack: Duration,
    /// Whether the clock stands still from the start, as after [`pause`](crate::time::pause); for tests.
    /// Default false.
    pub start_paused: bool,
    /// How long a shutdown waits for operations to end and written bytes to leave. Default 5 s.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            operations: 32_768,
            sockets: 16_384,
            timers: 32_768,
            tasks: 16_384,
            task_bytes: 512,
            buffers: 16_384,
            buffer_bytes: 16_384,
            ring_entries: 1_024,
            spin_budget: Duration::ZERO,
            timer_slack: Duration::ZERO,
            start_paused: false,
            drain: Duration::from_secs(5),
        }
    }
}
