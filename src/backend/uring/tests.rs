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

mod held;
mod prepare;
mod transfer;
mod waiting;

use crate::address::RawAddress;
use crate::op::Interest;

const SECOND: u64 = 1_000_000_000;

fn uring(ring_entries: u32) -> Uring {
    Uring::new(&Options { ring_entries, operations: 8, ..Options::default() }).unwrap()
}

fn token(index: u32) -> Token {
    Token::new(index, 3)
}

/// Hands a request over.
fn take(uring: &mut Uring, token: Token, request: &Request) -> Submission {
    // SAFETY: the tests keep the memory of a request until its last completion, or drop the ring
    // first.
    unsafe { uring.submit(token, request) }
}

fn submit(uring: &mut Uring, index: u32, request: &Request) {
    assert_eq!(take(uring, token(index), request), Submission::Queued);
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

/// Buffers lie further apart than they are long, as the loop lays them.
fn stride(bytes: u32) -> usize {
    bytes as usize + 64
}

/// Page-aligned memory for a buffer ring and its buffers, kept for the life of the test process: a
/// ring's pages must outlast it.
fn attach(uring: &mut Uring, count: u32, bytes: u32) -> *mut u8 {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let stride = stride(bytes);
    let pages = 1 + (count as usize * stride).div_ceil(4096);
    let memory = Vec::leak((0..pages).map(|_| Page([0xff; 4096])).collect::<Vec<_>>());
    let ring = memory[0].0.as_mut_ptr();
    let base = memory[1].0.as_mut_ptr();
    let ring_entries = count.next_power_of_two();
    let memory = BufferMemory { base, stride, count, bytes, ring, ring_entries };
    // SAFETY: the memory is leaked.
    unsafe { uring.attach(memory) }.unwrap();
    base
}

fn exit_code(child: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: waits for a child of this process, into a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

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
            while take(&mut uring, token(index), &Request::Nop) == Submission::Full {
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
            && take(&mut uring, token(2), &Request::Nop) == Submission::Full
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
    assert_eq!(exit_code(child), Some(7));
    assert!(uring.check().is_ok());
    far.write_all(b"done").unwrap();
    assert_eq!(answer(&mut uring).result, 4);
    assert_eq!(&memory, b"done");
}

#[test]
fn rings_made_and_dropped_leave_no_descriptor_behind() {
    let work = || {
        let count = || std::fs::read_dir("/proc/self/fd").map(Iterator::count).ok();
        let before = count();
        for round in 0..300 {
            submit(&mut uring(8), round, &Request::Nop);
        }
        before.is_some() && count() == before
    };
    // In a child, where no other test opens descriptors meanwhile.
    // SAFETY: the child makes rings of its own and exits without running other destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let flat = std::panic::catch_unwind(work).unwrap_or(false);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if flat { 7 } else { 1 }) };
    }
    assert_eq!(exit_code(child), Some(7));
}

/// Makes the kernel answer a system call with an error, in this process, for good.
fn refuse(call: libc::c_long, errno: i32) {
    let code =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        code(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        code(libc::BPF_RET, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is alive through the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn what_the_kernel_refuses_is_named() {
    for (call, errno, words) in [
        (libc::SYS_io_uring_setup, libc::EPERM, "kernel.io_uring_disabled"),
        (libc::SYS_io_uring_setup, libc::ENOSYS, "without io_uring"),
        (libc::SYS_io_uring_setup, libc::ENOMEM, "locked memory"),
        (libc::SYS_io_uring_setup, libc::EINVAL, "DEFER_TASKRUN (Linux 6.1)"),
        (libc::SYS_io_uring_register, libc::EPERM, "io_uring_register refused"),
        (libc::SYS_io_uring_enter, libc::EPERM, "io_uring_enter was refused"),
        (libc::SYS_eventfd2, libc::EMFILE, "eventfd"),
        (libc::SYS_madvise, libc::EINVAL, "MADV_WIPEONFORK (Linux 4.14)"),
    ] {
        // SAFETY: the child makes a ring of its own and exits without running other destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            refuse(call, errno);
            let error = Uring::new(&Options::default()).expect_err("refused");
            let named = match &error {
                CreateError::Backend { what, error } => {
                    what.contains(words) && error.raw_os_error() == Some(errno)
                }
                CreateError::MemoryLock { .. } => {
                    error.to_string().contains(words) && errno == libc::ENOMEM
                }
                other => panic!("{other}"),
            };
            // SAFETY: ends the child.
            unsafe { libc::_exit(if named { 7 } else { 1 }) };
        }
        assert_eq!(exit_code(child), Some(7), "{words}");
    }
}
