//! Promise 2, its first half: a cancel is a request, and the operation's final event is the answer. What
//! had arrived beats it.

use std::io::IoSlice;
use std::net::Shutdown;
use std::os::fd::{FromRawFd, OwnedFd};

use rotor::net::{TcpListener, TcpStream};
use rotor::time::{sleep, timeout};
use rotor::{
    Descriptor, DescriptorKind, Event, Handle, Interest, Loop, Operation, OwnedOperation, Wait,
};

use crate::rig::*;
use crate::scenario::Outcome;

scenarios! {
    2 nop "a nop that is canceled ends once" => nop;
    2 accept "an accept is canceled, and the connection stays for the next" => accept;
    2 accept "a multishot accept is canceled, and no connection is lost" => accept_many;
    2 connect "a connect is canceled, in flight and before it" => connects;
    2 receive "receives of every kind are canceled, and lose no byte" => receives;
    2 receive "a receive that is canceled when its bytes have arrived loses none" => arrived;
    2 receive "bytes that a tick has got beat a cancel" => in_hand;
    2 receive "of receives in a row any is canceled, and the others keep their order" => in_a_row;
    2 receive "cancels and bytes that cross lose no byte, a hundred times" => crossing;
    2 receive "a multishot receive that is canceled loses no byte" => receive_many;
    2 send "a send that waits is canceled, and says what had gone" => sends;
    2 send "of sends in a row any is canceled, and the others keep their order" => sends_in_a_row;
    2 write_owned "a send of a buffer of its own is canceled, and gives it back" => send_owned;
    2 vectored "a vectored send that waits is canceled" => send_vectored;
    2 poll "polls of either side are canceled" => polls;
    2 shutdown "a shutdown behind a send is canceled, and the stream stays open" => shutdown;
    2 close "a close is not canceled" => close;
    2 file "a read that waits in a pipe is canceled, and gives its buffer back" => file;
    2 timer "timers are canceled, armed and due" => timers;
    2 timer "a repeating timer is canceled in the middle" => repeating;
    2 control receive poll "what waits on a descriptor is canceled in one call" => waiting;
    2 nop "a second cancel and a late one change nothing" => twice;
    2 nop "a cancel finds its operation with a full ring too" => full_ring;
    2 receive "bytes that arrived beat a timeout" => bytes_beat_timeout;
    2 accept "a connection that arrived beats a timeout" => connection_beats_timeout;
    2 connect "a connect that times out leaves nothing open" => connect_times_out;
}

fn nop() {
    let mut event_loop = small_loop();
    let handle = event_loop.submit(Operation::nop(), 1).unwrap();
    event_loop.cancel(handle);
    let event = the_final(&mut event_loop);
    assert!(event.is_canceled() || event.result().is_ok(), "{event:?}");
    assert_idle(&mut event_loop);
}

/// Cancels an operation that waits: before the kernel has seen it, and after.
fn cancel_both_ways(event_loop: &mut Loop, operation: impl Fn() -> Operation) -> String {
    let handle = event_loop.submit(operation(), 1).unwrap();
    let before = cancel(event_loop, handle);
    let handle = event_loop.submit(operation(), 2).unwrap();
    settle(event_loop);
    let after = cancel(event_loop, handle);
    assert_idle(event_loop);
    format!("{}, {}", told(&before), told(&after))
}

fn accept() -> String {
    let mut event_loop = small_loop();
    let (listening, address) = listener(&mut event_loop);
    let seen = cancel_both_ways(&mut event_loop, || Operation::accept(listening));
    assert_eq!(event_loop.statistics().sockets.now, 1, "the row came back");
    let client = connect(address);
    let event = finish(&mut event_loop, Operation::accept(listening));
    let from = event_loop.peer_address(event.descriptor().unwrap());
    assert_eq!(from, client.local_addr().ok());
    seen
}

