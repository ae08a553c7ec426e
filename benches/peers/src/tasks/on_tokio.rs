//! The shared source on tokio's current-thread runtime.

#[path = "tasks_source.rs"]
mod source;

/// What the shared source uses.
mod runtime {
    pub(super) use tokio::{spawn, task::yield_now};
}

use tokio::runtime::Builder;

use super::Row;
use crate::Error;

pub(super) fn rows(scale: u64) -> Result<Vec<(Row, f64)>, Error> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(source::rows(scale)))
}
