//! Accepting: what one poll does.
//!
//! The accept in flight and the connection it brings belong to the listener. Futures queue for it;
//! each event wakes the first, and one that goes away after it was woken passes its turn on.
//!
//! Accepting admits: while no task's cell, no socket or no operation is free, nothing is accepted
//! and nothing handed out, and connections stay in the kernel's backlog. Such a listener is *held*
//! until something has ended. An accept reserves a socket's row before it is with the kernel; when rows
//! are short, one that nobody awaits any more leaves its row, or its place in line, to the others.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use rotor_executor::coop;

use crate::error::SubmitError;
use crate::op::{Control, Descriptor, Operation};
use crate::runtime::answers::address_of;
use crate::runtime::core::{Core, Parking, Shared, Step};
use crate::runtime::dispatch::{Tag, user_data};
use crate::runtime::waiters::Ticket;

type Accepted = io::Result<(Descriptor, SocketAddr)>;

impl Shared {
    /// A connection and its address. With a ticket the future queues; without one it stands beside
    /// the queue, in place of whoever stood there before.
    pub(crate) fn poll_accept(
        &self,
        cx: &mut Context<'_>,
        listener: Descriptor,
        mut ticket: Option<&mut Ticket>,
    ) -> Poll<Accepted> {
        ready!(coop::poll_proceed(cx));
        let polled = self.poll_step(cx, |core, parking| {
            let cell_free = self.executor.free_tasks() > 0;
            core.accept(listener, cell_free, ticket.as_deref_mut(), parking)
        });
        if polled.is_ready() {
            coop::spend();
            if let Some(ticket) = ticket {
                self.leave(listener, std::mem::take(ticket));
            }
        }
        polled
    }

    /// A future that is done no longer queues.
    fn leave(&self, listener: Descriptor, ticket: Ticket) {
        let left = {
            let mut core = self.core.borrow_mut();
            core.streams.listener(listener).and_then(|row| row.waiters.leave(ticket))
        };
        drop(left);
    }

    /// A future that is dropped no longer queues. If its turn had come, the next one's has.
    pub(crate) fn give_up(&self, listener: Descriptor, ticket: Ticket) {
        let (left, next) = {
            let mut core = self.core.borrow_mut();
            let Some(row) = core.streams.listener(listener) else {
                return;
            };
            let left = row.waiters.leave(ticket);
            // With an accept in flight, or held, the next event or release wakes the next one.
            let pass_on = left.is_none() && !row.accepting && !row.held;
            let next = if pass_on { row.waiters.next() } else { None };
            core.give_way();
            (left, next)
        };
        drop(left);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl Core {
    fn accept(
        &mut self,
        listener: Descriptor,
        cell_free: bool,
        ticket: Option<&mut Ticket>,
        parking: &mut Parking<'_>,
    ) -> Step<Accepted> {
        let Some(row) = self.streams.listener(listener) else {
            return Step::Ready(Err(SubmitError::Closed.into()));
        };
        if let Some(errno) = row.failed.take() {
            self.accept_for_others(listener);
            return Step::Ready(Err(io::Error::from_raw_os_error(errno)));
        }
        if cell_free {
            if let Some(descriptor) = row.accepted.take() {
                self.put_stream(descriptor);
                self.accept_for_others(listener);
                return Step::Ready(self.with_address(descriptor));
            }
        }
        let parked = match ticket {
            Some(ticket) => row.waiters.park(ticket, parking),
            None => parking.park(&mut row.poller),
        };
        if let Step::NeedsWaker = parked {
            return parked;
        }
        if !cell_free {
            self.hold(listener);
            self.held_for_task = true;
            return parked;
        }
        match self.arm_accept(listener) {
            Ok(()) => {
                self.give_way();
                parked
            }
            Err(SubmitError::Full { .. }) => {
                self.hold(listener);
                parked
            }
            Err(error @ (SubmitError::Closed | SubmitError::Connecting | SubmitError::Forked)) => {
                Step::Ready(Err(error.into()))
            }
        }
    }

    /// The address was noted when the connection came; the kernel no longer knows it once the peer
    /// has reset.
    fn with_address(&mut self, descriptor: Descriptor) -> Accepted {
        if let Some(address) = self.event_loop.peer_address(descriptor) {
            return Ok((descriptor, address));
        }
        let answer = self.event_loop.control(Control::PeerAddress(descriptor));
        match answer.and_then(address_of) {
            Ok(address) => Ok((descriptor, address)),
            Err(error) => {
                // A stream just moved in: its row holds no waker.
                self.close(descriptor);
                Err(error)
            }
        }
    }

    pub(crate) fn arm_accept(&mut self, listener: Descriptor) -> Result<(), SubmitError> {
        let Some(row) = self.streams.listener(listener) else {
            return Err(SubmitError::Closed);
        };
        let rests = row.shortage.as_ref().is_some_and(|shortage| shortage.rests);
        if row.accepting || row.accepted.is_some() || rests {
            return Ok(());
        }
        let data = user_data(Tag::Accept, listener.index, listener.generation);
        self.event_loop.submit(Operation::accept(listener), data)?;
        row.accepting = true;
        Ok(())
    }

    /// While accepts wait for a row, those of listeners nobody awaits give way: they may have the last
    /// row, or be the first in line for the next. Nothing is lost: a connection that one of them brings
    /// all the same stays with its listener.
    fn give_way(&mut self) {
        if !self.event_loop.accepts_starve() {
            return;
        }
        let mut from = 0;
        while let Some(descriptor) = self.streams.next_open(from) {
            from = descriptor.index + 1;
            let listener = self.streams.listener(descriptor);
            if listener.is_some_and(|row| row.accepting && !row.is_awaited()) {
                self.event_loop.cancel_receives(descriptor);
            }
        }
    }

    /// One future got what it waited for; those behind it wait for the next connection.
    fn accept_for_others(&mut self, listener: Descriptor) {
        match self.streams.listener(listener) {
            Some(row) if !row.waiters.is_empty() => {}
            Some(_) | None => return,
        }
        // Whatever is wrong now, the next in the queue is told when it is released.
        if self.arm_accept(listener).is_err() {
            self.hold(listener);
        }
    }

    pub(crate) fn hold(&mut self, listener: Descriptor) {
        let Some(row) = self.streams.listener(listener) else {
            return;
        };
        if !row.held && self.held.len() < self.held.capacity() {
            row.held = true;
            self.held.push(listener);
        }
    }
}
