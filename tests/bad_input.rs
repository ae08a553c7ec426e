//! What a program, its peers or the system may do to a loop: an error of the right kind, nothing
//! lost, nothing leaked, and the others still served.

mod support;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream as Client;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Options};
use rotor::{DescriptorKind, Event, EventKind, Loop, Operation, Wait};
use support::{assert_descriptors, connect, descriptors, poll_once, watched_alone};

fn small() -> Options {
    Options { operations: 64, sockets: 16, timers: 16, buffers: 16, ..Options::default() }
}

fn pair(listener: &std::net::TcpListener) -> (Client, Client) {
    let near = Client::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn ten_thousand_descriptors_of_the_same_numbers_never_get_each_others_bytes() {
    let _watched = watched_alone();
    let idle = descriptors();
    let mut event_loop = Loop::new(&small()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut events = [Event::EMPTY; 16];
    let mut numbers: HashMap<i32, u32> = HashMap::new();
    let (mut closed, mut spoke) = (0, 0);
    for round in 0..10_000u64 {
        let (near, mut far) = pair(&listener);
        *numbers.entry(near.as_raw_fd()).or_default() += 1;
        let stream = event_loop.adopt(OwnedFd::from(near), DescriptorKind::Stream).unwrap();
        event_loop.submit(Operation::receive_picked(stream), round).unwrap();
        // Every second peer speaks, and the receive is in flight in all of them when it closes.
        if round % 2 == 0 {
            far.write_all(&round.to_le_bytes()).unwrap();
        }
        let mut open = true;
        let mut wait = Wait::Zero;
        while open {
            let count = event_loop.tick(&mut events, wait).unwrap();
            for event in &events[..count] {
                if let Some(buffer) = event.buffer() {
                    let bytes = event_loop.bytes(buffer, 0..8).to_vec();
                    assert_eq!(bytes, round.to_le_bytes(), "bytes of another connection");
                    assert_eq!(event.user_data(), round);
                    event_loop.return_buffer(buffer);
                    spoke += 1;
                }
                open &= event.kind() != EventKind::Close;
            }
            if wait == Wait::Zero {
                event_loop.submit(Operation::close(stream), u64::MAX).unwrap();
                wait = Wait::Forever;
            }
        }
        closed += 1;
    }
    let reused = numbers.values().max().unwrap();
    println!("{closed} closed, {spoke} with bytes; one number was used {reused} times");
    assert_eq!(spoke, 5_000);
    assert!(*reused > 1_000, "the kernel gave each a number of its own");
    drop((event_loop, listener));
    assert_descriptors(idle);
}

#[test]
fn a_descriptor_closed_behind_the_loops_back_harms_nothing_else() {
    let _watched = watched_alone();
    let mut event_loop = Loop::new(&small()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut events = [Event::EMPTY; 16];
    let (near, far) = pair(&listener);
    let number = near.as_raw_fd();
    let stream = event_loop.adopt(OwnedFd::from(near), DescriptorKind::Stream).unwrap();
    let (other_near, mut other_far) = pair(&listener);
    let other = event_loop.adopt(OwnedFd::from(other_near), DescriptorKind::Stream).unwrap();
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    event_loop.tick(&mut events, Wait::Zero).unwrap();
    // SAFETY: closes a number that the loop thinks is its own: the fault under test.
    assert_eq!(unsafe { libc::close(number) }, 0);
    event_loop.submit(Operation::poll(stream, rotor::Interest::Writable), 2).unwrap();
    assert!(event_loop.send_now(stream, b"x").is_err());
    event_loop.submit(Operation::receive_picked(other), 3).unwrap();
    other_far.write_all(b"hello").unwrap();
    event_loop.submit(Operation::close(stream), 4).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        for event in &events[..count] {
            if event.user_data() == 3 {
                assert_eq!(event_loop.bytes(event.buffer().unwrap(), 0..5), b"hello");
            }
            seen.push(event.user_data());
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4]);
    drop((event_loop, far));
}

extern "C" fn nothing(_: libc::c_int) {}

fn signals_every(microseconds: i64) {
    let time = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the handler does nothing, without SA_RESTART, so that calls are interrupted; the
    // kernel only reads the structures.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = nothing;
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_thousand_signals_a_second_interrupt_nothing() {
    let _watched = watched_alone();
    signals_every(1_000);
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = rotor::spawn(async move { listener.accept().await });
        let mut near = TcpStream::connect(address).await.unwrap();
        let (mut far, _) = accepted.await.unwrap().unwrap();
        for round in 0..200u32 {
            let begun = rotor::time::Instant::now();
            rotor::time::sleep(Duration::from_micros(2_500)).await;
            assert!(begun.elapsed() >= Duration::from_micros(2_500), "early in round {round}");
            let message = vec![round as u8; 100_000];
            let sent = message.clone();
            let (read, written) = (Cell::new(false), Cell::new(false));
            support::both(
                async {
                    let mut received = vec![0; 100_000];
                    far.read_exact(&mut received).await.unwrap();
                    assert_eq!(received, message);
                    read.set(true);
                },
                async {
                    near.write_all(&sent).await.unwrap();
                    written.set(true);
                },
            )
            .await;
            assert!(read.get() && written.get());
        }
    });
    signals_every(0);
}

thread_local! {
    static STREAMS: RefCell<Vec<TcpStream>> = const { RefCell::new(Vec::new()) };
    static RUN: Cell<u32> = const { Cell::new(0) };
}

/// A waker that, woken and dropped on the runtime's thread, does all that foreign code may do.
struct Busy;

impl Busy {
    fn be_busy() {
        let stream = STREAMS.try_with(|streams| streams.borrow_mut().pop()).ok().flatten();
        drop(stream);
        if std::thread::panicking() {
            return;
        }
        let task = async {
            RUN.with(|run| run.set(run.get() + 1));
            rotor::task::yield_now().await;
        };
        drop(rotor::task::try_spawn(task));
        let mut sleep = Box::pin(rotor::time::sleep(Duration::from_secs(60)));
        let polled = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
}

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        Busy::be_busy();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        Busy::be_busy();
    }
}

#[test]
fn a_waker_may_spawn_sleep_and_drop_streams_when_it_is_woken_and_dropped() {
    let _watched = watched_alone();
    let idle = descriptors();
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for round in 0..50 {
            let mut client = connect(address);
            let (mut stream, _) = listener.accept().await.unwrap();
            let spare = connect(address);
            let (extra, _) = listener.accept().await.unwrap();
            STREAMS.with(|streams| streams.borrow_mut().push(extra));
            let waker = Waker::from(Arc::new(Busy));
            let mut buffer = [0; 8];
            {
                let mut read = Box::pin(stream.read(&mut buffer));
                assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            }
            if round % 2 == 0 {
                client.write_all(b"12345678").unwrap();
            }
            rotor::time::sleep(Duration::from_millis(1)).await;
            if round % 2 == 0 {
                assert_eq!(poll_once(stream.read(&mut buffer)).await.unwrap().unwrap(), 8);
            }
            drop((stream, waker));
            rotor::time::sleep(Duration::from_millis(1)).await;
            drop((client, spare));
        }
        assert!(RUN.with(Cell::get) > 50);
    });
    STREAMS.with(|streams| streams.borrow_mut().clear());
    drop(runtime);
    assert_descriptors(idle);
}
