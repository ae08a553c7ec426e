//! The loop against a script: orders and answers a kernel does not give on demand.

#[path = "support/script.rs"]
mod script;

use std::net::Shutdown;
use std::time::Duration;

use rotor::backend::{Completion, Request, TickWait, Token};
use rotor::limits::{LINGER_BYTES_MAX, LINGER_PAUSE_NS_MAX, LINGER_PAUSE_NS_MIN};
use rotor::runtime::Options;
use rotor::{
    Descriptor, Event, EventKind, Interest, Operation, OwnedOperation, Reply, SubmitError,
    TickError, Wait,
};
use script::{BYTES, anywhere, listener, outcomes, send, small, start, stream, tick};

#[test]
fn each_operation_ends_with_exactly_one_final_event() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    let other = stream(&mut event_loop);
    event_loop.submit(Operation::nop(), 1).unwrap();
    event_loop.submit(Operation::receive_picked(socket), 2).unwrap();
    event_loop.submit(send(socket, 10), 3).unwrap();
    event_loop.submit(Operation::poll(socket, Interest::Readable), 4).unwrap();
    event_loop.submit(Operation::connect(other, anywhere()), 5).unwrap();
    event_loop.submit(Operation::timer(event_loop.now() + 10), 6).unwrap();
    assert!(tick(&mut event_loop).is_empty());
    for nth in [0, 2, 3, 4] {
        script.answer(nth, if nth == 2 { 10 } else { 0 });
    }
    script.answer_bytes(1, b"hello", false);
    script.advance(10);
    let mut seen = outcomes(&tick(&mut event_loop));
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0), (2, 5), (3, 10), (4, 0), (5, 0), (6, 0)]);
    assert!(tick(&mut event_loop).is_empty());
    let statistics = event_loop.statistics();
    assert_eq!((statistics.operations.now, statistics.timers.now), (0, 0));
    assert_eq!(statistics.stale_completions, 0);
}

#[test]
fn a_completion_for_nothing_is_counted_and_ignored() {
    let (mut event_loop, script) = start(small());
    event_loop.submit(Operation::nop(), 1).unwrap();
    tick(&mut event_loop);
    let token = script.asked()[0].token;
    script.answer(0, 0);
    let again = Completion { token, result: 0, more: false, buffer: None, socket_nonempty: false };
    script.intrude(again);
    script.intrude(Completion { token: Token::from_bits(0x77_0000_0003), ..again });
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0)]);
    assert_eq!(event_loop.statistics().stale_completions, 2);
}

#[test]
fn sends_on_a_socket_go_one_at_a_time_and_whole() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    for n in 0..16 {
        event_loop.submit(send(socket, 10 + n as usize), n).unwrap();
    }
    assert_eq!(script.asked().len(), 1, "one send a socket is with the backend");
    // The first goes in three parts; the others stay behind it.
    script.answer(0, 4);
    assert!(tick(&mut event_loop).is_empty());
    script.answer(1, 5);
    assert!(tick(&mut event_loop).is_empty());
    let Request::Send { pointer, length, .. } = script.asked()[2].request else { panic!() };
    assert_eq!((pointer.addr() - BYTES.as_ptr().addr(), length), (9, 1));
    script.answer(2, 1);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(0, 10)]);
    for n in 1..16 {
        assert_eq!(script.asked().len(), n + 3);
        script.answer(n + 2, 10 + n as i32);
        assert_eq!(outcomes(&tick(&mut event_loop)), [(n as u64, 10 + n as i32)]);
    }
}

#[test]
fn sends_answered_at_once_keep_their_order_without_recursion() {
    let (mut event_loop, script) = start(Options { operations: 20_000, ..small() });
    let socket = stream(&mut event_loop);
    for n in 0..20_000 {
        event_loop.submit(send(socket, 1), n).unwrap();
    }
    script.answer_at_once(&vec![1; 19_999]);
    script.answer(0, 1);
    let mut seen = Vec::new();
    while seen.len() < 20_000 {
        seen.extend(tick(&mut event_loop).iter().map(Event::user_data));
    }
    assert!(seen.is_sorted() && seen.len() == 20_000);
}

