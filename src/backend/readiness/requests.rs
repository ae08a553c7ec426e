//! The requests the engine has taken: each waits for its descriptor, or is answered and waits to be
//! asked for. A row for each token the loop can make, so an answer always has a place.
//!
//! Rows are written in blocks, each when a token's index first falls in it: the loop shares its indices
//! among operations and timers, so the first operation may have a high one.
#![deny(unsafe_code)]

use crate::backend::{Completion, Request, Token};
use crate::tables::NONE;
use crate::tables::arena::{Arena, Plan, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Over, or never used.
    Free,
    /// In the chain of its descriptor's direction.
    Waiting,
    /// In the chain of answers.
    Answered,
}

/// A request's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) result: i32,
    /// The request goes on after it.
    pub(super) more: bool,
    pub(super) buffer: Option<u16>,
    pub(super) nonempty: bool,
}

impl Answer {
    /// The last one, of a result alone.
    pub(super) fn last(result: i32) -> Answer {
        Answer { result, more: false, buffer: None, nonempty: false }
    }
}

/// The rows of a block: two pages.
const BLOCK: u32 = 64;

/// A request.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    /// Its token's index.
    token: u32,
    /// The row of its descriptor, and that row's generation.
    pub(super) row: u32,
    pub(super) row_generation: u32,
    pub(super) next: u32,
    previous: u32,
    generation: u32,
    stage: Stage,
    answer: Answer,
}

/// First and last of a chain of requests. A request is in one chain at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) first: u32,
    last: u32,
}

impl Chain {
    pub(super) const EMPTY: Chain = Chain { first: NONE, last: NONE };

    pub(super) fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Requests {
    entries: Table<Entry>,
    /// Where each block of indices has its rows; [`NONE`] before it is used.
    blocks: Table<u32>,
    answered: Chain,
}

impl Requests {
    pub(super) fn plan(plan: &mut Plan, tokens: u32) {
        plan.table::<Entry>(tokens.next_multiple_of(BLOCK));
        plan.table::<u32>(tokens.div_ceil(BLOCK));
    }

    pub(super) fn new(arena: &mut Arena, tokens: u32) -> Requests {
        let entries = arena.table(tokens.next_multiple_of(BLOCK));
        let mut blocks = arena.table(tokens.div_ceil(BLOCK));
        while blocks.push(NONE).is_some() {}
        Requests { entries, blocks, answered: Chain::EMPTY }
    }

    /// The row of a token's index, if its block was used.
    fn row(&self, index: u32) -> Option<u32> {
        let block = index / BLOCK;
        let first = if block < self.blocks.len() { self.blocks[block] } else { NONE };
        (first != NONE).then(|| first + index % BLOCK)
    }

    #[cold]
    fn write_block(&mut self, index: u32) -> u32 {
        let (block, row) = (index / BLOCK, self.entries.len());
        assert!(block < self.blocks.len(), "rotor: a token's index is beyond the backend's table");
        for token in block * BLOCK..(block + 1) * BLOCK {
            let free = Entry {
                request: Request::Nop,
                token,
                row: NONE,
                row_generation: 0,
                next: NONE,
                previous: NONE,
                generation: 0,
                stage: Stage::Free,
                answer: Answer::last(0),
            };
            let room = self.entries.push(free);
            assert!(room.is_some(), "there is a row for each index");
        }
        self.blocks[block] = row;
        row + index % BLOCK
    }

    /// The rows written so far.
    #[cfg(test)]
    pub(super) fn written(&self) -> u32 {
        self.entries.len()
    }

    pub(super) fn get(&self, index: u32) -> &Entry {
        &self.entries[index]
    }

    /// Takes a request and appends it to its descriptor's chain.
    pub(super) fn put(
        &mut self,
        token: Token,
        request: Request,
        [row, row_generation]: [u32; 2],
        chain: &mut Chain,
    ) -> u32 {
        let index = self.row(token.index()).unwrap_or_else(|| self.write_block(token.index()));
        let entry = &mut self.entries[index];
        assert!(
            entry.stage == Stage::Free,
            "rotor: a token was used again before its request ended"
        );
        entry.request = request;
        entry.row = row;
        entry.row_generation = row_generation;
        entry.generation = token.generation();
        entry.stage = Stage::Waiting;
        self.append(chain, index);
        index
    }

    /// The request a token names, if it is not over, and whether it waits for its descriptor.
    pub(super) fn find(&self, token: Token) -> Option<(u32, bool)> {
        let index = self.row(token.index())?;
        let entry = &self.entries[index];
        let live = entry.generation == token.generation() && entry.stage != Stage::Free;
        live.then_some((index, entry.stage == Stage::Waiting))
    }

    /// Answers a request that waits in `chain`.
    pub(super) fn answer(&mut self, chain: &mut Chain, index: u32, answer: Answer) {
        debug_assert_eq!(self.entries[index].stage, Stage::Waiting);
        self.remove(chain, index);
        self.entries[index].stage = Stage::Answered;
        self.entries[index].answer = answer;
        let mut answered = self.answered;
        self.append(&mut answered, index);
        self.answered = answered;
    }

    /// Makes the answer that waits to be asked for the last one.
    pub(super) fn end_after_answer(&mut self, index: u32) {
        self.entries[index].answer.more = false;
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The next answer. One that is not the last leaves its request for the caller to put back, by
    /// its index.
    pub(super) fn take_answer(&mut self) -> Option<(Completion, u32)> {
        let index = self.answered.first;
        if index == NONE {
            return None;
        }
        let mut answered = self.answered;
        self.remove(&mut answered, index);
        self.answered = answered;
        let entry = &mut self.entries[index];
        let Answer { result, more, buffer, nonempty } = entry.answer;
        entry.stage = if more { Stage::Waiting } else { Stage::Free };
        let token = Token::new(entry.token, entry.generation);
        Some((Completion { token, result, more, buffer, socket_nonempty: nonempty }, index))
    }

    /// Puts a request that goes on after an answer back into its descriptor's chain.
    pub(super) fn put_back(&mut self, chain: &mut Chain, index: u32) {
        self.append(chain, index);
    }

    /// A request whose answer said `more` has nothing to go on with: one more answer, an error.
    pub(super) fn orphan(&mut self, index: u32) {
        self.entries[index].stage = Stage::Answered;
        self.entries[index].answer = Answer::last(-libc::EBADF);
        let mut answered = self.answered;
        self.append(&mut answered, index);
        self.answered = answered;
    }

    fn append(&mut self, chain: &mut Chain, index: u32) {
        let entry = &mut self.entries[index];
        entry.next = NONE;
        entry.previous = chain.last;
        match chain.last {
            NONE => chain.first = index,
            last => self.entries[last].next = index,
        }
        chain.last = index;
    }

    fn remove(&mut self, chain: &mut Chain, index: u32) {
        let (previous, next) = (self.entries[index].previous, self.entries[index].next);
        match previous {
            NONE => chain.first = next,
            previous => self.entries[previous].next = next,
        }
        match next {
            NONE => chain.last = previous,
            next => self.entries[next].previous = previous,
        }
    }
}
