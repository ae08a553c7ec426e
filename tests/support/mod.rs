//! What the tests share: clients that are plain threads, bytes that tell their place, counts of
//! descriptors, and a watchdog.
#![allow(dead_code, unreachable_pub)]

use std::any::Any;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream as Client};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::resume_unwind;
use std::pin::pin;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The pause between two attempts, and the bound on one.
pub const MILLISECOND: Duration = Duration::from_millis(1);

/// How long a plain client waits for bytes, and [`eventually`] for what it waits for. It only tells
/// a hang from a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A test that runs. It ends the process with a clear message if it lives longer than five minutes, and
/// keeps its distance to the other tests of its file.
pub struct Watched {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _place: Place,
}

#[derive(Debug)]
enum Place {
    Shared { _with_others: RwLockReadGuard<'static, ()> },
    Alone { _without_others: RwLockWriteGuard<'static, ()> },
}

static PLACE: RwLock<()> = RwLock::new(());

/// How long a test may take before it is said to hang.
const HANGS_AFTER: Duration = Duration::from_secs(300);

/// Begins a test that may run beside others.
pub fn watched() -> Watched {
    let place = PLACE.read().unwrap_or_else(PoisonError::into_inner);
    Watched::begin(Place::Shared { _with_others: place })
}

/// Begins a test that counts the process's descriptors or compares times, and so runs alone.
pub fn watched_alone() -> Watched {
    let place = PLACE.write().unwrap_or_else(PoisonError::into_inner);
    Watched::begin(Place::Alone { _without_others: place })
}

impl Watched {
    fn begin(place: Place) -> Watched {
        let (done, ended) = channel();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let watch = move || {
            if ended.recv_timeout(HANGS_AFTER) == Err(RecvTimeoutError::Timeout) {
                // Written past the capture of the test's output, which dies with the process.
                let _ = writeln!(io::stderr(), "{test} hangs: not done after {HANGS_AFTER:?}");
                process::abort();
            }
        };
        Watched { done: Some(done), thread: Some(thread::spawn(watch)), _place: place }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.done.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How many descriptors the process has open; the one that counts them is among them each time.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until no more descriptors are open: threads of a test before may still have been closing theirs
/// when these were counted.
pub fn assert_descriptors(at_most: usize) {
    let patience = Instant::now() + PATIENCE;
    while descriptors() > at_most && Instant::now() < patience {
        thread::sleep(MILLISECOND);
    }
    assert!(descriptors() <= at_most, "{} are open, {at_most} were", descriptors());
}

/// Raises the process's bound on descriptors to what the test needs.
pub fn allow_descriptors(wanted: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the structure, which outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    assert!(limit.rlim_max >= wanted, "the test needs {wanted} descriptors; raise the hard limit");
    if limit.rlim_cur < wanted {
        limit.rlim_cur = wanted;
        // SAFETY: the kernel only reads the structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    }
}

/// The limit on descriptors while this lives; then the one before.
pub struct Limited(libc::rlimit);

impl Limited {
    /// Lets the process open so many descriptors more than it has.
    pub fn to_more(more: usize) -> Limited {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills the structure, which outlives the call.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before) }, 0);
        // One of those counted is the count's own. Numbers have gaps, which are filled first.
        let highest = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().parse::<u64>().unwrap());
        let lowest_limit = highest.max().unwrap();
        let limit = libc::rlimit { rlim_cur: lowest_limit + more as u64, ..before };
        // SAFETY: the kernel only reads the structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        Limited(before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // SAFETY: the kernel only reads the structure.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) };
    }
}

/// Takes every descriptor there is.
pub fn take_all() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// A small generator, so that odd sizes are odd in the same way in each run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: usize) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ (seed as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from 1 to `most`.
    pub fn up_to(&mut self, most: usize) -> usize {
        (self.next() >> 16) as usize % most + 1
    }
}

/// The longest pattern there is.
const PATTERN_BYTES_MAX: usize = 16 << 20;

static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random::new(0);
    (0..PATTERN_BYTES_MAX / 8).flat_map(|_| random.next().to_le_bytes()).collect()
});

/// Bytes that are others at each place and in each stream.
pub fn pattern(stream: usize, length: usize) -> &'static [u8] {
    let start = stream * 61;
    &PATTERN[start..start + length]
}

