//! From events to wakers: each event of a tick changes one row and wakes who waits there.

use std::net::Shutdown;
use std::task::Waker;

use crate::event::Event;
use crate::limits::BULK_BYTES_MIN;
use crate::op::{Control, Descriptor};
use crate::runtime::core::{Core, Shared};
use crate::runtime::shortage::is_shortage;
use crate::runtime::streams::{Hand, Receiving, Row};
use crate::runtime::waits::{Ended, WaitKey, let_go};
use crate::runtime::watchers::Sides;

/// What an operation was submitted for. It stands in the top four bits of its `user_data`, above 28
/// bits of a row's index and 32 of its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// A receive into a picked buffer, for a stream.
    Receive = 1,
    /// A receive behind the bytes in hand, for a stream.
    Fill = 2,
    /// A poll for room to write, for a stream.
    Room = 3,
    /// An accept, for a listener.
    Accept = 4,
    /// A close.
    Close = 5,
    /// A row of [`Waits`](crate::runtime::waits::Waits).
    Wait = 6,
    /// A send with a buffer of its own: a row of [`Waits`](crate::runtime::waits::Waits) too.
    Send = 7,
    /// The end of a listener's pause.
    Rest = 8,
    /// A poll for bytes to read, for a stream.
    Readable = 9,
}

const INDEX_BITS: u32 = 28;
const TAG_SHIFT: u32 = 60;

const _: () = assert!(2 * crate::limits::ROWS_MAX as u64 <= 1 << INDEX_BITS);

/// Packs what an event will need to find its row.
pub(crate) const fn user_data(tag: Tag, index: u32, generation: u32) -> u64 {
    (tag as u64) << TAG_SHIFT | (index as u64) << 32 | generation as u64
}

/// Unpacks it: the tag, unless it is not ours, the index and the generation.
const fn unpack(user_data: u64) -> (Option<Tag>, u32, u32) {
    let tag = match user_data >> TAG_SHIFT {
        1 => Some(Tag::Receive),
        2 => Some(Tag::Fill),
        3 => Some(Tag::Room),
        4 => Some(Tag::Accept),
        5 => Some(Tag::Close),
        6 => Some(Tag::Wait),
        7 => Some(Tag::Send),
        8 => Some(Tag::Rest),
        9 => Some(Tag::Readable),
        _ => None,
    };
    let index = (user_data >> 32) as u32 & ((1 << INDEX_BITS) - 1);
    (tag, index, user_data as u32)
}

pub(crate) type Wakes = [Option<Waker>; 2];

/// Whom an event wakes.
pub(crate) struct Noted {
    pub(crate) wakes: Wakes,
    /// The stream whose readiness it may have brought, if futures wait for that.
    pub(crate) watched: Option<(Descriptor, Sides)>,
}

impl From<Wakes> for Noted {
    fn from(wakes: Wakes) -> Noted {
        Noted { wakes, watched: None }
    }
}

/// Wakes the futures that wait for a stream's readiness when dropped, also by the panic of another
/// waker.
struct WakeWatchers<'a> {
    shared: &'a Shared,
    descriptor: Descriptor,
    sides: Sides,
}

impl Drop for WakeWatchers<'_> {
    fn drop(&mut self) {
        let mut from = 0;
        loop {
            let WakeWatchers { shared, descriptor, sides } = *self;
            let waker = {
                let mut core = self.shared.core.borrow_mut();
                let stream = core.streams.stream(self.descriptor);
                stream.and_then(|it| it.watchers.as_mut()?.take(&mut from, self.sides))
            };
            match waker {
                Some(waker) => {
                    // Goes on with the others if this one panics.
                    let others = WakeWatchers { shared, descriptor, sides };
                    waker.wake();
                    std::mem::forget(others);
                }
                None => return,
            }
        }
    }
}

/// Wakes what is in it when dropped, also by the panic of another waker.
struct WakeAnyway(Option<Waker>);

impl Drop for WakeAnyway {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

fn wake_all(wakes: Wakes) {
    match wakes {
        [None, None] => {}
        [Some(waker), None] | [None, Some(waker)] => waker.wake(),
        [Some(first), Some(second)] => {
            let _second = WakeAnyway(Some(second));
            first.wake();
        }
    }
}

impl Shared {
    /// Looks at every event of the last tick and wakes outside the borrow. Should a waker panic,
    /// the rest is looked at by the next call.
    pub(crate) fn dispatch(&self) {
        loop {
            let noted = {
                let mut core = self.core.borrow_mut();
                let Some(index) = core.undelivered.next() else {
                    return;
                };
                let event = core.events[index];
                core.take_note(&event)
            };
            self.wake_noted(noted);
        }
    }