fn accept_many() {
    let mut event_loop = small_loop();
    let (listening, address) = listener(&mut event_loop);
    let (mut accepted, mut clients) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let handle = event_loop.submit(Operation::accept_multishot(listening), 1).unwrap();
        let mut events = Vec::new();
        if round % 2 == 0 {
            events = glance(&mut event_loop);
        }
        clients.push(connect(address).local_addr().unwrap());
        if round % 3 == 0 {
            events.extend(glance(&mut event_loop));
            clients.push(connect(address).local_addr().unwrap());
        }
        event_loop.cancel(handle);
        until_the_final(&mut event_loop, &mut events);
        for descriptor in events.iter().filter_map(Event::descriptor) {
            accepted.extend(event_loop.peer_address(descriptor));
            finish(&mut event_loop, Operation::close(descriptor));
        }
    }
    while accepted.len() < clients.len() {
        let descriptor =
            finish(&mut event_loop, Operation::accept(listening)).descriptor().unwrap();
        accepted.extend(event_loop.peer_address(descriptor));
        finish(&mut event_loop, Operation::close(descriptor));
    }
    assert_eq!(accepted, clients);
    let handle = event_loop.submit(Operation::accept(listening), 1).unwrap();
    settle(&mut event_loop);
    assert!(cancel(&mut event_loop, handle).is_canceled(), "there are no more");
}

/// What has come by now.
fn glance(event_loop: &mut Loop) -> Vec<Event> {
    let mut events = [Event::EMPTY; 16];
    let count = event_loop.tick(&mut events, Wait::Zero).unwrap();
    events[..count].to_vec()
}

/// Goes on until an operation's final event is among its events.
fn until_the_final(event_loop: &mut Loop, events: &mut Vec<Event>) {
    while events.iter().all(Event::more) {
        events.extend(gather(event_loop, 1));
    }
}

fn connects() -> String {
    let address = full_listener();
    let mut event_loop = small_loop();
    let mut seen = Vec::new();
    for early in [true, false] {
        let stream = open_stream(&mut event_loop, address);
        let handle = event_loop.submit(Operation::connect(stream, address), 1).unwrap();
        if !early {
            settle(&mut event_loop);
        }
        seen.push(told(&cancel(&mut event_loop, handle)));
        finish(&mut event_loop, Operation::close(stream));
    }
    assert_idle(&mut event_loop);
    assert_eq!(event_loop.statistics().sockets.now, 0);
    seen.join(", ")
}

fn receives() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let mut seen = vec![
        cancel_both_ways(&mut event_loop, || receive(stream, 16).0),
        cancel_both_ways(&mut event_loop, || Operation::receive_picked(stream)),
        cancel_both_ways(&mut event_loop, || Operation::receive_multishot(stream)),
    ];
    let operation = OwnedOperation::Receive { descriptor: stream };
    let (handle, orphan) = event_loop.submit_owned(operation, vec![0; 16], 1).unwrap();
    settle(&mut event_loop);
    seen.push(told(&cancel(&mut event_loop, handle)));
    assert_eq!(event_loop.reclaim(orphan).unwrap(), [0; 16]);
    deliver(&peer, b"still there");
    let event = finish(&mut event_loop, Operation::receive_picked(stream));
    assert_eq!(take(&mut event_loop, &event), b"still there");
    assert_eq!(event_loop.statistics().buffers.now, 0);
    seen.join(", ")
}

/// The loop is not asked between the arrival and the cancel, so it has not got the bytes: whichever comes
/// first does so on every backend, and the bytes are the receive's or the next one's.
fn arrived() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let mut canceled = 0;
    for _ in 0..20 {
        let handle = event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
        settle(&mut event_loop);
        deliver(&peer, b"arrived");
        let mut event = cancel(&mut event_loop, handle);
        if event.is_canceled() {
            canceled += 1;
            event = finish(&mut event_loop, Operation::receive_picked(stream));
        }
        assert_eq!(take(&mut event_loop, &event), b"arrived");
    }
    assert_idle(&mut event_loop);
    format!("{canceled} canceled")
}

