//! Orders of events.

use super::*;

#[test]
fn readiness_told_in_vain_answers_nothing_and_loses_nothing() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    bench.queue(1, &picked(fd));
    let key = bench.key(fd);
    for ready in [READ, WRITE, READ | WRITE, 0] {
        let found = bench.tell(key, ready);
        assert!(bench.tick(&[found]).is_empty());
    }
    far.write_all(b"hello").unwrap();
    wait_unread(fd, 5);
    assert!(bench.tick(&[]).is_empty(), "nobody has told");
    let found = bench.tell(key, READ);
    let answer = one(bench.tick(&[found, found]));
    assert_eq!((answer.token, answer.result, answer.more), (token(1), 5, false));
    let start = usize::from(answer.buffer.unwrap()) * BUFFER_BYTES as usize;
    assert_eq!(&bench.buffers[start..start + 5], b"hello");
}

#[test]
fn a_busy_stream_is_armed_once() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    for round in 0..100 {
        bench.queue(1, &picked(fd));
        assert!(bench.tick(&[]).is_empty(), "round {round}: a short receive has drained it");
        far.write_all(b"ping").unwrap();
        wait_unread(fd, 4);
        let found = bench.tell(bench.key(fd), READ);
        let answer = one(bench.tick(&[found]));
        assert_eq!(answer.result, 4);
        bench.engine.provide(answer.buffer.unwrap());
    }
    assert_eq!(bench.script.borrow().armed.len(), 1);
}

/// Two messages, told by one edge: each ends a receive, and the second is told by nothing.
#[test]
fn a_short_receive_of_what_is_no_tcp_is_followed_by_another() {
    let (mut kinds, mut drained) = (Vec::new(), Vec::new());
    for needs_in_vain in [false, true] {
        let mut bench = Bench::new();
        bench.script.borrow_mut().needs_in_vain = needs_in_vain;
        let mut pipes = [0; 2];
        // SAFETY: the kernel writes both numbers.
        let made =
            unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pipes.as_mut_ptr()) };
        assert_eq!(made, 0);
        let [near, far] = pipes;
        for message in [b"first", b"other"] {
            // SAFETY: static memory.
            assert_eq!(unsafe { descriptor::send_now(far, message.as_ptr(), 5) }, 5);
        }
        bench.queue(1, &receive(near, 64).0);
        let found = bench.tell(bench.key(near), READ);
        assert_eq!(one(bench.tick(&[found])).result, 5);
        bench.queue(1, &receive(near, 64).0);
        assert_eq!(one(bench.tick(&[])).result, 5, "nobody told again");
        descriptor::close(far);
        bench.engine.release(near);

        // TCP, where the selector tells, spares the receive in vain.
        let (near, mut far) = pair();
        far.write_all(b"all").unwrap();
        wait_unread(near.as_raw_fd(), 3);
        bench.queue(1, &receive(near.as_raw_fd(), 64).0);
        let found = bench.tell(bench.key(near.as_raw_fd()), READ);
        assert_eq!(one(bench.tick(&[found])).result, 3);
        let row = bench.engine.rows.find(near.as_raw_fd()).unwrap();
        kinds.push(bench.engine.rows.get(row).short_drains);
        drained.push(bench.engine.rows.get(row).ready & READ == 0);
    }
    assert_eq!(kinds, [Some(true), Some(false)]);
    assert_eq!(drained, [true, false]);
}

#[test]
fn what_a_full_buffer_leaves_is_received_without_being_told_again() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    far.write_all(&[7; 100]).unwrap();
    wait_unread(fd, 100);
    bench.queue(1, &picked(fd));
    let found = bench.tell(bench.key(fd), READ);
    let answer = one(bench.tick(&[found]));
    assert!(answer.result == BUFFER_BYTES as i32 && answer.socket_nonempty);
    bench.queue(2, &picked(fd));
    // It is at hand: a tick that may wait for ever does not.
    assert_eq!(bench.engine.tick(TickWait::AtMost(1)).unwrap(), TickEnd::Event);
    assert_eq!(bench.script.borrow().waits.last(), Some(&Some(0)));
    let answer = one(bench.answers());
    assert!(answer.result == 100 - BUFFER_BYTES as i32 && !answer.socket_nonempty);
}