/// A message of `length` bytes that names its stream in the first four.
pub fn message(stream: usize, length: usize) -> Vec<u8> {
    let mut bytes = (stream as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(pattern(stream, length - 4));
    bytes
}

/// Checks that a message arrived whole and in order, and answers which stream it names.
#[track_caller]
pub fn check_message(received: &[u8], length: usize) -> usize {
    let (name, _) = received.split_first_chunk().expect("a message of at least four bytes");
    let stream = u32::from_le_bytes(*name) as usize;
    assert!(stream < 100_000, "the first bytes are not a message's: {name:?}");
    assert_same(received, &message(stream, length));
    stream
}

/// Checks that the bytes are these, and says where they differ: whole messages are no use in print.
#[track_caller]
pub fn assert_same(received: &[u8], sent: &[u8]) {
    if received == sent {
        return;
    }
    let same = received.iter().zip(sent).take_while(|(received, sent)| received == sent).count();
    let (received, sent) = (received.len(), sent.len());
    panic!("{received} bytes were received of {sent} sent, and they differ after byte {same}");
}

/// Polls a future once, with the task's waker, and drops it. Nothing if it was pending.
pub async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Polls a future once, in no runtime, with a waker that does nothing.
pub fn poll_outside<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for two futures beside each other, in one task.
pub async fn both<A: Future, B: Future>(first: A, second: B) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut first_done, mut second_done) = (false, false);
    poll_fn(|cx| {
        first_done = first_done || first.as_mut().poll(cx).is_ready();
        second_done = second_done || second.as_mut().poll(cx).is_ready();
        if first_done && second_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits for a future that is to be woken, and not for ever. A timeout alone would poll it once more at
/// the end, and a wake that was lost would go unseen.
pub async fn woken<F: Future>(future: F) -> F::Output {
    const SOON: Duration = Duration::from_secs(10);
    let begun = Instant::now();
    let output = rotor::time::timeout(SOON, future).await.expect("it hangs");
    assert!(begun.elapsed() < SOON, "it was ready, and nobody woke it");
    output
}

/// Waits, in a runtime, until something has become true.
pub async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < PATIENCE, "after {PATIENCE:?} it is still not true that {what}");
        rotor::time::sleep(MILLISECOND).await;
    }
}

/// Plain threads that stand at the other end.
pub struct Clients<T> {
    threads: Vec<JoinHandle<T>>,
    panicked: Arc<AtomicBool>,
}

/// Tells that its thread has panicked.
struct Tells(Arc<AtomicBool>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

impl<T: Send + 'static> Clients<T> {
    /// Runs `client` on `count` threads, with the thread's number.
    pub fn start(count: usize, client: impl Fn(usize) -> T + Clone + Send + 'static) -> Clients<T> {
        let panicked = Arc::new(AtomicBool::new(false));
        let start = |number| {
            let (client, tells) = (client.clone(), Tells(panicked.clone()));
            thread::spawn(move || {
                let _tells = tells;
                client(number)
            })
        };
        Clients { threads: (0..count).map(start).collect(), panicked }
    }

    /// Panics if one of them has, so that nobody waits for it.
    #[track_caller]
    pub fn check(&self) {
        assert!(!self.panicked.load(Ordering::Relaxed), "a client has panicked");
    }

    /// Waits for them in a runtime, which goes on serving meanwhile.
    pub async fn join(self) -> Vec<T> {
        eventually("the clients are done", || self.threads.iter().all(JoinHandle::is_finished))
            .await;
        self.join_blocking()
    }

    /// Waits for them. A panic goes on here.
    pub fn join_blocking(self) -> Vec<T> {
        let joined = self.threads.into_iter().map(JoinHandle::join);
        joined.map(|joined| joined.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    }
}

/// A plain connection whose reads do not wait for ever.
pub fn connect(address: SocketAddr) -> Client {
    let client = Client::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

/// Runs a future on a runtime of its own, watched.
pub fn run<F: Future>(future: F) -> F::Output {
    let _watched = watched();
    rotor::runtime::Runtime::new().unwrap().block_on(future)
}

/// A stream and the plain connection at its other end, which this thread must not block on.
pub async fn pair() -> (rotor::net::TcpStream, Client) {
    let listener = rotor::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = connect(listener.local_addr().unwrap());
    let (stream, _) = listener.accept().await.unwrap();
    (stream, client)
}

/// Sends a message on each of `count` connections, beside each other, in odd pieces with pauses.
/// `first` is the first connection's number. Gives the connections back, their sending side ended.
pub fn upload(address: SocketAddr, first: usize, count: usize, length: usize) -> Vec<Client> {
    let mut random = Random::new(first);
    let messages: Vec<_> = (first..first + count).map(|number| message(number, length)).collect();
    let mut clients: Vec<_> = messages.iter().map(|_| connect(address)).collect();
    let mut sent = vec![0; count];
    while sent.iter().any(|&sent| sent < length) {
        for (number, client) in clients.iter_mut().enumerate() {
            let rest = &messages[number][sent[number]..];
            if rest.is_empty() {
                continue;
            }
            let piece = random.up_to(7_001).min(rest.len());
            client.write_all(&rest[..piece]).unwrap();
            sent[number] += piece;
            if piece == rest.len() {
                client.shutdown(Shutdown::Write).unwrap();
            }
        }
        thread::sleep(MILLISECOND * random.up_to(4) as u32);
    }
    clients
}

/// Reads until the peer ends, gently: a little at a time, with pauses.
pub fn read_slowly(client: &mut Client) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        match client.read(&mut buffer)? {
            0 => return Ok(received),
            count => received.extend_from_slice(&buffer[..count]),
        }
        if received.len() % 7 == 0 {
            thread::sleep(MILLISECOND);
        }
    }
}

