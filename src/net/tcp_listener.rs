//! Listening for connections.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
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
    /// The kernel's, for example when the process has too many files open. The listener stays
    /// usable. An error when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one the listener was bound in.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut turn = Turn { listener: self, ticket: Ticket::default() };
        poll_fn(|cx| turn.listener.poll_ticket(cx, Some(&mut turn.ticket))).await
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
