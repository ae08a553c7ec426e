//! The servers. Each listens on a port of the kernel's choice, prints it, and serves until it is
//! killed.

mod bare_designs;
mod bare_epoll;
mod bare_uring;
mod crowd;
mod on_rotor;
mod on_tokio;

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use self::bare_designs::Design;
use crate::cells::Cell;
use crate::{child, machine};

/// Bytes of the buffer every server has for a connection.
const BUFFER_BYTES: usize = 16_384;
/// The most bytes an echo task may have: the size of rotor's cells, as
/// `#[rotor::main(task_bytes = ...)]` sets it. The buffer and the rest.
const TASK_BYTES: usize = BUFFER_BYTES + 1024;
/// Descriptors, buffers and tasks a server has besides those of its crowd, for the echo.
const CROWD_ROOM: u32 = 1_100;
/// What an idle loop of the spinning server polls before it sleeps.
pub(crate) const SPIN_BUDGET: Duration = Duration::from_micros(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Server {
    Rotor,
    /// rotor with a spin budget; measured at one connection only.
    RotorSpin,
    /// rotor on its epoll backend.
    RotorEpoll,
    /// The rotor of another build of this program, which `--baseline` names.
    Baseline,
    Tokio,
    BareUring,
    BareEpoll,
    /// The bare io_uring loop, receiving into buffers the kernel picks.
    BarePicked,
    /// The same, each receive going on by itself.
    BareMultishot,
    /// The same, buffers handed out in parts.
    BareIncremental,
    /// The bare io_uring loop, polling and then receiving directly.
    BarePoll,
    /// The bare io_uring loop, its replies handed over together.
    BareBatched,
}

impl Server {
    /// Those that run when none are named.
    pub(crate) const USUAL: [Server; 6] = [
        Server::Rotor,
        Server::RotorSpin,
        Server::RotorEpoll,
        Server::Tokio,
        Server::BareUring,
        Server::BareEpoll,
    ];

    pub(crate) const ALL: [Server; 12] = [
        Server::Rotor,
        Server::RotorSpin,
        Server::RotorEpoll,
        Server::Baseline,
        Server::Tokio,
        Server::BareUring,
        Server::BareEpoll,
        Server::BarePicked,
        Server::BareMultishot,
        Server::BareIncremental,
        Server::BarePoll,
        Server::BareBatched,
    ];

    /// As the command line and the results spell it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Server::Rotor => "rotor",
            Server::RotorSpin => "rotor-spin",
            Server::RotorEpoll => "rotor-epoll",
            Server::Baseline => "baseline",
            Server::Tokio => "tokio",
            Server::BareUring => "bare-uring",
            Server::BareEpoll => "bare-epoll",
            Server::BarePicked => "bare-picked",
            Server::BareMultishot => "bare-multishot",
            Server::BareIncremental => "bare-incremental",
            Server::BarePoll => "bare-poll",
            Server::BareBatched => "bare-batched",
        }
    }

    /// Whether its idle connections are measured: the bare loops keep next to nothing for one.
    pub(crate) fn keeps_idle(self) -> bool {
        matches!(self, Server::Rotor | Server::RotorEpoll | Server::Tokio)
    }

    /// Whether it is measured beside a crowd too.
    pub(crate) fn has_crowd(self) -> bool {
        matches!(self, Server::Rotor | Server::RotorEpoll)
    }

    pub(crate) fn takes_part(self, cell: &Cell) -> bool {
        self != Server::RotorSpin || cell.spins()
    }
}

/// What a server is started for.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Job {
    /// Sends back what comes, in writes of at most that many bytes.
    Echo { piece: usize },
    /// Accepts that many connections, says so, and reads one byte at a time of each.
    Idle { connections: usize },
    /// Echoes, and has room for a crowd of that many streams of each kind.
    Beside { crowd: usize },
}

impl Job {
    /// The echo of a cell: pipelined messages are answered one by one.
    pub(crate) fn of(cell: &Cell) -> Job {
        Job::Echo { piece: if cell.in_flight > 1 { cell.bytes } else { BUFFER_BYTES } }
    }

    pub(crate) fn arguments(self) -> [String; 2] {
        match self {
            Job::Echo { piece } => ["echo".to_string(), piece.to_string()],
            Job::Idle { connections } => ["idle".to_string(), connections.to_string()],
            Job::Beside { crowd } => ["beside".to_string(), crowd.to_string()],
        }
    }
}

/// Runs in the child process. Returns only with an error.
pub(crate) fn serve(server: Server, job: Job, core: usize) -> io::Result<()> {
    child::begin(core)?;
    match job {
        Job::Echo { .. } => {}
        Job::Idle { connections } => machine::raise_descriptors(connections + 64)?,
        Job::Beside { crowd } => machine::raise_descriptors(2 * crowd + CROWD_ROOM as usize)?,
    }
    match (server, job) {
        (Server::Rotor | Server::Baseline, job) => on_rotor::serve(job, Duration::ZERO),
        (Server::RotorEpoll, job) => on_rotor::serve_on_epoll(job),
        (Server::RotorSpin, job) => on_rotor::serve(job, SPIN_BUDGET),
        (Server::Tokio, job) => on_tokio::serve(job),
        (Server::BareUring, Job::Echo { piece }) => bare_uring::serve(piece),
        (Server::BareEpoll, Job::Echo { piece }) => bare_epoll::serve(piece),
        (Server::BarePicked, Job::Echo { piece }) => bare_designs::serve(Design::Picked, piece),
        (Server::BareMultishot, Job::Echo { piece }) => {
            bare_designs::serve(Design::Multishot, piece)
        }
        (Server::BareIncremental, Job::Echo { piece }) => {
            bare_designs::serve(Design::Incremental, piece)
        }
        (Server::BarePoll, Job::Echo { piece }) => bare_designs::serve(Design::Poll, piece),
        (Server::BareBatched, Job::Echo { piece }) => bare_designs::serve(Design::Batched, piece),
        (
            Server::BareUring
            | Server::BareEpoll
            | Server::BarePicked
            | Server::BareMultishot
            | Server::BareIncremental
            | Server::BarePoll
            | Server::BareBatched,
            Job::Idle { .. } | Job::Beside { .. },
        ) => Err(io::Error::new(io::ErrorKind::Unsupported, "the bare loops have no tasks")),
    }
}

/// Listens as the runtimes do: std's backlog of 128 overflows with a thousand clients at once.
fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // A second call changes the backlog.
    rustix::net::listen(&listener, 1024)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}

/// What a direct send that does not wait came to.
enum Sent {
    All,
    /// The socket is full; this many bytes more went in before.
    Full(usize),
}

/// Sends `bytes` at once, in pieces, as far as the socket takes them. For the bare loops.
fn send_pieces(socket: impl std::os::fd::AsFd, bytes: &[u8], piece: usize) -> io::Result<Sent> {
    use rustix::net::{SendFlags, send};
    let mut sent = 0;
    while sent < bytes.len() {
        let end = bytes.len().min(sent + piece);
        match send(&socket, &bytes[sent..end], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Sent::Full(sent)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Sent::All)
}
