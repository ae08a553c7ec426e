//! The surface of TCP beyond reading and writing: options, sockets before they connect, readiness.

mod support;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rotor::io::Interest;
use rotor::net::{TcpListener, TcpSocket, TcpStream};
use rotor::runtime::Runtime;
use support::{
    FullListener, MILLISECOND, assert_same, eventually, pair, pattern, poll_once, reset, run,
};

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

#[test]
fn options_of_a_stream_are_read_back_as_set() {
    run(async {
        let (stream, _client) = pair().await;
        for on in [true, false] {
            stream.set_nodelay(on).unwrap();
            assert_eq!(stream.nodelay().unwrap(), on);
            stream.set_keepalive(on).unwrap();
            assert_eq!(stream.keepalive().unwrap(), on);
            stream.set_quickack(on).unwrap();
            assert_eq!(stream.quickack().unwrap(), on);
        }
        stream.set_ttl(17).unwrap();
        assert_eq!(stream.ttl().unwrap(), 17);
        let refused = stream.set_ttl(1000).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(stream.take_error().unwrap().is_none());

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.set_ttl(18).unwrap();
        assert_eq!(listener.ttl().unwrap(), 18);
    });
}

#[test]
fn linger_is_kept_in_whole_seconds_rounded_up_and_has_no_longest() {
    run(async {
        let (stream, _client) = pair().await;
        assert_eq!(stream.linger().unwrap(), None);
        let cases = [(1, 1_000), (1_000, 1_000), (1_001, 2_000), (0, 0)];
        for (set, kept) in cases {
            stream.set_linger(Some(Duration::from_millis(set))).unwrap();
            assert_eq!(stream.linger().unwrap(), Some(Duration::from_millis(kept)));
        }
        stream.set_linger(Some(Duration::MAX)).unwrap();
        assert!(stream.linger().unwrap() >= Some(Duration::from_secs(1 << 30)));
        stream.set_linger(None).unwrap();
        assert_eq!(stream.linger().unwrap(), None);
    });
}

#[test]
fn a_stream_that_lingers_for_ever_is_dropped_without_blocking_the_thread() {
    run(async {
        let (mut stream, mut client) = pair().await;
        stream.set_linger(Some(Duration::MAX)).unwrap();
        // More than the peer's window takes: the rest stays in our kernel.
        let chunk = vec![7; 1 << 20];
        let mut written = 0;
        while let Some(count) = poll_once(stream.write(&chunk)).await {
            written += count.unwrap();
        }
        let begun = Instant::now();
        drop(stream);
        rotor::time::sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "the thread was blocked");
        let read = std::thread::spawn(move || {
            let mut received = Vec::new();
            client.read_to_end(&mut received).map(|_| received.len())
        });
        eventually("the peer has everything", || read.is_finished()).await;
        assert_eq!(read.join().unwrap().unwrap(), written);
    });
}

#[test]
fn a_stream_that_lingers_for_no_time_is_reset() {
    run(async {
        let (mut stream, mut client) = pair().await;
        stream.set_linger(Some(Duration::ZERO)).unwrap();
        stream.write_all(b"lost or not").await.unwrap();
        drop(stream);
        let read = std::thread::spawn(move || client.read_to_end(&mut Vec::new()));
        eventually("the peer sees the end", || read.is_finished()).await;
        assert_eq!(read.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_socket_has_its_options_before_it_listens_or_connects() {
    run(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_reuseport(true).unwrap();
        assert!(socket.reuseaddr().unwrap() && socket.reuseport().unwrap());
        socket.bind(LOOPBACK).unwrap();
        let address = socket.local_addr().unwrap();
        let listener = socket.listen(16).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);

        // The port is shared because both asked for it.
        let sharing = TcpSocket::new_v4().unwrap();
        sharing.set_reuseport(true).unwrap();
        sharing.bind(address).unwrap();
        let alone = TcpSocket::new_v4().unwrap();
        assert_eq!(alone.bind(address).unwrap_err().kind(), ErrorKind::AddrInUse);

        let client = TcpSocket::new_v4().unwrap();
        client.set_nodelay(true).unwrap();
        client.set_keepalive(true).unwrap();
        assert!(client.nodelay().unwrap() && client.keepalive().unwrap());
        client.set_recv_buffer_size(40_000).unwrap();
        client.set_send_buffer_size(50_000).unwrap();
        // Linux doubles them (socket(7)).
        assert_eq!(client.recv_buffer_size().unwrap(), 80_000);
        assert_eq!(client.send_buffer_size().unwrap(), 100_000);
        client.bind(LOOPBACK).unwrap();
        let from = client.local_addr().unwrap();
        let mut client = client.connect(address).await.unwrap();
        let (mut stream, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, from);
        client.write_all(b"hello").await.unwrap();
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello");
    });
}

#[test]
fn a_socket_that_is_dropped_unused_or_fails_is_closed() {
    let _watched = support::watched_alone();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let before = support::descriptors();
        drop(TcpSocket::new_v6().unwrap());
        let (_held, nobody) = support::bind_only();
        let socket = TcpSocket::new_v4().unwrap();
        let refused = socket.connect(nobody).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // Not bound, so the kernel binds it.
        drop(TcpSocket::new_v4().unwrap().listen(1).unwrap());
        eventually("all are closed", || support::descriptors() == before + 1).await;
    });
}

