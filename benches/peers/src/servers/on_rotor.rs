//! The shared sources on rotor.

#[path = "echo_source.rs"]
pub(super) mod echo;
#[path = "idle_source.rs"]
mod idle;

/// What the shared sources use.
mod runtime {
    pub(super) use rotor::{net::TcpListener, net::TcpStream, spawn};

    /// The size of the cells a task that waits with a buffer of one byte is kept in.
    pub(super) const IDLE_CELL_BYTES: usize = 64;
}

use std::io;
use std::time::Duration;

use rotor::runtime::Builder;

use self::runtime::IDLE_CELL_BYTES;
use super::{Job, TASK_BYTES, crowd};

/// On the backend for kernels that refuse io_uring.
pub(super) fn serve_on_epoll(job: Job) -> io::Result<()> {
    rotor::backend::prefer(rotor::backend::Kind::Epoll).map_err(io::Error::other)?;
    serve(job, Duration::ZERO)
}

pub(super) fn serve(job: Job, spin_budget: Duration) -> io::Result<()> {
    let builder = Builder::new().spin_budget(spin_budget);
    match job {
        Job::Echo { piece } => {
            let builder = builder.task_bytes(TASK_BYTES as u32);
            builder.build().map_err(io::Error::other)?.block_on(echo::serve(piece))
        }
        Job::Idle { connections } => {
            let builder = builder.task_bytes(IDLE_CELL_BYTES as u32);
            builder.build().map_err(io::Error::other)?.block_on(idle::serve(connections))
        }
        Job::Beside { crowd } => crowd::serve(crowd),
    }
}
