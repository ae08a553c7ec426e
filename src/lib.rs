//! A completion-based event loop on io_uring, and a single-threaded async runtime over it, whose
//! memory is fixed when it starts and whose futures lose nothing when they are dropped.
//!
//! ```no_run
//! use rotor::net::TcpListener;
//!
//! #[rotor::main]
//! async fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:9000").await?;
//!     loop {
//!         let (mut stream, peer) = listener.accept().await?;
//!         rotor::spawn(async move {
//!             let mut buffer = [0; 1024];
//!             while let Ok(count) = stream.read(&mut buffer).await {
//!                 if count == 0 || stream.write_all(&buffer[..count]).await.is_err() {
//!                     break;
//!                 }
//!             }
//!             println!("{peer} has left");
//!         });
//!     }
//! }
//! ```
//!
//! - [`net`]: TCP listeners and streams.
//! - [`io`]: what a stream can be ready for.
//! - [`time`]: sleeps, time-outs and points in time.
//! - [`task`]: spawning and joining.
//! - [`runtime`]: the runtime, its options and its end.
//!
//! The feature `unstable` adds the loop below the futures, to be used by hand: operations go in,
//! events come out. Its names may still change.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]
// The loop is written as the public interface it will be; without the feature it is unreachable.
#![cfg_attr(not(feature = "unstable"), allow(unreachable_pub, dead_code, unused_imports))]

pub mod limits;

mod address;
mod error;
mod event;
mod op;
mod options;

pub mod backend;
mod event_loop;
mod sys;
mod tables;

pub mod io;
pub mod net;
pub mod runtime;
pub mod task;
pub mod time;

pub use event_loop::backend;
pub use rotor_macros::{main, test};
pub use runtime::doctor;
pub use task::spawn;

#[cfg(feature = "unstable")]
pub use self::{
    address::RawAddress,
    error::{SubmitError, TickError},
    event::{Event, EventKind},
    event_loop::{Drained, ImmediateCalls, Loop, Statistics, Wait, Waits},
    op::{
        BufferId, Control, Descriptor, Handle, Interest, Operation, OrphanId, OwnedOperation,
        Reply, SocketOption, SocketOptionName,
    },
    tables::slots::Usage,
    tables::sockets::DescriptorKind,
};