#[test]
fn calls_answered_at_once_do_not_get_before_operations_in_flight() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(send(socket, 10), 1).unwrap();
    event_loop.submit(Operation::receive_picked(socket), 2).unwrap();
    script.answer_at_once(&[1, 1]);
    let would_block = std::io::ErrorKind::WouldBlock;
    assert_eq!(event_loop.send_now(socket, b"x").unwrap_err().kind(), would_block);
    assert_eq!(event_loop.send_vectored_now(socket, &[]).unwrap_err().kind(), would_block);
    assert_eq!(event_loop.receive_now(socket, &mut [0]).unwrap_err().kind(), would_block);
}

#[test]
fn a_canceled_send_reports_what_had_gone() {
    let (mut event_loop, script) = start(small());
    script.answer_cancels(false);
    let socket = stream(&mut event_loop);
    let first = event_loop.submit(send(socket, 10), 1).unwrap();
    let second = event_loop.submit(send(socket, 10), 2).unwrap();
    event_loop.submit(send(socket, 10), 3).unwrap();
    script.answer(0, 4);
    tick(&mut event_loop);
    assert!(event_loop.cancel(second), "queued");
    assert!(event_loop.cancel(first), "in the kernel");
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, -libc::ECANCELED)]);
    script.answer(1, -libc::ECANCELED);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 4)]);
    assert_eq!(script.asked().len(), 3, "the third has its turn");
    assert!(!event_loop.cancel(first), "over");
}

#[test]
fn bytes_that_arrived_beat_a_cancel() {
    let (mut event_loop, script) = start(small());
    script.answer_cancels(false);
    let socket = stream(&mut event_loop);
    let receive = event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"late", false);
    assert!(event_loop.cancel(receive));
    let events = tick(&mut event_loop);
    assert_eq!(outcomes(&events), [(1, 4)]);
    let buffer = events[0].buffer().unwrap();
    assert_eq!(event_loop.bytes(buffer, 0..4), b"late");
    event_loop.return_buffer(buffer);
}

#[test]
fn a_connection_that_arrived_beats_a_cancel() {
    let (mut event_loop, script) = start(small());
    script.answer_cancels(false);
    let socket = listener(&mut event_loop);
    let accept = event_loop.submit(Operation::accept_multishot(socket), 1).unwrap();
    tick(&mut event_loop);
    assert!(event_loop.cancel(accept));
    script.answer(0, 77);
    let events = tick(&mut event_loop);
    assert!(events[0].descriptor().is_some() && !events[0].more());
    assert!(tick(&mut event_loop).is_empty());
    assert_eq!(script.asked().len(), 1, "a canceled accept is not handed over again");
}

#[test]
fn a_multishot_accept_canceled_before_its_event_is_taken_ends_after_it() {
    let (mut event_loop, script) = start(small());
    let socket = listener(&mut event_loop);
    script.answer_at_once(&[77]);
    let accept = event_loop.submit(Operation::accept_multishot(socket), 1).unwrap();
    assert!(event_loop.cancel(accept));
    let mut events = tick(&mut event_loop);
    events.extend(tick(&mut event_loop));
    assert!(events[0].descriptor().is_some() && events[0].more());
    assert_eq!(outcomes(&events[1..]), [(1, -libc::ECANCELED)]);
    assert!(script.asked().is_empty(), "it was handed over again");
}

