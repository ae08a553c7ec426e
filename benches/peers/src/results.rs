//! What `results.json` holds: the raw rounds. The report is made from them and nothing else.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::cells::Cell;
use crate::machine::Machine;
use crate::servers::Server;
use crate::tasks::{Row, Runtime};

/// The sections are measured by commands of their own; each replaces its own and keeps the others.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) echo: Option<Section<EchoRun>>,
    pub(crate) idle: Option<Section<IdleRun>>,
    pub(crate) tasks: Option<Section<TasksRun>>,
    pub(crate) beside: Option<Section<BesideRun>>,
}

/// One command's raw rounds, in the order in which they were measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Section<Run> {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    /// Seconds measured in a run, where that is fixed.
    pub(crate) seconds: Option<f64>,
    pub(crate) runs: Vec<Run>,
}

/// One server in one cell in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EchoRun {
    pub(crate) round: u32,
    pub(crate) server: Server,
    pub(crate) cell: Cell,
    pub(crate) echoes: u64,
    pub(crate) seconds: f64,
    pub(crate) server_cpu_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    /// The part of the time in which the client had nothing to do.
    pub(crate) client_idle: f64,
    /// The parts of the time in which server and client were ready to run, and another program had
    /// their core. Nearly nothing on a quiet machine.
    pub(crate) server_waited: f64,
    pub(crate) client_waited: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct IdleRun {
    pub(crate) round: u32,
    pub(crate) server: Server,
    pub(crate) connections: usize,
    /// Resident bytes of the server process before the first connection.
    pub(crate) before_bytes: u64,
    /// With every connection's read pending.
    pub(crate) idle_bytes: u64,
    /// After one byte went each way on every connection, and every read is pending again.
    pub(crate) used_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TasksRun {
    pub(crate) round: u32,
    pub(crate) runtime: Runtime,
    pub(crate) rows: Vec<(Row, f64)>,
}

/// An echo of rotor's in one cell in one round, with a crowd of streams beside it or alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BesideRun {
    pub(crate) crowd: Option<Crowd>,
    pub(crate) echo: EchoRun,
}

/// Streams that stood still, and what they cost the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Crowd {
    /// Peers that flood streams nobody reads.
    pub(crate) floods: usize,
    /// Streams that hold a lease of one byte.
    pub(crate) leases: usize,
    /// Bytes the peers got rid of before TCP held them back.
    pub(crate) flooded_bytes: u64,
    /// Resident bytes of the server before the crowd came, and when the echo beside it was over.
    pub(crate) before_bytes: u64,
    pub(crate) after_bytes: u64,
    /// What `memory_bytes` says of the server's options.
    pub(crate) memory_bytes: u64,
}

impl<Run> Section<Run> {
    pub(crate) fn new(quick: bool, seconds: Option<f64>) -> Section<Run> {
        Section { machine: Machine::here(), quick, seconds, runs: Vec::new() }
    }
}

impl Results {
    /// Reads the file; a file that is not there is an empty one.
    pub(crate) fn load(path: &Path) -> Result<Results, Error> {
        match fs::read(path) {
            Ok(text) => Ok(serde_json::from_slice(&text)
                .map_err(|error| format!("{} is not a results file: {error}", path.display()))?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Results::default()),
            Err(error) => Err(format!("{}: {error}", path.display()).into()),
        }
    }

    /// Replaces the file as a whole, so that a run that is stopped leaves the last complete one.
    pub(crate) fn store(&self, path: &Path) -> Result<(), Error> {
        let new = path.with_extension("json.new");
        fs::write(&new, serde_json::to_string_pretty(self)? + "\n")?;
        fs::rename(&new, path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(())
    }
}
