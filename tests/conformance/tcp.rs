//! TCP as users see it: the same answers everywhere.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener as PlainListener, TcpStream as Client};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rotor::io::Interest as Side;
use rotor::net::{TcpListener, TcpSocket, TcpStream};
use rotor::runtime::Runtime;
use rotor::{DescriptorKind, Event, Interest, Operation, OwnedOperation, SubmitError};

use crate::rig::*;
use crate::scenario::Outcome;

scenarios! {
    8 runtime "the backend says which it is, and a later choice of another is refused" => choice;
    8 control connect accept poll vectored receive shutdown close
        "a loop connects, talks, polls, shuts down and closes" => a_loop_talks;
    8 connect "a connect that nobody listens for is refused" => refused_connect;
    8 connect "streams and listeners know both addresses" => addresses;
    8 connect "the second loopback carries a stream" => second_loopback;
    8 connect "a connect with a bound gives up in time" => bounded_connect;
    8 accept
        "a connection that is reset before it is accepted is accepted and says so" => reset_in_backlog;
    8 receive "an echo returns every byte, of messages of all lengths" => echo;
    8 receive "reads of all lengths around the buffer's give every byte" => read_lengths;
    8 receive send "halves read and write at the same time, and find together again" => halves;
    8 accept "incoming gives connections one by one" => incoming;
    8 connect accept control "a socket is bound, listens and connects with its options" => sockets;
    8 receive ready read_buf "the end of a stream is read again and again" => the_end;
    8 receive "a reset is told once, after the bytes before it" => reset_after_bytes;
    8 receive "a reset ends a read that waits" => reset_while_reading;
    8 read_exact "a read_exact meets the end in the middle and takes nothing" => exact_at_end;
    8 read_buf "a lease is what was received, and empty at the end" => leases;
    8 ready "an attempt never waits, and readable is ready when a read is" => attempts;
    8 ready "a full stream is not writable until its peer reads" => writable;
    8 ready "a peek leaves what it sees, and its error, to the read" => peek;
    8 send receive read_exact vectored write_owned ready
        "calls with nothing to move are over at once" => nothing_to_move;
    8 send vectored write_owned ready
        "a write to a peer that has left is a broken pipe and no signal" => broken_pipe;
    8 send "a write that waits learns that its peer has left" => pending_write;
    8 vectored "vectored calls keep the order of their pieces" => vectored;
    8 write_owned "owned buffers of every kind come back the same" => owned;
    8 shutdown "after a shutdown the peer reads the end and can still send" => half_close;
    8 shutdown "a shutdown of a stream whose peer has left succeeds" => shutdown_alone;
    8 control "options are read back as they were set" => options;
    8 control "an address in use is refused, and nothing stays open" => address_in_use;
    8 control accept "streams and listeners come from std and go back" => std_and_back;
    8 file "files are written and read at offsets" => files;
}

fn choice() {
    let chosen = rotor::backend().unwrap();
    assert_eq!(Runtime::new().unwrap().backend(), small_loop().backend());
    assert!(chosen.to_string().starts_with(chosen.kind.name()), "{chosen}");
    for kind in rotor::backend::Kind::ALL {
        assert_eq!(rotor::backend::prefer(kind).is_ok(), kind == chosen.kind, "{kind}");
    }
    assert_eq!(rotor::backend().unwrap(), chosen);
}

