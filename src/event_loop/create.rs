#![deny(unsafe_code)]
//! How a loop is made: options checked, memory planned, tables cut, the backend attached.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::readiness::{Engine, Sizes, System};
use crate::backend::{Backend, BufferMemory, Chosen, Driver, Kind, choice};
use crate::error::CreateError;
use crate::event_loop::clock::Clock;
use crate::event_loop::{Loop, Statistics};
use crate::limits::{BUFFERS_MAX, BUFFERS_PROVIDED_MAX, ROWS_MAX, TRANSFER_BYTES_MAX};
use crate::options::Options;
use crate::tables::NONE;
use crate::tables::arena::buffer_stride;
use crate::tables::arena::{ARENA_ALIGN, Arena, Plan};
use crate::tables::buffers::Buffers;
use crate::tables::list::List;
use crate::tables::orphans::Orphans;
use crate::tables::slots::Slots;
use crate::tables::sockets::Sockets;
use crate::tables::tokens::Tokens;
use crate::tables::wheel::Wheel;

/// Bytes of an entry of a provided-buffer ring (`struct io_uring_buf`).
const RING_ENTRY_BYTES: usize = 16;

thread_local! {
    /// Its address tells threads apart.
    static THREAD: u8 = const { 0 };
}

/// A number for the calling thread, unique among live threads.
pub(super) fn this_thread() -> usize {
    THREAD.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Where a loop's backend comes from.
enum Source<'a> {
    /// It is the process's, which is chosen now if it is the first.
    Process,
    /// The same, but chosen for a trial, which decides nothing.
    Trial(&'a mut Option<Chosen>),
    Own(Box<dyn Backend>),
}

impl Loop {
    /// Bytes a loop with these options takes. They are reserved at once and touched as used.
    pub fn memory_bytes(options: &Options) -> usize {
        let mut plan = Plan::default();
        let slots = Slots::rows(options.operations, options.timers, options.sockets);
        Slots::plan(&mut plan, options.operations, options.timers, options.sockets);
        Sockets::plan(&mut plan, options.sockets);
        Wheel::plan(&mut plan, options.timers);
        Orphans::plan(&mut plan, options.operations);
        Tokens::plan(&mut plan, slots);
        Tokens::plan(&mut plan, slots);
        Buffers::plan(&mut plan, options.buffers, options.buffer_bytes);
        plan.range(ring_entries(options) as usize * RING_ENTRY_BYTES, ARENA_ALIGN);
        Engine::<System>::plan(&mut plan, sizes(options));
        plan.bytes()
    }

    /// Makes a loop on the system's backend.
    ///
    /// # Errors
    /// When an option has an impossible value, memory cannot be had, or the kernel lacks or
    /// refuses something: the error names the first such thing.
    pub fn new(options: &Options) -> Result<Loop, CreateError> {
        check(options)?;
        let arena = Arena::new(Loop::memory_bytes(options))?;
        Loop::assemble(options, arena, Source::Process)
    }

    /// Makes a loop in the program's memory, of at least
    /// [`memory_bytes`](Loop::memory_bytes) and a page more if it is not aligned to one.
    ///
    /// # Errors
    /// As for [`new`](Loop::new), or when the memory is too small.
    pub fn new_in(
        options: &Options,
        memory: &'static mut [MaybeUninit<u8>],
    ) -> Result<Loop, CreateError> {
        check(options)?;
        let arena = Arena::in_memory(memory, Loop::memory_bytes(options))?;
        Loop::assemble(options, arena, Source::Process)
    }

    /// Makes a loop on a backend of the program's.
    ///
    /// # Errors
    /// When an option has an impossible value or memory cannot be had.
    pub fn with_backend(options: &Options, backend: Box<dyn Backend>) -> Result<Loop, CreateError> {
        check(options)?;
        let arena = Arena::new(Loop::memory_bytes(options))?;
        Loop::assemble(options, arena, Source::Own(backend))
    }

    fn assemble(
        options: &Options,
        mut arena: Arena,
        source: Source<'_>,
    ) -> Result<Loop, CreateError> {
        let id = next_id();
        // Loops begin far apart (by the golden ratio), so that a handle of one is stale in another.
        let generation = id.wrapping_mul(0x9e37_79b1);
        let limits = [options.operations, options.timers, options.sockets];
        let slots_max = Slots::rows(limits[0], limits[1], limits[2]);
        let cut = &mut arena;
        let slots = Slots::new(cut, limits, generation);
        let sockets = Sockets::new(cut, options.sockets, generation);
        let timers = Wheel::new(cut, options.timers);
        let orphans = Orphans::new(cut, options.operations, generation);
        let unsubmitted = Tokens::new(cut, slots_max);
        let uncanceled = Tokens::new(cut, slots_max);
        let buffers = Buffers::new(cut, options.buffers, options.buffer_bytes);
        let entries = ring_entries(options);
        let ring = cut.range(entries as usize * RING_ENTRY_BYTES, ARENA_ALIGN);
        let memory = BufferMemory {
            base: buffers.base(),
            stride: buffer_stride(options.buffer_bytes),
            count: options.buffers,
            bytes: options.buffer_bytes,
            ring: ring.as_ptr(),
            ring_entries: entries,
        };
        // The buffers are part of what the system is asked for.
        let attached = |mut driver: Driver| driver.attach(memory, options).map(|()| driver);
        let of_kind =
            |kind: Kind| Driver::new(kind, options, cut, sizes(options)).and_then(attached);
        let driver = match source {
            Source::Own(backend) => attached(Driver::Custom(backend))?,
            Source::Process => choice::make(of_kind)?,
            Source::Trial(chosen) => {
                let (driver, would) = choice::try_out(of_kind)?;
                *chosen = Some(would);
                driver
            }
        };
        Ok(Loop {
            slots,
            sockets,
            timers,
            clock: Clock::new(driver.now(), options.start_paused),
            buffers,
            orphans,
            unsubmitted,
            uncanceled,
            done: List::EMPTY,
            starved_receives: List::EMPTY,
            feeding: false,
            starved_accepts: List::EMPTY,
            closing: NONE,
            closing_check_ns: u64::MAX,
            late_error: None,
            timers_turn: false,
            in_kernel: 0,
            picking: 0,
            gave_up: false,
            driver,
            provided_max: entries,
            options: *options,
            id,
            thread: this_thread(),
            counts: Statistics::default(),
            arena,
        })
    }
}

fn ring_entries(options: &Options) -> u32 {
    options.buffers.next_power_of_two().min(BUFFERS_PROVIDED_MAX)
}

/// What a readiness backend has room for. A descriptor more than there are rows, for a duplicate.
fn sizes(options: &Options) -> Sizes {
    Sizes {
        tokens: Slots::rows(options.operations, options.timers, options.sockets),
        descriptors: options.sockets + 1,
        buffers: ring_entries(options),
    }
}

/// The backend of this process, and why it is the one. Chosen when the first loop or runtime is made,
/// with its sizes. Before that this answers what would run with the default ones: it makes a loop and
/// drops it, and decides nothing.
///
/// # Errors
/// When no loop could be made: what was asked for by hand cannot be had, or memory or descriptors are
/// short.
pub fn backend() -> Result<Chosen, CreateError> {
    if let Some(chosen) = choice::chosen() {
        return Ok(chosen);
    }
    let options = Options::default();
    let arena = Arena::new(Loop::memory_bytes(&options))?;
    let mut chosen = None;
    drop(Loop::assemble(&options, arena, Source::Trial(&mut chosen))?);
    Ok(chosen.expect("a loop was made"))
}

/// A number that no other loop of the process has.
fn next_id() -> u32 {
    static IDS: AtomicU32 = AtomicU32::new(1);
    IDS.fetch_add(1, Ordering::Relaxed)
}

fn check(options: &Options) -> Result<(), CreateError> {
    let counts = [
        ("operations", options.operations),
        ("sockets", options.sockets),
        ("timers", options.timers),
        ("buffers", options.buffers),
        ("buffer_bytes", options.buffer_bytes),
        ("ring_entries", options.ring_entries),
    ];
    for (name, value) in counts {
        if value == 0 {
            return Err(CreateError::Option { name, rule: "must be at least 1" });
        }
    }
    let too_large = |name, rule| Err(CreateError::Option { name, rule });
    for (name, value) in &counts[..3] {
        if *value > ROWS_MAX {
            return too_large(name, "must be at most 16,777,216");
        }
    }
    if options.buffers > BUFFERS_MAX {
        return too_large("buffers", "must be at most 32,768");
    }
    if options.buffer_bytes > TRANSFER_BYTES_MAX {
        return too_large("buffer_bytes", "must be at most 2,147,479,552");
    }
    if !options.ring_entries.is_power_of_two() || options.ring_entries > 32_768 {
        return too_large("ring_entries", "must be a power of two and at most 32,768");
    }
    Ok(())
}
