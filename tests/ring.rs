//! The loop on the system's backend, mostly a real io_uring: small rings, full rings, storms of cancels, and every operation once.

#[path = "support/backend.rs"]
mod backend;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rotor::runtime::{Builder, CreateError, File, Options, Runtime};
use rotor::{
    Control, Descriptor, DescriptorKind, Event, EventKind, Handle, Interest, Loop, Operation,
    OwnedOperation, Reply, Statistics, SubmitError, Wait,
};

/// Nothing here takes a second on an idle machine; after this long something was lost.
const PATIENCE: Duration = Duration::from_secs(60);

fn small() -> Options {
    Options {
        operations: 1024,
        sockets: 256,
        timers: 64,
        tasks: 256,
        buffers: 256,
        buffer_bytes: 4096,
        ring_entries: 8,
        ..Options::default()
    }
}

/// Ticks until `count` events have come.
#[track_caller]
fn gather(event_loop: &mut Loop, count: usize) -> Vec<Event> {
    let begun = Instant::now();
    let mut gathered = Vec::new();
    let mut events = [Event::EMPTY; 64];
    while gathered.len() < count {
        let came = event_loop.tick(&mut events, Wait::AtMost(Duration::from_millis(100))).unwrap();
        gathered.extend_from_slice(&events[..came]);
        let late = begun.elapsed() > PATIENCE;
        assert!(!late, "only {} of {count} events came: {gathered:?}", gathered.len());
    }
    gathered
}

/// The one event of an operation.
#[track_caller]
fn finish(event_loop: &mut Loop, operation: Operation) -> Event {
    event_loop.submit(operation, 77).unwrap();
    let events = gather(event_loop, 1);
    assert_eq!((events.len(), events[0].user_data(), events[0].more()), (1, 77, false));
    events[0]
}

/// Ticks until no operation is left, and asserts that none leaves an event behind.
#[track_caller]
fn assert_idle(event_loop: &mut Loop) {
    let mut events = [Event::EMPTY; 64];
    for _ in 0..3 {
        assert_eq!(event_loop.tick(&mut events, Wait::Zero).unwrap(), 0, "{:?}", events[0]);
    }
    let statistics = event_loop.statistics();
    assert_eq!((statistics.operations.now, statistics.stale_completions), (0, 0));
}

fn opened(reply: Reply<Descriptor>) -> Descriptor {
    match reply {
        Reply::Opened(descriptor) => descriptor,
        Reply::Done
        | Reply::Address(_)
        | Reply::Count(_)
        | Reply::Flag(_)
        | Reply::Option(_)
        | Reply::Error(_) => panic!("{reply:?}"),
    }
}

fn listener(event_loop: &mut Loop) -> (Descriptor, SocketAddr) {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = opened(event_loop.control(Control::Listen { address, backlog: 64 }).unwrap());
    match event_loop.control(Control::LocalAddress(listener)).unwrap() {
        Reply::Address(address) => (listener, address),
        reply => panic!("{reply:?}"),
    }
}

/// A connection: one end the loop's, one end the test's.
fn pair(event_loop: &mut Loop) -> (Descriptor, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let descriptor = event_loop.adopt(OwnedFd::from(ours), DescriptorKind::Stream).unwrap();
    (descriptor, peer)
}

/// A file without a name, in the build's directory.
fn scratch_file() -> std::fs::File {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("ring-{}-{number}", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: pipe2(2) writes two numbers into the array.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: both were opened above and belong to nobody else.
    let own =
        |end| std::fs::File::from(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(end) });
    (own(ends[0]), own(ends[1]))
}

