//! What can fail outside the I/O itself: small types that name the limit and the remedy.

use std::{fmt, io};

/// A loop or runtime could not be made.
#[derive(Debug)]
pub enum CreateError {
    /// An option has a value no loop can have.
    Option {
        /// The option's name.
        name: &'static str,
        /// The rule it breaks, and what to do.
        rule: &'static str,
    },
    /// The memory handed in is too small.
    MemoryTooSmall {
        /// Bytes needed, as `Loop::memory_bytes` says.
        needed: usize,
        /// Bytes handed in.
        given: usize,
    },
    /// The memory could not be had.
    OutOfMemory {
        /// Bytes asked for.
        needed: usize,
    },
    /// io_uring's rings count against the memory-lock limit (`RLIMIT_MEMLOCK`) of the user, and there
    /// was no room for them.
    MemoryLock {
        /// Bytes the rings take.
        needed: u64,
        /// The limit, if there is one and the process is not exempt (`CAP_IPC_LOCK`). The user's other
        /// rings count against it too.
        limit: Option<u64>,
    },
    /// The kernel refused or lacks something; `what` is the first thing missing.
    Backend {
        /// The call, flag, feature or operation.
        what: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Option { name, rule } => write!(f, "option `{name}`: {rule}"),
            CreateError::MemoryTooSmall { needed, given } => write!(
                f,
                "the loop needs {needed} bytes of memory and was given {given}; size it with Loop::memory_bytes"
            ),
            CreateError::OutOfMemory { needed } => {
                write!(
                    f,
                    "{needed} bytes of memory could not be reserved; lower the limits in Options"
                )
            }
            CreateError::MemoryLock { needed, limit } => {
                write!(f, "io_uring's rings take {needed} bytes of locked memory, and ")?;
                match limit {
                    Some(limit) => write!(f, "the user's limit is {limit} bytes for all of them")?,
                    None => f.write_str("the kernel had none, though no limit holds")?,
                }
                if limit.is_some() {
                    f.write_str("; raise RLIMIT_MEMLOCK (ulimit -l),")?;
                } else {
                    f.write_str("; free some,")?;
                }
                f.write_str(
                    " lower the options `ring_entries` and `buffers`, \
                     or run on epoll (ROTOR_BACKEND=epoll)",
                )
            }
            CreateError::Backend { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for CreateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CreateError::Backend { error, .. } => Some(error),
            CreateError::Option { .. }
            | CreateError::MemoryTooSmall { .. }
            | CreateError::OutOfMemory { .. }
            | CreateError::MemoryLock { .. } => None,
        }
    }
}

impl From<CreateError> for io::Error {
    fn from(error: CreateError) -> io::Error {
        let kind = match &error {
            CreateError::Option { .. } | CreateError::MemoryTooSmall { .. } => {
                io::ErrorKind::InvalidInput
            }
            CreateError::OutOfMemory { .. } | CreateError::MemoryLock { .. } => {
                io::ErrorKind::OutOfMemory
            }
            CreateError::Backend { error, .. } => error.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// An operation was not taken; nothing was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// A table is full; operations end and make room.
    Full {
        /// The option that sets the limit.
        option: &'static str,
        /// Its value.
        limit: u32,
    },
    /// The descriptor is closed, closing, or of another loop.
    Closed,
    /// A connect of the descriptor is queued or in flight already.
    Connecting,
    /// A child process used the loop its parent made.
    Forked,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Full { option, limit } => {
                write!(
                    f,
                    "all {limit} {option} are in use; raise the option `{option}` or wait for one to end"
                )
            }
            SubmitError::Closed => {
                f.write_str("the descriptor is closed or belongs to another loop")
            }
            SubmitError::Connecting => {
                f.write_str("a connect of this descriptor is under way; wait for its final event")
            }
            SubmitError::Forked => f.write_str(FORKED),
        }
    }
}

impl std::error::Error for SubmitError {}

impl From<SubmitError> for io::Error {
    fn from(error: SubmitError) -> io::Error {
        let kind = match error {
            SubmitError::Full { .. } => io::ErrorKind::QuotaExceeded,
            SubmitError::Closed => io::ErrorKind::NotConnected,
            SubmitError::Connecting => io::ErrorKind::InvalidInput,
            SubmitError::Forked => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// What every call answers in a child process.
pub(crate) const FORKED: &str =
    "this loop belongs to the parent process; a child made by fork must make its own runtime";

/// A tick could not be made.
#[derive(Debug)]
pub enum TickError {
    /// A child process used the loop its parent made.
    Forked,
    /// The kernel refused the call that submits and waits.
    Backend(io::Error),
}

impl fmt::Display for TickError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TickError::Forked => f.write_str(FORKED),
            TickError::Backend(error) => write!(f, "the backend cannot wait for events: {error}"),
        }
    }
}

impl std::error::Error for TickError {}

impl From<TickError> for io::Error {
    fn from(error: TickError) -> io::Error {
        match error {
            TickError::Backend(error) => error,
            TickError::Forked => io::Error::other(error),
        }
    }
}
