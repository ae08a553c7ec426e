//! The end of an executor, and what outlives it.
#![cfg(not(loom))]

mod support;

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::task::{Poll, Waker};

use rotor_executor::{Executor, JoinHandle, Options, Turn};
use support::{DropCounter, Gate, OnDrop, executor, output_of, quiet_panics, run_all};

#[test]
fn all_tasks_are_dropped_once() {
    let executor = executor(8);
    let drops = Rc::new(Cell::new(0));
    let mut handles = Vec::new();
    for number in 0..6 {
        let held = DropCounter::new(&drops);
        let handle = executor.spawn(async move {
            let _held = held;
            if number < 4 {
                pending::<()>().await;
            }
        });
        if number % 2 == 0 {
            handles.push(handle);
        }
    }
    run_all(&executor);
    assert_eq!(drops.get(), 2);
    executor.shut_down();
    assert_eq!(drops.get(), 6);
    executor.shut_down();
    drop(executor);
    assert_eq!(drops.get(), 6);
    assert_eq!(handles.into_iter().filter(|handle| handle.is_finished()).count(), 3);
}

#[test]
fn a_task_spawned_by_a_destructor_during_shut_down_is_cancelled() {
    let executor = executor(8);
    let late = Rc::new(RefCell::new(None));
    let drops = Rc::new(Cell::new(0));
    let (inside, store, counter) = (executor.clone(), late.clone(), drops.clone());
    let spawn = OnDrop(move || {
        let held = DropCounter::new(&counter);
        *store.borrow_mut() = Some(inside.spawn(async move {
            let _held = held;
        }));
    });
    drop(executor.spawn(async move {
        let _spawn = spawn;
        pending::<()>().await;
    }));
    run_all(&executor);
    executor.shut_down();
    assert_eq!(drops.get(), 1);
    let handle: JoinHandle<()> = late.take().unwrap();
    assert!(handle.is_finished());
    handle.abort();
    assert!(output_of(handle).unwrap_err().is_cancelled());
    assert_eq!(executor.statistics().spawned, 1);
}

#[test]
fn destructors_during_shut_down_may_wake_abort_and_drop_handles() {
    quiet_panics();
    let executor = executor(16);
    let gate = Gate::default();
    let handles = Rc::new(RefCell::new(Vec::new()));
    for number in 0..9 {
        let (waited, drop_handles) = (gate.clone(), handles.clone());
        let (gate, inside) = (gate.clone(), executor.clone());
        let act = OnDrop(move || {
            gate.wake();
            inside.wake_main();
            inside.shut_down();
            let handle: Option<JoinHandle<()>> = drop_handles.borrow_mut().pop();
            if let Some(handle) = handle {
                handle.abort();
                drop(handle);
            }
            if number == 4 {
                panic!("dropped on purpose");
            }
        });
        let task = executor.spawn(async move {
            let _act = act;
            waited.await;
        });
        handles.borrow_mut().push(task);
    }
    run_all(&executor);
    executor.shut_down();
    handles.borrow_mut().clear();
    *gate.waker.borrow_mut() = None;
    assert_eq!(executor.run(&mut 9), Turn::Main);
    assert_eq!(run_all(&executor), 0);
    let statistics = executor.statistics();
    assert_eq!((statistics.tasks_now, statistics.headers_now), (0, 1));
    assert_eq!(statistics.cancelled, 9);
}

#[test]
fn shut_down_from_within_a_task_spares_it_until_its_poll_returns() {
    let executor = executor(8);
    let drops = Rc::new(Cell::new(0));
    let (held, other) = (DropCounter::new(&drops), DropCounter::new(&drops));
    let (inside, seen) = (executor.clone(), drops.clone());
    let task = executor.spawn(async move {
        let _held = held;
        inside.shut_down();
        assert_eq!(seen.get(), 1);
        pending::<()>().await;
    });
    drop(executor.spawn(async move {
        let _held = other;
        pending::<()>().await;
    }));
    assert_eq!(run_all(&executor), 1);
    assert_eq!(drops.get(), 2);
    assert!(output_of(task).unwrap_err().is_cancelled());
}

