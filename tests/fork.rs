//! A child made by fork gets a named error from everything of its parent's runtime, and the parent
//! never notices.
//!
//! One test: a fork copies one thread, so the fewer there are beside it the better.

#[path = "support/backend.rs"]
mod backend;

use std::io::{Read, Write};
use std::net::TcpStream as Peer;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{File, Options, Runtime};
use rotor::{Event, Loop, Operation, Wait};

const WORDS: &str = "belongs to the parent process";

/// The parent's things, as the child finds them.
struct Inherited {
    runtime: Runtime,
    event_loop: Loop,
    /// An accept is in flight.
    listener: TcpListener,
    /// A receive is in flight.
    reading: TcpStream,
    /// Nothing is.
    idle: TcpStream,
    file: File,
}

/// Runs `inside` in a child process and gives its exit code.
fn in_a_child(inside: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs what follows and ends in `_exit`. The harness's other thread sleeps; it
    // holds no lock that the child takes (glibc makes its allocator usable after a fork).
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(caught.unwrap_or(101)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Whether an answer is the named error.
fn is_named<T>(answer: &Result<T, impl std::fmt::Display>) -> bool {
    answer.as_ref().is_err_and(|error| error.to_string().contains(WORDS))
}

fn is_named_at_once<T>(polled: &Poll<std::io::Result<T>>) -> bool {
    matches!(polled, Poll::Ready(answer) if is_named(answer))
}

fn panics_named(inside: impl FnOnce()) -> bool {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside));
    let words = caught.err().and_then(|words| words.downcast::<String>().ok());
    words.is_some_and(|words| words.contains(WORDS))
}

/// Uses and drops everything. Gives 0, or the number of what did not answer as it should.
fn misuse(inherited: Inherited) -> i32 {
    let Inherited { runtime, mut event_loop, listener, mut reading, mut idle, file } = inherited;
    // The parent's tests print their panics; the child's is expected.
    std::panic::set_hook(Box::new(|_| {}));
    let mut cx = Context::from_waker(Waker::noop());
    let checks = [
        panics_named(|| runtime.block_on(std::future::pending::<()>())),
        panics_named(|| drop(runtime.block_on(reading.read(&mut [0; 16])))),
        panics_named(|| drop(runtime.block_on(listener.accept()))),
        is_named_at_once(&idle.poll_read(&mut cx, &mut [0; 16])),
        is_named_at_once(&idle.poll_write(&mut cx, b"from the child")),
        is_named_at_once(&reading.poll_write(&mut cx, b"from the child")),
        is_named_at_once(&reading.poll_shutdown(&mut cx)),
        is_named(&idle.set_nodelay(true)),
        is_named(&listener.local_addr()),
        {
            let mut read = file.read_at(vec![0; 16], 0);
            let polled = Pin::new(&mut read).poll(&mut cx);
            matches!(polled, Poll::Ready((answer, _)) if is_named(&answer))
        },
        is_named(&event_loop.submit(Operation::nop(), 1)),
        is_named(&event_loop.tick(&mut [Event::EMPTY], Wait::Forever)),
        event_loop.drain(Duration::from_secs(9)) == rotor::Drained::default(),
    ];
    drop((reading, idle, listener, file));
    drop(runtime);
    drop(event_loop);
    // A child may make its own.
    let own = Runtime::with_options(&small()).unwrap();
    let slept = own.block_on(async {
        rotor::time::sleep(Duration::from_millis(1)).await;
        true
    });
    match checks.iter().chain([&slept]).position(|good| !good) {
        None => 0,
        Some(bad) => bad as i32 + 1,
    }
}

fn small() -> Options {
    Options { operations: 64, sockets: 16, tasks: 16, buffers: 16, ..Options::default() }
}

fn timer_slack_ns() -> i32 {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
}

/// What the child's own runtime leaves of the timer slack: 0 for what it was before the parent's.
fn leaves_another_slack(before_ns: i32) -> i32 {
    let own = Runtime::with_options(&small()).unwrap();
    let meanwhile_ns = timer_slack_ns();
    drop(own);
    let least = meanwhile_ns == 1 || backend::is_uring();
    i32::from(!least) + 2 * i32::from(timer_slack_ns() != before_ns)
}

