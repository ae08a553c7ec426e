//! Closing: once, in order, and with all delivered that was written. Promises 1, 2 and 4.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Client};
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::Options;
use rotor::{
    Control, DescriptorKind, Event, Interest, Loop, Operation, OwnedOperation, Reply, SocketOption,
    SubmitError, Wait,
};

use crate::rig::*;
use crate::tcp::scratch_file;

scenarios! {
    4 close "a dropped stream delivers what was written, then its end" => dropped_stream;
    4 close "a dropped stream delivers with unread input too" => unread_input;
    4 close "a dropped stream delivers with a read that waits" => waiting_read;
    4 close "a close in the loop delivers with unread input, and resets nothing" => loop_unread;
    4 close "dropping the owned write half ends that direction only" => write_half;
    4 close "a runtime's end delivers what was written" => runtime_end;
    4 close "a peer that takes nothing is reset at the bound, and counted" => at_the_bound;
    4 close "a stream that lingers for no time is reset" => no_linger;
    4 close "a stream whose number was lent delivers, and is closed with its object" => lent;
    4 accept "a listener's close leaves its accepted connections open" => listener_close;
    1 close receive accept poll
        "a close ends what waits on its descriptor, each once" => ends_waiting;
    1 close connect send
        "a connect that is in flight ends when its descriptor is closed" => ends_connect;
    2 close send "a close stays behind the sends before it" => behind_sends;
    1 close receive send shutdown poll control
        "a closed descriptor refuses everything, and its successor is another" => stale;
    1 close "a descriptor is closed once" => closed_once;
    1 close "a descriptor that is given up stays open" => given_up;
    1 close "a duplicate is the same stream, and the first close of the two ends it" => duplicate;
    9 close receive
        "a descriptor closed behind the loop's back harms nothing else" => behind_the_back;
    6 close "a close is never refused" => never_refused;
}

/// Writes, drops the stream, and gives what the peer has read by its end.
async fn write_and_drop(
    input: &[u8],
    reads: usize,
    waits: bool,
    length: usize,
) -> std::io::Result<Vec<u8>> {
    let (mut stream, client) = pair().await;
    deliver(&client, input);
    if reads > 0 {
        stream.read_exact(&mut vec![0; reads]).await.unwrap();
    }
    if waits {
        assert!(poll_once(stream.read_exact(&mut [0; 1000])).await.is_none());
        ticks().await;
    }
    let writing = rotor::spawn(async move {
        stream.write_all(pattern(0, length)).await.unwrap();
    });
    // The peer begins late, when the stream is dropped if its bytes fit.
    rotor::time::sleep(2 * MILLISECOND).await;
    let peer = read_all(client);
    writing.await.unwrap();
    joined(peer).await
}

fn dropped_stream() {
    for length in [1, 100_000, 2 << 20] {
        let all = run(write_and_drop(b"", 0, false, length)).unwrap();
        assert_same(&all, pattern(0, length));
    }
}

fn unread_input() {
    for (reads, length) in [(0, 1), (0, 2 << 20), (1001, 2 << 20)] {
        let all = run(write_and_drop(pattern(7, 60_000), reads, false, length)).unwrap();
        assert_same(&all, pattern(0, length));
    }
}

fn waiting_read() {
    for input in [b"", pattern(7, 100)] {
        let all = run(write_and_drop(input, 0, true, 2 << 20)).unwrap();
        assert_same(&all, pattern(0, 2 << 20));
    }
}

fn loop_unread() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    deliver(&peer, pattern(3, 60_000));
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(Operation::close(stream), 1).unwrap();
    for _ in 0..5 {
        // It looks again after a millisecond, and there is nothing new.
        assert_eq!(event_loop.tick(&mut [Event::EMPTY], Wait::AtMost(MILLISECOND)).unwrap(), 0);
    }
    let all = read_all(peer);
    let event = the_final(&mut event_loop);
    assert_same(&all.join().unwrap().unwrap(), pattern(0, filled));
    format!("{} {}", told(&event), event_loop.statistics().resets)
}

