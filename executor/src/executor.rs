//! The executor: what is called from outside.

use std::fmt;
use std::future::Future;
use std::task::Waker;

use crate::arena::{Arena, Header};
use crate::contain::discard;
use crate::coop;
use crate::error::{CreateError, SpawnError};
use crate::join::JoinHandle;
use crate::options::{Options, Unpark};
use crate::phase::{ABORT, Phase};
use crate::plan::Plan;
use crate::refused::Refused;
use crate::statistics::Statistics;
use crate::waker::new_waker;

/// Why [`Executor::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`Turn::Main` asks for the main future to be polled"]
pub enum Turn {
    /// It is the main future's turn: the caller polls it and runs on. Counted as a poll.
    Main,
    /// Nothing is ready.
    Idle,
    /// The polls are used up and something is ready still.
    Spent,
}

/// A single-threaded executor of a fixed number of tasks. See the [crate](crate) for an example.
///
/// It belongs to the thread that created it. Dropping it drops all tasks; wakers and join handles
/// may outlive it.
pub struct Executor {
    arena: Arena,
}

impl Executor {
    /// How many bytes [`Executor::new`] allocates for these options. They are touched only as tasks
    /// need them. `usize::MAX` if they do not fit an address space.
    pub fn memory_bytes(options: &Options) -> usize {
        Plan::of(options).map_or(usize::MAX, |plan| plan.layout.size())
    }

    /// Creates an executor for the current thread, with the one allocation of its life.
    ///
    /// # Errors
    ///
    /// A limit is zero, or the memory is more than can be had.
    pub fn new(options: Options, unpark: Unpark) -> Result<Executor, CreateError> {
        Ok(Executor { arena: Arena::new(&options, unpark)? })
    }

