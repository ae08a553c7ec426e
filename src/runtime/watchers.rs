//! Futures that wait until a stream is ready. They hold the stream shared, so there may be any number
//! of them beside its one reader and its one writer, and all of them are woken.

use std::task::Waker;

use crate::runtime::core::{Parking, Step};
use crate::runtime::waiters::Ticket;

/// Which directions a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sides {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Sides {
    pub(crate) const READ: Sides = Sides { read: true, write: false };
    pub(crate) const WRITE: Sides = Sides { read: false, write: true };

    fn meets(self, other: Sides) -> bool {
        self.read && other.read || self.write && other.write
    }
}

struct Watcher {
    /// Nobody's place is free for the next.
    ticket: Ticket,
    sides: Sides,
    waker: Option<Waker>,
}

/// The futures, in no order. A place keeps its index, so that all can be woken one by one.
#[derive(Default)]
pub(crate) struct Watchers {
    last: u64,
    places: Vec<Watcher>,
}

impl Watchers {
    /// Parks the future that holds `ticket`, which gets one if it has none.
    pub(crate) fn park<T>(
        &mut self,
        ticket: &mut Ticket,
        sides: Sides,
        parking: &mut Parking<'_>,
    ) -> Step<T> {
        let held = *ticket != Ticket::default();
        if let Some(place) = self.places.iter_mut().find(|it| held && it.ticket == *ticket) {
            return parking.park(&mut place.waker);
        }
        let mut waker = None;
        let step = parking.park(&mut waker);
        if waker.is_some() {
            self.last += 1;
            *ticket = Ticket::new(self.last);
            let watcher = Watcher { ticket: *ticket, sides, waker };
            match self.places.iter_mut().find(|it| it.ticket == Ticket::default()) {
                Some(free) => *free = watcher,
                None => self.places.push(watcher),
            }
        }
        step
    }

    /// The next waker at or after `from` that waits for one of the sides, taken out.
    pub(crate) fn take(&mut self, from: &mut usize, sides: Sides) -> Option<Waker> {
        while let Some(place) = self.places.get_mut(*from) {
            *from += 1;
            if place.sides.meets(sides) {
                if let Some(waker) = place.waker.take() {
                    return Some(waker);
                }
            }
        }
        None
    }

    /// A future is gone. What it left is handed out, to be dropped after the borrow.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        let place = self.places.iter_mut().find(|it| it.ticket == ticket)?;
        place.ticket = Ticket::default();
        place.waker.take()
    }
}
