//! Promise 4: a future that is dropped loses nothing. Promise 3: whatever is dropped or forgotten, the
//! kernel writes into no memory that was freed, and the end of a runtime leaks nothing.

use std::cell::Cell;
use std::io::{ErrorKind, IoSlice, Read};
use std::mem::forget;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rotor::net::{TcpListener, TcpSocket, TcpStream};
use rotor::runtime::File;
use rotor::time::{sleep, timeout};
use rotor::{Event, Loop, Operation, OwnedOperation, Wait};

use crate::cancel::pipe;
use crate::rig::*;
use crate::scenario::Outcome;
use crate::tcp::scratch_file;

scenarios! {
    4 accept "a dropped accept keeps its connection" => accept;
    4 accept "a listener that is dropped closes the connections it holds" => listener_dropped;
    4 connect "a dropped connect closes its descriptor once" => connects;
    4 receive "a dropped read leaves its bytes with the stream" => read;
    4 read_exact "a dropped read_exact takes nothing" => read_exact;
    4 read_exact "a read_exact takes all or nothing up to the buffers' limit" => read_exact_limit;
    4 read_buf "a dropped read_buf leaves its bytes with the stream" => read_buf;
    4 ready "dropped peeks and waits for readiness leave all as it was" => readiness;
    4 send "a dropped write has written nothing it did not report" => write;
    4 vectored "a dropped vectored write has written nothing it did not report" => write_vectored;
    4 write_owned "a dropped write of an owned buffer goes on" => write_owned;
    4 shutdown "a dropped shutdown leaves the stream to be shut" => shutdown;
    4 timer "a dropped sleep frees its timer, and others go on" => sleeps;
    4 file "a dropped read at an offset keeps its buffer until the kernel is done" => file;
    4 ready task "a read that one task leaves is another's" => handed_on;
    4 task ready "an aborted task drops its future, and the stream goes on" => aborted;
    3 receive "a forgotten read writes into no memory of the program's" => forgotten_reads;
    3 accept "a forgotten accept harms nothing" => forgotten_accept;
    3 write_owned
        "a forgotten write of an owned buffer keeps it until it is sent" => forgotten_write;
    3 read_buf "a lease outlives its stream and its runtime" => lease;
    3 runtime accept receive read_exact write_owned ready connect timer
        "a runtime ends with everything in flight, and leaks nothing" => everything;
    3 file "a runtime ends with reads that wait in a pipe, and leaks nothing" => piped;
    3 vectored "a forgotten vectored write leaves no memory with the kernel" => forgotten_vectored;
    3 runtime "a runtime ends with a full submission ring, and leaks nothing" => full_ring;
    3 runtime accept receive send poll timer write_owned
        "a loop that is drained is as new" => drained;
    3 runtime accept receive send poll timer write_owned
        "a loop that is dropped with operations in flight ends them first" => loop_dropped;
    3 runtime "tasks are dropped once, inside their runtime" => tasks_dropped;
    3 write_owned "buffers left to the loop are freed at their final event" => abandoned;
    3 connect "a runtime ends while it connects, and closes the descriptor" => connecting;
}

fn accept() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(poll_once(listener.accept()).await.is_none());
        let first = connect(address);
        sleep(2 * MILLISECOND).await;
        // It has arrived: one poll is enough.
        let (_, peer) = poll_once(listener.accept()).await.unwrap().unwrap();
        assert_eq!(peer, first.local_addr().unwrap());
        for _ in 0..50 {
            let client = connect(address);
            let peer = loop {
                let accepting = timeout(Duration::from_micros(50), listener.accept());
                if let Ok(accepted) = accepting.await {
                    break accepted.unwrap().1;
                }
            };
            assert_eq!(peer, client.local_addr().unwrap());
        }
    });
}

fn listener_dropped() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        assert!(poll_once(listener.accept()).await.is_none());
        let mut client = connect(listener.local_addr().unwrap());
        sleep(2 * MILLISECOND).await;
        let idle = descriptors();
        drop(listener);
        ticks().await;
        // The listener's, and the connection's that was accepted and taken by nobody.
        assert_eq!(descriptors(), idle - 2);
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    });
}

