//! Promise 5: timers are never early, and a wait never spins.

use std::io::ErrorKind;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rotor::runtime::Options;
use rotor::time::{Instant, interval_at, sleep, sleep_until, timeout, timeout_at};
use rotor::{Event, Loop, Operation, Statistics, Wait};

use crate::rig::*;

scenarios! {
    5 timer "no timer is early, whatever its length" => never_early;
    5 timer "no sleep is early, whatever its length" => no_early_sleep;
    5 timer "a wait for a time is never shorter, and takes one tick" => bounded_wait;
    5 timer "a timer that is far costs one wait, and no zero one" => one_wait;
    5 timer "a duration is added to the clock as it is now" => fresh_clock;
    5 timer "an endless sleep is pending, and a zero one yields" => endless_and_zero;
    5 timer "a repeating timer goes by its deadlines, and catches up" => repeating;
    5 timer "a timer armed while another fires waits for the next tick" => armed_while_firing;
    5 timer "timers of all lengths at once fire each in its time" => many;
    5 timer "zero waits are counted apart: a task, a spin, a timer" => zero_waits;
    5 timer "with a spin budget a tick polls, and then sleeps" => spin_budget;
    5 receive "an idle loop waits without an end, and without a wake" => idle;
    5 receive "a wait ends with the first arrival, and a timer stays armed" => arrival_ends_wait;
    5 timer "a timeout polls its future first, and is over in its time" => timeouts;
    5 timer receive "signals end no wait early, and lose nothing" => signals;
    5 timer "a timer beyond the clock's end never fires" => beyond;
    5 timer "a timer that is moved fires once, in its new time and place" => moved;
    5 timer "a sleep that is moved is over at its new time, and not early" => moved_sleep;
    5 timer "an interval ticks from what was due" => ticks_of_an_interval;
}

fn never_early() {
    let mut event_loop = small_loop();
    for nanoseconds in (0..3_000_000).step_by(99_991) {
        let due = event_loop.now() + nanoseconds;
        event_loop.submit(Operation::timer(due), 1).unwrap();
        the_final(&mut event_loop);
        let now = event_loop.now();
        assert!(now >= due, "{} ns early of {nanoseconds}", due - now);
    }
    // Nor did any of them make the loop look again and again.
    let (timers, ticks) = (31, event_loop.statistics().ticks);
    assert!(ticks <= 3 * timers, "{ticks} ticks for {timers} timers");
    assert_idle(&mut event_loop);
}

fn no_early_sleep() {
    run(async {
        for nanoseconds in (1..2_000_000).step_by(99_991) {
            let duration = Duration::from_nanos(nanoseconds);
            let begun = std::time::Instant::now();
            sleep(duration).await;
            assert!(begun.elapsed() >= duration, "a sleep of {duration:?}");
        }
        for milliseconds in [3, 0, 1] {
            let deadline = Instant::now() + milliseconds * MILLISECOND;
            sleep_until(deadline).await;
            assert!(Instant::now() >= deadline);
        }
    });
}

fn bounded_wait() {
    let mut event_loop = small_loop();
    settle(&mut event_loop);
    for microseconds in [1, 10, 100, 999, 1000, 1001, 2500] {
        let longest = Duration::from_micros(microseconds);
        let before = event_loop.statistics();
        let begun = std::time::Instant::now();
        let count = event_loop.tick(&mut [Event::EMPTY; 4], Wait::AtMost(longest)).unwrap();
        assert!(count == 0 && begun.elapsed() >= longest, "{:?}", begun.elapsed());
        let after = event_loop.statistics();
        assert_eq!(after.waits.by_timeout - before.waits.by_timeout, 1);
        assert_eq!(zero(&after), zero(&before));
    }
}

/// Zero waits of the three kinds.
fn zero(statistics: &Statistics) -> [u64; 3] {
    let waits = statistics.waits;
    [waits.zero_ready, waits.zero_spin, waits.zero_timer]
}

