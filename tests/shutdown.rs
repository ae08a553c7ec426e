//! How a runtime ends: within its bound, with everything closed, dropped once, and nothing in the way
//! of destructors.

#[path = "support/backend.rs"]
mod backend;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener as PeerListener, TcpStream as Peer};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rotor::backend::scripted::{Script, Scripted, scripted};
use rotor::backend::{
    Backend, BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission,
    TickEnd, TickWait, Token,
};
use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, File, Options, Runtime};
use rotor::{Control, DescriptorKind, Event, Loop, Operation, OwnedOperation, Reply, Wait};

/// Descriptors and memory are the process's: tests that count them share it with nobody.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn small() -> Options {
    Options {
        operations: 64,
        sockets: 16,
        timers: 16,
        tasks: 16,
        task_bytes: 512,
        buffers: 16,
        buffer_bytes: 1024,
        ring_entries: 16,
        ..Options::default()
    }
}

/// Polls a future once, outside of any task.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts its drops.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Runs a closure when dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A scripted backend on which cancels of file reads are without effect, as they may be on a disk.
struct Stubborn {
    scripted: Scripted,
    reads: Vec<Token>,
}

// SAFETY: everything is the scripted backend's, which keeps the contract; a cancel is a request.
unsafe impl Backend for Stubborn {
    fn describe(&self) -> &'static str {
        "stubborn"
    }
    fn check(&self) -> Result<(), ForkedChild> {
        self.scripted.check()
    }
    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        // SAFETY: the caller's word.
        unsafe { self.scripted.attach(memory) }
    }
    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission {
        if matches!(request, Request::ReadAt { .. }) {
            self.reads.push(token);
        }
        // SAFETY: the caller's word.
        unsafe { self.scripted.submit(token, request) }
    }
    fn cancel(&mut self, token: Token) -> bool {
        self.reads.contains(&token) || self.scripted.cancel(token)
    }
    fn provide(&mut self, buffer: u16) {
        self.scripted.provide(buffer);
    }
    fn control(&mut self, control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
        self.scripted.control(control)
    }
    fn release(&mut self, fd: RawFd) {
        self.scripted.release(fd);
    }
    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        self.scripted.tick(wait)
    }
    fn next(&mut self) -> Option<Completion> {
        self.scripted.next()
    }
    fn now(&self) -> u64 {
        self.scripted.now()
    }
    fn granularity_ns(&self) -> u64 {
        self.scripted.granularity_ns()
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.scripted.waker()
    }
    fn statistics(&self) -> BackendStatistics {
        self.scripted.statistics()
    }
}

/// A runtime on that backend with a read of a file, a read of a stream, an accept and a sleep pending
/// in tasks. The drops of the tasks are counted.
fn stubborn(drain: Duration, drops: &Rc<Cell<u32>>) -> (Runtime, Script) {
    let (backend, script) = scripted();
    let backend = Stubborn { scripted: backend, reads: Vec::new() };
    let builder = Builder::new().operations(64).sockets(16).timers(16).tasks(16).buffers(16);
    let runtime = builder.drain(drain).build_with_backend(Box::new(backend)).unwrap();
    let asking = script.clone();
    let drops = drops.clone();
    runtime.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:9").await.unwrap();
        let mut connecting = Box::pin(TcpStream::connect("127.0.0.1:9"));
        assert!(poll_once(&mut connecting).is_pending());
        asking.answer(0, 0);
        let mut stream = connecting.await.unwrap();
        let file = File::adopt(std::fs::File::open("/dev/null").unwrap()).unwrap();
        let guards: [Counted; 4] = std::array::from_fn(|_| Counted(drops.clone()));
        let [one, two, three, four] = guards;
        let tasks = [
            rotor::spawn(async move {
                let _guard = one;
                file.read_at(vec![0; 4096], 0).await.0.unwrap();
            }),
            rotor::spawn(async move {
                let _guard = two;
                stream.read(&mut [0; 16]).await.unwrap();
            }),
            rotor::spawn(async move {
                let _guard = three;
                listener.accept().await.unwrap();
            }),
            rotor::spawn(async move {
                let _guard = four;
                rotor::time::sleep(Duration::MAX / 2).await;
            }),
        ];
        rotor::task::yield_now().await;
        assert!(tasks.iter().all(|task| !task.is_finished()));
    });
    (runtime, script)
}

