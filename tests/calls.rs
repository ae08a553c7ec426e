//! System calls of a warmed-up server and a warmed-up loop, as strace sees them: at most one
//! `io_uring_enter` a tick, none that maps memory, and no others than those named here.
//!
//! The test runs its own program under strace, with a role in the environment, and talks to it. A
//! recognisable write to standard error marks where the count begins and where it ends.

#[path = "support/backend.rs"]
mod backend;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener as PeerListener, TcpStream as Peer};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Options, Runtime};
use rotor::{DescriptorKind, Event, Loop, Operation, Statistics, Wait};

const ROLE: &str = "ROTOR_CALLS_ROLE";
const MARK: &str = "rotor marks this place";
/// A client that waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(120);

/// Answers that cost no system call where the kernel shares its clock (vdso(7)), and else these.
const CLOCK: [&str; 1] = ["clock_gettime"];

/// The calls that wait, one of which a tick may make.
const WAITS: [&str; 3] = ["io_uring_enter", "epoll_pwait2", "epoll_wait"];

fn mark() {
    // SAFETY: the text is this long and static.
    unsafe { libc::write(2, MARK.as_ptr().cast(), MARK.len()) };
}

/// Tells the statistics at two marks to the tracing process, when the count is over.
fn tell(name: &str, before: &Statistics, after: &Statistics) {
    let ticks = after.ticks - before.ticks;
    let enters = after.backend.enters - before.backend.enters;
    let flushes = after.backend.flushes - before.backend.flushes;
    println!("\ncounted {name} {ticks} {enters} {flushes}");
}

/// What was counted between two marks, by the program and by strace.
#[derive(Debug)]
struct Counted {
    ticks: u64,
    enters: u64,
    flushes: u64,
    calls: BTreeMap<String, u64>,
}

impl Counted {
    /// Nothing but the call that waits, at most once a tick, and calls of the kinds named.
    #[track_caller]
    fn assert_only(&self, named: &[&str]) {
        let entered = WAITS.iter().filter_map(|call| self.calls.get(*call)).sum::<u64>();
        assert_eq!(entered, self.enters, "strace and the statistics agree: {self:?}");
        // Where readiness is told, a wait may end by what nobody waits for, as a peer's end before its
        // row is closed, and goes on.
        let in_vain = if backend::is_uring() { 0 } else { self.ticks / 50 };
        assert!(entered <= self.ticks + in_vain, "one enter a tick: {self:?}");
        assert!(self.flushes == 0, "{self:?}");
        for call in self.calls.keys().map(String::as_str).filter(|call| !WAITS.contains(call)) {
            let is_named = named.contains(&call) || CLOCK.contains(&call);
            assert!(is_named, "`{call}` is not among the calls named: {self:?}");
        }
    }
}

/// A run of this program under strace.
struct Traced {
    child: Child,
    output: BufReader<ChildStdout>,
    trace: PathBuf,
}

/// Says why there is nothing to trace with, if so.
fn lacking() -> Option<String> {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("strace: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Some(format!("strace: {error}")),
    }
}

/// Runs the test called `test` in another process, where it plays a role. `None`, told to standard
/// output, if there is no strace.
fn traced(test: &str, role: &str) -> Option<Traced> {
    if let Some(reason) = lacking() {
        println!("skipped: {reason}");
        return None;
    }
    let name = format!("calls-{role}-{}", std::process::id());
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut child = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    Some(Traced { child, output, trace })
}

impl Traced {
    /// What follows the words in the program's output.
    #[track_caller]
    fn said(&mut self, words: &str) -> String {
        let mut line = String::new();
        let mut all = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(words) {
                return rest.trim().to_string();
            }
            all.push_str(&std::mem::take(&mut line));
        }
        panic!("the traced program never said `{words}`: {all}");
    }

    /// Waits for the end, and gives the counts between the marks, a pair of marks each.
    fn counted(mut self) -> Vec<Counted> {
        let mut said = Vec::new();
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, numbers)) = line.split_once("counted ") {
                let numbers = numbers.split_whitespace().skip(1);
                said.push(numbers.map(|word| word.parse().unwrap()).collect::<Vec<u64>>());
            }
            line.clear();
        }
        assert!(self.child.wait().unwrap().success());
        let trace = std::fs::read_to_string(&self.trace).unwrap();
        let _ = std::fs::remove_file(&self.trace);
        let calls = between_marks(&trace);
        assert_eq!(calls.len(), said.len());
        let pairs = said.into_iter().zip(calls);
        pairs
            .map(|(said, calls)| Counted {
                ticks: said[0],
                enters: said[1],
                flushes: said[2],
                calls,
            })
            .collect()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts calls by name, of the thread that marked, from each odd mark to the even one after it. A
