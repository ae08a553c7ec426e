//! The executor rows. Compiled twice: `runtime` is rotor or tokio in `tasks/mod.rs`.

use super::runtime::*;

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::future::poll_fn;
use std::hint::black_box;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::tasks::Row;

/// Tasks that yield to each other.
const YIELDING_TASKS: u64 = 16;

// What tasks share lies here and not in an `Rc`: tokio's `spawn` takes what is `Send` only.
thread_local! {
    static FINISHED: Cell<u64> = const { Cell::new(0) };
    static ROOT: RefCell<Option<Waker>> = const { RefCell::new(None) };
    static TURN: Cell<usize> = const { Cell::new(0) };
    static PLAYERS: RefCell<[Option<Waker>; 2]> = const { RefCell::new([None, None]) };
}

/// Every row's nanoseconds, in a runtime that has run nothing before.
pub(super) async fn rows(scale: u64) -> Vec<(Row, f64)> {
    let mut rows = Vec::new();
    rows.push((Row::ManyReadyFirst, timed(scale, many_ready(scale)).await));
    rows.push((Row::ManyReadyAgain, timed(scale, many_ready(scale)).await));
    let short = scale;
    spawn_and_join(short / 10).await;
    rows.push((Row::SpawnJoinRoot, timed(short, spawn_and_join(short)).await));
    rows.push((Row::SpawnJoinTask, timed(short, joined(spawn(spawn_and_join(short)))).await));
    let long = scale * 4;
    joined(spawn(yields(long / 10))).await;
    rows.push((Row::Yield, timed(long, joined(spawn(yields(long)))).await));
    joined(spawn(ping_pong(short / 10))).await;
    rows.push((Row::PingPong, timed(short, joined(spawn(ping_pong(short)))).await));
    rows
}

async fn timed(count: u64, work: impl Future<Output = ()>) -> f64 {
    let begun = Instant::now();
    work.await;
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// The work of a task of its own. It begins when its handle is awaited, the first time others run.
async fn joined<E: Debug>(task: impl Future<Output = Result<(), E>>) {
    task.await.expect("the work does not panic");
}

/// All are spawned before the first runs. The last to finish wakes the root.
async fn many_ready(count: u64) {
    FINISHED.set(0);
    for _ in 0..count {
        drop(spawn(async move {
            FINISHED.set(FINISHED.get() + 1);
            if FINISHED.get() == count {
                if let Some(root) = ROOT.take() {
                    root.wake();
                }
            }
        }));
    }
    poll_fn(|context| {
        if FINISHED.get() == count {
            return Poll::Ready(());
        }
        ROOT.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

async fn spawn_and_join(count: u64) {
    for number in 0..count {
        let joined = spawn(async move { black_box(number) }).await;
        assert_eq!(joined.ok(), Some(number));
    }
}

/// Several tasks in turn. One alone would measure something else: when nobody but tasks that yield
/// is left, tokio asks the kernel for events before it goes on, a system call a yield.
async fn yields(count: u64) {
    let task = || async move {
        for _ in 0..count / YIELDING_TASKS {
            yield_now().await;
        }
    };
    let tasks: Vec<_> = (0..YIELDING_TASKS).map(|_| spawn(task())).collect();
    for task in tasks {
        joined(task).await;
    }
}

/// Two tasks that wake each other in turn: a round trip is two wakes and two polls.
async fn ping_pong(round_trips: u64) {
    TURN.set(0);
    PLAYERS.take();
    let pong = spawn(play(1, round_trips));
    play(0, round_trips).await;
    pong.await.expect("the player does not panic");
}

async fn play(me: usize, turns: u64) {
    for _ in 0..turns {
        poll_fn(|context| {
            if TURN.get() == me {
                return Poll::Ready(());
            }
            PLAYERS.with_borrow_mut(|players| match &mut players[me] {
                Some(waker) => waker.clone_from(context.waker()),
                empty => *empty = Some(context.waker().clone()),
            });
            Poll::Pending
        })
        .await;
        TURN.set(1 - me);
        PLAYERS.with_borrow(|players| {
            if let Some(other) = &players[1 - me] {
                other.wake_by_ref();
            }
        });
    }
}
