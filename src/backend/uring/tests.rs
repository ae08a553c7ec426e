//! Tests against the kernel at hand.
//!
//! # Unsafe
//! Entries are looked at as bytes, children are forked, signals are sent. Memory in requests is a
//! local's that outlives its ring or its last completion.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::op::Interest;
use crate::sys::address::RawAddress;

const SECOND: u64 = 1_000_000_000;

fn uring(ring_entries: u32) -> Uring {
    Uring::new(&Options { ring_entries, operations: 8, ..Options::default() }).unwrap()
}

fn token(index: u32) -> Token {
    Token::new(index, 3)
}

fn submit(uring: &mut Uring, index: u32, request: &Request) {
    assert_eq!(uring.submit(token(index), request), Submission::Queued);
}

/// The next completion, within ten seconds.
fn answer(uring: &mut Uring) -> Completion {
    let end = uring.now() + 10 * SECOND;
    while uring.now() < end {
        if let Some(completion) = uring.next() {
            return completion;
        }
        uring.tick(TickWait::AtMost(SECOND)).unwrap();
    }
    panic!("no completion came");
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn receive(stream: &TcpStream, memory: &mut [u8]) -> Request {
    let (pointer, length) = (memory.as_mut_ptr(), memory.len() as u32);
    Request::Receive { fd: stream.as_raw_fd(), pointer, length, now: false }
}

fn send(stream: &TcpStream, memory: &[u8]) -> Request {
    let (pointer, length) = (memory.as_ptr(), memory.len() as u32);
    Request::Send { fd: stream.as_raw_fd(), pointer, length, now: false }
}

fn opened(uring: &mut Uring, control: Control<RawFd>) -> RawFd {
    match uring.control(&control).unwrap() {
        Reply::Opened(fd) => fd,
        other => panic!("{other:?}"),
    }
}

/// Page-aligned memory for a buffer ring and its buffers, kept for the life of the test process: a
/// ring's pages must outlast it.
fn attach(uring: &mut Uring, count: u32, bytes: u32) -> *mut u8 {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let pages = 1 + (count * bytes).div_ceil(4096) as usize;
    let memory = Vec::leak((0..pages).map(|_| Page([0xff; 4096])).collect::<Vec<_>>());
    let ring = memory[0].0.as_mut_ptr();
    let base = memory[1].0.as_mut_ptr();
    let ring_entries = count.next_power_of_two();
    uring.attach(BufferMemory { base, count, bytes, ring, ring_entries }).unwrap();
    base
}

// --- prepare, by the bytes of the entry (io_uring_enter(2), struct io_uring_sqe) ---

fn bytes_of(request: &Request) -> [u8; 64] {
    bytes(prepare::prepare(Token::new(7, 9), request))
}

fn bytes(entry: Entry) -> [u8; 64] {
    // SAFETY: an entry is 64 plain bytes, `repr(C)`.
    unsafe { std::mem::transmute(entry) }
}

fn u32_at(bytes: &[u8; 64], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8; 64], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

const FLAGS: usize = 1;
const PRIORITY: usize = 2;
const FD: usize = 4;
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const LENGTH: usize = 24;
const OPERATION_FLAGS: usize = 28;
const USER_DATA: usize = 32;
const GROUP: usize = 40;
const BUFFER_SELECT: u8 = 1 << 5;

#[test]
fn every_request_is_prepared_as_the_manual_asks() {
    let mut byte = 0_u8;
    let pointer: *mut u8 = &mut byte;
    let (fd, length, now) = (5, 100, false);
    let expect = |request: Request, opcode: u8, offset: u64, address: u64, length: u32, flags| {
        let bytes = bytes_of(&request);
        assert_eq!(bytes[0], opcode, "{request:?}");
        assert_eq!(u64_at(&bytes, USER_DATA), 9 << 32 | 7);
        assert_eq!(u64_at(&bytes, OFFSET), offset, "{request:?}");
        assert_eq!(u64_at(&bytes, ADDRESS), address, "{request:?}");
        assert_eq!(u32_at(&bytes, LENGTH), length, "{request:?}");
        assert_eq!(u32_at(&bytes, OPERATION_FLAGS), flags as u32, "{request:?}");
        assert_eq!(u32_at(&bytes, FD), if opcode == 0 { u32::MAX } else { 5 });
        assert_eq!((bytes[FLAGS], bytes[PRIORITY]), (0, 0), "{request:?}");
    };
    let at = pointer as u64;
    expect(Request::Nop, 0, 0, 0, 0, 0);
    let whole_send = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    expect(Request::Send { fd, pointer, length, now }, 26, 0, at, 100, whole_send);
    expect(Request::Receive { fd, pointer, length, now }, 27, 0, at, 100, 0);
    let message: *const libc::msghdr = pointer.cast();
    expect(Request::SendVectored { fd, message, now }, 9, 0, at, 1, libc::MSG_NOSIGNAL);
    let poll = |interest| Request::Poll { fd, interest };
    expect(poll(Interest::Readable), 6, 0, 0, 0, libc::POLLIN.into());
    expect(poll(Interest::Writable), 6, 0, 0, 0, libc::POLLOUT.into());
    let shutdown = |how| Request::Shutdown { fd, how };
    expect(shutdown(Shutdown::Write), 34, 0, 0, libc::SHUT_WR as u32, 0);
    expect(shutdown(Shutdown::Both), 34, 0, 0, libc::SHUT_RDWR as u32, 0);
    expect(Request::ReadAt { fd, pointer, length, offset: 1 << 40 }, 22, 1 << 40, at, 100, 0);
    expect(Request::WriteAt { fd, pointer, length, offset: 3 }, 23, 3, at, 100, 0);
    let address: *mut RawAddress = pointer.cast();
    let length_at = at + 28;
    expect(Request::Accept { fd, address }, 13, length_at, at, 0, libc::SOCK_CLOEXEC);
    expect(Request::Connect { fd, address }, 16, 28, at, 0, 0);
}

#[test]
fn receives_into_picked_buffers_select_from_the_group() {
    for multishot in [false, true] {
        let bytes = bytes_of(&Request::ReceivePicked { fd: 5, multishot });
        assert_eq!((bytes[0], bytes[FLAGS]), (27, BUFFER_SELECT));
        assert_eq!(bytes[PRIORITY], if multishot { 2 } else { 0 });
        assert_eq!((u64_at(&bytes, ADDRESS), u32_at(&bytes, LENGTH)), (0, 0));
        assert_eq!(bytes[GROUP], BUFFER_GROUP as u8);
    }
}

#[test]
fn the_backends_own_entries_carry_reserved_tokens() {
    let cancel = bytes(prepare::cancel(Token::new(7, 9)));
    assert_eq!((cancel[0], cancel[FLAGS]), (14, 1 << 6));
    assert_eq!(u64_at(&cancel, ADDRESS), 9 << 32 | 7);
    assert_eq!(u64_at(&cancel, USER_DATA), CANCEL_TOKEN.to_bits());
    let watch = bytes(prepare::watch_wake(5));
    assert_eq!((watch[0], u32_at(&watch, LENGTH)), (6, 1));
    assert_eq!(u64_at(&watch, USER_DATA), WAKE_TOKEN.to_bits());
    assert!(CANCEL_TOKEN.index() >= Token::RESERVED_FROM && CANCEL_TOKEN != WAKE_TOKEN);
}

#[test]
fn waits_are_split_exactly_and_capped() {
    let text = |time: Timespec| format!("{time:?}");
    assert_eq!(text(timespec(1_500_000_001)), text(Timespec::new().sec(1).nsec(500_000_001)));
    assert_eq!(text(timespec(u64::MAX)), text(timespec(WAIT_NS_MAX)));
    let now = clock::now_ns();
    assert!(i64::try_from(WAIT_NS_MAX + now).is_ok());
}

// --- the ring ---

#[test]
fn a_nop_comes_back_under_its_token() {
    let mut uring = uring(8);
    assert_eq!(uring.describe(), "io_uring");
    submit(&mut uring, 1, &Request::Nop);
    let completion = answer(&mut uring);
    assert_eq!((completion.token, completion.result), (token(1), 0));
    assert_eq!((completion.more, completion.buffer), (false, None));
    assert!(uring.next().is_none());
    assert_eq!(uring.in_flight, 0);
}

fn collect(uring: &mut Uring, seen: &mut [u32]) {
    while let Some(completion) = uring.next() {
        seen[completion.token.index() as usize] += 1;
    }
}

#[test]
fn a_ring_of_8_entries_carries_4096_nops_and_loses_none() {
    for reap_as_we_go in [true, false] {
        let mut uring = uring(8);
        let mut seen = vec![0; 4096];
        for index in 0..4096 {
            while uring.submit(token(index), &Request::Nop) == Submission::Full {
                uring.tick(TickWait::Zero).unwrap();
                collect(&mut uring, &mut seen);
            }
            if reap_as_we_go && index % 5 == 0 {
                uring.tick(TickWait::Zero).unwrap();
                collect(&mut uring, &mut seen);
            }
        }
        let end = uring.now() + 10 * SECOND;
        while uring.in_flight > 0 && uring.now() < end {
            uring.tick(TickWait::AtMost(SECOND)).unwrap();
            collect(&mut uring, &mut seen);
        }
        assert!(seen.iter().all(|&count| count == 1));
        let statistics = uring.statistics();
        assert_eq!(statistics.overflows > 0, !reap_as_we_go, "{statistics:?}");
        assert_eq!(statistics.flushes > 0, !reap_as_we_go, "{statistics:?}");
    }
}

#[test]
fn deferred_completions_beyond_the_queue_are_all_handed_over() {
    let mut uring = uring(8);
    let pairs: Vec<_> = (0..200).map(|_| pair()).collect();
    let mut memory = vec![[0_u8; 4]; 200];
    for (index, (near, _)) in pairs.iter().enumerate() {
        submit(&mut uring, index as u32, &receive(near, &mut memory[index]));
    }
    uring.tick(TickWait::Zero).unwrap();
    pairs.iter().for_each(|(_, far)| assert_eq!((&*far).write(b"data").unwrap(), 4));
    let mut seen = vec![0; 200];
    let end = uring.now() + 10 * SECOND;
    while uring.in_flight > 0 && uring.now() < end {
        uring.tick(TickWait::AtMost(SECOND)).unwrap();
        collect(&mut uring, &mut seen);
    }
    assert!(seen.iter().all(|&count| count == 1));
    assert!(memory.iter().all(|bytes| bytes == b"data"));
}

#[test]
fn a_zero_wait_enters_only_when_there_is_something_to_do() {
    let mut uring = uring(8);
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::NotEntered);
    assert_eq!(uring.statistics().enters, 0);
    submit(&mut uring, 1, &Request::Nop);
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::Polled);
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
    assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::Polled);
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

