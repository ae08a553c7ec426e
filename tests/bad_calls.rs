//! Every call in the cases in which it cannot do what it is for: its peer gone, its runtime gone or
//! another, the thread another, a table full, nothing to move.

mod support;

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::Command;
use std::task::Poll;

use rotor::net::{TcpListener, TcpSocket, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::time::sleep;
use support::{
    Clients, MILLISECOND, assert_descriptors, connect, descriptors, eventually, file_of_panic,
    pair, pattern, poll_once, poll_outside, reset, restore_default, run, watched, watched_alone,
    words_of,
};

/// Every way to write a few bytes, by its name.
const WRITE_FORMS: [&str; 22] = [
    "write",
    "write_vectored",
    "write_all",
    "write_owned, a vector",
    "write_owned, a box",
    "write_owned, static bytes",
    "write_owned, a lease",
    "try_write",
    "try_write_vectored",
    "poll_write",
    "poll_write_vectored",
    "borrowed half: write",
    "borrowed half: write_vectored",
    "borrowed half: write_all",
    "borrowed half: write_owned",
    "borrowed half: try_write",
    "borrowed half: poll_write",
    "owned half: write",
    "owned half: write_all",
    "owned half: write_owned",
    "owned half: try_write_vectored",
    "owned half: poll_write_vectored",
];

/// Writes by one of the forms; the stream comes back.
async fn write_by(mut stream: TcpStream, form: usize) -> (io::Result<usize>, TcpStream) {
    let pieces = [IoSlice::new(b"any"), IoSlice::new(b"body")];
    let all = |written: io::Result<()>| written.map(|()| 7);
    let written = match form {
        0 => stream.write(b"anybody").await,
        1 => stream.write_vectored(&pieces).await,
        2 => all(stream.write_all(b"anybody").await),
        3 => stream.write_owned(b"anybody".to_vec()).await.0,
        4 => stream.write_owned(b"anybody".to_vec().into_boxed_slice()).await.0,
        5 => stream.write_owned(&b"anybody"[..]).await.0,
        6 => {
            let lease = stream.read_buf().await.unwrap();
            assert_eq!(&*lease, b"anybody");
            stream.write_owned(lease).await.0
        }
        7 => stream.try_write(b"anybody"),
        8 => stream.try_write_vectored(&pieces),
        9 => poll_fn(|cx| stream.poll_write(cx, b"anybody")).await,
        10 => poll_fn(|cx| stream.poll_write_vectored(cx, &pieces)).await,
        11 => stream.split().1.write(b"anybody").await,
        12 => stream.split().1.write_vectored(&pieces).await,
        13 => all(stream.split().1.write_all(b"anybody").await),
        14 => stream.split().1.write_owned(b"anybody".to_vec()).await.0,
        15 => stream.split().1.try_write(b"anybody"),
        16 => {
            let (_, mut half) = stream.split();
            poll_fn(|cx| half.poll_write(cx, b"anybody")).await
        }
        _ => {
            let (reader, mut half) = stream.into_split();
            let written = match form {
                17 => half.write(b"anybody").await,
                18 => all(half.write_all(b"anybody").await),
                19 => half.write_owned(b"anybody".to_vec()).await.0,
                20 => half.try_write_vectored(&pieces),
                21 => poll_fn(|cx| half.poll_write_vectored(cx, &pieces)).await,
                _ => panic!("there is no form {form}"),
            };
            return (written, reader.reunite(half).unwrap());
        }
    };
    (written, stream)
}

/// A stream whose peer has left, and whose kernel knows it.
async fn deserted() -> TcpStream {
    let (mut stream, mut client) = pair().await;
    client.write_all(b"anybody").unwrap();
    stream.readable().await.unwrap();
    drop(client);
    // Answered by a reset, which is then on its way.
    stream.write_all(b"?").await.unwrap();
    sleep(5 * MILLISECOND).await;
    stream
}

#[test]
fn every_form_of_write_works_while_the_peer_is_there() {
    run(async {
        for (form, name) in WRITE_FORMS.iter().enumerate() {
            let (stream, mut client) = pair().await;
            client.write_all(b"anybody").unwrap();
            assert_eq!(write_by(stream, form).await.0.unwrap(), 7, "{name}");
        }
    });
}

const SIGPIPE_CHILD: &str = "ROTOR_TEST_SIGPIPE_CHILD";

/// Run in a process of its own, which a signal would end.
#[test]
fn every_form_of_write_after_the_peer_has_left_is_a_broken_pipe_and_no_signal() {
    const NAME: &str = "every_form_of_write_after_the_peer_has_left_is_a_broken_pipe_and_no_signal";
    if std::env::var_os(SIGPIPE_CHILD).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env(SIGPIPE_CHILD, "1");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}{words}", output.status);
        let told = format!("{} forms of write were told", WRITE_FORMS.len());
        assert!(said.contains(&told), "{said}{words}");
        return;
    }
    restore_default(libc::SIGPIPE);
    run(async {
        let mut told = 0;
        for (form, name) in WRITE_FORMS.iter().enumerate() {
            let mut stream = deserted().await;
            for attempt in 0..2 {
                // A lease is had once; the second time another form stands for it.
                let form = if form == 6 && attempt == 1 { 3 } else { form };
                let (written, same) = write_by(stream, form).await;
                assert_eq!(written.unwrap_err().kind(), ErrorKind::BrokenPipe, "{name}");
                stream = same;
            }
            // What is over is over, and no error: also by the halves.
            stream.shutdown().await.unwrap();
            poll_fn(|cx| stream.poll_shutdown(cx)).await.unwrap();
            stream.split().1.shutdown().await.unwrap();
            let (reader, mut writer) = stream.into_split();
            writer.shutdown().await.unwrap();
            drop((reader, writer));
            told += 1;
        }
        // In the kernel's hands when the peer leaves.
        let (mut stream, client) = pair().await;
        let long = pattern(0, 15 << 20);
        let mut writing = Box::pin(stream.write_owned(long));
        assert!(poll_once(writing.as_mut()).await.is_none());
        reset(client);
        let sent = writing.await.0.unwrap();
        assert!(sent > 0 && sent < long.len(), "what had gone is told first");
        assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        println!("{told} forms of write were told");
    });
}

