//! Tasks and their join handles: outputs, panics, aborts, detaching.
#![cfg(not(loom))]

mod support;

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use rotor_executor::{JoinError, JoinHandle, yield_now};
use support::{
    CountingWaker, DropCounter, Gate, OnDrop, block_on, executor, output_of, poll_once,
    quiet_panics, run_all,
};

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("dropped on purpose");
    }
}

#[test]
fn a_join_handle_gives_the_output() {
    let executor = executor(4);
    let mut task = executor.spawn(async { String::from("output") });
    assert!(!task.is_finished());
    assert!(poll_once(&mut task).is_pending());
    run_all(&executor);
    assert!(task.is_finished());
    assert_eq!(output_of(task).unwrap(), "output");
    assert_eq!(executor.statistics().tasks_now, 0);
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn the_awaiting_waker_is_woken_once_and_the_latest_counts() {
    let executor = executor(4);
    let gate = Gate::default();
    let mut task = executor.spawn(gate.clone());
    let (first, second) = (Arc::<CountingWaker>::default(), Arc::<CountingWaker>::default());
    for counter in [&first, &first, &second, &second] {
        let waker = counter.clone().into();
        let polled = std::pin::Pin::new(&mut task).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    assert_eq!(Arc::strong_count(&first), 1);
    run_all(&executor);
    gate.open();
    run_all(&executor);
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
#[should_panic(expected = "polled after it gave its output")]
fn a_join_handle_polled_after_its_output_says_so() {
    let executor = executor(4);
    let mut task = executor.spawn(async {});
    run_all(&executor);
    assert!(poll_once(&mut task).is_ready());
    assert!(task.is_finished());
    let _ = poll_once(&mut task);
}

#[test]
fn a_detached_task_goes_on_and_its_output_is_dropped_at_once() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let (gate, output) = (Gate::default(), DropCounter::new(&drops));
    let inside = gate.clone();
    drop(executor.spawn(async move {
        inside.await;
        output
    }));
    run_all(&executor);
    assert_eq!(drops.get(), 0);
    gate.open();
    run_all(&executor);
    assert_eq!(drops.get(), 1);
    assert_eq!(executor.statistics().tasks_now, 0);
}

#[test]
fn a_handle_dropped_after_the_end_drops_the_output() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let output = DropCounter::new(&drops);
    let task = executor.spawn(async move { output });
    run_all(&executor);
    assert_eq!((drops.get(), executor.free_tasks()), (0, 3));
    drop(task);
    assert_eq!((drops.get(), executor.free_tasks()), (1, 4));
}

#[test]
fn a_panic_in_a_poll_stays_in_its_task() {
    quiet_panics();
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let held = DropCounter::new(&drops);
    let task = executor.spawn(async move {
        let _held = held;
        yield_now().await;
        if true {
            panic!("polled on purpose");
        }
    });
    let other = executor.spawn(async { 1 });
    run_all(&executor);
    assert_eq!(drops.get(), 1);
    assert_eq!(output_of(other).unwrap(), 1);
    let error = output_of(task).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    assert_eq!(error.to_string(), "the task panicked: polled on purpose");
    assert_eq!(format!("{error:?}"), "JoinError::Panic(\"polled on purpose\")");
    assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "polled on purpose");
    assert_eq!(executor.statistics().panicked, 1);
}

