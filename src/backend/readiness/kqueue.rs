//! The selector of macOS and FreeBSD: kqueue, by edges (`EV_CLEAR`), with `EVFILT_USER` for wake-ups.
//!
//! No machine that runs it is at hand: it is type-checked, and the engine over it is tested by a
//! scripted selector.
#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::kqueue::{Event, EventFilter, EventFlags, UserDefinedFlags, UserFlags};

use super::selector::{Found, Key, READ, Selector, WRITE};
use crate::sys::descriptor;

/// What one wait finds at most: as many events as the runtime takes from a tick.
const FOUND_MAX: usize = crate::limits::EVENTS_PER_TICK_MAX;

/// The wake-up's key: the table has no row of this index.
const WAKE: u64 = u64::MAX;

/// The longest wait handed over, a day: the kernels refuse very long ones (macOS those over 100,000,000
/// seconds). The engine waits again for what is left.
const WAIT_SECONDS_MAX: u64 = 86_400;

const NS_PER_SECOND: u64 = 1_000_000_000;

// A key travels in the place of a pointer.
const _: () = assert!(size_of::<usize>() == size_of::<u64>());

/// A kqueue, shared with its wakers: one that outlives its loop triggers a queue nobody waits for.
pub(crate) struct Kqueue {
    queue: Arc<OwnedFd>,
    waker: Arc<dyn Fn() + Send + Sync>,
    events: Box<[Event]>,
    found: usize,
    taken: usize,
}

impl Kqueue {
    /// Makes a queue. The last allocation made here.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub(crate) fn new() -> io::Result<Kqueue> {
        let queue = Arc::new(descriptor::kqueue_open()?);
        let watch = wake(EventFlags::ADD | EventFlags::CLEAR, UserFlags::NOINPUT);
        change(&queue, &[watch]).map_err(io::Error::from_raw_os_error)?;
        let shared = Arc::clone(&queue);
        let waker = Arc::new(move || {
            let trigger = wake(EventFlags::empty(), UserFlags::TRIGGER);
            while let Err(libc::EINTR) = change(&shared, &[trigger]) {}
        });
        let events = vec![nothing(); FOUND_MAX].into_boxed_slice();
        Ok(Kqueue { queue, waker, events, found: 0, taken: 0 })
    }
}

fn key_pointer(bits: u64) -> *mut libc::c_void {
    ptr::without_provenance_mut(bits as usize)
}

fn nothing() -> Event {
    Event::new(EventFilter::Read(-1), EventFlags::empty(), ptr::null_mut())
}

fn wake(flags: EventFlags, what: UserFlags) -> Event {
    let user_flags = UserDefinedFlags::new(0);
    let filter = EventFilter::User { ident: 0, flags: what, user_flags };
    Event::new(filter, flags | EventFlags::RECEIPT, key_pointer(WAKE))
}

/// Makes one change or two, each with a receipt, into a list that has room for the receipts and nothing
/// else: a call for changes takes no events, and a receipt never gets among them. Answers the first
/// error.
fn change(queue: &OwnedFd, changes: &[Event]) -> Result<(), i32> {
    let mut receipts = [nothing(); 2];
    let room = &mut receipts[..changes.len()];
    let count = descriptor::kqueue_call(queue, changes, room, Some(NO_TIME))?;
    let errors = receipts[..count].iter().filter(|receipt| is_receipt(receipt));
    let first = errors.map(Event::data).find(|&errno| errno != 0);
    first.map_or(Ok(()), |errno| Err(errno as i32))
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An answer to a change, not an event: `data` is an `errno`, or 0.
fn is_receipt(event: &Event) -> bool {
    event.flags().contains(EventFlags::ERROR)
}

/// The changes for some directions of a descriptor.
fn changes(fd: RawFd, directions: u8, flags: EventFlags, data: u64) -> ([Event; 2], usize) {
    let mut list = [nothing(); 2];
    let mut count = 0;
    for (direction, filter) in [(READ, EventFilter::Read(fd)), (WRITE, EventFilter::Write(fd))] {
        if directions & direction != 0 {
            list[count] = Event::new(filter, flags | EventFlags::RECEIPT, key_pointer(data));
            count += 1;
        }
    }
    (list, count)
}

/// What an event says; nothing if it is a receipt, a wake-up or of a filter not asked for. At the end
/// (`EV_EOF`) bytes may still be there: both are told by receiving until the end is received.
fn found(event: &Event) -> Option<Found> {
    let data = event.udata().addr() as u64;
    if is_receipt(event) || data == WAKE {
        return None;
    }
    let ready = match event.filter() {
        EventFilter::Read(_) => READ,
        EventFilter::Write(_) => WRITE,
        _ => return None,
    };
    let over = event.flags().contains(EventFlags::EOF);
    Some(Found { key: Key::from_bits(data), ready, over })
}

/// A wait, rounded to nothing and capped.
fn timespec(wait_ns: u64) -> Timespec {
    let wait_ns = wait_ns.min(WAIT_SECONDS_MAX * NS_PER_SECOND);
    Timespec { tv_sec: (wait_ns / NS_PER_SECOND) as i64, tv_nsec: (wait_ns % NS_PER_SECOND) as _ }
}

impl Selector for Kqueue {
    fn describe(&self) -> &'static str {
        "kqueue"
    }

    fn arm(&mut self, fd: RawFd, key: Key, wanted: u8, _before: u8) -> Result<(), i32> {
        // A filter that is added again is looked at again, and told if it is ready.
        let flags = EventFlags::ADD | EventFlags::CLEAR;
        let (list, count) = changes(fd, wanted, flags, key.to_bits());
        change(&self.queue, &list[..count])
    }

    fn disarm(&mut self, fd: RawFd, armed: u8) {
        let (list, count) = changes(fd, armed, EventFlags::DELETE, 0);
        // It fails for a number closed behind the loop's back, whose filters went with it.
        let _ = change(&self.queue, &list[..count]);
    }

    fn wait(&mut self, wait_ns: Option<u64>) -> Result<bool, i32> {
        self.taken = 0;
        self.found = 0;
        let wait = wait_ns.map(timespec);
        self.found = descriptor::kqueue_call(&self.queue, &[], &mut self.events, wait)?;
        let woken = |event: &Event| !is_receipt(event) && event.udata().addr() as u64 == WAKE;
        Ok(self.events[..self.found].iter().any(woken))
    }

    fn found(&mut self) -> Option<Found> {
        while self.taken < self.found {
            let event = self.events[self.taken];
            self.taken += 1;
            if let Some(found) = found(&event) {
                return Some(found);
            }
        }
        None
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::clone(&self.waker)
    }

    /// macOS looks at `MSG_DONTWAIT` when it receives, and not when it sends (`sosend` of XNU). FreeBSD
    /// does both; it is treated alike, so that there is one way to test.
    fn sends_may_wait(&self) -> bool {
        true
    }

    /// As far as is known, each arrival is told. It was never tried: a receive more is made.
    fn tells_after_short(&self) -> bool {
        false
    }

    fn granularity_ns(&self) -> u64 {
        1
    }
}

impl fmt::Debug for Kqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kqueue").field("fd", &self.queue.as_raw_fd()).finish_non_exhaustive()
    }
}
