//! Tasks: a future in a cell, later its output in the same place.
//!
//! This file holds unsafe code: a header knows its storage as an untyped pointer and a table of the
//! functions that know the type. Its invariants:
//!
//! 1. `operations` is the table of the type that was written to `storage`, from `place` on.
//! 2. In `Waiting` and `Running` the storage holds the future, in `Stored` the output. A future is
//!    never moved and is dropped in place, by the owner's thread.
//! 3. `Running` and `Ending` are entered only from a phase in which nobody uses the storage, and
//!    left by whoever entered. So nobody else touches it meanwhile, whatever foreign code does.
//! 4. Until the task is over, a `Claim<T>` exists for its header exactly while the mark `HANDLE` is
//!    set, and its `T` is the output of the future that was placed. With the mark set a header never becomes `Finished`.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::arena::{ABORT, Arena, HANDLE, HEAP, Header, Phase, Shared};
use crate::contain::{contained, discard};
use crate::coop;
use crate::error::{JoinError, SpawnError};
use crate::joiner::{Joiner, Member};
use crate::options::Oversized;
use crate::plan::CELL_ALIGN;
use crate::refused::Refused;
use crate::waker::{Reference, finish, lend_waker};

/// What the header's storage holds.
#[repr(C)]
union Storage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Result<F::Output, JoinError>>,
}

/// A header and a storage that are taken for a task and hold nothing yet: it must be placed in them,
/// or they are lost.
pub(crate) struct Vacancy<'a, F> {
    header: &'a Header,
    storage: NonNull<u8>,
    marks: u8,
    future: PhantomData<F>,
}

/// What a poll left in the storage.
enum Polled {
    /// The future.
    Pending,
    /// The output. The future returned.
    Returned,
    /// The output. The future panicked.
    Panicked,
}

/// The functions of one type of future. All are called on the owner's thread, with a storage of
/// that type that nobody else uses, and none unwinds.
pub(crate) struct Operations {
    /// Polls the future; if it ends, puts the output in its place.
    poll: unsafe fn(NonNull<u8>, &mut Context<'_>) -> Polled,
    /// Drops the future and puts the error in its place.
    cancel: unsafe fn(NonNull<u8>),
    /// Drops the output.
    drop_output: unsafe fn(NonNull<u8>),
    layout: Layout,
}

impl Operations {
    /// For headers that never had a task. Their storage is never used.
    pub(crate) const NONE: Operations = Operations {
        poll: |_, _| Polled::Pending,
        cancel: |_| {},
        drop_output: |_| {},
        layout: Layout::new::<()>(),
    };
}

struct Typed<F>(PhantomData<F>);

impl<F: Future + 'static> Typed<F> {
    const OPERATIONS: Operations = Operations {
        poll: poll::<F>,
        cancel: cancel::<F>,
        drop_output: drop_output::<F>,
        layout: Layout::new::<Storage<F>>(),
    };
}

/// # Safety
///
/// The storage holds a future of type `F`, and nobody else uses it.
unsafe fn poll<F: Future>(storage: NonNull<u8>, cx: &mut Context<'_>) -> Polled {
    // SAFETY: the caller's word; a future in its storage is never moved, so it may be pinned.
    let polled = contained(|| unsafe { Pin::new_unchecked(storage.cast::<F>().as_mut()).poll(cx) });
    let (output, how) = match polled {
        Ok(Poll::Pending) => return Polled::Pending,
        Ok(Poll::Ready(output)) => (Ok(output), Polled::Returned),
        Err(payload) => (Err(JoinError::panicked(payload)), Polled::Panicked),
    };
    // SAFETY: the caller's word; the future is dropped once, and the output takes its place. What
    // the output is worth does not depend on the destructor: its panic is contained and goes no
    // further.
    unsafe {
        if std::mem::needs_drop::<F>() {
            if let Err(payload) = contained(|| storage.cast::<F>().drop_in_place()) {
                discard(payload);
            }
        }
        storage.cast::<Result<F::Output, JoinError>>().write(output);
    }
    how
}

