//! Bytes that are lent and not copied, and buffers that the loop keeps: what arrives, in what order,
//! and who has the memory.

mod support;

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Client};
use std::rc::Rc;
use std::time::Duration;

use rotor::limits::{LEASES_PER_STREAM_MAX, TRANSFER_BYTES_MAX};
use rotor::net::{LoopBuf, TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::task::yield_now;
use rotor::time::{sleep, timeout};
use support::{
    Clients, MILLISECOND, Random, allow_descriptors, assert_same, check_message, eventually, pair,
    pattern, poll_once, poll_outside, read_slowly, run, upload, watched, watched_alone,
};

#[test]
fn a_lease_is_what_was_received_and_its_buffer_goes_back_when_it_is_dropped() {
    let _watched = watched();
    let runtime = Builder::new().buffers(2).build().unwrap();
    runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        assert!(poll_once(stream.read_buf()).await.is_none());
        for round in 0..10_u8 {
            client.write_all(&[round; 100]).unwrap();
            let lease = stream.read_buf().await.unwrap();
            assert_eq!(&*lease, &[round; 100]);
            assert_eq!(runtime.statistics().event_loop.buffers.now, 1);
        }
        assert_eq!(runtime.statistics().event_loop.buffers.now, 0);
        // Part of a buffer was read by copying; the rest is lent.
        client.write_all(b"abcdef").unwrap();
        assert_eq!(stream.read(&mut [0; 2]).await.unwrap(), 2);
        assert_eq!(&*stream.read_buf().await.unwrap(), b"cdef");
        client.shutdown(Shutdown::Write).unwrap();
        assert!(stream.read_buf().await.unwrap().is_empty());
        assert!(stream.read_buf().await.unwrap().is_empty());
    });
}

#[test]
fn leases_of_a_stream_are_bounded_and_reads_that_copy_go_on() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let mut leases = Vec::new();
        for _ in 0..LEASES_PER_STREAM_MAX {
            client.write_all(b"x").unwrap();
            leases.push(stream.read_buf().await.unwrap());
        }
        client.write_all(b"yz").unwrap();
        let refused = stream.read_buf().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
        assert!(refused.to_string().contains("LEASES_PER_STREAM_MAX"), "{refused}");
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
        assert_eq!(&byte, b"y");
        leases.pop();
        assert_eq!(&*stream.read_buf().await.unwrap(), b"z");
        // The end needs no buffer, so it is told in any case.
        client.write_all(b"w").unwrap();
        leases.push(stream.read_buf().await.unwrap());
        drop(client);
        assert_eq!(stream.read(&mut byte).await.unwrap(), 0);
        assert!(stream.read_buf().await.unwrap().is_empty());
    });
}

/// Takes leases of a byte each until the stream has none left; answers them.
async fn take_leases(stream: &mut TcpStream, client: &mut Client) -> Vec<LoopBuf> {
    let mut leases = Vec::new();
    loop {
        client.write_all(b"x").unwrap();
        match stream.read_buf().await {
            Ok(lease) => leases.push(lease),
            Err(refused) => {
                assert_eq!(refused.kind(), ErrorKind::QuotaExceeded);
                stream.read_exact(&mut [0]).await.unwrap();
                return leases;
            }
        }
        assert!(leases.len() <= LEASES_PER_STREAM_MAX as usize);
    }
}

