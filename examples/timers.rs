//! How late timers fire: tasks that sleep at random, and a histogram of what came.
//!
//!     cargo run --release --example timers
//!     cargo run --release --example timers -- 4096 5      (so many tasks, for so many seconds)
//!     ROTOR_BACKEND=epoll cargo run --release --example timers

use std::cell::RefCell;
use std::env;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use rotor::runtime::Builder;
use rotor::time::{Instant, interval, sleep_until};

/// Buckets of a power of two of nanoseconds each.
struct Lateness {
    buckets: [u64; 64],
    early: u64,
}

impl Lateness {
    fn note(&mut self, deadline: Instant, fired: Instant) {
        match fired.checked_duration_since(deadline) {
            Some(late) => {
                let bits = u64::BITS - (late.as_nanos() as u64).leading_zeros();
                self.buckets[bits.min(63) as usize] += 1;
            }
            None => self.early += 1,
        }
    }

    fn print(&self) {
        let all: u64 = self.buckets.iter().sum();
        let most = self.buckets.iter().copied().max().unwrap_or(0).max(1);
        println!("{all} timers fired, {} of them early", self.early);
        let used = |count: &u64| *count > 0;
        let (Some(first), Some(last)) =
            (self.buckets.iter().position(used), self.buckets.iter().rposition(used))
        else {
            return;
        };
        for (bits, count) in self.buckets.iter().enumerate().take(last + 1).skip(first) {
            let bar = "#".repeat((count * 50).div_ceil(most) as usize);
            let below = Duration::from_nanos(1 << bits);
            println!("less than {:>10} late  {count:>9}  {bar}", format!("{below:.1?}"));
        }
    }
}

/// Sleeps 1 to 50 ms at random, over and over.
async fn sleep_at_random(mut seed: u64, end: Instant, seen: Rc<RefCell<Lateness>>) {
    loop {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let deadline = Instant::now() + Duration::from_nanos(1_000_000 + seed % 49_000_000);
        if deadline > end {
            return;
        }
        sleep_until(deadline).await;
        seen.borrow_mut().note(deadline, Instant::now());
    }
}

fn main() -> ExitCode {
    let mut numbers = env::args().skip(1).map(|word| word.parse::<u32>());
    let (Ok(tasks), Ok(seconds)) =
        (numbers.next().unwrap_or(Ok(256)), numbers.next().unwrap_or(Ok(2)))
    else {
        eprintln!("usage: timers [TASKS [SECONDS]]");
        return ExitCode::FAILURE;
    };
    let limit = tasks.saturating_add(2);
    let runtime = match Builder::new().tasks(limit).timers(limit).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let seen = Rc::new(RefCell::new(Lateness { buckets: [0; 64], early: 0 }));
    runtime.block_on(async {
        let end = Instant::now() + Duration::from_secs(u64::from(seconds));
        let sleepers: Vec<_> = (1..=u64::from(tasks))
            .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .map(|seed| rotor::spawn(sleep_at_random(seed, end, seen.clone())))
            .collect();
        let mut ticks = interval(Duration::from_secs(1));
        while ticks.tick().await < end {}
        for sleeper in sleepers {
            sleeper.abort();
        }
    });
    seen.borrow().print();
    let waits = runtime.statistics().event_loop.waits;
    println!("waits: {} ended by time, {} by an event", waits.by_timeout, waits.by_event);
    println!("       {} of length zero with a timer due", waits.zero_timer);
    ExitCode::SUCCESS
}