#[test]
fn a_shutdown_gives_up_an_operation_that_never_ends_at_its_bound_and_reports_it() {
    let _alone = alone();
    for drain in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(3)] {
        let drops = Rc::new(Cell::new(0));
        let (runtime, script) = stubborn(drain, &drops);
        let waits_before = script.waits().len();
        let leaked_before = rotor::runtime::leaked_total();
        let report = runtime.shut_down();
        assert_eq!((report.leaked, report.resets), (1, 0));
        assert_eq!(rotor::runtime::leaked_total() - leaked_before, 1);
        assert_eq!(drops.get(), 4);
        let waited_ns: u64 = script.waits()[waits_before..]
            .iter()
            .map(|wait| match wait {
                TickWait::Zero => 0,
                TickWait::AtMost(ns) => *ns,
                TickWait::Forever => panic!("a shutdown waits for ever"),
            })
            .sum();
        let bound_ns = drain.as_nanos() as u64;
        assert!(waited_ns.abs_diff(bound_ns) <= 10, "{waited_ns} of {bound_ns} ns");
        let asked = script.asked();
        let unended: Vec<usize> = (0..asked.len()).filter(|&n| !asked[n].ended).collect();
        assert_eq!(unended.len(), 1, "all others were ended");
        // Everything is dropped; the late answer writes what was kept for it. (The test of the
        // quarantine, and the address sanitizer, see where it goes.)
        script.answer_bytes(unended[0], &[7; 4096], false);
    }
}