/// Closes a connection by a reset.
pub fn reset(client: Client) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(client.as_raw_fd(), libc::SO_LINGER, &at_once);
    drop(client);
}

fn set_option<T>(fd: RawFd, name: i32, value: &T) {
    let length = size_of::<T>() as libc::socklen_t;
    let value: *const T = value;
    // SAFETY: the pointer and the length are those of one value, which the kernel reads.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, value.cast(), length) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Waits until the peer's kernel has everything that was written.
pub fn wait_until_delivered(client: &Client) {
    let begun = Instant::now();
    loop {
        let mut unsent = 0;
        // SAFETY: the kernel writes one `int`, which outlives the call.
        let result = unsafe { libc::ioctl(client.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        if unsent == 0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{unsent} bytes are still not delivered");
        thread::sleep(MILLISECOND);
    }
}

/// Puts a signal back to what it does by default, in the whole process.
pub fn restore_default(signal: i32) {
    // SAFETY: the default disposition runs no code of ours.
    let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

/// The words of a panic.
pub fn words_of(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(words), _) => words,
        (None, Some(words)) => words,
        (None, None) => "a panic without words",
    }
}

/// The file in which a call panics, as the panic's hook is told it.
#[track_caller]
pub fn file_of_panic(call: impl FnOnce()) -> String {
    static HOOK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let (told, hears) = channel();
    let (before, here) = (Arc::new(std::panic::take_hook()), thread::current().id());
    let others = before.clone();
    std::panic::set_hook(Box::new(move |info| {
        if thread::current().id() == here {
            let _ = told.send(info.location().unwrap().file().to_owned());
        } else {
            others(info);
        }
    }));
    let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    std::panic::set_hook(Box::new(move |info| before(info)));
    assert!(called.is_err(), "it did not panic");
    hears.recv().unwrap()
}

/// A plain listener whose queue is full: a connect to it waits.
pub struct FullListener {
    pub address: SocketAddr,
    listener: std::net::TcpListener,
    queued: Vec<Client>,
}

impl FullListener {
    pub fn new() -> FullListener {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: no memory is passed. A second listen only sets the length of the queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(client) = Client::connect_timeout(&address, Duration::from_millis(200)) {
            queued.push(client);
            assert!(queued.len() < 16, "a queue of length 0 takes {} connections", queued.len());
        }
        FullListener { address, listener, queued }
    }
}

/// A port where nobody listens and nobody else can: bound, and what holds it.
pub fn bind_only() -> (OwnedFd, SocketAddr) {
    let mut name = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let mut length = size_of_val(&name) as libc::socklen_t;
    let pointer: *mut libc::sockaddr_in = &raw mut name;
    // SAFETY: the descriptor is new and ours alone; the kernel reads and writes at most `length`
    // bytes of the name, which outlives the calls.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        let fd = OwnedFd::from_raw_fd(fd);
        assert_eq!(libc::bind(fd.as_raw_fd(), pointer.cast(), length), 0);
        assert_eq!(libc::getsockname(fd.as_raw_fd(), pointer.cast(), &raw mut length), 0);
        (fd, (Ipv4Addr::LOCALHOST, u16::from_be(name.sin_port)).into())
    }
}
