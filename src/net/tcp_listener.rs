//! Listening for connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::limits::BACKLOG_DEFAULT;
use crate::net::addr::{self, ToSocketAddrs};
use crate::net::tcp_stream::TcpStream;
use crate::op::Control;
use crate::runtime::{Socket, Ticket, address_of, current_named, opened};

/// A TCP socket that listens for connections.
///
/// It belongs to the runtime it was bound in and stays on its thread. Dropping it closes it, and a
/// connection that was accepted but not taken with it; connections in the kernel's backlog are
/// refused by the kernel.
///
/// ```
/// # #[rotor::main]
/// # async fn main() -> std::io::Result<()> {
/// use rotor::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// let (mut stream, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
///
/// client.write_all(b"hello").await?;
/// let mut greeting = [0; 5];
/// stream.read_exact(&mut greeting).await?;
/// assert_eq!(&greeting, b"hello");
/// # Ok(())
/// # }
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<rotor::net::TcpListener>();
/// ```
#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
}

const WHAT: &str = "TcpListener";

impl TcpListener {
    /// Binds to the first of the addresses that can be had, and listens. Port 0 lets the kernel
    /// choose one. `SO_REUSEADDR` is set, as tokio sets it.
    ///
    /// # Errors
    /// Those of the last address tried; also when the text is no address, the name is not
    /// `localhost`, or the table of descriptors is full (raise the option `sockets`).
    ///
    /// # Panics
    /// Outside a runtime.
    pub async fn bind<A: ToSocketAddrs>(address: A) -> io::Result<TcpListener> {
        let shared = current_named("TcpListener::bind");
        let addresses = address.addresses()?;
        let mut last = None;
        let mut place = 0;
        while let Some(address) = addresses.get(place) {
            place += 1;
            let mut core = shared.core.borrow_mut();
            let listen = Control::Listen { address, backlog: BACKLOG_DEFAULT };
            match core.event_loop.control(listen).and_then(opened) {
                Ok(descriptor) => {
                    core.put_listener(descriptor);
                    return Ok(TcpListener { socket: Socket::new(&shared, descriptor) });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(addr::none))
    }

    /// Waits for a connection, and gives it and the address of its other end.
    ///
    /// It completes only while a descriptor, an operation and a task's cell are free to serve the
    /// connection with; until then it waits, and connections stay in the kernel's backlog. A full
    /// server so refuses nobody it has accepted. Several tasks may wait; they are served in turn.
    ///
    /// Dropping the future loses nothing: a connection that had arrived goes to the next `accept`.
    ///
    /// # Errors
    /// The kernel's. The listener stays usable. An error when the runtime is gone.
    ///
    /// When the process or the system has no descriptor or memory left for a connection (`EMFILE`,
    /// `ENFILE`, `ENOMEM`, `ENOBUFS`), the error is told once, and not again until a connection was
    /// accepted. Meanwhile this waits, and tries again when the runtime has closed a descriptor, or
    /// after a pause of [`ACCEPT_PAUSE_NS_MIN`](crate::limits::ACCEPT_PAUSE_NS_MIN) that doubles up
    /// to [`ACCEPT_PAUSE_NS_MAX`](crate::limits::ACCEPT_PAUSE_NS_MAX). Clients wait in the backlog.
    ///
    /// # Panics
    /// Inside another runtime than the one the listener was bound in.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut turn = Turn { listener: self, ticket: Ticket::default() };
        poll_fn(|cx| turn.listener.poll_ticket(cx, Some(&mut turn.ticket))).await
    }

    /// The connections, one after another, without end: a [`Stream`](futures_core::Stream) of what
    /// [`accept`](TcpListener::accept) gives, less the addresses. An error is an item like others.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// As [`accept`](TcpListener::accept), polled by hand. Only the task that polled last is woken.
    ///
    /// # Errors
    /// As [`accept`](TcpListener::accept).
    ///
    /// # Panics
    /// As [`accept`](TcpListener::accept).
    #[track_caller]
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.poll_ticket(cx, None)
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// When the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one the listener was bound in.
    #[track_caller]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.control(WHAT, Control::LocalAddress).and_then(address_of)
    }

    pub(super) fn from_socket(socket: Socket) -> TcpListener {
        TcpListener { socket }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    #[track_caller]
    fn poll_ticket(
        &self,
        cx: &mut Context<'_>,
        ticket: Option<&mut Ticket>,
    ) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let shared = self.socket.shared(WHAT)?;
        let accepted = shared.poll_accept(cx, self.socket.descriptor(), ticket);
        accepted.map_ok(|(descriptor, peer)| {
            (TcpStream::from_socket(Socket::new(&shared, descriptor)), peer)
        })
    }
}

/// A future's place in the queue for a connection. Dropping it passes its turn on.
#[derive(Debug)]
struct Turn<'a> {
    listener: &'a TcpListener,
    ticket: Ticket,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.ticket == Ticket::default() {
            return;
        }
        self.listener.socket.give_up(self.ticket);
    }
}

/// The connections of a listener; from [`TcpListener::incoming`].
///
/// Polled as a [`Stream`](futures_core::Stream) it waits as
/// [`poll_accept`](TcpListener::poll_accept) does: of several tasks, the one that polled last is
/// woken. [`next`](Incoming::next) queues as [`accept`](TcpListener::accept) does.
#[derive(Debug)]
#[must_use = "it accepts nothing unless it is polled"]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Incoming<'_> {
    /// Waits for the next connection. Never `None`. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().await.map(|(stream, _)| stream))
    }
}

impl futures_core::Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    #[track_caller]
    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<TcpStream>>> {
        let accepted = self.listener.poll_accept(cx);
        accepted.map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}
