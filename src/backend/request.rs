//! What goes through the door: requests and their answers, as plain data.
#![deny(unsafe_code)]

use std::net::Shutdown;
use std::os::fd::RawFd;

use crate::address::RawAddress;
use crate::op::Interest;

/// Names a request; the backend hands it back with each completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// Token indices from here up are for a backend's own requests.
    pub const RESERVED_FROM: u32 = 0xffff_ff00;

    pub(crate) const fn new(index: u32, generation: u32) -> Token {
        Token((generation as u64) << 32 | index as u64)
    }

    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The token as a number, for a kernel to carry.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The token back from its number.
    pub const fn from_bits(bits: u64) -> Token {
        Token(bits)
    }
}

/// What a backend is asked to do. Descriptors are the kernel's numbers.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// Complete with 0.
    Nop,
    /// Accept one connection, close-on-exec and blocking; write the peer's address.
    Accept {
        /// The listener.
        fd: RawFd,
        /// Where the address goes.
        address: *mut RawAddress,
    },
    /// Connect a stream.
    Connect {
        /// The stream.
        fd: RawFd,
        /// Where to.
        address: *const RawAddress,
    },
    /// Receive into memory.
    Receive {
        /// The stream.
        fd: RawFd,
        /// The memory.
        pointer: *mut u8,
        /// Its length in bytes.
        length: u32,
        /// Answer at once.
        now: bool,
    },
    /// Receive into a provided buffer.
    ReceivePicked {
        /// The stream.
        fd: RawFd,
        /// Go on after each receive.
        multishot: bool,
    },
    /// Send memory; queued, all of it unless canceled or failed. Never raises `SIGPIPE`.
    Send {
        /// The stream.
        fd: RawFd,
        /// The memory.
        pointer: *const u8,
        /// Its length in bytes.
        length: u32,
        /// Answer at once, with what fits.
        now: bool,
    },
    /// Send from several pieces, once. Never raises `SIGPIPE`.
    SendVectored {
        /// The stream.
        fd: RawFd,
        /// A message header whose pieces are set and everything else zero.
        message: *const libc::msghdr,
        /// Answer at once, with what fits.
        now: bool,
    },
    /// Wait for readiness once.
    Poll {
        /// The descriptor.
        fd: RawFd,
        /// For what.
        interest: Interest,
    },
    /// Shut a direction down.
    Shutdown {
        /// The stream.
        fd: RawFd,
        /// Which.
        how: Shutdown,
    },
    /// Read a file at an offset.
    ReadAt {
        /// The file.
        fd: RawFd,
        /// The memory.
        pointer: *mut u8,
        /// Its length in bytes.
        length: u32,
        /// Where to begin.
        offset: u64,
    },
    /// Write a file at an offset.
    WriteAt {
        /// The file.
        fd: RawFd,
        /// The memory.
        pointer: *const u8,
        /// Its length in bytes.
        length: u32,
        /// Where to begin.
        offset: u64,
    },
}

/// How a backend takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// Completions will follow.
    Queued,
    /// It is over, with this result.
    Done(i32),
    /// There was no room; nothing was started.
    Full,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Which request.
    pub token: Token,
    /// A count, a descriptor number, or a negative `errno`.
    pub result: i32,
    /// More completions will follow.
    pub more: bool,
    /// The provided buffer that was used.
    pub buffer: Option<u16>,
    /// The socket had more bytes than were received (a hint).
    pub socket_nonempty: bool,
}

/// How long a tick may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickWait {
    /// Not at all: hand over what is queued; enter the kernel only if something is queued or the
    /// kernel has said that completions wait to be fetched.
    Zero,
    /// At most this many nanoseconds, above zero.
    AtMost(u64),
    /// Until something happens.
    Forever,
}

/// How a tick ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickEnd {
    /// It did not enter the kernel.
    NotEntered,
    /// It entered without waiting.
    Polled,
    /// A completion or a wake-up is there: it ended the wait, or made it unneeded.
    Event,
    /// The time was up.
    TimedOut,
}

/// The memory of the loop's receive buffers, handed to a backend once.
#[derive(Clone, Copy, Debug)]
pub struct BufferMemory {
    /// The first buffer.
    pub base: *mut u8,
    /// Bytes from the start of a buffer to the next one's.
    pub stride: usize,
    /// How many.
    pub count: u32,
    /// Bytes of each.
    pub bytes: u32,
    /// Page-aligned memory for a ring of [`ring_entries`](BufferMemory::ring_entries) entries of 16 bytes.
    pub ring: *mut u8,
    /// A power of two, and the most buffers that are provided at a time.
    pub ring_entries: u32,
}

/// Counts a backend keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendStatistics {
    /// Ticks' calls into the kernel.
    pub enters: u64,
    /// Further calls, made because the submission queue was full in mid-tick.
    pub flushes: u64,
    /// Times the kernel had to keep completions because the queue for them was full.
    pub overflows: u64,
}

/// The process is a child of the one the backend belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkedChild;
