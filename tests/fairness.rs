//! A task that never waits, a storm of timers and a flood of bytes leave the others their share;
//! and where there is nothing to do, nothing is done.
//!
//! Shares are ratios of counts: what is counted beside the greedy task against what is counted
//! without it, in the same process. The margins are wide, for a machine that does other work too.

mod support;

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::time::sleep;
use support::{MILLISECOND, connect, eventually, watched_alone};

/// How long each share is measured.
const MEASURED: Duration = Duration::from_millis(800);

/// What the patient tasks got done while it was measured, and the greedy ones.
#[derive(Clone, Copy, Debug)]
struct Share {
    sleeps: u64,
    round_trips: u64,
    greedy: u64,
    measured: Duration,
    polls: u64,
    ticks: u64,
}

/// Counts what the greedy tasks do.
type Count = Rc<Cell<u64>>;

fn add(count: &Count) {
    count.set(count.get() + 1);
}

/// Runs a loop of 1 ms sleeps and an echo with one plain client, beside what `greedy` spawns.
fn measure(options: Builder, greedy: impl AsyncFnOnce(Count)) -> Share {
    let runtime = options.build().unwrap();
    let share = runtime.block_on(async {
        let (sleeps, count) = (Count::default(), Count::default());
        let slept = sleeps.clone();
        let sleeping = rotor::spawn(async move {
            loop {
                sleep(MILLISECOND).await;
                add(&slept);
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = EchoClient::start(listener.local_addr().unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        let echoing = rotor::spawn(echo(stream));
        greedy(count.clone()).await;
        eventually("the echo has begun", || client.round_trips() > 10).await;

        let begun = Instant::now();
        let before = (sleeps.get(), client.round_trips(), count.get(), runtime.statistics());
        sleep(MEASURED).await;
        let after = (sleeps.get(), client.round_trips(), count.get(), runtime.statistics());
        let measured = begun.elapsed();
        sleeping.abort();
        client.stop();
        echoing.await.unwrap();
        Share {
            sleeps: after.0 - before.0,
            round_trips: after.1 - before.1,
            greedy: after.2 - before.2,
            measured,
            polls: after.3.executor.polls - before.3.executor.polls,
            ticks: after.3.event_loop.ticks - before.3.event_loop.ticks,
        }
    });
    drop(runtime);
    share
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return,
            count => stream.write_all(&buffer[..count]).await.unwrap(),
        }
    }
}

/// A plain client that sends 16 bytes and waits for them, again and again.
struct EchoClient {
    counts: Arc<(AtomicU64, AtomicBool)>,
    thread: JoinHandle<()>,
}

impl EchoClient {
    fn start(address: SocketAddr) -> EchoClient {
        let counts = Arc::new((AtomicU64::new(0), AtomicBool::new(false)));
        let shared = counts.clone();
        let thread = thread::spawn(move || {
            let mut client = connect(address);
            while !shared.1.load(Ordering::Relaxed) {
                client.write_all(&[7; 16]).unwrap();
                client.read_exact(&mut [0; 16]).unwrap();
                shared.0.fetch_add(1, Ordering::Relaxed);
            }
        });
        EchoClient { counts, thread }
    }

    fn round_trips(&self) -> u64 {
        assert!(!self.thread.is_finished(), "the client has failed");
        self.counts.0.load(Ordering::Relaxed)
    }

    /// Lets it end. Its stream ends with it.
    fn stop(&self) {
        self.counts.1.store(true, Ordering::Relaxed);
    }
}

/// The share beside the greedy tasks is at least one in `sleeps` and one in `round_trips` of the
/// share without them, and the greedy ones were busy.
fn assert_served(name: &str, greedy: Share, sleeps: u64, round_trips: u64) {
    let idle = measure(Builder::new(), async |_| {});
    println!("{name}: {greedy:?}\nwithout: {idle:?}");
    let per_second = |count: u64, share: Share| count as f64 / share.measured.as_secs_f64();
    let ratio = |of: fn(&Share) -> u64| {
        per_second(of(&idle), idle) / per_second(of(&greedy), greedy).max(f64::MIN_POSITIVE)
    };
    let (sleeps_ratio, trips_ratio) = (ratio(|it| it.sleeps), ratio(|it| it.round_trips));
    assert!(greedy.greedy > idle.sleeps, "the greedy tasks were not greedy: {greedy:?}");
    assert!(sleeps_ratio < sleeps as f64, "{name}: sleeps are {sleeps_ratio:.1} times fewer");
    assert!(trips_ratio < round_trips as f64, "{name}: echoes are {trips_ratio:.1} times fewer");
    // Of the 0.8 s that were measured nobody lost all: the main future is served as well.
    assert!(greedy.measured < 10 * MEASURED, "a sleep of {MEASURED:?} took {:?}", greedy.measured);
}

#[test]
fn a_task_that_wakes_itself_leaves_the_others_their_share() {
    let _watched = watched_alone();
    let greedy = measure(Builder::new(), async |count| {
        for _ in 0..3 {
            let count = count.clone();
            drop(rotor::spawn(poll_fn(move |cx| {
                add(&count);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })));
        }
    });
    assert_served("self-waking", greedy, 20, 100);
    let polls_per_tick = greedy.polls / greedy.ticks;
    let bound = u64::from(rotor::limits::POLLS_PER_TICK_MAX);
    assert!(polls_per_tick <= bound, "{polls_per_tick} polls between two ticks");
}

#[test]
fn a_loop_of_sleeps_of_zero_leaves_the_others_their_share() {
    let _watched = watched_alone();
    let greedy = measure(Builder::new(), async |count| {
        for _ in 0..3 {
            let count = count.clone();
            drop(rotor::spawn(async move {
                loop {
                    sleep(Duration::ZERO).await;
                    add(&count);
                }
            }));
        }
    });
    assert_served("sleep(0)", greedy, 20, 100);
}

/// A plain peer that sends all it can on one thread and reads on another. Ends with its stream.
fn flood(address: SocketAddr) -> [JoinHandle<()>; 2] {
    let client = connect(address);
    let (mut reading, mut writing) = (client.try_clone().unwrap(), client);
    let bytes = vec![1; 1 << 16];
    let mut buffer = vec![0; 1 << 16];
    [
        thread::spawn(move || {
            while writing.write_all(&bytes).is_ok() {}
            let _ = writing.shutdown(Shutdown::Both);
        }),
        thread::spawn(move || while reading.read(&mut buffer).is_ok_and(|count| count > 0) {}),
    ]
}

/// How much may be ready at once in one poll of a task.
const BUDGET: u64 = 128;

/// Measures beside a task that writes and reads a little of a flood by turns.
fn measure_flooded(name: &str, options: Builder) {
    let peers = Rc::new(Cell::new(None));
    let kept = peers.clone();
    let greedy = measure(options, async |count| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        kept.set(Some(flood(listener.local_addr().unwrap())));
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(rotor::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                stream.write(&[2; 64]).await.unwrap();
                stream.read(&mut buffer).await.unwrap();
                add(&count);
            }
        }));
    });
    // The runtime is gone and the peer's stream reset.
    for peer in peers.take().unwrap() {
        peer.join().unwrap();
    }
    assert_served(name, greedy, 20, 250);
    let per_poll = greedy.greedy / greedy.polls;
    assert!(per_poll <= BUDGET / 2, "{per_poll} writes and as many reads in one poll");
}

