//! What a runtime owns, and the one way a future waits for it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::task::{Context, Poll, Waker};

use rotor_executor::Executor;

use crate::error::CreateError;
use crate::event::Event;
use crate::event_loop::Loop;
use crate::op::Descriptor;
use crate::runtime::streams::Streams;
use crate::runtime::waits::Waits;

/// A runtime, as its tasks' objects find it.
pub(crate) struct Shared {
    /// The loop's number, unique in the process.
    pub(crate) id: u32,
    pub(crate) core: RefCell<Core>,
    pub(crate) executor: Executor,
}

/// The loop and the rows of everything that waits for it.
pub(crate) struct Core {
    pub(crate) event_loop: Loop,
    pub(crate) streams: Streams,
    pub(crate) waits: Waits,
    /// Events of the last tick; those in `undelivered` have yet to be looked at.
    pub(crate) events: Box<[Event]>,
    pub(crate) undelivered: Range<usize>,
    /// Streams whose receives are to be armed, the first of them before the next tick.
    pub(crate) wanted: VecDeque<Descriptor>,
    /// An operation was kept for a receive that is wanted no more.
    pub(crate) lapsed: bool,
    /// Listeners that hold back connections until a table has room; each at most once.
    pub(crate) held: Vec<Descriptor>,
    /// Listeners that rest, since the system had no descriptor or memory for a connection.
    pub(crate) resting: Vec<Descriptor>,
    /// One of those held waits for a task's cell, and not for an operation or a socket.
    pub(crate) held_for_task: bool,
    /// With this many immediate calls made it is time for a tick.
    pub(crate) calls_max: u64,
}

/// What one look at the state found.
pub(crate) enum Step<T> {
    /// It is there.
    Ready(T),
    /// It is not, and the waker is stored.
    Parked,
    /// It is not, and a clone of the waker is needed to store.
    NeedsWaker,
}

/// A future's waker, on its way into a row. Cloning and dropping wakers runs foreign code, so both
/// happen outside the borrow: the clone comes in ready-made, the one replaced goes out in its place.
pub(crate) struct Parking<'a> {
    waker: &'a Waker,
    spare: Option<Waker>,
    replaced: Option<Waker>,
}

impl Parking<'_> {
    /// Stores the waker. A caller that gets `NeedsWaker` returns it before it changes anything.
    pub(crate) fn park<T>(&mut self, place: &mut Option<Waker>) -> Step<T> {
        if place.as_ref().is_some_and(|stored| stored.will_wake(self.waker)) {
            return Step::Parked;
        }
        if self.spare.is_none() {
            if !rotor_executor::is_native(self.waker) {
                return Step::NeedsWaker;
            }
            // Nothing foreign runs for these, so there is no need to begin anew.
            self.spare = Some(self.waker.clone());
        }
        debug_assert!(self.replaced.is_none(), "a step parks once");
        self.replaced = std::mem::replace(place, self.spare.take());
        Step::Parked
    }
}

/// An empty table with room for `limit` rows, which it never exceeds. The memory is reserved, and
/// touched only as rows are used.
pub(crate) fn table<T>(limit: u32) -> Result<Vec<T>, CreateError> {
    let mut rows = Vec::new();
    let needed = (limit as usize).saturating_mul(size_of::<T>());
    match rows.try_reserve_exact(limit as usize) {
        Ok(()) => Ok(rows),
        Err(_) => Err(CreateError::OutOfMemory { needed }),
    }
}

impl Shared {
    /// Looks at the state, and waits if what is asked for is not there. `step` may run twice: it
    /// begins anew each time, since cloning the waker may have run anything in between.
    #[inline]
    pub(crate) fn poll_step<T>(
        &self,
        cx: &mut Context<'_>,
        mut step: impl FnMut(&mut Core, &mut Parking<'_>) -> Step<T>,
    ) -> Poll<T> {
        let mut parking = Parking { waker: cx.waker(), spare: None, replaced: None };
        loop {
            let stepped = step(&mut self.core.borrow_mut(), &mut parking);
            match stepped {
                Step::Ready(value) => return Poll::Ready(value),
                Step::Parked => return Poll::Pending,
                Step::NeedsWaker => {
                    assert!(
                        parking.spare.is_none(),
                        "rotor: a step refused the waker it asked for"
                    );
                    parking.spare = Some(parking.waker.clone());
                }
            }
        }
    }
}
