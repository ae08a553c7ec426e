//! The loop's tables: fixed at start, no system call, no clock.

pub(crate) mod arena;
pub(crate) mod buffers;
pub(crate) mod list;
pub(crate) mod orphans;
pub(crate) mod slots;
pub(crate) mod sockets;
pub(crate) mod timers;
pub(crate) mod tokens;

/// No row.
pub(crate) const NONE: u32 = u32::MAX;
