//! The runtime: a loop, an executor, and the thread that turns both.
//!
//! [`Runtime::block_on`] runs ready tasks, ticks the loop once, wakes whom the tick's events
//! concern, and again, until its future is done. Build one with [`Runtime::new`], with a
//! [`Builder`] where the limits of [`Options`] are not the default ones, or with the attribute
//! [`#[rotor::main]`](crate::main).
//!
//! # Where state lives
//!
//! What an operation in flight will produce belongs to the stream or listener it is for, never to
//! the future that waits: a row of `Core`, found by the descriptor's index. A dropped future
//! leaves its interest behind and nothing else.
//!
//! # Foreign code
//!
//! Wakers, futures and destructors may call anything of rotor's. None of them runs while the
//! runtime's state is borrowed: a waker is cloned before the borrow, and what a borrow takes out is
//! woken or dropped after it. `Shared::poll_step` is the one place where waiting is arranged.
#![deny(unsafe_code)]

mod answers;
mod block_on;
mod builder;
mod core;
mod current;
mod dispatch;
mod doctor;
mod given_up;
mod lease;
mod listener;
mod operation;
mod readiness;
mod shortage;
mod shutdown;
mod socket;
mod stream;
mod streams;
mod waiters;
mod waits;
mod watchers;

pub(crate) use self::answers::{address_of, done, error_of, flag, mismatch, opened, option};
pub use self::block_on::{Runtime, RuntimeStatistics};
pub use self::builder::Builder;
pub(crate) use self::core::Shared;
pub(crate) use self::current::{clock_now, current_named};
pub use self::doctor::{Doctor, Limit, RunsOn, doctor};
pub(crate) use self::given_up::GivenUp;
pub(crate) use self::lease::{Lease, Sending};
#[cfg(feature = "unstable")]
pub use self::operation::{File, ReadAt, WriteAt};
pub use self::shutdown::{Report, leaked_total};
pub(crate) use self::socket::{Socket, adopt, shared_of};
pub(crate) use self::waiters::Ticket;
pub(crate) use self::waits::Wait;
pub(crate) use self::watchers::Sides;
pub use crate::error::CreateError;
pub use crate::options::Options;
