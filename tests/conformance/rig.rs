//! What scenarios stand on: small loops and runtimes, connections, events.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as PlainListener, TcpStream as Client};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rotor::backend::Kind;
use rotor::net::TcpStream;
use rotor::runtime::{Builder, Options, Report, RuntimeStatistics};
use rotor::{
    Control, Descriptor, DescriptorKind, Event, Handle, Loop, Operation, Reply, SubmitError, Wait,
};

use crate::support::FullListener;
pub(crate) use crate::support::{
    MILLISECOND, assert_same, bind_only, connect, descriptors, eventually, poll_once, poll_outside,
    reset, restore_default, wait_until_delivered, woken, words_of,
};

/// After this long something that was waited for is lost. Below the suite's own patience, so that the
/// scenario says what.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const ANY_PORT: &str = "127.0.0.1:0";

/// More than the buffers of two sockets hold.
pub(crate) const MORE_THAN_FITS: usize = 15 << 20;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; MORE_THAN_FITS + (1 << 20)];
    for word in bytes.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
});

/// Bytes that are others at each place and in each stream.
pub(crate) fn pattern(stream: usize, length: usize) -> &'static [u8] {
    let start = stream * 61;
    &PATTERN[start..start + length]
}

pub(crate) fn small() -> Options {
    Options {
        operations: 256,
        sockets: 64,
        timers: 64,
        tasks: 64,
        buffers: 64,
        buffer_bytes: 4096,
        ring_entries: 16,
        ..Options::default()
    }
}

pub(crate) fn small_loop() -> Loop {
    Loop::new(&small()).unwrap()
}

/// A builder of a small runtime, whose end waits for slow peers.
pub(crate) fn builder() -> Builder {
    let options = small();
    Builder::new()
        .operations(options.operations)
        .sockets(options.sockets)
        .timers(options.timers)
        .tasks(options.tasks)
        .task_bytes(2048)
        .buffers(options.buffers)
        .buffer_bytes(options.buffer_bytes)
        .drain(PATIENCE)
}

/// Runs a future in a small runtime, which must then end without a leak.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    run_in(builder(), future)
}

/// As [`run`], in a runtime of the scenario's own.
pub(crate) fn run_in<T>(builder: Builder, future: impl Future<Output = T>) -> T {
    let runtime = builder.build().unwrap();
    let output = runtime.block_on(future);
    let statistics = runtime.statistics().event_loop;
    assert_eq!(statistics.stale_completions, 0);
    assert_eq!(runtime.shut_down().leaked, 0);
    output
}

/// Runs a future that is told the runtime's counts, and gives how the runtime ended too.
pub(crate) fn run_counted<T>(
    builder: Builder,
    scenario: impl AsyncFnOnce(&dyn Fn() -> RuntimeStatistics) -> T,
) -> (T, Report) {
    let runtime = builder.build().unwrap();
    let counts = || runtime.statistics();
    let output = runtime.block_on(scenario(&counts));
    assert_eq!(runtime.statistics().event_loop.stale_completions, 0);
    (output, runtime.shut_down())
}

/// Whether this backend keeps files at offsets.
pub(crate) fn has_files() -> bool {
    match rotor::backend().unwrap().kind {
        Kind::IoUring => true,
        Kind::Epoll | Kind::EpollMilliseconds | Kind::Kqueue => false,
    }
}

/// Ticks until `count` events have come.
#[track_caller]
pub(crate) fn gather(event_loop: &mut Loop, count: usize) -> Vec<Event> {
    let begun = Instant::now();
    let mut gathered = Vec::new();
    let mut events = [Event::EMPTY; 64];
    while gathered.len() < count {
        let came = event_loop.tick(&mut events, Wait::AtMost(100 * MILLISECOND)).unwrap();
        gathered.extend_from_slice(&events[..came]);
        let late = begun.elapsed() > PATIENCE;
        assert!(!late, "only {} of {count} events came: {gathered:?}", gathered.len());
    }
    gathered
}

/// The one event that an operation has.
#[track_caller]
pub(crate) fn finish(event_loop: &mut Loop, operation: Operation) -> Event {
    event_loop.submit(operation, 77).unwrap();
    the_final(event_loop)
}

