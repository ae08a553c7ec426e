//! Edges of the runtime and of the loop, on the real backend: spins, starved readers and listeners,
//! full tables, and closes that must not lose what was written.

#[path = "support/backend.rs"]
mod backend;
mod support;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as PlainListener, TcpStream as Client};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Options, Runtime};
use rotor::time::{sleep, timeout, try_sleep};
use rotor::{Control, Descriptor, DescriptorKind, Event, Loop, Operation, Reply, Wait};
use rustix::time::{ClockId, clock_gettime};
use support::{
    MILLISECOND, PATIENCE, assert_same, connect, eventually, pattern, poll_once, watched, woken,
    words_of,
};

const ANY_PORT: &str = "127.0.0.1:0";

fn small() -> Options {
    let (buffers, buffer_bytes) = (4, 4096);
    Options { operations: 16, sockets: 4, timers: 4, buffers, buffer_bytes, ..Options::default() }
}

/// Lets the loop tick once.
async fn one_tick() {
    sleep(Duration::ZERO).await;
}

/// What this thread has run so far.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

#[test]
fn a_loop_that_was_woken_sleeps_when_its_spin_budget_is_spent() {
    let _watched = watched();
    let options = Options { spin_budget: MILLISECOND, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    event_loop.waker()();
    let due = event_loop.now() + 200_000_000;
    event_loop.submit(Operation::timer(due), 1).unwrap();
    let mut events = [Event::EMPTY; 8];
    let mut ticks = 1;
    while event_loop.tick(&mut events, Wait::Forever).unwrap() == 0 {
        ticks += 1;
    }
    // The wake ends one; the kernel may end another. A loop that spins makes thousands.
    assert!(ticks < 20, "{ticks} ticks and {:?}", event_loop.statistics().waits);
}

#[test]
fn a_runtime_woken_by_a_thread_sleeps_afterwards() {
    let _watched = watched();
    let runtime = Builder::new().spin_budget(20 * MILLISECOND).build().unwrap();
    runtime.block_on(async {
        let mut waking = None;
        let woken = |cx: &mut Context<'_>| {
            if waking.is_some() {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            waking = Some(thread::spawn(move || {
                thread::sleep(5 * MILLISECOND);
                waker.wake();
            }));
            Poll::Pending
        };
        poll_fn(woken).await;
        let (cpu, ticks) = (cpu_time(), runtime.statistics().event_loop.ticks);
        sleep(500 * MILLISECOND).await;
        let cpu = cpu_time() - cpu;
        let ticks = runtime.statistics().event_loop.ticks - ticks;
        assert!(ticks < 20, "{ticks} ticks in one sleep");
        assert!(cpu < 250 * MILLISECOND, "{cpu:?} of processor time in a sleep of 500 ms");
    });
}

/// Questions of a client that waits for the answer to each.
#[test]
fn a_loop_that_spins_receives_by_itself_and_loses_no_byte_of_a_dropped_read() {
    const QUESTIONS: usize = 400;
    let _watched = watched();
    // Longer than any client here thinks, so that the loop never sleeps.
    let runtime = Builder::new().spin_budget(PATIENCE).build().unwrap();
    let lengths = || (0..QUESTIONS).map(|index| 1 + index * 37 % 5000);
    let all = lengths().sum();
    let received = runtime.block_on(async {
        let (mut peers, mut streams) = accept_many(1).await;
        let (mut peer, mut stream) = (peers.remove(0), streams.remove(0));
        let client = thread::spawn(move || {
            let mut rest = pattern(0, all);
            for length in lengths() {
                peer.write_all(&rest[..length]).unwrap();
                rest = &rest[length..];
                peer.read_exact(&mut [0]).unwrap();
            }
        });
        let enters = || runtime.statistics().event_loop.backend.enters;
        let (before, mut received, mut dropped) = (enters(), Vec::with_capacity(all), 0);
        let mut buffer = [0; 3000];
        for length in lengths() {
            let whole = received.len() + length;
            while received.len() < whole {
                // The receive that the first attempt asks for is the second's.
                let attempt = poll_once(stream.read(&mut buffer)).await;
                dropped += usize::from(attempt.is_none());
                let count = match attempt {
                    Some(count) => count,
                    None => stream.read(&mut buffer).await,
                };
                received.extend_from_slice(&buffer[..count.unwrap()]);
            }
            stream.write_all(&[1]).await.unwrap();
        }
        client.join().unwrap();
        assert!(dropped > 20, "only {dropped} reads were dropped");
        let enters = enters() - before;
        println!("{QUESTIONS} questions, {dropped} reads dropped, {enters} entries");
        let most = QUESTIONS as u64 / 4;
        assert!(!backend::is_uring() || enters < most, "{enters} entries of the ring");
        received
    });
    assert_same(&received, pattern(0, all));
}

/// Plain connections and the runtime's ends of them.
async fn accept_many(count: usize) -> (Vec<Client>, Vec<TcpStream>) {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (mut peers, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..count {
        peers.push(connect(address));
        streams.push(listener.accept().await.unwrap().0);
    }
    (peers, streams)
}

/// An echo of two bytes that thinks for a while with half of a message read.
async fn echo_slowly(mut stream: TcpStream) {
    let mut message = [0; 2];
    loop {
        if stream.read(&mut message[..1]).await.unwrap_or(0) == 0 {
            return;
        }
        sleep(5 * MILLISECOND).await;
        if stream.read(&mut message[1..]).await.unwrap_or(0) == 0 {
            return;
        }
        stream.write_all(&message).await.unwrap();
    }
}

#[test]
fn twenty_readers_with_two_buffers_are_served_after_a_burst_too() {
    let _watched = watched();
    let runtime = Builder::new().buffers(2).buffer_bytes(64).sockets(64).build().unwrap();
    runtime.block_on(async {
        let (mut peers, streams) = accept_many(20).await;
        for stream in streams {
            drop(rotor::spawn(echo_slowly(stream)));
        }
        for message in [b"hi", b"ho"] {
            // All of them speak, then every second.
            let step = if message == b"hi" { 1 } else { 2 };
            for peer in peers.iter_mut().step_by(step) {
                peer.write_all(message).unwrap();
                peer.set_nonblocking(true).unwrap();
            }
            let mut waiting: Vec<usize> = (0..20).step_by(step).collect();
            let all_answered = || {
                waiting.retain(|&nth| {
                    let mut answer = [0; 2];
                    match peers[nth].read(&mut answer) {
                        Ok(count) => assert_eq!((count, &answer), (2, message)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                    answer == [0; 2]
                });
                waiting.is_empty()
            };
            eventually("everybody has an answer", all_answered).await;
        }
    });
}

#[test]
fn an_accept_that_found_no_socket_goes_on_when_another_is_aborted() {
    let _watched = watched();
    let runtime = Builder::new().sockets(4).build().unwrap();
    runtime.block_on(async {
        let mut accepts = Vec::new();
        let mut addresses = Vec::new();
        for _ in 0..3 {
            let listener = TcpListener::bind(ANY_PORT).await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            accepts.push(rotor::spawn(async move { listener.accept().await.map(drop) }));
        }
        // The first has the fourth row for the connection it may bring.
        let starved = || runtime.statistics().event_loop.starved >= 2;
        eventually("two accepts wait for a row", starved).await;
        accepts[0].abort();
        let _client = connect(addresses[2]);
        let last = accepts.pop().unwrap();
        timeout(PATIENCE, last).await.expect("it hangs").unwrap().unwrap();
    });
}

#[test]
fn listeners_dropped_while_they_are_held_leave_their_places_to_others() {
    let _watched = watched();
    let runtime = Builder::new().tasks(1).sockets(4).build().unwrap();
    runtime.block_on(async {
        let open = Rc::new(Cell::new(false));
        let is_open = open.clone();
        drop(rotor::spawn(async move {
            eventually("the gate is open", || is_open.get()).await;
        }));
        // No task's cell is free, so none of these accepts anything.
        for _ in 0..4 {
            let listener = TcpListener::bind(ANY_PORT).await.unwrap();
            let polled = listener.poll_accept(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            drop(listener);
            one_tick().await;
        }
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let _client = connect(listener.local_addr().unwrap());
        assert!(poll_once(listener.accept()).await.is_none(), "there is no cell yet");
        open.set(true);
        woken(listener.accept()).await.unwrap();
    });
}

#[test]
fn binds_beyond_the_limit_in_one_poll_are_refused_with_words() {
    let _watched = watched();
    let runtime = Builder::new().operations(4).timers(4).sockets(4).build().unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            // What is dropped is closed at once; its row is free after the next tick.
            for nth in 0..13 {
                let error = match TcpListener::bind(ANY_PORT).await {
                    Ok(_) if nth < 4 => continue,
                    Ok(_) => panic!("the limit is 4"),
                    Err(error) => error,
                };
                assert!(nth >= 4, "{error}");
                assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
                let words = "all 4 sockets are in use; raise the option `sockets`";
                assert!(error.to_string().starts_with(words), "{error}");
            }
            one_tick().await;
        }
    });
}

#[test]
fn sleeps_that_are_over_and_not_taken_are_told_by_the_limit_of_timers() {
    let _watched = watched();
    let runtime = Builder::new().operations(1).timers(1).build().unwrap();
    runtime.block_on(async {
        let mut kept = Vec::new();
        for _ in 0..2 {
            kept.push(try_sleep(Duration::ZERO).unwrap());
            while runtime.statistics().event_loop.timers.now > 0 {
                rotor::task::yield_now().await;
            }
        }
        let error = io::Error::from(try_sleep(Duration::ZERO).unwrap_err());
        let words = "all 1 timers are in use; raise the option `timers`";
        assert!(error.to_string().starts_with(words), "{error}");
        kept.pop().unwrap().await;
        sleep(Duration::ZERO).await;
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

struct Counts(AtomicU32);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_that_panics_does_not_keep_another_from_its_wake() {
    let _watched = watched();
    let runtime = Runtime::with_options(&small()).unwrap();
    let counts = Arc::new(Counts(AtomicU32::new(0)));
    let listener = runtime.block_on(TcpListener::bind(ANY_PORT)).unwrap();
    let (panics, counting) = (Waker::from(Arc::new(Panics)), Waker::from(counts.clone()));
    let mut queued = Box::pin(listener.accept());
    // One in the queue, one beside it: the same connection wakes both.
    let address: SocketAddr = runtime.block_on(async {
        assert!(queued.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        assert!(listener.poll_accept(&mut Context::from_waker(&counting)).is_pending());
        listener.local_addr().unwrap()
    });
    let _client = connect(address);
    let panic = loop {
        let ticking = AssertUnwindSafe(|| runtime.block_on(async { sleep(MILLISECOND).await }));
        if let Err(panic) = catch_unwind(ticking) {
            break panic;
        }
    };
    assert_eq!(words_of(&*panic), "a waker panics");
    runtime.block_on(one_tick());
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    drop(queued);
}

#[test]
fn a_watcher_whose_waker_panics_does_not_keep_others_from_their_wakes() {
    let _watched = watched();
    let runtime = Runtime::with_options(&small()).unwrap();
    let counts = Arc::new(Counts(AtomicU32::new(0)));
    let (panics, counting) = (Waker::from(Arc::new(Panics)), Waker::from(counts.clone()));
    let (stream, mut client) = runtime.block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let client = connect(listener.local_addr().unwrap());
        (listener.accept().await.unwrap().0, client)
    });
    let (mut first, mut second) = (Box::pin(stream.readable()), Box::pin(stream.readable()));
    runtime.block_on(async {
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        assert!(second.as_mut().poll(&mut Context::from_waker(&counting)).is_pending());
    });
    client.write_all(b"x").unwrap();
    let panic = loop {
        let ticking = AssertUnwindSafe(|| runtime.block_on(async { sleep(MILLISECOND).await }));
        if let Err(panic) = catch_unwind(ticking) {
            break panic;
        }
    };
    assert_eq!(words_of(&*panic), "a waker panics");
    assert_eq!(counts.0.load(Ordering::SeqCst), 1);
    drop((first, second));
}

/// Reads until the peer ends, having first let it close. Gives how many bytes came.
fn read_late(peer: &mut Client) -> io::Result<usize> {
    thread::sleep(50 * MILLISECOND);
    let (mut received, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        match peer.read(&mut buffer)? {
            0 => return Ok(received),
            count => received += count,
        }
    }
}

/// Leaves unread input, fills the socket, closes it, and expects all of it at the peer.
fn close_with_unread_input(mut event_loop: Loop, descriptor: Descriptor, mut peer: Client) {
    peer.write_all(&[1; 100_000]).unwrap();
    let written = vec![5; 1 << 20];
    let mut sent = 0;
    let full = loop {
        match event_loop.send_now(descriptor, &written) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    event_loop.submit(Operation::close(descriptor), 1).unwrap();
    let reader = thread::spawn(move || read_late(&mut peer));
    drop(event_loop);
    assert_eq!(reader.join().unwrap().unwrap(), sent);
}

#[test]
fn a_stream_connected_twice_loses_nothing_that_was_written() {
    let _watched = watched();
    let listener = PlainListener::bind(ANY_PORT).unwrap();
    let address = listener.local_addr().unwrap();
    let mut event_loop = Loop::new(&Options { drain: PATIENCE, ..small() }).unwrap();
    let open = Control::OpenStream { family_of: address };
    let Reply::Opened(descriptor) = event_loop.control(open).unwrap() else {
        panic!("an open opens something");
    };
    let mut events = [Event::EMPTY; 4];
    for expected in [None, Some(libc::EISCONN)] {
        event_loop.submit(Operation::connect(descriptor, address), 1).unwrap();
        while event_loop.tick(&mut events, Wait::Forever).unwrap() == 0 {}
        assert_eq!(events[0].result().err().and_then(|error| error.raw_os_error()), expected);
    }
    let peer = listener.accept().unwrap().0;
    close_with_unread_input(event_loop, descriptor, peer);
}

#[test]
fn a_stream_whose_read_side_was_shut_loses_nothing_that_was_written() {
    let _watched = watched();
    let listener = PlainListener::bind(ANY_PORT).unwrap();
    let peer = connect(listener.local_addr().unwrap());
    let mut event_loop = Loop::new(&Options { drain: PATIENCE, ..small() }).unwrap();
    let ours = OwnedFd::from(listener.accept().unwrap().0);
    let descriptor = event_loop.adopt(ours, DescriptorKind::Stream).unwrap();
    event_loop.control(Control::Shutdown(descriptor, Shutdown::Read)).unwrap();
    assert_eq!(event_loop.receive_now(descriptor, &mut [0; 8]).unwrap(), 0);
    close_with_unread_input(event_loop, descriptor, peer);
}
