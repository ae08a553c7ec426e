//! The selector of Linux: epoll, by edges, with an eventfd for wake-ups.
#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use libc::epoll_event;

use super::selector::{self, Key, READ, Selector, WRITE};
use crate::backend::Found;
use crate::sys::descriptor;
use crate::sys::slack::LeastSlack;
use crate::sys::wake::Wake;

/// What one wait finds at most: as many events as the runtime takes from a tick.
const FOUND_MAX: usize = crate::limits::EVENTS_PER_TICK_MAX;

/// The wake-up's key: the table has no row of this index.
const WAKE: u64 = u64::MAX;

const NOTHING: epoll_event = epoll_event { events: 0, u64: 0 };

const NS_PER_MS: u64 = 1_000_000;

/// Lateness not worth another entry to the kernel.
const LATE_NS_MAX: u64 = 10_000;

/// The longest the kernel is late by itself (`MAX_SLACK` of its fs/select.c).
const KERNEL_LATE_NS_MAX: u64 = 100 * NS_PER_MS;

/// How waits are handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// In nanoseconds, by `epoll_pwait2` (Linux 5.11), if the kernel has it.
    Best,
    /// In milliseconds, by `epoll_wait`.
    Milliseconds,
}

/// An epoll instance.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    wake: Wake,
    /// What was asked for.
    precision: Precision,
    /// Waits are in nanoseconds.
    fine: bool,
    /// The kernel's waits are late by up to one part in so many.
    late_part: u64,
    events: Box<[epoll_event]>,
    found: usize,
    taken: usize,
    /// epoll's waits are late by the thread's slack too, 50 us as a rule; io_uring's are not.
    _slack: LeastSlack,
}

impl Epoll {
    /// Makes an instance. The last allocation made here.
    ///
    /// # Errors
    /// When no descriptor is free.
    pub(crate) fn new(precision: Precision) -> io::Result<Epoll> {
        let epoll = descriptor::epoll_open()?;
        let wake = Wake::new()?;
        // By edges: each wake is told once, and the counter need not be read.
        descriptor::epoll_change(
            &epoll,
            libc::EPOLL_CTL_ADD,
            wake.fd(),
            libc::EPOLLIN as u32 | ET,
            WAKE,
        )
        .map_err(io::Error::from_raw_os_error)?;
        let mut events = vec![NOTHING; FOUND_MAX].into_boxed_slice();
        let fine = precision == Precision::Best && has_fine_waits(&epoll, &mut events);
        let _slack = LeastSlack::new();
        let late_part = late_part();
        Ok(Epoll { epoll, wake, precision, fine, late_part, events, found: 0, taken: 0, _slack })
    }
}

/// Whether waits can be in nanoseconds.
pub(crate) fn has_nanoseconds() -> Found {
    match descriptor::epoll_open() {
        Ok(epoll) => Found::from(has_fine_waits(&epoll, &mut [NOTHING])),
        Err(_) => Found::NotAsked("epoll_create1 failed (no free descriptor?)"),
    }
}

const ET: u32 = libc::EPOLLET as u32;

/// Whether the kernel has `epoll_pwait2`, and lets it be called: old filters refuse what they do not
/// know.
fn has_fine_waits(epoll: &OwnedFd, events: &mut [epoll_event]) -> bool {
    descriptor::epoll_wait_ns(epoll, &mut events[..1], Some(0)).is_ok()
}

/// What part of a wait the kernel may be late by (`select_estimate_accuracy` of its fs/select.c): a
/// thousandth, and a two-hundredth for a thread that was niced. Found out once: one that is niced
/// later has waits that are late by that part.
fn late_part() -> u64 {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    if nice > 0 { 200 } else { 1000 }
}

/// What to ask the kernel for so that it is not late. The engine waits again for what is left, a small
/// part of the whole: a long wait takes two entries or three, a short one a single one. A timerfd would
/// be as exact, and cost a call for each wait, also for those that something else ends.
fn shortened(wait_ns: u64, late_part: u64) -> u64 {
    let late_ns = (wait_ns / late_part).min(KERNEL_LATE_NS_MAX);
    if late_ns < LATE_NS_MAX { wait_ns } else { wait_ns - late_ns - 1 }
}

/// Whole milliseconds, rounded up: a wait never ends early for it. Capped at what the type holds,
/// 24 days: the engine waits again for what is left.
fn milliseconds(wait_ns: u64) -> i32 {
    i32::try_from(wait_ns.div_ceil(NS_PER_MS)).unwrap_or(i32::MAX)
}

/// The events to ask for. Urgent data is asked for because a receive stops in front of it.
fn events_of(directions: u8) -> u32 {
    let mut events = ET;
    if directions & READ != 0 {
        events |= (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) as u32;
    }
    if directions & WRITE != 0 {
        events |= libc::EPOLLOUT as u32;
    }
    events
}

