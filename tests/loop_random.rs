//! The loop under random operations against random answers: whatever happens, every operation ends
//! with exactly one final event, everything opened is closed once, and nothing is left.
//!
//! `ROTOR_SEEDS=100000` runs that many seeds, `ROTOR_SEEDS=4711..4712` those. A seed that fails is
//! named on standard error.

mod support;

#[path = "support/script.rs"]
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::Shutdown;
use std::ops::Range;
use std::time::Duration;

use rotor::backend::Request;
use rotor::backend::scripted::{Asked, Script};
use rotor::runtime::Options;
use rotor::{
    BufferId, Control, Descriptor, Event, Handle, Interest, Loop, Operation, OrphanId,
    OwnedOperation, Reply, SubmitError, Wait,
};
use script::{anywhere, send, start};
use support::{Random, watched};

const SEEDS: Range<u64> = 0..400;

/// In the last part of the steps nothing new is started, so that much ends by itself.
const STEPS: usize = 600;
const STEPS_BUSY: usize = 400;

/// Ticks in which everything must have ended, with all answers given.
const TICKS_MAX: usize = 2000;

/// Descriptors that accepts answer with, far from those that opens do.
const FIRST_ACCEPTED: i32 = 2_000_000;

/// A loop, its script, and what the program that uses it knows.
struct Program {
    random: Random,
    event_loop: Loop,
    script: Script,
    /// Operations without a final event, by user data; a buffer that one works on is not ours.
    live: BTreeMap<u64, (Handle, Option<BufferId>)>,
    ended: BTreeSet<u64>,
    next_data: u64,
    /// Descriptors that are open, and whether each is a listener.
    open: Vec<(Descriptor, bool)>,
    opened: usize,
    next_accepted: i32,
    /// Buffers in hand, and how many bytes each holds.
    held: Vec<(BufferId, u32)>,
    orphans: Vec<OrphanId>,
    /// Requests before this one have ended.
    answered: usize,
    /// User data and result of every event.
    trace: Vec<(u64, bool, i64)>,
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut random = Random::new(seed as usize);
        let options = Options {
            operations: 40,
            sockets: 6,
            timers: 60,
            buffers: 3,
            buffer_bytes: 16,
            ..Options::default()
        };
        let (event_loop, script) = start(options);
        script.answer_cancels(random.up_to(2) == 1);
        script.set_room([1, 2, 5, usize::MAX][random.up_to(4) - 1]);
        Program {
            random,
            event_loop,
            script,
            live: BTreeMap::new(),
            ended: BTreeSet::new(),
            next_data: 1,
            open: Vec::new(),
            opened: 0,
            next_accepted: FIRST_ACCEPTED,
            held: Vec::new(),
            orphans: Vec::new(),
            answered: 0,
            trace: Vec::new(),
        }
    }

    /// True once in `many` times.
    fn once_in(&mut self, many: usize) -> bool {
        self.random.up_to(many) == 1
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.random.up_to(limit) - 1
    }

    fn submitted(&mut self, answer: Result<Handle, SubmitError>, buffer: Option<BufferId>) -> bool {
        if let Ok(handle) = answer {
            self.live.insert(self.next_data, (handle, buffer));
            self.next_data += 1;
        }
        answer.is_ok()
    }

    fn submit(&mut self, operation: Operation) {
        let answer = self.event_loop.submit(operation, self.next_data);
        self.submitted(answer, None);
    }

    fn close(&mut self, descriptor: Descriptor) {
        let answer = self.event_loop.submit(Operation::close(descriptor), self.next_data);
        assert!(self.submitted(answer, None), "a close was refused: {answer:?}");
    }

    fn step(&mut self, busy: bool) {
        match self.below(15) {
            0 if busy => self.open_one(),
            1..=6 if busy && !self.open.is_empty() => self.submit_one(),
            7 if busy => self.arm_one(),
            8 => self.cancel_one(),
            9 if !self.open.is_empty() => {
                let nth = self.below(self.open.len());
                let (descriptor, _) = self.open.swap_remove(nth);
                if self.once_in(2) {
                    // Unread input: a stream's close waits for the peer.
                    self.script.reply(Ok(Reply::Count(5)));
                    self.script.reply(Ok(Reply::Done));
                }
                self.close(descriptor);
            }
            10 if !self.held.is_empty() => {
                let nth = self.below(self.held.len());
                let (buffer, _) = self.held.swap_remove(nth);
                self.event_loop.return_buffer(buffer);
            }
            11 if busy && !self.held.is_empty() && !self.open.is_empty() => self.use_buffer(),
            _ => {
                if !self.once_in(4) {
                    self.answer_one();
                }
                let ns = self.below(40) as u64;
                self.script.advance(ns);
                let room = self.random.up_to(6);
                self.tick(room);
            }
        }
    }

    fn open_one(&mut self) {
        let listens = self.once_in(3);
        let control = if listens {
            Control::Listen { address: anywhere(), backlog: 1 }
        } else {
            Control::OpenStream { family_of: anywhere() }
        };
        if let Ok(Reply::Opened(descriptor)) = self.event_loop.control(control) {
            self.open.push((descriptor, listens));
            self.opened += 1;
        }
    }

    fn submit_one(&mut self) {
        let nth = self.below(self.open.len());
        let (descriptor, listens) = self.open[nth];
        if self.once_in(12) {
            // Of no use to the loop's own sends and opens: it is the next request that has it.
            let result = if self.once_in(2) { -libc::ECONNRESET } else { -libc::EINTR };
            self.script.answer_at_once(&[result]);
        }
        let multishot = self.once_in(2);
        if listens && multishot {
            return self.submit(Operation::accept_multishot(descriptor));
        } else if listens {
            return self.submit(Operation::accept(descriptor));
        }
        let operation = match self.below(8) {
            0 => Operation::receive_picked(descriptor),
            1 => Operation::receive_multishot(descriptor),
            2 => send(descriptor, 10),
            3 => Operation::poll(descriptor, Interest::Writable),
            4 => Operation::shutdown(descriptor, Shutdown::Write),
            5 => Operation::shutdown(descriptor, Shutdown::Both),
            6 => Operation::connect(descriptor, anywhere()),
            _ => return self.submit_owned(descriptor),
        };
        self.submit(operation);
    }

    fn submit_owned(&mut self, descriptor: Descriptor) {
        let operation = if self.once_in(2) {
            OwnedOperation::Receive { descriptor }
        } else {
            OwnedOperation::Send { descriptor }
        };
        let answer = self.event_loop.submit_owned(operation, vec![1; 8], self.next_data);
        let Ok((handle, orphan)) = answer else { return };
        self.submitted(Ok(handle), None);
        if self.once_in(2) {
            self.event_loop.abandon(orphan);
        } else {
            self.orphans.push(orphan);
        }
    }

    /// Receives further bytes into a buffer in hand, or sends from it.
    fn use_buffer(&mut self) {
        let (nth, at) = (self.below(self.open.len()), self.below(self.held.len()));
        let (descriptor, _) = self.open[nth];
        let (buffer, bytes) = self.held[at];
        let data = self.next_data;
        let answer = if self.once_in(2) {
            self.event_loop.submit_receive_into(descriptor, buffer, bytes, data)
        } else {
            self.event_loop.submit_send_from(descriptor, buffer, 0..bytes, data)
        };
        if self.submitted(answer, Some(buffer)) {
            self.held.swap_remove(at);
        }
    }

    fn arm_one(&mut self) {
        let first = self.event_loop.now() + self.below(100) as u64;
        let period = self.random.up_to(50) as u64;
        let repeats = self.once_in(2);
        self.submit(if repeats {
            Operation::repeating_timer(first, period)
        } else {
            Operation::timer(first)
        });
    }

    fn cancel_one(&mut self) {
        if !self.live.is_empty() {
            let nth = self.below(self.live.len());
            let (handle, _) = *self.live.values().nth(nth).unwrap();
            self.event_loop.cancel(handle);
        }
    }

    /// Answers one request, with an error or with what it is for.
    fn answer_one(&mut self) {
        let asked = self.script.asked();
        while self.answered < asked.len() && asked[self.answered].ended {
            self.answered += 1;
        }
        let waiting: Vec<usize> =
            (self.answered..asked.len()).filter(|&nth| !asked[nth].ended).collect();
        if waiting.is_empty() {
            return;
        }
        let nth = waiting[self.below(waiting.len())];
        if self.once_in(3) {
            let (errno, other) = (self.below(2), [libc::EINTR, libc::ECONNRESET]);
            let errno = if asked[nth].canceled { libc::ECANCELED } else { other[errno] };
            self.script.answer(nth, -errno);
        } else {
            self.succeed(nth, &asked[nth]);
        }
    }

    fn succeed(&mut self, nth: usize, asked: &Asked) {
        match asked.request {
            Request::ReceivePicked { multishot, .. } => {
                if self.once_in(5) {
                    self.script.answer(nth, 0);
                } else {
                    let more = multishot && self.once_in(2);
                    self.script.answer_bytes(nth, b"hello", more);
                }
            }
            Request::Accept { .. } => {
                self.next_accepted += 1;
                self.opened += 1;
                self.script.answer(nth, self.next_accepted);
            }
            Request::Receive { .. } => self.script.answer_bytes(nth, b"abc", false),
            Request::Send { length, .. } if length > 0 => {
                let sent = self.random.up_to(length as usize);
                self.script.answer(nth, sent as i32);
            }
            Request::Nop
            | Request::Connect { .. }
            | Request::Send { .. }
            | Request::SendVectored { .. }
            | Request::Poll { .. }
            | Request::Shutdown { .. }
            | Request::ReadAt { .. }
            | Request::WriteAt { .. } => self.script.answer(nth, 0),
        }
    }

    fn tick(&mut self, room: usize) {
        let mut events = vec![Event::EMPTY; room];
        let count = self.event_loop.tick(&mut events, Wait::Zero).unwrap();
        for event in &events[..count] {
            self.take(event);
        }
    }

    fn take(&mut self, event: &Event) {
        let data = event.user_data();
        let result = event
            .result()
            .map_or_else(|error| -i64::from(error.raw_os_error().unwrap()), i64::from);
        self.trace.push((data, event.more(), result));
        assert!(!self.ended.contains(&data), "an event after the final one: {event:?}");
        let &(_, buffer) = self.live.get(&data).expect("an event of no operation");
        if !event.more() {
            self.ended.insert(data);
            self.live.remove(&data);
            if let Some(buffer) = buffer {
                // How many bytes it holds now does not matter: one is enough for what is done here.
                self.held.push((buffer, 1));
            }
        }
        if let Some(buffer) = event.buffer() {
            let bytes = event.result().unwrap();
            assert_eq!(self.event_loop.bytes(buffer, 0..bytes), b"hello");
            self.held.push((buffer, bytes));
        }
        if let Some(descriptor) = event.descriptor() {
            self.open.push((descriptor, false));
        }
        if let Some(orphan) = event.orphan() {
            self.take_back(orphan);
        }
    }

    fn take_back(&mut self, orphan: OrphanId) {
        let Some(ours) = self.orphans.iter().position(|&kept| kept == orphan) else {
            // It was abandoned when its event was made already, and waited for room.
            assert!(self.event_loop.reclaim(orphan).is_none());
            return;
        };
        self.orphans.swap_remove(ours);
        if self.once_in(2) {
            assert_eq!(self.event_loop.reclaim(orphan).unwrap().len(), 8);
        } else {
            self.event_loop.abandon(orphan);
        }
    }

    /// Lets everything end: cancels and closes it all, and answers what is asked.
    fn finish(&mut self) {
        self.script.set_room(usize::MAX);
        self.script.answer_cancels(true);
        for (handle, _) in self.live.values() {
            self.event_loop.cancel(*handle);
        }
        for _ in 0..TICKS_MAX {
            for (descriptor, _) in std::mem::take(&mut self.open) {
                self.close(descriptor);
            }
            for (buffer, _) in std::mem::take(&mut self.held) {
                self.event_loop.return_buffer(buffer);
            }
            self.answer_all();
            self.script.advance(100_000_000);
            self.tick(16);
            if self.live.is_empty() && self.held.is_empty() && self.open.is_empty() {
                break;
            }
        }
    }

    /// Ends what was canceled before cancels were answered, and what a close waits for.
    fn answer_all(&mut self) {
        for (nth, asked) in self.script.asked().iter().enumerate().skip(self.answered) {
            if asked.ended {
                continue;
            }
            match asked.request {
                Request::Receive { .. }
                | Request::ReceivePicked { .. }
                | Request::Accept { .. }
                | Request::Poll { .. }
                    if !asked.canceled => {}
                Request::Send { length, .. } if !asked.canceled => {
                    self.script.answer(nth, length as i32);
                }
                Request::Nop
                | Request::Accept { .. }
                | Request::Connect { .. }
                | Request::Receive { .. }
                | Request::ReceivePicked { .. }
                | Request::Send { .. }
                | Request::SendVectored { .. }
                | Request::Poll { .. }
                | Request::Shutdown { .. }
                | Request::ReadAt { .. }
                | Request::WriteAt { .. } => {
                    self.script.answer(nth, if asked.canceled { -libc::ECANCELED } else { 0 });
                }
            }
        }
    }

    fn assert_nothing_is_left(&mut self) {
        let asked = self.script.asked();
        let waiting: Vec<&Asked> = asked.iter().filter(|asked| !asked.ended).collect();
        assert!(self.live.is_empty(), "no final event for {:?} {waiting:?}", self.live);
        let counts = self.event_loop.statistics();
        assert_eq!((counts.operations.now, counts.timers.now, counts.sockets.now), (0, 0, 0));
        assert_eq!((counts.buffers.now, counts.owned_buffers.now), (0, 0));
        assert_eq!((counts.stale_completions, counts.events), (0, self.trace.len() as u64));
        let released = self.script.released();
        let different: BTreeSet<i32> = released.iter().copied().collect();
        assert_eq!((released.len(), different.len()), (self.opened, self.opened));
        let drained = self.event_loop.drain(Duration::from_secs(1));
        assert_eq!((drained.leaked, drained.events), (0, 0));
    }
}

/// Names the seed if the test panics, past the capture of its output.
struct Names(u64);

impl Drop for Names {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            let end = seed + 1;
            let words = format!("seed {seed} failed; ROTOR_SEEDS={seed}..{end} runs it alone");
            let _ = writeln!(std::io::stderr(), "{words}");
        }
    }
}

fn run(seed: u64) -> Program {
    let mut program = Program::new(seed);
    let names = Names(seed);
    for step in 0..STEPS {
        program.step(step < STEPS_BUSY);
    }
    program.finish();
    program.assert_nothing_is_left();
    drop(names);
    program
}

fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("ROTOR_SEEDS") else { return SEEDS };
    let number = |digits: &str| digits.parse::<u64>().expect("ROTOR_SEEDS is `many` or `from..to`");
    match wanted.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&wanted),
    }
}

#[test]
fn whatever_happens_every_operation_ends_once_and_nothing_is_left() {
    let _watched = std::env::var_os("ROTOR_SEEDS").is_none().then(watched);
    let mut events = 0;
    for seed in seeds() {
        events += run(seed).trace.len();
    }
    println!("{} seeds, {events} events", seeds().count());
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let _watched = watched();
    for seed in 0..20 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.script.waits(), second.script.waits(), "seed {seed}");
    }
}