#[test]
fn what_a_signal_interrupts_is_handed_over_again() {
    let (mut event_loop, script) = start(small());
    let sockets: Vec<Descriptor> = (0..5).map(|_| stream(&mut event_loop)).collect();
    let listening = listener(&mut event_loop);
    event_loop.submit(send(sockets[0], 10), 0).unwrap();
    event_loop.submit(Operation::receive_picked(sockets[1]), 1).unwrap();
    for (operation, user_data) in [
        (OwnedOperation::Receive { descriptor: sockets[2] }, 2),
        (OwnedOperation::ReadAt { descriptor: sockets[3], offset: 0 }, 3),
        (OwnedOperation::WriteAt { descriptor: sockets[4], offset: 0 }, 4),
    ] {
        event_loop.submit_owned(operation, vec![0; 8], user_data).unwrap();
    }
    event_loop.submit(Operation::accept(listening), 5).unwrap();
    for round in 0..3 {
        assert!(tick(&mut event_loop).is_empty());
        assert_eq!(script.asked().len(), 6 * (round + 1));
        (0..6).for_each(|nth| script.answer(6 * round + nth, -libc::EINTR));
    }
    assert!(tick(&mut event_loop).is_empty());
    for (nth, result) in [(18, 10), (22, 8), (23, 77)] {
        script.answer(nth, result);
    }
    (19..22).for_each(|nth| script.answer_bytes(nth, b"bytes", false));
    let mut seen = outcomes(&tick(&mut event_loop));
    seen.sort_unstable();
    assert_eq!(seen, [(0, 10), (1, 5), (2, 5), (3, 5), (4, 8), (5, 0)]);
}

#[test]
fn a_poll_and_a_shutdown_of_what_is_gone_say_no_more_than_that_they_are_over() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::poll(socket, Interest::Readable), 1).unwrap();
    event_loop.submit(Operation::shutdown(socket, Shutdown::Write), 2).unwrap();
    script.answer(0, i32::from(libc::POLLIN | libc::POLLHUP));
    script.answer(1, -libc::ENOTCONN);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0), (2, 0)]);
}

#[test]
fn a_full_backend_never_drops_an_operation_or_a_cancel() {
    let (mut event_loop, script) = start(small());
    script.set_room(3);
    let mut handles = Vec::new();
    for n in 0..40 {
        let socket = if n % 5 == 0 { Some(Operation::nop()) } else { None };
        handles.push(event_loop.submit(socket.unwrap_or(Operation::nop()), n).unwrap());
    }
    assert_eq!(script.asked().len(), 3);
    for handle in &handles[30..] {
        assert!(event_loop.cancel(*handle));
    }
    let mut ended = Vec::new();
    for _ in 0..60 {
        for (nth, asked) in script.asked().iter().enumerate() {
            if !asked.ended {
                script.answer(nth, 0);
            }
        }
        ended.extend(outcomes(&tick(&mut event_loop)));
    }
    ended.sort_unstable();
    let expected: Vec<(u64, i32)> =
        (0..40).map(|n| (n, if n < 30 { 0 } else { -libc::ECANCELED })).collect();
    assert_eq!(ended, expected);
}

#[test]
fn cancels_of_requests_in_the_kernel_survive_a_full_backend() {
    let (mut event_loop, script) = start(small());
    let sockets: Vec<Descriptor> = (0..6).map(|_| stream(&mut event_loop)).collect();
    let handles: Vec<_> = (0..6u64)
        .map(|n| event_loop.submit(Operation::receive_picked(sockets[n as usize]), n).unwrap())
        .collect();
    tick(&mut event_loop);
    script.set_room(1);
    for handle in handles {
        assert!(event_loop.cancel(handle));
    }
    let mut ended = Vec::new();
    for _ in 0..10 {
        ended.extend(outcomes(&tick(&mut event_loop)));
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..6).map(|n| (n, -libc::ECANCELED)).collect::<Vec<_>>());
}

#[test]
fn receives_wait_for_a_buffer_and_go_on_when_one_returns() {
    let (mut event_loop, script) = start(Options { buffers: 1, ..small() });
    let first = stream(&mut event_loop);
    let second = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(first), 1).unwrap();
    event_loop.submit(Operation::receive_multishot(second), 2).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"one", false);
    script.answer_bytes(1, b"two", false);
    let events = tick(&mut event_loop);
    assert_eq!(outcomes(&events), [(1, 3)]);
    assert_eq!(event_loop.statistics().starved, 1);
    // Nothing is asked again while there is no buffer.
    for _ in 0..5 {
        assert!(tick(&mut event_loop).is_empty());
    }
    assert_eq!(script.asked().len(), 2);
    event_loop.return_buffer(events[0].buffer().unwrap());
    tick(&mut event_loop);
    assert_eq!(script.asked().len(), 3);
    script.answer_bytes(2, b"two", false);
    let events = tick(&mut event_loop);
    assert_eq!(outcomes(&events), [(2, 3)]);
    assert!(events[0].more(), "a multishot receive goes on after the backend ended it");
    assert_eq!(script.asked().len(), 4);
}

