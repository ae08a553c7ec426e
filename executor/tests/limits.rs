//! Fixed memory: what is full refuses with a named limit, and kept wakers keep no cell.
#![cfg(not(loom))]

mod support;

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker, ready};

use rotor_executor::{CreateError, Executor, Options, Oversized, SpawnError};
use support::{DropCounter, Gate, executor, executor_of, output_of, run_all};

fn error_of<T>(result: Result<T, SpawnError>) -> SpawnError {
    match result {
        Ok(_) => panic!("was not refused"),
        Err(error) => error,
    }
}

/// A future of as many bytes as asked for, and then some.
fn large<const BYTES: usize>() -> impl Future<Output = u8> {
    let bytes = [1u8; BYTES];
    poll_fn(move |_| Poll::Ready(bytes[BYTES - 1]))
}

/// Spawns a task that hands its waker out and returns.
fn waker_of_a_finished_task(executor: &Executor) -> Waker {
    let task = executor.spawn(poll_fn(|cx| Poll::Ready(cx.waker().clone())));
    run_all(executor);
    output_of(task).unwrap()
}

#[test]
fn limits_of_zero_are_refused_by_name() {
    let create = |options| Executor::new(options, Arc::new(|| {})).unwrap_err();
    let error = create(Options { tasks: 0, ..Options::default() });
    assert_eq!(error, CreateError::NoTasks);
    assert!(error.to_string().contains("`tasks` is 0"));
    let error = create(Options { task_bytes: 0, ..Options::default() });
    assert_eq!(error, CreateError::NoTaskBytes);
    assert!(error.to_string().contains("`task_bytes` is 0"));
}

#[test]
fn limits_beyond_an_address_space_are_refused() {
    let options = Options { tasks: u32::MAX, task_bytes: u32::MAX, ..Options::default() };
    assert_eq!(Executor::memory_bytes(&options), usize::MAX);
    let error = Executor::new(options, Arc::new(|| {})).unwrap_err();
    assert!(matches!(error, CreateError::TooLarge { .. }), "{error}");
}

#[test]
fn memory_bytes_grows_with_both_limits() {
    let bytes = |tasks, task_bytes| {
        Executor::memory_bytes(&Options { tasks, task_bytes, oversized: Oversized::Heap })
    };
    assert_eq!(bytes(1000, 100), bytes(1000, 128));
    assert_eq!(bytes(1001, 128) - bytes(1000, 128), 128 + 2 * 64);
    assert_eq!(bytes(1000, 192) - bytes(1000, 128), 64_000);
    assert_eq!(bytes(1000, 1), bytes(1000, 32));
    assert_eq!(bytes(1000, 33) - bytes(1000, 32), 32_000);
}

#[test]
fn a_full_table_refuses_and_drops_the_future() {
    let executor = executor(2);
    let drops = Rc::new(Cell::new(0));
    let first = executor.spawn(pending::<()>());
    let second = executor.spawn(async {});
    assert_eq!(executor.free_tasks(), 0);
    let held = DropCounter::new(&drops);
    let error = error_of(executor.try_spawn(async move { drop(held) }));
    assert_eq!(error, SpawnError::Full { limit: 2 });
    assert_eq!(drops.get(), 1);
    assert!(error.to_string().contains("raise `tasks`"), "{error}");
    run_all(&executor);
    // The output of the second is not taken yet.
    assert_eq!(executor.free_tasks(), 0);
    output_of(second).unwrap();
    assert_eq!(executor.free_tasks(), 1);
    drop(executor.try_spawn(async {}).unwrap());
    assert_eq!(executor.statistics().refused, 1);
    assert_eq!(executor.statistics().tasks_high, 2);
    drop(first);
}

#[test]
#[should_panic(expected = "all 1 tasks are in use; raise `tasks`")]
fn spawn_panics_with_the_words_of_the_error() {
    let executor = executor(1);
    let _first = executor.spawn(pending::<()>());
    let _second = executor.spawn(pending::<()>());
}

#[test]
fn an_oversized_task_goes_to_a_counted_heap_cell() {
    let executor = executor_of(Options { tasks: 2, task_bytes: 64, oversized: Oversized::Heap });
    let first = executor.spawn(large::<1000>());
    let second = executor.spawn(large::<1001>());
    let statistics = executor.statistics();
    assert_eq!((statistics.heap_cells_now, statistics.heap_cells_total), (2, 2));
    assert_eq!(error_of(executor.try_spawn(async {})), SpawnError::Full { limit: 2 });
    run_all(&executor);
    assert_eq!((output_of(first).unwrap(), output_of(second).unwrap()), (1, 1));
    let statistics = executor.statistics();
    assert_eq!((statistics.heap_cells_now, statistics.heap_cells_total), (0, 2));
    drop(executor.spawn(large::<1000>()));
    drop(executor);
}

