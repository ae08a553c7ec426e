//! One-shot operations that a future waits for: timers, connects, positional reads and writes.
//!
//! A row outlives the future. It is given out when the operation is submitted and freed when the
//! operation's final event has come *and* the future has taken it or is gone.

use std::task::{Context, Poll, Waker};

use crate::error::{CreateError, SubmitError};
use crate::event::Event;
use crate::event_loop::Loop;
use crate::op::{Action, Descriptor, Handle, Operation, OrphanId, OwnedOperation};
use crate::runtime::core::{Core, Parking, Shared, Step, table};
use crate::runtime::current::find;
use crate::runtime::dispatch::{Tag, user_data};
use crate::tables::orphans::OwnedBytes;

/// Names a row; stale once the row is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

enum State {
    /// Nobody's; `next` is the free row after it, or [`NONE`].
    Free { next: u32 },
    /// The operation is in flight. The handle is absent only inside [`Waits::start`].
    Pending { handle: Option<Handle>, waker: Option<Waker> },
    /// Its final event has come, the future has not taken it.
    Ready(Event),
    /// In flight, and the future is gone: whatever the final event brings is let go.
    Abandoned,
}

struct Row {
    generation: u32,
    /// The stream that counts this among its queued sends.
    sends_for: Option<Descriptor>,
    state: State,
}

const NONE: u32 = u32::MAX;

/// The table. Rows come into being as they are first used, up to the limit.
pub(crate) struct Waits {
    rows: Vec<Row>,
    free: u32,
}

/// What a final event leaves to do once the borrow has ended.
pub(crate) enum Ended {
    /// Wake the future, if it waits.
    Wake(Option<Waker>),
    /// The future is gone: let go what the event brought.
    LetGo,
    /// No such row.
    Unknown,
}

impl Waits {
    /// Memory for `limit` rows, in bytes.
    pub(crate) fn memory_bytes(limit: u32) -> usize {
        limit as usize * size_of::<Row>()
    }

    pub(crate) fn new(limit: u32) -> Result<Waits, CreateError> {
        Ok(Waits { rows: table(limit)?, free: NONE })
    }

    /// A row in state `Pending`, or nothing when all are in use.
    fn take(&mut self) -> Option<WaitKey> {
        let pending = State::Pending { handle: None, waker: None };
        if self.free != NONE {
            let index = self.free;
            let row = &mut self.rows[index as usize];
            let State::Free { next } = row.state else {
                unreachable!("rotor: a row on the free list is in use");
            };
            self.free = next;
            row.state = pending;
            row.sends_for = None;
            return Some(WaitKey { index, generation: row.generation });
        }
        if self.rows.len() == self.rows.capacity() {
            return None;
        }
        let index = self.rows.len() as u32;
        self.rows.push(Row { generation: 1, sends_for: None, state: pending });
        Some(WaitKey { index, generation: 1 })
    }

    /// Frees the row and hands out what it held, to be dropped after the borrow.
    fn release(&mut self, index: u32) -> State {
        let row = &mut self.rows[index as usize];
        row.generation = row.generation.wrapping_add(1);
        let held = std::mem::replace(&mut row.state, State::Free { next: self.free });
        self.free = index;
        held
    }

    fn row(&mut self, key: WaitKey) -> Option<&mut Row> {
        let row = self.rows.get_mut(key.index as usize)?;
        (row.generation == key.generation).then_some(row)
    }

    /// Takes note of a final event.
    pub(crate) fn end(&mut self, key: WaitKey, event: Event) -> Ended {
        let Some(row) = self.row(key) else {
            return Ended::Unknown;
        };
        match &mut row.state {
            State::Pending { waker, .. } => {
                let waker = waker.take();
                row.state = State::Ready(event);
                Ended::Wake(waker)
            }
            State::Abandoned => {
                self.release(key.index);
                Ended::LetGo
            }
            State::Ready(_) | State::Free { .. } => Ended::Unknown,
        }
    }

    /// Every waker that is still stored, one a call; nothing when there are no more.
    pub(crate) fn take_waker(&mut self, from: &mut usize) -> Option<Waker> {
        while let Some(row) = self.rows.get_mut(*from) {
            *from += 1;
            match &mut row.state {
                State::Pending { waker, .. } => {
                    if let Some(waker) = waker.take() {
                        return Some(waker);
                    }
                }
                State::Free { .. } | State::Ready(_) | State::Abandoned => {}
            }
        }
        None
    }

    /// The stream whose queued send a row is.
    pub(crate) fn sends_for(&mut self, key: WaitKey) -> Option<Descriptor> {
        self.row(key)?.sends_for
    }

    fn remember(&mut self, key: WaitKey, handle: Handle) {
        if let Some(row) = self.row(key) {
            row.state = State::Pending { handle: Some(handle), waker: None };
        }
    }
}

impl Core {
    /// Submits an operation that a future will wait for.
    pub(crate) fn start(&mut self, operation: Operation) -> Result<WaitKey, SubmitError> {
        let key = self.take_wait(matches!(operation.action, Action::Timer { .. }))?;
        let data = user_data(Tag::Wait, key.index, key.generation);
        match self.event_loop.submit(operation, data) {
            Ok(handle) => {
                self.waits.remember(key, handle);
                Ok(key)
            }
            Err(error) => {
                self.waits.release(key.index);
                Err(error)
            }
        }
    }

