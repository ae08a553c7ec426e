//! The traits of `tokio::io`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{PollRead, PollWrite};

/// A stream of rotor's, or one of its halves, with `AsyncRead` and `AsyncWrite` of `tokio::io`.
///
/// It keeps the promises of what it wraps: dropping a read or a write loses nothing. Flushing is
/// done at once, as what was written is in the kernel already.
///
/// ```
/// # #[rotor::main]
/// # async fn main() -> std::io::Result<()> {
/// use rotor::net::{TcpListener, TcpStream};
/// use rotor_compat::tokio::TokioIo;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = TokioIo::new(TcpStream::connect(listener.local_addr()?).await?);
/// let (server, _) = listener.accept().await?;
///
/// client.write_all(b"hello").await?;
/// client.shutdown().await?;
/// let mut text = String::new();
/// TokioIo::new(server).read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TokioIo<T> {
    wrapped: T,
}

impl<T> TokioIo<T> {
    /// Wraps a stream or a half.
    pub fn new(wrapped: T) -> TokioIo<T> {
        TokioIo { wrapped }
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

impl<T: PollRead> AsyncRead for TokioIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What the caller has initialized once stays so: this zeroes fresh memory and nothing else.
        let space = buffer.initialize_unfilled();
        self.wrapped.poll_read(cx, space).map_ok(|count| buffer.advance(count))
    }
}

impl<T: PollWrite> AsyncWrite for TokioIo<T> {
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

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wrapped.poll_shutdown(cx)
    }
}
