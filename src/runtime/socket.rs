//! An object's hold on a descriptor: it finds its runtime, and closes when dropped.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use crate::op::{Control, Descriptor, Reply};
use crate::runtime::core::Shared;
use crate::runtime::current::{close_left, current, current_if, current_named, find, with_current};
use crate::runtime::waiters::Ticket;
use crate::tables::sockets::DescriptorKind;

/// A descriptor of a loop, owned. It stays on its thread: another thread has another loop.
// Aligned as a pointer: a future that is made of it and a buffer is then made in its place. With 12 bytes
// aligned to 4 each poll kept room for two copies of the buffer on its stack, and touched every page of
// it (decision 0016).
#[repr(align(8))]
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

    /// What `look` makes of the runtime it belongs to, if the thread is in that one. As
    /// [`with_current`]: nothing foreign may run.
    #[inline(always)]
    pub(crate) fn here<R>(&self, look: impl FnOnce(&Shared, Descriptor) -> R) -> Option<R> {
        with_current(self.loop_id, |shared| look(shared, self.descriptor))
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

    /// The descriptor is a listener's from here on. Nothing has waited for it before.
    #[track_caller]
    pub(crate) fn become_listener(&self, what: &str) -> io::Result<()> {
        self.shared(what)?.core.borrow_mut().become_listener(self.descriptor);
        Ok(())
    }

    /// Ends a stream's writing side in a destructor: nobody can be told, and no runtime is a wrong
    /// one.
    pub(crate) fn shutdown_quietly(&self) {
        if let Some(shared) = find(self.loop_id) {
            shared.shutdown_quietly(self.descriptor);
        }
    }

    /// A future that waited for a connection of this listener is dropped.
    pub(crate) fn give_up(&self, ticket: Ticket) {
        if let Some(shared) = find(self.loop_id) {
            shared.give_up(self.descriptor, ticket);
        }
    }

    /// The kernel's descriptor, which stays open until the object is dropped.
    ///
    /// # Panics
    /// As [`shared`](Socket::shared), and when the runtime is gone or its backend the program's.
    #[track_caller]
    pub(crate) fn as_fd(&self, what: &str) -> BorrowedFd<'_> {
        let lent = self
            .shared(what)
            .and_then(|shared| shared.core.borrow_mut().event_loop.lend(self.descriptor));
        match lent {
            Ok(fd) => crate::sys::descriptor::lent(self, fd),
            Err(error) => panic!("rotor: this {what} has no descriptor: {error}"),
        }
    }

    /// A future that waited for this stream's readiness is dropped.
    pub(crate) fn stop_watching(&self, ticket: Ticket) {
        if let Some(shared) = find(self.loop_id) {
            shared.stop_watching(self.descriptor, ticket);
        }
    }
}

/// Hands a descriptor, of the kind given and blocking, to the runtime the thread is in.
#[track_caller]
pub(crate) fn adopt(fd: OwnedFd, kind: DescriptorKind, what: &str) -> io::Result<Socket> {
    let shared = current_named(what);
    let descriptor = shared.core.borrow_mut().adopt(fd, kind)?;
    Ok(Socket::new(&shared, descriptor))
}

/// The runtime with a number, for an object of type `what`; errors and panics as
/// [`Socket::shared`] does.
#[track_caller]
#[inline(always)]
pub(crate) fn shared_of(loop_id: u32, what: &str) -> io::Result<Rc<Shared>> {
    match current_if(loop_id) {
        Some(shared) => Ok(shared),
        None => shared_elsewhere(loop_id, what),
    }
}

#[track_caller]
#[cold]
#[inline(never)]
fn shared_elsewhere(loop_id: u32, what: &str) -> io::Result<Rc<Shared>> {
    let inside_another = current().is_some();
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
            close_left(self.loop_id, self.descriptor);
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
