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
//!    set, and its `T` is the output of the future that was placed. A header with the mark becomes `Finished` only as its claim ends.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use crate::admission::Vacancy;
use crate::arena::{Arena, Header, Shared, free_place};
use crate::contain::{contained, discard};
use crate::coop;
use crate::error::JoinError;
use crate::joiner::{Joiner, Member};
use crate::phase::{ABORT, HANDLE, HEAP, JOINED, Phase};
use crate::waker::{Reference, finish, is_alone, lend_waker};

/// What the header's storage holds.
#[repr(C)]
pub(crate) union Storage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<Result<F::Output, JoinError>>,
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
    pub(crate) layout: Layout,
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
    /// Makes a task of a future and queues it.
    #[inline(always)]
    pub(crate) fn place<F>(&self, vacancy: &Vacancy<'_, F>, future: F) -> Claim<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let header = vacancy.header;
        // SAFETY: the storage is the task's alone, large enough and aligned for an `F`.
        unsafe { header.storage.get().cast::<F>().write(future) };
        header.operations.set(const { &Typed::<F>::OPERATIONS });
        header.marks.set(vacancy.marks);
        header.phase.set(Phase::Waiting);
        self.append(header);
        Claim { header: NonNull::from(header), output: PhantomData }
    }

    pub(crate) fn take_heap_cell(&self, layout: Layout) -> NonNull<u8> {
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
        match polled {
            Polled::Pending => {
                header.phase.set(Phase::Waiting);
                if header.has_mark(ABORT) {
                    self.cancel(header);
                }
                return;
            }
            Polled::Returned => self.local.completed.set(self.local.completed.get() + 1),
            Polled::Panicked => self.count_panic(),
        }
        self.deliver(header);
    }

    #[cold]
    fn count_panic(&self) {
        self.local.panicked.set(self.local.panicked.get() + 1);
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
        let marks = header.marks.get();
        if marks & HANDLE == 0 {
            self.drop_unclaimed(header);
            return;
        }
        header.phase.set(Phase::Stored);
        if marks & JOINED != 0 {
            self.tell(header.take_joiner());
        }
    }

    #[inline]
    fn tell(&self, joiner: Joiner) {
        match joiner {
            Joiner::Waker(waker) => self.wake_waker(waker),
            Joiner::Member(member) => self.tell_member(member),
        }
    }

    #[cold]
    fn tell_member(&self, member: Option<Rc<Member>>) {
        if let Some(waker) = member.and_then(|member| member.finished()) {
            self.wake_waker(waker);
        }
    }

    /// Drops the output of a task without a join handle.
    fn drop_unclaimed(&self, header: &Header) {
        // SAFETY: invariants 1 and 2: `deliver` comes from a phase in which nobody else uses the
        // storage, which holds the output.
        unsafe { drop_stored(NonNull::from(header)) };
    }
}

/// Drops the output and ends the task.
///
/// # Safety
///
/// On the owner's thread. The storage holds the output, nobody else uses it, and there is no join
/// handle, or it calls and does not touch the header again. Unless the caller has an `&Arena`,
/// nothing of the arena may be touched afterwards.
unsafe fn drop_stored(header: NonNull<Header>) {
    // SAFETY: the caller's word. `Ending` keeps everybody else away from the storage while the
    // destructor runs, and nothing is left in it when it is released.
    unsafe {
        let here = header.as_ref();
        here.phase.set(Phase::Ending);
        (here.operations.get().drop_output)(here.storage.get());
        retire(header);
    }
}

