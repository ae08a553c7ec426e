//! Promise 5: no timer is early, whatever its kind, its length, its phase and what runs beside it.

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rotor::runtime::Builder;
use rotor::task::{JoinSet, yield_now};
use rotor::time::{Instant, interval_at, sleep, sleep_until, timeout};
use support::{MILLISECOND, Random, watched};

/// Of each kind and length, together.
const FIRES: usize = 4_000;

/// So many tasks of each kind wait side by side.
const TASKS: usize = 80;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sleep,
    SleepUntil,
    Timeout,
    Interval,
}

/// Waits so long, by two clocks, neither of which may say that it was less.
async fn wait_once(kind: Kind, length: Duration) {
    let real = std::time::Instant::now();
    let begun = Instant::now();
    match kind {
        Kind::Sleep => sleep(length).await,
        Kind::SleepUntil => sleep_until(begun + length).await,
        Kind::Timeout => {
            timeout(length, std::future::pending::<()>()).await.unwrap_err();
        }
        Kind::Interval => {
            let due = interval_at(begun + length, length).tick().await;
            assert_eq!(due, begun + length);
        }
    }
    let (by_loop, by_system) = (begun.elapsed(), real.elapsed());
    assert!(by_loop >= length, "{kind:?} of {length:?} took {by_loop:?}");
    assert!(by_system >= length, "{kind:?} of {length:?} took {by_system:?} by the system's clock");
}

/// Each task arms at random phases of the millisecond.
async fn wait_often(kind: Kind, length: Duration, seed: usize) -> usize {
    let mut random = Random::new(seed);
    for _ in 0..FIRES / TASKS {
        sleep(Duration::from_nanos(random.up_to(1_000_000) as u64)).await;
        wait_once(kind, length).await;
    }
    FIRES / TASKS
}

fn run(slack: Duration, spin_budget: Duration, beside_a_hot_task: bool) {
    let builder = Builder::new().timer_slack(slack).spin_budget(spin_budget);
    builder.build().unwrap().block_on(async {
        let over = Rc::new(Cell::new(false));
        if beside_a_hot_task {
            let over = over.clone();
            drop(rotor::spawn(async move {
                while !over.get() {
                    yield_now().await;
                }
            }));
        }
        let mut tasks = JoinSet::new();
        let kinds = [Kind::Sleep, Kind::SleepUntil, Kind::Timeout, Kind::Interval];
        for kind in kinds {
            for length in [MILLISECOND, 2 * MILLISECOND] {
                for seed in 0..TASKS {
                    tasks.spawn(wait_often(kind, length, seed));
                }
            }
        }
        let mut fires = 0;
        while let Some(fired) = tasks.join_next().await {
            fires += fired.unwrap();
        }
        assert_eq!(fires, kinds.len() * 2 * FIRES);
        over.set(true);
    });
}

#[test]
fn nothing_is_early_exact_or_with_slack_asleep_or_spinning_alone_or_beside_a_hot_task() {
    let _watched = watched();
    for slack in [Duration::ZERO, MILLISECOND] {
        for spin_budget in [Duration::ZERO, Duration::from_micros(50)] {
            for beside_a_hot_task in [false, true] {
                run(slack, spin_budget, beside_a_hot_task);
            }
        }
    }
}

/// All at once, so that each has the others' places on the wheel as neighbours.
#[test]
fn sleeps_of_a_power_of_two_and_their_neighbours_are_not_early() {
    let _watched = watched();
    Builder::new().build().unwrap().block_on(async {
        let mut tasks = JoinSet::new();
        for power in 0..=31 {
            for length in [(1_u64 << power) - 1, 1 << power, (1 << power) + 1] {
                tasks.spawn(wait_once(Kind::Sleep, Duration::from_nanos(length)));
            }
        }
        let mut fires = 0;
        while let Some(fired) = tasks.join_next().await {
            fired.unwrap();
            fires += 1;
        }
        assert_eq!(fires, 96);
    });
}
