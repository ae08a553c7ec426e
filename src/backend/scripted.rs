//! A backend that answers from a script: for orders and answers a kernel will not give on demand.
//!
//! [`scripted`] makes two ends. The [`Scripted`] one goes into
//! [`Loop::with_backend`](crate::Loop::with_backend); the test keeps the [`Script`], looks at what
//! was asked and answers it. Time stands still but for waits and [`Script::advance`].
//!
//! # Unsafe
//! A script may answer a receive with bytes: it writes them to the memory of a request that has not
//! ended, which the loop keeps valid (point 4 of the contract).

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::{
    Backend, BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission,
    TickEnd, TickWait, Token,
};
use crate::op::{Control, Reply, SocketOption, SocketOptionName};

/// A request the loop made.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Its name.
    pub token: Token,
    /// What was asked.
    pub request: Request,
    /// It was answered for the last time.
    pub ended: bool,
    /// The loop asked for it to end.
    pub canceled: bool,
}

#[derive(Debug)]
struct State {
    now_ns: u64,
    asked: Vec<Asked>,
    completions: VecDeque<Completion>,
    provided: VecDeque<u16>,
    memory: Option<BufferMemory>,
    /// Requests and cancels taken between two ticks.
    room: usize,
    room_left: usize,
    answer_cancels: bool,
    at_once: VecDeque<i32>,
    replies: VecDeque<io::Result<Reply<RawFd>>>,
    released: Vec<RawFd>,
    next_fd: RawFd,
    waits: Vec<TickWait>,
    forked: bool,
    woken: Arc<AtomicBool>,
    statistics: BackendStatistics,
}

/// The loop's end of a script.
#[derive(Debug)]
pub struct Scripted {
    state: Rc<RefCell<State>>,
}

/// The test's end of a script.
#[derive(Clone, Debug)]
pub struct Script {
    state: Rc<RefCell<State>>,
}

/// The first descriptor number a script gives out: far from any real one.
const FIRST_FD: RawFd = 1_000_000;

/// Makes both ends of a script.
pub fn scripted() -> (Scripted, Script) {
    let state = Rc::new(RefCell::new(State {
        now_ns: 1_000_000_000,
        asked: Vec::new(),
        completions: VecDeque::new(),
        provided: VecDeque::new(),
        memory: None,
        room: usize::MAX,
        room_left: usize::MAX,
        answer_cancels: true,
        at_once: VecDeque::new(),
        replies: VecDeque::new(),
        released: Vec::new(),
        next_fd: FIRST_FD,
        waits: Vec::new(),
        forked: false,
        woken: Arc::new(AtomicBool::new(false)),
        statistics: BackendStatistics::default(),
    }));
    (Scripted { state: state.clone() }, Script { state })
}

impl Script {
    /// Everything asked so far, in order. Calls answered at once are not among it.
    pub fn asked(&self) -> Vec<Asked> {
        self.state.borrow().asked.clone()
    }

    /// Answers the `nth` thing asked, for the last time.
    ///
    /// # Panics
    /// When that would be a receive of bytes that [`answer_bytes`](Script::answer_bytes) did not write.
    pub fn answer(&self, nth: usize, result: i32) {
        self.assert_no_bytes(nth, result);
        self.put(nth, result, false, None);
    }

    /// Answers the `nth` thing asked; more answers will follow.
    ///
    /// # Panics
    /// As [`answer`](Script::answer) does.
    pub fn answer_more(&self, nth: usize, result: i32) {
        self.assert_no_bytes(nth, result);
        self.put(nth, result, true, None);
    }

    /// Answers the `nth` thing asked, a receive, with bytes: into its memory, or into a provided
    /// buffer; `-ENOBUFS` if there is none.
    ///
    /// # Panics
    /// When it is not a receive.
    pub fn answer_bytes(&self, nth: usize, bytes: &[u8], more: bool) {
        let asked = self.state.borrow().asked[nth];
        assert!(!asked.ended, "a script answered request {nth} after its end");
        let (target, room, buffer) = match asked.request {
            Request::Receive { pointer, length, .. } | Request::ReadAt { pointer, length, .. } => {
                (pointer, length as usize, None)
            }
            Request::ReceivePicked { .. } => {
                let mut state = self.state.borrow_mut();
                let memory = state.memory.expect("the loop attaches its buffers first");
                let Some(buffer) = state.provided.pop_front() else {
                    drop(state);
                    return self.put(nth, -libc::ENOBUFS, false, None);
                };
                let offset = buffer as usize * memory.stride;
                (memory.base.wrapping_add(offset), memory.bytes as usize, Some(buffer))
            }
            Request::Nop
            | Request::Accept { .. }
            | Request::Connect { .. }
            | Request::Send { .. }
            | Request::SendVectored { .. }
            | Request::Poll { .. }
            | Request::Shutdown { .. }
            | Request::WriteAt { .. } => panic!("request {nth} receives no bytes"),
        };
        let count = bytes.len().min(room);
        // SAFETY: the request has not ended, so its memory, or the buffer provided to us, is valid
        // for writes (points 4 and 6 of the contract), and `count` is within its length.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, count) };
        self.put(nth, count as i32, more, buffer);
    }

