//! Promise 1: every operation ends with one final event, which frees its slot; nothing else does.

use std::io::IoSlice;
use std::net::Shutdown;

use rotor::{
    DescriptorKind, Event, EventKind, Handle, Interest, Loop, Operation, OwnedOperation, Wait,
};

use crate::rig::*;
use crate::scenario::Outcome;
use crate::tcp::scratch_file;

scenarios! {
    1 nop "a nop has one final event" => nop;
    1 accept "an accept has one final event" => accept;
    1 accept
        "a multishot accept has an event for each connection, and then its final one" => accept_many;
    1 connect "a connect has one final event, made or refused" => connects;
    1 receive "a receive into memory has one final event" => receives;
    1 receive "a receive into a picked buffer has one final event" => receive_picked;
    1 receive "a receive into a buffer of its own has one final event" => receive_owned;
    1 receive "a receive into the rest of a held buffer has one final event" => receive_rest;
    1 receive
        "a multishot receive has an event for each arrival, and then its final one" => receive_many;
    1 receive "a multishot receive goes on through a shortage of buffers" => receive_short;
    1 receive "a receive that fails has one final event" => receive_fails;
    1 send "a send has one final event, also where the socket was full" => sends;
    1 write_owned "a send of a buffer of its own has one final event" => send_owned;
    1 send "a send of received bytes has one final event" => send_received;
    1 vectored "a vectored send has one final event" => send_vectored;
    1 poll "a poll has one final event, for either side" => polls;
    1 shutdown "a shutdown has one final event" => shutdown;
    1 close "a close has one final event, of a stream, a listener and a file" => closes;
    1 file "a read and a write at an offset have one final event each" => files;
    1 timer "a timer has one final event" => timer;
    1 timer "a repeating timer has an event a period, and then its final one" => repeating;
    1 send vectored receive "calls answered at once have one result and take no slot" => at_once;
    1 nop "four thousand operations on a ring of eight have one final event each" => many;
    1 nop timer shutdown
        "events that find no room come with the next tick, each once" => little_room;
    1 nop receive "an old handle does not reach the next operation in its slot" => old_handles;
    1 wake "a wake ends a wait and is no event" => wake;
}

/// Nothing more comes of an operation that is over, and its slot is free.
#[track_caller]
fn over(event_loop: &mut Loop, handle: Handle) {
    assert!(!event_loop.cancel(handle), "its handle is stale");
    assert_idle(event_loop);
}

/// Submits, expects one final event, and that it frees the slot and nothing else does.
#[track_caller]
fn once(event_loop: &mut Loop, operation: Operation) -> Event {
    let handle = event_loop.submit(operation, 1234).unwrap();
    let event = the_final(event_loop);
    assert_eq!(event.user_data(), 1234);
    over(event_loop, handle);
    event
}

fn nop() -> String {
    let mut event_loop = small_loop();
    let handle = event_loop.submit(Operation::nop(), 5).unwrap();
    assert_eq!(event_loop.statistics().operations.now, 1);
    let event = the_final(&mut event_loop);
    assert_eq!(event.user_data(), 5);
    over(&mut event_loop, handle);
    told(&event)
}

fn accept() {
    let mut event_loop = small_loop();
    let (listening, address) = listener(&mut event_loop);
    // Somebody is there already, and somebody comes later.
    let first = connect(address);
    let event = once(&mut event_loop, Operation::accept(listening));
    let from = event_loop.peer_address(event.descriptor().unwrap());
    assert_eq!((event.kind(), from), (EventKind::Accept, first.local_addr().ok()));
    let handle = event_loop.submit(Operation::accept(listening), 1).unwrap();
    settle(&mut event_loop);
    let second = connect(address);
    let event = the_final(&mut event_loop);
    let from = event_loop.peer_address(event.descriptor().unwrap());
    assert_eq!(from, second.local_addr().ok());
    over(&mut event_loop, handle);
    assert_eq!(event_loop.statistics().sockets.now, 3);
}