fn a_loop_talks() -> String {
    let mut event_loop = small_loop();
    let (listening, address) = listener(&mut event_loop);
    let client = open_stream(&mut event_loop, address);
    event_loop.submit(Operation::connect(client, address), 1).unwrap();
    event_loop.submit(Operation::accept(listening), 2).unwrap();
    let events = gather(&mut event_loop, 2);
    let server = events.iter().find_map(Event::descriptor).unwrap();
    let mut seen: Vec<String> = events.iter().map(told).collect();
    seen.sort();
    assert_eq!(event_loop.peer_address(client), Some(address));
    seen.push(told(&finish(&mut event_loop, Operation::poll(client, Interest::Writable))));
    event_loop.submit(Operation::poll(server, Interest::Readable), 3).unwrap();
    settle(&mut event_loop);
    static PIECES: [&[u8]; 3] = [b"one ", b"two ", b"three"];
    let slices = PIECES.map(IoSlice::new);
    // SAFETY: the slices live in this function and their bytes are static; `gather` waits for the final
    // event.
    let pieces = unsafe { Operation::send_vectored(client, slices.as_ptr().cast(), 3) };
    event_loop.submit(pieces, 4).unwrap();
    let mut both: Vec<String> = gather(&mut event_loop, 2).iter().map(told).collect();
    both.sort();
    seen.extend(both);
    let (operation, memory) = receive(server, 64);
    let event = finish(&mut event_loop, operation);
    assert_eq!(received(memory, &event), b"one two three");
    seen.push(told(&finish(&mut event_loop, Operation::shutdown(client, Shutdown::Write))));
    let end = finish(&mut event_loop, Operation::receive_picked(server));
    assert_eq!(end.buffer(), None);
    seen.push(told(&end));
    for descriptor in [server, client, listening] {
        seen.push(told(&finish(&mut event_loop, Operation::close(descriptor))));
        let late = event_loop.submit(Operation::receive_picked(descriptor), 9);
        assert_eq!(late, Err(SubmitError::Closed));
    }
    assert_eq!(event_loop.statistics().sockets.now, 0);
    assert_idle(&mut event_loop);
    seen.join(", ")
}

fn refused_connect() -> String {
    let (_bound, address) = bind_only();
    let mut event_loop = small_loop();
    let client = open_stream(&mut event_loop, address);
    let by_loop = told(&finish(&mut event_loop, Operation::connect(client, address)));
    let by_stream = run(async {
        let idle = descriptors();
        let error = TcpStream::connect(address).await.unwrap_err();
        eventually("the attempt is closed", || descriptors() == idle).await;
        error.kind()
    });
    format!("{by_loop}, {by_stream:?}")
}

fn addresses() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        assert_eq!((client.peer_addr().unwrap(), client.local_addr().unwrap()), (address, peer));
        assert_eq!((server.local_addr().unwrap(), server.peer_addr().unwrap()), (address, peer));
    });
}

fn second_loopback() -> Outcome {
    if PlainListener::bind("[::1]:0").is_err() {
        return Outcome::Skip("the machine has no IPv6 loopback");
    }
    run(async {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut server, peer) = listener.accept().await.unwrap();
        assert!(address.is_ipv6() && peer == client.local_addr().unwrap());
        client.write_all(pattern(0, 50_000)).await.unwrap();
        client.shutdown().await.unwrap();
        assert_same(&read_to_end(&mut server).await, pattern(0, 50_000));
    });
    ().into()
}

fn bounded_connect() -> String {
    let address = full_listener();
    run(async {
        let idle = descriptors();
        let error = TcpStream::connect_timeout(address, 5 * MILLISECOND).await.unwrap_err();
        eventually("the attempt is closed", || descriptors() == idle).await;
        format!("{:?}", error.kind())
    })
}

fn reset_in_backlog() -> String {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let client = connect(listener.local_addr().unwrap());
        let address = client.local_addr().unwrap();
        reset(client);
        let (mut stream, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, address);
        format!("{:?}", stream.read(&mut [0]).await.unwrap_err().kind())
    })
}

fn echo() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let server = rotor::spawn(async move {
            let mut buffer = vec![0; 5000];
            loop {
                match stream.read(&mut buffer).await.unwrap() {
                    0 => return,
                    count => stream.write_all(&buffer[..count]).await.unwrap(),
                }
            }
        });
        let peer = std::thread::spawn(move || {
            for (number, length) in [1, 2, 4095, 4096, 4097, 20_000, 100_000].iter().enumerate() {
                let sent = pattern(number, *length);
                client.write_all(sent).unwrap();
                let mut back = vec![0; *length];
                client.read_exact(&mut back).unwrap();
                assert_same(&back, sent);
            }
        });
        joined(peer).await;
        server.await.unwrap();
    });
}

fn read_lengths() {
    run_in(builder().buffer_bytes(512), async {
        let (mut stream, mut client) = pair().await;
        let lengths = [1, 511, 512, 513, 1024, 1025, 8191, 8192, 8193, 20_000];
        let total = lengths.iter().sum::<usize>() * 2;
        let writer = std::thread::spawn(move || client.write_all(pattern(5, total)).unwrap());
        let mut got = Vec::new();
        for exactly in [true, false] {
            for length in lengths {
                let mut buffer = vec![0; length];
                let mut filled = 0;
                while filled < length {
                    filled += match exactly {
                        true => stream.read_exact(&mut buffer).await.unwrap(),
                        false => stream.read(&mut buffer[filled..]).await.unwrap(),
                    };
                }
                got.extend_from_slice(&buffer);
            }
        }
        assert_same(&got, pattern(5, total));
        joined(writer).await;
    });
}

