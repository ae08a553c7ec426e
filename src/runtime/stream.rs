//! Reading and writing a stream: what one poll does.
//!
//! Reading looks at, in this order: the bytes in hand; what the last receive left (an error, told
//! once, or the end, which stays); the socket itself, if it is known to have bytes and the read is a large
//! one; and else asks for one receive into a buffer of the loop, or for a poll if bytes come many at a time
//! and no buffer is lent.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};

use rotor_executor::coop;

use crate::error::SubmitError;
use crate::event_loop::Loop;
use crate::limits::{BULK_BYTES_MIN, DIRECT_READ_BYTES_MIN};
use crate::op::{Descriptor, Interest, Operation};
use crate::runtime::core::{Core, Parking, Shared, Step};
use crate::runtime::dispatch::{Tag, user_data};
use crate::runtime::streams::{Hand, Receiving, Stream};

pub(crate) type Stepped<T> = Step<io::Result<T>>;

pub(crate) fn closed<T>() -> Stepped<T> {
    Step::Ready(Err(SubmitError::Closed.into()))
}

impl Shared {
    /// A read as nearly all are, while the thread cannot enter another runtime: nothing foreign runs.
    /// Nothing for the others, which [`poll_read`](Shared::poll_read) knows.
    // Apart, so that what runs between two system calls is short: each drives it out of the
    // processor's first cache (decision 0012).
    #[inline(always)]
    pub(crate) fn read_usual(
        &self,
        descriptor: Descriptor,
        into: &mut [u8],
        waker: &Waker,
    ) -> Option<Poll<usize>> {
        if into.is_empty() || !coop::may_proceed() {
            return None;
        }
        let usual = self.core.borrow_mut().read_usual(descriptor, into, waker);
        if let Some(Poll::Ready(_)) = usual {
            coop::spend();
        }
        usual
    }

    /// Reads what there is into `into`, which is not empty.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let polled = self.poll_step(cx, |core, parking| core.read(descriptor, into, parking));
        self.spend_if_ready(polled)
    }

    /// Fills `into` as a whole or takes nothing; it is not empty and no longer than a buffer.
    pub(crate) fn poll_read_whole(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        into: &mut [u8],
    ) -> Poll<io::Result<()>> {
        ready!(coop::poll_proceed(cx));
        let polled = self.poll_step(cx, |core, parking| core.read_whole(descriptor, into, parking));
        self.spend_if_ready(polled)
    }

    /// Writes what there is room for; `from` is not empty.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, descriptor, |event_loop| event_loop.send_now(descriptor, from))
    }

    /// As [`poll_write`](Shared::poll_write), from several pieces of which one is not empty.
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, descriptor, |event_loop| event_loop.send_vectored_now(descriptor, from))
    }

    /// Sends at once; a full socket is asked for room.
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        send: impl FnOnce(&mut Loop) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        match self.send_or_wait(descriptor, send) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => self.poll_room(cx, descriptor),
        }
    }

    /// A write as nearly all are; of others, nothing.
    #[inline(always)]
    pub(crate) fn write_usual(
        &self,
        descriptor: Descriptor,
        from: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if from.is_empty() || !coop::may_proceed() {
            return None;
        }
        Some(self.send_or_wait(descriptor, |event_loop| event_loop.send_now(descriptor, from)))
    }

    /// Sends, within the task's budget. `Pending` if there is no room, or others are ahead: nobody
    /// waits for that yet.
    #[inline(always)]
    fn send_or_wait(
        &self,
        descriptor: Descriptor,
        send: impl FnOnce(&mut Loop) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let (sent, over) = {
            let mut core = self.core.borrow_mut();
            (core.send(descriptor, send), core.calls_are_over())
        };
        if over {
            self.executor.cut_short();
        }
        match sent {
            Some(sent) => {
                coop::spend();
                Poll::Ready(sent)
            }
            None => Poll::Pending,
        }
    }

    /// Waits for room to write, or for the sends ahead.
    pub(crate) fn poll_room(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
    ) -> Poll<io::Result<usize>> {
        let polled = self.poll_step(cx, |core, parking| core.wait_for_room(descriptor, parking));
        self.spend_if_ready(polled)
    }

    /// A ready answer costs its task a part of its budget, and a system call the round one of its.
    pub(crate) fn spend_if_ready<T>(&self, polled: Poll<T>) -> Poll<T> {
        if polled.is_ready() {
            coop::spend();
            self.count_calls();
        }
        polled
    }

    /// Ends the round once it has made its share of system calls.
    pub(crate) fn count_calls(&self) {
        if self.core.borrow().calls_are_over() {
            self.executor.cut_short();
        }
    }

    /// The most bytes [`poll_read_whole`](Shared::poll_read_whole) gathers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.core.borrow().event_loop.options().buffer_bytes as usize
    }
}