#[test]
fn a_canceled_poll_completes_and_a_cancel_too_late_says_nothing() {
    let mut uring = uring(8);
    let (near, _far) = pair();
    let poll = Request::Poll { fd: near.as_raw_fd(), interest: Interest::Readable };
    submit(&mut uring, 1, &poll);
    uring.tick(TickWait::Zero).unwrap();
    assert!(uring.next().is_none());
    assert!(uring.cancel(token(1)));
    let completion = answer(&mut uring);
    assert_eq!((completion.token, completion.result), (token(1), -libc::ECANCELED));
    // Canceled twice: the second finds nothing, and its answer must not end the wait.
    assert!(uring.cancel(token(1)));
    assert_eq!(uring.tick(TickWait::AtMost(2_000_000)).unwrap(), TickEnd::TimedOut);
    assert!(uring.next().is_none());
    // Queued behind what it cancels.
    submit(&mut uring, 2, &poll);
    assert!(uring.cancel(token(2)));
    assert_eq!(answer(&mut uring).result, -libc::ECANCELED);
}

#[test]
fn cancels_are_taken_with_the_submission_ring_full() {
    let mut uring = uring(8);
    let pairs: Vec<_> = (0..100).map(|_| pair()).collect();
    let poll = |index: usize| {
        let fd = pairs[index].0.as_raw_fd();
        Request::Poll { fd, interest: Interest::Readable }
    };
    for index in 0..100 {
        submit(&mut uring, index as u32, &poll(index));
    }
    (0..100).for_each(|index| assert!(uring.cancel(token(index))));
    for _ in 0..100 {
        assert_eq!(answer(&mut uring).result, -libc::ECANCELED);
    }
    assert_eq!(uring.in_flight, 0);
}