/// line is `thread name(arguments) = result`; of a call in two parts the first part counts.
fn between_marks(trace: &str) -> Vec<BTreeMap<String, u64>> {
    let lines = || {
        trace
            .lines()
            .filter_map(|line| line.trim().split_once(char::is_whitespace))
            .map(|(thread, call)| (thread, call.trim()))
    };
    let marker = lines().find(|(_, call)| call.starts_with("write(2") && call.contains(MARK));
    let (marking, _) = marker.expect("the program marks");
    let mut all = Vec::new();
    let mut inside = None;
    for (thread, call) in lines().filter(|(thread, _)| *thread == marking) {
        if call.starts_with("write(2") && call.contains(MARK) {
            match inside.take() {
                None => inside = Some(BTreeMap::new()),
                Some(calls) => all.push(calls),
            }
        } else if let (Some(calls), Some((name, _))) = (&mut inside, call.split_once('(')) {
            assert!(!thread.is_empty());
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if is_name {
                *calls.entry(name.to_string()).or_insert(0) += 1;
            }
        }
    }
    assert!(inside.is_none(), "an odd number of marks");
    all
}

#[test]
fn calls_are_counted_between_marks_on_the_marking_thread() {
    let trace = "\
7 mmap(NULL, 1) = 0x1
8 write(2, \"rotor marks this place\", 22) = 22
8 io_uring_enter(0, 1) = 1
7 brk(NULL) = 0x1
8 sendto(3, \"brk(\", 4) = 4
8 io_uring_enter(0, 1 <unfinished ...>
8 <... io_uring_enter resumed>) = 1
8 --- SIGCHLD {si_signo=SIGCHLD} ---
8 write(2, \"rotor marks this place\", 22) = 22
8 munmap(0x1) = 0
8 write(2, \"rotor marks this place\", 22) = 22
8 write(2, \"rotor marks this place\", 22) = 22
";
    let counted = between_marks(trace);
    assert_eq!(counted.len(), 2);
    let seen: Vec<_> = counted[0].iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(seen, [("io_uring_enter", 2), ("sendto", 1)]);
    assert!(counted[1].is_empty());
}

/// The traced server: it echoes, marks when it is asked to by an `M`, and leaves at a `Q`.
fn serve() {
    let options = Options { sockets: 128, tasks: 64, task_bytes: 2048, ..Options::default() };
    // For ever, so that tasks can ask for its statistics.
    let runtime: &'static Runtime = Box::leak(Box::new(Runtime::with_options(&options).unwrap()));
    let marks = RefCell::new(Vec::with_capacity(16));
    let marks: &'static RefCell<Vec<Statistics>> = Box::leak(Box::new(marks));
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("\nlistening on {}", listener.local_addr().unwrap());
        let (mut control, _) = listener.accept().await.unwrap();
        drop(rotor::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                drop(rotor::spawn(echo(stream)));
            }
        }));
        let mut order = [0];
        while control.read(&mut order).await.unwrap() == 1 && order[0] == b'M' {
            marks.borrow_mut().push(runtime.statistics().event_loop);
            mark();
            control.write_all(&order).await.unwrap();
        }
    });
    let marks = marks.borrow();
    tell("requests", &marks[0], &marks[1]);
    tell("connections", &marks[2], &marks[3]);
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..count]).await.unwrap();
    }
}

