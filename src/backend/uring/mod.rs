//! The io_uring backend: one `io_uring_enter` a tick that submits, runs deferred completions and waits.
//!
//! - `prepare` and `reap` are pure: requests to entries, entries to completions.
//! - `wait` enters the kernel for a tick and finds out what ended the wait.
//! - `probe` and `setup` find out what the kernel has and name what it lacks.
//! - `buffers` holds the ring of provided buffers; this file holds the ring itself.
//!
//! # Unsafe
//! Entries carry pointers to the kernel, and `io_uring_enter` is called by number. Invariants:
//! - *requests*: pointers of a queued request are valid until its last completion. Kept by the loop
//!   (the contract, point 4); ended by [`Backend::next`] handing that completion over. `Drop` waits
//!   for every one, so after it the kernel writes nowhere.
//! - *thread*: the ring is used by the thread that made it (`IORING_SETUP_SINGLE_ISSUER` refuses
//!   others with `EEXIST`); `Uring` is `!Send`.
//! - *process*: in a child process nothing of the ring exists (its pages are not inherited, its
//!   descriptor is the parent's): every function reads [`ForkGuard`] before it touches the ring, and
//!   `Drop` forgets it.

use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, squeue::Entry};

use self::buffers::BufferRing;
use self::held::{HELD_MAX, Held};
use super::{Backend, BackendStatistics, BufferMemory, Completion, ForkedChild};
use super::{Request, Submission, TickEnd, TickWait, Token};
use crate::error::{CreateError, FORKED};
use crate::op::{Control, Reply};
use crate::options::Options;
use crate::sys::{clock, descriptor, fork::ForkGuard, wake::Wake};

mod buffers;
mod held;
mod prepare;
mod probe;
mod reap;
mod setup;
#[cfg(test)]
mod tests;
mod wait;

pub(super) use self::setup::{buffers_refusal, survey};

/// The group all provided buffers are in.
const BUFFER_GROUP: u16 = 0;
/// The watch on the eventfd.
const WAKE_TOKEN: Token = Token::new(Token::RESERVED_FROM, 0);
/// Every cancel: they are told apart by what they cancel, not by their own answers.
const CANCEL_TOKEN: Token = Token::new(Token::RESERVED_FROM + 1, 0);

/// A ring and what belongs to it.
#[derive(Debug)]
pub(crate) struct Uring {
    ring: ManuallyDrop<Ring>,
    guard: ForkGuard,
    wake: Wake,
    /// Whether the watch on the eventfd is in the kernel or queued for it.
    wake_armed: bool,
    /// A wake-up was reaped that has not ended a tick's wait yet.
    woken: bool,
    /// A completion that was reaped to see whether there is one.
    at_hand: Option<Completion>,
    buffers: Option<BufferRing>,
    /// Requests queued and not over, those held among them.
    in_flight: u64,
    held: Held,
    /// The kernel was keeping completions when last looked.
    overflowing: bool,
    statistics: BackendStatistics,
    /// Which wait flags this kernel knows.
    wait_flags: EnterFlags,
    one_thread: PhantomData<*const ()>,
}

/// The ring's memory, and how the kernel is told which ring is meant.
struct Ring {
    memory: IoUring,
    /// The number registered for this thread, which saves looking the descriptor up each time
    /// (`IORING_REGISTER_RING_FDS`, Linux 5.18; 16 a thread).
    registered: Option<u32>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fd", &self.memory.as_raw_fd())
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

/// What waits in the two queues.
struct Pending {
    /// Entries to submit.
    queued: u32,
    /// The kernel has completions that it posts only when entered.
    fetch: bool,
    /// Some of them because their queue was full.
    overflow: bool,
}

impl Ring {
    fn new(options: &Options) -> Result<(Ring, probe::Features), CreateError> {
        let (memory, features) = setup::make_ring(options)?;
        let registered = register_ring(memory.as_raw_fd());
        Ok((Ring { memory, registered }, features))
    }