    /// As [`start`](Core::start), with a buffer that the loop keeps until the final event.
    pub(crate) fn start_owned(
        &mut self,
        operation: OwnedOperation,
        buffer: Vec<u8>,
    ) -> Result<(WaitKey, OrphanId), (SubmitError, Vec<u8>)> {
        let key = match self.take_wait(false) {
            Ok(key) => key,
            Err(error) => return Err((error, buffer)),
        };
        let data = user_data(Tag::Wait, key.index, key.generation);
        match self.event_loop.submit_owned(operation, buffer, data) {
            Ok((handle, orphan)) => {
                self.waits.remember(key, handle);
                Ok((key, orphan))
            }
            Err(refused) => {
                self.waits.release(key.index);
                Err(refused)
            }
        }
    }

    /// Queues a send with a buffer of its own. It goes on when its future is dropped.
    pub(crate) fn start_send(
        &mut self,
        descriptor: Descriptor,
        bytes: OwnedBytes,
        from: usize,
    ) -> Result<(WaitKey, OrphanId), (SubmitError, OwnedBytes)> {
        let key = match self.take_wait(false) {
            Ok(key) => key,
            Err(error) => return Err((error, bytes)),
        };
        let data = user_data(Tag::Send, key.index, key.generation);
        match self.event_loop.submit_send(descriptor, bytes, from, data) {
            Ok((handle, orphan)) => {
                self.waits.remember(key, handle);
                if let Some(row) = self.waits.row(key) {
                    row.sends_for = Some(descriptor);
                }
                if let Some(stream) = self.streams.stream(descriptor) {
                    stream.sending += 1;
                }
                Ok((key, orphan))
            }
            Err(refused) => {
                self.waits.release(key.index);
                Err(refused)
            }
        }
    }

    /// A row. There are as many as operations and timers together; one that is over keeps its row
    /// until its future has taken the event.
    fn take_wait(&mut self, timer: bool) -> Result<WaitKey, SubmitError> {
        let options = self.event_loop.options();
        let (option, limit) =
            if timer { ("timers", options.timers) } else { ("operations", options.operations) };
        self.waits.take().ok_or(SubmitError::Full { option, limit })
    }
}

/// Lets go what an event of nobody brought.
pub(crate) fn let_go(event_loop: &mut Loop, event: &Event) {
    if let Some(orphan) = event.orphan() {
        event_loop.abandon(orphan);
    }
    if let Some(buffer) = event.buffer() {
        event_loop.return_buffer(buffer);
    }
    if let Some(descriptor) = event.descriptor() {
        // A refusal means the loop is not ours any more (a forked child); nothing is left to do.
        let _ = event_loop.submit(
            Operation::close(descriptor),
            user_data(Tag::Close, descriptor.index, descriptor.generation),
        );
    }
}

/// A future's hold on a row. Dropping it cancels the operation.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) loop_id: u32,
    key: WaitKey,
    taken: bool,
}

impl Wait {
    pub(crate) fn new(loop_id: u32, key: WaitKey) -> Wait {
        Wait { loop_id, key, taken: false }
    }

    /// The final event, once it has come. Not to be polled again after it gave one.
    pub(crate) fn poll(&mut self, shared: &Shared, cx: &mut Context<'_>) -> Poll<Event> {
        let key = self.key;
        let polled = shared.poll_step(cx, |core, parking: &mut Parking<'_>| {
            let Some(row) = core.waits.row(key) else {
                unreachable!("rotor: a future's wait was freed before its final event");
            };
            match &mut row.state {
                State::Pending { waker, .. } => parking.park(waker),
                State::Ready(event) => {
                    let event = *event;
                    core.waits.release(key.index);
                    Step::Ready(event)
                }
                State::Free { .. } | State::Abandoned => {
                    unreachable!("rotor: a future's wait was let go while it was polled")
                }
            }
        });
        self.taken |= polled.is_ready();
        polled
    }
}

impl Wait {
    /// Moves the timer it waits for to another deadline. False: it is not armed any more.
    pub(crate) fn reset_timer(&self, deadline_ns: u64) -> bool {
        let Some(shared) = find(self.loop_id) else { return false };
        let mut core = shared.core.borrow_mut();
        let core = &mut *core;
        let Some(row) = core.waits.row(self.key) else { return false };
        let State::Pending { handle: Some(handle), .. } = row.state else { return false };
        core.event_loop.reset_timer(handle, deadline_ns)
    }

    /// Whoever waits, to be woken by other means.
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        let shared = find(self.loop_id)?;
        let mut core = shared.core.borrow_mut();
        match &mut core.waits.row(self.key)?.state {
            State::Pending { waker, .. } => waker.take(),
            State::Free { .. } | State::Ready(_) | State::Abandoned => None,
        }
    }

    /// Leaves the operation to itself: it runs to its end, and its final event is let go.
    pub(crate) fn detach(mut self) {
        self.let_go(false);
    }

    fn let_go(&mut self, cancel: bool) {
        if std::mem::replace(&mut self.taken, true) {
            return;
        }
        let Some(shared) = find(self.loop_id) else {
            return;
        };
        let waker = {
            let mut core = shared.core.borrow_mut();
            let core = &mut *core;
            let Some(row) = core.waits.row(self.key) else {
                return;
            };
            match &mut row.state {
                State::Pending { handle, waker } => {
                    let waker = waker.take();
                    let handle = handle.filter(|_| cancel);
                    if handle.is_some_and(|handle| core.event_loop.forget_timer(handle)) {
                        // No event comes of it.
                        core.waits.release(self.key.index);
                    } else {
                        if let Some(handle) = handle {
                            core.event_loop.cancel(handle);
                        }
                        row.state = State::Abandoned;
                    }
                    waker
                }
                State::Ready(event) => {
                    let event = *event;
                    core.waits.release(self.key.index);
                    let_go(&mut core.event_loop, &event);
                    None
                }
                State::Free { .. } | State::Abandoned => None,
            }
        };
        drop(waker);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.let_go(true);
    }
}