    fn assert_no_bytes(&self, nth: usize, result: i32) {
        let receives = match self.state.borrow().asked[nth].request {
            Request::Receive { .. } | Request::ReceivePicked { .. } => true,
            Request::Nop
            | Request::Accept { .. }
            | Request::Connect { .. }
            | Request::Send { .. }
            | Request::SendVectored { .. }
            | Request::Poll { .. }
            | Request::Shutdown { .. }
            | Request::ReadAt { .. }
            | Request::WriteAt { .. } => false,
        };
        assert!(!receives || result <= 0, "answer a receive with bytes by answer_bytes");
    }

    fn put(&self, nth: usize, result: i32, more: bool, buffer: Option<u16>) {
        self.state.borrow_mut().complete(nth, result, more, buffer);
    }

    /// Puts a completion that answers nothing that was asked.
    ///
    /// # Panics
    /// When it names a request that has not ended, or a buffer: those are the loop's to trust.
    pub fn intrude(&self, completion: Completion) {
        let state = self.state.borrow();
        let live = state.asked.iter().any(|asked| asked.token == completion.token && !asked.ended);
        assert!(!live && completion.buffer.is_none(), "an intruder answers nothing that was asked");
        drop(state);
        self.state.borrow_mut().completions.push_back(completion);
    }

    /// Takes at most this many requests and cancels between two ticks, and answers `Full` then.
    pub fn set_room(&self, room: usize) {
        let mut state = self.state.borrow_mut();
        state.room = room;
        state.room_left = room;
    }

    /// Whether a cancel is answered by `-ECANCELED` at once (as at first), or left to the script.
    pub fn answer_cancels(&self, answer: bool) {
        self.state.borrow_mut().answer_cancels = answer;
    }

    /// Answers the next requests at once with these results.
    pub fn answer_at_once(&self, results: &[i32]) {
        self.state.borrow_mut().at_once.extend(results);
    }

    /// Answers the next cold call with this in place of a plain success.
    pub fn reply(&self, reply: io::Result<Reply<RawFd>>) {
        self.state.borrow_mut().replies.push_back(reply);
    }

    /// Descriptors the loop closed.
    pub fn released(&self) -> Vec<RawFd> {
        self.state.borrow().released.clone()
    }

    /// The waits the loop asked for.
    pub fn waits(&self) -> Vec<TickWait> {
        self.state.borrow().waits.clone()
    }

    /// Lets time pass.
    pub fn advance(&self, ns: u64) {
        self.state.borrow_mut().now_ns += ns;
    }

    /// From here on the process counts as a child of the loop's.
    pub fn fork(&self) {
        self.state.borrow_mut().forked = true;
    }
}

/// An option that nobody has set.
fn unset(name: SocketOptionName) -> SocketOption {
    match name {
        SocketOptionName::ReuseAddress => SocketOption::ReuseAddress(false),
        SocketOptionName::ReusePort => SocketOption::ReusePort(false),
        SocketOptionName::KeepAlive => SocketOption::KeepAlive(false),
        SocketOptionName::Linger => SocketOption::Linger(None),
        SocketOptionName::QuickAck => SocketOption::QuickAck(false),
        SocketOptionName::TimeToLive => SocketOption::TimeToLive(64),
        SocketOptionName::ReceiveBuffer => SocketOption::ReceiveBuffer(0),
        SocketOptionName::SendBuffer => SocketOption::SendBuffer(0),
    }
}

impl State {
    fn complete(&mut self, nth: usize, result: i32, more: bool, buffer: Option<u16>) {
        let asked = &mut self.asked[nth];
        assert!(!asked.ended, "a script answered request {nth} after its end");
        asked.ended = !more;
        let token = asked.token;
        let completion = Completion { token, result, more, buffer, socket_nonempty: false };
        self.completions.push_back(completion);
    }

