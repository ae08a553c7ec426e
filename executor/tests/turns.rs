//! The run queue: order, bounds, the main future, the cooperative budget.
#![cfg(not(loom))]

mod support;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rotor_executor::{Turn, coop, yield_now};
use support::{CountingWaker, Gate, block_on, executor, output_of, run_all};

#[test]
fn tasks_run_in_the_order_they_were_spawned_and_woken() {
    let executor = executor(8);
    let order = Rc::new(RefCell::new(Vec::new()));
    for name in 0..4 {
        let order = order.clone();
        drop(executor.spawn(async move {
            order.borrow_mut().push(name);
            yield_now().await;
            order.borrow_mut().push(name + 10);
        }));
    }
    run_all(&executor);
    assert_eq!(*order.borrow(), [0, 1, 2, 3, 10, 11, 12, 13]);
}

#[test]
fn a_task_that_wakes_itself_goes_behind_those_that_are_ready() {
    let executor = executor(8);
    let order = Rc::new(RefCell::new(Vec::new()));
    let (first, second) = (order.clone(), order.clone());
    drop(executor.spawn(async move {
        first.borrow_mut().push("first");
        yield_now().await;
        first.borrow_mut().push("first again");
    }));
    drop(executor.spawn(async move { second.borrow_mut().push("second") }));
    run_all(&executor);
    assert_eq!(*order.borrow(), ["first", "second", "first again"]);
}

#[test]
fn many_wakes_before_a_turn_are_one_poll() {
    let executor = executor(8);
    let gate = Gate::default();
    drop(executor.spawn(gate.clone()));
    run_all(&executor);
    assert_eq!(gate.polls.get(), 1);
    for _ in 0..5 {
        gate.wake();
    }
    run_all(&executor);
    assert_eq!(gate.polls.get(), 2);
    run_all(&executor);
    assert_eq!(gate.polls.get(), 2);
}

#[test]
fn a_task_woken_here_and_from_another_thread_before_its_turn_is_polled_once() {
    let executor = executor(8);
    let gate = Gate::default();
    drop(executor.spawn(gate.clone()));
    run_all(&executor);
    let remote = gate.waker.borrow().clone().unwrap();
    gate.wake();
    std::thread::spawn(move || {
        remote.wake_by_ref();
        remote.wake();
    })
    .join()
    .unwrap();
    run_all(&executor);
    assert_eq!(gate.polls.get(), 2);
    assert_eq!(executor.statistics().wakes_remote, 1);
}

#[test]
fn wakes_from_another_thread_keep_their_order() {
    let executor = executor(8);
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut wakers = Vec::new();
    for name in 0..5 {
        let (gate, order) = (Gate::default(), order.clone());
        let inside = gate.clone();
        drop(executor.spawn(async move {
            let mut inside = std::pin::pin!(inside);
            poll_fn(|cx| {
                order.borrow_mut().push(name);
                inside.as_mut().poll(cx)
            })
            .await;
        }));
        run_all(&executor);
        wakers.push(gate.waker.borrow().clone().unwrap());
    }
    order.borrow_mut().clear();
    std::thread::spawn(move || wakers.into_iter().rev().for_each(|waker| waker.wake()))
        .join()
        .unwrap();
    run_all(&executor);
    assert_eq!(*order.borrow(), [4, 3, 2, 1, 0]);
}

#[test]
fn run_polls_no_more_than_it_may() {
    let executor = executor(8);
    let task = executor.spawn(async {
        for _ in 0..9 {
            yield_now().await;
        }
    });
    let mut polls_left = 4;
    assert_eq!(executor.run(&mut polls_left), Turn::Spent);
    assert_eq!(polls_left, 0);
    assert_eq!(executor.statistics().polls, 4);
    assert_eq!(executor.run(&mut polls_left), Turn::Spent);
    polls_left = 6;
    assert_eq!(executor.run(&mut polls_left), Turn::Idle);
    assert_eq!(polls_left, 0);
    assert_eq!(executor.statistics().polls, 10);
    assert!(task.is_finished());
}

