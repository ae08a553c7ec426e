//! Nothing is lost by dropping a future: no connection, no byte, no descriptor.

mod support;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream as Client};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::thread;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::Runtime;
use rotor::task::yield_now;
use rotor::time::{sleep, timeout};
use support::{
    Clients, FullListener, MILLISECOND, Random, allow_descriptors, assert_descriptors, assert_same,
    both, check_message, connect, descriptors, eventually, message, pattern, poll_once,
    read_slowly, upload, watched_alone,
};

/// Clients that want to be accepted.
const CLIENTS: usize = 2_000;

/// Connections that send, and what each of them sends.
const CONNECTIONS: usize = 1_000;
const BYTES: usize = 80_000;

/// Threads that hold the connections' other ends.
const THREADS: usize = 4;

/// Fewer futures dropped while they were pending show nothing.
const DROPPED_MIN: usize = 20;

type Accepted = Option<io::Result<(TcpStream, SocketAddr)>>;

/// Accepts all clients by attempts that may come to nothing, and checks that each was served once
/// and that no descriptor is left.
fn accept_all(name: &str, mut attempt: impl AsyncFnMut(&TcpListener) -> Accepted) {
    let _watched = watched_alone();
    let before = descriptors();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let idle = descriptors();
        let clients = Clients::start(THREADS, move |thread| be_greeted(address, thread));
        let (mut accepted, mut dropped) = (0, 0);
        let greeted = Rc::new(Cell::new(0));
        while accepted < CLIENTS {
            clients.check();
            match attempt(&listener).await {
                Some(connection) => {
                    let (stream, _) = connection.unwrap();
                    drop(rotor::spawn(greet(stream, accepted, greeted.clone())));
                    accepted += 1;
                }
                None => dropped += 1,
            }
        }
        let mut greetings: Vec<usize> = clients.join().await.concat();
        greetings.sort_unstable();
        assert!(greetings.iter().copied().eq(0..CLIENTS), "each client is served, once");
        eventually("each connection was served", || greeted.get() == CLIENTS).await;
        eventually("each descriptor is closed", || descriptors() <= idle).await;
        println!("{name}: {accepted} served, {dropped} dropped");
        assert!(dropped >= DROPPED_MIN, "only {dropped} futures were dropped");
    });
    drop(runtime);
    assert_descriptors(before);
}

/// One client after another: each is told a number and leaves.
fn be_greeted(address: SocketAddr, thread: usize) -> Vec<usize> {
    let mut random = Random::new(thread);
    let mut client = || {
        let mut client = connect(address);
        let mut number = [0; 4];
        client.read_exact(&mut number).unwrap();
        thread::sleep(MILLISECOND * (random.up_to(8) as u32 - 1));
        u32::from_le_bytes(number) as usize
    };
    (0..CLIENTS / THREADS).map(|_| client()).collect()
}

async fn greet(mut stream: TcpStream, number: usize, greeted: Rc<Cell<usize>>) {
    stream.write_all(&(number as u32).to_le_bytes()).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    greeted.set(greeted.get() + 1);
}

#[test]
fn accept_polled_once_and_dropped_every_millisecond_loses_no_connection() {
    accept_all("polled once", async |listener| {
        let polled = poll_once(listener.accept()).await;
        sleep(MILLISECOND).await;
        polled
    });
}

#[test]
fn accept_under_timeouts_of_a_millisecond_loses_no_connection() {
    let mut timeouts = 0;
    accept_all("under timeouts", async |listener| {
        let accepted = timeout(MILLISECOND, listener.accept()).await.ok();
        timeouts += u32::from(accepted.is_none());
        if accepted.is_none() && timeouts % 2 == 0 {
            // Now and then nobody waits for a while.
            sleep(MILLISECOND).await;
        }
        accepted
    });
}

/// The client finds its connection closed, one way or the other.
#[track_caller]
fn assert_closed(mut client: Client) {
    match client.read(&mut [0]) {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_listener_dropped_with_a_connection_accepted_but_untaken_closes_it() {
    let _watched = watched_alone();
    let before = descriptors();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let idle = descriptors();
        for _ in 0..50 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            assert!(poll_once(listener.accept()).await.is_none());
            let clients: Vec<_> = (0..4).map(|_| connect(address)).collect();
            let without = idle + 1 + clients.len();
            eventually("one of them is accepted", || descriptors() > without).await;
            drop(listener);
            eventually("it is closed", || descriptors() == idle + clients.len()).await;
            clients.into_iter().for_each(assert_closed);
        }
    });
    drop(runtime);
    assert_descriptors(before);
}

#[test]
fn a_listener_dropped_with_an_accept_in_flight_closes_what_it_brings() {
    let _watched = watched_alone();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let idle = descriptors();
        for round in 0..200 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let early = (round % 2 == 0).then(|| connect(address));
            assert!(poll_once(listener.accept()).await.is_none());
            if round % 4 < 2 {
                yield_now().await;
            }
            let late = (round % 8 < 4).then(|| connect(address));
            drop(listener);
            early.into_iter().chain(late).for_each(|client| {
                client.set_nonblocking(true).unwrap();
                drop(client);
            });
            if round % 3 == 0 {
                sleep(MILLISECOND).await;
            }
        }
        eventually("all of it is closed", || descriptors() <= idle).await;
    });
}

