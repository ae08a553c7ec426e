//! The readiness backends: one engine that performs requests when their descriptors are ready, over a
//! small [`Selector`] for each system.
//!
//! - `selector` says what a system must tell; `epoll` and `kqueue` ask it.
//! - `rows` holds the descriptors and who waits on them, `requests` what was asked and answered.
//! - `waiting` decides when a request is performed; this file performs it.
//!
//! A descriptor is registered once a direction, by edges, when something first waits for it. What was
//! told is kept until a call finds the descriptor exhausted, so a busy stream costs a wait, a receive
//! and a send, and no call to register. Streams stay blocking, as the other backends have them: calls
//! say themselves that they do not wait (`MSG_DONTWAIT`). Accept and connect cannot say so: a listener
//! is made nonblocking before each accept and a stream before it connects. Nothing is remembered of
//! that: duplicates share the mode, in this program and in others, and any of them may change it. Where
//! sends may wait though they say that they do not (kqueue), streams are nonblocking as long as they are
//! the loop's.
//!
//! # Unsafe
//! Requests carry pointers, which are handed to the kernel for the length of a call. Invariants:
//! - *requests*: a request's pointers are valid until its last completion is taken by `next` (the
//!   contract, point 4 of the loop's promises). A request is performed only while it is in its
//!   descriptor's chain; its answer takes it out, and so does `cancel`.
//! - *buffers*: a provided buffer is the engine's until a completion names it (point 6). The free list
//!   has each number once.
//!
//! No call outlives this thread's: after `cancel`, and after drop, the kernel touches nothing.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::sync::Arc;

use self::requests::{Answer, Requests};
use self::rows::Rows;
use self::selector::{READ, WRITE};
use super::contract::Backend;
use super::request::{
    BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission, TickEnd,
    TickWait, Token,
};
use crate::error::FORKED;
use crate::op::{Control, Interest, Reply};
use crate::sys::{clock, descriptor, fork::ForkGuard};
use crate::tables::arena::{Arena, Plan, Table};

#[cfg(target_os = "linux")]
pub(crate) mod epoll;
#[cfg(any(target_os = "macos", target_os = "freebsd"))]
pub(crate) mod kqueue;
mod requests;
mod rows;
mod selector;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use self::selector::Selector;

#[cfg(target_os = "linux")]
pub(crate) use self::epoll::Epoll as System;
#[cfg(any(target_os = "macos", target_os = "freebsd"))]
pub(crate) use self::kqueue::Kqueue as System;

/// What the engine has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Tokens have indices below this.
    pub(crate) tokens: u32,
    /// Descriptors at a time.
    pub(crate) descriptors: u32,
    /// Buffers provided at a time.
    pub(crate) buffers: u32,
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Engine<S> {
    selector: S,
    guard: ForkGuard,
    rows: Rows,
    requests: Requests,
    memory: Option<BufferMemory>,
    /// The numbers of free buffers, the first `free_count` rows; last provided, first used.
    free: Table<u16>,
    free_count: u32,
    /// A wake-up came that has not ended a tick's wait yet.
    woken: bool,
    statistics: BackendStatistics,
    one_thread: PhantomData<*const ()>,
}

impl<S: Selector> Engine<S> {
    /// Accounts for the engine's tables.
    pub(crate) fn plan(plan: &mut Plan, sizes: Sizes) {
        Requests::plan(plan, sizes.tokens);
        Rows::plan(plan, sizes.descriptors);
        plan.table::<u16>(sizes.buffers);
    }

    /// Cuts the tables from the arena.
    pub(crate) fn new(arena: &mut Arena, sizes: Sizes, selector: S, guard: ForkGuard) -> Engine<S> {
        Engine {
            selector,
            guard,
            requests: Requests::new(arena, sizes.tokens),
            rows: Rows::new(arena, sizes.descriptors),
            memory: None,
            free: arena.table(sizes.buffers),
            free_count: 0,
            woken: false,
            statistics: BackendStatistics::default(),
            one_thread: PhantomData,
        }
    }