#[test]
fn a_ring_of_8_entries_carries_4096_nops_at_once() {
    let mut event_loop = Loop::new(&Options { operations: 4096, ..small() }).unwrap();
    for n in 0..4096 {
        event_loop.submit(Operation::nop(), n).unwrap();
    }
    assert_eq!(
        event_loop.submit(Operation::nop(), 0),
        Err(SubmitError::Full { option: "operations", limit: 4096 })
    );
    let mut seen: Vec<u64> = gather(&mut event_loop, 4096).iter().map(Event::user_data).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..4096).collect::<Vec<u64>>());
    assert_idle(&mut event_loop);
    let statistics = event_loop.statistics();
    println!("4,096 operations on a ring of 8: {:?}", statistics.backend);
    assert_eq!(statistics.operations.high, 4096);
    let full = statistics.backend.overflows > 0;
    assert!(full || !backend::is_uring(), "the queue of completions was full too");
}

/// A thread can register 16 rings with the kernel; the others do without.
#[test]
fn twenty_loops_live_on_one_thread() {
    let mut loops: Vec<Loop> = (0..20).map(|_| Loop::new(&small()).unwrap()).collect();
    for _ in 0..3 {
        for event_loop in &mut loops {
            assert_eq!(finish(event_loop, Operation::nop()).result().unwrap(), 0);
        }
    }
    loops.drain(5..15);
    for event_loop in &mut loops {
        assert_eq!(finish(event_loop, Operation::nop()).result().unwrap(), 0);
    }
}

/// A quarter each of nops, file reads, sends and receives, all in flight or queued together. The
/// sends and receives are on two ends of one connection, so their order shows.
#[test]
fn a_ring_of_8_entries_carries_4096_operations_of_four_kinds() {
    if backend::no_files() {
        return;
    }
    const EACH: u64 = 1024;
    let mut event_loop = Loop::new(&Options { operations: 4096, ..small() }).unwrap();
    let file = scratch_file();
    let content: Vec<u8> = (0..EACH).flat_map(u64::to_le_bytes).collect();
    file.write_all_at(&content, 0).unwrap();
    let file = event_loop.adopt(file.into(), DescriptorKind::File).unwrap();
    let (server, client) = pair(&mut event_loop);
    let client = event_loop.adopt(client.into(), DescriptorKind::Stream).unwrap();
    for n in 0..EACH {
        event_loop.submit(Operation::nop(), n).unwrap();
        let bytes = vec![0; 8];
        let read = OwnedOperation::ReadAt { descriptor: file, offset: n * 8 };
        event_loop.submit_owned(read, bytes.clone(), EACH + n).unwrap();
        let receive = OwnedOperation::Receive { descriptor: server };
        event_loop.submit_owned(receive, bytes, 2 * EACH + n).unwrap();
        let send = OwnedOperation::Send { descriptor: client };
        event_loop.submit_owned(send, n.to_le_bytes().to_vec(), 3 * EACH + n).unwrap();
    }
    let mut finals = HashMap::new();
    let (mut received, mut sent) = (Vec::new(), Vec::new());
    for event in gather(&mut event_loop, 4096) {
        assert!(!event.more());
        *finals.entry(event.user_data()).or_insert(0) += 1;
        let (kind, n) = (event.user_data() / EACH, event.user_data() % EACH);
        if kind == 0 {
            assert_eq!(event.result().unwrap(), 0);
            continue;
        }
        let bytes = event_loop.reclaim(event.orphan().unwrap()).unwrap();
        let count = event.result().unwrap() as usize;
        match kind {
            1 => assert_eq!((count, bytes), (8, n.to_le_bytes().to_vec())),
            2 => received.extend_from_slice(&bytes[..count]),
            _ => sent.push((n, count)),
        }
    }
    assert!(finals.len() == 4096 && finals.values().all(|&count| count == 1));
    assert_eq!(sent, (0..EACH).map(|n| (n, 8)).collect::<Vec<_>>());
    assert_eq!(received, content);
    assert_idle(&mut event_loop);
}

