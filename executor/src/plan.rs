//! Where everything lies in the executor's one allocation. Computed here, used by `Arena::new`.

use std::alloc::Layout;
use std::ops::Range;

use crate::arena::{CLOSED, Header, Shared};
use crate::options::Options;

/// The alignment of a cell, and what its size is rounded up to: a cache line, so that two tasks
/// never share one.
pub(crate) const CELL_ALIGN: usize = 64;
/// The size of a huge page, where they are asked for.
const HUGE_PAGE: usize = 2 << 20;
/// How much of a table is left to small pages, at its beginning. A table is touched from its
/// beginning on, so it has at most one huge page that is not in use as a whole. After so many bytes
/// that is a quarter of what is in use, and less with every further one.
const HUGE_AFTER: usize = 4 * HUGE_PAGE;

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
        let cell_bytes = task_bytes.checked_next_multiple_of(CELL_ALIGN)?;
        let cells_bytes = cell_bytes.checked_mul(usize::try_from(options.tasks).ok()?)?;
        let headers_array = Layout::array::<Header>(usize::try_from(headers).ok()?).ok()?;
        let cells_array = Layout::from_size_align(cells_bytes, CELL_ALIGN).ok()?;
        let (layout, headers_offset) = Layout::new::<Shared>().extend(headers_array).ok()?;
        let (layout, cells_offset) = layout.extend(cells_array).ok()?;
        let layout = layout.pad_to_align();
        let tasks = options.tasks;
        Some(Plan { layout, tasks, headers, cell_bytes, headers_offset, cells_offset })
    }

    /// The addresses for which huge pages are worth it, if the allocation is at `base`: whole ones,
    /// possibly none, of the headers and of the cells.
    pub(crate) fn huge(&self, base: usize) -> [Range<usize>; 2] {
        let tables =
            [self.headers_offset..self.cells_offset, self.cells_offset..self.layout.size()];
        tables.map(|table| {
            let end = (base + table.end) / HUGE_PAGE * HUGE_PAGE;
            let start = (base + table.start + HUGE_AFTER).next_multiple_of(HUGE_PAGE).min(end);
            start..end
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_whole_and_of_one_table_and_come_after_its_beginning() {
        for (tasks, task_bytes) in [(1, 1), (1_024, 512), (65_536, 128), (1_000_000, 1_024)] {
            let plan = Plan::of(&Options { tasks, task_bytes, ..Options::default() }).unwrap();
            let tables =
                [(plan.headers_offset, plan.cells_offset), (plan.cells_offset, plan.layout.size())];
            for base in [0x7f00_0000_0080_usize, 0x7f00_0020_0000, 0x7f00_003f_ff80] {
                for (range, (start, end)) in plan.huge(base).into_iter().zip(tables) {
                    assert_eq!(range.len() % HUGE_PAGE, 0, "{tasks} tasks");
                    let worth = end - start >= HUGE_AFTER + 2 * HUGE_PAGE;
                    assert!(!worth || !range.is_empty(), "{tasks} tasks have huge pages");
                    if !range.is_empty() {
                        assert_eq!(range.start % HUGE_PAGE, 0, "{tasks} tasks");
                        assert!(range.start >= base + start + HUGE_AFTER, "{tasks} tasks");
                        assert!(range.end <= base + end, "{tasks} tasks");
                    }
                }
            }
        }
    }
}
