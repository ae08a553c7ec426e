#![deny(unsafe_code)]
//! Sockets: a row for each descriptor the loop owns.

use std::time::Duration;

use crate::address::RawAddress;
use crate::event::EventKind;
use crate::op::Descriptor;
pub(crate) use crate::op::message;
use crate::tables::NONE;
use crate::tables::arena::{Arena, Plan, Table};
use crate::tables::list::List;
use crate::tables::slots::Usage;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorKind {
    /// A connected stream: its operations keep their order, and closing it delivers what was written.
    Stream,
    /// A listener.
    Listener,
    /// A file: its positional operations run side by side.
    File,
}

/// How long closing a stream may take, by its option `SO_LINGER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    /// The option is off: the loop's own bound.
    Default,
    /// At most so many nanoseconds. The option is on in the kernel.
    AtMost(u64),
    /// Not at all: the connection is reset.
    Reset,
}

/// Which of the three, in a row; the nanoseconds lie in its [`Ending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LingerKind {
    Default,
    AtMost,
    Reset,
}

impl From<Option<Duration>> for Linger {
    fn from(bound: Option<Duration>) -> Linger {
        match bound {
            None => Linger::Default,
            Some(Duration::ZERO) => Linger::Reset,
            Some(bound) => Linger::AtMost(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)),
        }
    }
}

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On the free list.
    Free,
    /// Kept for a connection an accept in the kernel may bring.
    Reserved,
    /// Open for operations.
    Open,
    /// A close was submitted; operations on it are ending.
    Closing,
    /// All operations have ended and the write side is shut; waiting for the peer to take the rest.
    Lingering,
    /// The kernel's descriptor is closed. The row is free once the close's event is delivered, so
    /// that there is one close a row at most.
    Closed,
}

/// Which order an operation keeps on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// What the peer sends, or connections it makes.
    Receive,
    /// What goes to the peer.
    Send,
    /// No order: polls and file operations.
    Other,
}

pub(crate) fn direction_of(kind: EventKind) -> Direction {
    match kind {
        EventKind::Accept | EventKind::Receive => Direction::Receive,
        EventKind::Connect | EventKind::Send | EventKind::SendVectored | EventKind::Shutdown => {
            Direction::Send
        }
        EventKind::Nop
        | EventKind::Poll
        | EventKind::Close
        | EventKind::Read
        | EventKind::Write
        | EventKind::Timer => Direction::Other,
    }
}

/// One direction of a socket: at most one operation with the backend, the rest behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) current: u32,
    pub(crate) waiting: List,
}

impl Lane {
    const EMPTY: Lane = Lane { current: NONE, waiting: List::EMPTY };

    pub(crate) fn is_idle(&self) -> bool {
        self.current == NONE && self.waiting.is_empty()
    }
}

/// A row: one cache line, which is all of it that an operation looks at.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Socket {
    pub(crate) fd: i32,
    pub(crate) generation: u32,
    pub(crate) kind: DescriptorKind,
    pub(crate) phase: Phase,
    /// The peer's side has ended or the connection is dead: closing has nothing to wait for.
    pub(crate) saw_end: bool,
    /// The program has shut its own read side: a receive of 0 says nothing about the peer.
    pub(crate) read_shut: bool,
    /// A connect is queued or in flight; the row's address is its.
    pub(crate) connecting: bool,
    /// Closing ran into a bound: no more waiting.
    pub(crate) overdue: bool,
    linger: LingerKind,
    /// Its number was lent out; only while open. The loop's end does not close it.
    pub(crate) lent: bool,
    /// The same socket has another number too: closing this one alone does not end the stream.
    pub(crate) parted: bool,
    /// Leases of what it received that have not come back.
    pub(crate) leased: u8,
    pub(crate) receive: Lane,
    pub(crate) send: Lane,
    /// Polls and file operations, which keep no order.
    pub(crate) others: List,
    /// The close operation's slot.
    pub(crate) close: u32,
    /// Free list, or the list of rows that are closing.
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

const _: () = assert!(size_of::<Socket>() == 64);

/// How a row's descriptor is being closed. Few are at a time, so it stands apart.
#[derive(Debug)]
pub(crate) struct Ending {
    /// When to look again.
    pub(crate) check_ns: u64,
    /// When to look no more.
    pub(crate) deadline_ns: u64,
    /// The time between the last look and the next.
    pub(crate) pause_ns: u64,
    /// Bytes of input thrown away.
    pub(crate) discarded: u64,
    /// With [`LingerKind::AtMost`].
    linger_ns: u64,
}

impl Ending {
    const NONE: Ending = Ending {
        check_ns: u64::MAX,
        deadline_ns: u64::MAX,
        pause_ns: 0,
        discarded: 0,
        linger_ns: 0,
    };
}

impl Socket {
    fn new(generation: u32, kind: DescriptorKind, phase: Phase) -> Socket {
        Socket {
            fd: -1,
            generation,
            kind,
            phase,
            saw_end: false,
            read_shut: false,
            connecting: false,
            overdue: false,
            linger: LingerKind::Default,
            lent: false,
            parted: false,
            leased: 0,
            receive: Lane::EMPTY,
            send: Lane::EMPTY,
            others: List::EMPTY,
            close: NONE,
            next: NONE,
            previous: NONE,
        }
    }

    /// Whether no operation is left on it.
    pub(crate) fn is_idle(&self) -> bool {
        self.receive.is_idle() && self.send.is_idle() && self.others.is_empty()
    }
}