#[test]
fn a_lease_counts_against_its_stream_while_it_is_written_and_when_it_has_come_back() {
    const MOST: usize = LEASES_PER_STREAM_MAX as usize;
    run(async {
        let (mut stream, mut client) = pair().await;
        let (mut other, mut peer) = pair().await;
        let mut leases = Vec::new();
        // Written by its own stream and by another.
        for _ in 0..2 {
            client.write_all(b"x").unwrap();
            let lease = stream.read_buf().await.unwrap();
            leases.push(stream.write_owned(lease).await.1);
            client.write_all(b"x").unwrap();
            let lease = stream.read_buf().await.unwrap();
            leases.push(other.write_owned(lease).await.1);
        }
        assert_eq!((leases.len(), take_leases(&mut stream, &mut client).await.len()), (MOST, 0));
        leases.clear();
        assert_eq!(take_leases(&mut stream, &mut client).await.len(), MOST);
        assert_eq!(take_leases(&mut other, &mut peer).await.len(), MOST);

        // Queued behind more than the socket holds, and left to the loop.
        let lease = take_leases(&mut stream, &mut client).await.pop().unwrap();
        assert!(poll_once(other.write_owned(pattern(0, 15 << 20))).await.is_none());
        assert!(poll_once(other.write_owned(lease)).await.is_none());
        assert_eq!(take_leases(&mut stream, &mut client).await.len(), MOST - 1);
        let reader = std::thread::spawn(move || {
            peer.read_exact(&mut vec![0; (15 << 20) + 3]).unwrap();
            peer
        });
        eventually("the peer has read", || reader.is_finished()).await;
        other.writable().await.unwrap();
        assert_eq!(take_leases(&mut stream, &mut client).await.len(), MOST);
        drop(reader.join().unwrap());
    });
}

#[test]
fn a_lease_of_a_stream_that_is_gone_counts_against_no_other_in_its_place() {
    const MOST: usize = LEASES_PER_STREAM_MAX as usize;
    let _watched = watched();
    // A row for the listener and one for a stream: each stream stands where the last one stood.
    let runtime = Builder::new().sockets(2).build().unwrap();
    runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        let old = take_leases(&mut stream, &mut client).await;
        drop((stream, client));
        sleep(MILLISECOND).await;
        let (mut stream, mut client) = pair().await;
        let new = take_leases(&mut stream, &mut client).await;
        assert_eq!((old.len(), new.len()), (MOST, MOST));
        drop(old);
        assert_eq!(take_leases(&mut stream, &mut client).await.len(), 0);
        drop(new);
        assert_eq!(take_leases(&mut stream, &mut client).await.len(), MOST);
    });
}

#[test]
fn a_lease_outlives_its_stream_and_its_runtime() {
    let _watched = watched();
    let runtime = Runtime::new().unwrap();
    let lease = runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        client.write_all(pattern(1, 5_000)).unwrap();
        sleep(MILLISECOND * 5).await;
        let lease = stream.read_buf().await.unwrap();
        drop(stream);
        sleep(MILLISECOND).await;
        assert_same(&lease, &pattern(1, 5_000)[..lease.len()]);
        // A new stream in the same place does not count it as its own.
        let (mut stream, mut client) = pair().await;
        client.write_all(b"x").unwrap();
        drop(stream.read_buf().await.unwrap());
        lease
    });
    drop(runtime);
    let other = Runtime::new().unwrap();
    assert_same(&lease, &pattern(1, 5_000)[..lease.len()]);
    other.block_on(async {
        let (mut stream, _client) = pair().await;
        let (result, lease) = stream.write_owned(lease).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_same(&lease, &pattern(1, 5_000)[..lease.len()]);
        drop(lease);
    });
}

#[test]
fn a_read_exact_that_was_dropped_does_not_hold_its_bytes_back_from_a_lease() {
    run(async {
        let (mut stream, mut client) = pair().await;
        client.write_all(b"half").unwrap();
        stream.readable().await.unwrap();
        // A receive into the same buffer is in flight.
        assert!(poll_once(stream.read_exact(&mut [0; 8])).await.is_none());
        yield_now().await;
        assert_eq!(&*stream.read_buf().await.unwrap(), b"half");
        client.write_all(b"more").unwrap();
        assert_eq!(&*stream.read_buf().await.unwrap(), b"more");
    });
}

