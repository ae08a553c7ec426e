//! The run queue: headers linked first in, first out. The owner's thread only.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::arena::{Arena, Header, NONE, Shared};
use crate::phase::Phase;

impl Shared {
    /// Queues a task that was woken, unless it is queued already or over.
    #[inline]
    pub(crate) fn wake_header(&self, header: &Header) {
        if !header.queued.get() && header.phase.get().takes_turns() {
            self.append(header);
        }
    }

    /// Puts a header that is not queued at the back.
    #[inline]
    pub(crate) fn append(&self, header: &Header) {
        header.queued.set(true);
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
            header.next.set(NONE);
            let next = self.header(next);
            next.fetch_ahead();
            self.local.queue_head.set(Some(next));
        }
        header.queued.set(false);
        Some(header)
    }

    /// Clears the flag that `unpark` was called. What was pushed before is seen by the next drain.
    #[inline]
    pub(crate) fn clear_notified(&self) {
        // If false is read, no swap to true was missed that did not call `unpark` itself.
        if self.remote.notified.load(Relaxed) {
            self.remote.notified.swap(false, AcqRel);
        }
    }

    /// Whether a task is ready, or the main future. Tasks that were woken and then ended before
    /// their turn are taken out of the way.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        loop {
            let Some(header) = self.local.queue_head.get() else {
                return false;
            };
            if header.phase.get().takes_turns() {
                return true;
            }
            self.skip();
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
