//! The traits of `futures-io`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::{PollRead, PollWrite};

/// A stream of rotor's, or one of its halves, with `AsyncRead` and `AsyncWrite` of `futures-io`.
///
/// It keeps the promises of what it wraps: dropping a read or a write loses nothing. Flushing is
/// done at once, as what was written is in the kernel already. Closing ends the stream that goes to
/// the peer; the descriptor is closed when the wrapper is dropped.
///
/// ```
/// # #[rotor::main]
/// # async fn main() -> std::io::Result<()> {
/// use futures_util::io::{AsyncReadExt, AsyncWriteExt};
/// use rotor::net::{TcpListener, TcpStream};
/// use rotor_compat::futures::FuturesIo;
///
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = FuturesIo::new(TcpStream::connect(listener.local_addr()?).await?);
/// let (server, _) = listener.accept().await?;
///
/// client.write_all(b"hello").await?;
/// client.close().await?;
/// let mut text = String::new();
/// FuturesIo::new(server).read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FuturesIo<T> {
    wrapped: T,
}

impl<T> FuturesIo<T> {
    /// Wraps a stream or a half.
    pub fn new(wrapped: T) -> FuturesIo<T> {
        FuturesIo { wrapped }
    }

    /// What is wrapped.
    pub fn get_ref(&self) -> &T {
        &self.wrapped
    }

    /// What is wrapped.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.wrapped
    }

    /// What was wrapped. Nothing is lost: there is no buffer between.
    pub fn into_inner(self) -> T {
        self.wrapped
    }
}

impl<T: PollRead> AsyncRead for FuturesIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.wrapped.poll_read(cx, buffer)
    }
}

impl<T: PollWrite> AsyncWrite for FuturesIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.wrapped.poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wrapped.poll_write_vectored(cx, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wrapped.poll_shutdown(cx)
    }
}