/// What the loop has got by a tick, and had no room to tell, is told.
fn in_hand() {
    let mut event_loop = small_loop();
    let ends = [loop_pair(&mut event_loop), loop_pair(&mut event_loop)];
    for _ in 0..3 {
        let submit = |event_loop: &mut Loop, number: usize| {
            let receive = Operation::receive_picked(ends[number].0);
            event_loop.submit(receive, number as u64).unwrap()
        };
        let handles = [submit(&mut event_loop, 0), submit(&mut event_loop, 1)];
        settle(&mut event_loop);
        ends.iter().for_each(|(_, peer)| deliver_surely(peer, b"here"));
        let mut first = [Event::EMPTY];
        while event_loop.tick(&mut first, Wait::Forever).unwrap() == 0 {}
        let other = 1 - first[0].user_data() as usize;
        assert_eq!(take(&mut event_loop, &first[0]), b"here");
        event_loop.cancel(handles[other]);
        let event = the_final(&mut event_loop);
        assert_eq!(event.user_data(), other as u64);
        assert_eq!(take(&mut event_loop, &event), b"here");
    }
    assert_idle(&mut event_loop);
}

fn in_a_row() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let mut seen = Vec::new();
    for nth in 0..4 {
        let submit = |event_loop: &mut Loop, number| {
            event_loop.submit(receive(stream, 1).0, number).unwrap()
        };
        let handles: Vec<Handle> = (0..4).map(|number| submit(&mut event_loop, number)).collect();
        settle(&mut event_loop);
        let canceled = cancel(&mut event_loop, handles[nth]);
        assert_eq!(canceled.user_data(), nth as u64);
        settle(&mut event_loop);
        deliver(&peer, b"abc");
        let ends = gather(&mut event_loop, 3);
        let order: Vec<u64> = ends.iter().map(Event::user_data).collect();
        seen.push(format!("{} {order:?}", told(&canceled)));
    }
    assert_idle(&mut event_loop);
    seen.join(", ")
}

fn crossing() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for round in 0..100_u8 {
        let submit = |event_loop: &mut Loop| {
            event_loop.submit(Operation::receive_picked(stream), 1).unwrap()
        };
        let handles = [submit(&mut event_loop), submit(&mut event_loop)];
        let mut events = Vec::new();
        if round % 3 > 0 {
            events = glance(&mut event_loop);
        }
        if round % 2 == 0 {
            deliver(&peer, &[round, round]);
            sent.extend([round, round]);
        }
        // From the back as well as from the front.
        event_loop.cancel(handles[usize::from(round % 4 / 2)]);
        event_loop.cancel(handles[usize::from(1 - round % 4 / 2)]);
        let left = 2 - events.len();
        events.extend(gather(&mut event_loop, left));
        for event in events {
            assert!(event.is_canceled() != event.buffer().is_some(), "{event:?}");
            got.extend(take(&mut event_loop, &event));
        }
    }
    while got.len() < sent.len() {
        let event = finish(&mut event_loop, Operation::receive_picked(stream));
        got.extend(take(&mut event_loop, &event));
    }
    assert_eq!(got, sent);
    assert_idle(&mut event_loop);
}

fn receive_many() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for round in 0..30_u8 {
        let handle = event_loop.submit(Operation::receive_multishot(stream), 1).unwrap();
        let mut events = glance(&mut event_loop);
        deliver(&peer, &[round; 10]);
        sent.extend([round; 10]);
        if round % 2 == 0 {
            events.extend(glance(&mut event_loop));
        }
        event_loop.cancel(handle);
        until_the_final(&mut event_loop, &mut events);
        for event in &events {
            got.extend(take(&mut event_loop, event));
        }
    }
    while got.len() < sent.len() {
        let event = finish(&mut event_loop, Operation::receive_picked(stream));
        got.extend(take(&mut event_loop, &event));
    }
    assert_eq!(got, sent);
    assert_idle(&mut event_loop);
}

