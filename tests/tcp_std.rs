//! From std's streams and listeners and back, and the descriptors beneath.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as Client;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::time::{Duration, Instant};

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::Runtime;
use rotor::task::yield_now;
use support::{
    Limited, assert_descriptors, connect, descriptors, pair, poll_once, run, take_all,
    watched_alone,
};

/// Whether a descriptor is non-blocking.
fn is_nonblocking(fd: impl AsRawFd) -> bool {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags & libc::O_NONBLOCK != 0
}

#[test]
fn streams_and_listeners_of_std_work_whichever_mode_they_come_in() {
    run(async {
        for nonblocking in [false, true] {
            let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            plain.set_nonblocking(nonblocking).unwrap();
            let address = plain.local_addr().unwrap();
            let listener = TcpListener::from_std(plain).unwrap();
            // The accept is armed before the connection is there.
            assert!(poll_once(listener.accept()).await.is_none());
            let client = connect(address);
            client.set_nonblocking(nonblocking).unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let mut client = TcpStream::from_std(client).unwrap();
            // The receive is armed before the bytes are there.
            let mut byte = [0];
            assert!(poll_once(client.read(&mut byte)).await.is_none());
            yield_now().await;
            server.write_all(b"x").await.unwrap();
            assert_eq!(client.read(&mut byte).await.unwrap(), 1);

            assert!(!is_nonblocking(client.into_std().await.unwrap()));
            assert!(!is_nonblocking(listener.into_std().await.unwrap()));
        }
    });
}

#[test]
fn a_stream_given_to_std_takes_every_byte_along() {
    run(async {
        let (mut stream, mut client) = pair().await;
        // A receive and a poll for room are in flight.
        assert!(poll_once(stream.read(&mut [0])).await.is_none());
        let chunk = vec![1; 1 << 20];
        let mut written = 0;
        while let Some(count) = poll_once(stream.write(&chunk)).await {
            written += count.unwrap();
        }
        yield_now().await;
        let mut plain = stream.into_std().await.unwrap();
        let reader = std::thread::spawn(move || {
            let mut received = vec![0; written];
            client.read_exact(&mut received).unwrap();
            client.write_all(b"answer").unwrap();
            client
        });
        let mut answer = [0; 6];
        let waits = std::thread::spawn(move || {
            plain.read_exact(&mut answer).unwrap();
            answer
        });
        assert_eq!(&waits.join().unwrap(), b"answer");
        drop(reader.join().unwrap());
    });
}

#[test]
fn bytes_in_hand_keep_a_stream_from_std_and_come_with_the_error() {
    run(async {
        let (mut stream, mut client) = pair().await;
        client.write_all(b"hello").unwrap();
        stream.readable().await.unwrap();
        let kept = stream.into_std().await.unwrap_err();
        assert_eq!(kept.error().kind(), ErrorKind::WouldBlock);
        assert_eq!(kept.bytes(), b"hello");
        let words = "it cannot be given to std: bytes were received and not read; read them first";
        assert_eq!(kept.to_string(), words);
        stream = kept.socket;
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello");
        client.write_all(b"more").unwrap();
        let mut plain = stream.into_std().await.unwrap();
        plain.read_exact(&mut hello[..4]).unwrap();
        assert_eq!(&hello[..4], b"more");

        // A stream that was full is full still: its poll for room was canceled, and nobody read.
        let (mut stream, mut client) = pair().await;
        while stream.try_write(&[0; 65_536]).is_ok() {}
        assert!(poll_once(stream.writable()).await.is_none());
        client.write_all(b"x").unwrap();
        stream.readable().await.unwrap();
        stream = stream.into_std().await.unwrap_err().socket;
        assert!(poll_once(stream.writable()).await.is_none(), "ready in vain");
        drop((stream, client));

        // An error that nobody was told keeps it too.
        let (stream, client) = pair().await;
        support::reset(client);
        stream.readable().await.unwrap();
        let kept = stream.into_std().await.unwrap_err();
        assert_eq!(kept.error().kind(), ErrorKind::ConnectionReset);
        assert!(kept.bytes().is_empty());
    });
}

