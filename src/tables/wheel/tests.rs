//! The wheel beside a sorted list.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;
use crate::event::EventKind;
use crate::tables::slots::State;

/// A wheel and what it should be.
struct Bench {
    _arena: Arena,
    slots: Slots,
    wheel: Wheel,
    /// By deadline and order of arming.
    expected: BTreeMap<(u64, u64), u32>,
    armed: u64,
    now_ns: u64,
    /// Whether a timer was disarmed since the wheel was last empty: it may be told of early.
    early: bool,
}

impl Bench {
    fn new(capacity: u32) -> Bench {
        let mut plan = Plan::default();
        Slots::plan(&mut plan, 1, capacity, 1);
        Wheel::plan(&mut plan, capacity);
        let mut arena = Arena::new(plan.bytes()).unwrap();
        let slots = Slots::new(&mut arena, [1, capacity, 1], 1);
        let wheel = Wheel::new(&mut arena, capacity);
        let (expected, armed, now_ns, early) = (BTreeMap::new(), 0, 0, false);
        Bench { _arena: arena, slots, wheel, expected, armed, now_ns, early }
    }

    fn arm(&mut self, deadline_ns: u64) {
        let index = self.slots.take(EventKind::Timer, 0).unwrap();
        self.arm_again(index, deadline_ns);
    }

    fn arm_again(&mut self, index: u32, deadline_ns: u64) {
        let slot = self.slots.get_mut(index);
        slot.state = State::Armed;
        slot.offset = deadline_ns;
        self.wheel.arm(&mut self.slots, index);
        self.expected.insert((deadline_ns, self.armed), index);
        self.armed += 1;
    }

    /// Disarms the timer that would fire as the `place`-th. Answers its slot.
    fn disarm(&mut self, place: usize) -> u32 {
        let key = *self.expected.keys().nth(place).unwrap();
        let index = self.expected.remove(&key).unwrap();
        self.wheel.disarm(&mut self.slots, index);
        self.early = !self.expected.is_empty();
        index
    }

    fn cancel(&mut self, place: usize) {
        let index = self.disarm(place);
        self.slots.free(index);
    }

    /// What the loop would be told.
    fn next(&mut self) -> Option<u64> {
        self.wheel.next_deadline_ns(&mut self.slots, self.now_ns)
    }

    fn check_next(&mut self, exact: bool) {
        let (told, now_ns) = (self.next(), self.now_ns);
        let first = self.expected.keys().next().map(|&(deadline_ns, _)| deadline_ns);
        assert_eq!(told.is_none(), self.wheel.is_empty());
        match (told, first) {
            (Some(told), Some(first)) if exact || first <= now_ns => assert_eq!(told, first),
            (Some(told), Some(first)) => assert!(now_ns < told && told <= first, "{told} {first}"),
            (told, first) => assert_eq!(told, first),
        }
    }

    /// Time comes to `now_ns`, and what is due then fires, in order.
    fn fire(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(index) = self.wheel.pop_due(&mut self.slots, now_ns) {
            let ((deadline_ns, _), first) = self.expected.pop_first().expect("none was armed");
            assert_eq!((index, self.slots.get(index).offset), (first, deadline_ns));
            assert!(deadline_ns <= now_ns, "{deadline_ns} is early at {now_ns}");
            self.slots.free(index);
        }
        let left = self.expected.keys().next();
        assert!(left.is_none_or(|&(deadline_ns, _)| deadline_ns > now_ns), "one is late");
        self.early &= !self.expected.is_empty();
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// A number of so many bits, any number of them equally likely: near deadlines and far ones.
fn any_bits(seed: &mut u64, most: u32) -> u64 {
    let bits = random(seed) % u64::from(most) + 1;
    random(seed) & (u64::MAX >> (64 - bits))
}

fn run_random(mut seed: u64) {
    let mut bench = Bench::new(64);
    bench.now_ns = any_bits(&mut seed, 62);
    for _ in 0..60 {
        let armed = bench.expected.len();
        match random(&mut seed) % 8 {
            0..=3 if armed < 64 => {
                let distance = any_bits(&mut seed, 62);
                // Seldom the past, and the end of time.
                let deadline_ns = match random(&mut seed) % 32 {
                    0 => bench.now_ns.saturating_sub(distance),
                    1 => u64::MAX - distance % 2,
                    _ => bench.now_ns + distance,
                };
                bench.arm(deadline_ns);
            }
            4 if armed > 0 => bench.cancel(random(&mut seed) as usize % armed),
            5 if armed > 0 => {
                let index = bench.disarm(random(&mut seed) as usize % armed);
                bench.arm_again(index, bench.now_ns + any_bits(&mut seed, 40));
            }
            6 => {
                let next = bench.next().unwrap_or(0).min(1 << 62);
                bench.fire(next.max(bench.now_ns));
            }
            _ => {
                let now_ns = bench.now_ns + any_bits(&mut seed, 40);
                bench.fire(now_ns.min(1 << 62).max(bench.now_ns));
            }
        }
        let exact = !bench.early;
        bench.check_next(exact);
    }
    bench.fire(u64::MAX);
    assert!(bench.wheel.is_empty() && bench.expected.is_empty());
}

#[test]
fn random_schedules_fire_as_a_sorted_list_would() {
    for seed in 1..=10_000_u64 {
        let scrambled = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_random(scrambled))) {
            eprintln!("the schedule of seed {seed}");
            resume_unwind(panic);
        }
    }
}

