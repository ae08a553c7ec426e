//! Everything that can be refused or can go wrong, each naming the limit and the remedy.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::contain::Payload;

/// Why an executor could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// `Options::tasks` is zero.
    NoTasks,
    /// `Options::task_bytes` is zero.
    NoTaskBytes,
    /// The tables the options ask for are larger than an address space.
    TooLarge {
        /// `Options::tasks` as given.
        tasks: u32,
        /// `Options::task_bytes` as given.
        task_bytes: u32,
    },
    /// The allocator refused the one allocation of the executor.
    OutOfMemory {
        /// What was asked for: `Executor::memory_bytes` of the options.
        bytes: usize,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::NoTasks => {
                f.write_str("`tasks` is 0, which runs nothing: set it to 1 or more")
            }
            CreateError::NoTaskBytes => {
                f.write_str("`task_bytes` is 0, which holds no future: set it to 1 or more")
            }
            CreateError::TooLarge { tasks, task_bytes } => write!(
                f,
                "{tasks} tasks of {task_bytes} bytes do not fit an address space: lower `tasks` or \
                 `task_bytes`"
            ),
            CreateError::OutOfMemory { bytes } => write!(
                f,
                "the allocator refused the executor's {bytes} bytes: lower `tasks` or `task_bytes`"
            ),
        }
    }
}

impl Error for CreateError {}

/// Why a task was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnError {
    /// As many tasks exist as the executor has cells.
    Full {
        /// `Options::tasks`.
        limit: u32,
    },
    /// The future or its output does not fit a cell, and the options refuse the heap.
    TooLarge {
        /// What the task needs.
        bytes: usize,
        /// What it must be aligned to; a cell is aligned to 64.
        align: usize,
        /// What a cell has: `Options::task_bytes`, rounded up to 32 or to a multiple of 64.
        task_bytes: usize,
    },
    /// There is a free cell, but the wakers and abort handles that are kept of finished tasks hold
    /// all the headers.
    WakersKept {
        /// Finished tasks of which somebody still keeps a waker or an abort handle.
        kept: u32,
        /// `Options::tasks`; the executor has twice as many headers.
        limit: u32,
    },
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::Full { limit } => write!(
                f,
                "the task table is full: all {limit} tasks are in use; raise `tasks`, or let \
                 tasks finish and take or drop their join handles"
            ),
            SpawnError::TooLarge { bytes, align, task_bytes } => write!(
                f,
                "the task needs {bytes} bytes aligned to {align}, a cell has {task_bytes} bytes \
                 aligned to 64; raise `task_bytes`, box the future, or set `oversized` to `Heap`"
            ),
            SpawnError::WakersKept { kept, limit } => write!(
                f,
                "wakers or abort handles are kept of {kept} finished tasks, more than the limit of \
                 {limit} tasks leaves headers for; drop those of finished tasks, or raise `tasks`"
            ),
        }
    }
}

impl Error for SpawnError {}

impl From<SpawnError> for io::Error {
    fn from(error: SpawnError) -> io::Error {
        io::Error::new(io::ErrorKind::QuotaExceeded, error)
    }
}

/// Why a task has no output: it was cancelled, or it panicked.
pub struct JoinError {
    // A box in a mutex in a box: thin, so that the results of tasks that do not panic stay small,
    // and `Sync`, which error types are expected to be, though a payload is only `Send`.
    panic: Option<Box<Mutex<Payload>>>,
}

impl JoinError {
    pub(crate) const fn cancelled() -> JoinError {
        JoinError { panic: None }
    }

    pub(crate) fn panicked(payload: Payload) -> JoinError {
        JoinError { panic: Some(Box::new(Mutex::new(payload))) }
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        self.panic.is_some()
    }

    /// Whether the task was aborted, or dropped because the executor shut down.
    pub fn is_cancelled(&self) -> bool {
        self.panic.is_none()
    }

    /// What the task panicked with, to be given to [`std::panic::resume_unwind`].
    ///
    /// # Panics
    ///
    /// If the task did not panic but was cancelled.
    #[track_caller]
    pub fn into_panic(self) -> Payload {
        match self.try_into_panic() {
            Ok(payload) => payload,
            Err(_) => panic!("`into_panic` on a task that was cancelled: ask `is_panic` first"),
        }
    }

    /// What the task panicked with, or the error back if it was cancelled.
    ///
    /// # Errors
    ///
    /// The error itself, if the task was cancelled.
    pub fn try_into_panic(self) -> Result<Payload, JoinError> {
        match self.panic {
            Some(payload) => Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner)),
            None => Err(self),
        }
    }

    /// Hands the panic's message, where it has one, to `show`.
    fn with_message<R>(&self, show: impl FnOnce(Option<&str>) -> R) -> R {
        let Some(panic) = &self.panic else {
            return show(None);
        };
        let payload = panic.lock().unwrap_or_else(PoisonError::into_inner);
        let text = payload.downcast_ref::<&'static str>().copied();
        show(text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)))
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cancelled() {
            return f.write_str("the task was cancelled");
        }
        self.with_message(|message| match message {
            Some(message) => write!(f, "the task panicked: {message}"),
            None => f.write_str("the task panicked"),
        })
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_cancelled() {
            return f.write_str("JoinError::Cancelled");
        }
        self.with_message(|message| match message {
            Some(message) => write!(f, "JoinError::Panic({message:?})"),
            None => f.write_str("JoinError::Panic(..)"),
        })
    }
}

impl Error for JoinError {}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> io::Error {
        io::Error::other(error)
    }
}
