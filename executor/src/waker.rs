//! Wakers: counting references, and waking from the owner's thread and from others.
//!
//! This file holds unsafe code: a waker is an untyped pointer to a header. Its invariants:
//!
//! 1. Every waker, and every place in the remote stack, is one reference to its header. A header
//!    with a reference is not free, so its memory is there (invariant 1 of `arena.rs`).
//! 2. The number of references is `references` (plain, the owner's thread only) plus `word` divided
//!    by `ONE` (atomic). Either half may be negative: a waker cloned on one thread may be dropped
//!    on another. Only the sum means something.
//! 3. While the task exists, nobody looks at the sum: the executor keeps the header. When it is
//!    over, the owner adds its half to `word` and sets `LIMBO`, and never uses the plain half
//!    again. From then on whoever takes `word` to `LIMBO` alone had the last reference.
//! 4. A header is in the remote stack at most once: only who turned `remote_queued` to true pushes
//!    it, and only the owner, having taken it out, turns it back.
//!
//! Why the owner may trust a sum of zero that it computes from one load of `word` (acquire): the
//! load sees a prefix of all changes to `word`, and every change and every plain one that happened
//! before those. A reference is cloned before it is dropped, and to clone one needs another that is
//! dropped later still. So a clone the owner cannot see would come from a reference whose drop it
//! cannot see, and then the sum it sees would not be zero.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::arena::{Arena, CLOSED, Header, NONE, Shared, free_header_over, unpin};
use crate::contain;
use crate::phase::Phase;
use crate::sync::OwnerId;

/// The bit of `word` that says all references are counted there.
const LIMBO: isize = 1;
/// One reference in `word`.
const ONE: isize = 2;
/// How far the plain half may be from zero before it is moved to `word`, so that it never
/// overflows: a thread that is sent wakers and drops them takes it down by one each.
const PLAIN_MAX: i32 = 1 << 20;
/// More references than memory could hold, unless they are forgotten in a loop.
const REFERENCES_MAX: isize = isize::MAX / 2;

/// Whether a waker is of an executor of this crate: cloning it runs nothing but a count.
#[inline]
pub fn is_native(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &raw const VTABLE)
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

// Each of the four is the owner's case and little else, with the others in functions of their own
// called last: then the owner's case needs no stack frame.

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: invariant 1, by the waker that is being cloned.
    let header = unsafe { &*data.cast::<Header>() };
    if is_owner(header) && counted_up(header) {
        return RawWaker::new(data, &VTABLE);
    }
    clone_elsewhere(header)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: invariant 1, by the waker that is woken and dropped by this call.
    let header = unsafe { &*data.cast::<Header>() };
    if is_owner(header) && header.arena().wake_counted(header) {
        return;
    }
    // SAFETY: the waker's own reference is given to the call.
    unsafe { wake_and_drop(NonNull::from(header)) };
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: invariant 1, by the waker that is borrowed for the length of this call.
    let header = unsafe { &*data.cast::<Header>() };
    let shared = header.arena();
    if is_owner(header) {
        shared.wake_header(header);
    } else {
        wake_from_elsewhere(shared, header);
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: invariant 1, by the waker that is being dropped.
    let header = unsafe { &*data.cast::<Header>() };
    if is_owner(header) && counted_down(header) {
        return;
    }
    // SAFETY: the waker's own reference is given to the call.
    unsafe { release(NonNull::from(header)) };
}

/// Counts one more in the plain half, if the owner may. It changes by one only, so that the two
/// ends need no more than to be looked for.
#[inline]
fn counted_up(header: &Header) -> bool {
    let references = header.references.get();
    let may = header.phase.get() != Phase::Limbo && references != PLAIN_MAX;
    if may {
        header.references.set(references + 1);
    }
    may
}

/// Counts one less, likewise.
#[inline]
fn counted_down(header: &Header) -> bool {
    let references = header.references.get();
    let may = header.phase.get() != Phase::Limbo && references != -PLAIN_MAX;
    if may {
        header.references.set(references - 1);
    }
    may
}

#[cold]
fn clone_elsewhere(header: &Header) -> RawWaker {
    if is_owner(header) {
        retain_on_owner(header);
    } else {
        retain_in_word(header);
    }
    raw(header)
}

