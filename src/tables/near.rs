#![deny(unsafe_code)]
//! The timers whose time has come or is about to, by deadline and order of arming: a binary heap that
//! knows where each timer is.

use crate::tables::arena::{Arena, Plan, Table};
use crate::tables::slots::Slots;

/// A timer in the heap. Its slot's `extra` is where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) deadline_ns: u64,
    /// Tells timers of one deadline apart, in the order they were armed.
    pub(super) order: u64,
    pub(super) slot: u32,
}

impl Entry {
    fn before(&self, other: &Entry) -> bool {
        (self.deadline_ns, self.order) < (other.deadline_ns, other.order)
    }
}

/// The heap.
#[derive(Debug)]
pub(super) struct Near {
    entries: Table<Entry>,
    count: u32,
}

impl Near {
    pub(super) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Entry>(capacity);
    }

    pub(super) fn new(arena: &mut Arena, capacity: u32) -> Near {
        Near { entries: arena.table(capacity), count: 0 }
    }

    /// The first of all.
    #[inline]
    pub(super) fn first(&self) -> Option<Entry> {
        (self.count > 0).then(|| self.entries[0])
    }

    /// Takes a timer in. There is room: the slot table has as many timers as this.
    pub(super) fn push(&mut self, slots: &mut Slots, entry: Entry) {
        let place = self.count;
        if place == self.entries.len() {
            self.entries.push(entry).expect("as many places as timer slots");
        } else {
            self.entries[place] = entry;
        }
        self.count += 1;
        self.sift_up(slots, place);
    }

    /// Takes the first out.
    pub(super) fn pop(&mut self, slots: &mut Slots) {
        self.remove_place(slots, 0);
    }

    /// Takes out a timer that is in.
    pub(super) fn remove(&mut self, slots: &mut Slots, slot: u32) {
        let place = slots.get(slot).extra;
        debug_assert_eq!(self.entries[place].slot, slot);
        self.remove_place(slots, place);
    }

    fn remove_place(&mut self, slots: &mut Slots, place: u32) {
        self.count -= 1;
        let last = self.count;
        if place == last {
            return;
        }
        self.entries[place] = self.entries[last];
        let moved = self.entries[place];
        if place > 0 && moved.before(&self.entries[(place - 1) / 2]) {
            self.sift_up(slots, place);
        } else {
            self.sift_down(slots, place);
        }
    }

    fn sift_up(&mut self, slots: &mut Slots, mut place: u32) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if !entry.before(&self.entries[parent]) {
                break;
            }
            self.put(slots, place, self.entries[parent]);
            place = parent;
        }
        self.put(slots, place, entry);
    }

    fn sift_down(&mut self, slots: &mut Slots, mut place: u32) {
        let entry = self.entries[place];
        loop {
            let left = 2 * place + 1;
            if left >= self.count {
                break;
            }
            let right = left + 1;
            let right_first = right < self.count && self.entries[right].before(&self.entries[left]);
            let child = if right_first { right } else { left };
            if !self.entries[child].before(&entry) {
                break;
            }
            self.put(slots, place, self.entries[child]);
            place = child;
        }
        self.put(slots, place, entry);
    }

    fn put(&mut self, slots: &mut Slots, place: u32, entry: Entry) {
        self.entries[place] = entry;
        slots.get_mut(entry.slot).extra = place;
    }
}
