//! Operations: what a loop can be asked to do, and the handles it answers with.
//!
//! # Unsafe
//! The forms that carry a raw pointer are `unsafe` to build: the caller promises that the memory
//! stays valid, and is not otherwise touched, until the operation's final event. Nothing here
//! dereferences a pointer. A message header is made of zeros.
#![allow(unsafe_code)]

use std::fmt;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

/// A descriptor the loop owns: a row of its table. Stale handles are told from live ones by their
/// generation, so a number the kernel reuses can never be confused with the old descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descriptor {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Descriptor {
    pub(crate) const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub(crate) const fn from_bits(bits: u64) -> Descriptor {
        Descriptor { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({}.{})", self.index, self.generation)
    }
}

/// An operation in flight. Dropping it changes nothing; it serves to cancel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}.{})", self.index, self.generation)
    }
}

/// A receive buffer of the loop, named by an event of a receive into a picked buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub(crate) u16);

/// A buffer the loop keeps for an operation, until it is reclaimed or abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OrphanId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What a poll waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes to read, a connection to accept, or the end of the stream.
    Readable,
    /// Room to write, or the stream is broken.
    Writable,
}

/// What an operation does; the loop's own view of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Nop,
    Accept { listener: Descriptor, multishot: bool },
    Connect { descriptor: Descriptor, address: SocketAddr },
    Receive { descriptor: Descriptor, pointer: *mut u8, length: u32 },
    ReceivePicked { descriptor: Descriptor, multishot: bool },
    Send { descriptor: Descriptor, pointer: *const u8, length: u32 },
    SendVectored { descriptor: Descriptor, slices: *const libc::iovec, count: u32 },
    Poll { descriptor: Descriptor, interest: Interest },
    Shutdown { descriptor: Descriptor, how: Shutdown },
    Close { descriptor: Descriptor },
    ReadAt { descriptor: Descriptor, pointer: *mut u8, length: u32, offset: u64 },
    WriteAt { descriptor: Descriptor, pointer: *const u8, length: u32, offset: u64 },
    Timer { deadline_ns: u64, period_ns: u64 },
}

/// An operation to submit. It moves nothing until [`Loop::submit`](crate::Loop::submit).
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub(crate) action: Action,
}

impl Operation {
    /// Does nothing and completes with 0.
    pub const fn nop() -> Operation {
        Operation { action: Action::Nop }
    }

    /// Accepts one connection. The event carries the new descriptor. The loop takes a free row for
    /// it before the kernel is asked, so a full table leaves connections in the backlog.
    pub const fn accept(listener: Descriptor) -> Operation {
        Operation { action: Action::Accept { listener, multishot: false } }
    }

    /// Accepts connections until canceled or failed: an event with `more` for each.
    pub const fn accept_multishot(listener: Descriptor) -> Operation {
        Operation { action: Action::Accept { listener, multishot: true } }
    }

    /// Connects a stream opened with [`Control::OpenStream`].
    pub const fn connect(descriptor: Descriptor, address: SocketAddr) -> Operation {
        Operation { action: Action::Connect { descriptor, address } }
    }

    /// Receives into the caller's memory; completes with the bytes received, 0 at the end.
    /// Lengths over [`TRANSFER_BYTES_MAX`](crate::limits::TRANSFER_BYTES_MAX) are capped.
    ///
    /// # Safety
    /// `pointer` is valid for writes of `length` bytes, and nothing else reads or writes them,
    /// until the final event.
    pub const unsafe fn receive(
        descriptor: Descriptor,
        pointer: *mut u8,
        length: usize,
    ) -> Operation {
        let length = capped(length);
        Operation { action: Action::Receive { descriptor, pointer, length } }
    }

    /// Receives into a buffer of the loop: lent to it while few receives wait, and beyond that picked
    /// when bytes arrive. The event names the buffer;
    /// give it back with [`Loop::return_buffer`](crate::Loop::return_buffer). With every buffer
    /// taken the receive waits for one.
    pub const fn receive_picked(descriptor: Descriptor) -> Operation {
        Operation { action: Action::ReceivePicked { descriptor, multishot: false } }
    }

    /// As [`receive_picked`](Operation::receive_picked), again and again: each but the last event
    /// is flagged `more`. Ends at the end of the stream, an error or a cancel.
    pub const fn receive_multishot(descriptor: Descriptor) -> Operation {
        Operation { action: Action::ReceivePicked { descriptor, multishot: true } }
    }

    /// Sends all of the bytes, then completes with their number; with fewer only if canceled, or
    /// failed with some already sent.
    ///
    /// # Safety
    /// `pointer` is valid for reads of `length` bytes, and nothing writes them, until the final
    /// event.
    pub const unsafe fn send(
        descriptor: Descriptor,
        pointer: *const u8,
        length: usize,
    ) -> Operation {
        let length = capped(length);
        Operation { action: Action::Send { descriptor, pointer, length } }
    }