/// # Safety
///
/// As `poll`.
unsafe fn cancel<F: Future>(storage: NonNull<u8>) {
    // SAFETY: the caller's word; the future is dropped once, and the output takes its place.
    unsafe {
        let error = match contained(|| storage.cast::<F>().drop_in_place()) {
            Ok(()) => JoinError::cancelled(),
            Err(payload) => JoinError::panicked(payload),
        };
        storage.cast::<Result<F::Output, JoinError>>().write(Err(error));
    }
}

/// # Safety
///
/// The storage holds the output of a future of type `F`, and nobody else uses it.
unsafe fn drop_output<F: Future>(storage: NonNull<u8>) {
    let output = storage.cast::<Result<F::Output, JoinError>>();
    // SAFETY: the caller's word; the output is dropped once.
    if let Err(payload) = contained(|| unsafe { output.drop_in_place() }) {
        discard(payload);
    }
}

impl Arena {
    /// Takes a header and a storage for a future of type `F`. It comes before the future is moved,
    /// which then moves once, and is dropped by the caller if there is no room.
    #[inline(always)]
    pub(crate) fn admit<F>(&self) -> Result<Vacancy<'_, F>, Refused>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let layout = const { Layout::new::<Storage<F>>() };
        let local = &self.local;
        let tasks = local.tasks_in_use.get();
        if tasks >= local.tasks_max.get() {
            return Err(self.refuse_full());
        }
        let fits = layout.size() <= self.plan.cell_bytes && layout.align() <= CELL_ALIGN;
        if !fits && self.oversized == Oversized::Refuse {
            return Err(self.refuse_large(layout));
        }
        let header = match self.take_header() {
            Some(header) => header,
            None => self.take_header_let_go()?,
        };
        local.tasks_in_use.set(tasks + 1);
        if tasks >= local.tasks_high.get() {
            local.tasks_high.set(tasks + 1);
        }
        local.spawned.set(local.spawned.get() + 1);
        let (storage, marks) = if fits {
            (self.take_cell(), HANDLE)
        } else {
            (self.take_heap_cell(layout), HANDLE | HEAP)
        };
        Ok(Vacancy { header, storage, marks, future: PhantomData })
    }

    /// Makes a task of a future and queues it.
    #[inline(always)]
    pub(crate) fn place<F>(&self, vacancy: &Vacancy<'_, F>, future: F) -> Claim<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let header = vacancy.header;
        // SAFETY: the storage is the task's alone, large enough and aligned for an `F`.
        unsafe { vacancy.storage.cast::<F>().write(future) };
        header.operations.set(const { &Typed::<F>::OPERATIONS });
        header.storage.set(vacancy.storage);
        header.marks.set(vacancy.marks);
        header.phase.set(Phase::Waiting);
        self.append(header);
        Claim { header: NonNull::from(header), output: PhantomData }
    }

    /// Looks for a header among those whose last waker another thread dropped.
    #[cold]
    fn take_header_let_go(&self) -> Result<&Header, Refused> {
        self.drain_remote();
        self.take_header().ok_or_else(|| {
            // One is the main future's.
            let kept = self.headers_in_use() - self.local.tasks_in_use.get() - 1;
            self.refuse(SpawnError::WakersKept { kept, limit: self.plan.tasks })
        })
    }

    #[cold]
    fn take_heap_cell(&self, layout: Layout) -> NonNull<u8> {
        self.local.heap_cells.set(self.local.heap_cells.get() + 1);
        self.local.heap_cells_total.set(self.local.heap_cells_total.get() + 1);
        // SAFETY: the size is not zero: the storage has room for a `JoinError`.
        let memory = unsafe { std::alloc::alloc(layout) };
        NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Gives a waiting task its turn: polls it, or drops it if it was aborted.
    #[inline]
    pub(crate) fn turn(&self, header: &Header) {
        assert!(header.phase.get() == Phase::Waiting, "a turn is a waiting task's");
        if header.has_mark(ABORT) {
            self.cancel(header);
            return;
        }
        header.phase.set(Phase::Running);
        coop::reset();
        let waker = lend_waker(header);
        let mut cx = Context::from_waker(&waker);
        // SAFETY: invariants 1 and 2; the phase keeps everybody else away.
        let polled = unsafe { (header.operations.get().poll)(header.storage.get(), &mut cx) };
        let count = match polled {
            Polled::Pending => {
                header.phase.set(Phase::Waiting);
                if header.has_mark(ABORT) {
                    self.cancel(header);
                }
                return;
            }
            Polled::Returned => &self.local.completed,
            Polled::Panicked => &self.local.panicked,
        };
        count.set(count.get() + 1);
        self.deliver(header);
    }

    /// Drops the future of a waiting task, which ends as cancelled.
    pub(crate) fn cancel(&self, header: &Header) {
        assert!(header.phase.get() == Phase::Waiting, "only a waiting task's future is dropped");
        header.phase.set(Phase::Ending);
        // SAFETY: invariants 1 and 2; the phase keeps everybody else away.
        unsafe { (header.operations.get().cancel)(header.storage.get()) };
        self.local.cancelled.set(self.local.cancelled.get() + 1);
        self.deliver(header);
    }

    /// Leaves the output to the join handle and wakes who awaits it, or drops it if there is none.
    #[inline]
    fn deliver(&self, header: &Header) {
        if header.has_mark(HANDLE) {
            header.phase.set(Phase::Stored);
            if let Some(waker) = header.joiner.take().told() {
                self.wake_waker(waker);
            }
            return;
        }
        header.phase.set(Phase::Ending);
        // SAFETY: invariants 1 and 2; the phase keeps everybody else away, and nothing is left in
        // the storage when it is released.
        unsafe {
            (header.operations.get().drop_output)(header.storage.get());
            release_storage(self, header);
            finish(NonNull::from(header));
        }
    }
}

