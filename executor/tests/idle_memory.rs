//! What a task costs that waits: its header and its cell, and nothing else.
#![cfg(all(target_os = "linux", not(loom)))]

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use rotor_executor::{Executor, Options, Oversized, Turn};

const TASKS: u32 = 10_000;

/// The resident bytes of this process, exactly. `None` with an address sanitizer, which keeps more
/// of its own beside them.
fn resident_bytes() -> Option<u64> {
    let line_of = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    let sanitized = line_of("/proc/self/status", "VmSize:") > 1 << 40;
    (!sanitized).then(|| line_of("/proc/self/smaps_rollup", "Rss:"))
}

/// Waits for ever, with 120 bytes that are its own.
fn waiting() -> impl Future<Output = ()> {
    let mut bytes = [1u8; 120];
    std::future::poll_fn(move |_| {
        bytes[119] += 1;
        Poll::Pending
    })
}

// One test in this binary, so that no other one uses memory meanwhile.
#[test]
fn a_pending_task_of_up_to_128_bytes_takes_192_resident_ones() {
    let options = Options { tasks: 1_000_000, task_bytes: 128, oversized: Oversized::Refuse };
    let executor = Executor::new(options, Arc::new(|| {})).unwrap();
    let Some(before) = resident_bytes() else {
        println!("skipped: missing is a process without an address sanitizer's shadow memory");
        return;
    };
    for _ in 0..TASKS {
        drop(executor.spawn(waiting()));
    }
    assert_eq!(executor.run(&mut (2 * TASKS)), Turn::Idle);
    let bytes = resident_bytes().unwrap().saturating_sub(before) as f64 / f64::from(TASKS);
    println!("{bytes:.1} resident bytes a task");
    assert!((188.0..=200.0).contains(&bytes), "{bytes:.1} resident bytes a task");
}