    /// Sends from several pieces in order, once: completes with what one call took, which may be
    /// fewer bytes than there are.
    ///
    /// # Safety
    /// `slices` points at `count` entries (1,024 at most); they and the bytes they name stay valid
    /// for reads, and nothing writes them, until the final event.
    pub const unsafe fn send_vectored(
        descriptor: Descriptor,
        slices: *const libc::iovec,
        count: u32,
    ) -> Operation {
        Operation { action: Action::SendVectored { descriptor, slices, count } }
    }

    /// Waits until the descriptor is ready; moves no bytes.
    pub const fn poll(descriptor: Descriptor, interest: Interest) -> Operation {
        Operation { action: Action::Poll { descriptor, interest } }
    }

    /// Shuts a direction down, after the sends queued before it when that direction is writing.
    /// Shutting down a stream whose peer has left succeeds.
    pub const fn shutdown(descriptor: Descriptor, how: Shutdown) -> Operation {
        Operation { action: Action::Shutdown { descriptor, how } }
    }

    /// Closes: queued sends first, receives and polls canceled. A stream then delivers what was
    /// written and its FIN even with unread input, within
    /// [`LINGER_NS_MAX`](crate::limits::LINGER_NS_MAX). The row is free after the final event.
    /// Never refused for a full table.
    pub const fn close(descriptor: Descriptor) -> Operation {
        Operation { action: Action::Close { descriptor } }
    }

    /// Reads a file at an offset; completes with the bytes read, 0 at the end.
    ///
    /// # Safety
    /// As for [`receive`](Operation::receive).
    pub const unsafe fn read_at(
        descriptor: Descriptor,
        pointer: *mut u8,
        length: usize,
        offset: u64,
    ) -> Operation {
        let length = capped(length);
        Operation { action: Action::ReadAt { descriptor, pointer, length, offset } }
    }

    /// Writes a file at an offset; completes with the bytes written.
    ///
    /// # Safety
    /// As for [`send`](Operation::send).
    pub const unsafe fn write_at(
        descriptor: Descriptor,
        pointer: *const u8,
        length: usize,
        offset: u64,
    ) -> Operation {
        let length = capped(length);
        Operation { action: Action::WriteAt { descriptor, pointer, length, offset } }
    }

    /// Fires once, no earlier than `deadline_ns` on the clock of [`Loop::now`](crate::Loop::now).
    pub const fn timer(deadline_ns: u64) -> Operation {
        Operation { action: Action::Timer { deadline_ns, period_ns: 0 } }
    }

    /// Fires at `first_ns` and then every `period_ns` counted from the previous deadline, until
    /// canceled; a loop that falls behind gets an event for each period missed.
    ///
    /// # Panics
    /// With a period of zero.
    #[track_caller]
    pub const fn repeating_timer(first_ns: u64, period_ns: u64) -> Operation {
        assert!(period_ns > 0, "rotor: a repeating timer needs a period above zero");
        Operation { action: Action::Timer { deadline_ns: first_ns, period_ns } }
    }
}

/// What an operation with a buffer of its own does; see
/// [`Loop::submit_owned`](crate::Loop::submit_owned).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnedOperation {
    /// Read a file at an offset into the buffer's length.
    ReadAt {
        /// The file.
        descriptor: Descriptor,
        /// Where to begin, in bytes.
        offset: u64,
    },
    /// Write the buffer to a file at an offset.
    WriteAt {
        /// The file.
        descriptor: Descriptor,
        /// Where to begin, in bytes.
        offset: u64,
    },
    /// Receive into the buffer's length.
    Receive {
        /// The stream.
        descriptor: Descriptor,
    },
    /// Send the buffer, all of it.
    Send {
        /// The stream.
        descriptor: Descriptor,
    },
}

