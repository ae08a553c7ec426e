//! Options, spelled as a chain of calls.

use std::time::Duration;

#[cfg(feature = "unstable")]
use crate::backend::Backend;
use crate::error::CreateError;
use crate::options::Options;
use crate::runtime::Runtime;

/// Makes a [`Runtime`] with limits of the program's choice. Each method sets the field of
/// [`Options`] of its name, which says what it means; what is not set keeps its default.
///
/// ```
/// # fn main() -> Result<(), rotor::runtime::CreateError> {
/// use std::time::Duration;
///
/// let runtime = rotor::runtime::Builder::new()
///     .sockets(256)
///     .tasks(256)
///     .drain(Duration::from_secs(1))
///     .build()?;
/// runtime.block_on(async { println!("at most 256 of each") });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a builder builds nothing until `build` is called"]
pub struct Builder {
    options: Options,
}

impl Builder {
    /// The default options.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Operations in flight or queued at a time, timers and closes not counted.
    pub fn operations(mut self, operations: u32) -> Builder {
        self.options.operations = operations;
        self
    }

    /// Descriptors (listeners, streams, files) open at a time.
    pub fn sockets(mut self, sockets: u32) -> Builder {
        self.options.sockets = sockets;
        self
    }

    /// Timers armed at a time.
    pub fn timers(mut self, timers: u32) -> Builder {
        self.options.timers = timers;
        self
    }

    /// Tasks alive at a time.
    pub fn tasks(mut self, tasks: u32) -> Builder {
        self.options.tasks = tasks;
        self
    }

    /// Bytes of a task's recycled cell; a larger future is boxed on the heap and counted.
    pub fn task_bytes(mut self, task_bytes: u32) -> Builder {
        self.options.task_bytes = task_bytes;
        self
    }

    /// Receive buffers shared by all streams.
    pub fn buffers(mut self, buffers: u32) -> Builder {
        self.options.buffers = buffers;
        self
    }

    /// Bytes of a receive buffer; also the longest
    /// [`read_exact`](crate::net::TcpStream::read_exact) that loses nothing when it is dropped.
    pub fn buffer_bytes(mut self, buffer_bytes: u32) -> Builder {
        self.options.buffer_bytes = buffer_bytes;
        self
    }

    /// Entries of the submission ring, a power of two.
    pub fn ring_entries(mut self, ring_entries: u32) -> Builder {
        self.options.ring_entries = ring_entries;
        self
    }

    /// How long an idle loop polls before it sleeps.
    pub fn spin_budget(mut self, spin_budget: Duration) -> Builder {
        self.options.spin_budget = spin_budget;
        self
    }

    /// How much later than its deadline a timer may fire, so that one wake-up serves several.
    pub fn timer_slack(mut self, timer_slack: Duration) -> Builder {
        self.options.timer_slack = timer_slack;
        self
    }

    /// Whether the clock stands still from the start, as after [`pause`](crate::time::pause); for tests.
    pub fn start_paused(mut self, start_paused: bool) -> Builder {
        self.options.start_paused = start_paused;
        self
    }

    /// How long a shutdown waits for operations to end and written bytes to leave.
    pub fn drain(mut self, drain: Duration) -> Builder {
        self.options.drain = drain;
        self
    }

    /// The options as set so far.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Makes the runtime.
    ///
    /// # Errors
    /// When an option has a value no runtime can have; when the kernel lacks or refuses something,
    /// which the error names; when memory cannot be had.
    pub fn build(self) -> Result<Runtime, CreateError> {
        Runtime::with_options(&self.options)
    }

    /// Makes the runtime over a backend of the program's own.
    ///
    /// # Errors
    /// As [`build`](Builder::build).
    #[cfg(feature = "unstable")]
    pub fn build_with_backend(self, backend: Box<dyn Backend>) -> Result<Runtime, CreateError> {
        let event_loop = crate::event_loop::Loop::with_backend(&self.options, backend)?;
        Runtime::over(event_loop, &self.options)
    }
}