#[test]
fn a_receive_that_finds_the_backend_full_holds_no_buffer() {
    let (mut event_loop, script) = start(small());
    let sockets: Vec<Descriptor> = (0..4).map(|_| stream(&mut event_loop)).collect();
    script.set_room(0);
    event_loop.submit(Operation::receive_picked(sockets[0]), 0).unwrap();
    for _ in 0..5 {
        assert!(tick(&mut event_loop).is_empty());
    }
    script.set_room(8);
    tick(&mut event_loop);
    for n in 1..4 {
        event_loop.submit(Operation::receive_picked(sockets[n as usize]), n).unwrap();
    }
    tick(&mut event_loop);
    (0..4).for_each(|nth| script.answer_bytes(nth, b"one", false));
    let events = tick(&mut event_loop);
    assert!(events.len() == 4 && events.iter().all(|event| event.buffer().is_some()), "{events:?}");
}

#[test]
fn a_receive_that_brings_nothing_holds_no_buffer() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    for (nth, result) in [0, -libc::ECONNRESET, -libc::ECANCELED, 0].into_iter().enumerate() {
        event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
        // It has a buffer of its own, as one is free.
        assert!(matches!(script.asked()[nth].request, Request::Receive { .. }), "after {nth}");
        script.answer(nth, result);
        assert_eq!(outcomes(&tick(&mut event_loop)), [(1, result)]);
    }
}

#[test]
fn no_more_buffers_are_provided_than_receives_pick() {
    let (mut event_loop, script) = start(small());
    let sockets = [(); 2].map(|()| stream(&mut event_loop));
    for round in 0..8 {
        for socket in sockets {
            event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
        }
        tick(&mut event_loop);
        let asked = script.asked();
        // The first has a buffer of its own, as long as one is free.
        assert!(matches!(asked[2 * round].request, Request::Receive { .. }), "round {round}");
        assert!(matches!(asked[2 * round + 1].request, Request::ReceivePicked { .. }));
        (0..2).for_each(|nth| script.answer_bytes(2 * round + nth, b"x", false));
        for event in tick(&mut event_loop) {
            event_loop.return_buffer(event.buffer().unwrap());
        }
        // With no receive to pick one, none more is provided.
        tick(&mut event_loop);
    }
}

#[test]
fn a_starved_receive_can_be_canceled() {
    let (mut event_loop, script) = start(Options { buffers: 1, ..small() });
    let sockets = [stream(&mut event_loop), stream(&mut event_loop)];
    event_loop.submit(Operation::receive_picked(sockets[0]), 1).unwrap();
    let starved = event_loop.submit(Operation::receive_picked(sockets[1]), 2).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"one", false);
    script.answer_bytes(1, b"two", false);
    let held = tick(&mut event_loop)[0].buffer().unwrap();
    assert!(event_loop.cancel(starved));
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, -libc::ECANCELED)]);
    event_loop.return_buffer(held);
    assert_eq!(script.asked().len(), 2);
}

#[test]
fn an_accept_is_asked_for_only_while_a_row_is_free() {
    let (mut event_loop, script) = start(Options { sockets: 3, ..small() });
    let socket = listener(&mut event_loop);
    event_loop.submit(Operation::accept_multishot(socket), 1).unwrap();
    let mut accepted = Vec::new();
    for nth in 0..2 {
        script.answer(nth, 100 + nth as i32);
        let events = tick(&mut event_loop);
        assert!(events[0].more());
        accepted.push(events[0].descriptor().unwrap());
    }
    assert_eq!(script.asked().len(), 2, "the table is full");
    event_loop.submit(Operation::close(accepted[0]), 9).unwrap();
    assert_eq!(outcomes(&tick(&mut event_loop)), [(9, 0)]);
    assert_eq!(script.released(), [100]);
    tick(&mut event_loop);
    assert_eq!(script.asked().len(), 3);
}

