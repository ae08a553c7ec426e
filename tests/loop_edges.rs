//! The loop at its edges, against a script: full tables and full backends, two loops on one thread,
//! ticks that fail, and arrays with room for one event.

#[path = "support/script.rs"]
mod script;

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rotor::backend::scripted::{Script, Scripted, scripted};
use rotor::backend::{
    Backend, BackendStatistics, BufferMemory, Completion, ForkedChild, Request, Submission,
    TickEnd, TickWait, Token,
};
use rotor::runtime::{Builder, Options};
use rotor::{
    Control, Descriptor, DescriptorKind, Event, Loop, Operation, OwnedOperation, Reply,
    SocketOption, SubmitError, TickError, Wait,
};
use script::{anywhere, listener, outcomes, send, small, start, stream, tick};

const CANCELED: i32 = -libc::ECANCELED;

fn elsewhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 99).into()
}

/// Where the `nth` thing asked, a connect in flight, is to go.
fn target(script: &Script, nth: usize) -> SocketAddr {
    let asked = script.asked()[nth];
    let Request::Connect { address, .. } = asked.request else { panic!("{asked:?}") };
    assert!(!asked.ended);
    // SAFETY: the connect is in flight, so the loop keeps its address.
    unsafe { (*address).decode() }.unwrap()
}

/// Answers everything that was asked and has not ended with 0.
fn answer_all(script: &Script) {
    for (nth, asked) in script.asked().iter().enumerate() {
        if !asked.ended {
            script.answer(nth, 0);
        }
    }
}

/// Connects a stream.
fn connected(event_loop: &mut Loop, script: &Script) -> Descriptor {
    let descriptor = stream(event_loop);
    event_loop.submit(Operation::connect(descriptor, anywhere()), 1000).unwrap();
    answer_all(script);
    assert!(outcomes(&tick(event_loop)).contains(&(1000, 0)));
    descriptor
}

/// Closes a stream that has unread input. Answers whether the loop waits for its peer; if not, what
/// was written may be lost to a reset.
fn close_waits(event_loop: &mut Loop, script: &Script, descriptor: Descriptor) -> bool {
    let before = script.released().len();
    script.reply(Ok(Reply::Count(100)));
    event_loop.submit(Operation::close(descriptor), 0).unwrap();
    let waits = script.released().len() == before;
    if !waits {
        // It did not ask, so the answer goes to the next who does.
        let reply = event_loop.control(Control::OpenStream { family_of: anywhere() });
        assert!(matches!(reply, Ok(Reply::Count(100))), "{reply:?}");
    }
    waits
}

#[test]
fn opens_between_two_ticks_are_bounded_by_rows_and_refused_with_words() {
    let (mut event_loop, script) =
        start(Options { operations: 1, timers: 1, sockets: 2, ..small() });
    for round in 1..=5 {
        for user_data in 0..2 {
            let descriptor = stream(&mut event_loop);
            event_loop.submit(Operation::close(descriptor), user_data).unwrap();
            let again = event_loop.submit(Operation::close(descriptor), 9);
            assert_eq!(again, Err(SubmitError::Closed));
        }
        for _ in 0..3 {
            let open = Control::OpenStream { family_of: anywhere() };
            let error = event_loop.control(open).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
            let inside = *error.get_ref().unwrap().downcast_ref::<SubmitError>().unwrap();
            assert_eq!(inside, SubmitError::Full { option: "sockets", limit: 2 });
        }
        assert_eq!(script.released().len(), 2 * round, "the kernel's descriptors are closed");
        assert_eq!(outcomes(&tick(&mut event_loop)), [(0, 0), (1, 0)]);
        assert_eq!(event_loop.statistics().sockets.now, 0);
    }
}

#[test]
fn an_accept_that_found_no_row_goes_on_when_a_canceled_one_gives_its_back() {
    let (mut event_loop, script) = start(Options { sockets: 3, ..small() });
    let (first, second) = (listener(&mut event_loop), listener(&mut event_loop));
    let handle = event_loop.submit(Operation::accept(first), 1).unwrap();
    event_loop.submit(Operation::accept(second), 2).unwrap();
    tick(&mut event_loop);
    assert_eq!((script.asked().len(), event_loop.statistics().starved), (1, 1));
    assert!(event_loop.cancel(handle));
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, CANCELED)]);
    tick(&mut event_loop);
    assert_eq!(event_loop.statistics().sockets.now, 3);
    assert_eq!(script.asked().len(), 2, "the second accept has the row");
    script.answer(1, 77);
    assert!(tick(&mut event_loop)[0].descriptor().is_some());
}

