//! The runtime and its streams, end to end, at small sizes.

#[path = "support/backend.rs"]
mod backend;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::time::{Instant, sleep, sleep_until, timeout, try_sleep, try_timeout};

fn runtime() -> Runtime {
    Builder::new().build().unwrap()
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    match panic.downcast_ref::<String>() {
        Some(words) => words.clone(),
        None => (*panic.downcast_ref::<&str>().unwrap()).to_owned(),
    }
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

/// Polls a future once and drops it.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index % 251) as u8).collect()
}

#[test]
fn block_on_gives_what_the_future_gives() {
    let runtime = runtime();
    assert_eq!(runtime.block_on(async { 42 }), 42);
    assert_eq!(runtime.block_on(async { 43 }), 43);
    let chosen = rotor::backend().unwrap();
    assert!(chosen.to_string().starts_with(runtime.backend()), "{}", runtime.backend());
}

#[rotor::test]
async fn tasks_run_and_their_panics_stay_with_them() {
    let shared = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let shared = shared.clone();
            rotor::spawn(async move {
                rotor::task::yield_now().await;
                shared.set(shared.get() + 1);
                number
            })
        })
        .collect();
    for (number, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.await.unwrap(), number);
    }
    assert_eq!(shared.get(), 100);
    let error = rotor::spawn(async { panic!("contained") }).await.unwrap_err();
    assert!(error.is_panic());
}

#[test]
fn spawned_tasks_go_on_in_the_next_block_on() {
    let runtime = runtime();
    let task = runtime.spawn(async {
        sleep(Duration::from_millis(5)).await;
        7
    });
    runtime.block_on(async {});
    assert_eq!(runtime.block_on(task).unwrap(), 7);
}

#[test]
fn nested_block_on_panics_and_the_outer_one_goes_on() {
    let outer = runtime();
    let inner = runtime();
    outer.block_on(async {
        for nested in [&outer, &inner] {
            let panic = catch_unwind(AssertUnwindSafe(|| nested.block_on(async {}))).unwrap_err();
            let words = words_of(&*panic);
            assert!(words.starts_with("rotor: block_on inside a runtime"), "{words}");
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(rotor::spawn(async { 1 }).await.unwrap(), 1);
    });
    assert_eq!(inner.block_on(async { 2 }), 2);
}

#[test]
fn a_panic_of_the_main_future_leaves_the_runtime_usable() {
    let runtime = runtime();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            sleep(Duration::from_millis(1)).await;
            panic!("out of main");
        });
    }));
    assert_eq!(words_of(&*panic.unwrap_err()), "out of main");
    runtime.block_on(sleep_in_a_block());
}

async fn sleep_in_a_block() {
    sleep(Duration::from_millis(1)).await;
}

#[test]
fn outside_a_runtime_there_is_a_clear_panic() {
    let panic = catch_unwind(|| rotor::spawn(async {})).map(drop).unwrap_err();
    assert_eq!(
        words_of(&*panic),
        "rotor: spawn is called outside a runtime; call it inside Runtime::block_on or #[rotor::main]"
    );
    assert!(catch_unwind(|| sleep(Duration::ZERO)).is_err());
}

