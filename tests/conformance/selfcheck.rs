//! What the suite would say of scenarios that fail, hang, die, differ or cannot run. It looks each time,
//! before the scenarios: a table of passes proves nothing if a failure passed as well.

use std::time::Duration;

use crate::children::{Cell, run_column};
use crate::scenario::{Outcome, Scenario};
use crate::settings::{SETTINGS, Setting};
use crate::table;

/// What the numbers of these scenarios are preceded by.
pub(crate) const PREFIX: &str = "check:";

/// Long for a scenario that does nothing, and short for a person.
const PATIENCE: Duration = Duration::from_millis(500);

const fn scenario(name: &'static str, run: fn() -> Outcome) -> Scenario {
    Scenario { promise: 8, operations: &["runtime"], name, run }
}

pub(crate) const SCENARIOS: [Scenario; 7] = [
    scenario("passes", || "the same".to_owned().into()),
    scenario("panics", || panic!("of itself")),
    scenario("hangs", || {
        loop {
            std::thread::park();
        }
    }),
    scenario("dies", || std::process::abort()),
    scenario("skips", || Outcome::Skip("it lacks something")),
    scenario("differs", || std::env::var("ROTOR_BACKEND").unwrap().into()),
    scenario("passes after all of them", || ().into()),
];

fn setting(name: &str) -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.name == name).expect("it is in the table")
}

pub(crate) fn check() {
    let numbers: Vec<usize> = (0..SCENARIOS.len()).collect();
    let run = |name| run_column(setting(name), &SCENARIOS, (PREFIX, &numbers), PATIENCE);
    let mut columns = vec![run("epoll"), run("epoll-milliseconds")];
    assert_eq!(table::compare(&mut columns), 1);
    assert_eq!(table::totals(&columns), [5, 7, 2]);
    for (place, column) in columns.iter().enumerate() {
        let words = |number: usize| match &column.cells[number] {
            Some(Cell::Pass(words)) => format!("pass {words}"),
            Some(Cell::Fail(words)) => format!("FAIL {words}"),
            Some(Cell::Skip(words)) => format!("skip {words}"),
            None => "nothing".to_owned(),
        };
        assert_eq!(words(0), "pass the same");
        assert!(words(1).starts_with("FAIL panicked at") && words(1).ends_with("of itself"));
        assert_eq!(words(2), "FAIL it hangs: nothing for 500ms");
        assert!(words(3).starts_with("FAIL the process ended: signal: 6"), "{}", words(3));
        assert_eq!(words(4), "skip it lacks something");
        assert_eq!(words(5).starts_with("FAIL the backends differ"), place == 1, "{}", words(5));
        assert_eq!(words(6), "pass ");
    }
    let missing = [run("kqueue")];
    assert_eq!(table::missing(&missing, &[]), [""; 0]);
    let told = table::missing(&missing, &["kqueue".to_owned()]);
    assert!(told[0].starts_with("kqueue is required and missing: "), "{told:?}");
}
