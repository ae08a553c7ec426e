//! The end of a runtime, in an order that keeps memory sound.
//!
//! Tasks are dropped first, with the runtime current: their destructors may use it. Then what was
//! forgotten or lives elsewhere is closed. Then the loop drains: it cancels, waits for every final
//! event, delivers what was written. Only then is anything freed.

use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::op::Descriptor;
use crate::runtime::core::Shared;
use crate::runtime::current::{Entered, leave, unregister};

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Operations that any runtime of this process had to leak at its end, since the kernel did not end
/// them within the option `drain`. Their memory is never used again.
pub fn leaked_total() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Operations the kernel did not end in time; their memory is leaked.
    pub leaked: u32,
    /// Streams that were reset because their peers did not take in time what was written, or went
    /// on sending.
    pub resets: u32,
}

impl Report {
    /// Tells standard error, if there is anything to tell.
    pub(crate) fn tell(self) {
        if self.leaked > 0 {
            // Standard error may be closed; this is no reason to panic in a destructor.
            let _ = writeln!(
                std::io::stderr(),
                "rotor: {} operations did not end within the option `drain`; their memory is leaked",
                self.leaked
            );
        }
    }
}

/// Ends a runtime.
pub(crate) fn shut_down(shared: Rc<Shared>) -> Report {
    let drained = {
        let _entered = Entered::enter(&shared);
        shared.executor.shut_down();
        let lent = shared.close_all();
        shared.drop_wakers();
        let mut core = shared.core.borrow_mut();
        let bound = core.event_loop.options().drain;
        let drained = core.event_loop.drain(bound);
        for descriptor in lent {
            if let Some(fd) = core.event_loop.give_up(descriptor) {
                leave(shared.id, descriptor, fd);
            }
        }
        drained
    };
    unregister(shared.id);
    LEAKED.fetch_add(u64::from(drained.leaked), Ordering::Relaxed);
    drop(shared);
    Report { leaked: drained.leaked, resets: drained.resets }
}

impl Shared {
    /// Closes every row still open: of objects that were forgotten, or that outlive the runtime.
    /// The number of one that was lent out is left open for its object; answers those for which there
    /// was no duplicate to close in its place.
    fn close_all(&self) -> Vec<Descriptor> {
        let mut from = 0;
        let mut lent = Vec::new();
        loop {
            let held = {
                let mut core = self.core.borrow_mut();
                let Some(descriptor) = core.streams.next_open(from) else {
                    return lent;
                };
                from = descriptor.index + 1;
                if core.event_loop.is_lent(descriptor) {
                    match core.event_loop.part_with(descriptor) {
                        Some(fd) => {
                            leave(self.id, descriptor, fd);
                            core.close(descriptor)
                        }
                        None => {
                            lent.push(descriptor);
                            core.vacate(descriptor)
                        }
                    }
                } else {
                    core.close(descriptor)
                }
            };
            drop(held);
        }
    }

    /// Drops the wakers of futures that outlive the runtime.
    fn drop_wakers(&self) {
        let mut from = 0;
        loop {
            let waker = self.core.borrow_mut().waits.take_waker(&mut from);
            if waker.is_none() {
                return;
            }
        }
    }
}
