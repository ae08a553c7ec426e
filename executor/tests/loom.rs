//! Every interleaving, within a bound on preemptions, of the shipped code with another thread:
//! `RUSTFLAGS="--cfg loom" cargo test -p rotor-executor --test loom --release`.
#![cfg(loom)]

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll, Waker};

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use rotor_executor::{Executor, JoinHandle, Options, Oversized, Turn};

/// Checks a model under at most this many preemptions, unless the environment says otherwise.
const PREEMPTIONS_MAX: usize = 3;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS_MAX));
    builder.check(model);
}

/// The owner's sleep, ended by the unpark hook. Loom reports it if nothing can end it any more.
#[derive(Clone)]
struct Sleep {
    state: Arc<(Mutex<Unparked>, Condvar)>,
}

#[derive(Default)]
struct Unparked {
    pending: bool,
    calls: usize,
}

impl Sleep {
    fn new() -> Sleep {
        Sleep { state: Arc::new((Mutex::new(Unparked::default()), Condvar::new())) }
    }

    fn unpark(&self) {
        let (lock, condition) = &*self.state;
        let mut unparked = lock.lock().unwrap();
        unparked.pending = true;
        unparked.calls += 1;
        condition.notify_one();
    }

    fn wait(&self) {
        let (lock, condition) = &*self.state;
        let mut unparked = lock.lock().unwrap();
        while !unparked.pending {
            unparked = condition.wait(unparked).unwrap();
        }
        unparked.pending = false;
    }

    fn calls(&self) -> usize {
        self.state.0.lock().unwrap().calls
    }
}

fn executor(sleep: &Sleep) -> Executor {
    let sleep = sleep.clone();
    let options = Options { tasks: 1, task_bytes: 512, oversized: Oversized::Refuse };
    let unpark = StdArc::new(move || sleep.unpark());
    Executor::new(options, unpark).unwrap()
}

fn turns(executor: &Executor) -> u32 {
    let mut polls_left = 100;
    assert_eq!(executor.run(&mut polls_left), Turn::Idle);
    100 - polls_left
}

fn output_of<T>(handle: &mut JoinHandle<T>) -> T {
    match Pin::new(handle).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output.unwrap(),
        Poll::Pending => panic!("the task has not finished"),
    }
}

/// Takes the waker of a task that then waits until `done` says it may return.
fn waiting_task(executor: &Executor, done: impl Fn() -> bool + 'static) -> (JoinHandle<()>, Waker) {
    let slot = Rc::new(Cell::new(None));
    let store = slot.clone();
    let handle = executor.spawn(poll_fn(move |cx| {
        if done() {
            return Poll::Ready(());
        }
        store.set(Some(cx.waker().clone()));
        Poll::Pending
    }));
    assert_eq!(turns(executor), 1);
    (handle, slot.take().unwrap())
}

fn headers_now(executor: &Executor) -> u32 {
    assert!(!executor.has_ready());
    executor.statistics().headers_now
}

