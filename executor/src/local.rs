//! What the owner's thread keeps in the arena: the ends of its lists, and its counts.

use std::ptr::NonNull;

use crate::arena::{Link, NONE};
use crate::sync::Cell;

/// The owner's part of `Shared`, on lines no other thread reads.
#[repr(C, align(128))]
pub(crate) struct Local {
    pub(crate) queue_head: Link,
    pub(crate) queue_tail: Link,
    /// Headers that have a cell: what a task leaves behind, and the next one takes.
    pub(crate) free_place: Cell<u32>,
    /// Headers that have none, and cells that have no header: what is left where a waker outlives
    /// its task, or a task was in a heap cell.
    pub(crate) free_header: Cell<u32>,
    pub(crate) free_cell: Cell<Option<NonNull<u8>>>,
    pub(crate) cells_touched: Cell<u32>,
    pub(crate) headers_touched: Cell<u32>,
    /// Headers in use that are no task's: the main future's, and those of finished tasks.
    pub(crate) headers_over: Cell<u32>,
    pub(crate) tasks_in_use: Cell<u32>,
    pub(crate) tasks_high: Cell<u32>,
    /// How many tasks may exist: none while closing.
    pub(crate) tasks_max: Cell<u32>,
    pub(crate) heap_cells: Cell<u32>,
    /// Tasks are being dropped for good: none is accepted any more.
    pub(crate) closing: Cell<bool>,
    /// The arena is closed: a header that becomes free gives up its pin.
    pub(crate) closed: Cell<bool>,
    pub(crate) running: Cell<bool>,
    /// The round of turns is to end after the current one.
    pub(crate) cut_short: Cell<bool>,
    pub(crate) spawned: Cell<u64>,
    pub(crate) completed: Cell<u64>,
    pub(crate) panicked: Cell<u64>,
    pub(crate) cancelled: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    pub(crate) polls: Cell<u64>,
    pub(crate) wakes_remote: Cell<u64>,
    pub(crate) heap_cells_total: Cell<u64>,
}

impl Local {
    pub(crate) fn new(tasks_max: u32) -> Local {
        Local {
            queue_head: Link::none(),
            queue_tail: Link::none(),
            free_place: Cell::new(NONE),
            free_header: Cell::new(NONE),
            free_cell: Cell::new(None),
            cells_touched: Cell::new(0),
            headers_touched: Cell::new(0),
            headers_over: Cell::new(0),
            tasks_in_use: Cell::new(0),
            tasks_high: Cell::new(0),
            tasks_max: Cell::new(tasks_max),
            heap_cells: Cell::new(0),
            closing: Cell::new(false),
            closed: Cell::new(false),
            running: Cell::new(false),
            cut_short: Cell::new(false),
            spawned: Cell::new(0),
            completed: Cell::new(0),
            panicked: Cell::new(0),
            cancelled: Cell::new(0),
            refused: Cell::new(0),
            polls: Cell::new(0),
            wakes_remote: Cell::new(0),
            heap_cells_total: Cell::new(0),
        }
    }
}