#[test]
fn a_close_sends_what_is_queued_and_cancels_receives_and_polls() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    event_loop.submit(Operation::receive_picked(socket), 2).unwrap();
    event_loop.submit(send(socket, 10), 3).unwrap();
    event_loop.submit(send(socket, 20), 4).unwrap();
    event_loop.submit(Operation::poll(socket, Interest::Readable), 5).unwrap();
    event_loop.submit(Operation::close(socket), 6).unwrap();
    assert_eq!(event_loop.submit(Operation::receive_picked(socket), 7), Err(SubmitError::Closed));
    let mut seen = outcomes(&tick(&mut event_loop));
    assert!(script.released().is_empty());
    script.answer(1, 10);
    seen.extend(outcomes(&tick(&mut event_loop)));
    assert!(script.released().is_empty());
    script.answer(3, 20);
    seen.extend(outcomes(&tick(&mut event_loop)));
    assert_eq!(seen.pop(), Some((6, 0)), "the close is last");
    seen.sort_unstable();
    let canceled = -libc::ECANCELED;
    assert_eq!(seen, [(1, canceled), (2, canceled), (3, 10), (4, 20), (5, canceled)]);
    assert_eq!(script.released().len(), 1);
    assert!(matches!(script.asked()[3].request, Request::Send { length: 20, .. }));
}

#[test]
fn a_close_is_never_refused_for_a_full_table() {
    let (mut event_loop, script) = start(Options { operations: 1, ..small() });
    let sockets: Vec<Descriptor> = (0..8).map(|_| stream(&mut event_loop)).collect();
    event_loop.submit(Operation::nop(), 1).unwrap();
    let refused = event_loop.submit(Operation::nop(), 2).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "all 1 operations are in use; raise the option `operations` or wait for one to end"
    );
    for socket in sockets {
        event_loop.submit(Operation::close(socket), 3).unwrap();
    }
    assert_eq!(tick(&mut event_loop).len(), 8);
    assert_eq!(script.released().len(), 8);
}

#[test]
fn closing_waits_until_the_peer_has_taken_what_was_written() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    script.reply(Ok(Reply::Count(0))); // unread
    script.reply(Ok(Reply::Count(4096))); // unsent
    event_loop.submit(Operation::close(socket), 1).unwrap();
    assert!(tick(&mut event_loop).is_empty());
    script.reply(Ok(Reply::Count(1000))); // discarded
    script.reply(Err(std::io::ErrorKind::WouldBlock.into()));
    script.reply(Ok(Reply::Count(2048))); // unsent still
    script.advance(1_000_000);
    assert!(tick(&mut event_loop).is_empty());
    script.reply(Ok(Reply::Count(0))); // the peer has ended its side
    script.advance(2_000_000);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0)]);
    assert_eq!(script.released().len(), 1);
    assert_eq!(event_loop.statistics().resets, 0);
}

#[test]
fn closing_gives_up_at_its_bounds_and_counts_it() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    let stuck = stream(&mut event_loop);
    script.reply(Ok(Reply::Count(1)));
    event_loop.submit(Operation::close(socket), 1).unwrap();
    event_loop.submit(send(stuck, 10), 2).unwrap();
    event_loop.submit(Operation::close(stuck), 3).unwrap();
    let mut seen = Vec::new();
    let mut events = [Event::EMPTY; 8];
    let begun = event_loop.now();
    while seen.len() < 3 {
        for _ in 0..2 {
            script.reply(Err(std::io::ErrorKind::WouldBlock.into()));
            script.reply(Ok(Reply::Count(1)));
        }
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        seen.extend(outcomes(&events[..count]));
        assert!(event_loop.now() - begun <= rotor::limits::LINGER_NS_MAX + 1);
    }
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0), (2, -libc::ECANCELED), (3, 0)]);
    assert_eq!(event_loop.statistics().resets, 2);
}