#[test]
fn an_accept_that_found_no_row_goes_on_when_an_open_fails() {
    let (mut event_loop, script) = start(Options { sockets: 2, ..small() });
    let socket = listener(&mut event_loop);
    let held = stream(&mut event_loop);
    event_loop.submit(Operation::accept(socket), 1).unwrap();
    event_loop.submit(Operation::close(held), 2).unwrap();
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 0)]);
    // The row that came free is gone again before the next tick, and comes back without an event.
    script.reply(Err(ErrorKind::OutOfMemory.into()));
    assert!(event_loop.control(Control::OpenStream { family_of: anywhere() }).is_err());
    tick(&mut event_loop);
    assert_eq!(script.asked().len(), 1);
}

#[test]
fn a_silent_receive_does_not_keep_the_only_buffer_from_one_with_bytes() {
    let (mut event_loop, script) = start(Options { buffers: 1, ..small() });
    let sockets = [(); 3].map(|()| stream(&mut event_loop));
    for (n, socket) in sockets.into_iter().enumerate() {
        event_loop.submit(Operation::receive_picked(socket), n as u64).unwrap();
    }
    tick(&mut event_loop);
    script.answer_bytes(0, b"one", false);
    let held = tick(&mut event_loop)[0].buffer().unwrap();
    script.answer_bytes(1, b"", false);
    script.answer_bytes(2, b"", false);
    assert!(tick(&mut event_loop).is_empty());
    assert_eq!(event_loop.statistics().starved, 2);
    event_loop.return_buffer(held);
    tick(&mut event_loop);
    assert_eq!(script.asked().len(), 5, "both wait with the backend, for the one buffer");
    script.answer_bytes(4, b"two", false);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 3)]);
}

#[test]
fn a_shutdown_waits_for_its_bound_once() {
    let (backend, script) = scripted();
    script.answer_cancels(false);
    let bound = Duration::from_secs(1);
    let runtime = Builder::new().drain(bound).build_with_backend(Box::new(backend)).unwrap();
    drop(runtime.spawn(async {
        let _ = rotor::net::TcpStream::connect(anywhere()).await;
    }));
    runtime.block_on(rotor::task::yield_now());
    let before = script.waits().len();
    assert_eq!(runtime.shut_down().leaked, 1);
    let waited = |wait: &TickWait| match *wait {
        TickWait::AtMost(ns) => ns,
        TickWait::Zero | TickWait::Forever => 0,
    };
    let waited: u64 = script.waits()[before..].iter().map(waited).sum();
    assert!((1_000_000_000..1_000_000_100).contains(&waited), "{waited} ns");
}

#[test]
fn a_drain_lets_go_at_its_bound_of_a_send_that_a_close_waits_for() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(send(socket, 10), 1).unwrap();
    event_loop.submit(Operation::close(socket), 2).unwrap();
    tick(&mut event_loop);
    let drained = event_loop.drain(Duration::from_secs(5));
    assert_eq!((drained.leaked, drained.resets), (0, 1));
    assert!(script.asked()[0].canceled);
    assert_eq!(script.released().len(), 1);
}

#[test]
fn what_found_the_backend_full_is_handed_over_before_a_tick_waits() {
    let (mut event_loop, script) = start(small());
    script.set_room(1);
    for user_data in 0..3 {
        event_loop.submit(Operation::nop(), user_data).unwrap();
    }
    assert_eq!(script.asked().len(), 1);
    let mut events = [Event::EMPTY; 8];
    let longest = Duration::from_secs(1);
    assert_eq!(event_loop.tick(&mut events, Wait::AtMost(longest)).unwrap(), 0);
    assert_eq!(script.asked().len(), 3, "it waited with an operation not handed over");
    let slept = TickWait::AtMost(longest.as_nanos() as u64);
    assert_eq!(script.waits(), [TickWait::Zero, TickWait::Zero, slept]);
}

