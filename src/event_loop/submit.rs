#![deny(unsafe_code)]
//! Taking operations: a slot for each, its place behind others on the same socket, and the request
//! the backend gets when its turn has come.

use std::net::{Shutdown, SocketAddr};
use std::ops::Range;

use crate::address::RawAddress;
use crate::backend::{Request, Submission, Token};
use crate::error::SubmitError;
use crate::event::EventKind;
use crate::event_loop::Loop;
use crate::event_loop::complete::{Answer, Verdict};
use crate::op::{Action, BufferId, Descriptor, Handle, Interest, Operation};
use crate::tables::NONE;
use crate::tables::slots::LENT;
use crate::tables::slots::{FILLING, MULTISHOT, PICKED, SENDING, State};
use crate::tables::sockets::{DescriptorKind, Direction, Phase, direction_of};

/// What a slot needs beyond its kind.
#[derive(Default)]
pub(super) struct Parameters {
    pub(super) pointer: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) extra: u32,
    pub(super) flags: u8,
}

impl Loop {
    /// Takes an operation. Its events carry `user_data`; the last one is its final event, and
    /// comes from a later [`tick`](Loop::tick) even if the backend answers at once.
    ///
    /// # Errors
    /// Nothing was started: a table is full, the descriptor is closed, or this is a child process.
    pub fn submit(&mut self, operation: Operation, user_data: u64) -> Result<Handle, SubmitError> {
        self.check()?;
        let none = Parameters::default();
        match operation.action {
            Action::Nop => {
                let slot = self.take_slot(EventKind::Nop, NONE, none, user_data)?;
                let handle = self.slots.handle(slot);
                self.run(slot);
                Ok(handle)
            }
            Action::Accept { listener, multishot } => {
                let flags = if multishot { MULTISHOT } else { 0 };
                self.enqueue(EventKind::Accept, listener, Parameters { flags, ..none }, user_data)
            }
            Action::Connect { descriptor, address } => self.connect(descriptor, address, user_data),
            Action::Receive { descriptor, pointer, length } => {
                let memory = Parameters { pointer: pointer as u64, length, ..none };
                self.enqueue(EventKind::Receive, descriptor, memory, user_data)
            }
            Action::ReceivePicked { descriptor, multishot: false } => {
                self.submit_receive_picked(descriptor, user_data)
            }
            Action::ReceivePicked { descriptor, multishot: true } => {
                let picked = Parameters { flags: PICKED | MULTISHOT, ..none };
                self.enqueue(EventKind::Receive, descriptor, picked, user_data)
            }
            Action::Send { descriptor, pointer, length } => {
                let memory = Parameters { pointer: pointer as u64, length, ..none };
                self.enqueue(EventKind::Send, descriptor, memory, user_data)
            }
            Action::SendVectored { descriptor, slices, count } => {
                let pieces = Parameters { pointer: slices as u64, length: count, ..none };
                self.enqueue(EventKind::SendVectored, descriptor, pieces, user_data)
            }
            Action::Poll { descriptor, interest } => {
                let wanted = Parameters { extra: interest as u32, ..none };
                self.enqueue(EventKind::Poll, descriptor, wanted, user_data)
            }
            Action::Shutdown { descriptor, how } => {
                let row = self.open(descriptor)?;
                self.sockets.get_mut(row).read_shut |= how != Shutdown::Write;
                let which = Parameters { extra: shutdown_number(how), ..none };
                self.enqueue(EventKind::Shutdown, descriptor, which, user_data)
            }
            Action::Close { descriptor } => self.begin_close(descriptor, user_data),
            Action::ReadAt { descriptor, pointer, length, offset } => {
                let memory = Parameters { pointer: pointer as u64, length, offset, ..none };
                self.enqueue(EventKind::Read, descriptor, memory, user_data)
            }
            Action::WriteAt { descriptor, pointer, length, offset } => {
                let memory = Parameters { pointer: pointer as u64, length, offset, ..none };
                self.enqueue(EventKind::Write, descriptor, memory, user_data)
            }
            Action::Timer { deadline_ns, period_ns } => self.arm(deadline_ns, period_ns, user_data),
        }
    }