#[test]
fn a_runtime_dropped_with_a_connection_accepted_but_untaken_closes_it() {
    let _watched = watched_alone();
    let before = descriptors();
    for listener_first in [true, false] {
        let runtime = Runtime::new().unwrap();
        let (listener, client) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            assert!(poll_once(listener.accept()).await.is_none());
            let open = descriptors();
            let client = connect(listener.local_addr().unwrap());
            eventually("it is accepted", || descriptors() == open + 2).await;
            (listener, client)
        });
        if listener_first {
            drop(listener);
            drop(runtime);
        } else {
            drop(runtime);
            drop(listener);
        }
        assert_eq!(descriptors(), before + 1);
        assert_closed(client);
        assert_descriptors(before);
    }
}

/// What the connections of one test add up to.
#[derive(Default)]
struct Tally {
    /// Futures dropped while they were pending.
    dropped: Cell<usize>,
    /// Messages received whole.
    received: Cell<usize>,
}

impl Tally {
    fn add(count: &Cell<usize>) {
        count.set(count.get() + 1);
    }
}

/// Accepts all connections and runs `serve` as a task for each. `client` is what a thread does with
/// its connections once it has sent everything.
fn serve_all<F: Future<Output = ()> + 'static>(
    name: &str,
    serve: impl Fn(TcpStream, usize, Rc<Tally>) -> F,
    client: impl Fn(Vec<Client>) + Clone + Send + 'static,
) {
    let _watched = watched_alone();
    allow_descriptors(2 * CONNECTIONS as u64 + 200);
    let tally = Rc::new(Tally::default());
    let before = descriptors();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let idle = descriptors();
        let share = CONNECTIONS / THREADS;
        let clients = Clients::start(THREADS, move |thread| {
            client(upload(address, thread * share, share, BYTES));
        });
        let mut tasks = Vec::new();
        for number in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await.unwrap();
            tasks.push(rotor::spawn(serve(stream, number, tally.clone())));
        }
        for task in tasks {
            task.await.unwrap();
        }
        clients.join().await;
        eventually("each descriptor is closed", || descriptors() <= idle).await;
    });
    drop(runtime);
    assert_descriptors(before);
    let (received, dropped) = (tally.received.get(), tally.dropped.get());
    println!("{name}: {received} connections of {BYTES} bytes, {dropped} futures dropped");
    assert_eq!(received, CONNECTIONS);
    assert!(dropped >= DROPPED_MIN, "only {dropped} futures were dropped");
}

/// Lets the socket receive while no future waits for it.
async fn pause(tally: &Tally) {
    if tally.dropped.get() % 4 == 0 { yield_now().await } else { sleep(MILLISECOND).await }
}

/// Receives to the end by attempts that may come to nothing, and checks the message.
async fn receive(
    tally: &Tally,
    mut attempt: impl AsyncFnMut(&mut [u8]) -> Option<io::Result<usize>>,
) {
    let mut received = Vec::with_capacity(BYTES);
    let mut random = Random::new(tally.dropped.get());
    let mut buffer = vec![0; 9_001];
    loop {
        let length = random.up_to(buffer.len());
        match attempt(&mut buffer[..length]).await {
            None => {
                Tally::add(&tally.dropped);
                pause(tally).await;
            }
            Some(Ok(0)) => break,
            Some(count) => received.extend_from_slice(&buffer[..count.unwrap()]),
        }
    }
    check_message(&received, BYTES);
    Tally::add(&tally.received);
}

#[test]
fn read_polled_once_and_dropped_loses_no_byte() {
    let serve = async |mut stream: TcpStream, _, tally: Rc<Tally>| {
        receive(&tally, async |buffer| poll_once(stream.read(buffer)).await).await;
    };
    serve_all("read polled once", serve, drop);
}

#[test]
fn read_under_timeouts_of_a_millisecond_loses_no_byte() {
    let serve = async |mut stream: TcpStream, _, tally: Rc<Tally>| {
        receive(&tally, async |buffer| timeout(MILLISECOND, stream.read(buffer)).await.ok()).await;
    };
    serve_all("read under timeouts", serve, drop);
}

