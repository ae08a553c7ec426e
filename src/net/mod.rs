//! TCP: listeners and streams.
//!
//! Nothing is lost by dropping a future of this module: a connection that was accepted stays with
//! its listener, bytes that were received stay with their stream. Methods that cannot promise it,
//! because they are made of several steps, say so.
//!
//! Addresses are numeric, or `localhost`; see [`ToSocketAddrs`].
#![deny(unsafe_code)]

mod addr;
mod loop_buf;
mod tcp_listener;
mod tcp_options;
mod tcp_owned;
mod tcp_ready;
mod tcp_socket;
mod tcp_split;
mod tcp_std;
mod tcp_stream;

pub use self::addr::ToSocketAddrs;
pub use self::loop_buf::{LoopBuf, OwnedBuf};
pub use self::tcp_listener::{Incoming, TcpListener};
pub use self::tcp_socket::TcpSocket;
pub use self::tcp_split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use self::tcp_std::IntoStdError;
pub use self::tcp_stream::TcpStream;