    fn pending(&mut self) -> Pending {
        let queue = self.memory.submission();
        let overflow = queue.cq_overflow();
        Pending { queued: queue.len() as u32, fetch: overflow || queue.taskrun(), overflow }
    }

    /// io_uring_enter(2). Answers how many entries it took, or an `errno`. Once it took some it
    /// reports them and not how the wait went: whoever waits looks at the queue and the clock.
    fn enter(
        &self,
        to_submit: u32,
        complete_min: u32,
        mut flags: EnterFlags,
        wait: Option<&Timespec>,
    ) -> Result<u32, i32> {
        let arguments;
        let (mut pointer, mut length) = (ptr::null::<libc::c_void>(), 0);
        if let Some(wait) = wait {
            arguments = SubmitArgs::new().timespec(wait);
            pointer = (&raw const arguments).cast();
            length = size_of::<SubmitArgs<'_, '_>>();
            flags |= EnterFlags::EXT_ARG;
        }
        let fd = match self.registered {
            Some(index) => {
                flags |= EnterFlags::REGISTERED_RING;
                index as libc::c_long
            }
            None => libc::c_long::from(self.memory.as_raw_fd()),
        };
        // SAFETY: *requests* holds for what is submitted; the arguments and the time they point at
        // are alive through the call.
        let result = unsafe {
            let (number, flags) = (libc::SYS_io_uring_enter, flags.bits());
            libc::syscall(number, fd, to_submit, complete_min, flags, pointer, length)
        };
        u32::try_from(result).map_err(|_| errno())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A registered number keeps the ring alive until its thread ends.
        if let Some(index) = self.registered {
            unregister_ring(self.memory.as_raw_fd(), index);
        }
    }
}

impl Uring {
    /// Makes a ring, with its watch on wake-ups already in the kernel.
    ///
    /// # Errors
    /// The first thing the kernel lacks or refuses.
    pub(crate) fn new(options: &Options) -> Result<Uring, CreateError> {
        let no_guard = "madvise refused MADV_WIPEONFORK (Linux 4.14)";
        let guard = ForkGuard::new().map_err(|error| setup::refused(no_guard, error))?;
        let wake =
            Wake::new().map_err(|error| setup::refused("eventfd could not be opened", error))?;
        let (ring, features) = Ring::new(options)?;
        let no_iowait = EnterFlags::NO_IOWAIT;
        let mut uring = Uring {
            ring: ManuallyDrop::new(ring),
            guard,
            wake,
            wake_armed: false,
            woken: false,
            at_hand: None,
            buffers: None,
            in_flight: 0,
            held: Held::new(options),
            overflowing: false,
            statistics: BackendStatistics::default(),
            wait_flags: if features.no_iowait { no_iowait } else { EnterFlags::empty() },
            one_thread: PhantomData,
        };
        // The first entry to the kernel is made here, so that a filter on it is found at start.
        uring.arm_wake();
        let entered = uring.ring.enter(1, 0, EnterFlags::GETEVENTS, None);
        entered.map_err(|errno| {
            let what = "io_uring_enter was refused (a seccomp filter?)";
            setup::refused(what, io::Error::from_raw_os_error(errno))
        })?;
        Ok(uring)
    }

    /// Queues an entry, handing over those before it if there is no room. False: still none.
    #[inline]
    fn push(&mut self, entry: &Entry) -> bool {
        // SAFETY: *requests*: the pointers in it are valid until its last completion.
        if unsafe { self.ring.memory.submission().push(entry) }.is_ok() {
            return true;
        }
        self.flush();
        // SAFETY: as above.
        unsafe { self.ring.memory.submission().push(entry) }.is_ok()
    }

