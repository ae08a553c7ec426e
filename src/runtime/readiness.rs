//! Readiness: looking at a stream without taking anything, and trying without waiting.
//!
//! It is the same state that reads and writes use. To wait until a stream is readable is to arm its
//! receive: the bytes come into hand and stay there, so whichever call is next, they come first.

use std::io::{self, IoSlice, IoSliceMut};
use std::task::{Context, Poll, ready};

use rotor_executor::coop;

use crate::event_loop::Loop;
use crate::op::Descriptor;
use crate::runtime::core::{Core, Parking, Shared, Step};
use crate::runtime::stream::{Stepped, closed};
use crate::runtime::streams::Stream;
use crate::runtime::waiters::Ticket;
use crate::runtime::watchers::Sides;

/// What a stream is ready for, and whether its receiving side is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) sides: Sides,
    pub(crate) over: bool,
}

impl Shared {
    /// Waits until the stream is ready for one of the sides.
    pub(crate) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        sides: Sides,
        ticket: &mut Ticket,
    ) -> Poll<io::Result<Readiness>> {
        ready!(coop::poll_proceed(cx));
        let polled =
            self.poll_step(cx, |core, parking| core.ready(descriptor, sides, ticket, parking));
        self.spend_if_ready(polled)
    }

    /// Copies what is in hand and leaves it there; `into` is not empty.
    pub(crate) fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        into: &mut [u8],
        ticket: &mut Ticket,
    ) -> Poll<io::Result<usize>> {
        ready!(coop::poll_proceed(cx));
        let polled = self.poll_step(cx, |core, parking| {
            let peeked = core.peek(descriptor, into);
            match peeked {
                Some(peeked) => Step::Ready(peeked),
                None => core.watch(descriptor, Sides::READ, ticket, parking),
            }
        });
        self.spend_if_ready(polled)
    }

    /// Reads without waiting; one piece is not empty.
    pub(crate) fn try_read(
        &self,
        descriptor: Descriptor,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let read = self.core.borrow_mut().try_read(descriptor, into);
        self.count_calls();
        read
    }

    /// Writes without waiting; `from` is not empty.
    pub(crate) fn try_write(&self, descriptor: Descriptor, from: &[u8]) -> io::Result<usize> {
        self.send_at_once(descriptor, |event_loop| event_loop.send_now(descriptor, from))
    }

    /// As [`try_write`](Shared::try_write), from several pieces of which one is not empty.
    pub(crate) fn try_write_vectored(
        &self,
        descriptor: Descriptor,
        from: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        self.send_at_once(descriptor, |event_loop| event_loop.send_vectored_now(descriptor, from))
    }

    fn send_at_once(
        &self,
        descriptor: Descriptor,
        send: impl FnOnce(&mut Loop) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let sent = {
            let mut core = self.core.borrow_mut();
            let sent = send(&mut core.event_loop);
            if matches!(&sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                if let Some(stream) = core.streams.stream(descriptor) {
                    stream.full |= stream.sending == 0;
                }
            }
            sent
        };
        self.count_calls();
        sent
    }

    /// A future that waited for readiness is dropped.
    pub(crate) fn stop_watching(&self, descriptor: Descriptor, ticket: Ticket) {
        let left = {
            let mut core = self.core.borrow_mut();
            let stream = core.streams.stream(descriptor);
            stream.and_then(|stream| stream.watchers.as_mut()?.leave(ticket))
        };
        drop(left);
    }
}

impl Core {
    fn ready(
        &mut self,
        descriptor: Descriptor,
        sides: Sides,
        ticket: &mut Ticket,
        parking: &mut Parking<'_>,
    ) -> Stepped<Readiness> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        let read = sides.read && stream.is_readable();
        let write = sides.write && stream.is_writable();
        if read || write {
            let over = sides.read && (stream.ended || stream.failed.is_some());
            return Step::Ready(Ok(Readiness { sides: Sides { read, write }, over }));
        }
        self.watch(descriptor, sides, ticket, parking)
    }

    /// Waits beside others for a stream that is not ready.
    fn watch<T>(
        &mut self,
        descriptor: Descriptor,
        sides: Sides,
        ticket: &mut Ticket,
        parking: &mut Parking<'_>,
    ) -> Stepped<T> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        let watchers = stream.watchers.get_or_insert_default();
        let parked = watchers.park(ticket, sides, parking);
        if let Step::NeedsWaker = parked {
            return parked;
        }
        let received = if sides.read { self.begin_receive(descriptor) } else { Ok(()) };
        // Behind queued sends it is their end that is waited for.
        let queued = self.streams.stream(descriptor).is_some_and(|it| it.sending > 0);
        let for_room = sides.write && !queued;
        let awaited = if for_room { self.await_room(descriptor) } else { Ok(()) };
        match received.and(awaited) {
            Ok(()) => parked,
            Err(error) => Step::Ready(Err(error.into())),
        }
    }

    fn peek(&mut self, descriptor: Descriptor, into: &mut [u8]) -> Option<io::Result<usize>> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return Some(Err(crate::error::SubmitError::Closed.into()));
        };
        if let Some(hand) = stream.hand.as_ref().filter(|hand| hand.start < hand.end) {
            let count = into.len().min((hand.end - hand.start) as usize);
            let end = hand.start + count as u32;
            self.event_loop.copy_out(hand.buffer, hand.start..end, &mut into[..count]);
            return Some(Ok(count));
        }
        if let Some(errno) = stream.failed {
            return Some(Err(io::Error::from_raw_os_error(errno)));
        }
        stream.ended.then_some(Ok(0))
    }

    fn try_read(
        &mut self,
        descriptor: Descriptor,
        into: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return Err(crate::error::SubmitError::Closed.into());
        };
        let mut count = 0;
        for piece in into.iter_mut() {
            count += stream.take(&mut self.event_loop, piece);
        }
        if count > 0 {
            return Ok(count);
        }
        if let Some(error) = stream.take_error() {
            return Err(error);
        }
        if stream.ended {
            return Ok(0);
        }
        if stream.receiving.is_in_flight() {
            // What arrives belongs to that receive, and comes into hand.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for piece in into.iter_mut().filter(|piece| !piece.is_empty()) {
            match receive_piece(stream, &mut self.event_loop, descriptor, piece) {
                Ok(received) => {
                    count += received;
                    if received < piece.len() {
                        break;
                    }
                }
                Err(error) if count == 0 => return Err(error),
                // The bytes come first, and the error with the next read.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    stream.failed = error.raw_os_error();
                    break;
                }
            }
        }
        Ok(count)
    }
}

fn receive_piece(
    stream: &mut Stream,
    event_loop: &mut Loop,
    descriptor: Descriptor,
    piece: &mut [u8],
) -> io::Result<usize> {
    let received = event_loop.receive_now(descriptor, piece);
    stream.nonempty = matches!(received, Ok(count) if count == piece.len());
    stream.ended |= matches!(received, Ok(0));
    received
}
