//! What a cold call answered, as the type its caller expects.

use std::io;
use std::net::SocketAddr;

use crate::op::{Descriptor, Reply, SocketOption};

/// The descriptor that was opened.
pub(crate) fn opened(reply: Reply<Descriptor>) -> io::Result<Descriptor> {
    let Reply::Opened(descriptor) = reply else { return Err(mismatch()) };
    Ok(descriptor)
}

/// The address.
pub(crate) fn address_of(reply: Reply<Descriptor>) -> io::Result<SocketAddr> {
    let Reply::Address(address) = reply else { return Err(mismatch()) };
    Ok(address)
}

/// On or off.
pub(crate) fn flag(reply: Reply<Descriptor>) -> io::Result<bool> {
    let Reply::Flag(flag) = reply else { return Err(mismatch()) };
    Ok(flag)
}

/// An option's value.
pub(crate) fn option(reply: Reply<Descriptor>) -> io::Result<SocketOption> {
    let Reply::Option(option) = reply else { return Err(mismatch()) };
    Ok(option)
}

/// The error a socket had, if any.
pub(crate) fn error_of(reply: Reply<Descriptor>) -> io::Result<Option<io::Error>> {
    let Reply::Error(errno) = reply else { return Err(mismatch()) };
    Ok(errno.map(io::Error::from_raw_os_error))
}

/// Nothing but that it was done.
pub(crate) fn done(reply: Reply<Descriptor>) -> io::Result<()> {
    let Reply::Done = reply else { return Err(mismatch()) };
    Ok(())
}

/// The backend answered something else than it was asked.
#[cold]
pub(crate) fn mismatch() -> io::Error {
    io::Error::other("rotor: the backend's answer does not fit the question")
}