    /// Makes a task of a future and puts it at the back of the queue.
    ///
    /// On an executor that is shutting down the future is dropped, and the handle is that of a
    /// cancelled task.
    ///
    /// # Errors
    ///
    /// There is no room: see [`SpawnError`]. The future is dropped.
    // A type of future is mostly spawned in one place. Inlined there, it is built in its cell.
    #[inline(always)]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        match self.arena.admit::<F>() {
            Ok(vacancy) => Ok(JoinHandle::claimed(self.arena.place(&vacancy, future))),
            Err(Refused::NoRoom(error)) => Err(error),
            Err(Refused::Closing) => {
                discard(future);
                Ok(JoinHandle::cancelled())
            }
        }
    }

    /// As [`Executor::try_spawn`].
    ///
    /// # Panics
    ///
    /// If there is no room, with the words of the [`SpawnError`].
    #[inline(always)]
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        match self.try_spawn(future) {
            Ok(handle) => handle,
            Err(error) => refused(error),
        }
    }

    /// A waker of the main future, which the caller polls itself: waking it gives it a turn, in the
    /// order of wakes among the tasks.
    pub fn main_waker(&self) -> Waker {
        match self.arena.main() {
            Some(main) => new_waker(main),
            None => unreachable!("the main future's header is there as long as the executor"),
        }
    }

    /// Wakes the main future, for example to give it its first turn.
    pub fn wake_main(&self) {
        if let Some(main) = self.arena.main() {
            self.arena.wake_header(main);
        }
    }

    /// Gives ready tasks their turns, first in, first out, until none is ready, it is the main
    /// future's turn, or `polls_left`, which is counted down by each poll, is zero. After
    /// [`cut_short`](Executor::cut_short) it is zero at once.
    ///
    /// # Panics
    ///
    /// If called from within a task.
    pub fn run(&self, polls_left: &mut u32) -> Turn {
        let arena = &self.arena;
        let _run = Run::begin(arena);
        // First, so that tasks that never let the queue run empty do not keep other threads' out.
        arena.drain_remote();
        let (turn, left) = self.take_turns(*polls_left);
        arena.local.polls.set(arena.local.polls.get() + u64::from(*polls_left - left));
        *polls_left = left;
        if arena.local.cut_short.replace(false) {
            *polls_left = 0;
        }
        turn
    }

    /// Ends the round of turns after the current one, for example because tasks have made enough
    /// system calls in it and others wait for the loop.
    pub fn cut_short(&self) {
        self.arena.local.cut_short.set(true);
    }

    /// Why it ended, and how many polls are left.
    #[inline]
    fn take_turns(&self, mut polls_left: u32) -> (Turn, u32) {
        let arena = &self.arena;
        loop {
            if polls_left == 0 || arena.local.cut_short.get() {
                return (if self.has_ready() { Turn::Spent } else { Turn::Idle }, polls_left);
            }
            let Some(header) = arena.pop() else {
                if self.has_ready() {
                    continue;
                }
                return (Turn::Idle, polls_left);
            };
            // Apart from the others, because it is what nearly all are.
            if header.phase.get() == Phase::Waiting {
                arena.turn(header);
                polls_left -= 1;
            } else if self.is_mains_turn(header) {
                return (Turn::Main, polls_left - 1);
            }
        }
    }

    /// Deals with a header from the queue that is no waiting task's.
    #[cold]
    fn is_mains_turn(&self, header: &Header) -> bool {
        match header.phase.get() {
            Phase::Main => true,
            // Woken, and over before its turn.
            Phase::Finished => {
                self.arena.settle(header);
                false
            }
            // Likewise, and the join handle or whoever drops the output will see to it.
            Phase::Stored | Phase::Ending => false,
            Phase::Free | Phase::Waiting | Phase::Running | Phase::Limbo => {
                unreachable!("a header that is free, running or in limbo is not in the queue")
            }
        }
    }

    /// Whether a task or the main future is ready, woken from whichever thread.
    pub fn has_ready(&self) -> bool {
        self.arena.drain_remote();
        self.arena.is_ready()
    }

    /// To be called before waiting: true if nothing is ready and the caller may sleep. A wake from
    /// another thread that comes later calls [`Unpark`].
    pub fn prepare_wait(&self) -> bool {
        self.arena.clear_notified();
        !self.has_ready()
    }

    /// How many tasks can be spawned now, heap memory permitting.
    pub fn free_tasks(&self) -> u32 {
        let arena = &self.arena;
        let cells = arena.plan.tasks - arena.local.tasks_in_use.get();
        if arena.plan.headers - arena.headers_in_use() < cells {
            arena.drain_remote();
        }
        cells.min(arena.plan.headers - arena.headers_in_use())
    }

    /// What was counted so far.
    pub fn statistics(&self) -> Statistics {
        let local = &self.arena.local;
        Statistics {
            spawned: local.spawned.get(),
            completed: local.completed.get(),
            cancelled: local.cancelled.get(),
            panicked: local.panicked.get(),
            refused: local.refused.get(),
            polls: local.polls.get(),
            wakes_remote: local.wakes_remote.get(),
            tasks_now: local.tasks_in_use.get(),
            tasks_high: local.tasks_high.get(),
            headers_now: self.arena.headers_in_use(),
            // A header is touched only when no free one is left.
            headers_high: self.arena.headers_touched(),
            heap_cells_now: local.heap_cells.get(),
            heap_cells_total: local.heap_cells_total.get(),
        }
    }

    /// Drops the futures of all tasks, in no particular order; from now on what is spawned is
    /// dropped too. Called from within a task, it spares that task until its poll returns.
    ///
    /// Wakers, join handles and the main future's turns keep working.
    pub fn shut_down(&self) {
        let arena = &self.arena;
        arena.local.closing.set(true);
        arena.local.tasks_max.set(0);
        for index in 0..arena.headers_touched() {
            let header = arena.header(index);
            match header.phase.get() {
                Phase::Waiting => arena.cancel(header),
                Phase::Running => header.set_mark(ABORT),
                Phase::Free
                | Phase::Main
                | Phase::Ending
                | Phase::Stored
                | Phase::Finished
                | Phase::Limbo => {}
            }
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("statistics", &self.statistics()).finish()
    }
}

#[cold]
#[track_caller]
pub(crate) fn refused(error: SpawnError) -> ! {
    panic!("{error}")
}

/// A call of `run`: marks it, and takes the budget of its polls from the thread when it is over.
struct Run<'a>(&'a Arena);

impl Run<'_> {
    fn begin(arena: &Arena) -> Run<'_> {
        assert!(
            !arena.local.running.replace(true),
            "`run` was called from within a task: await what the task needs instead"
        );
        Run(arena)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.local.running.set(false);
        coop::lift();
    }
}