fn one_wait() -> String {
    let mut event_loop = small_loop();
    settle(&mut event_loop);
    unhurried(|| {
        let before = event_loop.statistics();
        let due = event_loop.now() + 20_000_000;
        event_loop.submit(Operation::timer(due), 1).unwrap();
        let count = event_loop.tick(&mut [Event::EMPTY; 4], Wait::Forever).unwrap();
        let after = event_loop.statistics();
        assert!(count == 1 && event_loop.now() >= due);
        assert_eq!(zero(&after)[..2], zero(&before)[..2]);
        // A wait that ended too early goes on within its tick. One that is rounded down goes on often.
        let entered = after.backend.enters - before.backend.enters;
        assert!(entered <= 3, "{entered} calls into the kernel for one wait");
        let told = format!(
            "{} ticks, {} waits by time, {} by event",
            after.ticks - before.ticks,
            after.waits.by_timeout - before.waits.by_timeout,
            after.waits.by_event - before.waits.by_event
        );
        (told, after.waits.zero_timer > before.waits.zero_timer)
    })
}

fn fresh_clock() {
    run(async {
        let begun = std::time::Instant::now();
        let sleeping = {
            // The loop's last look at the clock is long ago when this is added to it.
            std::thread::sleep(5 * MILLISECOND);
            sleep(5 * MILLISECOND)
        };
        sleeping.await;
        assert!(begun.elapsed() >= 10 * MILLISECOND, "{:?}", begun.elapsed());
    });
}

fn endless_and_zero() {
    run(async {
        assert!(poll_once(sleep(Duration::MAX)).await.is_none());
        assert!(timeout(MILLISECOND, sleep(Duration::MAX)).await.is_err());
        assert!(poll_once(sleep(Duration::ZERO)).await.is_none());
        let ran = std::rc::Rc::new(std::cell::Cell::new(false));
        let other = ran.clone();
        rotor::spawn(async move { other.set(true) });
        sleep(Duration::ZERO).await;
        assert!(ran.get());
    });
}

fn repeating() -> String {
    let mut event_loop = small_loop();
    let first = event_loop.now() + 1_000_000;
    let handle = event_loop.submit(Operation::repeating_timer(first, 1_000_000), 1).unwrap();
    for nth in 0..3 {
        let events = gather(&mut event_loop, 1);
        assert!(event_loop.now() >= first + nth * 1_000_000);
        assert_eq!(events.len(), 1, "once a tick");
    }
    // It falls behind by five periods at least. All of them are due, one a tick.
    std::thread::sleep(6 * MILLISECOND);
    let behind = (event_loop.now() - first) / 1_000_000 + 1 - 3;
    assert!(behind >= 5);
    for _ in 0..behind {
        let mut events = [Event::EMPTY; 4];
        assert_eq!(event_loop.tick(&mut events, Wait::Zero).unwrap(), 1, "a period was missed");
    }
    let next = first + (3 + behind) * 1_000_000;
    gather(&mut event_loop, 1);
    assert!(event_loop.now() >= next, "early after it caught up");
    event_loop.cancel(handle);
    let end = loop {
        let event = gather(&mut event_loop, 1)[0];
        if !event.more() {
            break told(&event);
        }
    };
    assert_idle(&mut event_loop);
    end
}

fn armed_while_firing() {
    let mut event_loop = small_loop();
    let due = event_loop.now();
    event_loop.submit(Operation::timer(due), 0).unwrap();
    let mut events = [Event::EMPTY; 16];
    for round in 0..10 {
        assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 1);
        assert_eq!(events[0].user_data(), round);
        event_loop.submit(Operation::timer(due), round + 1).unwrap();
    }
    the_final(&mut event_loop);
    assert_idle(&mut event_loop);
}

fn many() {
    let mut event_loop = Loop::new(&Options { timers: 512, ..small() }).unwrap();
    let base = event_loop.now();
    let after = |number: u64| number * 7919 % 500 * 20_011;
    for number in 0..500 {
        event_loop.submit(Operation::timer(base + after(number)), number).unwrap();
    }
    let mut last = 0;
    for event in gather_timed(&mut event_loop, 500) {
        let (number, now) = event;
        assert!(now >= base + after(number), "timer {number} is early");
        assert!(after(number) >= last, "timer {number} is out of order");
        last = after(number);
    }
    assert_idle(&mut event_loop);
}

