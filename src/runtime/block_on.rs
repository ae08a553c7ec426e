//! The run loop: ready tasks, one tick, and again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rotor_executor::{Executor, JoinHandle, Turn, coop};

use crate::error::{CreateError, TickError};
use crate::event::Event;
use crate::event_loop::{Loop, Statistics as LoopStatistics, Wait};
use crate::limits::{EVENTS_PER_TICK_MAX, IMMEDIATE_CALLS_PER_TICK_MAX, POLLS_PER_TICK_MAX};
use crate::options::Options;
use crate::runtime::core::{Core, Shared, table};
use crate::runtime::current::{self, Entered, register};
use crate::runtime::shutdown::{Report, shut_down};
use crate::runtime::streams::Streams;
use crate::runtime::waits::Waits;

/// A loop and the tasks that live on it, on one thread.
///
/// Tasks make progress only while the thread is inside [`block_on`](Runtime::block_on). A runtime
/// neither moves to another thread nor nests: `block_on` inside `block_on` panics. A thread may own
/// several runtimes and run one at a time; an object of one is not to be used inside another, which
/// panics too.
///
/// Dropping it shuts it down, see [`shut_down`](Runtime::shut_down), and tells standard error in
/// one line if anything had to be leaked.
///
/// ```
/// # fn main() -> Result<(), rotor::runtime::CreateError> {
/// let runtime = rotor::runtime::Runtime::new()?;
/// let sum = runtime.block_on(async {
///     let task = rotor::spawn(async { 40 });
///     task.await.unwrap() + 2
/// });
/// assert_eq!(sum, 42);
/// # Ok(())
/// # }
/// ```
pub struct Runtime {
    /// Absent once it is shut down.
    shared: Option<Rc<Shared>>,
    stays: PhantomData<*const ()>,
}

/// What a runtime has counted so far.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RuntimeStatistics {
    /// The loop: ticks, waits by kind, immediate calls, refusals, high-water marks.
    pub event_loop: LoopStatistics,
    /// The executor: tasks, polls, wakes.
    pub executor: rotor_executor::Statistics,
}

impl Runtime {
    /// A runtime with the default [`Options`].
    ///
    /// # Errors
    /// When the kernel lacks or refuses something, which the error names, or memory cannot be had.
    pub fn new() -> Result<Runtime, CreateError> {
        Runtime::with_options(&Options::default())
    }

    /// A runtime with the given options; a [`Builder`](crate::runtime::Builder) spells the same.
    ///
    /// # Errors
    /// As [`new`](Runtime::new), and when an option has a value no runtime can have.
    pub fn with_options(options: &Options) -> Result<Runtime, CreateError> {
        Runtime::over(Loop::new(options)?, options)
    }

    pub(crate) fn over(event_loop: Loop, options: &Options) -> Result<Runtime, CreateError> {
        let executor = Executor::new(executor_options(options), event_loop.waker())
            .map_err(|error| create_error(error, options))?;
        let id = event_loop.id();
        let core = Core {
            streams: Streams::new(options.sockets)?,
            waits: Waits::new(waits_max(options))?,
            events: vec![Event::EMPTY; EVENTS_PER_TICK_MAX].into_boxed_slice(),
            undelivered: 0..0,
            wanted: VecDeque::from(table(options.sockets)?),
            lapsed: false,
            held: table(options.sockets)?,
            resting: table(options.sockets)?,
            held_for_task: false,
            calls_max: 0,
            event_loop,
        };
        let shared = Rc::new(Shared { id, core: RefCell::new(core), executor });
        register(&shared);
        Ok(Runtime { shared: Some(shared), stays: PhantomData })
    }

    /// How much memory, in bytes, a runtime with these options reserves when it starts. Most of it
    /// is touched only as it is used. Larger futures than `task_bytes` come on top.
    pub fn memory_bytes(options: &Options) -> usize {
        let rows = Streams::memory_bytes(options.sockets) + Waits::memory_bytes(waits_max(options));
        let held = 3 * options.sockets as usize * size_of::<crate::op::Descriptor>();
        let events = EVENTS_PER_TICK_MAX * size_of::<Event>();
        let tasks = Executor::memory_bytes(&executor_options(options));
        Loop::memory_bytes(options).saturating_add(tasks).saturating_add(rows + held + events)
    }