/// One step of a life.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arm(u64),
    /// The timer that would fire as the so-manieth.
    Cancel(usize),
    Fire(u64),
}

/// Deadlines and times at the edges of grains and levels.
const EDGES: [u64; 7] = [0, 1, 1 << 10, (1 << 16) - 1, 1 << 16, (1 << 16) + 5, 3 << 22];

/// Every sequence of so many steps with at most four timers, each from an age of its own.
#[test]
fn up_to_four_timers_live_through_every_order_of_events() {
    fn play(bench: &mut Bench, age: &mut u64, steps: &mut Vec<Step>, left: u32) {
        let armed = run(bench, age, steps);
        if left == 0 {
            return;
        }
        let arms = EDGES.iter().filter(|_| armed < 4).map(|&edge| Step::Arm(edge));
        let others = EDGES[1..].iter().map(|&edge| Step::Fire(edge));
        let next: Vec<_> = arms.chain((0..armed).map(Step::Cancel)).chain(others).collect();
        for step in next {
            steps.push(step);
            play(bench, age, steps, left - 1);
            steps.pop();
        }
    }
    /// Answers how many are armed after the steps.
    fn run(bench: &mut Bench, age: &mut u64, steps: &[Step]) -> usize {
        *age += 1 << 40;
        let begin = *age;
        bench.fire(begin);
        for step in steps {
            match *step {
                Step::Arm(after) => bench.arm(begin + after),
                Step::Cancel(place) => bench.cancel(place),
                Step::Fire(after) => bench.fire(begin + after),
            }
            bench.check_next(true);
        }
        let armed = bench.expected.len();
        bench.fire(begin + (1 << 30));
        assert!(bench.wheel.is_empty(), "after {steps:?}");
        armed
    }
    let mut bench = Bench::new(4);
    play(&mut bench, &mut 0, &mut Vec::new(), 5);
}

/// The oldest is disarmed and a new one armed, over and over, and each time the loop asks.
#[test]
fn a_place_of_many_is_not_looked_through_each_time() {
    const TIMERS: u32 = 20_000;
    let mut bench = Bench::new(TIMERS);
    let minute = 60_000_000_000;
    (0..u64::from(TIMERS)).for_each(|number| bench.arm(minute + number));
    let before = LOOKED_AT.get();
    for number in 0..u64::from(TIMERS) {
        bench.cancel(0);
        bench.arm(minute + u64::from(TIMERS) + number);
        bench.check_next(false);
    }
    let each = (LOOKED_AT.get() - before) as f64 / f64::from(TIMERS);
    assert!(each < 10.0, "{each} timers were looked at for each that was disarmed");
}

#[test]
fn told_of_early_a_loop_finds_nothing_and_is_told_right() {
    let mut bench = Bench::new(100);
    let second = 1_000_000_000;
    (0..100).for_each(|number| bench.arm(second + number));
    bench.cancel(0);
    assert_eq!(bench.next(), Some(second + 1), "arming them has paid for a look through");
    bench.cancel(0);
    assert_eq!(bench.next(), Some(second + 1), "too little has happened since");
    bench.now_ns = second + 1;
    assert_eq!(bench.next(), Some(second + 2));
    bench.fire(second + 1);
    assert_eq!(bench.expected.len(), 98);
    bench.fire(second + 200);
}

#[test]
fn a_clock_that_stands_still_or_goes_back_fires_nothing_early_and_nothing_twice() {
    let mut bench = Bench::new(8);
    bench.fire(1 << 30);
    for deadline_ns in [5, 1 << 20, (1 << 30) + 1, (1 << 30) + 5_000] {
        bench.arm(deadline_ns);
    }
    for now_ns in [4, 0, 5, 1 << 19, 1 << 20, 1 << 20, 7] {
        bench.fire(now_ns);
    }
    assert_eq!(bench.expected.len(), 2);
    bench.fire((1 << 30) + 1);
    bench.fire(1 << 30);
    assert_eq!(bench.expected.len(), 1);
    bench.fire((1 << 30) + 5_000);
    assert!(bench.wheel.is_empty());
}

#[test]
fn timers_of_one_moment_fire_in_the_order_they_were_armed_from_wherever_they_stood() {
    let mut bench = Bench::new(200);
    let moment = (1 << 36) + 12_345;
    // Each is armed nearer to the moment than the one before, and stands at another level for it.
    for bits in (0..40).rev() {
        let now_ns = moment - moment.min(1 << bits);
        bench.fire(now_ns);
        (0..4).for_each(|_| bench.arm(moment));
    }
    bench.fire(moment - 1);
    assert_eq!(bench.expected.len(), 160);
    bench.fire(moment);
    assert!(bench.wheel.is_empty());
}
