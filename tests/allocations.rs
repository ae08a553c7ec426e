//! A counting allocator: a loop and a warmed-up server allocate nothing, and memory is what
//! `memory_bytes` says. That they map no memory either is shown by `calls.rs`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener as PeerListener, TcpStream as Peer};
use std::rc::Rc;
use std::time::Duration;

use rotor::net::TcpListener;
use rotor::runtime::{Options, Runtime};
use rotor::{Descriptor, DescriptorKind, Event, EventKind, Loop, Operation, Wait};

/// Counts for each thread apart, so that neither clients nor other tests matter.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is the system allocator's. The counters are plain numbers without destructors:
// using them neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's word.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// For peers that wait for an answer: after this long it is lost.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_counter_counts() {
    let before = (allocations(), BYTES.get());
    drop(std::hint::black_box(Box::new(7_u64)));
    assert_eq!((allocations(), BYTES.get()), (before.0 + 1, before.1 + 8));
}

/// A loop, the sockets it talks over, and the peers' ends of them.
struct Exchange {
    event_loop: Loop,
    descriptors: [Descriptor; 8],
    peers: [Peer; 8],
    events: [Event; 64],
}

impl Exchange {
    fn new() -> Exchange {
        let options = Options { operations: 256, ring_entries: 64, ..Options::default() };
        let mut event_loop = Loop::new(&options).unwrap();
        let listening = PeerListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (descriptors, peers): (Vec<_>, Vec<_>) = (0..8)
            .map(|_| {
                let peer = Peer::connect(listening.local_addr().unwrap()).unwrap();
                let ours = listening.accept().unwrap().0;
                // Each byte goes at once, whatever is still on its way.
                peer.set_nodelay(true).unwrap();
                ours.set_nodelay(true).unwrap();
                (event_loop.adopt(ours.into(), DescriptorKind::Stream).unwrap(), peer)
            })
            .unzip();
        Exchange {
            event_loop,
            descriptors: descriptors.try_into().unwrap(),
            peers: peers.try_into().unwrap(),
            events: [Event::EMPTY; 64],
        }
    }

    /// Nops more than the ring has entries, timers, a cancel, and bytes both ways, picked and lent.
    fn round(&mut self) {
        static HELLO: [u8; 100] = [7; 100];
        let mut left = 0;
        for n in 0..100 {
            self.event_loop.submit(Operation::nop(), n).unwrap();
            left += 1;
        }
        let now = self.event_loop.now();
        for n in 0..20 {
            self.event_loop.submit(Operation::timer(now + n * 1000), n).unwrap();
            left += 1;
        }
        let far = self.event_loop.submit(Operation::timer(u64::MAX - 1), 0).unwrap();
        assert!(self.event_loop.cancel(far));
        left += 1;
        for (descriptor, peer) in self.descriptors.iter().zip(&mut self.peers) {
            // SAFETY: the bytes are static.
            let send = unsafe { Operation::send(*descriptor, HELLO.as_ptr(), HELLO.len()) };
            self.event_loop.submit(send, 1).unwrap();
            self.event_loop.submit(Operation::receive_picked(*descriptor), 2).unwrap();
            peer.write_all(&HELLO).unwrap();
            left += 2;
        }
        while left > 0 {
            let longest = Wait::AtMost(Duration::from_secs(1));
            let came = self.event_loop.tick(&mut self.events, longest).unwrap();
            for event in &self.events[..came] {
                assert!(event.result().is_ok() || event.is_canceled(), "{event:?}");
                if let Some(buffer) = event.buffer() {
                    assert_eq!(event.kind(), EventKind::Receive);
                    self.event_loop.return_buffer(buffer);
                }
            }
            left -= came;
        }
        for peer in &mut self.peers {
            peer.read_exact(&mut [0; 100]).unwrap();
        }
    }
}

#[test]
fn a_loop_allocates_nothing_after_its_start() {
    let mut exchange = Exchange::new();
    // Not even a first time: there is no warm-up.
    let before = allocations();
    for _ in 0..200 {
        exchange.round();
    }
    assert_eq!(allocations() - before, 0);
    let statistics = exchange.event_loop.statistics();
    assert!(statistics.events >= 200 * 137);
    exchange.event_loop.drain(Duration::from_secs(5));
    let counted = allocations() - before;
    println!("{} events and {counted} allocations", statistics.events);
    assert_eq!(counted, 0, "nor does a drain");
}

fn for_servers() -> Options {
    Options { sockets: 128, tasks: 64, task_bytes: 2048, ..Options::default() }
}

/// Serves echoes to `connections` clients, one after the other or at once as they come, and gives how
/// many allocations there were between the end of the first `warm_up` of them and the last.
fn serve(runtime: &Runtime, listener: TcpListener, warm_up: u32, connections: u32) -> u64 {
    runtime.block_on(async move {
        let served = Rc::new(Cell::new(0));
        let at_warm_up = Rc::new(Cell::new(0));
        let done = Rc::new(Cell::new(None::<std::task::Waker>));
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (served, at_warm_up, done) = (served.clone(), at_warm_up.clone(), done.clone());
            drop(rotor::spawn(async move {
                stream.set_nodelay(true).unwrap();
                let mut buffer = [0; 1024];
                loop {
                    let count = stream.read(&mut buffer).await.unwrap();
                    if count == 0 {
                        break;
                    }
                    stream.write_all(&buffer[..count]).await.unwrap();
                }
                served.set(served.get() + 1);
                if served.get() == warm_up {
                    at_warm_up.set(allocations());
                }
                if let Some(waker) = done.take() {
                    waker.wake();
                }
            }));
        }
        std::future::poll_fn(|cx| {
            done.set(Some(cx.waker().clone()));
            let is_over = served.get() == connections;
            if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        allocations() - at_warm_up.get()
    })
}

fn bind(runtime: &Runtime) -> (TcpListener, SocketAddr) {
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    })
}