fn accept_many() -> String {
    let mut event_loop = small_loop();
    let (listening, address) = listener(&mut event_loop);
    let accept = event_loop.submit(Operation::accept_multishot(listening), 1).unwrap();
    let peers: Vec<_> = (0..20).map(|_| connect(address)).collect();
    let events = gather(&mut event_loop, 20);
    for (event, peer) in events.iter().zip(&peers) {
        assert!(event.more() && event.kind() == EventKind::Accept);
        let from = event_loop.peer_address(event.descriptor().unwrap());
        assert_eq!(from, peer.local_addr().ok(), "in the order they came");
    }
    let end = cancel(&mut event_loop, accept);
    for event in &events {
        event_loop.submit(Operation::close(event.descriptor().unwrap()), 2).unwrap();
    }
    gather(&mut event_loop, 20);
    over(&mut event_loop, accept);
    assert_eq!(event_loop.statistics().sockets.now, 1);
    told(&end)
}

fn connects() -> String {
    let mut event_loop = small_loop();
    let (_listening, address) = listener(&mut event_loop);
    let (_bound, nobody) = bind_only();
    let stream = open_stream(&mut event_loop, address);
    let made = once(&mut event_loop, Operation::connect(stream, address));
    let stream = open_stream(&mut event_loop, nobody);
    let refused = once(&mut event_loop, Operation::connect(stream, nobody));
    format!("{}, {}", told(&made), told(&refused))
}

fn receives() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    deliver(&peer, b"before");
    let (operation, memory) = receive(stream, 64);
    let event = once(&mut event_loop, operation);
    assert_eq!(received(memory, &event), b"before");
    let (operation, memory) = receive(stream, 64);
    let handle = event_loop.submit(operation, 1).unwrap();
    settle(&mut event_loop);
    deliver(&peer, b"later");
    let event = the_final(&mut event_loop);
    assert_eq!(received(memory, &event), b"later");
    over(&mut event_loop, handle);
    drop(peer);
    told(&once(&mut event_loop, receive(stream, 64).0))
}

fn receive_picked() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    for early in [true, false] {
        if early {
            deliver(&peer, b"bytes");
        }
        let handle = event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
        if !early {
            settle(&mut event_loop);
            deliver(&peer, b"bytes");
        }
        let event = the_final(&mut event_loop);
        assert_eq!(take(&mut event_loop, &event), b"bytes");
        over(&mut event_loop, handle);
    }
    drop(peer);
    let end = once(&mut event_loop, Operation::receive_picked(stream));
    assert_eq!(end.buffer(), None);
    assert_eq!(event_loop.statistics().buffers.now, 0);
    told(&end)
}

fn receive_owned() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let operation = OwnedOperation::Receive { descriptor: stream };
    let (handle, orphan) = event_loop.submit_owned(operation, vec![0; 16], 3).unwrap();
    settle(&mut event_loop);
    deliver(&peer, b"owned");
    let event = the_final(&mut event_loop);
    assert_eq!((event.orphan(), event.result().unwrap()), (Some(orphan), 5));
    assert_eq!(event_loop.reclaim(orphan).unwrap()[..5], *b"owned");
    assert!(event_loop.reclaim(orphan).is_none(), "it comes back once");
    over(&mut event_loop, handle);
    assert_eq!(event_loop.statistics().owned_buffers.now, 0);
}

fn receive_rest() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    deliver(&peer, b"one");
    let event = once(&mut event_loop, Operation::receive_picked(stream));
    let buffer = event.buffer().unwrap();
    let handle = event_loop.submit_receive_into(stream, buffer, 3, 4).unwrap();
    settle(&mut event_loop);
    deliver(&peer, b"two");
    let event = the_final(&mut event_loop);
    assert_eq!(event.result().unwrap(), 3);
    assert_eq!(event_loop.bytes(buffer, 0..6), b"onetwo");
    event_loop.return_buffer(buffer);
    over(&mut event_loop, handle);
}

