//! Where everything lies in the executor's one allocation. Computed here, used by `Arena::new`.

use std::alloc::Layout;

use crate::arena::{CLOSED, Header, Shared};
use crate::options::Options;

/// The most a future in a cell may be aligned to, and what a cell's size is rounded up to: a cache
/// line, so that a task never has a part of one more than it needs.
pub(crate) const CELL_ALIGN: usize = 64;
/// The smallest cell, half a line. What must be aligned to more than that is larger than it.
const CELL_BYTES_MIN: usize = 32;

/// From here on a cell is an odd number of lines, so that all sets of a cache have a part in the lines
/// that every task uses. With a power of two few would have them all.
const SPREAD_BYTES_MIN: usize = 2048;

/// The sizes and offsets of a `Shared`, the headers and the cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) layout: Layout,
    pub(crate) tasks: u32,
    pub(crate) headers: u32,
    pub(crate) cell_bytes: usize,
    pub(crate) headers_offset: usize,
    pub(crate) cells_offset: usize,
}

impl Plan {
    /// `None` if it does not fit an address space, or header numbers do not fit their type.
    pub(crate) fn of(options: &Options) -> Option<Plan> {
        // One header a task, as many again for finished tasks of which a waker is kept, and the
        // main future's. The two highest numbers are taken: `NONE` and `CLOSED`.
        let headers = options.tasks.checked_mul(2)?.checked_add(1)?;
        if headers >= CLOSED {
            return None;
        }
        let task_bytes = usize::try_from(options.task_bytes).ok()?;
        let lines = task_bytes.checked_next_multiple_of(CELL_ALIGN)?;
        let cell_bytes = match task_bytes {
            0..=CELL_BYTES_MIN => CELL_BYTES_MIN,
            SPREAD_BYTES_MIN.. => lines | CELL_ALIGN,
            _ => lines,
        };
        let cells_bytes = cell_bytes.checked_mul(usize::try_from(options.tasks).ok()?)?;
        let headers_array = Layout::array::<Header>(usize::try_from(headers).ok()?).ok()?;
        let cells_array = Layout::from_size_align(cells_bytes, CELL_ALIGN).ok()?;
        let (layout, headers_offset) = Layout::new::<Shared>().extend(headers_array).ok()?;
        let (layout, cells_offset) = layout.extend(cells_array).ok()?;
        let layout = layout.pad_to_align();
        let tasks = options.tasks;
        Some(Plan { layout, tasks, headers, cell_bytes, headers_offset, cells_offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Oversized;

    fn cell_bytes(task_bytes: u32) -> usize {
        let options = Options { tasks: 8, task_bytes, oversized: Oversized::Heap };
        Plan::of(&options).expect("it fits").cell_bytes
    }

    #[test]
    fn a_cell_is_whole_lines_and_a_large_one_an_odd_number_of_them() {
        let sizes = [1, 32, 33, 512, 2047, 2048, 17_408, 17_409];
        assert_eq!(sizes.map(cell_bytes), [32, 32, 64, 512, 2048, 2112, 17_472, 17_472]);
        for bytes in (2048..40_000).step_by(61) {
            assert_eq!(cell_bytes(bytes) / CELL_ALIGN % 2, 1, "of {bytes} bytes");
            assert!(cell_bytes(bytes) >= bytes as usize);
        }
    }
}