#[test]
fn new_operations_do_not_get_before_one_that_found_the_backend_full_for_ever() {
    let (mut event_loop, script) = start(small());
    script.set_room(1);
    event_loop.submit(Operation::nop(), 1).unwrap();
    event_loop.submit(Operation::nop(), 777).unwrap();
    let mut seen = Vec::new();
    for user_data in 1000..1100 {
        answer_all(&script);
        seen.extend(tick(&mut event_loop).iter().map(Event::user_data));
        event_loop.submit(Operation::nop(), user_data).unwrap();
    }
    assert!(seen.contains(&777));
    assert!(seen.len() > 90, "{}", seen.len());
}

#[test]
fn every_zero_wait_is_counted_with_its_reason() {
    let (mut event_loop, script) = start(small());
    script.set_room(1);
    for user_data in 0..9 {
        event_loop.submit(Operation::nop(), user_data).unwrap();
    }
    let now = event_loop.now();
    event_loop.submit(Operation::timer(now), 9).unwrap();
    let mut events = [Event::EMPTY; 8];
    for _ in 0..6 {
        event_loop.tick(&mut events, Wait::AtMost(Duration::from_nanos(1))).unwrap();
        answer_all(&script);
    }
    let zero = script.waits().iter().filter(|&&wait| wait == TickWait::Zero).count() as u64;
    let counted = event_loop.statistics().waits;
    assert_eq!(zero, counted.zero_ready + counted.zero_spin + counted.zero_timer);
    assert!(zero >= 8 && counted.zero_timer == 1, "{counted:?}");
}

#[test]
fn a_stream_does_not_inherit_the_peer_address_of_its_row() {
    let (mut event_loop, script) = start(Options { sockets: 1, ..small() });
    let first = connected(&mut event_loop, &script);
    assert_eq!(event_loop.peer_address(first), Some(anywhere()));
    event_loop.submit(Operation::close(first), 1).unwrap();
    tick(&mut event_loop);
    let second = stream(&mut event_loop);
    assert_eq!(event_loop.peer_address(second), None);
    assert_eq!(event_loop.peer_address(first), None);
}

#[test]
fn a_second_connect_is_refused_while_one_is_queued_or_in_flight() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(send(socket, 10), 1).unwrap();
    event_loop.submit(Operation::connect(socket, anywhere()), 2).unwrap();
    let second = Operation::connect(socket, elsewhere());
    assert_eq!(event_loop.submit(second, 3), Err(SubmitError::Connecting), "queued");
    script.answer(0, 10);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 10)]);
    let refused = event_loop.submit(second, 3).unwrap_err();
    assert_eq!(refused, SubmitError::Connecting, "in flight");
    let words = "a connect of this descriptor is under way; wait for its final event";
    assert_eq!(refused.to_string(), words);
    assert_eq!(io::Error::from(refused).kind(), ErrorKind::InvalidInput);
    assert_eq!(target(&script, 1), anywhere());
    script.answer(1, -libc::ECONNREFUSED);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, -libc::ECONNREFUSED)]);
    event_loop.submit(second, 4).unwrap();
    assert_eq!(target(&script, 2), elsewhere());
}

#[test]
fn a_connect_canceled_in_the_queue_makes_place_for_another() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(send(socket, 10), 1).unwrap();
    let first = event_loop.submit(Operation::connect(socket, anywhere()), 2).unwrap();
    assert!(event_loop.cancel(first));
    event_loop.submit(Operation::connect(socket, elsewhere()), 3).unwrap();
    script.answer(0, 10);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, CANCELED), (1, 10)]);
    assert_eq!(target(&script, 1), elsewhere());
}

#[test]
fn a_connect_refused_for_a_full_table_leaves_the_address_of_the_one_in_flight() {
    let (mut event_loop, script) = start(Options { operations: 1, ..small() });
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::connect(socket, anywhere()), 1).unwrap();
    assert!(event_loop.submit(Operation::connect(socket, elsewhere()), 2).is_err());
    assert_eq!(target(&script, 0), anywhere());
    let waiting = stream(&mut event_loop);
    let refused = event_loop.submit(Operation::connect(waiting, anywhere()), 3);
    assert_eq!(refused, Err(SubmitError::Full { option: "operations", limit: 1 }));
    assert_eq!(event_loop.peer_address(waiting), None);
    script.answer(0, 0);
    assert_eq!(tick(&mut event_loop).len(), 1);
    event_loop.submit(Operation::connect(waiting, elsewhere()), 4).unwrap();
}

