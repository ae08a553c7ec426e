//! A single-threaded async task executor whose memory is fixed when it is created.
//!
//! Tasks only: spawn, run queue, wakers, join handles. It performs no I/O and reads no clock;
//! whoever owns it calls [`Executor::run`] in turn with its own waiting, and is told through an
//! [`Unpark`] hook when another thread woke a task while it slept.
//!
//! ```
//! use std::sync::Arc;
//! use rotor_executor::{Executor, Options, Turn};
//!
//! let executor = Executor::new(Options::default(), Arc::new(|| {}))?;
//! let task = executor.spawn(async { 6 * 7 });
//! let mut polls_left = 64;
//! assert_eq!(executor.run(&mut polls_left), Turn::Idle);
//! assert!(task.is_finished());
//! # Ok::<(), rotor_executor::CreateError>(())
//! ```
//!
//! # What it promises
//!
//! - **Memory is fixed.** One allocation at [`Executor::new`], touched only as used. A task's
//!   future lives in a recycled cell; a full table refuses with a [`SpawnError`] that names the
//!   limit and the remedy.
//! - **Ready tasks run first in, first out**, each once however often it was woken before its turn.
//! - **A panic stays in its task**: in its poll, in its destructor, in its output's destructor, in
//!   the waker of whoever awaits it.
//! - **Wakers go anywhere.** They may be woken, cloned and dropped from any thread at any time,
//!   also when the executor is long gone. A waker or an [`AbortHandle`] kept past its task keeps a
//!   64-byte header, never the task's cell.
//! - **No foreign code runs while a table is inconsistent**: destructors, wakers and futures may
//!   spawn, wake, abort and drop whatever they like.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used))]

mod admission;
mod arena;
mod contain;
pub mod coop;
mod error;
mod executor;
mod join;
mod join_set;
mod joiner;
mod local;
mod options;
mod phase;
mod plan;
mod queue;
mod refused;
mod statistics;
mod sync;
mod task;
mod waker;
mod yield_now;

pub use error::{CreateError, JoinError, SpawnError};
pub use executor::{Executor, Turn};
pub use join::{AbortHandle, JoinHandle};
pub use join_set::{JoinSet, Spawn};
pub use options::{Options, Oversized, Unpark};
pub use statistics::Statistics;
pub use waker::is_native;
pub use yield_now::{YieldNow, yield_now};
