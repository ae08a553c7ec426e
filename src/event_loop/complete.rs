#![deny(unsafe_code)]
//! What an answer of the backend means for its operation: an event, another turn, or a wait.

use crate::backend::Completion;
use crate::event::{Event, EventKind, HAS_BUFFER, HAS_DESCRIPTOR, HAS_ORPHAN, MORE, NONEMPTY};
use crate::event_loop::Loop;
use crate::tables::NONE;
use crate::tables::orphans::Ended;
use crate::tables::slots::LENT;
use crate::tables::slots::{CANCEL_REQUESTED, FILLING, MULTISHOT, OWNED, PICKED, SENDING, State};
use crate::tables::sockets::{Direction, Phase, direction_of};

/// An answer, without the token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    result: i32,
    more: bool,
    buffer: Option<u16>,
    socket_nonempty: bool,
}

impl Answer {
    /// A result without anything else.
    pub(super) fn at_once(result: i32) -> Answer {
        Answer { result, more: false, buffer: None, socket_nonempty: false }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// Deliver this; without `more` the operation is over.
    Event(Event),
    /// The operation is to be handed over again.
    Again,
    /// It was put in a list, and goes on from there.
    Waits,
}

impl Loop {
    /// Takes a completion from the backend; answers the event to deliver, if there is one.
    #[inline]
    pub(super) fn complete(&mut self, completion: Completion) -> Option<Event> {
        let token = completion.token;
        let live = self.slots.find(token.index(), token.generation());
        let Some(index) = live.filter(|&index| self.slots.get(index).state == State::InKernel)
        else {
            self.counts.stale_completions += 1;
            return None;
        };
        let lent = self.slots.get(index).flags == PICKED | LENT;
        if lent && completion.result > 0 && !completion.more {
            return Some(self.complete_lent(index, &completion));
        }
        let again_after = !completion.more && self.slots.get(index).has(MULTISHOT);
        if !completion.more {
            self.in_kernel -= 1;
            let slot = self.slots.get(index);
            if slot.has(PICKED) && !slot.has(LENT) {
                self.picking -= 1;
            }
        }
        let answer = Answer {
            result: completion.result,
            more: completion.more,
            buffer: completion.buffer,
            socket_nonempty: completion.socket_nonempty,
        };
        match self.judge(index, &answer) {
            Verdict::Event(event) => {
                if !event.more() {
                    self.end(index);
                } else if again_after {
                    self.go_on(index);
                }
                Some(event)
            }
            Verdict::Again => {
                self.go_on(index);
                None
            }
            Verdict::Waits => None,
        }
    }

    /// Bytes for a receive with a buffer of its own that nobody canceled, which is what most answers
    /// are: the steps of the others without their detours.
    #[inline(always)]
    fn complete_lent(&mut self, index: u32, completion: &Completion) -> Event {
        self.in_kernel -= 1;
        let slot = self.slots.get(index);
        let (row, buffer) = (slot.socket, slot.extra as u16);
        let flags = if completion.socket_nonempty { HAS_BUFFER | NONEMPTY } else { HAS_BUFFER };
        let (user_data, result) = (slot.user_data, completion.result);
        let kind = EventKind::Receive;
        let event = Event { user_data, payload: 0, result, buffer, kind, flags };
        self.buffers.received(buffer, result as u32, true);
        debug_assert_eq!(self.sockets.get(row).receive.current, index);
        self.slots.free(index);
        self.sockets.get_mut(row).receive.current = NONE;
        self.advance(row, Direction::Receive);
        self.try_close(row);
        event
    }

    /// Hands an operation over again that has kept its turn.
    pub(super) fn go_on(&mut self, index: u32) {
        let (row, kind) = (self.slots.get(index).socket, self.slots.get(index).kind);
        if self.run(index) && row != NONE {
            self.advance(row, direction_of(kind));
            self.try_close(row);
        }
    }

    /// The operation is over and its event delivered: frees its slot and gives up its turn.
    #[inline]
    fn end(&mut self, index: u32) {
        let (row, kind) = (self.slots.get(index).socket, self.slots.get(index).kind);
        self.leave(index);
        self.slots.free(index);
        if row != NONE {
            self.advance(row, direction_of(kind));
            self.try_close(row);
        }
    }

    /// Takes an operation out of its socket's lane or list.
    #[inline]
    fn leave(&mut self, index: u32) {
        let (row, kind) = (self.slots.get(index).socket, self.slots.get(index).kind);
        if row == NONE {
            return;
        }
        if kind == EventKind::Connect {
            self.sockets.get_mut(row).connecting = false;
        }
        match self.sockets.lane(row, direction_of(kind)) {
            Some(lane) if lane.current == index => lane.current = NONE,
            Some(_) => {}
            None => self.sockets.get_mut(row).others.remove(&mut self.slots, index),
        }
    }

    /// Keeps an event until there is room in the caller's array. Without `more` the operation is
    /// over, and has given up its turn.
    pub(super) fn put_done(&mut self, index: u32, event: &Event) {
        if !event.more() {
            self.leave(index);
        }
        let slot = self.slots.get_mut(index);
        slot.state = State::Done;
        slot.result = event.result;
        slot.event_flags = event.flags;
        slot.offset = event.payload;
        slot.length = u32::from(event.buffer);
        self.done.push_back(&mut self.slots, index);
    }