#[test]
fn a_connection_is_made_and_carries_bytes_into_a_picked_buffer() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let mut uring = uring(8);
        let base = attach(&mut uring, 4, 64);
        let address: SocketAddr = address.parse().unwrap();
        let listener = opened(&mut uring, Control::Listen { address, backlog: 8 });
        let Reply::Address(bound) = uring.control(&Control::LocalAddress(listener)).unwrap() else {
            panic!("no address")
        };
        let client = opened(&mut uring, Control::OpenStream { family_of: bound });
        let (mut peer, server) = (RawAddress::EMPTY, RawAddress::encode(bound));
        submit(&mut uring, 1, &Request::Accept { fd: listener, address: &mut peer });
        submit(&mut uring, 2, &Request::Connect { fd: client, address: &server });
        let (first, second) = (answer(&mut uring), answer(&mut uring));
        let (accepted, connected) =
            if first.token == token(1) { (first, second) } else { (second, first) };
        assert_eq!(connected.result, 0);
        let stream = accepted.result;
        assert!(stream >= 0);
        // SAFETY: no memory is passed.
        assert_ne!(unsafe { libc::fcntl(stream, libc::F_GETFD) } & libc::FD_CLOEXEC, 0);
        let Reply::Address(near) = uring.control(&Control::LocalAddress(client)).unwrap() else {
            panic!("no address")
        };
        assert_eq!(peer.decode().unwrap(), near);
        (0..4).for_each(|buffer| uring.provide(buffer));
        submit(&mut uring, 3, &Request::ReceivePicked { fd: stream, multishot: false });
        let (pointer, length) = (b"hello".as_ptr(), 5);
        submit(&mut uring, 4, &Request::Send { fd: client, pointer, length, now: false });
        let mut results = [answer(&mut uring), answer(&mut uring)];
        results.sort_by_key(|completion| completion.token.index());
        assert_eq!(results.map(|completion| completion.result), [5, 5]);
        let buffer = usize::from(results[0].buffer.unwrap());
        // SAFETY: the buffer lies in the leaked memory, and the receive is over.
        let bytes = unsafe { std::slice::from_raw_parts(base.add(buffer * 64), 5) };
        assert_eq!(bytes, b"hello");
        assert_eq!(results[1].buffer, None);
        [listener, client, stream].into_iter().for_each(|fd| uring.release(fd));
    }
}

