//! The loop on the system's backend, mostly a real io_uring: small rings, full rings and storms of cancels.

#[path = "support/backend.rs"]
mod backend;

use std::collections::HashMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rotor::runtime::{File, Options, Runtime};
use rotor::{
    Descriptor, DescriptorKind, Event, Handle, Loop, Operation, OwnedOperation, Statistics,
    SubmitError, Wait,
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

/// While some starve, buffers that come back are lent to none that only waits: neither to one that is
/// new, nor to one that starves too.
#[test]
fn buffers_that_come_back_go_to_the_starving_receives_that_have_bytes() {
    let mut event_loop = Loop::new(&Options { buffers: 4, ..small() }).unwrap();
    let mut held = Vec::new();
    for index in 0..4 {
        let (descriptor, mut peer) = pair(&mut event_loop);
        peer.write_all(b"x").unwrap();
        event_loop.submit(Operation::receive_picked(descriptor), index).unwrap();
        let event = gather(&mut event_loop, 1)[0];
        held.push((descriptor, peer, event.buffer().unwrap()));
    }
    let mut starving = Vec::new();
    for (bytes, index) in [(&b""[..], 10), (b"a", 11), (b"b", 12)] {
        let (descriptor, mut peer) = pair(&mut event_loop);
        peer.write_all(bytes).unwrap();
        event_loop.submit(Operation::receive_picked(descriptor), index).unwrap();
        starving.push(peer);
    }
    let wait = Wait::AtMost(Duration::from_millis(20));
    assert_eq!(event_loop.tick(&mut [Event::EMPTY; 8], wait).unwrap(), 0);
    // A silent receive is known to find none only where it must have one before its bytes.
    assert!(event_loop.statistics().starved >= 2);
    for (_, _, buffer) in &held[..2] {
        event_loop.return_buffer(*buffer);
    }
    event_loop.submit(Operation::receive_picked(held[0].0), 20).unwrap();
    let mut came: Vec<_> = gather(&mut event_loop, 2).iter().map(Event::user_data).collect();
    came.sort_unstable();
    assert_eq!(came, [11, 12], "some starve beside those that are silent");
}

/// The address space (0) or the memory in use (1).
fn memory_pages(field: usize) -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(field).unwrap().parse().unwrap()
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