/// A cold call, answered at once. `D` is a [`Descriptor`] at the loop and the kernel's number at a
/// backend.
#[derive(Clone, Copy, Debug)]
pub enum Control<D> {
    /// Open, bind and listen. On every address family `SO_REUSEADDR` is set, as tokio and std do.
    Listen {
        /// Where; port 0 lets the kernel choose.
        address: SocketAddr,
        /// Connections kept until accepted; the kernel may cap it.
        backlog: u32,
    },
    /// Open an unconnected stream of the address's family.
    OpenStream {
        /// Tells IPv4 from IPv6.
        family_of: SocketAddr,
    },
    /// The address a socket is bound to.
    LocalAddress(D),
    /// The address of the other end.
    PeerAddress(D),
    /// Send small segments at once (`TCP_NODELAY`), or gather them.
    SetNoDelay(D, bool),
    /// Whether small segments go at once.
    NoDelay(D),
    /// Bytes received and unread (`FIONREAD`).
    Unread(D),
    /// Bytes written and not yet acknowledged by the peer (`SIOCOUTQ`).
    Unsent(D),
    /// Throw away up to this many unread bytes. Answers how many, 0 at the end of the stream.
    Discard(D, u32),
    /// Shut a direction down at once. Succeeds when the peer has left.
    Shutdown(D, Shutdown),
    /// Set an option.
    Set(D, SocketOption),
    /// Read an option as the kernel has it.
    Get(D, SocketOptionName),
    /// Take the error the kernel keeps for the socket (`SO_ERROR`).
    TakeError(D),
    /// Bind an open stream to an address; port 0 lets the kernel choose.
    Bind(D, SocketAddr),
    /// Make a bound stream a listener, with so many connections kept until accepted.
    StartListening(D, u32),
    /// Another number of the same open socket or file, to be closed on its own. The peer of a stream
    /// sees its end when either of the two is closed.
    Duplicate(D),
}

/// An option of a socket, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// Bind to an address whose last connections are not quite over (`SO_REUSEADDR`).
    ReuseAddress(bool),
    /// Share the address with other sockets that set this (`SO_REUSEPORT`).
    ReusePort(bool),
    /// Ask a silent peer whether it is still there (`SO_KEEPALIVE`).
    KeepAlive(bool),
    /// How long a close waits for the peer to take what was written (`SO_LINGER`), in whole
    /// seconds, rounded up. Zero resets instead. It bounds the loop's own waiting: close(2) of such
    /// a socket would block the thread, so the loop switches it off before.
    Linger(Option<Duration>),
    /// Acknowledge at once (`TCP_QUICKACK`); the kernel may switch back by itself.
    QuickAck(bool),
    /// The hops a packet may take (`IP_TTL`).
    TimeToLive(u32),
    /// Bytes of the kernel's receive buffer (`SO_RCVBUF`). Linux doubles what is set and caps it.
    ReceiveBuffer(u32),
    /// Bytes of the kernel's send buffer (`SO_SNDBUF`). Linux doubles what is set and caps it.
    SendBuffer(u32),
}

/// Which option to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOptionName {
    /// [`SocketOption::ReuseAddress`]
    ReuseAddress,
    /// [`SocketOption::ReusePort`]
    ReusePort,
    /// [`SocketOption::KeepAlive`]
    KeepAlive,
    /// [`SocketOption::Linger`]
    Linger,
    /// [`SocketOption::QuickAck`]
    QuickAck,
    /// [`SocketOption::TimeToLive`]
    TimeToLive,
    /// [`SocketOption::ReceiveBuffer`]
    ReceiveBuffer,
    /// [`SocketOption::SendBuffer`]
    SendBuffer,
}

/// The answer to a [`Control`].
#[derive(Clone, Copy, Debug)]
pub enum Reply<D> {
    /// It was done.
    Done,
    /// The descriptor that was opened.
    Opened(D),
    /// An address.
    Address(SocketAddr),
    /// A number of bytes.
    Count(u64),
    /// On or off.
    Flag(bool),
    /// An option's value.
    Option(SocketOption),
    /// An `errno`, if there was an error.
    Error(Option<i32>),
}

impl<D> Reply<D> {
    /// The number of bytes, if that is what was answered.
    pub(crate) const fn count(&self) -> Option<u64> {
        match self {
            Reply::Count(count) => Some(*count),
            Reply::Done
            | Reply::Opened(_)
            | Reply::Address(_)
            | Reply::Flag(_)
            | Reply::Option(_)
            | Reply::Error(_) => None,
        }
    }

    /// The descriptor, if one was opened; else the reply as one that names none.
    pub(crate) fn into_opened<E>(self) -> Result<D, Reply<E>> {
        Err(match self {
            Reply::Opened(descriptor) => return Ok(descriptor),
            Reply::Done => Reply::Done,
            Reply::Address(address) => Reply::Address(address),
            Reply::Count(count) => Reply::Count(count),
            Reply::Flag(flag) => Reply::Flag(flag),
            Reply::Option(option) => Reply::Option(option),
            Reply::Error(errno) => Reply::Error(errno),
        })
    }
}

const fn capped(length: usize) -> u32 {
    if length > crate::limits::TRANSFER_BYTES_MAX as usize {
        crate::limits::TRANSFER_BYTES_MAX
    } else {
        length as u32
    }
}

/// A message header with pieces and nothing else.
pub(crate) fn message(slices: *const libc::iovec, count: u32) -> libc::msghdr {
    // SAFETY: null pointers, lengths of zero and no flags are a message header. Some C libraries have
    // fields of their own in it, so it cannot be written out.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = slices.cast_mut();
    header.msg_iovlen = count as _;
    header
}
