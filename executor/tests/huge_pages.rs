//! Large tables ask for huge pages: a million tasks in untouched memory cost a fault each page.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(loom)))]

use std::ops::Range;
use std::sync::Arc;

use rotor_executor::{Executor, Options, Oversized};

const MIB: usize = 1 << 20;

/// The parts of this process's memory for which huge pages are asked for.
fn asked_for() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut asked = Vec::new();
    let mut current = 0..0;
    for line in maps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).unwrap();
            current = address(start)..address(end);
        } else if first == "VmFlags:" && line.split_whitespace().any(|flag| flag == "hg") {
            asked.push(current.clone());
        }
    }
    asked
}

fn executor(tasks: u32, task_bytes: u32) -> Executor {
    let options = Options { tasks, task_bytes, oversized: Oversized::Refuse };
    Executor::new(options, Arc::new(|| {})).unwrap()
}

// One test in this binary, so that no other one has memory of the kind meanwhile.
#[test]
fn huge_pages_are_asked_for_where_a_table_is_large_and_nowhere_else() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        println!("skipped: missing is a kernel with transparent huge pages");
        return;
    }
    assert_eq!(asked_for(), []);
    let small = executor(1024, 1024);
    assert_eq!(asked_for(), []);
    drop(small);

    // The headers, 64 bytes each and two a task, take 128 MiB; the cells as much.
    let large = executor(1 << 20, 128);
    let asked = asked_for();
    assert_eq!(asked.len(), 2, "one part of each table: {asked:x?}");
    for range in &asked {
        let bytes = range.len();
        assert!((116 * MIB..=120 * MIB).contains(&bytes), "{bytes} bytes of 128 MiB");
    }
    drop(large);
}
