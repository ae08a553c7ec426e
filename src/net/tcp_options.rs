//! Options of streams and listeners.

use std::io;
use std::time::Duration;

use crate::net::tcp_listener::TcpListener;
use crate::net::tcp_stream::TcpStream;
use crate::op::{Control, SocketOption, SocketOptionName};
use crate::runtime::{Socket, done, error_of, flag, mismatch, option};

const STREAM: &str = "TcpStream";
const LISTENER: &str = "TcpListener";

/// Sets an option of a descriptor.
#[track_caller]
pub(super) fn set(socket: &Socket, what: &str, value: SocketOption) -> io::Result<()> {
    socket.control(what, |it| Control::Set(it, value)).and_then(done)
}

/// Reads an option that is on or off.
#[track_caller]
pub(super) fn get_flag(socket: &Socket, what: &str, name: SocketOptionName) -> io::Result<bool> {
    match get(socket, what, name)? {
        SocketOption::ReuseAddress(on)
        | SocketOption::ReusePort(on)
        | SocketOption::KeepAlive(on)
        | SocketOption::QuickAck(on) => Ok(on),
        SocketOption::Linger(_)
        | SocketOption::TimeToLive(_)
        | SocketOption::ReceiveBuffer(_)
        | SocketOption::SendBuffer(_) => Err(mismatch()),
    }
}

/// Reads an option that is a number.
#[track_caller]
pub(super) fn get_number(socket: &Socket, what: &str, name: SocketOptionName) -> io::Result<u32> {
    match get(socket, what, name)? {
        SocketOption::TimeToLive(number)
        | SocketOption::ReceiveBuffer(number)
        | SocketOption::SendBuffer(number) => Ok(number),
        SocketOption::ReuseAddress(_)
        | SocketOption::ReusePort(_)
        | SocketOption::KeepAlive(_)
        | SocketOption::QuickAck(_)
        | SocketOption::Linger(_) => Err(mismatch()),
    }
}

#[track_caller]
fn get(socket: &Socket, what: &str, name: SocketOptionName) -> io::Result<SocketOption> {
    socket.control(what, |it| Control::Get(it, name)).and_then(option)
}

/// Makes the loop know what `SO_LINGER` a socket came with: close(2) of one that lingers blocks the
/// thread, so the loop switches it off before.
#[track_caller]
pub(super) fn note_linger(socket: &Socket, what: &str) -> io::Result<()> {
    match get(socket, what, SocketOptionName::Linger)? {
        linger @ SocketOption::Linger(Some(_)) => set(socket, what, linger),
        SocketOption::Linger(None)
        | SocketOption::ReuseAddress(_)
        | SocketOption::ReusePort(_)
        | SocketOption::KeepAlive(_)
        | SocketOption::QuickAck(_)
        | SocketOption::TimeToLive(_)
        | SocketOption::ReceiveBuffer(_)
        | SocketOption::SendBuffer(_) => Ok(()),
    }
}

impl TcpStream {
    /// Whether small segments are sent at once (`TCP_NODELAY`) and not gathered.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket().control(STREAM, |it| Control::SetNoDelay(it, nodelay)).and_then(done)
    }

    /// What [`set_nodelay`](TcpStream::set_nodelay) set.
    ///
    /// # Errors
    /// As [`set_nodelay`](TcpStream::set_nodelay).
    ///
    /// # Panics
    /// As [`set_nodelay`](TcpStream::set_nodelay).
    #[track_caller]
    pub fn nodelay(&self) -> io::Result<bool> {
        self.socket().control(STREAM, Control::NoDelay).and_then(flag)
    }

    /// How many hops a packet may take (`IP_TTL`).
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        set(self.socket(), STREAM, SocketOption::TimeToLive(ttl))
    }

    /// What [`set_ttl`](TcpStream::set_ttl) set.
    ///
    /// # Errors
    /// As [`set_ttl`](TcpStream::set_ttl).
    ///
    /// # Panics
    /// As [`set_ttl`](TcpStream::set_ttl).
    #[track_caller]
    pub fn ttl(&self) -> io::Result<u32> {
        get_number(self.socket(), STREAM, SocketOptionName::TimeToLive)
    }

    /// How long a dropped stream waits for its peer to take what was written (`SO_LINGER`), in
    /// place of [`LINGER_NS_MAX`](crate::limits::LINGER_NS_MAX). Past that it is reset; with
    /// [`Duration::ZERO`] it is reset at once, and what was written may be lost. The wait goes on in
    /// the background and never blocks the thread. The kernel keeps whole seconds, rounded up.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        set(self.socket(), STREAM, SocketOption::Linger(linger))
    }

    /// What [`set_linger`](TcpStream::set_linger) set, as the kernel keeps it.
    ///
    /// # Errors
    /// As [`set_linger`](TcpStream::set_linger).
    ///
    /// # Panics
    /// As [`set_linger`](TcpStream::set_linger).
    #[track_caller]
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        match get(self.socket(), STREAM, SocketOptionName::Linger)? {
            SocketOption::Linger(linger) => Ok(linger),
            SocketOption::ReuseAddress(_)
            | SocketOption::ReusePort(_)
            | SocketOption::KeepAlive(_)
            | SocketOption::QuickAck(_)
            | SocketOption::TimeToLive(_)
            | SocketOption::ReceiveBuffer(_)
            | SocketOption::SendBuffer(_) => Err(mismatch()),
        }
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
        set(self.socket(), STREAM, SocketOption::KeepAlive(keepalive))
    }

    /// What [`set_keepalive`](TcpStream::set_keepalive) set.
    ///
    /// # Errors
    /// As [`set_keepalive`](TcpStream::set_keepalive).
    ///
    /// # Panics
    /// As [`set_keepalive`](TcpStream::set_keepalive).
    #[track_caller]
    pub fn keepalive(&self) -> io::Result<bool> {
        get_flag(self.socket(), STREAM, SocketOptionName::KeepAlive)
    }

    /// Whether what arrives is acknowledged at once (`TCP_QUICKACK`). The kernel may switch back by
    /// itself.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        set(self.socket(), STREAM, SocketOption::QuickAck(quickack))
    }

    /// Whether what arrives is acknowledged at once just now.
    ///
    /// # Errors
    /// As [`set_quickack`](TcpStream::set_quickack).
    ///
    /// # Panics
    /// As [`set_quickack`](TcpStream::set_quickack).
    #[track_caller]
    pub fn quickack(&self) -> io::Result<bool> {
        get_flag(self.socket(), STREAM, SocketOptionName::QuickAck)
    }

    /// The error the kernel keeps for the socket (`SO_ERROR`), which it then forgets. One that a
    /// receive has met already is told by the next read and not here.
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket().control(STREAM, Control::TakeError).and_then(error_of)
    }
}

impl TcpListener {
    /// How many hops a packet of its connections may take (`IP_TTL`).
    ///
    /// # Errors
    /// The kernel's; when the runtime is gone.
    ///
    /// # Panics
    /// Inside another runtime than the one it was made in.
    #[track_caller]
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        set(self.socket(), LISTENER, SocketOption::TimeToLive(ttl))
    }

    /// What [`set_ttl`](TcpListener::set_ttl) set.
    ///
    /// # Errors
    /// As [`set_ttl`](TcpListener::set_ttl).
    ///
    /// # Panics
    /// As [`set_ttl`](TcpListener::set_ttl).
    #[track_caller]
    pub fn ttl(&self) -> io::Result<u32> {
        get_number(self.socket(), LISTENER, SocketOptionName::TimeToLive)
    }
}