fn connect(address: SocketAddr) -> Peer {
    let peer = Peer::connect(address).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

fn exchange(peer: &mut Peer, length: usize) {
    peer.write_all(&vec![7; length]).unwrap();
    peer.read_exact(&mut vec![0; length]).unwrap();
}

/// What io_uring does inside its one call: a descriptor is registered once, asked once whether it is TCP,
/// and taken out once.
fn assert_registered(calls: &BTreeMap<String, u64>, connections: u64) {
    let (registered, asked) = (calls["epoll_ctl"], calls["getsockopt"]);
    assert!(registered <= 2 * connections + 2, "{registered} registrations of {connections}");
    assert!(asked <= connections + 2, "{asked} questions about {connections} connections");
}

#[test]
fn a_warm_echo_server_enters_once_a_tick_and_makes_only_named_calls() {
    if std::env::var_os(ROLE).is_some() {
        return serve();
    }
    let name = "a_warm_echo_server_enters_once_a_tick_and_makes_only_named_calls";
    let Some(mut server) = traced(name, "server") else { return };
    let address = server.said("listening on ").parse().unwrap();
    let mut control = connect(address);
    let mut order = |word: &[u8; 1]| {
        control.write_all(word).unwrap();
        control.read_exact(&mut [0]).unwrap();
    };

    // Requests: eight clients at once, their connections made and warm before the count.
    let barrier = Barrier::new(9);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let barrier = &barrier;
            scope.spawn(move || {
                let mut peer = connect(address);
                (0..10).for_each(|_| exchange(&mut peer, 900));
                barrier.wait();
                barrier.wait();
                (0..250).for_each(|n| exchange(&mut peer, 1 + (n * 7 + client) % 1000));
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        order(b"M");
        barrier.wait();
        barrier.wait();
        order(b"M");
        barrier.wait();
    });

    // Connections that come, are served, and go, four at a time.
    let cycles = |count: usize| {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..count / 4).for_each(|_| exchange(&mut connect(address), 100)));
            }
        });
    };
    cycles(100);
    order(b"M");
    cycles(500);
    order(b"M");
    control.write_all(b"Q").unwrap();

    let counted = server.counted();
    println!("2,000 requests: {:?}", counted[0]);
    println!("500 connections: {:?}", counted[1]);
    // What is sent at once, and what a socket has more of than the last receive took.
    counted[0].assert_only(&["sendto", "recvfrom"]);
    // And what a close looks at: bytes unread (`FIONREAD`) and unsent (`SIOCOUTQ`).
    let mut named = vec!["sendto", "recvfrom", "close", "ioctl", "shutdown"];
    if !backend::is_uring() {
        named.extend(["accept4", "epoll_ctl", "getsockopt"]);
        assert_registered(&counted[1].calls, 500);
    }
    counted[1].assert_only(&named);
    assert_eq!(counted[0].calls["sendto"], 2000 + 1, "one send a request, and the mark's answer");
    if !backend::is_uring() {
        let received = counted[0].calls["recvfrom"];
        assert!(received <= 2000 + 2, "{received} receives of 2,000 requests: some were in vain");
    }
}

/// The traced loop: both ends of eight connections are its own, so that every call is its own.
fn turn() {
    let options = Options { operations: 256, ring_entries: 256, ..Options::default() };
    let mut event_loop = Loop::new(&options).unwrap();
    let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..8 {
        let one = Peer::connect(listening.local_addr().unwrap()).unwrap();
        let (other, _) = listening.accept().unwrap();
        let one = event_loop.adopt(one.into(), DescriptorKind::Stream).unwrap();
        pairs.push((one, event_loop.adopt(other.into(), DescriptorKind::Stream).unwrap()));
    }
    let mut round = || {
        static BYTES: [u8; 100] = [7; 100];
        let now = event_loop.now();
        for n in 0..50 {
            event_loop.submit(Operation::nop(), n).unwrap();
            event_loop.submit(Operation::timer(now + n * 1000), n).unwrap();
        }
        for (one, other) in &pairs {
            // SAFETY: the bytes are static.
            let send = unsafe { Operation::send(*one, BYTES.as_ptr(), BYTES.len()) };
            event_loop.submit(Operation::receive_picked(*other), 0).unwrap();
            event_loop.submit(send, 0).unwrap();
        }
        let mut left = 100 + 2 * pairs.len();
        let mut events = [Event::EMPTY; 32];
        while left > 0 {
            let came = event_loop.tick(&mut events, Wait::AtMost(PATIENCE)).unwrap();
            for event in &events[..came] {
                event.result().unwrap();
                event.buffer().into_iter().for_each(|buffer| event_loop.return_buffer(buffer));
            }
            left -= came;
        }
        event_loop.statistics()
    };
    let before = round();
    mark();
    let after = (0..100).map(|_| round()).last().unwrap();
    mark();
    tell("rounds", &before, &after);
}

#[test]
fn a_warm_loop_makes_no_call_but_one_enter_a_tick() {
    if std::env::var_os(ROLE).is_some() {
        return turn();
    }
    let Some(traced) = traced("a_warm_loop_makes_no_call_but_one_enter_a_tick", "loop") else {
        return;
    };
    let counted = traced.counted();
    println!("11,600 operations: {:?}", counted[0]);
    let named: &[_] = if backend::is_uring() { &[] } else { &["sendto", "recvfrom"] };
    counted[0].assert_only(named);
}
