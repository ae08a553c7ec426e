//! One suite for every backend: scenarios for the promises, written against the public interface.
//!
//!     cargo test --test conformance                          every scenario on every backend
//!     cargo test --test conformance -- accept                those with `accept` in their name
//!     cargo test --test conformance -- --backend epoll       on this backend only
//!     cargo test --test conformance -- --list                their names
//!
//! A process has one backend for life, so the program runs itself once for each: free to choose, or by
//! `ROTOR_BACKEND`, or under a filter that refuses system calls as another kernel would. Each of these
//! children runs the scenarios one by one and says how each ended; the parent ends one that hangs, and
//! starts another for what is left. A scenario fails where it panics, and also where what it observed
//! is not the same on two backends: that is promise 8.
//!
//! A backend that cannot be had is skipped, with the reason; `ROTOR_REQUIRE=io_uring,epoll` makes that a
//! failure. With `ROTOR_BACKEND` set in the environment the suite runs on that one only.

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: the scenarios look into Linux's /proc, and have not run on this system");
}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    suite::main()
}

#[cfg(target_os = "linux")]
#[path = "../support/seccomp.rs"]
mod seccomp;
#[cfg(target_os = "linux")]
#[path = "../support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
#[macro_use]
mod scenario;
#[cfg(target_os = "linux")]
mod allocations;
#[cfg(target_os = "linux")]
mod children;
#[cfg(target_os = "linux")]
mod rig;
#[cfg(target_os = "linux")]
mod selfcheck;
#[cfg(target_os = "linux")]
mod settings;
#[cfg(target_os = "linux")]
mod suite;
#[cfg(target_os = "linux")]
mod table;

// The subjects.
#[cfg(target_os = "linux")]
mod cancel;
#[cfg(target_os = "linux")]
mod close;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod drop;
#[cfg(target_os = "linux")]
mod event;
#[cfg(target_os = "linux")]
mod fair;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod order;
#[cfg(target_os = "linux")]
mod tcp;
#[cfg(target_os = "linux")]
mod thread;
#[cfg(target_os = "linux")]
mod timer;
#[cfg(target_os = "linux")]
mod wake;