#[test]
fn owned_buffers_of_every_kind_are_written_whole_and_come_back_the_same() {
    run(async {
        let (mut stream, client) = pair().await;
        let reader = Clients::start(1, {
            let client = std::sync::Arc::new(client);
            move |_| read_slowly(&mut client.try_clone().unwrap()).unwrap()
        });
        // Far more than the socket holds, so that most of each is sent by an operation.
        let long = pattern(2, 5 << 20);
        let vector = long.to_vec();
        let address = vector.as_ptr();
        let (sent, vector) = stream.write_owned(vector).await;
        assert_eq!((sent.unwrap(), vector.as_ptr()), (long.len(), address));
        let boxed = long.to_vec().into_boxed_slice();
        let address = boxed.as_ptr();
        let (sent, boxed) = stream.write_owned(boxed).await;
        assert_eq!((sent.unwrap(), boxed.as_ptr()), (long.len(), address));
        let (sent, back) = stream.write_owned(long).await;
        assert_eq!((sent.unwrap(), back.as_ptr()), (long.len(), long.as_ptr()));
        let (sent, empty) = stream.write_owned(Vec::new()).await;
        assert_eq!((sent.unwrap(), empty), (0, Vec::new()));
        drop(stream);
        let received = reader.join().await.remove(0);
        assert_same(&received, &[long, long, long].concat());
    });
}

#[test]
fn a_dropped_write_goes_on_and_later_writes_stay_behind_it() {
    run(async {
        let (mut stream, client) = pair().await;
        let shared = std::sync::Arc::new(client);
        let client = shared.clone();
        let long = pattern(4, 6 << 20);
        assert!(poll_once(stream.write_owned(long.to_vec())).await.is_none());
        // A second queues behind the first.
        assert!(poll_once(stream.write_owned(b"second".to_vec())).await.is_none());
        let refused = stream.try_write(b"between").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(poll_once(stream.write(b"between")).await.is_none());
        assert!(poll_once(stream.writable()).await.is_none());
        assert!(poll_once(stream.shutdown()).await.is_none());
        let reader = Clients::start(1, move |_| {
            let mut client = shared.try_clone().unwrap();
            read_slowly(&mut client).unwrap()
        });
        stream.writable().await.unwrap();
        stream.write_all(b"third").await.unwrap();
        let (sent, _) = stream.write_owned(&b"fourth"[..]).await;
        assert_eq!(sent.unwrap(), 6);
        stream.shutdown().await.unwrap();
        let received = reader.join().await.remove(0);
        assert_same(&received, &[long, b"second", b"third", b"fourth"].concat());
        drop(client);
    });
}

#[test]
fn what_was_queued_is_delivered_when_the_stream_or_its_writing_half_is_dropped() {
    for by_half in [false, true] {
        let _watched = watched();
        let runtime = Builder::new().drain(support::PATIENCE).build().unwrap();
        let long = pattern(5, 6 << 20);
        let reader = runtime.block_on(async {
            let (mut stream, client) = pair().await;
            assert!(poll_once(stream.write_owned(long.to_vec())).await.is_none());
            let client = std::sync::Arc::new(client);
            let reader =
                Clients::start(1, move |_| read_slowly(&mut client.try_clone().unwrap()).unwrap());
            if by_half {
                let (read, write) = stream.into_split();
                drop(write);
                let received = reader.join().await;
                drop(read);
                return Err(received);
            }
            drop(stream);
            Ok(reader)
        });
        drop(runtime);
        let received = reader.map_or_else(|received| received, Clients::join_blocking);
        assert_same(&received[0], long);
    }
}

#[test]
fn the_buffer_of_a_dropped_write_is_freed_at_its_final_event() {
    let _watched = watched();
    let runtime = Builder::new().buffers(4).build().unwrap();
    runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        // More than the sockets hold, so that what is written next waits.
        assert!(poll_once(stream.write_owned(pattern(0, 15 << 20))).await.is_none());
        client.write_all(b"ping").unwrap();
        let lease = stream.read_buf().await.unwrap();
        assert!(poll_once(stream.write_owned(lease)).await.is_none());
        assert!(poll_once(stream.write_owned(vec![0; 10])).await.is_none());
        let statistics = runtime.statistics().event_loop;
        assert_eq!((statistics.buffers.now, statistics.owned_buffers.now), (1, 3));
        assert_eq!(statistics.orphaned, 3);
        drop(stream);
        let mut drained = Vec::new();
        let reader = std::thread::spawn(move || client.read_to_end(&mut drained).map(|_| drained));
        eventually("all has been sent", || reader.is_finished()).await;
        let received = reader.join().unwrap().unwrap();
        assert_eq!(received[received.len() - 14..], *b"ping\0\0\0\0\0\0\0\0\0\0");
        let statistics = runtime.statistics().event_loop;
        assert_eq!((statistics.buffers.now, statistics.owned_buffers.now), (0, 0));
    });
}

