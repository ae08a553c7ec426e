//! Requests of every kind, and waits.

use super::*;
use crate::backend::readiness::requests::Chain;

#[test]
fn without_a_buffer_a_receive_says_so_and_the_bytes_stay() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    far.write_all(b"bytes").unwrap();
    wait_unread(fd, 5);
    bench.queue(1, &picked(fd));
    let found = bench.tell(bench.key(fd), READ);
    let answer = one(bench.tick(&[found]));
    assert_eq!((answer.result, answer.more, answer.buffer), (-libc::ENOBUFS, false, None));
    bench.engine.provide(2);
    bench.queue(1, &picked(fd));
    let answer = one(bench.tick(&[]));
    assert_eq!((answer.result, answer.buffer), (5, Some(2)));
}

#[test]
fn a_multishot_receive_answers_once_a_tick_and_goes_on_until_its_cancel() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    far.write_all(&[1; 150]).unwrap();
    wait_unread(fd, 150);
    bench.queue(1, &Request::ReceivePicked { fd, multishot: true });
    let found = bench.tell(bench.key(fd), READ);
    let mut results = vec![one(bench.tick(&[found]))];
    results.extend(bench.tick(&[]));
    results.extend(bench.tick(&[]));
    assert!(bench.tick(&[]).is_empty());
    assert!(results.iter().all(|answer| answer.more && answer.token == token(1)));
    assert_eq!(results.iter().map(|answer| answer.result).collect::<Vec<_>>(), [64, 64, 22]);
    // A cancel that finds an answer not taken yet makes it the last.
    far.write_all(b"end").unwrap();
    wait_unread(fd, 3);
    bench.script.borrow_mut().batches.push_back(vec![found]);
    bench.engine.tick(TickWait::Zero).unwrap();
    assert!(bench.engine.cancel(token(1)));
    let last = one(bench.answers());
    assert_eq!((last.result, last.more), (3, false));
    assert!(bench.tick(&[found]).is_empty());
}

#[test]
fn a_multishot_receive_whose_number_comes_again_ends_after_what_it_brought() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    far.write_all(b"last").unwrap();
    wait_unread(fd, 4);
    bench.queue(1, &Request::ReceivePicked { fd, multishot: true });
    let found = bench.tell(bench.key(fd), READ);
    bench.script.borrow_mut().batches.push_back(vec![found]);
    bench.engine.tick(TickWait::Zero).unwrap();
    // As if it had been closed behind the loop's back and opened anew.
    bench.engine.adopt(fd);
    let answers = bench.answers();
    let told: Vec<_> =
        answers.iter().map(|answer| (answer.token, answer.result, answer.more)).collect();
    assert_eq!(told, [(token(1), 4, true), (token(1), -libc::EBADF, false)]);
}

#[test]
fn a_poll_is_not_answered_by_what_is_known_but_by_how_things_are() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    far.write_all(&[1; BUFFER_BYTES as usize]).unwrap();
    wait_unread(fd, BUFFER_BYTES.into());
    bench.queue(1, &picked(fd));
    let found = bench.tell(bench.key(fd), READ);
    // A full buffer: there may be more, as far as is known. There is not.
    assert_eq!(one(bench.tick(&[found])).result, BUFFER_BYTES as i32);
    bench.queue(2, &poll(fd, Interest::Readable));
    assert!(bench.tick(&[]).is_empty());
    far.write_all(b"x").unwrap();
    wait_unread(fd, 1);
    assert_eq!(one(bench.tick(&[found])).token, token(2));
}

/// What one poll was told is not what another is: the bytes may be gone.
#[test]
fn a_poll_is_not_answered_by_what_the_poll_before_it_was_told() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.queue(1, &poll(fd, Interest::Readable));
    far.write_all(b"x").unwrap();
    wait_unread(fd, 1);
    let found = bench.tell(bench.key(fd), READ);
    assert_eq!(one(bench.tick(&[found])).token, token(1));
    let (Request::Receive { pointer, .. }, _memory) = receive(fd, 1) else { unreachable!() };
    let now = Request::Receive { fd, pointer, length: 1, now: true };
    assert_eq!(bench.submit(3, &now), Submission::Done(1));
    bench.queue(2, &poll(fd, Interest::Readable));
    assert!(bench.tick(&[]).is_empty(), "nothing is there any more");
    far.write_all(b"y").unwrap();
    wait_unread(fd, 1);
    assert_eq!(one(bench.tick(&[found])).token, token(2));
}

