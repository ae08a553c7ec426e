//! Wakes: from any thread, at any time, none lost. Promises 9 and 5.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;

use rotor::{Event, Operation, Wait};

use crate::rig::*;

scenarios! {
    9 wake "a wake from a thread ends a wait for ever, two thousand times" => two_thousand;
    9 wake "a wake before the wait is not lost" => before_the_wait;
    9 wake "many wakes before a wait end it once" => many_before;
    9 wake nop "wakes among more completions than fit are not lost, nor those after them" => crowded;
    9 wake "a loop's waker works when the loop is gone" => after_the_loop;
    9 wake "a task is woken by another thread, a thousand times" => thousand_tasks;
    9 wake "wakers work on any thread when their runtime is gone" => after_the_runtime;
    9 wake "wakers are cloned and dropped on other threads while tasks run" => clones;
    9 wake "the main future is woken by a thread" => main_future;
    9 wake "a waker that panics keeps no other from its wake" => panicking;
    9 wake "a waker may spawn, sleep and wake when it is dropped" => wakers_of_its_own;
    5 wake "a wake of a waiting loop leaves no wait of zero behind" => no_spin;
    2 wake receive "wakes and completions that cross are both had" => crossing;
    10 wake "a thread that never stops waking leaves the others their share" => flood;
}

fn two_thousand() -> String {
    let mut event_loop = small_loop();
    let wake = event_loop.waker();
    let (ask, asked) = channel::<()>();
    let waking = thread::spawn(move || asked.iter().for_each(|()| wake()));
    for _ in 0..2000 {
        ask.send(()).unwrap();
        assert_eq!(event_loop.tick(&mut [Event::EMPTY; 4], Wait::Forever).unwrap(), 0);
    }
    drop(ask);
    waking.join().unwrap();
    let waits = event_loop.statistics().waits;
    format!("{} {} {}", waits.by_event, waits.by_timeout, waits.zero_ready)
}

fn before_the_wait() -> String {
    let mut event_loop = small_loop();
    let wake = event_loop.waker();
    let mut seen = Vec::new();
    for settled in [false, true] {
        if settled {
            settle(&mut event_loop);
        }
        wake();
        seen.push(event_loop.tick(&mut [Event::EMPTY; 4], Wait::Forever).unwrap());
    }
    format!("{seen:?}")
}

fn many_before() {
    let mut event_loop = small_loop();
    let wake = event_loop.waker();
    for _ in 0..1000 {
        wake();
    }
    event_loop.tick(&mut [Event::EMPTY; 4], Wait::Forever).unwrap();
    let before = event_loop.statistics().waits;
    event_loop.tick(&mut [Event::EMPTY; 4], Wait::AtMost(2 * MILLISECOND)).unwrap();
    let after = event_loop.statistics().waits;
    assert_eq!(after.by_timeout - before.by_timeout, 1, "they are not there any more");
}

fn crowded() {
    let options = rotor::runtime::Options { operations: 1024, ring_entries: 8, ..small() };
    let mut event_loop = rotor::Loop::new(&options).unwrap();
    let wake = event_loop.waker();
    for _ in 0..5 {
        for number in 0..1000 {
            event_loop.submit(Operation::nop(), number).unwrap();
            if number % 100 == 0 {
                wake();
            }
        }
        gather(&mut event_loop, 1000);
        settle(&mut event_loop);
        let before = event_loop.statistics().waits;
        let wake = wake.clone();
        let waking = thread::spawn(move || {
            thread::sleep(MILLISECOND);
            wake();
        });
        event_loop.tick(&mut [Event::EMPTY; 4], Wait::AtMost(PATIENCE)).unwrap();
        assert_eq!(event_loop.statistics().waits.by_timeout, before.by_timeout, "it was lost");
        waking.join().unwrap();
        // Uses the wake up, if one before it ended the wait.
        settle(&mut event_loop);
    }
}

fn after_the_loop() {
    let event_loop = small_loop();
    let wake = event_loop.waker();
    let again = wake.clone();
    drop(event_loop);
    wake();
    thread::spawn(move || again()).join().unwrap();
}

