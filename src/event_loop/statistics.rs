#![deny(unsafe_code)]
//! What a loop counts. Nothing here changes what it does.

use crate::backend::BackendStatistics;
use crate::tables::slots::Usage;

/// Calls answered at once, by kind: each is a system call outside the tick's one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImmediateCalls {
    /// Sends, vectored ones too.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Opening sockets, options and addresses.
    pub controls: u64,
    /// Descriptors closed.
    pub closes: u64,
    /// Looks at a stream that is closing: what it has unread and unsent, its shutdown.
    pub closing: u64,
}

/// Waits by how they ended. The three zero waits are the only ones there are; a fourth kind stops
/// at an assertion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Ended by an operation or a wake-up.
    pub by_event: u64,
    /// Ended by time.
    pub by_timeout: u64,
    /// Zero, because a task or an event was ready, or operations were still to be handed over.
    pub zero_ready: u64,
    /// Zero, inside the spin budget.
    pub zero_spin: u64,
    /// Zero, because a timer was due, or would be at once since the clock [stands
    /// still](crate::Loop::pause_clock).
    pub zero_timer: u64,
}

/// A loop's counts since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls of [`Loop::tick`](crate::Loop::tick).
    pub ticks: u64,
    /// Their waits.
    pub waits: Waits,
    /// Calls into the kernel to hand over and wait.
    pub backend: BackendStatistics,
    /// Calls answered at once.
    pub immediate: ImmediateCalls,
    /// Events delivered.
    pub events: u64,
    /// Completions that named no live operation. Always 0 with a correct backend.
    pub stale_completions: u64,
    /// Times a request or a cancel found the backend full and was kept for later.
    pub backend_full: u64,
    /// Receives and accepts that had to wait for a buffer or a row.
    pub starved: u64,
    /// Streams closed before the peer had taken everything, because a bound was reached.
    pub resets: u64,
    /// Buffers whose owner left while an operation used them.
    pub orphaned: u64,
    /// The operation table.
    pub operations: Usage,
    /// The timer table.
    pub timers: Usage,
    /// The descriptor table.
    pub sockets: Usage,
    /// The receive buffers that hold bytes.
    pub buffers: Usage,
    /// Buffers lent to receives that wait: held by nobody, and for nobody else.
    pub buffers_lent: u32,
    /// Buffers of operations' own that the loop keeps.
    pub owned_buffers: Usage,
}