#[test]
fn a_connection_that_was_reset_before_it_was_accepted_is_accepted_and_says_so() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for (bytes, armed) in [(0, false), (5, false), (0, true), (5, true)] {
            let mut accept = pin!(listener.accept());
            if armed {
                assert!(poll_once(accept.as_mut()).await.is_none());
            }
            let mut client = connect(address);
            let from = client.local_addr().unwrap();
            client.write_all(&[9; 5][..bytes]).unwrap();
            support::wait_until_delivered(&client);
            reset(client);
            let (mut stream, peer) = accept.await.unwrap();
            assert_eq!((peer, stream.peer_addr().unwrap()), (from, from));
            // What had arrived comes first.
            let mut received = 0;
            let error = loop {
                match stream.read(&mut [0; 8]).await {
                    Ok(count) => received += count,
                    Err(error) => break error,
                }
                assert!(received <= bytes);
            };
            assert_eq!((error.kind(), received), (ErrorKind::ConnectionReset, bytes));
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
            drop(stream);
            // And the next is served.
            let mut client = connect(address);
            let (mut stream, _) = listener.accept().await.unwrap();
            client.write_all(b"x").unwrap();
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
        }
    });
}

#[test]
fn calls_with_nothing_to_move_are_over_at_once_whatever_the_stream() {
    async fn assert_nothing(stream: &mut TcpStream) {
        let none = [IoSlice::new(b""), IoSlice::new(b"")];
        assert_eq!(poll_once(stream.read(&mut [])).await.unwrap().unwrap(), 0);
        assert_eq!(poll_once(stream.read_exact(&mut [])).await.unwrap().unwrap(), 0);
        assert_eq!(poll_once(stream.peek(&mut [])).await.unwrap().unwrap(), 0);
        assert_eq!(stream.try_read(&mut []).unwrap(), 0);
        let (mut first, mut second) = ([], []);
        let mut into = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!(stream.try_read_vectored(&mut into).unwrap(), 0);
        assert_eq!(stream.try_read_vectored(&mut []).unwrap(), 0);
        assert_eq!(poll_once(stream.write(b"")).await.unwrap().unwrap(), 0);
        assert_eq!(poll_once(stream.write_vectored(&none)).await.unwrap().unwrap(), 0);
        assert_eq!(poll_once(stream.write_vectored(&[])).await.unwrap().unwrap(), 0);
        poll_once(stream.write_all(b"")).await.unwrap().unwrap();
        assert_eq!(stream.try_write(b"").unwrap(), 0);
        assert_eq!(stream.try_write_vectored(&none).unwrap(), 0);
        let (written, vector) = poll_once(stream.write_owned(Vec::with_capacity(9))).await.unwrap();
        assert_eq!((written.unwrap(), vector.len(), vector.capacity()), (0, 0, 9));
    }
    run(async {
        let (mut stream, client) = pair().await;
        assert_nothing(&mut stream).await;
        // A receive in flight, and a poll for room.
        while stream.try_write(&[7; 65_536]).is_ok() {}
        assert!(poll_once(stream.read(&mut [0])).await.is_none());
        assert!(poll_once(stream.write(b"x")).await.is_none());
        assert_nothing(&mut stream).await;
        drop(client);
        assert_nothing(&mut stream).await;
        while !matches!(stream.read(&mut [0; 8]).await, Ok(0)) {}
        assert_nothing(&mut stream).await;
        assert_nothing(&mut deserted().await).await;
    });
}

