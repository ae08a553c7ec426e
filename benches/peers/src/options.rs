//! The command line, and what follows from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::cells::{self, Cell};
use crate::servers::{Job, Server};
use crate::tasks::Runtime;

/// A round's time in a cell is measured in so many slices, of which the servers have one each in turn.
const SLICES: u32 = 10;

/// Measures rotor beside tokio, a bare io_uring loop and a bare epoll loop.
///
/// Without a command: echo, idle, tasks and beside, then the report.
#[derive(Debug, Parser)]
#[command(name = "peers")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// One short round of a few cells: proves that everything runs, measures nothing.
    #[arg(long, global = true)]
    quick: bool,

    /// Paired rounds: in each, every server runs every cell once [default: 10, quick: 1].
    #[arg(long, global = true)]
    rounds: Option<u32>,

    /// Seconds measured per server and cell, after a quarter of it to warm up [default: 1, quick: 0.2].
    #[arg(long, global = true)]
    seconds: Option<f64>,

    /// Only these cells, for instance `64x64,16x65536,16x64x16` (connections x bytes [x in flight]).
    #[arg(long, global = true, value_delimiter = ',')]
    cells: Vec<Cell>,

    /// Only these servers. Ratios need `tokio` among them.
    #[arg(long, global = true, value_delimiter = ',')]
    servers: Vec<Server>,

    /// Another build of this program: its rotor runs in the same rounds, as `baseline`.
    #[arg(long, global = true)]
    baseline: Option<PathBuf>,

    /// Where the raw rounds lie [default: benches/peers/results.json, quick: not kept].
    #[arg(long, global = true)]
    results: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Echo rows: rate, latency and server CPU.
    Echo,
    /// Memory row: resident bytes of an idle connection.
    Idle,
    /// Executor rows: spawn and join, yield, wake, a million ready tasks.
    Tasks,
    /// Crowd rows: rotor's echo alone, and beside streams that stand still.
    Beside,
    /// Makes the report from the raw rounds alone.
    Report {
        /// Replace the part between the markers of this file in place of printing.
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// A server, as a child process.
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        core: usize,
        server: Server,
        #[command(subcommand)]
        job: Job,
    },
    /// The executor rows of one runtime, as a child process.
    #[command(hide = true)]
    TasksOnce {
        #[arg(long)]
        core: usize,
        runtime: Runtime,
        scale: u64,
    },
}

/// What will be measured, and how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// In so many slices, the servers in turn.
    pub(crate) slices: u32,
    pub(crate) cells: Vec<Cell>,
    pub(crate) servers: Vec<Server>,
    pub(crate) idle_connections: usize,
    /// Streams of each kind that stand still beside an echo, and the echo's cells.
    pub(crate) crowd: usize,
    pub(crate) cells_beside: Vec<Cell>,
    /// Tasks alive in the largest executor row; the others follow from it.
    pub(crate) tasks_scale: u64,
    pub(crate) baseline: Option<PathBuf>,
    pub(crate) results: PathBuf,
    /// Whether the raw rounds stay when the report is made: what a quick run measures is worth
    /// nothing, unless it was asked for a file.
    pub(crate) keeps_results: bool,
}

impl Plan {
    pub(crate) fn of(options: &Options) -> Plan {
        let quick = options.quick;
        let seconds = options.seconds.unwrap_or(if quick { 0.2 } else { 1.0 });
        let chosen = |given: &[Cell]| match (given, quick) {
            ([], true) => cells::quick(),
            ([], false) => cells::all(),
            (given, _) => given.to_vec(),
        };
        let mut servers = match &options.servers[..] {
            [] => Server::USUAL.to_vec(),
            given => given.to_vec(),
        };
        servers.retain(|server| *server != Server::Baseline);
        if options.baseline.is_some() {
            servers.push(Server::Baseline);
        }
        Plan {
            quick,
            rounds: options.rounds.unwrap_or(if quick { 1 } else { 10 }),
            warm_up: Duration::from_secs_f64(seconds / 4.0),
            measured: Duration::from_secs_f64(seconds),
            slices: if quick { 2 } else { SLICES },
            cells: chosen(&options.cells),
            servers,
            idle_connections: if quick { 1_000 } else { 10_000 },
            crowd: if quick { 100 } else { 1_000 },
            cells_beside: match &options.cells[..] {
                [] => cells::beside(quick),
                given => given.to_vec(),
            },
            tasks_scale: if quick { 100_000 } else { 1_000_000 },
            baseline: options.baseline.clone(),
            results: options.results.clone().unwrap_or_else(|| results_default(quick)),
            keeps_results: !quick || options.results.is_some(),
        }
    }
}

/// A quick run does not touch the tree, and two at a time do not touch each other.
fn results_default(quick: bool) -> PathBuf {
    if quick {
        std::env::temp_dir().join(format!("rotor-peers-{}.json", std::process::id()))
    } else {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results.json"))
    }
}
