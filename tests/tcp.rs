//! TCP against plain peers: what arrives, in what order, and which errors are told.

mod support;

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as PlainListener, TcpStream as Client};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::thread;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::time::{sleep, timeout};
use rotor::{Control, Descriptor, Event, EventKind, Loop, Operation, Reply, Wait};
use support::{
    Clients, MILLISECOND, PATIENCE, assert_descriptors, assert_same, bind_only, connect,
    descriptors, eventually, pair, pattern, poll_once, poll_outside, read_slowly, reset,
    restore_default, run, wait_until_delivered, watched, watched_alone, words_of,
};

/// A listener on the loopback, and a plain client's thread that has been given its address.
async fn accept_from<T: Send + 'static>(
    client: impl Fn(Client) -> T + Clone + Send + 'static,
) -> (TcpStream, Clients<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let clients = Clients::start(1, move |_| client(connect(address)));
    let (stream, _) = listener.accept().await.unwrap();
    (stream, clients)
}

/// Reads to the end.
async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    let mut buffer = vec![0; 10_007];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return received,
            count => received.extend_from_slice(&buffer[..count]),
        }
    }
}

const LONG: usize = 10 << 20;

/// Writes 10 MiB, drops the stream, returns, drops the runtime. The peer first sends `upload` bytes,
/// of which `read` are read.
fn write_drop_and_leave(upload: usize, read: usize) {
    let _watched = watched();
    let runtime = Builder::new().drain(PATIENCE).build().unwrap();
    let clients = runtime.block_on(async {
        let (uploaded, is_uploaded) = std::sync::mpsc::channel();
        let (mut stream, clients) = accept_from(move |mut client| {
            client.write_all(pattern(7, upload)).unwrap();
            uploaded.send(()).unwrap();
            read_slowly(&mut client)
        })
        .await;
        eventually("the upload lies in the socket", || is_uploaded.try_recv().is_ok()).await;
        if read > 0 {
            let mut start = vec![0; read];
            stream.read_exact(&mut start).await.unwrap();
            assert_same(&start, pattern(7, read));
            // A receive is in flight behind what was read.
            assert!(
                poll_once(stream.read_exact(&mut [0; 16_384])).await.is_none() || upload > read
            );
        }
        stream.write_all(pattern(0, LONG)).await.unwrap();
        clients
    });
    let report = runtime.shut_down();
    assert_eq!((report.resets, report.leaked), (0, 0));
    // The peer has read 10 MiB and then 0, and no error.
    assert_same(clients.join_blocking()[0].as_ref().unwrap(), pattern(0, LONG));
}

#[test]
fn ten_mebibytes_written_before_the_end_of_everything_arrive_with_their_end() {
    write_drop_and_leave(0, 0);
}

#[test]
fn ten_mebibytes_arrive_with_their_end_though_the_peers_upload_lies_unread() {
    write_drop_and_leave(256 << 10, 0);
}

#[test]
fn ten_mebibytes_arrive_with_their_end_though_a_part_of_an_upload_was_read() {
    write_drop_and_leave(256 << 10, 1_001);
}

#[test]
fn ten_mebibytes_arrive_with_their_end_though_a_read_was_pending() {
    write_drop_and_leave(1_001, 1_001);
}

fn open_stream(event_loop: &mut Loop, to: SocketAddr) -> Descriptor {
    match event_loop.control(Control::OpenStream { family_of: to }).unwrap() {
        Reply::Opened(descriptor) => descriptor,
        reply => panic!("{reply:?}"),
    }
}

/// The next events. Waits for one at least.
fn wait(event_loop: &mut Loop) -> Vec<Event> {
    let mut events = [Event::EMPTY; 64];
    loop {
        let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
        if count > 0 {
            return events[..count].to_vec();
        }
    }
}

/// A bare loop and a stream of it, connected to a plain peer.
fn loop_and_peer() -> (Loop, Descriptor, Client) {
    let mut event_loop = Loop::new(&rotor::runtime::Options::default()).unwrap();
    let listener = PlainListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stream = open_stream(&mut event_loop, address);
    event_loop.submit(Operation::connect(stream, address), 0).unwrap();
    wait(&mut event_loop)[0].result().unwrap();
    (event_loop, stream, listener.accept().unwrap().0)
}