fn connects() {
    let address = full_listener();
    run(async {
        let idle = descriptors();
        for _ in 0..10 {
            assert!(poll_once(TcpStream::connect(address)).await.is_none());
            let socket = TcpSocket::new_v4().unwrap();
            assert!(timeout(MILLISECOND, socket.connect(address)).await.is_err());
        }
        eventually("each attempt is closed", || descriptors() <= idle).await;
        // The numbers that were freed are others' now, and stay open.
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        ticks().await;
        assert_eq!(descriptors(), idle + files.len());
    });
}

fn read() {
    run(async {
        let (mut stream, client) = pair().await;
        let mut got = Vec::new();
        for round in 0..50_u8 {
            let mut buffer = [0; 3];
            if round % 2 == 0 {
                assert!(poll_once(stream.read(&mut buffer)).await.is_none());
            }
            deliver(&client, &[round, round, round, round]);
            if round % 3 == 0 {
                ticks().await;
            }
            while got.len() < (usize::from(round) + 1) * 4 {
                if let Some(count) = poll_once(stream.read(&mut buffer)).await {
                    got.extend_from_slice(&buffer[..count.unwrap()]);
                } else {
                    rotor::task::yield_now().await;
                }
            }
        }
        let sent: Vec<u8> = (0..50).flat_map(|round| [round; 4]).collect();
        assert_eq!(got, sent);
    });
}

fn read_exact() -> String {
    run_in(builder().buffer_bytes(64), async {
        let (mut stream, client) = pair().await;
        let mut all = [0; 60];
        assert!(poll_once(stream.read_exact(&mut all)).await.is_none());
        deliver_surely(&client, b"0123456789");
        ticks().await;
        assert!(poll_once(stream.read_exact(&mut all)).await.is_none());
        // A receive behind the ten bytes is in flight; they can be read meanwhile.
        let mut five = [0; 5];
        assert_eq!(poll_once(stream.read(&mut five)).await.unwrap().unwrap(), 5);
        assert_eq!(&five, b"01234");
        deliver_surely(&client, pattern(1, 30));
        ticks().await;
        // 35 bytes are in hand, from the fifth on: 60 fit only after they have moved.
        assert!(poll_once(stream.read_exact(&mut all)).await.is_none());
        deliver(&client, pattern(2, 25));
        assert_eq!(stream.read_exact(&mut all).await.unwrap(), 60);
        assert_eq!(all[..], [&b"56789"[..], pattern(1, 30), pattern(2, 25)].concat());
        deliver(&client, b"end");
        drop(client);
        let error = stream.read_exact(&mut all).await.unwrap_err();
        assert_eq!(stream.read(&mut all).await.unwrap(), 3);
        format!("{:?}", error.kind())
    })
}

fn read_exact_limit() {
    run(async {
        let (mut stream, client) = pair().await;
        let limit = small().buffer_bytes as usize;
        let mut all = vec![0; limit];
        for piece in pattern(0, limit).chunks(999) {
            let bound = Duration::from_micros(300);
            assert!(timeout(bound, stream.read_exact(&mut all)).await.is_err());
            deliver(&client, piece);
        }
        assert_eq!(stream.read_exact(&mut all).await.unwrap(), limit);
        assert_same(&all, pattern(0, limit));
    });
}

fn read_buf() {
    let ((), report) = run_counted(builder(), async |counts| {
        let (mut stream, client) = pair().await;
        for round in 0..20_u8 {
            assert!(poll_once(stream.read_buf()).await.is_none());
            deliver(&client, &[round; 9]);
            if round % 2 == 0 {
                ticks().await;
            }
            assert_eq!(&*stream.read_buf().await.unwrap(), &[round; 9]);
        }
        assert_eq!(counts().event_loop.buffers.now, 0);
    });
    assert_eq!(report.leaked, 0);
}