#[rotor::test]
async fn sleeps_end_in_order_and_never_early() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = [30_u64, 10, 20, 0, 5]
        .into_iter()
        .map(|ms| {
            let order = order.clone();
            rotor::spawn(async move {
                let deadline = Instant::now() + Duration::from_millis(ms);
                let sleep = sleep_until(deadline);
                assert_eq!(sleep.deadline(), deadline);
                sleep.await;
                assert!(Instant::now() >= deadline);
                order.borrow_mut().push(ms);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.borrow(), [0, 5, 10, 20, 30]);
    for nanoseconds in (1..400_000).step_by(13_331) {
        let duration = Duration::from_nanos(nanoseconds);
        let before = Instant::now();
        sleep(duration).await;
        assert!(before.elapsed() >= duration);
    }
}

#[rotor::test]
async fn an_endless_sleep_is_pending_and_a_zero_one_yields() {
    assert!(poll_once(sleep(Duration::MAX)).await.is_none());
    assert!(timeout(Duration::from_millis(2), sleep(Duration::MAX)).await.is_err());
    assert!(poll_once(sleep(Duration::ZERO)).await.is_none());
    let ran = Rc::new(Cell::new(false));
    let other = ran.clone();
    rotor::spawn(async move { other.set(true) });
    sleep(Duration::ZERO).await;
    assert!(ran.get());
}

#[rotor::test]
async fn a_timeout_polls_its_future_first() {
    assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
    let error = timeout(Duration::from_millis(1), std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
    let inside = try_timeout(Duration::from_secs(1), async { 2 }).unwrap();
    assert_eq!(inside.await, Ok(2));
}

#[rotor::test]
async fn a_timeout_ends_a_future_that_spends_the_whole_budget() {
    let (mut client, mut server) = pair().await;
    let flood = rotor::spawn(async move { while client.write(&[0; 4096]).await.is_ok() {} });
    let endless = async {
        let mut byte = [0];
        while server.read(&mut byte).await.is_ok() {}
    };
    assert!(timeout(Duration::from_millis(5), endless).await.is_err());
    flood.abort();
}

#[test]
fn full_timers_are_refused_in_words() {
    let runtime = Builder::new().timers(2).build().unwrap();
    runtime.block_on(async {
        let hour = Duration::from_secs(3600);
        let first = try_sleep(hour).unwrap();
        let _second = try_sleep(hour).unwrap();
        let words = try_sleep(hour).unwrap_err().to_string();
        assert!(words.contains("`timers`"), "{words}");
        let task = rotor::spawn(sleep(hour));
        let panic = task.await.unwrap_err().into_panic();
        assert_eq!(words_of(&*panic), format!("rotor: {words}"));
        drop(first);
        a_tick().await;
        assert!(try_sleep(hour).is_ok());
    });
}

/// Lets the loop tick, so that a canceled timer's final event comes.
async fn a_tick() {
    for _ in 0..2 * rotor::limits::POLLS_PER_TICK_MAX {
        rotor::task::yield_now().await;
    }
}

#[rotor::test]
async fn an_echo_returns_every_byte() {
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    rotor::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            rotor::spawn(async move {
                let mut buffer = vec![0; 50_000];
                loop {
                    let count = stream.read(&mut buffer).await.unwrap();
                    if count == 0 {
                        break;
                    }
                    stream.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    let clients: Vec<_> = (1..=8)
        .map(|number| {
            rotor::spawn(async move {
                let stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                assert!(stream.nodelay().unwrap());
                assert_eq!(stream.peer_addr().unwrap(), address);
                let sent = pattern(number * 300_000);
                let expected = sent.clone();
                let (mut read, mut write) = stream.into_split();
                let writer = rotor::spawn(async move { write.write_all(&sent).await });
                let mut got = vec![0; expected.len()];
                read.read_exact(&mut got).await.unwrap();
                writer.await.unwrap().unwrap();
                assert_eq!(read.read(&mut [0; 8]).await.unwrap(), 0);
                assert!(got == expected);
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}

#[rotor::test]
async fn halves_read_and_write_at_the_same_time_and_reunite() {
    let (mut client, server) = pair().await;
    let (mut read, mut write) = client.split();
    let (mut server_read, mut server_write) = server.into_split();
    let task = rotor::spawn(async move {
        let mut buffer = [0; 4];
        server_read.read_exact(&mut buffer).await.unwrap();
        server_write.write_all(&buffer).await.unwrap();
        server_read.reunite(server_write).unwrap()
    });
    let mut answer = [0; 4];
    {
        let mut reading = pin!(read.read_exact(&mut answer));
        assert!(poll_once(reading.as_mut()).await.is_none());
        write.write_all(b"ping").await.unwrap();
        reading.await.unwrap();
    }
    assert_eq!(&answer, b"ping");
    let server = task.await.unwrap();
    let (_server_read, server_write) = server.into_split();
    server_write.forget();
    assert!(timeout(Duration::from_millis(5), client.read(&mut [0])).await.is_err());
    let (other, _kept) = pair().await;
    let (other_read, other_write) = other.into_split();
    let (client_read, client_write) = client.into_split();
    assert!(client_read.reunite(other_write).is_err());
    drop((other_read, client_write));
}

#[rotor::test]
async fn a_dropped_accept_leaves_the_connection_with_the_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    assert!(poll_once(listener.accept()).await.is_none());
    let mut client = TcpStream::connect(address).await.unwrap();
    sleep(Duration::from_millis(5)).await;
    // It has arrived: one poll is enough.
    let (mut server, peer) = poll_once(listener.accept()).await.unwrap().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    client.write_all(b"x").await.unwrap();
    assert_eq!(server.read(&mut [0]).await.unwrap(), 1);
    for _ in 0..50 {
        let client = TcpStream::connect(address).await.unwrap();
        let (_, peer) = loop {
            match timeout(Duration::from_micros(200), listener.accept()).await {
                Ok(accepted) => break accepted.unwrap(),
                Err(_) => continue,
            }
        };
        assert_eq!(peer, client.local_addr().unwrap());
    }
}

#[rotor::test]
async fn several_tasks_may_accept_and_one_that_leaves_passes_its_turn_on() {
    let listener = Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.clone();
            rotor::spawn(async move { listener.accept().await.unwrap().1 })
        })
        .collect();
    // First in the queue, and gone in the very turn it is woken in.
    tasks[0].abort();
    rotor::task::yield_now().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(address).await.unwrap());
    }
    let mut expected: Vec<SocketAddr> =
        clients.iter().map(|client| client.local_addr().unwrap()).collect();
    let mut served = Vec::new();
    for task in tasks.into_iter().skip(1) {
        served.push(timeout(Duration::from_secs(5), task).await.unwrap().unwrap());
    }
    served.sort();
    expected.sort();
    assert_eq!(served, expected);
}

#[rotor::test]
async fn a_listener_dropped_with_an_untaken_connection_closes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    assert!(poll_once(listener.accept()).await.is_none());
    let mut client = TcpStream::connect(address).await.unwrap();
    sleep(Duration::from_millis(5)).await;
    drop(listener);
    assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
}

#[test]
fn a_full_server_leaves_connections_in_the_backlog() {
    // One task beside main's future: the second connection waits for the first one's end.
    let runtime = Builder::new().tasks(2).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = rotor::spawn(async move {
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().await.unwrap();
                rotor::spawn(async move { stream.read(&mut [0]).await });
            }
        });
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
            sleep(Duration::from_millis(2)).await;
        }
        while let Some(mut client) = clients.pop() {
            client.shutdown().await.unwrap();
            sleep(Duration::from_millis(2)).await;
            clients.reverse();
        }
        timeout(Duration::from_secs(5), server).await.unwrap().unwrap();
    });
}