/// Ends a task whose storage is empty: its header and its cell stay together for the next one, unless
/// somebody refers to the header still.
///
/// # Safety
///
/// On the owner's thread. The storage holds nothing any more, and there is no join handle, or it
/// calls and does not touch the header again. Unless the caller has an `&Arena`, nothing of the arena
/// may be touched afterwards.
#[inline]
unsafe fn retire(header: NonNull<Header>) {
    // SAFETY: the header is not free before this call frees it; who has a header has its arena. The
    // storage is a cell, which is empty, by the caller's word.
    unsafe {
        let (here, local) = (header.as_ref(), &header.as_ref().arena().local);
        local.tasks_in_use.set(local.tasks_in_use.get() - 1);
        if !here.has_mark(HEAP) && is_alone(here) {
            free_place(header);
        } else {
            retire_apart(header);
        }
    }
}

/// As `retire`, where the storage is given back by itself.
///
/// # Safety
///
/// As `retire`.
#[cold]
unsafe fn retire_apart(header: NonNull<Header>) {
    // SAFETY: as in `retire`; a heap cell was allocated in `take_heap_cell` with this layout.
    unsafe {
        let (here, shared) = (header.as_ref(), header.as_ref().arena());
        if here.has_mark(HEAP) {
            shared.local.heap_cells.set(shared.local.heap_cells.get() - 1);
            std::alloc::dealloc(here.storage.get().as_ptr(), here.operations.get().layout);
        } else {
            shared.take_cell_of(here);
        }
        finish(header);
    }
}

/// A join handle's hold on its task: the right to take or drop the output. Dropping it lets the
/// task go on by itself. It may outlive the executor; as it holds a pointer, it stays on its
/// thread.
pub(crate) struct Claim<T> {
    /// Or `REFUSED`, or `TAKEN`.
    header: NonNull<Header>,
    output: PhantomData<fn() -> T>,
}

/// There never was a task: the executor was shutting down.
const REFUSED: NonNull<Header> = no_header(1);
/// The output was taken.
const TAKEN: NonNull<Header> = no_header(2);

/// An address at which no header ever is: in an arena the headers come after a `Shared`.
const fn no_header(number: usize) -> NonNull<Header> {
    assert!(number < size_of::<Shared>());
    match NonNull::new(std::ptr::without_provenance_mut(number)) {
        Some(header) => header,
        None => panic!("a number above zero"),
    }
}

impl<T> Claim<T> {
    pub(crate) fn refused() -> Claim<T> {
        Claim { header: REFUSED, output: PhantomData }
    }

    #[inline]
    fn task(&self) -> Option<&Header> {
        if self.header.addr() <= TAKEN.addr() {
            return None;
        }
        // SAFETY: invariant 4, the header is not free while its handle exists.
        Some(unsafe { self.header.as_ref() })
    }

    /// Whether the output is there, or there is no task.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.task().is_none_or(|header| header.phase.get() == Phase::Stored)
    }

    /// Waits for the output and takes it.
    #[inline]
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let Some(header) = self.task() else {
            return Poll::Ready(Err(self.take_without_task()));
        };
        if header.phase.get() != Phase::Stored && !wake_when_stored(header, cx) {
            return Poll::Pending;
        }
        ready!(coop::poll_proceed(cx));
        coop::spend();
        // SAFETY: the output is stored, and stays so: only a claim's owner, who is here, takes it.
        Poll::Ready(unsafe { self.take_stored() })
    }

    /// Has the end reported to a set, at once if the output is there.
    pub(crate) fn report_to(&self, member: Rc<Member>) -> Option<Waker> {
        match self.task() {
            Some(header) if header.phase.get() != Phase::Stored => {
                let before = header.take_joiner();
                header.put_joiner(Joiner::Member(Some(member)));
                discard(before);
                None
            }
            Some(_) | None => member.finished(),
        }
    }

    /// A reference to the task that outlives the claim. `None` if there is no task.
    pub(crate) fn reference(&self) -> Option<Reference> {
        self.task().map(Reference::new)
    }

    /// As `abort` of the header.
    pub(crate) fn abort(&self) {
        if let Some(header) = self.task() {
            abort(header);
        }
    }

    /// Takes the output, which is there.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<T, JoinError> {
        let Some(header) = self.task() else {
            return Err(self.take_without_task());
        };
        assert!(header.phase.get() == Phase::Stored, "an output is taken when it is there");
        // SAFETY: the output is stored.
        unsafe { self.take_stored() }
    }

    /// # Safety
    ///
    /// There is a task, and its output is stored.
    #[inline]
    unsafe fn take_stored(&mut self) -> Result<T, JoinError> {
        let header = std::mem::replace(&mut self.header, TAKEN);
        // SAFETY: invariants 2 and 4. The output is moved out, so the storage is empty and the
        // claim is over; nothing of the arena is touched after `retire`.
        unsafe {
            let output = header.as_ref().storage.get().cast::<Result<T, JoinError>>().read();
            retire(header);
            output
        }
    }

    #[cold]
    fn take_without_task(&mut self) -> JoinError {
        assert!(self.header == REFUSED, "a join handle was polled after it gave its output");
        self.header = TAKEN;
        JoinError::cancelled()
    }
}