fn readiness() {
    run(async {
        let (mut stream, client) = pair().await;
        for round in 0..20_u8 {
            assert!(poll_once(stream.readable()).await.is_none());
            assert!(poll_once(stream.peek(&mut [0; 4])).await.is_none());
            deliver(&client, &[round; 4]);
            if round % 2 == 0 {
                ticks().await;
            }
            let mut seen = [0; 4];
            assert_eq!(stream.peek(&mut seen).await.unwrap(), 4);
            assert_eq!(seen, [round; 4]);
            assert_eq!(stream.read(&mut seen).await.unwrap(), 4);
            assert_eq!(seen, [round; 4]);
        }
        fill_stream(&stream);
        for _ in 0..20 {
            assert!(poll_once(stream.writable()).await.is_none());
        }
        let peer = read_all(client);
        stream.writable().await.unwrap();
        drop(stream);
        joined(peer).await.unwrap();
    });
}

/// Writes that are dropped while the socket is full, and then one that is not: what arrives is what was
/// reported.
async fn dropped_writes(vectored: bool) {
    let (mut stream, client) = pair().await;
    let mut reported = fill_stream(&stream);
    for _ in 0..20 {
        let rest = &pattern(0, reported + 100)[reported..];
        let written = if vectored {
            let pieces = [IoSlice::new(&rest[..40]), IoSlice::new(&rest[40..])];
            timeout(Duration::from_micros(100), stream.write_vectored(&pieces)).await
        } else {
            timeout(Duration::from_micros(100), stream.write(rest)).await
        };
        reported += written.map_or(0, |count| count.unwrap());
    }
    let peer = read_all(client);
    while reported < MORE_THAN_FITS {
        let bound = Duration::from_micros(200);
        let rest = &pattern(0, MORE_THAN_FITS)[reported..];
        let written = if vectored {
            timeout(bound, stream.write_vectored(&[IoSlice::new(rest)])).await
        } else {
            timeout(bound, stream.write(rest)).await
        };
        reported += written.map_or(0, |count| count.unwrap());
    }
    drop(stream);
    assert_same(&joined(peer).await.unwrap(), pattern(0, reported));
}

fn write() {
    run(dropped_writes(false));
}

fn write_vectored() {
    run(dropped_writes(true));
}

fn write_owned() {
    let ((), report) = run_counted(builder(), async |counts| {
        let (mut stream, client) = pair().await;
        let long = pattern(1, MORE_THAN_FITS);
        assert!(poll_once(stream.write_owned(long)).await.is_none());
        assert!(poll_once(stream.write_owned(b"second".to_vec())).await.is_none());
        assert_eq!(counts().event_loop.orphaned, 2);
        let peer = read_all(client);
        drop(stream);
        assert_same(&joined(peer).await.unwrap(), &[long, b"second"].concat());
        eventually("both are freed", || counts().event_loop.owned_buffers.now == 0).await;
    });
    assert_eq!((report.leaked, report.resets), (0, 0));
}