#[test]
fn a_spent_run_with_nothing_ready_says_idle() {
    let executor = executor(8);
    assert_eq!(executor.run(&mut 0), Turn::Idle);
    assert_eq!(executor.run(&mut 1), Turn::Idle);
}

#[test]
fn tasks_that_never_rest_do_not_keep_out_what_another_thread_woke() {
    let executor = executor(8);
    let gate = Gate::default();
    let restless = executor.spawn(async {
        loop {
            yield_now().await;
        }
    });
    drop(executor.spawn(gate.clone()));
    assert_eq!(executor.run(&mut 8), Turn::Spent);
    let remote = gate.waker.borrow().clone().unwrap();
    std::thread::spawn(move || remote.wake()).join().unwrap();
    assert_eq!(executor.run(&mut 8), Turn::Spent);
    assert_eq!(gate.polls.get(), 2);
    restless.abort();
}

#[test]
fn the_main_future_takes_its_turn_among_the_tasks() {
    let executor = executor(8);
    let order = Rc::new(RefCell::new(Vec::new()));
    let spawn = |name| {
        let order = order.clone();
        drop(executor.spawn(async move { order.borrow_mut().push(name) }));
    };
    spawn("before");
    executor.main_waker().wake();
    executor.wake_main();
    spawn("after");
    let mut polls_left = 8;
    assert_eq!(executor.run(&mut polls_left), Turn::Main);
    assert_eq!(*order.borrow(), ["before"]);
    assert_eq!(polls_left, 6);
    assert_eq!(executor.run(&mut polls_left), Turn::Idle);
    assert_eq!(*order.borrow(), ["before", "after"]);
    assert_eq!(polls_left, 5);
}

#[test]
fn the_main_future_waits_for_its_polls_too() {
    let executor = executor(8);
    executor.wake_main();
    assert_eq!(executor.run(&mut 0), Turn::Spent);
    assert_eq!(executor.run(&mut 1), Turn::Main);
}

#[test]
fn the_main_future_is_woken_from_another_thread() {
    let executor = executor(8);
    let waker = executor.main_waker();
    assert!(executor.prepare_wait());
    let other = std::thread::spawn(move || waker.wake());
    while !executor.has_ready() {
        std::thread::park();
    }
    other.join().unwrap();
    assert!(!executor.prepare_wait());
    assert_eq!(executor.run(&mut 8), Turn::Main);
    assert!(executor.prepare_wait());
}

#[test]
fn tasks_that_ended_before_their_turn_do_not_count_as_ready() {
    let executor = executor(8);
    let gate = Gate::default();
    drop(executor.spawn(gate.clone()));
    run_all(&executor);
    // Woken during its last poll: it is in the queue when it ends.
    let inside = gate.clone();
    drop(executor.spawn(poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        inside.polls.set(9);
        Poll::Ready(())
    })));
    assert_eq!(executor.run(&mut 1), Turn::Idle);
    assert_eq!(gate.polls.get(), 9);
    assert!(executor.prepare_wait());
    assert_eq!(executor.statistics().headers_now, 2);
}

#[test]
fn unpark_is_called_once_between_two_waits() {
    let calls = Arc::new(CountingWaker::default());
    let unpark = calls.clone();
    let options = rotor_executor::Options { tasks: 4, ..Default::default() };
    let executor = rotor_executor::Executor::new(
        options,
        Arc::new(move || std::task::Wake::wake_by_ref(&unpark)),
    )
    .unwrap();
    for round in 1..4 {
        assert!(executor.prepare_wait());
        let (first, second) = (Gate::default(), Gate::default());
        drop(executor.spawn(first.clone()));
        drop(executor.spawn(second.clone()));
        run_all(&executor);
        let wakers = [&first, &second].map(|gate| gate.waker.borrow().clone().unwrap());
        std::thread::spawn(move || wakers.into_iter().for_each(|waker| waker.wake()))
            .join()
            .unwrap();
        assert_eq!(calls.wakes(), round);
        first.open();
        second.open();
        run_all(&executor);
        executor.wake_main();
        assert_eq!(executor.run(&mut 1), Turn::Main);
    }
}

