//! Waking a waiting thread from any other: an eventfd.
#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

/// An eventfd that is shared by the waiting thread and every waker, and closed by the last of them:
/// a waker that outlives its loop writes into a descriptor nobody watches, never into a stranger's.
pub(crate) struct Wake {
    eventfd: Arc<OwnedFd>,
    function: Arc<dyn Fn() + Send + Sync>,
}

impl Wake {
    /// Opens the eventfd, close-on-exec and nonblocking. The last allocation made here.
    pub(crate) fn new() -> io::Result<Wake> {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let writer = Arc::clone(&eventfd);
        let function = Arc::new(move || {
            // EAGAIN says that the counter is full (eventfd(2)): whoever waits is woken already.
            while let Err(Errno::INTR) = write(&*writer, &1_u64.to_ne_bytes()) {}
        });
        Ok(Wake { eventfd, function })
    }

    /// The number to wait on: readable since the last [`reset`](Wake::reset) that a wake followed.
    pub(crate) fn fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// The function that wakes.
    pub(crate) fn function(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::clone(&self.function)
    }

    /// Takes back every wake so far. The caller has seen them, or acts as if it had.
    pub(crate) fn reset(&self) {
        // EAGAIN says that there is none (eventfd(2)).
        while let Err(Errno::INTR) = read(&*self.eventfd, &mut [0_u8; 8]) {}
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("fd", &self.fd()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(wake: &Wake) -> bool {
        let mut fds = [PollFd::new(&*wake.eventfd, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn wakes_add_up_until_they_are_taken_back() {
        let wake = Wake::new().unwrap();
        assert!(!readable(&wake));
        wake.reset();
        for _ in 0..3 {
            wake.function()();
        }
        assert!(readable(&wake));
        wake.reset();
        assert!(!readable(&wake));
    }

    #[test]
    fn a_waker_may_outlive_what_it_wakes_and_move_between_threads() {
        let function = Wake::new().unwrap().function();
        std::thread::spawn(move || function()).join().unwrap();
    }

    #[test]
    fn a_full_counter_does_not_block_the_waker() {
        let wake = Wake::new().unwrap();
        write(&*wake.eventfd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        wake.function()();
        assert!(readable(&wake));
    }
}