#[test]
fn a_panic_in_a_detached_task_stays_there() {
    quiet_panics();
    let executor = executor(4);
    drop(executor.spawn(async { panic!("polled on purpose") }));
    drop(executor.spawn(async { std::panic::panic_any(PanicOnDrop) }));
    run_all(&executor);
    assert_eq!(executor.statistics().panicked, 2);
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn a_panic_in_an_outputs_destructor_stays_there() {
    quiet_panics();
    let executor = executor(4);
    drop(executor.spawn(async { PanicOnDrop }));
    let kept = executor.spawn(async { PanicOnDrop });
    run_all(&executor);
    drop(kept);
    assert_eq!(executor.free_tasks(), 4);
    assert_eq!(executor.statistics().completed, 2);
}

#[test]
fn a_panic_in_a_futures_destructor_leaves_the_output() {
    quiet_panics();
    let executor = executor(4);
    // A future that still owns the value when it returns, unlike an async block.
    let held = PanicOnDrop;
    let task = executor.spawn(poll_fn(move |_| {
        let _ = &held;
        Poll::Ready(5)
    }));
    run_all(&executor);
    assert_eq!(output_of(task).unwrap(), 5);
}

#[test]
fn a_panic_while_an_aborted_future_is_dropped_is_its_result() {
    quiet_panics();
    let executor = executor(4);
    let task = executor.spawn(async {
        let _held = PanicOnDrop;
        pending::<()>().await;
    });
    run_all(&executor);
    task.abort();
    run_all(&executor);
    assert!(output_of(task).unwrap_err().is_panic());
    assert_eq!(executor.free_tasks(), 4);
}

#[test]
fn a_panic_in_the_awaiting_waker_stays_with_the_task_that_ended() {
    struct PanicOnWake;
    impl Wake for PanicOnWake {
        fn wake(self: Arc<Self>) {
            panic!("woken on purpose");
        }
    }
    quiet_panics();
    let executor = executor(4);
    let mut task = executor.spawn(async { 2 });
    let waker = Arc::new(PanicOnWake).into();
    assert!(std::pin::Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    let other = executor.spawn(async { 3 });
    run_all(&executor);
    assert_eq!(output_of(task).unwrap(), 2);
    assert_eq!(output_of(other).unwrap(), 3);
}

#[test]
fn an_aborted_task_is_dropped_instead_of_polled() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let (held, polled) = (DropCounter::new(&drops), Rc::new(Cell::new(false)));
    let inside = polled.clone();
    let task = executor.spawn(async move {
        let _held = held;
        inside.set(true);
    });
    task.abort();
    task.abort();
    assert_eq!(drops.get(), 0);
    assert!(!task.is_finished());
    run_all(&executor);
    assert_eq!(drops.get(), 1);
    assert!(!polled.get());
    let error = output_of(task).unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.to_string(), "the task was cancelled");
    assert!(error.try_into_panic().is_err());
}

#[test]
fn a_waiting_task_is_aborted_and_whoever_awaits_it_is_told() {
    let executor = executor(4);
    let task = Rc::new(RefCell::new(executor.spawn(pending::<()>())));
    let awaited = task.clone();
    let awaiting =
        executor.spawn(poll_fn(move |cx| std::pin::Pin::new(&mut *awaited.borrow_mut()).poll(cx)));
    run_all(&executor);
    task.borrow().abort();
    run_all(&executor);
    assert!(output_of(awaiting).unwrap().unwrap_err().is_cancelled());
    assert_eq!(executor.statistics().cancelled, 1);
}

#[test]
fn aborting_a_task_that_has_finished_changes_nothing() {
    let executor = executor(4);
    let task = executor.spawn(async { 4 });
    run_all(&executor);
    task.abort();
    run_all(&executor);
    assert_eq!(output_of(task).unwrap(), 4);
    assert_eq!(executor.statistics().cancelled, 0);
}

#[test]
fn a_detached_task_stays_aborted() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let held = DropCounter::new(&drops);
    let task = executor.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    run_all(&executor);
    task.abort();
    drop(task);
    run_all(&executor);
    assert_eq!((drops.get(), executor.free_tasks()), (1, 4));
}

/// A task that gets at its own handle.
type OwnHandle<T> = Rc<RefCell<Option<JoinHandle<T>>>>;

#[test]
fn a_task_that_aborts_itself_is_dropped_after_its_poll() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let own = OwnHandle::<()>::default();
    let (held, handle, reached) = (DropCounter::new(&drops), own.clone(), Rc::new(Cell::new(0)));
    let inside = reached.clone();
    let task = executor.spawn(async move {
        let _held = held;
        handle.borrow().as_ref().unwrap().abort();
        inside.set(1);
        yield_now().await;
        inside.set(2);
    });
    *own.borrow_mut() = Some(task);
    run_all(&executor);
    assert_eq!((reached.get(), drops.get()), (1, 1));
    assert!(output_of(own.take().unwrap()).unwrap_err().is_cancelled());
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn a_task_that_aborts_itself_and_returns_has_returned() {
    let executor = executor(4);
    let own = OwnHandle::<i32>::default();
    let handle = own.clone();
    let task = executor.spawn(async move {
        handle.borrow().as_ref().unwrap().abort();
        6
    });
    *own.borrow_mut() = Some(task);
    run_all(&executor);
    assert_eq!(output_of(own.take().unwrap()).unwrap(), 6);
}

