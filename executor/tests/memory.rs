//! Memory is touched only as it is used.
#![cfg(all(target_os = "linux", not(loom)))]

use std::sync::Arc;

use rotor_executor::{Executor, Options, Oversized, Turn};

/// A line of this process's status, in bytes.
fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

// One test in this binary, so that no other one uses memory meanwhile.
#[test]
fn a_large_executor_uses_memory_only_for_the_tasks_it_had() {
    if status_bytes("VmSize:") > 1 << 40 {
        println!("skipped: missing is a process without an address sanitizer's shadow memory");
        return;
    }
    let options = Options { tasks: 1_000_000, task_bytes: 1024, oversized: Oversized::Refuse };
    assert!(Executor::memory_bytes(&options) > 1_100_000_000);
    let before = resident_bytes();
    let executor = Executor::new(options, Arc::new(|| {})).unwrap();
    for _ in 0..100 {
        let tasks: Vec<_> = (0..100).map(|number| executor.spawn(async move { number })).collect();
        assert_eq!(executor.run(&mut 1000), Turn::Idle);
        drop(tasks);
    }
    let used = resident_bytes().saturating_sub(before);
    assert!(used < 2_000_000, "{used} bytes were touched by 100 tasks at a time");
    drop(executor);
}
