//! What the loop's own work costs: nanoseconds an operation, the best of several rounds.
//!
//!     cargo bench --bench event_loop [-- --quick]
//!
//! Each figure includes submitting, the tick, and taking the event. Pin it (`taskset -c 0`) and read
//! ratios: figures of a shared machine move together.

use std::hint::black_box;
use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

use rotor::runtime::Options;
use rotor::{Descriptor, DescriptorKind, Event, Handle, Loop, Operation, Wait};

struct Bench {
    event_loop: Loop,
    events: Vec<Event>,
    rounds: u32,
    operations: u64,
}

impl Bench {
    /// Runs `round`, which does that many operations, and prints the best round.
    fn measure(&mut self, name: &str, mut round: impl FnMut(&mut Bench, u64)) {
        let operations = self.operations;
        round(self, operations / 10 + 1);
        let mut best = f64::MAX;
        for _ in 0..self.rounds {
            let begun = Instant::now();
            round(self, operations);
            best = best.min(begun.elapsed().as_nanos() as f64 / operations as f64);
        }
        println!("{name:<44} {best:>9.1} ns");
    }

    /// Ticks until that many events have come.
    fn take(&mut self, mut count: u64) {
        while count > 0 {
            let taken = self.event_loop.tick(&mut self.events, Wait::Forever).expect("tick");
            count = count.saturating_sub(taken as u64);
        }
    }

    fn nops(&mut self, operations: u64, batch: u64) {
        for _ in 0..operations.div_ceil(batch) {
            for n in 0..batch {
                self.event_loop.submit(Operation::nop(), n).expect("room");
            }
            self.take(batch);
        }
    }

    fn due_timers(&mut self, operations: u64) {
        for _ in 0..operations.div_ceil(64) {
            let now = self.event_loop.now();
            for n in 0..64 {
                self.event_loop.submit(Operation::timer(now), n).expect("room");
            }
            self.take(64);
        }
    }

    fn canceled_timers(&mut self, operations: u64) {
        let far = self.event_loop.now() + 60_000_000_000;
        for _ in 0..operations.div_ceil(64) {
            for n in 0..64 {
                let timer = self.event_loop.submit(Operation::timer(far), n).expect("room");
                assert!(self.event_loop.cancel(timer));
            }
            self.take(64);
        }
    }

    /// As many repeating timers of a millisecond as all fire in time: the fires each gets are counted.
    fn repeating_timers(&mut self, operations: u64) {
        const TIMERS: u64 = 4096;
        let now = self.event_loop.now();
        let repeated = (0..TIMERS)
            .map(|n| Operation::repeating_timer(now + n * 244, 1_000_000))
            .map(|timer| self.event_loop.submit(timer, 0).expect("room"))
            .collect::<Vec<_>>();
        self.take(operations);
        for timer in repeated {
            self.event_loop.cancel(timer);
        }
        let mut left = TIMERS;
        while left > 0 {
            let taken = self.event_loop.tick(&mut self.events, Wait::Zero).expect("tick");
            left -= self.events[..taken].iter().filter(|event| !event.more()).count() as u64;
        }
    }

    /// Far ones at random, which stay armed. Answers their handles.
    fn others(&mut self, count: u64) -> Vec<Handle> {
        let now = self.event_loop.now();
        let far = |n: u64| {
            now + 3_600_000_000_000 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 60_000_000_000
        };
        (0..count)
            .map(|n| self.event_loop.submit(Operation::timer(far(n)), n).expect("room"))
            .collect()
    }

    /// A byte from one end of a loopback stream to the other: a direct send, a picked receive.
    fn bytes(&mut self, operations: u64, from: Descriptor, to: Descriptor) {
        for _ in 0..operations {
            self.event_loop.submit(Operation::receive_picked(to), 1).expect("room");
            self.event_loop.send_now(from, b"x").expect("room in the socket");
            let taken = self.event_loop.tick(&mut self.events, Wait::Forever).expect("tick");
            assert_eq!(taken, 1);
            let buffer = self.events[0].buffer().expect("a byte arrived");
            black_box(self.event_loop.bytes(buffer, 0..1));
            self.event_loop.return_buffer(buffer);
        }
    }
}

fn pair(event_loop: &mut Loop) -> (Descriptor, Descriptor) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    near.set_nodelay(true).expect("nodelay");
    let near = event_loop.adopt(near.into(), DescriptorKind::Stream).expect("room");
    let far = event_loop.adopt(far.into(), DescriptorKind::Stream).expect("room");
    (near, far)
}

/// The same byte with blocking calls: the kernel's own share.
fn bare_bytes(operations: u64) -> f64 {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let (mut far, _) = listener.accept().expect("accept");
    near.set_nodelay(true).expect("nodelay");
    let begun = Instant::now();
    for _ in 0..operations {
        near.write_all(b"x").expect("write");
        far.read_exact(&mut [0]).expect("read");
    }
    begun.elapsed().as_nanos() as f64 / operations as f64
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let event_loop = Loop::new(&Options { timers: 131_072, ..Options::default() }).expect("a loop");
    let mut bench = Bench {
        event_loop,
        events: vec![Event::EMPTY; 256],
        rounds: if quick { 1 } else { 7 },
        operations: if quick { 2_000 } else { 400_000 },
    };
    println!("backend: {}", bench.event_loop.backend());
    bench.measure("nop, one a tick", |bench, count| bench.nops(count, 1));
    bench.measure("nop, 64 a tick", |bench, count| bench.nops(count, 64));
    bench.measure("timer that is due, 64 a tick", |bench, count| bench.due_timers(count));
    bench.measure("timer armed and canceled, 64 a tick", |bench, count| {
        bench.canceled_timers(count)
    });
    bench.measure("4,096 timers of 1 ms that repeat, a fire", |bench, count| {
        bench.repeating_timers(count)
    });
    let others = bench.others(100_000);
    bench.measure("timer armed and canceled, 100,000 others", |bench, count| {
        bench.canceled_timers(count)
    });
    bench.measure("timer that is due, 100,000 others", |bench, count| bench.due_timers(count));
    for timer in others {
        bench.event_loop.cancel(timer);
    }
    bench.take(100_000);
    bench.operations /= 10;
    let (near, far) = pair(&mut bench.event_loop);
    bench.measure("a byte over loopback", |bench, count| bench.bytes(count, near, far));
    println!("{:<44} {:>9.1} ns", "the same with blocking calls", bare_bytes(bench.operations));
}