/// The reference is dropped after the wake, not handed to the remote stack: it keeps the arena while
/// `unpark` is called, which the owner could otherwise free once it has drained the stack.
///
/// # Safety
///
/// As `release`.
#[cold]
unsafe fn wake_and_drop(header: NonNull<Header>) {
    // SAFETY: the same reference for both, which ends with the second.
    unsafe {
        wake_by_ref(header.as_ptr().cast_const().cast());
        release(header);
    }
}

/// # Safety
///
/// The caller has a reference, which ends here. Nothing of the arena may be touched afterwards.
#[cold]
unsafe fn release(header: NonNull<Header>) {
    // SAFETY: the caller's word.
    unsafe {
        if is_owner(header.as_ref()) {
            release_on_owner(header);
        } else {
            release_elsewhere(header);
        }
    }
}

#[inline]
fn is_owner(header: &Header) -> bool {
    // First: asking for a thread local may be a call, over which the less is kept the better.
    let here = OwnerId::current();
    // `owner` never changes.
    header.arena().owner == here
}

/// Lends the task its own waker for a poll. A borrow costs no reference: the executor keeps the
/// header while the task runs, and a clone of the waker counts itself.
#[inline]
pub(crate) fn lend_waker(header: &Header) -> ManuallyDrop<Waker> {
    // SAFETY: the table's functions are right for a pointer to a header. The waker is never
    // dropped, so it gives up no reference it did not have; the caller lends it no longer than it
    // has the header.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(header)) })
}

/// A waker of its own. The owner's thread only.
pub(crate) fn new_waker(header: &Header) -> Waker {
    retain_on_owner(header);
    // SAFETY: the table's functions are right for a pointer to a header, and a reference was
    // counted.
    unsafe { Waker::from_raw(raw(header)) }
}

/// A waker used as no more than a reference: to look at a task that may be over. It does not leave
/// the owner's thread, where it is made, so it is not `Send`.
#[derive(Clone)]
pub(crate) struct Reference(Waker, PhantomData<*const ()>);

impl Reference {
    /// The owner's thread only.
    pub(crate) fn new(header: &Header) -> Reference {
        Reference(new_waker(header), PhantomData)
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: invariant 1, by this waker, which is never replaced.
        unsafe { &*self.0.data().cast() }
    }
}

#[inline]
fn raw(header: &Header) -> RawWaker {
    RawWaker::new(std::ptr::from_ref(header).cast(), &VTABLE)
}

fn retain_on_owner(header: &Header) {
    if header.phase.get() == Phase::Limbo {
        retain_in_word(header);
        return;
    }
    if !counted_up(header) {
        move_to_word(header);
        header.references.set(1);
    }
}

/// Relaxed: nothing is published by a clone; what the clone is used for orders itself by its
/// transfer.
fn retain_in_word(header: &Header) {
    if header.word.fetch_add(ONE, Relaxed) > REFERENCES_MAX {
        std::process::abort();
    }
}

/// Keeps the plain half small. The sum does not change, and nobody looks at the halves alone.
#[cold]
fn move_to_word(header: &Header) {
    let plain = header.references.replace(0) as isize;
    if header.word.fetch_add(plain * ONE, AcqRel) > REFERENCES_MAX {
        std::process::abort();
    }
}

/// # Safety
///
/// On the owner's thread, and the caller has a reference, which ends here. Unless the caller has an
/// `&Arena`, nothing of the arena may be touched afterwards.
unsafe fn release_on_owner(header: NonNull<Header>) {
    // SAFETY: invariant 1, by the reference that is being dropped.
    let here = unsafe { header.as_ref() };
    if here.phase.get() != Phase::Limbo {
        if !counted_down(here) {
            move_to_word(here);
            here.references.set(-1);
        }
        return;
    }
    // AcqRel: the header is reused, so what other threads did with it before must have happened.
    if here.word.fetch_sub(ONE, AcqRel) == ONE | LIMBO {
        here.word.store(0, Relaxed);
        // SAFETY: invariant 3, this was the last reference. In limbo the header is in no list: a
        // place in the remote stack is a reference, and a header in the run queue is not in limbo.
        unsafe { free_header_over(header) };
    }
}