fn receive_many() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let handle = event_loop.submit(Operation::receive_multishot(stream), 6).unwrap();
    settle(&mut event_loop);
    for round in 0..10 {
        deliver(&peer, &[round; 50]);
        let events = gather(&mut event_loop, 1);
        assert!(events.len() == 1 && events[0].more(), "{events:?}");
        assert_eq!(take(&mut event_loop, &events[0]), [round; 50]);
    }
    drop(peer);
    let end = the_final(&mut event_loop);
    over(&mut event_loop, handle);
    told(&end)
}

fn receive_short() {
    let options = rotor::runtime::Options { buffers: 4, buffer_bytes: 100, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    let (stream, peer) = loop_pair(&mut event_loop);
    let handle = event_loop.submit(Operation::receive_multishot(stream), 0).unwrap();
    let sent = pattern(0, 20_000);
    deliver(&peer, sent);
    let (mut all, mut held) = (Vec::new(), Vec::new());
    while all.len() < sent.len() {
        let more = gather(&mut event_loop, 1);
        assert!(more.iter().all(Event::more), "{more:?}");
        held.extend(more);
        // Most are held back, so that the receive finds no buffer.
        if held.len() >= 3 || all.len() + held.len() * 100 >= sent.len() {
            held.drain(..).for_each(|event| all.extend(take(&mut event_loop, &event)));
        }
    }
    assert_same(&all, sent);
    drop(peer);
    assert_eq!(the_final(&mut event_loop).result().unwrap(), 0);
    over(&mut event_loop, handle);
}

fn receive_fails() -> String {
    let mut event_loop = small_loop();
    let mut kinds = Vec::new();
    for early in [true, false] {
        let (stream, peer) = loop_pair(&mut event_loop);
        if early {
            reset(peer);
            kinds.push(told(&once(&mut event_loop, Operation::receive_picked(stream))));
        } else {
            let handle = event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
            settle(&mut event_loop);
            reset(peer);
            kinds.push(told(&the_final(&mut event_loop)));
            over(&mut event_loop, handle);
        }
    }
    assert_eq!(event_loop.statistics().buffers.now, 0);
    kinds.join(", ")
}

fn sends() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let fits = once(&mut event_loop, send(stream, b"fits"));
    let filled = fill(&mut event_loop, stream);
    let handle = event_loop.submit(send(stream, pattern(1, 1 << 20)), 1).unwrap();
    settle(&mut event_loop);
    let all = read_all(peer);
    let event = the_final(&mut event_loop);
    over(&mut event_loop, handle);
    finish(&mut event_loop, Operation::close(stream));
    let all = all.join().unwrap().unwrap();
    assert_same(&all[4 + filled..], pattern(1, 1 << 20));
    format!("{}, {}", told(&fits), told(&event))
}

fn send_owned() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let bytes = pattern(3, MORE_THAN_FITS);
    let operation = OwnedOperation::Send { descriptor: stream };
    let (handle, orphan) = event_loop.submit_owned(operation, bytes.to_vec(), 3).unwrap();
    settle(&mut event_loop);
    let all = read_all(peer);
    let event = the_final(&mut event_loop);
    assert_eq!(event.orphan(), Some(orphan));
    assert_eq!(event_loop.reclaim(orphan).unwrap().len(), bytes.len());
    over(&mut event_loop, handle);
    finish(&mut event_loop, Operation::close(stream));
    assert_same(&all.join().unwrap().unwrap(), bytes);
    told(&event)
}

fn send_received() {
    let mut event_loop = small_loop();
    let (stream, mut peer) = loop_pair(&mut event_loop);
    deliver(&peer, b"mirror");
    let buffer = once(&mut event_loop, Operation::receive_picked(stream)).buffer().unwrap();
    let handle = event_loop.submit_send_from(stream, buffer, 0..6, 4).unwrap();
    assert_eq!(the_final(&mut event_loop).result().unwrap(), 6);
    event_loop.return_buffer(buffer);
    over(&mut event_loop, handle);
    let mut back = [0; 6];
    std::io::Read::read_exact(&mut peer, &mut back).unwrap();
    assert_eq!(&back, b"mirror");
}

