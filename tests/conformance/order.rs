//! Promise 2, its second half: on one socket and in one direction operations are done in the order in
//! which they came. And promise 7: the same program is answered in the same way.

use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::{Event, Interest, Loop, Operation, OwnedOperation, Wait};

use crate::rig::*;

scenarios! {
    2 send "sixteen sends on a full socket arrive in order" => sixteen_sends;
    2 send vectored "a send that is answered at once does not overtake one that waits" => no_overtaking;
    2 write_owned close
        "sixteen sends of buffers of their own arrive in order, before a close" => sixteen_owned;
    2 send write_owned vectored "sends of every kind keep their order" => kinds_of_send;
    2 shutdown send "a shutdown stays behind the sends before it" => shutdown_last;
    2 connect send shutdown
        "sends before the connection is made follow it in order" => before_the_connection;
    2 receive
        "receives of every kind get the bytes in the order in which they came" => kinds_of_receive;
    2 receive "a hundred receives of a byte each end in order" => hundred_receives;
    2 accept "accepts get the connections in the order in which they came" => accepts;
    2 poll receive "a poll is not behind a receive that waits" => poll_beside_receive;
    2 send receive "sends and receives of a stream do not wait for each other" => directions;
    2 receive read_exact read_buf ready
        "reads of every kind, mixed and dropped, keep the bytes' order" => kinds_of_read;
    2 write_owned send vectored shutdown
        "writes of every kind stay behind what was queued before them" => writes_behind;
    2 accept "tasks that accept are served in the order in which they asked" => accepting_tasks;
    7 timer "timers fire by deadline, and then in the order of arming" => timers;
    7 nop timer shutdown receive close accept connect send poll
        "the same program gives the same events twice" => twice;
    7 wake "what is woken at once runs in the order of its wakes" => wakes;
}

fn sixteen_sends() -> String {
    const LENGTH: usize = 64 << 10;
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    for number in 0..16 {
        let bytes = &pattern(1, 16 * LENGTH)[number * LENGTH..][..LENGTH];
        event_loop.submit(send(stream, bytes), number as u64).unwrap();
    }
    settle(&mut event_loop);
    let refused = event_loop.send_now(stream, b"before them").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let all = read_all(peer);
    let ends = gather(&mut event_loop, 16);
    finish(&mut event_loop, Operation::close(stream));
    assert_same(&all.join().unwrap().unwrap()[filled..], pattern(1, 16 * LENGTH));
    let order: Vec<u64> = ends.iter().map(Event::user_data).collect();
    assert!(ends.iter().all(|event| event.result().unwrap() as usize == LENGTH));
    format!("{order:?}")
}

fn no_overtaking() {
    let mut event_loop = small_loop();
    let (stream, mut peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(send(stream, b"first "), 1).unwrap();
    settle(&mut event_loop);
    // There is room now, and the loop has not been asked since.
    peer.read_exact(&mut vec![0; filled]).unwrap();
    let refused = event_loop.send_now(stream, b"too soon").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    let pieces = [IoSlice::new(b"too soon")];
    let refused = event_loop.send_vectored_now(stream, &pieces).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(the_final(&mut event_loop).result().unwrap(), 6);
    assert_eq!(event_loop.send_now(stream, b"second").unwrap(), 6);
    finish(&mut event_loop, Operation::close(stream));
    assert_eq!(read_all(peer).join().unwrap().unwrap(), b"first second");
}

fn sixteen_owned() -> String {
    let mut event_loop = small_loop();
    let (descriptor, peer) = loop_pair(&mut event_loop);
    let piece = |number: u8| vec![number; 1_000_000];
    for number in 0..16 {
        let operation = OwnedOperation::Send { descriptor };
        event_loop.submit_owned(operation, piece(number), u64::from(number)).unwrap();
    }
    event_loop.submit(Operation::close(descriptor), 99).unwrap();
    let all = read_all(peer);
    let order: Vec<u64> = gather(&mut event_loop, 17).iter().map(Event::user_data).collect();
    let all = all.join().unwrap().unwrap();
    assert_eq!(all.len(), 16_000_000);
    assert!((0..16).all(|number| all[number as usize * 1_000_000..][..1_000_000] == piece(number)));
    format!("{order:?}")
}

fn kinds_of_send() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    deliver(&peer, b"received ");
    let lent = finish(&mut event_loop, Operation::receive_picked(stream)).buffer().unwrap();
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(send(stream, b"raw "), 0).unwrap();
    let owned = OwnedOperation::Send { descriptor: stream };
    event_loop.submit_owned(owned, b"owned ".to_vec(), 1).unwrap();
    event_loop.submit_send_from(stream, lent, 0..9, 2).unwrap();
    let slices = Box::leak(Box::new([IoSlice::new(b"two "), IoSlice::new(b"pieces ")]));
    // SAFETY: the slices are never freed and their bytes static.
    let pieces = unsafe { Operation::send_vectored(stream, slices.as_ptr().cast(), 2) };
    event_loop.submit(pieces, 3).unwrap();
    event_loop.submit(send(stream, b"end"), 4).unwrap();
    settle(&mut event_loop);
    let all = read_all(peer);
    let order: Vec<u64> = gather(&mut event_loop, 5).iter().map(Event::user_data).collect();
    event_loop.return_buffer(lent);
    finish(&mut event_loop, Operation::close(stream));
    let all = all.join().unwrap().unwrap();
    assert_eq!(all[filled..], *b"raw owned received two pieces end");
    format!("{order:?}")
}

