#![deny(unsafe_code)]
//! A first-in first-out queue of handles, for what waits until the backend has room. An operation may
//! end while its handle waits here; the reader checks the generation.

use crate::op::Handle;
use crate::tables::arena::{Arena, Plan, Table};

/// A ring of handles.
#[derive(Debug)]
pub(crate) struct Tokens {
    ring: Table<Handle>,
    head: u32,
    count: u32,
}

impl Tokens {
    pub(crate) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Handle>(capacity);
    }

    pub(crate) fn new(arena: &mut Arena, capacity: u32) -> Tokens {
        Tokens { ring: arena.table(capacity), head: 0, count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Appends a handle. `live` tells whether an operation still waits for its turn; when the ring
    /// is full, those that do not are swept out, and a live operation is in here once at most, so
    /// room for every slot is room enough.
    pub(crate) fn push(&mut self, handle: Handle, live: impl Fn(Handle) -> bool) {
        if self.count == self.ring.capacity() {
            for _ in 0..self.count {
                if let Some(kept) = self.pop().filter(|&kept| live(kept)) {
                    self.append(kept);
                }
            }
        }
        assert!(self.count < self.ring.capacity(), "more waiting handles than slots");
        self.append(handle);
    }

    fn append(&mut self, handle: Handle) {
        let at = (self.head + self.count) % self.ring.capacity();
        if at == self.ring.len() {
            self.ring.push(handle);
        } else {
            self.ring[at] = handle;
        }
        self.count += 1;
    }

    pub(crate) fn front(&self) -> Option<Handle> {
        (self.count > 0).then(|| self.ring[self.head])
    }

    pub(crate) fn pop(&mut self) -> Option<Handle> {
        let handle = self.front()?;
        self.head = (self.head + 1) % self.ring.capacity();
        self.count -= 1;
        // An empty ring starts over, so that memory is touched no further than was ever needed.
        if self.count == 0 {
            self.head = 0;
        }
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(capacity: u32) -> (Arena, Tokens) {
        let mut plan = Plan::default();
        Tokens::plan(&mut plan, capacity);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let tokens = Tokens::new(&mut arena, capacity);
        (arena, tokens)
    }

    #[test]
    fn handles_leave_in_order_and_dead_ones_are_swept() {
        let (_arena, mut tokens) = ring(4);
        for index in 0..4 {
            tokens.push(Handle { index, generation: 1 }, |_| true);
        }
        tokens.push(Handle { index: 9, generation: 1 }, |handle| handle.index % 2 == 0);
        let order: Vec<u32> =
            std::iter::from_fn(|| tokens.pop()).map(|handle| handle.index).collect();
        assert_eq!(order, [0, 2, 9]);
    }

    #[test]
    fn a_ring_wraps() {
        let (_arena, mut tokens) = ring(3);
        for round in 0..20 {
            tokens.push(Handle { index: round, generation: 1 }, |_| true);
            tokens.push(Handle { index: round + 100, generation: 1 }, |_| true);
            assert_eq!(tokens.pop().unwrap().index, round);
            assert_eq!(tokens.pop().unwrap().index, round + 100);
        }
        assert!(tokens.is_empty());
    }
}
