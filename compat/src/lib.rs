//! rotor's streams behind the I/O traits other crates are written against.
//!
//! - [`tokio::TokioIo`] has `AsyncRead` and `AsyncWrite` of `tokio::io`: for hyper, h2,
//!   tokio-rustls, tungstenite and whatever else takes these. Nothing of tokio's runtime is used.
//! - [`futures::FuturesIo`] has `AsyncRead` and `AsyncWrite` of `futures-io`.
//!
//! Both wrap a [`TcpStream`](rotor::net::TcpStream) or one of its halves, hold no buffer of their own
//! and are free to put on and take off at any time. They are written against the public `poll_*`
//! methods of rotor and hold no unsafe code.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

#[cfg(feature = "futures")]
pub mod futures;
mod half;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use half::{PollRead, PollWrite};