#[test]
fn a_receive_without_a_buffer_ends_with_enobufs_and_one_fills_at_most_its_buffer() {
    let mut uring = uring(8);
    attach(&mut uring, 2, 64);
    let (near, mut far) = pair();
    let picked = Request::ReceivePicked { fd: near.as_raw_fd(), multishot: false };
    far.write_all(&[1; 100]).unwrap();
    submit(&mut uring, 1, &picked);
    let completion = answer(&mut uring);
    assert_eq!((completion.result, completion.buffer), (-libc::ENOBUFS, None));
    uring.provide(1);
    submit(&mut uring, 2, &picked);
    let completion = answer(&mut uring);
    assert_eq!((completion.result, completion.buffer), (64, Some(1)));
    assert!(completion.socket_nonempty);
    uring.provide(0);
    submit(&mut uring, 3, &picked);
    let completion = answer(&mut uring);
    assert_eq!((completion.result, completion.buffer), (36, Some(0)));
}

#[test]
fn buffers_go_round_the_ring_many_times() {
    let mut uring = uring(8);
    let base = attach(&mut uring, 4, 64);
    (0..4).for_each(|buffer| uring.provide(buffer));
    let (near, mut far) = pair();
    let picked = Request::ReceivePicked { fd: near.as_raw_fd(), multishot: false };
    // More than 65,536 buffers: the tail wraps.
    for round in 0..66_000_u32 {
        far.write_all(&round.to_ne_bytes()).unwrap();
        submit(&mut uring, round, &picked);
        let completion = answer(&mut uring);
        assert_eq!(completion.result, 4);
        let buffer = completion.buffer.unwrap();
        // SAFETY: the buffer lies in the leaked memory, and the receive is over.
        let word = unsafe { base.add(usize::from(buffer) * 64).cast::<u32>().read_unaligned() };
        assert_eq!(word, round);
        uring.provide(buffer);
    }
}