fn write_half() {
    run(async {
        let (stream, client) = pair().await;
        let peer = std::thread::spawn(move || {
            let mut client = client;
            let mut question = Vec::new();
            client.read_to_end(&mut question).unwrap();
            client.write_all(b"an answer").unwrap();
            question
        });
        let (mut reader, mut writer) = stream.into_split();
        writer.write_all(b"a question").await.unwrap();
        drop(writer);
        let mut answer = [0; 9];
        reader.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"an answer");
        assert_eq!(joined(peer).await, b"a question");
    });
}

fn runtime_end() {
    let plain = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let address = plain.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut client, _) = plain.accept().unwrap();
        client.write_all(&[1; 10_000]).unwrap();
        std::thread::sleep(10 * MILLISECOND);
        read_all(client).join().unwrap()
    });
    let runtime = builder().build().unwrap();
    let kept = runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert!(poll_once(stream.write_owned(pattern(0, MORE_THAN_FITS))).await.is_none());
        stream
    });
    let report = runtime.shut_down();
    assert_eq!((report.leaked, report.resets), (0, 0));
    assert_same(&peer.join().unwrap().unwrap(), pattern(0, MORE_THAN_FITS));
    drop(kept);
}

fn at_the_bound() -> String {
    let options = Options { drain: 20 * MILLISECOND, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    let (stream, mut peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(Operation::close(stream), 1).unwrap();
    let drained = event_loop.drain(20 * MILLISECOND);
    assert_eq!(event_loop.statistics().sockets.now, 0);
    let mut all = Vec::new();
    let _ = peer.read_to_end(&mut all);
    assert!(all.len() <= filled);
    format!("{} {} {}", drained.leaked, drained.resets, event_loop.statistics().resets)
}

fn no_linger() -> String {
    let mut event_loop = small_loop();
    let (stream, mut peer) = loop_pair(&mut event_loop);
    let none = SocketOption::Linger(Some(Duration::ZERO));
    event_loop.control(Control::Set(stream, none)).unwrap();
    event_loop.send_now(stream, b"never read").unwrap();
    let event = finish(&mut event_loop, Operation::close(stream));
    let mut all = Vec::new();
    let error = loop {
        match peer.read(&mut [0; 64]) {
            Ok(0) => panic!("an end, and no reset: {all:?}"),
            Ok(count) => all.push(count),
            Err(error) => break error.kind(),
        }
    };
    format!("{} {error:?}", told(&event))
}

fn lent() {
    run(async {
        let (mut stream, client) = pair().await;
        deliver(&client, b"unread");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&stream);
        stream.write_all(pattern(0, 100_000)).await.unwrap();
        // SAFETY: fcntl(2) with F_GETFD moves no memory.
        assert!(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0);
        let idle = descriptors();
        drop(stream);
        assert_same(&joined(read_all(client)).await.unwrap(), pattern(0, 100_000));
        eventually("it is closed", || descriptors() == idle - 2).await;
    });
}

fn listener_close() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let mut client = connect(listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(listener);
        ticks().await;
        client.write_all(b"open").unwrap();
        let mut four = [0; 4];
        stream.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"open");
    });
}