fn halves() {
    run(async {
        let (stream, client) = pair().await;
        let (mut reader, mut writer) = stream.into_split();
        let reading = rotor::spawn(async move {
            let mut all = vec![0; 200_000];
            reader.read_exact(&mut all).await.unwrap();
            (reader, all)
        });
        let mut sending = client.try_clone().unwrap();
        let sender = std::thread::spawn(move || sending.write_all(pattern(1, 200_000)).unwrap());
        let peer = read_all(client);
        writer.write_all(pattern(2, 300_000)).await.unwrap();
        let (reader, all) = reading.await.unwrap();
        assert_same(&all, pattern(1, 200_000));
        let mut stream = reader.reunite(writer).unwrap();
        stream.write_all(b"together").await.unwrap();
        drop(stream);
        let all = joined(peer).await.unwrap();
        assert_same(&all, &[pattern(2, 300_000), b"together"].concat());
        joined(sender).await;
    });
}

fn incoming() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<Client> = (0..5).map(|_| connect(address)).collect();
        let mut incoming = listener.incoming();
        for client in &clients {
            let stream = incoming.next().await.unwrap().unwrap();
            assert_eq!(stream.peer_addr().unwrap(), client.local_addr().unwrap());
        }
        assert!(poll_once(incoming.next()).await.is_none());
    });
}

fn sockets() {
    run(async {
        let listening = TcpSocket::new_v4().unwrap();
        listening.set_reuseaddr(true).unwrap();
        listening.bind(ANY_PORT.parse().unwrap()).unwrap();
        let address = listening.local_addr().unwrap();
        let listener = listening.listen(16).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        let connecting = TcpSocket::new_v4().unwrap();
        connecting.set_nodelay(true).unwrap();
        connecting.bind(ANY_PORT.parse().unwrap()).unwrap();
        let from = connecting.local_addr().unwrap();
        let client = connecting.connect(address).await.unwrap();
        assert!(client.nodelay().unwrap());
        assert_eq!(listener.accept().await.unwrap().1, from);
    });
}

fn the_end() {
    run(async {
        let (mut stream, client) = pair().await;
        deliver(&client, b"last");
        drop(client);
        let mut buffer = [0; 8];
        assert_eq!(stream.read_exact(&mut buffer[..4]).await.unwrap(), 4);
        for _ in 0..3 {
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
            assert_eq!(stream.peek(&mut buffer).await.unwrap(), 0);
            assert!(stream.read_buf().await.unwrap().is_empty());
        }
    });
}

fn reset_after_bytes() -> String {
    run(async {
        let mut kinds = Vec::new();
        for read_first in [0, 1, 3000] {
            let (mut stream, client) = pair().await;
            deliver(&client, pattern(0, 30_000));
            let mut received = vec![0; read_first];
            stream.read_exact(&mut received).await.unwrap();
            reset(client);
            let mut buffer = [0; 1009];
            let error = loop {
                match stream.read(&mut buffer).await {
                    Ok(0) => panic!("the end was read, and no reset"),
                    Ok(count) => received.extend_from_slice(&buffer[..count]),
                    Err(error) => break error,
                }
            };
            assert_same(&received, pattern(0, 30_000));
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
            kinds.push(error.kind());
        }
        format!("{kinds:?}")
    })
}

fn reset_while_reading() -> String {
    run(async {
        let (mut stream, client) = pair().await;
        let reading = rotor::spawn(async move { stream.read(&mut [0; 8]).await });
        ticks().await;
        reset(client);
        format!("{:?}", reading.await.unwrap().unwrap_err().kind())
    })
}

fn exact_at_end() -> String {
    run(async {
        let (mut stream, client) = pair().await;
        deliver(&client, b"abc");
        drop(client);
        let mut buffer = [0; 8];
        let error = stream.read_exact(&mut buffer).await.unwrap_err();
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 3);
        assert_eq!(&buffer[..3], b"abc");
        format!("{:?}", error.kind())
    })
}