#[test]
fn after_shutdown_the_peer_reads_the_end_and_can_still_send() {
    run(async {
        let (mut stream, clients) = accept_from(|mut client| {
            let received = read_slowly(&mut client).unwrap();
            client.write_all(pattern(1, 100_000)).unwrap();
            received
        })
        .await;
        stream.write_all(pattern(0, 100_000)).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_same(&read_to_end(&mut stream).await, pattern(1, 100_000));
        assert_same(&clients.join().await[0], pattern(0, 100_000));
        stream.shutdown().await.unwrap();
    });
}

#[test]
fn after_the_peers_end_was_read_it_can_still_be_written_to() {
    run(async {
        let (mut stream, clients) = accept_from(|mut client| {
            client.write_all(pattern(1, 100_000)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            read_slowly(&mut client).unwrap()
        })
        .await;
        assert_same(&read_to_end(&mut stream).await, pattern(1, 100_000));
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        stream.write_all(pattern(0, 100_000)).await.unwrap();
        drop(stream);
        assert_same(&clients.join().await[0], pattern(0, 100_000));
    });
}

#[test]
fn write_to_a_peer_that_is_gone_is_an_error_and_no_signal() {
    restore_default(libc::SIGPIPE);
    fn is_told(error: &io::Error) -> bool {
        matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    }
    run(async {
        let leave: [fn(Client); 2] = [drop, reset];
        for leave in leave {
            let (mut stream, client) = pair().await;
            leave(client);
            let mut told = 0;
            while told < 3 {
                match stream.write(b"anybody there?").await {
                    Ok(_) => assert_eq!(told, 0, "a broken stream stays broken"),
                    Err(error) => {
                        assert!(is_told(&error), "{error:?}");
                        told += 1;
                    }
                }
                sleep(MILLISECOND).await;
            }
            let pieces = [IoSlice::new(b"any"), IoSlice::new(b"body")];
            let vectored = poll_fn(|cx| stream.poll_write_vectored(cx, &pieces)).await;
            assert!(is_told(&vectored.unwrap_err()));
            assert!(is_told(&stream.write_all(b"there?").await.unwrap_err()));
        }
    });
}

#[test]
fn send_operations_to_a_peer_that_is_gone_end_in_an_error_and_no_signal() {
    restore_default(libc::SIGPIPE);
    let _watched = watched();
    let (mut event_loop, stream, peer) = loop_and_peer();
    drop(peer);
    let bytes: &'static [u8] = b"anybody there?";
    let (mut told, mut sends) = (0, 0);
    while told < 3 {
        // SAFETY: the bytes are static and nothing writes them.
        let send = unsafe { Operation::send(stream, bytes.as_ptr(), bytes.len()) };
        event_loop.submit(send, 0).unwrap();
        let [event] = wait(&mut event_loop)[..] else { panic!("one send has one event") };
        assert_eq!((event.kind(), event.more()), (EventKind::Send, false));
        if let Err(error) = event.result() {
            let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
            assert!(gone.contains(&error.kind()), "{error:?}");
            told += 1;
        }
        sends += 1;
        assert!(sends < 10_000, "the loss of the peer is never told");
    }
}

#[test]
fn a_pending_write_learns_that_the_peer_is_gone() {
    run(async {
        let (mut stream, client) = pair().await;
        while poll_once(stream.write(pattern(0, 1 << 20))).await.is_some() {}
        let mut writing = pin!(stream.write(pattern(0, 1 << 20)));
        assert!(timeout(20 * MILLISECOND, writing.as_mut()).await.is_err());
        reset(client);
        let error = writing.await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
    });
}

#[test]
fn connecting_where_nobody_listens_is_refused_and_leaves_nothing_open() {
    let _watched = watched_alone();
    let (_bound, address) = bind_only();
    let runtime = Builder::new().sockets(4).build().unwrap();
    runtime.block_on(async {
        let idle = descriptors();
        for _ in 0..40 {
            let error = TcpStream::connect(address).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        }
        eventually("each attempt is closed", || descriptors() <= idle).await;
    });
}
#[test]
fn binding_to_an_address_in_use_is_an_error_and_leaves_nothing_open() {
    let _watched = watched_alone();
    let taken = PlainListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let runtime = Builder::new().sockets(4).build().unwrap();
    runtime.block_on(async {
        let idle = descriptors();
        for _ in 0..40 {
            let error = TcpListener::bind(address).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
        }
        assert_descriptors(idle);
        // Of several addresses the first that can be had is taken.
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = TcpListener::bind(&[address, free][..]).await.unwrap();
        assert_ne!(listener.local_addr().unwrap(), address);
    });
}

#[test]
fn a_reset_is_told_once_after_the_bytes_before_it() {
    const BEFORE: usize = 60_001;
    run(async {
        for read_first in [0, 1, 5_000] {
            let (mut stream, client) = pair().await;
            (&client).write_all(pattern(0, BEFORE)).unwrap();
            wait_until_delivered(&client);
            let mut received = vec![0; read_first];
            stream.read_exact(&mut received).await.unwrap();
            reset(client);
            let mut buffer = [0; 1_009];
            let error = loop {
                match stream.read(&mut buffer).await {
                    Ok(0) => panic!("the end was read, and no reset"),
                    Ok(count) => received.extend_from_slice(&buffer[..count]),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert_same(&received, pattern(0, BEFORE));
            assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
        }
    });
}

#[test]
fn a_reset_ends_a_read_that_is_pending() {
    run(async {
        let (mut stream, clients) = accept_from(|mut client| {
            client.write_all(b"ten bytes!").unwrap();
            client.read_exact(&mut [0]).unwrap();
            thread::sleep(10 * MILLISECOND);
            reset(client);
        })
        .await;
        stream.read_exact(&mut [0; 10]).await.unwrap();
        stream.write_all(b".").await.unwrap();
        let error = stream.read_exact(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
        clients.join().await;
    });
}

#[test]
fn localhost_is_a_name_and_no_other_is_yet() {
    run(async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stream, peer) = {
            let connecting = rotor::spawn(TcpStream::connect(("localhost", port)));
            let (_accepted, peer) = listener.accept().await.unwrap();
            (connecting.await.unwrap().unwrap(), peer)
        };
        assert_eq!(stream.local_addr().unwrap(), peer);
        let words = "cannot resolve `example.org`: names other than `localhost` are not resolved yet; \
                     pass a numeric address";
        for error in [
            TcpStream::connect("example.org:80").await.unwrap_err(),
            TcpListener::bind(("example.org", 80)).await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Unsupported, words));
        }
        let error = TcpStream::connect("no address").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn localhost_falls_back_to_the_second_loopback() {
    // All of it in its turn: a descriptor opened before would be counted by who runs alone.
    run(async {
        let Ok(plain) = PlainListener::bind("[::1]:0") else {
            println!("skipped: this machine has no IPv6 loopback");
            return;
        };
        let address = plain.local_addr().unwrap();
        let stream = TcpStream::connect(("localhost", address.port())).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    });
}

#[test]
fn nodelay_is_set_and_told() {
    run(async {
        let (stream, _client) = pair().await;
        for nodelay in [true, false, true] {
            stream.set_nodelay(nodelay).unwrap();
            assert_eq!(stream.nodelay().unwrap(), nodelay);
        }
    });
}

/// What a poll outside a runtime gave at once.
#[track_caller]
fn at_once<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match poll_outside(future) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("pending, with nothing to wait for"),
    }
}

#[test]
fn what_outlives_its_runtime_answers_with_an_error_that_says_so() {
    #[track_caller]
    fn assert_gone<T>(result: io::Result<T>, what: &str) {
        let error = result.err().expect("an error");
        let words = format!("the runtime of this {what} is gone");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotConnected, words));
    }
    let _watched = watched();
    let runtime = Runtime::new().unwrap();
    let (listener, mut stream, mut client) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = connect(listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(poll_once(stream.read(&mut [0])).await.is_none());
        stream.write_all(b"before").await.unwrap();
        (listener, stream, client)
    });
    drop(runtime);
    assert_eq!(read_slowly(&mut client).unwrap(), b"before");
    assert_gone(at_once(stream.read(&mut [0; 8])), "TcpStream");
    assert_gone(at_once(stream.read_exact(&mut [0; 8])), "TcpStream");
    assert_gone(at_once(stream.write(b"after")), "TcpStream");
    assert_gone(at_once(stream.write_all(b"after")), "TcpStream");
    assert_gone(at_once(stream.shutdown()), "TcpStream");
    assert_gone(stream.peer_addr(), "TcpStream");
    assert_gone(stream.set_nodelay(true), "TcpStream");
    assert_gone(at_once(listener.accept()).map(drop), "TcpListener");
    assert_gone(listener.local_addr(), "TcpListener");
    // Also inside another runtime.
    Runtime::new().unwrap().block_on(async {
        assert_gone(stream.read(&mut [0]).await, "TcpStream");
        assert_gone(listener.accept().await.map(drop), "TcpListener");
        drop(stream);
        drop(listener);
    });
}

