//! What a cold call answered, as the type its caller expects.

use std::io;
use std::net::SocketAddr;

use crate::op::{Descriptor, Reply};

/// The descriptor that was opened.
pub(crate) fn opened(reply: Reply<Descriptor>) -> io::Result<Descriptor> {
    match reply {
        Reply::Opened(descriptor) => Ok(descriptor),
        Reply::Done | Reply::Address(_) | Reply::Count(_) | Reply::Flag(_) => Err(mismatch()),
    }
}

/// The address.
pub(crate) fn address_of(reply: Reply<Descriptor>) -> io::Result<SocketAddr> {
    match reply {
        Reply::Address(address) => Ok(address),
        Reply::Done | Reply::Opened(_) | Reply::Count(_) | Reply::Flag(_) => Err(mismatch()),
    }
}

/// On or off.
pub(crate) fn flag(reply: Reply<Descriptor>) -> io::Result<bool> {
    match reply {
        Reply::Flag(flag) => Ok(flag),
        Reply::Done | Reply::Opened(_) | Reply::Address(_) | Reply::Count(_) => Err(mismatch()),
    }
}

/// Nothing but that it was done.
pub(crate) fn done(reply: Reply<Descriptor>) -> io::Result<()> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Opened(_) | Reply::Address(_) | Reply::Count(_) | Reply::Flag(_) => Err(mismatch()),
    }
}

fn mismatch() -> io::Error {
    io::Error::other("rotor: the backend's answer does not fit the question")
}