fn leases() {
    run(async {
        let (mut stream, client) = pair().await;
        for round in 0..10_u8 {
            deliver(&client, &[round; 100]);
            assert_eq!(&*stream.read_buf().await.unwrap(), &[round; 100]);
        }
        deliver(&client, b"abcdef");
        assert_eq!(stream.read(&mut [0; 2]).await.unwrap(), 2);
        assert_eq!(&*stream.read_buf().await.unwrap(), b"cdef");
        client.shutdown(Shutdown::Write).unwrap();
        assert!(stream.read_buf().await.unwrap().is_empty());
    });
}

fn attempts() {
    run(async {
        let (mut stream, client) = pair().await;
        let mut buffer = [0; 8];
        assert_eq!(stream.try_read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(poll_once(stream.readable()).await.is_none());
        assert!(poll_once(stream.read(&mut buffer)).await.is_none());
        deliver(&client, b"ab");
        stream.readable().await.unwrap();
        assert_eq!(poll_once(stream.read(&mut buffer[..1])).await.unwrap().unwrap(), 1);
        assert!(poll_once(stream.readable()).await.is_some(), "a byte is left in hand");
        assert_eq!(stream.try_read(&mut buffer).unwrap(), 1);
        assert!(poll_once(stream.readable()).await.is_none());
        let both = Side::READABLE | Side::WRITABLE;
        let ready = stream.ready(both).await.unwrap();
        assert!(ready.is_writable() && !ready.is_readable());
        drop(client);
        stream.readable().await.unwrap();
        assert_eq!(stream.try_read(&mut buffer).unwrap(), 0);
    });
}

fn writable() {
    run(async {
        let (mut stream, client) = pair().await;
        stream.writable().await.unwrap();
        let written = fill_stream(&stream);
        assert!(poll_once(stream.writable()).await.is_none());
        assert!(poll_once(stream.ready(Side::WRITABLE)).await.is_none());
        assert!(poll_once(stream.write(b"x")).await.is_none());
        let peer = read_all(client);
        stream.writable().await.unwrap();
        stream.write_all(b"end").await.unwrap();
        drop(stream);
        let all = joined(peer).await.unwrap();
        assert_same(&all[..written], pattern(0, written));
        assert_eq!(&all[written..], b"end");
    });
}

fn peek() -> String {
    run(async {
        let (mut stream, client) = pair().await;
        let (mut seen, mut read) = ([0; 16], [0; 16]);
        assert!(poll_once(stream.peek(&mut seen)).await.is_none());
        deliver(&client, b"hello world");
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 11);
        assert_eq!(stream.read(&mut read[..6]).await.unwrap(), 6);
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 5);
        stream.read_exact(&mut read[..5]).await.unwrap();
        assert_eq!((&seen[..5], &read[..5]), (&b"world"[..], &b"world"[..]));
        reset(client);
        stream.readable().await.unwrap();
        let by_peek = stream.peek(&mut seen).await.unwrap_err().kind();
        let by_read = stream.read(&mut read).await.unwrap_err().kind();
        format!("{by_peek:?} {by_read:?} {}", stream.read(&mut read).await.unwrap())
    })
}

fn nothing_to_move() {
    run(async {
        let (mut stream, client) = pair().await;
        for round in 0..3 {
            assert_eq!(poll_once(stream.read(&mut [])).await.unwrap().unwrap(), 0);
            assert_eq!(poll_once(stream.read_exact(&mut [])).await.unwrap().unwrap(), 0);
            assert_eq!(poll_once(stream.write(&[])).await.unwrap().unwrap(), 0);
            poll_once(stream.write_all(&[])).await.unwrap().unwrap();
            let nothing = [IoSlice::new(&[]), IoSlice::new(&[])];
            assert_eq!(poll_once(stream.write_vectored(&nothing)).await.unwrap().unwrap(), 0);
            let (sent, back) = poll_once(stream.write_owned(Vec::new())).await.unwrap();
            assert_eq!((sent.unwrap(), back), (0, Vec::new()));
            assert_eq!(stream.try_read(&mut []).unwrap(), 0);
            // With bytes to read, and then at the end.
            match round {
                0 => deliver(&client, b"bytes"),
                _ => client.shutdown(Shutdown::Write).unwrap(),
            }
        }
    });
}