/// What was told while nobody waited is used up by receives and sends at once, and by those that wait in
/// front of the poll.
#[test]
fn a_poll_is_not_answered_by_what_was_told_and_used_up_since() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    bench.queue(1, &picked(fd));
    bench.queue(2, &poll(fd, Interest::Writable));
    let key = bench.key(fd);
    assert!(bench.engine.cancel(token(1)) && bench.engine.cancel(token(2)));
    bench.answers();
    far.write_all(b"x").unwrap();
    wait_unread(fd, 1);
    let found = bench.tell(key, READ | WRITE);
    assert!(bench.tick(&[found]).is_empty(), "nobody waits");
    let (Request::Receive { pointer, .. }, _) = receive(fd, 1) else { unreachable!() };
    let now = Request::Receive { fd, pointer, length: 1, now: true };
    assert_eq!(bench.submit(1, &now), Submission::Done(1));
    fill(fd);
    bench.queue(1, &poll(fd, Interest::Readable));
    bench.queue(2, &poll(fd, Interest::Writable));
    assert!(bench.tick(&[]).is_empty(), "ready in vain");
    assert!(bench.engine.cancel(token(1)) && bench.engine.cancel(token(2)));
    bench.answers();

    far.write_all(b"y").unwrap();
    wait_unread(fd, 1);
    bench.queue(1, &receive(fd, 1).0);
    bench.queue(2, &poll(fd, Interest::Readable));
    let found = bench.tell(key, READ);
    assert_eq!(one(bench.tick(&[found])).token, token(1), "the poll came too late");
}

#[test]
fn a_listener_is_nonblocking_when_it_accepts_until_it_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let fd = listener.as_raw_fd();
    let mut bench = Bench::new();
    let peer: *mut RawAddress = Box::leak(Box::new(RawAddress::EMPTY));
    bench.queue(1, &Request::Accept { fd, address: peer });
    let key = bench.key(fd);
    let found = bench.tell(key, READ);
    assert!(bench.tick(&[found]).is_empty(), "nobody is there, and it does not wait");
    assert!(!is_blocking(fd));
    let client = TcpStream::connect(address).unwrap();
    let accepted = one(bench.tick(&[found])).result;
    assert!(accepted >= 0);
    // SAFETY: the kernel wrote the address.
    let from = unsafe { (*peer).decode() };
    assert_eq!(from.unwrap(), client.local_addr().unwrap());
    assert!(is_blocking(accepted), "a connection blocks");
    bench.engine.forget(fd, None);
    assert!(is_blocking(fd) && bench.script.borrow().disarmed == [fd]);
    bench.engine.release(accepted);
}

/// A second row of one open file, and a duplicate in std's hands that makes all of them blocking.
#[test]
fn a_listener_that_a_duplicate_made_blocking_does_not_block_the_engine() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let twin = listener.try_clone().unwrap();
    let mut bench = Bench::new();
    let mut found = Vec::new();
    for (index, fd) in [(1, listener.as_raw_fd()), (2, twin.as_raw_fd())] {
        let address = Box::leak(Box::new(RawAddress::EMPTY));
        bench.queue(index, &Request::Accept { fd, address });
        found.push(bench.tell(bench.key(fd), READ));
    }
    assert!(bench.tick(&found).is_empty());
    listener.set_nonblocking(false).unwrap();
    // Ends an accept that waits, so that this fails and does not hang.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let rescue = std::thread::spawn(move || {
        let late = stopped.recv_timeout(std::time::Duration::from_secs(5)).is_err();
        (late, late.then(|| (TcpStream::connect(address), TcpStream::connect(address))))
    });
    let answers = bench.tick(&found);
    let _ = stop.send(());
    assert!(!rescue.join().unwrap().0, "an accept waited");
    assert!(answers.is_empty());
    // The twin leaves, and is blocking as promised; the first row goes on.
    assert!(bench.engine.cancel(token(2)));
    bench.answers();
    bench.engine.forget(twin.as_raw_fd(), None);
    let _client = TcpStream::connect(address).unwrap();
    let accepted = one(bench.tick(&found[..1]));
    assert!(accepted.token == token(1) && accepted.result >= 0);
    bench.engine.release(accepted.result);
}

#[test]
fn a_connect_waits_through_readiness_told_in_vain() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // SAFETY: no memory is passed. A second listen only sets the length of the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let brief = std::time::Duration::from_millis(100);
    let mut queued = Vec::new();
    while let Ok(client) = TcpStream::connect_timeout(&address, brief) {
        queued.push(client);
        assert!(queued.len() < 16, "a queue of length 0 takes {} connections", queued.len());
    }
    let mut bench = Bench::new();
    let open = Control::OpenStream { family_of: address };
    let Reply::Opened(fd) = bench.engine.control(&open).unwrap() else { panic!("opened") };
    let name: *const RawAddress = Box::leak(Box::new(RawAddress::encode(address)));
    bench.queue(1, &Request::Connect { fd, address: name });
    let found = bench.tell(bench.key(fd), READ | WRITE);
    assert!(bench.tick(&[found]).is_empty(), "it goes on");
    assert!(bench.engine.cancel(token(1)));
    assert_eq!(one(bench.tick(&[found])).result, -libc::ECANCELED);
    assert!(is_blocking(fd));
    bench.engine.release(fd);
}