#[test]
fn descriptors_of_another_loop_are_refused() {
    let (mut mine, _script) = start(small());
    let (mut other, others) = start(small());
    for _ in 0..4 {
        let (foreign, _same_place) = (stream(&mut mine), stream(&mut other));
        let closed = Err(SubmitError::Closed);
        assert_eq!(other.submit(Operation::close(foreign), 1), closed);
        assert_eq!(other.submit(Operation::receive_picked(foreign), 1), closed);
        assert_eq!(other.submit(Operation::shutdown(foreign, Shutdown::Both), 1), closed);
        assert_eq!(other.peer_address(foreign), None);
        let error = other.send_now(foreign, b"lost").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        assert!(other.control(Control::SetNoDelay(foreign, true)).is_err());
    }
    assert!(others.asked().is_empty() && others.released().is_empty());
}

#[test]
fn handles_and_kept_buffers_of_another_loop_are_nobodys() {
    let (mut mine, my_script) = start(small());
    let (mut other, other_script) = start(small());
    let receive = |event_loop: &mut Loop| {
        let operation = OwnedOperation::Receive { descriptor: stream(event_loop) };
        event_loop.submit_owned(operation, vec![5; 8], 1).unwrap()
    };
    let ((handle, kept), _) = (receive(&mut mine), receive(&mut other));
    tick(&mut other);
    assert!(!other.cancel(handle));
    assert!(!other_script.asked()[0].canceled);
    other_script.answer(0, 0);
    my_script.answer(0, 0);
    assert_eq!((tick(&mut mine).len(), tick(&mut other).len()), (1, 1));
    assert!(other.reclaim(kept).is_none());
    assert_eq!(other.statistics().owned_buffers.now, 1);
    assert_eq!(mine.reclaim(kept).unwrap(), [5; 8]);
}

#[test]
fn a_panic_over_a_buffer_in_the_wrong_state_leaks_no_slot() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"abc", false);
    let buffer = tick(&mut event_loop)[0].buffer().unwrap();
    let mut assert_refuses = |held: bool, what: &dyn Fn(&mut Loop)| {
        assert!(catch_unwind(AssertUnwindSafe(|| what(&mut event_loop))).is_err());
        let counts = event_loop.statistics();
        assert_eq!((counts.operations.now, counts.buffers.now), (0, u32::from(held)));
        if !held {
            return;
        }
        event_loop.return_buffer(buffer);
    };
    let send_from = |range: std::ops::Range<u32>| {
        move |event_loop: &mut Loop| {
            event_loop.submit_send_from(socket, buffer, range.clone(), 2).unwrap();
        }
    };
    // More than there is; then, twice, a buffer that was returned.
    assert_refuses(true, &send_from(0..4));
    assert_refuses(false, &send_from(0..3));
    assert_refuses(false, &|event_loop| {
        event_loop.submit_receive_into(socket, buffer, 0, 2).unwrap();
    });
    assert_eq!(script.asked().len(), 1);
    event_loop.submit(send(socket, 3), 4).unwrap();
    assert_eq!(script.asked().len(), 2, "the socket's direction is free");
}

#[test]
fn only_the_peers_end_ends_a_close_before_the_peer_has_taken_everything() {
    let (mut event_loop, script) = start(Options { sockets: 64, ..small() });
    let ends = [0, libc::ECONNRESET, libc::ETIMEDOUT, libc::EPIPE, libc::ECONNABORTED];
    let others = [libc::ENOTCONN, libc::EINVAL, libc::ENOMEM, libc::ECANCELED, libc::EAGAIN];
    for errno in ends.into_iter().chain(others) {
        for owned in [false, true] {
            let socket = connected(&mut event_loop, &script);
            if owned {
                let receive = OwnedOperation::Receive { descriptor: socket };
                event_loop.submit_owned(receive, vec![0; 8], 1).unwrap();
            } else {
                event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
            }
            script.answer(script.asked().len() - 1, -errno);
            assert_eq!(outcomes(&tick(&mut event_loop)), [(1, -errno)]);
            let waits = close_waits(&mut event_loop, &script, socket);
            assert_eq!(waits, others.contains(&errno), "{}", io::Error::from_raw_os_error(errno));
        }
    }
}

#[test]
fn a_receive_that_failed_before_the_connect_says_nothing_about_the_connection() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    script.answer(0, -libc::ENOTCONN);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, -libc::ENOTCONN)]);
    event_loop.submit(Operation::connect(socket, anywhere()), 2).unwrap();
    script.answer(1, 0);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 0)]);
    assert!(close_waits(&mut event_loop, &script, socket));
}