#[rotor::test]
async fn a_dropped_read_leaves_its_bytes_with_the_stream() {
    let (mut client, mut server) = pair().await;
    assert!(poll_once(server.read(&mut [0; 16])).await.is_none());
    client.write_all(b"kept").await.unwrap();
    sleep(Duration::from_millis(5)).await;
    let mut buffer = [0; 3];
    assert_eq!(poll_once(server.read(&mut buffer)).await.unwrap().unwrap(), 3);
    assert_eq!(&buffer, b"kep");
    assert_eq!(server.read(&mut []).await.unwrap(), 0);
    assert_eq!(server.read(&mut buffer).await.unwrap(), 1);
    assert_eq!(buffer[0], b't');
    drop(client);
    assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
    assert_eq!(server.read(&mut buffer).await.unwrap(), 0);
}

#[rotor::test(buffer_bytes = 64)]
async fn a_dropped_read_exact_takes_nothing() {
    let (mut client, mut server) = pair().await;
    let mut all = [0; 60];
    assert!(poll_once(server.read_exact(&mut all)).await.is_none());
    client.write_all(b"0123456789").await.unwrap();
    sleep(Duration::from_millis(5)).await;
    assert!(poll_once(server.read_exact(&mut all)).await.is_none());
    // The receive behind the ten bytes is in flight; they can be read meanwhile.
    let mut five = [0; 5];
    assert_eq!(poll_once(server.read(&mut five)).await.unwrap().unwrap(), 5);
    assert_eq!(&five, b"01234");
    client.write_all(&pattern(30)).await.unwrap();
    sleep(Duration::from_millis(5)).await;
    // 35 bytes are in hand, from the fifth on: 60 fit only after they have moved.
    assert!(timeout(Duration::from_millis(5), server.read_exact(&mut all)).await.is_err());
    client.write_all(&pattern(40)).await.unwrap();
    assert_eq!(server.read_exact(&mut all).await.unwrap(), 60);
    assert_eq!(&all[..5], b"56789");
    assert_eq!(&all[5..35], pattern(30));
    assert_eq!(&all[35..], pattern(25));
    let mut rest = [0; 15];
    assert_eq!(server.read_exact(&mut rest).await.unwrap(), 15);
    assert_eq!(&rest, &pattern(40)[25..]);
    client.write_all(b"end").await.unwrap();
    drop(client);
    let error = server.read_exact(&mut all).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(server.read(&mut all).await.unwrap(), 3);
    assert_eq!(&all[..3], b"end");
    assert_eq!(server.read(&mut all).await.unwrap(), 0);
}

