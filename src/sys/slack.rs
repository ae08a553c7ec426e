//! The thread's timer slack: how much later than asked the kernel may end its waits.
#![deny(unsafe_code)]

use std::cell::Cell;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::process;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// The least there is, in nanoseconds (PR_SET_TIMERSLACK(2const); zero would mean the default).
const LEAST_NS: NonZeroU64 = NonZeroU64::MIN;

thread_local! {
    static USERS: Cell<Users> = const { Cell::new(Users { process: 0, count: 0, before_ns: 0 }) };
}

/// Who wants the least on this thread.
#[derive(Clone, Copy)]
struct Users {
    /// In this process: a child has a copy of its parent's.
    process: u32,
    count: u32,
    /// What the slack was before the first of them.
    before_ns: u64,
}

/// While one of these is alive, its thread's slack is the least there is. The last one restores it.
///
/// It is set for all that time, and not around each wait, which two calls a wait would cost. So threads
/// and processes that the thread starts meanwhile inherit the least.
#[derive(Debug)]
pub(crate) struct LeastSlack {
    process: u32,
    one_thread: PhantomData<*const ()>,
}

impl LeastSlack {
    /// Where the kernel refuses (a seccomp filter), the slack stays: waits are late by it.
    pub(crate) fn new() -> LeastSlack {
        let process = process::id();
        let mut users = USERS.get();
        if users.process != process {
            // A child begins anew. While its parent had users, it inherited the least: what was
            // before them is what it restores.
            let inherits = users.count > 0;
            let before_ns = if inherits { users.before_ns } else { current() };
            users = Users { process, count: 0, before_ns };
        } else if users.count == 0 {
            users.before_ns = current();
        }
        if users.count == 0 {
            let _ = set_current_timer_slack(Some(LEAST_NS));
        }
        users.count += 1;
        USERS.set(users);
        LeastSlack { process, one_thread: PhantomData }
    }
}

fn current() -> u64 {
    current_timer_slack().unwrap_or(0)
}

impl Drop for LeastSlack {
    fn drop(&mut self) {
        // A thread that is ending has no use for it any more.
        let _ = USERS.try_with(|cell| {
            let mut users = cell.get();
            // The child has begun anew, and this is a copy of its parent's.
            if users.process != self.process {
                return;
            }
            users.count -= 1;
            cell.set(users);
            if users.count == 0 {
                let _ = set_current_timer_slack(NonZeroU64::new(users.before_ns));
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

    /// The child of a thread that has users, as the child of a fork is its copy.
    #[test]
    fn a_child_begins_anew_and_restores_what_its_parent_had() {
        set_current_timer_slack(NonZeroU64::new(77_000)).unwrap();
        let parents = LeastSlack::new();
        // What a child finds: the users of a process that is not this one.
        USERS.set(Users { process: process::id() + 1, ..USERS.get() });
        std::mem::forget(parents);
        let parents = LeastSlack { process: process::id() + 1, one_thread: PhantomData };
        let own = LeastSlack::new();
        assert_eq!(USERS.get().count, 1, "the parent's is not counted");
        drop(parents);
        assert_eq!(current_timer_slack().unwrap(), 1, "its end is not the child's");
        drop(own);
        assert_eq!(current_timer_slack().unwrap(), 77_000);
    }
}