    fn connect(&mut self, token: Token, request: &Request, fd: RawFd) -> Submission {
        let Request::Connect { address, .. } = *request else { unreachable!("a connect") };
        let Some(index) = self.rows.find_or_take(fd) else { return Submission::Full };
        let mut result = descriptor::set_blocking(fd, false);
        if result == 0 {
            // SAFETY: *requests*.
            result = unsafe { descriptor::connect_now(fd, address) };
        }
        if result == -libc::EINPROGRESS {
            // What was told before is about another try. Armed anew also if it was armed: an edge
            // that came before is not told again.
            self.rows.get_mut(index).ready = 0;
            let key = self.rows.key(index);
            let before = self.rows.get(index).armed;
            match self.selector.arm(fd, key, READ | WRITE, before) {
                Ok(()) => {
                    self.rows.get_mut(index).armed = READ | WRITE;
                    return self.queue(token, request, fd, WRITE);
                }
                Err(errno) => result = -errno,
            }
        }
        self.settle(fd);
        self.free_unused(index);
        Submission::Done(result)
    }

    /// Does what a request asks for. Nothing when that would block.
    fn perform(&mut self, row: u32, index: u32) -> Option<Answer> {
        let fd = self.rows.get(row).fd;
        let result = match self.requests.get(index).request {
            Request::Accept { address, .. } => {
                let mut accepted = descriptor::set_blocking(fd, false);
                if accepted == 0 {
                    // SAFETY: *requests*.
                    accepted = unsafe { descriptor::accept_now(fd, address) };
                    if accepted >= 0 {
                        self.unknown(accepted);
                        self.came(accepted);
                    }
                }
                accepted
            }
            Request::Connect { address, .. } => {
                descriptor::set_blocking(fd, false);
                // SAFETY: *requests*.
                let result = unsafe { descriptor::connect_result(fd, address) };
                if result == -libc::EINPROGRESS {
                    return None;
                }
                self.settle(fd);
                result
            }
            Request::Receive { pointer, length, .. } => {
                // SAFETY: *requests*.
                let result = unsafe { descriptor::receive_now(fd, pointer, length) };
                self.after_receive(row, result, length);
                let nonempty = length > 0 && result == length as i32;
                let answer = Answer { nonempty, ..Answer::last(result) };
                return (result != -libc::EAGAIN).then_some(answer);
            }
            Request::ReceivePicked { multishot, .. } => return self.pick(row, fd, multishot),
            // SAFETY: *requests*.
            Request::Send { pointer, length, .. } => unsafe {
                descriptor::send_now(fd, pointer, length)
            },
            // SAFETY: *requests*.
            Request::SendVectored { message, .. } => unsafe {
                descriptor::send_message_now(fd, message)
            },
            Request::Poll { interest, .. } => self.look(row, fd, interest),
            Request::Nop
            | Request::Shutdown { .. }
            | Request::ReadAt { .. }
            | Request::WriteAt { .. } => unreachable!("these are answered at once"),
        };
        (result != -libc::EAGAIN).then_some(Answer::last(result))
    }

    /// Receives into a free buffer.
    fn pick(&mut self, row: u32, fd: RawFd, multishot: bool) -> Option<Answer> {
        let Some(memory) = self.memory.filter(|_| self.free_count > 0) else {
            return Some(Answer::last(-libc::ENOBUFS));
        };
        let buffer = self.free[self.free_count - 1];
        let start = usize::from(buffer) * memory.stride;
        // SAFETY: *buffers*: the number is free, and below the count of those in memory.
        let result =
            unsafe { descriptor::receive_now(fd, memory.base.wrapping_add(start), memory.bytes) };
        self.after_receive(row, result, memory.bytes);
        match result {
            error if error == -libc::EAGAIN => None,
            1.. => {
                self.free_count -= 1;
                let nonempty = result == memory.bytes as i32;
                Some(Answer { result, more: multishot, buffer: Some(buffer), nonempty })
            }
            _ => Some(Answer::last(result)),
        }
    }
}