/// # Safety
///
/// Not on the owner's thread, and the caller has a reference, which ends here. Nothing of the arena
/// may be touched afterwards.
unsafe fn release_elsewhere(header: NonNull<Header>) {
    // SAFETY: invariant 1, by the reference that is being dropped; if it was the last one, nobody
    // else can free the header. `here` is not used after the reference is given away.
    unsafe {
        let here = header.as_ref();
        // AcqRel: what was done with this reference happens before the header is reused, by whoever
        // has the last one.
        if here.word.fetch_sub(ONE, AcqRel) != ONE | LIMBO {
            return;
        }
        // The last reference of a finished task. The header goes to the owner by the remote stack:
        // the reference is restored and is the stack's now. Nobody needs to be woken to take it.
        here.word.store(ONE | LIMBO, Relaxed);
        here.remote_queued.store(true, Relaxed);
        let shared = here.shared;
        if push(shared, header).is_err() {
            // The arena is closed and counted this header as in use, so its pin is this caller's.
            unpin(shared, 1);
        }
    }
}

/// The remote stack takes nothing any more.
struct Closed;

/// Pushes a header with one reference, which is the stack's from then on.
///
/// # Safety
///
/// The caller turned the header's `remote_queued` to true and has the reference. It may be dropped by
/// the owner, and the arena freed, before this returns: so the parameters are no references.
unsafe fn push(shared: NonNull<Shared>, header: NonNull<Header>) -> Result<(), Closed> {
    // SAFETY: invariant 1, by the caller's reference, until the exchange succeeds. Nothing is
    // touched after it did.
    let (shared, next) = unsafe { (shared.as_ref(), &header.as_ref().remote_next) };
    shared.life.in_use();
    let index = shared.index_of(header);
    let mut head = shared.remote.head.load(Acquire);
    loop {
        if head == CLOSED {
            return Err(Closed);
        }
        next.store(head, Relaxed);
        // Release: the link, and what the waking thread did before, are seen by the owner's swap.
        match shared.remote.head.compare_exchange_weak(head, index, AcqRel, Acquire) {
            Ok(_) => return Ok(()),
            Err(now) => head = now,
        }
    }
}

/// Wakes from another thread. The caller's waker keeps the header, and with it the arena,
/// throughout.
#[cold]
fn wake_from_elsewhere(shared: &Shared, header: &Header) {
    shared.life.in_use();
    // A task that is over needs no wake. Not seeing that it is over only costs the push.
    if header.word.load(Relaxed) & LIMBO != 0 {
        return;
    }
    // AcqRel, and a swap on the owner's side too: if it was true already, the owner has yet to turn
    // it back, by a swap that reads this one, and so polls after everything this thread did before.
    if header.remote_queued.swap(true, AcqRel) {
        return;
    }
    retain_in_word(header);
    // SAFETY: `remote_queued` was turned above, and a reference counted for the stack.
    if unsafe { push(header.shared, NonNull::from(header)) }.is_err() {
        header.remote_queued.store(false, Relaxed);
        // Not the last reference: the caller has one.
        header.word.fetch_sub(ONE, AcqRel);
        return;
    }
    // After the push. `prepare_wait` clears the flag and then looks at the stack, both by swaps:
    // either its swap comes first and this one reads false, or it reads this one's true and sees
    // the push.
    if !shared.remote.notified.swap(true, AcqRel) {
        shared.life.in_use();
        (shared.unpark)();
    }
}

impl Shared {
    /// The header of a waker that is one of this executor's own. The owner's thread only.
    #[inline]
    fn own<'a>(&self, waker: &'a Waker) -> Option<&'a Header> {
        if !std::ptr::eq(waker.vtable(), &raw const VTABLE) {
            return None;
        }
        // SAFETY: invariant 1, by the waker: its table says that its data is a header.
        let header = unsafe { &*waker.data().cast::<Header>() };
        std::ptr::eq(header.shared.as_ptr(), self).then_some(header)
    }

    /// As `Waker::clone`, if it is this executor's own and its reference is counted in the plain
    /// half. The owner's thread only.
    #[inline]
    pub(crate) fn clone_own(&self, waker: &Waker) -> Option<Waker> {
        let header = self.own(waker).filter(|header| counted_up(header))?;
        // SAFETY: the table's functions are right for a pointer to a header, and a reference was
        // counted.
        Some(unsafe { Waker::from_raw(raw(header)) })
    }

    /// As `Waker::wake`, with its panic contained; likewise.
    #[inline]
    pub(crate) fn wake_waker(&self, waker: Waker) {
        if self.own(&waker).is_some_and(|header| self.wake_counted(header)) {
            std::mem::forget(waker);
            return;
        }
        contain::wake(waker);
    }

    /// The common case of waking by a reference that ends with the wake: the task is not over nor
    /// queued, and the reference is counted in the plain half. Otherwise nothing is done. The
    /// owner's thread only.
    #[inline]
    fn wake_counted(&self, header: &Header) -> bool {
        let wakes = header.phase.get().takes_turns() && !header.queued.get();
        // Who takes turns is not in limbo.
        if wakes && header.references.get() != -PLAIN_MAX {
            header.references.set(header.references.get() - 1);
            self.append(header);
            return true;
        }
        false
    }
}