/// The one event there is, which is a final one.
#[track_caller]
pub(crate) fn the_final(event_loop: &mut Loop) -> Event {
    let events = gather(event_loop, 1);
    assert!(events.len() == 1 && !events[0].more(), "{events:?}");
    events[0]
}

/// Lets the kernel see what was submitted. No event is due.
#[track_caller]
pub(crate) fn settle(event_loop: &mut Loop) {
    let mut events = [Event::EMPTY; 8];
    for _ in 0..3 {
        assert_eq!(event_loop.tick(&mut events, Wait::Zero).unwrap(), 0, "{:?}", events[0]);
    }
}

/// Nothing is in flight, and nothing more comes.
#[track_caller]
pub(crate) fn assert_idle(event_loop: &mut Loop) {
    settle(event_loop);
    let statistics = event_loop.statistics();
    let now = (statistics.operations.now, statistics.timers.now, statistics.stale_completions);
    assert_eq!(now, (0, 0, 0));
}

/// Tries again while the machine was so busy that a timer was due before the loop came to wait for it.
pub(crate) fn unhurried<T>(mut attempt: impl FnMut() -> (T, bool)) -> T {
    for _ in 0..20 {
        if let (seen, false) = attempt() {
            return seen;
        }
    }
    panic!("each time a timer was due before the loop came to wait");
}

/// How an operation ended, in a word or two.
pub(crate) fn told(event: &Event) -> String {
    match event.result() {
        Ok(count) => format!("{:?} {count}", event.kind()),
        Err(_) if event.is_canceled() => format!("{:?} canceled", event.kind()),
        Err(error) => format!("{:?} {:?}", event.kind(), error.kind()),
    }
}

pub(crate) fn opened(reply: io::Result<Reply<Descriptor>>) -> Descriptor {
    match reply.unwrap() {
        Reply::Opened(descriptor) => descriptor,
        other => panic!("it opened nothing: {other:?}"),
    }
}

/// A listener of the loop's.
pub(crate) fn listener(event_loop: &mut Loop) -> (Descriptor, SocketAddr) {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let listener = opened(event_loop.control(Control::Listen { address, backlog: 64 }));
    match event_loop.control(Control::LocalAddress(listener)).unwrap() {
        Reply::Address(address) => (listener, address),
        other => panic!("no address: {other:?}"),
    }
}

pub(crate) fn open_stream(event_loop: &mut Loop, to: SocketAddr) -> Descriptor {
    opened(event_loop.control(Control::OpenStream { family_of: to }))
}

/// A connection: one end the loop's, one end the scenario's.
pub(crate) fn loop_pair(event_loop: &mut Loop) -> (Descriptor, Client) {
    let listener = PlainListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = connect(listener.local_addr().unwrap());
    let (ours, _) = listener.accept().unwrap();
    ours.set_nodelay(true).unwrap();
    let descriptor = event_loop.adopt(OwnedFd::from(ours), DescriptorKind::Stream).unwrap();
    (descriptor, peer)
}

/// Sends until nothing more fits; answers how many bytes of `pattern(0, ..)` went.
pub(crate) fn fill(event_loop: &mut Loop, descriptor: Descriptor) -> usize {
    let mut sent = 0;
    loop {
        match event_loop.send_now(descriptor, &pattern(0, MORE_THAN_FITS)[sent..]) {
            Ok(count) => sent += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return sent;
            }
        }
        assert!(sent < MORE_THAN_FITS, "the socket is never full");
    }
}

/// A send of static bytes.
pub(crate) fn send(descriptor: Descriptor, bytes: &'static [u8]) -> Operation {
    // SAFETY: the bytes are static and nothing writes them.
    unsafe { Operation::send(descriptor, bytes.as_ptr(), bytes.len()) }
}

/// Memory for a receive that outlives it: it is never freed.
pub(crate) fn leaked(length: usize) -> &'static mut [u8] {
    Box::leak(vec![0; length].into_boxed_slice())
}

/// A receive into memory that is never freed, and the memory, to be looked at after the final event.
pub(crate) fn receive(descriptor: Descriptor, length: usize) -> (Operation, *const [u8]) {
    let memory = leaked(length);
    let pointer = memory.as_mut_ptr();
    // SAFETY: the memory is never freed, and nobody looks at it before the final event.
    (unsafe { Operation::receive(descriptor, pointer, length) }, std::ptr::from_ref(memory))
}