fn send_vectored() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let slices = Box::leak(Box::new([IoSlice::new(b"one"), IoSlice::new(b"two")]));
    // SAFETY: the slices are never freed and their bytes static.
    let pieces = unsafe { Operation::send_vectored(stream, slices.as_ptr().cast(), 2) };
    let event = once(&mut event_loop, pieces);
    let filled = fill(&mut event_loop, stream);
    let handle = event_loop.submit(pieces, 1).unwrap();
    settle(&mut event_loop);
    let all = read_all(peer);
    assert_eq!(the_final(&mut event_loop).result().unwrap(), 6);
    over(&mut event_loop, handle);
    finish(&mut event_loop, Operation::close(stream));
    assert_eq!(all.join().unwrap().unwrap().len(), 12 + filled);
    told(&event)
}

fn polls() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let mut seen = vec![told(&once(&mut event_loop, Operation::poll(stream, Interest::Writable)))];
    let handle = event_loop.submit(Operation::poll(stream, Interest::Readable), 1).unwrap();
    settle(&mut event_loop);
    deliver(&peer, b"x");
    seen.push(told(&the_final(&mut event_loop)));
    over(&mut event_loop, handle);
    // It moved nothing.
    seen.push(told(&once(&mut event_loop, Operation::poll(stream, Interest::Readable))));
    let event = once(&mut event_loop, Operation::receive_picked(stream));
    assert_eq!(take(&mut event_loop, &event), b"x");
    fill(&mut event_loop, stream);
    let handle = event_loop.submit(Operation::poll(stream, Interest::Writable), 1).unwrap();
    settle(&mut event_loop);
    let all = read_all(peer);
    seen.push(told(&the_final(&mut event_loop)));
    over(&mut event_loop, handle);
    finish(&mut event_loop, Operation::close(stream));
    all.join().unwrap().unwrap();
    let (listening, address) = listener(&mut event_loop);
    let handle = event_loop.submit(Operation::poll(listening, Interest::Readable), 1).unwrap();
    settle(&mut event_loop);
    let _client = connect(address);
    seen.push(told(&the_final(&mut event_loop)));
    over(&mut event_loop, handle);
    seen.join(", ")
}

fn shutdown() -> String {
    let mut event_loop = small_loop();
    let mut seen = Vec::new();
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (stream, _peer) = loop_pair(&mut event_loop);
        seen.push(told(&once(&mut event_loop, Operation::shutdown(stream, how))));
        seen.push(told(&once(&mut event_loop, Operation::shutdown(stream, how))));
    }
    seen.join(", ")
}

fn closes() -> String {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    let (listening, _) = listener(&mut event_loop);
    let file = event_loop.adopt(scratch_file().into(), DescriptorKind::File).unwrap();
    let mut seen = Vec::new();
    for descriptor in [stream, listening, file] {
        seen.push(told(&once(&mut event_loop, Operation::close(descriptor))));
        assert_eq!(event_loop.raw_fd(descriptor), None);
    }
    assert_eq!(event_loop.statistics().sockets.now, 0);
    seen.join(", ")
}

/// Also where it is not supported.
fn files() -> Outcome {
    let mut event_loop = small_loop();
    let descriptor = event_loop.adopt(scratch_file().into(), DescriptorKind::File).unwrap();
    let write = OwnedOperation::WriteAt { descriptor, offset: 0 };
    let read = OwnedOperation::ReadAt { descriptor, offset: 0 };
    for operation in [write, read] {
        let (handle, orphan) = event_loop.submit_owned(operation, vec![1; 10], 1).unwrap();
        let event = the_final(&mut event_loop);
        assert_eq!(event.result().ok(), has_files().then_some(10));
        assert_eq!(event_loop.reclaim(orphan).unwrap(), [1; 10]);
        over(&mut event_loop, handle);
    }
    ().into()
}