fn shutdown_last() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let filled = fill(&mut event_loop, stream);
    event_loop.submit(send(stream, b"last words"), 0).unwrap();
    event_loop.submit(Operation::shutdown(stream, Shutdown::Write), 1).unwrap();
    event_loop.submit(send(stream, b"too late"), 2).unwrap();
    settle(&mut event_loop);
    let all = read_all(peer);
    let ends: Vec<String> = gather(&mut event_loop, 3).iter().map(told).collect();
    assert_eq!(all.join().unwrap().unwrap()[filled..], *b"last words");
    ends.join(", ")
}

fn before_the_connection() -> String {
    let mut event_loop = small_loop();
    let plain = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let address = plain.local_addr().unwrap();
    let stream = open_stream(&mut event_loop, address);
    event_loop.submit(Operation::connect(stream, address), 0).unwrap();
    event_loop.submit(send(stream, b"one "), 1).unwrap();
    event_loop.submit(send(stream, b"two"), 2).unwrap();
    event_loop.submit(Operation::shutdown(stream, Shutdown::Write), 3).unwrap();
    let ends: Vec<String> = gather(&mut event_loop, 4).iter().map(told).collect();
    let all = read_all(plain.accept().unwrap().0).join().unwrap().unwrap();
    assert_eq!(all, b"one two");
    ends.join(", ")
}

fn kinds_of_receive() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    deliver(&peer, b"0123");
    let held = finish(&mut event_loop, Operation::receive_picked(stream)).buffer().unwrap();
    let (raw, memory) = receive(stream, 4);
    event_loop.submit(raw, 0).unwrap();
    let owned = OwnedOperation::Receive { descriptor: stream };
    let (_, orphan) = event_loop.submit_owned(owned, vec![0; 4], 1).unwrap();
    event_loop.submit_receive_into(stream, held, 4, 2).unwrap();
    event_loop.submit(Operation::receive_picked(stream), 3).unwrap();
    settle(&mut event_loop);
    deliver(&peer, b"aaaabbbb");
    let first = gather(&mut event_loop, 2);
    // The third takes as much as its buffer has room for.
    deliver(&peer, b"cccc");
    let third = the_final(&mut event_loop);
    deliver(&peer, b"dddd");
    let fourth = the_final(&mut event_loop);
    assert_eq!(received(memory, &first[0]), b"aaaa");
    assert_eq!(event_loop.reclaim(orphan).unwrap(), b"bbbb");
    assert_eq!(event_loop.bytes(held, 0..8), b"0123cccc");
    event_loop.return_buffer(held);
    assert_eq!(take(&mut event_loop, &fourth), b"dddd");
    let order = [first[0], first[1], third, fourth].map(|event| event.user_data());
    format!("{order:?}")
}

fn hundred_receives() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    let memory = leaked(100).as_mut_ptr();
    for number in 0..100 {
        // SAFETY: each has a byte of its own, which is never freed and looked at after all have ended.
        let operation = unsafe { Operation::receive(stream, memory.add(number), 1) };
        event_loop.submit(operation, number as u64).unwrap();
    }
    settle(&mut event_loop);
    let sent: Vec<u8> = (0..100).collect();
    deliver(&peer, &sent);
    let order: Vec<u64> = gather(&mut event_loop, 100).iter().map(Event::user_data).collect();
    assert_eq!(order, (0..100).collect::<Vec<u64>>());
    // SAFETY: the memory is never freed, and nobody writes it any more.
    assert_eq!(unsafe { std::slice::from_raw_parts(memory, 100) }, sent);
    assert_idle(&mut event_loop);
}

