//! What the process's backend can do. A test that asks for more is skipped, and says why.

// Each test file is a program of its own, and none uses all of this.
#![allow(dead_code, unreachable_pub)]

use rotor::backend::Kind;

fn skipped_on(lacking: impl Fn(Kind) -> bool, why: &str) -> bool {
    let chosen = rotor::backend().unwrap();
    let skipped = lacking(chosen.kind);
    if skipped {
        println!("skipped: {why} (the backend is {chosen})");
    }
    skipped
}

fn is_io_uring(kind: Kind) -> bool {
    match kind {
        Kind::IoUring => true,
        Kind::Epoll | Kind::EpollMilliseconds | Kind::Kqueue => false,
    }
}

/// Whether to skip a test that reads and writes files at offsets.
pub fn no_files() -> bool {
    skipped_on(
        |kind| !is_io_uring(kind),
        "files at offsets are io_uring's alone, until they have a policy",
    )
}

/// Whether to skip a test about io_uring's queues.
pub fn no_rings() -> bool {
    skipped_on(|kind| !is_io_uring(kind), "it is about io_uring's queues")
}

/// Whether the backend is io_uring, for what a test may expect of it alone.
pub fn is_uring() -> bool {
    is_io_uring(rotor::backend().unwrap().kind)
}