/// What every call of a stream gives that only tries, or is polled once; for a stream that cannot be
/// used.
fn call_everything(stream: &mut TcpStream) -> Vec<(&'static str, io::Result<()>)> {
    fn at_once<T>(future: impl Future<Output = io::Result<T>>) -> io::Result<()> {
        match poll_outside(future) {
            Poll::Ready(result) => result.map(drop),
            Poll::Pending => panic!("pending, with nothing to wait for"),
        }
    }
    let pieces = [IoSlice::new(b"any"), IoSlice::new(b"body")];
    let mut byte = [0];
    vec![
        ("read", at_once(stream.read(&mut byte))),
        ("read_exact", at_once(stream.read_exact(&mut byte))),
        ("read_buf", at_once(stream.read_buf())),
        ("peek", at_once(stream.peek(&mut byte))),
        ("readable", at_once(stream.readable())),
        ("writable", at_once(stream.writable())),
        ("try_read", stream.try_read(&mut byte).map(drop)),
        (
            "try_read_vectored",
            stream.try_read_vectored(&mut [IoSliceMut::new(&mut byte)]).map(drop),
        ),
        ("write", at_once(stream.write(b"x"))),
        ("write_vectored", at_once(stream.write_vectored(&pieces))),
        ("write_all", at_once(stream.write_all(b"x"))),
        ("write_owned", at_once(async { stream.write_owned(&b"x"[..]).await.0 })),
        ("try_write", stream.try_write(b"x").map(drop)),
        ("try_write_vectored", stream.try_write_vectored(&pieces).map(drop)),
        ("shutdown", at_once(stream.shutdown())),
        ("half: read", at_once(stream.split().0.read(&mut byte))),
        ("half: write", at_once(stream.split().1.write(b"x"))),
        ("half: shutdown", at_once(stream.split().1.shutdown())),
        ("local_addr", stream.local_addr().map(drop)),
        ("peer_addr", stream.peer_addr().map(drop)),
        ("nodelay", stream.nodelay().map(drop)),
        ("set_nodelay", stream.set_nodelay(true)),
        ("linger", stream.linger().map(drop)),
        ("set_linger", stream.set_linger(None)),
        ("ttl", stream.ttl().map(drop)),
        ("set_ttl", stream.set_ttl(9)),
        ("keepalive", stream.keepalive().map(drop)),
        ("set_keepalive", stream.set_keepalive(true)),
        ("quickack", stream.quickack().map(drop)),
        ("set_quickack", stream.set_quickack(true)),
        ("take_error", stream.take_error().map(drop)),
    ]
}

