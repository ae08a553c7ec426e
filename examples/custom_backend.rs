//! A backend of the program's own: a network that is nothing but memory, with time that passes only
//! while everybody waits. Runs the same in no time, every time. Needs the feature `unstable`.
//!
//!     cargo run --example custom_backend
//!
//! # Unsafe
//! Requests carry pointers, which are valid until the request's last completion (the contract in
//! `rotor::backend`). They are used in `Memory::perform` only, which runs before that completion.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rotor::backend::{
    Backend, BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission,
    TickEnd, TickWait, Token,
};
use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::Builder;
use rotor::{Control, Interest, RawAddress, Reply};

/// A socket: bytes that have arrived, and connections that nobody has accepted.
struct Socket {
    /// Connections may come to it. Those that it accepted have its address too.
    listening: bool,
    address: SocketAddr,
    peer: Option<RawFd>,
    arrived: VecDeque<u8>,
    /// The peer will send no more.
    ended: bool,
    backlog: VecDeque<RawFd>,
}

#[derive(Default)]
struct Memory {
    now_ns: u64,
    last_fd: RawFd,
    /// In the order of their numbers, so that every run goes the same way.
    sockets: BTreeMap<RawFd, Socket>,
    waiting: Vec<(Token, Request)>,
    completions: VecDeque<Completion>,
    buffers: Option<BufferMemory>,
    provided: Vec<u16>,
    woken: Arc<Woken>,
    statistics: BackendStatistics,
}

/// Whether a wake-up came that has not ended a tick's wait yet. Other threads set it.
#[derive(Default)]
struct Woken {
    flag: Mutex<bool>,
    changed: Condvar,
}

