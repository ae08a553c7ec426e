//! What can go wrong with time.

use std::{fmt, io};

use crate::error::SubmitError;

/// The time of a [`timeout`](crate::time::timeout) was up before its future was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(pub(crate) ());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up before the future was done")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(error: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, error)
    }
}

/// A timer was not armed: as many are armed as the runtime has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimersFull {
    refused: SubmitError,
}

impl TimersFull {
    pub(crate) fn new(refused: SubmitError) -> TimersFull {
        TimersFull { refused }
    }
}

impl fmt::Display for TimersFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refused.fmt(f)
    }
}

impl std::error::Error for TimersFull {}

impl From<TimersFull> for io::Error {
    fn from(error: TimersFull) -> io::Error {
        error.refused.into()
    }
}
