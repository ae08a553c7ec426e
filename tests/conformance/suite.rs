//! The parent: what is asked for, each backend's child, the table, and whether all is well.

use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::children::{Cell, Column, TASK, run_child, run_column};
use crate::scenario::{OPERATIONS, Scenario};
use crate::settings::{SETTINGS, Setting};
use crate::{
    cancel, close, cost, drop, event, fair, limits, order, selfcheck, table, tcp, thread, timer,
    wake,
};

/// A scenario that says nothing for so long hangs, unless `--patience` says otherwise, in seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The subjects, in the table's order.
pub(crate) const SUBJECTS: [(&str, &[Scenario]); 12] = [
    ("tcp", tcp::SCENARIOS),
    ("event", event::SCENARIOS),
    ("cancel", cancel::SCENARIOS),
    ("order", order::SCENARIOS),
    ("drop", drop::SCENARIOS),
    ("close", close::SCENARIOS),
    ("timer", timer::SCENARIOS),
    ("wake", wake::SCENARIOS),
    ("thread", thread::SCENARIOS),
    ("limits", limits::SCENARIOS),
    ("cost", cost::SCENARIOS),
    ("fair", fair::SCENARIOS),
];

/// What the command line asks for.
#[derive(Default)]
struct Asked {
    /// A subject, an operation, or words of a scenario's name.
    names: Vec<String>,
    backends: Vec<String>,
    patience: Option<Duration>,
    list: bool,
}

/// The arguments of libtest that take a value of their own.
const LIBTEST_VALUES: [&str; 5] = ["--test-threads", "--format", "--color", "--skip", "--logfile"];

impl Asked {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Asked {
        let mut asked = Asked::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => asked.list = true,
                "--backend" => asked.backends.extend(arguments.next()),
                "--patience" => {
                    let seconds = arguments.next().and_then(|seconds| seconds.parse().ok());
                    asked.patience = seconds.map(Duration::from_secs);
                }
                // `cargo test -- --nocapture` means every test program.
                libtest if libtest.starts_with("--") => {
                    if LIBTEST_VALUES.contains(&libtest) {
                        arguments.next();
                    }
                }
                _ => asked.names.push(argument),
            }
        }
        asked
    }

    fn wants(&self, subject: &str, scenario: &Scenario) -> bool {
        let has = |word: &String| {
            let word = word.as_str();
            subject == word || scenario.operations.contains(&word) || scenario.name.contains(word)
        };
        self.names.is_empty() || self.names.iter().any(has)
    }

    /// The backends to run on.
    ///
    /// # Errors
    /// A name that is none of them.
    fn settings(&self) -> Result<Vec<&'static Setting>, String> {
        let mut names = self.backends.clone();
        let by_hand = env::var("ROTOR_BACKEND").unwrap_or_default();
        if names.is_empty() && !by_hand.is_empty() {
            names.push(by_hand);
        }
        known(&names)?;
        let all = names.is_empty();
        Ok(SETTINGS.iter().filter(|it| all || names.iter().any(|name| name == it.name)).collect())
    }
}

/// An error unless each is a backend's name.
fn known(names: &[String]) -> Result<(), String> {
    let unknown = names.iter().find(|name| SETTINGS.iter().all(|it| it.name != name.as_str()));
    match unknown {
        Some(name) => {
            let all = SETTINGS.map(|it| it.name).join(", ");
            Err(format!("there is no backend {name:?}; there are {all}"))
        }
        None => Ok(()),
    }
}

/// The backends that must not be missing.
fn required() -> Result<Vec<String>, String> {
    let names = env::var("ROTOR_REQUIRE").unwrap_or_default();
    let names: Vec<String> =
        names.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    known(&names).map(|()| names)
}

fn all_scenarios() -> Vec<Scenario> {
    SUBJECTS.iter().flat_map(|(_, scenarios)| scenarios.iter().copied()).collect()
}

/// The scenarios' own rules.
fn check_table(scenarios: &[Scenario]) {
    for (place, scenario) in scenarios.iter().enumerate() {
        assert!((1..=10).contains(&scenario.promise), "{}: no such promise", scenario.name);
        let unknown = scenario.operations.iter().find(|name| !OPERATIONS.contains(name));
        assert_eq!(unknown, None, "{}: no such operation", scenario.name);
        let twice = scenarios[..place].iter().any(|other| other.name == scenario.name);
        assert!(!twice, "two scenarios are called {:?}", scenario.name);
    }
}

pub(crate) fn main() -> ExitCode {
    let scenarios = all_scenarios();
    if let Ok(task) = env::var(TASK) {
        match task.strip_prefix(selfcheck::PREFIX) {
            Some(numbers) => run_child(&selfcheck::SCENARIOS, numbers),
            None => run_child(&scenarios, &task),
        }
        return ExitCode::SUCCESS;
    }
    check_table(&scenarios);
    let asked = Asked::parse(env::args().skip(1));
    let wanted = |subject: &'static str, scenarios: &'static [Scenario]| {
        let wants: Vec<bool> = scenarios.iter().map(|it| asked.wants(subject, it)).collect();
        wants
    };
    let wants: Vec<bool> = SUBJECTS.iter().flat_map(|(name, all)| wanted(name, all)).collect();
    let numbers: Vec<usize> = (0..scenarios.len()).filter(|&number| wants[number]).collect();
    if asked.list {
        numbers.iter().for_each(|&number| println!("{}: test", scenarios[number].name));
        return ExitCode::SUCCESS;
    }
    if numbers.is_empty() {
        println!("no scenario of {} is asked for", scenarios.len());
        return ExitCode::SUCCESS;
    }
    let (settings, required) = match (asked.settings(), required()) {
        (Ok(settings), Ok(required)) => (settings, required),
        (Err(words), _) | (_, Err(words)) => {
            eprintln!("{words}");
            return ExitCode::FAILURE;
        }
    };
    selfcheck::check();
    let patience = asked.patience.unwrap_or(PATIENCE);
    if run(&scenarios, (&numbers, patience), &settings, &required) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether all is well.
fn run(
    scenarios: &[Scenario],
    (numbers, patience): (&[usize], Duration),
    settings: &[&'static Setting],
    required: &[String],
) -> bool {
    let begun = Instant::now();
    let mut columns: Vec<Column> = Vec::new();
    for setting in settings {
        let column = run_column(setting, scenarios, ("", numbers), patience);
        let passed = column.count(|cell| matches!(cell, Cell::Pass(_)));
        match &column.backend {
            Ok(words) => {
                println!("{}: {passed} passed in {:.1?} ({words})", column.name, column.took)
            }
            Err(words) => println!("{}: skipped: {words}", column.name),
        }
        for (took, number) in table::slowest(&column) {
            println!("    {took:.1?}: {}", scenarios[number].name);
        }
        columns.push(column);
    }
    let missing = table::missing(&columns, required);
    columns.retain(|column| column.backend.is_ok());
    let differing = table::compare(&mut columns);
    table::print(scenarios, &columns);
    println!();
    missing.iter().for_each(|words| println!("FAIL  {words}"));
    if numbers.len() == scenarios.len() {
        table::print_promises(scenarios);
    }
    let counts = table::totals(&columns);
    println!(
        "{} scenarios on {} backends in {:.1?}: {} passed, {} failed, {} skipped; {differing} differ",
        numbers.len(),
        columns.len(),
        begun.elapsed(),
        counts[0],
        counts[1],
        counts[2],
    );
    let well = missing.is_empty() && counts[1] == 0;
    println!("test result: {}", if well { "ok" } else { "FAILED" });
    well
}
