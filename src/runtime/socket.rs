//! An object's hold on a descriptor: it finds its runtime, and closes when dropped.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::op::{Control, Descriptor, Reply};
use crate::runtime::core::Shared;
use crate::runtime::current::{current, find};
use crate::runtime::waiters::Ticket;

/// A descriptor of a loop, owned. It stays on its thread: another thread has another loop.
pub(crate) struct Socket {
    loop_id: u32,
    descriptor: Descriptor,
    stays: PhantomData<*const ()>,
}

impl Socket {
    pub(crate) fn new(shared: &Shared, descriptor: Descriptor) -> Socket {
        Socket { loop_id: shared.id, descriptor, stays: PhantomData }
    }

    pub(crate) fn loop_id(&self) -> u32 {
        self.loop_id
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    /// The runtime it belongs to. `what` is the object's type.
    ///
    /// # Errors
    /// When that runtime is gone.
    ///
    /// # Panics
    /// When the thread is in another runtime.
    #[track_caller]
    #[inline]
    pub(crate) fn shared(&self, what: &str) -> io::Result<Rc<Shared>> {
        shared_of(self.loop_id, what)
    }

    /// A cold call about this descriptor.
    #[track_caller]
    pub(crate) fn control(
        &self,
        what: &str,
        call: impl FnOnce(Descriptor) -> Control<Descriptor>,
    ) -> io::Result<Reply<Descriptor>> {
        let shared = self.shared(what)?;
        let mut core = shared.core.borrow_mut();
        core.event_loop.control(call(self.descriptor))
    }

    /// A cold call whose answer interests nobody, in whatever runtime the thread is.
    pub(crate) fn control_quietly(&self, call: impl FnOnce(Descriptor) -> Control<Descriptor>) {
        if let Some(shared) = find(self.loop_id) {
            let _ = shared.core.borrow_mut().event_loop.control(call(self.descriptor));
        }
    }

    /// A future that waited for a connection of this listener is dropped.
    pub(crate) fn give_up(&self, ticket: Ticket) {
        if let Some(shared) = find(self.loop_id) {
            shared.give_up(self.descriptor, ticket);
        }
    }
}

/// The runtime with a number, for an object of type `what`; errors and panics as
/// [`Socket::shared`] does.
#[track_caller]
#[inline]
pub(crate) fn shared_of(loop_id: u32, what: &str) -> io::Result<Rc<Shared>> {
    match current() {
        Some(shared) if shared.id == loop_id => Ok(shared),
        elsewhere => shared_elsewhere(loop_id, elsewhere.is_some(), what),
    }
}

#[track_caller]
#[cold]
fn shared_elsewhere(loop_id: u32, inside_another: bool, what: &str) -> io::Result<Rc<Shared>> {
    let Some(shared) = find(loop_id) else {
        let words = format!("the runtime of this {what} is gone");
        return Err(io::Error::new(io::ErrorKind::NotConnected, words));
    };
    assert!(
        !inside_another,
        "rotor: this {what} belongs to another runtime on this thread; use it inside that runtime's block_on"
    );
    Ok(shared)
}

impl Drop for Socket {
    fn drop(&mut self) {
        let Some(shared) = find(self.loop_id) else {
            return;
        };
        let held = shared.core.borrow_mut().close(self.descriptor);
        drop(held);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of loop {}", self.descriptor, self.loop_id)
    }
}