fn broken_pipe() -> String {
    restore_default(libc::SIGPIPE);
    run(async {
        let mut kinds = Vec::new();
        for leave in [drop as fn(Client), reset] {
            let (mut stream, mut client) = pair().await;
            stream.write_all(b"?").await.unwrap();
            client.read_exact(&mut [0]).unwrap();
            leave(client);
            // The first is answered by a reset; from then on it is known.
            let _ = stream.write(b"anybody there?").await;
            rotor::time::sleep(10 * MILLISECOND).await;
            let _ = stream.write(b"anybody there?").await;
            let pieces = [IoSlice::new(b"any"), IoSlice::new(b"body")];
            kinds.push(stream.write(b"there?").await.unwrap_err().kind());
            kinds.push(stream.write_all(b"there?").await.unwrap_err().kind());
            kinds.push(stream.write_vectored(&pieces).await.unwrap_err().kind());
            kinds.push(stream.write_owned(b"there?".to_vec()).await.0.unwrap_err().kind());
            kinds.push(stream.try_write(b"there?").unwrap_err().kind());
        }
        format!("{kinds:?}")
    })
}

fn pending_write() -> String {
    run(async {
        let (mut stream, client) = pair().await;
        fill_stream(&stream);
        let writing = rotor::spawn(async move { stream.write(pattern(0, 100)).await });
        ticks().await;
        assert!(!writing.is_finished());
        reset(client);
        format!("{:?}", writing.await.unwrap().unwrap_err().kind())
    })
}

fn vectored() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let pieces = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(stream.write_vectored(&pieces).await.unwrap(), 6);
        assert_eq!(stream.try_write_vectored(&pieces[1..]).unwrap(), 3);
        assert_eq!(poll_fn(|cx| stream.poll_write_vectored(cx, &pieces[..1])).await.unwrap(), 3);
        let mut received = [0; 12];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"onetwotwoone");
        deliver(&client, b"abcdefg");
        stream.readable().await.unwrap();
        let (mut first, mut second) = ([0; 3], [0; 9]);
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(stream.try_read_vectored(&mut into).unwrap(), 7);
        assert_eq!((&first, &second[..4]), (b"abc", &b"defg"[..]));
    });
}

fn owned() {
    run(async {
        let (mut stream, client) = pair().await;
        let peer = read_all(client);
        let long = pattern(2, 1 << 20);
        let vector = long.to_vec();
        let address = vector.as_ptr();
        let (sent, vector) = stream.write_owned(vector).await;
        assert_eq!((sent.unwrap(), vector.as_ptr()), (long.len(), address));
        let boxed = vector.into_boxed_slice();
        let (sent, boxed) = stream.write_owned(boxed).await;
        assert_eq!((sent.unwrap(), boxed.as_ptr()), (long.len(), address));
        let (sent, back) = stream.write_owned(long).await;
        assert_eq!((sent.unwrap(), back.as_ptr()), (long.len(), long.as_ptr()));
        drop(stream);
        assert_same(&joined(peer).await.unwrap(), &[long, long, long].concat());
    });
}

fn half_close() -> String {
    run(async {
        let (mut stream, mut client) = pair().await;
        stream.write_all(b"question").await.unwrap();
        stream.shutdown().await.unwrap();
        let late = stream.write(b"late").await.unwrap_err().kind();
        let peer = std::thread::spawn(move || {
            let mut question = Vec::new();
            client.read_to_end(&mut question).unwrap();
            client.write_all(b"answer").unwrap();
            question
        });
        assert_eq!(read_to_end(&mut stream).await, b"answer");
        assert_eq!(joined(peer).await, b"question");
        stream.shutdown().await.unwrap();
        format!("{late:?}")
    })
}