    /// [`Operation::receive_picked`] without the detours of the other kinds: what a server does most.
    pub(crate) fn submit_receive_picked(
        &mut self,
        descriptor: Descriptor,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        self.check()?;
        let row = self.open(descriptor)?;
        let picked = Parameters { flags: PICKED, ..Default::default() };
        let slot = self.take_slot(EventKind::Receive, row, picked, user_data)?;
        let handle = self.slots.handle(slot);
        let lane = &mut self.sockets.get_mut(row).receive;
        if lane.current != NONE {
            lane.waiting.push_back(&mut self.slots, slot);
            self.slots.get_mut(slot).state = State::Queued;
            return Ok(handle);
        }
        lane.current = slot;
        let fd = self.sockets.get(row).fd;
        let request = self.prepare_picked(slot, fd);
        if let Some(result) = self.hand_over_one(slot, handle, &request) {
            if self.answered(slot, result) {
                self.advance(row, Direction::Receive);
            }
        }
        Ok(handle)
    }

    /// Receives further bytes into the rest of a held buffer, from `offset` on, which is at most
    /// the bytes it holds. The buffer cannot be returned until the final event.
    ///
    /// # Errors
    /// As for [`submit`](Loop::submit).
    ///
    /// # Panics
    /// When the buffer is not held or is being filled already.
    #[track_caller]
    pub fn submit_receive_into(
        &mut self,
        descriptor: Descriptor,
        buffer: BufferId,
        offset: u32,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        self.check()?;
        let row = self.open(descriptor)?;
        self.buffers.check_idle(buffer, offset);
        let none = Parameters { extra: u32::from(buffer.0), flags: FILLING, ..Default::default() };
        let slot = self.take_slot(EventKind::Receive, row, none, user_data)?;
        let (pointer, length) = self.buffers.begin_filling(buffer, offset);
        let filled = self.slots.get_mut(slot);
        filled.pointer = pointer as u64;
        filled.length = length;
        Ok(self.take_turn(slot))
    }

    /// Sends received bytes from the held buffer they lie in; completes as
    /// [`Operation::send`] does. The buffer cannot be returned until the final event.
    ///
    /// # Errors
    /// As for [`submit`](Loop::submit).
    ///
    /// # Panics
    /// When the buffer is not held, is in use by an operation, or has not that many bytes.
    #[track_caller]
    pub fn submit_send_from(
        &mut self,
        descriptor: Descriptor,
        buffer: BufferId,
        range: Range<u32>,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        self.check()?;
        let row = self.open(descriptor)?;
        self.buffers.check_idle(buffer, range.end);
        let none = Parameters { extra: u32::from(buffer.0), flags: SENDING, ..Default::default() };
        let slot = self.take_slot(EventKind::Send, row, none, user_data)?;
        let length = range.end.saturating_sub(range.start);
        let pointer = self.buffers.begin_sending(buffer, range);
        let sent = self.slots.get_mut(slot);
        sent.pointer = pointer as u64;
        sent.length = length;
        Ok(self.take_turn(slot))
    }

    #[inline(always)]
    fn take_slot(
        &mut self,
        kind: EventKind,
        socket: u32,
        parameters: Parameters,
        user_data: u64,
    ) -> Result<u32, SubmitError> {
        let Some(index) = self.slots.take(kind, user_data) else { return Err(self.full(kind)) };
        let slot = self.slots.get_mut(index);
        slot.socket = socket;
        slot.pointer = parameters.pointer;
        slot.offset = parameters.offset;
        slot.length = parameters.length;
        slot.extra = parameters.extra;
        slot.flags = parameters.flags;
        Ok(index)
    }

    /// Keeps an operation for one that is submitted later, after
    /// [`release_operation`](Loop::release_operation); refused as that would be.
    pub(crate) fn reserve_operation(&mut self) -> Result<(), SubmitError> {
        self.check()?;
        if self.slots.reserve_operation() { Ok(()) } else { Err(self.full(EventKind::Receive)) }
    }

    /// Whether an operation may be kept or submitted, as far as their number goes.
    #[inline]
    pub(crate) fn has_operation(&self) -> bool {
        self.slots.operations().now < self.slots.operations().limit
    }

    /// Gives a kept operation up.
    pub(crate) fn release_operation(&mut self) {
        self.slots.release_operation();
    }

    pub(super) fn full(&self, kind: EventKind) -> SubmitError {
        if kind == EventKind::Timer {
            SubmitError::Full { option: "timers", limit: self.options.timers }
        } else {
            SubmitError::Full { option: "operations", limit: self.options.operations }
        }
    }

    pub(super) fn enqueue(
        &mut self,
        kind: EventKind,
        descriptor: Descriptor,
        parameters: Parameters,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        let row = self.open(descriptor)?;
        let slot = self.take_slot(kind, row, parameters, user_data)?;
        Ok(self.take_turn(slot))
    }