/// The end comes with the data's edge, and no edge comes after it: kqueue's `EV_EOF` with data pending,
/// epoll's `EPOLLRDHUP` with `EPOLLIN`.
#[test]
fn the_end_told_with_data_pending_comes_after_the_data() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    far.write_all(b"last words").unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    wait_unread(fd, 10);
    bench.queue(1, &picked(fd));
    let found = Found { over: true, ..bench.tell(bench.key(fd), READ) };
    assert_eq!(one(bench.tick(&[found])).result, 10);
    for _ in 0..2 {
        bench.queue(2, &picked(fd));
        let answer = one(bench.tick(&[]));
        assert_eq!((answer.result, answer.buffer), (0, None));
    }
    assert_eq!(bench.engine.free_count, BUFFERS - 1, "an end takes no buffer");
}

#[test]
fn both_directions_told_at_once_are_both_served() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    let filled = fill(fd);
    let (request, memory) = receive(fd, 16);
    bench.queue(1, &request);
    bench.queue(2, &send(fd, b"after all of it"));
    bench.queue(3, &poll(fd, Interest::Writable));
    assert_eq!(bench.script.borrow().armed.last().unwrap().2, READ | WRITE);
    let found = bench.tell(bench.key(fd), READ | WRITE);
    let in_vain = bench.tick(&[found]);
    assert!(in_vain.is_empty(), "neither bytes nor room: {in_vain:?}");
    far.write_all(b"bytes").unwrap();
    wait_unread(fd, 5);
    let mut all = vec![0; filled];
    far.read_exact(&mut all).unwrap();
    let answers = bench.tick(&[found]);
    let results: Vec<_> = answers.iter().map(|answer| (answer.token, answer.result)).collect();
    assert_eq!(results, [(token(1), 5), (token(2), 15), (token(3), 1)]);
    // SAFETY: five bytes were received there.
    assert_eq!(unsafe { std::slice::from_raw_parts(memory, 5) }, b"bytes");
    far.read_exact(&mut all[..15]).unwrap();
    assert_eq!(&all[..15], b"after all of it");
}

#[test]
fn an_event_out_of_date_does_nothing_to_the_number_s_next_owner() {
    let mut bench = Bench::new();
    bench.provide_all();
    let (near, _far) = pair();
    let fd = near.into_raw_fd();
    bench.queue(1, &picked(fd));
    let old = bench.key(fd);
    assert!(bench.engine.cancel(token(1)));
    assert_eq!(one(bench.tick(&[])).result, -libc::ECANCELED);
    bench.engine.release(fd);
    assert_eq!(bench.script.borrow().disarmed, [fd]);
    let (near, mut far) = pair();
    // The same number again, as the kernel gives the lowest that is free.
    // SAFETY: no memory is passed; `fd` is free, as this test alone has just closed it.
    let next = unsafe { libc::fcntl(near.as_raw_fd(), libc::F_DUPFD_CLOEXEC, fd) };
    bench.engine.adopt(next);
    bench.queue(2, &picked(next));
    assert_ne!(bench.key(next), old);
    far.write_all(b"x").unwrap();
    wait_unread(next, 1);
    let stale = Found { over: true, ..bench.tell(old, READ | WRITE) };
    assert!(bench.tick(&[stale]).is_empty(), "it is not the new owner's");
    let found = bench.tell(bench.key(next), READ);
    assert_eq!(one(bench.tick(&[stale, found])).token, token(2));
    bench.engine.release(next);
}

#[test]
fn a_number_that_comes_again_without_a_release_ends_what_waited_on_it() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    bench.queue(1, &picked(fd));
    bench.queue(2, &poll(fd, Interest::Readable));
    let old = bench.key(fd);
    // As if it had been closed behind the loop's back and opened anew.
    bench.engine.adopt(fd);
    bench.queue(3, &picked(fd));
    far.write_all(b"new").unwrap();
    wait_unread(fd, 3);
    let stale = bench.tell(old, READ);
    let ended: Vec<_> =
        bench.tick(&[stale]).iter().map(|answer| (answer.token, answer.result)).collect();
    assert_eq!(ended, [(token(1), -libc::EBADF), (token(2), -libc::EBADF)]);
    let found = bench.tell(bench.key(fd), READ);
    assert_eq!(one(bench.tick(&[found])).token, token(3));
}

#[test]
fn a_number_that_an_accept_or_an_open_brings_again_ends_what_waited_on_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for opens in [false, true] {
        // Another test may get the number first.
        let again = (0..1_000).any(|_| the_lowest_number_comes_again(&listener, opens));
        assert!(again, "the number that was closed last never came (opened: {opens})");
    }
}