#[test]
fn a_stream_that_std_has_is_not_rotors_any_more() {
    let _watched = watched_alone();
    let before = descriptors();
    let runtime = Runtime::new().unwrap();
    let (plain, mut client) = runtime.block_on(async {
        let (stream, client) = pair().await;
        let statistics = descriptors();
        let plain = stream.into_std().await.unwrap();
        assert_eq!(descriptors(), statistics);
        (plain, client)
    });
    assert_eq!(runtime.statistics().event_loop.sockets.now, 0);
    drop(runtime);
    assert_eq!(descriptors(), before + 2);
    client.write_all(b"y").unwrap();
    let mut byte = [0];
    (&plain).read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"y");
}

#[test]
fn a_connection_that_was_accepted_keeps_its_listener_from_std() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        assert!(poll_once(listener.accept()).await.is_none());
        let _client = connect(listener.local_addr().unwrap());
        rotor::time::sleep(support::MILLISECOND).await;
        let kept = listener.into_std().await.unwrap_err();
        assert_eq!(kept.error().kind(), ErrorKind::WouldBlock);
        kept.socket.accept().await.unwrap();
        let plain = kept.socket.into_std().await.unwrap();
        let _second = connect(plain.local_addr().unwrap());
        plain.accept().unwrap();
    });
}

#[test]
fn a_lent_descriptor_stays_open_until_its_object_is_dropped() {
    let _watched = watched_alone();
    let before = descriptors();
    let runtime = Runtime::new().unwrap();
    let (stream, listener, mut client) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = connect(listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(stream.as_raw_fd(), stream.as_fd().as_raw_fd());
        assert_ne!(stream.as_raw_fd(), listener.as_raw_fd());
        let duplicate = Client::from(stream.as_fd().try_clone_to_owned().unwrap());
        client.write_all(b"abc").unwrap();
        let mut received = [0; 3];
        (&duplicate).read_exact(&mut received).unwrap();
        assert_eq!(&received, b"abc");
        // A receive is in flight when the runtime goes.
        assert!(poll_once(stream.read(&mut received)).await.is_none());
        stream.write_all(b"end").await.unwrap();
        (stream, listener, client)
    });
    let fd = stream.as_fd();
    drop(runtime);
    // Still open, so its number can be no other file's.
    assert!(fd.try_clone_to_owned().is_ok());
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"end");
    assert_eq!(descriptors(), before + 3);
    drop(stream);
    drop(listener);
    assert_eq!(descriptors(), before + 1);
}

#[test]
fn incoming_gives_connections_one_by_one_and_is_a_stream() {
    use futures_core::Stream;
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut incoming = listener.incoming();
        assert!(poll_once(incoming.next()).await.is_none());
        let mut clients: Vec<_> = (0..3).map(|_| connect(address)).collect();
        let mut first = incoming.next().await.unwrap().unwrap();
        clients[0].write_all(b"1").unwrap();
        first.read_exact(&mut [0]).await.unwrap();
        for _ in 0..2 {
            let next = std::future::poll_fn(|cx| Pin::new(&mut incoming).poll_next(cx)).await;
            next.unwrap().unwrap();
        }
        // A future of another task is not held up by one that was dropped.
        assert!(poll_once(incoming.next()).await.is_none());
        clients.push(connect(address));
        listener.accept().await.unwrap();
    });
}

#[test]
fn a_stream_that_lingers_by_std_is_closed_at_its_bound_without_blocking_the_thread() {
    let _watched = watched_alone();
    Runtime::new().unwrap().block_on(async {
        let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let linger = libc::linger { l_onoff: 1, l_linger: 1 };
        let length = size_of_val(&linger) as libc::socklen_t;
        // SAFETY: the pointer and the length are those of one value, which the kernel reads.
        let set = unsafe {
            let value = (&raw const linger).cast();
            libc::setsockopt(plain.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, length)
        };
        assert_eq!(set, 0);
        let listener = TcpListener::from_std(plain).unwrap();
        let _deaf = connect(listener.local_addr().unwrap());
        // Connections inherit the option.
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_eq!(stream.linger().unwrap(), Some(Duration::from_secs(1)));
        let chunk = vec![1; 1 << 20];
        while poll_once(stream.write(&chunk)).await.is_some() {}
        let (open, begun) = (descriptors(), Instant::now());
        drop(stream);
        let mut longest = Duration::ZERO;
        while descriptors() == open {
            let before = Instant::now();
            rotor::time::sleep(support::MILLISECOND * 10).await;
            longest = longest.max(before.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(5), "the bound is not the option's");
        }
        assert!(begun.elapsed() >= Duration::from_millis(900), "it did not linger");
        assert!(longest < Duration::from_millis(500), "the thread was blocked for {longest:?}");
    });
}