#[test]
fn an_oversized_task_is_refused_by_name_if_the_options_say_so() {
    let executor = executor_of(Options { tasks: 2, task_bytes: 100, oversized: Oversized::Refuse });
    drop(executor.spawn(large::<100>()));
    let error = error_of(executor.try_spawn(large::<1000>()));
    assert!(matches!(error, SpawnError::TooLarge { bytes: 1000.., task_bytes: 128, .. }));
    assert!(error.to_string().contains("raise `task_bytes`"), "{error}");
    assert_eq!(executor.statistics().tasks_now, 1);
}

#[test]
fn futures_are_aligned_in_cells_and_on_the_heap() {
    #[repr(align(64))]
    struct Line(u8);
    #[repr(align(128))]
    struct Lines(u8);
    let executor = executor(8);
    for _ in 0..3 {
        let (line, lines) = (Line(1), Lines(2));
        let in_cell = executor.spawn(poll_fn(move |_| {
            assert!((&raw const line).addr().checked_rem(64) == Some(0));
            Poll::Ready(line.0)
        }));
        let on_heap = executor.spawn(poll_fn(move |_| {
            assert!((&raw const lines).addr().checked_rem(128) == Some(0));
            Poll::Ready(lines.0)
        }));
        assert_eq!(executor.statistics().heap_cells_now, 1);
        run_all(&executor);
        assert_eq!((output_of(in_cell).unwrap(), output_of(on_heap).unwrap()), (1, 2));
    }
}

#[test]
fn the_smallest_cells_hold_small_futures_only_and_each_its_own() {
    #[repr(align(64))]
    struct Line(u8);
    let executor = executor_of(Options { tasks: 16, task_bytes: 32, oversized: Oversized::Heap });
    let small = |value: u64| {
        let words = [value; 3];
        poll_fn(move |_| Poll::Ready(words.iter().sum::<u64>()))
    };
    let tasks: Vec<_> = (0..15).map(|value| executor.spawn(small(value))).collect();
    assert_eq!(executor.statistics().heap_cells_now, 0);
    let line = Line(7);
    let aligned = executor.spawn(poll_fn(move |_| {
        assert!((&raw const line).addr().checked_rem(64) == Some(0));
        Poll::Ready(line.0)
    }));
    assert_eq!(executor.statistics().heap_cells_now, 1);
    run_all(&executor);
    assert_eq!(output_of(aligned).unwrap(), 7);
    for (value, task) in (0..).zip(tasks) {
        assert_eq!(output_of(task).unwrap(), 3 * value);
    }
}

/// Reuses the only cell 70,000 times and wakes `kept` all the while: nobody else may be woken.
fn reuse_the_cell_and_wake(executor: &Executor, kept: &Waker) {
    for round in 0..70_000u32 {
        let gate = Gate::default();
        let task = executor.spawn(gate.clone());
        run_all(executor);
        kept.wake_by_ref();
        drop(kept.clone());
        assert_eq!(run_all(executor), 0);
        assert_eq!(gate.polls.get(), 1, "reuse {round} was woken by somebody else's waker");
        gate.open();
        run_all(executor);
        output_of(task).unwrap();
        *gate.waker.borrow_mut() = None;
        assert_eq!(executor.free_tasks(), 1);
    }
}

