//! The echo rows: paired rounds of every server in every cell.

use std::io;
use std::time::Duration;

use crate::Error;
use crate::cells::Cell;
use crate::child::ServerProcess;
use crate::client::{Client, Measured, ServerUse};
use crate::machine;
use crate::options::Plan;
use crate::results::{EchoRun, Results, Section};
use crate::servers::{Job, Server};

/// Another program that takes this part of a core's time disturbs what is measured on it.
const DISTURBED_MIN: f64 = 0.02;

pub(crate) fn run(plan: &Plan) -> Result<(), Error> {
    let connections = plan.cells.iter().map(|cell| cell.connections).max().unwrap_or(0);
    machine::raise_descriptors(plan.servers.len() * connections + 64)?;
    machine::pin(machine::Cores::chosen()?.client)?;
    let mut results = Results::load(&plan.results)?;
    let mut section = Section::new(plan.quick, Some(plan.measured.as_secs_f64()));
    for round in 0..plan.rounds {
        for cell in &plan.cells {
            let mut contestants = Vec::new();
            for &server in plan.servers.iter().filter(|server| server.takes_part(cell)) {
                let process = match (server, &plan.baseline) {
                    (Server::Baseline, Some(program)) => {
                        ServerProcess::start_baseline(program, Job::of(cell))?
                    }
                    (server, _) => ServerProcess::start(server, Job::of(cell))?,
                };
                contestants.push(Contestant::meet(process, *cell)?);
            }
            alternate(plan, &mut contestants)?;
            for contestant in contestants {
                let run = contestant.run(round);
                say(&run);
                section.runs.push(run);
            }
        }
        results.echo = Some(section);
        results.store(&plan.results)?;
        section = results.echo.take().ok_or("the section was put there above")?;
    }
    Ok(())
}

/// A server that runs and the client it echoes to.
pub(crate) struct Contestant {
    process: ServerProcess,
    cell: Cell,
    client: Client,
    measured: Measured,
}

/// Measures them in turn, a slice of the time each, again and again: what the machine's neighbours do
/// lasts longer than a slice, and so falls on all of them alike. Whoever is not measured has nothing
/// to do.
pub(crate) fn alternate(plan: &Plan, contestants: &mut [Contestant]) -> Result<(), Error> {
    for contestant in &mut *contestants {
        contestant.go(Duration::ZERO, plan.warm_up)?;
    }
    let slice = plan.measured / plan.slices;
    for turn in 0..plan.slices as usize {
        // Nobody always follows the same other.
        let mut order: Vec<_> = (0..contestants.len()).collect();
        order.rotate_left(turn / 2 % contestants.len().max(1));
        if turn % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let measured = contestants[index].go(slice / 5, slice)?;
            contestants[index].measured += measured;
        }
    }
    Ok(())
}

impl Contestant {
    pub(crate) fn meet(process: ServerProcess, cell: Cell) -> io::Result<Contestant> {
        let client = Client::connect(process.address, cell)?;
        Ok(Contestant { process, cell, client, measured: Measured::nothing() })
    }

    fn go(&mut self, warm_up: Duration, measured: Duration) -> Result<Measured, Error> {
        let process = &self.process;
        let gone = self.client.run(warm_up, measured, || {
            Ok(ServerUse { cpu_ns: process.cpu_ns()?, waited_ns: process.waited_ns()? })
        });
        // A server that ended explains an echo that did not come.
        let gone = self.process.check_alive().and(gone);
        gone.map_err(|error| format!("{} at {}: {error}", self.server().name(), self.cell).into())
    }

    pub(crate) fn server(&self) -> Server {
        self.process.server
    }

    pub(crate) fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// What its slices came to.
    pub(crate) fn run(&self, round: u32) -> EchoRun {
        let measured = &self.measured;
        EchoRun {
            round,
            server: self.server(),
            cell: self.cell,
            echoes: measured.echoes,
            seconds: measured.seconds,
            server_cpu_ns: measured.server.cpu_ns,
            p50_ns: measured.latency_ns.value_at_quantile(0.50),
            p99_ns: measured.latency_ns.value_at_quantile(0.99),
            client_idle: measured.idle_seconds / measured.seconds,
            server_waited: measured.server.waited_ns as f64 / 1e9 / measured.seconds,
            client_waited: (1.0 - measured.cpu_seconds / measured.seconds).max(0.0),
        }
    }
}

pub(crate) fn say(run: &EchoRun) {
    println!(
        "round {:>2}  {:<26} {:<10} {:>9.0}/s  {:>7.0} ns CPU  p50 {:>8.1} us  p99 {:>8.1} us  \
         server busy {:>3.0}%  client idle {:>3.0}%{}",
        run.round + 1,
        run.cell.to_string(),
        run.server.name(),
        run.rate(),
        run.cpu_ns(),
        run.p50_ns as f64 / 1e3,
        run.p99_ns as f64 / 1e3,
        run.server_busy() * 100.0,
        run.client_idle * 100.0,
        if run.disturbed() { "  disturbed" } else { "" },
    );
}

impl EchoRun {
    /// Echoes a second.
    pub(crate) fn rate(&self) -> f64 {
        self.echoes as f64 / self.seconds
    }

    /// Server CPU an echo.
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.server_cpu_ns as f64 / self.echoes.max(1) as f64
    }

    /// Whether another program took a core for a part of the time that shows.
    pub(crate) fn disturbed(&self) -> bool {
        self.server_waited > DISTURBED_MIN || self.client_waited > DISTURBED_MIN
    }

    /// The part of the time in which the server used its core.
    pub(crate) fn server_busy(&self) -> f64 {
        self.server_cpu_ns as f64 / 1e9 / self.seconds
    }
}