    fn wake_noted(&self, noted: Noted) {
        let watched = noted.watched;
        let _watchers =
            watched.map(|(descriptor, sides)| WakeWatchers { shared: self, descriptor, sides });
        wake_all(noted.wakes);
    }

    /// Arms receives that tasks have asked for, and lets those have what is left over that it was kept
    /// from. Answers whether all are armed; else the rest are to be after the next tick, which does not
    /// wait.
    pub(crate) fn arm_wanted(&self) -> bool {
        let (lapsed, all_armed) = {
            let mut core = self.core.borrow_mut();
            core.arm_wanted();
            (std::mem::take(&mut core.lapsed), core.wanted.is_empty())
        };
        self.release_held(lapsed);
        all_armed
    }

    /// Lets listeners try again that held connections back for want of room.
    pub(crate) fn release_held(&self, something_ended: bool) {
        let count = self.core.borrow().held.len();
        for _ in 0..count {
            let wakes = {
                let mut core = self.core.borrow_mut();
                if core.held.is_empty() || self.executor.free_tasks() == 0 {
                    return;
                }
                if !core.held_for_task && !something_ended {
                    return;
                }
                let descriptor = core.held.remove(0);
                if !core.rest_with_timer(descriptor) {
                    core.held.push(descriptor);
                    continue;
                }
                core.held_for_task &= !core.held.is_empty();
                match core.streams.listener(descriptor) {
                    Some(listener) => {
                        listener.held = false;
                        listener.wake_next()
                    }
                    None => [None, None],
                }
            };
            wake_all(wakes);
        }
    }
}

impl Core {
    #[inline]
    fn take_note(&mut self, event: &Event) -> Noted {
        let (tag, index, generation) = unpack(event.user_data());
        let descriptor = Descriptor { index, generation };
        let key = WaitKey { index, generation };
        match tag {
            Some(Tag::Receive) => self.received(descriptor, event),
            Some(Tag::Readable) => self.readable(descriptor, event),
            Some(Tag::Fill) => self.filled(descriptor, event),
            Some(Tag::Room) => self.has_room(descriptor, event),
            Some(Tag::Accept) => self.accepted(descriptor, event).into(),
            Some(Tag::Close) => self.closed(descriptor).into(),
            Some(Tag::Wait) => [self.waited(key, event), None].into(),
            Some(Tag::Rest) => {
                if !event.is_canceled() {
                    self.resume(descriptor);
                }
                [None, None].into()
            }
            Some(Tag::Send) => {
                let stream = self.waits.sends_for(key);
                let waker = self.waited(key, event);
                let Some(descriptor) = stream else { return [waker, None].into() };
                let Noted { wakes: [writer, _], watched } = self.sent(descriptor);
                Noted { wakes: [waker, writer], watched }
            }
            None => self.of_nobody(event).into(),
        }
    }

    fn of_nobody(&mut self, event: &Event) -> Wakes {
        let_go(&mut self.event_loop, event);
        [None, None]
    }

    fn waited(&mut self, key: WaitKey, event: &Event) -> Option<Waker> {
        match self.waits.end(key, *event) {
            Ended::Wake(waker) => waker,
            Ended::LetGo | Ended::Unknown => {
                let_go(&mut self.event_loop, event);
                None
            }
        }
    }

    /// A queued send of a stream has ended; after the last it is the writer's turn.
    fn sent(&mut self, descriptor: Descriptor) -> Noted {
        let Some(stream) = self.streams.stream(descriptor) else {
            return [None, None].into();
        };
        stream.sending -= 1;
        if stream.sending > 0 {
            return [None, None].into();
        }
        let noted = stream.noted_writable(descriptor);
        if std::mem::take(&mut stream.ends_after_sends) {
            // Whoever asked for it is gone; closing the stream ends it anyway.
            let _ = self.event_loop.control(Control::Shutdown(descriptor, Shutdown::Write));
        }
        noted
    }

