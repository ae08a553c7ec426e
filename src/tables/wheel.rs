#![deny(unsafe_code)]
//! Armed timers on a hierarchical wheel. It knows no clock; the loop passes times in.
//!
//! Time is cut into grains of 1,024 ns, and a grain's number read as digits of six bits. What has
//! come is `elapsed`; a timer of a later grain stands at the level of the first digit, from the top, in which
//! its grain differs from `elapsed`, in the place of its own digit there. So every timer of a level comes
//! before those of the levels above, the places of a level come in the order of their numbers, and the
//! first that is occupied has the earliest timer of all. When `elapsed` reaches a place it is taken apart:
//! what is still to come goes to lower levels, the rest into a heap that gives it out by deadline and order of
//! arming. A timer keeps its exact deadline wherever it stands.
//!
//! Arming and disarming take constant time, but for timers whose time has come, which are in the heap.
//! A place knows the earliest of its deadlines. Disarming that one leaves it too early; the place is looked
//! through again once it was used, since the last time, as often as it has timers in four, which keeps that
//! constant, too. Until then the loop may be told to look early: it finds nothing due, and the place is
//! taken apart.

use crate::tables::NONE;
use crate::tables::arena::{Arena, Plan, Table};
use crate::tables::list::List;
use crate::tables::near::{Entry, Near};
use crate::tables::slots::{Slot, Slots};

/// A grain is so many nanoseconds to the power of two: about a microsecond.
const GRAIN_BITS: u32 = 10;

/// A digit of a grain's number, to the power of two: as many places has a level.
const DIGIT_BITS: u32 = 6;

/// Enough for all 64 bits of a deadline.
const LEVELS: u32 = (u64::BITS - GRAIN_BITS).div_ceil(DIGIT_BITS);

const PLACES: u32 = LEVELS << DIGIT_BITS;

/// The timers of a span of time.
#[derive(Debug)]
struct Place {
    timers: List,
    /// How many.
    count: u32,
    /// No deadline here is before this one, which was one of them.
    earliest_ns: u64,
    /// That one was disarmed.
    stale: bool,
    /// Times a timer came or went since all were looked through.
    used: u32,
}

impl Place {
    const EMPTY: Place =
        Place { timers: List::EMPTY, count: 0, earliest_ns: u64::MAX, stale: false, used: 0 };

    /// Looks all timers through if that was paid for.
    fn settle(&mut self, slots: &Slots) {
        if !self.stale || self.used < self.count / 4 {
            return;
        }
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + u64::from(self.count));
        let deadlines = self.timers.iter(slots).map(|index| slots.get(index).offset);
        self.earliest_ns = deadlines.min().unwrap_or(u64::MAX);
        self.stale = false;
        self.used = 0;
    }
}

/// The wheel. A timer's slot has its deadline in `offset`; while it is armed `length` is its place, or
/// [`NONE`] in the heap, and `progress` and `result` are the halves of its number in the order of arming.
#[derive(Debug)]
pub(crate) struct Wheel {
    places: Table<Place>,
    /// A bit for each place of a level that has timers.
    occupied: [u64; LEVELS as usize],
    /// The timers of the grain `elapsed` and those before.
    near: Near,
    /// The last grain that has come.
    elapsed: u64,
    count: u32,
    /// Timers armed so far.
    armed: u64,
}

fn grain_of(deadline_ns: u64) -> u64 {
    deadline_ns >> GRAIN_BITS
}

fn order_of(slot: &Slot) -> u64 {
    u64::from(slot.result as u32) << 32 | u64::from(slot.progress)
}

fn entry_of(slots: &Slots, index: u32) -> Entry {
    let slot = slots.get(index);
    Entry { deadline_ns: slot.offset, order: order_of(slot), slot: index }
}