/// With each count of entries already in the ring of 8, so that it is full at every phase of the
/// hundred cancels.
#[test]
fn a_hundred_futures_dropped_with_the_submission_ring_full_all_end() {
    if backend::no_rings() {
        return;
    }
    for already in 0..8 {
        let runtime = Runtime::with_options(&small()).unwrap();
        let (reading, writing) = pipe();
        runtime.block_on(async {
            let pipe = File::adopt(reading).unwrap();
            let poll = async |future: &mut rotor::runtime::ReadAt| {
                let mut pinned = std::pin::pin!(future);
                std::future::poll_fn(|cx| {
                    assert!(pinned.as_mut().poll(cx).is_pending(), "the pipe is empty");
                    std::task::Poll::Ready(())
                })
                .await;
            };
            let mut futures: Vec<_> = (0..100).map(|_| pipe.read_at(vec![0; 64], 0)).collect();
            for future in &mut futures {
                poll(future).await;
            }
            rotor::time::sleep(Duration::from_millis(1)).await;
            let mut filling: Vec<_> = (0..already).map(|_| pipe.read_at(vec![0; 64], 0)).collect();
            for future in &mut filling {
                poll(future).await;
            }
            let busy = runtime.statistics().event_loop;
            assert_eq!(busy.operations.now, 100 + already);
            drop(futures);
            drop(filling);
            // Either the ring was handed over in mid-tick to make room, or cancels waited for it.
            let counts = |it: &Statistics| it.backend.flushes + it.backend_full;
            let full = counts(&runtime.statistics().event_loop) - counts(&busy);
            assert!(full >= 12, "the ring was full {full} times");
            let begun = Instant::now();
            while runtime.statistics().event_loop.operations.now > 0 {
                rotor::time::sleep(Duration::from_millis(1)).await;
                assert!(begun.elapsed() < PATIENCE, "{:?}", runtime.statistics().event_loop);
            }
            let after = runtime.statistics().event_loop;
            assert_eq!(after.orphaned, u64::from(100 + already));
            assert_eq!(after.stale_completions, 0);
        });
        drop(writing);
        assert_eq!(runtime.shut_down(), rotor::runtime::Report::default());
    }
}

/// Half of the peers send while everything is canceled, and some operations are canceled twice. Each
/// operation ends once, and no byte that arrived is lost to a cancel.
#[test]
fn a_storm_of_cancels_ends_each_operation_once_and_loses_no_byte() {
    const SOCKETS: usize = 100;
    let mut event_loop = Loop::new(&small()).unwrap();
    let mut ends: Vec<(Descriptor, TcpStream)> =
        (0..SOCKETS).map(|_| pair(&mut event_loop)).collect();
    let mut received = vec![Vec::new(); SOCKETS];
    let mut written = vec![Vec::new(); SOCKETS];
    for round in 0..50_usize {
        let mut handles: Vec<(usize, Handle)> = Vec::new();
        for (n, (descriptor, _)) in ends.iter().enumerate() {
            for _ in 0..2 {
                let receive = Operation::receive_picked(*descriptor);
                handles.push((n, event_loop.submit(receive, n as u64).unwrap()));
            }
        }
        let begun = handles.len();
        for (n, (_, peer)) in ends.iter_mut().enumerate() {
            if (n + round) % 2 == 0 {
                let bytes = [round as u8, n as u8];
                peer.write_all(&bytes).unwrap();
                written[n].extend(bytes);
            }
        }
        // Some rounds cancel what the kernel does not know yet.
        let mut events = [Event::EMPTY; 64];
        let mut ended = 0;
        if round % 3 > 0 {
            ended = event_loop.tick(&mut events[..5], Wait::Zero).unwrap();
        }
        let mut all = events[..ended].to_vec();
        for (_, handle) in handles.iter().rev().step_by(1 + round % 2) {
            event_loop.cancel(*handle);
            event_loop.cancel(*handle);
        }
        for (_, handle) in &handles {
            event_loop.cancel(*handle);
        }
        all.extend(gather(&mut event_loop, begun - ended));
        assert_eq!(all.len(), begun);
        for event in all {
            assert!(event.is_canceled() != event.buffer().is_some(), "{event:?}");
            take_bytes(&mut event_loop, &event, &mut received);
        }
        assert!(handles.iter().all(|(_, handle)| !event_loop.cancel(*handle)), "all are over");
    }
    for n in 0..SOCKETS {
        while received[n].len() < written[n].len() {
            event_loop.submit(Operation::receive_picked(ends[n].0), n as u64).unwrap();
            let event = gather(&mut event_loop, 1)[0];
            take_bytes(&mut event_loop, &event, &mut received);
        }
    }
    assert_eq!(received, written);
    assert_idle(&mut event_loop);
}

