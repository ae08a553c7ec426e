//! The rows of descriptors: what a stream or a listener keeps between two calls of its futures.
//!
//! A row stands at its descriptor's index. Its generation tells it from the rows of earlier
//! descriptors there: an event that names an older one finds nobody and is let go.

use std::task::Waker;

use crate::error::CreateError;
use crate::event_loop::Loop;
use crate::op::{BufferId, Descriptor, Operation};
use crate::runtime::core::{Core, table};
use crate::runtime::dispatch::{Noted, Tag, user_data};
use crate::runtime::shortage::Shortage;
use crate::runtime::waiters::Waiters;
use crate::runtime::watchers::{Sides, Watchers};

/// Bytes received and not yet read, in a buffer of the loop.
pub(crate) struct Hand {
    pub(crate) buffer: BufferId,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// The receive in flight. There is never more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// None.
    No,
    /// One is to be armed before one of the next ticks; nothing is in flight yet.
    Wanted,
    /// A poll for bytes, which the next large read then receives directly; only while no bytes are in
    /// hand.
    Polled,
    /// Into a buffer of the loop, lent or picked; only while no bytes are in hand.
    Picked,
    /// Into the buffer in hand, behind its bytes. Those may be read meanwhile; the buffer is
    /// neither compacted nor returned.
    Filling,
}

impl Receiving {
    pub(crate) fn is_in_flight(self) -> bool {
        match self {
            Receiving::No | Receiving::Wanted => false,
            Receiving::Polled | Receiving::Picked | Receiving::Filling => true,
        }
    }
}

/// A stream's state.
pub(crate) struct Stream {
    pub(crate) hand: Option<Hand>,
    pub(crate) receiving: Receiving,
    /// The socket is likely to have bytes: try at once before a receive is armed.
    pub(crate) nonempty: bool,
    /// Its last bytes came many at a time.
    pub(crate) bulk: bool,
    /// The receive that is wanted may be a poll. Whoever reads otherwise arms a receive after it.
    pub(crate) polls: bool,
    /// The peer has finished; sticky.
    pub(crate) ended: bool,
    /// A receive failed with this `errno`; told once.
    pub(crate) failed: Option<i32>,
    /// A poll for room is in flight.
    pub(crate) awaiting_room: bool,
    /// The socket had no room when last asked.
    pub(crate) full: bool,
    /// Sends with buffers of their own that are queued or in flight. Writes wait until there are
    /// none, so that bytes keep their order.
    pub(crate) sending: u32,
    /// The writing side is to be shut once nothing is queued any more.
    pub(crate) ends_after_sends: bool,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// Made when the first future waits for readiness, and kept.
    pub(crate) watchers: Option<Box<Watchers>>,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            hand: None,
            receiving: Receiving::No,
            nonempty: false,
            bulk: false,
            polls: false,
            ended: false,
            failed: None,
            awaiting_room: false,
            full: false,
            sending: 0,
            ends_after_sends: false,
            reader: None,
            writer: None,
            watchers: None,
        }
    }

    /// Whom to wake when there may be something to read.
    pub(crate) fn noted_readable(&mut self, descriptor: Descriptor) -> Noted {
        let watched = self.watchers.is_some().then_some((descriptor, Sides::READ));
        Noted { wakes: [self.reader.take(), None], watched }
    }

    /// Whom to wake when there may be room to write.
    pub(crate) fn noted_writable(&mut self, descriptor: Descriptor) -> Noted {
        let watched = self.watchers.is_some().then_some((descriptor, Sides::WRITE));
        Noted { wakes: [self.writer.take(), None], watched }
    }

    /// Whether a read would not wait.
    pub(crate) fn is_readable(&self) -> bool {
        self.in_hand() > 0 || self.failed.is_some() || self.ended
    }

    /// Whether a write has no reason to expect that it would wait.
    pub(crate) fn is_writable(&self) -> bool {
        !self.full && self.sending == 0
    }

    /// Gives the buffer in hand back once it is read empty and nothing is received into it.
    pub(crate) fn return_if_empty(&mut self, event_loop: &mut Loop) {
        if self.receiving == Receiving::Filling {
            return;
        }
        if let Some(hand) = self.hand.take_if(|hand| hand.start == hand.end) {
            event_loop.return_buffer(hand.buffer);
        }
    }

    /// How many bytes are in hand.
    pub(crate) fn in_hand(&self) -> usize {
        self.hand.as_ref().map_or(0, |hand| (hand.end - hand.start) as usize)
    }
}

