//! Taking a descriptor out of the runtime: what is in flight on it is canceled and waited for, so that
//! nothing of it is lost, and then it is given up.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use crate::error::SubmitError;
use crate::op::Descriptor;
use crate::runtime::core::{Core, Parking, Shared, Step};
use crate::runtime::stream::{Stepped, closed};
use crate::runtime::streams::Row;
use crate::runtime::waiters::Ticket;
use crate::runtime::watchers::Sides;

/// A descriptor given up, or what keeps it here: bytes in hand, or an error nobody was told.
pub(crate) enum GivenUp {
    /// It is the caller's.
    Taken(OwnedFd),
    /// These bytes were received and not read.
    Bytes(Vec<u8>),
    /// This error was met and not told. Bytes may come before it.
    Failed(io::Error),
    /// A connection was accepted and not taken.
    Connection,
}

impl Shared {
    /// Waits until nothing is in flight on a stream, and takes it out unless something is in hand.
    pub(crate) fn poll_give_up_stream(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
        ticket: &mut Ticket,
    ) -> Poll<io::Result<GivenUp>> {
        let mut held = None;
        let polled = self.poll_step(cx, |core, parking| {
            core.give_up_stream(descriptor, ticket, parking, &mut held)
        });
        drop(held);
        polled
    }

    /// As [`poll_give_up_stream`](Shared::poll_give_up_stream), a listener.
    pub(crate) fn poll_give_up_listener(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
    ) -> Poll<io::Result<GivenUp>> {
        let mut held = None;
        let polled = self
            .poll_step(cx, |core, parking| core.give_up_listener(descriptor, parking, &mut held));
        drop(held);
        polled
    }
}

impl Core {
    fn give_up_stream(
        &mut self,
        descriptor: Descriptor,
        ticket: &mut Ticket,
        parking: &mut Parking<'_>,
        held: &mut Option<Row>,
    ) -> Stepped<GivenUp> {
        if let Err(error) = self.event_loop.check_numbers() {
            return Step::Ready(Err(error));
        }
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        if stream.receiving.is_in_flight() || stream.awaiting_room || stream.sending > 0 {
            self.event_loop.cancel_waiting(descriptor);
            let watchers = stream.watchers.get_or_insert_default();
            return watchers.park(ticket, Sides { read: true, write: true }, parking);
        }
        if let Some(hand) = stream.hand.as_ref().filter(|hand| hand.start < hand.end) {
            let bytes = self.event_loop.bytes(hand.buffer, hand.start..hand.end).to_vec();
            return Step::Ready(Ok(GivenUp::Bytes(bytes)));
        }
        if let Some(errno) = stream.failed {
            return Step::Ready(Ok(GivenUp::Failed(io::Error::from_raw_os_error(errno))));
        }
        self.take_out(descriptor, held)
    }

    fn give_up_listener(
        &mut self,
        descriptor: Descriptor,
        parking: &mut Parking<'_>,
        held: &mut Option<Row>,
    ) -> Stepped<GivenUp> {
        if let Err(error) = self.event_loop.check_numbers() {
            return Step::Ready(Err(error));
        }
        let Some(row) = self.streams.listener(descriptor) else {
            return closed();
        };
        if row.accepting {
            self.event_loop.cancel_waiting(descriptor);
            return parking.park(&mut row.poller);
        }
        if row.accepted.is_some() {
            return Step::Ready(Ok(GivenUp::Connection));
        }
        self.take_out(descriptor, held)
    }

    fn take_out(&mut self, descriptor: Descriptor, held: &mut Option<Row>) -> Stepped<GivenUp> {
        let Some(fd) = self.event_loop.give_up(descriptor) else {
            return Step::Ready(Err(SubmitError::Closed.into()));
        };
        *held = self.vacate(descriptor);
        if let Some(row) = self.streams.row(descriptor) {
            // Nothing is being received into: the row is free.
            *row = Row::Vacant;
        }
        Step::Ready(Ok(GivenUp::Taken(fd)))
    }

    /// Takes a descriptor in that was opened elsewhere.
    pub(crate) fn adopt(
        &mut self,
        fd: OwnedFd,
        kind: crate::tables::sockets::DescriptorKind,
    ) -> io::Result<Descriptor> {
        use crate::tables::sockets::DescriptorKind;
        let descriptor = self.event_loop.adopt(fd, kind)?;
        match kind {
            DescriptorKind::Stream => self.put_stream(descriptor),
            DescriptorKind::Listener => self.put_listener(descriptor),
            DescriptorKind::File => self.put_file(descriptor),
        }
        Ok(descriptor)
    }
}