#[test]
fn a_connect_with_a_bound_gives_up_in_time_and_never_a_connection_it_has() {
    run(async {
        let full = FullListener::new();
        let begun = Instant::now();
        let bound = Duration::from_millis(50);
        let error = TcpStream::connect_timeout(full.address, bound).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(begun.elapsed() >= bound);

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect_timeout(address, Duration::MAX).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
        let (_held, nobody) = support::bind_only();
        let error = TcpStream::connect_timeout(nobody, bound).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_peek_leaves_what_it_sees_to_every_kind_of_read() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let mut seen = [0; 16];
        assert!(poll_once(stream.peek(&mut seen)).await.is_none());
        client.write_all(b"hello world").unwrap();
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 11);
        assert_eq!(stream.peek(&mut seen[..4]).await.unwrap(), 4);
        assert_eq!(stream.peek(&mut []).await.unwrap(), 0);
        let mut read = [0; 6];
        assert_eq!(stream.try_read(&mut read).unwrap(), 6);
        assert_eq!(&read, b"hello ");
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 5);
        stream.read_exact(&mut read[..5]).await.unwrap();
        assert_eq!((&seen[..5], &read[..5]), (&b"world"[..], &b"world"[..]));
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 0);
        assert_eq!(stream.read(&mut read).await.unwrap(), 0);
    });
}