/// The table. Beside it lie what the kernel reads and writes, an address and a message header a row, and
/// how rows are being closed. The headers and the endings are touched by the rows that need them, and those before.
#[derive(Debug)]
pub(crate) struct Sockets {
    rows: Table<Socket>,
    addresses: Table<RawAddress>,
    messages: Table<libc::msghdr>,
    endings: Table<Ending>,
    free: u32,
    /// Where generations begin: another loop's begin elsewhere, so its handles are told apart.
    first_generation: u32,
    usage: Usage,
}

impl Sockets {
    pub(crate) fn plan(plan: &mut Plan, capacity: u32) {
        plan.table::<Socket>(capacity);
        plan.table::<RawAddress>(capacity);
        plan.table::<libc::msghdr>(capacity);
        plan.table::<Ending>(capacity);
    }

    pub(crate) fn new(arena: &mut Arena, capacity: u32, first_generation: u32) -> Sockets {
        Sockets {
            first_generation,
            rows: arena.table(capacity),
            addresses: arena.table(capacity),
            messages: arena.table(capacity),
            endings: arena.table(capacity),
            free: NONE,
            usage: Usage::new(capacity),
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Rows ever used.
    pub(crate) fn touched(&self) -> u32 {
        self.rows.len()
    }

    /// Whether a row is free.
    pub(crate) fn has_room(&self) -> bool {
        self.usage.now < self.usage.limit
    }

    /// Takes a row.
    pub(crate) fn take(&mut self, kind: DescriptorKind, phase: Phase) -> Option<u32> {
        if !self.usage.take() {
            return None;
        }
        if self.free == NONE {
            self.addresses.push(RawAddress::EMPTY);
            return self.rows.push(Socket::new(self.first_generation, kind, phase));
        }
        let index = self.free;
        self.free = self.rows[index].next;
        let generation = self.rows[index].generation;
        self.rows[index] = Socket::new(generation, kind, phase);
        self.addresses[index] = RawAddress::EMPTY;
        Some(index)
    }

    /// Frees a row; handles to it are stale from here on.
    pub(crate) fn free(&mut self, index: u32) {
        let free = self.free;
        let row = &mut self.rows[index];
        debug_assert!(row.phase != Phase::Free && row.is_idle());
        row.phase = Phase::Free;
        row.lent = false;
        row.fd = -1;
        row.generation = row.generation.wrapping_add(1);
        row.next = free;
        self.free = index;
        self.usage.give_back();
    }

    pub(crate) fn descriptor(&self, index: u32) -> Descriptor {
        Descriptor { index, generation: self.rows[index].generation }
    }

    /// The row of a descriptor that is open.
    pub(crate) fn find_open(&self, descriptor: Descriptor) -> Option<u32> {
        let index = descriptor.index;
        let open = index < self.rows.len()
            && self.rows[index].generation == descriptor.generation
            && self.rows[index].phase == Phase::Open;
        open.then_some(index)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Socket {
        &self.rows[index]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Socket {
        &mut self.rows[index]
    }

    /// How long closing the row's stream may take.
    pub(crate) fn linger(&self, index: u32) -> Linger {
        match self.rows[index].linger {
            LingerKind::Default => Linger::Default,
            LingerKind::AtMost => Linger::AtMost(self.endings[index].linger_ns),
            LingerKind::Reset => Linger::Reset,
        }
    }

    pub(crate) fn set_linger(&mut self, index: u32, linger: Linger) {
        self.rows[index].linger = match linger {
            Linger::Default => LingerKind::Default,
            Linger::AtMost(linger_ns) => {
                self.touch_ending(index).linger_ns = linger_ns;
                LingerKind::AtMost
            }
            Linger::Reset => LingerKind::Reset,
        };
    }

    /// The row is to be closed: nothing was looked at or thrown away yet.
    pub(crate) fn begin_ending(&mut self, index: u32) {
        let ending = self.touch_ending(index);
        *ending = Ending { linger_ns: ending.linger_ns, ..Ending::NONE };
    }

    /// How the row is being closed, since [`begin_ending`](Sockets::begin_ending).
    pub(crate) fn ending(&self, index: u32) -> &Ending {
        &self.endings[index]
    }

    pub(crate) fn ending_mut(&mut self, index: u32) -> &mut Ending {
        &mut self.endings[index]
    }

    fn touch_ending(&mut self, index: u32) -> &mut Ending {
        while self.endings.len() <= index {
            self.endings.push(Ending::NONE);
        }
        &mut self.endings[index]
    }

    /// The direction's lane, if operations of that direction keep an order.
    pub(crate) fn lane(&mut self, index: u32, direction: Direction) -> Option<&mut Lane> {
        let socket = &mut self.rows[index];
        match direction {
            Direction::Receive => Some(&mut socket.receive),
            Direction::Send => Some(&mut socket.send),
            Direction::Other => None,
        }
    }

    pub(crate) fn address(&self, index: u32) -> &RawAddress {
        &self.addresses[index]
    }

    /// Sets the row's address; answers where it lies, for the kernel.
    pub(crate) fn set_address(&mut self, index: u32, address: RawAddress) -> *mut RawAddress {
        self.addresses[index] = address;
        self.addresses.address_of(index)
    }

    /// Sets the row's message header; answers where it lies, for the kernel. One is enough: at most
    /// one send a socket is with the kernel.
    pub(crate) fn set_message(
        &mut self,
        index: u32,
        slices: *const libc::iovec,
        count: u32,
    ) -> *const libc::msghdr {
        while self.messages.len() <= index {
            self.messages.push(message(std::ptr::null(), 0));
        }
        self.messages[index] = message(slices, count);
        self.messages.address_of(index)
    }
}
