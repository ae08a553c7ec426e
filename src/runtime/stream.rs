//! Reading and writing a stream: what one poll does.
//!
//! Reading looks at, in this order: the bytes in hand; what the last receive left (an error, told
//! once, or the end, which stays); the socket itself, if the last receive said it has more and the read is a large one; and
//! else arms one receive into a buffer picked when bytes arrive.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rotor_executor::coop;

use crate::error::SubmitError;
use crate::event_loop::Loop;
use crate::limits::DIRECT_READ_BYTES_MIN;
use crate::op::{Descriptor, Interest, Operation};
use crate::runtime::core::{Core, Parking, Shared, Step};
use crate::runtime::dispatch::{Noted, Tag, user_data};
use crate::runtime::streams::{Hand, Receiving, Stream};

pub(crate) type Stepped<T> = Step<io::Result<T>>;

pub(crate) fn closed<T>() -> Stepped<T> {
    Step::Ready(Err(SubmitError::Closed.into()))
}

impl Shared {
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
        ready!(coop::poll_proceed(cx));
        let mut blocked = false;
        let polled = self.poll_step(cx, |core, parking| {
            let send = |event_loop: &mut Loop| event_loop.send_now(descriptor, from);
            core.write(descriptor, parking, &mut blocked, send)
        });
        self.spend_if_ready(polled)
    }

    /// As [`poll_write`](Shared::poll_write), from several pieces of which one is not empty.
    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let mut blocked = false;
        let polled = self.poll_step(cx, |core, parking| {
            let send = |event_loop: &mut Loop| event_loop.send_vectored_now(descriptor, from);
            core.write(descriptor, parking, &mut blocked, send)
        });
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
        let core = self.core.borrow();
        if core.event_loop.immediate_calls() >= core.calls_max {
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
        into[..count].copy_from_slice(event_loop.bytes(hand.buffer, hand.start..end));
        hand.start = end;
        self.return_if_empty(event_loop);
        count
    }

    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.failed.take().map(io::Error::from_raw_os_error)
    }
}

impl Core {
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
        let buffer_bytes = self.event_loop.options().buffer_bytes as usize;
        let large = into.len() >= DIRECT_READ_BYTES_MIN.min(buffer_bytes);
        if large && stream.nonempty && stream.receiving == Receiving::No {
            let received = self.event_loop.receive_now(descriptor, into);
            stream.nonempty = matches!(received, Ok(count) if count == into.len());
            match received {
                Ok(0) => stream.ended = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.arm_receive(descriptor, parking);
                }
                Err(_) => {}
            }
            return Step::Ready(received);
        }
        self.arm_receive(descriptor, parking)
    }

    /// Waits for the receive in flight. If there is none it is armed before the next tick, with those of
    /// other tasks: the way to the backend stays in the processor's cache, where the system calls in
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
            return match self.event_loop.reserve_operation() {
                Ok(()) => {
                    stream.receiving = Receiving::Wanted;
                    self.wanted.push(descriptor);
                    parked
                }
                Err(error) => Step::Ready(Err(error.into())),
            };
        }
        match self.begin_receive(descriptor) {
            Ok(()) => parked,
            Err(error) => Step::Ready(Err(error.into())),
        }
    }

    /// Arms the receives that are wanted, in the order they were asked for. Answers the first the loop had no room for; the others are
    /// left for another call.
    pub(crate) fn arm_wanted(&mut self) -> Option<Noted> {
        while let Some(&descriptor) = self.wanted.get(self.wanted_armed) {
            self.wanted_armed += 1;
            self.event_loop.release_operation();
            let Some(stream) = self.streams.stream(descriptor) else { continue };
            if stream.receiving != Receiving::Wanted {
                continue;
            }
            stream.receiving = Receiving::No;
            if self.begin_receive(descriptor).is_err() {
                return self.refused(descriptor);
            }
        }
        self.wanted.clear();
        self.wanted_armed = 0;
        None
    }

    #[cold]
    fn refused(&mut self, descriptor: Descriptor) -> Option<Noted> {
        let stream = self.streams.stream(descriptor)?;
        stream.receiving = Receiving::Refused;
        Some(stream.noted_readable(descriptor))
    }

    /// Arms a receive if there is none.
    pub(crate) fn begin_receive(&mut self, descriptor: Descriptor) -> Result<(), SubmitError> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return Err(SubmitError::Closed);
        };
        match stream.receiving {
            Receiving::No | Receiving::Refused => {}
            Receiving::Wanted | Receiving::Picked | Receiving::Filling => return Ok(()),
        }
        let submitted = match &stream.hand {
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

    /// Sends at once; a full socket is asked for room first. `blocked` is kept over the two steps of
    /// one poll, so that a full socket is not tried twice.
    fn write(
        &mut self,
        descriptor: Descriptor,
        parking: &mut Parking<'_>,
        blocked: &mut bool,
        send: impl FnOnce(&mut Loop) -> io::Result<usize>,
    ) -> Stepped<usize> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        if stream.sending > 0 {
            return parking.park(&mut stream.writer);
        }
        if !stream.awaiting_room && !*blocked {
            match send(&mut self.event_loop) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *blocked = true;
                    stream.full = true;
                }
                sent => return Step::Ready(sent),
            }
        }
        let parked = parking.park(&mut stream.writer);
        if let Step::NeedsWaker = parked {
            return parked;
        }
        match self.await_room(descriptor) {
            Ok(()) => parked,
            Err(error) => Step::Ready(Err(error.into())),
        }
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

/// Moves the bytes in hand to the buffer's start if `wanted` bytes do not fit behind theirs.
fn make_room(event_loop: &mut Loop, hand: &mut Hand, wanted: usize, buffer_bytes: u32) {
    if hand.start as usize + wanted > buffer_bytes as usize {
        event_loop.compact(hand.buffer, hand.start..hand.end);
        hand.end -= hand.start;
        hand.start = 0;
    }
}