fn shutdown_alone() {
    run(async {
        for leave in [drop as fn(Client), reset] {
            for reads in [false, true] {
                let (mut stream, client) = pair().await;
                leave(client);
                stream.readable().await.unwrap();
                if reads {
                    let _ = stream.read(&mut [0]).await;
                }
                stream.shutdown().await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
}

fn options() -> String {
    run(async {
        let (stream, _client) = pair().await;
        stream.set_nodelay(true).unwrap();
        stream.set_ttl(42).unwrap();
        stream.set_keepalive(true).unwrap();
        stream.set_linger(Some(Duration::from_millis(1500))).unwrap();
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        listener.set_ttl(43).unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.set_send_buffer_size(20_000).unwrap();
        format!(
            "{} {} {} {:?} {} {} {} {:?}",
            stream.nodelay().unwrap(),
            stream.ttl().unwrap(),
            stream.keepalive().unwrap(),
            stream.linger().unwrap(),
            listener.ttl().unwrap(),
            socket.reuseaddr().unwrap(),
            socket.send_buffer_size().unwrap(),
            stream.take_error().unwrap().map(|error| error.kind()),
        )
    })
}

fn address_in_use() -> String {
    let taken = PlainListener::bind(ANY_PORT).unwrap();
    let address = taken.local_addr().unwrap();
    run(async {
        let idle = descriptors();
        let error = TcpListener::bind(address).await.unwrap_err();
        assert_eq!(descriptors(), idle);
        format!("{:?}", error.kind())
    })
}

fn std_and_back() {
    run(async {
        let plain = PlainListener::bind(ANY_PORT).unwrap();
        let address = plain.local_addr().unwrap();
        for nonblocking in [false, true] {
            let client = connect(address);
            client.set_nonblocking(nonblocking).unwrap();
            let (mut accepted, _) = plain.accept().unwrap();
            let mut stream = TcpStream::from_std(client).unwrap();
            stream.write_all(b"ping").await.unwrap();
            accepted.read_exact(&mut [0; 4]).unwrap();
            let mut client = stream.into_std().await.unwrap();
            accepted.write_all(b"pong").unwrap();
            let mut answer = [0; 4];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"pong");
        }
        let listener = TcpListener::from_std(plain).unwrap();
        let _client = connect(address);
        listener.accept().await.unwrap();
        assert_eq!(listener.into_std().await.unwrap().local_addr().unwrap(), address);
    });
}

/// A file without a name.
pub(crate) fn scratch_file() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("rotor-conformance-{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn files() -> Outcome {
    let mut event_loop = small_loop();
    let file = scratch_file();
    let mirror = file.try_clone().unwrap();
    let descriptor = event_loop.adopt(file.into(), DescriptorKind::File).unwrap();
    let write = OwnedOperation::WriteAt { descriptor, offset: 500 };
    event_loop.submit_owned(write, vec![7; 1000], 1).unwrap();
    let written = the_final(&mut event_loop);
    assert_eq!(event_loop.reclaim(written.orphan().unwrap()).unwrap(), [7; 1000]);
    if !has_files() {
        assert_eq!(written.result().unwrap_err().kind(), ErrorKind::Unsupported);
        return Outcome::Skip("reads and writes at offsets end with Unsupported on this backend");
    }
    assert_eq!(written.result().unwrap(), 1000);
    let mut content = [1; 1500];
    assert_eq!(mirror.read_at(&mut content, 0).unwrap(), 1500);
    assert!(content[..500] == [0; 500] && content[500..] == [7; 1000]);
    for (offset, count) in [(0, 1200), (1000, 500), (5000, 0)] {
        let read = OwnedOperation::ReadAt { descriptor, offset };
        event_loop.submit_owned(read, vec![9; 1200], 2).unwrap();
        let event = the_final(&mut event_loop);
        assert_eq!(event.result().unwrap(), count);
        let bytes = event_loop.reclaim(event.orphan().unwrap()).unwrap();
        assert_eq!(
            bytes[..count as usize],
            content[(offset as usize).min(1500)..][..count as usize]
        );
    }
    // The same from and into the program's own memory.
    // SAFETY: the bytes are static.
    let write = unsafe { Operation::write_at(descriptor, b"hello".as_ptr(), 5, 10) };
    assert_eq!(finish(&mut event_loop, write).result().unwrap(), 5);
    let memory = leaked(8).as_mut_ptr();
    // SAFETY: the memory is never freed, and looked at after the final event.
    let read = unsafe { Operation::read_at(descriptor, memory, 8, 8) };
    assert_eq!(finish(&mut event_loop, read).result().unwrap(), 8);
    // SAFETY: as above; nobody writes it any more.
    assert_eq!(unsafe { std::slice::from_raw_parts(memory, 8) }, b"\0\0hello\0");
    assert_idle(&mut event_loop);
    ().into()
}
