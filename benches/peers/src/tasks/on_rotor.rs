//! The shared source on rotor.

#[path = "tasks_source.rs"]
mod source;

/// What the shared source uses.
mod runtime {
    pub(super) use rotor::{spawn, task::yield_now};
}

use rotor::runtime::Builder;

use super::Row;
use crate::Error;

/// Bytes of a task's cell: the million tasks hold two words each. A cell that is larger than it needs
/// costs memory that is touched for nothing, as a table for the program's largest task would. The
/// few tasks that spawn the others are larger and go to the heap, as all of tokio's do.
const TASK_BYTES: u32 = 32;

pub(super) fn rows(scale: u64) -> Result<Vec<(Row, f64)>, Error> {
    let tasks = u32::try_from(scale)?.saturating_add(64);
    let runtime = Builder::new().tasks(tasks).task_bytes(TASK_BYTES).build()?;
    Ok(runtime.block_on(source::rows(scale)))
}
