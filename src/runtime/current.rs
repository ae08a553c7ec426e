//! Which runtime the thread is in, and which it has.
//!
//! Objects hold their loop's number and look their runtime up, so that they can outlive it. What has
//! a destructor is reached through `try_with`: an object dropped while the thread's storage is being
//! destroyed finds no runtime, and its runtime closes what is left by itself.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};

use crate::op::Descriptor;
use crate::runtime::core::Shared;

thread_local! {
    // Without a destructor, which would have each look ask whether it has run: `Entered` empties it.
    static CURRENT: RefCell<Option<ManuallyDrop<Rc<Shared>>>> = const { RefCell::new(None) };
    static LIVE: RefCell<Vec<Weak<Shared>>> = const { RefCell::new(Vec::new()) };
    static LEFT: RefCell<Vec<Left>> = const { RefCell::new(Vec::new()) };
}

/// A descriptor that its object has lent out and whose runtime is gone. It is closed when the object
/// is dropped, and never if it is not: someone may still use the number.
struct Left {
    loop_id: u32,
    descriptor: Descriptor,
    fd: ManuallyDrop<OwnedFd>,
}

/// Keeps a descriptor open for an object that outlives its runtime.
pub(crate) fn leave(loop_id: u32, descriptor: Descriptor, fd: OwnedFd) {
    let left = Left { loop_id, descriptor, fd: ManuallyDrop::new(fd) };
    let _ = LEFT.try_with(|kept| kept.borrow_mut().push(left));
}

/// Closes what was left for an object, if anything was.
pub(crate) fn close_left(loop_id: u32, descriptor: Descriptor) {
    let _ = LEFT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let at = kept.iter().position(|it| it.loop_id == loop_id && it.descriptor == descriptor);
        if let Some(at) = at {
            drop(ManuallyDrop::into_inner(kept.swap_remove(at).fd));
        }
    });
}

/// What a panic or an error says of something that only works inside a runtime.
pub(crate) const OUTSIDE: &str =
    "is called outside a runtime; call it inside Runtime::block_on or #[rotor::main]";

/// The runtime the thread is in.
#[inline]
pub(crate) fn current() -> Option<Rc<Shared>> {
    CURRENT.with(|current| current.borrow().as_deref().cloned())
}

/// The runtime the thread is in, if it has that number.
#[inline(always)]
pub(crate) fn current_if(id: u32) -> Option<Rc<Shared>> {
    CURRENT.with(|current| match &*current.borrow() {
        Some(shared) if shared.id == id => Some(Rc::clone(shared)),
        Some(_) | None => None,
    })
}

/// What `look` makes of the runtime the thread is in, if it has that number. The thread cannot enter
/// another meanwhile, so nothing foreign may run: no waker but the executor's own is cloned, called or
/// dropped.
#[inline(always)]
pub(crate) fn with_current<R>(id: u32, look: impl FnOnce(&Shared) -> R) -> Option<R> {
    CURRENT.with(|current| match &*current.borrow() {
        Some(shared) if shared.id == id => Some(look(shared)),
        Some(_) | None => None,
    })
}

/// The runtime the thread is in.
///
/// # Panics
/// When it is in none. `what` is the function that was called.
#[inline]
#[track_caller]
pub(crate) fn current_named(what: &str) -> Rc<Shared> {
    match current() {
        Some(shared) => shared,
        None => outside(what),
    }
}

#[cold]
#[track_caller]
fn outside(what: &str) -> ! {
    panic!("rotor: {what} {OUTSIDE}")
}

/// The loop's clock, in nanoseconds: that of the runtime the thread is in. Outside of all it is the
/// clock that the native backends read, so that points in time from outside mean the same inside.
#[inline]
pub(crate) fn clock_now() -> u64 {
    match current() {
        Some(shared) => shared.core.borrow().event_loop.now(),
        None => crate::sys::clock::now_ns(),
    }
}

/// A runtime of this thread by its number, whether the thread is in it or not.
pub(crate) fn find(id: u32) -> Option<Rc<Shared>> {
    if let Some(shared) = current() {
        if shared.id == id {
            return Some(shared);
        }
    }
    let found = LIVE.try_with(|live| {
        live.borrow().iter().filter_map(Weak::upgrade).find(|shared| shared.id == id)
    });
    found.ok().flatten()
}

/// Notes that a runtime lives on this thread.
pub(crate) fn register(shared: &Rc<Shared>) {
    let weak = Rc::downgrade(shared);
    let _ = LIVE.try_with(|live| live.borrow_mut().push(weak));
}

/// Notes that it does no more.
pub(crate) fn unregister(id: u32) {
    let _ = LIVE.try_with(|live| {
        live.borrow_mut().retain(|weak| weak.upgrade().is_some_and(|shared| shared.id != id));
    });
}

/// The thread is in a runtime while this lives; then in the one it was in before.
pub(crate) struct Entered {
    before: Option<ManuallyDrop<Rc<Shared>>>,
}

impl Entered {
    pub(crate) fn enter(shared: &Rc<Shared>) -> Entered {
        let inside = Some(ManuallyDrop::new(shared.clone()));
        Entered { before: CURRENT.replace(inside) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = CURRENT.replace(self.before.take());
        drop(left.map(ManuallyDrop::into_inner));
    }
}