fn take_bytes(event_loop: &mut Loop, event: &Event, received: &mut [Vec<u8>]) {
    if let Some(buffer) = event.buffer() {
        let bytes = event_loop.bytes(buffer, 0..event.result().unwrap());
        received[event.user_data() as usize].extend_from_slice(bytes);
        event_loop.return_buffer(buffer);
    }
}

#[test]
fn a_multishot_accept_brings_every_connection_and_the_peers_address() {
    let mut event_loop = Loop::new(&small()).unwrap();
    let (listening, address) = listener(&mut event_loop);
    let accept = event_loop.submit(Operation::accept_multishot(listening), 1).unwrap();
    let peers: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    let events = gather(&mut event_loop, 50);
    for (event, peer) in events.iter().zip(&peers) {
        assert!(event.more() && event.kind() == EventKind::Accept);
        let from = event_loop.peer_address(event.descriptor().unwrap());
        assert_eq!(from, Some(peer.local_addr().unwrap()), "in the order they came");
    }
    assert!(event_loop.cancel(accept));
    let end = gather(&mut event_loop, 1)[0];
    assert!(end.is_canceled() && !end.more());
    for event in &events {
        event_loop.submit(Operation::close(event.descriptor().unwrap()), 2).unwrap();
    }
    gather(&mut event_loop, 50);
    assert_idle(&mut event_loop);
    assert_eq!(event_loop.statistics().sockets.now, 1);
}

#[test]
fn a_multishot_receive_goes_on_through_a_shortage_of_buffers_to_the_end() {
    let mut event_loop = Loop::new(&Options { buffers: 4, buffer_bytes: 100, ..small() }).unwrap();
    let (descriptor, mut peer) = pair(&mut event_loop);
    let sent: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    event_loop.submit(Operation::receive_multishot(descriptor), 0).unwrap();
    peer.write_all(&sent).unwrap();
    let mut received = vec![Vec::new()];
    let mut held = Vec::new();
    while received[0].len() < sent.len() {
        let event = gather(&mut event_loop, 1)[0];
        assert!(event.more());
        held.push(event);
        // Holds all but a few back, so that the receive meets an empty ring of buffers.
        if held.len() >= 3 {
            held.drain(..).for_each(|event| take_bytes(&mut event_loop, &event, &mut received));
        }
        if received[0].len() + held.len() * 100 >= sent.len() {
            held.drain(..).for_each(|event| take_bytes(&mut event_loop, &event, &mut received));
        }
    }
    assert_eq!(received[0], sent);
    peer.shutdown(Shutdown::Write).unwrap();
    let end = gather(&mut event_loop, 1)[0];
    assert!(!end.more() && end.result().unwrap() == 0);
    assert_idle(&mut event_loop);
}

/// A buffer must be the kernel's before its bytes come; where readiness is told, it need not be.
#[test]
fn a_silent_receive_keeps_a_buffer_from_the_others_on_io_uring_alone() {
    let mut event_loop = Loop::new(&Options { buffers: 4, ..small() }).unwrap();
    let (silent, _peer) = pair(&mut event_loop);
    event_loop.submit(Operation::receive_picked(silent), 0).unwrap();
    assert_eq!(event_loop.tick(&mut [Event::EMPTY; 8], Wait::Zero).unwrap(), 0);
    let mut talking = Vec::new();
    for index in 1..=4 {
        let (descriptor, mut peer) = pair(&mut event_loop);
        peer.write_all(b"x").unwrap();
        event_loop.submit(Operation::receive_picked(descriptor), index).unwrap();
        talking.push(peer);
    }
    if !backend::is_uring() {
        gather(&mut event_loop, 4);
        return;
    }
    let came = gather(&mut event_loop, 3);
    let wait = Wait::AtMost(Duration::from_millis(20));
    assert_eq!(event_loop.tick(&mut [Event::EMPTY; 8], wait).unwrap(), 0);
    event_loop.return_buffer(came[0].buffer().unwrap());
    gather(&mut event_loop, 1);
}