/// Leaves a stream whose number was lent out to outlive its runtime, with more written than its
/// socket takes; answers what was written and what the peer got.
fn outlive_the_runtime(unread: bool, owned: bool) -> (usize, usize) {
    let runtime = Runtime::new().unwrap();
    let (stream, written, reading) = runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        assert!(stream.as_raw_fd() >= 0);
        if unread {
            client.write_all(&[1; 1_000]).unwrap();
        }
        let mut written = 0;
        if owned {
            written = 32 << 20;
            assert!(poll_once(stream.write_owned(vec![7; written])).await.is_none());
        } else {
            while let Ok(count) = stream.try_write(&[7; 65_536]) {
                written += count;
            }
        }
        let reading = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut received = Vec::new();
            client.read_to_end(&mut received).unwrap();
            received.len()
        });
        (stream, written, reading)
    });
    drop(runtime);
    drop(stream);
    (written, reading.join().unwrap())
}

#[test]
fn a_stream_whose_number_was_lent_delivers_what_was_written_after_its_runtime_too() {
    let _watched = watched_alone();
    let idle = descriptors();
    for (unread, owned) in [(false, true), (true, true), (true, false)] {
        let (written, received) = outlive_the_runtime(unread, owned);
        assert_eq!(written, received, "unread input: {unread}, owned: {owned}");
    }
    assert_descriptors(idle);
}

#[test]
fn a_lent_number_stays_open_though_none_is_left_for_a_duplicate() {
    let _watched = watched_alone();
    let idle = descriptors();
    let runtime = Runtime::new().unwrap();
    let (stream, mut client) = runtime.block_on(async {
        let (mut stream, client) = pair().await;
        assert!(stream.as_raw_fd() >= 0);
        stream.write_all(b"end").await.unwrap();
        (stream, client)
    });
    let fd = stream.as_fd();
    let limited = Limited::to_more(1);
    let taken = take_all();
    drop(runtime);
    drop((taken, limited));
    // The object has the number itself; the stream ends with the runtime as any other.
    assert!(fd.try_clone_to_owned().is_ok());
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"end");
    drop(client);
    assert_eq!(descriptors(), idle + 1);
    drop(stream);
    assert_descriptors(idle);
}

/// One open file, three ways: rotor's listener, another of rotor's, and one that goes back to std.
#[test]
fn a_listener_whose_duplicate_becomes_blocking_does_not_stop_the_timers() {
    const RESCUE: Duration = Duration::from_secs(5);
    run(async {
        let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = plain.local_addr().unwrap();
        let (second, third) = (plain.try_clone().unwrap(), plain.try_clone().unwrap());
        let first = TcpListener::from_std(plain).unwrap();
        assert!(poll_once(first.accept()).await.is_none());
        yield_now().await;
        let second = TcpListener::from_std(second).unwrap();
        drop(second.into_std().await.unwrap());
        third.set_nonblocking(false).unwrap();

        // Ends an accept that waits, so that this fails and does not hang.
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let rescue = std::thread::spawn(move || {
            let late = stopped.recv_timeout(RESCUE).is_err();
            (late, late.then(|| Client::connect(address)))
        });
        let _client = connect(address);
        let (_server, _) = first.accept().await.unwrap();
        // Another accept is tried: the listener was ready, for all that was known.
        assert!(poll_once(first.accept()).await.is_none());
        rotor::time::sleep(Duration::from_millis(20)).await;
        let _ = stop.send(());
        assert!(!rescue.join().unwrap().0, "the runtime stood still in an accept");
    });
}