/// A listener's state.
pub(crate) struct Listener {
    /// A connection nobody has taken yet.
    pub(crate) accepted: Option<Descriptor>,
    /// An accept is in flight; only while no connection is untaken.
    pub(crate) accepting: bool,
    /// An accept failed with this `errno`; told once.
    pub(crate) failed: Option<i32>,
    /// It stands in [`Core::held`](crate::runtime::Core).
    pub(crate) held: bool,
    /// The system had no descriptor or memory for a connection, and none was accepted since.
    pub(crate) shortage: Option<Shortage>,
    pub(crate) waiters: Waiters,
    /// Whoever called `poll_accept` last. Woken along with the first in the queue, since nothing
    /// says whether it still cares.
    pub(crate) poller: Option<Waker>,
}

impl Listener {
    fn new() -> Listener {
        Listener {
            accepted: None,
            accepting: false,
            failed: None,
            held: false,
            shortage: None,
            waiters: Waiters::default(),
            poller: None,
        }
    }

    /// Whether a future of `accept` waits.
    pub(crate) fn is_queued_for(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Whether someone waits for a connection, as far as is known.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_queued_for() || self.poller.is_some()
    }

    /// Who is to be woken when a connection or an error is there, or may be had again.
    pub(crate) fn wake_next(&mut self) -> [Option<Waker>; 2] {
        [self.waiters.next(), self.poller.take()]
    }
}

/// What stands in a row.
pub(crate) enum Row {
    /// Nothing.
    Vacant,
    /// A stream in use.
    Stream(Stream),
    /// A listener in use.
    Listener(Box<Listener>),
    /// A file in use.
    File,
    /// Closed. The buffer, if any, is being received into, and is returned by that receive's event.
    Closing { filling: Option<BufferId> },
}

/// The rows. They come into being as they are first used, up to the limit.
pub(crate) struct Streams {
    rows: Vec<(u32, Row)>,
}

impl Streams {
    /// Memory for `limit` rows, in bytes.
    pub(crate) fn memory_bytes(limit: u32) -> usize {
        limit as usize * size_of::<(u32, Row)>()
    }

    pub(crate) fn new(limit: u32) -> Result<Streams, CreateError> {
        Ok(Streams { rows: table(limit)? })
    }

    /// The row of a descriptor; nothing if another generation stands there.
    #[inline]
    pub(crate) fn row(&mut self, descriptor: Descriptor) -> Option<&mut Row> {
        match self.rows.get_mut(descriptor.index as usize) {
            Some((generation, row)) if *generation == descriptor.generation => Some(row),
            Some(_) | None => None,
        }
    }

    #[inline]
    pub(crate) fn stream(&mut self, descriptor: Descriptor) -> Option<&mut Stream> {
        match self.row(descriptor)? {
            Row::Stream(stream) => Some(stream),
            Row::Vacant | Row::Listener(_) | Row::File | Row::Closing { .. } => None,
        }
    }

    pub(crate) fn listener(&mut self, descriptor: Descriptor) -> Option<&mut Listener> {
        match self.row(descriptor)? {
            Row::Listener(listener) => Some(listener),
            Row::Vacant | Row::Stream(_) | Row::File | Row::Closing { .. } => None,
        }
    }

    /// A new descriptor moves in. A buffer that its predecessor's last receive still held goes back:
    /// the loop gives an index out again only when every operation on it is over.
    fn put(&mut self, event_loop: &mut Loop, descriptor: Descriptor, row: Row) {
        let index = descriptor.index as usize;
        assert!(
            index < self.rows.capacity(),
            "rotor: the loop gave out descriptor {index} beyond its limit of sockets"
        );
        while self.rows.len() <= index {
            self.rows.push((0, Row::Vacant));
        }
        let place = &mut self.rows[index];
        match place.1 {
            Row::Vacant | Row::Closing { filling: None } => {}
            Row::Closing { filling: Some(buffer) } => event_loop.return_buffer(buffer),
            Row::Stream(_) | Row::Listener(_) | Row::File => {
                panic!("rotor: the loop gave out descriptor {index} while it is in use")
            }
        }
        *place = (descriptor.generation, row);
    }