impl Wheel {
    pub(crate) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Place>(PLACES);
        Near::plan(plan, capacity);
    }

    pub(crate) fn new(arena: &mut Arena, capacity: u32) -> Wheel {
        let mut places = arena.table(PLACES);
        while places.push(Place::EMPTY).is_some() {}
        let near = Near::new(arena, capacity);
        Wheel { places, occupied: [0; LEVELS as usize], near, elapsed: 0, count: 0, armed: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The earliest deadline, or a time before it that is not over at `now_ns`.
    pub(crate) fn next_deadline_ns(&mut self, slots: &mut Slots, now_ns: u64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        self.advance(slots, now_ns);
        if let Some(first) = self.near.first() {
            return Some(first.deadline_ns);
        }
        let (level, number) = self.first_place()?;
        let place = &mut self.places[index_of(level, number)];
        place.settle(slots);
        Some(place.earliest_ns)
    }

    /// Arms a timer, whose slot has its deadline.
    pub(crate) fn arm(&mut self, slots: &mut Slots, index: u32) {
        let order = self.armed;
        self.armed += 1;
        self.count += 1;
        let slot = slots.get_mut(index);
        slot.progress = order as u32;
        slot.result = (order >> 32) as u32 as i32;
        self.stand(slots, index);
    }

    /// Takes the first timer that is due at `now_ns`.
    pub(crate) fn pop_due(&mut self, slots: &mut Slots, now_ns: u64) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.advance(slots, now_ns);
        let first = self.near.first().filter(|first| first.deadline_ns <= now_ns)?;
        self.near.pop(slots);
        self.count -= 1;
        Some(first.slot)
    }

    /// Disarms a timer that is armed.
    pub(crate) fn disarm(&mut self, slots: &mut Slots, index: u32) {
        self.count -= 1;
        let at = slots.get(index).length;
        if at == NONE {
            self.near.remove(slots, index);
            return;
        }
        let place = &mut self.places[at];
        place.timers.remove(slots, index);
        place.count -= 1;
        place.used += 1;
        place.stale |= place.earliest_ns == slots.get(index).offset;
        if place.count == 0 {
            *place = Place::EMPTY;
            self.occupied[(at >> DIGIT_BITS) as usize] &= !(1 << (at & ((1 << DIGIT_BITS) - 1)));
        }
    }

    /// Puts an armed timer where it belongs.
    fn stand(&mut self, slots: &mut Slots, index: u32) {
        let deadline_ns = slots.get(index).offset;
        let grain = grain_of(deadline_ns);
        if grain <= self.elapsed {
            slots.get_mut(index).length = NONE;
            let entry = entry_of(slots, index);
            self.near.push(slots, entry);
            return;
        }
        let level = (grain ^ self.elapsed).ilog2() / DIGIT_BITS;
        let number = (grain >> (level * DIGIT_BITS)) as u32 & ((1 << DIGIT_BITS) - 1);
        let at = index_of(level, number);
        slots.get_mut(index).length = at;
        let place = &mut self.places[at];
        place.timers.push_back(slots, index);
        place.count += 1;
        place.used += 1;
        place.earliest_ns = place.earliest_ns.min(deadline_ns);
        self.occupied[level as usize] |= 1 << number;
    }

    /// The place with the earliest timer on the wheel.
    #[inline]
    fn first_place(&self) -> Option<(u32, u32)> {
        let level = self.occupied.iter().position(|&places| places != 0)?;
        Some((level as u32, self.occupied[level].trailing_zeros()))
    }

    /// Takes apart the places that `now_ns` has reached. A clock that goes back is not followed.
    #[inline]
    fn advance(&mut self, slots: &mut Slots, now_ns: u64) {
        let now = grain_of(now_ns);
        if now <= self.elapsed {
            return;
        }
        while let Some((level, number)) = self.first_place() {
            let width = level * DIGIT_BITS;
            // The digits above are those of `elapsed`.
            let above = self.elapsed >> width >> DIGIT_BITS << DIGIT_BITS;
            let first = (above | u64::from(number)) << width;
            if first > now {
                break;
            }
            // Nothing of the wheel comes before this place, so time may pass to its end.
            let last = first | ((1 << width) - 1);
            self.elapsed = now.min(last);
            self.take_apart(slots, level, number);
        }
        self.elapsed = now;
    }

    fn take_apart(&mut self, slots: &mut Slots, level: u32, number: u32) {
        self.occupied[level as usize] &= !(1 << number);
        let place = &mut self.places[index_of(level, number)];
        let mut timers = std::mem::replace(place, Place::EMPTY).timers;
        while let Some(index) = timers.pop_front(slots) {
            self.stand(slots, index);
        }
    }
}

fn index_of(level: u32, number: u32) -> u32 {
    level << DIGIT_BITS | number
}

#[cfg(test)]
thread_local! {
    /// Timers that were looked at because a place was looked through.
    static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests;