#[rotor::test(buffer_bytes = 128)]
async fn short_timeouts_lose_no_byte() {
    let (mut client, mut server) = pair().await;
    let writer = rotor::spawn(async move {
        for chunk in pattern(20_000).chunks(37) {
            client.write_all(chunk).await.unwrap();
            rotor::task::yield_now().await;
        }
    });
    let mut got = Vec::new();
    let mut turn = 0_usize;
    while got.len() < 20_000 {
        turn += 1;
        let mut buffer = vec![0; (turn % 100 + 1).min(20_000 - got.len())];
        let bound = Duration::from_micros(turn as u64 % 60);
        let count = if turn % 3 == 0 {
            timeout(bound, server.read(&mut buffer)).await
        } else {
            timeout(bound, server.read_exact(&mut buffer)).await
        };
        if let Ok(count) = count {
            got.extend_from_slice(&buffer[..count.unwrap()]);
        }
    }
    assert!(got == pattern(20_000));
    writer.await.unwrap();
}

#[rotor::test]
async fn a_refused_connection_is_an_error_and_leaves_nothing_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    sleep(Duration::from_millis(2)).await;
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..20 {
        TcpStream::connect(address).await.unwrap_err();
        poll_once(TcpStream::connect("192.0.2.1:9")).await;
        sleep(Duration::from_micros(300)).await;
    }
    sleep(Duration::from_millis(20)).await;
    let now_open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(now_open <= open + 8, "{open} before, {now_open} after");
    let error = TcpStream::connect("example.org:80").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    let both = [address, address];
    assert!(TcpStream::connect(&both[..]).await.is_err());
    let none: [SocketAddr; 0] = [];
    let error = TcpStream::connect(&none[..]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[rotor::test]
async fn a_full_socket_is_waited_for() {
    let (mut client, mut server) = pair().await;
    let sent = pattern(8 << 20);
    let expected = sent.len();
    let writer = rotor::spawn(async move {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        let error = client.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    });
    sleep(Duration::from_millis(20)).await;
    let mut buffer = vec![0; 100_000];
    let mut total = 0;
    loop {
        let count = server.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        for (place, byte) in buffer[..count].iter().enumerate() {
            assert_eq!(*byte, ((total + place) % 251) as u8);
        }
        total += count;
    }
    assert_eq!(total, expected);
    writer.await.unwrap();
}

#[test]
fn an_object_outlives_its_runtime_and_says_so() {
    let first = runtime();
    let (mut stream, listener, file) = first.block_on(async {
        let (stream, _server) = pair().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        (stream, listener, rotor::runtime::File::adopt(file).unwrap())
    });
    let second = runtime();
    let panic = catch_unwind(AssertUnwindSafe(|| second.block_on(stream.read(&mut [0]))));
    assert_eq!(
        words_of(&*panic.unwrap_err()),
        "rotor: this TcpStream belongs to another runtime on this thread; use it inside that runtime's block_on"
    );
    // Dropped inside another runtime: its own is alive and closes it.
    let dropped = first.block_on(pair()).0;
    second.block_on(async move { drop(dropped) });
    assert!(listener.local_addr().is_ok());
    assert_eq!(first.shut_down().leaked, 0);
    let error = second.block_on(stream.read(&mut [0])).unwrap_err();
    assert_eq!(error.to_string(), "the runtime of this TcpStream is gone");
    assert!(second.block_on(listener.accept()).is_err());
    assert!(stream.local_addr().is_err());
    let (result, buffer) = second.block_on(file.read_at(vec![7; 4], 0));
    assert!(result.is_err());
    assert_eq!(buffer, [7; 4]);
    drop((stream, listener, file));
}

#[rotor::test]
async fn a_file_is_read_and_written_at_offsets() {
    if backend::no_files() {
        return;
    }
    let path = std::env::temp_dir().join(format!("rotor-runtime-{}", std::process::id()));
    let mut options = std::fs::File::options();
    let std_file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let file = rotor::runtime::File::adopt(std_file).unwrap();
    let (written, buffer) = file.write_at(pattern(10_000), 5).await;
    assert_eq!(written.unwrap(), 10_000);
    assert_eq!(buffer.len(), 10_000);
    let (read, buffer) = file.read_at(vec![1; 100], 5).await;
    assert_eq!(read.unwrap(), 100);
    assert_eq!(buffer, pattern(100));
    assert_eq!(file.read_at(vec![0; 8], 1 << 20).await.0.unwrap(), 0);
    for _ in 0..100 {
        poll_once(file.read_at(vec![0; 4096], 0)).await;
    }
    drop(file);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_was_written_is_delivered_when_the_runtime_ends() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[1; 10_000]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        got
    });
    let runtime = runtime();
    runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Armed and never read: its bytes are discarded.
        assert!(poll_once(stream.read(&mut [0])).await.is_none());
        sleep(Duration::from_millis(10)).await;
        stream.write_all(&pattern(2 << 20)).await.unwrap();
    });
    drop(runtime);
    assert!(peer.join().unwrap() == pattern(2 << 20));
}