impl<T> Drop for Claim<T> {
    #[inline]
    fn drop(&mut self) {
        if self.task().is_some() {
            // SAFETY: invariant 4, and the claim is over.
            unsafe { detach(self.header) };
        }
    }
}

/// Lets a task go on by itself, or drops its output.
///
/// # Safety
///
/// On the owner's thread, by the claim, which ends. Nothing of the arena may be touched afterwards.
unsafe fn detach(header: NonNull<Header>) {
    // SAFETY: invariant 4, the header is not free before `drop_stored` frees it.
    let here = unsafe { header.as_ref() };
    here.clear_mark(HANDLE);
    let joiner = here.has_mark(JOINED).then(|| here.take_joiner());
    match here.phase.get() {
        // SAFETY: invariant 2, the output is there, and the caller was its only user.
        Phase::Stored => unsafe { drop_stored(header) },
        Phase::Waiting | Phase::Running | Phase::Ending => {}
        Phase::Free | Phase::Main | Phase::Finished | Phase::Limbo => {
            unreachable!("a join handle's task is not finished before the handle is gone")
        }
    }
    if let Some(joiner) = joiner {
        discard(joiner);
    }
}

/// Remembers whom to wake. Returns whether the output is there by now.
#[inline]
fn wake_when_stored(header: &Header, cx: &Context<'_>) -> bool {
    if !header.has_mark(JOINED) {
        if let Some(waker) = header.arena().clone_own(cx.waker()) {
            header.put_joiner(Joiner::Waker(waker));
            return false;
        }
    }
    replace_joiner(header, cx)
}

/// Remembers a waker that is another executor's, or in place of another one. Returns whether the
/// output is there by now.
#[cold]
fn replace_joiner(header: &Header, cx: &Context<'_>) -> bool {
    // The old waker is out of the header while foreign code runs. Only the claim's owner, who is
    // here, ever puts one in.
    match header.take_joiner() {
        Joiner::Waker(old) if old.will_wake(cx.waker()) => {
            header.put_joiner(Joiner::Waker(old));
            return false;
        }
        old => discard(old),
    }
    let waker = cx.waker().clone();
    // A waker's clone and drop are foreign code, which may have run the executor.
    if header.phase.get() == Phase::Stored {
        return true;
    }
    header.put_joiner(Joiner::Waker(waker));
    false
}

/// Has the future dropped at the task's next turn, or after the poll that is going on. The owner's
/// thread only, by a claim or a reference.
pub(crate) fn abort(header: &Header) {
    match header.phase.get() {
        Phase::Waiting => {
            header.set_mark(ABORT);
            header.arena().wake_header(header);
        }
        Phase::Running => header.set_mark(ABORT),
        Phase::Ending | Phase::Stored | Phase::Finished | Phase::Limbo => {}
        Phase::Free | Phase::Main => unreachable!("a reference is to a header of a task"),
    }
}