fn shutdown() {
    run(async {
        let (mut stream, client) = pair().await;
        assert!(poll_once(stream.write_owned(pattern(0, MORE_THAN_FITS))).await.is_none());
        assert!(poll_once(stream.shutdown()).await.is_none());
        let peer = read_all(client);
        stream.write_all(b"more").await.unwrap();
        stream.shutdown().await.unwrap();
        let all = joined(peer).await.unwrap();
        assert_eq!(all.len(), MORE_THAN_FITS + 4);
        assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

fn sleeps() {
    let ((), _) = run_counted(builder(), async |counts| {
        let other = rotor::spawn(sleep(2 * MILLISECOND));
        for _ in 0..200 {
            // More than the table holds, if they stayed.
            assert!(poll_once(sleep(Duration::from_secs(3600))).await.is_none());
            rotor::task::yield_now().await;
            if counts().event_loop.timers.now > 8 {
                ticks().await;
            }
        }
        other.await.unwrap();
        ticks().await;
        assert_eq!(counts().event_loop.timers.now, 0);
    });
}

fn file() -> Outcome {
    if !has_files() {
        return Outcome::Skip("reads and writes at offsets end with Unsupported on this backend");
    }
    let ((), report) = run_counted(builder(), async |counts| {
        let file = File::adopt(scratch_file()).unwrap();
        let (written, bytes) = file.write_at(pattern(0, 5000).to_vec(), 0).await;
        assert_eq!(written.unwrap(), 5000);
        for _ in 0..50 {
            poll_once(file.read_at(vec![0; 5000], 0)).await;
        }
        let (read, again) = file.read_at(vec![0; 5000], 0).await;
        assert_eq!(read.unwrap(), 5000);
        assert_same(&again, &bytes);
        eventually("all are freed", || counts().event_loop.owned_buffers.now == 0).await;
    });
    assert_eq!(report.leaked, 0);
    ().into()
}

fn handed_on() {
    run(async {
        let (stream, client) = pair().await;
        let stream = Rc::new(stream);
        let peeking = |stream: Rc<TcpStream>| {
            rotor::spawn(async move { stream.peek(&mut [0; 4]).await.unwrap() })
        };
        let (first, second) = (peeking(stream.clone()), peeking(stream.clone()));
        ticks().await;
        first.abort();
        deliver(&client, b"mine");
        assert_eq!(second.await.unwrap(), 4);
        let mut buffer = [0; 4];
        assert_eq!(stream.try_read(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer, b"mine");
    });
}

fn aborted() {
    struct Tells(Rc<Cell<bool>>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    run(async {
        let (stream, client) = pair().await;
        let stream = Rc::new(stream);
        let dropped = Rc::new(Cell::new(false));
        let (its, tells) = (stream.clone(), Tells(dropped.clone()));
        let task = rotor::spawn(async move {
            let _tells = tells;
            its.peek(&mut [0; 8]).await.unwrap()
        });
        ticks().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(dropped.get());
        let mut stream = Rc::into_inner(stream).expect("the task's is gone");
        deliver(&client, b"kept");
        let mut buffer = [0; 8];
        let count = stream.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..count], b"kept");
    });
}

fn forgotten_reads() {
    run(async {
        let (mut stream, client) = pair().await;
        for _ in 0..10 {
            // The memory the future borrows is gone when the bytes arrive.
            let mut buffer = vec![0xaa_u8; 4096];
            {
                let mut reading = Box::pin(stream.read(&mut buffer));
                assert!(poll_once(reading.as_mut()).await.is_none());
                forget(reading);
            }
            drop(buffer);
            let canary = vec![0x55_u8; 4096];
            deliver(&client, &[0xff; 64]);
            ticks().await;
            assert!(canary.iter().all(|&byte| byte == 0x55));
            let mut got = [0; 64];
            assert_eq!(stream.read_exact(&mut got).await.unwrap(), 64);
            assert_eq!(got, [0xff; 64]);
        }
    });
}

fn forgotten_accept() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepting = Box::pin(listener.accept());
        assert!(poll_once(accepting.as_mut()).await.is_none());
        let first = connect(address);
        assert_eq!(accepting.as_mut().await.unwrap().1, first.local_addr().unwrap());
        forget(accepting);
        let second = connect(address);
        assert_eq!(listener.accept().await.unwrap().1, second.local_addr().unwrap());
    });
}

fn forgotten_write() {
    let ((), report) = run_counted(builder(), async |counts| {
        let (mut stream, client) = pair().await;
        let long = pattern(1, MORE_THAN_FITS);
        let mut writing = Box::pin(stream.write_owned(long.to_vec()));
        assert!(poll_once(writing.as_mut()).await.is_none());
        forget(writing);
        assert_eq!(counts().event_loop.owned_buffers.now, 1);
        let peer = read_all(client);
        stream.write_all(b"after").await.unwrap();
        drop(stream);
        assert_same(&joined(peer).await.unwrap(), &[long, b"after"].concat());
    });
    assert_eq!((report.leaked, report.resets), (0, 0));
}

fn piped() -> Outcome {
    if !has_files() {
        return Outcome::Skip("reads and writes at offsets end with Unsupported on this backend");
    }
    let (reading, writing) = pipe();
    let runtime = builder().drain(500 * MILLISECOND).build().unwrap();
    runtime.block_on(async {
        let file = File::adopt(reading).unwrap();
        for number in 0..10 {
            let mut read = Box::pin(file.read_at(vec![0; 64], 0));
            assert!(poll_once(read.as_mut()).await.is_none());
            if number % 2 == 0 {
                forget(read);
            }
        }
        ticks().await;
    });
    assert_eq!(runtime.shut_down().leaked, 0);
    drop(writing);
    ().into()
}