/// The next events, each with the clock after its tick.
fn gather_timed(event_loop: &mut Loop, count: usize) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while all.len() < count {
        let events = gather(event_loop, 1);
        let now = event_loop.now();
        all.extend(events.iter().map(|event| (event.user_data(), now)));
    }
    all
}

fn zero_waits() -> String {
    let mut event_loop = small_loop();
    settle(&mut event_loop);
    let mut seen = Vec::new();
    let mut before = zero(&event_loop.statistics());
    let mut note = |event_loop: &Loop| {
        let after = zero(&event_loop.statistics());
        seen.push(format!("{:?}", [0, 1, 2].map(|kind| after[kind] - before[kind])));
        before = after;
    };
    let mut events = [Event::EMPTY; 4];
    event_loop.tick(&mut events, Wait::Zero).unwrap();
    note(&event_loop);
    let due = event_loop.now();
    event_loop.submit(Operation::timer(due), 1).unwrap();
    event_loop.tick(&mut events, Wait::Forever).unwrap();
    note(&event_loop);
    event_loop.tick(&mut events, Wait::AtMost(MILLISECOND)).unwrap();
    note(&event_loop);
    event_loop.tick(&mut events, Wait::AtMost(Duration::ZERO)).unwrap();
    note(&event_loop);
    seen.join(" ")
}

fn spin_budget() {
    let options = Options { spin_budget: MILLISECOND, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    settle(&mut event_loop);
    let due = event_loop.now() + 60_000_000;
    event_loop.submit(Operation::timer(due), 1).unwrap();
    let mut ticks = 0;
    while event_loop.tick(&mut [Event::EMPTY; 4], Wait::Forever).unwrap() == 0 {
        ticks += 1;
    }
    assert!(event_loop.now() >= due);
    let waits = event_loop.statistics().waits;
    // One that spins for all of it makes thousands of ticks, or never waits.
    assert!(ticks < 10 && waits.zero_spin > 0 && waits.by_timeout > 0, "{ticks} {waits:?}");
}

fn idle() {
    let ((), _) = run_counted(builder(), async |counts| {
        let (mut stream, client) = pair().await;
        let reading = rotor::spawn(async move { stream.read(&mut [0; 4]).await.unwrap() });
        ticks().await;
        let before = counts().event_loop;
        let peer = std::thread::spawn(move || {
            std::thread::sleep(30 * MILLISECOND);
            deliver(&client, b"x");
            client
        });
        assert_eq!(reading.await.unwrap(), 1);
        let after = counts().event_loop;
        assert_eq!(zero(&after)[1..], zero(&before)[1..], "no spin, and no timer was due");
        assert!(after.ticks - before.ticks <= 3, "{} ticks", after.ticks - before.ticks);
        assert_eq!(after.waits.by_timeout, before.waits.by_timeout);
        joined(peer).await;
    });
}

fn arrival_ends_wait() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let hour = event_loop.now() + 3_600_000_000_000;
    let timer = event_loop.submit(Operation::timer(hour), 1).unwrap();
    event_loop.submit(Operation::receive_picked(stream), 2).unwrap();
    settle(&mut event_loop);
    let peer = std::thread::spawn(move || {
        std::thread::sleep(5 * MILLISECOND);
        deliver(&peer, b"x");
        peer
    });
    let mut events = [Event::EMPTY; 4];
    let mut ticks = 0;
    while event_loop.tick(&mut events, Wait::Forever).unwrap() == 0 {
        ticks += 1;
    }
    assert!(events[0].user_data() == 2 && ticks < 3);
    take(&mut event_loop, &events[0]);
    assert!(cancel(&mut event_loop, timer).is_canceled());
    peer.join().unwrap();
}