#[test]
fn read_exact_under_timeouts_of_a_millisecond_loses_no_byte() {
    let serve = async |mut stream: TcpStream, number, tally: Rc<Tally>| {
        // The longest is what a receive buffer holds by default.
        let mut buffer = vec![0; 16_384];
        let mut random = Random::new(number);
        let mut received = Vec::with_capacity(BYTES);
        while received.len() < BYTES {
            let odd = random.up_to(buffer.len());
            let length = if odd % 5 == 0 { buffer.len() } else { odd };
            let whole = &mut buffer[..length.min(BYTES - received.len())];
            match timeout(MILLISECOND, stream.read_exact(whole)).await {
                Err(_) => {
                    Tally::add(&tally.dropped);
                    pause(&tally).await;
                }
                Ok(count) => {
                    assert_eq!(count.unwrap(), whole.len());
                    received.extend_from_slice(whole);
                }
            }
        }
        check_message(&received, BYTES);
        let error = stream.read_exact(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        Tally::add(&tally.received);
    };
    serve_all("read_exact under timeouts", serve, drop);
}

/// Sends a message by attempts that may come to nothing.
async fn send(
    tally: &Tally,
    number: usize,
    mut attempt: impl AsyncFnMut(&[u8]) -> Option<io::Result<usize>>,
) {
    let message = message(number, BYTES);
    let mut random = Random::new(number);
    let mut rest = &message[..];
    while !rest.is_empty() {
        let piece = random.up_to(9_001).min(rest.len());
        match attempt(&rest[..piece]).await {
            None => Tally::add(&tally.dropped),
            Some(count) => rest = &rest[count.unwrap()..],
        }
        if piece % 2 == 0 {
            sleep(MILLISECOND).await;
        }
    }
}

/// What the client reads in the split tests: the server's message, then the end.
fn check_answers(clients: Vec<Client>) {
    for mut client in clients {
        let mut received = Vec::with_capacity(BYTES);
        client.read_to_end(&mut received).unwrap();
        check_message(&received, BYTES);
    }
}

#[test]
fn borrowed_halves_used_side_by_side_lose_no_byte() {
    let serve = async |mut stream: TcpStream, number, tally: Rc<Tally>| {
        let (mut reader, mut writer) = stream.split();
        let read = receive(&tally, async |buffer| poll_once(reader.read(buffer)).await);
        let write = send(&tally, number, async |piece| {
            timeout(MILLISECOND, writer.write(piece)).await.ok()
        });
        both(read, write).await;
    };
    serve_all("borrowed halves", serve, check_answers);
}

#[test]
fn owned_halves_in_two_tasks_lose_no_byte() {
    let serve = async |stream: TcpStream, number, tally: Rc<Tally>| {
        let (mut reader, mut writer) = stream.into_split();
        let counts = tally.clone();
        let read = rotor::spawn(async move {
            let tally = counts;
            receive(&tally, async |buffer| timeout(MILLISECOND, reader.read(buffer)).await.ok())
                .await;
        });
        send(&tally, number, async |piece| poll_once(writer.write(piece)).await).await;
        drop(writer);
        read.await.unwrap();
    };
    serve_all("owned halves", serve, check_answers);
}

#[test]
fn write_polled_once_and_dropped_writes_no_byte_it_did_not_report() {
    const LONG: usize = 12 << 20;
    let _watched = watched_alone();
    let runtime = Runtime::new().unwrap();
    let dropped = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let clients = Clients::start(1, move |_| read_slowly(&mut connect(address)).unwrap());
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut rest = pattern(0, LONG);
        let mut dropped = 0;
        while !rest.is_empty() {
            match poll_once(stream.write(rest)).await {
                Some(count) => rest = &rest[count.unwrap()..],
                None => {
                    dropped += 1;
                    sleep(MILLISECOND).await;
                }
            }
        }
        drop(stream);
        assert_same(&clients.join().await[0], pattern(0, LONG));
        dropped
    });
    println!("write polled once: {LONG} bytes, {dropped} futures dropped");
    assert!(dropped > 0, "the socket was never full");
}

#[test]
fn a_dropped_connect_closes_its_descriptor_exactly_once() {
    const ROUNDS: usize = 240;
    let _watched = watched_alone();
    let full = FullListener::new();
    let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    open.set_nonblocking(true).unwrap();
    let null = File::open("/dev/null").unwrap().metadata().unwrap().rdev();
    let before = descriptors();
    let runtime = Runtime::new().unwrap();
    let mut kept = Vec::new();
    let mut answered = 0;
    runtime.block_on(async {
        let idle = descriptors();
        for round in 0..ROUNDS {
            let waits = round % 2 == 0;
            let to = if waits { full.address } else { open.local_addr().unwrap() };
            let mut connecting = Box::pin(TcpStream::connect(to));
            if round % 3 > 0 {
                assert!(poll_once(connecting.as_mut()).await.is_none());
            }
            if round % 3 > 1 {
                sleep(MILLISECOND).await;
                let expected = idle + kept.len() + 1;
                assert_eq!(descriptors(), expected, "the connect has a descriptor");
            }
            drop(connecting);
            // Files take every number that becomes free: a second close would close one of them.
            kept.push(File::open("/dev/null").unwrap());
            if round % 5 > 0 {
                yield_now().await;
                kept.push(File::open("/dev/null").unwrap());
            }
        }
        eventually("each connect is closed", || descriptors() == idle + kept.len()).await;
        for file in &kept {
            assert_eq!(file.metadata().unwrap().rdev(), null, "another's descriptor was closed");
        }
    });
    drop(runtime);
    assert_eq!(descriptors(), before + kept.len());
    while let Ok((client, _)) = open.accept() {
        client.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(support::PATIENCE)).unwrap();
        assert_closed(client);
        answered += 1;
    }
    println!("{ROUNDS} connects dropped, {answered} of them answered");
    assert!(answered >= ROUNDS / 10, "only {answered} connects reached the listener");
}
