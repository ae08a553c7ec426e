//! Sets of tasks: order, limits, panics, aborts, and what dropping does.
#![cfg(not(loom))]

mod support;

use std::cell::Cell;
use std::future::{Future, pending};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rotor_executor::{Executor, JoinSet, SpawnError, coop, yield_now};
use support::{
    CountingWaker, DropCounter, Gate, OnDrop, block_on, executor, quiet_panics, run_all,
};

type Set<T> = JoinSet<T, Rc<Executor>>;

async fn after<T>(turns: usize, output: T) -> T {
    for _ in 0..turns {
        yield_now().await;
    }
    output
}

fn poll_next<T>(set: &mut Set<T>) -> Poll<Option<Result<T, rotor_executor::JoinError>>> {
    set.poll_join_next(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn tasks_are_joined_in_the_order_in_which_they_end() {
    let executor = executor(8);
    let mut set = Set::on(executor.clone());
    for turns in [3, 1, 4, 0, 2] {
        set.spawn(after(turns, turns));
    }
    assert_eq!((set.len(), set.is_empty()), (5, false));
    assert!(set.try_join_next().is_none());
    let joined = block_on(&executor, async {
        let mut joined = Vec::new();
        while let Some(output) = set.join_next().await {
            joined.push(output.unwrap());
        }
        joined
    });
    assert_eq!(joined, [0, 1, 2, 3, 4]);
    assert!(set.is_empty());
    assert!(matches!(poll_next(&mut set), Poll::Ready(None)));
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn ended_tasks_keep_their_cells_so_that_a_set_is_bounded() {
    let executor = executor(3);
    let mut set = Set::on(executor.clone());
    for number in 0..3 {
        set.spawn(async move { number });
    }
    run_all(&executor);
    assert_eq!(set.try_spawn(async { 9 }).unwrap_err(), SpawnError::Full { limit: 3 });
    assert_eq!(set.len(), 3);
    assert_eq!(set.try_join_next().unwrap().unwrap(), 0);
    set.spawn_local(async { 3 });
    run_all(&executor);
    let rest: Vec<i32> = std::iter::from_fn(|| set.try_join_next()).map(Result::unwrap).collect();
    assert_eq!(rest, [1, 2, 3]);
}

#[test]
#[should_panic(expected = "all 1 tasks are in use; raise `tasks`")]
fn spawn_into_a_full_table_panics_with_the_words_of_the_error() {
    let mut set = Set::on(executor(1));
    set.spawn(async {});
    set.spawn(async {});
}

#[test]
fn a_dropped_join_next_loses_nothing() {
    let executor = executor(4);
    let mut set = Set::on(executor.clone());
    let gate = Gate::default();
    let inside = gate.clone();
    set.spawn(async move {
        inside.await;
        5
    });
    let counter = Arc::<CountingWaker>::default();
    let waker = counter.clone().into();
    {
        let mut next = pin!(set.join_next());
        assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    run_all(&executor);
    gate.open();
    run_all(&executor);
    assert_eq!((counter.wakes(), set.len()), (1, 1));
    assert_eq!(block_on(&executor, set.join_next()).unwrap().unwrap(), 5);
}

#[test]
fn the_waker_that_polled_last_is_woken_once() {
    let executor = executor(4);
    let mut set = Set::on(executor.clone());
    set.spawn(async {});
    set.spawn(async {});
    let (first, second) = (Arc::<CountingWaker>::default(), Arc::<CountingWaker>::default());
    for counter in [&first, &first, &second, &second] {
        let waker = counter.clone().into();
        assert!(set.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&first), 1);
    run_all(&executor);
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn panics_and_aborts_are_joined_as_errors() {
    quiet_panics();
    let executor = executor(4);
    let mut set = Set::on(executor.clone());
    set.spawn(async { panic!("polled on purpose") });
    let waits = set.spawn(pending::<()>());
    run_all(&executor);
    assert!(set.try_join_next().unwrap().unwrap_err().is_panic());
    assert!(set.try_join_next().is_none());
    waits.abort();
    run_all(&executor);
    assert!(waits.is_finished());
    assert!(set.try_join_next().unwrap().unwrap_err().is_cancelled());
    assert!(set.is_empty());
}

#[test]
fn abort_all_leaves_the_tasks_to_be_joined() {
    let executor = executor(4);
    let mut set = Set::on(executor.clone());
    set.spawn(async { 1 });
    run_all(&executor);
    set.spawn(pending());
    set.spawn(pending());
    set.abort_all();
    assert_eq!(set.len(), 3);
    let joined = block_on(&executor, async {
        let mut joined = Vec::new();
        while let Some(output) = set.join_next().await {
            joined.push(output.ok());
        }
        joined
    });
    assert_eq!(joined, [Some(1), None, None]);
}

#[test]
fn shutdown_waits_until_every_future_is_dropped() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let mut set = Set::on(executor.clone());
    for _ in 0..3 {
        let held = DropCounter::new(&drops);
        set.spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
    }
    run_all(&executor);
    block_on(&executor, set.shutdown());
    assert_eq!((drops.get(), set.len()), (3, 0));
    // It can be used again.
    set.spawn(async {});
    run_all(&executor);
    assert!(set.try_join_next().unwrap().is_ok());
}

#[test]
fn join_all_gives_the_outputs_as_they_came() {
    let executor = executor(8);
    let mut set = Set::on(executor.clone());
    for turns in [2, 0, 1] {
        set.spawn(after(turns, turns));
    }
    assert_eq!(block_on(&executor, set.join_all()), [0, 1, 2]);
    assert!(block_on(&executor, Set::<u8>::on(executor.clone()).join_all()).is_empty());
}

#[test]
fn join_all_goes_on_with_a_tasks_panic_and_aborts_the_rest() {
    quiet_panics();
    let executor = executor(8);
    let drops = Rc::new(Cell::new(0));
    let held = DropCounter::new(&drops);
    let mut set = Set::on(executor.clone());
    set.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    set.spawn(async { panic!("polled on purpose") });
    let joining = std::panic::AssertUnwindSafe(|| block_on(&executor, set.join_all()));
    let payload = std::panic::catch_unwind(joining).unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "polled on purpose");
    run_all(&executor);
    assert_eq!((drops.get(), executor.free_tasks()), (1, 8));
}

#[test]
#[should_panic(expected = "the task was cancelled")]
fn join_all_of_an_aborted_task_says_so() {
    let executor = executor(8);
    let mut set = Set::on(executor.clone());
    set.spawn(pending::<()>()).abort();
    block_on(&executor, set.join_all());
}

#[test]
fn detached_tasks_go_on_and_outputs_that_are_there_are_dropped() {
    let executor = executor(8);
    let drops = Rc::new(Cell::new(0));
    let mut set = Set::on(executor.clone());
    let (early, late) = (DropCounter::new(&drops), DropCounter::new(&drops));
    set.spawn(async move { early });
    run_all(&executor);
    set.spawn(after(1, late));
    assert_eq!(drops.get(), 0);
    set.detach_all();
    assert_eq!((drops.get(), set.len()), (1, 0));
    assert!(matches!(poll_next(&mut set), Poll::Ready(None)));
    run_all(&executor);
    assert_eq!((drops.get(), executor.free_tasks()), (2, 8));
    assert_eq!(executor.statistics().cancelled, 0);
    assert!(set.try_join_next().is_none());
    // The places are used again, and only their new tasks are joined.
    let third = DropCounter::new(&drops);
    set.spawn(async move { third });
    run_all(&executor);
    assert!(set.try_join_next().unwrap().is_ok());
    assert!(set.is_empty());
}

#[test]
fn dropping_a_set_aborts_its_tasks_and_drops_its_outputs() {
    let executor = executor(8);
    let drops = Rc::new(Cell::new(0));
    let mut set = Set::on(executor.clone());
    let (early, held) = (DropCounter::new(&drops), DropCounter::new(&drops));
    set.spawn(async move { Some(early) });
    let abort = set.spawn(async move {
        let _held = held;
        pending().await
    });
    run_all(&executor);
    drop(set);
    assert_eq!((drops.get(), abort.is_finished()), (1, false));
    run_all(&executor);
    assert_eq!((drops.get(), abort.is_finished()), (2, true));
    assert_eq!(executor.free_tasks(), 8);
}

#[test]
fn a_set_joined_by_one_of_its_own_tasks_destructors_loses_nothing() {
    let executor = executor(8);
    let inside = executor.clone();
    let gate = Gate::default();
    let (opens, waits) = (gate.clone(), gate.clone());
    let mut set = Set::on(executor.clone());
    // Ends by waking another member while it is dropped.
    let act = OnDrop(move || {
        opens.open();
        drop(inside.spawn(async {}));
    });
    set.spawn(async move {
        let _act = act;
        pending::<()>().await;
    });
    set.spawn(waits);
    run_all(&executor);
    set.abort_all();
    run_all(&executor);
    let ends: Vec<bool> =
        std::iter::from_fn(|| set.try_join_next()).map(|end| end.is_ok()).collect();
    assert_eq!(ends, [false, false]);
    assert_eq!(executor.statistics().headers_now, 1 + u32::from(gate.waker.borrow().is_some()));
}

#[test]
fn a_set_outlives_its_executor_and_one_that_shuts_down_cancels() {
    let executor = executor(8);
    let mut set = JoinSet::on(OnWeak(Rc::downgrade(&executor)));
    set.spawn(async { 1 });
    set.spawn(pending());
    run_all(&executor);
    executor.shut_down();
    // Refused at once, and joined all the same.
    let abort = set.spawn(async { 2 });
    assert!(abort.is_finished());
    drop(executor);
    let ends: Vec<_> = std::iter::from_fn(|| set.try_join_next()).map(Result::ok).collect();
    assert_eq!(ends, [Some(1), None, None]);
}

struct OnWeak(std::rc::Weak<Executor>);

impl rotor_executor::Spawn for OnWeak {
    fn try_spawn<F>(&self, future: F) -> Result<rotor_executor::JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.0.upgrade().unwrap().try_spawn(future)
    }
}

#[test]
fn joining_many_ended_tasks_in_one_poll_is_bounded_by_the_budget() {
    let tasks = 2 * coop::BUDGET;
    let executor = executor(tasks + 1);
    let mut set = Set::on(executor.clone());
    for _ in 0..tasks {
        set.spawn(async {});
    }
    run_all(&executor);
    let polls = Rc::new(Cell::new(0));
    let seen = polls.clone();
    let joins = executor.spawn(async move {
        let mut joining = pin!(async {
            let mut joined = 0;
            while set.join_next().await.is_some() {
                joined += 1;
            }
            joined
        });
        std::future::poll_fn(|cx| {
            seen.set(seen.get() + 1);
            joining.as_mut().poll(cx)
        })
        .await
    });
    run_all(&executor);
    assert_eq!(support::output_of(joins).unwrap(), tasks);
    assert!(polls.get() > 1, "{} tasks were joined in one poll", tasks);
}

#[test]
fn a_waker_that_runs_the_executor_while_it_is_cloned_loses_no_end() {
    use std::task::{RawWaker, RawWakerVTable};
    thread_local! {
        static RUN: std::cell::RefCell<Option<Rc<Executor>>> = const { std::cell::RefCell::new(None) };
    }
    fn clone(data: *const ()) -> RawWaker {
        RUN.with_borrow(|executor| run_all(executor.as_ref().unwrap()));
        RawWaker::new(data, &VTABLE)
    }
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
    let executor = executor(4);
    RUN.set(Some(executor.clone()));
    let mut set = Set::on(executor);
    set.spawn(async { 1 });
    // SAFETY: the table's functions use no data.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    let polled = set.poll_join_next(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Some(Ok(1)))));
}