#[test]
fn closing_looks_ever_less_often_and_takes_no_more_bytes_than_its_bound() {
    let (mut event_loop, script) = start(small());
    let [idle, flooded] = [(); 2].map(|()| stream(&mut event_loop));
    script.reply(Ok(Reply::Count(1))); // unread
    event_loop.submit(Operation::close(idle), 1).unwrap();
    let mut events = [Event::EMPTY; 8];
    for _ in 0..10 {
        script.reply(Err(std::io::ErrorKind::WouldBlock.into()));
        script.reply(Ok(Reply::Count(1))); // unsent
        assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 0);
    }
    let pauses = script.waits();
    assert_eq!(pauses[1..4], [1, 2, 4].map(|times| TickWait::AtMost(times * LINGER_PAUSE_NS_MIN)));
    assert_eq!(pauses.last(), Some(&TickWait::AtMost(LINGER_PAUSE_NS_MAX)));
    script.reply(Ok(Reply::Count(0))); // the peer has ended its side
    script.advance(LINGER_PAUSE_NS_MAX);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 0)]);

    script.reply(Ok(Reply::Count(1)));
    event_loop.submit(Operation::close(flooded), 2).unwrap();
    script.reply(Ok(Reply::Count(LINGER_BYTES_MAX)));
    script.reply(Ok(Reply::Count(1)));
    script.reply(Ok(Reply::Count(1))); // unsent
    script.advance(LINGER_PAUSE_NS_MIN);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 0)]);
    assert_eq!(event_loop.statistics().resets, 1);
}

#[test]
fn a_close_that_is_over_ends_no_wait() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(send(socket, 10), 1).unwrap();
    event_loop.submit(Operation::close(socket), 2).unwrap();
    tick(&mut event_loop);
    script.answer(0, 10);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 10), (2, 0)]);
    let hour = Duration::from_secs(3600);
    let mut events = [Event::EMPTY; 8];
    assert_eq!(event_loop.tick(&mut events, Wait::AtMost(hour)).unwrap(), 0);
    assert_eq!(script.waits().last(), Some(&TickWait::AtMost(hour.as_nanos() as u64)));
}

#[test]
fn timers_fire_by_deadline_and_order_of_arming_and_never_early() {
    let (mut event_loop, script) = start(small());
    let now = event_loop.now();
    for (n, delay) in [50, 10, 30, 10, 0, 50].into_iter().enumerate() {
        event_loop.submit(Operation::timer(now + delay), n as u64).unwrap();
    }
    let mut order = Vec::new();
    let mut events = [Event::EMPTY; 4];
    while order.len() < 6 {
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        for event in &events[..count] {
            assert_eq!(event.kind(), EventKind::Timer);
            order.push(event.user_data());
        }
    }
    assert_eq!(order, [4, 1, 3, 2, 0, 5]);
    let waits: Vec<TickWait> = script.waits();
    assert_eq!(waits[0], TickWait::Zero, "a timer was due");
    assert!(waits.contains(&TickWait::AtMost(10)) && waits.contains(&TickWait::AtMost(20)));
    let counted = event_loop.statistics().waits;
    assert_eq!((counted.zero_timer, counted.by_timeout, counted.zero_ready), (1, 3, 0));
}

#[test]
fn with_a_slack_timers_fire_together_late_by_at_most_that_and_never_early() {
    let nanoseconds = Duration::from_nanos;
    for (slack, expected) in [(0, 6), (15, 4), (40, 2), (u64::MAX, 1)] {
        let options = Options { timer_slack: nanoseconds(slack), ..small() };
        let (mut event_loop, script) = start(options);
        let begun = event_loop.now();
        for delay in [100, 110, 120, 150, 151, 180] {
            event_loop.submit(Operation::timer(begun + delay), delay).unwrap();
        }
        let (mut fired, mut events) = (0, [Event::EMPTY; 16]);
        while fired < 6 {
            // A bound of the caller's own holds whatever the slack.
            let count = event_loop.tick(&mut events, Wait::AtMost(nanoseconds(1000))).unwrap();
            for event in &events[..count] {
                let late = event_loop.now() - begun - event.user_data();
                assert!(late <= slack.min(1000), "{late} late at a slack of {slack}");
            }
            fired += count;
        }
        assert_eq!(script.waits().len(), expected, "{:?} at a slack of {slack}", script.waits());
    }
}

