//! What the wrappers can wrap.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use rotor::net::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, TcpStream, WriteHalf};

/// What can be read by polling. Implemented by rotor's streams and reading halves; sealed.
pub trait PollRead: sealed::Sealed + Unpin {
    /// Reads what has arrived; 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;
}

/// What can be written by polling. Implemented by rotor's streams and writing halves; sealed.
pub trait PollWrite: sealed::Sealed + Unpin {
    /// Writes what there is room for; the bytes are then in the kernel.
    fn poll_write(&mut self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>>;

    /// As [`poll_write`](PollWrite::poll_write), from several buffers in order.
    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Ends the stream that goes to the peer.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! forward {
    (read: $($type:ty),*) => {
        $(
            impl PollRead for $type {
                fn poll_read(
                    &mut self,
                    cx: &mut Context<'_>,
                    buffer: &mut [u8],
                ) -> Poll<io::Result<usize>> {
                    self.poll_read(cx, buffer)
                }
            }
        )*
    };
    (write: $($type:ty),*) => {
        $(
            impl PollWrite for $type {
                fn poll_write(
                    &mut self,
                    cx: &mut Context<'_>,
                    buffer: &[u8],
                ) -> Poll<io::Result<usize>> {
                    self.poll_write(cx, buffer)
                }

                fn poll_write_vectored(
                    &mut self,
                    cx: &mut Context<'_>,
                    buffers: &[IoSlice<'_>],
                ) -> Poll<io::Result<usize>> {
                    self.poll_write_vectored(cx, buffers)
                }

                fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                    self.poll_shutdown(cx)
                }
            }
        )*
    };
    (sealed: $($type:ty),*) => {
        $(impl sealed::Sealed for $type {})*
    };
}

// An inherent method wins over a trait's of the same name, so none of these calls itself.
forward!(read: TcpStream, ReadHalf<'_>, OwnedReadHalf);
forward!(write: TcpStream, WriteHalf<'_>, OwnedWriteHalf);
forward!(sealed: TcpStream, ReadHalf<'_>, WriteHalf<'_>, OwnedReadHalf, OwnedWriteHalf);
