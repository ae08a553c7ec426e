//! What a task costs: nanoseconds for each of spawning and awaiting, yielding, waking, and running
//! a million tasks that are all ready.
//!
//! `cargo bench -p rotor-executor`, with `-- --quick` for a short look, `-- yield` for one of them. Best of several rounds,
//! because what disturbs a round only ever makes it slower.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rotor_executor::{Executor, Options, Oversized, Turn, coop, yield_now};

fn block_on<F: Future>(executor: &Executor, future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = executor.main_waker();
    let mut cx = Context::from_waker(&waker);
    executor.wake_main();
    loop {
        let mut polls_left = 256;
        match executor.run(&mut polls_left) {
            Turn::Main => {
                coop::reset();
                let polled = future.as_mut().poll(&mut cx);
                coop::lift();
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            Turn::Spent => {}
            Turn::Idle => panic!("everything waits"),
        }
    }
}

fn executor(tasks: u32, task_bytes: u32) -> Rc<Executor> {
    let options = Options { tasks, task_bytes, oversized: Oversized::Refuse };
    Rc::new(Executor::new(options, Arc::new(|| {})).expect("limits are not zero"))
}

/// One task spawns another that returns at once and awaits it.
fn spawn_await(count: u32) -> f64 {
    let executor = executor(16, 512);
    let inside = executor.clone();
    let start = Instant::now();
    let task = executor.spawn(async move {
        let mut sum = 0u64;
        for number in 0..u64::from(count) {
            sum += inside.spawn(async move { number }).await.expect("returns");
        }
        sum
    });
    let sum = block_on(&executor, task).expect("returns");
    let elapsed = start.elapsed();
    assert_eq!(sum, u64::from(count) * u64::from(count - 1) / 2);
    elapsed.as_nanos() as f64 / f64::from(count)
}

/// One task yields over and over.
fn yielding(count: u32) -> f64 {
    let executor = executor(16, 512);
    let start = Instant::now();
    let task = executor.spawn(async move {
        for _ in 0..count {
            yield_now().await;
        }
    });
    block_on(&executor, task).expect("returns");
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// Half of a ping-pong: a turn number and the waker of whoever waits for it.
#[derive(Default)]
struct Table {
    turn: Cell<u32>,
    waiting: RefCell<Option<Waker>>,
}

async fn play(table: Rc<Table>, parity: u32, turns: u32) {
    while table.turn.get() < turns {
        poll_fn(|cx| {
            if table.turn.get() % 2 == parity || table.turn.get() >= turns {
                return Poll::Ready(());
            }
            *table.waiting.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        table.turn.set(table.turn.get() + 1);
        let waiting = table.waiting.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Two tasks wake each other; a round trip is two wakes and two polls.
fn pingpong(count: u32) -> f64 {
    let executor = executor(16, 512);
    let table = Rc::new(Table::default());
    let start = Instant::now();
    let ping = executor.spawn(play(table.clone(), 0, 2 * count));
    let pong = executor.spawn(play(table, 1, 2 * count));
    block_on(&executor, async {
        ping.await.expect("returns");
        pong.await.expect("returns");
    });
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// Spawns many tasks, all ready at once, and runs them to their end. The second time the memory has
/// been touched before.
fn many_ready(count: u32) -> (f64, f64) {
    let executor = executor(count, 64);
    let ran = Rc::new(Cell::new(0u32));
    let round = || {
        ran.set(0);
        let start = Instant::now();
        for _ in 0..count {
            let ran = ran.clone();
            drop(executor.spawn(async move { ran.set(ran.get() + 1) }));
        }
        let mut polls_left = u32::MAX;
        assert_eq!(executor.run(&mut polls_left), Turn::Idle);
        assert_eq!(ran.get(), count);
        start.elapsed().as_nanos() as f64 / f64::from(count)
    };
    (round(), round())
}

fn main() {
    let mut quick = false;
    let mut only = None;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => quick = true,
            "--bench" => {}
            _ => only = Some(argument),
        }
    }
    let (rounds, count, many) =
        if quick { (3, 100_000, 100_000) } else { (9, 2_000_000, 1_000_000) };
    let asked = |name: &str| only.as_deref().is_none_or(|only| name == only);
    let best = |name: &str, measure: fn(u32) -> f64| {
        if !asked(name) {
            return;
        }
        let best = (0..rounds).map(|_| measure(count)).fold(f64::INFINITY, f64::min);
        println!("{name:<24} {best:>8.1} ns");
    };
    best("spawn_await", spawn_await);
    best("yield", yielding);
    best("pingpong", pingpong);
    if !asked("million_ready") {
        return;
    }
    let (mut first, mut again) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds.min(5) {
        let (untouched, touched) = many_ready(many);
        (first, again) = (first.min(untouched), again.min(touched));
    }
    println!("{:<24} {first:>8.1} ns (memory never touched before)", "million_ready");
    println!("{:<24} {again:>8.1} ns", "million_ready again");
}