fn forgotten_vectored() {
    run(async {
        let (mut stream, client) = pair().await;
        let written = fill_stream(&stream);
        for _ in 0..10 {
            let bytes = vec![0xaa_u8; 4096];
            let pieces = [IoSlice::new(&bytes), IoSlice::new(&bytes)];
            let mut writing = Box::pin(stream.write_vectored(&pieces));
            assert!(poll_once(writing.as_mut()).await.is_none());
            forget(writing);
        }
        ticks().await;
        let peer = read_all(client);
        stream.write_all(b"end").await.unwrap();
        drop(stream);
        let all = joined(peer).await.unwrap();
        assert_same(&all, &[pattern(0, written), b"end"].concat());
    });
}

fn lease() {
    let runtime = builder().build().unwrap();
    let lease = runtime.block_on(async {
        let (mut stream, client) = pair().await;
        deliver(&client, pattern(1, 3000));
        stream.read_buf().await.unwrap()
    });
    drop(runtime);
    let length = lease.len();
    run(async {
        let (mut stream, _client) = pair().await;
        assert_same(&lease, pattern(1, length));
        let (result, lease) = stream.write_owned(lease).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_same(&lease, pattern(1, length));
    });
}

fn everything() {
    let address = full_listener();
    let idle = descriptors();
    let runtime = builder().drain(50 * MILLISECOND).build().unwrap();
    let kept = runtime.block_on(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let (mut reading, first) = pair().await;
        let (mut writing, second) = pair().await;
        let (ready, third) = pair().await;
        let (mut lent, fourth) = pair().await;
        deliver(&fourth, b"ping");
        let lease = lent.read_buf().await.unwrap();
        rotor::spawn(async move { listener.accept().await.map(drop) });
        rotor::spawn(async move { reading.read(&mut [0; 8]).await });
        rotor::spawn(async move { writing.write_owned(pattern(0, MORE_THAN_FITS)).await.0 });
        rotor::spawn(async move { ready.readable().await });
        rotor::spawn(async move { lent.read_exact(&mut [0; 100]).await });
        rotor::spawn(async move { TcpStream::connect(address).await.map(drop) });
        rotor::spawn(sleep(Duration::MAX));
        sleep(2 * MILLISECOND).await;
        (first, second, third, fourth, lease)
    });
    let report = runtime.shut_down();
    assert_eq!((report.leaked, report.resets), (0, 1), "the write that nobody reads is given up");
    drop(kept);
    assert_eq!(descriptors(), idle);
}

fn full_ring() {
    let runtime = builder().ring_entries(8).drain(PATIENCE).build().unwrap();
    let clients: Vec<_> = runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..30 {
            let (mut stream, client) = pair().await;
            rotor::spawn(async move { stream.read(&mut [0; 8]).await });
            clients.push(client);
        }
        sleep(MILLISECOND).await;
        clients
    });
    assert_eq!(runtime.shut_down().leaked, 0);
    for mut client in clients {
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}

/// Operations of most kinds that wait, on a loop. Gives what must not be closed meanwhile.
fn busy(event_loop: &mut Loop) -> Vec<std::net::TcpStream> {
    let (listening, _) = listener(event_loop);
    let (reading, first) = loop_pair(event_loop);
    let (writing, second) = loop_pair(event_loop);
    fill(event_loop, writing);
    event_loop.submit(Operation::accept_multishot(listening), 1).unwrap();
    event_loop.submit(Operation::receive_multishot(reading), 2).unwrap();
    let owned = OwnedOperation::Receive { descriptor: writing };
    event_loop.submit_owned(owned, vec![0; 100], 3).unwrap();
    let owned = OwnedOperation::Send { descriptor: writing };
    event_loop.submit_owned(owned, vec![0; 100], 4).unwrap();
    event_loop.submit(Operation::poll(reading, rotor::Interest::Readable), 5).unwrap();
    let hour = event_loop.now() + 3_600_000_000_000;
    event_loop.submit(Operation::timer(hour), 6).unwrap();
    settle(event_loop);
    vec![first, second]
}