fn timer() -> String {
    let mut event_loop = small_loop();
    let due = event_loop.now() + 1_000_000;
    let event = once(&mut event_loop, Operation::timer(due));
    assert!(event_loop.now() >= due);
    let past = once(&mut event_loop, Operation::timer(0));
    format!("{}, {}", told(&event), told(&past))
}

fn repeating() -> String {
    let mut event_loop = small_loop();
    let first = event_loop.now() + 100_000;
    let handle = event_loop.submit(Operation::repeating_timer(first, 100_000), 1).unwrap();
    let events = gather(&mut event_loop, 10);
    assert!(events.iter().all(|event| event.more() && event.kind() == EventKind::Timer));
    assert!(event_loop.cancel(handle));
    let end = loop {
        let event = gather(&mut event_loop, 1)[0];
        if !event.more() {
            break event;
        }
    };
    over(&mut event_loop, handle);
    told(&end)
}

fn at_once() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    assert_eq!(event_loop.send_now(stream, b"now").unwrap(), 3);
    let pieces = [IoSlice::new(b"two"), IoSlice::new(b"pieces")];
    assert_eq!(event_loop.send_vectored_now(stream, &pieces).unwrap(), 9);
    let nothing = event_loop.receive_now(stream, &mut [0; 8]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    deliver_surely(&peer, b"there");
    assert_eq!(event_loop.receive_now(stream, &mut [0; 8]).unwrap(), 5);
    let statistics = event_loop.statistics();
    assert_eq!((statistics.operations.high, statistics.events), (0, 0));
    assert_eq!((statistics.immediate.sends, statistics.immediate.receives), (2, 2));
    assert_idle(&mut event_loop);
}

fn many() {
    let options = rotor::runtime::Options { operations: 4096, ring_entries: 8, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    for number in 0..4096 {
        event_loop.submit(Operation::nop(), number).unwrap();
    }
    let events = gather(&mut event_loop, 4096);
    let mut seen: Vec<u64> = events.iter().map(Event::user_data).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..4096).collect::<Vec<u64>>());
    assert_idle(&mut event_loop);
    assert_eq!(event_loop.statistics().operations.high, 4096);
}

fn little_room() {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    let past = event_loop.now();
    for number in 0..30 {
        let operation = match number % 3 {
            0 => Operation::nop(),
            1 => Operation::timer(past),
            _ => Operation::shutdown(stream, Shutdown::Write),
        };
        event_loop.submit(operation, number).unwrap();
    }
    let mut seen = Vec::new();
    let mut events = [Event::EMPTY; 2];
    while seen.len() < 30 {
        let count = event_loop.tick(&mut events, Wait::AtMost(PATIENCE)).unwrap();
        assert!(count > 0, "{seen:?} have come, and no more");
        seen.extend(events[..count].iter().map(Event::user_data));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..30).collect::<Vec<u64>>());
    assert_idle(&mut event_loop);
}

fn old_handles() {
    let mut event_loop = Loop::new(&rotor::runtime::Options { operations: 1, ..small() }).unwrap();
    let (stream, peer) = loop_pair(&mut event_loop);
    let mut old = Vec::new();
    for _ in 0..300 {
        old.push(event_loop.submit(Operation::nop(), 1).unwrap());
        the_final(&mut event_loop);
    }
    event_loop.submit(Operation::receive_picked(stream), 2).unwrap();
    assert!(old.iter().all(|&handle| !event_loop.cancel(handle)));
    settle(&mut event_loop);
    deliver(&peer, b"safe");
    let event = the_final(&mut event_loop);
    assert_eq!(take(&mut event_loop, &event), b"safe");
}

fn wake() {
    let mut event_loop = small_loop();
    let wake = event_loop.waker();
    for _ in 0..10 {
        wake();
        let mut events = [Event::EMPTY; 4];
        assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 0);
    }
    assert_eq!(event_loop.statistics().events, 0);
}