#[test]
fn a_task_with_a_flooding_peer_leaves_the_others_their_share() {
    let _watched = watched_alone();
    measure_flooded("flooded", Builder::new());
}

#[test]
fn a_task_whose_writes_and_reads_never_wait_leaves_the_others_their_share() {
    let _watched = watched_alone();
    // With receive buffers this small each read asks the socket itself, where the flood lies.
    measure_flooded("never waiting", Builder::new().buffer_bytes(512));
}

/// The processor time this thread has used.
fn thread_time() -> Duration {
    // SAFETY: zeros are a value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure, which outlives the call.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

#[test]
fn two_seconds_with_nothing_to_do_take_no_processor_time_and_no_zero_wait() {
    let _watched = watched_alone();
    let runtime = Runtime::new().unwrap();
    let (used, before, after) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = connect(listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        let reading = rotor::spawn(async move { stream.read(&mut [0; 16]).await.map(drop) });
        let accepting = rotor::spawn(async move { listener.accept().await.map(drop) });
        sleep(20 * MILLISECOND).await;
        let (begun, before) = (thread_time(), runtime.statistics().event_loop);
        sleep(Duration::from_secs(2)).await;
        let (used, after) = (thread_time() - begun, runtime.statistics().event_loop);
        assert!(!reading.is_finished() && !accepting.is_finished());
        (used, before, after)
    });
    let zero_waits = [
        after.waits.zero_ready - before.waits.zero_ready,
        after.waits.zero_spin - before.waits.zero_spin,
        after.waits.zero_timer - before.waits.zero_timer,
    ];
    println!("idle for 2 s: {used:?} used, {} ticks", after.ticks - before.ticks);
    assert_eq!(zero_waits, [0, 0, 0]);
    assert!(used < Duration::from_millis(5), "{used:?} of processor time");
}
