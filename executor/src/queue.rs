//! The run queue: headers linked first in, first out. The owner's thread only.

use std::ptr::NonNull;

use crate::arena::{Arena, Header, NONE, Phase, Shared};

impl Shared {
    /// Queues a task that was woken, unless it is queued already or over.
    #[inline]
    pub(crate) fn wake_header(&self, header: &Header) {
        if header.queued.get() {
            return;
        }
        match header.phase.get() {
            Phase::Waiting | Phase::Running | Phase::Main => self.append(header),
            Phase::Free | Phase::Ending | Phase::Stored | Phase::Finished | Phase::Limbo => {}
        }
    }

    /// Puts a header that is not queued at the back.
    #[inline]
    pub(crate) fn append(&self, header: &Header) {
        header.queued.set(true);
        header.next.set(NONE);
        match self.local.queue_tail.get() {
            None => self.local.queue_head.set(Some(header)),
            Some(tail) => tail.next.set(self.index_of(NonNull::from(header))),
        }
        self.local.queue_tail.set(Some(header));
    }
}

impl Arena {
    /// Takes the header at the front.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&Header> {
        let header = self.local.queue_head.get()?;
        let next = header.next.get();
        if next == NONE {
            self.local.queue_head.set(None);
            self.local.queue_tail.set(None);
        } else {
            self.local.queue_head.set(Some(self.header(next)));
        }
        header.queued.set(false);
        Some(header)
    }

    /// Whether a task is ready, or the main future. Tasks that were woken and then ended before
    /// their turn are taken out of the way.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        loop {
            let Some(header) = self.local.queue_head.get() else {
                return false;
            };
            match header.phase.get() {
                Phase::Waiting | Phase::Running | Phase::Main => return true,
                Phase::Free | Phase::Ending | Phase::Stored | Phase::Finished | Phase::Limbo => {
                    self.skip();
                }
            }
        }
    }

    /// Takes a task that is over from the front.
    #[cold]
    fn skip(&self) {
        if let Some(header) = self.pop() {
            self.settle(header);
        }
    }

    /// Ends everything but the memory: the caller has dropped all futures.
    pub(crate) fn close(&self) {
        if let Some(main) = self.main() {
            main.phase.set(Phase::Finished);
        }
        while let Some(header) = self.pop() {
            self.settle(header);
        }
        self.close_remote();
        // Only now: a wake in the remote stack refers to it. If it was queued, it is settled
        // already.
        if let Some(main) = self.main() {
            self.settle(main);
        }
    }

    /// The main future's header, until the arena is closed.
    #[inline]
    pub(crate) fn main(&self) -> Option<&Header> {
        let main = self.header(crate::arena::MAIN);
        match main.phase.get() {
            Phase::Main | Phase::Finished => Some(main),
            Phase::Free
            | Phase::Waiting
            | Phase::Running
            | Phase::Ending
            | Phase::Stored
            | Phase::Limbo => None,
        }
    }
}
