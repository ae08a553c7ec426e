//! Requests of every kind, and waits.

use super::*;

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

#[test]
fn a_listener_is_nonblocking_from_its_first_accept_until_it_leaves() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let fd = listener.as_raw_fd();
    let blocking = || {
        // SAFETY: no memory is passed.
        unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0 }
    };
    let mut bench = Bench::new();
    let peer: *mut RawAddress = Box::leak(Box::new(RawAddress::EMPTY));
    bench.queue(1, &Request::Accept { fd, address: peer });
    assert!(!blocking());
    let key = bench.key(fd);
    let found = bench.tell(key, READ);
    assert!(bench.tick(&[found]).is_empty(), "nobody is there, and it does not wait");
    let client = TcpStream::connect(address).unwrap();
    let accepted = one(bench.tick(&[found])).result;
    assert!(accepted >= 0);
    // SAFETY: the kernel wrote the address; no memory is passed to fcntl.
    let (from, flags) = unsafe { ((*peer).decode(), libc::fcntl(accepted, libc::F_GETFL)) };
    assert_eq!(from.unwrap(), client.local_addr().unwrap());
    assert_eq!(flags & libc::O_NONBLOCK, 0, "a connection blocks");
    bench.engine.forget(fd, None);
    assert!(blocking() && bench.script.borrow().disarmed == [fd]);
    bench.engine.release(accepted);
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
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK, 0);
    bench.engine.release(fd);
}

#[test]
fn a_connect_ends_as_the_kernel_says_and_leaves_the_stream_blocking() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut bench = Bench::new();
    for (to, expected) in [(address, 0), ("127.0.0.1:1".parse().unwrap(), -libc::ECONNREFUSED)] {
        let open = Control::OpenStream { family_of: to };
        let Reply::Opened(fd) = bench.engine.control(&open).unwrap() else { panic!("opened") };
        let name: *const RawAddress = Box::leak(Box::new(RawAddress::encode(to)));
        let result = match bench.submit(1, &Request::Connect { fd, address: name }) {
            Submission::Done(result) => result,
            Submission::Queued => {
                let found = bench.tell(bench.key(fd), WRITE);
                while !descriptor::is_ready(fd, Interest::Writable) {}
                one(bench.tick(&[found])).result
            }
            Submission::Full => panic!("full"),
        };
        assert_eq!(result, expected);
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_NONBLOCK, 0);
        bench.engine.release(fd);
    }
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