#[test]
fn a_runtime_that_is_dropped_amid_owned_writes_leaks_nothing() {
    let _watched = watched();
    let runtime = Builder::new().drain(Duration::from_millis(50)).build().unwrap();
    let (stream, client) = runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        client.write_all(b"ping").unwrap();
        let lease = stream.read_buf().await.unwrap();
        assert!(poll_once(stream.write_owned(pattern(0, 15 << 20))).await.is_none());
        assert!(poll_once(stream.write_owned(lease)).await.is_none());
        assert!(poll_once(stream.write_owned(vec![1; 1 << 20])).await.is_none());
        (stream, client)
    });
    assert_eq!(runtime.shut_down().leaked, 0);
    let mut stream = stream;
    let std::task::Poll::Ready((result, buffer)) = poll_outside(stream.write_owned(vec![1, 2]))
    else {
        panic!("a write after the end waits")
    };
    assert_eq!(result.unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(buffer, [1, 2]);
    drop(client);
}

#[test]
fn an_owned_write_after_the_peer_is_gone_is_a_broken_pipe_and_gives_the_buffer_back() {
    support::restore_default(libc::SIGPIPE);
    run(async {
        let (mut stream, client) = pair().await;
        support::reset(client);
        stream.readable().await.unwrap();
        let mut error = ErrorKind::ConnectionReset;
        for _ in 0..2 {
            let (result, buffer) = stream.write_owned(b"lost".to_vec()).await;
            assert_eq!(buffer, b"lost");
            error = result.unwrap_err().kind();
        }
        assert_eq!(error, ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_buffer_longer_than_one_transfer_is_sent_whole() {
    run(async {
        // The first few MiB go at once, and what is left is still longer.
        let length = TRANSFER_BYTES_MAX as usize + (64 << 20) + 3;
        // Zeroed pages are the kernel's one page of zeros until they are written.
        let mut long = vec![0_u8; length];
        long[length - 1] = 9;
        let (mut stream, mut client) = pair().await;
        let reader = std::thread::spawn(move || {
            let (mut buffer, mut total, mut last) = (vec![0; 1 << 20], 0, 0);
            loop {
                let count = client.read(&mut buffer).unwrap();
                if count == 0 {
                    return (total, last);
                }
                total += count;
                last = buffer[count - 1];
            }
        });
        let (sent, long) = stream.write_owned(long).await;
        assert_eq!((sent.unwrap(), long.len()), (length, length));
        drop(stream);
        eventually("the peer has it", || reader.is_finished()).await;
        assert_eq!(reader.join().unwrap(), (length, 9));
    });
}

#[test]
fn a_pool_that_is_all_lent_makes_others_wait_until_a_lease_comes_back() {
    let _watched = watched();
    let runtime = Builder::new().buffers(2).build().unwrap();
    let mut leases = runtime.block_on(async {
        let (mut stream, mut client) = pair().await;
        let mut leases = Vec::new();
        for _ in 0..2 {
            client.write_all(b"x").unwrap();
            leases.push(stream.read_buf().await.unwrap());
        }
        let (mut other, mut peer) = pair().await;
        peer.write_all(b"other").unwrap();
        let mut buffer = [0; 5];
        assert!(timeout(MILLISECOND * 5, other.read(&mut buffer)).await.is_err());
        leases.pop();
        assert_eq!(other.read(&mut buffer).await.unwrap(), 5);
        assert_eq!(&buffer, b"other");
        leases
    });
    // Outside the runtime, which is not gone, it comes back too.
    leases.clear();
    assert_eq!(runtime.statistics().event_loop.buffers.now, 0);
}

#[test]
fn a_writer_behind_a_queued_send_waits_without_spinning() {
    wait_behind_a_send(false);
    wait_behind_a_send(true);
}

fn wait_behind_a_send(by_readiness: bool) {
    let _watched = watched();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let (mut stream, client) = pair().await;
        assert!(poll_once(stream.write_owned(pattern(0, 15 << 20))).await.is_none());
        let before = runtime.statistics().event_loop.ticks;
        let reader = std::thread::spawn(move || {
            let mut client = client;
            let mut received = vec![0; 15 << 20];
            for piece in received.chunks_mut(1 << 18) {
                std::thread::sleep(MILLISECOND);
                client.read_exact(piece).unwrap();
            }
            client.read_exact(&mut received[..4]).unwrap();
            received
        });
        if by_readiness {
            stream.writable().await.unwrap();
        } else {
            assert_eq!(stream.write(b"then").await.unwrap(), 4);
        }
        let ticks = runtime.statistics().event_loop.ticks - before;
        if by_readiness {
            stream.write_all(b"then").await.unwrap();
        }
        assert!(ticks < 20, "{ticks} ticks for one event");
        eventually("the peer has read", || reader.is_finished()).await;
        assert_same(&reader.join().unwrap()[4..], &pattern(0, 15 << 20)[4..]);
    });
}

#[test]
fn a_thousand_streams_that_hold_a_lease_each_leave_the_others_their_memory() {
    const LENDERS: usize = 1_000;
    let _watched = watched_alone();
    allow_descriptors(2 * LENDERS as u64 + 200);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let mut lenders = Vec::new();
        for _ in 0..LENDERS {
            let (mut stream, mut client) = pair().await;
            client.write_all(b"1").unwrap();
            let lease = stream.read_buf().await.unwrap();
            // And floods it, as far as TCP lets it.
            client.set_nonblocking(true).unwrap();
            while client.write(&[0; 65_536]).is_ok() {}
            lenders.push((stream, lease, client));
        }
        assert_eq!(runtime.statistics().event_loop.buffers.now, LENDERS as u32);
        let (mut stream, client) = pair().await;
        let client = std::sync::Arc::new(client);
        let clients = Clients::start(1, move |_| {
            let mut client = client.try_clone().unwrap();
            for round in 0..1_000_u16 {
                client.write_all(&round.to_le_bytes()).unwrap();
                let mut answer = [0; 2];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, round.to_le_bytes());
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
        loop {
            let lease = stream.read_buf().await.unwrap();
            if lease.is_empty() {
                break;
            }
            stream.write_owned(lease).await.0.unwrap();
        }
        clients.join().await;
        // Nobody reads, so nothing more was taken in.
        assert!(runtime.statistics().event_loop.buffers.high <= LENDERS as u32 + 2);
        assert!(lenders.iter().all(|(_, lease, _)| &**lease == b"1"));
    });
}

const CONNECTIONS: usize = 1_000;
const BYTES: usize = 80_000;
const THREADS: usize = 4;

/// Fewer futures dropped while they were pending show nothing.
const DROPPED_MIN: usize = 20;

/// Serves 1,000 connections of 80,000 bytes each. `serve` gives what it received and how many
/// futures it dropped.
fn serve_all<F: Future<Output = (Vec<u8>, usize)> + 'static>(
    name: &str,
    serve: impl Fn(TcpStream, usize) -> F,
) {
    let _watched = watched_alone();
    allow_descriptors(2 * CONNECTIONS as u64 + 200);
    let runtime = Runtime::new().unwrap();
    let dropped = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let share = CONNECTIONS / THREADS;
        let clients = Clients::start(THREADS, move |thread| {
            drop(upload(address, thread * share, share, BYTES));
        });
        let dropped = Rc::new(Cell::new(0));
        let mut tasks = Vec::new();
        for number in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await.unwrap();
            let (served, dropped) = (serve(stream, number), dropped.clone());
            tasks.push(rotor::spawn(async move {
                let (received, futures) = served.await;
                check_message(&received, BYTES);
                dropped.set(dropped.get() + futures);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        clients.join().await;
        dropped.get()
    });
    assert_eq!(runtime.statistics().event_loop.buffers.now, 0);
    println!("{name}: {CONNECTIONS} connections of {BYTES} bytes, {dropped} futures dropped");
    assert!(dropped >= DROPPED_MIN, "only {dropped} futures were dropped");
}

#[test]
fn read_buf_dropped_by_polls_and_timeouts_loses_no_byte() {
    serve_all("read_buf", async |mut stream: TcpStream, number| {
        let (mut received, mut dropped) = (Vec::new(), 0);
        let mut kept: Vec<LoopBuf> = Vec::new();
        loop {
            let lease = if dropped % 2 == number % 2 {
                poll_once(stream.read_buf()).await
            } else {
                timeout(MILLISECOND, stream.read_buf()).await.ok()
            };
            let Some(lease) = lease else {
                dropped += 1;
                if dropped % 3 == 0 {
                    sleep(MILLISECOND).await
                } else {
                    yield_now().await
                }
                continue;
            };
            let lease = lease.unwrap();
            if lease.is_empty() {
                break;
            }
            // Some are looked at later, so their buffers must stay as they are.
            kept.push(lease);
            if kept.len() == LEASES_PER_STREAM_MAX as usize {
                kept.drain(..).for_each(|lease| received.extend_from_slice(&lease));
            }
        }
        kept.drain(..).for_each(|lease| received.extend_from_slice(&lease));
        (received, dropped)
    });
}

#[test]
fn peeks_that_are_dropped_and_reads_after_them_lose_no_byte() {
    serve_all("peek", async |mut stream: TcpStream, number| {
        let (mut received, mut dropped) = (Vec::new(), 0);
        let mut random = Random::new(number);
        let (mut seen, mut buffer) = (vec![0; 9_001], vec![0; 9_001]);
        loop {
            let length = random.up_to(9_001);
            let peeked = match poll_once(stream.peek(&mut seen[..length])).await {
                Some(count) => count.unwrap(),
                None => {
                    dropped += 1;
                    match timeout(MILLISECOND, stream.peek(&mut seen[..length])).await {
                        Ok(count) => count.unwrap(),
                        Err(_) => continue,
                    }
                }
            };
            if peeked == 0 {
                return (received, dropped);
            }
            stream.read_exact(&mut buffer[..peeked]).await.unwrap();
            assert_same(&buffer[..peeked], &seen[..peeked]);
            received.extend_from_slice(&buffer[..peeked]);
        }
    });
}

#[test]
fn every_kind_of_read_mixed_and_dropped_loses_no_byte() {
    serve_all("mixed", async |mut stream: TcpStream, number| {
        let (mut received, mut dropped) = (Vec::new(), 0);
        let mut random = Random::new(number);
        // Half of the reads are large enough for the kernel to write into directly.
        let mut buffer = vec![0; 16_000];
        loop {
            let length = random.up_to(16_000);
            let piece = &mut buffer[..length];
            let count = match random.up_to(5) {
                1 => match timeout(MILLISECOND, stream.readable()).await {
                    Ok(ready) => ready.map(|()| stream.try_read(piece).unwrap()).ok(),
                    Err(_) => None,
                },
                2 => match stream.try_read(piece) {
                    Ok(count) => Some(count),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        None
                    }
                },
                3 => match poll_once(stream.read_buf()).await {
                    Some(lease) => {
                        let lease = lease.unwrap();
                        received.extend_from_slice(&lease);
                        if lease.is_empty() {
                            break;
                        }
                        continue;
                    }
                    None => None,
                },
                4 => match poll_once(stream.read_exact(piece)).await {
                    Some(Err(error)) => {
                        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
                        None
                    }
                    Some(count) => count.ok(),
                    None => None,
                },
                _ => timeout(MILLISECOND, stream.read(piece)).await.ok().map(Result::unwrap),
            };
            match count {
                Some(0) => break,
                Some(count) => received.extend_from_slice(&buffer[..count]),
                None => {
                    dropped += 1;
                    yield_now().await;
                }
            }
        }
        (received, dropped)
    });
}