fn nop(event_loop: &mut Loop) {
    event_loop.submit(Operation::nop(), 5).unwrap();
    let mut events = [Event::EMPTY; 4];
    assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 1);
    assert_eq!(events[0].user_data(), 5);
}

async fn round_trip(stream: &mut TcpStream, peer: &mut Peer, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    stream.write_all(words).await.unwrap();
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(heard, words, "and nothing of the child's before it");
    peer.write_all(words).unwrap();
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, words);
}

/// A listener, two streams that have talked, their peers, and a file.
async fn begin() -> (TcpListener, Vec<TcpStream>, Vec<Peer>, File) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut streams, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut peer = Peer::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        round_trip(&mut stream, &mut peer, b"before").await;
        streams.push(stream);
        peers.push(peer);
    }
    let file = File::adopt(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
    (listener, streams, peers, file)
}

#[test]
fn a_child_gets_a_named_error_and_its_parent_goes_on_unharmed() {
    let slack_ns = timer_slack_ns();
    let runtime = Runtime::with_options(&small()).unwrap();
    let mut event_loop = Loop::new(&small()).unwrap();
    assert_eq!(in_a_child(|| leaves_another_slack(slack_ns)), 0);
    nop(&mut event_loop);
    let (listener, mut streams, mut peers, file) = runtime.block_on(begin());
    let mut of_a_task = runtime.block_on(async {
        let address = listener.local_addr().unwrap();
        let peer = Peer::connect(address).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(rotor::spawn(async move { stream.read(&mut [0; 16]).await }));
        rotor::task::yield_now().await;
        peer
    });
    let (idle, mut reading) = (streams.remove(1), streams.remove(0));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(reading.poll_read(&mut cx, &mut [0; 16]).is_pending());
    assert!(listener.poll_accept(&mut cx).is_pending());
    event_loop.submit(Operation::timer(event_loop.now()), 9).unwrap();
    let mut inherited = Inherited { runtime, event_loop, listener, reading, idle, file };
    for use_it in [false, true, true] {
        if use_it {
            // One tick: the receive and the accept are with the kernel now.
            inherited.runtime.block_on(async {});
        }
        let before = inherited.runtime.statistics().event_loop;
        let whole = &raw mut inherited;
        let code = in_a_child(|| {
            // SAFETY: this memory is the child's own copy; it ends without using it again.
            let copy = unsafe { whole.read() };
            if use_it {
                return misuse(copy);
            }
            drop(copy);
            0
        });
        assert_eq!(code, 0, "what is numbered so was wrong in the child");
        let after = inherited.runtime.statistics().event_loop;
        assert_eq!(after, before);
    }

    let Inherited { runtime, mut event_loop, listener, mut reading, mut idle, file } = inherited;
    runtime.block_on(async {
        for (stream, peer) in [&mut reading, &mut idle].into_iter().zip(&mut peers) {
            round_trip(stream, peer, b"after").await;
        }
        let mut second = Peer::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        round_trip(&mut accepted, &mut second, b"a new one").await;
        if !backend::no_files() {
            let (read, _) = file.read_at(vec![0; 16], 0).await;
            assert_eq!(read.unwrap(), 16);
        }
    });
    let mut events = [Event::EMPTY; 4];
    assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 1, "the timer");
    nop(&mut event_loop);
    for statistics in [runtime.statistics().event_loop, event_loop.statistics()] {
        assert_eq!((statistics.stale_completions, statistics.backend.overflows), (0, 0));
    }
    drop((listener, reading, idle, file));
    let report = runtime.shut_down();
    assert_eq!((report.leaked, report.resets), (0, 0));
    for peer in peers.iter_mut().chain([&mut of_a_task]) {
        assert_eq!(peer.read(&mut [0; 16]).unwrap(), 0, "it ends now, and did not before");
    }
}