    /// Hands over what is queued, in the middle of a tick. What the kernel does not take now
    /// (`EBUSY`: completions are in the way; `EAGAIN`: memory) stays queued for the next entry.
    #[cold]
    fn flush(&mut self) {
        self.publish_buffers();
        self.statistics.flushes += 1;
        let queued = self.ring.pending().queued;
        let _ = self.ring.enter(queued, 0, EnterFlags::empty(), None);
    }

    fn publish_buffers(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            buffers.publish();
        }
    }

    /// Watches the eventfd (again). False: there is no room for the entry.
    fn arm_wake(&mut self) -> bool {
        if !self.wake_armed {
            // A wake while nobody watched is not lost: a watch that finds the counter above zero
            // completes at once.
            let entry = prepare::watch_wake(self.wake.fd());
            self.wake_armed = self.push(&entry);
        }
        self.wake_armed
    }

    /// Receives what is there for those held back. They are looked at first, since a receive would take
    /// the socket's lock from whoever brings the bytes.
    fn try_held(&mut self) {
        let none = libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 };
        let mut looked_at = [none; HELD_MAX];
        let receives = self.held.receives();
        for (place, receive) in looked_at.iter_mut().zip(receives) {
            place.fd = receive.fd;
        }
        let count = receives.len() as libc::nfds_t;
        // SAFETY: there are as many places, which outlive the call.
        if count == 0 || unsafe { libc::poll(looked_at.as_mut_ptr(), count, 0) } <= 0 {
            return;
        }
        let mut looked_at = looked_at.iter();
        self.held.answer(|receive| {
            if looked_at.next()?.revents == 0 {
                return None;
            }
            // SAFETY: *requests*: the memory is valid until the completion.
            let result =
                unsafe { descriptor::receive_now(receive.fd, receive.pointer, receive.length) };
            (result != -libc::EAGAIN).then_some(result)
        });
    }
}

// SAFETY: points 3 to 6 of the contract's second half: results and cancels are the kernel's own
// (`reap`, `prepare`); a tick waits by the kernel's clock and checks it by the same; after a
// request's last completion the kernel has let go of its memory, and `Drop` waits for all of them.
unsafe impl Backend for Uring {
    fn describe(&self) -> &'static str {
        "io_uring"
    }

    #[inline]
    fn check(&self) -> Result<(), ForkedChild> {
        if self.guard.forked() { Err(ForkedChild) } else { Ok(()) }
    }

    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        self.check().map_err(forked)?;
        if memory.count > 0 {
            self.buffers = Some(BufferRing::register(&self.ring.memory.submitter(), memory)?);
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission {
        if self.guard.forked() {
            return Submission::Full;
        }
        if let Some(result) = answer_now(request) {
            return Submission::Done(result);
        }
        if !self.held.keep(token, request) && !self.push(&prepare::prepare(token, request)) {
            return Submission::Full;
        }
        self.in_flight += 1;
        Submission::Queued
    }

    fn cancel(&mut self, token: Token) -> bool {
        if self.guard.forked() {
            return false;
        }
        self.held.cancel(token) || self.push(&prepare::cancel(token))
    }

    #[inline]
    fn provide(&mut self, buffer: u16) {
        if self.guard.forked() {
            return;
        }
        if let Some(buffers) = &mut self.buffers {
            buffers.provide(buffer);
        }
    }

    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
        self.check().map_err(forked)?;
        descriptor::perform(control)
    }

    /// In a child the numbers stay open: it may have given them to other files meanwhile.
    fn release(&mut self, fd: RawFd) {
        if !self.guard.forked() {
            descriptor::close(fd);
        }
    }

    /// On a descriptor that is nonblocking io_uring answers `EAGAIN` in place of waiting.
    fn adopt(&mut self, fd: RawFd) {
        if !self.guard.forked() {
            self.held.renumber(fd, None);
            descriptor::set_blocking(fd, true);
        }
    }

    fn forget(&mut self, fd: RawFd, heir: Option<RawFd>) {
        self.held.renumber(fd, heir);
    }

    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        self.check().map_err(forked)?;
        // A wait without all that was asked for could sleep through its answer.
        let wait = if self.hand_over_held() { wait } else { TickWait::Zero };
        self.tick_as_told(wait)
    }

    fn spin(&mut self) -> io::Result<TickEnd> {
        self.check().map_err(forked)?;
        self.try_held();
        self.tick_as_told(TickWait::Zero)
    }

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        if self.guard.forked() {
            return None;
        }
        self.at_hand.take().or_else(|| self.reap_next())
    }

    fn now(&self) -> u64 {
        clock::now_ns()
    }

    /// The kernel's wait is a high-resolution timer, without the slack other waits have.
    fn granularity_ns(&self) -> u64 {
        1
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.wake.function()
    }

    fn statistics(&self) -> BackendStatistics {
        self.statistics
    }
}

