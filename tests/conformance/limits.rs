//! Promise 6: every table has a limit, what is full refuses with words, and nothing is lost by it.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::time::Duration;

use rotor::limits::LEASES_PER_STREAM_MAX;
use rotor::net::{TcpListener, TcpSocket, TcpStream};
use rotor::runtime::{Builder, CreateError, Options, Runtime};
use rotor::time::{sleep, try_sleep};
use rotor::{
    Control, Descriptor, DescriptorKind, Event, Interest, Loop, Operation, OwnedOperation,
    SubmitError, Wait,
};

use crate::rig::*;

scenarios! {
    6 nop accept connect receive send write_owned poll shutdown
        "operations that are full refuse each kind, and lose no buffer" => operations_full;
    6 receive read_exact read_buf ready send vectored accept
        "calls that find no operation are refused with words, and go on later" => calls_refused;
    6 control connect accept file
        "descriptors that are full refuse each way to open one" => sockets_full;
    6 accept
        "an accept takes its row first, and a full table leaves the backlog alone" => accept_waits;
    6 accept "a full server takes clients as places become free" => admits;
    6 accept "without a task's cell nobody is accepted" => admits_by_task;
    6 accept "an accept without a free descriptor says so once, and goes on" => no_descriptor;
    6 timer "timers that are full are refused with words" => timers_full;
    6 task "tasks that are full are refused with words" => tasks_full;
    6 task "a future larger than a cell is boxed, and counted" => large_tasks;
    6 receive "reads that find no buffer wait and lose nothing" => buffers_short;
    6 receive "a silent stream does not keep the only buffer from one with bytes" => only_buffer;
    6 receive "a stream that nobody reads holds one buffer" => one_buffer;
    6 read_buf "leases of a stream are bounded, and reads that copy go on" => leases_bounded;
    6 read_buf "a pool that is all lent makes others wait until a lease comes back" => pool_lent;
    6 connect accept close "places are used again, two hundred times" => used_again;
    6 connect "a connect that finds no operation leaves nothing open" => connect_refused;
    6 write_owned "a buffer that finds no operation comes back" => buffer_comes_back;
    6 runtime "options that no loop can have are refused with words" => options_refused;
    6 runtime
        "memory that is too small is refused with words, and enough is enough" => memory_given;
    6 runtime "memory is reserved at once and touched as it is used" => memory_touched;
    6 runtime "statistics say the most that was in use" => high_water;
}

fn operations_full() {
    let options = Options { operations: 2, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    let (stream, peer) = loop_pair(&mut event_loop);
    let (listening, address) = listener(&mut event_loop);
    let unconnected = open_stream(&mut event_loop, address);
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    event_loop.submit(Operation::accept(listening), 2).unwrap();
    let full = Err(SubmitError::Full { option: "operations", limit: 2 });
    for operation in [
        Operation::nop(),
        Operation::accept(listening),
        Operation::accept_multishot(listening),
        Operation::connect(unconnected, address),
        receive(stream, 8).0,
        Operation::receive_picked(stream),
        Operation::receive_multishot(stream),
        send(stream, b"x"),
        Operation::poll(stream, Interest::Writable),
        Operation::shutdown(stream, std::net::Shutdown::Write),
    ] {
        assert_eq!(event_loop.submit(operation, 9), full, "{operation:?}");
    }
    let owned = OwnedOperation::Send { descriptor: stream };
    let (refused, bytes) = event_loop.submit_owned(owned, vec![3; 8], 9).unwrap_err();
    assert_eq!((Err(refused), bytes), (full, vec![3; 8]));
    assert_eq!(event_loop.statistics().operations.refused, 11);
    let words = refused.to_string();
    assert!(words.contains("raise the option `operations`"), "{words}");
    deliver(&peer, b"x");
    let event = the_final(&mut event_loop);
    take(&mut event_loop, &event);
    assert_eq!(finish(&mut event_loop, Operation::nop()).result().unwrap(), 0);
}

fn is_quota(error: io::Error, option: &str) {
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    assert!(error.to_string().contains(option), "{error}");
}

fn calls_refused() {
    run_in(builder().operations(2), async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut busy, _first) = pair().await;
        let (mut other, _second) = pair().await;
        let (mut stream, client) = pair().await;
        fill_stream(&stream);
        assert!(poll_once(busy.read(&mut [0])).await.is_none());
        assert!(poll_once(other.read(&mut [0])).await.is_none());
        let words = "raise the option `operations`";
        is_quota(stream.read(&mut [0]).await.unwrap_err(), words);
        is_quota(stream.read_exact(&mut [0]).await.unwrap_err(), words);
        is_quota(stream.read_buf().await.map(drop).unwrap_err(), words);
        is_quota(stream.peek(&mut [0]).await.unwrap_err(), words);
        is_quota(stream.readable().await.unwrap_err(), words);
        is_quota(stream.writable().await.unwrap_err(), words);
        is_quota(stream.write(b"x").await.unwrap_err(), words);
        let pieces = [io::IoSlice::new(b"x")];
        is_quota(stream.write_vectored(&pieces).await.unwrap_err(), words);
        // An accept waits, and so do its clients.
        let late = connect(address);
        assert!(poll_once(listener.accept()).await.is_none());
        drop(other);
        ticks().await;
        deliver(&client, b"here");
        assert_eq!(&*stream.read_buf().await.unwrap(), b"here");
        let (_served, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, late.local_addr().unwrap());
    });
}

