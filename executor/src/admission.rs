//! Taking a place in the tables for a new task.

use std::alloc::Layout;
use std::future::Future;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::arena::{Arena, HANDLE, HEAP, Header};
use crate::error::SpawnError;
use crate::options::Oversized;
use crate::plan::CELL_ALIGN;
use crate::refused::Refused;
use crate::task::Storage;

/// A header and a storage that are taken for a task and hold nothing yet: it must be placed in them,
/// or they are lost.
pub(crate) struct Vacancy<'a, F> {
    pub(crate) header: &'a Header,
    pub(crate) storage: NonNull<u8>,
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
        if !fits && self.oversized == Oversized::Refuse {
            return Err(self.refuse_large(layout));
        }
        let header = match self.take_header() {
            Some(header) => header,
            None => self.take_header_let_go()?,
        };
        local.tasks_in_use.set(tasks + 1);
        if tasks >= local.tasks_high.get() {
            local.tasks_high.set(tasks + 1);
        }
        local.spawned.set(local.spawned.get() + 1);
        let (storage, marks) = if fits {
            (self.take_cell(), HANDLE)
        } else {
            (self.take_heap_cell(layout), HANDLE | HEAP)
        };
        Ok(Vacancy { header, storage, marks, future: PhantomData })
    }

    /// Looks for a header among those whose last waker another thread dropped.
    #[cold]
    fn take_header_let_go(&self) -> Result<&Header, Refused> {
        self.drain_remote();
        self.take_header().ok_or_else(|| {
            // One is the main future's.
            let kept = self.headers_in_use() - self.local.tasks_in_use.get() - 1;
            self.refuse(SpawnError::WakersKept { kept, limit: self.plan.tasks })
        })
    }
}
