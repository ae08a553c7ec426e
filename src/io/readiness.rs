//! Readiness: what is waited for, and what was found.

use std::ops::BitOr;

/// What to wait for in [`TcpStream::ready`](crate::net::TcpStream::ready).
///
/// ```
/// use rotor::io::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert!(both.is_readable() && both.is_writable());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interest {
    readable: bool,
    writable: bool,
}

impl Interest {
    /// Bytes to read, the end of the stream, or an error.
    pub const READABLE: Interest = Interest { readable: true, writable: false };
    /// Room to write, or an error.
    pub const WRITABLE: Interest = Interest { readable: false, writable: true };

    /// Both this and that.
    #[must_use]
    pub const fn add(self, other: Interest) -> Interest {
        Interest {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
        }
    }

    /// Whether reading is waited for.
    pub const fn is_readable(self) -> bool {
        self.readable
    }

    /// Whether writing is waited for.
    pub const fn is_writable(self) -> bool {
        self.writable
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        self.add(other)
    }
}

/// What a stream is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ready {
    pub(crate) readable: bool,
    pub(crate) read_closed: bool,
    pub(crate) writable: bool,
}

impl Ready {
    /// Whether a read would not wait: there are bytes, or the end, or an error.
    pub const fn is_readable(self) -> bool {
        self.readable
    }

    /// Whether nothing comes after the bytes in hand: the peer has ended its side, or a receive
    /// has failed.
    pub const fn is_read_closed(self) -> bool {
        self.read_closed
    }

    /// Whether a write is likely not to wait.
    pub const fn is_writable(self) -> bool {
        self.writable
    }

    /// Whether it is ready for nothing.
    pub const fn is_empty(self) -> bool {
        !(self.readable || self.read_closed || self.writable)
    }
}