fn accepts() {
    let mut event_loop = small_loop();
    let (listening, address) = listener(&mut event_loop);
    for number in 0..10 {
        event_loop.submit(Operation::accept(listening), number).unwrap();
    }
    settle(&mut event_loop);
    let clients: Vec<_> = (0..10).map(|_| connect(address)).collect();
    let events = gather(&mut event_loop, 10);
    for (number, (event, client)) in events.iter().zip(&clients).enumerate() {
        assert_eq!(event.user_data(), number as u64);
        let from = event_loop.peer_address(event.descriptor().unwrap());
        assert_eq!(from, client.local_addr().ok());
    }
}

fn poll_beside_receive() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    settle(&mut event_loop);
    let writable = Operation::poll(stream, Interest::Writable);
    event_loop.submit(writable, 2).unwrap();
    assert_eq!(the_final(&mut event_loop).user_data(), 2);
    deliver(&peer, b"x");
    assert_eq!(the_final(&mut event_loop).user_data(), 1);
    assert_idle(&mut event_loop);
}

fn directions() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    // A receive waits, and sends go.
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    settle(&mut event_loop);
    assert_eq!(finish(&mut event_loop, send(stream, b"out")).result().unwrap(), 3);
    // A send waits, and receives go.
    fill(&mut event_loop, stream);
    event_loop.submit(send(stream, b"stuck"), 2).unwrap();
    settle(&mut event_loop);
    deliver(&peer, b"in");
    assert_eq!(the_final(&mut event_loop).user_data(), 1);
    let all = read_all(peer);
    assert_eq!(the_final(&mut event_loop).user_data(), 2);
    finish(&mut event_loop, Operation::close(stream));
    assert!(all.join().unwrap().unwrap().ends_with(b"stuck"));
}

fn kinds_of_read() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let sent = pattern(3, 60_000);
        let writer = std::thread::spawn(move || {
            for piece in sent.chunks(777) {
                client.write_all(piece).unwrap();
                std::thread::yield_now();
            }
        });
        let (mut got, mut turn) = (Vec::new(), 0_usize);
        while got.len() < sent.len() {
            turn += 1;
            let mut buffer = vec![0; (turn % 100 + 1).min(sent.len() - got.len())];
            let bound = Duration::from_micros(turn as u64 % 40);
            match turn % 6 {
                0 => {
                    let reading = stream.read_exact(&mut buffer);
                    if rotor::time::timeout(bound, reading).await.is_ok_and(|read| read.is_ok()) {
                        got.extend_from_slice(&buffer);
                    }
                }
                1 => drop(rotor::time::timeout(bound, stream.peek(&mut buffer)).await),
                2 => drop(rotor::time::timeout(bound, stream.readable()).await),
                3 => {
                    if let Ok(lease) = rotor::time::timeout(bound, stream.read_buf()).await {
                        got.extend_from_slice(&lease.unwrap());
                    }
                }
                4 => {
                    if let Ok(count) = stream.try_read(&mut buffer) {
                        got.extend_from_slice(&buffer[..count]);
                    }
                }
                _ => {
                    let reading = stream.read(&mut buffer);
                    if let Ok(count) = rotor::time::timeout(bound, reading).await {
                        got.extend_from_slice(&buffer[..count.unwrap()]);
                    }
                }
            }
        }
        joined(writer).await;
        assert_same(&got, sent);
    });
}

fn writes_behind() {
    run(async {
        let (mut stream, client) = pair().await;
        let long = pattern(4, MORE_THAN_FITS);
        assert!(poll_once(stream.write_owned(long)).await.is_none());
        assert!(poll_once(stream.write_owned(b"second".to_vec())).await.is_none());
        assert!(stream.try_write(b"between").is_err());
        assert!(poll_once(stream.write(b"between")).await.is_none());
        let pieces = [IoSlice::new(b"betw"), IoSlice::new(b"een")];
        assert!(poll_once(stream.write_vectored(&pieces)).await.is_none());
        assert!(poll_once(poll_fn(|cx| stream.poll_shutdown(cx))).await.is_none());
        let peer = read_all(client);
        stream.write_all(b"third").await.unwrap();
        assert_eq!(stream.write_owned(&b"fourth"[..]).await.0.unwrap(), 6);
        stream.shutdown().await.unwrap();
        let all = joined(peer).await.unwrap();
        assert_same(&all, &[long, b"second", b"third", b"fourth"].concat());
    });
}