/// One client: requests of all lengths up to more than the server's buffer, then the end.
fn talk(address: SocketAddr, requests: usize) {
    let mut peer = Peer::connect(address).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = [0x33; 3000];
    let mut answer = [0; 3000];
    for n in 0..requests {
        let length = 1 + n * 37 % request.len();
        peer.write_all(&request[..length]).unwrap();
        peer.read_exact(&mut answer[..length]).unwrap();
    }
    peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!(peer.read(&mut answer).unwrap(), 0);
}

#[test]
fn a_warm_echo_server_allocates_nothing_a_request() {
    const CLIENTS: u32 = 8;
    let runtime = Runtime::with_options(&for_servers()).unwrap();
    let (listener, address) = bind(&runtime);
    let clients: Vec<_> = (0..2 * CLIENTS)
        .map(|n| {
            let requests = if n < CLIENTS { 10 } else { 2000 };
            let talk = move || talk(address, requests);
            (n, talk)
        })
        .collect();
    let clients = std::thread::spawn(move || {
        // The first ones warm the server up before the others come.
        let (first, second) = clients.split_at(CLIENTS as usize);
        for group in [first, second] {
            std::thread::scope(|scope| {
                for (_, talk) in group {
                    scope.spawn(talk);
                }
            });
        }
    });
    let counted = serve(&runtime, listener, CLIENTS, 2 * CLIENTS);
    clients.join().unwrap();
    println!("{counted} allocations in {} requests", CLIENTS * 2000);
    assert_eq!(counted, 0);
}

#[test]
fn ten_thousand_connections_come_and_go_without_an_allocation() {
    const WARM_UP: u32 = 200;
    const CYCLES: u32 = 10_000;
    let runtime = Runtime::with_options(&for_servers()).unwrap();
    let (listener, address) = bind(&runtime);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..(WARM_UP + CYCLES) / 4 {
                    talk(address, 1);
                }
            })
        })
        .collect();
    let counted = serve(&runtime, listener, WARM_UP, WARM_UP + CYCLES);
    clients.into_iter().for_each(|client| client.join().unwrap());
    println!("{counted} allocations in {CYCLES} connections");
    assert_eq!(counted, 0);
    let statistics = runtime.statistics();
    assert_eq!(statistics.executor.heap_cells_total, 0);
    assert_eq!(statistics.executor.spawned, u64::from(WARM_UP + CYCLES));
}

#[test]
fn a_warm_server_that_lends_waits_for_readiness_and_keeps_buffers_allocates_nothing() {
    let runtime = Runtime::with_options(&for_servers()).unwrap();
    let (listener, address) = bind(&runtime);
    let client = std::thread::spawn(move || talk(address, 1100));
    let counted = runtime.block_on(async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut buffer = [0; 4096];
        let mut at_warm_up = 0;
        for round in 0.. {
            if round == 100 {
                at_warm_up = allocations();
            }
            stream.readable().await.unwrap();
            if round % 2 == 0 {
                let lease = stream.read_buf().await.unwrap();
                if lease.is_empty() {
                    break;
                }
                stream.write_owned(lease).await.0.unwrap();
            } else {
                let count = stream.try_read(&mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                stream.writable().await.unwrap();
                stream.write_all(&buffer[..count]).await.unwrap();
            }
        }
        allocations() - at_warm_up
    });
    client.join().unwrap();
    assert_eq!(counted, 0);
}

/// What is allocated on this thread while `make` runs.
fn bytes_of<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.get();
    let made = make();
    (made, BYTES.get() - before)
}

#[test]
fn memory_bytes_says_what_a_loop_and_a_runtime_allocate() {
    /// The eventfd's reference counts and the ring's bookkeeping, which no option sizes.
    const FIXED_BYTES: usize = 16 * 1024;
    for options in [Options::default(), for_servers(), Options { tasks: 9, ..for_servers() }] {
        let said = Loop::memory_bytes(&options);
        let (event_loop, allocated) = bytes_of(|| Loop::new(&options).unwrap());
        println!("a loop says {said} and allocates {allocated} bytes");
        assert!((said..said + FIXED_BYTES).contains(&allocated), "{allocated} of {said}");
        drop(event_loop);

        let memory = Box::leak(vec![MaybeUninit::uninit(); said + 4095].into_boxed_slice());
        let (event_loop, allocated) = bytes_of(|| Loop::new_in(&options, memory).unwrap());
        assert!(allocated < FIXED_BYTES, "{allocated} bytes beside the memory handed in");
        drop(event_loop);

        let said = Runtime::memory_bytes(&options);
        let (runtime, allocated) = bytes_of(|| Runtime::with_options(&options).unwrap());
        println!("a runtime says {said} and allocates {allocated} bytes");
        assert!((said..said + FIXED_BYTES).contains(&allocated), "{allocated} of {said}");
        drop(runtime);
    }
}