#[test]
fn an_error_is_told_by_a_peek_and_again_by_the_read_after_it() {
    run(async {
        let (mut stream, client) = pair().await;
        reset(client);
        stream.readable().await.unwrap();
        let ready = stream.ready(Interest::READABLE).await.unwrap();
        assert!(ready.is_readable() && ready.is_read_closed());
        for _ in 0..2 {
            let error = stream.peek(&mut [0]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        let error = stream.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(stream.try_read(&mut [0]).unwrap_or(0), 0);
    });
}

#[test]
fn every_task_that_waits_for_readiness_is_woken_beside_the_reader_and_the_writer() {
    run(async {
        let (stream, mut client) = pair().await;
        let stream = std::rc::Rc::new(stream);
        let mut tasks = Vec::new();
        for number in 0..20 {
            let stream = stream.clone();
            tasks.push(rotor::spawn(async move {
                let mut byte = [0];
                match number % 4 {
                    0 => assert_eq!(stream.peek(&mut byte).await.unwrap(), 1),
                    1 => stream.readable().await.unwrap(),
                    2 => assert!(stream.ready(Interest::READABLE).await.unwrap().is_readable()),
                    _ => {
                        let both = Interest::READABLE | Interest::WRITABLE;
                        assert!(stream.ready(both).await.unwrap().is_writable());
                    }
                }
            }));
        }
        // Some futures leave before; their places are used again.
        for _ in 0..10 {
            assert!(poll_once(stream.readable()).await.is_none());
            rotor::task::yield_now().await;
        }
        client.write_all(b"x").unwrap();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_full_stream_is_not_writable_until_the_peer_reads() {
    run(async {
        let (mut stream, client) = pair().await;
        stream.writable().await.unwrap();
        let mut written = 0;
        let full = loop {
            match stream.try_write(&pattern(0, 12 << 20)[written..]) {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert!(poll_once(stream.writable()).await.is_none());
        assert!(poll_once(stream.ready(Interest::WRITABLE)).await.is_none());
        assert!(poll_once(stream.write(b"x")).await.is_none());
        let reader = std::thread::spawn(move || support::read_slowly(&mut { client }).unwrap());
        while written < 12 << 20 {
            stream.writable().await.unwrap();
            match stream.try_write(&pattern(0, 12 << 20)[written..]) {
                Ok(count) => written += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        drop(stream);
        eventually("the peer has read", || reader.is_finished()).await;
        assert_same(&reader.join().unwrap(), pattern(0, 12 << 20));
    });
}

#[test]
fn readiness_and_reads_mixed_under_timeouts_lose_no_byte() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let sent = pattern(3, 300_000);
        let sender = std::thread::spawn(move || {
            for piece in sent.chunks(1_777) {
                client.write_all(piece).unwrap();
                std::thread::sleep(MILLISECOND / 4);
            }
        });
        let mut received = Vec::new();
        let mut buffer = vec![0; 5_003];
        for round in 0.. {
            let count = match round % 3 {
                0 => match rotor::time::timeout(MILLISECOND, stream.readable()).await {
                    Ok(ready) => {
                        ready.unwrap();
                        stream.try_read(&mut buffer).unwrap()
                    }
                    Err(_) => continue,
                },
                1 => match rotor::time::timeout(MILLISECOND, stream.read(&mut buffer)).await {
                    Ok(count) => count.unwrap(),
                    Err(_) => continue,
                },
                _ => match poll_once(stream.peek(&mut buffer)).await {
                    Some(seen) => {
                        let seen = seen.unwrap();
                        let copy = buffer[..seen].to_vec();
                        let count = stream.try_read(&mut buffer).unwrap();
                        assert_eq!(buffer[..count.min(seen)], copy[..count.min(seen)]);
                        count
                    }
                    None => continue,
                },
            };
            if count == 0 {
                break;
            }
            received.extend_from_slice(&buffer[..count]);
        }
        sender.join().unwrap();
        assert_same(&received, sent);
    });
}

#[test]
fn halves_have_what_the_whole_stream_has_and_find_together_again() {
    run(async {
        let (mut stream, mut client) = pair().await;
        {
            let (mut reader, mut writer) = stream.split();
            assert_eq!(reader.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            client.write_all(b"abcdefgh").unwrap();
            reader.readable().await.unwrap();
            assert_eq!(reader.peek(&mut [0; 3]).await.unwrap(), 3);
            assert_eq!(reader.try_read(&mut [0]).unwrap(), 1);
            writer.writable().await.unwrap();
            assert_eq!(writer.try_write(b"12").unwrap(), 2);
            assert_eq!(writer.write_vectored(&[IoSlice::new(b"34")]).await.unwrap(), 2);
        }
        let (mut reader, mut writer) = stream.into_split();
        assert!(reader.ready(Interest::READABLE).await.unwrap().is_readable());
        let (mut two, mut rest) = ([0; 2], [0; 2]);
        let mut into = [IoSliceMut::new(&mut two), IoSliceMut::new(&mut rest)];
        assert_eq!(reader.try_read_vectored(&mut into).unwrap(), 4);
        assert_eq!(&*reader.read_buf().await.unwrap(), b"fgh");
        assert!(writer.ready(Interest::WRITABLE).await.unwrap().is_writable());
        assert_eq!(writer.try_write_vectored(&[IoSlice::new(b"56")]).unwrap(), 2);
        let (sent, _) = writer.write_owned(b"78".to_vec()).await;
        assert_eq!(sent.unwrap(), 2);
        let mut received = [0; 8];
        client.read_exact(&mut received).unwrap();
        assert_eq!((&received, two, rest), (b"12345678", *b"bc", *b"de"));
        let mut stream = reader.reunite(writer).unwrap();
        stream.write_all(b"whole").await.unwrap();
        client.read_exact(&mut received[..5]).unwrap();
    });
}