/// The result of a connect to that address, and the stream.
fn connect(bench: &mut Bench, to: std::net::SocketAddr) -> (i32, RawFd) {
    let open = Control::OpenStream { family_of: to };
    let Reply::Opened(fd) = bench.engine.control(&open).unwrap() else { panic!("opened") };
    let address: *const RawAddress = Box::leak(Box::new(RawAddress::encode(to)));
    let result = match bench.submit(1, &Request::Connect { fd, address }) {
        Submission::Done(result) => result,
        Submission::Queued => {
            let found = bench.tell(bench.key(fd), WRITE);
            while !descriptor::is_ready(fd, Interest::Writable) {}
            one(bench.tick(&[found])).result
        }
        Submission::Full => panic!("full"),
    };
    (result, fd)
}

#[test]
fn a_connect_ends_as_the_kernel_says_and_leaves_the_stream_blocking() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut bench = Bench::new();
    for (to, expected) in [(address, 0), ("127.0.0.1:1".parse().unwrap(), -libc::ECONNREFUSED)] {
        let (result, fd) = connect(&mut bench, to);
        assert_eq!(result, expected);
        assert!(is_blocking(fd));
        bench.engine.release(fd);
    }
}

/// As on macOS: whichever way a stream comes, it is nonblocking until it leaves.
#[test]
fn where_sends_may_wait_a_stream_is_nonblocking_as_long_as_it_is_the_loop_s() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut bench = Bench::new();
    bench.script.borrow_mut().sends_may_wait = true;
    let (result, connected) = connect(&mut bench, address);
    assert_eq!(result, 0);
    let (refused, other) = connect(&mut bench, "127.0.0.1:1".parse().unwrap());
    assert_eq!(refused, -libc::ECONNREFUSED);
    let peer: *mut RawAddress = Box::leak(Box::new(RawAddress::EMPTY));
    bench.queue(1, &Request::Accept { fd: listener.as_raw_fd(), address: peer });
    let found = bench.tell(bench.key(listener.as_raw_fd()), READ);
    let accepted = one(bench.tick(&[found])).result;
    let (from_std, _far) = pair();
    let adopted = from_std.into_raw_fd();
    bench.engine.adopt(adopted);
    let all = [connected, other, accepted, adopted];
    assert_eq!(all.map(is_blocking), [false; 4]);
    let Reply::Opened(heir) = bench.engine.control(&Control::Duplicate(adopted)).unwrap() else {
        panic!("opened")
    };
    bench.engine.forget(adopted, Some(heir));
    assert!(!is_blocking(heir), "it is the loop's still");
    for fd in [connected, other, accepted, heir] {
        bench.engine.forget(fd, None);
        assert!(is_blocking(fd));
        descriptor::close(fd);
    }
    descriptor::close(adopted);
}

#[test]
fn what_waits_goes_on_on_the_duplicate_that_takes_a_number_s_place() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let heir = near.try_clone().unwrap().into_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    bench.queue(1, &picked(fd));
    bench.engine.forget(fd, Some(heir));
    drop(near);
    far.write_all(b"on").unwrap();
    wait_unread(heir, 2);
    let found = bench.tell(bench.key(heir), READ);
    assert_eq!(one(bench.tick(&[found])).result, 2);
    bench.engine.release(heir);
    assert_eq!(bench.script.borrow().disarmed, [fd, heir]);
}

#[test]
fn the_number_of_a_duplicate_keeps_nothing_of_its_past() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let heir = near.try_clone().unwrap().into_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    bench.queue(1, &picked(fd));
    // As if the number had been another's, and closed behind the loop's back.
    bench.queue(2, &picked(heir));
    bench.engine.forget(fd, Some(heir));
    let ended = one(bench.tick(&[]));
    assert_eq!((ended.token, ended.result), (token(2), -libc::EBADF));
    drop(near);
    far.write_all(b"on").unwrap();
    wait_unread(heir, 2);
    let found = bench.tell(bench.key(heir), READ);
    let answer = one(bench.tick(&[found]));
    assert_eq!((answer.token, answer.result), (token(1), 2));
    bench.engine.release(heir);
}

