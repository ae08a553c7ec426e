//! Tasks that wait for a connection of one listener, first come first served.

use std::collections::VecDeque;
use std::task::Waker;

use crate::runtime::core::{Parking, Step};

/// A waiting future's place in the queue. Zero is nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Ticket {
    pub(crate) fn new(number: u64) -> Ticket {
        Ticket(number)
    }
}

/// The queue. The first place is inline: a listener with one waiting task allocates nothing.
#[derive(Default)]
pub(crate) struct Waiters {
    last: u64,
    first: Option<(Ticket, Option<Waker>)>,
    more: VecDeque<(Ticket, Option<Waker>)>,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Parks the future that holds `ticket` at its place, or at the end if it has none.
    pub(crate) fn park<T>(&mut self, ticket: &mut Ticket, parking: &mut Parking<'_>) -> Step<T> {
        let place = match (&mut self.first, &mut self.more) {
            (Some((first, waker)), _) if first == ticket => Some(waker),
            (_, more) => more.iter_mut().find(|(other, _)| other == ticket).map(|(_, waker)| waker),
        };
        if let Some(waker) = place {
            return parking.park(waker);
        }
        let mut waker = None;
        let step = parking.park(&mut waker);
        if waker.is_some() {
            self.last += 1;
            *ticket = Ticket(self.last);
            if self.first.is_none() {
                self.first = Some((*ticket, waker));
            } else {
                self.more.push_back((*ticket, waker));
            }
        }
        step
    }

    /// Takes the first in the queue out, to be woken after the borrow.
    pub(crate) fn next(&mut self) -> Option<Waker> {
        let (_, waker) = self.first.take()?;
        self.first = self.more.pop_front();
        waker
    }

    /// Takes one future out of the queue. Nothing if it is not there: its turn has come.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Option<Waker>> {
        if self.first.as_ref().is_some_and(|(first, _)| *first == ticket) {
            return Some(self.next());
        }
        let place = self.more.iter().position(|(other, _)| *other == ticket)?;
        self.more.remove(place).map(|(_, waker)| waker)
    }
}
