#![deny(unsafe_code)]
//! Cold calls: opening, addresses, options. Answered at once.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};

use crate::error::SubmitError;
use crate::event_loop::Loop;
use crate::op::{Control, Descriptor, Reply, SocketOption};
use crate::tables::sockets::{DescriptorKind, Linger, Phase};

impl Loop {
    /// Does a cold call.
    ///
    /// # Errors
    /// What the kernel says, or a [`SubmitError`] inside an [`io::Error`].
    pub fn control(&mut self, control: Control<Descriptor>) -> io::Result<Reply<Descriptor>> {
        self.check()?;
        let opens = match control {
            Control::Listen { .. } => Some(DescriptorKind::Listener),
            Control::OpenStream { .. } => Some(DescriptorKind::Stream),
            Control::LocalAddress(_)
            | Control::PeerAddress(_)
            | Control::SetNoDelay(..)
            | Control::NoDelay(_)
            | Control::Unread(_)
            | Control::Unsent(_)
            | Control::Discard(..)
            | Control::Shutdown(..)
            | Control::Set(..)
            | Control::Get(..)
            | Control::TakeError(_)
            | Control::Bind(..)
            | Control::StartListening(..) => None,
        };
        let lowered = self.lower(control)?;
        if let Control::Shutdown(descriptor, Shutdown::Read | Shutdown::Both) = control {
            let row = self.open(descriptor)?;
            self.sockets.get_mut(row).read_shut = true;
        }
        // The row comes first: a descriptor is never opened that has no place.
        let row = match opens {
            Some(kind) => Some(self.take_row(kind)?),
            None => None,
        };
        self.counts.immediate.controls += 1;
        let reply = self.driver.control(&lowered);
        if let Some(row) = row {
            match reply {
                Ok(Reply::Opened(fd)) => {
                    let socket = self.sockets.get_mut(row);
                    socket.fd = fd;
                    socket.phase = Phase::Open;
                    return Ok(Reply::Opened(self.sockets.descriptor(row)));
                }
                Ok(
                    Reply::Done
                    | Reply::Address(_)
                    | Reply::Count(_)
                    | Reply::Flag(_)
                    | Reply::Option(_)
                    | Reply::Error(_),
                )
                | Err(_) => self.sockets.free(row),
            }
        }
        let reply = reply?;
        self.note(control)?;
        match reply {
            Reply::Done => Ok(Reply::Done),
            Reply::Address(address) => Ok(Reply::Address(address)),
            Reply::Count(count) => Ok(Reply::Count(count)),
            Reply::Flag(flag) => Ok(Reply::Flag(flag)),
            Reply::Option(option) => Ok(Reply::Option(option)),
            Reply::Error(errno) => Ok(Reply::Error(errno)),
            Reply::Opened(fd) => {
                self.driver.release(fd);
                Err(io::Error::other("the backend opened a descriptor nobody asked for"))
            }
        }
    }

    /// What a call that succeeded changes for the loop.
    fn note(&mut self, control: Control<Descriptor>) -> Result<(), SubmitError> {
        match control {
            Control::Set(descriptor, SocketOption::Linger(bound)) => {
                let row = self.open(descriptor)?;
                self.sockets.set_linger(row, Linger::from(bound));
            }
            Control::StartListening(descriptor, _) => {
                let row = self.open(descriptor)?;
                self.sockets.get_mut(row).kind = DescriptorKind::Listener;
            }
            Control::Listen { .. }
            | Control::OpenStream { .. }
            | Control::LocalAddress(_)
            | Control::PeerAddress(_)
            | Control::SetNoDelay(..)
            | Control::NoDelay(_)
            | Control::Unread(_)
            | Control::Unsent(_)
            | Control::Discard(..)
            | Control::Shutdown(..)
            | Control::Set(..)
            | Control::Get(..)
            | Control::TakeError(_)
            | Control::Bind(..) => {}
        }
        Ok(())
    }

    /// The call with the kernel's number in place of ours.
    fn lower(&self, control: Control<Descriptor>) -> Result<Control<RawFd>, SubmitError> {
        let fd = |descriptor| Ok(self.sockets.get(self.open(descriptor)?).fd);
        Ok(match control {
            Control::Listen { address, backlog } => Control::Listen { address, backlog },
            Control::OpenStream { family_of } => Control::OpenStream { family_of },
            Control::LocalAddress(descriptor) => Control::LocalAddress(fd(descriptor)?),
            Control::PeerAddress(descriptor) => Control::PeerAddress(fd(descriptor)?),
            Control::SetNoDelay(descriptor, on) => Control::SetNoDelay(fd(descriptor)?, on),
            Control::NoDelay(descriptor) => Control::NoDelay(fd(descriptor)?),
            Control::Unread(descriptor) => Control::Unread(fd(descriptor)?),
            Control::Unsent(descriptor) => Control::Unsent(fd(descriptor)?),
            Control::Discard(descriptor, bytes) => Control::Discard(fd(descriptor)?, bytes),
            Control::Shutdown(descriptor, how) => Control::Shutdown(fd(descriptor)?, how),
            Control::Set(descriptor, option) => Control::Set(fd(descriptor)?, option),
            Control::Get(descriptor, name) => Control::Get(fd(descriptor)?, name),
            Control::TakeError(descriptor) => Control::TakeError(fd(descriptor)?),
            Control::Bind(descriptor, address) => Control::Bind(fd(descriptor)?, address),
            Control::StartListening(descriptor, backlog) => {
                Control::StartListening(fd(descriptor)?, backlog)
            }
        })
    }

    fn take_row(&mut self, kind: DescriptorKind) -> Result<u32, SubmitError> {
        let limit = self.options.sockets;
        let full = SubmitError::Full { option: "sockets", limit };
        self.sockets.take(kind, Phase::Reserved).ok_or(full)
    }

    /// Takes over a descriptor opened elsewhere. It must be blocking (the kernel answers requests
    /// on non-blocking ones with `EAGAIN` in place of waiting) and of the kind given. The loop
    /// closes it.
    ///
    /// # Errors
    /// When no row is free or this is a child process; the descriptor is then closed.
    pub fn adopt(&mut self, fd: OwnedFd, kind: DescriptorKind) -> Result<Descriptor, SubmitError> {
        self.check()?;
        let row = self.take_row(kind)?;
        let socket = self.sockets.get_mut(row);
        socket.fd = fd.into_raw_fd();
        socket.phase = Phase::Open;
        Ok(self.sockets.descriptor(row))
    }

    /// The address of a connection's other end, as the kernel told it when it was accepted or as it
    /// was asked to connect.
    pub fn peer_address(&self, descriptor: Descriptor) -> Option<SocketAddr> {
        let row = self.sockets.find_open(descriptor)?;
        self.sockets.address(row).decode().ok()
    }
}
