//! Which backends there are, and why one runs.
#![deny(unsafe_code)]

use std::fmt;

/// A backend of rotor's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Linux 6.1 and later: one call a tick hands operations over and waits for their ends.
    IoUring,
    /// Linux: operations are performed when their descriptors are ready.
    Epoll,
    /// As [`Epoll`](Kind::Epoll) on a kernel before Linux 5.11, which waits in whole milliseconds.
    /// Never chosen by itself: a kernel that cannot do better is found out.
    EpollMilliseconds,
    /// macOS and FreeBSD: operations are performed when their descriptors are ready.
    Kqueue,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 4] = [Kind::IoUring, Kind::Epoll, Kind::EpollMilliseconds, Kind::Kqueue];

    /// The kinds this system may have, the first choice first.
    #[cfg(target_os = "linux")]
    pub(super) const CHOICES: &'static [Kind] = &[Kind::IoUring, Kind::Epoll];
    /// The kinds this system may have, the first choice first.
    #[cfg(not(target_os = "linux"))]
    pub(super) const CHOICES: &'static [Kind] = &[Kind::Kqueue];

    /// Its name, as `ROTOR_BACKEND` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::IoUring => "io_uring",
            Kind::Epoll => "epoll",
            Kind::EpollMilliseconds => "epoll-milliseconds",
            Kind::Kqueue => "kqueue",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a backend runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the system's best, and the kernel has all it needs.
    Best,
    /// The environment's `ROTOR_BACKEND` asks for it.
    Environment,
    /// The program asked for it, by [`prefer`](super::prefer).
    Preferred,
    /// A better one was refused, with these words.
    Refused(Box<str>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Best => f.write_str("the kernel has all it needs"),
            Reason::Environment => f.write_str("asked for by ROTOR_BACKEND"),
            Reason::Preferred => f.write_str("asked for by the program"),
            Reason::Refused(words) => f.write_str(words),
        }
    }
}

/// The backend of this process, and why. `Display` says both in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}