impl Stream {
    /// Copies bytes in hand, as many as there are and fit.
    pub(crate) fn take(&mut self, event_loop: &mut Loop, into: &mut [u8]) -> usize {
        let Some(hand) = &mut self.hand else { return 0 };
        let count = into.len().min((hand.end - hand.start) as usize);
        let end = hand.start + count as u32;
        event_loop.copy_out(hand.buffer, hand.start..end, &mut into[..count]);
        hand.start = end;
        self.return_if_empty(event_loop);
        count
    }

    /// Receives into the reader's memory; nothing if the socket is empty.
    fn receive_directly(
        &mut self,
        event_loop: &mut Loop,
        descriptor: Descriptor,
        into: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let received = event_loop.receive_now(descriptor, into);
        self.nonempty = matches!(received, Ok(count) if count == into.len());
        match received {
            Ok(count) => {
                self.ended |= count == 0;
                self.bulk = count >= BULK_BYTES_MIN;
            }
            Err(ref error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(_) => {}
        }
        Some(received)
    }

    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take().map(io::Error::from_raw_os_error)
    }
}

impl Core {
    /// Whether the round has made its share of system calls.
    fn calls_are_over(&self) -> bool {
        self.event_loop.immediate_calls() >= self.calls_max
    }

    /// A read as nearly all are: of all the bytes in hand, or the first to wait for more, by a task of
    /// this executor. Nothing for the others, which [`read`](Core::read) knows.
    #[inline(always)]
    fn read_usual(
        &mut self,
        descriptor: Descriptor,
        into: &mut [u8],
        waker: &Waker,
    ) -> Option<Poll<usize>> {
        let stream = self.streams.stream(descriptor)?;
        if stream.receiving != Receiving::No {
            return None;
        }
        if let Some(hand) = &stream.hand {
            let into = into.get_mut(..(hand.end - hand.start) as usize)?;
            self.event_loop.drain_buffer(hand.buffer, hand.start..hand.end, into);
            stream.hand = None;
            return Some(Poll::Ready(into.len()));
        }
        let knows = stream.ended || stream.nonempty || stream.failed.is_some();
        let room = self.wanted.len() < self.wanted.capacity() && self.event_loop.has_operation();
        if knows || stream.reader.is_some() || !room || !rotor_executor::is_native(waker) {
            return None;
        }
        self.event_loop.reserve_operation().ok()?;
        stream.reader = Some(waker.clone());
        stream.receiving = Receiving::Wanted;
        stream.polls = stream.bulk && is_large(into, &self.event_loop);
        self.wanted.push_back(descriptor);
        Some(Poll::Pending)
    }

