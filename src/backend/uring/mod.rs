//! The io_uring backend: one `io_uring_enter` a tick that submits, runs deferred completions and waits.
//!
//! - `prepare` and `reap` are pure: requests to entries, entries to completions.
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

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, squeue::Entry};

use self::buffers::BufferRing;
use self::reap::Reaped;
use super::{Backend, BackendStatistics, BufferMemory, Completion, ForkedChild};
use super::{Request, Submission, TickEnd, TickWait, Token};
use crate::error::{CreateError, FORKED};
use crate::op::{Control, Reply};
use crate::options::Options;
use crate::sys::{clock, descriptor, fork::ForkGuard, wake::Wake};

mod buffers;
mod prepare;
mod probe;
mod reap;
mod setup;
#[cfg(test)]
mod tests;

/// The group all provided buffers are in.
const BUFFER_GROUP: u16 = 0;
/// The watch on the eventfd.
const WAKE_TOKEN: Token = Token::new(Token::RESERVED_FROM, 0);
/// Every cancel: they are told apart by what they cancel, not by their own answers.
const CANCEL_TOKEN: Token = Token::new(Token::RESERVED_FROM + 1, 0);

/// The longest wait handed to the kernel, 146 years. It adds its own clock to a wait without
/// looking for overflow (`io_cqring_wait`), and a sum past `i64::MAX` would be over at once.
const WAIT_NS_MAX: u64 = i64::MAX as u64 / 2;