#[test]
fn what_cannot_be_watched_is_always_ready_and_what_is_refused_is_answered() {
    let mut bench = Bench::new();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let fd = file.as_raw_fd();
    bench.script.borrow_mut().refuses = Some(libc::EPERM);
    bench.queue(1, &poll(fd, Interest::Readable));
    assert_eq!(one(bench.tick(&[])).result, 1);
    bench.queue(1, &receive(fd, 8).0);
    assert_eq!(one(bench.tick(&[])).result, -libc::ENOTSOCK);
    bench.engine.release(file.into_raw_fd());
    bench.script.borrow_mut().refuses = Some(libc::ENOSPC);
    let (near, _far) = pair();
    let submitted = bench.submit(2, &picked(near.as_raw_fd()));
    assert_eq!(submitted, Submission::Done(-libc::ENOSPC));
    assert_eq!(bench.engine.rows.find(near.as_raw_fd()), None, "no row is left behind");
}

#[test]
fn files_are_unsupported_in_a_way_std_knows() {
    let mut bench = Bench::new();
    let memory = Box::leak(Box::new([0_u8; 8])).as_mut_ptr();
    for request in [
        Request::ReadAt { fd: 0, pointer: memory, length: 8, offset: 0 },
        Request::WriteAt { fd: 0, pointer: memory, length: 8, offset: 0 },
    ] {
        let Submission::Done(result) = bench.submit(1, &request) else { panic!("at once") };
        let error = io::Error::from_raw_os_error(-result);
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}

#[test]
fn a_wait_goes_on_after_readiness_told_in_vain_until_its_time_is_over() {
    const WAIT_NS: u64 = 20_000_000;
    let (near, _far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.queue(1, &receive(fd, 8).0);
    let in_vain = bench.tell(bench.key(fd), READ);
    bench.script.borrow_mut().batches.extend([vec![in_vain], vec![], vec![in_vain]]);
    let start = clock::now_ns();
    assert_eq!(bench.engine.tick(TickWait::AtMost(WAIT_NS)).unwrap(), TickEnd::TimedOut);
    assert!(clock::now_ns() - start >= WAIT_NS);
    let waits = bench.script.borrow().waits.clone();
    assert!(waits.len() >= 4 && waits.iter().all(|&wait| wait <= Some(WAIT_NS)), "{waits:?}");
}

#[test]
fn a_wake_ends_one_wait_also_if_it_came_before() {
    let mut bench = Bench::new();
    bench.script.borrow_mut().woken = true;
    assert_eq!(bench.engine.tick(TickWait::Zero).unwrap(), TickEnd::Event);
    assert_eq!(bench.engine.tick(TickWait::Forever).unwrap(), TickEnd::Event);
    assert_eq!(bench.engine.tick(TickWait::AtMost(1)).unwrap(), TickEnd::TimedOut);
}

/// More descriptors than the first chains have, so that they are made anew.
#[test]
fn three_hundred_descriptors_are_found_by_their_numbers() {
    let mut bench = Bench::new();
    let rows = &mut bench.engine.rows;
    let numbers: Vec<RawFd> = (0..300).map(|n| n * 7 + 3).collect();
    let taken: Vec<_> = numbers.iter().map(|&fd| rows.find_or_take(fd).unwrap()).collect();
    assert_eq!(rows.find_or_take(5_000), None, "the table is full");
    for (&fd, &row) in numbers.iter().zip(&taken) {
        assert_eq!(rows.find(fd), Some(row));
    }
    for &row in taken.iter().step_by(2) {
        rows.free(row);
    }
    for (n, (&fd, &row)) in numbers.iter().zip(&taken).enumerate() {
        assert_eq!(rows.find(fd), (n % 2 == 1).then_some(row));
    }
}

/// The loop's indices are shared with its timers, so the first request may have the last of them.
#[test]
fn a_high_index_writes_its_own_rows_and_none_below() {
    const TOKENS: u32 = 10_001;
    let mut plan = Plan::default();
    Requests::plan(&mut plan, TOKENS);
    let mut arena = Arena::new(plan.bytes()).unwrap();
    let mut requests = Requests::new(&mut arena, TOKENS);
    let mut chain = Chain::EMPTY;
    assert_eq!(requests.find(token(10_000)), None);
    let mut places = Vec::new();
    for (count, index) in [(1, 10_000), (1, 9_999), (2, 0), (2, 63), (3, 64)] {
        let place = requests.put(token(index), Request::Nop, [0, 0], &mut chain);
        assert!(requests.written() <= count * 64, "index {index} wrote {}", requests.written());
        assert_eq!(requests.find(token(index)), Some((place, true)));
        assert!(!places.contains(&place));
        places.push(place);
    }
    assert_eq!(requests.find(token(1)), None);
    assert_eq!(requests.find(token(5_000)), None);
    for (place, index) in places.into_iter().zip([10_000, 9_999, 0, 63, 64]) {
        requests.answer(&mut chain, place, Answer::last(index));
        let (completion, _) = requests.take_answer().unwrap();
        assert_eq!((completion.token, completion.result), (token(index as u32), index));
    }
    assert!(chain.is_empty());
}
