//! Readiness of streams: waiting without moving bytes, and moving bytes without waiting.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::task::Context;
use std::task::Poll;

use crate::io::{Interest, Ready};
use crate::net::tcp_stream::TcpStream;
use crate::runtime::{Sides, Ticket};

const WHAT: &str = "TcpStream";

/// Readiness, beside reads and writes that wait. **The rule for using both on one stream**:
///
/// - Bytes that were received and not yet read are *in hand*. They count as readable, and every
///   call that reads gives them first, in order: `read`, `read_exact`, `peek`, `try_read`. So the
///   two kinds of calls can be mixed freely, and a dropped future of either loses nothing.
/// - [`readable`](TcpStream::readable) is ready exactly when [`read`](TcpStream::read) would not
///   wait. It receives, as a read does, and leaves the bytes in hand; so code that goes past rotor
///   to the descriptor does not find them in the socket.
/// - The methods that begin with `try_` never wait. While a receive waits for bytes, what arrives
///   is its, and [`try_read`](TcpStream::try_read) says `WouldBlock` until the loop's next tick has
///   brought them into hand: whoever tries again and again without waiting must let the loop tick,
///   by [`yield_now`](crate::task::yield_now) for example.
/// - [`writable`](TcpStream::writable) is ready unless the last attempt to write found no room. It
///   may be ready in vain; a `try_write` then says so, and the next `writable` waits for room.
impl TcpStream {
    /// Waits until a read would not wait: bytes are there, or the end, or an error. Several tasks
    /// may wait at a time; all are woken.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// When a table is full; when the runtime is gone.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(|_| ())
    }

    /// Waits until there is likely room to write, or an error to be told. Several tasks may wait at
    /// a time; all are woken.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`readable`](TcpStream::readable).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(|_| ())
    }

    /// Waits until the stream is ready for one of the things asked for, and tells for which.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`readable`](TcpStream::readable).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        let sides = Sides { read: interest.is_readable(), write: interest.is_writable() };
        let mut watch = Watch { stream: self, ticket: Ticket::default() };
        poll_fn(|cx| watch.poll(cx, sides)).await
    }

    /// Copies what the next read will give, and leaves it there. Gives the count of bytes, 0 at the
    /// end of the stream or for an empty buffer. Waits if nothing has arrived. An error is told,
    /// and told again by the next read.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`read`](TcpStream::read).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut watch = Watch { stream: self, ticket: Ticket::default() };
        poll_fn(|cx| {
            let shared = self.socket().shared(WHAT)?;
            shared.poll_peek(cx, self.socket().descriptor(), buffer, &mut watch.ticket)
        })
        .await
    }

    /// Reads what is in hand, or else in the socket, without waiting.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when nothing is there, or what there is is on its
    /// way to a receive; else as [`read`](TcpStream::read).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    /// As [`try_read`](TcpStream::try_read), into several buffers in order.
    ///
    /// # Errors
    /// As [`try_read`](TcpStream::try_read).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let shared = self.socket().shared(WHAT)?;
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Ok(0);
        }
        shared.try_read(self.socket().descriptor(), buffers)
    }

    /// Writes what there is room for, without waiting.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when there is no room, or writes are queued ahead;
    /// else as [`write`](TcpStream::write).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
        let shared = self.socket().shared(WHAT)?;
        if buffer.is_empty() {
            return Ok(0);
        }
        shared.try_write(self.socket().descriptor(), buffer)
    }

    /// As [`try_write`](TcpStream::try_write), from several buffers in order.
    ///
    /// # Errors
    /// As [`try_write`](TcpStream::try_write).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let shared = self.socket().shared(WHAT)?;
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Ok(0);
        }
        shared.try_write_vectored(self.socket().descriptor(), buffers)
    }
}

/// A future's place among those that wait for a stream. Dropping it leaves.
struct Watch<'a> {
    stream: &'a TcpStream,
    ticket: Ticket,
}

impl Watch<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, sides: Sides) -> Poll<io::Result<Ready>> {
        let socket = self.stream.socket();
        let shared = socket.shared(WHAT)?;
        let polled = shared.poll_ready(cx, socket.descriptor(), sides, &mut self.ticket);
        polled.map_ok(|found| Ready {
            readable: found.sides.read,
            read_closed: found.over,
            writable: found.sides.write,
        })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.ticket != Ticket::default() {
            self.stream.socket().stop_watching(self.ticket);
        }
    }
}