fn sockets_full() {
    run_in(builder().sockets(2), async {
        let (_stream, _client) = pair().await;
        ticks().await;
        let _listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let plain = std::net::TcpListener::bind(ANY_PORT).unwrap();
        let address = plain.local_addr().unwrap();
        let words = "all 2 sockets are in use; raise the option `sockets`";
        let open = descriptors();
        let connected = connect(address);
        is_quota(TcpStream::from_std(connected).map(drop).unwrap_err(), words);
        is_quota(TcpStream::connect(address).await.map(drop).unwrap_err(), words);
        is_quota(TcpSocket::new_v4().map(drop).unwrap_err(), words);
        is_quota(TcpListener::bind(ANY_PORT).await.map(drop).unwrap_err(), words);
        is_quota(TcpListener::from_std(plain).map(drop).unwrap_err(), words);
        assert_eq!(descriptors(), open - 1, "what was refused is closed");
    });
    let mut event_loop = Loop::new(&Options { sockets: 1, ..small() }).unwrap();
    let (stream, _peer) = loop_pair(&mut event_loop);
    let full = SubmitError::Full { option: "sockets", limit: 1 };
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(event_loop.adopt(file.into(), DescriptorKind::File), Err(full));
    let error = event_loop.control(Control::Duplicate(stream)).unwrap_err();
    is_quota(error, "raise the option `sockets`");
}

fn accept_waits() -> String {
    let mut event_loop = Loop::new(&Options { sockets: 2, ..small() }).unwrap();
    let (listening, address) = listener(&mut event_loop);
    let (held, peer) = loop_pair(&mut event_loop);
    event_loop.submit(Operation::accept(listening), 1).unwrap();
    let client = connect(address);
    settle(&mut event_loop);
    std::thread::sleep(2 * MILLISECOND);
    settle(&mut event_loop);
    let starved = event_loop.statistics().starved;
    event_loop.submit(Operation::close(held), 2).unwrap();
    let events = gather(&mut event_loop, 2);
    let accepted = events.iter().find_map(Event::descriptor).unwrap();
    assert_eq!(event_loop.peer_address(accepted), client.local_addr().ok());
    drop(peer);
    format!("{starved}")
}

/// A server that echoes a byte to each of many clients at once, with few places.
async fn serve(clients: usize) -> usize {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let address = listener.local_addr().unwrap();
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = connect(address);
                io::Write::write_all(&mut client, &[number as u8]).unwrap();
                let mut back = [0];
                io::Read::read_exact(&mut client, &mut back).unwrap();
                assert_eq!(back[0], number as u8);
            })
        })
        .collect();
    let server = rotor::spawn(async move {
        for _ in 0..clients {
            let (mut stream, _) = listener.accept().await.unwrap();
            rotor::spawn(async move {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                sleep(MILLISECOND / 2).await;
                stream.write_all(&byte).await.unwrap();
            });
        }
    });
    let mut served = 0;
    for thread in threads {
        joined(thread).await;
        served += 1;
    }
    server.await.unwrap();
    served
}