    fn take_room(&mut self) -> bool {
        let taken = self.room_left > 0;
        self.room_left = self.room_left.saturating_sub(1);
        taken
    }

    fn at_once(request: &Request) -> bool {
        match request {
            Request::Receive { now, .. }
            | Request::Send { now, .. }
            | Request::SendVectored { now, .. } => *now,
            Request::Nop
            | Request::Accept { .. }
            | Request::Connect { .. }
            | Request::ReceivePicked { .. }
            | Request::Poll { .. }
            | Request::Shutdown { .. }
            | Request::ReadAt { .. }
            | Request::WriteAt { .. } => false,
        }
    }
}

// SAFETY: a request's memory is written only before its last completion is queued; nothing is
// touched in a child; buffers are taken from those provided, each once. The script's author decides
// the answers; an answer after the last one stops at an assertion.
unsafe impl Backend for Scripted {
    fn describe(&self) -> &'static str {
        "scripted"
    }

    fn check(&self) -> Result<(), ForkedChild> {
        if self.state.borrow().forked { Err(ForkedChild) } else { Ok(()) }
    }

    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        self.state.borrow_mut().memory = Some(memory);
        Ok(())
    }

    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission {
        let mut state = self.state.borrow_mut();
        if let Some(result) = state.at_once.pop_front() {
            return Submission::Done(result);
        }
        if State::at_once(request) {
            return Submission::Done(-libc::EAGAIN);
        }
        if !state.take_room() {
            return Submission::Full;
        }
        state.asked.push(Asked { token, request: *request, ended: false, canceled: false });
        Submission::Queued
    }

    fn cancel(&mut self, token: Token) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.take_room() {
            return false;
        }
        let live = state.asked.iter().position(|asked| asked.token == token && !asked.ended);
        if let Some(nth) = live {
            state.asked[nth].canceled = true;
            if state.answer_cancels {
                state.complete(nth, -libc::ECANCELED, false, None);
            }
        }
        true
    }

    fn provide(&mut self, buffer: u16) {
        self.state.borrow_mut().provided.push_back(buffer);
    }

    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
        let mut state = self.state.borrow_mut();
        if let Some(reply) = state.replies.pop_front() {
            return reply;
        }
        match control {
            Control::Listen { .. } | Control::OpenStream { .. } | Control::Duplicate(_) => {
                state.next_fd += 1;
                Ok(Reply::Opened(state.next_fd))
            }
            Control::LocalAddress(_) | Control::PeerAddress(_) => {
                Ok(Reply::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))))
            }
            Control::SetNoDelay(..)
            | Control::Shutdown(..)
            | Control::Set(..)
            | Control::Bind(..)
            | Control::StartListening(..) => Ok(Reply::Done),
            Control::Get(_, name) => Ok(Reply::Option(unset(*name))),
            Control::TakeError(_) => Ok(Reply::Error(None)),
            Control::NoDelay(_) => Ok(Reply::Flag(false)),
            Control::Unread(_) | Control::Unsent(_) | Control::Discard(..) => Ok(Reply::Count(0)),
        }
    }

    fn release(&mut self, fd: RawFd) {
        self.state.borrow_mut().released.push(fd);
    }

    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        let mut state = self.state.borrow_mut();
        state.waits.push(wait);
        state.statistics.enters += 1;
        state.room_left = state.room;
        let woken = state.woken.swap(false, Ordering::AcqRel);
        if woken || !state.completions.is_empty() {
            return Ok(TickEnd::Event);
        }
        match wait {
            TickWait::Zero => Ok(TickEnd::Polled),
            TickWait::AtMost(ns) => {
                state.now_ns = state.now_ns.saturating_add(ns);
                Ok(TickEnd::TimedOut)
            }
            TickWait::Forever => Err(io::Error::other("the script has nothing left to answer")),
        }
    }

    fn next(&mut self) -> Option<Completion> {
        self.state.borrow_mut().completions.pop_front()
    }

    fn now(&self) -> u64 {
        self.state.borrow().now_ns
    }

    fn granularity_ns(&self) -> u64 {
        1
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let woken = self.state.borrow().woken.clone();
        Arc::new(move || woken.store(true, Ordering::Release))
    }

    fn statistics(&self) -> BackendStatistics {
        self.state.borrow().statistics
    }
}