    /// What a read comes to.
    fn read(
        &mut self,
        descriptor: Descriptor,
        into: &mut [u8],
        parking: &mut Parking<'_>,
    ) -> Stepped<usize> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        let count = stream.take(&mut self.event_loop, into);
        if count > 0 {
            return Step::Ready(Ok(count));
        }
        if let Some(error) = stream.take_error() {
            return Step::Ready(Err(error));
        }
        if stream.ended {
            return Step::Ready(Ok(0));
        }
        if is_large(into, &self.event_loop) && !stream.receiving.is_in_flight() {
            if stream.nonempty {
                if let Some(received) =
                    stream.receive_directly(&mut self.event_loop, descriptor, into)
                {
                    return Step::Ready(received);
                }
            }
            stream.polls = stream.bulk;
        }
        self.arm_receive(descriptor, parking)
    }

    /// Waits for the receive in flight. If there is none it is armed before one of the next ticks, with those
    /// of other tasks: the way to the backend stays in the processor's cache, where the system calls in
    /// between would each time replace it (decision 0011).
    pub(crate) fn arm_receive<T>(
        &mut self,
        descriptor: Descriptor,
        parking: &mut Parking<'_>,
    ) -> Stepped<T> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        let parked = parking.park(&mut stream.reader);
        if let Step::NeedsWaker = parked {
            return parked;
        }
        if stream.receiving == Receiving::No && self.wanted.len() < self.wanted.capacity() {
            if let Err(error) = self.event_loop.reserve_operation() {
                return Step::Ready(Err(error.into()));
            }
            stream.receiving = Receiving::Wanted;
            self.wanted.push_back(descriptor);
            return parked;
        }
        match self.begin_receive(descriptor) {
            Ok(()) => parked,
            Err(error) => Step::Ready(Err(error.into())),
        }
    }

    /// Arms receives that are wanted, in the order they were asked for, as many as the backend had better
    /// have before one tick. The others are wanted still.
    pub(crate) fn arm_wanted(&mut self) {
        let mut left = self.event_loop.receives_per_tick();
        while left > 0 {
            let Some(descriptor) = self.wanted.pop_front() else { return };
            let Some(stream) = self.streams.stream(descriptor) else { continue };
            if stream.receiving != Receiving::Wanted {
                continue;
            }
            left -= 1;
            stream.receiving = Receiving::No;
            self.event_loop.release_operation();
            // The operation was kept for it. It is refused in a child process only, as the tick is
            // that follows.
            let _ = self.begin_receive(descriptor);
        }
    }

    /// Arms a receive if there is none.
    pub(crate) fn begin_receive(&mut self, descriptor: Descriptor) -> Result<(), SubmitError> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return Err(SubmitError::Closed);
        };
        match stream.receiving {
            Receiving::No => {}
            Receiving::Wanted | Receiving::Polled | Receiving::Picked | Receiving::Filling => {
                return Ok(());
            }
        }
        let polls = std::mem::take(&mut stream.polls) && !self.event_loop.lends();
        let submitted = match &stream.hand {
            None if polls => {
                let data = user_data(Tag::Readable, descriptor.index, descriptor.generation);
                stream.receiving = Receiving::Polled;
                self.event_loop.submit(Operation::poll(descriptor, Interest::Readable), data)
            }
            None => {
                let data = user_data(Tag::Receive, descriptor.index, descriptor.generation);
                stream.receiving = Receiving::Picked;
                self.event_loop.submit_receive_picked(descriptor, data)
            }
            Some(hand) => {
                let data = user_data(Tag::Fill, descriptor.index, descriptor.generation);
                stream.receiving = Receiving::Filling;
                self.event_loop.submit_receive_into(descriptor, hand.buffer, hand.end, data)
            }
        };
        if submitted.is_err() {
            stream.receiving = Receiving::No;
        }
        submitted.map(|_| ())
    }

    /// All of `into` or nothing. The bytes gather in the one buffer in hand.
    fn read_whole(
        &mut self,
        descriptor: Descriptor,
        into: &mut [u8],
        parking: &mut Parking<'_>,
    ) -> Stepped<()> {
        let buffer_bytes = self.event_loop.options().buffer_bytes;
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        if stream.in_hand() >= into.len() {
            stream.take(&mut self.event_loop, into);
            return Step::Ready(Ok(()));
        }
        if let Some(error) = stream.take_error() {
            return Step::Ready(Err(error));
        }
        if stream.ended {
            return Step::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        if !stream.receiving.is_in_flight() {
            if let Some(hand) = &mut stream.hand {
                make_room(&mut self.event_loop, hand, into.len(), buffer_bytes);
            }
        }
        self.arm_receive(descriptor, parking)
    }

    /// Sends, unless others are ahead. Nothing if it is to wait.
    #[inline(always)]
    fn send(
        &mut self,
        descriptor: Descriptor,
        send: impl FnOnce(&mut Loop) -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return Some(Err(SubmitError::Closed.into()));
        };
        if stream.sending > 0 || stream.awaiting_room {
            return None;
        }
        match send(&mut self.event_loop) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.full = true;
                None
            }
            sent => Some(sent),
        }
    }

    /// Waits until the sends ahead are over, or else for room.
    fn wait_for_room<T>(
        &mut self,
        descriptor: Descriptor,
        parking: &mut Parking<'_>,
    ) -> Stepped<T> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        let behind = stream.sending > 0;
        let parked = parking.park(&mut stream.writer);
        if let (false, Step::Parked) = (behind, &parked) {
            if let Err(error) = self.await_room(descriptor) {
                return Step::Ready(Err(error.into()));
            }
        }
        parked
    }

    /// Has the writers woken once the socket has room.
    pub(crate) fn await_room(&mut self, descriptor: Descriptor) -> Result<(), SubmitError> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return Err(SubmitError::Closed);
        };
        if !stream.awaiting_room {
            let data = user_data(Tag::Room, descriptor.index, descriptor.generation);
            self.event_loop.submit(Operation::poll(descriptor, Interest::Writable), data)?;
            stream.awaiting_room = true;
        }
        Ok(())
    }
}

/// Whether a read into so much memory may go to the socket directly.
fn is_large(into: &[u8], event_loop: &Loop) -> bool {
    into.len() >= DIRECT_READ_BYTES_MIN.min(event_loop.options().buffer_bytes as usize)
}

/// Moves the bytes in hand to the buffer's start if `wanted` bytes do not fit behind theirs.
fn make_room(event_loop: &mut Loop, hand: &mut Hand, wanted: usize, buffer_bytes: u32) {
    if hand.start as usize + wanted > buffer_bytes as usize {
        event_loop.compact(hand.buffer, hand.start..hand.end);
        hand.end -= hand.start;
        hand.start = 0;
    }
}
