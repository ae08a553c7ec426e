//! Calls by descriptor number that answer at once.
//!
//! # Unsafe
//! Memory is handed to the kernel for the length of a call, and numbers are borrowed as
//! descriptors. Invariants:
//! - *open*: a number given here names a descriptor that its owner, the loop's table, keeps open
//!   through the call (the backend contract, point 5 of the loop's promises). A number that breaks it
//!   reaches the wrong file or answers `EBADF`; it touches no memory it was not given.
//! - *memory*: a pointer given to an `unsafe fn` here is valid for its length until the call returns
//!   (point 4). The kernel keeps none of them: every call is synchronous.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::address::RawAddress;
use crate::op::{Control, Reply};
use crate::sys::socket_option;

const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Sends what fits: a count, or a negative `errno` (`-EAGAIN` when nothing does).
///
/// # Safety
/// `pointer` is valid for reads of `length` bytes.
pub(crate) unsafe fn send_now(fd: RawFd, pointer: *const u8, length: u32) -> i32 {
    // SAFETY: the caller vouches for the memory; the call ends before this returns.
    answer(|| unsafe { libc::send(fd, pointer.cast(), length as usize, SEND_FLAGS) })
}

/// Sends what fits of a message's pieces, in order: a count or a negative `errno`.
///
/// # Safety
/// `message` and everything it names are valid for reads.
pub(crate) unsafe fn send_message_now(fd: RawFd, message: *const libc::msghdr) -> i32 {
    // SAFETY: as above.
    answer(|| unsafe { libc::sendmsg(fd, message, SEND_FLAGS) })
}

/// Receives what there is: a count, 0 at the end, or a negative `errno` (`-EAGAIN` for nothing yet).
///
/// # Safety
/// `pointer` is valid for writes of `length` bytes.
pub(crate) unsafe fn receive_now(fd: RawFd, pointer: *mut u8, length: u32) -> i32 {
    // SAFETY: as above.
    answer(|| unsafe { libc::recv(fd, pointer.cast(), length as usize, libc::MSG_DONTWAIT) })
}

/// Shuts a direction down: 0 or a negative `errno`. shutdown(2) never waits.
pub(crate) fn shutdown_now(fd: RawFd, how: Shutdown) -> i32 {
    // SAFETY: takes no memory.
    answer(|| unsafe { libc::shutdown(fd, shutdown_number(how)) } as isize)
}

/// The kernel's number for a direction.
pub(crate) const fn shutdown_number(how: Shutdown) -> libc::c_int {
    match how {
        Shutdown::Read => libc::SHUT_RD,
        Shutdown::Write => libc::SHUT_WR,
        Shutdown::Both => libc::SHUT_RDWR,
    }
}

/// Closes. An error is not the caller's to mend: the number is free again after every answer of
/// Linux's close(2), `EINTR` too, so it is never tried twice. `EBADF` says that someone else closed
/// it behind the loop's back; nothing is left to do.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the owner gives the number up (*open* ends here).
    let _ = unsafe { libc::close(fd) };
}

