//! Limits that hold: more clients than rows, and floods nobody reads.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::task::yield_now;
use rotor::time::timeout;
use support::{
    Clients, PATIENCE, allow_descriptors, assert_descriptors, connect, descriptors, eventually,
    poll_once, watched_alone,
};

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 256];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[test]
fn twice_as_many_clients_as_tables_have_rows_are_all_served_in_turn() {
    const ROWS: u32 = 16;
    let _watched = watched_alone();
    // One row more is the listener's, and one is kept for the connection an accept may bring.
    let runtime = Builder::new().sockets(ROWS + 1).tasks(ROWS).operations(64).build().unwrap();
    let served = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clients = Clients::start(2 * ROWS as usize, move |number| {
            let mut served = 0;
            for round in 0..20 {
                let mut client = connect(address);
                let line = format!("client {number} in round {round}\n");
                client.write_all(line.as_bytes()).unwrap();
                let mut answer = vec![0; line.len()];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, line.as_bytes());
                served += 1;
            }
            served
        });
        rotor::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("the others wait in the backlog");
                // Room for the task is part of what accept waits for.
                rotor::task::try_spawn(echo(stream)).expect("accept admits");
            }
        });
        clients.join().await.into_iter().sum::<usize>()
    });
    assert_eq!(served, 2 * ROWS as usize * 20);
    let sockets = runtime.statistics().event_loop.sockets;
    assert!(sockets.high <= sockets.limit);
    println!("{served} connections on {ROWS} rows: {sockets:?}");
}