fn admits() {
    let (served, _) = run_counted(builder().sockets(4), async |counts| {
        let served = serve(20).await;
        let sockets = counts().event_loop.sockets;
        assert!(sockets.high <= 4, "{sockets:?}");
        served
    });
    assert_eq!(served, 20);
}

fn admits_by_task() {
    // One for the server, and two for its clients.
    let (served, _) = run_counted(builder().tasks(3), async |counts| {
        let served = serve(12).await;
        let executor = counts().executor;
        assert_eq!((executor.tasks_high, executor.refused), (3, 0));
        served
    });
    assert_eq!(served, 12);
}

fn no_descriptor() -> String {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = connect(address);
        let late = connect(address);
        let limited = crate::support::Limited::to_more(1);
        let taken = crate::support::take_all();
        let error = listener.accept().await.map(drop).unwrap_err();
        let again = rotor::time::timeout(20 * MILLISECOND, listener.accept()).await;
        let quiet = again.is_err();
        drop(taken);
        drop(limited);
        for waiting in [client, late] {
            let (_, peer) = woken(listener.accept()).await.unwrap();
            assert_eq!(peer, waiting.local_addr().unwrap());
        }
        format!("{:?} {quiet}", error.raw_os_error())
    })
}

fn timers_full() {
    run_in(builder().timers(2), async {
        let hour = Duration::from_secs(3600);
        let first = try_sleep(hour).unwrap();
        let _second = try_sleep(hour).unwrap();
        is_quota(try_sleep(hour).map(drop).unwrap_err().into(), "raise the option `timers`");
        let panic = rotor::spawn(sleep(hour)).await.unwrap_err().into_panic();
        assert!(words_of(&*panic).contains("raise the option `timers`"));
        drop(first);
        for _ in 0..10 {
            rotor::task::yield_now().await;
        }
        while try_sleep(hour).is_err() {
            rotor::task::yield_now().await;
        }
    });
    let mut event_loop = Loop::new(&Options { timers: 2, ..small() }).unwrap();
    let hour = event_loop.now() + 3_600_000_000_000;
    let (taken, refused) = submit_until_full(&mut event_loop, Operation::timer(hour));
    assert_eq!((taken, refused), (2, SubmitError::Full { option: "timers", limit: 2 }));
}

fn tasks_full() {
    run_in(builder().tasks(2), async {
        let wait = || std::future::pending::<()>();
        let first = rotor::spawn(wait());
        let _second = rotor::spawn(wait());
        let refused = rotor::task::try_spawn(wait()).map(drop).unwrap_err().to_string();
        assert!(
            refused.contains("all 2 tasks are in use") && refused.contains("`tasks`"),
            "{refused}"
        );
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        rotor::task::try_spawn(wait()).unwrap();
    });
}

fn large_tasks() -> String {
    let (boxed, _) = run_counted(builder().task_bytes(256), async |counts| {
        let before = counts().executor;
        let large = [7_u8; 5000];
        let sum = rotor::spawn(async move {
            rotor::task::yield_now().await;
            large.iter().map(|&byte| u32::from(byte)).sum::<u32>()
        });
        assert_eq!(sum.await.unwrap(), 35_000);
        rotor::spawn(async {}).await.unwrap();
        counts().executor.heap_cells_total - before.heap_cells_total
    });
    format!("{boxed}")
}

fn buffers_short() {
    let (starved, _) = run_counted(builder().buffers(2).buffer_bytes(512), async |counts| {
        let listener = Rc::new(TcpListener::bind(ANY_PORT).await.unwrap());
        let address = listener.local_addr().unwrap();
        let mut tasks = Vec::new();
        for number in 0..10_u8 {
            let sender = std::thread::spawn(move || {
                io::Write::write_all(&mut connect(address), &[number; 5000]).unwrap();
            });
            let (mut stream, _) = listener.accept().await.unwrap();
            let reading = rotor::spawn(async move {
                let (mut total, mut buffer) = (0, [0; 300]);
                while let count @ 1.. = stream.read(&mut buffer).await.unwrap() {
                    assert!(buffer[..count].iter().all(|&byte| byte == number));
                    total += count;
                    rotor::task::yield_now().await;
                }
                total
            });
            tasks.push((reading, sender));
        }
        for (reading, sender) in tasks {
            assert_eq!(reading.await.unwrap(), 5000);
            joined(sender).await;
        }
        assert_eq!(counts().event_loop.buffers.now, 0);
        counts().event_loop.buffers.high
    });
    assert!(starved <= 2);
}

