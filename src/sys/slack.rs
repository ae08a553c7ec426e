//! The thread's timer slack: how much later than asked the kernel may end its waits.
#![deny(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// The least there is, in nanoseconds (PR_SET_TIMERSLACK(2const); zero would mean the default).
const LEAST_NS: NonZeroU64 = NonZeroU64::MIN;

thread_local! {
    /// How many want the least on this thread, and what it was before the first of them.
    static BEFORE: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

/// While one of these is alive, its thread's slack is the least there is. The last one restores it.
#[derive(Debug)]
pub(crate) struct LeastSlack {
    one_thread: PhantomData<*const ()>,
}

impl LeastSlack {
    /// Where the kernel refuses (a seccomp filter), the slack stays: waits are late by it.
    pub(crate) fn new() -> LeastSlack {
        let (count, mut before) = BEFORE.get();
        if count == 0 {
            before = current_timer_slack().unwrap_or(0);
            let _ = set_current_timer_slack(Some(LEAST_NS));
        }
        BEFORE.set((count + 1, before));
        LeastSlack { one_thread: PhantomData }
    }
}

impl Drop for LeastSlack {
    fn drop(&mut self) {
        // A thread that is ending has no use for it any more.
        let _ = BEFORE.try_with(|cell| {
            let (count, before) = cell.get();
            cell.set((count - 1, before));
            if count == 1 {
                let _ = set_current_timer_slack(NonZeroU64::new(before));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slack_is_the_least_until_the_last_is_gone_and_then_as_before() {
        set_current_timer_slack(NonZeroU64::new(77_000)).unwrap();
        let first = LeastSlack::new();
        let second = LeastSlack::new();
        assert_eq!(current_timer_slack().unwrap(), 1);
        drop(first);
        assert_eq!(current_timer_slack().unwrap(), 1);
        drop(second);
        assert_eq!(current_timer_slack().unwrap(), 77_000);
    }
}