#[test]
fn a_read_side_shut_by_the_program_is_not_the_peers_end() {
    let (mut event_loop, script) = start(small());
    for by_operation in [false, true] {
        let socket = connected(&mut event_loop, &script);
        if by_operation {
            event_loop.submit(Operation::shutdown(socket, Shutdown::Both), 1).unwrap();
            answer_all(&script);
            tick(&mut event_loop);
        } else {
            event_loop.control(Control::Shutdown(socket, Shutdown::Read)).unwrap();
        }
        event_loop.submit(Operation::receive_picked(socket), 2).unwrap();
        answer_all(&script);
        assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 0)]);
        assert!(close_waits(&mut event_loop, &script, socket));
    }
}

#[test]
fn a_close_of_a_stream_that_lingers_for_no_time_waits_for_nobody() {
    let (mut event_loop, script) = start(small());
    let socket = connected(&mut event_loop, &script);
    let none = SocketOption::Linger(Some(Duration::ZERO));
    event_loop.control(Control::Set(socket, none)).unwrap();
    assert!(!close_waits(&mut event_loop, &script, socket));
}

#[test]
fn a_receive_of_no_bytes_says_nothing_about_the_peers_end() {
    let (mut event_loop, script) = start(small());
    let socket = connected(&mut event_loop, &script);
    let receive = OwnedOperation::Receive { descriptor: socket };
    event_loop.submit_owned(receive, Vec::new(), 1).unwrap();
    script.answer(script.asked().len() - 1, 0);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0)]);
    assert!(close_waits(&mut event_loop, &script, socket));
}

#[test]
fn a_connect_of_a_connected_stream_leaves_it_connected() {
    let (mut event_loop, script) = start(small());
    for (errno, waits) in [(libc::EISCONN, true), (libc::EALREADY, true), (libc::ETIMEDOUT, false)]
    {
        let socket = connected(&mut event_loop, &script);
        event_loop.submit(Operation::connect(socket, anywhere()), 1).unwrap();
        script.answer(script.asked().len() - 1, -errno);
        assert_eq!(outcomes(&tick(&mut event_loop)), [(1, -errno)]);
        assert_eq!(close_waits(&mut event_loop, &script, socket), waits);
    }
}

#[test]
fn a_stream_that_connects_at_the_second_try_is_connected() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    for (nth, result) in [-libc::ECONNREFUSED, 0].into_iter().enumerate() {
        event_loop.submit(Operation::connect(socket, anywhere()), 1).unwrap();
        script.answer(nth, result);
        assert_eq!(outcomes(&tick(&mut event_loop)), [(1, result)]);
    }
    assert!(close_waits(&mut event_loop, &script, socket));
}

#[test]
fn a_close_that_waits_for_a_file_is_counted_as_no_reset() {
    let (mut event_loop, script) = start(small());
    script.answer_cancels(false);
    let file = std::fs::File::open("/dev/null").unwrap();
    let file = event_loop.adopt(file.into(), DescriptorKind::File).unwrap();
    let read = OwnedOperation::ReadAt { descriptor: file, offset: 0 };
    event_loop.submit_owned(read, vec![0; 8], 1).unwrap();
    event_loop.submit(Operation::close(file), 2).unwrap();
    tick(&mut event_loop);
    script.advance(rotor::limits::LINGER_NS_MAX + 1);
    assert!(tick(&mut event_loop).is_empty());
    assert_eq!(event_loop.statistics().resets, 0);
    script.answer(0, 0);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0), (2, 0)]);
    assert_eq!(event_loop.statistics().resets, 0);
}

/// A thousand ticks with one operation each and room for `room` events: answers whether the timer
/// that was due all the time has fired.
fn timer_fires_beside(
    room: usize,
    mut submit_and_answer: impl FnMut(&mut Loop, &Script, Descriptor),
) -> bool {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    let now = event_loop.now();
    event_loop.submit(Operation::timer(now), 77).unwrap();
    let mut events = vec![Event::EMPTY; room];
    (0..1000).any(|_| {
        submit_and_answer(&mut event_loop, &script, socket);
        script.advance(1000);
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        events[..count].iter().any(|event| event.user_data() == 77)
    })
}

#[test]
fn a_due_timer_is_not_starved_by_completions() {
    for room in [1, 2, 3, 8] {
        let fires = timer_fires_beside(room, |event_loop, script, _| {
            while event_loop.submit(Operation::nop(), 0).is_ok() {}
            answer_all(script);
        });
        assert!(fires, "with room for {room}");
    }
}

