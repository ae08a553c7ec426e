//! How long ticks wait, and what ends them.
//!
//! # Unsafe
//! Signals are sent to the test's own thread.

use super::*;
use crate::backend::uring::wait::{WAIT_NS_MAX, timespec};

#[test]
fn waits_are_split_exactly_and_capped() {
    let text = |time: Timespec| format!("{time:?}");
    assert_eq!(text(timespec(1_500_000_001)), text(Timespec::new().sec(1).nsec(500_000_001)));
    assert_eq!(text(timespec(u64::MAX)), text(timespec(WAIT_NS_MAX)));
    let now = clock::now_ns();
    assert!(i64::try_from(WAIT_NS_MAX + now).is_ok());
}

#[test]
fn a_zero_wait_enters_only_when_there_is_something_to_do() {
    let mut uring = uring(8);
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::NotEntered);
    assert_eq!(uring.statistics().enters, 0);
    submit(&mut uring, 1, &Request::Nop);
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::Event);
    // At hand: even the longest wait ends at once, and without a call.
    assert_eq!(uring.tick(TickWait::Forever).unwrap(), TickEnd::Event);
    assert_eq!(uring.statistics().enters, 1);
    assert!(uring.next().is_some());
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::NotEntered);
    let (near, mut far) = pair();
    let mut memory = [0; 8];
    submit(&mut uring, 2, &receive(&near, &mut memory));
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::Polled);
    assert!(uring.next().is_none());
    far.write_all(b"x").unwrap();
    // Deferred: the kernel raises its flag, and the next zero wait fetches.
    while uring.tick(TickWait::Zero).unwrap() == TickEnd::NotEntered {}
    assert_eq!(uring.next().unwrap().result, 1);
}

#[test]
fn a_wait_that_is_over_at_once_hands_over_what_is_queued() {
    let mut uring = uring(8);
    submit(&mut uring, 1, &Request::Nop);
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::Event);
    submit(&mut uring, 2, &Request::Nop);
    assert_eq!(uring.tick(TickWait::AtMost(SECOND)).unwrap(), TickEnd::Event);
    let came: Vec<_> = std::iter::from_fn(|| uring.next()).map(|it| it.token).collect();
    assert_eq!(came, [token(1), token(2)]);
}

#[test]
fn completions_the_kernel_keeps_are_fetched_by_ticks_that_do_not_wait() {
    let mut uring = uring(8);
    for index in 0..100 {
        submit(&mut uring, index, &Request::Nop);
    }
    let mut seen = vec![0; 100];
    for _ in 0..100 {
        uring.tick(TickWait::Zero).unwrap();
        collect(&mut uring, &mut seen);
    }
    assert!(seen.iter().all(|&count| count == 1), "{seen:?}");
    assert!(uring.statistics().overflows > 0);
}

#[test]
fn a_timed_wait_is_never_early_and_takes_one_call() {
    let mut uring = uring(8);
    let mut late_max = 0;
    for round in 0..200_u64 {
        let wait_ns = 50_000 + (round * 37 % 850) * 1000 + round % 7;
        let start = uring.now();
        assert_eq!(uring.tick(TickWait::AtMost(wait_ns)).unwrap(), TickEnd::TimedOut);
        let passed = uring.now() - start;
        assert!(passed >= wait_ns, "asked {wait_ns}, waited {passed}");
        late_max = late_max.max(passed - wait_ns);
    }
    assert_eq!(uring.statistics().enters, 200);
    println!("200 waits of 50 to 900 us: latest {late_max} ns late");
}

#[test]
fn a_wait_submits_what_is_queued_and_still_lasts_its_time() {
    let mut uring = uring(8);
    let (near, _far) = pair();
    let mut memory = [0; 8];
    submit(&mut uring, 1, &receive(&near, &mut memory));
    let start = uring.now();
    assert_eq!(uring.tick(TickWait::AtMost(3_000_000)).unwrap(), TickEnd::TimedOut);
    assert!(uring.now() - start >= 3_000_000);
    assert_eq!(uring.statistics().enters, 1);
}

#[test]
fn a_wait_longer_than_the_kernel_counts_is_not_over_at_once() {
    let mut uring = uring(8);
    for wait in [TickWait::AtMost(u64::MAX), TickWait::AtMost(WAIT_NS_MAX), TickWait::Forever] {
        let waker = uring.waker();
        let start = uring.now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker();
        });
        assert_eq!(uring.tick(wait).unwrap(), TickEnd::Event);
        assert!(uring.now() - start >= 19_000_000);
        thread.join().unwrap();
    }
}

