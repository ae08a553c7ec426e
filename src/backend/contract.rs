//! The trait every backend implements, and the loop's own choice of them: the built-in ones without a
//! virtual call, any other boxed. What they promise each other stands at the top of the folder.
//!
//! # Unsafe
//! The trait is unsafe to implement, and its `submit` and `attach` are unsafe to call: they hand
//! memory over. The loop keeps the memory's promise: requests point at its own tables and buffers, at
//! buffers it keeps, or at memory whose validity was promised by whoever built the operation, and it
//! drops the backend before them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::kind::Kind;
#[cfg(target_os = "linux")]
use super::readiness::epoll::Precision;
use super::readiness::{Engine, Sizes, System};
use super::request::{
    BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission, TickEnd,
    TickWait, Token,
};
use crate::error::CreateError;
#[cfg(target_os = "linux")]
use crate::limits::RECEIVES_PER_TICK_MAX;
use crate::op::{Control, Reply};
use crate::options::Options;
use crate::sys::fork::ForkGuard;
use crate::tables::arena::Arena;

/// A backend; the contract stands at the top of [`backend`](mod@crate::backend).
///
/// # Safety
/// The implementation keeps the backend's promises of the contract.
pub unsafe trait Backend {
    /// Its name, and what there is to say about it, in one line.
    fn describe(&self) -> &'static str;
    /// An error in a child process; otherwise nothing.
    fn check(&self) -> Result<(), ForkedChild>;
    /// Takes note of the buffer memory. Called once, before anything is submitted.
    ///
    /// # Safety
    /// The memory is valid, and the backend's to write where buffers are provided, until the backend
    /// is dropped.
    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()>;
    /// Takes a request.
    ///
    /// # Safety
    /// The request's pointers are valid as points 3 and 4 of the loop's promises say.
    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission;
    /// Asks for a request to end. False: no room, the loop asks again after a tick.
    fn cancel(&mut self, token: Token) -> bool;
    /// Makes a buffer available to receives.
    fn provide(&mut self, buffer: u16);
    /// Answers a cold call.
    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>>;
    /// Closes a descriptor.
    fn release(&mut self, fd: RawFd);
    /// A descriptor came to the loop from outside: what was known of its number is out of date. It may
    /// be blocking or not, and a backend that needs it one way makes it so. One that keeps nothing by
    /// number and does not care has nothing to do.
    fn adopt(&mut self, fd: RawFd) {
        let _ = fd;
    }
    /// A descriptor leaves the loop without being closed, and is blocking from here on. What is
    /// queued on it goes on on `heir`, a duplicate; without one nothing is queued. A
    /// backend that keeps nothing by number has nothing to do.
    fn forget(&mut self, fd: RawFd, heir: Option<RawFd>) {
        let _ = (fd, heir);
    }
    /// Hands over what is queued and waits.
    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd>;
    /// A tick that does not wait, one of many in a row while the loop has nothing to do and may use the
    /// processor up. A backend that can look for bytes more cheaply than by handing everything over does;
    /// the next [`tick`](Backend::tick) hands over the rest.
    ///
    /// # Errors
    /// As for [`tick`](Backend::tick).
    fn spin(&mut self) -> io::Result<TickEnd> {
        self.tick(TickWait::Zero)
    }
    /// The next completion at hand.
    fn next(&mut self) -> Option<Completion>;
    /// The clock, in nanoseconds.
    fn now(&self) -> u64;
    /// The unit waits are rounded up to, in nanoseconds.
    fn granularity_ns(&self) -> u64;
    /// The function that ends a wait from any thread.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync>;
    /// What it counted.
    fn statistics(&self) -> BackendStatistics;
}

fn lacking(kind: Kind) -> CreateError {
    let what = match kind {
        Kind::IoUring => "this system has no io_uring",
        Kind::Epoll | Kind::EpollMilliseconds => "this system has no epoll",
        Kind::Kqueue => "this system has no kqueue",
    };
    CreateError::Backend { what, error: io::ErrorKind::Unsupported.into() }
}

fn readiness(
    selector: io::Result<System>,
    arena: &mut Arena,
    sizes: Sizes,
) -> Result<Driver, CreateError> {
    let refused = |what| move |error| CreateError::Backend { what, error };
    let selector = selector.map_err(refused("the selector of descriptors cannot be opened"))?;
    let guard = ForkGuard::new().map_err(refused("a fork could not be noticed"))?;
    Ok(Driver::Readiness(Engine::new(arena, sizes, selector, guard)))
}