#[test]
fn a_repeating_timer_counts_from_its_previous_deadline() {
    let (mut event_loop, script) = start(small());
    let now = event_loop.now();
    let handle = event_loop.submit(Operation::repeating_timer(now + 10, 10), 1).unwrap();
    script.advance(35);
    let events: Vec<Event> = (0..3).flat_map(|_| tick(&mut event_loop)).collect();
    assert_eq!(events.len(), 3, "three periods have passed");
    assert!(events.iter().all(Event::more));
    assert!(tick(&mut event_loop).is_empty());
    script.advance(5);
    assert_eq!(tick(&mut event_loop).len(), 1);
    assert!(event_loop.cancel(handle));
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, -libc::ECANCELED)]);
}

#[test]
fn what_finds_no_room_is_delivered_by_the_next_tick() {
    let (mut event_loop, script) = start(small());
    for n in 0..10 {
        event_loop.submit(Operation::nop(), n).unwrap();
    }
    tick(&mut event_loop);
    (0..10).for_each(|nth| script.answer(nth, 0));
    let now = event_loop.now();
    event_loop.submit(Operation::timer(now), 99).unwrap();
    let mut seen = Vec::new();
    let mut events = [Event::EMPTY; 2];
    while seen.len() < 11 {
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        seen.extend(events[..count].iter().map(Event::user_data));
    }
    assert!(seen.iter().position(|&data| data == 99).unwrap() < 4, "the timer is not starved");
    seen.retain(|&data| data != 99);
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_drain_ends_everything_and_closes_what_arrives() {
    let (mut event_loop, script) = start(small());
    let socket = listener(&mut event_loop);
    event_loop.submit(Operation::accept_multishot(socket), 1).unwrap();
    let bytes = vec![0u8; 32];
    let file = stream(&mut event_loop);
    let read = OwnedOperation::ReadAt { descriptor: file, offset: 0 };
    event_loop.submit_owned(read, bytes, 2).unwrap();
    event_loop.submit(Operation::timer(u64::MAX), 3).unwrap();
    tick(&mut event_loop);
    script.answer(0, 500);
    let drained = event_loop.drain(Duration::from_secs(1));
    assert_eq!((drained.leaked, drained.resets), (0, 0));
    let mut released = script.released();
    released.sort_unstable();
    assert!(released.contains(&500) && released.len() == 3);
    let statistics = event_loop.statistics();
    assert_eq!((statistics.operations.now, statistics.sockets.now), (0, 0));
    assert_eq!(statistics.timers.now, 0);
}

#[test]
fn a_drain_gives_up_at_its_bound_and_leaks_what_is_left() {
    let (mut event_loop, script) = start(Options { drain: Duration::from_millis(3), ..small() });
    script.answer_cancels(false);
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    let file = stream(&mut event_loop);
    let read = OwnedOperation::ReadAt { descriptor: file, offset: 0 };
    event_loop.submit_owned(read, vec![0u8; 32], 2).unwrap();
    event_loop.submit(Operation::nop(), 3).unwrap();
    tick(&mut event_loop);
    script.answer(2, 0);
    let begun = event_loop.now();
    let drained = event_loop.drain(Duration::from_millis(5));
    assert_eq!(drained.leaked, 2);
    let took = event_loop.now() - begun;
    assert!((5_000_000..6_000_000).contains(&took), "{took}");
    drop(event_loop);
    // The late answers write memory that was kept for them.
    script.answer_bytes(0, b"late", false);
    script.answer_bytes(1, b"late", false);
}

#[test]
fn a_child_process_is_told_so_and_touches_nothing() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    let handle = event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    tick(&mut event_loop);
    let before = (script.asked().len(), script.waits().len());
    script.fork();
    assert_eq!(event_loop.submit(Operation::nop(), 2), Err(SubmitError::Forked));
    assert!(!event_loop.cancel(handle));
    let error = event_loop.send_now(socket, b"x").unwrap_err();
    assert!(error.to_string().contains("belongs to the parent process"), "{error}");
    let mut events = [Event::EMPTY; 1];
    assert!(matches!(event_loop.tick(&mut events, Wait::Zero), Err(TickError::Forked)));
    drop(event_loop);
    assert_eq!((script.asked().len(), script.waits().len()), before);
    assert!(script.released().is_empty());
}