    /// The address lies in the socket's row, so there is one connect at a time.
    fn connect(
        &mut self,
        descriptor: Descriptor,
        address: SocketAddr,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        let row = self.open(descriptor)?;
        if self.sockets.get(row).connecting {
            return Err(SubmitError::Connecting);
        }
        let none = Parameters::default();
        let slot = self.take_slot(EventKind::Connect, row, none, user_data)?;
        self.sockets.set_address(row, RawAddress::encode(address));
        self.sockets.get_mut(row).connecting = true;
        Ok(self.take_turn(slot))
    }

    fn arm(
        &mut self,
        deadline_ns: u64,
        period_ns: u64,
        user_data: u64,
    ) -> Result<Handle, SubmitError> {
        let parameters =
            Parameters { pointer: period_ns, offset: deadline_ns, ..Default::default() };
        let index = self.take_slot(EventKind::Timer, NONE, parameters, user_data)?;
        self.slots.get_mut(index).state = State::Armed;
        self.timers.arm(&mut self.slots, index);
        Ok(self.slots.handle(index))
    }

    /// Starts an operation, or puts it behind the one that has its direction.
    fn take_turn(&mut self, index: u32) -> Handle {
        let handle = self.slots.handle(index);
        let kind = self.slots.get(index).kind;
        let row = self.slots.get(index).socket;
        let direction = direction_of(kind);
        let Some(lane) = self.sockets.lane(row, direction) else {
            self.sockets.get_mut(row).others.push_back(&mut self.slots, index);
            self.run(index);
            return handle;
        };
        if lane.current == NONE {
            lane.current = index;
            if self.run(index) {
                self.advance(row, direction);
            }
        } else {
            lane.waiting.push_back(&mut self.slots, index);
            self.slots.get_mut(index).state = State::Queued;
        }
        handle
    }

    /// Lets the operations behind have their turn, until one is with the backend.
    #[inline]
    pub(super) fn advance(&mut self, row: u32, direction: Direction) {
        if self.sockets.lane(row, direction).is_some_and(|lane| !lane.waiting.is_empty()) {
            self.advance_waiting(row, direction);
        }
    }

    fn advance_waiting(&mut self, row: u32, direction: Direction) {
        loop {
            let Some(lane) = self.sockets.lane(row, direction) else { return };
            if lane.current != NONE {
                return;
            }
            let Some(next) = lane.waiting.pop_front(&mut self.slots) else { return };
            lane.current = next;
            if !self.run(next) {
                return;
            }
        }
    }

    /// Hands an operation over, again and again while the backend answers at once and it is not
    /// over. Answers whether it is over; its event is then in the done list.
    pub(super) fn run(&mut self, index: u32) -> bool {
        match self.start(index) {
            Some(result) => self.answered(index, result),
            None => false,
        }
    }

    /// The backend has answered at once. Answers as [`run`](Loop::run) does.
    fn answered(&mut self, index: u32, mut result: i32) -> bool {
        loop {
            match self.judge(index, &Answer::at_once(result)) {
                Verdict::Again => {}
                Verdict::Waits => return false,
                Verdict::Event(event) => {
                    let over = !event.more();
                    self.put_done(index, &event);
                    return over;
                }
            }
            match self.start(index) {
                Some(again) => result = again,
                None => return false,
            }
        }
    }

    /// Hands an operation whose turn has come to the backend. Answers its result if it has one.
    pub(super) fn start(&mut self, index: u32) -> Option<i32> {
        let Some(request) = self.prepare(index) else {
            // An accept that found no row for the connection it may bring.
            self.counts.starved += 1;
            self.slots.get_mut(index).state = State::Starved;
            self.starved_accepts.push_back(&mut self.slots, index);
            return None;
        };
        let handle = self.slots.handle(index);
        self.hand_over_one(index, handle, &request)
    }

    #[inline(always)]
    fn hand_over_one(&mut self, index: u32, handle: Handle, request: &Request) -> Option<i32> {
        let token = Token::new(handle.index, handle.generation);
        match self.driver.submit(token, request) {
            Submission::Queued => {
                let slot = self.slots.get_mut(index);
                slot.state = State::InKernel;
                self.in_kernel += 1;
                if slot.has(PICKED) && !slot.has(LENT) {
                    self.picking += 1;
                }
                None
            }
            Submission::Done(result) => Some(result),
            Submission::Full => {
                self.keep_unsubmitted(index, handle);
                None
            }
        }
    }

