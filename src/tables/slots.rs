#![deny(unsafe_code)]
//! Slots: one cache line for each operation in flight, queued or armed.

use crate::event::EventKind;
use crate::op::Handle;
use crate::tables::NONE;
use crate::tables::arena::{Arena, Plan, Table};

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// On the free list; the generation names no operation.
    Free,
    /// In a socket's queue, behind the operation in the kernel.
    Queued,
    /// Its turn has come, but the backend had no room. In the list of unsubmitted tokens.
    Unsubmitted,
    /// With the backend; only its last completion ends it.
    InKernel,
    /// A receive that waits for a buffer, or an accept that waits for a row. In a starved list.
    Starved,
    /// A timer in the timer table.
    Armed,
    /// A close that waits for its socket's operations, or lingers.
    Closing,
    /// Over; its event waits in the done list.
    Done,
}

/// Flags of a slot.
pub(crate) const MULTISHOT: u8 = 1;
pub(crate) const CANCEL_REQUESTED: u8 = 2;
/// The buffer lies in the orphan table.
pub(crate) const OWNED: u8 = 4;
/// The receive goes into a buffer the loop picks.
pub(crate) const PICKED: u8 = 8;
/// The receive goes on in a held buffer, number in `extra`.
pub(crate) const FILLING: u8 = 16;
/// The cancel request has reached the backend, or waits in the list for it.
pub(crate) const CANCEL_SENT: u8 = 32;
/// The picked receive was lent a buffer, number in `extra`.
pub(crate) const LENT: u8 = 128;
/// The send reads a held buffer, number in `extra`.
pub(crate) const SENDING: u8 = 64;

/// An operation. What the fields mean depends on the kind; see `submit.rs`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) user_data: u64,
    /// Memory, or a timer's period.
    pub(crate) pointer: u64,
    /// A file offset, or a timer's deadline.
    pub(crate) offset: u64,
    /// Of the memory, or the armed timer's place on the wheel.
    pub(crate) length: u32,
    /// Bytes a send in several steps has moved so far, or half of an armed timer's number.
    pub(crate) progress: u32,
    pub(crate) generation: u32,
    /// The socket's row, or `NONE`.
    pub(crate) socket: u32,
    pub(crate) next: u32,
    pub(crate) previous: u32,
    /// The orphan row, the timer's place in the heap, the accept's reserved row, the poll's interest, the
    /// shutdown's direction, the held or lent buffer or the closed row.
    pub(crate) extra: u32,
    /// The final event's, or the other half of an armed timer's number.
    pub(crate) result: i32,
    pub(crate) kind: EventKind,
    pub(crate) state: State,
    pub(crate) flags: u8,
    /// Event flags to go with `result`, while done.
    pub(crate) event_flags: u8,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// What a slot counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Operation,
    Timer,
    /// One for each socket: a close is never refused.
    Close,
}

impl Class {
    fn of(kind: EventKind) -> Class {
        match kind {
            EventKind::Timer => Class::Timer,
            EventKind::Close => Class::Close,
            EventKind::Nop
            | EventKind::Accept
            | EventKind::Connect
            | EventKind::Receive
            | EventKind::Send
            | EventKind::SendVectored
            | EventKind::Poll
            | EventKind::Shutdown
            | EventKind::Read
            | EventKind::Write => Class::Operation,
        }
    }
}

/// The slot table, with a limit for operations and one for timers.
#[derive(Debug)]
pub(crate) struct Slots {
    rows: Table<Slot>,
    free: u32,
    /// Where generations begin: another loop's begin elsewhere, so its handles are told apart.
    first_generation: u32,
    operations: Usage,
    timers: Usage,
}

/// How much of a limit is used, and was at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In use now.
    pub now: u32,
    /// The most that were in use at a time.
    pub high: u32,
    /// The limit.
    pub limit: u32,
    /// How often something was refused because the limit was reached.
    pub refused: u64,
}

