//! Abort handles: what they end, what they tell, and how little they keep.
#![cfg(not(loom))]

mod support;

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use rotor_executor::{AbortHandle, SpawnError, yield_now};
use support::{DropCounter, executor, output_of, quiet_panics, run_all};

#[test]
fn an_abort_handle_ends_a_task_as_its_join_handle_would() {
    let executor = executor(4);
    let drops = Rc::new(Cell::new(0));
    let held = DropCounter::new(&drops);
    let task = executor.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    let abort = task.abort_handle();
    run_all(&executor);
    assert!(!abort.is_finished());
    abort.abort();
    abort.clone().abort();
    assert_eq!((drops.get(), abort.is_finished()), (0, false));
    run_all(&executor);
    assert_eq!((drops.get(), abort.is_finished()), (1, true));
    assert!(output_of(task).unwrap_err().is_cancelled());
    assert_eq!(executor.statistics().headers_now, 2);
    drop(abort);
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn an_abort_handle_reaches_a_task_that_was_detached() {
    let executor = executor(4);
    let task = executor.spawn(pending::<()>());
    let abort = task.abort_handle();
    drop(task);
    run_all(&executor);
    abort.abort();
    run_all(&executor);
    assert!(abort.is_finished());
    assert_eq!((executor.free_tasks(), executor.statistics().cancelled), (4, 1));
}

#[test]
fn aborting_a_task_that_is_over_changes_nothing_and_touches_no_other() {
    let executor = executor(1);
    let task = executor.spawn(async { 1 });
    let abort = task.abort_handle();
    run_all(&executor);
    assert!(abort.is_finished());
    abort.abort();
    assert_eq!(output_of(task).unwrap(), 1);
    // The only cell again: the handle is of the task before.
    let next = executor.spawn(async {
        yield_now().await;
        2
    });
    abort.abort();
    assert!(abort.is_finished());
    run_all(&executor);
    abort.abort();
    assert_eq!(output_of(next).unwrap(), 2);
    assert_eq!(executor.statistics().cancelled, 0);
}

#[test]
fn a_kept_abort_handle_keeps_no_cell() {
    let executor = executor(2);
    let kept: Vec<AbortHandle> = (0..2)
        .map(|_| {
            let task = executor.spawn(async {});
            run_all(&executor);
            task.abort_handle()
        })
        .collect();
    assert_eq!((executor.free_tasks(), executor.statistics().tasks_now), (2, 0));
    let full: Vec<_> = (0..2).map(|_| executor.spawn(pending::<()>())).collect();
    drop(full);
    assert!(kept.iter().all(AbortHandle::is_finished));
}

#[test]
fn too_many_kept_abort_handles_are_refused_by_name() {
    let executor = executor(1);
    let mut kept = Vec::new();
    let error = loop {
        match executor.try_spawn(async {}) {
            Ok(task) => kept.push(task.abort_handle()),
            Err(error) => break error,
        }
        run_all(&executor);
    };
    assert_eq!(error, SpawnError::WakersKept { kept: 2, limit: 1 });
    assert!(error.to_string().contains("abort handles are kept of 2 finished tasks"), "{error}");
    kept.pop();
    assert!(executor.try_spawn(async {}).is_ok());
}

#[test]
fn a_task_aborts_itself_by_an_abort_handle_after_its_poll() {
    let executor = executor(4);
    let slot = Rc::new(Cell::new(None::<AbortHandle>));
    let (own, reached) = (slot.clone(), Rc::new(Cell::new(0)));
    let inside = reached.clone();
    let task = executor.spawn(async move {
        own.take().unwrap().abort();
        inside.set(1);
        yield_now().await;
        inside.set(2);
    });
    slot.set(Some(task.abort_handle()));
    run_all(&executor);
    assert_eq!(reached.get(), 1);
    assert!(output_of(task).unwrap_err().is_cancelled());
}

#[test]
fn an_abort_handle_outlives_its_executor() {
    let executor = executor(4);
    let task = executor.spawn(pending::<()>());
    let (abort, copy) = (task.abort_handle(), task.abort_handle());
    drop(executor);
    assert!(abort.is_finished());
    abort.abort();
    drop(abort);
    drop(task);
    assert!(copy.is_finished());
    copy.clone().abort();
}

#[test]
fn abort_handles_of_tasks_that_never_were_or_were_joined_are_finished() {
    let executor = executor(4);
    let mut task = executor.spawn(async {});
    run_all(&executor);
    assert!(support::poll_once(&mut task).is_ready());
    let joined = task.abort_handle();
    executor.shut_down();
    let refused = executor.spawn(pending::<()>()).abort_handle();
    for abort in [joined, refused] {
        abort.abort();
        assert!(abort.is_finished());
        assert_eq!(format!("{abort:?}"), "AbortHandle { is_finished: true }");
    }
}

#[test]
fn a_destructor_that_drops_and_asks_abort_handles_of_its_own_task_finds_it_not_over() {
    quiet_panics();
    struct Asks(Rc<Cell<Option<AbortHandle>>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let own = self.0.take().unwrap();
            own.abort();
            assert!(!own.is_finished());
        }
    }
    let executor = executor(4);
    let slot = Rc::new(Cell::new(None));
    let asks = Asks(slot.clone());
    let task = executor.spawn(poll_fn(move |_| {
        let _ = &asks;
        Poll::<()>::Pending
    }));
    slot.set(Some(task.abort_handle()));
    drop(task);
    run_all(&executor);
    executor.shut_down();
    let statistics = executor.statistics();
    assert_eq!((statistics.cancelled, statistics.headers_now), (1, 1));
}
