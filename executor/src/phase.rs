//! What a header says of its task: where it is in its life, and a few marks.

/// Where a task is in its life. Only the owner's thread reads or changes it. Those that take turns
/// come first: then asking is one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The main future's header, until the arena closes. Never has storage.
    Main,
    /// The storage holds the future and nobody is using it.
    Waiting,
    /// The future is being polled. Its storage must not be touched by anybody else.
    Running,
    /// No task. Nobody refers to the header; it is in the free list and in no other list.
    Free,
    /// The future or its output is being dropped. May not be woken, aborted or taken any more.
    Ending,
    /// The storage holds the output, and a join handle exists that will take or drop it.
    Stored,
    /// No storage, no join handle. Holds only while the header is still in the run queue; wakers
    /// may still be counted in two places.
    Finished,
    /// No storage, not in the run queue, and all references are counted in `word`: wakers are kept
    /// of a finished task.
    Limbo,
}

impl Phase {
    /// Whether waking queues the header: its task, or the main future, has another turn.
    #[inline]
    pub(crate) fn takes_turns(self) -> bool {
        match self {
            Phase::Waiting | Phase::Running | Phase::Main => true,
            Phase::Free | Phase::Ending | Phase::Stored | Phase::Finished | Phase::Limbo => false,
        }
    }

    /// Whether a task has ended and its output is stored or gone.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Phase::Stored | Phase::Finished | Phase::Limbo => true,
            Phase::Waiting | Phase::Running | Phase::Ending => false,
            Phase::Free | Phase::Main => unreachable!("a reference is to a header of a task"),
        }
    }
}

/// A join handle exists. It keeps the header from being finished, so it is not counted as a
/// reference.
pub(crate) const HANDLE: u8 = 1;
/// The future is to be dropped instead of polled.
pub(crate) const ABORT: u8 = 2;
/// The storage is an allocation of its own and not a cell.
pub(crate) const HEAP: u8 = 4;
/// `joiner` is somebody.
pub(crate) const JOINED: u8 = 8;
