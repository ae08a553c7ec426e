//! The backend behind a loop: the built-in ones without a virtual call, any other boxed.
//!
//! # Unsafe
//! A backend's `submit` and `attach` are unsafe to call: they hand it memory. The loop keeps the
//! memory's promise: requests point at its own tables and buffers, at buffers it keeps, or at memory
//! whose validity was promised by whoever built the operation, and it drops the backend before them.
//!
//! Numbers leave the loop as owned or borrowed descriptors in two places: `into_owned` is for a row
//! that was just freed, so the loop never uses the number again; `lent` is for a row that is marked
//! as lent, which the loop closes only when the object it is borrowed from is dropped, also if the
//! loop's own end comes first (`drain` leaves it open, the runtime keeps it for the object).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::backend::{
    Backend, BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission,
    TickEnd, TickWait, Token,
};
use crate::op::{Control, Reply};

/// Which backend a loop drives.
// There is one a loop, and a box would put a pointer before every call.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Driver {
    #[cfg(target_os = "linux")]
    Uring(crate::backend::uring::Uring),
    Custom(Box<dyn Backend>),
    /// Leaked, because the kernel may still use it.
    Gone,
}

macro_rules! forward {
    ($driver:expr, $backend:ident => $call:expr) => {
        match $driver {
            #[cfg(target_os = "linux")]
            Driver::Uring($backend) => $call,
            Driver::Custom($backend) => $call,
            Driver::Gone => unreachable!("the loop was dropped"),
        }
    };
}

impl Driver {
    /// Whether descriptor numbers are the system's: those of a program's backend may be made up.
    pub(crate) fn is_the_systems(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => true,
            Driver::Custom(_) | Driver::Gone => false,
        }
    }

    pub(crate) fn describe(&self) -> &'static str {
        forward!(self, backend => backend.describe())
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<(), ForkedChild> {
        forward!(self, backend => backend.check())
    }

    /// The memory is the arena's, which the loop drops after its driver, or leaks.
    pub(crate) fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        // SAFETY: the loop cuts the memory from its arena, hands it to nothing else, and drops its
        // driver before the arena or leaks both.
        forward!(self, backend => unsafe { backend.attach(memory) })
    }

    // Inlined as a whole: where the kind of a request is known, little is left of the ways it might go.
    #[inline(always)]
    pub(crate) fn submit(&mut self, token: Token, request: &Request) -> Submission {
        // SAFETY: requests are made in `submit.rs` from slots (memory valid until the final event,
        // which frees the slot: the loop's own, or promised by the operation's author) and in
        // `immediate.rs` (answered before the borrow ends).
        forward!(self, backend => unsafe { backend.submit(token, request) })
    }

    pub(crate) fn cancel(&mut self, token: Token) -> bool {
        forward!(self, backend => backend.cancel(token))
    }

    #[inline]
    pub(crate) fn provide(&mut self, buffer: u16) {
        forward!(self, backend => backend.provide(buffer));
    }

    pub(crate) fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
        forward!(self, backend => backend.control(control))
    }

    pub(crate) fn release(&mut self, fd: RawFd) {
        forward!(self, backend => backend.release(fd));
    }

    pub(crate) fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        forward!(self, backend => backend.tick(wait))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        forward!(self, backend => backend.next())
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        forward!(self, backend => backend.now())
    }

    pub(crate) fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        forward!(self, backend => backend.waker())
    }

    pub(crate) fn statistics(&self) -> BackendStatistics {
        forward!(self, backend => backend.statistics())
    }
}

/// A descriptor that the loop has given up.
pub(super) fn into_owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the row that named it was freed in the same call (`give_up`), without a close: the
    // number is open, and this is its only owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A descriptor for as long as its object is borrowed. `fd` is the answer of
/// [`Loop::lend`](crate::Loop) for the descriptor that `object` owns.
pub(crate) fn lent<T>(_object: &T, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: the row is marked as lent, so it is closed when the object is dropped and no sooner
    // (see the top of this file); the borrow ends before that.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