/// What an event says.
fn found(data: u64, events: u32) -> selector::Found {
    let has = |bits: i32| events & bits as u32 != 0;
    let broken = has(libc::EPOLLERR | libc::EPOLLHUP);
    let mut ready = 0;
    if broken || has(libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLPRI) {
        ready |= READ;
    }
    if broken || has(libc::EPOLLOUT) {
        ready |= WRITE;
    }
    let over = broken || has(libc::EPOLLRDHUP | libc::EPOLLPRI);
    selector::Found { key: Key::from_bits(data), ready, over }
}

impl Selector for Epoll {
    fn describe(&self) -> &'static str {
        match self.precision {
            Precision::Best => "epoll",
            Precision::Milliseconds => "epoll-milliseconds",
        }
    }

    fn arm(&mut self, fd: RawFd, key: Key, wanted: u8, before: u8) -> Result<(), i32> {
        let (events, data) = (events_of(wanted), key.to_bits());
        let first = if before == 0 { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
        match descriptor::epoll_change(&self.epoll, first, fd, events, data) {
            // The number was closed behind the loop's back, or registered before it came here.
            Err(libc::ENOENT) => {
                descriptor::epoll_change(&self.epoll, libc::EPOLL_CTL_ADD, fd, events, data)
            }
            Err(libc::EEXIST) => {
                descriptor::epoll_change(&self.epoll, libc::EPOLL_CTL_MOD, fd, events, data)
            }
            answer => answer,
        }
    }

    fn disarm(&mut self, fd: RawFd, _armed: u8) {
        // It fails for a number closed behind the loop's back, which epoll has let go of.
        let _ = descriptor::epoll_change(&self.epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn wait(&mut self, wait_ns: Option<u64>) -> Result<bool, i32> {
        self.taken = 0;
        self.found = 0;
        let wait_ns = wait_ns.map(|wait_ns| shortened(wait_ns, self.late_part));
        self.found = if self.fine {
            descriptor::epoll_wait_ns(&self.epoll, &mut self.events, wait_ns)?
        } else {
            descriptor::epoll_wait_ms(
                &self.epoll,
                &mut self.events,
                wait_ns.map_or(-1, milliseconds),
            )?
        };
        Ok(self.events[..self.found].iter().any(|event| { event.u64 } == WAKE))
    }

    fn found(&mut self) -> Option<selector::Found> {
        while self.taken < self.found {
            let event = self.events[self.taken];
            self.taken += 1;
            if { event.u64 } != WAKE {
                return Some(found(event.u64, event.events));
            }
        }
        None
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.wake.function()
    }

    fn sends_may_wait(&self) -> bool {
        false
    }

    /// Each arrival is an edge.
    fn tells_after_short(&self) -> bool {
        true
    }

    fn granularity_ns(&self) -> u64 {
        if self.fine { 1 } else { NS_PER_MS }
    }
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll")
            .field("fd", &self.epoll.as_raw_fd())
            .field("fine", &self.fine)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::backend::readiness::{Engine, Sizes};
    use crate::backend::{Backend, Kind, TickEnd, TickWait};
    use crate::sys::fork::ForkGuard;
    use crate::tables::arena::{Arena, Plan};

    /// By the name of what was chosen, wherever `epoll_pwait2` is lacking.
    #[test]
    fn it_is_called_what_was_asked_for() {
        for precision in [Precision::Best, Precision::Milliseconds] {
            let kind = match precision {
                Precision::Best => Kind::Epoll,
                Precision::Milliseconds => Kind::EpollMilliseconds,
            };
            let mut epoll = Epoll::new(precision).unwrap();
            assert_eq!(epoll.describe(), kind.name());
            epoll.fine = false;
            assert_eq!(epoll.describe(), kind.name());
        }
    }

    #[test]
    fn waits_are_rounded_up_to_milliseconds_and_capped() {
        for (ns, ms) in [(0, 0), (1, 1), (NS_PER_MS, 1), (NS_PER_MS + 1, 2), (u64::MAX, i32::MAX)] {
            assert_eq!(milliseconds(ns), ms, "{ns}");
        }
        let most = i32::MAX as u64 * NS_PER_MS;
        assert_eq!([most - 1, most, most + 1].map(milliseconds), [i32::MAX; 3]);
    }

    #[test]
    fn a_wait_asked_for_and_what_the_kernel_adds_are_no_more_than_the_wait() {
        for late_part in [200, 1000] {
            let mut wait_ns = 1;
            while wait_ns < u64::MAX / 3 {
                // What is left after each is waited for anew, in few steps, and none goes in circles.
                let mut left_ns = wait_ns;
                for _ in 0..8 {
                    let asked = shortened(left_ns, late_part);
                    let late = (asked / late_part).min(KERNEL_LATE_NS_MAX);
                    assert!(asked > 0 && asked + late <= left_ns + LATE_NS_MAX);
                    left_ns -= asked;
                    if left_ns == 0 {
                        break;
                    }
                }
                assert_eq!(left_ns, 0, "{wait_ns} in parts of {late_part}");
                wait_ns = wait_ns * 3 + 1;
            }
        }
    }

    #[test]
    fn an_end_or_an_error_makes_both_directions_ready_and_is_remembered() {
        let key = Key { index: 7, generation: 9 };
        let says = |events: i32| {
            let found = found(key.to_bits(), events as u32);
            assert_eq!(found.key, key);
            (found.ready, found.over)
        };
        assert_eq!(says(libc::EPOLLIN), (READ, false));
        assert_eq!(says(libc::EPOLLOUT), (WRITE, false));
        assert_eq!(says(libc::EPOLLIN | libc::EPOLLOUT), (READ | WRITE, false));
        assert_eq!(says(libc::EPOLLIN | libc::EPOLLRDHUP), (READ, true));
        assert_eq!(says(libc::EPOLLPRI), (READ, true));
        assert_eq!(says(libc::EPOLLHUP), (READ | WRITE, true));
        assert_eq!(says(libc::EPOLLERR), (READ | WRITE, true));
    }

    fn engine(precision: Precision, arena: &mut Arena) -> Engine<Epoll> {
        let guard = ForkGuard::new().unwrap();
        Engine::new(arena, SIZES, Epoll::new(precision).unwrap(), guard)
    }

    const SIZES: Sizes = Sizes { tokens: 1, descriptors: 1, buffers: 1 };

    /// Beside sleeps of the same length on the same machine, as busy as it is: the best of each.
    #[test]
    fn a_long_wait_is_late_by_less_than_half_a_thousandth() {
        const WAIT: Duration = Duration::from_millis(250);
        let mut plan = Plan::default();
        Engine::<Epoll>::plan(&mut plan, SIZES);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let mut engine = engine(Precision::Best, &mut arena);
        let (mut waited, mut slept) = (Duration::MAX, Duration::MAX);
        for _ in 0..6 {
            let start = Instant::now();
            let wait = TickWait::AtMost(WAIT.as_nanos() as u64);
            assert_eq!(engine.tick(wait).unwrap(), TickEnd::TimedOut);
            assert!(start.elapsed() >= WAIT, "early");
            waited = waited.min(start.elapsed());
            let start = Instant::now();
            std::thread::sleep(WAIT);
            slept = slept.min(start.elapsed());
        }
        assert!(waited < slept + WAIT / 2000, "{waited:?}, and a sleep took {slept:?}");
        // Six waits, each with little more than one entry.
        assert!(engine.statistics().enters <= 6 * 3, "{:?}", engine.statistics());
    }

    /// Both kinds of waits: never early, and a wake-up ends them.
    #[test]
    fn waits_of_both_precisions_are_never_early_and_end_by_a_wake() {
        for precision in [Precision::Best, Precision::Milliseconds] {
            let mut epoll = Epoll::new(precision).unwrap();
            let fine = precision == Precision::Best;
            assert_eq!(epoll.granularity_ns(), if fine { 1 } else { NS_PER_MS });
            for wait_ns in [1, 50_000, 1_300_000] {
                let start = Instant::now();
                assert_eq!(epoll.wait(Some(wait_ns)), Ok(false));
                assert!(start.elapsed().as_nanos() as u64 >= wait_ns);
                assert_eq!(epoll.found(), None);
            }
            let wake = epoll.waker();
            std::thread::spawn(move || wake());
            assert_eq!(epoll.wait(None), Ok(true));
            assert_eq!((epoll.found(), epoll.wait(Some(0))), (None, Ok(false)));
        }
    }

    /// A number may have been closed behind the loop's back, with its registration, or be registered
    /// already when it comes.
    #[test]
    fn a_number_is_watched_whatever_epoll_knew_of_it() {
        let mut epoll = Epoll::new(Precision::Best).unwrap();
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (fd, old) = (near.as_raw_fd(), Key { index: 3, generation: 1 });
        assert_eq!(epoll.arm(fd, old, READ | WRITE, READ), Ok(()), "nothing was registered");
        let key = Key { index: 3, generation: 2 };
        assert_eq!(epoll.arm(fd, key, WRITE, 0), Ok(()), "it was registered");
        assert_eq!(epoll.wait(Some(0)), Ok(false));
        assert_eq!(epoll.found(), Some(selector::Found { key, ready: WRITE, over: false }));
        assert_eq!(epoll.found(), None);
    }
}
