//! A TCP socket before it listens or connects.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::net::tcp_listener::TcpListener;
use crate::net::tcp_options::{get_flag, get_number, set};
use crate::net::tcp_stream::{TcpStream, connect_socket, open};
use crate::op::{Control, SocketOption, SocketOptionName};
use crate::runtime::{Socket, address_of, current_named, done, flag};

/// A TCP socket that is neither connected nor listening yet, to set options that must be set before.
///
/// ```
/// # #[rotor::main]
/// # async fn main() -> std::io::Result<()> {
/// use rotor::net::TcpSocket;
///
/// let socket = TcpSocket::new_v4()?;
/// socket.set_reuseaddr(true)?;
/// socket.set_recv_buffer_size(65_536)?;
/// // Linux takes twice as much, for its own needs.
/// assert_eq!(socket.recv_buffer_size()?, 131_072);
/// socket.bind(([127, 0, 0, 1], 0).into())?;
/// let listener = socket.listen(1024)?;
/// assert_ne!(listener.local_addr()?.port(), 0);
/// # Ok(())
/// # }
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<rotor::net::TcpSocket>();
/// ```
#[derive(Debug)]
pub struct TcpSocket {
    socket: Socket,
}

const WHAT: &str = "TcpSocket";

impl TcpSocket {
    /// A socket for IPv4.
    ///
    /// # Errors
    /// The kernel's; when the table of descriptors is full: raise the option `sockets`.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn new_v4() -> io::Result<TcpSocket> {
        let shared = current_named("TcpSocket::new_v4");
        Ok(TcpSocket { socket: open(&shared, (Ipv4Addr::UNSPECIFIED, 0).into())? })
    }

    /// A socket for IPv6.
    ///
    /// # Errors
    /// As [`new_v4`](TcpSocket::new_v4).
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn new_v6() -> io::Result<TcpSocket> {
        let shared = current_named("TcpSocket::new_v6");
        Ok(TcpSocket { socket: open(&shared, (Ipv6Addr::UNSPECIFIED, 0).into())? })
    }

    /// Whether an address may be bound whose last connections are not quite over (`SO_REUSEADDR`).
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_reuseaddr(&self, reuseaddr: bool) -> io::Result<()> {
        set(&self.socket, WHAT, SocketOption::ReuseAddress(reuseaddr))
    }

    /// What [`set_reuseaddr`](TcpSocket::set_reuseaddr) set.
    ///
    /// # Errors
    /// As [`set_reuseaddr`](TcpSocket::set_reuseaddr).
    ///
    /// # Panics
    /// As [`set_reuseaddr`](TcpSocket::set_reuseaddr).
    #[track_caller]
    pub fn reuseaddr(&self) -> io::Result<bool> {
        get_flag(&self.socket, WHAT, SocketOptionName::ReuseAddress)
    }

    /// Whether the address may be shared with other sockets that set this too (`SO_REUSEPORT`).
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_reuseport(&self, reuseport: bool) -> io::Result<()> {
        set(&self.socket, WHAT, SocketOption::ReusePort(reuseport))
    }

    /// What [`set_reuseport`](TcpSocket::set_reuseport) set.
    ///
    /// # Errors
    /// As [`set_reuseport`](TcpSocket::set_reuseport).
    ///
    /// # Panics
    /// As [`set_reuseport`](TcpSocket::set_reuseport).
    #[track_caller]
    pub fn reuseport(&self) -> io::Result<bool> {
        get_flag(&self.socket, WHAT, SocketOptionName::ReusePort)
    }

    /// Bytes of the kernel's receive buffer (`SO_RCVBUF`). The kernel may choose others; Linux
    /// doubles them, and caps them at `net.core.rmem_max` before.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        set(&self.socket, WHAT, SocketOption::ReceiveBuffer(bytes))
    }

    /// Bytes of the kernel's receive buffer, as the kernel set them.
    ///
    /// # Errors
    /// As [`set_recv_buffer_size`](TcpSocket::set_recv_buffer_size).
    ///
    /// # Panics
    /// As [`set_recv_buffer_size`](TcpSocket::set_recv_buffer_size).
    #[track_caller]
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        get_number(&self.socket, WHAT, SocketOptionName::ReceiveBuffer)
    }

    /// Bytes of the kernel's send buffer (`SO_SNDBUF`). The kernel may choose others; Linux doubles
    /// them, and caps them at `net.core.wmem_max` before.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        set(&self.socket, WHAT, SocketOption::SendBuffer(bytes))
    }

    /// Bytes of the kernel's send buffer, as the kernel set them.
    ///
    /// # Errors
    /// As [`set_send_buffer_size`](TcpSocket::set_send_buffer_size).
    ///
    /// # Panics
    /// As [`set_send_buffer_size`](TcpSocket::set_send_buffer_size).
    #[track_caller]
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        get_number(&self.socket, WHAT, SocketOptionName::SendBuffer)
    }

    /// Whether a silent peer is asked if it is still there (`SO_KEEPALIVE`).
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        set(&self.socket, WHAT, SocketOption::KeepAlive(keepalive))
    }

    /// What [`set_keepalive`](TcpSocket::set_keepalive) set.
    ///
    /// # Errors
    /// As [`set_keepalive`](TcpSocket::set_keepalive).
    ///
    /// # Panics
    /// As [`set_keepalive`](TcpSocket::set_keepalive).
    #[track_caller]
    pub fn keepalive(&self) -> io::Result<bool> {
        get_flag(&self.socket, WHAT, SocketOptionName::KeepAlive)
    }

    /// Whether small segments are sent at once (`TCP_NODELAY`) and not gathered.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.control(WHAT, |it| Control::SetNoDelay(it, nodelay)).and_then(done)
    }

    /// What [`set_nodelay`](TcpSocket::set_nodelay) set.
    ///
    /// # Errors
    /// As [`set_nodelay`](TcpSocket::set_nodelay).
    ///
    /// # Panics
    /// As [`set_nodelay`](TcpSocket::set_nodelay).
    #[track_caller]
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket.control(WHAT, Control::NoDelay).and_then(flag)
    }

    /// Binds to an address; port 0 lets the kernel choose one.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn bind(&self, address: SocketAddr) -> io::Result<()> {
        self.socket.control(WHAT, |it| Control::Bind(it, address)).and_then(done)
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// As [`bind`](TcpSocket::bind).
    ///
    /// # Panics
    /// As [`bind`](TcpSocket::bind).
    #[track_caller]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.control(WHAT, Control::LocalAddress).and_then(address_of)
    }

    /// Listens, with so many connections kept by the kernel until they are accepted. The kernel may
    /// cap that number.
    ///
    /// # Errors
    /// As [`bind`](TcpSocket::bind); the socket is then closed.
    ///
    /// # Panics
    /// As [`bind`](TcpSocket::bind).
    #[track_caller]
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.socket.control(WHAT, |it| Control::StartListening(it, backlog)).and_then(done)?;
        self.socket.become_listener(WHAT)?;
        Ok(TcpListener::from_socket(self.socket))
    }

    /// Connects. Dropping the future closes the socket.
    ///
    /// # Errors
    /// The kernel's; when the table of operations is full; when the runtime is gone. The socket is
    /// then closed.
    ///
    /// # Panics
    /// As [`bind`](TcpSocket::bind).
    pub async fn connect(self, address: SocketAddr) -> io::Result<TcpStream> {
        connect_socket(self.socket, address).await
    }
}
