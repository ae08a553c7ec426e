//! Knowing that one is a child process, where no page is wiped at fork: by the process's number.
#![deny(unsafe_code)]

use std::io;
use std::process;

/// Tells the process that made it from its children. A child has another number than its parent, which
/// is alive, or was when the child was made.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    process: u32,
}

impl ForkGuard {
    /// Takes note of the process.
    pub(crate) fn new() -> io::Result<ForkGuard> {
        Ok(ForkGuard { process: process::id() })
    }

    /// Whether this process is a child of the one that made the guard.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        process::id() != self.process
    }
}