#[test]
fn every_call_on_a_stream_or_listener_kept_past_its_runtime_says_that_it_is_gone() {
    let _watched = watched_alone();
    let idle = descriptors();
    let runtime = Runtime::new().unwrap();
    let (mut stream, listener, socket) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        (pair().await.0, listener, TcpSocket::new_v4().unwrap())
    });
    drop(runtime);
    for (call, result) in call_everything(&mut stream) {
        let error = result.expect_err(call);
        let told = (error.kind(), error.to_string());
        let words = "the runtime of this TcpStream is gone".to_owned();
        assert_eq!(told, (ErrorKind::NotConnected, words), "{call}");
    }
    let words = "rotor: this TcpStream has no descriptor: the runtime of this TcpStream is gone";
    for panics in [
        catch_unwind(AssertUnwindSafe(|| _ = stream.as_fd())),
        catch_unwind(AssertUnwindSafe(|| _ = stream.as_raw_fd())),
    ] {
        assert_eq!(words_of(&*panics.unwrap_err()), words);
    }
    let Poll::Ready(kept) = poll_outside(stream.into_std()) else { panic!("it waits") };
    let kept = kept.unwrap_err();
    assert_eq!(kept.error().kind(), ErrorKind::NotConnected);
    assert!(kept.bytes().is_empty());
    let Poll::Ready(accepted) = poll_outside(listener.accept()) else { panic!("it waits") };
    assert_eq!(accepted.unwrap_err().kind(), ErrorKind::NotConnected);
    let Poll::Ready(kept) = poll_outside(listener.into_std()) else { panic!("it waits") };
    assert_eq!(kept.unwrap_err().error().kind(), ErrorKind::NotConnected);
    assert_eq!(socket.set_nodelay(true).unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(socket.listen(1).unwrap_err().kind(), ErrorKind::NotConnected);
    assert_descriptors(idle);
}

