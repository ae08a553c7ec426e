//! A counting allocator: nothing is allocated between an executor's creation and its end.
#![cfg(not(loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use rotor_executor::{Executor, JoinSet, Options, Oversized, Turn, yield_now};

struct Counting;

thread_local! {
    // Of this thread alone: the test harness waits on another one, and allocates when it likes.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's word.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> usize {
    ALLOCATIONS.get()
}

#[test]
fn an_executor_allocates_once_and_never_again() {
    let unpark: rotor_executor::Unpark = Arc::new(|| {});
    let options = Options { tasks: 64, task_bytes: 512, oversized: Oversized::Refuse };
    let before = allocations();
    let executor = Executor::new(options, unpark).unwrap();
    assert_eq!(allocations() - before, 1);
    let executor = Rc::new(executor);

    let start = allocations();
    let mut kept = [const { None::<Waker> }; 32];
    for round in 0..1000 {
        let inside = executor.clone();
        let parent = executor.spawn(async move {
            let mut sum = 0;
            for number in 0..10 {
                let child = inside.spawn(async move {
                    yield_now().await;
                    number
                });
                if number == 3 {
                    child.abort();
                }
                sum += child.await.unwrap_or(0);
            }
            sum
        });
        let waker = executor.spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
        let ran = Rc::as_ptr(&executor);
        drop(executor.spawn(async move { ran.is_null() }));
        executor.wake_main();
        let mut polls_left = 1000;
        while executor.run(&mut polls_left) != Turn::Idle {}
        assert!(executor.prepare_wait());
        assert!(parent.is_finished() && waker.is_finished());
        drop(parent);
        kept[round % 32] = take(waker);
        kept[round % 32].as_ref().unwrap().wake_by_ref();
    }
    executor.shut_down();
    assert_eq!(allocations(), start);
    drop(executor);
    drop(kept);
    assert_eq!(allocations(), start);
}

#[test]
fn a_set_allocates_for_its_growth_and_never_for_a_task_after_that() {
    let options = Options { tasks: 64, task_bytes: 512, oversized: Oversized::Refuse };
    let executor = Rc::new(Executor::new(options, Arc::new(|| {})).unwrap());
    let mut set = JoinSet::on(executor.clone());
    let mut round = |many: u32| {
        let start = allocations();
        for number in 0..many {
            set.spawn(async move {
                if number % 3 == 0 {
                    yield_now().await;
                }
                number
            });
        }
        let mut polls_left = 1000;
        assert_eq!(executor.run(&mut polls_left), Turn::Idle);
        let mut sum = 0;
        while let Some(output) = set.try_join_next() {
            sum += output.unwrap();
        }
        assert_eq!(sum, many * (many - 1) / 2);
        allocations() - start
    };
    assert!(round(60) > 0);
    for many in 1..=60 {
        assert_eq!(round(many), 0);
    }
}

fn take<T>(handle: rotor_executor::JoinHandle<T>) -> Option<T> {
    let mut handle = std::pin::pin!(handle);
    let mut cx = std::task::Context::from_waker(Waker::noop());
    match handle.as_mut().poll(&mut cx) {
        Poll::Ready(output) => output.ok(),
        Poll::Pending => None,
    }
}