#[test]
fn a_task_may_own_its_own_handle() {
    let executor = executor(4);
    let own = OwnHandle::<()>::default();
    let handle = own.clone();
    *own.borrow_mut() = Some(executor.spawn(async move {
        let own = handle.take();
        yield_now().await;
        drop(own);
    }));
    run_all(&executor);
    assert_eq!(executor.statistics().headers_now, 1);
    let handle = own.clone();
    *own.borrow_mut() = Some(executor.spawn(async move {
        let _own = handle.take();
        pending::<()>().await;
    }));
    run_all(&executor);
    executor.shut_down();
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn a_destructor_may_spawn_wake_abort_and_drop_handles() {
    let executor = executor(8);
    let gate = Gate::default();
    let victim = Rc::new(RefCell::new(Some(executor.spawn(pending::<()>()))));
    let waiting = Rc::new(RefCell::new(Some(executor.spawn(gate.clone()))));
    run_all(&executor);
    let spawned = Rc::new(Cell::new(0));
    let (inside, counter) = (executor.clone(), spawned.clone());
    let act = OnDrop(move || {
        let counter = counter.clone();
        drop(inside.spawn(async move { counter.set(counter.get() + 1) }));
        gate.open();
        if let Some(victim) = victim.take() {
            victim.abort();
        }
        drop(waiting.take());
    });
    let task = executor.spawn(async move {
        let _act = act;
        pending::<()>().await;
    });
    run_all(&executor);
    task.abort();
    run_all(&executor);
    drop(task);
    assert_eq!(spawned.get(), 1);
    let statistics = executor.statistics();
    assert_eq!((statistics.tasks_now, statistics.headers_now), (0, 1));
    assert_eq!((statistics.completed, statistics.cancelled), (2, 2));
}

#[test]
fn each_task_is_dropped_once_and_on_its_own_thread() {
    let executor = executor(64);
    let drops = Rc::new(Cell::new(0));
    let mut handles = Vec::new();
    for number in 0..60 {
        let held = DropCounter::new(&drops);
        let handle = executor.spawn(async move {
            let _held = held;
            for _ in 0..number % 7 {
                yield_now().await;
            }
            if number % 5 == 0 {
                pending::<()>().await;
            }
        });
        match number % 3 {
            0 => drop(handle),
            1 => handles.push(handle),
            _ => {
                handle.abort();
                handles.push(handle);
            }
        }
    }
    run_all(&executor);
    drop(executor);
    assert_eq!(drops.get(), 60);
    assert!(handles.iter().all(JoinHandle::is_finished));
}

#[test]
fn outputs_larger_than_their_future_fit_too() {
    let executor = executor(4);
    let small = executor.spawn(async { [7u8; 500] });
    let large = executor.spawn(async { [8u8; 5000] });
    assert_eq!(executor.statistics().heap_cells_now, 1);
    run_all(&executor);
    assert_eq!(output_of(small).unwrap(), [7; 500]);
    assert_eq!(output_of(large).unwrap(), [8; 5000]);
    assert_eq!(executor.statistics().heap_cells_now, 0);
}

#[test]
fn join_errors_are_errors_as_everyone_expects_them() {
    fn is_error<E: std::error::Error + Send + Sync + 'static>() {}
    is_error::<JoinError>();
    quiet_panics();
    let executor = executor(4);
    let task = executor.spawn(async { panic!("polled on purpose") });
    let error: std::io::Error = block_on(&executor, task).unwrap_err().into();
    assert_eq!(error.kind(), std::io::ErrorKind::Other);
    assert_eq!(error.to_string(), "the task panicked: polled on purpose");
}

#[test]
#[should_panic(expected = "cancelled")]
fn into_panic_of_a_cancelled_task_says_so() {
    let executor = executor(4);
    let task = executor.spawn(pending::<()>());
    drop(executor);
    let _ = output_of(task).unwrap_err().into_panic();
}

#[test]
fn a_waker_that_runs_the_executor_while_it_is_cloned_loses_no_wake() {
    use std::task::{RawWaker, RawWakerVTable, Waker};
    thread_local! {
        static RUN: RefCell<Option<Rc<rotor_executor::Executor>>> = const { RefCell::new(None) };
    }
    fn clone(data: *const ()) -> RawWaker {
        RUN.with_borrow(|executor| run_all(executor.as_ref().unwrap()));
        RawWaker::new(data, &VTABLE)
    }
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
    let executor = executor(4);
    RUN.set(Some(executor.clone()));
    let mut task = executor.spawn(async { 1 });
    // SAFETY: the table's functions use no data.
    let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &VTABLE)) };
    let polled = std::pin::Pin::new(&mut task).poll(&mut Context::from_waker(&waker));
    assert!(matches!(polled, Poll::Ready(Ok(1))));
}
