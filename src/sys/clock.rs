//! The clock of every deadline.
#![deny(unsafe_code)]

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock io_uring's and epoll's waits run on (and which
/// stands still while the machine sleeps, as they do). A vdso call: no system call on usual machines.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts at boot and counts up: neither field is negative, and 64 bits of
    // nanoseconds last 584 years.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::now_ns;

    #[test]
    fn the_clock_counts_in_nanoseconds_and_never_goes_back() {
        let start = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let passed = now_ns() - start;
        assert!((2_000_000..2_000_000_000).contains(&passed), "{passed}");
        let mut last = now_ns();
        for _ in 0..10_000 {
            let now = now_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