    /// Ends an operation that is in no list with a result and nothing else.
    pub(super) fn settle(&mut self, index: u32, result: i32) {
        let slot = self.slots.get(index);
        if slot.has(FILLING) {
            self.buffers.end_filling(slot.extra as u16, 0);
        }
        if slot.has(SENDING) {
            self.buffers.end_sending(slot.extra as u16);
        }
        let sent = self.sent_so_far(index);
        let event = self.final_event(index, if sent > 0 { sent } else { result });
        self.put_done(index, &event);
    }

    /// The event of a done operation; frees its slot, or lets it go on.
    pub(super) fn take_done(&mut self) -> Option<Event> {
        let index = self.done.pop_front(&mut self.slots)?;
        let slot = self.slots.get(index);
        let event = Event {
            user_data: slot.user_data,
            payload: slot.offset,
            result: slot.result,
            buffer: slot.length as u16,
            kind: slot.kind,
            flags: slot.event_flags,
        };
        if event.kind == EventKind::Close {
            let row = slot.extra;
            self.slots.free(index);
            self.sockets.free(row);
        } else if !event.more() {
            self.slots.free(index);
        } else if slot.has(CANCEL_REQUESTED) {
            self.settle_turn(index, -libc::ECANCELED);
        } else {
            self.go_on(index);
        }
        Some(event)
    }

    /// Ends an operation that has its turn, and lets the ones behind have theirs.
    pub(super) fn settle_turn(&mut self, index: u32, result: i32) {
        let (row, kind) = (self.slots.get(index).socket, self.slots.get(index).kind);
        self.settle(index, result);
        if row != NONE {
            self.advance(row, direction_of(kind));
            self.try_close(row);
        }
    }

    /// What an answer means. On `Event` the operation's own buffer, if any, is accounted for.
    #[inline]
    pub(super) fn judge(&mut self, index: u32, answer: &Answer) -> Verdict {
        let slot = self.slots.get(index);
        let canceled = slot.has(CANCEL_REQUESTED);
        let result = answer.result;
        match slot.kind {
            EventKind::Accept => self.judge_accept(index, answer),
            EventKind::Receive if slot.has(PICKED) => self.judge_picked(index, answer),
            EventKind::Receive => self.judge_receive(index, answer),
            EventKind::Send => self.judge_send(index, result),
            // shutdown(2) says ENOTCONN when the peer has already reset or left.
            EventKind::Shutdown if result == -libc::ENOTCONN => {
                Verdict::Event(self.final_event(index, 0))
            }
            // Which events were found is the kernel's word; that one was is all a poll says.
            EventKind::Poll if result > 0 => Verdict::Event(self.final_event(index, 0)),
            EventKind::Read | EventKind::Write if result == -libc::EINTR && !canceled => {
                Verdict::Again
            }
            EventKind::Connect => {
                let row = slot.socket;
                let connected = matches!(-result, 0 | libc::EISCONN | libc::EALREADY);
                // What is not connected has nothing to deliver: its close does not linger.
                self.sockets.get_mut(row).saw_end = !connected;
                Verdict::Event(self.final_event(index, result))
            }
            EventKind::Nop
            | EventKind::SendVectored
            | EventKind::Poll
            | EventKind::Shutdown
            | EventKind::Read
            | EventKind::Write => Verdict::Event(self.final_event(index, result)),
            EventKind::Close | EventKind::Timer => unreachable!("the backend never had these"),
        }
    }

    fn judge_accept(&mut self, index: u32, answer: &Answer) -> Verdict {
        let slot = self.slots.get(index);
        let (reserved, multishot) = (slot.extra, slot.has(MULTISHOT));
        let canceled = slot.has(CANCEL_REQUESTED);
        if answer.result < 0 {
            self.sockets.free(reserved);
            if answer.result == -libc::EINTR && !canceled {
                return Verdict::Again;
            }
            return Verdict::Event(self.final_event(index, answer.result));
        }
        // A connection inherits its listener's options (sk_clone_lock).
        let linger = self.sockets.linger(slot.socket);
        let socket = self.sockets.get_mut(reserved);
        socket.fd = answer.result;
        socket.phase = Phase::Open;
        self.sockets.set_linger(reserved, linger);
        let mut event = self.final_event(index, 0);
        event.payload = self.sockets.descriptor(reserved).to_bits();
        event.flags |= HAS_DESCRIPTOR;
        if multishot && !canceled {
            event.flags |= MORE;
        }
        Verdict::Event(event)
    }

