//! Wakers on many threads at once, while tasks come and go.
#![cfg(not(loom))]

mod support;

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};

use rotor_executor::{Executor, yield_now};
use support::{block_on, executor};

const THREADS: usize = 8;

/// A number that turns repeatably into others: tests do not depend on the time of day.
struct Sequence(u64);

impl Sequence {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

/// A thread that is sent wakers, keeps some, and wakes, clones and drops them in all orders.
fn juggle(seed: u64, inbox: &mpsc::Receiver<Waker>) {
    let mut sequence = Sequence(seed);
    let mut kept = Vec::new();
    for waker in inbox {
        match sequence.next() % 5 {
            0 => waker.wake(),
            1 => {
                waker.wake_by_ref();
                kept.push(waker.clone());
                drop(waker);
            }
            2 => {
                kept.push(waker.clone());
                waker.wake();
            }
            3 => {
                let copy = waker.clone();
                drop(waker);
                copy.wake_by_ref();
                kept.push(copy);
            }
            _ => {
                let copies = [waker.clone(), waker.clone()];
                waker.wake();
                copies.into_iter().for_each(|copy| copy.wake());
            }
        }
        if kept.len() > 20 {
            for waker in kept.drain(..sequence.next() as usize % 20) {
                if sequence.next() % 2 == 0 { waker.wake() } else { drop(waker) }
            }
        }
    }
    // The executor may be gone by now.
    kept.iter().for_each(Waker::wake_by_ref);
}

/// Runs tasks that wait until a thread wakes them, several times each.
fn tasks_that_are_woken_by_threads(executor: &Rc<Executor>, rounds: u64) -> usize {
    let mut outboxes = Vec::new();
    let mut threads = Vec::new();
    for seed in 0..THREADS as u64 {
        let (outbox, inbox) = mpsc::channel();
        outboxes.push(outbox);
        threads.push(std::thread::spawn(move || juggle(seed, &inbox)));
    }
    let outboxes = Rc::new(outboxes);
    let finished = Rc::new(RefCell::new(0));
    let inside = executor.clone();
    let done = finished.clone();
    block_on(executor, async move {
        let mut sequence = Sequence(99);
        for round in 0..rounds {
            let mut tasks = Vec::new();
            for _ in 0..16 {
                let (outboxes, target) = (outboxes.clone(), sequence.next() as usize);
                let Ok(task) = inside.try_spawn(async move {
                    for hop in 0..4 {
                        let mut sent = false;
                        poll_fn(|cx| {
                            if sent {
                                return Poll::Ready(());
                            }
                            sent = true;
                            let outbox = &outboxes[(target + hop) % THREADS];
                            outbox.send(cx.waker().clone()).unwrap();
                            Poll::Pending
                        })
                        .await;
                    }
                }) else {
                    // Threads keep the wakers of too many finished tasks just now.
                    yield_now().await;
                    continue;
                };
                tasks.push(task);
            }
            for (number, task) in tasks.into_iter().enumerate() {
                if round % 4 == 3 && number % 3 == 0 {
                    task.abort();
                }
                let _ = task.await;
                *done.borrow_mut() += 1;
            }
        }
    });
    // The outboxes went with the tasks and the main future.
    for thread in threads {
        thread.join().unwrap();
    }
    finished.take()
}

#[test]
fn tasks_woken_from_eight_threads_lose_no_wake() {
    let executor = executor(128);
    let finished = tasks_that_are_woken_by_threads(&executor, 300);
    assert!(finished > 1000, "{finished}");
    assert!(executor.prepare_wait());
    let statistics = executor.statistics();
    assert_eq!((statistics.tasks_now, statistics.headers_now), (0, 1));
    assert_eq!(statistics.completed + statistics.cancelled, statistics.spawned);
}

#[test]
fn wakers_are_used_by_eight_threads_while_the_executor_ends() {
    for round in 0..200 {
        let executor = executor(8);
        let wakers = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..8 {
            let wakers = wakers.clone();
            drop(executor.spawn(poll_fn(move |cx| {
                wakers.lock().unwrap().push(cx.waker().clone());
                if round % 2 == 0 { Poll::Pending } else { Poll::Ready(()) }
            })));
        }
        support::run_all(&executor);
        wakers.lock().unwrap().push(executor.main_waker());
        let go = Arc::new(AtomicBool::new(false));
        let ready = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (wakers, go, ready) = (wakers.clone(), go.clone(), ready.clone());
                std::thread::spawn(move || {
                    let own: Vec<Waker> = wakers.lock().unwrap().clone();
                    drop(wakers);
                    ready.fetch_add(1, Ordering::SeqCst);
                    while !go.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    for (index, waker) in own.into_iter().enumerate() {
                        if index % THREADS == number {
                            let copy = waker.clone();
                            copy.wake();
                        }
                        waker.wake();
                    }
                })
            })
            .collect();
        while ready.load(Ordering::SeqCst) < THREADS {
            std::thread::yield_now();
        }
        // From here on only the threads have wakers.
        wakers.lock().unwrap().clear();
        go.store(true, Ordering::Release);
        if round % 3 != 0 {
            let _ = executor.run(&mut 20);
        }
        drop(executor);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