/// The kernel holds a send for as long as the peer takes nothing, but ends it when told to.
#[test]
fn a_drain_gives_up_sends_no_peer_takes_and_leaks_nothing() {
    let _alone = alone();
    let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for close_first in [false, true] {
        let mut event_loop = Loop::new(&small()).unwrap();
        let ours = Peer::connect(listening.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listening.accept().unwrap();
        let descriptor = event_loop.adopt(ours.into(), DescriptorKind::Stream).unwrap();
        for n in 0..3 {
            let send = OwnedOperation::Send { descriptor };
            event_loop.submit_owned(send, vec![1; 8 << 20], n).unwrap();
        }
        if close_first {
            event_loop.submit(Operation::close(descriptor), 9).unwrap();
        }
        let mut events = [Event::EMPTY; 8];
        event_loop.tick(&mut events, Wait::AtMost(Duration::from_millis(10))).unwrap();
        let drained = event_loop.drain(Duration::from_millis(50));
        assert_eq!((drained.leaked, drained.resets), (0, 1), "closed first: {close_first}");
        let statistics = event_loop.statistics();
        assert_eq!((statistics.operations.now, statistics.sockets.now), (0, 0));
        let mut rest = Vec::new();
        let _ = peer.read_to_end(&mut rest);
        assert!(rest.len() < 24 << 20);
    }
}

/// What is open, by number.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes of address space, and of memory in use.
fn memory() -> [usize; 2] {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<usize> = statm.split(' ').take(2).map(|word| word.parse().unwrap()).collect();
    [pages[0] * 4096, pages[1] * 4096]
}

/// A runtime that is dropped with an accept, reads of a stream, a file and a pipe, and a sleep pending.
fn live_and_die(listening: &PeerListener, drops: &Rc<Cell<u32>>) {
    let runtime = match Runtime::with_options(&small()) {
        Ok(runtime) => runtime,
        // The kernel frees a ring in a thread of its own, after it was closed.
        Err(error) if error.to_string().contains("locked memory") => {
            std::thread::sleep(Duration::from_millis(20));
            Runtime::with_options(&small()).unwrap()
        }
        Err(error) => panic!("{error}"),
    };
    let drops = drops.clone();
    runtime.block_on(async move {
        let address = listening.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (mut peer, _) = listening.accept().unwrap();
        peer.write_all(b"unread").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let file = File::adopt(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        let (reading, writing) = pipe();
        let pipe = File::adopt(reading).unwrap();
        let guards: [Counted; 5] = std::array::from_fn(|_| Counted(drops.clone()));
        let [one, two, three, four, five] = guards;
        drop(rotor::spawn(async move {
            let _guard = one;
            listener.accept().await.unwrap();
        }));
        drop(rotor::spawn(async move {
            let _guard = (two, peer);
            stream.read_exact(&mut [0; 100]).await.unwrap();
        }));
        drop(rotor::spawn(async move {
            let _guard = three;
            rotor::time::sleep(Duration::from_secs(3600)).await;
        }));
        drop(rotor::spawn(async move {
            let _guard = (four, writing);
            // On epoll it is refused at once.
            let read = pipe.read_at(vec![0; 4096], 0).await.0;
            assert!(read.is_ok() || !backend::is_uring(), "{read:?}");
            std::future::pending::<()>().await;
        }));
        // The unread bytes arrive, and the next receive goes on behind them.
        rotor::time::sleep(Duration::from_millis(1)).await;
        drop(rotor::spawn(async move {
            let _guard = five;
            let read = file.read_at(vec![0; 65_536], 0).await.0;
            assert!(read.is_ok() || !backend::is_uring(), "{read:?}");
            std::future::pending::<()>().await;
        }));
        rotor::task::yield_now().await;
    });
    // The pipe's read is one of them, where files can be read.
    let least = if backend::is_uring() { 3 } else { 2 };
    assert!(runtime.statistics().event_loop.operations.now >= least);
}

fn pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: pipe2(2) writes two numbers into the array.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: both were opened above and belong to nobody else.
    let [reading, writing] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    (reading.into(), writing.into())
}

#[test]
fn a_thousand_runtimes_dropped_with_work_in_flight_leave_nothing_behind() {
    let _alone = alone();
    let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let drops = Rc::new(Cell::new(0));
    let mut at_100 = (0, [0; 2]);
    for n in 1..=1000 {
        live_and_die(&listening, &drops);
        assert_eq!(drops.get(), 5 * n, "each task is dropped once");
        if n == 100 {
            at_100 = (descriptors(), memory());
        }
    }
    let at_1000 = (descriptors(), memory());
    println!("descriptors and bytes after 100: {at_100:?}, after 1,000: {at_1000:?}");
    assert_eq!(at_1000.0, at_100.0);
    if at_100.1[0] > 1 << 40 {
        println!(
            "skipped: memory, since a sanitizer with its shadow in a terabyte keeps what is freed"
        );
    } else {
        for (before, after) in at_100.1.into_iter().zip(at_1000.1) {
            // Not a kilobyte a runtime. A page more or less is the allocator's.
            assert!(after < before + 900 * 1024, "{before} bytes grew to {after}");
        }
    }
    assert_eq!(Rc::strong_count(&drops), 1);
}

#[test]
fn a_destructor_may_spawn_submit_and_use_streams_while_the_runtime_ends() {
    let _alone = alone();
    let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let runtime = Runtime::with_options(&small()).unwrap();
    let (drops, spawned) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let ran = drops.clone();
    let reached = spawned.clone();
    let mut peer = runtime.block_on(async move {
        let address = listening.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (peer, _) = listening.accept().unwrap();
        let file = File::adopt(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        let on_drop = OnDrop(move || {
            let mut cx = Context::from_waker(Waker::noop());
            let inside = Counted(spawned.clone());
            let mut handle = rotor::spawn(async move { drop(inside) });
            let Poll::Ready(Err(error)) = poll_once(&mut handle) else {
                panic!("a task that can never run must be canceled");
            };
            assert!(error.is_cancelled());
            let written = stream.poll_write(&mut cx, b"the last words");
            assert!(matches!(written, Poll::Ready(Ok(14))), "{written:?}");
            assert!(stream.poll_read(&mut cx, &mut [0; 8]).is_pending());
            stream.set_nodelay(true).unwrap();
            let mut read = file.read_at(vec![0; 4096], 0);
            assert!(poll_once(&mut read).is_pending());
            std::mem::forget(read);
            let mut sleep = Box::pin(rotor::time::sleep(Duration::from_secs(9)));
            assert!(poll_once(&mut sleep).is_pending());
            let mut connecting = Box::pin(TcpStream::connect(address));
            assert!(poll_once(&mut connecting).is_pending());
            std::mem::forget(connecting);
            drops.set(drops.get() + 1);
        });
        drop(rotor::spawn(async move {
            let _on_drop = on_drop;
            std::future::pending::<()>().await;
        }));
        rotor::task::yield_now().await;
        peer
    });
    let report = runtime.shut_down();
    assert_eq!((report.leaked, report.resets), (0, 0));
    assert_eq!((ran.get(), reached.get()), (1, 1));
    let mut heard = String::new();
    peer.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "the last words");
}

#[test]
fn a_runtime_may_end_inside_another_which_goes_on() {
    let _alone = alone();
    let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let drops = Rc::new(Cell::new(0));
    let outer = Runtime::with_options(&small()).unwrap();
    let inner = Runtime::with_options(&small()).unwrap();
    let address = listening.local_addr().unwrap();
    let guard = Counted(drops.clone());
    let stream = inner.block_on(TcpStream::connect(address)).unwrap();
    let ending = {
        let on_drop = OnDrop(move || {
            let _ = (&guard, stream.set_nodelay(true).unwrap());
            drop(rotor::spawn(async {}));
        });
        inner.spawn(async move {
            let _on_drop = on_drop;
            std::future::pending::<()>().await;
        })
    };
    outer.block_on(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        drop(inner);
        assert!(ending.is_finished() && drops.get() == 1);
        stream.set_nodelay(true).unwrap();
        rotor::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(rotor::spawn(async { 7 }).await.unwrap(), 7);
    });
}