#[test]
fn a_remote_wake_racing_a_poll_is_never_lost() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        // Written relaxed: only the wake makes it visible to the poll.
        let data = Arc::new(AtomicBool::new(false));
        let seen = data.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.load(Ordering::Relaxed));
        let local = waker.clone();
        let other = thread::spawn(move || {
            data.store(true, Ordering::Relaxed);
            waker.wake();
        });
        local.wake();
        loop {
            turns(&executor);
            if task.is_finished() {
                break;
            }
            if executor.prepare_wait() {
                sleep.wait();
            }
        }
        other.join().unwrap();
        output_of(&mut task);
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn two_remote_wakes_of_one_task_show_it_what_both_did() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let data = Arc::new(AtomicUsize::new(0));
        let seen = data.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.load(Ordering::Relaxed) == 2);
        let threads = [waker.clone(), waker].map(|waker| {
            let data = data.clone();
            thread::spawn(move || {
                data.fetch_add(1, Ordering::Relaxed);
                waker.wake();
            })
        });
        loop {
            turns(&executor);
            if task.is_finished() {
                break;
            }
            if executor.prepare_wait() {
                sleep.wait();
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        output_of(&mut task);
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn wakes_of_two_headers_and_a_wait_lose_neither() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let data = Arc::new(AtomicBool::new(false));
        let seen = data.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.load(Ordering::Relaxed));
        let main = executor.main_waker();
        let threads = [
            thread::spawn(move || {
                data.store(true, Ordering::Relaxed);
                waker.wake();
            }),
            thread::spawn(move || main.wake()),
        ];
        let mut main_turns = 0;
        let mut waits = 1;
        while main_turns == 0 || !task.is_finished() {
            match executor.run(&mut 100) {
                Turn::Main => main_turns += 1,
                Turn::Spent => {}
                Turn::Idle => {
                    if main_turns == 1 && task.is_finished() {
                        break;
                    }
                    waits += 1;
                    if executor.prepare_wait() {
                        sleep.wait();
                    }
                }
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(main_turns, 1);
        assert!(sleep.calls() <= waits);
        output_of(&mut task);
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn a_header_pushed_again_while_it_is_taken_out_loses_no_other() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let data = Arc::new(AtomicBool::new(false));
        let seen = data.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.load(Ordering::Relaxed));
        let main = executor.main_waker();
        let other = thread::spawn(move || {
            main.wake_by_ref();
            data.store(true, Ordering::Relaxed);
            waker.wake();
            main.wake();
        });
        let mut main_turns = 0;
        while main_turns == 0 || !task.is_finished() {
            match executor.run(&mut 100) {
                Turn::Main => main_turns += 1,
                Turn::Spent => {}
                Turn::Idle => {
                    if main_turns > 0 && task.is_finished() {
                        break;
                    }
                    if executor.prepare_wait() {
                        sleep.wait();
                    }
                }
            }
        }
        other.join().unwrap();
        output_of(&mut task);
        while executor.run(&mut 100) == Turn::Main {}
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn a_remote_wake_racing_the_tasks_end_wakes_nobody_else() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.get());
        let local = waker.clone();
        let other = thread::spawn(move || waker.wake());
        done.set(true);
        local.wake();
        turns(&executor);
        output_of(&mut task);
        // The same cell, and perhaps the same header.
        let (mut next, next_waker) = waiting_task(&executor, || false);
        assert_eq!(turns(&executor), 0);
        other.join().unwrap();
        assert_eq!(turns(&executor), 0);
        next.abort();
        drop(next_waker);
        assert_eq!(turns(&executor), 1);
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(matches!(Pin::new(&mut next).poll(cx), Poll::Ready(Err(_))));
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn remote_clones_and_drops_racing_the_end_free_the_header_once() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.get());
        let local = waker.clone();
        let other = thread::spawn(move || {
            let copy = waker.clone();
            drop(waker);
            let last = copy.clone();
            drop(copy);
            drop(last);
        });
        done.set(true);
        local.wake();
        turns(&executor);
        output_of(&mut task);
        // Reuse, while the other thread may still have its wakers.
        let mut next = executor.spawn(async {});
        turns(&executor);
        output_of(&mut next);
        other.join().unwrap();
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn a_waker_cloned_elsewhere_and_dropped_here_racing_the_end_is_counted_right() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let done = Rc::new(Cell::new(false));
        let seen = done.clone();
        let (mut task, waker) = waiting_task(&executor, move || seen.get());
        let sent = Arc::new(Mutex::new(None));
        let (send, local) = (sent.clone(), waker.clone());
        let other = thread::spawn(move || {
            *send.lock().unwrap() = Some(waker.clone());
            drop(waker);
        });
        drop(sent.lock().unwrap().take());
        done.set(true);
        local.wake();
        turns(&executor);
        output_of(&mut task);
        drop(sent.lock().unwrap().take());
        other.join().unwrap();
        drop(sent.lock().unwrap().take());
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn the_last_waker_dropped_elsewhere_racing_the_executors_end_frees_the_memory_once() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let (task, waker) = waiting_task(&executor, || false);
        let main = executor.main_waker();
        let threads = [thread::spawn(move || drop(waker)), thread::spawn(move || drop(main))];
        drop(executor);
        drop(task);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn wakes_racing_the_executors_end_touch_no_freed_memory() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let (task, waker) = waiting_task(&executor, || false);
        drop(task);
        let main = executor.main_waker();
        let threads = [thread::spawn(move || waker.wake()), thread::spawn(move || main.wake())];
        drop(executor);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_waker_of_a_finished_task_dropped_elsewhere_racing_the_executors_end_is_handed_over_or_freed() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let slot = Rc::new(Cell::new(None));
        let store = slot.clone();
        drop(executor.spawn(poll_fn(move |cx| {
            store.set(Some(cx.waker().clone()));
            Poll::Ready(())
        })));
        turns(&executor);
        let waker: Waker = slot.take().unwrap();
        let copy = waker.clone();
        let other = thread::spawn(move || {
            waker.wake_by_ref();
            drop(waker);
        });
        drop(copy);
        drop(executor);
        other.join().unwrap();
    });
}

#[test]
fn an_abort_handle_and_wakers_elsewhere_racing_the_end_free_the_header_once() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let (task, waker) = waiting_task(&executor, || false);
        let abort = task.abort_handle();
        drop(task);
        let other = thread::spawn(move || {
            let copy = waker.clone();
            waker.wake();
            drop(copy);
        });
        abort.abort();
        turns(&executor);
        assert!(abort.is_finished());
        drop(abort.clone());
        drop(abort);
        // The same cell, and perhaps the same header.
        let mut next = executor.spawn(async {});
        turns(&executor);
        output_of(&mut next);
        other.join().unwrap();
        assert_eq!(headers_now(&executor), 1);
    });
}

#[test]
fn an_abort_handle_kept_past_the_executor_and_a_waker_elsewhere_free_the_memory_once() {
    check(|| {
        let sleep = Sleep::new();
        let executor = executor(&sleep);
        let (task, waker) = waiting_task(&executor, || false);
        let abort = task.abort_handle();
        drop(task);
        let other = thread::spawn(move || drop(waker));
        drop(executor);
        assert!(abort.is_finished());
        drop(abort);
        other.join().unwrap();
    });
}