/// Gives a task's storage back, and with it the task's place.
///
/// # Safety
///
/// On the owner's thread. The storage holds nothing any more, and `finish` is called next.
#[inline]
unsafe fn release_storage(shared: &Shared, header: &Header) {
    let local = &shared.local;
    local.tasks_in_use.set(local.tasks_in_use.get() - 1);
    let storage = header.storage.get();
    if !header.has_mark(HEAP) {
        // SAFETY: taken from this arena in `place`; the caller's word that it is empty.
        unsafe { shared.give_cell(storage) };
        return;
    }
    // SAFETY: allocated in `take_heap_cell`; the caller's word that it is empty.
    unsafe { give_heap_cell(shared, header) };
}

/// # Safety
///
/// The header's storage is a heap cell and holds nothing any more.
#[cold]
unsafe fn give_heap_cell(shared: &Shared, header: &Header) {
    shared.local.heap_cells.set(shared.local.heap_cells.get() - 1);
    // SAFETY: the caller's word; allocated with this layout.
    unsafe {
        std::alloc::dealloc(header.storage.get().as_ptr(), header.operations.get().layout);
    }
}

/// A join handle's hold on its task: the right to take or drop the output. Dropping it lets the
/// task go on by itself. It may outlive the executor; as it holds a pointer, it stays on its
/// thread.
pub(crate) struct Claim<T> {
    header: NonNull<Header>,
    output: PhantomData<fn() -> T>,
}