#[test]
fn an_abandoned_buffer_lives_until_its_operation_ends() {
    let (mut event_loop, script) = start(small());
    script.answer_cancels(false);
    let file = stream(&mut event_loop);
    let read = OwnedOperation::ReadAt { descriptor: file, offset: 0 };
    let (_, kept) = event_loop.submit_owned(read, vec![0u8; 16], 1).unwrap();
    let (handle, left) = event_loop.submit_owned(read, vec![0u8; 16], 2).unwrap();
    tick(&mut event_loop);
    assert!(event_loop.reclaim(kept).is_none(), "in flight");
    event_loop.cancel(handle);
    event_loop.abandon(left);
    script.answer_bytes(0, b"0123456789", false);
    script.answer_bytes(1, b"0123456789", false);
    let events = tick(&mut event_loop);
    assert_eq!(outcomes(&events), [(1, 10), (2, 10)]);
    assert_eq!(events[0].orphan(), Some(kept));
    assert_eq!(events[1].orphan(), None);
    assert_eq!(&event_loop.reclaim(kept).unwrap()[..10], b"0123456789");
    assert_eq!(event_loop.statistics().orphaned, 1);
}

#[test]
fn a_held_buffer_can_be_filled_further() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"abcd", false);
    let buffer = tick(&mut event_loop)[0].buffer().unwrap();
    event_loop.submit_receive_into(socket, buffer, 4, 2).unwrap();
    assert_eq!(event_loop.bytes(buffer, 0..4), b"abcd", "readable while it is filled");
    script.answer_bytes(1, b"efgh", false);
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 4)]);
    assert_eq!(event_loop.bytes(buffer, 2..8), b"cdefgh");
    event_loop.compact(buffer, 2..8);
    assert_eq!(event_loop.bytes(buffer, 0..6), b"cdefgh");
    event_loop.return_buffer(buffer);
}

#[test]
#[should_panic(expected = "is not held")]
fn returning_a_buffer_twice_stops_at_a_named_check() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"abcd", false);
    let buffer = tick(&mut event_loop)[0].buffer().unwrap();
    event_loop.return_buffer(buffer);
    event_loop.return_buffer(buffer);
}

#[test]
fn a_held_buffer_can_be_sent_from_and_is_free_again_afterwards() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    event_loop.submit(Operation::receive_picked(socket), 1).unwrap();
    tick(&mut event_loop);
    script.answer_bytes(0, b"abcdef", false);
    let buffer = tick(&mut event_loop)[0].buffer().unwrap();
    let first = event_loop.submit_send_from(socket, buffer, 0..6, 2).unwrap();
    event_loop.submit(send(socket, 3), 3).unwrap();
    script.answer(1, 2);
    assert!(tick(&mut event_loop).is_empty());
    assert!(event_loop.cancel(first));
    let Request::Send { length: 4, .. } = script.asked()[2].request else { panic!() };
    assert_eq!(outcomes(&tick(&mut event_loop)), [(2, 2)]);
    let second = event_loop.submit_send_from(socket, buffer, 2..6, 4).unwrap();
    assert!(event_loop.cancel(second), "queued behind the other send");
    assert_eq!(outcomes(&tick(&mut event_loop)), [(4, -libc::ECANCELED)]);
    event_loop.return_buffer(buffer);
}

#[test]
fn a_send_that_is_canceled_for_want_of_room_says_what_has_gone() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    let handle = event_loop.submit(send(socket, 50), 1).unwrap();
    script.answer(0, 20);
    script.set_room(0);
    // The rest finds the backend full.
    assert!(tick(&mut event_loop).is_empty());
    assert!(event_loop.cancel(handle));
    assert_eq!(outcomes(&tick(&mut event_loop)), [(1, 20)]);
    script.set_room(8);
}

#[test]
fn a_number_of_a_programs_backend_is_never_given_up_as_a_descriptor() {
    let (mut event_loop, script) = start(small());
    let socket = stream(&mut event_loop);
    assert!(event_loop.give_up(socket).is_none(), "nobody's descriptor");
    assert!(event_loop.raw_fd(socket).is_some() && script.released().is_empty());
}