/// What a receive brought.
pub(crate) fn received(memory: *const [u8], event: &Event) -> Vec<u8> {
    // SAFETY: the memory is never freed, and the receive has had its final event.
    let memory = unsafe { &*memory };
    memory[..event.result().unwrap() as usize].to_vec()
}

/// Takes the bytes of a picked buffer and gives it back.
pub(crate) fn take(event_loop: &mut Loop, event: &Event) -> Vec<u8> {
    let Some(buffer) = event.buffer() else { return Vec::new() };
    let bytes = event_loop.bytes(buffer, 0..event.result().unwrap()).to_vec();
    event_loop.return_buffer(buffer);
    bytes
}

/// Cancels, and gives the final event.
#[track_caller]
pub(crate) fn cancel(event_loop: &mut Loop, handle: Handle) -> Event {
    assert!(event_loop.cancel(handle), "it is over already");
    let event = the_final(event_loop);
    assert!(!event_loop.cancel(handle), "it is over");
    event
}

/// Submits until the table is full; answers how many it took.
pub(crate) fn submit_until_full(event_loop: &mut Loop, operation: Operation) -> (u32, SubmitError) {
    for count in 0.. {
        if let Err(error) = event_loop.submit(operation, u64::from(count)) {
            return (count, error);
        }
    }
    unreachable!("a table has a bound")
}

/// A plain thread that reads to the end and gives what came.
pub(crate) fn read_all(mut client: Client) -> std::thread::JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        io::Read::read_to_end(&mut client, &mut all).map(|_| all)
    })
}

/// Waits in a runtime for what a thread gives.
pub(crate) async fn joined<T>(thread: std::thread::JoinHandle<T>) -> T {
    eventually("the thread has ended", || thread.is_finished()).await;
    thread.join().unwrap()
}

/// Reads to the end.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Writes on the plain end, and waits until all of it is on its way: on the loopback it then lies at the
/// other end, as good as always. Its acknowledgment may take another 40 ms.
pub(crate) fn deliver(client: &Client, bytes: &[u8]) {
    let mut writing = client;
    writing.write_all(bytes).unwrap();
    let begun = Instant::now();
    while unsent(client) > 0 {
        assert!(begun.elapsed() < PATIENCE, "the peer takes nothing");
        std::thread::sleep(MILLISECOND / 20);
    }
    std::thread::sleep(MILLISECOND / 20);
}

/// As [`deliver`], and waits until the other end has acknowledged all of it.
pub(crate) fn deliver_surely(client: &Client, bytes: &[u8]) {
    deliver(client, bytes);
    wait_until_delivered(client);
}

/// Bytes that were written and not sent.
fn unsent(client: &Client) -> i32 {
    /// From linux/sockios.h.
    const SIOCOUTQNSD: libc::c_ulong = 0x894b;
    let mut unsent = 0;
    // SAFETY: the kernel writes one `int`, which outlives the call.
    let result = unsafe { libc::ioctl(client.as_raw_fd(), SIOCOUTQNSD as _, &raw mut unsent) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    unsent
}

/// Where a connect waits for ever: a listener whose queue is full. One for all scenarios of a process,
/// since filling it takes a while.
pub(crate) fn full_listener() -> SocketAddr {
    static FULL: LazyLock<FullListener> = LazyLock::new(FullListener::new);
    FULL.address
}

/// A runtime's stream and the plain connection at its other end, each of which sends at once.
pub(crate) async fn pair() -> (TcpStream, Client) {
    let (stream, client) = crate::support::pair().await;
    stream.set_nodelay(true).unwrap();
    (stream, client)
}

/// Lets the loop tick a few times, with nothing to wait for.
pub(crate) async fn ticks() {
    for _ in 0..3 {
        rotor::time::sleep(Duration::ZERO).await;
    }
}

/// Fills a stream. What comes next waits.
pub(crate) fn fill_stream(stream: &TcpStream) -> usize {
    let mut written = 0;
    loop {
        match stream.try_write(&pattern(0, MORE_THAN_FITS)[written..]) {
            Ok(count) => written += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                return written;
            }
        }
    }
}
