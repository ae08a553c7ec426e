//! Who is told of a task's end: whoever awaits its join handle, or the set it is a member of.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;

/// Two words: a waker's table is never null, which leaves room for the rest.
pub(crate) enum Joiner {
    /// The join handle is awaited.
    Waker(Waker),
    /// The join handle is a set's; or nobody waits.
    Member(Option<Rc<Member>>),
}

impl Joiner {
    pub(crate) const NOBODY: Joiner = Joiner::Member(None);
}

impl Default for Joiner {
    #[inline]
    fn default() -> Joiner {
        Joiner::NOBODY
    }
}

/// One place of a set, used by one task after the other.
pub(crate) struct Member {
    place: usize,
    finished: Rc<Finished>,
}

impl Member {
    pub(crate) fn new(place: usize, finished: &Rc<Finished>) -> Rc<Member> {
        Rc::new(Member { place, finished: finished.clone() })
    }

    /// Notes that the place's task is over. Returns whom to wake.
    pub(crate) fn finished(&self) -> Option<Waker> {
        self.finished.places.borrow_mut().push_back(self.place);
        self.finished.waker.take()
    }
}

/// The places of a set whose tasks are over and have their outputs still, in the order of their
/// ends.
#[derive(Default)]
pub(crate) struct Finished {
    places: RefCell<VecDeque<usize>>,
    waker: Cell<Option<Waker>>,
}

impl Finished {
    /// Makes room, so that no end of a task ever allocates.
    pub(crate) fn reserve(&self, places: usize) {
        let mut finished = self.places.borrow_mut();
        let missing = places - finished.len();
        finished.reserve(missing);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.borrow().is_empty()
    }

    pub(crate) fn pop(&self) -> Option<usize> {
        self.places.borrow_mut().pop_front()
    }

    pub(crate) fn clear(&self) {
        self.places.borrow_mut().clear();
    }

    /// Remembers whom to wake at the next end. Runs foreign code, which may end tasks.
    pub(crate) fn wake_at_next(&self, waker: &Waker) {
        let stored = self.waker.take();
        if stored.as_ref().is_some_and(|stored| stored.will_wake(waker)) {
            self.waker.set(stored);
            return;
        }
        let waker = waker.clone();
        drop(self.waker.replace(Some(waker)));
        drop(stored);
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").field("places", &self.places).finish_non_exhaustive()
    }
}
