//! The loop's tables: fixed at start, no system call, no clock.

pub(crate) mod arena;
pub(crate) mod buffers;
pub(crate) mod list;
mod near;
pub(crate) mod orphans;
pub(crate) mod slots;
pub(crate) mod sockets;
pub(crate) mod tokens;
pub(crate) mod wheel;

/// No row.
pub(crate) const NONE: u32 = u32::MAX;
