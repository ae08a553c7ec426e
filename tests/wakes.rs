//! Wakes from other threads: none is lost, and none does harm once the runtime is gone.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rotor::runtime::{Options, Runtime};

/// After this long a wake was lost: the watchdog ends the program, since nothing else would.
const PATIENCE: Duration = Duration::from_secs(120);

fn small() -> Options {
    Options {
        operations: 64,
        sockets: 16,
        timers: 64,
        tasks: 2048,
        buffers: 16,
        buffer_bytes: 1024,
        ring_entries: 16,
        ..Options::default()
    }
}

/// Ends the program with a message unless it is dropped in time.
struct Watchdog {
    over: Arc<(Mutex<bool>, Condvar)>,
}

impl Watchdog {
    fn new(message: impl Fn() -> String + Send + 'static) -> Watchdog {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let watched = over.clone();
        std::thread::spawn(move || {
            let (is_over, changed) = &*watched;
            let guard = is_over.lock().unwrap();
            let waited = changed.wait_timeout_while(guard, PATIENCE, |is_over| !*is_over).unwrap();
            if waited.1.timed_out() {
                eprintln!("{}", message());
                std::process::abort();
            }
        });
        Watchdog { over }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.over.0.lock().unwrap() = true;
        self.over.1.notify_all();
    }
}

/// A value that one thread gives and one future takes. It wakes once.
struct Given {
    value: Mutex<(Option<u32>, Option<Waker>)>,
}