impl Woken {
    fn wake(&self) {
        *self.flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn take(&self) -> bool {
        std::mem::take(&mut *self.flag.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn wait(&self) {
        let mut woken = self.flag.lock().unwrap_or_else(PoisonError::into_inner);
        while !std::mem::take(&mut *woken) {
            woken = self.changed.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Memory {
    fn open(&mut self, address: SocketAddr, peer: Option<RawFd>) -> RawFd {
        self.last_fd += 1;
        let (arrived, backlog) = (VecDeque::new(), VecDeque::new());
        let socket = Socket { listening: false, address, peer, arrived, ended: false, backlog };
        self.sockets.insert(self.last_fd, socket);
        self.last_fd
    }

    fn socket(&mut self, fd: RawFd) -> Result<&mut Socket, i32> {
        self.sockets.get_mut(&fd).ok_or(-libc::EBADF)
    }

    /// Tries a request. Nothing when it would have to wait; else its result and the buffer it used.
    fn perform(&mut self, request: &Request) -> Result<Option<(i32, Option<u16>)>, i32> {
        let done = |result: i32| Ok(Some((result, None)));
        match *request {
            Request::Nop => done(0),
            Request::Accept { fd, address } => {
                let Some(accepted) = self.socket(fd)?.backlog.pop_front() else { return Ok(None) };
                let peer = self.socket(accepted)?.peer;
                let from = peer.and_then(|peer| self.sockets.get(&peer)).map(|peer| peer.address);
                if let Some(from) = from {
                    // SAFETY: the loop keeps the address until the completion.
                    unsafe { address.write(RawAddress::encode(from)) };
                }
                done(accepted)
            }
            Request::Connect { fd, address } => {
                // SAFETY: as above.
                let to = unsafe { (*address).decode() }.map_err(|_| -libc::EAFNOSUPPORT)?;
                let mut sockets = self.sockets.iter();
                let listening = sockets.find(|(_, it)| it.listening && it.address == to);
                let listener = *listening.ok_or(-libc::ECONNREFUSED)?.0;
                let other = self.open(to, Some(fd));
                self.socket(fd)?.peer = Some(other);
                self.socket(listener)?.backlog.push_back(other);
                done(0)
            }
            Request::Receive { fd, pointer, length, .. } => self.take(fd, pointer, length),
            Request::ReceivePicked { fd, .. } => {
                let Some(&buffer) = self.provided.last() else { return Err(-libc::ENOBUFS) };
                let Some(memory) = self.buffers else { return Err(-libc::ENOBUFS) };
                let start = memory.base.wrapping_add(usize::from(buffer) * memory.stride);
                let taken = self.take(fd, start, memory.bytes)?;
                let used = taken.is_some_and(|(count, _)| count > 0);
                let buffer = if used { self.provided.pop() } else { None };
                Ok(taken.map(|(count, _)| (count, buffer)))
            }
            Request::Send { fd, pointer, length, .. } => {
                let peer = self.socket(fd)?.peer.ok_or(-libc::ENOTCONN)?;
                let peer = self.socket(peer).map_err(|_| -libc::EPIPE)?;
                // SAFETY: the memory is valid for reads of that length until the completion.
                let bytes = unsafe { std::slice::from_raw_parts(pointer, length as usize) };
                peer.arrived.extend(bytes);
                done(length as i32)
            }
            Request::Poll { fd, interest } => {
                let socket = self.socket(fd)?;
                let readable =
                    !socket.arrived.is_empty() || socket.ended || !socket.backlog.is_empty();
                let ready = interest == Interest::Writable || readable;
                Ok(ready.then_some((1, None)))
            }
            Request::Shutdown { fd, .. } => {
                self.end(fd);
                done(0)
            }
            // What this network does not do is said so, and the caller gets an error.
            Request::SendVectored { .. } | Request::ReadAt { .. } | Request::WriteAt { .. } => {
                Err(-libc::ENOSYS)
            }
        }
    }

    fn take(
        &mut self,
        fd: RawFd,
        to: *mut u8,
        room: u32,
    ) -> Result<Option<(i32, Option<u16>)>, i32> {
        let socket = self.socket(fd)?;
        let count = socket.arrived.len().min(room as usize);
        if count == 0 && !socket.ended {
            return Ok(None);
        }
        for (offset, byte) in socket.arrived.drain(..count).enumerate() {
            // SAFETY: within the memory of a request that has not completed, or of a buffer provided.
            unsafe { to.add(offset).write(byte) };
        }
        Ok(Some((count as i32, None)))
    }

    fn end(&mut self, fd: RawFd) {
        let peer = self.sockets.get(&fd).and_then(|socket| socket.peer);
        if let Some(peer) = peer.and_then(|peer| self.sockets.get_mut(&peer)) {
            peer.ended = true;
        }
    }

    fn complete(&mut self, token: Token, result: i32, buffer: Option<u16>) {
        let completion = Completion { token, result, more: false, buffer, socket_nonempty: false };
        self.completions.push_back(completion);
    }

    /// Tries everything that waits, until nothing moves.
    fn advance(&mut self) {
        for (token, request) in std::mem::take(&mut self.waiting) {
            match self.perform(&request) {
                Ok(None) => self.waiting.push((token, request)),
                Ok(Some((result, buffer))) => self.complete(token, result, buffer),
                Err(errno) => self.complete(token, errno, None),
            }
        }
    }
}

fn answers_at_once(request: &Request) -> bool {
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

// SAFETY: a request's memory is touched in `perform` only, before its completion is queued, and each
// completes once; a canceled one leaves `waiting`, and moved nothing. A buffer leaves `provided` with
// the completion that names it.
unsafe impl Backend for Memory {
    fn describe(&self) -> &'static str {
        "memory"
    }

    fn check(&self) -> Result<(), ForkedChild> {
        Ok(())
    }

    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        self.buffers = Some(memory);
        Ok(())
    }

    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission {
        if !answers_at_once(request) {
            self.waiting.push((token, *request));
            return Submission::Queued;
        }
        match self.perform(request) {
            Ok(Some((result, _))) => Submission::Done(result),
            Ok(None) => Submission::Done(-libc::EAGAIN),
            Err(errno) => Submission::Done(errno),
        }
    }

    fn cancel(&mut self, token: Token) -> bool {
        if let Some(at) = self.waiting.iter().position(|it| it.0 == token) {
            self.waiting.remove(at);
            self.complete(token, -libc::ECANCELED, None);
        }
        true
    }

    fn provide(&mut self, buffer: u16) {
        self.provided.push(buffer);
    }

    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
        match *control {
            Control::Listen { address, .. } => {
                let fd = self.open(address, None);
                self.sockets.get_mut(&fd).expect("it was just opened").listening = true;
                Ok(Reply::Opened(fd))
            }
            Control::OpenStream { mut family_of } => {
                family_of.set_port(40_000 + self.last_fd as u16);
                Ok(Reply::Opened(self.open(family_of, None)))
            }
            Control::LocalAddress(fd) => {
                let socket =
                    self.socket(fd).map_err(|errno| io::Error::from_raw_os_error(-errno))?;
                Ok(Reply::Address(socket.address))
            }
            Control::Shutdown(fd, _) => {
                self.end(fd);
                Ok(Reply::Done)
            }
            Control::Unread(_) | Control::Unsent(_) | Control::Discard(..) => Ok(Reply::Count(0)),
            Control::PeerAddress(_)
            | Control::SetNoDelay(..)
            | Control::NoDelay(_)
            | Control::Set(..)
            | Control::Get(..)
            | Control::TakeError(_)
            | Control::Bind(..)
            | Control::Duplicate(_)
            | Control::StartListening(..) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn release(&mut self, fd: RawFd) {
        self.end(fd);
        self.sockets.remove(&fd);
    }

    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        self.statistics.enters += 1;
        self.advance();
        if self.woken.take() || !self.completions.is_empty() {
            return Ok(TickEnd::Event);
        }
        match wait {
            TickWait::Zero => Ok(TickEnd::Polled),
            TickWait::AtMost(ns) => {
                self.now_ns += ns;
                Ok(TickEnd::TimedOut)
            }
            // Nothing moves here by itself: only another thread can end this.
            TickWait::Forever => {
                self.woken.wait();
                Ok(TickEnd::Event)
            }
        }
    }

    fn next(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn now(&self) -> u64 {
        self.now_ns
    }

    fn granularity_ns(&self) -> u64 {
        1
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let woken = self.woken.clone();
        Arc::new(move || woken.wake())
    }

    fn statistics(&self) -> BackendStatistics {
        self.statistics
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count]).await?,
        }
    }
}

fn main() -> io::Result<()> {
    let runtime = Builder::new().build_with_backend(Box::new(Memory::default()))?;
    println!("backend: {}", runtime.backend());
    runtime.block_on(async {
        let listener = TcpListener::bind("10.0.0.1:7").await?;
        let server = rotor::spawn(async move {
            let (stream, peer) = listener.accept().await?;
            println!("{peer} has come");
            drop(listener);
            echo(stream).await
        });
        let mut client = TcpStream::connect("10.0.0.1:7").await?;
        for words in ["a network", "of memory"] {
            client.write_all(words.as_bytes()).await?;
            let mut back = vec![0; words.len()];
            client.read_exact(&mut back).await?;
            println!("{} came back", String::from_utf8_lossy(&back));
            // An hour, of the backend's.
            rotor::time::sleep(Duration::from_secs(3600)).await;
        }
        // Nobody listens any more: what was accepted there is no listener.
        let refused = TcpStream::connect("10.0.0.1:7").await.err().map(|error| error.kind());
        println!("another connection: {refused:?}");
        drop(client);
        server.await.map_err(io::Error::other)??;
        println!("{}", from_a_thread().await);
        Ok(())
    })
}

/// Nothing is left to happen in this network, so its tick waits until the thread wakes it.
async fn from_a_thread() -> &'static str {
    let told = Arc::new(OnceLock::new());
    let mut thread = None;
    poll_fn(|cx| {
        if let Some(words) = told.get() {
            return Poll::Ready(*words);
        }
        thread.get_or_insert_with(|| {
            let (told, waker) = (told.clone(), cx.waker().clone());
            std::thread::spawn(move || {
                let _ = told.set("a thread has woken it");
                waker.wake();
            })
        });
        Poll::Pending
    })
    .await
}