    #[inline]
    fn received(&mut self, descriptor: Descriptor, event: &Event) -> Noted {
        let Some(stream) = self.streams.stream(descriptor) else {
            return self.of_nobody(event).into();
        };
        stream.receiving = Receiving::No;
        stream.nonempty = event.socket_nonempty();
        stream.bulk = event.result().is_ok_and(|count| count as usize >= BULK_BYTES_MIN);
        match (event.result(), event.buffer()) {
            (Ok(0), buffer) => {
                stream.ended = true;
                if let Some(buffer) = buffer {
                    self.event_loop.return_buffer(buffer);
                }
            }
            (Ok(count), Some(buffer)) => {
                stream.hand = Some(Hand { buffer, start: 0, end: count });
            }
            (Ok(_), None) => unreachable!("rotor: bytes were received into no buffer"),
            (Err(error), buffer) => {
                if !event.is_canceled() {
                    stream.failed = error.raw_os_error();
                }
                if let Some(buffer) = buffer {
                    self.event_loop.return_buffer(buffer);
                }
            }
        }
        stream.noted_readable(descriptor)
    }

    /// An error of the poll is the socket's; the receive that follows tells it.
    fn readable(&mut self, descriptor: Descriptor, event: &Event) -> Noted {
        let Some(stream) = self.streams.stream(descriptor) else {
            return [None, None].into();
        };
        stream.receiving = Receiving::No;
        stream.nonempty |= !event.is_canceled();
        stream.noted_readable(descriptor)
    }

    fn filled(&mut self, descriptor: Descriptor, event: &Event) -> Noted {
        match self.streams.row(descriptor) {
            Some(Row::Stream(stream)) => {
                stream.receiving = Receiving::No;
                stream.nonempty = event.socket_nonempty();
                match event.result() {
                    Ok(0) => stream.ended = true,
                    Ok(count) => {
                        if let Some(hand) = &mut stream.hand {
                            hand.end += count;
                        }
                    }
                    Err(_) if event.is_canceled() => {}
                    Err(error) => stream.failed = error.raw_os_error(),
                }
                stream.return_if_empty(&mut self.event_loop);
                stream.noted_readable(descriptor)
            }
            Some(Row::Closing { filling }) => {
                if let Some(buffer) = filling.take() {
                    self.event_loop.return_buffer(buffer);
                }
                [None, None].into()
            }
            Some(Row::Vacant | Row::Listener(_) | Row::File) | None => [None, None].into(),
        }
    }

    fn has_room(&mut self, descriptor: Descriptor, event: &Event) -> Noted {
        let Some(stream) = self.streams.stream(descriptor) else {
            return [None, None].into();
        };
        // An error of the poll is the socket's; the next send tells it.
        stream.awaiting_room = false;
        stream.full &= event.is_canceled();
        stream.noted_writable(descriptor)
    }

    fn accepted(&mut self, listener: Descriptor, event: &Event) -> Wakes {
        let Some(row) = self.streams.listener(listener) else {
            return self.of_nobody(event);
        };
        row.accepting = false;
        match (event.result(), event.descriptor()) {
            (Ok(_), descriptor) => {
                row.accepted = descriptor;
                row.shortage = None;
            }
            (Err(_), _) if event.is_canceled() => {}
            (Err(error), _) => match error.raw_os_error() {
                Some(errno) if is_shortage(errno) => return self.rest(listener, errno),
                errno => row.failed = errno,
            },
        }
        row.wake_next()
    }

    fn closed(&mut self, descriptor: Descriptor) -> Wakes {
        if let Some(row) = self.streams.row(descriptor) {
            if let Row::Closing { filling: Some(buffer) } = *row {
                self.event_loop.return_buffer(buffer);
            }
            *row = Row::Vacant;
        }
        self.resume_one();
        [None, None]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        use Tag::{Accept, Close, Fill, Readable, Receive, Rest, Room, Send, Wait};
        let tags = [Receive, Fill, Room, Accept, Close, Wait, Send, Rest, Readable];
        for tag in tags {
            for index in [0, 1, (1 << INDEX_BITS) - 1] {
                for generation in [0, 1, u32::MAX] {
                    let packed = user_data(tag, index, generation);
                    assert_eq!(unpack(packed), (Some(tag), index, generation));
                }
            }
        }
        assert_eq!(unpack(0).0, None);
    }
}