    /// The backend had no room.
    #[cold]
    fn keep_unsubmitted(&mut self, index: u32, handle: Handle) {
        self.counts.backend_full += 1;
        self.unprepare(index);
        self.slots.get_mut(index).state = State::Unsubmitted;
        let slots = &self.slots;
        self.unsubmitted.push(handle, |kept| {
            let found = slots.find(kept.index, kept.generation);
            found.is_some_and(|slot| slots.get(slot).state == State::Unsubmitted)
        });
    }

    /// The request for an operation. Nothing for an accept while no row is free.
    fn prepare(&mut self, index: u32) -> Option<Request> {
        let row = self.slots.get(index).socket;
        let fd = if row == NONE { -1 } else { self.sockets.get(row).fd };
        let slot = self.slots.get(index);
        let (pointer, length) = (slot.pointer, slot.length);
        let request = match slot.kind {
            EventKind::Nop => Request::Nop,
            EventKind::Accept => {
                let reserved = self.sockets.take(DescriptorKind::Stream, Phase::Reserved)?;
                self.slots.get_mut(index).extra = reserved;
                let address = self.sockets.set_address(reserved, RawAddress::EMPTY);
                Request::Accept { fd, address }
            }
            EventKind::Connect => {
                let address = *self.sockets.address(row);
                Request::Connect { fd, address: self.sockets.set_address(row, address) }
            }
            EventKind::Receive if slot.has(PICKED) => self.prepare_picked(index, fd),
            EventKind::Receive => {
                Request::Receive { fd, pointer: pointer as *mut u8, length, now: false }
            }
            EventKind::Send => Request::Send {
                fd,
                pointer: (pointer + u64::from(slot.progress)) as *const u8,
                length: length - slot.progress,
                now: false,
            },
            EventKind::SendVectored => {
                let slices = pointer as *const libc::iovec;
                let message = self.sockets.set_message(row, slices, length);
                Request::SendVectored { fd, message, now: false }
            }
            EventKind::Poll => Request::Poll { fd, interest: interest_from(slot.extra) },
            EventKind::Shutdown => Request::Shutdown { fd, how: shutdown_from(slot.extra) },
            EventKind::Read => {
                let pointer = pointer as *mut u8;
                Request::ReadAt { fd, pointer, length, offset: slot.offset }
            }
            EventKind::Write => {
                let pointer = pointer as *const u8;
                Request::WriteAt { fd, pointer, length, offset: slot.offset }
            }
            EventKind::Close | EventKind::Timer => unreachable!("the loop does these itself"),
        };
        Some(request)
    }

    /// Whether the next receive would be lent a buffer of its own.
    pub(crate) fn lends(&self) -> bool {
        self.driver.lends() && self.buffers.lends() && !self.starves()
    }

    /// While some starve, free buffers are for whoever has bytes first.
    fn starves(&self) -> bool {
        self.feeding || !self.starved_receives.is_empty()
    }

    /// A single receive is lent a buffer of its own while few are, where the backend is quicker with it;
    /// the others pick one.
    #[inline(always)]
    fn prepare_picked(&mut self, index: u32, fd: i32) -> Request {
        let starving = self.starves();
        let slot = self.slots.get_mut(index);
        slot.flags &= !LENT;
        let multishot = slot.has(MULTISHOT);
        if multishot || starving || !self.driver.lends() {
            return Request::ReceivePicked { fd, multishot };
        }
        let Some((buffer, pointer, length)) = self.buffers.lend() else {
            return Request::ReceivePicked { fd, multishot };
        };
        slot.flags |= LENT;
        slot.extra = u32::from(buffer);
        Request::Receive { fd, pointer, length, now: false }
    }

    /// Undoes what [`prepare`](Loop::prepare) took.
    fn unprepare(&mut self, index: u32) {
        let slot = self.slots.get_mut(index);
        let extra = slot.extra;
        if slot.kind == EventKind::Accept {
            self.sockets.free(extra);
        } else if slot.has(LENT) {
            slot.flags &= !LENT;
            self.buffers.unused(extra as u16, true);
        }
    }
}

/// The interest's number in a slot, and back.
fn interest_from(number: u32) -> Interest {
    if number == Interest::Readable as u32 { Interest::Readable } else { Interest::Writable }
}

fn shutdown_number(how: Shutdown) -> u32 {
    match how {
        Shutdown::Read => 0,
        Shutdown::Write => 1,
        Shutdown::Both => 2,
    }
}

fn shutdown_from(number: u32) -> Shutdown {
    match number {
        0 => Shutdown::Read,
        1 => Shutdown::Write,
        _ => Shutdown::Both,
    }
}
