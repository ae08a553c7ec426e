//! The memory row: what a connection costs that waits, each a task with a read of one byte pending.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use crate::Error;
use crate::child::ServerProcess;
use crate::machine;
use crate::options::Plan;
use crate::results::{IdleRun, Results, Section};
use crate::servers::{Job, Server};

/// Memory hardly varies between rounds; more of them would be for show.
const ROUNDS_MAX: u32 = 3;
/// After the last accept, until its task has run and its read is pending.
const SETTLE: Duration = Duration::from_millis(300);
/// Connections made between two looks at the server: the backlog takes no more at a time.
const PAUSE_EVERY: usize = 500;

pub(crate) fn run(plan: &Plan) -> Result<(), Error> {
    machine::raise_descriptors(plan.idle_connections + 64)?;
    let mut results = Results::load(&plan.results)?;
    let mut section = Section::new(plan.quick, None);
    for round in 0..plan.rounds.min(ROUNDS_MAX) {
        for &server in plan.servers.iter().filter(|server| server.keeps_idle()) {
            let run = measure(plan.idle_connections, server, round)
                .map_err(|error| format!("{} idle: {error}", server.name()))?;
            println!(
                "round {:>2}  {} idle connections  {:<12} {:>6.0} resident bytes each, {:.0} once used",
                round + 1,
                run.connections,
                server.name(),
                run.idle_each(),
                run.used_each(),
            );
            section.runs.push(run);
        }
    }
    results.idle = Some(section);
    results.store(&plan.results)
}

fn measure(connections: usize, server: Server, round: u32) -> io::Result<IdleRun> {
    let mut process = ServerProcess::start(server, Job::Idle { connections })?;
    let run = connect_and_use(&mut process, connections, server, round);
    // A server that ended explains a connection that failed.
    process.check_alive()?;
    run
}

fn connect_and_use(
    process: &mut ServerProcess,
    connections: usize,
    server: Server,
    round: u32,
) -> io::Result<IdleRun> {
    sleep(SETTLE);
    let before_bytes = process.resident_bytes()?;
    let mut streams = Vec::with_capacity(connections);
    for index in 0..connections {
        // Blocking: a full backlog holds the client back until the server has accepted.
        let stream = TcpStream::connect(process.address)?;
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        streams.push(stream);
        if index % PAUSE_EVERY == PAUSE_EVERY - 1 {
            sleep(Duration::from_millis(5));
        }
    }
    process.line("accepted ")?;
    sleep(SETTLE);
    let idle_bytes = process.resident_bytes()?;
    // Every connection is served, or the figure above is of something else.
    for (index, stream) in streams.iter_mut().enumerate() {
        let (sent, mut byte) = ([index as u8], [0]);
        stream.write_all(&sent)?;
        stream.read_exact(&mut byte)?;
        if byte != sent {
            return Err(io::Error::other(format!("connection {index} got another byte back")));
        }
    }
    sleep(SETTLE);
    let used_bytes = process.resident_bytes()?;
    Ok(IdleRun { round, server, connections, before_bytes, idle_bytes, used_bytes })
}

impl IdleRun {
    pub(crate) fn idle_each(&self) -> f64 {
        self.each(self.idle_bytes)
    }

    pub(crate) fn used_each(&self) -> f64 {
        self.each(self.used_bytes)
    }

    fn each(&self, bytes: u64) -> f64 {
        bytes.saturating_sub(self.before_bytes) as f64 / self.connections as f64
    }
}
