#![deny(unsafe_code)]
//! Calls on borrowed memory: answered at once, so the memory is never in the kernel's hands after
//! they return.

use std::io::{self, IoSlice};
use std::ops::Range;

use crate::backend::{Request, Submission, Token};
use crate::event_loop::Loop;
use crate::limits::TRANSFER_BYTES_MAX;
use crate::op::{BufferId, Descriptor};
use crate::tables::NONE;
use crate::tables::sockets::message;

/// The most pieces of a vectored call (`UIO_MAXIOV`, sendmsg(2)).
const SLICES_MAX: usize = 1024;

impl Loop {
    /// Sends what fits, now.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when nothing fits or sends are queued ahead; else
    /// what the kernel says. A broken pipe is an error, never a signal.
    #[inline]
    pub fn send_now(&mut self, descriptor: Descriptor, bytes: &[u8]) -> io::Result<usize> {
        let fd = self.ready_to_send(descriptor)?;
        let (pointer, length) = (bytes.as_ptr(), capped(bytes.len()));
        let request = Request::Send { fd, pointer, length, now: true };
        self.counts.immediate.sends += 1;
        self.answer_now(&request)
    }

    /// Sends what fits of the received bytes in a held buffer, now.
    ///
    /// # Errors
    /// As for [`send_now`](Loop::send_now).
    ///
    /// # Panics
    /// When the buffer is not held, or has not that many bytes.
    #[track_caller]
    pub fn send_from_now(
        &mut self,
        descriptor: Descriptor,
        buffer: BufferId,
        range: Range<u32>,
    ) -> io::Result<usize> {
        let fd = self.ready_to_send(descriptor)?;
        let bytes = self.buffers.bytes(buffer, range);
        let (pointer, length) = (bytes.as_ptr(), capped(bytes.len()));
        self.counts.immediate.sends += 1;
        self.answer_now(&Request::Send { fd, pointer, length, now: true })
    }

    /// Sends what fits of several pieces in order, now. Pieces after the 1,024th wait for another
    /// call.
    ///
    /// # Errors
    /// As for [`send_now`](Loop::send_now).
    pub fn send_vectored_now(
        &mut self,
        descriptor: Descriptor,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let fd = self.ready_to_send(descriptor)?;
        let count = slices.len().min(SLICES_MAX) as u32;
        // `IoSlice` is guaranteed to be laid out as `iovec` is (its documentation).
        let header = message(slices.as_ptr().cast::<libc::iovec>(), count);
        let request = Request::SendVectored { fd, message: &raw const header, now: true };
        self.counts.immediate.sends += 1;
        self.answer_now(&request)
    }

    /// Receives what is there, now.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) when nothing is there or a receive is in flight
    /// and comes first; else what the kernel says.
    pub fn receive_now(&mut self, descriptor: Descriptor, bytes: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let row = self.open(descriptor)?;
        if !self.sockets.get(row).receive.is_idle() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let fd = self.sockets.get(row).fd;
        let (pointer, length) = (bytes.as_mut_ptr(), capped(bytes.len()));
        self.counts.immediate.receives += 1;
        let result = self.answer_now(&Request::Receive { fd, pointer, length, now: true });
        match &result {
            Ok(0) if length > 0 => self.note_end(row, 0),
            Ok(_) => {}
            Err(error) => self.note_end(row, -error.raw_os_error().unwrap_or(libc::EAGAIN)),
        }
        result
    }

    /// Sends and receives answered at once so far.
    pub(crate) fn immediate_calls(&self) -> u64 {
        self.counts.immediate.sends + self.counts.immediate.receives
    }

    #[inline(always)]
    fn ready_to_send(&self, descriptor: Descriptor) -> io::Result<i32> {
        self.check()?;
        let row = self.open(descriptor)?;
        let socket = self.sockets.get(row);
        if socket.send.is_idle() { Ok(socket.fd) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    #[inline(always)]
    fn answer_now(&mut self, request: &Request) -> io::Result<usize> {
        match self.driver.submit(Token::new(NONE, 0), request) {
            Submission::Done(result) if result >= 0 => Ok(result as usize),
            Submission::Done(error) => Err(io::Error::from_raw_os_error(-error)),
            Submission::Full => Err(io::ErrorKind::WouldBlock.into()),
            // The memory is borrowed only until this call returns, so going on would be unsound.
            Submission::Queued => {
                panic!("rotor: the backend queued a request it must answer at once")
            }
        }
    }
}

fn capped(length: usize) -> u32 {
    length.min(TRANSFER_BYTES_MAX as usize) as u32
}
