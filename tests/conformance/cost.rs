//! What it costs: no allocation, one call into the kernel a tick, no more calls than there is work. Counted,
//! never timed. Promises 5 and 6.

use std::io::{Read, Write};
use std::net::TcpStream as Client;

use rotor::net::TcpListener;
use rotor::{Descriptor, Event, Loop, Operation, Statistics, Wait};

use crate::allocations::allocations;
use crate::rig::*;

scenarios! {
    6 runtime nop receive send timer
        "a loop allocates nothing after its start" => loop_allocates_nothing;
    6 receive read_exact send "a warm echo allocates nothing a request" => echo_allocates_nothing;
    6 accept close task "connections come and go without an allocation" => accepts_allocate_nothing;
    6 read_buf ready write_owned
        "leases, readiness and owned writes allocate nothing" => leases_allocate_nothing;
    6 timer "sleeps and timeouts allocate nothing" => timers_allocate_nothing;
    6 task "warm tasks of a cell's size allocate nothing" => tasks_allocate_nothing;
    6 wake "wakes of the loop allocate nothing" => wakes_allocate_nothing;
    6 receive "a tick enters the kernel once at most" => one_enter_a_tick;
    6 send "a write that fits is one call, and no operation" => write_is_one_call;
    6 receive "an echo makes as many sends as it has requests" => echo_calls;
    6 close "a close of a stream that has ended is one call" => close_calls;
    6 nop "a batch of operations is handed over in one tick" => batch;
    5 accept "an idle server makes no tick" => idle_server;
}

/// A loop's work of most kinds, again and again.
struct Exchange {
    event_loop: Loop,
    ends: Vec<(Descriptor, Client)>,
    events: Vec<Event>,
}

impl Exchange {
    fn new() -> Exchange {
        let mut event_loop = small_loop();
        let ends = (0..4).map(|_| loop_pair(&mut event_loop)).collect();
        Exchange { event_loop, ends, events: vec![Event::EMPTY; 32] }
    }

    fn round(&mut self) {
        static BYTES: [u8; 100] = [7; 100];
        let event_loop = &mut self.event_loop;
        let now = event_loop.now();
        let mut left = 0;
        for (stream, peer) in &mut self.ends {
            peer.write_all(&BYTES).unwrap();
            event_loop.submit(Operation::receive_picked(*stream), 1).unwrap();
            event_loop.submit(send(*stream, &BYTES), 2).unwrap();
            event_loop.submit(Operation::nop(), 3).unwrap();
            event_loop.submit(Operation::timer(now + 1000), 4).unwrap();
            let late = event_loop.submit(Operation::timer(now + 1_000_000_000), 5).unwrap();
            assert!(event_loop.cancel(late));
            left += 5;
        }
        while left > 0 {
            let count = event_loop.tick(&mut self.events, Wait::Forever).unwrap();
            for event in &self.events[..count] {
                event.result().map(drop).unwrap_or_else(|_| assert!(event.is_canceled()));
                if let Some(buffer) = event.buffer() {
                    event_loop.return_buffer(buffer);
                }
            }
            left -= count;
        }
        for (_, peer) in &mut self.ends {
            peer.read_exact(&mut [0; 100]).unwrap();
        }
    }
}

fn loop_allocates_nothing() {
    let mut exchange = Exchange::new();
    // Not even a first time: there is no warm-up.
    let before = allocations();
    for _ in 0..50 {
        exchange.round();
    }
    exchange.event_loop.drain(PATIENCE);
    assert_eq!(allocations() - before, 0);
}

fn echo_allocates_nothing() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let mut buffer = [0; 512];
        let mut before = 0;
        for round in 0..200 {
            if round == 100 {
                before = allocations();
            }
            client.write_all(&[5; 300]).unwrap();
            stream.read_exact(&mut buffer[..300]).await.unwrap();
            stream.write_all(&buffer[..300]).await.unwrap();
            client.read_exact(&mut buffer[..300]).unwrap();
        }
        assert_eq!(allocations() - before, 0);
    });
}

