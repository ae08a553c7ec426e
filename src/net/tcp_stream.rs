//! Connections.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::net::addr::{self, ToSocketAddrs};
use crate::net::tcp_split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::op::{Control, Operation};
use crate::runtime::{Shared, Socket, Wait, address_of, current_named, opened, shared_of};
use crate::time::try_timeout;

/// A TCP connection.
///
/// It belongs to the runtime it was made in and stays on its thread.
///
/// Dropping it closes it in the background: what was written is delivered, followed by the end of
/// the stream, also if the peer has sent bytes nobody read; those are discarded. A peer that takes
/// or sends beyond a bound ([`LINGER_NS_MAX`](crate::limits::LINGER_NS_MAX),
/// [`LINGER_BYTES_MAX`](crate::limits::LINGER_BYTES_MAX)) is reset, and counted.
///
/// ```
/// # #[rotor::main]
/// # async fn main() -> std::io::Result<()> {
/// use rotor::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let address = listener.local_addr()?;
/// rotor::spawn(async move {
///     let (mut stream, _) = listener.accept().await?;
///     let mut buffer = [0; 1024];
///     loop {
///         let count = stream.read(&mut buffer).await?;
///         if count == 0 {
///             return std::io::Result::Ok(());
///         }
///         stream.write_all(&buffer[..count]).await?;
///     }
/// });
///
/// let mut stream = TcpStream::connect(address).await?;
/// stream.write_all(b"echo").await?;
/// let mut answer = [0; 4];
/// stream.read_exact(&mut answer).await?;
/// assert_eq!(&answer, b"echo");
/// # Ok(())
/// # }
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<rotor::net::TcpStream>();
/// ```
#[derive(Debug)]
pub struct TcpStream {
    socket: Socket,
}

const WHAT: &str = "TcpStream";