impl Usage {
    pub(crate) fn new(limit: u32) -> Usage {
        Usage { now: 0, high: 0, limit, refused: 0 }
    }

    /// Takes one, or counts a refusal.
    pub(crate) fn take(&mut self) -> bool {
        if self.now == self.limit {
            self.refused += 1;
            return false;
        }
        self.now += 1;
        self.high = self.high.max(self.now);
        true
    }

    pub(crate) fn give_back(&mut self) {
        self.now -= 1;
    }
}

impl Slots {
    pub(crate) fn rows(operations: u32, timers: u32, sockets: u32) -> u32 {
        operations.saturating_add(timers).saturating_add(sockets)
    }

    pub(crate) fn plan(plan: &mut Plan, operations: u32, timers: u32, sockets: u32) {
        plan.table::<Slot>(Slots::rows(operations, timers, sockets));
    }

    pub(crate) fn new(
        arena: &mut Arena,
        [operations, timers, sockets]: [u32; 3],
        first_generation: u32,
    ) -> Slots {
        Slots {
            first_generation,
            rows: arena.table(Slots::rows(operations, timers, sockets)),
            free: NONE,
            operations: Usage::new(operations),
            timers: Usage::new(timers),
        }
    }

    pub(crate) fn operations(&self) -> Usage {
        self.operations
    }

    pub(crate) fn timers(&self) -> Usage {
        self.timers
    }

    /// Rows ever used; every live slot's index is below.
    pub(crate) fn touched(&self) -> u32 {
        self.rows.len()
    }

    /// Takes a slot, or answers that its class is full.
    #[inline(always)]
    pub(crate) fn take(&mut self, kind: EventKind, user_data: u64) -> Option<u32> {
        let admitted = match Class::of(kind) {
            Class::Operation => self.operations.take(),
            Class::Timer => self.timers.take(),
            Class::Close => true,
        };
        if !admitted {
            return None;
        }
        let index = if self.free == NONE {
            self.rows
                .push(Slot::free(self.first_generation))
                .expect("the classes' limits add up to the table's")
        } else {
            let index = self.free;
            self.free = self.rows[index].next;
            index
        };
        let slot = &mut self.rows[index];
        let generation = slot.generation;
        *slot = Slot { user_data, kind, ..Slot::free(generation) };
        Some(index)
    }

    /// Frees a slot: by its final event, and by nothing else.
    #[inline]
    pub(crate) fn free(&mut self, index: u32) {
        let free = self.free;
        let slot = &mut self.rows[index];
        debug_assert_ne!(slot.state, State::Free);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = free;
        let kind = slot.kind;
        self.free = index;
        match Class::of(kind) {
            Class::Operation => self.operations.give_back(),
            Class::Timer => self.timers.give_back(),
            Class::Close => {}
        }
    }

    /// Counts an operation that takes its slot later, or refuses it.
    pub(crate) fn reserve_operation(&mut self) -> bool {
        self.operations.take()
    }

    /// Takes that back.
    pub(crate) fn release_operation(&mut self) {
        self.operations.give_back();
    }

    pub(crate) fn handle(&self, index: u32) -> Handle {
        Handle { index, generation: self.rows[index].generation }
    }

    /// The slot a handle names, if the operation still runs.
    pub(crate) fn find(&self, index: u32, generation: u32) -> Option<u32> {
        let live = index < self.rows.len()
            && self.rows[index].generation == generation
            && self.rows[index].state != State::Free;
        live.then_some(index)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Slot {
        &self.rows[index]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.rows[index]
    }
}

impl Slot {
    fn free(generation: u32) -> Slot {
        Slot {
            user_data: 0,
            pointer: 0,
            offset: 0,
            length: 0,
            progress: 0,
            generation,
            socket: NONE,
            next: NONE,
            previous: NONE,
            extra: NONE,
            result: 0,
            kind: EventKind::Nop,
            state: State::Free,
            flags: 0,
            event_flags: 0,
        }
    }
}
