//! Taking a place in the tables for a new task.

use std::alloc::Layout;
use std::future::Future;
use std::marker::PhantomData;

use crate::arena::{Arena, Header};
use crate::error::SpawnError;
use crate::options::Oversized;
use crate::phase::{HANDLE, HEAP};
use crate::plan::CELL_ALIGN;
use crate::refused::Refused;
use crate::task::Storage;

/// A header and a storage that are taken for a task and hold nothing yet: it must be placed in them,
/// or they are lost.
pub(crate) struct Vacancy<'a, F> {
    pub(crate) header: &'a Header,
    pub(crate) marks: u8,
    future: PhantomData<F>,
}

impl Arena {
    /// Takes a header and a storage for a future of type `F`. It comes before the future is moved,
    /// which then moves once, and is dropped by the caller if there is no room.
    #[inline(always)]
    pub(crate) fn admit<F>(&self) -> Result<Vacancy<'_, F>, Refused>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let layout = const { Layout::new::<Storage<F>>() };
        let local = &self.local;
        let tasks = local.tasks_in_use.get();
        if tasks >= local.tasks_max.get() {
            return Err(self.refuse_full());
        }
        let fits = layout.size() <= self.plan.cell_bytes && layout.align() <= CELL_ALIGN;
        let (header, marks) = if !fits {
            (self.make_heap_place(layout)?, HANDLE | HEAP)
        } else if let Some(header) = self.take_place() {
            (header, HANDLE)
        } else {
            (self.make_place()?, HANDLE)
        };
        local.tasks_in_use.set(tasks + 1);
        if tasks >= local.tasks_high.get() {
            local.tasks_high.set(tasks + 1);
        }
        local.spawned.set(local.spawned.get() + 1);
        Ok(Vacancy { header, marks, future: PhantomData })
    }

    /// Takes a header, and for storage an allocation of its own.
    #[cold]
    fn make_heap_place(&self, layout: Layout) -> Result<&Header, Refused> {
        if self.oversized == Oversized::Refuse {
            return Err(self.refuse_large(layout));
        }
        // A header is touched only when no free one is left.
        let free = self.take_free_header().or_else(|| self.take_place_apart());
        let header = match free.or_else(|| self.take_header()) {
            Some(header) => header,
            None => self.take_header_let_go()?,
        };
        header.storage.set(self.take_heap_cell(layout));
        Ok(header)
    }

    /// Looks for a header among those whose last waker another thread dropped.
    #[cold]
    pub(crate) fn take_header_let_go(&self) -> Result<&Header, Refused> {
        self.drain_remote();
        self.take_header().ok_or_else(|| {
            // One is the main future's.
            let kept = self.headers_in_use() - self.local.tasks_in_use.get() - 1;
            self.refuse(SpawnError::WakersKept { kept, limit: self.plan.tasks })
        })
    }
}
