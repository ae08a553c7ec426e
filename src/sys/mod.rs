//! The system's calls, thin and by descriptor number: sockets, addresses, the clock, wake-ups, forks.
//!
//! Nothing here knows a loop, a token or a future. Results are the kernel's: a count or a negative
//! `errno` where a backend hands the number on, an [`io::Result`](std::io::Result) where a person
//! reads it. Sockets are always close-on-exec, and made *blocking*: on a socket with `O_NONBLOCK`
//! io_uring answers `-EAGAIN` at once where it would otherwise arm a poll and wait (`io_recv` and
//! its like look at the file's flags, Linux 5.7 to date). Calls that must not block say so
//! themselves, with `MSG_DONTWAIT`; the readiness backends change the mode of what accepts or connects,
//! for which there is no such flag, and of all streams where sends do not heed it.
#![deny(unsafe_code)]

pub(crate) mod clock;
#[cfg(any(test, not(target_os = "linux")))]
mod connect;
#[allow(unsafe_code)]
pub(crate) mod descriptor;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) mod fork;
#[cfg(not(target_os = "linux"))]
#[path = "fork_by_number.rs"]
pub(crate) mod fork;
#[cfg(target_os = "linux")]
pub(crate) mod slack;
mod socket_option;
#[cfg(target_os = "linux")]
pub(crate) mod wake;