#[test]
fn a_main_future_and_tasks_wait_for_each_other() {
    let executor = executor(8);
    let inside = executor.clone();
    let sum = block_on(&executor, async move {
        let mut sum = 0;
        for number in 0..100 {
            sum += inside
                .spawn(async move {
                    yield_now().await;
                    number
                })
                .await
                .unwrap();
        }
        sum
    });
    assert_eq!(sum, 4950);
}

#[test]
fn run_within_a_task_stops_at_a_named_check() {
    support::quiet_panics();
    let executor = executor(8);
    let inside = executor.clone();
    let task = executor.spawn(async move {
        let _ = inside.run(&mut 1);
    });
    run_all(&executor);
    let error = output_of(task).unwrap_err();
    assert!(error.to_string().contains("`run` was called from within a task"), "{error}");
    assert_eq!(executor.run(&mut 1), Turn::Idle);
}

#[test]
fn a_task_with_everything_ready_lets_others_run_after_its_budget() {
    let executor = executor(8);
    let done = Rc::new(Cell::new(0));
    let (inside, seen) = (done.clone(), done.clone());
    let greedy = executor.spawn(async move {
        for _ in 0..300 {
            poll_fn(|cx| {
                std::task::ready!(coop::poll_proceed(cx));
                coop::spend();
                Poll::Ready(())
            })
            .await;
            inside.set(inside.get() + 1);
        }
    });
    let other = executor.spawn(async move { seen.get() });
    assert_eq!(run_all(&executor), 4);
    assert_eq!(output_of(other).unwrap(), coop::BUDGET);
    assert!(greedy.is_finished());
    assert_eq!(done.get(), 300);
}

#[test]
fn leaves_that_are_not_ready_cost_no_budget() {
    let executor = executor(8);
    let asked = Rc::new(Cell::new(0));
    let inside = asked.clone();
    drop(executor.spawn(poll_fn(move |cx| {
        for _ in 0..1000 {
            if coop::poll_proceed(cx).is_ready() {
                inside.set(inside.get() + 1);
            }
        }
        Poll::<()>::Pending
    })));
    run_all(&executor);
    assert_eq!(asked.get(), 1000);
    assert_eq!(executor.statistics().polls, 1);
}

#[test]
fn outside_a_poll_the_budget_is_unlimited() {
    let executor = executor(8);
    run_all(&executor);
    let counter = Arc::new(CountingWaker::default());
    let waker = counter.clone().into();
    let mut cx = Context::from_waker(&waker);
    for _ in 0..1000 {
        assert!(coop::poll_proceed(&mut cx).is_ready());
        coop::spend();
    }
    assert_eq!(counter.wakes(), 0);
}

#[test]
fn a_blocking_loop_nested_in_a_task_goes_on_after_the_budget() {
    let executor = executor(8);
    let task = executor.spawn(async {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut ready = 0;
        while ready < 1000 {
            if coop::poll_proceed(&mut cx).is_ready() {
                coop::spend();
                ready += 1;
            }
        }
        ready
    });
    run_all(&executor);
    assert_eq!(output_of(task).unwrap(), 1000);
}

#[test]
fn awaiting_finished_tasks_without_end_lets_others_run() {
    let executor = executor(512);
    let handles: Vec<_> = (0..400).map(|number| executor.spawn(async move { number })).collect();
    run_all(&executor);
    let task = executor.spawn(async move {
        for handle in handles {
            handle.await.unwrap();
        }
    });
    assert_eq!(run_all(&executor), 4);
    assert!(task.is_finished());
}