impl<T> Claim<T> {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: invariant 4, the header is not free while its handle exists.
        unsafe { self.header.as_ref() }
    }

    /// Whether the output is there.
    #[inline]
    pub(crate) fn is_stored(&self) -> bool {
        match self.header().phase.get() {
            Phase::Stored => true,
            Phase::Waiting | Phase::Running | Phase::Ending => false,
            Phase::Free | Phase::Main | Phase::Finished | Phase::Limbo => never_claimed(),
        }
    }

    /// Remembers whom to wake. Returns whether the output is there by now.
    #[inline]
    pub(crate) fn wake_when_stored(&self, cx: &Context<'_>) -> bool {
        let header = self.header();
        let before = header.joiner.take();
        if before.is_nobody() {
            // SAFETY: invariant 1 of `arena.rs`: who has a header has its arena.
            if let Some(waker) = unsafe { header.shared.as_ref() }.clone_own(cx.waker()) {
                header.put_joiner(Joiner::Waker(waker));
                return false;
            }
        }
        self.replace_joiner(before, cx)
    }

    /// The same for wakers that are another executor's, and in place of another waker.
    #[cold]
    fn replace_joiner(&self, before: Joiner, cx: &Context<'_>) -> bool {
        let header = self.header();
        // The old waker is out of the header while foreign code runs. Only this claim's owner, who
        // is here, ever puts one in.
        match before {
            Joiner::Waker(old) if old.will_wake(cx.waker()) => {
                header.put_joiner(Joiner::Waker(old));
                return false;
            }
            old => discard(old),
        }
        let waker = cx.waker().clone();
        // A waker's clone and drop are foreign code, which may have run the executor.
        if self.is_stored() {
            return true;
        }
        header.put_joiner(Joiner::Waker(waker));
        false
    }

    /// Has the end reported to a set, at once if the output is there.
    pub(crate) fn report_to(&self, member: Rc<Member>) -> Option<Waker> {
        if self.is_stored() {
            return member.finished();
        }
        discard(self.header().joiner.replace(Joiner::Member(Some(member))));
        None
    }

    /// A reference to the task that outlives the claim.
    pub(crate) fn reference(&self) -> Reference {
        Reference::new(self.header())
    }

    /// As `abort` of the header.
    pub(crate) fn abort(&self) {
        abort(self.header());
    }

    /// Takes the output, which is there.
    #[inline]
    pub(crate) fn take(self) -> Result<T, JoinError> {
        assert!(self.is_stored(), "an output is taken when it is there");
        let this = ManuallyDrop::new(self);
        let header = this.header();
        // SAFETY: invariants 2 and 4. The output is moved out, so the storage is empty and the
        // claim is over; nothing of the arena is touched after `finish`.
        unsafe {
            let output = header.storage.get().cast::<Result<T, JoinError>>().read();
            release_storage(header.shared.as_ref(), header);
            finish(this.header);
            output
        }
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        let header = self.header();
        header.clear_mark(HANDLE);
        let joiner = header.joiner.take();
        match header.phase.get() {
            Phase::Stored => {
                header.phase.set(Phase::Ending);
                // SAFETY: invariants 1 and 2; the phase keeps everybody else away. Nothing is left
                // in the storage when it is released, and nothing of the arena is touched after
                // `finish`.
                unsafe {
                    (header.operations.get().drop_output)(header.storage.get());
                    release_storage(header.shared.as_ref(), header);
                    finish(self.header);
                }
            }
            Phase::Waiting | Phase::Running | Phase::Ending => {}
            Phase::Free | Phase::Main | Phase::Finished | Phase::Limbo => never_claimed(),
        }
        discard(joiner);
    }
}

/// Has the future dropped at the task's next turn, or after the poll that is going on. The owner's
/// thread only, by a claim or a reference.
pub(crate) fn abort(header: &Header) {
    match header.phase.get() {
        Phase::Waiting => {
            header.set_mark(ABORT);
            // SAFETY: invariant 1 of `arena.rs`: who has a header has its arena.
            unsafe { header.shared.as_ref() }.wake_header(header);
        }
        Phase::Running => header.set_mark(ABORT),
        Phase::Ending | Phase::Stored | Phase::Finished | Phase::Limbo => {}
        Phase::Free | Phase::Main => unreachable!("a reference is to a header of a task"),
    }
}

/// Whether the task has ended and its output is stored or gone.
pub(crate) fn is_over(header: &Header) -> bool {
    match header.phase.get() {
        Phase::Stored | Phase::Finished | Phase::Limbo => true,
        Phase::Waiting | Phase::Running | Phase::Ending => false,
        Phase::Free | Phase::Main => unreachable!("a reference is to a header of a task"),
    }
}

#[cold]
fn never_claimed() -> ! {
    unreachable!("a join handle's task is not finished before the handle is gone")
}