#[test]
fn what_outlives_its_runtime_says_so() {
    let _alone = alone();
    let runtime = Runtime::with_options(&small()).unwrap();
    let (mut stream, listener, file, mut read, mut sleep) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let file = File::adopt(pipe().0).unwrap();
        let mut read = file.read_at(vec![0; 64], 0);
        let mut sleep = Box::pin(rotor::time::sleep(Duration::from_secs(9)));
        assert!(poll_once(&mut sleep).is_pending());
        let _ = poll_once(&mut read);
        (stream, listener, file, read, sleep)
    });
    drop(runtime);
    let gone = |error: io::Error| {
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(error.to_string().ends_with("is gone"), "{error}");
    };
    let mut cx = Context::from_waker(Waker::noop());
    match stream.poll_read(&mut cx, &mut [0; 8]) {
        Poll::Ready(Err(error)) => gone(error),
        other => panic!("{other:?}"),
    }
    gone(listener.local_addr().unwrap_err());
    match poll_once(&mut read) {
        Poll::Ready((Err(error), _)) => gone(error),
        other => panic!("{other:?}"),
    }
    let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll_once(&mut sleep)));
    let words = *polled.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(words, "rotor: the runtime of this Sleep is gone");
    drop((stream, listener, file, read, sleep));
}

thread_local! {
    static KEPT: RefCell<Option<(Runtime, TcpStream)>> = const { RefCell::new(None) };
}

static DROPPED_WITH_THREAD: AtomicU32 = AtomicU32::new(0);

/// Leaves a runtime with pending tasks, and a stream of its, in the thread's storage.
fn leave_in_storage(listening: &PeerListener) {
    let runtime = Runtime::with_options(&small()).unwrap();
    let stream = runtime.block_on(async {
        let address = listening.local_addr().unwrap();
        let mut other = TcpStream::connect(address).await.unwrap();
        let guard = OnDrop(|| {
            DROPPED_WITH_THREAD.fetch_add(1, Ordering::Relaxed);
        });
        drop(rotor::spawn(async move {
            let _guard = guard;
            other.read(&mut [0; 8]).await.unwrap();
        }));
        rotor::task::yield_now().await;
        TcpStream::connect(address).await.unwrap()
    });
    KEPT.set(Some((runtime, stream)));
}

/// The order in which a thread's values are destroyed depends on which was used first.
#[test]
fn a_runtime_in_a_threads_storage_ends_with_the_thread() {
    let _alone = alone();
    let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let before = descriptors();
    let mut peers: Vec<Peer> = Vec::new();
    for storage_first in [false, true] {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if storage_first {
                    KEPT.set(None);
                }
                leave_in_storage(&listening);
            });
            peers.extend([listening.accept().unwrap().0, listening.accept().unwrap().0]);
            thread.join().unwrap();
        });
    }
    assert_eq!(DROPPED_WITH_THREAD.load(Ordering::Relaxed), 2);
    for peer in &mut peers {
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "every stream is closed");
    }
    drop(peers);
    let begun = Instant::now();
    while descriptors() > before {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} > {before}", descriptors());
        std::thread::yield_now();
    }
}
