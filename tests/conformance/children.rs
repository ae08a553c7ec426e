//! A column of the table: a backend's child, what it says, and what is done where it says nothing.
//!
//! A child says one thing a line: `@backend`, `@missing`, then `@begin` and `@pass`, `@skip` or `@fail`
//! for each scenario, `@panic` for each panic on the way. Other lines are the scenarios' own.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child as Process, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::scenario::{Outcome, Scenario};
use crate::settings::Setting;

/// Tells a child that it is one, and which scenarios are its: numbers, with commas between.
pub(crate) const TASK: &str = "ROTOR_CONFORMANCE_CHILD";

/// How a scenario ended on a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Pass(String),
    Fail(String),
    Skip(String),
}

/// How the scenarios ended on a backend.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// What `rotor::backend()` said, or why there is none.
    pub(crate) backend: Result<String, String>,
    /// A cell for each scenario; nothing for those that were not asked for.
    pub(crate) cells: Vec<Option<Cell>>,
    /// How long each of them took.
    pub(crate) times: Vec<Duration>,
    pub(crate) took: Duration,
}

impl Column {
    pub(crate) fn count(&self, counted: fn(&Cell) -> bool) -> usize {
        self.cells.iter().flatten().filter(|cell| counted(cell)).count()
    }
}

/// A child's process, and its lines as they come.
struct Child {
    process: Process,
    lines: Receiver<String>,
}

impl Child {
    fn start(setting: &Setting, task: &str) -> std::io::Result<Child> {
        let mut command = setting.command()?;
        command.env(TASK, task).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let output = process.stdout.take().expect("it was piped above");
        let (told, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Child { process, lines })
    }

    /// Ends one that says nothing more, and says why.
    fn end_after(&mut self, silence: RecvTimeoutError, patience: Duration) -> String {
        let status = self.end();
        match silence {
            RecvTimeoutError::Timeout => format!("it hangs: nothing for {patience:?}"),
            RecvTimeoutError::Disconnected => status,
        }
    }

    /// Ends it, if it has not ended, and says how.
    fn end(&mut self) -> String {
        let _ = self.process.kill();
        match self.process.wait() {
            Ok(status) => format!("the process ended: {status}"),
            Err(error) => format!("the process cannot be waited for: {error}"),
        }
    }
}

/// Runs the scenarios whose numbers are given, in as many children as it takes. `which` is what the
/// numbers are preceded by. A child that says nothing for as long as `patience` is ended.
pub(crate) fn run_column(
    setting: &Setting,
    scenarios: &[Scenario],
    (which, numbers): (&str, &[usize]),
    patience: Duration,
) -> Column {
    let begun = Instant::now();
    let mut column = Column {
        name: setting.name,
        backend: Err("it was not started".to_owned()),
        cells: vec![None; scenarios.len()],
        times: vec![Duration::ZERO; scenarios.len()],
        took: Duration::ZERO,
    };
    let mut left: VecDeque<usize> = numbers.iter().copied().collect();
    while !left.is_empty() {
        let words: Vec<String> = left.iter().map(usize::to_string).collect();
        let task = format!("{which}{}", words.join(","));
        match Child::start(setting, &task) {
            Ok(child) => {
                if !listen(child, setting, &mut column, &mut left, patience) {
                    break;
                }
            }
            Err(error) => {
                column.backend = Err(format!("its process could not be started: {error}"));
                break;
            }
        }
    }
    column.took = begun.elapsed();
    column
}

/// Takes down what a child says, until it ends. False: there is no point in another child.
fn listen(
    mut child: Child,
    setting: &Setting,
    column: &mut Column,
    left: &mut VecDeque<usize>,
    patience: Duration,
) -> bool {
    let mut panics = Vec::new();
    let mut begun = Instant::now();
    loop {
        let line = match child.lines.recv_timeout(patience) {
            Ok(line) => line,
            Err(silence) => {
                panics.push(child.end_after(silence, patience));
                if column.backend.is_err() {
                    column.backend = Ok("it ended before it said which backend it has".to_owned());
                }
                let Some(number) = left.pop_front() else { return false };
                column.cells[number] = Some(Cell::Fail(panics.join("; ")));
                return true;
            }
        };
        let Some((verb, words)) = line.strip_prefix('@').and_then(|line| line.split_once(' '))
        else {
            println!("{}: {line}", setting.name);
            continue;
        };
        let words = words.to_owned();
        let cell = match verb {
            "backend" => {
                begun = Instant::now();
                let wrong = !words.starts_with(&format!("{}:", setting.runs));
                if wrong {
                    left.clear();
                    column.cells.fill(Some(Cell::Fail(format!("another backend runs: {words}"))));
                }
                column.backend = Ok(words);
                continue;
            }
            "missing" => {
                column.backend = Err(words);
                child.end();
                return false;
            }
            "panic" => {
                panics.push(words);
                continue;
            }
            "pass" => Cell::Pass(words.trim().to_owned()),
            "skip" => Cell::Skip(words),
            _ => Cell::Fail(panics.join("; ")),
        };
        panics.clear();
        if let Some(number) = left.pop_front() {
            column.cells[number] = Some(cell);
            column.times[number] = begun.elapsed();
        }
        begun = Instant::now();
        if left.is_empty() {
            child.end();
            return false;
        }
    }
}

/// In a child: runs the scenarios it was given, and says how each ended.
pub(crate) fn run_child(scenarios: &[Scenario], numbers: &str) {
    fn say(verb: &str, words: impl Display) {
        println!("@{verb} {}", words.to_string().replace('\n', " "));
    }
    std::panic::set_hook(Box::new(|panic| say("panic", panic)));
    match rotor::backend() {
        Ok(chosen) => say("backend", chosen),
        Err(error) => return say("missing", error),
    }
    for number in numbers.split(',') {
        let number: usize = number.parse().expect("the parent gives numbers");
        match catch_unwind(AssertUnwindSafe(scenarios[number].run)) {
            Ok(Outcome::Pass(observation)) => say("pass", observation),
            Ok(Outcome::Skip(why)) => say("skip", why),
            Err(_) => say("fail", ""),
        }
    }
}