fn accepts_allocate_nothing() {
    run(async {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut before = 0;
        for round in 0..60 {
            if round == 30 {
                before = allocations();
            }
            let mut client = Client::connect(address).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let serving = rotor::spawn(async move {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                stream.write_all(&byte).await.unwrap();
            });
            client.write_all(b"x").unwrap();
            serving.await.unwrap();
            client.read_exact(&mut [0]).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
        assert_eq!(allocations() - before, 0);
    });
}

fn leases_allocate_nothing() {
    run(async {
        let (mut stream, mut client) = pair().await;
        let mut kept = vec![9; 64];
        let mut before = 0;
        for round in 0..60 {
            if round == 30 {
                before = allocations();
            }
            client.write_all(&[5; 64]).unwrap();
            stream.readable().await.unwrap();
            assert_eq!(stream.peek(&mut [0; 8]).await.unwrap(), 8);
            let lease = stream.read_buf().await.unwrap();
            drop(stream.write_owned(lease).await.1);
            kept = stream.write_owned(kept).await.1;
            stream.writable().await.unwrap();
            client.read_exact(&mut [0; 128]).unwrap();
        }
        assert_eq!(allocations() - before, 0);
    });
}

fn timers_allocate_nothing() {
    run(async {
        let mut before = 0;
        for round in 0..60 {
            if round == 30 {
                before = allocations();
            }
            rotor::time::sleep(MILLISECOND / 20).await;
            let waiting = rotor::time::timeout(MILLISECOND / 20, std::future::pending::<()>());
            assert!(waiting.await.is_err());
            assert!(rotor::time::timeout(PATIENCE, async {}).await.is_ok());
        }
        assert_eq!(allocations() - before, 0);
    });
}

fn tasks_allocate_nothing() {
    run(async {
        let mut before = 0;
        for round in 0..60 {
            if round == 30 {
                before = allocations();
            }
            let first = rotor::spawn(async { rotor::task::yield_now().await });
            let second = rotor::spawn(std::future::pending::<()>());
            first.await.unwrap();
            second.abort();
            assert!(second.await.unwrap_err().is_cancelled());
        }
        assert_eq!(allocations() - before, 0);
    });
}

fn wakes_allocate_nothing() {
    let mut event_loop = small_loop();
    let wake = event_loop.waker();
    let mut events = [Event::EMPTY; 4];
    let before = allocations();
    for _ in 0..100 {
        wake();
        event_loop.tick(&mut events, Wait::Forever).unwrap();
    }
    assert_eq!(allocations() - before, 0);
}

/// Ticks, and calls into the kernel made for them.
fn enters(before: &Statistics, after: &Statistics) -> (u64, u64) {
    let entered = |it: &Statistics| it.backend.enters + it.backend.flushes;
    (after.ticks - before.ticks, entered(after) - entered(before))
}

fn one_enter_a_tick() {
    let mut exchange = Exchange::new();
    exchange.round();
    let before = exchange.event_loop.statistics();
    for _ in 0..50 {
        exchange.round();
    }
    let (ticks, entered) = enters(&before, &exchange.event_loop.statistics());
    // A wait that ends too early goes on within its tick, with a call more.
    assert!(entered <= ticks + ticks / 10 + 2, "{entered} calls in {ticks} ticks");
}

fn write_is_one_call() -> String {
    let (counts, _) = run_counted(builder(), async |counts| {
        let (mut stream, mut client) = pair().await;
        ticks().await;
        let before = counts().event_loop;
        for _ in 0..50 {
            stream.write_all(b"ten bytes!").await.unwrap();
        }
        let after = counts().event_loop;
        client.read_exact(&mut [0; 500]).unwrap();
        let sends = after.immediate.sends - before.immediate.sends;
        (sends, after.operations.now - before.operations.now, after.events - before.events)
    });
    format!("{counts:?}")
}

fn echo_calls() -> String {
    let (counts, _) = run_counted(builder(), async |counts| {
        let (mut stream, mut client) = pair().await;
        let mut buffer = [0; 64];
        let before = counts().event_loop;
        for _ in 0..100 {
            client.write_all(&[5; 64]).unwrap();
            let count = stream.read(&mut buffer).await.unwrap();
            stream.write_all(&buffer[..count]).await.unwrap();
            client.read_exact(&mut buffer).unwrap();
        }
        let after = counts().event_loop;
        let ticks = after.ticks - before.ticks;
        assert!(ticks <= 220, "{ticks} ticks for a hundred requests");
        let controls = after.immediate.controls - before.immediate.controls;
        (after.immediate.sends - before.immediate.sends, controls)
    });
    format!("{counts:?}")
}

fn close_calls() -> String {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    drop(peer);
    finish(&mut event_loop, Operation::receive_picked(stream)).result().unwrap();
    let before = event_loop.statistics().immediate;
    finish(&mut event_loop, Operation::close(stream)).result().unwrap();
    let after = event_loop.statistics().immediate;
    format!("{} {}", after.closes - before.closes, after.closing - before.closing)
}

fn batch() {
    let options = rotor::runtime::Options { ring_entries: 64, ..small() };
    let mut event_loop = Loop::new(&options).unwrap();
    settle(&mut event_loop);
    let before = event_loop.statistics();
    for number in 0..32 {
        event_loop.submit(Operation::nop(), number).unwrap();
    }
    let mut events = [Event::EMPTY; 64];
    let mut count = 0;
    while count < 32 {
        count += event_loop.tick(&mut events, Wait::Forever).unwrap();
    }
    let (ticks, entered) = enters(&before, &event_loop.statistics());
    assert!(ticks <= 2 && entered <= 2, "{entered} calls in {ticks} ticks");
}

fn idle_server() {
    let ((), _) = run_counted(builder(), async |counts| {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let _accepting = rotor::spawn(async move { listener.accept().await.map(drop) });
        let (mut stream, _client) = pair().await;
        let _reading = rotor::spawn(async move { stream.read(&mut [0]).await });
        ticks().await;
        for attempt in 0.. {
            let before = counts().event_loop;
            rotor::time::sleep(20 * MILLISECOND).await;
            let after = counts().event_loop;
            // The sleep's own.
            assert!(after.ticks - before.ticks <= 2, "{} ticks", after.ticks - before.ticks);
            let zero = |it: &Statistics| it.waits.zero_ready + it.waits.zero_spin;
            assert_eq!(zero(&after) - zero(&before), 0);
            // Else the machine was so busy that the sleep was over before it began.
            if after.waits.zero_timer == before.waits.zero_timer {
                return;
            }
            assert!(attempt < 20, "the timer was due each time");
        }
    });
}