#[test]
fn a_multishot_receive_goes_on_and_ends_with_enobufs() {
    let mut uring = uring(8);
    attach(&mut uring, 2, 64);
    (0..2).for_each(|buffer| uring.provide(buffer));
    let (near, mut far) = pair();
    submit(&mut uring, 1, &Request::ReceivePicked { fd: near.as_raw_fd(), multishot: true });
    for _ in 0..2 {
        far.write_all(b"abc").unwrap();
        let completion = answer(&mut uring);
        assert_eq!((completion.result, completion.more), (3, true));
        assert!(completion.buffer.is_some());
    }
    far.write_all(b"abc").unwrap();
    let completion = answer(&mut uring);
    assert_eq!((completion.result, completion.more), (-libc::ENOBUFS, false));
    assert_eq!(uring.in_flight, 0);
}

#[test]
fn a_queued_send_sends_all_and_a_canceled_one_says_how_much() {
    let mut uring = uring(8);
    let chunk = vec![7_u8; 16 << 20];
    let (near, mut far) = pair();
    submit(&mut uring, 1, &send(&near, &chunk));
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 16 << 20];
        far.read_exact(&mut got).unwrap();
        far
    });
    assert_eq!(answer(&mut uring).result, 16 << 20);
    let mut far = reader.join().unwrap();
    submit(&mut uring, 2, &send(&near, &chunk));
    uring.tick(TickWait::AtMost(20_000_000)).unwrap();
    assert!(uring.next().is_none());
    assert!(uring.cancel(token(2)));
    let sent = answer(&mut uring).result;
    assert!(sent > 0 && sent < 16 << 20, "{sent}");
    drop(near);
    let mut rest = Vec::new();
    far.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), sent as usize);
}

#[test]
fn requests_answered_at_once_take_no_entry() {
    let mut uring = uring(8);
    let (near, mut far) = pair();
    let mut memory = [0_u8; 8];
    let (fd, pointer, now) = (near.as_raw_fd(), memory.as_mut_ptr(), true);
    let receive = Request::Receive { fd, pointer, length: 8, now };
    assert_eq!(uring.submit(token(1), &receive), Submission::Done(-libc::EAGAIN));
    let send = Request::Send { fd, pointer, length: 8, now };
    assert_eq!(uring.submit(token(1), &send), Submission::Done(8));
    let mut pieces = [libc::iovec { iov_base: pointer.cast(), iov_len: 4 }; 2];
    // SAFETY: a msghdr of zeros is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), 2);
    let vectored = Request::SendVectored { fd, message: &message, now };
    assert_eq!(uring.submit(token(1), &vectored), Submission::Done(8));
    let shutdown = Request::Shutdown { fd, how: Shutdown::Write };
    assert_eq!(uring.submit(token(1), &shutdown), Submission::Done(0));
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), 16);
    let queued = Request::SendVectored { fd: far.as_raw_fd(), message: &message, now: false };
    submit(&mut uring, 2, &queued);
    assert_eq!(answer(&mut uring).result, 8);
    assert_eq!((uring.in_flight, uring.statistics().enters), (0, 1));
}

#[test]
fn a_file_is_written_and_read_at_an_offset() {
    let mut uring = uring(8);
    let path = std::env::temp_dir().join(format!("rotor-uring-{}", std::process::id()));
    let open = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path);
    let file = open.unwrap();
    std::fs::remove_file(path).unwrap();
    let fd = file.as_raw_fd();
    let pointer = b"abcdef".as_ptr();
    submit(&mut uring, 1, &Request::WriteAt { fd, pointer, length: 6, offset: 1 << 20 });
    assert_eq!(answer(&mut uring).result, 6);
    let mut memory = [0_u8; 8];
    let pointer = memory.as_mut_ptr();
    submit(&mut uring, 2, &Request::ReadAt { fd, pointer, length: 8, offset: (1 << 20) + 2 });
    assert_eq!(answer(&mut uring).result, 4);
    assert_eq!(&memory[..4], b"cdef");
    submit(&mut uring, 3, &Request::ReadAt { fd, pointer, length: 8, offset: 1 << 30 });
    assert_eq!(answer(&mut uring).result, 0);
}