/// Closes a number behind the engine's back. False: the kernel brought another one.
fn the_lowest_number_comes_again(listener: &TcpListener, opens: bool) -> bool {
    let mut bench = Bench::new();
    bench.provide_all();
    let (address, listening) = (listener.local_addr().unwrap(), listener.as_raw_fd());
    let (near, _far) = pair();
    // The kernel gives the lowest number that is free.
    let lowest = near.try_clone().unwrap();
    let fd = lowest.as_raw_fd();
    bench.queue(2, &picked(fd));
    let old = bench.key(fd);
    let (brought, mut answers) = if opens {
        drop(lowest);
        let open = Control::OpenStream { family_of: address };
        let Reply::Opened(brought) = bench.engine.control(&open).unwrap() else { panic!("opened") };
        (brought, bench.tick(&[]))
    } else {
        let _client = TcpStream::connect(address).unwrap();
        let peer: *mut RawAddress = Box::leak(Box::new(RawAddress::EMPTY));
        bench.queue(1, &Request::Accept { fd: listening, address: peer });
        let found = bench.tell(bench.key(listening), READ);
        drop(lowest);
        let answers = bench.tick(&[found]);
        let accepted = answers.iter().find(|answer| answer.token == token(1));
        (accepted.expect("a client is there").result, answers)
    };
    if brought == fd {
        answers.retain(|answer| answer.token != token(1));
        let ended = one(answers);
        assert_eq!((ended.token, ended.result), (token(2), -libc::EBADF));
        bench.queue(3, &picked(fd));
        assert_ne!(bench.key(fd), old);
    }
    bench.engine.release(brought);
    brought == fd
}

/// The row of a number that is released may be in the list of those to be attended to, and another's
/// before its turn comes.
#[test]
fn a_row_that_changes_hands_in_the_list_of_the_ready_loses_none_behind_it() {
    let mut bench = Bench::new();
    bench.provide_all();
    let pairs = [(); 3].map(|()| pair());
    let (numbers, mut fars): (Vec<_>, Vec<_>) =
        pairs.into_iter().map(|(near, far)| (near.into_raw_fd(), far)).unzip();
    for index in 0..2 {
        let fd = numbers[index];
        fars[index].write_all(&[1; 100]).unwrap();
        wait_unread(fd, 100);
        bench.queue(index as u32, &picked(fd));
        let found = bench.tell(bench.key(fd), READ);
        assert_eq!(one(bench.tick(&[found])).result, BUFFER_BYTES as i32);
    }
    // Both have more, so both are listed.
    bench.queue(0, &picked(numbers[0]));
    bench.queue(1, &picked(numbers[1]));
    assert!(bench.engine.cancel(token(0)));
    assert_eq!(one(bench.answers()).result, -libc::ECANCELED);
    bench.engine.release(numbers[0]);
    bench.queue(2, &picked(numbers[2]));
    let answer = one(bench.tick(&[]));
    assert_eq!((answer.token, answer.result), (token(1), 100 - BUFFER_BYTES as i32));
    bench.engine.release(numbers[1]);
    assert!(bench.engine.cancel(token(2)));
    bench.engine.release(numbers[2]);
}

#[test]
fn a_cancel_before_the_event_moves_nothing_and_after_it_delivers_what_moved() {
    let (near, mut far) = pair();
    let fd = near.as_raw_fd();
    let mut bench = Bench::new();
    bench.provide_all();
    far.write_all(b"kept").unwrap();
    wait_unread(fd, 4);
    bench.queue(1, &picked(fd));
    assert!(bench.engine.cancel(token(1)));
    let found = bench.tell(bench.key(fd), READ);
    let canceled = one(bench.tick(&[found]));
    assert_eq!((canceled.result, canceled.buffer), (-libc::ECANCELED, None));
    assert!(bench.engine.cancel(token(1)), "it is over: nothing happens");
    bench.queue(2, &picked(fd));
    bench.script.borrow_mut().batches.push_back(vec![found]);
    bench.engine.tick(TickWait::Zero).unwrap();
    assert!(bench.engine.cancel(token(2)));
    assert_eq!(one(bench.answers()).result, 4);
}

#[test]
fn events_of_one_wait_are_served_in_the_order_they_were_told() {
    let pairs: Vec<_> = (0..10).map(|_| pair()).collect();
    let mut bench = Bench::new();
    for (index, (near, far)) in pairs.iter().enumerate() {
        let fd = near.as_raw_fd();
        let mut far = far;
        far.write_all(b"x").unwrap();
        wait_unread(fd, 1);
        bench.queue(index as u32, &receive(fd, 4).0);
    }
    let order = [3, 1, 4, 9, 5, 2, 6, 0, 8, 7];
    let found: Vec<_> = order
        .iter()
        .map(|&index: &usize| bench.tell(bench.key(pairs[index].0.as_raw_fd()), READ))
        .collect();
    let answers = bench.tick(&found);
    let told: Vec<_> = answers.iter().map(|answer| answer.token.index() as usize).collect();
    assert_eq!(told, order);
}