impl TcpStream {
    /// Connects to the first of the addresses that answers.
    ///
    /// Dropping the future closes the half-made connection.
    ///
    /// # Errors
    /// Those of the last address tried; also when the text is no address, the name is not
    /// `localhost`, or a table is full (raise the option the error names).
    ///
    /// # Panics
    /// Outside a runtime.
    pub async fn connect<A: ToSocketAddrs>(address: A) -> io::Result<TcpStream> {
        let loop_id = current_named("TcpStream::connect").id;
        let addresses = address.addresses()?;
        let mut last = None;
        let mut place = 0;
        while let Some(address) = addresses.get(place) {
            place += 1;
            match connect_one(loop_id, address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(addr::none))
    }

    /// Connects to an address, and gives up after a duration. A connection that is there in time is
    /// never given up.
    ///
    /// Dropping the future closes the half-made connection.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) when the time was up first; else as
    /// [`connect`](TcpStream::connect), and when all timers are armed (raise the option `timers`).
    ///
    /// # Panics
    /// Outside a runtime.
    pub async fn connect_timeout(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let loop_id = current_named("TcpStream::connect_timeout").id;
        match try_timeout(timeout, connect_one(loop_id, address))?.await {
            Ok(connected) => connected,
            Err(elapsed) => Err(elapsed.into()),
        }
    }

    pub(crate) fn from_socket(socket: Socket) -> TcpStream {
        TcpStream { socket }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads what has arrived, up to the buffer's length, and gives the count of bytes; 0 at the
    /// end of the stream, or for an empty buffer. Waits if nothing has arrived.
    ///
    /// Dropping the future loses nothing: bytes that had arrived are read next.
    ///
    /// # Errors
    /// The kernel's, once each; when a table is full; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one the stream was made in.
    pub fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        self.read_shared(buffer)
    }

    /// Reads until the buffer is full, and gives its length.
    ///
    /// Up to the option `buffer_bytes` it takes all or nothing: dropping the future loses nothing,
    /// whatever had arrived is read next. **A longer buffer is filled in steps**: dropping the future
    /// then loses what stands in the buffer already.
    ///
    /// # Errors
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) when the stream ends before; up to
    /// `buffer_bytes`, what there was can still be read. Else as [`read`](TcpStream::read).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        self.read_exact_shared(buffer)
    }

    /// Writes what there is room for and gives the count of bytes, which are then in the kernel.
    /// Waits for room if there is none. 0 for an empty buffer only.
    ///
    /// Dropping the future loses nothing: it wrote nothing.
    ///
    /// # Errors
    /// The kernel's, as [`BrokenPipe`](io::ErrorKind::BrokenPipe) after
    /// [`shutdown`](TcpStream::shutdown); when a table is full; when the runtime is gone.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub fn write(&mut self, buffer: &[u8]) -> impl Future<Output = io::Result<usize>> {
        self.write_shared(buffer)
    }

    /// As [`write`](TcpStream::write), from several buffers in order.
    ///
    /// # Errors
    /// As [`write`](TcpStream::write).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub fn write_vectored(
        &mut self,
        buffers: &[IoSlice<'_>],
    ) -> impl Future<Output = io::Result<usize>> {
        self.write_vectored_shared(buffers)
    }

    /// Writes all of the buffer, in steps. **Dropping the future leaves an unknown part of it
    /// written.**
    ///
    /// # Errors
    /// As [`write`](TcpStream::write); an unknown part was written then.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub fn write_all(&mut self, buffer: &[u8]) -> impl Future<Output = io::Result<()>> {
        self.write_all_shared(buffer)
    }

    /// Ends the stream that goes to the peer; the peer reads what was written and then 0. Reading
    /// goes on. If the peer has left already, there is nothing to end. Waits for writes that go on, of
    /// [`write_owned`](TcpStream::write_owned).
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub fn shutdown(&mut self) -> impl Future<Output = io::Result<()>> {
        self.shutdown_shared()
    }

    /// As [`read`](TcpStream::read), polled by hand. The task that polled last is woken.
    ///
    /// # Errors
    /// As [`read`](TcpStream::read).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_read_shared(cx, buffer)
    }

    /// As [`write`](TcpStream::write), polled by hand. The task that polled last is woken.
    ///
    /// # Errors
    /// As [`write`](TcpStream::write).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, buffer)
    }

    /// As [`poll_write`](TcpStream::poll_write), from several buffers in order.
    ///
    /// # Errors
    /// As [`write`](TcpStream::write).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored_shared(cx, buffers)
    }

    /// As [`shutdown`](TcpStream::shutdown), polled by hand. It is ready at once unless a
    /// [`write_owned`](TcpStream::write_owned) goes on. The task that polled last is woken.
    ///
    /// # Errors
    /// As [`shutdown`](TcpStream::shutdown).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown_shared(cx)
    }

    /// Two halves that borrow the stream, to read and write side by side.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        tcp_split::borrowed(self)
    }

    /// Two halves that own the stream together. It is closed when both are dropped; dropping the
    /// write half ends the stream that goes to the peer.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        tcp_split::owned(self)
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.control(WHAT, Control::LocalAddress).and_then(address_of)
    }

    /// The address of the other end. That of an accepted stream is known also when the peer has
    /// left.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    #[track_caller]
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let shared = self.socket.shared(WHAT)?;
        let known = shared.core.borrow().event_loop.peer_address(self.socket.descriptor());
        match known {
            Some(address) => Ok(address),
            None => self.socket.control(WHAT, Control::PeerAddress).and_then(address_of),
        }
    }
}