fn only_buffer() {
    run_in(builder().buffers(1).buffer_bytes(64), async {
        let (mut holds, first) = pair().await;
        let (mut speaks, second) = pair().await;
        let (mut silent, _third) = pair().await;
        deliver(&first, b"ab");
        // A byte stays in hand, and with it the only buffer.
        holds.read_exact(&mut [0]).await.unwrap();
        let silent = rotor::spawn(async move { silent.read(&mut [0; 8]).await });
        let speaks = rotor::spawn(async move { speaks.read(&mut [0; 8]).await.unwrap() });
        ticks().await;
        deliver(&second, b"hello");
        ticks().await;
        assert!(!speaks.is_finished(), "there is no buffer");
        holds.read_exact(&mut [0]).await.unwrap();
        assert_eq!(woken(speaks).await.unwrap(), 5);
        silent.abort();
    });
}

fn one_buffer() -> String {
    let (high, _) = run_counted(builder(), async |counts| {
        let (mut stream, client) = pair().await;
        let flood = std::thread::spawn(move || {
            let mut client = client;
            io::Write::write_all(&mut client, pattern(0, MORE_THAN_FITS)).unwrap();
        });
        stream.readable().await.unwrap();
        for _ in 0..20 {
            sleep(MILLISECOND / 4).await;
            stream.readable().await.unwrap();
        }
        let buffers = counts().event_loop.buffers;
        assert_same(&read_to_end(&mut stream).await, pattern(0, MORE_THAN_FITS));
        joined(flood).await;
        (buffers.now, buffers.high)
    });
    format!("{high:?}")
}

fn leases_bounded() {
    run(async {
        let (mut stream, client) = pair().await;
        let mut leases = Vec::new();
        for _ in 0..LEASES_PER_STREAM_MAX {
            deliver(&client, b"x");
            leases.push(stream.read_buf().await.unwrap());
        }
        deliver(&client, b"yz");
        is_quota(stream.read_buf().await.map(drop).unwrap_err(), "LEASES_PER_STREAM_MAX");
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
        assert_eq!(&byte, b"y");
        leases.pop();
        assert_eq!(&*stream.read_buf().await.unwrap(), b"z");
    });
}

fn pool_lent() {
    run_in(builder().buffers(2), async {
        let (mut stream, client) = pair().await;
        let mut leases = Vec::new();
        for _ in 0..2 {
            deliver(&client, b"x");
            leases.push(stream.read_buf().await.unwrap());
        }
        let (mut other, peer) = pair().await;
        deliver(&peer, b"waits");
        let reading = rotor::spawn(async move { other.read(&mut [0; 8]).await.unwrap() });
        ticks().await;
        sleep(2 * MILLISECOND).await;
        assert!(!reading.is_finished());
        leases.pop();
        assert_eq!(woken(reading).await.unwrap(), 5);
    });
}

fn used_again() {
    let ((), _) = run_counted(builder().sockets(3).operations(4), async |counts| {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        for round in 0..200_u32 {
            let connecting = rotor::spawn(TcpStream::connect(address));
            let (mut server, _) = listener.accept().await.unwrap();
            let mut client = connecting.await.unwrap().unwrap();
            client.write_all(&round.to_le_bytes()).await.unwrap();
            let mut four = [0; 4];
            server.read_exact(&mut four).await.unwrap();
            assert_eq!(four, round.to_le_bytes());
            drop(client);
            assert_eq!(server.read(&mut four).await.unwrap(), 0);
            drop(server);
            while counts().event_loop.sockets.now > 1 {
                sleep(Duration::ZERO).await;
            }
        }
        assert!(counts().event_loop.sockets.high <= 3);
    });
}

fn connect_refused() {
    run_in(builder().operations(1), async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut busy, _client) = pair().await;
        assert!(poll_once(busy.read(&mut [0])).await.is_none());
        let idle = descriptors();
        let words = "raise the option `operations`";
        is_quota(TcpStream::connect(address).await.map(drop).unwrap_err(), words);
        let socket = TcpSocket::new_v4().unwrap();
        is_quota(socket.connect(address).await.map(drop).unwrap_err(), words);
        eventually("both are closed", || descriptors() == idle).await;
    });
}