    #[inline]
    fn judge_picked(&mut self, index: u32, answer: &Answer) -> Verdict {
        let slot = self.slots.get(index);
        let goes_on = slot.has(MULTISHOT) && !slot.has(CANCEL_REQUESTED);
        let lent = slot.has(LENT);
        let buffer = if lent { Some(slot.extra as u16) } else { answer.buffer };
        let Some(buffer) = buffer.filter(|_| answer.result > 0) else {
            if let Some(unused) = buffer {
                self.buffers.unused(unused, lent);
            }
            return self.judge_nothing_picked(index, answer.result);
        };
        self.buffers.received(buffer, answer.result as u32, lent);
        let mut event = self.final_event(index, answer.result);
        event.buffer = buffer;
        event.flags |= HAS_BUFFER;
        if answer.socket_nonempty {
            event.flags |= NONEMPTY;
        }
        if answer.more || goes_on {
            event.flags |= MORE;
        }
        Verdict::Event(event)
    }

    /// A picked receive that brought no bytes.
    fn judge_nothing_picked(&mut self, index: u32, result: i32) -> Verdict {
        let slot = self.slots.get(index);
        let row = slot.socket;
        let canceled = slot.has(CANCEL_REQUESTED);
        match -result {
            libc::ENOBUFS if canceled => Verdict::Event(self.final_event(index, -libc::ECANCELED)),
            libc::ENOBUFS => self.without_buffer(index),
            libc::EINTR if !canceled => Verdict::Again,
            _ => {
                self.note_end(row, result);
                Verdict::Event(self.final_event(index, result))
            }
        }
    }

    /// Notes what a receive's result says of the connection: whether the peer's side has ended.
    pub(super) fn note_end(&mut self, row: u32, result: i32) {
        let socket = self.sockets.get_mut(row);
        let ended = match -result {
            0 => !socket.read_shut,
            libc::ECONNRESET | libc::ETIMEDOUT | libc::EPIPE | libc::ECONNABORTED => true,
            _ => false,
        };
        socket.saw_end |= ended;
    }

    /// A receive found no buffer: provide more and go on, or wait until one is returned.
    fn without_buffer(&mut self, index: u32) -> Verdict {
        self.top_up_for(1);
        if self.buffers.provided() > 0 {
            return Verdict::Again;
        }
        self.counts.starved += 1;
        self.slots.get_mut(index).state = State::Starved;
        self.starved_receives.push_back(&mut self.slots, index);
        Verdict::Waits
    }

    fn judge_receive(&mut self, index: u32, answer: &Answer) -> Verdict {
        let slot = self.slots.get(index);
        let (row, extra) = (slot.socket, slot.extra);
        let (length, filling) = (slot.length, slot.has(FILLING));
        if answer.result == -libc::EINTR && !slot.has(CANCEL_REQUESTED) {
            return Verdict::Again;
        }
        if length > 0 {
            self.note_end(row, answer.result);
        }
        if filling {
            self.buffers.end_filling(extra as u16, answer.result.max(0) as u32);
        }
        let mut event = self.final_event(index, answer.result);
        if answer.socket_nonempty {
            event.flags |= NONEMPTY;
        }
        Verdict::Event(event)
    }

    /// A send is over when all of it has gone, so that the next one cannot get between its parts.
    fn judge_send(&mut self, index: u32, result: i32) -> Verdict {
        let slot = self.slots.get_mut(index);
        let canceled = slot.has(CANCEL_REQUESTED);
        if result > 0 {
            slot.progress += result as u32;
            let partly = slot.progress < slot.length;
            if !canceled && (partly || slot.has(OWNED) && self.begin_next_part(index)) {
                return Verdict::Again;
            }
        }
        if result == -libc::EINTR && !canceled {
            return Verdict::Again;
        }
        let slot = self.slots.get(index);
        if slot.has(SENDING) {
            self.buffers.end_sending(slot.extra as u16);
        }
        // What has gone beats the error; the next send will meet it again.
        let sent = self.sent_so_far(index);
        Verdict::Event(self.final_event(index, if sent > 0 { sent } else { result }))
    }

    /// What a send that ends has sent, in all its steps, as far as an event's result can say. Of a
    /// buffer of its own the orphan's row says exactly.
    fn sent_so_far(&mut self, index: u32) -> i32 {
        let slot = self.slots.get(index);
        if slot.kind != EventKind::Send {
            return 0;
        }
        let sent = slot.offset + u64::from(slot.progress);
        if slot.has(OWNED) {
            self.orphans.set_sent(slot.extra, sent);
        }
        i32::try_from(sent).unwrap_or(i32::MAX)
    }

    /// An event that ends the operation, unless `MORE` is added.
    #[inline]
    fn final_event(&mut self, index: u32, result: i32) -> Event {
        let slot = self.slots.get(index);
        let mut event = Event {
            user_data: slot.user_data,
            payload: 0,
            result,
            buffer: 0,
            kind: slot.kind,
            flags: 0,
        };
        if slot.has(OWNED) {
            let orphan = slot.extra;
            self.end_owned(orphan, &mut event);
        }
        event
    }

    fn end_owned(&mut self, orphan: u32, event: &mut Event) {
        match self.orphans.end(orphan) {
            Ended::Kept(orphan) => {
                event.flags |= HAS_ORPHAN;
                event.payload = u64::from(orphan.generation) << 32 | u64::from(orphan.index);
            }
            Ended::Abandoned(bytes) => self.free_bytes(bytes),
        }
    }
}
