//! The table: scenario by backend, and what is wrong in it.

use std::time::Duration;

use crate::children::{Cell, Column};
use crate::scenario::{OPERATIONS, Scenario};
use crate::suite::SUBJECTS;

/// What is to be said of backends that are missing and required.
pub(crate) fn missing(columns: &[Column], required: &[String]) -> Vec<String> {
    let is_required = |column: &&Column| required.iter().any(|name| name == column.name);
    let told = |column: &Column| {
        let why = column.backend.as_ref().err()?;
        Some(format!("{} is required and missing: {why}", column.name))
    };
    columns.iter().filter(is_required).filter_map(told).collect()
}

/// Turns what passed on each of two backends, with observations that differ, into a failure on the later
/// one. Answers how many scenarios differ.
pub(crate) fn compare(columns: &mut [Column]) -> usize {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut differing = 0;
    for row in 0..rows {
        let mut first: Option<(&'static str, String)> = None;
        let mut differs = false;
        for column in columns.iter_mut() {
            let Some(Cell::Pass(seen)) = &column.cells[row] else { continue };
            match &first {
                None => first = Some((column.name, seen.clone())),
                Some((_, other)) if other == seen => {}
                Some((name, other)) => {
                    differs = true;
                    let words = format!("the backends differ: {seen:?}, and on {name} {other:?}");
                    column.cells[row] = Some(Cell::Fail(words));
                }
            }
        }
        differing += usize::from(differs);
    }
    differing
}

/// How many passed, failed and were skipped.
pub(crate) fn totals(columns: &[Column]) -> [usize; 3] {
    let counted: [fn(&Cell) -> bool; 3] = [
        |cell| matches!(cell, Cell::Pass(_)),
        |cell| matches!(cell, Cell::Fail(_)),
        |cell| matches!(cell, Cell::Skip(_)),
    ];
    counted.map(|counted| columns.iter().map(|column| column.count(counted)).sum())
}

/// The few that took longest, of those that took long.
pub(crate) fn slowest(column: &Column) -> Vec<(Duration, usize)> {
    const LONG: Duration = Duration::from_millis(500);
    let numbered = column.times.iter().copied().zip(0..);
    let mut slow: Vec<(Duration, usize)> = numbered.filter(|(took, _)| *took > LONG).collect();
    slow.sort_by(|a, b| b.cmp(a));
    slow.truncate(5);
    slow
}

/// Prints a line a scenario, a place a backend; below it each skip with its reason, and each failure.
pub(crate) fn print(scenarios: &[Scenario], columns: &[Column]) {
    println!();
    for (number, column) in columns.iter().enumerate() {
        println!("{:>2}  {}", number + 1, column.name);
    }
    let heads: Vec<String> = (1..=columns.len()).map(|number| format!("{number:<5}")).collect();
    let heads = heads.concat();
    println!("\n{:<82}{}", "scenario, with its promise", heads.trim_end());
    let mut row = 0;
    let (mut skips, mut failures) = (Vec::new(), Vec::new());
    for (subject, its) in SUBJECTS {
        let mut named = false;
        for scenario in its {
            let cells: Vec<_> = columns.iter().map(|column| &column.cells[row]).collect();
            row += 1;
            if cells.iter().all(|cell| cell.is_none()) {
                continue;
            }
            if !named {
                println!("{subject}");
                named = true;
            }
            let mut line = format!("{:>4}  {:<76}", scenario.promise, scenario.name);
            for (cell, column) in cells.iter().zip(columns) {
                let (mark, words) = match cell {
                    Some(Cell::Pass(_)) => ("pass", None),
                    Some(Cell::Fail(words)) => ("FAIL", Some((&mut failures, words))),
                    Some(Cell::Skip(words)) => ("skip", Some((&mut skips, words))),
                    None => ("", None),
                };
                line.push_str(&format!("{mark:<5}"));
                if let Some((list, words)) = words {
                    list.push(format!("{mark}  {} on {}: {words}", scenario.name, column.name));
                }
            }
            println!("{}", line.trim_end());
        }
    }
    assert_eq!(row, scenarios.len());
    println!();
    skips.iter().chain(&failures).for_each(|line| println!("{line}"));
}

/// Prints how many scenarios there are for each promise and operation. One may be about several.
pub(crate) fn print_promises(scenarios: &[Scenario]) {
    let heads: Vec<String> = (1..=10).map(|promise| format!("{promise:>4}")).collect();
    println!("{:<12}{}", "promise", heads.join(""));
    let count = |promise: u8, operation: Option<&str>| {
        let about = |it: &&Scenario| operation.is_none_or(|name| it.operations.contains(&name));
        scenarios.iter().filter(|it| it.promise == promise).filter(about).count()
    };
    let mut rows: Vec<(&str, Option<&str>)> =
        OPERATIONS.iter().map(|&name| (name, Some(name))).collect();
    rows.push(("all", None));
    for (name, operation) in rows {
        let counts = (1..=10).map(|promise| match count(promise, operation) {
            0 => format!("{:>4}", "."),
            counted => format!("{counted:>4}"),
        });
        println!("{name:<12}{}", counts.collect::<String>());
    }
    println!();
}