impl Given {
    fn give(&self, value: u32) {
        let waker = {
            let mut given = self.value.lock().unwrap();
            given.0 = Some(value);
            given.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

type Ask = mpsc::Sender<(u32, Arc<Given>)>;

/// The taking end. Its first poll asks for a value and never has it, so that only the wake helps.
struct Taking {
    given: Arc<Given>,
    ask: Option<(u32, Ask)>,
    polls: u32,
}

impl Taking {
    fn new(value: u32, ask: Ask) -> Taking {
        let given = Arc::new(Given { value: Mutex::new((None, None)) });
        Taking { given, ask: Some((value, ask)), polls: 0 }
    }
}

impl Future for Taking {
    type Output = (u32, u32);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(u32, u32)> {
        self.polls += 1;
        let polls = self.polls;
        if let Some((value, ask)) = self.ask.take() {
            self.given.value.lock().unwrap().1 = Some(cx.waker().clone());
            ask.send((value, self.given.clone())).unwrap();
            return Poll::Pending;
        }
        let mut given = self.given.value.lock().unwrap();
        match given.0 {
            Some(value) => Poll::Ready((value, polls)),
            None => {
                given.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Threads that give each value they are sent a future for, after pauses of different lengths, so that
/// a wake comes at any place of the other thread's way.
fn givers(count: usize) -> Vec<Ask> {
    let giver = |_| {
        let (ask, asked) = mpsc::channel::<(u32, Arc<Given>)>();
        std::thread::spawn(move || {
            for (value, given) in asked {
                (0..value % 64 * 8).for_each(|_| std::hint::spin_loop());
                given.give(value);
            }
        });
        ask
    };
    (0..count).map(giver).collect()
}

/// Each of the futures gets one wake, so that one lost wake leaves one of them waiting for ever. They
/// come in waves of a thousand tasks, so that wakes meet a busy and an idle loop.
#[test]
fn of_three_hundred_thousand_foreign_wakes_none_is_lost() {
    const WAVES: u32 = 300;
    const TASKS: u32 = 1000;
    let runtime = Runtime::with_options(&small()).unwrap();
    let taken = Arc::new(AtomicU32::new(0));
    let seen = taken.clone();
    let _watchdog = Watchdog::new(move || format!("only {seen:?} of 300,000 wakes came"));
    let givers = givers(4);
    let (sum, polls_high) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0)));
    runtime.block_on(async {
        for wave in 0..WAVES {
            let mut tasks = Vec::new();
            for n in 0..TASKS {
                let (sum, polls_high, taken) = (sum.clone(), polls_high.clone(), taken.clone());
                let ask = givers[n as usize % givers.len()].clone();
                tasks.push(rotor::spawn(async move {
                    let (value, polls) = Taking::new(wave * TASKS + n, ask).await;
                    sum.set(sum.get() + u64::from(value));
                    polls_high.set(polls_high.get().max(polls));
                    taken.fetch_add(1, Ordering::Relaxed);
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
    let all = u64::from(WAVES * TASKS);
    assert_eq!(u64::from(taken.load(Ordering::Relaxed)), all);
    assert_eq!(sum.get(), all * (all - 1) / 2);
    assert_eq!(polls_high.get(), 2, "each is polled once by itself and once for its wake");
    let statistics = runtime.statistics();
    println!(
        "{} wakes came from other threads, {} waits were ended by them",
        statistics.executor.wakes_remote, statistics.event_loop.waits.by_event
    );
    assert_eq!(statistics.executor.wakes_remote, all, "each wake came once");
}

/// One at a time: each wake finds the loop on its way to sleep, or asleep.
#[test]
fn a_wake_at_any_moment_of_going_to_sleep_ends_the_sleep() {
    const WAKES: u32 = 20_000;
    let runtime = Runtime::with_options(&small()).unwrap();
    let taken = Arc::new(AtomicU32::new(0));
    let seen = taken.clone();
    let _watchdog = Watchdog::new(move || format!("the wake after {seen:?} others was lost"));
    let givers = givers(1);
    runtime.block_on(async {
        for n in 0..WAKES {
            assert_eq!(Taking::new(n, givers[0].clone()).await, (n, 2));
            taken.store(n + 1, Ordering::Relaxed);
        }
    });
    let waits = runtime.statistics().event_loop.waits;
    println!("{WAKES} wakes ended {} waits", waits.by_event);
    assert_eq!((waits.by_timeout, waits.zero_spin, waits.zero_timer), (0, 0, 0));
}

#[test]
fn an_idle_runtime_is_woken_by_a_thread_and_by_nothing_else() {
    let runtime = Runtime::with_options(&small()).unwrap();
    let _watchdog = Watchdog::new(|| "the wake of an idle runtime was lost".to_string());
    let (ask, asked) = mpsc::channel::<(u32, Arc<Given>)>();
    let waking = std::thread::spawn(move || {
        let (value, given) = asked.recv().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        given.give(value);
    });
    let before = runtime.statistics().event_loop;
    let (value, polls) = runtime.block_on(Taking::new(7, ask));
    let after = runtime.statistics().event_loop;
    waking.join().unwrap();
    assert_eq!((value, polls), (7, 2));
    // It slept until the wake, and did not look by itself in between.
    assert!(after.ticks - before.ticks <= 3, "{after:?}");
    let (before, after) = (before.waits, after.waits);
    assert_eq!((after.by_timeout, after.zero_timer), (before.by_timeout, before.zero_timer));
}

/// Wakers of tasks and of the main future, of a runtime that is gone.
fn wakers_of_a_gone_runtime() -> Vec<Waker> {
    let runtime = Runtime::with_options(&small()).unwrap();
    let kept = Rc::new(std::cell::RefCell::new(Vec::new()));
    runtime.block_on(async {
        for n in 0..100 {
            let kept = kept.clone();
            drop(rotor::spawn(poll_fn(move |cx| {
                kept.borrow_mut().push(cx.waker().clone());
                // Some are over before the runtime is, some are dropped with it.
                if n % 2 == 0 { Poll::Ready(()) } else { Poll::Pending }
            })));
        }
        rotor::task::yield_now().await;
        poll_fn(|cx| {
            kept.borrow_mut().push(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    });
    drop(runtime);
    Rc::into_inner(kept).expect("every task is dropped").into_inner()
}

#[test]
fn wakers_work_on_any_thread_after_the_runtime_is_gone() {
    let wakers = wakers_of_a_gone_runtime();
    assert_eq!(wakers.len(), 101);
    let use_all = |wakers: Vec<Waker>| {
        for waker in wakers {
            waker.wake_by_ref();
            let clone = waker.clone();
            assert!(clone.will_wake(&waker));
            clone.wake();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let wakers = wakers.clone();
            scope.spawn(move || use_all(wakers));
        }
    });
    use_all(wakers);
}

/// The runtime ends, and its thread with it, while other threads wake, clone and drop its wakers.
#[test]
fn wakes_during_a_shutdown_do_no_harm() {
    for round in 0..50 {
        let stop = Arc::new(AtomicBool::new(false));
        let (hand, handed) = mpsc::channel::<Waker>();
        let waking = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let wakers: Vec<Waker> = handed.iter().collect();
                while !stop.load(Ordering::Relaxed) {
                    wakers.iter().for_each(Waker::wake_by_ref);
                    // Each clone wakes as it goes.
                    wakers.iter().cloned().for_each(Waker::wake);
                }
                // The last of them are dropped here, long after the runtime.
            })
        };
        let drops = Arc::new(AtomicU32::new(0));
        let counted = drops.clone();
        std::thread::spawn(move || {
            struct Counted(Arc<AtomicU32>);
            impl Drop for Counted {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::Relaxed);
                }
            }
            let runtime = Runtime::with_options(&small()).unwrap();
            runtime.block_on(async {
                for _ in 0..50 {
                    let (hand, mut guard) = (hand.clone(), Some(Counted(counted.clone())));
                    let mut polls = 0;
                    drop(rotor::spawn(poll_fn(move |cx| {
                        if polls == 0 {
                            hand.send(cx.waker().clone()).unwrap();
                        }
                        polls += 1;
                        if polls <= 40 {
                            return Poll::Pending;
                        }
                        drop(guard.take());
                        Poll::Ready(())
                    })));
                }
                rotor::task::yield_now().await;
                drop(hand);
                rotor::time::sleep(Duration::from_micros(200 * round % 1000)).await;
            });
        })
        .join()
        .unwrap();
        stop.store(true, Ordering::Relaxed);
        waking.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 50, "each task is dropped once");
    }
}