impl Arena {
    /// Queues what other threads woke, and takes back the headers they let go.
    #[inline]
    pub(crate) fn drain_remote(&self) {
        if self.remote.head.load(Relaxed) != NONE {
            self.drain_remote_to(NONE);
        }
    }

    /// The last drain: what is pushed from now on is refused.
    pub(crate) fn close_remote(&self) {
        self.drain_remote_to(CLOSED);
    }

    #[cold]
    fn drain_remote_to(&self, successor: u32) {
        // Acquire: the links and everything the waking threads did before their pushes.
        let mut index = self.remote.head.swap(successor, AcqRel);
        if index == CLOSED {
            return;
        }
        // The stack has the latest first; tasks are queued in the order of their wakes.
        let mut first = NONE;
        while index != NONE {
            let link = &self.header(index).remote_next;
            let next = link.load(Relaxed);
            link.store(first, Relaxed);
            first = index;
            index = next;
        }
        while first != NONE {
            let header = self.header(first);
            // Before `remote_queued` is cleared: then another thread may push the header again.
            first = header.remote_next.load(Relaxed);
            header.remote_queued.swap(false, AcqRel);
            if header.phase.get() != Phase::Limbo {
                self.local.wakes_remote.set(self.local.wakes_remote.get() + 1);
            }
            self.wake_header(header);
            // SAFETY: on the owner's thread, which alone has an `&Arena`; the stack's reference.
            unsafe { release_on_owner(NonNull::from(header)) };
        }
    }

    /// Ends a task that has neither storage nor join handle, unless it is in the run queue still:
    /// then again when it comes out.
    pub(crate) fn settle(&self, header: &Header) {
        // SAFETY: on the owner's thread, which alone has an `&Arena`.
        unsafe { settle(NonNull::from(header)) };
    }
}

/// Whether nothing refers to the header of a task any more: it is in no queue, and no waker is left.
#[inline]
pub(crate) fn is_alone(header: &Header) -> bool {
    // Acquire: see the head of this file; also, what other threads did with the header happened
    // before it is reused. It is not in the remote stack either, where it would have a reference.
    !header.queued.get() && header.references.get() == 0 && header.word.load(Acquire) == 0
}

/// Ends a task without storage: frees its header, or leaves it to the queue or its references.
///
/// # Safety
///
/// On the owner's thread. The header has no storage, and the join handle, if it is what calls, does
/// not touch it again. Unless the caller has an `&Arena`, nothing of the arena may be touched
/// afterwards.
pub(crate) unsafe fn finish(header: NonNull<Header>) {
    // SAFETY: the header is not free before this call frees it; who has a header has its arena.
    unsafe {
        let (here, local) = (header.as_ref(), &header.as_ref().arena().local);
        here.phase.set(Phase::Finished);
        local.headers_over.set(local.headers_over.get() + 1);
        settle(header);
    }
}

/// Frees a finished header, unless it is in the run queue still, or left to its references.
///
/// # Safety
///
/// On the owner's thread. Unless the caller has an `&Arena`, nothing of the arena may be touched
/// afterwards.
unsafe fn settle(header: NonNull<Header>) {
    // SAFETY: the header is not free before this call frees it.
    let here = unsafe { header.as_ref() };
    if here.phase.get() != Phase::Finished || here.queued.get() {
        return;
    }
    let plain = here.references.replace(0) as isize;
    // Acquire: as in `is_alone`.
    let mut word = here.word.load(Acquire);
    if word + plain * ONE != 0 {
        // Wakers are left. From here on `word` counts them all.
        here.phase.set(Phase::Limbo);
        word = here.word.fetch_add(plain * ONE + LIMBO, AcqRel);
        if word + plain * ONE != 0 {
            return;
        }
    }
    here.word.store(0, Relaxed);
    // SAFETY: invariant 3, the sum of both halves is zero. The header is not in the run queue, and not
    // in the remote stack, where it would have a reference.
    unsafe { free_header_over(header) };
}