#[test]
fn pending_tasks_are_dropped_once_inside_their_runtime() {
    struct Dropped(Rc<Cell<u32>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            // The runtime is still there to be used.
            rotor::spawn(async { unreachable!("the runtime is ending") });
            let _ = Instant::now();
        }
    }
    let dropped = Rc::new(Cell::new(0));
    for _ in 0..20 {
        dropped.set(0);
        let runtime = runtime();
        runtime.block_on(async {
            let listener = Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
            let idle = Rc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
            for number in 0..10 {
                let guard = Dropped(dropped.clone());
                let (listener, idle) = (listener.clone(), idle.clone());
                rotor::spawn(async move {
                    let _guard = guard;
                    let address = listener.local_addr().unwrap();
                    match number % 3 {
                        0 => drop(idle.accept().await),
                        1 => sleep(Duration::MAX).await,
                        _ => {
                            let mut stream = TcpStream::connect(address).await.unwrap();
                            stream.read(&mut [0]).await.unwrap();
                        }
                    }
                });
            }
            sleep(Duration::from_millis(1)).await;
        });
        assert_eq!(dropped.get(), 0);
        let report = runtime.shut_down();
        assert_eq!(dropped.get(), 10);
        assert_eq!(report.leaked, 0);
    }
    assert_eq!(rotor::runtime::leaked_total(), 0);
}
