#![deny(unsafe_code)]
//! Armed timers, by deadline and order of arming: a binary heap that knows where each timer is.
//! It knows no clock; the loop passes times in.

use crate::tables::arena::{Arena, Plan, Table};
use crate::tables::slots::Slots;

/// A timer in the heap. Its slot's `extra` is its place.
#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline_ns: u64,
    /// Tells timers of one deadline apart, in the order they were armed.
    order: u64,
    slot: u32,
}

impl Entry {
    fn before(&self, other: &Entry) -> bool {
        (self.deadline_ns, self.order) < (other.deadline_ns, other.order)
    }
}

/// The heap.
#[derive(Debug)]
pub(crate) struct Timers {
    entries: Table<Entry>,
    count: u32,
    armed: u64,
}

impl Timers {
    pub(crate) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Entry>(capacity);
    }

    pub(crate) fn new(arena: &mut Arena, capacity: u32) -> Timers {
        Timers { entries: arena.table(capacity), count: 0, armed: 0 }
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        (self.count > 0).then(|| self.entries[0].deadline_ns)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Arms a timer. There is room: the slot table has as many timers as this.
    pub(crate) fn arm(&mut self, slots: &mut Slots, slot: u32, deadline_ns: u64) {
        let entry = Entry { deadline_ns, order: self.armed, slot };
        self.armed += 1;
        let place = self.count;
        if place == self.entries.len() {
            self.entries.push(entry).expect("as many places as timer slots");
        } else {
            self.entries[place] = entry;
        }
        self.count += 1;
        self.sift_up(slots, place);
    }

    /// Takes the first timer that is due at `now_ns`.
    pub(crate) fn pop_due(&mut self, slots: &mut Slots, now_ns: u64) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let first = self.entries[0];
        if first.deadline_ns > now_ns {
            return None;
        }
        self.remove_place(slots, 0);
        Some(first.slot)
    }

    /// Disarms a timer that is armed.
    pub(crate) fn disarm(&mut self, slots: &mut Slots, slot: u32) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    fn tables(capacity: u32) -> (Arena, Slots, Timers) {
        let mut plan = Plan::default();
        Slots::plan(&mut plan, 1, capacity, 1);
        Timers::plan(&mut plan, capacity);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let slots = Slots::new(&mut arena, [1, capacity, 1], 1);
        let timers = Timers::new(&mut arena, capacity);
        (arena, slots, timers)
    }

    #[test]
    fn timers_fire_by_deadline_then_by_order_of_arming_after_any_cancels() {
        let (_arena, mut slots, mut timers) = tables(500);
        let mut random = 88172645463325252u64;
        for _ in 0..20 {
            let mut expected = Vec::new();
            for n in 0..500u64 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let slot = slots.take(EventKind::Timer, n).unwrap();
                slots.get_mut(slot).state = crate::tables::slots::State::Armed;
                timers.arm(&mut slots, slot, random % 40);
                expected.push((random % 40, n, slot));
            }
            for n in (0..500).rev().filter(|n| n % 3 == 0) {
                let (_, _, slot) = expected.remove(n);
                timers.disarm(&mut slots, slot);
                slots.free(slot);
            }
            expected.sort_unstable();
            for (deadline, _, slot) in expected {
                assert_eq!(timers.next_deadline_ns(), Some(deadline));
                if deadline > 0 {
                    assert_eq!(timers.pop_due(&mut slots, deadline - 1), None);
                }
                assert_eq!(timers.pop_due(&mut slots, deadline), Some(slot));
                slots.free(slot);
            }
            assert_eq!(timers.next_deadline_ns(), None);
        }
    }
}