/// Writes without end until the peer takes no more, on each connection.
fn flood(address: SocketAddr, count: usize) -> Vec<Client> {
    let bytes = [7; 65_536];
    let clients: Vec<Client> = (0..count).map(|_| connect(address)).collect();
    for mut client in &clients {
        client.set_nonblocking(true).unwrap();
        loop {
            match client.write(&bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    clients
}

/// Echo round trips in a time, from a thread of its own, and the loop's ticks meanwhile.
async fn round_trips(runtime: &Runtime, address: SocketAddr, time: Duration) -> (usize, u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicUsize::new(0));
    let (stops, counts) = (stop.clone(), count.clone());
    let client = thread::spawn(move || {
        let mut client = connect(address);
        while !stops.load(Ordering::Relaxed) {
            client.write_all(b"a message of no great length").unwrap();
            client.read_exact(&mut [0; 28]).unwrap();
            counts.fetch_add(1, Ordering::Relaxed);
        }
    });
    eventually("the echo answers", || count.load(Ordering::Relaxed) > 100).await;
    let ticks = || runtime.statistics().event_loop.ticks;
    let (before, ticks_before) = (count.load(Ordering::Relaxed), ticks());
    rotor::time::sleep(time).await;
    let (after, ticks_after) = (count.load(Ordering::Relaxed), ticks());
    stop.store(true, Ordering::Relaxed);
    eventually("the echo's client is done", || client.is_finished()).await;
    client.join().unwrap();
    (after - before, ticks_after - ticks_before)
}

/// What stands still beside an echo costs it no turn of the loop. The rates are for reading: a busy
/// machine changes them between the two measurements.
#[track_caller]
fn assert_left_alone(what: &str, alone: (usize, u64), beside: (usize, u64)) {
    println!("echo: {alone:?} round trips and ticks alone, {beside:?} beside {what}");
    let each = |(trips, ticks): (usize, u64)| ticks as f64 / trips as f64;
    assert!(each(beside) < each(alone) * 1.2 + 0.2, "{what} take turns of the loop");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Streams that stand still beside an echo.
const STILL: usize = 1_000;

/// Measures an echo alone, and then beside what `gather` makes of a listener's connections.
async fn echo_beside<T>(
    runtime: &Runtime,
    what: &str,
    gather: impl AsyncFnOnce(TcpListener) -> T,
) -> T {
    const TIME: Duration = Duration::from_millis(500);
    let echoes = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = echoes.local_addr().unwrap();
    rotor::spawn(async move {
        while let Ok((stream, _)) = echoes.accept().await {
            rotor::spawn(echo(stream));
        }
    });
    let alone = round_trips(runtime, address, TIME).await;
    let gathered = gather(TcpListener::bind("127.0.0.1:0").await.unwrap()).await;
    let beside = round_trips(runtime, address, TIME).await;
    assert_left_alone(what, alone, beside);
    gathered
}

/// A runtime with room for the streams that stand still and a buffer for each.
fn roomy() -> Runtime {
    allow_descriptors(3 * STILL as u64);
    Builder::new().sockets(2_048).buffers(2_048).build().unwrap()
}

#[test]
fn a_thousand_floods_that_nobody_reads_hold_a_buffer_each_and_leave_an_echo_alone() {
    let _watched = watched_alone();
    let runtime = roomy();
    let gather = async |listener: TcpListener| {
        let address = listener.local_addr().unwrap();
        let before = resident_bytes();
        let flooding = thread::spawn(move || flood(address, STILL));
        let mut streams = Vec::new();
        while streams.len() < STILL {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Asked once, so that bytes are in hand, and then nobody reads.
            poll_once(stream.read(&mut [0; 1])).await;
            streams.push(stream);
        }
        eventually("the floods stand still", || flooding.is_finished()).await;
        (before, streams, flooding.join().unwrap())
    };
    runtime.block_on(async {
        let (before, _streams, _clients) = echo_beside(&runtime, "a thousand floods", gather).await;
        let grown = resident_bytes().saturating_sub(before);
        println!("{grown} bytes more");
        // A buffer each, and what the tables' rows take.
        assert!(grown < STILL * (16_384 + 4_096), "{grown} bytes for {STILL} floods");
    });
    let buffers = runtime.statistics().event_loop.buffers;
    assert!(buffers.high <= STILL as u32 + 2, "{buffers:?}");
}

#[test]
fn a_thousand_leases_of_a_byte_hold_a_buffer_each_and_leave_an_echo_alone() {
    let _watched = watched_alone();
    let runtime = roomy();
    let gather = async |listener: TcpListener| {
        let address = listener.local_addr().unwrap();
        let mut held = Vec::new();
        for number in 0..STILL {
            let mut client = connect(address);
            client.write_all(&[number as u8]).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let lease = stream.read_buf().await.unwrap();
            assert_eq!(*lease, [number as u8]);
            held.push((stream, lease, client));
        }
        held
    };
    runtime.block_on(async {
        let held = echo_beside(&runtime, "a thousand leases", gather).await;
        for (number, (_, lease, _)) in held.iter().enumerate() {
            assert_eq!(**lease, [number as u8], "a lease's bytes stay");
        }
    });
    let buffers = runtime.statistics().event_loop.buffers;
    assert!(buffers.high >= STILL as u32 && buffers.high <= STILL as u32 + 2, "{buffers:?}");
    assert_eq!(buffers.now, 0);
}

#[test]
fn reads_that_find_no_buffer_wait_and_lose_nothing() {
    const STREAMS: usize = 50;
    let _watched = watched_alone();
    let runtime = Builder::new().buffers(2).buffer_bytes(512).build().unwrap();
    let received = runtime.block_on(async {
        let listener = Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let clients = Clients::start(STREAMS, move |number| {
            let mut client = connect(address);
            client.write_all(&vec![number as u8; 20_000]).unwrap();
        });
        let mut tasks = Vec::new();
        for _ in 0..STREAMS {
            let (mut stream, _) = listener.accept().await.unwrap();
            tasks.push(rotor::spawn(async move {
                let (mut total, mut buffer) = (0, [0; 300]);
                while let count @ 1.. = stream.read(&mut buffer).await.unwrap() {
                    total += count;
                    yield_now().await;
                }
                total
            }));
        }
        let mut received = 0;
        for task in tasks {
            received += task.await.unwrap();
        }
        clients.join().await;
        received
    });
    assert_eq!(received, STREAMS * 20_000);
    let statistics = runtime.statistics().event_loop;
    assert!(statistics.starved > 0, "the pool was never short");
    assert_eq!(statistics.buffers.now, 0);
}

#[test]
fn operations_that_are_full_are_an_error_with_words_and_the_others_go_on() {
    let _watched = watched_alone();
    let idle = descriptors();
    let runtime = Builder::new().operations(4).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut pairs = Vec::new();
        for _ in 0..6 {
            let client = connect(address);
            pairs.push((listener.accept().await.unwrap().0, client));
        }
        let mut refused = 0;
        for (stream, _) in &mut pairs {
            if let Some(read) = poll_once(stream.read(&mut [0; 1])).await {
                let error = read.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
                assert!(error.to_string().starts_with("all 4 operations are in use"), "{error}");
                refused += 1;
            }
        }
        assert_eq!(refused, 2);
        // One ends, and its place serves the next.
        pairs[0].1.write_all(b"x").unwrap();
        assert_eq!(pairs[0].0.read(&mut [0; 1]).await.unwrap(), 1);
        pairs[5].1.write_all(b"y").unwrap();
        assert_eq!(pairs[5].0.read(&mut [0; 1]).await.unwrap(), 1);
    });
    drop(runtime);
    assert_descriptors(idle);
}

#[test]
fn an_operation_kept_for_a_receive_that_is_wanted_no_more_serves_a_listener_that_waits_for_it() {
    let _watched = watched_alone();
    let runtime = Builder::new().operations(1).build().unwrap();
    for by_drop in [false, true] {
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let first = connect(address);
            let (mut stream, _) = listener.accept().await.unwrap();
            // All in one round: the read has the only operation, and the accept finds none.
            assert!(poll_once(stream.read(&mut [0])).await.is_none());
            let accept = rotor::spawn(async move { listener.accept().await.map(|_| ()) });
            yield_now().await;
            let mut kept = None;
            if by_drop {
                drop(stream);
            } else {
                kept = Some(stream.into_std().await.unwrap());
            }
            let second = connect(address);
            timeout(PATIENCE, accept).await.expect("nobody tried").unwrap().unwrap();
            drop((first, second, kept));
        });
    }
}