/// Performs a cold call.
pub(crate) fn perform(control: &Control<RawFd>) -> io::Result<Reply<RawFd>> {
    match *control {
        Control::Listen { address, backlog } => listen(address, backlog).map(opened),
        Control::OpenStream { family_of } => open_stream(family_of).map(opened),
        Control::LocalAddress(fd) => address_by(fd, libc::getsockname),
        Control::PeerAddress(fd) => address_by(fd, libc::getpeername),
        Control::SetNoDelay(fd, on) => {
            sockopt::set_tcp_nodelay(borrow(fd)?, on)?;
            Ok(Reply::Done)
        }
        Control::NoDelay(fd) => Ok(Reply::Flag(sockopt::tcp_nodelay(borrow(fd)?)?)),
        Control::Unread(fd) => Ok(Reply::Count(rustix::io::ioctl_fionread(borrow(fd)?)?)),
        Control::Unsent(fd) => unsent(fd).map(Reply::Count),
        Control::Discard(fd, bytes_max) => discard(fd, bytes_max).map(Reply::Count),
        Control::Shutdown(fd, how) => match shutdown_now(fd, how) {
            // The peer's reset took the connection: there is nothing left to shut down.
            0 => Ok(Reply::Done),
            error if error == -libc::ENOTCONN => Ok(Reply::Done),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        Control::Set(fd, option) => socket_option::set(borrow(fd)?, option).map(|()| Reply::Done),
        Control::Get(fd, name) => socket_option::get(borrow(fd)?, name).map(Reply::Option),
        Control::TakeError(fd) => match sockopt::socket_error(borrow(fd)?)? {
            Ok(()) => Ok(Reply::Error(None)),
            Err(errno) => Ok(Reply::Error(Some(errno.raw_os_error()))),
        },
        Control::Bind(fd, address) => bind(fd, address).map(|()| Reply::Done),
        Control::StartListening(fd, backlog) => {
            start_listening(borrow(fd)?, backlog).map(|()| Reply::Done)
        }
        Control::Duplicate(fd) => Ok(opened(rustix::io::fcntl_dupfd_cloexec(borrow(fd)?, 0)?)),
    }
}

fn opened(socket: OwnedFd) -> Reply<RawFd> {
    Reply::Opened(socket.into_raw_fd())
}

/// A blocking, close-on-exec stream socket; see the module above for why it blocks.
fn open_stream(family_of: SocketAddr) -> io::Result<OwnedFd> {
    let family = match family_of {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

fn listen(address: SocketAddr, backlog: u32) -> io::Result<OwnedFd> {
    let socket = open_stream(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(socket.as_raw_fd(), address)?;
    start_listening(socket.as_fd(), backlog)?;
    Ok(socket)
}

fn bind(fd: RawFd, address: SocketAddr) -> io::Result<()> {
    let raw = RawAddress::encode(address);
    // SAFETY: `raw` is a whole address of this length, alive through the call.
    let bound = unsafe { libc::bind(fd, RawAddress::address_pointer(&raw), raw.length()) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// listen(2) caps a backlog that is too long and takes a negative one for zero.
fn start_listening(socket: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    Ok(rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?)
}

type NameCall =
    unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn address_by(fd: RawFd, call: NameCall) -> io::Result<Reply<RawFd>> {
    let mut raw = RawAddress::EMPTY;
    let whole: *mut RawAddress = &mut raw;
    let address = RawAddress::address_pointer(whole).cast_mut();
    // SAFETY: both pointers are into `raw`, whose length field says how much may be written;
    // getsockname(2) and getpeername(2) write no more.
    if unsafe { call(fd, address, RawAddress::length_pointer(whole)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    raw.decode().map(Reply::Address)
}

fn unsent(fd: RawFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request (SIOCOUTQ by its other name, tcp(7)) writes one c_int.
    if unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// With `MSG_TRUNC` TCP throws the bytes away and writes no memory (tcp(7), Linux 2.4 on).
fn discard(fd: RawFd, bytes_max: u32) -> io::Result<u64> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: nothing is written; were it, a null pointer is the kernel's EFAULT, not our memory.
    let count = answer(|| unsafe { libc::recv(fd, ptr::null_mut(), bytes_max as usize, flags) });
    u64::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count))
}

/// The number as a borrowed descriptor.
fn borrow<'a>(fd: RawFd) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: not -1, and kept open by the loop through the call (*open*); the borrow goes no
    // further than the function that asked for it.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Makes the call again as long as a signal interrupts it, and turns `errno` into a negative result.
fn answer(call: impl Fn() -> isize) -> i32 {
    loop {
        let result = call();
        if result >= 0 {
            // Lengths are 32 bits wide and capped by the kernel at 0x7ffff000 (read(2)).
            return i32::try_from(result).unwrap_or(i32::MAX);
        }
        let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        if error != libc::EINTR {
            return -error;
        }
    }
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod tests;