#[test]
fn every_one_of_300_wakes_ends_a_wait() {
    let mut uring = uring(8);
    let waker = uring.waker();
    let seen = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..300 {
                waker();
                while seen.load(Ordering::Acquire) <= round {
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..300 {
            assert_eq!(uring.tick(TickWait::Forever).unwrap(), TickEnd::Event);
            assert!(uring.next().is_none());
            seen.fetch_add(1, Ordering::Release);
        }
    });
    // Nothing is left over: wakes do not end waits twice.
    assert_eq!(uring.tick(TickWait::AtMost(5_000_000)).unwrap(), TickEnd::TimedOut);
    waker();
    drop(uring);
    waker();
}

#[test]
fn a_wake_before_the_wait_ends_it_and_one_beside_a_completion_is_not_lost() {
    let mut uring = uring(8);
    uring.waker()();
    assert_eq!(uring.tick(TickWait::Forever).unwrap(), TickEnd::Event);
    submit(&mut uring, 1, &Request::Nop);
    uring.waker()();
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::Event);
    while uring.next().is_some() {}
    // Reaped by `next`, and not yet the end of any wait.
    assert_eq!(uring.tick(TickWait::Forever).unwrap(), TickEnd::Event);
    assert_eq!(uring.tick(TickWait::AtMost(1_000_000)).unwrap(), TickEnd::TimedOut);
}

#[test]
fn the_watch_on_wakes_survives_its_own_end() {
    let mut uring = uring(8);
    for _ in 0..50 {
        // As an overflowing completion queue ends it.
        assert!(uring.cancel(WAKE_TOKEN));
        uring.tick(TickWait::Forever).unwrap();
        assert!(uring.next().is_none());
        assert!(!uring.wake_armed);
        let waker = uring.waker();
        let thread = std::thread::spawn(move || waker());
        assert_eq!(uring.tick(TickWait::Forever).unwrap(), TickEnd::Event);
        thread.join().unwrap();
        while uring.tick(TickWait::AtMost(100_000)).unwrap() != TickEnd::TimedOut {}
    }
}

#[test]
fn wakes_are_not_lost_while_the_completion_queue_overflows() {
    let mut uring = uring(8);
    let waker = uring.waker();
    for index in 0..500 {
        submit(&mut uring, index, &Request::Nop);
        waker();
    }
    let mut seen = vec![0; 500];
    let end = uring.now() + 10 * SECOND;
    while uring.in_flight > 0 && uring.now() < end {
        uring.tick(TickWait::AtMost(SECOND)).unwrap();
        collect(&mut uring, &mut seen);
    }
    assert!(seen.iter().all(|&count| count == 1));
    while uring.tick(TickWait::AtMost(1_000_000)).unwrap() != TickEnd::TimedOut {}
    waker();
    assert_eq!(uring.tick(TickWait::AtMost(SECOND)).unwrap(), TickEnd::Event);
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Says that the work is over, also when it panics: the thread that interrupts it would go on.
struct SayOver<'a>(&'a AtomicBool);

impl Drop for SayOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Interrupts the calling thread a thousand times a second while the work is done.
fn under_a_storm_of_signals(work: impl FnOnce()) {
    // SAFETY: a handler that does nothing may run anywhere.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, ptr::null_mut()), 0);
    }
    // SAFETY: names the calling thread, which outlives the scope below.
    let target = unsafe { libc::pthread_self() };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                // SAFETY: the target waits for this thread to end.
                unsafe { libc::pthread_kill(target, libc::SIGALRM) };
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _say = SayOver(&over);
        work();
    });
}

#[test]
fn signals_end_no_wait_early_and_lose_nothing() {
    let mut uring = uring(8);
    let (near, mut far) = pair();
    under_a_storm_of_signals(|| {
        for round in 0..40_u64 {
            let wait_ns = 1_500_000 + round * 300_001;
            let mut memory = [0_u8; 4];
            submit(&mut uring, round as u32, &receive(&near, &mut memory));
            let start = uring.now();
            assert_eq!(uring.tick(TickWait::AtMost(wait_ns)).unwrap(), TickEnd::TimedOut);
            assert!(uring.now() - start >= wait_ns);
            far.write_all(b"1234").unwrap();
            assert_eq!(uring.tick(TickWait::Forever).unwrap(), TickEnd::Event);
            assert_eq!(uring.next().unwrap().result, 4);
            assert_eq!(&memory, b"1234");
        }
    });
    assert!(uring.statistics().enters > 80, "{:?}", uring.statistics());
}