/// Pause between two rounds of cancels while the ring is being closed.
const CLOSE_ROUND_NS: u64 = 10_000_000;

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
    /// Requests queued and not over.
    in_flight: u64,
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
            // A watch that finds the counter above zero completes at once. The wakes so far were
            // seen with the completion that ended the last watch; one after this line is not lost,
            // because the new watch finds it.
            self.wake.reset();
            let entry = prepare::watch_wake(self.wake.fd());
            self.wake_armed = self.push(&entry);
        }
        self.wake_armed
    }

    /// The next completion in the queue, taking note of this backend's own on the way.
    #[inline]
    fn reap_next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.memory.completion().next()?;
            match reap::reap(entry.user_data(), entry.result(), entry.flags()) {
                Reaped::Completion(completion) => {
                    self.in_flight -= u64::from(!completion.more);
                    return Some(completion);
                }
                Reaped::Wake { rearm } => {
                    self.woken = true;
                    self.wake_armed &= !rearm;
                }
                Reaped::CancelAcknowledged | Reaped::Unknown => {}
            }
        }
    }

    /// Whether something is there that ends a wait; a wake-up counts once.
    fn look(&mut self) -> bool {
        if self.at_hand.is_none() {
            self.at_hand = self.reap_next();
        }
        std::mem::take(&mut self.woken) || self.at_hand.is_some()
    }

    /// Enters without waiting, if there is a reason to. Answers whether there was.
    fn poll(&mut self) -> io::Result<bool> {
        let pending = self.look_at_queues();
        if pending.queued == 0 && !pending.fetch {
            return Ok(false);
        }
        self.statistics.enters += 1;
        match self.ring.enter(pending.queued, 0, EnterFlags::GETEVENTS, None) {
            // What was not taken is queued still, and goes in with the next tick.
            Ok(_) | Err(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(true),
            Err(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Submits and waits in one call; again, for what is left of the time, if a signal or an answer
    /// of no interest to the loop ended the wait.
    fn wait(&mut self, wait_ns: Option<u64>) -> io::Result<TickEnd> {
        let start_ns = if wait_ns.is_some() { clock::now_ns() } else { 0 };
        let mut left_ns = wait_ns;
        loop {
            let queued = self.look_at_queues().queued;
            let time = left_ns.map(timespec);
            let flags = EnterFlags::GETEVENTS | self.wait_flags;
            self.statistics.enters += 1;
            match self.ring.enter(queued, 1, flags, time.as_ref()) {
                Ok(_) | Err(libc::ETIME | libc::EINTR) => {}
                Err(libc::EAGAIN | libc::EBUSY) => return Ok(TickEnd::Polled),
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
            if self.look() {
                return Ok(TickEnd::Event);
            }
            if let Some(wait_ns) = wait_ns {
                let passed_ns = clock::now_ns() - start_ns;
                if passed_ns >= wait_ns {
                    return Ok(TickEnd::TimedOut);
                }
                left_ns = Some(wait_ns - passed_ns);
            }
        }
    }

    fn look_at_queues(&mut self) -> Pending {
        let pending = self.ring.pending();
        self.statistics.overflows += u64::from(pending.overflow && !self.overflowing);
        self.overflowing = pending.overflow;
        pending
    }

    /// Ends every request and reaps it. The loop has done so before, as a rule; this is what makes
    /// the *requests* invariant hold when it has not, for instance when it unwinds.
    fn end_all(&mut self) {
        self.at_hand = None;
        while self.in_flight > 0 {
            let round = timespec(CLOSE_ROUND_NS);
            // Submitted first, so that the cancel finds it. With nothing left it answers ENOENT;
            // what it cannot stop (a read under way at a disk) ends by itself.
            let queued = self.ring.pending().queued;
            let submitted = self.ring.enter(queued, 0, EnterFlags::GETEVENTS, None);
            let submitter = self.ring.memory.submitter();
            let _ = submitter.register_sync_cancel(Some(round), CancelBuilder::any());
            let waited = self.ring.enter(0, 1, EnterFlags::GETEVENTS, Some(&round));
            while self.reap_next().is_some() {}
            for errno in [submitted.err(), waited.err()].into_iter().flatten() {
                if !matches!(errno, libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) {
                    // Memory the kernel may write would be freed next. There is no other way out.
                    eprintln!("rotor: io_uring_enter fails ({errno}) with requests in flight");
                    std::process::abort();
                }
            }
        }
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

    fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        self.check().map_err(forked)?;
        if memory.count > 0 {
            self.buffers = Some(BufferRing::register(&self.ring.memory.submitter(), memory)?);
        }
        Ok(())
    }

    #[inline]
    fn submit(&mut self, token: Token, request: &Request) -> Submission {
        if self.guard.forked() {
            return Submission::Full;
        }
        if let Some(result) = answer_now(request) {
            return Submission::Done(result);
        }
        if !self.push(&prepare::prepare(token, request)) {
            return Submission::Full;
        }
        self.in_flight += 1;
        Submission::Queued
    }

    fn cancel(&mut self, token: Token) -> bool {
        !self.guard.forked() && self.push(&prepare::cancel(token))
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

    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        self.check().map_err(forked)?;
        self.publish_buffers();
        let at_hand = self.look();
        // A wait without a watch could sleep through a wake-up.
        let wait = if self.arm_wake() { wait } else { TickWait::Zero };
        match wait {
            TickWait::Zero if self.poll()? => Ok(TickEnd::Polled),
            TickWait::Zero => Ok(TickEnd::NotEntered),
            TickWait::AtMost(_) | TickWait::Forever if at_hand => {
                self.poll()?;
                Ok(TickEnd::Event)
            }
            TickWait::AtMost(wait_ns) => self.wait(Some(wait_ns)),
            TickWait::Forever => self.wait(None),
        }
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
/// it never waits: a shutdown (`io_shutdown_prep` forces it, Linux 5.19 to date).
#[inline]
fn answer_now(request: &Request) -> Option<i32> {
    match *request {
        // SAFETY: the contract, point 4: the memory is valid until `submit` returns.
        Request::Receive { fd, pointer, length, now: true } => {
            Some(unsafe { descriptor::receive_now(fd, pointer, length) })
        }
        // SAFETY: as above.
        Request::Send { fd, pointer, length, now: true } => {
            Some(unsafe { descriptor::send_now(fd, pointer, length) })
        }
        // SAFETY: as above.
        Request::SendVectored { fd, message, now: true } => {
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

fn timespec(ns: u64) -> Timespec {
    let ns = ns.min(WAIT_NS_MAX);
    Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32)
}

fn forked(ForkedChild: ForkedChild) -> io::Error {
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