#[test]
fn a_loop_connects_talks_polls_shuts_down_and_closes() {
    let mut event_loop = Loop::new(&small()).unwrap();
    let (listening, address) = listener(&mut event_loop);
    let client = opened(event_loop.control(Control::OpenStream { family_of: address }).unwrap());
    event_loop.submit(Operation::connect(client, address), 1).unwrap();
    event_loop.submit(Operation::accept(listening), 2).unwrap();
    let events = gather(&mut event_loop, 2);
    assert!(events.iter().all(|event| event.result().is_ok()));
    let server = events.iter().find_map(Event::descriptor).unwrap();
    assert_eq!(event_loop.peer_address(client), Some(address));

    let writable = finish(&mut event_loop, Operation::poll(client, Interest::Writable));
    assert_eq!(writable.result().unwrap(), 0);
    event_loop.submit(Operation::poll(server, Interest::Readable), 3).unwrap();
    let mut events = [Event::EMPTY; 4];
    assert_eq!(event_loop.tick(&mut events, Wait::AtMost(Duration::from_millis(5))).unwrap(), 0);
    static PIECES: [&[u8]; 3] = [b"one ", b"two ", b"three"];
    let slices = PIECES.map(std::io::IoSlice::new);
    // SAFETY: the slices live in this function and their bytes are static; `gather` waits for the
    // final event.
    let send = unsafe { Operation::send_vectored(client, slices.as_ptr().cast(), 3) };
    event_loop.submit(send, 4).unwrap();
    let mut seen: Vec<_> = gather(&mut event_loop, 2)
        .iter()
        .map(|event| (event.kind() == EventKind::Poll, event.result().unwrap()))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(false, 13), (true, 0)]);

    let mut bytes = [0; 64];
    // SAFETY: the array outlives the operation, whose final event `finish` waits for.
    let receive = unsafe { Operation::receive(server, bytes.as_mut_ptr(), bytes.len()) };
    assert_eq!(finish(&mut event_loop, receive).result().unwrap(), 13);
    assert_eq!(&bytes[..13], b"one two three");

    let shutdown = finish(&mut event_loop, Operation::shutdown(client, Shutdown::Write));
    assert_eq!(shutdown.result().unwrap(), 0);
    let end = finish(&mut event_loop, Operation::receive_picked(server));
    assert_eq!((end.result().unwrap(), end.buffer()), (0, None));
    for descriptor in [server, client, listening] {
        finish(&mut event_loop, Operation::close(descriptor)).result().unwrap();
        assert_eq!(
            event_loop.submit(Operation::receive_picked(descriptor), 9),
            Err(SubmitError::Closed)
        );
    }
    assert_eq!(event_loop.statistics().sockets.now, 0);
    assert_idle(&mut event_loop);
}