#[test]
fn what_is_used_under_another_runtime_panics_with_its_name() {
    #[track_caller]
    fn assert_panics(other: &Runtime, future: impl Future, what: &str) {
        let polled = catch_unwind(AssertUnwindSafe(|| drop(other.block_on(future))));
        let panic = polled.expect_err("a panic");
        let words = format!("this {what} belongs to another runtime on this thread");
        assert!(words_of(&*panic).contains(&words), "{}", words_of(&*panic));
    }
    let _watched = watched();
    let (own, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (listener, mut stream, mut client) = own.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = connect(listener.local_addr().unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        (listener, stream, client)
    });
    assert_panics(&other, stream.read(&mut [0]), "TcpStream");
    assert_panics(&other, stream.write(b"x"), "TcpStream");
    assert_panics(&other, stream.shutdown(), "TcpStream");
    assert_panics(&other, async { stream.peer_addr() }, "TcpStream");
    assert_panics(&other, listener.accept(), "TcpListener");
    let mut sleeping = None;
    own.block_on(async { sleeping = Some(sleep(PATIENCE)) });
    assert_panics(&other, sleeping.unwrap(), "Sleep");
    // Neither runtime is harmed, and the stream serves on in its own.
    own.block_on(async {
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
    });
    assert_eq!(read_slowly(&mut client).unwrap(), b"hello");
    // Dropping it elsewhere closes it at home.
    other.block_on(async { drop(stream) });
    own.block_on(async { sleep(MILLISECOND).await });
    assert!(client.write_all(b"x").is_ok());
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_last_of_many_reads_asked_for_at_once_is_served_while_the_others_are_silent() {
    let _watched = watched();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut peers, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            peers.push(Client::connect(address).unwrap());
            streams.push(listener.accept().await.unwrap().0);
        }
        // All in one turn of this task, so that all ask before the next tick.
        let mut reads: Vec<_> = streams
            .into_iter()
            .map(|mut stream| rotor::spawn(async move { stream.read(&mut [0; 8]).await }))
            .collect();
        let mut last = peers.pop().unwrap();
        let sending = thread::spawn(move || {
            thread::sleep(100 * MILLISECOND);
            last.write_all(b"at last").unwrap();
            last
        });
        assert_eq!(reads.pop().unwrap().await.unwrap().unwrap(), 7);
        drop((sending.join().unwrap(), peers));
        for read in reads {
            assert_eq!(read.await.unwrap().unwrap(), 0);
        }
    }); // A loop that looks again and again while nothing comes makes tens of thousands in the pause.
    let ticks = runtime.statistics().event_loop.ticks;
    assert!(ticks < 2_000, "{ticks} ticks");
}