#[test]
fn a_kept_waker_wakes_nobody_else_however_often_its_cell_is_reused() {
    let executor = executor(1);
    let kept = waker_of_a_finished_task(&executor);
    reuse_the_cell_and_wake(&executor, &kept);
    assert_eq!(executor.statistics().headers_high, 3);
    drop(kept);
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn a_kept_waker_cloned_on_another_thread_wakes_nobody_else() {
    let executor = executor(1);
    let waker = waker_of_a_finished_task(&executor);
    let kept = std::thread::spawn(move || waker.clone()).join().unwrap();
    reuse_the_cell_and_wake(&executor, &kept);
    std::thread::spawn(move || drop(kept)).join().unwrap();
    // The header comes back by the remote stack.
    assert_eq!(executor.statistics().headers_now, 2);
    assert!(!executor.has_ready());
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn a_waker_cloned_elsewhere_and_dropped_here_is_counted_right() {
    let executor = executor(1);
    let gate = Gate::default();
    let task = executor.spawn(gate.clone());
    run_all(&executor);
    let mut waker = gate.waker.borrow().clone().unwrap();
    for _ in 0..10 {
        waker = std::thread::spawn(move || waker.clone()).join().unwrap();
        let clone = waker.clone();
        std::thread::spawn(move || drop(clone)).join().unwrap();
    }
    gate.open();
    *gate.waker.borrow_mut() = None;
    run_all(&executor);
    output_of(task).unwrap();
    assert_eq!(executor.statistics().headers_now, 2);
    drop(waker);
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn kept_wakers_that_hold_all_headers_are_refused_by_name() {
    let executor = executor(2);
    let mut kept: Vec<_> = (0..4).map(|_| waker_of_a_finished_task(&executor)).collect();
    assert_eq!(executor.free_tasks(), 0);
    let error = error_of(executor.try_spawn(async {}));
    assert_eq!(error, SpawnError::WakersKept { kept: 4, limit: 2 });
    assert!(error.to_string().contains("drop those of finished tasks"), "{error}");
    // Dropped on another thread, the header is found by the next spawn.
    let waker = kept.pop().unwrap();
    std::thread::spawn(move || drop(waker)).join().unwrap();
    assert_eq!(executor.free_tasks(), 1);
    let waker = kept.pop().unwrap();
    std::thread::spawn(move || drop(waker)).join().unwrap();
    let tasks = [executor.try_spawn(async {}).unwrap(), executor.try_spawn(async {}).unwrap()];
    run_all(&executor);
    drop(tasks);
    drop(kept);
    assert_eq!(executor.free_tasks(), 2);
    assert_eq!(executor.statistics().headers_now, 1);
}

#[test]
fn counts_of_wakers_may_exceed_what_the_plain_half_holds() {
    const MANY: u32 = (1 << 20) + 10;
    let executor = executor(1);
    let gate = Gate::default();
    let task = executor.spawn(gate.clone());
    run_all(&executor);
    let waker = gate.waker.borrow().clone().unwrap();
    // Cloned there and dropped here takes the plain half below its bound; and the other way round.
    let wakers: Vec<_> =
        std::thread::spawn(move || (0..MANY).map(|_| waker.clone()).collect()).join().unwrap();
    let mut wakers: Vec<Waker> = wakers;
    let kept = wakers.pop().unwrap();
    drop(wakers);
    let wakers: Vec<_> = (0..MANY).map(|_| kept.clone()).collect();
    std::thread::spawn(move || drop(wakers)).join().unwrap();
    gate.open();
    *gate.waker.borrow_mut() = None;
    run_all(&executor);
    output_of(task).unwrap();
    assert_eq!(executor.statistics().headers_now, 2);
    drop(kept);
    assert_eq!(executor.statistics().headers_now, 1);
}

/// A future that has `value` all over its storage, and gives its waker once the gate is open.
fn keeping<const WORDS: usize>(mut gate: Gate, value: u64) -> impl Future<Output = Waker> {
    let words = [value; WORDS];
    poll_fn(move |cx| {
        assert!(words.iter().all(|word| *word == value), "another task wrote to the storage");
        ready!(Pin::new(&mut gate).poll(cx));
        Poll::Ready(cx.waker().clone())
    })
}

#[test]
fn headers_and_cells_find_each_other_however_tasks_and_kept_wakers_are_mixed() {
    const TASKS: u32 = 3;
    let options = Options { tasks: TASKS, task_bytes: 64, oversized: Oversized::Heap };
    let executor = executor_of(options);
    let mut tasks = Vec::new();
    let mut wakers = Vec::new();
    let mut random = 1u64;
    for step in 0..20_000u64 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = (random >> 33) as usize;
        match choice % 8 {
            0..=3 if tasks.len() < TASKS as usize && wakers.len() <= TASKS as usize => {
                let gate = Gate::default();
                // One in four does not fit a cell.
                let task = if choice % 4 == 0 {
                    executor.spawn(keeping::<20>(gate.clone(), step))
                } else {
                    executor.spawn(keeping::<4>(gate.clone(), step))
                };
                tasks.push((gate, task));
            }
            0..=3 => drop(wakers.pop()),
            4 | 5 if !tasks.is_empty() => {
                let (gate, task) = tasks.swap_remove(choice / 8 % tasks.len());
                gate.open();
                run_all(&executor);
                let waker = output_of(task).unwrap();
                drop(gate);
                if choice % 3 != 0 && wakers.len() < TASKS as usize {
                    wakers.push(waker);
                }
            }
            6 if !wakers.is_empty() => drop(wakers.swap_remove(choice / 8 % wakers.len())),
            _ => {}
        }
        let counts = executor.statistics();
        assert_eq!(counts.tasks_now as usize, tasks.len());
        assert_eq!(counts.headers_now as usize, 1 + tasks.len() + wakers.len());
        assert!(counts.headers_high <= 1 + 2 * TASKS);
    }
    assert!(executor.statistics().heap_cells_total > 1000);
}