#[test]
fn every_call_on_a_stream_under_another_runtime_stops_by_name_and_harms_neither() {
    let _watched = watched();
    let (own, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (mut stream, client) = own.block_on(pair());
    type Call = fn(&mut TcpStream);
    let calls: [(&str, Call); 12] = [
        ("read", |stream| _ = poll_outside(stream.read(&mut [0]))),
        ("read_exact", |stream| _ = poll_outside(stream.read_exact(&mut [0]))),
        ("read_buf", |stream| _ = poll_outside(stream.read_buf())),
        ("peek", |stream| _ = poll_outside(stream.peek(&mut [0]))),
        ("readable", |stream| _ = poll_outside(stream.readable())),
        ("try_read", |stream| _ = stream.try_read(&mut [0])),
        ("write", |stream| _ = poll_outside(stream.write(b"x"))),
        ("write_owned", |stream| _ = poll_outside(stream.write_owned(&b"x"[..]))),
        ("try_write", |stream| _ = stream.try_write(b"x")),
        ("shutdown", |stream| _ = poll_outside(stream.shutdown())),
        ("take_error", |stream| _ = stream.take_error()),
        ("as_fd", |stream| _ = stream.as_fd()),
    ];
    for (name, call) in calls {
        let called = catch_unwind(AssertUnwindSafe(|| other.block_on(async { call(&mut stream) })));
        let panic = called.expect_err(name);
        let words = "rotor: this TcpStream belongs to another runtime on this thread";
        assert!(words_of(&*panic).starts_with(words), "{name}: {}", words_of(&*panic));
    }
    own.block_on(async {
        stream.write_all(b"hello").await.unwrap();
        let clients = Clients::start(1, {
            let client = std::sync::Arc::new(client);
            move |_| {
                let mut hello = [0; 5];
                io::Read::read_exact(&mut &*client, &mut hello).unwrap();
                hello
            }
        });
        assert_eq!(&clients.join().await[0], b"hello");
    });
}

#[test]
fn a_call_that_breaks_a_rule_panics_at_its_own_line() {
    let _watched = watched();
    let (own, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (stream, _client) = own.block_on(pair());
    let (listener, socket) = own.block_on(async {
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpSocket::new_v4().unwrap())
    });
    // Outside a runtime.
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = std::net::TcpStream::connect(plain.local_addr().unwrap()).unwrap();
    assert_eq!(file_of_panic(|| _ = TcpStream::from_std(connected)), file!());
    assert_eq!(file_of_panic(|| _ = TcpListener::from_std(plain)), file!());
    assert_eq!(file_of_panic(|| _ = TcpSocket::new_v4()), file!());
    // Inside another.
    type Call<'a> = (&'static str, Box<dyn Fn() + 'a>);
    let calls: [Call<'_>; 22] = [
        ("try_read", Box::new(|| _ = stream.try_read(&mut [0]))),
        ("try_read_vectored", {
            Box::new(|| _ = stream.try_read_vectored(&mut [IoSliceMut::new(&mut [0])]))
        }),
        ("try_write", Box::new(|| _ = stream.try_write(b"x"))),
        ("try_write_vectored", Box::new(|| _ = stream.try_write_vectored(&[IoSlice::new(b"x")]))),
        ("as_fd", Box::new(|| _ = stream.as_fd())),
        ("as_raw_fd", Box::new(|| _ = stream.as_raw_fd())),
        ("local_addr", Box::new(|| _ = stream.local_addr())),
        ("peer_addr", Box::new(|| _ = stream.peer_addr())),
        ("nodelay", Box::new(|| _ = stream.nodelay())),
        ("set_nodelay", Box::new(|| _ = stream.set_nodelay(true))),
        ("linger", Box::new(|| _ = stream.linger())),
        ("set_linger", Box::new(|| _ = stream.set_linger(None))),
        ("ttl", Box::new(|| _ = stream.ttl())),
        ("set_keepalive", Box::new(|| _ = stream.set_keepalive(true))),
        ("quickack", Box::new(|| _ = stream.quickack())),
        ("take_error", Box::new(|| _ = stream.take_error())),
        ("as_fd of a listener", Box::new(|| _ = listener.as_fd())),
        ("as_raw_fd of a listener", Box::new(|| _ = listener.as_raw_fd())),
        ("local_addr of a listener", Box::new(|| _ = listener.local_addr())),
        ("ttl of a listener", Box::new(|| _ = listener.ttl())),
        ("set_reuseaddr", Box::new(|| _ = socket.set_reuseaddr(true))),
        ("bind", Box::new(|| _ = socket.bind(([127, 0, 0, 1], 0).into()))),
    ];
    for (name, call) in calls {
        let file = other.block_on(async { file_of_panic(call) });
        assert_eq!(file, file!(), "{name}");
    }
}

/// Carries to another thread what must not go there.
struct Smuggled<T>(T);

// SAFETY: none can be given, for that is the fault under test: the type is not `Send`. What is moved
// here holds two numbers and no pointer, and the thread it comes from waits meanwhile.
unsafe impl<T> Send for Smuggled<T> {}

#[test]
fn a_stream_on_another_thread_finds_no_runtime_and_harms_nothing() {
    let _watched = watched_alone();
    let idle = descriptors();
    let runtime = Runtime::new().unwrap();
    let ((mut stream, mut client), (lost, mut peer)) =
        runtime.block_on(async { (pair().await, pair().await) });
    // With a runtime of its own there, and without one.
    for inside in [false, true] {
        let smuggled = Smuggled(stream);
        let elsewhere = std::thread::spawn(move || {
            let whole = smuggled;
            let mut stream = whole.0;
            let results = if inside {
                let other = Runtime::new().unwrap();
                other.block_on(async { call_everything(&mut stream) })
            } else {
                call_everything(&mut stream)
            };
            for (call, result) in results {
                assert_eq!(result.expect_err(call).kind(), ErrorKind::NotConnected, "{call}");
            }
            Smuggled(stream)
        });
        stream = elsewhere.join().unwrap().0;
    }
    let smuggled = Smuggled(lost);
    let dropped = std::thread::spawn(move || {
        let whole = smuggled;
        drop(whole.0);
    });
    dropped.join().unwrap();
    // Back home it is as it was; what was dropped there is open until the runtime ends.
    runtime.block_on(async {
        client.write_all(b"x").unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 1);
    });
    assert_eq!(runtime.statistics().event_loop.sockets.now, 2);
    drop(runtime);
    assert_eq!(io::Read::read(&mut peer, &mut [0]).unwrap(), 0);
    drop((stream, client, peer));
    assert_descriptors(idle);
}

