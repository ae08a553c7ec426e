//! What the engine needs of a system: to be told when a descriptor may be ready.
#![deny(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::Arc;

/// The direction of receives, accepts and polls for reading.
pub(crate) const READ: u8 = 1;
/// The direction of sends, connects and polls for writing.
pub(crate) const WRITE: u8 = 2;

/// Names a row of the engine's table. A row that is used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub(crate) const fn from_bits(bits: u64) -> Key {
        Key { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// What a selector tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whose descriptor. It may be out of date.
    pub(crate) key: Key,
    /// The directions that may be ready: [`READ`], [`WRITE`] or both.
    pub(crate) ready: u8,
    /// Nothing further may be told although more is to be had, since the end, an error or urgent
    /// data has come already: a short receive does not say that the descriptor is drained.
    pub(crate) over: bool,
}

/// Tells readiness by edges: a direction that is armed is told when it is ready then, and again
/// whenever it becomes ready. It may be told in vain. It need not be told again while the engine has
/// not found it exhausted.
pub(crate) trait Selector {
    /// Its name.
    fn describe(&self) -> &'static str;

    /// Watches a descriptor in the directions of `wanted`, of which `before` were armed already. All
    /// that are ready now are told again. An error is an `errno`: `EPERM` for what is always ready.
    fn arm(&mut self, fd: RawFd, key: Key, wanted: u8, before: u8) -> Result<(), i32>;

    /// Stops watching. What was found before may still be told.
    fn disarm(&mut self, fd: RawFd, armed: u8);

    /// Waits until something is found, for at most so many nanoseconds, rounded up; zero does not
    /// wait, nothing waits for ever. Answers whether a wake-up came. May end early, by a part of the
    /// wait: the engine waits again for the rest.
    fn wait(&mut self, wait_ns: Option<u64>) -> Result<bool, i32>;

    /// What the last wait found, one after the other.
    fn found(&mut self) -> Option<Found>;

    /// The function that ends a wait from any thread, also after the selector is gone.
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync>;

    /// Whether a send that is told not to wait may wait all the same, unless its socket is nonblocking.
    fn sends_may_wait(&self) -> bool;

    /// Whether what arrives after a receive that was short, and so took all there was, is always told:
    /// of a TCP stream, that is.
    fn tells_after_short(&self) -> bool;

    /// The unit waits are rounded up to, in nanoseconds.
    fn granularity_ns(&self) -> u64;
}
