#![deny(unsafe_code)]
//! Descriptors that leave the loop: lent while it goes on using them, or given up for good.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use crate::event_loop::Loop;
use crate::op::{Control, Descriptor};
use crate::sys::descriptor;

impl Loop {
    /// The kernel's number of an open descriptor. It stays the loop's to close.
    pub fn raw_fd(&self, descriptor: Descriptor) -> Option<RawFd> {
        let row = self.sockets.find_open(descriptor)?;
        Some(self.sockets.get(row).fd)
    }

    /// As [`raw_fd`](Loop::raw_fd); from here on the loop's own end leaves the descriptor open, to be
    /// [given up](Loop::give_up) after it.
    ///
    /// # Errors
    /// When the descriptor is not open, or numbers [are not to be had](Loop::check_numbers).
    pub(crate) fn lend(&mut self, descriptor: Descriptor) -> io::Result<RawFd> {
        self.check_numbers()?;
        let row = self.open(descriptor)?;
        let socket = self.sockets.get_mut(row);
        socket.lent = true;
        Ok(socket.fd)
    }

    /// Whether a number of this loop is a descriptor of the system's: on a backend of the program's it
    /// may be nobody's, or another file's.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported) when it may.
    pub(crate) fn check_numbers(&self) -> io::Result<()> {
        if self.driver.is_the_systems() {
            return Ok(());
        }
        let words = "this runtime's backend is the program's, and its numbers are not the system's descriptors";
        Err(io::Error::new(io::ErrorKind::Unsupported, words))
    }

    pub(crate) fn is_lent(&self, descriptor: Descriptor) -> bool {
        self.sockets.find_open(descriptor).is_some_and(|row| self.sockets.get(row).lent)
    }

    /// Parts with the number of a lent descriptor, which stays open, and goes on with a duplicate of it,
    /// to be closed as any other: what is queued goes first, and the stream ends. Nothing when no
    /// number is left for a duplicate.
    pub(crate) fn part_with(&mut self, descriptor: Descriptor) -> Option<OwnedFd> {
        let row = self.sockets.find_open(descriptor)?;
        let fd = self.sockets.get(row).fd;
        self.counts.immediate.controls += 1;
        let twin =
            self.driver.control(&Control::Duplicate(fd)).ok()?.into_opened::<RawFd>().ok()?;
        let socket = self.sockets.get_mut(row);
        socket.fd = twin;
        socket.parted = true;
        self.driver.forget(fd, Some(twin));
        Some(descriptor::owned(fd))
    }

    /// Asks what waits on a descriptor to end: receives, accepts and polls. Each answers with its
    /// final event. False: the descriptor is not open.
    pub fn cancel_waiting(&mut self, descriptor: Descriptor) -> bool {
        let row = self.open_here(descriptor);
        row.is_some_and(|row| {
            self.cancel_waiting_on(row);
            true
        })
    }

    /// As [`cancel_waiting`](Loop::cancel_waiting), but polls go on: who waits for room to write is not
    /// concerned.
    pub(crate) fn cancel_receives(&mut self, descriptor: Descriptor) {
        if let Some(row) = self.open_here(descriptor) {
            self.cancel_receives_on(row);
        }
    }

    /// The row of a descriptor that is open, on the loop's thread and in its process.
    fn open_here(&self, descriptor: Descriptor) -> Option<u32> {
        self.check().ok()?;
        self.sockets.find_open(descriptor)
    }

    /// Gives a descriptor up without closing it; its row is free. Nothing if it is not open, or an
    /// operation on it has not had its final event; and never on a backend of the program's, whose
    /// numbers may be nobody's descriptors.
    pub fn give_up(&mut self, descriptor: Descriptor) -> Option<OwnedFd> {
        if self.check().is_err() {
            return None;
        }
        let row = self.sockets.find_open(descriptor).filter(|_| self.driver.is_the_systems())?;
        if !self.sockets.get(row).is_idle() {
            return None;
        }
        let fd = self.sockets.get(row).fd;
        self.sockets.free(row);
        self.driver.forget(fd, None);
        Some(descriptor::owned(fd))
    }
}