/// Submits operations that are over at once: their events wait for the next tick.
fn submit_over_at_once(event_loop: &mut Loop, script: &Script, socket: Descriptor) {
    let shutdown = Operation::shutdown(socket, Shutdown::Write);
    for _ in 0..8 {
        script.answer_at_once(&[0]);
        let _ = event_loop.submit(shutdown, 0);
    }
}

#[test]
fn a_due_timer_is_not_starved_by_operations_answered_at_once() {
    for room in [2, 3, 8] {
        assert!(timer_fires_beside(room, submit_over_at_once), "with room for {room}");
    }
}

#[test]
fn a_due_timer_has_its_turn_with_operations_answered_at_once_in_an_array_of_one_event() {
    assert!(timer_fires_beside(1, submit_over_at_once));
}

#[test]
fn completions_are_not_starved_by_timers_in_an_array_of_one_event() {
    let (mut event_loop, script) = start(small());
    let now = event_loop.now();
    event_loop.submit(Operation::repeating_timer(now, 1), 77).unwrap();
    event_loop.submit(Operation::nop(), 1).unwrap();
    script.answer(0, 0);
    let mut events = [Event::EMPTY; 1];
    let mut seen = Vec::new();
    for _ in 0..10 {
        script.advance(1000);
        assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 1);
        seen.push(events[0].user_data());
    }
    assert!(seen.contains(&1) && seen.contains(&77), "{seen:?}");
}

#[test]
fn a_repeating_timer_that_is_behind_is_not_in_the_way_of_others() {
    let (mut event_loop, script) = start(small());
    let now = event_loop.now();
    event_loop.submit(Operation::repeating_timer(now, 1000), 1).unwrap();
    event_loop.submit(Operation::timer(now + 1_000_000), 77).unwrap();
    script.advance(1_000_000);
    let first: Vec<u64> = tick(&mut event_loop).iter().map(Event::user_data).collect();
    assert_eq!(first, [1, 77]);
    // It makes up for the periods it missed, one a tick.
    for _ in 1..=1000 {
        assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0)]);
    }
    assert!(tick(&mut event_loop).is_empty());
}

#[test]
#[should_panic(expected = "an intruder answers nothing that was asked")]
fn a_script_cannot_end_a_request_behind_its_own_back() {
    let (mut event_loop, script) = start(small());
    let receive = OwnedOperation::Receive { descriptor: stream(&mut event_loop) };
    event_loop.submit_owned(receive, vec![1; 64], 1).unwrap();
    // The loop would hand the buffer back, and a later answer write to what is the program's again.
    let token = script.asked()[0].token;
    script.intrude(Completion {
        token,
        result: 0,
        more: false,
        buffer: None,
        socket_nonempty: false,
    });
}

#[test]
#[should_panic(expected = "an intruder answers nothing that was asked")]
fn a_script_cannot_name_a_buffer_that_no_receive_was_given() {
    let (_event_loop, script) = start(small());
    script.intrude(Completion {
        token: Token::from_bits(0x77_0000_0003),
        result: 1,
        more: false,
        buffer: Some(0),
        socket_nonempty: false,
    });
}

#[test]
fn a_script_cannot_receive_bytes_that_it_did_not_write() {
    let (mut event_loop, script) = start(small());
    let sockets = [(); 2].map(|()| stream(&mut event_loop));
    event_loop.submit(Operation::receive_picked(sockets[0]), 1).unwrap();
    let receive = OwnedOperation::Receive { descriptor: sockets[1] };
    event_loop.submit_owned(receive, vec![0; 8], 2).unwrap();
    for nth in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| script.answer(nth, 1))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| script.answer_more(nth, 1))).is_err());
    }
    assert!(tick(&mut event_loop).is_empty());
    script.answer_bytes(1, b"whole", false);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 5)]);
}

/// A script whose ticks fail as many times as it is told.
struct Failing {
    scripted: Scripted,
    failures: Rc<Cell<u32>>,
}