fn timeouts() {
    run(async {
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        let begun = std::time::Instant::now();
        let error = timeout(2 * MILLISECOND, std::future::pending::<()>()).await.unwrap_err();
        assert!(begun.elapsed() >= 2 * MILLISECOND);
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::TimedOut);
        // The future that loses goes on where it was.
        let open = std::cell::Cell::new(false);
        let is_open = |_: &mut Context<'_>| match open.get() {
            true => Poll::Ready(7),
            false => Poll::Pending,
        };
        let mut waiting = std::future::poll_fn(is_open);
        assert!(timeout(MILLISECOND, &mut waiting).await.is_err());
        open.set(true);
        assert_eq!(waiting.await, 7);
    });
}

extern "C" fn ignore(_: libc::c_int) {}

fn signals() {
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: zeros are an action without flags, so that calls are interrupted; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    // SAFETY: names the calling thread.
    let target = unsafe { libc::pthread_self() };
    let sender = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            // SAFETY: the thread waits for this one, so it is alive.
            assert_eq!(unsafe { libc::pthread_kill(target, libc::SIGUSR1) }, 0);
            std::thread::sleep(MILLISECOND / 10);
        }
    });
    run(async {
        let (mut stream, client) = pair().await;
        for round in 0..5_u8 {
            let begun = std::time::Instant::now();
            let mut byte = [0];
            assert!(timeout(3 * MILLISECOND, stream.read(&mut byte)).await.is_err());
            assert!(begun.elapsed() >= 3 * MILLISECOND);
            deliver(&client, &[round]);
            assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
            assert_eq!(byte, [round]);
        }
    });
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    sender.join().unwrap();
}

fn beyond() {
    let mut event_loop = small_loop();
    let never = event_loop.submit(Operation::timer(u64::MAX), 1).unwrap();
    let soon = event_loop.now() + 1_000_000;
    event_loop.submit(Operation::timer(soon), 2).unwrap();
    assert_eq!(the_final(&mut event_loop).user_data(), 2);
    settle(&mut event_loop);
    let waited = event_loop.tick(&mut [Event::EMPTY], Wait::AtMost(2 * MILLISECOND)).unwrap();
    assert_eq!(waited, 0);
    assert!(cancel(&mut event_loop, never).is_canceled());
}

fn moved() {
    let mut event_loop = small_loop();
    let now = event_loop.now();
    let far = now + 3_600_000_000_000;
    let first = event_loop.submit(Operation::timer(far), 1).unwrap();
    let second = event_loop.submit(Operation::timer(now + 2_000_000), 2).unwrap();
    assert!(event_loop.reset_timer(first, now + 2_000_000), "behind the one that is there");
    let mut seen = Vec::new();
    let mut events = [Event::EMPTY; 4];
    while seen.len() < 2 {
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        seen.extend(events[..count].iter().map(Event::user_data));
    }
    assert!(event_loop.now() >= now + 2_000_000);
    assert_eq!(seen, [2, 1], "in the order they were armed for that moment");
    assert!(!event_loop.reset_timer(first, far) && !event_loop.reset_timer(second, far));
    assert_idle(&mut event_loop);
}

fn moved_sleep() {
    run(async {
        let mut moved = pin!(sleep(Duration::from_secs(3600)));
        for nanoseconds in (1..1_000_000).step_by(99_991) {
            let end = Instant::now() + Duration::from_nanos(nanoseconds);
            moved.as_mut().reset(end);
            moved.as_mut().await;
            assert!(Instant::now() >= end);
        }
        // Away while somebody waits, and back.
        moved.as_mut().reset(Instant::now() + MILLISECOND);
        assert!(timeout_at(Instant::now(), moved.as_mut()).await.is_err());
        moved.as_mut().reset(Instant::now() + Duration::MAX);
        assert!(timeout(3 * MILLISECOND, moved.as_mut()).await.is_err());
        let end = Instant::now() + MILLISECOND;
        moved.as_mut().reset(end);
        moved.as_mut().await;
        assert!(Instant::now() >= end && moved.is_elapsed());
    });
}

fn ticks_of_an_interval() {
    run(async {
        let start = Instant::now() + MILLISECOND;
        let period = Duration::from_micros(700);
        let mut ticks = interval_at(start, period);
        for number in 0..20 {
            assert_eq!(ticks.tick().await, start + period * number);
            assert!(Instant::now() >= start + period * number);
        }
    });
}
