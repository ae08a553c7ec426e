//! The executor rows: rotor's tasks beside tokio's, without any I/O. Each round runs each runtime in
//! a process of its own, so that neither finds memory the other has touched.

mod on_rotor;
mod on_tokio;

use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::machine::Cores;
use crate::options::Plan;
use crate::results::{Results, Section, TasksRun};
use crate::{Error, child};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Runtime {
    Rotor,
    Tokio,
}

impl Runtime {
    fn name(self) -> &'static str {
        match self {
            Runtime::Rotor => "rotor",
            Runtime::Tokio => "tokio",
        }
    }
}

/// What a row measures, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Row {
    SpawnJoinRoot,
    SpawnJoinTask,
    Yield,
    PingPong,
    ManyReadyFirst,
    ManyReadyAgain,
}

impl Row {
    pub(crate) const ALL: [Row; 6] = [
        Row::SpawnJoinRoot,
        Row::SpawnJoinTask,
        Row::Yield,
        Row::PingPong,
        Row::ManyReadyFirst,
        Row::ManyReadyAgain,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Row::SpawnJoinRoot => "spawn and join, from the root",
            Row::SpawnJoinTask => "spawn and join, inside a task",
            Row::Yield => "yield, 16 tasks in turn",
            Row::PingPong => "local wake, round trip of two tasks",
            Row::ManyReadyFirst => "a million ready tasks, memory untouched before",
            Row::ManyReadyAgain => "a million ready tasks, once more",
        }
    }

    /// The part of tokio's time that the project set itself as the most.
    pub(crate) fn ratio_max(self) -> f64 {
        match self {
            Row::SpawnJoinRoot | Row::SpawnJoinTask => 0.10,
            Row::Yield | Row::PingPong => 0.40,
            Row::ManyReadyFirst | Row::ManyReadyAgain => 0.25,
        }
    }
}

pub(crate) fn run(plan: &Plan) -> Result<(), Error> {
    let mut results = Results::load(&plan.results)?;
    let mut section = Section::new(plan.quick, None);
    for round in 0..plan.rounds {
        let mut order = [Runtime::Rotor, Runtime::Tokio];
        order.rotate_left(round as usize % 2);
        for runtime in order {
            let rows = measure(runtime, plan.tasks_scale)
                .map_err(|error| format!("{} tasks: {error}", runtime.name()))?;
            for (row, ns) in &rows {
                let (round, label) = (round + 1, row.label());
                println!("round {round:>2}  {label:<48} {:<6} {ns:>7.1} ns", runtime.name());
            }
            section.runs.push(TasksRun { round, runtime, rows });
        }
    }
    results.tasks = Some(section);
    results.store(&plan.results)
}

fn measure(runtime: Runtime, scale: u64) -> Result<Vec<(Row, f64)>, Error> {
    let output = Command::new(std::env::current_exe()?)
        .args(["tasks-once", "--core", &Cores::chosen()?.server.to_string()])
        .args([runtime.name(), &scale.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("ended: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs in the child process: prints the rows of one runtime as JSON.
pub(crate) fn once(runtime: Runtime, scale: u64, core: usize) -> Result<(), Error> {
    child::begin(core)?;
    let rows = match runtime {
        Runtime::Rotor => on_rotor::rows(scale)?,
        Runtime::Tokio => on_tokio::rows(scale)?,
    };
    println!("{}", serde_json::to_string(&rows)?);
    Ok(())
}
