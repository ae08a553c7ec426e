//! Named bounds. Each has a unit in its name; what a user may choose is in [`Options`](crate::runtime::Options).

/// The most bytes one read, write, send or receive moves. Linux caps a transfer at this many bytes
/// (`MAX_RW_COUNT`, read(2): "at most 0x7ffff000 bytes").
pub const TRANSFER_BYTES_MAX: u32 = 0x7fff_f000;

/// The most picked buffers handed to the backend at a time. The rest wait on a stack, last returned
/// first used, so that a small warm set serves and untouched memory stays untouched.
pub const BUFFERS_PROVIDED_MAX: u32 = 256;

/// The most buffers a loop may have: their numbers are 16 bits wide.
pub const BUFFERS_MAX: u32 = 1 << 15;

/// Receives that are lent a buffer when they are submitted, in place of one picked when bytes arrive:
/// at most so many, and at most a quarter of the buffers. Cheaper for the kernel, but a stream that
/// waits holds its buffer (decision 0011).
pub const BUFFERS_LENT_MAX: u32 = 64;

/// The most rows a table may have. Indices above are kept for the backends' own use.
pub const ROWS_MAX: u32 = 1 << 24;

/// Closing a stream discards at most this many bytes of input nobody reads, then resets.
pub const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Closing a stream waits at most this long for the peer to take what was written, then resets.
pub const LINGER_NS_MAX: u64 = 10_000_000_000;

/// The first look at a lingering stream comes after this long; the pause doubles from there ...
pub const LINGER_PAUSE_NS_MIN: u64 = 1_000_000;

/// ... up to this long.
pub const LINGER_PAUSE_NS_MAX: u64 = 64_000_000;

/// Connections the kernel keeps for a listener until they are accepted.
pub const BACKLOG_DEFAULT: u32 = 1024;

/// Task polls between two ticks of the loop.
pub const POLLS_PER_TICK_MAX: u32 = 128;

/// Receives armed before one tick on io_uring. While more are wanted the others stay so, and the tick does not wait:
/// their bytes may come meanwhile, and what a tick receives is used before much else (decision 0014).
pub const RECEIVES_PER_TICK_MAX: u32 = 16;

/// Immediate calls (direct sends and receives) after which no further task is polled before the
/// next tick. A task may make 128 in one poll, each a system call, so a round may end with more.
pub const IMMEDIATE_CALLS_PER_TICK_MAX: u64 = 256;

/// A read into at least this many bytes, or a buffer's worth, goes to the kernel directly when the
/// socket is known to have more; a shorter one is served from a buffer (decision 0004).
pub const DIRECT_READ_BYTES_MIN: usize = 8192;

/// When a stream's last bytes came so many at a time and its receive cannot be lent a buffer, the next
/// large read waits for readiness and then receives directly, which saves copying them (decision 0012).
pub const BULK_BYTES_MIN: usize = 4096;

/// A listener that found no descriptor or memory for a connection tries again after this long; the
/// pause doubles from there ...
pub const ACCEPT_PAUSE_NS_MIN: u64 = 10_000_000;

/// ... up to this long.
pub const ACCEPT_PAUSE_NS_MAX: u64 = 500_000_000;

/// Leases of received bytes ([`LoopBuf`](crate::net::LoopBuf)) a stream may have out at a time.
pub const LEASES_PER_STREAM_MAX: u8 = 4;

/// Events taken from the loop in one tick by the runtime: no more than tasks are polled before the next,
/// or whoever is ready would wait behind ever more that a flood of events wakes.
pub const EVENTS_PER_TICK_MAX: usize = POLLS_PER_TICK_MAX as usize;