/// A future that hands its waker to a thread and is over once it was woken.
async fn by_thread(ask: &std::sync::mpsc::Sender<Arc<Given>>) {
    let given = Arc::new(Given::default());
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        if given.given.load(Ordering::Acquire) > 0 {
            assert_eq!(polls, 2, "once by itself, and once for its wake");
            return Poll::Ready(());
        }
        *given.waker.lock().unwrap() = Some(cx.waker().clone());
        ask.send(given.clone()).unwrap();
        Poll::Pending
    })
    .await;
}

#[derive(Default)]
struct Given {
    given: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

/// A thread that wakes whoever asks.
fn waking_thread() -> (std::sync::mpsc::Sender<Arc<Given>>, thread::JoinHandle<u32>) {
    let (ask, asked) = channel::<Arc<Given>>();
    let waking = thread::spawn(move || {
        let mut count = 0;
        for given in asked {
            given.given.store(1, Ordering::Release);
            let waker = given.waker.lock().unwrap().take();
            waker.expect("it was put there before").wake();
            count += 1;
        }
        count
    });
    (ask, waking)
}

fn thousand_tasks() {
    let ((), _) = run_counted(builder(), async |counts| {
        let (ask, waking) = waking_thread();
        for _ in 0..20 {
            let task = || {
                let ask = ask.clone();
                rotor::spawn(async move { by_thread(&ask).await })
            };
            let tasks: Vec<_> = (0..50).map(|_| task()).collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
        drop(ask);
        assert_eq!(waking.join().unwrap(), 1000);
        assert_eq!(counts().executor.wakes_remote, 1000);
    });
}

fn after_the_runtime() {
    let kept = Rc::new(RefCell::new(Vec::new()));
    let its = kept.clone();
    run(async move {
        for number in 0..20 {
            let kept = its.clone();
            rotor::spawn(poll_fn(move |cx| {
                kept.borrow_mut().push(cx.waker().clone());
                // Some are over before the runtime is, some are dropped with it.
                if number % 2 == 0 { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        ticks().await;
        poll_fn(|cx| {
            its.borrow_mut().push(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    });
    let wakers = Rc::into_inner(kept).expect("every task is dropped").into_inner();
    assert_eq!(wakers.len(), 21);
    let use_all = |wakers: &[Waker]| {
        for waker in wakers {
            waker.wake_by_ref();
            let clone = waker.clone();
            assert!(clone.will_wake(waker));
            clone.wake();
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            let wakers = wakers.clone();
            scope.spawn(move || use_all(&wakers));
        }
    });
    use_all(&wakers);
}

fn clones() {
    run(async {
        let mut polls = 0;
        let (give, given) = channel::<Waker>();
        let waking = thread::spawn(move || {
            for waker in given {
                let clones = vec![waker; 8];
                thread::yield_now();
                clones.into_iter().for_each(Waker::wake);
            }
        });
        let mut give = Some(give);
        poll_fn(|cx| {
            polls += 1;
            if polls == 200 {
                give = None;
                return Poll::Ready(());
            }
            give.as_ref().unwrap().send(cx.waker().clone()).unwrap();
            Poll::Pending
        })
        .await;
        joined(waking).await;
    });
}

fn main_future() {
    run(async {
        let (ask, waking) = waking_thread();
        for _ in 0..100 {
            by_thread(&ask).await;
        }
        drop(ask);
        assert_eq!(waking.join().unwrap(), 100);
    });
}

struct Panics;

impl std::task::Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics, as it is meant to");
    }
}

struct Counts(AtomicU32);

impl std::task::Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn panicking() {
    let runtime = builder().build().unwrap();
    let counts = Arc::new(Counts(AtomicU32::new(0)));
    let (panics, counting) = (Waker::from(Arc::new(Panics)), Waker::from(counts.clone()));
    let (stream, client) = runtime.block_on(pair());
    let (mut first, mut second) = (Box::pin(stream.readable()), Box::pin(stream.readable()));
    runtime.block_on(async {
        for (future, waker) in [(&mut first, &panics), (&mut second, &counting)] {
            let mut cx = std::task::Context::from_waker(waker);
            assert!(Future::poll(future.as_mut(), &mut cx).is_pending());
        }
    });
    deliver(&client, b"x");
    let mut panicked = 0;
    for _ in 0..100 {
        let ticking = std::panic::AssertUnwindSafe(|| runtime.block_on(ticks()));
        panicked += u32::from(std::panic::catch_unwind(ticking).is_err());
        if panicked > 0 && counts.0.load(Ordering::SeqCst) > 0 {
            break;
        }
    }
    assert_eq!((panicked, counts.0.load(Ordering::SeqCst)), (1, 1));
    drop((first, second));
    assert_eq!(runtime.shut_down().leaked, 0);
}

/// Uses the runtime when it is woken, and when it is dropped.
struct Busy(AtomicU32);

impl Busy {
    fn work(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        let _ = rotor::task::try_spawn(async { rotor::task::yield_now().await });
        drop(rotor::time::try_sleep(MILLISECOND));
    }
}

impl std::task::Wake for Busy {
    fn wake(self: Arc<Self>) {
        self.work();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.load(Ordering::SeqCst) < 1000 {
            self.work();
        }
    }
}

fn wakers_of_its_own() {
    run(async {
        let (stream, client) = pair().await;
        for round in 0..10 {
            let waker = Waker::from(Arc::new(Busy(AtomicU32::new(0))));
            let mut reading = Box::pin(stream.readable());
            let mut cx = std::task::Context::from_waker(&waker);
            assert!(Future::poll(reading.as_mut(), &mut cx).is_pending());
            drop(waker);
            if round % 2 == 0 {
                deliver(&client, b"x");
                stream.readable().await.unwrap();
                assert_eq!(stream.try_read(&mut [0; 4]).unwrap(), 1);
            }
            drop(reading);
        }
    });
}

fn no_spin() {
    let mut event_loop = small_loop();
    let wake = event_loop.waker();
    settle(&mut event_loop);
    for _ in 0..5 {
        let before = event_loop.statistics();
        let wake = wake.clone();
        let waking = thread::spawn(move || {
            thread::sleep(2 * MILLISECOND);
            wake();
        });
        assert_eq!(event_loop.tick(&mut [Event::EMPTY; 4], Wait::Forever).unwrap(), 0);
        waking.join().unwrap();
        event_loop.tick(&mut [Event::EMPTY; 4], Wait::AtMost(2 * MILLISECOND)).unwrap();
        let after = event_loop.statistics();
        let zero =
            |it: &rotor::Statistics| it.waits.zero_ready + it.waits.zero_spin + it.waits.zero_timer;
        assert_eq!(zero(&after), zero(&before));
        assert_eq!(after.waits.by_timeout - before.waits.by_timeout, 1);
    }
}

fn crossing() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let wake = event_loop.waker();
    for round in 0..50 {
        event_loop.submit(Operation::receive_picked(stream), round).unwrap();
        settle(&mut event_loop);
        if round % 2 == 0 {
            wake();
            deliver(&peer, b"x");
        } else {
            deliver(&peer, b"x");
            wake();
        }
        let event = the_final(&mut event_loop);
        assert_eq!(event.user_data(), round);
        assert_eq!(take(&mut event_loop, &event), b"x");
        // Uses the wake up, if the event came without it.
        event_loop.tick(&mut [Event::EMPTY; 4], Wait::AtMost(MILLISECOND / 100)).unwrap();
    }
    assert_idle(&mut event_loop);
}

fn flood() {
    run(async {
        let stop = Arc::new(AtomicU32::new(0));
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let seen = stop.clone();
        let waking = thread::spawn(move || {
            while seen.load(Ordering::Relaxed) == 0 {
                waker.wake_by_ref();
            }
        });
        let (mut stream, client) = pair().await;
        let peer = thread::spawn(move || {
            let mut client = client;
            for _ in 0..50 {
                std::io::Write::write_all(&mut client, b"x").unwrap();
                std::io::Read::read_exact(&mut client, &mut [0]).unwrap();
            }
        });
        let echo = rotor::spawn(async move {
            let mut byte = [0];
            while stream.read(&mut byte).await.unwrap() > 0 {
                stream.write_all(&byte).await.unwrap();
            }
        });
        let sleeps = rotor::spawn(async {
            for _ in 0..10 {
                rotor::time::sleep(MILLISECOND).await;
            }
        });
        echo.await.unwrap();
        sleeps.await.unwrap();
        stop.store(1, Ordering::Relaxed);
        peer.join().unwrap();
        waking.join().unwrap();
    });
}
