//! The future over one operation that has a buffer of its own.
//!
//! The buffer moves to the loop when the operation is submitted and comes back with its final
//! event. A future that is dropped before abandons the buffer: the loop frees it when the kernel is
//! done with it, and no sooner.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::event::Event;
use crate::op::{OrphanId, OwnedOperation};
use crate::runtime::core::Shared;
use crate::runtime::current::{current_named, find};
use crate::runtime::socket::{Socket, shared_of};
use crate::runtime::waits::Wait;
use crate::tables::sockets::DescriptorKind;

/// A file of the loop's, for reads and writes at an offset. Dropping it closes it, once the
/// operations on it have ended.
#[derive(Debug)]
pub struct File {
    socket: Socket,
}

impl File {
    /// Hands a file to the runtime the thread is in.
    ///
    /// # Errors
    /// When the table of descriptors is full: raise the option `sockets`.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn adopt(file: std::fs::File) -> io::Result<File> {
        let shared = current_named("File::adopt");
        let mut core = shared.core.borrow_mut();
        let descriptor = core.event_loop.adopt(file.into(), DescriptorKind::File)?;
        core.put_file(descriptor);
        Ok(File { socket: Socket::new(&shared, descriptor) })
    }

    /// Reads into the buffer's length at an offset in bytes, and gives the count, 0 at the end, and
    /// the buffer back. The read is submitted by the first poll. Dropping the future cancels it; the
    /// buffer is then freed when the kernel has let go of it.
    pub fn read_at(&self, buffer: Vec<u8>, offset: u64) -> ReadAt {
        let descriptor = self.socket.descriptor();
        ReadAt { transfer: self.transfer(OwnedOperation::ReadAt { descriptor, offset }, buffer) }
    }

    /// Writes the buffer at an offset in bytes, and gives the count and the buffer back. The write
    /// is submitted by the first poll. Dropping the future cancels it, which may come too late.
    pub fn write_at(&self, buffer: Vec<u8>, offset: u64) -> WriteAt {
        let descriptor = self.socket.descriptor();
        WriteAt { transfer: self.transfer(OwnedOperation::WriteAt { descriptor, offset }, buffer) }
    }

    fn transfer(&self, operation: OwnedOperation, buffer: Vec<u8>) -> Transfer {
        Transfer { loop_id: self.socket.loop_id(), state: State::Idle { operation, buffer } }
    }
}

/// The future of [`File::read_at`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadAt {
    transfer: Transfer,
}

/// The future of [`File::write_at`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct WriteAt {
    transfer: Transfer,
}

impl Future for ReadAt {
    type Output = (io::Result<usize>, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.transfer.poll(cx)
    }
}

impl Future for WriteAt {
    type Output = (io::Result<usize>, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.transfer.poll(cx)
    }
}

#[derive(Debug)]
struct Transfer {
    loop_id: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not submitted.
    Idle { operation: OwnedOperation, buffer: Vec<u8> },
    /// In flight.
    Started { wait: Wait, orphan: OrphanId },
    /// The output was given.
    Done,
}

impl Transfer {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(io::Result<usize>, Vec<u8>)> {
        let shared = match shared_of(self.loop_id, "File") {
            Ok(shared) => shared,
            Err(error) => {
                let state = std::mem::replace(&mut self.state, State::Done);
                let buffer = match state {
                    State::Idle { buffer, .. } => buffer,
                    // The loop had it, and is gone with it.
                    State::Started { .. } | State::Done => Vec::new(),
                };
                return Poll::Ready((Err(error), buffer));
            }
        };
        if let State::Idle { .. } = self.state {
            if let Some(refused) = self.start(&shared) {
                return Poll::Ready(refused);
            }
        }
        let State::Started { wait, orphan } = &mut self.state else {
            panic!("rotor: a transfer was polled after it had ended");
        };
        let (event, orphan) = match wait.poll(&shared, cx) {
            Poll::Ready(event) => (event, *orphan),
            Poll::Pending => return Poll::Pending,
        };
        self.state = State::Done;
        Poll::Ready(finish(&shared, event, orphan))
    }

    /// Submits; gives the buffer back if that is refused.
    fn start(&mut self, shared: &Shared) -> Option<(io::Result<usize>, Vec<u8>)> {
        let State::Idle { operation, buffer } = std::mem::replace(&mut self.state, State::Done)
        else {
            return None;
        };
        let started = shared.core.borrow_mut().start_owned(operation, buffer);
        match started {
            Ok((key, orphan)) => {
                self.state = State::Started { wait: Wait::new(shared.id, key), orphan };
                None
            }
            Err((error, buffer)) => Some((Err(error.into()), buffer)),
        }
    }
}

fn finish(shared: &Shared, event: Event, orphan: OrphanId) -> (io::Result<usize>, Vec<u8>) {
    let buffer = shared.core.borrow_mut().event_loop.reclaim(orphan);
    let result = event.result().map(|count| count as usize);
    (result, buffer.unwrap_or_default())
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let State::Started { orphan, .. } = &self.state {
            if let Some(shared) = find(self.loop_id) {
                shared.core.borrow_mut().event_loop.abandon(*orphan);
            }
            // The wait, dropped next, cancels.
        }
    }
}
