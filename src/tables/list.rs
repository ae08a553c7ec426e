#![deny(unsafe_code)]
//! Lists of slots, linked through the slots themselves. A slot is in at most one list.

use crate::tables::NONE;
use crate::tables::slots::Slots;

/// First and last of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { first: NONE, last: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The slots in it, in order.
    pub(crate) fn iter<'a>(&self, slots: &'a Slots) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.first(), |&index| {
            let next = slots.get(index).next;
            (next != NONE).then_some(next)
        })
    }

    pub(crate) fn push_back(&mut self, slots: &mut Slots, index: u32) {
        let slot = slots.get_mut(index);
        slot.next = NONE;
        slot.previous = self.last;
        if self.last == NONE {
            self.first = index;
        } else {
            slots.get_mut(self.last).next = index;
        }
        self.last = index;
    }

    pub(crate) fn pop_front(&mut self, slots: &mut Slots) -> Option<u32> {
        let index = self.first()?;
        self.remove(slots, index);
        Some(index)
    }

    /// Takes a slot out; it must be in this list.
    pub(crate) fn remove(&mut self, slots: &mut Slots, index: u32) {
        let (previous, next) = {
            let slot = slots.get(index);
            (slot.previous, slot.next)
        };
        if previous == NONE {
            debug_assert_eq!(self.first, index);
            self.first = next;
        } else {
            slots.get_mut(previous).next = next;
        }
        if next == NONE {
            debug_assert_eq!(self.last, index);
            self.last = previous;
        } else {
            slots.get_mut(next).previous = previous;
        }
        let slot = slots.get_mut(index);
        slot.next = NONE;
        slot.previous = NONE;
    }
}
