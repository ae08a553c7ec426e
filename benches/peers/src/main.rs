//! Measures rotor beside tokio's current-thread runtime, a bare io_uring loop and a bare epoll loop.
//!
//!     cargo run --release --manifest-path benches/peers/Cargo.toml -- [--quick] [echo|idle|tasks|beside|report]
//!
//! One program holds everything: it starts itself again, by a hidden subcommand, as the server or
//! the task benchmark of one runtime. docs/benchmarks.md says what each row means.
#![deny(unsafe_code)]

mod beside;
mod cells;
mod child;
mod client;
mod echo;
mod idle;
mod machine;
mod options;
mod report;
mod results;
mod servers;
mod tasks;

use std::process::ExitCode;

use clap::Parser;

use crate::options::{Command, Options, Plan};
use crate::results::Results;

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<(), Error> {
    let plan = Plan::of(&options);
    match options.command {
        Some(Command::Serve { core, server, job }) => {
            return Ok(servers::serve(server, job, core)?);
        }
        Some(Command::TasksOnce { core, runtime, scale }) => {
            return tasks::once(runtime, scale, core);
        }
        Some(Command::Report { write }) => return report::run(&plan, write.as_deref()),
        Some(Command::Echo) => echo::run(&plan)?,
        Some(Command::Idle) => idle::run(&plan)?,
        Some(Command::Tasks) => tasks::run(&plan)?,
        Some(Command::Beside) => beside::run(&plan)?,
        None => {
            echo::run(&plan)?;
            idle::run(&plan)?;
            tasks::run(&plan)?;
            beside::run(&plan)?;
        }
    }
    let results = Results::load(&plan.results)?;
    println!("\n{}", report::markdown(&results));
    if plan.keeps_results {
        println!("raw rounds: {}", plan.results.display());
        return Ok(());
    }
    Ok(std::fs::remove_file(&plan.results)?)
}