fn sends() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    let seen = cancel_both_ways(&mut event_loop, || send(stream, b"never"));
    // One that has begun: what is said to have gone is what arrives.
    let handle = event_loop.submit(send(stream, pattern(1, MORE_THAN_FITS)), 1).unwrap();
    let begun = read_some(peer, filled + 100_000);
    gather_none_until(&mut event_loop, || begun.is_finished());
    let peer = begun.join().unwrap();
    let event = cancel(&mut event_loop, handle);
    let gone = event.result().unwrap() as usize;
    assert!(gone >= 100_000, "{gone}");
    let rest = read_all(peer);
    finish(&mut event_loop, Operation::close(stream));
    assert_same(&rest.join().unwrap().unwrap(), &pattern(1, gone)[100_000..]);
    seen
}

/// A thread that reads so many bytes and gives the connection back.
fn read_some(
    mut peer: std::net::TcpStream,
    count: usize,
) -> std::thread::JoinHandle<std::net::TcpStream> {
    std::thread::spawn(move || {
        std::io::Read::read_exact(&mut peer, &mut vec![0; count]).unwrap();
        peer
    })
}

/// Ticks until something has become true; no event is due.
fn gather_none_until(event_loop: &mut Loop, mut is_true: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_true() {
        let mut events = [Event::EMPTY; 4];
        assert_eq!(event_loop.tick(&mut events, Wait::AtMost(MILLISECOND)).unwrap(), 0);
        assert!(begun.elapsed() < PATIENCE, "it does not come about");
    }
}

fn sends_in_a_row() -> String {
    let mut event_loop = small_loop();
    let mut seen = Vec::new();
    for nth in 0..3 {
        let (stream, peer) = loop_pair(&mut event_loop);
        let filled = fill(&mut event_loop, stream);
        static TEXTS: [&[u8]; 3] = [b"one", b"two", b"six"];
        let submit = |event_loop: &mut Loop, number: usize| {
            event_loop.submit(send(stream, TEXTS[number]), number as u64).unwrap()
        };
        let handles: Vec<Handle> = (0..3).map(|number| submit(&mut event_loop, number)).collect();
        settle(&mut event_loop);
        let canceled = cancel(&mut event_loop, handles[nth]);
        let all = read_all(peer);
        let order: Vec<u64> = gather(&mut event_loop, 2).iter().map(Event::user_data).collect();
        finish(&mut event_loop, Operation::close(stream));
        let all = all.join().unwrap().unwrap();
        let rest = String::from_utf8_lossy(&all[filled..]).into_owned();
        seen.push(format!("{} {order:?} {rest}", told(&canceled)));
    }
    assert_idle(&mut event_loop);
    seen.join(", ")
}

fn send_owned() -> String {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    fill(&mut event_loop, stream);
    let operation = OwnedOperation::Send { descriptor: stream };
    let (handle, orphan) = event_loop.submit_owned(operation, vec![5; 100], 1).unwrap();
    let (second, other) = event_loop.submit_owned(operation, vec![6; 100], 2).unwrap();
    settle(&mut event_loop);
    let mut seen = vec![told(&cancel(&mut event_loop, second))];
    seen.push(told(&cancel(&mut event_loop, handle)));
    assert_eq!(event_loop.reclaim(orphan).unwrap(), [5; 100]);
    event_loop.abandon(other);
    let statistics = event_loop.statistics();
    assert_eq!((statistics.owned_buffers.now, statistics.orphaned), (0, 0));
    seen.join(", ")
}

fn send_vectored() -> String {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    fill(&mut event_loop, stream);
    let slices = Box::leak(Box::new([IoSlice::new(b"one"), IoSlice::new(b"two")]));
    cancel_both_ways(&mut event_loop, || {
        // SAFETY: the slices are never freed and their bytes static.
        unsafe { Operation::send_vectored(stream, slices.as_ptr().cast(), 2) }
    })
}

