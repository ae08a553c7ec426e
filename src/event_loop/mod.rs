#![deny(unsafe_code)]
//! The loop: it owns the tables, decides what the backend is asked and when, and answers each
//! operation with exactly one final event. It knows nothing of futures.

mod cancel;
mod clock;
mod close;
mod complete;
mod control;
mod create;
mod drain;
mod immediate;
mod lend;
mod owned;
mod statistics;
mod submit;
mod tick;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

pub use create::backend;
pub use drain::Drained;
pub use statistics::{ImmediateCalls, Statistics, Waits};
pub use tick::Wait;

use crate::backend::Driver;
use crate::error::SubmitError;
use crate::event_loop::clock::Clock;
use crate::op::{BufferId, Descriptor};
use crate::options::Options;
use crate::tables::arena::Arena;
use crate::tables::buffers::Buffers;
use crate::tables::list::List;
use crate::tables::orphans::Orphans;
use crate::tables::slots::Slots;
use crate::tables::sockets::Sockets;
use crate::tables::tokens::Tokens;
use crate::tables::wheel::Wheel;

/// A completion loop: operations go in, events come out.
///
/// It belongs to the thread that made it. Dropping it cancels what is in flight and waits, at most
/// for the option `drain`, until every operation has ended; what the kernel will not end in that
/// time keeps its memory for good.
///
/// ```
/// use rotor::{Event, Loop, Operation, Wait};
///
/// let mut event_loop = Loop::new(&rotor::runtime::Options::default())?;
/// let due = event_loop.now() + 1_000_000;
/// event_loop.submit(Operation::timer(due), 7)?;
/// let mut events = [Event::EMPTY; 8];
/// let count = event_loop.tick(&mut events, Wait::Forever)?;
/// assert_eq!(count, 1);
/// assert_eq!(events[0].user_data(), 7);
/// assert!(event_loop.now() >= due);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Loop {
    /// Dropped first: after it the kernel writes nothing of what follows.
    driver: Driver,
    slots: Slots,
    sockets: Sockets,
    timers: Wheel,
    /// The timers'. What the kernel is waited for goes by the backend's own.
    clock: Clock,
    buffers: Buffers,
    orphans: Orphans,
    /// Operations whose turn has come, for which the backend had no room.
    unsubmitted: Tokens,
    /// Operations in the kernel whose cancel has not reached the backend.
    uncanceled: Tokens,
    /// Operations that are over and whose event waits for room in the caller's array.
    done: List,
    /// Receives that found no buffer.
    starved_receives: List,
    /// The receives that starved are being handed over again.
    feeding: bool,
    /// Accepts that found no row for the connection.
    starved_accepts: List,
    /// The first row that is closing, and when the next of them wants a look.
    closing: u32,
    closing_check_ns: u64,
    /// Operations with the backend.
    in_kernel: u32,
    /// Receives with the backend that pick a buffer: as many buffers as these are worth providing.
    picking: u32,
    /// A drain ran into its bound with operations in the kernel.
    gave_up: bool,
    /// A tick that had events to deliver could not wait; the next one says so.
    late_error: Option<io::Error>,
    /// With room for one event only, timers and completions take turns.
    timers_turn: bool,
    /// The most buffers the backend holds at a time.
    provided_max: u32,
    options: Options,
    id: u32,
    thread: usize,
    counts: Statistics,
    /// Dropped last: the tables above and the backend lie in it.
    arena: Arena,
}

impl Loop {
    /// The clock, in nanoseconds from an arbitrary start.
    #[inline]
    pub fn now(&self) -> u64 {
        self.clock.at(self.driver.now())
    }

    /// A function that ends the loop's wait, from any thread and at any time, also after the loop
    /// is gone.
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.driver.waker()
    }

    /// The backend that runs.
    pub fn backend(&self) -> &'static str {
        self.driver.describe()
    }

    /// What a backend of the program's says of itself, if the loop is on one.
    pub(crate) fn own_backend(&self) -> Option<&'static str> {
        (!self.driver.is_the_systems()).then(|| self.driver.describe())
    }

    /// A number no other loop of this process has.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The options it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What it counted so far.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            backend: self.driver.statistics(),
            orphaned: self.orphans.abandoned(),
            owned_buffers: self.orphans.usage(),
            operations: self.slots.operations(),
            timers: self.slots.timers(),
            sockets: self.sockets.usage(),
            buffers: self.buffers.usage(),
            buffers_lent: self.buffers.lent(),
            ..self.counts
        }
    }

    /// Received bytes of a buffer an event named, until it is returned.
    ///
    /// # Panics
    /// When the buffer was returned, or the range goes beyond what was received.
    #[track_caller]
    pub fn bytes(&self, buffer: BufferId, range: Range<u32>) -> &[u8] {
        self.buffers.bytes(buffer, range)
    }

    /// Copies received bytes of a buffer to `into`, which has as many.
    ///
    /// # Panics
    /// As [`bytes`](Loop::bytes).
    pub(crate) fn copy_out(&self, buffer: BufferId, range: Range<u32>, into: &mut [u8]) {
        self.buffers.copy_out(buffer, range, into);
    }

    /// Copies the last bytes of a buffer to `into`, which has as many, and returns it.
    ///
    /// # Panics
    /// As [`bytes`](Loop::bytes) and [`return_buffer`](Loop::return_buffer).
    #[inline]
    pub(crate) fn drain_buffer(&mut self, buffer: BufferId, range: Range<u32>, into: &mut [u8]) {
        self.buffers.drain(buffer, range, into);
    }

    /// Moves received bytes to the start of their buffer, to make room behind them; bytes outside
    /// the range are forgotten.
    ///
    /// # Panics
    /// When the buffer was returned or is being filled.
    #[track_caller]
    pub fn compact(&mut self, buffer: BufferId, range: Range<u32>) {
        self.buffers.compact(buffer, range);
    }

    /// Gives a buffer back. Receives that wait for one go on with the next tick.
    ///
    /// # Panics
    /// When it was returned already or is being filled.
    #[track_caller]
    pub fn return_buffer(&mut self, buffer: BufferId) {
        self.buffers.give_back(buffer);
    }

    /// How many receives had better be submitted before one tick.
    pub(crate) fn receives_per_tick(&self) -> u32 {
        self.driver.receives_per_tick()
    }

    /// The row of an open descriptor.
    fn open(&self, descriptor: Descriptor) -> Result<u32, SubmitError> {
        self.sockets.find_open(descriptor).ok_or(SubmitError::Closed)
    }

    /// An error in a child process; otherwise nothing.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SubmitError> {
        self.driver.check().map_err(|_| SubmitError::Forked)
    }
}

impl fmt::Debug for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop")
            .field("id", &self.id)
            .field("in_kernel", &self.in_kernel)
            .finish_non_exhaustive()
    }
}
