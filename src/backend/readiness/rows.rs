//! The descriptors the engine watches: what is known of their readiness, and who waits.
//!
//! Numbers are found by a table of chains. It doubles as more rows come into use, so that memory is
//! touched no further than was ever needed.
#![deny(unsafe_code)]

use std::os::fd::RawFd;

use super::requests::Chain;
use super::selector::{Key, READ};
use crate::tables::NONE;
use crate::tables::arena::{Arena, Plan, Table};

/// The chains at first.
const CHAINS_MIN: u32 = 64;

/// A descriptor.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) fd: RawFd,
    pub(super) generation: u32,
    /// The directions the selector watches.
    pub(super) armed: u8,
    /// The directions that are ready for all that is known: told, and not found exhausted since.
    pub(super) ready: u8,
    /// The directions told by the last wait, and not used up since: what waits is served before anything
    /// else happens, so they are kept for nobody else.
    pub(super) fresh: u8,
    /// A short receive does not say that it is drained; see [`Found`](super::selector::Found).
    pub(super) over: bool,
    /// Whether a short receive says so otherwise. Nothing until the descriptor is first watched for
    /// reading.
    pub(super) short_drains: Option<bool>,
    /// The selector cannot watch it, because it is always ready.
    pub(super) unwatchable: bool,
    reading: Chain,
    writing: Chain,
    /// In the list of rows to attend to.
    listed: bool,
    /// The next in that list.
    next_listed: u32,
    /// The next in the chain of its number, or the next free row.
    next: u32,
}

impl Row {
    fn new(fd: RawFd, generation: u32) -> Row {
        Row {
            fd,
            generation,
            armed: 0,
            ready: 0,
            fresh: 0,
            over: false,
            short_drains: None,
            unwatchable: false,
            reading: Chain::EMPTY,
            writing: Chain::EMPTY,
            listed: false,
            next_listed: NONE,
            next: NONE,
        }
    }

    pub(super) fn chain(&mut self, direction: u8) -> &mut Chain {
        if direction == READ { &mut self.reading } else { &mut self.writing }
    }

    pub(super) fn first(&self, direction: u8) -> u32 {
        if direction == READ { self.reading.first } else { self.writing.first }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.reading.is_empty() && self.writing.is_empty()
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Table<Row>,
    chains: Table<u32>,
    free: u32,
    in_use: u32,
    listed_first: u32,
    listed_last: u32,
    listed: u32,
}

impl Rows {
    fn chains(capacity: u32) -> u32 {
        capacity.next_power_of_two().max(CHAINS_MIN)
    }

    pub(super) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Row>(capacity);
        plan.table::<u32>(Rows::chains(capacity));
    }

    pub(super) fn new(arena: &mut Arena, capacity: u32) -> Rows {
        let rows = arena.table(capacity);
        let mut chains = arena.table(Rows::chains(capacity));
        for _ in 0..CHAINS_MIN {
            chains.push(NONE);
        }
        let free = NONE;
        Rows { rows, chains, free, in_use: 0, listed_first: NONE, listed_last: NONE, listed: 0 }
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> &Row {
        &self.rows[index]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> &mut Row {
        &mut self.rows[index]
    }

    pub(super) fn key(&self, index: u32) -> Key {
        Key { index, generation: self.rows[index].generation }
    }

    /// The row a key names, if it is not out of date.
    pub(super) fn named(&self, key: Key) -> Option<u32> {
        let live = key.index < self.rows.len()
            && self.rows[key.index].generation == key.generation
            && self.rows[key.index].fd >= 0;
        live.then_some(key.index)
    }

    fn place(&self, fd: RawFd) -> u32 {
        fd as u32 & (self.chains.len() - 1)
    }

    /// The row of a number.
    #[inline]
    pub(super) fn find(&self, fd: RawFd) -> Option<u32> {
        let mut index = self.chains[self.place(fd)];
        while index != NONE && self.rows[index].fd != fd {
            index = self.rows[index].next;
        }
        (index != NONE).then_some(index)
    }

    /// The row of a number, a new one if it has none. Nothing when all are in use.
    pub(super) fn find_or_take(&mut self, fd: RawFd) -> Option<u32> {
        if let Some(index) = self.find(fd) {
            return Some(index);
        }
        if self.in_use == self.chains.len() {
            self.grow();
        }
        let index = if self.free == NONE {
            self.rows.push(Row::new(fd, 0))?
        } else {
            let index = self.free;
            let row = &mut self.rows[index];
            self.free = row.next;
            let (listed, next_listed) = (row.listed, row.next_listed);
            *row = Row { listed, next_listed, ..Row::new(fd, row.generation) };
            index
        };
        self.in_use += 1;
        self.link(index);
        Some(index)
    }

    fn link(&mut self, index: u32) {
        let place = self.place(self.rows[index].fd);
        self.rows[index].next = self.chains[place];
        self.chains[place] = index;
    }

    fn unlink(&mut self, index: u32) {
        let place = self.place(self.rows[index].fd);
        let next = self.rows[index].next;
        if self.chains[place] == index {
            self.chains[place] = next;
            return;
        }
        let mut before = self.chains[place];
        while self.rows[before].next != index {
            before = self.rows[before].next;
        }
        self.rows[before].next = next;
    }

    /// Doubles the chains, if there is memory for more.
    fn grow(&mut self) {
        let old = self.chains.len();
        if old == self.chains.capacity() {
            return;
        }
        for place in 0..old {
            self.chains[place] = NONE;
        }
        for _ in 0..old {
            self.chains.push(NONE);
        }
        for index in 0..self.rows.len() {
            if self.rows[index].fd >= 0 {
                self.link(index);
            }
        }
    }

    /// The row is another number's from here on.
    pub(super) fn rename(&mut self, index: u32, fd: RawFd) {
        self.unlink(index);
        self.rows[index].fd = fd;
        self.link(index);
    }

    /// Frees a row that nobody waits on. What is found by its key is out of date from here on.
    pub(super) fn free(&mut self, index: u32) {
        debug_assert!(self.rows[index].is_idle());
        self.unlink(index);
        let row = &mut self.rows[index];
        row.fd = -1;
        row.generation = row.generation.wrapping_add(1);
        row.next = self.free;
        self.free = index;
        self.in_use -= 1;
    }

    /// Lists a row for the next time the engine attends to what is ready.
    pub(super) fn list(&mut self, index: u32) {
        if self.rows[index].listed {
            return;
        }
        self.rows[index].listed = true;
        self.rows[index].next_listed = NONE;
        match self.listed_last {
            NONE => self.listed_first = index,
            last => self.rows[last].next_listed = index,
        }
        self.listed_last = index;
        self.listed += 1;
    }

    pub(super) fn listed(&self) -> u32 {
        self.listed
    }

    /// Takes a row from that list. It may have been freed meanwhile, or be another number's.
    pub(super) fn take_listed(&mut self) -> Option<u32> {
        let index = self.listed_first;
        if index == NONE {
            return None;
        }
        let row = &mut self.rows[index];
        row.listed = false;
        self.listed_first = row.next_listed;
        if self.listed_first == NONE {
            self.listed_last = NONE;
        }
        self.listed -= 1;
        Some(index)
    }
}