/// Which backend a loop drives.
// There is one a loop, and a box would put a pointer before every call.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Driver {
    #[cfg(target_os = "linux")]
    Uring(super::uring::Uring),
    Readiness(Engine<System>),
    Custom(Box<dyn Backend>),
    /// Leaked, because the kernel may still use it.
    Gone,
}

/// Says that a branch is taken seldom: then the other is tested for first, in place of a jump by table.
#[cfg_attr(target_os = "linux", cold)]
#[inline]
fn seldom() {}

macro_rules! forward {
    ($driver:expr, $backend:ident => $call:expr) => {
        match $driver {
            #[cfg(target_os = "linux")]
            Driver::Uring($backend) => $call,
            Driver::Readiness($backend) => {
                seldom();
                $call
            }
            Driver::Custom($backend) => {
                seldom();
                $call
            }
            Driver::Gone => unreachable!("the loop was dropped"),
        }
    };
}

impl Driver {
    /// Makes a backend of rotor's own. The engine's tables are cut from the arena, and from no other
    /// place: `sizes` were planned for.
    pub(crate) fn new(
        kind: Kind,
        options: &Options,
        arena: &mut Arena,
        sizes: Sizes,
    ) -> Result<Driver, CreateError> {
        let _ = options;
        match kind {
            #[cfg(target_os = "linux")]
            Kind::IoUring => super::uring::Uring::new(options).map(Driver::Uring),
            #[cfg(target_os = "linux")]
            Kind::Epoll => readiness(System::new(Precision::Best), arena, sizes),
            #[cfg(target_os = "linux")]
            Kind::EpollMilliseconds => {
                readiness(System::new(Precision::Milliseconds), arena, sizes)
            }
            #[cfg(not(target_os = "linux"))]
            Kind::IoUring | Kind::Epoll | Kind::EpollMilliseconds => Err(lacking(kind)),
            #[cfg(target_os = "linux")]
            Kind::Kqueue => Err(lacking(kind)),
            #[cfg(not(target_os = "linux"))]
            Kind::Kqueue => readiness(System::new(), arena, sizes),
        }
    }

    /// Whether descriptor numbers are the system's: those of a program's backend may be made up.
    pub(crate) fn is_the_systems(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => true,
            Driver::Readiness(_) => true,
            Driver::Custom(_) | Driver::Gone => false,
        }
    }

    /// Whether a single receive is better given a buffer of its own than left to pick one: it spares
    /// io_uring the picking. Where a receive is made when its bytes are there it would only be lent in
    /// vain. A program's backend is treated as io_uring is.
    #[inline]
    pub(crate) fn lends(&self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => true,
            Driver::Readiness(_) => false,
            Driver::Custom(_) | Driver::Gone => true,
        }
    }

    /// How many receives had better be armed before one tick. Where the kernel watches a descriptor anyway
    /// there is nothing to be saved by waiting.
    pub(crate) fn receives_per_tick(&self) -> u32 {
        match self {
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => RECEIVES_PER_TICK_MAX,
            Driver::Readiness(_) | Driver::Custom(_) | Driver::Gone => u32::MAX,
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
    pub(crate) fn attach(
        &mut self,
        memory: BufferMemory,
        options: &Options,
    ) -> Result<(), CreateError> {
        let _ = options;
        // SAFETY: the loop cuts the memory from its arena, hands it to nothing else, and drops its
        // driver before the arena or leaks both.
        let attached = forward!(self, backend => unsafe { backend.attach(memory) });
        attached.map_err(|error| match self {
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => super::uring::buffers_refusal(options, &memory, error),
            Driver::Readiness(_) | Driver::Custom(_) | Driver::Gone => {
                let what = "the receive buffers cannot be registered";
                CreateError::Backend { what, error }
            }
        })
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

    pub(crate) fn adopt(&mut self, fd: RawFd) {
        forward!(self, backend => backend.adopt(fd));
    }

    pub(crate) fn forget(&mut self, fd: RawFd, heir: Option<RawFd>) {
        forward!(self, backend => backend.forget(fd, heir));
    }

    pub(crate) fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        forward!(self, backend => backend.tick(wait))
    }

    pub(crate) fn spin(&mut self) -> io::Result<TickEnd> {
        forward!(self, backend => backend.spin())
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
