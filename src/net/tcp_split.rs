//! A stream in two halves: one reads, one writes.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::io::{Interest, Ready};
use crate::net::loop_buf::{LoopBuf, OwnedBuf};
use crate::net::tcp_stream::TcpStream;

/// The half that reads, borrowed; from [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a> {
    stream: &'a TcpStream,
}

/// The half that writes, borrowed; from [`TcpStream::split`]. Dropping it ends nothing.
#[derive(Debug)]
pub struct WriteHalf<'a> {
    stream: &'a TcpStream,
}

/// The half that reads, owned; from [`TcpStream::into_split`]. The stream is closed when both
/// halves are dropped.
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Rc<TcpStream>,
}

/// The half that writes, owned; from [`TcpStream::into_split`]. Dropping it ends the stream that
/// goes to the peer, unless it was [forgotten](OwnedWriteHalf::forget). The stream is closed when
/// both halves are dropped.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Rc<TcpStream>,
    shuts_down: bool,
}

pub(crate) fn borrowed(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    let stream = &*stream;
    (ReadHalf { stream }, WriteHalf { stream })
}

pub(crate) fn owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Rc::new(stream);
    (OwnedReadHalf { stream: stream.clone() }, OwnedWriteHalf { stream, shuts_down: true })
}

macro_rules! reads {
    ($($half:ty),*) => {
        $(
            impl $half {
                /// See [`TcpStream::read`].
                ///
                /// # Errors
                /// As there.
                pub fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
                    self.stream.read_shared(buffer)
                }

                /// See [`TcpStream::read_exact`], also for what dropping the future loses.
                ///
                /// # Errors
                /// As there.
                pub fn read_exact(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
                    self.stream.read_exact_shared(buffer)
                }

                /// See [`TcpStream::poll_read`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn poll_read(
                    &mut self,
                    cx: &mut Context<'_>,
                    buffer: &mut [u8],
                ) -> Poll<io::Result<usize>> {
                    self.stream.poll_read_shared(cx, buffer)
                }

                /// See [`TcpStream::read_buf`].
                ///
                /// # Errors
                /// As there.
                pub async fn read_buf(&mut self) -> io::Result<LoopBuf> {
                    self.stream.read_buf_shared().await
                }

                /// See [`TcpStream::peek`].
                ///
                /// # Errors
                /// As there.
                pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                    self.stream.peek(buffer).await
                }

                /// See [`TcpStream::readable`].
                ///
                /// # Errors
                /// As there.
                pub async fn readable(&self) -> io::Result<()> {
                    self.stream.readable().await
                }

                /// See [`TcpStream::ready`].
                ///
                /// # Errors
                /// As there.
                pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                    self.stream.ready(interest).await
                }

                /// See [`TcpStream::try_read`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                    self.stream.try_read(buffer)
                }

                /// See [`TcpStream::try_read_vectored`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                    self.stream.try_read_vectored(buffers)
                }
            }
        )*
    };
}

macro_rules! writes {
    ($($half:ty),*) => {
        $(
            impl $half {
                /// See [`TcpStream::write`].
                ///
                /// # Errors
                /// As there.
                pub fn write(&mut self, buffer: &[u8]) -> impl Future<Output = io::Result<usize>> {
                    self.stream.write_shared(buffer)
                }

                /// See [`TcpStream::write_all`]. **Dropping the future leaves an unknown part of the
                /// buffer written.**
                ///
                /// # Errors
                /// As there.
                pub fn write_all(&mut self, buffer: &[u8]) -> impl Future<Output = io::Result<()>> {
                    self.stream.write_all_shared(buffer)
                }

                /// See [`TcpStream::shutdown`].
                ///
                /// # Errors
                /// As there.
                pub fn shutdown(&mut self) -> impl Future<Output = io::Result<()>> {
                    self.stream.shutdown_shared()
                }

                /// See [`TcpStream::poll_write`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn poll_write(
                    &mut self,
                    cx: &mut Context<'_>,
                    buffer: &[u8],
                ) -> Poll<io::Result<usize>> {
                    self.stream.poll_write_shared(cx, buffer)
                }

                /// See [`TcpStream::poll_write_vectored`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn poll_write_vectored(
                    &mut self,
                    cx: &mut Context<'_>,
                    buffers: &[IoSlice<'_>],
                ) -> Poll<io::Result<usize>> {
                    self.stream.poll_write_vectored_shared(cx, buffers)
                }

                /// See [`TcpStream::poll_shutdown`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                    self.stream.poll_shutdown_shared(cx)
                }

                /// See [`TcpStream::write_vectored`].
                ///
                /// # Errors
                /// As there.
                pub fn write_vectored(
                    &mut self,
                    buffers: &[IoSlice<'_>],
                ) -> impl Future<Output = io::Result<usize>> {
                    self.stream.write_vectored_shared(buffers)
                }

                /// See [`TcpStream::write_owned`].
                ///
                /// # Errors
                /// As there.
                pub async fn write_owned<B: OwnedBuf>(&mut self, buffer: B) -> (io::Result<usize>, B) {
                    self.stream.write_owned_shared(buffer).await
                }

                /// See [`TcpStream::writable`].
                ///
                /// # Errors
                /// As there.
                pub async fn writable(&self) -> io::Result<()> {
                    self.stream.writable().await
                }

                /// See [`TcpStream::ready`].
                ///
                /// # Errors
                /// As there.
                pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                    self.stream.ready(interest).await
                }

                /// See [`TcpStream::try_write`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
                    self.stream.try_write(buffer)
                }

                /// See [`TcpStream::try_write_vectored`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn try_write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                    self.stream.try_write_vectored(buffers)
                }
            }
        )*
    };
}

macro_rules! addresses {
    ($($half:ty),*) => {
        $(
            impl $half {
                /// See [`TcpStream::local_addr`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn local_addr(&self) -> io::Result<SocketAddr> {
                    self.stream.local_addr()
                }

                /// See [`TcpStream::peer_addr`].
                ///
                /// # Errors
                /// As there.
                #[track_caller]
                pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                    self.stream.peer_addr()
                }
            }
        )*
    };
}

reads!(ReadHalf<'_>, OwnedReadHalf);
writes!(WriteHalf<'_>, OwnedWriteHalf);
addresses!(ReadHalf<'_>, WriteHalf<'_>, OwnedReadHalf, OwnedWriteHalf);

impl OwnedReadHalf {
    /// Joins the two halves of one stream again.
    ///
    /// # Errors
    /// When they are halves of different streams; both come back in the error.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        reunite(self, other)
    }
}

impl OwnedWriteHalf {
    /// Joins the two halves of one stream again.
    ///
    /// # Errors
    /// When they are halves of different streams; both come back in the error.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        reunite(other, self)
    }

    /// Drops the half without ending the stream that goes to the peer; it ends when the stream is
    /// closed.
    pub fn forget(mut self) {
        self.shuts_down = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shuts_down {
            // Who drops cannot be told. Closing, once the other half is dropped too, ends it anyway.
            self.stream.end_quietly();
        }
    }
}

/// Two halves that do not belong together, from [`OwnedReadHalf::reunite`].
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are of different streams")
    }
}

impl std::error::Error for ReuniteError {}

fn reunite(read: OwnedReadHalf, mut write: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
    if !Rc::ptr_eq(&read.stream, &write.stream) {
        return Err(ReuniteError(read, write));
    }
    write.shuts_down = false;
    drop(write);
    let Ok(stream) = Rc::try_unwrap(read.stream) else {
        unreachable!("rotor: a stream in two halves has a third owner");
    };
    Ok(stream)
}