impl Drop for Uring {
    /// Waits until the kernel has let go of every request; in a child it forgets the ring instead.
    fn drop(&mut self) {
        if self.guard.forked() {
            return;
        }
        self.end_all();
        if self.buffers.is_some() {
            // The last close of a ring is finished by a kernel thread, after the close returns: the
            // buffers are taken back while that can still be waited for.
            let _ = self.ring.memory.submitter().unregister_buf_ring(BUFFER_GROUP);
        }
        // SAFETY: dropped once, here, and not used after; *process*: this is the ring's own.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

/// Answers what must be answered at once, and what io_uring would give to a thread of its own though
/// it never waits: a shutdown (`io_shutdown` runs on a worker only, Linux 5.11 to date).
#[inline(always)]
fn answer_now(request: &Request) -> Option<i32> {
    match *request {
        Request::Receive { fd, pointer, length, now: true } => {
            // SAFETY: *requests*: the memory is valid until `submit` returns.
            Some(unsafe { descriptor::receive_now(fd, pointer, length) })
        }
        Request::Send { fd, pointer, length, now: true } => {
            // SAFETY: as above.
            Some(unsafe { descriptor::send_now(fd, pointer, length) })
        }
        Request::SendVectored { fd, message, now: true } => {
            // SAFETY: as above.
            Some(unsafe { descriptor::send_message_now(fd, message) })
        }
        Request::Shutdown { fd, how } => Some(descriptor::shutdown_now(fd, how)),
        Request::Nop
        | Request::Accept { .. }
        | Request::Connect { .. }
        | Request::Receive { now: false, .. }
        | Request::ReceivePicked { .. }
        | Request::Send { now: false, .. }
        | Request::SendVectored { now: false, .. }
        | Request::Poll { .. }
        | Request::ReadAt { .. }
        | Request::WriteAt { .. } => None,
    }
}

fn forked(_: ForkedChild) -> io::Error {
    io::Error::other(FORKED)
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// `struct io_uring_rsrc_update` of linux/io_uring.h.
#[repr(C)]
struct RingNumber {
    offset: u32,
    reserved: u32,
    fd: u64,
}

// From linux/io_uring.h. The crate registers ring numbers too, but keeps them in a `Submitter`,
// which borrows the ring for as long as it is to be remembered.
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// Registers the ring with this thread, if the kernel can and a number is free.
fn register_ring(fd: RawFd) -> Option<u32> {
    let mut number = RingNumber { offset: u32::MAX, reserved: 0, fd: fd as u64 };
    let pointer = &raw mut number;
    // SAFETY: the kernel reads and writes one structure of this layout, alive through the call.
    let registered =
        unsafe { libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, pointer, 1) };
    (registered == 1).then_some(number.offset)
}

fn unregister_ring(fd: RawFd, index: u32) {
    let number = RingNumber { offset: index, reserved: 0, fd: 0 };
    let pointer = &raw const number;
    // SAFETY: as above; the kernel reads it.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, UNREGISTER_RING_FDS, pointer, 1) };
}