fn polls() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let readable = || Operation::poll(stream, Interest::Readable);
    let writable = || Operation::poll(stream, Interest::Writable);
    let mut seen = vec![cancel_both_ways(&mut event_loop, readable)];
    fill(&mut event_loop, stream);
    seen.push(cancel_both_ways(&mut event_loop, writable));
    // One of two that wait for the same.
    let first = event_loop.submit(readable(), 1).unwrap();
    event_loop.submit(readable(), 2).unwrap();
    settle(&mut event_loop);
    seen.push(told(&cancel(&mut event_loop, first)));
    deliver(&peer, b"x");
    assert_eq!(the_final(&mut event_loop).user_data(), 2);
    seen.join(", ")
}

fn shutdown() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(send(stream, b"before"), 1).unwrap();
    let how = Operation::shutdown(stream, Shutdown::Write);
    let handle = event_loop.submit(how, 2).unwrap();
    settle(&mut event_loop);
    let canceled = cancel(&mut event_loop, handle);
    assert_eq!(canceled.user_data(), 2);
    let all = read_all(peer);
    assert_eq!(the_final(&mut event_loop).user_data(), 1);
    finish(&mut event_loop, send(stream, b"after"));
    finish(&mut event_loop, Operation::close(stream));
    assert_eq!(all.join().unwrap().unwrap()[filled..], *b"beforeafter");
    told(&canceled)
}

fn close() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(send(stream, b"last"), 1).unwrap();
    let handle = event_loop.submit(Operation::close(stream), 2).unwrap();
    settle(&mut event_loop);
    assert!(!event_loop.cancel(handle), "a close runs to its end");
    let all = read_all(peer);
    let ends: Vec<String> = gather(&mut event_loop, 2).iter().map(told).collect();
    assert_eq!(all.join().unwrap().unwrap()[filled..], *b"last");
    ends.join(", ")
}

/// A pipe's two ends: it is read as a file is, and has nothing to read.
pub(crate) fn pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: pipe2(2) writes two numbers into the array.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: both were opened above and belong to nobody else.
    let [reading, writing] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    (reading.into(), writing.into())
}

fn file() -> Outcome {
    if !has_files() {
        return Outcome::Skip("reads and writes at offsets end with Unsupported on this backend");
    }
    let mut event_loop = small_loop();
    let (reading, mut writing) = pipe();
    let descriptor = event_loop.adopt(reading.into(), DescriptorKind::File).unwrap();
    let read = OwnedOperation::ReadAt { descriptor, offset: 0 };
    let (handle, orphan) = event_loop.submit_owned(read, vec![3; 8], 1).unwrap();
    settle(&mut event_loop);
    assert!(cancel(&mut event_loop, handle).is_canceled());
    assert_eq!(event_loop.reclaim(orphan).unwrap(), [3; 8]);
    event_loop.submit_owned(read, vec![3; 8], 2).unwrap();
    settle(&mut event_loop);
    std::io::Write::write_all(&mut writing, b"piped").unwrap();
    let event = the_final(&mut event_loop);
    assert_eq!(event.result().unwrap(), 5);
    assert_eq!(event_loop.reclaim(event.orphan().unwrap()).unwrap()[..5], *b"piped");
    ().into()
}

fn timers() -> String {
    let mut event_loop = small_loop();
    let hour = event_loop.now() + 3_600_000_000_000;
    let mut seen = vec![cancel_both_ways(&mut event_loop, || Operation::timer(hour))];
    let due = event_loop.now();
    let handle = event_loop.submit(Operation::timer(due), 1).unwrap();
    seen.push(told(&cancel(&mut event_loop, handle)));
    // The one between two others.
    let arm = |event_loop: &mut Loop, number: u64| {
        let at = event_loop.now() + number * 1_000_000;
        event_loop.submit(Operation::timer(at), number).unwrap()
    };
    let handles: Vec<Handle> = (1..4).map(|number| arm(&mut event_loop, number)).collect();
    assert!(event_loop.cancel(handles[1]));
    let order: Vec<u64> = gather(&mut event_loop, 3).iter().map(Event::user_data).collect();
    seen.push(format!("{order:?}"));
    assert_idle(&mut event_loop);
    seen.join(", ")
}