fn accepting_tasks() {
    run(async {
        let listener = std::rc::Rc::new(TcpListener::bind(ANY_PORT).await.unwrap());
        let address = listener.local_addr().unwrap();
        let accept = || {
            let listener = listener.clone();
            rotor::spawn(async move { listener.accept().await.unwrap().1 })
        };
        let tasks: Vec<_> = (0..4).map(|_| accept()).collect();
        ticks().await;
        // The first leaves, and passes its turn on.
        tasks[0].abort();
        for task in tasks.into_iter().skip(1) {
            let client = TcpStream::connect(address).await.unwrap();
            assert_eq!(task.await.unwrap(), client.local_addr().unwrap());
        }
    });
}

fn timers() {
    let mut event_loop = small_loop();
    let base = event_loop.now() + 2_000_000;
    let after = [300, 900, 200, 300, 1_000_000, 0, 0, 300];
    for (number, ns) in after.into_iter().enumerate() {
        event_loop.submit(Operation::timer(base + ns), number as u64).unwrap();
    }
    let order: Vec<u64> = gather(&mut event_loop, 8).iter().map(Event::user_data).collect();
    assert!(event_loop.now() >= base + 1_000_000);
    // Equal deadlines in the order of arming.
    assert_eq!(order, [5, 6, 2, 0, 3, 7, 1, 4]);
}

/// Whatever does not depend on how fast the kernel is.
fn program(event_loop: &mut Loop) -> Vec<String> {
    let mut trace = Vec::new();
    let (stream, peer) = loop_pair(event_loop);
    let now = event_loop.now();
    for number in 0..5 {
        event_loop.submit(Operation::timer(now - number), number).unwrap();
        event_loop.submit(Operation::shutdown(stream, Shutdown::Read), 10 + number).unwrap();
    }
    let mut events = [Event::EMPTY; 3];
    for _ in 0..8 {
        let count = event_loop.tick(&mut events, Wait::Zero).unwrap();
        let told: Vec<u64> = events[..count].iter().map(Event::user_data).collect();
        trace.push(format!("{told:?}"));
    }
    let (other, far) = loop_pair(event_loop);
    let first = event_loop.submit(receive(other, 2).0, 20).unwrap();
    event_loop.submit(receive(other, 2).0, 21).unwrap();
    event_loop.submit(receive(other, 2).0, 22).unwrap();
    settle(event_loop);
    event_loop.cancel(first);
    trace.push(told(&the_final(event_loop)));
    deliver(&far, b"abcd");
    trace.extend(gather(event_loop, 2).iter().map(told));
    let (listening, address) = listener(event_loop);
    let connecting = open_stream(event_loop, address);
    trace.push(told(&finish(event_loop, Operation::connect(connecting, address))));
    let accepted = finish(event_loop, Operation::accept(listening)).descriptor().unwrap();
    trace.push(told(&finish(event_loop, Operation::poll(connecting, Interest::Writable))));
    for number in 0..4 {
        event_loop.submit(send(connecting, pattern(0, 100)), number).unwrap();
    }
    trace.extend(gather(event_loop, 4).iter().map(told));
    for descriptor in [stream, other, connecting, accepted, listening] {
        trace.push(told(&finish(event_loop, Operation::close(descriptor))));
    }
    drop((peer, far));
    let statistics = event_loop.statistics();
    trace.push(format!("{} {}", statistics.events, statistics.operations.high));
    trace
}

fn twice() -> String {
    let first = program(&mut small_loop());
    let second = program(&mut small_loop());
    assert_eq!(first, second);
    first.join(" ")
}

fn wakes() -> String {
    run(async {
        let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let deadline = rotor::time::Instant::now() + MILLISECOND;
        let sleeper = |number: u32| {
            let order = order.clone();
            rotor::spawn(async move {
                rotor::time::sleep_until(deadline).await;
                order.borrow_mut().push(number);
            })
        };
        let tasks: Vec<_> = (0..10).map(sleeper).collect();
        for task in tasks {
            task.await.unwrap();
        }
        format!("{:?}", order.borrow())
    })
}