fn ends_waiting() -> String {
    let mut event_loop = small_loop();
    let (stream, _peer) = loop_pair(&mut event_loop);
    let (listening, _) = listener(&mut event_loop);
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    let (raw, _) = receive(stream, 8);
    event_loop.submit(raw, 2).unwrap();
    let owned = OwnedOperation::Receive { descriptor: stream };
    let (_, orphan) = event_loop.submit_owned(owned, vec![0; 8], 3).unwrap();
    event_loop.submit(Operation::poll(stream, Interest::Readable), 4).unwrap();
    event_loop.submit(Operation::accept(listening), 5).unwrap();
    event_loop.submit(Operation::accept_multishot(listening), 6).unwrap();
    event_loop.submit(Operation::poll(listening, Interest::Readable), 7).unwrap();
    settle(&mut event_loop);
    event_loop.submit(Operation::close(stream), 8).unwrap();
    event_loop.submit(Operation::close(listening), 9).unwrap();
    let events = gather(&mut event_loop, 9);
    for (waits, close) in [(1..5, 8), (5..8, 9)] {
        let at = |number| events.iter().position(|event| event.user_data() == number).unwrap();
        assert!(waits.map(at).all(|place| place < at(close)), "a close ends last: {events:?}");
    }
    event_loop.abandon(orphan);
    assert_idle(&mut event_loop);
    let statistics = event_loop.statistics();
    assert_eq!((statistics.sockets.now, statistics.buffers.now), (0, 0));
    let mut ends: Vec<(u64, String)> =
        events.iter().map(|event| (event.user_data(), told(event))).collect();
    ends.sort();
    format!("{ends:?}")
}

fn ends_connect() -> String {
    let address = full_listener();
    let mut event_loop = small_loop();
    let stream = open_stream(&mut event_loop, address);
    event_loop.submit(Operation::connect(stream, address), 1).unwrap();
    event_loop.submit(send(stream, b"never"), 2).unwrap();
    settle(&mut event_loop);
    event_loop.submit(Operation::close(stream), 3).unwrap();
    let ends: Vec<String> = gather(&mut event_loop, 3).iter().map(told).collect();
    assert_idle(&mut event_loop);
    assert_eq!(event_loop.statistics().sockets.now, 0);
    ends.join(", ")
}

fn behind_sends() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(send(stream, pattern(1, 200_000)), 1).unwrap();
    event_loop.submit(send(stream, b"end"), 2).unwrap();
    event_loop.submit(Operation::close(stream), 3).unwrap();
    let late = event_loop.submit(send(stream, b"late"), 4);
    assert_eq!(late, Err(SubmitError::Closed));
    settle(&mut event_loop);
    let all = read_all(peer);
    let ends: Vec<String> = gather(&mut event_loop, 3).iter().map(told).collect();
    let all = all.join().unwrap().unwrap();
    assert_same(&all[filled..], &[pattern(1, 200_000), b"end"].concat());
    ends.join(", ")
}

fn stale() {
    let mut event_loop = Loop::new(&Options { sockets: 1, ..small() }).unwrap();
    let (old, first) = loop_pair(&mut event_loop);
    finish(&mut event_loop, Operation::close(old));
    // In the same row, and with the same number.
    let (new, second) = loop_pair(&mut event_loop);
    let closed = Err(SubmitError::Closed);
    assert_eq!(event_loop.submit(Operation::close(old), 1), closed);
    assert_eq!(event_loop.submit(Operation::receive_picked(old), 1), closed);
    assert_eq!(event_loop.submit(send(old, b"lost"), 1), closed);
    assert_eq!(event_loop.submit(Operation::shutdown(old, Shutdown::Both), 1), closed);
    assert_eq!(event_loop.submit(Operation::poll(old, Interest::Readable), 1), closed);
    assert_eq!(event_loop.send_now(old, b"lost").unwrap_err().kind(), ErrorKind::NotConnected);
    assert!(event_loop.control(Control::SetNoDelay(old, true)).is_err());
    assert!(event_loop.give_up(old).is_none() && event_loop.raw_fd(old).is_none());
    deliver(&second, b"new");
    let event = finish(&mut event_loop, Operation::receive_picked(new));
    assert_eq!(take(&mut event_loop, &event), b"new");
    drop(first);
}

