//! Sleeps that are moved and dropped, intervals, and many timers, on the real backend.

mod support;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rotor::runtime::{Builder, Runtime};
use rotor::task::yield_now;
use rotor::time::{
    Instant, MissedTickBehavior, Sleep, interval, interval_at, sleep, sleep_until, timeout_at,
    try_interval, try_sleep, try_timeout_at,
};
use support::{MILLISECOND, poll_once, watched, words_of};

const HOUR: Duration = Duration::from_secs(3600);

fn run<F: Future>(timers: u32, main: F) -> F::Output {
    let _watched = watched();
    Builder::new().timers(timers).build().unwrap().block_on(main)
}

/// Polls a sleep once, so that it is armed.
fn arm(sleep: Pin<&mut Sleep>) -> Poll<()> {
    sleep.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_sleep_can_be_moved_in_every_state() {
    run(8, async {
        let now = Instant::now();
        // Before its first poll, while it is armed, and once it is over.
        let mut moved = pin!(sleep(HOUR));
        moved.as_mut().reset(now + MILLISECOND);
        moved.as_mut().await;
        assert!(Instant::now() >= now + MILLISECOND && moved.is_elapsed());
        let later = Instant::now() + 5 * MILLISECOND;
        moved.as_mut().reset(later);
        assert!(!moved.is_elapsed());
        assert!(arm(moved.as_mut()).is_pending());
        let last = later + 5 * MILLISECOND;
        moved.as_mut().reset(last);
        assert_eq!(moved.deadline(), last);
        moved.as_mut().await;
        assert!(Instant::now() >= last);
        // Due, with nobody told yet.
        moved.as_mut().reset(Instant::now() + MILLISECOND);
        assert!(arm(moved.as_mut()).is_pending());
        thread::sleep(2 * MILLISECOND);
        let after = Instant::now() + 5 * MILLISECOND;
        moved.as_mut().reset(after);
        moved.as_mut().await;
        assert!(Instant::now() >= after);
        // Into the past.
        moved.as_mut().reset(now);
        moved.as_mut().await;
    });
}

/// The task that waits does not poll again by itself: the reset has to see to it.
#[test]
fn a_task_that_waits_is_woken_at_the_new_time() {
    run(8, async {
        for from in [Duration::MAX, HOUR] {
            let shared = Rc::new(RefCell::new(Box::pin(sleep(from))));
            let waiting = shared.clone();
            let task = rotor::spawn(async move {
                poll_fn(|cx| waiting.borrow_mut().as_mut().poll(cx)).await;
                Instant::now()
            });
            for _ in 0..3 {
                yield_now().await;
            }
            // For ever, and back again.
            shared.borrow_mut().as_mut().reset(Instant::now() + Duration::MAX);
            for _ in 0..3 {
                yield_now().await;
            }
            let end = Instant::now() + 3 * MILLISECOND;
            shared.borrow_mut().as_mut().reset(end);
            assert!(task.await.unwrap() >= end);
        }
    });
}

#[test]
fn a_dropped_sleep_gives_its_timer_back_at_once() {
    run(4, async {
        // No tick comes in between.
        for _ in 0..1000 {
            let sleeps: Vec<_> = (0..4).map(|_| try_sleep(HOUR).unwrap()).collect();
            let error = try_sleep(HOUR).unwrap_err().to_string();
            assert!(error.contains("timers"), "{error}");
            drop(sleeps);
        }
        sleep(MILLISECOND).await;
    });
}

#[test]
fn with_all_timers_armed_others_are_refused_in_words_and_those_fire() {
    run(4, async {
        let now = Instant::now();
        let tasks: Vec<_> =
            (0..3).map(|_| rotor::spawn(sleep_until(now + 20 * MILLISECOND))).collect();
        yield_now().await;
        let mut fourth = pin!(try_sleep(20 * MILLISECOND).unwrap());
        assert!(try_interval(MILLISECOND).is_err());
        assert!(try_timeout_at(now, async {}).is_err());
        let mut refused = Box::pin(sleep(MILLISECOND));
        let panic = catch_unwind(AssertUnwindSafe(|| arm(refused.as_mut()))).unwrap_err();
        assert!(words_of(&*panic).contains("timers"), "{}", words_of(&*panic));
        for task in tasks {
            task.await.unwrap();
        }
        fourth.as_mut().await;
        sleep(MILLISECOND).await;
    });
}

#[test]
fn an_interval_ticks_from_what_was_due_and_loses_no_tick_to_a_dropped_future() {
    run(8, async {
        let start = Instant::now() + 2 * MILLISECOND;
        let mut ticks = interval_at(start, 3 * MILLISECOND);
        let mut dropped = 0;
        for number in 0..20 {
            let due = loop {
                match poll_once(ticks.tick()).await {
                    Some(due) => break due,
                    None => {
                        dropped += 1;
                        sleep(MILLISECOND).await;
                    }
                }
            };
            assert_eq!(due, start + number * 3 * MILLISECOND);
            assert!(Instant::now() >= due);
        }
        assert!(dropped > 5, "{dropped} futures were dropped");
        let first = interval(HOUR).tick().await;
        assert!(Instant::now().duration_since(first) < HOUR, "the first tick comes at once");
    });
}

#[test]
fn missed_ticks_come_at_once_later_or_never() {
    use MissedTickBehavior::{Burst, Delay, Skip};
    run(8, async {
        for behavior in [Burst, Delay, Skip] {
            let period = 10 * MILLISECOND;
            let mut ticks = interval(period);
            let first = ticks.tick().await;
            // After the first, which may come late by itself on a busy machine.
            ticks.set_missed_tick_behavior(behavior);
            assert_eq!((ticks.missed_tick_behavior(), ticks.period()), (behavior, period));
            thread::sleep(period * 7 / 2);
            let before = Instant::now();
            let late = ticks.tick().await;
            let after = Instant::now();
            assert_eq!(late, first + period, "the tick that is there is the first one missed");
            let next = ticks.tick().await;
            match behavior {
                Burst => assert_eq!(next, late + period),
                Delay => assert!(before + period <= next && next <= after + period),
                Skip => {
                    let periods = (next - first).as_nanos() as f64 / period.as_nanos() as f64;
                    assert!(periods >= 4.0 && periods.fract() == 0.0, "{periods} periods");
                    assert!(next > before && next <= after + period);
                }
            }
        }
    });
}

#[test]
fn an_interval_begins_anew_where_it_is_told() {
    run(8, async {
        let mut ticks = interval(HOUR);
        ticks.tick().await;
        let at = Instant::now() + 2 * MILLISECOND;
        ticks.reset_at(at);
        assert_eq!(ticks.tick().await, at);
        let now = Instant::now();
        ticks.reset_after(2 * MILLISECOND);
        let due = ticks.tick().await;
        assert!(due >= now + 2 * MILLISECOND && Instant::now() >= due);
        ticks.reset_immediately();
        ticks.tick().await;
        let now = Instant::now();
        ticks.reset();
        assert!(poll_once(ticks.tick()).await.is_none());
        ticks.reset_at(now);
        assert_eq!(ticks.tick().await, now);
    });
}

#[test]
fn an_interval_without_a_period_is_refused_in_words() {
    run(1, async {
        let panic = catch_unwind(|| interval(Duration::ZERO)).unwrap_err();
        assert!(words_of(&*panic).contains("above zero"), "{}", words_of(&*panic));
        // The longest there is ticks once.
        let mut longest = interval(Duration::MAX);
        longest.tick().await;
        assert!(poll_once(longest.tick()).await.is_none());
    });
}

#[test]
fn a_time_out_at_a_point_in_time_lets_what_is_ready_win() {
    run(2, async {
        let now = Instant::now();
        assert_eq!(timeout_at(now, async { 7 }).await, Ok(7), "the point has passed");
        let end = Instant::now() + 2 * MILLISECOND;
        assert!(timeout_at(end, std::future::pending::<()>()).await.is_err());
        assert!(Instant::now() >= end);
        assert!(try_timeout_at(now, std::future::pending::<()>()).unwrap().await.is_err());
    });
}

/// All at one deadline: the tasks that have nothing to do with it have their turns in between.
#[test]
fn a_hundred_thousand_timers_of_one_moment_all_fire_in_order_and_others_run() {
    const TIMERS: u32 = 100_000;
    let _watched = watched();
    let runtime = Builder::new().timers(TIMERS).tasks(TIMERS + 1).build().unwrap();
    // So late that all wait for it before it comes; a slow machine needs longer.
    let seconds = [1, 4, 16, 64].into_iter();
    let all_waited = seconds.map(Duration::from_secs).any(|after| {
        runtime.block_on(async {
            let moment = Instant::now() + after;
            let (polled, fired) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            for number in 0..TIMERS {
                let (polled, fired) = (polled.clone(), fired.clone());
                drop(rotor::spawn(async move {
                    polled.set(polled.get() + 1);
                    sleep_until(moment).await;
                    assert!(Instant::now() >= moment);
                    assert_eq!(fired.replace(number + 1), number, "in the order they were armed");
                }));
            }
            while polled.get() < TIMERS {
                yield_now().await;
            }
            let all_wait = Instant::now() < moment;
            let mut turns = 0;
            while fired.get() < TIMERS {
                turns += u32::from(fired.get() > 0);
                yield_now().await;
            }
            assert!(!all_wait || turns > 100, "the other task had {turns} turns");
            all_wait
        })
    });
    assert!(all_waited, "the machine is too slow for {TIMERS} timers");
}

/// The sleep that is dropped is due at the same moment as the one whose waker drops it.
#[test]
fn a_sleep_dropped_by_the_wake_of_another_is_gone() {
    struct DropsIt(std::sync::Mutex<Option<SendAnyway>>);
    struct SendAnyway(Pin<Box<Sleep>>);
    // SAFETY: waker and sleep stay on this thread.
    unsafe impl Send for SendAnyway {}
    impl std::task::Wake for DropsIt {
        fn wake(self: std::sync::Arc<Self>) {
            drop(self.0.lock().unwrap().take().map(|held| held.0));
        }
    }
    let _watched = watched();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        for _ in 0..100 {
            let moment = Instant::now() + MILLISECOND;
            let mut first = Box::pin(sleep_until(moment));
            let mut second = Box::pin(sleep_until(moment));
            assert!(arm(second.as_mut()).is_pending());
            let held = std::sync::Mutex::new(Some(SendAnyway(second)));
            let drops = std::sync::Arc::new(DropsIt(held));
            let waker = Waker::from(drops.clone());
            assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            sleep_until(moment + MILLISECOND).await;
            assert!(drops.0.lock().unwrap().is_none(), "the first fired");
            assert!(arm(first.as_mut()).is_ready());
        }
    });
}