fn buffer_comes_back() {
    run_in(builder().operations(1), async {
        let (mut busy, _first) = pair().await;
        let (mut stream, _second) = pair().await;
        fill_stream(&stream);
        assert!(poll_once(busy.read(&mut [0])).await.is_none());
        let bytes = vec![4; 100];
        let address = bytes.as_ptr();
        let (written, bytes) = stream.write_owned(bytes).await;
        is_quota(written.unwrap_err(), "raise the option `operations`");
        assert_eq!((bytes.as_ptr(), bytes.len()), (address, 100));
    });
}

fn options_refused() {
    type Change = fn(&mut Options);
    let cases: [(&str, Change); 11] = [
        ("option `operations`: must be at least 1", |options| options.operations = 0),
        ("option `sockets`: must be at least 1", |options| options.sockets = 0),
        ("option `timers`: must be at least 1", |options| options.timers = 0),
        ("option `buffers`: must be at least 1", |options| options.buffers = 0),
        ("option `buffer_bytes`: must be at least 1", |options| options.buffer_bytes = 0),
        ("option `ring_entries`: must be at least 1", |options| options.ring_entries = 0),
        ("option `ring_entries`: must be a power of two", |options| options.ring_entries = 3),
        ("option `operations`: must be at most", |options| options.operations = u32::MAX),
        ("option `sockets`: must be at most", |options| options.sockets = 1 << 25),
        ("option `buffers`: must be at most 32,768", |options| options.buffers = 32_769),
        ("option `buffer_bytes`: must be at most", |options| options.buffer_bytes = u32::MAX),
    ];
    for (words, change) in cases {
        let mut options = small();
        change(&mut options);
        let error = Loop::new(&options).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
        let error = Runtime::with_options(&options).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    let no_tasks = Builder::new().tasks(0).build().unwrap_err().to_string();
    assert!(no_tasks.starts_with("option `tasks`"), "{no_tasks}");
}

fn memory_given() {
    let options = small();
    let needed = Loop::memory_bytes(&options);
    let memory = Box::leak(vec![MaybeUninit::uninit(); needed + 4096].into_boxed_slice());
    let mut event_loop = Loop::new_in(&options, memory).unwrap();
    let (stream, peer) = loop_pair(&mut event_loop);
    deliver(&peer, b"here");
    let event = finish(&mut event_loop, Operation::receive_picked(stream));
    assert_eq!(take(&mut event_loop, &event), b"here");
    let memory = Box::leak(vec![MaybeUninit::uninit(); needed / 2].into_boxed_slice());
    let refused = Loop::new_in(&options, memory).unwrap_err();
    assert!(matches!(refused, CreateError::MemoryTooSmall { .. }), "{refused}");
    let words = refused.to_string();
    assert!(words.contains("Loop::memory_bytes") && words.contains("was given"), "{words}");
}

/// Bytes of memory in use.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn memory_touched() {
    let options = Options::default();
    let needed = Loop::memory_bytes(&options);
    assert!(needed > 16_384 * 16_384, "the buffers are part of it: {needed}");
    let before = resident_bytes();
    let event_loop = Loop::new(&options).unwrap();
    let touched = resident_bytes().saturating_sub(before);
    assert!(touched < needed / 8, "{touched} of {needed} bytes are touched");
    drop(event_loop);
}

fn high_water() -> String {
    let mut event_loop = small_loop();
    let ends: Vec<(Descriptor, _)> = (0..5).map(|_| loop_pair(&mut event_loop)).collect();
    for (stream, peer) in &ends {
        event_loop.submit(Operation::receive_picked(*stream), 1).unwrap();
        deliver(peer, b"x");
    }
    let hour = event_loop.now() + 3_600_000_000_000;
    let timer = event_loop.submit(Operation::timer(hour), 2).unwrap();
    for event in gather(&mut event_loop, 5) {
        take(&mut event_loop, &event);
    }
    cancel(&mut event_loop, timer);
    for (stream, _) in &ends {
        finish(&mut event_loop, Operation::close(*stream));
    }
    event_loop.tick(&mut [Event::EMPTY], Wait::Zero).unwrap();
    let now = event_loop.statistics();
    let usage = |it: rotor::Usage| (it.now, it.high, it.refused);
    format!("{:?} {:?} {:?}", usage(now.operations), usage(now.timers), usage(now.sockets))
}
