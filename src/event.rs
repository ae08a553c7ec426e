//! Events: how operations answer. Twenty-four bytes each.

use std::io;

use crate::op::{BufferId, Descriptor, OrphanId};

/// Which operation an event answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// [`nop`](crate::Operation::nop)
    Nop,
    /// [`accept`](crate::Operation::accept), either form
    Accept,
    /// [`connect`](crate::Operation::connect)
    Connect,
    /// [`receive`](crate::Operation::receive), every form
    Receive,
    /// [`send`](crate::Operation::send)
    Send,
    /// [`send_vectored`](crate::Operation::send_vectored)
    SendVectored,
    /// [`poll`](crate::Operation::poll)
    Poll,
    /// [`shutdown`](crate::Operation::shutdown)
    Shutdown,
    /// [`close`](crate::Operation::close)
    Close,
    /// [`read_at`](crate::Operation::read_at)
    Read,
    /// [`write_at`](crate::Operation::write_at)
    Write,
    /// [`timer`](crate::Operation::timer), either form
    Timer,
}

/// One answer to one operation. The event without [`more`](Event::more) is the final one: the
/// operation is over and its handle stale.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    pub(crate) user_data: u64,
    pub(crate) payload: u64,
    pub(crate) result: i32,
    pub(crate) buffer: u16,
    pub(crate) kind: EventKind,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Event>() == 24);

pub(crate) const MORE: u8 = 1;
pub(crate) const HAS_BUFFER: u8 = 2;
pub(crate) const HAS_DESCRIPTOR: u8 = 4;
pub(crate) const HAS_ORPHAN: u8 = 8;
/// The socket had more bytes than this receive took.
pub(crate) const NONEMPTY: u8 = 16;

impl Event {
    /// A placeholder to fill an array with before a tick.
    pub const EMPTY: Event =
        Event { user_data: 0, payload: 0, result: 0, buffer: 0, kind: EventKind::Nop, flags: 0 };

    /// The number given at submission.
    pub const fn user_data(&self) -> u64 {
        self.user_data
    }

    /// Which operation this answers.
    pub const fn kind(&self) -> EventKind {
        self.kind
    }

    /// Whether the operation goes on and will answer again.
    pub const fn more(&self) -> bool {
        self.flags & MORE != 0
    }

    /// The bytes moved, or 0 where none move. An error is the kernel's, of the kind std gives it;
    /// a canceled operation's is `ECANCELED`, see [`is_canceled`](Event::is_canceled).
    pub fn result(&self) -> io::Result<u32> {
        match u32::try_from(self.result) {
            Ok(count) => Ok(count),
            Err(_) => Err(io::Error::from_raw_os_error(-self.result)),
        }
    }

    /// Whether the operation ended because it was canceled and nothing had arrived.
    pub const fn is_canceled(&self) -> bool {
        self.result == -libc::ECANCELED
    }

    /// The connection that was accepted.
    pub const fn descriptor(&self) -> Option<Descriptor> {
        if self.flags & HAS_DESCRIPTOR != 0 {
            Some(Descriptor::from_bits(self.payload))
        } else {
            None
        }
    }

    /// The buffer that was picked; its first [`result`](Event::result) bytes were received.
    pub const fn buffer(&self) -> Option<BufferId> {
        if self.flags & HAS_BUFFER != 0 { Some(BufferId(self.buffer)) } else { None }
    }

    /// The operation's own buffer, to reclaim.
    pub const fn orphan(&self) -> Option<OrphanId> {
        if self.flags & HAS_ORPHAN != 0 {
            let index = self.payload as u32;
            Some(OrphanId { index, generation: (self.payload >> 32) as u32 })
        } else {
            None
        }
    }

    /// Whether a receive left bytes in the socket (a hint; absence says nothing).
    pub const fn socket_nonempty(&self) -> bool {
        self.flags & NONEMPTY != 0
    }
}
