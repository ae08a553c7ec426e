//! Backends: where operations meet a kernel, a simulator or a script.
//!
//! # The contract, for a porter to tick off
//!
//! The loop promises a backend:
//! 1. One thread: every call comes from the thread that made it, and none while another runs.
//! 2. A [`Token`] names one request at a time; it is used again only after its last completion.
//! 3. At most one receive-like request (`Accept`, `Receive`, `ReceivePicked`) and one send-like
//!    request (`Connect`, `Send`, `SendVectored`, `Shutdown`) a socket is queued at a time; order
//!    is the loop's business.
//! 4. Pointers in a request stay valid until its last completion, or, for one answered `Done` or
//!    `Full`, until [`submit`](Backend::submit) returns.
//! 5. A descriptor is released only when no request on it is queued.
//! 6. Buffers are provided by number; a number is provided again only after a completion named it.
//!
//! A backend promises the loop:
//! 1. [`submit`](Backend::submit) answers `Queued` (completions follow, the last one without
//!    `more`), `Done` (the result, no completion) or `Full` (nothing was started; the loop asks
//!    again after a tick). A request with `now` set is never `Queued`: what would block is
//!    `Done(-EAGAIN)`.
//! 2. Results are the kernel's: a count or a descriptor number, or a negative `errno`.
//! 3. [`cancel`](Backend::cancel) is a request. The canceled request still completes: with what it
//!    had done, or with `-ECANCELED`. Bytes moved or a connection accepted are never thrown away.
//! 4. [`tick`](Backend::tick) hands over everything queued and then waits as told: never less than
//!    the time given unless a completion, a wake-up or a signal ended it, and no longer than that
//!    rounded up to the granularity. With a completion at hand it does not wait.
//! 5. After the last completion of a request, and after drop, its memory is not touched.
//! 6. A receive into a picked buffer that finds none ends with `-ENOBUFS`.
//! 7. [`waker`](Backend::waker)'s function may be called on any thread at any time, also after the
//!    backend is gone; called during or before a wait, it ends it.
//! 8. [`now`](Backend::now) never goes backwards and starts anywhere.
//! 9. In a child process after fork, [`check`](Backend::check) says so and no other call touches
//!    what is shared with the parent.
//!
//! # Unsafe
//! The trait is unsafe to implement: points 3 to 6 are what keeps memory sound.
#![allow(unsafe_code)]

use std::io;
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::address::RawAddress;
use crate::op::{Control, Interest, Reply};

pub mod scripted;
#[cfg(target_os = "linux")]
pub(crate) mod uring;

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

/// A backend; the contract stands at the top of this module.
///
/// # Safety
/// The implementation keeps the backend's promises of the contract.
pub unsafe trait Backend {
    /// Its name, and what there is to say about it, in one line.
    fn describe(&self) -> &'static str;
    /// An error in a child process; otherwise nothing.
    fn check(&self) -> Result<(), ForkedChild>;
    /// Takes note of the buffer memory. Called once, before anything is submitted.
    ///
    /// # Safety
    /// The memory is valid, and the backend's to write where buffers are provided, until the backend
    /// is dropped.
    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()>;
    /// Takes a request.
    ///
    /// # Safety
    /// The request's pointers are valid as points 3 and 4 of the loop's promises say.
    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission;
    /// Asks for a request to end. False: no room, the loop asks again after a tick.
    fn cancel(&mut self, token: Token) -> bool;
    /// Makes a buffer available to receives.
    fn provide(&mut self, buffer: u16);
    /// Answers a cold call.
    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>>;
    /// Closes a descriptor.
    fn release(&mut self, fd: RawFd);
    /// Hands over what is queued and waits.
    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd>;
    /// The next completion at hand.
    fn next(&mut self) -> Option<Completion>;
    /// The clock, in nanoseconds.
    fn now(&self) -> u64;
    /// The unit waits are rounded up to, in nanoseconds.
    fn granularity_ns(&self) -> u64;
    /// The function that ends a wait from any thread.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync>;
    /// What it counted.
    fn statistics(&self) -> BackendStatistics;
}

/// The process is a child of the one the backend belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkedChild;
