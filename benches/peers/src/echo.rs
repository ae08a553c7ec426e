//! The echo rows: paired rounds of every server in every cell.

use crate::Error;
use crate::cells::Cell;
use crate::child::ServerProcess;
use crate::client::{Client, ServerUse};
use crate::machine;
use crate::options::Plan;
use crate::results::{EchoRun, Results, Section};
use crate::servers::{Job, Server};

/// Another program that takes this part of a core's time disturbs what is measured on it.
const DISTURBED_MIN: f64 = 0.02;

pub(crate) fn run(plan: &Plan) -> Result<(), Error> {
    let connections = plan.cells.iter().map(|cell| cell.connections).max().unwrap_or(0);
    machine::raise_descriptors(connections + 64)?;
    machine::pin(machine::Cores::chosen()?.client)?;
    let mut results = Results::load(&plan.results)?;
    let mut section = Section::new(plan.quick, Some(plan.measured.as_secs_f64()));
    for round in 0..plan.rounds {
        for (index, cell) in plan.cells.iter().enumerate() {
            for server in order(&plan.servers, cell, round as usize + index) {
                let run = ServerProcess::start(server, Job::of(cell))
                    .map_err(Error::from)
                    .and_then(|mut process| measure(plan, &mut process, server, cell, round))
                    .map_err(|error| format!("{} at {cell}: {error}", server.name()))?;
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

/// The servers of a cell, in an order that alternates from round to round: whoever goes first finds
/// another machine than whoever goes last.
fn order(servers: &[Server], cell: &Cell, round: usize) -> Vec<Server> {
    let mut order: Vec<_> =
        servers.iter().copied().filter(|server| server.takes_part(cell)).collect();
    let first = round / 2 % order.len().max(1);
    order.rotate_left(first);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// An echo of a server that runs.
pub(crate) fn measure(
    plan: &Plan,
    process: &mut ServerProcess,
    server: Server,
    cell: &Cell,
    round: u32,
) -> Result<EchoRun, Error> {
    let client = Client::connect(process.address, *cell)?;
    let measured = client.run(plan.warm_up, plan.measured, || {
        Ok(ServerUse { cpu_ns: process.cpu_ns()?, waited_ns: process.waited_ns()? })
    });
    // A server that ended explains an echo that did not come.
    process.check_alive()?;
    let measured = measured?;
    Ok(EchoRun {
        round,
        server,
        cell: *cell,
        echoes: measured.echoes,
        seconds: measured.seconds,
        server_cpu_ns: measured.server.cpu_ns,
        p50_ns: measured.latency_ns.value_at_quantile(0.50),
        p99_ns: measured.latency_ns.value_at_quantile(0.99),
        client_idle: measured.idle_seconds / measured.seconds,
        server_waited: measured.server.waited_ns as f64 / 1e9 / measured.seconds,
        client_waited: (1.0 - measured.cpu_seconds / measured.seconds).max(0.0),
    })
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
