//! The engine under a scripted selector, with real sockets: every order of events that epoll and
//! kqueue may give, and some they should not.
//!
//! # Unsafe
//! Requests carry pointers; each here is to memory that outlives the bench.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::rc::Rc;

use super::selector::{Found, Key};
use super::*;
use crate::address::RawAddress;

mod orders;
mod requests;

/// What a script tells, and what it was asked.
#[derive(Default)]
struct Script {
    /// Told by the next waits, a batch each.
    batches: VecDeque<Vec<Found>>,
    batch: VecDeque<Found>,
    /// Arms: number, key, directions.
    armed: Vec<(RawFd, Key, u8)>,
    disarmed: Vec<RawFd>,
    waits: Vec<Option<u64>>,
    /// The next arm's error.
    refuses: Option<i32>,
    woken: bool,
    sends_may_wait: bool,
    needs_in_vain: bool,
}

#[derive(Default)]
struct Scripted(Rc<RefCell<Script>>);

impl Selector for Scripted {
    fn describe(&self) -> &'static str {
        "scripted selector"
    }

    fn arm(&mut self, fd: RawFd, key: Key, wanted: u8, _before: u8) -> Result<(), i32> {
        let mut script = self.0.borrow_mut();
        if let Some(errno) = script.refuses.take() {
            return Err(errno);
        }
        script.armed.push((fd, key, wanted));
        Ok(())
    }

    fn disarm(&mut self, fd: RawFd, _armed: u8) {
        self.0.borrow_mut().disarmed.push(fd);
    }

    /// Passes the time of a wait that nothing ends.
    fn wait(&mut self, wait_ns: Option<u64>) -> Result<bool, i32> {
        let mut script = self.0.borrow_mut();
        script.waits.push(wait_ns);
        let batch = script.batches.pop_front();
        if batch.is_none() && !script.woken {
            let ns = wait_ns.expect("the script has nothing left, and the wait is for ever");
            std::thread::sleep(std::time::Duration::from_nanos(ns));
        }
        script.batch = batch.unwrap_or_default().into();
        Ok(std::mem::take(&mut script.woken))
    }

    fn found(&mut self) -> Option<Found> {
        self.0.borrow_mut().batch.pop_front()
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| {})
    }

    fn sends_may_wait(&self) -> bool {
        self.0.borrow().sends_may_wait
    }

    fn tells_after_short(&self) -> bool {
        !self.0.borrow().needs_in_vain
    }

    fn granularity_ns(&self) -> u64 {
        1
    }
}

const BUFFERS: u32 = 4;
const BUFFER_BYTES: u32 = 64;

/// An engine, its script and its memory, in the order they are dropped.
struct Bench {
    engine: Engine<Scripted>,
    script: Rc<RefCell<Script>>,
    buffers: Vec<u8>,
    _arena: Arena,
}

impl Bench {
    fn new() -> Bench {
        let sizes = Sizes { tokens: 64, descriptors: 300, buffers: BUFFERS };
        let mut plan = Plan::default();
        Engine::<Scripted>::plan(&mut plan, sizes);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let selector = Scripted::default();
        let script = selector.0.clone();
        let guard = ForkGuard::new().unwrap();
        let mut engine = Engine::new(&mut arena, sizes, selector, guard);
        let mut buffers = vec![0; (BUFFERS * BUFFER_BYTES) as usize];
        let memory = BufferMemory {
            base: buffers.as_mut_ptr(),
            stride: BUFFER_BYTES as usize,
            count: BUFFERS,
            bytes: BUFFER_BYTES,
            ring: std::ptr::null_mut(),
            ring_entries: BUFFERS,
        };
        // SAFETY: the bench drops the engine before the buffers.
        unsafe { engine.attach(memory) }.unwrap();
        Bench { engine, script, buffers, _arena: arena }
    }

    fn submit(&mut self, index: u32, request: &Request) -> Submission {
        // SAFETY: the tests' memory is leaked or outlives the bench.
        unsafe { self.engine.submit(token(index), request) }
    }

    #[track_caller]
    fn queue(&mut self, index: u32, request: &Request) {
        assert_eq!(self.submit(index, request), Submission::Queued);
    }

    /// The newest key of a number.
    #[track_caller]
    fn key(&self, fd: RawFd) -> Key {
        let script = self.script.borrow();
        let armed = script.armed.iter().rev().find(|armed| armed.0 == fd);
        armed.expect("the number was never armed").1
    }

    fn tell(&self, key: Key, ready: u8) -> Found {
        Found { key, ready, over: false }
    }

    /// One tick that does not wait, in which the selector tells this; the answers.
    fn tick(&mut self, found: &[Found]) -> Vec<Completion> {
        self.script.borrow_mut().batches.push_back(found.to_vec());
        self.engine.tick(TickWait::Zero).unwrap();
        self.answers()
    }

    fn answers(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.engine.next()).collect()
    }

    fn provide_all(&mut self) {
        (0..BUFFERS as u16).for_each(|buffer| self.engine.provide(buffer));
    }
}

fn token(index: u32) -> Token {
    Token::new(index, index + 100)
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Waits until the kernel has brought that many bytes.
fn wait_unread(fd: RawFd, bytes: u64) {
    loop {
        match descriptor::perform(&Control::Unread(fd)).unwrap() {
            Reply::Count(count) if count >= bytes => return,
            _ => std::thread::yield_now(),
        }
    }
}

/// A receive into memory that is never freed.
fn receive(fd: RawFd, length: usize) -> (Request, *const u8) {
    let memory = Box::leak(vec![0_u8; length].into_boxed_slice());
    let pointer = memory.as_mut_ptr();
    (Request::Receive { fd, pointer, length: length as u32, now: false }, pointer)
}

fn picked(fd: RawFd) -> Request {
    Request::ReceivePicked { fd, multishot: false }
}

fn poll(fd: RawFd, interest: Interest) -> Request {
    Request::Poll { fd, interest }
}

fn send(fd: RawFd, bytes: &'static [u8]) -> Request {
    Request::Send { fd, pointer: bytes.as_ptr(), length: bytes.len() as u32, now: false }
}

/// Fills a socket until nothing more fits; how many bytes that were.
fn fill(fd: RawFd) -> usize {
    static CHUNK: [u8; 1 << 16] = [3; 1 << 16];
    let mut sent = 0;
    loop {
        // SAFETY: static memory.
        match unsafe { descriptor::send_now(fd, CHUNK.as_ptr(), CHUNK.len() as u32) } {
            error if error == -libc::EAGAIN => return sent,
            count => sent += usize::try_from(count).unwrap(),
        }
    }
}

fn is_blocking(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}

#[track_caller]
fn one(answers: Vec<Completion>) -> Completion {
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers[0]
}
