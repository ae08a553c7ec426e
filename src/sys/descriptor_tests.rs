//! Tests of the calls by descriptor number, over real loopback sockets.
//!
//! # Unsafe
//! The calls under test take pointers; every one here is to a local array, alive through the call.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

use super::*;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn count(control: Control<RawFd>) -> u64 {
    match perform(&control).unwrap() {
        Reply::Count(count) => count,
        other => panic!("{other:?}"),
    }
}

fn open(control: Control<RawFd>) -> RawFd {
    match perform(&control).unwrap() {
        Reply::Opened(fd) => fd,
        other => panic!("{other:?}"),
    }
}

fn address(control: Control<RawFd>) -> io::Result<SocketAddr> {
    match perform(&control)? {
        Reply::Address(address) => Ok(address),
        other => panic!("{other:?}"),
    }
}

fn wait_unread(fd: RawFd, bytes: u64) {
    while count(Control::Unread(fd)) < bytes {
        std::thread::yield_now();
    }
}

#[test]
fn a_listener_is_close_on_exec_and_blocking_and_says_where_it_listens() {
    for text in ["127.0.0.1:0", "[::1]:0"] {
        let wanted: SocketAddr = text.parse().unwrap();
        let fd = open(Control::Listen { address: wanted, backlog: u32::MAX });
        let local = address(Control::LocalAddress(fd)).unwrap();
        assert_eq!(local.ip(), wanted.ip());
        assert_ne!(local.port(), 0);
        // SAFETY: no memory is passed.
        let (status, descriptor) =
            unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
        assert_eq!(status & libc::O_NONBLOCK, 0);
        assert_ne!(descriptor & libc::FD_CLOEXEC, 0);
        let client = TcpStream::connect(local).unwrap();
        let far = address(Control::PeerAddress(client.as_raw_fd())).unwrap();
        assert_eq!(far, local);
        assert_eq!(
            address(Control::PeerAddress(fd)).unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
        close(fd);
    }
}

#[test]
fn an_address_in_use_is_the_kernels_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = perform(&Control::Listen { address, backlog: 1 }).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn an_opened_stream_has_its_family_and_its_options() {
    let fd = open(Control::OpenStream { family_of: "[::]:0".parse().unwrap() });
    assert!(address(Control::LocalAddress(fd)).unwrap().is_ipv6());
    for on in [true, false] {
        assert!(matches!(perform(&Control::SetNoDelay(fd, on)), Ok(Reply::Done)));
        assert!(matches!(perform(&Control::NoDelay(fd)), Ok(Reply::Flag(set)) if set == on));
    }
    assert!(perform(&Control::NoDelay(-1)).is_err());
    close(fd);
}

#[test]
fn sends_and_receives_answer_at_once() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bytes = [0_u8; 16];
    // SAFETY: a local array.
    let mut receive = || unsafe { receive_now(fd, bytes.as_mut_ptr(), 16) };
    assert_eq!(receive(), -libc::EAGAIN);
    far.write_all(b"hello").unwrap();
    wait_unread(fd, 5);
    assert_eq!(receive(), 5);
    drop(far);
    while receive() == -libc::EAGAIN {}
    assert_eq!(receive(), 0);
    assert_eq!(&bytes[..5], b"hello");
}

#[test]
fn a_full_socket_takes_what_fits_and_then_says_so() {
    let (near, mut far) = pair();
    let chunk = vec![7_u8; 1 << 20];
    let (mut sent, mut last) = (0_usize, 0);
    while last >= 0 {
        sent += last as usize;
        // SAFETY: `chunk` is alive and this long.
        last = unsafe { send_now(near.as_raw_fd(), chunk.as_ptr(), chunk.len() as u32) };
    }
    assert_eq!(last, -libc::EAGAIN);
    assert!(sent > 0 && count(Control::Unsent(near.as_raw_fd())) > 0);
    let mut pieces = [libc::iovec { iov_base: chunk.as_ptr().cast_mut().cast(), iov_len: 3 }; 2];
    // SAFETY: a msghdr of zeros is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), 2);
    // SAFETY: the pieces and their bytes are alive.
    let sent_now = unsafe { send_message_now(near.as_raw_fd(), &message) };
    assert_eq!(sent_now, -libc::EAGAIN);
    let mut got = vec![0; sent];
    far.read_exact(&mut got).unwrap();
    // SAFETY: as above.
    while unsafe { send_message_now(near.as_raw_fd(), &message) } != 6 {}
    far.read_exact(&mut got[..6]).unwrap();
}

#[test]
fn unread_bytes_are_counted_and_thrown_away() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let discard = |bytes| perform(&Control::Discard(fd, bytes));
    assert_eq!(discard(10).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    far.write_all(&[1; 100]).unwrap();
    wait_unread(fd, 100);
    assert_eq!(count(Control::Discard(fd, 30)), 30);
    assert_eq!(count(Control::Unread(fd)), 70);
    assert_eq!(count(Control::Discard(fd, u32::MAX)), 70);
    drop(far);
    while discard(1).is_err() {}
    assert_eq!(count(Control::Discard(fd, 1)), 0);
}

#[test]
fn shutting_down_succeeds_also_when_there_is_no_connection() {
    let (near, mut far) = pair();
    perform(&Control::Shutdown(near.as_raw_fd(), Shutdown::Write)).unwrap();
    assert_eq!(far.read(&mut [0; 4]).unwrap(), 0);
    let fd = open(Control::OpenStream { family_of: "0.0.0.0:0".parse().unwrap() });
    assert_eq!(shutdown_now(fd, Shutdown::Both), -libc::ENOTCONN);
    assert!(matches!(perform(&Control::Shutdown(fd, Shutdown::Both)), Ok(Reply::Done)));
    close(fd);
}

#[test]
fn tcp_is_told_from_what_is_read_like_it() {
    let (near, _far) = pair();
    let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(is_tcp(near.as_raw_fd()));
    assert!(!is_tcp(unix.as_raw_fd()) && !is_tcp(-1));
    assert!(!is_tcp(std::fs::File::open("/proc/self/exe").unwrap().as_raw_fd()));
}

/// Signals come all the time, and some in the middle of a look.
#[test]
fn a_look_that_a_signal_interrupts_finds_nothing_ready() {
    extern "C" fn nothing(_: libc::c_int) {}
    static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: the handler does nothing; nothing else in these tests uses the signal.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    let (near, _far) = pair();
    // SAFETY: no memory is passed. The thread named lives until the other one is joined.
    let this = unsafe { libc::pthread_self() };
    let signals = std::thread::spawn(move || {
        while !STOP.load(std::sync::atomic::Ordering::Relaxed) {
            // SAFETY: as above.
            unsafe { libc::pthread_kill(this, libc::SIGUSR2) };
        }
    });
    let ready = (0..100_000).filter(|_| is_ready(near.as_raw_fd(), Interest::Readable)).count();
    STOP.store(true, std::sync::atomic::Ordering::Relaxed);
    signals.join().unwrap();
    assert_eq!(ready, 0, "nothing was ready");
}

#[test]
fn a_send_to_a_peer_that_left_is_an_error_and_not_a_signal() {
    let (near, far) = pair();
    drop(far);
    // SAFETY: one static byte.
    while unsafe { send_now(near.as_raw_fd(), b"x".as_ptr(), 1) } == 1 {}
    // SAFETY: as above.
    let error = unsafe { send_now(near.as_raw_fd(), b"x".as_ptr(), 1) };
    assert!(error == -libc::EPIPE || error == -libc::ECONNRESET, "{error}");
}