#[test]
fn calls_that_find_no_operation_are_refused_with_words_and_lose_nothing() {
    let _watched = watched_alone();
    let idle = descriptors();
    let runtime = Builder::new().operations(2).timers(8).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut busy, _first) = pair().await;
        let (mut other, _second) = pair().await;
        let (mut stream, mut client) = pair().await;
        let mut sent = 0;
        while let Ok(count) = stream.try_write(&[7; 65_536]) {
            sent += count;
        }
        assert!(poll_once(busy.read(&mut [0])).await.is_none());
        assert!(poll_once(other.read(&mut [0])).await.is_none());
        let refused = |error: io::Error, what: &str| {
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{what}: {error}");
            let words = "all 2 operations are in use; raise the option `operations`";
            assert!(error.to_string().starts_with(words), "{what}: {error}");
        };
        refused(stream.read(&mut [0]).await.unwrap_err(), "read");
        refused(stream.read_exact(&mut [0]).await.unwrap_err(), "read_exact");
        refused(stream.read_buf().await.unwrap_err(), "read_buf");
        refused(stream.peek(&mut [0]).await.unwrap_err(), "peek");
        refused(stream.readable().await.unwrap_err(), "readable");
        refused(stream.writable().await.unwrap_err(), "writable");
        refused(stream.write(b"x").await.unwrap_err(), "write");
        let (written, buffer) = stream.write_owned(b"kept".to_vec()).await;
        refused(written.unwrap_err(), "write_owned");
        assert_eq!(buffer, b"kept");
        refused(TcpStream::connect(address).await.unwrap_err(), "connect");
        let socket = TcpSocket::new_v4().unwrap();
        refused(socket.connect(address).await.unwrap_err(), "connect of a socket");
        // An accept waits, and so do its clients.
        let late = connect(address);
        assert!(poll_once(listener.accept()).await.is_none());
        // One ends, and everything goes on where it was.
        drop(other);
        sleep(MILLISECOND).await;
        client.write_all(b"here").unwrap();
        assert_eq!(&*stream.read_buf().await.unwrap(), b"here");
        let (_served, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, late.local_addr().unwrap());
        let clients = Clients::start(1, {
            let client = std::sync::Arc::new(client);
            move |_| {
                // All of it: how much makes room is the kernel's to say.
                io::Read::read_exact(&mut &*client, &mut vec![0; sent]).unwrap();
                client.clone()
            }
        });
        stream.writable().await.unwrap();
        let _client = clients.join().await;
        assert_eq!(stream.write(b"x").await.unwrap(), 1);
    });
    drop(runtime);
    assert_descriptors(idle);
}

#[test]
fn sockets_that_find_no_row_are_refused_with_words_and_closed() {
    let _watched = watched_alone();
    let runtime = Builder::new().sockets(2).build().unwrap();
    runtime.block_on(async {
        let (_stream, client) = pair().await;
        sleep(MILLISECOND).await;
        let _listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refused = |error: io::Error, what: &str| {
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{what}: {error}");
            let words = "all 2 sockets are in use; raise the option `sockets`";
            assert!(error.to_string().starts_with(words), "{what}: {error}");
        };
        let open = descriptors();
        let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = plain.local_addr().unwrap();
        let connected = std::net::TcpStream::connect(address).unwrap();
        refused(TcpStream::from_std(connected).unwrap_err(), "from_std");
        refused(TcpStream::connect(address).await.unwrap_err(), "connect");
        refused(TcpSocket::new_v4().unwrap_err(), "a socket");
        refused(TcpListener::from_std(plain).unwrap_err(), "from_std of a listener");
        refused(TcpListener::bind("127.0.0.1:0").await.unwrap_err(), "bind");
        eventually("what was refused is closed", || descriptors() <= open).await;
        drop(client);
    });
}