extern "C" fn nothing(_signal: libc::c_int) {}

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
        work();
        over.store(true, Ordering::Release);
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

#[test]
fn after_drop_the_kernel_writes_nowhere() {
    for _ in 0..20 {
        let mut uring = uring(8);
        let pairs: Vec<_> = (0..32).map(|_| pair()).collect();
        let mut memory = vec![[0xaa_u8; 64]; 32];
        for (index, (near, _)) in pairs.iter().enumerate() {
            submit(&mut uring, index as u32, &receive(near, &mut memory[index]));
        }
        drop(uring);
        pairs.iter().for_each(|(_, far)| assert_eq!((&*far).write(&[1; 64]).unwrap(), 64));
        assert!(memory.iter().flatten().all(|&byte| byte == 0xaa));
    }
}

#[test]
fn rings_beyond_the_numbers_a_thread_may_register_work_by_descriptor() {
    let mut rings: Vec<_> = (0..20).map(|_| uring(8)).collect();
    let without = rings.iter().filter(|uring| uring.ring.registered.is_none()).count();
    assert!(without >= 4, "{without}");
    for uring in &mut rings {
        submit(uring, 1, &Request::Nop);
        assert_eq!(answer(uring).result, 0);
    }
    // Given back on drop: a number is free again.
    drop(rings);
    assert!(uring(8).ring.registered.is_some());
}

#[test]
fn a_child_is_told_and_its_parent_is_not_disturbed() {
    let mut uring = uring(8);
    let (near, mut far) = pair();
    let mut memory = [0_u8; 4];
    submit(&mut uring, 1, &receive(&near, &mut memory));
    uring.tick(TickWait::Zero).unwrap();
    // SAFETY: the child calls what is tested here and exits without running other destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = uring.check() == Err(ForkedChild)
            && uring.submit(token(2), &Request::Nop) == Submission::Full
            && !uring.cancel(token(1))
            && uring.next().is_none()
            && uring.tick(TickWait::Forever).is_err()
            && uring.control(&Control::Unread(near.as_raw_fd())).is_err();
        uring.provide(0);
        uring.release(near.as_raw_fd());
        drop(uring);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
    assert!(uring.check().is_ok());
    far.write_all(b"done").unwrap();
    assert_eq!(answer(&mut uring).result, 4);
    assert_eq!(&memory, b"done");
}

#[test]
fn descriptors_stay_flat_over_many_rings() {
    let numbers: Vec<RawFd> = (0..300)
        .map(|round| {
            let mut uring = uring(8);
            submit(&mut uring, round, &Request::Nop);
            uring.ring.memory.as_raw_fd()
        })
        .collect();
    // Descriptors are numbered from below, and other tests hold some hundreds: a leak would count up.
    let (first, last) = (&numbers[..100], &numbers[200..]);
    assert!(last.iter().min() <= first.iter().max(), "{numbers:?}");
}

#[test]
#[ignore = "a measurement: run with --release --ignored --nocapture"]
fn measure_nops() {
    let mut uring = uring(256);
    for batch in [1_u32, 64] {
        for _ in 0..3 {
            let rounds = 1_000_000 / batch;
            let start = uring.now();
            for _ in 0..rounds {
                (0..batch).for_each(|index| submit(&mut uring, index, &Request::Nop));
                uring.tick(TickWait::Zero).unwrap();
                (0..batch).for_each(|_| assert!(uring.next().is_some()));
            }
            let each = (uring.now() - start) as f64 / f64::from(rounds * batch);
            println!("nop, {batch} a tick: {each:.1} ns each");
        }
    }
    let start = uring.now();
    (0..1_000_000).for_each(|_| assert_eq!(uring.tick(TickWait::Zero).unwrap(), TickEnd::NotEntered));
    println!("tick with nothing to do: {:.1} ns", (uring.now() - start) as f64 / 1e6);
    let start = uring.now();
    (0..1_000_000).for_each(|_| assert!(uring.now() > 0));
    println!("now: {:.1} ns", (uring.now() - start) as f64 / 1e6);
}