#[test]
fn a_handle_that_outlives_the_executor_gives_the_output_or_says_cancelled() {
    let executor = executor(8);
    let drops = Rc::new(Cell::new(0));
    let output = DropCounter::new(&drops);
    let finished = executor.spawn(async { String::from("output") });
    let dropped = executor.spawn(async move { output });
    let large = executor.spawn(async { [3u8; 9000] });
    let waiting = executor.spawn(pending::<()>());
    let detached = executor.spawn(pending::<()>());
    run_all(&executor);
    let last_waiting = executor.spawn(async {});
    drop(Rc::try_unwrap(executor).unwrap());
    assert_eq!(output_of(finished).unwrap(), "output");
    assert_eq!(drops.get(), 0);
    drop(dropped);
    assert_eq!(drops.get(), 1);
    assert_eq!(output_of(large).unwrap(), [3; 9000]);
    waiting.abort();
    assert!(waiting.is_finished());
    assert!(output_of(waiting).unwrap_err().is_cancelled());
    drop(detached);
    assert!(output_of(last_waiting).unwrap_err().is_cancelled());
}

#[test]
fn wakers_that_outlive_the_executor_do_nothing_from_any_thread() {
    let executor = executor(8);
    let gates: Vec<_> = (0..4).map(|_| Gate::default()).collect();
    let handles: Vec<_> = gates.iter().map(|gate| executor.spawn(gate.clone())).collect();
    run_all(&executor);
    let wakers: Vec<Waker> =
        gates.iter().map(|gate| gate.waker.borrow_mut().take().unwrap()).collect();
    let main = executor.main_waker();
    // Left in the remote stack and in the run queue by the end.
    let (first, remote_main) = (wakers[0].clone(), main.clone());
    std::thread::spawn(move || {
        first.wake();
        remote_main.wake_by_ref();
        remote_main
    })
    .join()
    .unwrap()
    .wake();
    wakers[1].wake_by_ref();
    drop(executor);
    wakers[0].wake_by_ref();
    main.wake_by_ref();
    let copies: Vec<_> = wakers.iter().chain([&main]).cloned().collect();
    let elsewhere = std::thread::spawn(move || {
        for waker in &copies {
            waker.wake_by_ref();
        }
        copies.iter().cloned().for_each(Waker::wake);
        copies[1..].to_vec()
    })
    .join()
    .unwrap();
    drop(wakers);
    drop(handles);
    main.wake();
    std::thread::spawn(move || elsewhere.into_iter().for_each(|waker| waker.wake()))
        .join()
        .unwrap();
}

#[test]
fn the_unpark_hook_is_dropped_with_the_last_waker() {
    let hook = Arc::new(());
    let watched = Arc::downgrade(&hook);
    let executor = Executor::new(
        Options { tasks: 2, ..Options::default() },
        Arc::new(move || {
            let _hook = &hook;
        }),
    )
    .unwrap();
    let task = executor.spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
    let waker = executor.main_waker();
    run_all(&executor);
    drop(executor);
    assert!(watched.upgrade().is_some());
    std::thread::spawn(move || drop(waker)).join().unwrap();
    assert!(watched.upgrade().is_some());
    let task_waker = output_of(task).unwrap();
    assert!(watched.upgrade().is_some());
    std::thread::spawn(move || drop(task_waker)).join().unwrap();
    assert!(watched.upgrade().is_none());
}

#[test]
fn a_waker_dropped_by_a_thread_locals_destructor_is_counted() {
    thread_local! {
        static KEPT: RefCell<Option<Waker>> = const { RefCell::new(None) };
    }
    static GONE: AtomicBool = AtomicBool::new(false);
    struct Hook;
    impl Drop for Hook {
        fn drop(&mut self) {
            GONE.store(true, Ordering::SeqCst);
        }
    }
    std::thread::spawn(|| {
        let hook = Hook;
        let executor = Executor::new(
            Options { tasks: 2, ..Options::default() },
            Arc::new(move || {
                let _hook = &hook;
            }),
        )
        .unwrap();
        KEPT.set(Some(executor.main_waker()));
        drop(executor);
        assert!(!GONE.load(Ordering::SeqCst));
    })
    .join()
    .unwrap();
    assert!(GONE.load(Ordering::SeqCst));
}

#[test]
fn an_executor_that_is_forgotten_leaves_its_wakers_usable() {
    let executor = executor(2);
    let waker = executor.main_waker();
    // Where a leak check finds it: it is lost on purpose.
    static FORGOTTEN: AtomicPtr<Executor> = AtomicPtr::new(std::ptr::null_mut());
    FORGOTTEN.store(Rc::into_raw(executor).cast_mut(), Ordering::SeqCst);
    std::thread::spawn(move || waker.wake()).join().unwrap();
}