// SAFETY: points 3 to 6 of the contract's second half: `cancel` and `perform` answer a request once
// and take it out of its chain, after which its memory is not touched; bytes moved are in the answer;
// a tick compares its wait with the clock; `pick` answers `-ENOBUFS` without a free buffer.
unsafe impl<S: Selector> Backend for Engine<S> {
    fn describe(&self) -> &'static str {
        self.selector.describe()
    }

    #[inline]
    fn check(&self) -> Result<(), ForkedChild> {
        if self.guard.forked() { Err(ForkedChild) } else { Ok(()) }
    }

    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        self.check().map_err(forked)?;
        self.memory = Some(memory);
        Ok(())
    }

    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission {
        if self.guard.forked() {
            return Submission::Full;
        }
        match *request {
            Request::Nop => Submission::Done(0),
            Request::Connect { fd, .. } => self.connect(token, request, fd),
            Request::Receive { fd, pointer, length, now: true } => {
                // SAFETY: *requests*: valid until `submit` returns.
                let result = unsafe { descriptor::receive_now(fd, pointer, length) };
                self.received(fd, result, length);
                Submission::Done(result)
            }
            Request::Send { fd, pointer, length, now: true } => {
                // SAFETY: as above.
                let result = unsafe { descriptor::send_now(fd, pointer, length) };
                if result == -libc::EAGAIN {
                    self.exhausted(fd, WRITE);
                }
                Submission::Done(result)
            }
            Request::SendVectored { fd, message, now: true } => {
                // SAFETY: as above.
                let result = unsafe { descriptor::send_message_now(fd, message) };
                if result == -libc::EAGAIN {
                    self.exhausted(fd, WRITE);
                }
                Submission::Done(result)
            }
            Request::Accept { fd, .. }
            | Request::Receive { fd, now: false, .. }
            | Request::ReceivePicked { fd, .. } => self.queue(token, request, fd, READ),
            Request::Send { fd, pointer, length, now: false } => {
                let may = self.may_send(fd);
                // SAFETY: *requests*.
                let send = || unsafe { descriptor::send_now(fd, pointer, length) };
                let result = if may { send() } else { -libc::EAGAIN };
                self.sent(token, request, fd, result)
            }
            Request::SendVectored { fd, message, now: false } => {
                let may = self.may_send(fd);
                // SAFETY: *requests*.
                let send = || unsafe { descriptor::send_message_now(fd, message) };
                let result = if may { send() } else { -libc::EAGAIN };
                self.sent(token, request, fd, result)
            }
            Request::Poll { fd, interest } => {
                self.queue(token, request, fd, direction_of(interest))
            }
            Request::Shutdown { fd, how } => Submission::Done(descriptor::shutdown_now(fd, how)),
            // A file is always ready and always may block. std's kind for this number is `Unsupported`.
            Request::ReadAt { .. } | Request::WriteAt { .. } => Submission::Done(-libc::ENOSYS),
        }
    }

    /// What has moved bytes is answered already, so what still waits has moved none.
    fn cancel(&mut self, token: Token) -> bool {
        if self.guard.forked() {
            return false;
        }
        let Some((index, waits)) = self.requests.find(token) else { return true };
        if !waits {
            self.requests.end_after_answer(index);
            return true;
        }
        let entry = self.requests.get(index);
        let (row, direction) = (entry.row, direction_of_request(&entry.request));
        if let Request::Connect { fd, .. } = entry.request {
            self.settle(fd);
        }
        let chain = self.rows.get_mut(row).chain(direction);
        self.requests.answer(chain, index, Answer::last(-libc::ECANCELED));
        true
    }

    #[inline]
    fn provide(&mut self, buffer: u16) {
        let count = self.memory.map_or(0, |memory| memory.count);
        assert!(u32::from(buffer) < count, "rotor: buffer {buffer} of {count} was provided");
        if self.free_count < self.free.len() {
            self.free[self.free_count] = buffer;
        } else {
            let room = self.free.push(buffer);
            assert!(room.is_some(), "rotor: more buffers were provided than the ring has entries");
        }
        self.free_count += 1;
    }

    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
        self.check().map_err(forked)?;
        let reply = descriptor::perform(control);
        if let Ok(Reply::Opened(fd)) = reply {
            self.unknown(fd);
            self.came(fd);
        }
        reply
    }

    /// Watches end with the descriptor, but not while a duplicate is open: so they are ended here. In
    /// a child the numbers stay open: it may have given them to other files meanwhile.
    fn release(&mut self, fd: RawFd) {
        if self.guard.forked() {
            return;
        }
        if let Some(index) = self.rows.find(fd) {
            self.end_waiting(index, -libc::EBADF);
            let armed = self.rows.get(index).armed;
            if armed != 0 {
                self.selector.disarm(fd, armed);
            }
            self.rows.free(index);
        }
        descriptor::close(fd);
    }

    fn adopt(&mut self, fd: RawFd) {
        if !self.guard.forked() {
            self.unknown(fd);
            self.came(fd);
            descriptor::keep_quiet(fd);
        }
    }

    fn forget(&mut self, fd: RawFd, heir: Option<RawFd>) {
        if self.guard.forked() {
            return;
        }
        // The duplicate that goes on shares the mode.
        if heir.is_none() || !self.selector.sends_may_wait() {
            descriptor::set_blocking(fd, true);
        }
        let Some(index) = self.rows.find(fd) else { return };
        let armed = self.rows.get(index).armed;
        if armed != 0 {
            self.selector.disarm(fd, armed);
            self.rows.get_mut(index).armed = 0;
        }
        let Some(heir) = heir else {
            self.end_waiting(index, -libc::EBADF);
            return self.rows.free(index);
        };
        self.unknown(heir);
        self.rows.rename(index, heir);
        if let Err(errno) = self.arm(index, armed) {
            self.end_waiting(index, -errno);
        }
    }

    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        self.check().map_err(forked)?;
        // What waits on a descriptor that is known to be ready is at hand, as answers are.
        let at_hand = self.requests.has_answers() || self.rows.listed() > 0;
        match wait {
            TickWait::Zero => {
                self.select(Some(0))?;
                let there = self.woken || self.requests.has_answers();
                Ok(if there { TickEnd::Event } else { TickEnd::Polled })
            }
            TickWait::AtMost(_) | TickWait::Forever if at_hand || self.woken => {
                self.select(Some(0))?;
                let woken = std::mem::take(&mut self.woken);
                if woken || self.requests.has_answers() {
                    return Ok(TickEnd::Event);
                }
                self.wait(ns_of(wait))
            }
            TickWait::AtMost(_) | TickWait::Forever => self.wait(ns_of(wait)),
        }
    }

    fn next(&mut self) -> Option<Completion> {
        if self.guard.forked() {
            return None;
        }
        let (completion, index) = self.requests.take_answer()?;
        if completion.more {
            let entry = self.requests.get(index);
            let (row, generation) = (entry.row, entry.row_generation);
            let direction = direction_of_request(&entry.request);
            let there = self.rows.get(row).generation == generation;
            // Its descriptor was closed behind the loop's back: this was the last it brings.
            if !there {
                self.requests.orphan(index);
                return Some(completion);
            }
            self.requests.put_back(self.rows.get_mut(row).chain(direction), index);
            if self.rows.get(row).ready & direction != 0 {
                self.rows.list(row);
            }
        }
        Some(completion)
    }

    fn now(&self) -> u64 {
        clock::now_ns()
    }

    fn granularity_ns(&self) -> u64 {
        self.selector.granularity_ns()
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.selector.waker()
    }

    fn statistics(&self) -> BackendStatistics {
        self.statistics
    }
}

fn ns_of(wait: TickWait) -> Option<u64> {
    match wait {
        TickWait::Zero => Some(0),
        TickWait::AtMost(ns) => Some(ns),
        TickWait::Forever => None,
    }
}

fn direction_of(interest: Interest) -> u8 {
    match interest {
        Interest::Readable => READ,
        Interest::Writable => WRITE,
    }
}

fn direction_of_request(request: &Request) -> u8 {
    match *request {
        Request::Accept { .. } | Request::Receive { .. } | Request::ReceivePicked { .. } => READ,
        Request::Connect { .. } | Request::Send { .. } | Request::SendVectored { .. } => WRITE,
        Request::Poll { interest, .. } => direction_of(interest),
        Request::Nop
        | Request::Shutdown { .. }
        | Request::ReadAt { .. }
        | Request::WriteAt { .. } => unreachable!("these are answered at once"),
    }
}

fn forked(_: ForkedChild) -> io::Error {
    io::Error::other(FORKED)
}
