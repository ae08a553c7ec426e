//! Connections, bytes and buffers.
//!
//! # Unsafe
//! Buffers are read after the receive that filled them is over; message headers are zeroed.

use super::*;

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
        let flags = unsafe { libc::fcntl(stream, libc::F_GETFD) };
        assert_ne!(flags & libc::FD_CLOEXEC, 0);
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
        let bytes = unsafe { std::slice::from_raw_parts(base.add(buffer * stride(64)), 5) };
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
        let word =
            unsafe { base.add(usize::from(buffer) * stride(64)).cast::<u32>().read_unaligned() };
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
    assert_eq!(take(&mut uring, token(1), &receive), Submission::Done(-libc::EAGAIN));
    let send = Request::Send { fd, pointer, length: 8, now };
    assert_eq!(take(&mut uring, token(1), &send), Submission::Done(8));
    let mut pieces = [libc::iovec { iov_base: pointer.cast(), iov_len: 4 }; 2];
    // SAFETY: a msghdr of zeros is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), 2);
    let vectored = Request::SendVectored { fd, message: &message, now };
    assert_eq!(take(&mut uring, token(1), &vectored), Submission::Done(8));
    let shutdown = Request::Shutdown { fd, how: Shutdown::Write };
    assert_eq!(take(&mut uring, token(1), &shutdown), Submission::Done(0));
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
    let open =
        std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path);
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
