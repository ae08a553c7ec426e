#![deny(unsafe_code)]
//! Cold calls: opening, addresses, options. Answered at once.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::error::SubmitError;
use crate::event_loop::Loop;
use crate::op::{Control, Descriptor, Reply, SocketOption};
use crate::tables::NONE;
use crate::tables::sockets::{DescriptorKind, Linger, Phase};

/// What a call changes in the loop's table, once it has succeeded.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Nothing,
    /// A new row; beside the row of another number of the same socket or file.
    Opens(DescriptorKind, Option<u32>),
    /// The program shuts this row's reading side.
    ShutsReading(u32),
    Lingers(u32, Option<Duration>),
    Listens(u32),
}

impl Loop {
    /// Does a cold call.
    ///
    /// # Errors
    /// What the kernel says, or a [`SubmitError`] inside an [`io::Error`].
    pub fn control(&mut self, control: Control<Descriptor>) -> io::Result<Reply<Descriptor>> {
        self.check()?;
        let effect = self.effect_of(control)?;
        let lowered = self.lower(control)?;
        // The row comes first: a descriptor is never opened that has no place.
        let reserved = match effect {
            Effect::Opens(kind, _) => Some(self.take_row(kind)?),
            Effect::Nothing
            | Effect::ShutsReading(_)
            | Effect::Lingers(..)
            | Effect::Listens(_) => None,
        };
        self.counts.immediate.controls += 1;
        let answered = self.driver.control(&lowered).map(Reply::into_opened);
        match (answered, reserved) {
            (Ok(Ok(fd)), Some(row)) => {
                self.sockets.get_mut(row).fd = fd;
                self.take_effect(effect, row);
                Ok(Reply::Opened(self.sockets.descriptor(row)))
            }
            (Ok(Ok(fd)), None) => {
                self.driver.release(fd);
                Err(io::Error::other("the backend opened a descriptor nobody asked for"))
            }
            (Ok(Err(reply)), reserved) => {
                match reserved {
                    Some(row) => self.sockets.free(row),
                    None => self.take_effect(effect, NONE),
                }
                Ok(reply)
            }
            (Err(error), reserved) => {
                if let Some(row) = reserved {
                    self.sockets.free(row);
                }
                Err(error)
            }
        }
    }

    fn effect_of(&self, control: Control<Descriptor>) -> Result<Effect, SubmitError> {
        Ok(match control {
            Control::Listen { .. } => Effect::Opens(DescriptorKind::Listener, None),
            Control::OpenStream { .. } => Effect::Opens(DescriptorKind::Stream, None),
            Control::Duplicate(descriptor) => {
                let row = self.open(descriptor)?;
                Effect::Opens(self.sockets.get(row).kind, Some(row))
            }
            Control::Shutdown(descriptor, Shutdown::Read | Shutdown::Both) => {
                Effect::ShutsReading(self.open(descriptor)?)
            }
            Control::Set(descriptor, SocketOption::Linger(bound)) => {
                Effect::Lingers(self.open(descriptor)?, bound)
            }
            Control::StartListening(descriptor, _) => Effect::Listens(self.open(descriptor)?),
            Control::LocalAddress(_)
            | Control::PeerAddress(_)
            | Control::SetNoDelay(..)
            | Control::NoDelay(_)
            | Control::Unread(_)
            | Control::Unsent(_)
            | Control::Discard(..)
            | Control::Shutdown(_, Shutdown::Write)
            | Control::Set(..)
            | Control::Get(..)
            | Control::TakeError(_)
            | Control::Bind(..) => Effect::Nothing,
        })
    }

    /// `opened` is the row of what was opened.
    fn take_effect(&mut self, effect: Effect, opened: u32) {
        match effect {
            Effect::Nothing => {}
            Effect::Opens(_, None) => self.sockets.get_mut(opened).phase = Phase::Open,
            Effect::Opens(_, Some(of)) => {
                let linger = self.sockets.linger(of);
                self.sockets.set_linger(opened, linger);
                let of = self.sockets.get_mut(of);
                of.parted = true;
                let (read_shut, saw_end) = (of.read_shut, of.saw_end);
                let twin = self.sockets.get_mut(opened);
                (twin.read_shut, twin.saw_end) = (read_shut, saw_end);
                twin.parted = true;
                twin.phase = Phase::Open;
            }
            Effect::ShutsReading(row) => self.sockets.get_mut(row).read_shut = true,
            Effect::Lingers(row, bound) => self.sockets.set_linger(row, Linger::from(bound)),
            Effect::Listens(row) => self.sockets.get_mut(row).kind = DescriptorKind::Listener,
        }
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
            Control::Duplicate(descriptor) => Control::Duplicate(fd(descriptor)?),
        })
    }

    fn take_row(&mut self, kind: DescriptorKind) -> Result<u32, SubmitError> {
        let limit = self.options.sockets;
        let full = SubmitError::Full { option: "sockets", limit };
        self.sockets.take(kind, Phase::Reserved).ok_or(full)
    }

    /// Takes over a descriptor opened elsewhere, of the kind given. The loop closes it. The backend
    /// makes it blocking or not, as it needs it; when the loop gives it up it is blocking.
    ///
    /// # Errors
    /// When no row is free or this is a child process; the descriptor is then closed.
    pub fn adopt(&mut self, fd: OwnedFd, kind: DescriptorKind) -> Result<Descriptor, SubmitError> {
        self.check()?;
        let row = self.take_row(kind)?;
        let socket = self.sockets.get_mut(row);
        let fd = fd.into_raw_fd();
        socket.fd = fd;
        socket.phase = Phase::Open;
        self.driver.adopt(fd);
        Ok(self.sockets.descriptor(row))
    }

    /// The address of a connection's other end, as the kernel told it when it was accepted or as it
    /// was asked to connect.
    pub fn peer_address(&self, descriptor: Descriptor) -> Option<SocketAddr> {
        let row = self.sockets.find_open(descriptor)?;
        self.sockets.address(row).decode().ok()
    }
}
