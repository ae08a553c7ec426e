//! A clock that stands still, and is moved.

mod support;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::panic::catch_unwind;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::Builder;
use rotor::time::{
    Instant, advance, interval, pause, resume, sleep, sleep_until, timeout, timeout_at,
};
use support::{MILLISECOND, connect, poll_once, words_of};

const HOUR: Duration = Duration::from_secs(3600);

#[rotor::test(start_paused = true)]
async fn time_passes_to_the_next_deadline_when_nothing_is_ready() {
    let real = std::time::Instant::now();
    let begin = Instant::now();
    for _ in 0..100 {
        sleep(HOUR).await;
    }
    assert_eq!(begin.elapsed(), 100 * HOUR);
    let mut ticks = interval(HOUR);
    for number in 0..100 {
        assert_eq!(ticks.tick().await, begin + (100 + number) * HOUR);
        assert_eq!(Instant::now(), begin + (100 + number) * HOUR);
    }
    assert!(real.elapsed() < HOUR);
}

#[rotor::test(start_paused = true)]
async fn tasks_wake_in_the_order_of_their_deadlines_each_in_its_moment() {
    let begin = Instant::now();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = [5, 1, 3, 1, 4]
        .into_iter()
        .map(|hours| {
            let seen = seen.clone();
            rotor::spawn(async move {
                sleep(hours * HOUR).await;
                assert_eq!(begin.elapsed(), hours * HOUR);
                seen.borrow_mut().push(hours);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*seen.borrow(), [1, 1, 3, 4, 5]);
    assert_eq!(begin.elapsed(), 5 * HOUR);
}

#[rotor::test(start_paused = true)]
async fn what_is_due_has_fired_when_an_advance_is_over() {
    let begin = Instant::now();
    let seen = Rc::new(RefCell::new(Vec::new()));
    for minutes in [1, 2, 3, 59, 61] {
        let seen = seen.clone();
        drop(rotor::spawn(async move {
            sleep(minutes * HOUR / 60).await;
            seen.borrow_mut().push(minutes);
        }));
    }
    // They arm their timers in their first turns.
    advance(Duration::ZERO).await;
    assert_eq!(begin.elapsed(), Duration::ZERO, "it does not pass while a task is ready");
    advance(2 * HOUR / 60).await;
    assert_eq!(*seen.borrow(), [1, 2]);
    advance(HOUR).await;
    assert_eq!(*seen.borrow(), [1, 2, 3, 59, 61]);
    assert_eq!(begin.elapsed(), HOUR + 2 * HOUR / 60);
    advance(Duration::MAX).await;
    assert!(poll_once(sleep(MILLISECOND)).await.is_none(), "the clock's end has no later moment");
}

#[rotor::test]
async fn it_runs_on_from_where_it_stands() {
    let words = |call: fn()| words_of(&*catch_unwind(call).unwrap_err()).to_string();
    assert!(words(resume).contains("is not paused"));
    pause();
    assert!(words(pause).contains("paused already"));
    let begin = Instant::now();
    sleep(HOUR).await;
    resume();
    let ran = begin.elapsed();
    assert!(ran >= HOUR && ran < 2 * HOUR, "{ran:?}");
    let real = std::time::Instant::now();
    sleep(5 * MILLISECOND).await;
    assert!(real.elapsed() >= 5 * MILLISECOND, "it is the kernel's time again");
    assert!(rotor::spawn(advance(HOUR)).await.unwrap_err().is_panic());
    // And once more, from later on.
    pause();
    let again = Instant::now();
    assert!(again > begin + HOUR);
    sleep_until(again + HOUR).await;
    assert_eq!(again.elapsed(), HOUR);
}

#[rotor::test(start_paused = true)]
async fn what_waits_for_a_peer_does_not_hold_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let begin = Instant::now();
    assert!(timeout(HOUR, listener.accept()).await.is_err());
    assert_eq!(begin.elapsed(), HOUR);
    let mut peer = connect(listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(timeout(HOUR, stream.read(&mut [0; 8])).await.is_err());
    assert!(timeout_at(begin + 3 * HOUR, stream.readable()).await.is_err());
    assert_eq!(begin.elapsed(), 3 * HOUR);
    // What is there already comes first.
    peer.write_all(b"here").unwrap();
    let mut buffer = [0; 8];
    assert_eq!(timeout(HOUR, stream.read(&mut buffer)).await.unwrap().unwrap(), 4);
    assert_eq!(begin.elapsed(), 3 * HOUR);
}

/// The peer takes its time, in the kernel's time, and the clock does not pass meanwhile.
#[rotor::test(start_paused = true)]
async fn a_connect_and_a_send_hold_it() {
    const BYTES: usize = 16 << 20;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let begin = Instant::now();
    let mut stream = timeout(MILLISECOND, TcpStream::connect(address)).await.unwrap().unwrap();
    let mut peer = listener.accept().unwrap().0;
    let reader = thread::spawn(move || {
        thread::sleep(30 * MILLISECOND);
        let mut left = BYTES;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            left -= peer.read(&mut buffer).unwrap();
        }
    });
    let (sent, _) = timeout(MILLISECOND, stream.write_owned(vec![7; BYTES])).await.unwrap();
    let mut written = sent.unwrap();
    while written < BYTES {
        let (sent, _) =
            timeout(MILLISECOND, stream.write_owned(vec![7; BYTES - written])).await.unwrap();
        written += sent.unwrap();
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    reader.join().unwrap();
}

/// Nothing is armed: the loop sleeps, and does not look again and again.
#[test]
fn with_no_deadline_a_paused_loop_sleeps_until_it_is_woken() {
    let runtime = Builder::new().start_paused(true).build().unwrap();
    let begin = runtime.block_on(async { Instant::now() });
    let before = runtime.statistics().event_loop.ticks;
    let elapsed = runtime.block_on(async {
        let mut waking = None;
        std::future::poll_fn(|cx| {
            if waking.is_some() {
                return std::task::Poll::Ready(());
            }
            let waker = cx.waker().clone();
            waking = Some(thread::spawn(move || {
                thread::sleep(20 * MILLISECOND);
                waker.wake();
            }));
            std::task::Poll::Pending
        })
        .await;
        begin.elapsed()
    });
    let ticks = runtime.statistics().event_loop.ticks - before;
    assert!(ticks < 10, "{ticks} ticks");
    assert_eq!(elapsed, Duration::ZERO);
}