fn repeating() -> String {
    let mut event_loop = small_loop();
    let first = event_loop.now() + 1_000_000;
    let handle =
        event_loop.submit(Operation::repeating_timer(first, 3_600_000_000_000), 1).unwrap();
    assert!(gather(&mut event_loop, 1)[0].more());
    let end = cancel(&mut event_loop, handle);
    assert_idle(&mut event_loop);
    told(&end)
}

fn waiting() -> String {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    event_loop.submit(Operation::receive_picked(stream), 2).unwrap();
    event_loop.submit(Operation::poll(stream, Interest::Readable), 3).unwrap();
    settle(&mut event_loop);
    assert!(event_loop.cancel_waiting(stream));
    let mut ends: Vec<(u64, String)> =
        gather(&mut event_loop, 3).iter().map(|event| (event.user_data(), told(event))).collect();
    ends.sort();
    let fd = event_loop.raw_fd(stream).unwrap();
    let given = event_loop.give_up(stream).unwrap();
    assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&given), fd);
    assert!(!event_loop.cancel_waiting(stream));
    format!("{ends:?}")
}

fn twice() {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    for settled in [false, true] {
        let handle = event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
        if settled {
            settle(&mut event_loop);
        }
        event_loop.cancel(handle);
        event_loop.cancel(handle);
        assert!(the_final(&mut event_loop).is_canceled());
        // Its slot is another's now.
        let other = event_loop.submit(Operation::receive_picked(stream), 2).unwrap();
        assert!(!event_loop.cancel(handle));
        settle(&mut event_loop);
        assert!(cancel(&mut event_loop, other).is_canceled());
    }
    assert_idle(&mut event_loop);
}

fn full_ring() {
    let options = rotor::runtime::Options { operations: 64, ring_entries: 8, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    let ends: Vec<(Descriptor, std::net::TcpStream)> =
        (0..30).map(|_| loop_pair(&mut event_loop)).collect();
    let submit = |event_loop: &mut Loop, (stream, _): &(Descriptor, _)| {
        event_loop.submit(Operation::receive_picked(*stream), 1).unwrap()
    };
    let handles: Vec<Handle> = ends.iter().map(|end| submit(&mut event_loop, end)).collect();
    settle(&mut event_loop);
    // The ring holds some of these when the cancels come.
    for _ in 0..30 {
        event_loop.submit(Operation::nop(), 2).unwrap();
    }
    assert!(handles.iter().all(|&handle| event_loop.cancel(handle)));
    let events = gather(&mut event_loop, 60);
    assert_eq!(events.iter().filter(|event| event.is_canceled()).count(), 30);
    assert_idle(&mut event_loop);
}

fn bytes_beat_timeout() {
    run(async {
        let (mut stream, client) = pair().await;
        for round in 0..4_u8 {
            assert!(poll_once(stream.read(&mut [0; 8])).await.is_none());
            deliver_surely(&client, &[round; 8]);
            ticks().await;
            // Its time is over before it begins.
            let mut buffer = [0; 8];
            let count = timeout(std::time::Duration::ZERO, stream.read(&mut buffer)).await;
            assert_eq!((count.unwrap().unwrap(), buffer), (8, [round; 8]));
        }
    });
}

fn connection_beats_timeout() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        assert!(poll_once(listener.accept()).await.is_none());
        let client = connect(listener.local_addr().unwrap());
        sleep(5 * MILLISECOND).await;
        let accepted = timeout(std::time::Duration::ZERO, listener.accept()).await;
        assert_eq!(accepted.unwrap().unwrap().1, client.local_addr().unwrap());
    });
}

fn connect_times_out() {
    let address = full_listener();
    run(async {
        let idle = descriptors();
        for _ in 0..3 {
            assert!(timeout(MILLISECOND, TcpStream::connect(address)).await.is_err());
        }
        eventually("each attempt is closed", || descriptors() <= idle).await;
    });
}
