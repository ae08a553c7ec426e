//! From std's types and back, and their descriptors.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::net::tcp_listener::TcpListener;
use crate::net::tcp_options::note_linger;
use crate::net::tcp_stream::TcpStream;
use crate::runtime::{GivenUp, Socket, Ticket, adopt};
use crate::tables::sockets::DescriptorKind;

const STREAM: &str = "TcpStream";
const LISTENER: &str = "TcpListener";

impl TcpStream {
    /// Takes over a connection of std's. It may be blocking or not. io_uring needs it blocking and
    /// makes it so, and every duplicate with it; elsewhere its mode stays as it is.
    ///
    /// # Errors
    /// The kernel's; when the table of descriptors is full: raise the option `sockets`. The
    /// connection is then closed.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        let socket = adopt(stream.into(), DescriptorKind::Stream, "TcpStream::from_std")?;
        note_linger(&socket, STREAM)?;
        Ok(TcpStream::from_socket(socket))
    }

    /// Gives the connection to std. What waits on it is canceled first, and a
    /// [`write_owned`](TcpStream::write_owned) that goes on is waited for, so no byte is lost: bytes that were received and not read keep the stream here, see [`IntoStdError`].
    ///
    /// The connection is blocking, as std makes them; tokio gives one that is not. Dropping the
    /// future closes the connection.
    ///
    /// # Errors
    /// When bytes are in hand, or an error that nobody was told; when the runtime is gone, or its
    /// backend is one of the program's, whose numbers need not be the system's descriptors. The
    /// stream comes back with the error.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn into_std(self) -> Result<std::net::TcpStream, IntoStdError<TcpStream>> {
        let mut ticket = Ticket::default();
        let given = poll_fn(|cx| {
            let shared = self.socket().shared(STREAM)?;
            shared.poll_give_up_stream(cx, self.socket().descriptor(), &mut ticket)
        });
        let given = given.await;
        if ticket != Ticket::default() {
            self.socket().stop_watching(ticket);
        }
        taken(given, self)
    }
}

impl TcpListener {
    /// Takes over a listener of std's. It may be blocking or not. io_uring needs it blocking and makes
    /// it so; elsewhere it is non-blocking from the first accept on. Its duplicates, in this program and
    /// in others, share the mode.
    ///
    /// # Errors
    /// The kernel's; when the table of descriptors is full: raise the option `sockets`. The
    /// listener is then closed.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        let socket = adopt(listener.into(), DescriptorKind::Listener, "TcpListener::from_std")?;
        note_linger(&socket, LISTENER)?;
        Ok(TcpListener::from_socket(socket))
    }

    /// Gives the listener to std, blocking, as std makes them, until a duplicate of it that rotor has
    /// accepts on epoll. An accept in flight is canceled and
    /// waited for first; a connection it brought nevertheless keeps the listener here.
    ///
    /// Dropping the future closes the listener.
    ///
    /// # Errors
    /// When a connection was accepted and not taken; when the runtime is gone, or its backend is one
    /// of the program's. The listener comes back with the error.
    ///
    /// # Panics
    /// As [`accept`](TcpListener::accept).
    pub async fn into_std(self) -> Result<std::net::TcpListener, IntoStdError<TcpListener>> {
        let given = poll_fn(|cx| {
            let shared = self.socket().shared(LISTENER)?;
            shared.poll_give_up_listener(cx, self.socket().descriptor())
        });
        let given = given.await;
        taken(given, self)
    }
}

/// What was given up as std's type, or the error that keeps it here.
fn taken<T, S: From<std::os::fd::OwnedFd>>(
    given: io::Result<GivenUp>,
    socket: T,
) -> Result<S, IntoStdError<T>> {
    let (bytes, error) = match given {
        Ok(GivenUp::Taken(fd)) => return Ok(S::from(fd)),
        Ok(GivenUp::Bytes(bytes)) => {
            let words = "bytes were received and not read; read them first";
            (bytes, io::Error::new(io::ErrorKind::WouldBlock, words))
        }
        Ok(GivenUp::Connection) => {
            let words = "a connection was accepted and not taken; accept it first";
            (Vec::new(), io::Error::new(io::ErrorKind::WouldBlock, words))
        }
        Ok(GivenUp::Failed(error)) | Err(error) => (Vec::new(), error),
    };
    Err(IntoStdError { socket, bytes, error })
}

/// Why a stream or listener stayed with rotor, and the stream or listener.
#[derive(Debug)]
pub struct IntoStdError<T> {
    /// It is as usable as before; bytes in hand are read next.
    pub socket: T,
    bytes: Vec<u8>,
    error: io::Error,
}

impl<T> IntoStdError<T> {
    /// A copy of the bytes in hand, which the next read gives.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What was wrong: of kind [`WouldBlock`](io::ErrorKind::WouldBlock) when something is in hand.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl<T> fmt::Display for IntoStdError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it cannot be given to std: {}", self.error)
    }
}

impl<T: fmt::Debug> std::error::Error for IntoStdError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[track_caller]
fn raw(socket: &Socket, what: &str) -> RawFd {
    socket.as_fd(what).as_raw_fd()
}

/// The descriptor stays open until the stream is dropped, also if the runtime is gone before. What
/// rotor has received lies in hand and not in the socket any more.
///
/// # Panics
/// When the runtime is gone; inside another runtime than the one it was made in; when the runtime's
/// backend is one of the program's, whose numbers need not be the system's descriptors.
impl AsFd for TcpStream {
    #[track_caller]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd(STREAM)
    }
}

/// As [`AsFd`].
impl AsRawFd for TcpStream {
    #[track_caller]
    fn as_raw_fd(&self) -> RawFd {
        raw(self.socket(), STREAM)
    }
}

/// The descriptor stays open until the listener is dropped, also if the runtime is gone before. While
/// rotor accepts on it, it is blocking on io_uring and not on epoll.
///
/// # Panics
/// When the runtime is gone; inside another runtime than the one it was made in; when the runtime's
/// backend is one of the program's, whose numbers need not be the system's descriptors.
impl AsFd for TcpListener {
    #[track_caller]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd(LISTENER)
    }
}

/// As [`AsFd`].
impl AsRawFd for TcpListener {
    #[track_caller]
    fn as_raw_fd(&self) -> RawFd {
        raw(self.socket(), LISTENER)
    }
}