fn closed_once() {
    let mut event_loop = small_loop();
    let idle = descriptors();
    let mut files = Vec::new();
    for _ in 0..20 {
        let (stream, peer) = loop_pair(&mut event_loop);
        event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
        event_loop.submit(Operation::close(stream), 2).unwrap();
        assert_eq!(event_loop.submit(Operation::close(stream), 3), Err(SubmitError::Closed));
        gather(&mut event_loop, 2);
        drop(peer);
        // Takes the number that was freed. A second close would take it away.
        files.push(std::fs::File::open("/dev/null").unwrap());
    }
    settle(&mut event_loop);
    assert_eq!(descriptors(), idle + files.len());
    assert_eq!(event_loop.statistics().sockets.now, 0);
}

fn given_up() {
    let mut event_loop = small_loop();
    let (stream, mut peer) = loop_pair(&mut event_loop);
    let handle = event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    settle(&mut event_loop);
    assert!(event_loop.give_up(stream).is_none(), "something is in flight");
    cancel(&mut event_loop, handle);
    let mut given = Client::from(event_loop.give_up(stream).unwrap());
    assert_eq!(event_loop.statistics().sockets.now, 0);
    drop(event_loop);
    given.write_all(b"mine").unwrap();
    let mut four = [0; 4];
    peer.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"mine");
}

fn duplicate() {
    for first in [0, 1] {
        let mut event_loop = small_loop();
        let (stream, mut peer) = loop_pair(&mut event_loop);
        let Reply::Opened(twin) = event_loop.control(Control::Duplicate(stream)).unwrap() else {
            panic!("a duplicate opens something");
        };
        assert_ne!(event_loop.raw_fd(twin), event_loop.raw_fd(stream));
        event_loop.send_now(stream, b"ab").unwrap();
        event_loop.send_now(twin, b"cd").unwrap();
        let both = [stream, twin];
        finish(&mut event_loop, Operation::close(both[first]));
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"abcd");
        // The other is open still.
        deliver(&peer, b"e");
        let event = finish(&mut event_loop, Operation::receive_picked(both[1 - first]));
        assert_eq!(take(&mut event_loop, &event), b"e");
    }
}

fn behind_the_back() {
    let mut event_loop = small_loop();
    let (broken, first) = loop_pair(&mut event_loop);
    let (sound, second) = loop_pair(&mut event_loop);
    let fd = event_loop.raw_fd(broken).unwrap();
    event_loop.submit(Operation::receive_picked(sound), 1).unwrap();
    settle(&mut event_loop);
    // SAFETY: closes a number this scenario opened. That the loop believes it open is what is tried.
    assert_eq!(unsafe { libc::close(fd) }, 0);
    // Gets the number.
    let (third, fourth) = loop_pair(&mut event_loop);
    deliver(&second, b"sound");
    let event = the_final(&mut event_loop);
    assert_eq!(take(&mut event_loop, &event), b"sound");
    deliver(&fourth, b"third");
    let event = finish(&mut event_loop, Operation::receive_picked(third));
    assert_eq!(take(&mut event_loop, &event), b"third");
    // What the loop does with the broken one concerns the number's new owner, so it is given up.
    std::mem::forget(event_loop.give_up(broken));
    drop(first);
    finish(&mut event_loop, Operation::close(sound));
}

fn never_refused() {
    let options = Options { operations: 1, timers: 1, sockets: 3, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    let (stream, _peer) = loop_pair(&mut event_loop);
    let (listening, _) = listener(&mut event_loop);
    let file = event_loop.adopt(scratch_file().into(), DescriptorKind::File).unwrap();
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    let refused = event_loop.submit(Operation::nop(), 2).unwrap_err();
    assert_eq!(refused, SubmitError::Full { option: "operations", limit: 1 });
    for descriptor in [stream, listening, file] {
        event_loop.submit(Operation::close(descriptor), 3).unwrap();
    }
    gather(&mut event_loop, 4);
    assert_idle(&mut event_loop);
    assert_eq!(event_loop.statistics().sockets.now, 0);
}