fn drained() -> String {
    let idle = descriptors();
    let mut event_loop = small_loop();
    let open = descriptors();
    let mut ends = Vec::new();
    for _ in 0..3 {
        let peers = busy(&mut event_loop);
        let drained = event_loop.drain(10 * MILLISECOND);
        let now = event_loop.statistics();
        assert_eq!((now.operations.now, now.timers.now, now.sockets.now), (0, 0, 0));
        assert_eq!(now.owned_buffers.now, 0);
        drop(peers);
        assert_eq!(descriptors(), open);
        ends.push(format!("{} {} {}", drained.leaked, drained.resets, drained.events));
    }
    assert_eq!(finish(&mut event_loop, Operation::nop()).result().unwrap(), 0);
    drop(event_loop);
    assert_eq!(descriptors(), idle);
    ends.join(", ")
}

fn loop_dropped() {
    let idle = descriptors();
    for _ in 0..5 {
        let options = rotor::runtime::Options { drain: 20 * MILLISECOND, ..small() };
        let mut event_loop = Loop::new(&options).unwrap();
        let peers = busy(&mut event_loop);
        drop(event_loop);
        drop(peers);
        assert_eq!(descriptors(), idle);
    }
}

fn tasks_dropped() {
    struct Counted(Rc<Cell<u32>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            // The runtime is still there to be used.
            let _ = rotor::time::Instant::now();
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let runtime = builder().build().unwrap();
    runtime.block_on(async {
        let listener = Rc::new(TcpListener::bind(ANY_PORT).await.unwrap());
        for number in 0..9 {
            let (guard, listener) = (Counted(dropped.clone()), listener.clone());
            rotor::spawn(async move {
                let _guard = guard;
                match number % 3 {
                    0 => drop(listener.accept().await),
                    1 => sleep(Duration::MAX).await,
                    _ => std::future::poll_fn(|_| Poll::Pending).await,
                }
            });
        }
        ticks().await;
    });
    assert_eq!(dropped.get(), 0);
    assert_eq!(runtime.shut_down().leaked, 0);
    assert_eq!(dropped.get(), 9);
}

fn abandoned() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    fill(&mut event_loop, stream);
    let send = OwnedOperation::Send { descriptor: stream };
    let (_, first) = event_loop.submit_owned(send, vec![1; 100], 1).unwrap();
    let receive = OwnedOperation::Receive { descriptor: stream };
    let (_, second) = event_loop.submit_owned(receive, vec![2; 100], 2).unwrap();
    settle(&mut event_loop);
    event_loop.abandon(first);
    event_loop.abandon(second);
    let statistics = event_loop.statistics();
    assert_eq!((statistics.owned_buffers.now, statistics.orphaned), (2, 2));
    deliver(&peer, b"late");
    let event = the_final(&mut event_loop);
    assert_eq!((event.user_data(), event.orphan()), (2, None));
    assert_eq!(event_loop.statistics().owned_buffers.now, 1);
    let all = read_all(peer);
    assert_eq!(the_final(&mut event_loop).user_data(), 1);
    assert_eq!(event_loop.statistics().owned_buffers.now, 0);
    event_loop.submit(Operation::close(stream), 3).unwrap();
    while event_loop.tick(&mut [Event::EMPTY], Wait::Forever).unwrap() == 0 {}
    assert!(all.join().unwrap().unwrap().ends_with(&[1; 100]));
}

fn connecting() {
    let address = full_listener();
    let idle = descriptors();
    let runtime = builder().build().unwrap();
    let mut connecting = Box::pin(TcpStream::connect(address));
    runtime.block_on(async {
        assert!(poll_once(connecting.as_mut()).await.is_none());
        sleep(MILLISECOND).await;
    });
    assert_eq!(runtime.shut_down().leaked, 0);
    drop(connecting);
    assert_eq!(descriptors(), idle);
    // And one whose future is alive and asked again.
    let runtime = builder().build().unwrap();
    let mut late = pin!(TcpStream::connect(address));
    assert!(runtime.block_on(poll_once(late.as_mut())).is_none());
    drop(runtime);
    let Poll::Ready(result) = poll_outside(late) else { panic!("it waits for nobody") };
    assert_eq!(result.unwrap_err().kind(), ErrorKind::NotConnected);
}