    /// Runs a future to its end, and the runtime's tasks with it, and returns what it gives.
    ///
    /// When it returns, tasks that have not ended stay where they are and go on in the next
    /// `block_on`; so do streams that are closing. Dropping the runtime closes them properly.
    ///
    /// # Panics
    /// When the thread is inside a `block_on` already, of this or another runtime; the outer one is
    /// not harmed. When the future panics; the runtime can be used again after. When the process is
    /// a child made by fork and the runtime its parent's.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(
            current::current().is_none(),
            "rotor: block_on inside a runtime: this thread already runs one, and blocking here would stop its tasks; \
             await the future, or spawn it"
        );
        let shared = self.shared();
        // Outlives the future, whose destructor may use the runtime.
        let _entered = Entered::enter(shared);
        let output = run_to_end(shared, future);
        // Hands over what the future's end has submitted, closes above all. An error here is the
        // next tick's to tell: the output is worth more.
        shared.arm_wanted();
        let _ = shared.tick(Wait::Zero);
        output
    }

    /// Spawns a task. It runs inside [`block_on`](Runtime::block_on), also in later ones. Dropping
    /// the handle detaches the task.
    ///
    /// # Panics
    /// When the table of tasks is full: raise the option `tasks`.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.shared().executor.spawn(future)
    }

    /// What the runtime has counted so far.
    pub fn statistics(&self) -> RuntimeStatistics {
        let shared = self.shared();
        RuntimeStatistics {
            event_loop: shared.core.borrow().event_loop.statistics(),
            executor: shared.executor.statistics(),
        }
    }

    /// The backend that serves this runtime, and what there is to say about it, in one line.
    pub fn backend(&self) -> &'static str {
        self.shared().core.borrow().event_loop.backend()
    }

    /// Ends the runtime: drops every task, closes every stream and listener, delivers what was
    /// written, and waits, up to the option `drain`, for the kernel to let go of all memory. What it
    /// does not let go of is leaked, so that it can never write to memory that is used for
    /// something else.
    pub fn shut_down(mut self) -> Report {
        match self.shared.take() {
            Some(shared) => shut_down(shared),
            None => Report::default(),
        }
    }

    fn shared(&self) -> &Rc<Shared> {
        let Some(shared) = &self.shared else {
            unreachable!("rotor: a runtime is used after it was shut down");
        };
        shared
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shut_down(shared).tell();
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.shared.as_ref().map(|shared| shared.id);
        f.debug_struct("Runtime").field("loop", &id).finish_non_exhaustive()
    }
}

fn run_to_end<F: Future>(shared: &Shared, future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = shared.executor.main_waker();
    let mut cx = Context::from_waker(&waker);
    shared.executor.wake_main();
    loop {
        shared.begin_round();
        let mut polls_left = POLLS_PER_TICK_MAX;
        while let Turn::Main = shared.executor.run(&mut polls_left) {
            let _budget = Budget::begin();
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
        }
        let all_armed = shared.arm_wanted();
        let idle = all_armed && !shared.executor.has_ready() && shared.executor.prepare_wait();
        if let Err(error) = shared.tick(if idle { Wait::Forever } else { Wait::Zero }) {
            panic!("rotor: {error}");
        }
    }
}

/// The main future's cooperative budget; what runs after its poll is not limited.
struct Budget;

impl Budget {
    fn begin() -> Budget {
        coop::reset();
        Budget
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        coop::lift();
    }
}

impl Shared {
    /// Tasks may make so many immediate calls before the next tick.
    fn begin_round(&self) {
        let mut core = self.core.borrow_mut();
        core.calls_max = core.event_loop.immediate_calls() + IMMEDIATE_CALLS_PER_TICK_MAX;
    }

    /// One tick, and the wakes of its events.
    fn tick(&self, wait: Wait) -> Result<(), TickError> {
        let left_over = !self.core.borrow().undelivered.is_empty();
        if left_over {
            // A waker panicked in mid-tick. Whom the rest wakes is ready, so there is no waiting.
            self.dispatch();
        }
        let count = {
            let mut core = self.core.borrow_mut();
            let core = &mut *core;
            let wait = if left_over { Wait::Zero } else { wait };
            let count = core.event_loop.tick(&mut core.events, wait)?;
            core.undelivered = 0..count;
            count
        };
        self.dispatch();
        self.release_held(count > 0);
        Ok(())
    }
}

/// Each waits for an operation or a timer of the loop, or holds the final event of one.
fn waits_max(options: &Options) -> u32 {
    options.operations.saturating_add(options.timers)
}

fn executor_options(options: &Options) -> rotor_executor::Options {
    rotor_executor::Options {
        tasks: options.tasks,
        task_bytes: options.task_bytes,
        oversized: rotor_executor::Oversized::Heap,
    }
}

fn create_error(error: rotor_executor::CreateError, options: &Options) -> CreateError {
    use rotor_executor::CreateError as Refused;
    match error {
        Refused::NoTasks => {
            CreateError::Option { name: "tasks", rule: "0 runs nothing: set it to 1 or more" }
        }
        Refused::NoTaskBytes => CreateError::Option {
            name: "task_bytes",
            rule: "0 holds no future: set it to 1 or more",
        },
        Refused::OutOfMemory { bytes } => CreateError::OutOfMemory { needed: bytes },
        // `TooLarge`, and what a later executor may refuse.
        _ => CreateError::OutOfMemory {
            needed: (options.tasks as usize).saturating_mul(options.task_bytes as usize),
        },
    }
}