    /// The first descriptor at or after `from` that is in use and not closing.
    pub(crate) fn next_open(&self, from: u32) -> Option<Descriptor> {
        let (index, (generation, _)) =
            self.rows.iter().enumerate().skip(from as usize).find(|(_, (_, row))| match row {
                Row::Stream(_) | Row::Listener(_) | Row::File => true,
                Row::Vacant | Row::Closing { .. } => false,
            })?;
        Some(Descriptor { index: index as u32, generation: *generation })
    }
}

impl Core {
    /// A new stream moves into its row.
    pub(crate) fn put_stream(&mut self, descriptor: Descriptor) {
        self.streams.put(&mut self.event_loop, descriptor, Row::Stream(Stream::new()));
    }

    /// A new listener moves into its row.
    pub(crate) fn put_listener(&mut self, descriptor: Descriptor) {
        let row = Row::Listener(Box::new(Listener::new()));
        self.streams.put(&mut self.event_loop, descriptor, row);
    }

    /// A stream that was never used turns into a listener.
    pub(crate) fn become_listener(&mut self, descriptor: Descriptor) {
        if let Some(row @ Row::Stream(_)) = self.streams.row(descriptor) {
            *row = Row::Listener(Box::new(Listener::new()));
        }
    }

    /// A new file moves into its row.
    pub(crate) fn put_file(&mut self, descriptor: Descriptor) {
        self.streams.put(&mut self.event_loop, descriptor, Row::File);
    }

    /// Closes a descriptor. What the row held is handed out, since dropping its wakers runs foreign
    /// code.
    pub(crate) fn close(&mut self, descriptor: Descriptor) -> Option<Row> {
        let taken = self.vacate(descriptor)?;
        self.submit_close(descriptor);
        Some(taken)
    }

    /// The row keeps nothing but a buffer that is being received into.
    pub(crate) fn vacate(&mut self, descriptor: Descriptor) -> Option<Row> {
        let row = self.streams.row(descriptor)?;
        match row {
            Row::Vacant | Row::Closing { .. } => return None,
            Row::Stream(_) | Row::Listener(_) | Row::File => {}
        }
        let mut taken = std::mem::replace(row, Row::Closing { filling: None });
        if let Row::Stream(Stream { receiving: Receiving::Wanted, .. }) = taken {
            // What was kept for it serves another, with no event to say so.
            self.event_loop.release_operation();
            self.lapsed = true;
        }
        match &mut taken {
            Row::Stream(stream) => match (stream.hand.take(), stream.receiving) {
                (Some(hand), Receiving::Filling) => {
                    *row = Row::Closing { filling: Some(hand.buffer) };
                }
                (
                    Some(hand),
                    Receiving::No | Receiving::Wanted | Receiving::Polled | Receiving::Picked,
                ) => {
                    self.event_loop.return_buffer(hand.buffer);
                }
                (None, _) => {}
            },
            Row::Listener(listener) => {
                if listener.held {
                    self.held.retain(|held| *held != descriptor);
                }
                self.resting.retain(|resting| *resting != descriptor);
                let timer = listener.shortage.take().and_then(|shortage| shortage.timer);
                if let Some(timer) = timer {
                    self.event_loop.cancel(timer);
                }
                if let Some(untaken) = listener.accepted.take() {
                    self.submit_close(untaken);
                }
            }
            Row::File | Row::Vacant | Row::Closing { .. } => {}
        }
        Some(taken)
    }

    fn submit_close(&mut self, descriptor: Descriptor) {
        let data = user_data(Tag::Close, descriptor.index, descriptor.generation);
        // A close is never refused for want of room. In a forked child it is: the parent's
        // descriptors are the parent's to close, and the child's copies go with the process.
        let _ = self.event_loop.submit(Operation::close(descriptor), data);
    }
}