// SAFETY: everything is the scripted backend's, which keeps the contract; a tick that fails has done
// nothing.
unsafe impl Backend for Failing {
    fn describe(&self) -> &'static str {
        "failing"
    }
    fn check(&self) -> Result<(), ForkedChild> {
        self.scripted.check()
    }
    unsafe fn attach(&mut self, memory: BufferMemory) -> io::Result<()> {
        // SAFETY: the caller's word.
        unsafe { self.scripted.attach(memory) }
    }
    unsafe fn submit(&mut self, token: Token, request: &Request) -> Submission {
        // SAFETY: the caller's word.
        unsafe { self.scripted.submit(token, request) }
    }
    fn cancel(&mut self, token: Token) -> bool {
        self.scripted.cancel(token)
    }
    fn provide(&mut self, buffer: u16) {
        self.scripted.provide(buffer);
    }
    fn control(&mut self, control: &Control<i32>) -> io::Result<Reply<i32>> {
        self.scripted.control(control)
    }
    fn release(&mut self, fd: i32) {
        self.scripted.release(fd);
    }
    fn tick(&mut self, wait: TickWait) -> io::Result<TickEnd> {
        let left = self.failures.get();
        if left > 0 {
            self.failures.set(left - 1);
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        self.scripted.tick(wait)
    }
    fn next(&mut self) -> Option<Completion> {
        self.scripted.next()
    }
    fn now(&self) -> u64 {
        self.scripted.now()
    }
    fn granularity_ns(&self) -> u64 {
        self.scripted.granularity_ns()
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.scripted.waker()
    }
    fn statistics(&self) -> BackendStatistics {
        self.scripted.statistics()
    }
}

/// A loop, its script, and how many of the next ticks fail.
fn start_failing() -> (Loop, Script, Rc<Cell<u32>>) {
    let (scripted, script) = scripted();
    let failures = Rc::new(Cell::new(0));
    let backend = Failing { scripted, failures: failures.clone() };
    (Loop::with_backend(&small(), Box::new(backend)).unwrap(), script, failures)
}

#[track_caller]
fn assert_out_of_memory(answer: Result<usize, TickError>) {
    match answer {
        Err(TickError::Backend(error)) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM)),
        Ok(_) | Err(TickError::Forked) => panic!("{answer:?}"),
    }
}

#[test]
fn a_failed_tick_with_events_delivers_them_and_the_next_one_fails() {
    let (mut event_loop, _script, failures) = start_failing();
    let due = event_loop.now() + 1_000_000;
    let handle = event_loop.submit(Operation::timer(due), 7).unwrap();
    assert!(event_loop.cancel(handle));
    let mut events = [Event::EMPTY; 8];
    failures.set(1);
    assert_eq!(event_loop.tick(&mut events, Wait::Zero).unwrap(), 1);
    assert_eq!(outcomes(&events[..1]), [(7, CANCELED)]);
    assert_eq!(event_loop.statistics().events, 1);
    assert_out_of_memory(event_loop.tick(&mut events, Wait::Zero));
    assert_eq!(event_loop.tick(&mut events, Wait::Zero).unwrap(), 0);
}

#[test]
fn a_failed_tick_without_events_fails_at_once_and_loses_nothing() {
    let (mut event_loop, script, failures) = start_failing();
    event_loop.submit(Operation::nop(), 1).unwrap();
    script.answer(0, 0);
    let mut events = [Event::EMPTY; 8];
    failures.set(2);
    assert_out_of_memory(event_loop.tick(&mut events, Wait::Zero));
    assert_out_of_memory(event_loop.tick(&mut events, Wait::Zero));
    assert_eq!(event_loop.tick(&mut events, Wait::Zero).unwrap(), 1);
    assert_eq!(outcomes(&events[..1]), [(1, 0)]);
}

#[test]
fn a_drain_whose_tick_fails_closes_the_connections_it_throws_away() {
    let (mut event_loop, script, failures) = start_failing();
    let socket = listener(&mut event_loop);
    let timer = event_loop.submit(Operation::timer(u64::MAX), 1).unwrap();
    assert!(event_loop.cancel(timer));
    failures.set(1);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, CANCELED)]);
    script.answer_at_once(&[500]);
    event_loop.submit(Operation::accept(socket), 2).unwrap();
    // Its input is unread, so its close waits for the peer; a drain that cannot tick does not.
    script.reply(Ok(Reply::Count(100)));
    let drained = event_loop.drain(Duration::from_secs(1));
    assert_eq!((drained.leaked, drained.resets), (0, 1));
    assert!(script.released().contains(&500), "{:?}", script.released());
    assert_eq!(event_loop.statistics().sockets.now, 0);
}