#[test]
fn a_connect_that_nobody_listens_for_is_refused() {
    let mut event_loop = Loop::new(&small()).unwrap();
    let (listening, address) = listener(&mut event_loop);
    finish(&mut event_loop, Operation::close(listening)).result().unwrap();
    let client = opened(event_loop.control(Control::OpenStream { family_of: address }).unwrap());
    let refused = finish(&mut event_loop, Operation::connect(client, address));
    assert_eq!(refused.result().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn files_are_written_and_read_at_offsets() {
    if backend::no_files() {
        return;
    }
    let mut event_loop = Loop::new(&small()).unwrap();
    let file = scratch_file();
    let mirror = file.try_clone().unwrap();
    let descriptor = event_loop.adopt(file.into(), DescriptorKind::File).unwrap();
    for n in (0..100_u64).rev() {
        let write = OwnedOperation::WriteAt { descriptor, offset: n * 1000 };
        event_loop.submit_owned(write, vec![n as u8; 1000], n).unwrap();
    }
    for event in gather(&mut event_loop, 100) {
        assert_eq!(event.result().unwrap(), 1000);
        event_loop.abandon(event.orphan().unwrap());
    }
    let mut content = vec![0; 100_001];
    assert_eq!(mirror.read_at(&mut content, 0).unwrap(), 100_000);
    assert!((0..100_000).all(|at| content[at] == (at / 1000) as u8));

    let mut bytes = [0_u8; 1500];
    let pointer = bytes.as_mut_ptr();
    // SAFETY: the array outlives the operations, whose final events `finish` waits for.
    let read = |offset| unsafe { Operation::read_at(descriptor, pointer, 1500, offset) };
    let (whole, short, past) = (read(41_500), read(99_000), read(200_000));
    assert_eq!(finish(&mut event_loop, whole).result().unwrap(), 1500);
    assert_eq!(bytes[..], [[41; 500], [42; 500], [42; 500]].concat()[..]);
    assert_eq!(finish(&mut event_loop, short).result().unwrap(), 1000);
    assert_eq!(finish(&mut event_loop, past).result().unwrap(), 0);

    static TEXT: [u8; 5] = *b"hello";
    // SAFETY: the bytes are static.
    let write = unsafe { Operation::write_at(descriptor, TEXT.as_ptr(), 5, 10) };
    assert_eq!(finish(&mut event_loop, write).result().unwrap(), 5);
    assert_eq!(mirror.read_at(&mut content[..15], 0).unwrap(), 15);
    assert_eq!(&content[..15], b"\0\0\0\0\0\0\0\0\0\0hello");
    assert_idle(&mut event_loop);
}

#[test]
fn sixteen_sends_on_a_full_socket_arrive_in_order() {
    let mut event_loop = Loop::new(&small()).unwrap();
    let (descriptor, mut peer) = pair(&mut event_loop);
    let piece = |n: u8| vec![n; 1_000_000];
    for n in 0..16 {
        let send = OwnedOperation::Send { descriptor };
        event_loop.submit_owned(send, piece(n), u64::from(n)).unwrap();
    }
    event_loop.submit(Operation::close(descriptor), 99).unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    let order: Vec<u64> = gather(&mut event_loop, 17).iter().map(Event::user_data).collect();
    assert_eq!(order[..16], (0..16).collect::<Vec<u64>>());
    let arrived = reader.join().unwrap();
    assert_eq!(arrived.len(), 16_000_000);
    assert!((0..16).all(|n| arrived[n as usize * 1_000_000..][..1_000_000] == piece(n)));
}

#[test]
fn wakes_from_another_thread_end_a_wait_for_ever_each_time() {
    let mut event_loop = Loop::new(&small()).unwrap();
    let wake = event_loop.waker();
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let waking = std::thread::spawn(move || asked.iter().for_each(|()| wake()));
    let mut events = [Event::EMPTY; 4];
    for _ in 0..2000 {
        ask.send(()).unwrap();
        assert_eq!(event_loop.tick(&mut events, Wait::Forever).unwrap(), 0);
    }
    drop(ask);
    waking.join().unwrap();
    let waits = event_loop.statistics().waits;
    assert_eq!((waits.by_event, waits.by_timeout, waits.zero_ready), (2000, 0, 0));
}

#[test]
fn a_loop_runs_in_memory_the_program_hands_in() {
    let options = small();
    let needed = Loop::memory_bytes(&options);
    let memory = Box::leak(vec![MaybeUninit::uninit(); needed + 4096].into_boxed_slice());
    let mut event_loop = Loop::new_in(&options, memory).unwrap();
    let (descriptor, mut peer) = pair(&mut event_loop);
    peer.write_all(b"here").unwrap();
    let event = finish(&mut event_loop, Operation::receive_picked(descriptor));
    assert_eq!(event_loop.bytes(event.buffer().unwrap(), 0..4), b"here");
    event_loop.return_buffer(event.buffer().unwrap());

    let memory = Box::leak(vec![MaybeUninit::uninit(); needed / 2].into_boxed_slice());
    let refused = Loop::new_in(&options, memory).unwrap_err();
    assert!(matches!(refused, CreateError::MemoryTooSmall { .. }), "{refused}");
    let words = refused.to_string();
    assert!(words.contains("Loop::memory_bytes") && words.contains("was given"), "{words}");
}

#[test]
fn memory_is_reserved_at_once_and_touched_only_as_used() {
    let options = Options::default();
    let needed = Loop::memory_bytes(&options);
    assert!(needed > 16_384 * 16_384, "the buffers are part of it: {needed}");
    let before = resident_bytes();
    let event_loop = Loop::new(&options).unwrap();
    // The ring itself is touched by the kernel; other tests run beside this one.
    let touched = resident_bytes().saturating_sub(before);
    println!("a loop with the default options reserves {needed} bytes and touches {touched}");
    assert!(touched < needed / 8, "{touched} of {needed} bytes are touched");
    drop(event_loop);
}

fn resident_bytes() -> usize {
    memory_pages(1) * 4096
}

/// The address space (0) or the memory in use (1).
fn memory_pages(field: usize) -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(field).unwrap().parse().unwrap()
}

#[test]
fn options_no_loop_can_have_are_refused_with_words() {
    type Change = fn(&mut Options);
    let cases: [(&str, Change); 11] = [
        ("option `operations`: must be at least 1", |options| options.operations = 0),
        ("option `sockets`: must be at least 1", |options| options.sockets = 0),
        ("option `timers`: must be at least 1", |options| options.timers = 0),
        ("option `buffers`: must be at least 1", |options| options.buffers = 0),
        ("option `buffer_bytes`: must be at least 1", |options| options.buffer_bytes = 0),
        ("option `ring_entries`: must be at least 1", |options| options.ring_entries = 0),
        ("option `ring_entries`: must be a power of two", |options| options.ring_entries = 3),
        ("option `operations`: must be at most", |options| options.operations = u32::MAX),
        ("option `sockets`: must be at most", |options| options.sockets = 1 << 25),
        ("option `buffers`: must be at most 32,768", |options| options.buffers = 32_769),
        ("option `buffer_bytes`: must be at most", |options| options.buffer_bytes = u32::MAX),
    ];
    for (words, change) in cases {
        let mut options = small();
        change(&mut options);
        let error = Loop::new(&options).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
        let error = Runtime::with_options(&options).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    let no_tasks = Builder::new().tasks(0).build().unwrap_err().to_string();
    assert!(no_tasks.starts_with("option `tasks`: 0 runs nothing"), "{no_tasks}");
}

#[test]
fn memory_that_cannot_be_had_is_an_error_and_no_abort() {
    let immense = Options { buffers: 32_768, buffer_bytes: 1 << 30, ..small() };
    if memory_pages(0) * 4096 > 1 << 40 {
        println!("skipped: a sanitizer, with its shadow in a terabyte, ends the program instead");
        return;
    }
    let error = Loop::new(&immense).unwrap_err().to_string();
    assert!(error.ends_with("could not be reserved; lower the limits in Options"), "{error}");
    let error = Runtime::with_options(&immense).unwrap_err();
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::OutOfMemory);
}

/// The compiler refuses to move a loop; this shows what stops whoever talks it into it.
#[test]
fn a_loop_ticked_on_another_thread_stops_at_a_named_check() {
    struct Smuggled(Loop);
    // SAFETY: not sound in general. The other thread calls `tick` alone, which compares threads
    // before it touches anything, and this thread waits for it.
    unsafe impl Send for Smuggled {}
    let mut smuggled = Smuggled(Loop::new(&small()).unwrap());
    let mut smuggled = std::thread::spawn(move || {
        let whole = &mut smuggled;
        let ticked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            whole.0.tick(&mut [Event::EMPTY], Wait::Zero)
        }));
        let words = *ticked.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(words, "rotor: a loop was ticked on a thread not its own");
        smuggled
    })
    .join()
    .unwrap();
    assert_eq!(finish(&mut smuggled.0, Operation::nop()).result().unwrap(), 0);
}