/// What the stream and its halves share: everything by `&self`, since each half uses one direction.
///
/// The futures are made by hand: that of an `async fn` keeps its arguments twice, and every task that
/// reads and writes carries it.
impl TcpStream {
    #[track_caller]
    pub(crate) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let usual = self
            .socket
            .here(|shared, descriptor| shared.read_usual(descriptor, buffer, cx.waker()));
        match usual {
            Some(Some(polled)) => polled.map(Ok),
            Some(None) | None => self.poll_read_otherwise(cx, buffer),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn poll_read_otherwise(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let shared = self.socket.shared(WHAT)?;
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        shared.poll_read(cx, self.socket.descriptor(), buffer)
    }

    pub(crate) fn read_shared(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        poll_fn(move |cx| self.poll_read_shared(cx, buffer))
    }

    pub(crate) fn read_exact_shared(
        &self,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>> {
        let mut filled = 0;
        poll_fn(move |cx| {
            let length = buffer.len();
            if length == 0 {
                return Poll::Ready(Ok(0));
            }
            let shared = self.socket.shared(WHAT)?;
            let descriptor = self.socket.descriptor();
            if length <= shared.buffer_bytes() {
                return shared.poll_read_whole(cx, descriptor, buffer).map_ok(|()| length);
            }
            while filled < length {
                match ready!(shared.poll_read(cx, descriptor, &mut buffer[filled..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    count => filled += count,
                }
            }
            Poll::Ready(Ok(length))
        })
    }

    #[track_caller]
    pub(crate) fn poll_write_shared(
        &self,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let usual = self.socket.here(|shared, descriptor| shared.write_usual(descriptor, buffer));
        match usual {
            Some(Some(Poll::Ready(sent))) => Poll::Ready(sent),
            Some(Some(Poll::Pending)) => self.poll_room(cx),
            Some(None) | None => self.poll_write_otherwise(cx, buffer),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.socket.shared(WHAT)?.poll_room(cx, self.socket.descriptor())
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn poll_write_otherwise(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let shared = self.socket.shared(WHAT)?;
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        shared.poll_write(cx, self.socket.descriptor(), buffer)
    }

    #[track_caller]
    pub(crate) fn poll_write_vectored_shared(
        &self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let shared = self.socket.shared(WHAT)?;
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        shared.poll_write_vectored(cx, self.socket.descriptor(), buffers)
    }

    pub(crate) fn write_shared(&self, buffer: &[u8]) -> impl Future<Output = io::Result<usize>> {
        poll_fn(move |cx| self.poll_write_shared(cx, buffer))
    }

    pub(crate) fn write_vectored_shared(
        &self,
        buffers: &[IoSlice<'_>],
    ) -> impl Future<Output = io::Result<usize>> {
        poll_fn(move |cx| self.poll_write_vectored_shared(cx, buffers))
    }

    pub(crate) fn write_all_shared(&self, buffer: &[u8]) -> impl Future<Output = io::Result<()>> {
        let mut rest = buffer;
        poll_fn(move |cx| {
            while !rest.is_empty() {
                match ready!(self.poll_write_shared(cx, rest))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    count => rest = &rest[count..],
                }
            }
            Poll::Ready(Ok(()))
        })
    }

    pub(crate) fn shutdown_shared(&self) -> impl Future<Output = io::Result<()>> {
        poll_fn(|cx| self.poll_shutdown_shared(cx))
    }

    pub(crate) fn end_quietly(&self) {
        self.socket.shutdown_quietly();
    }

    #[track_caller]
    pub(crate) fn poll_shutdown_shared(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = self.socket.shared(WHAT)?;
        shared.poll_shutdown(cx, self.socket.descriptor())
    }
}

/// One attempt. The socket is owned from its first moment, so that it is closed exactly once,
/// whether the attempt fails or is dropped.
async fn connect_one(loop_id: u32, address: SocketAddr) -> io::Result<TcpStream> {
    let shared = shared_of(loop_id, WHAT)?;
    let socket = open(&shared, address)?;
    drop(shared);
    connect_socket(socket, address).await
}

/// A socket of the address's family, not connected yet.
pub(super) fn open(shared: &Shared, family_of: SocketAddr) -> io::Result<Socket> {
    let mut core = shared.core.borrow_mut();
    let descriptor = core.event_loop.control(Control::OpenStream { family_of }).and_then(opened)?;
    core.put_stream(descriptor);
    Ok(Socket::new(shared, descriptor))
}

/// Connects a socket, which is closed if that fails or is dropped.
pub(super) async fn connect_socket(socket: Socket, address: SocketAddr) -> io::Result<TcpStream> {
    let mut wait = {
        let shared = socket.shared(WHAT)?;
        let operation = Operation::connect(socket.descriptor(), address);
        let key = shared.core.borrow_mut().start(operation)?;
        Wait::new(shared.id, key)
    };
    let event = poll_fn(|cx| {
        let shared = socket.shared(WHAT)?;
        wait.poll(&shared, cx).map(Ok::<_, io::Error>)
    })
    .await?;
    event.result()?;
    Ok(TcpStream { socket })
}
