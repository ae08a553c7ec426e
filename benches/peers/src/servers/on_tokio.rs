//! The shared sources on tokio's current-thread runtime.

#[path = "echo_source.rs"]
mod echo;
#[path = "idle_source.rs"]
mod idle;

/// What the shared sources use.
mod runtime {
    pub(super) use tokio::io::{AsyncReadExt, AsyncWriteExt};
    pub(super) use tokio::{net::TcpListener, net::TcpStream, spawn};

    /// Every task has a piece of the heap of its own size: any will do.
    pub(super) const IDLE_CELL_BYTES: usize = 4096;
}

use std::io;

use tokio::runtime::Builder;

use super::Job;

pub(super) fn serve(job: Job) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match job {
        Job::Echo { piece } => runtime.block_on(echo::serve(piece)),
        Job::Idle { connections } => runtime.block_on(idle::serve(connections)),
        Job::Beside { .. } => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "only rotor lends its buffers"))
        }
    }
}
