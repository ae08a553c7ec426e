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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::address::RawAddress;
use crate::op::{Control, Interest, Reply};
use crate::sys::socket_option;

#[cfg(not(target_os = "macos"))]
const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// macOS keeps a socket from raising `SIGPIPE` by an option of the socket; see [`keep_quiet`].
#[cfg(target_os = "macos")]
const SEND_FLAGS: libc::c_int = libc::MSG_DONTWAIT;

/// Sends what fits: a count, or a negative `errno` (`-EAGAIN` when nothing does).
///
/// # Safety
/// `pointer` is valid for reads of `length` bytes.
#[inline]
pub(crate) unsafe fn send_now(fd: RawFd, pointer: *const u8, length: u32) -> i32 {
    // SAFETY: the caller vouches for the memory; the call ends before this returns.
    answer(move || unsafe { libc::send(fd, pointer.cast(), length as usize, SEND_FLAGS) })
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

/// Accepts a connection that waits, close-on-exec and blocking: its number, or a negative `errno`. The
/// listener is nonblocking, or this may wait.
///
/// # Safety
/// `address` is valid for reads and writes.
pub(crate) unsafe fn accept_now(fd: RawFd, address: *mut RawAddress) -> i32 {
    let (name, length) =
        (RawAddress::address_pointer(address).cast_mut(), RawAddress::length_pointer(address));
    // SAFETY: both pointers are into the address, which the caller vouches for; its length field says
    // how much may be written.
    answer(|| unsafe { accept_call(fd, name, length) } as isize)
}

/// # Safety
/// As for accept4(2).
#[cfg(not(target_os = "macos"))]
unsafe fn accept_call(fd: RawFd, name: *mut libc::sockaddr, length: *mut libc::socklen_t) -> i32 {
    // SAFETY: the caller's.
    unsafe { libc::accept4(fd, name, length, libc::SOCK_CLOEXEC) }
}

/// macOS has no accept4(2), and a connection inherits its listener's mode. Between the two calls a
/// program that another thread starts inherits the descriptor: nothing there prevents it.
///
/// # Safety
/// As for accept(2).
#[cfg(target_os = "macos")]
unsafe fn accept_call(fd: RawFd, name: *mut libc::sockaddr, length: *mut libc::socklen_t) -> i32 {
    // SAFETY: the caller's.
    let accepted = unsafe { libc::accept(fd, name, length) };
    if let Ok(socket) = borrow(accepted) {
        let _ = rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::CLOEXEC);
        let _ = rustix::io::ioctl_fionbio(socket, false);
        keep_quiet(accepted);
    }
    accepted
}

/// Begins to connect: 0 when connected already, `-EINPROGRESS` while it goes on, or a negative
/// `errno`. The socket is nonblocking, or this waits.
///
/// # Safety
/// `address` is valid for reads.
pub(crate) unsafe fn connect_now(fd: RawFd, address: *const RawAddress) -> i32 {
    // SAFETY: the caller vouches for the address, which knows its length.
    let result =
        unsafe { libc::connect(fd, RawAddress::address_pointer(address), (*address).length()) };
    if result == 0 {
        return 0;
    }
    match errno() {
        // Interrupted, it goes on all the same (connect(2)); asked again it would say EALREADY.
        libc::EINTR => -libc::EINPROGRESS,
        errno => -errno,
    }
}

/// How a connect that `connect_now` began has ended: 0, a negative `errno`, or `-EINPROGRESS` while it
/// goes on. Linux keeps the error, and the socket's way out of connecting, for a second connect(2).
///
/// # Safety
/// `address` is valid for reads.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn connect_result(fd: RawFd, address: *const RawAddress) -> i32 {
    // SAFETY: the caller's.
    match -unsafe { connect_now(fd, address) } {
        0 | libc::EISCONN => 0,
        libc::EALREADY | libc::EINPROGRESS => -libc::EINPROGRESS,
        errno => -errno,
    }
}

/// As above. The BSDs keep the error as the socket's own, and would connect anew if asked again.
///
/// # Safety
/// `address` is valid for reads.
#[cfg(not(target_os = "linux"))]
pub(crate) unsafe fn connect_result(fd: RawFd, _address: *const RawAddress) -> i32 {
    let error = match borrow(fd).map(sockopt::socket_error) {
        Ok(Ok(Ok(()))) => 0,
        Ok(Ok(Err(errno)) | Err(errno)) => errno.raw_os_error(),
        Err(_) => libc::EBADF,
    };
    let peer = || match address_by(fd, libc::getpeername) {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    crate::sys::connect::outcome(error, peer, || is_ready(fd, Interest::Writable))
}

/// Whether calls on it may wait: 0 or a negative `errno`.
pub(crate) fn set_blocking(fd: RawFd, blocking: bool) -> i32 {
    let set = borrow(fd).and_then(|fd| Ok(rustix::io::ioctl_fionbio(fd, !blocking)?));
    set.map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0)
}

/// Whether it is ready now, or broken.
pub(crate) fn is_ready(fd: RawFd, interest: Interest) -> bool {
    let flags = match interest {
        Interest::Readable => PollFlags::IN,
        Interest::Writable => PollFlags::OUT,
    };
    let Ok(fd) = borrow(fd) else { return true };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A poll with no time to wait is interrupted after it has looked and found nothing.
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&now)) {
        Ok(0) | Err(Errno::INTR) => false,
        Ok(_) | Err(_) => true,
    }
}

/// Whether it is a TCP socket, and not one that is merely read like it.
#[cfg(target_os = "linux")]
pub(crate) fn is_tcp(fd: RawFd) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PROTOCOL);
    let value: *mut libc::c_int = &mut protocol;
    // SAFETY: the option's value is one c_int, as `length` says.
    let answer = unsafe { libc::getsockopt(fd, level, name, value.cast(), &raw mut length) };
    answer == 0 && protocol == libc::IPPROTO_TCP
}

/// As above. Not every system can say it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_tcp(_fd: RawFd) -> bool {
    false
}

/// The descriptor of a number that its owner has given up, still open: this is its only owner.
pub(crate) fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the row that named it was freed or given another number in the same call, without a
    // close: *open* ends here, and the loop never uses the number again.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A descriptor for as long as its object is borrowed. `fd` is the answer of
/// [`Loop::lend`](crate::Loop) for the descriptor that `object` owns.
pub(crate) fn lent<T>(_object: &T, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: the row is marked as lent: the loop closes it when the object is dropped and no sooner,
    // also if the loop's own end comes first (`drain` leaves it open, the runtime keeps it for the
    // object). The borrow ends before that.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Opens an epoll instance, close-on-exec.
#[cfg(target_os = "linux")]
pub(crate) fn epoll_open() -> io::Result<OwnedFd> {
    Ok(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?)
}

/// epoll_ctl(2). An error is an `errno`.
#[cfg(target_os = "linux")]
pub(crate) fn epoll_change(
    epoll: &OwnedFd,
    operation: libc::c_int,
    fd: RawFd,
    events: u32,
    data: u64,
) -> Result<(), i32> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event is a local, read before the call returns.
    let result = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &raw mut event) };
    if result == 0 { Ok(()) } else { Err(errno()) }
}

/// Waits in milliseconds, -1 for ever. Answers how many events were written.
#[cfg(target_os = "linux")]
pub(crate) fn epoll_wait_ms(
    epoll: &OwnedFd,
    events: &mut [libc::epoll_event],
    wait_ms: i32,
) -> Result<usize, i32> {
    let most = i32::try_from(events.len()).unwrap_or(i32::MAX);
    // SAFETY: the kernel writes at most `most` events, which the slice has room for, until the call
    // returns.
    let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), most, wait_ms) };
    usize::try_from(count).map_err(|_| errno())
}

/// Waits in nanoseconds, or for ever, by epoll_pwait2(2), which a kernel before Linux 5.11 answers with
/// `ENOSYS`.
#[cfg(target_os = "linux")]
pub(crate) fn epoll_wait_ns(
    epoll: &OwnedFd,
    events: &mut [libc::epoll_event],
    wait_ns: Option<u64>,
) -> Result<usize, i32> {
    let most = i32::try_from(events.len()).unwrap_or(i32::MAX);
    // The kernel's own structure, with 64 bits of seconds on every machine.
    let wait = wait_ns.map(|ns| [(ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64]);
    let wait = wait.as_ref().map_or(std::ptr::null(), |wait| wait.as_ptr());
    // SAFETY: as above; the time is alive through the call, and no signal mask is given.
    let count = unsafe {
        let (number, epoll) = (libc::SYS_epoll_pwait2, epoll.as_raw_fd());
        libc::syscall(
            number,
            epoll,
            events.as_mut_ptr(),
            most,
            wait,
            std::ptr::null::<u8>(),
            0_usize,
        )
    };
    usize::try_from(count).map_err(|_| errno())
}

/// Opens a kqueue. It is not inherited by a child, forked or started.
#[cfg(any(target_os = "macos", target_os = "freebsd"))]
pub(crate) fn kqueue_open() -> io::Result<OwnedFd> {
    let queue = rustix::event::kqueue::kqueue()?;
    rustix::io::fcntl_setfd(&queue, rustix::io::FdFlags::CLOEXEC)?;
    Ok(queue)
}

/// kevent(2): makes changes and waits, or waits for ever. Answers how many events were written.
#[cfg(any(target_os = "macos", target_os = "freebsd"))]
pub(crate) fn kqueue_call(
    queue: &OwnedFd,
    changes: &[rustix::event::kqueue::Event],
    found: &mut [rustix::event::kqueue::Event],
    wait: Option<Timespec>,
) -> Result<usize, i32> {
    // SAFETY: *open*: a number named in a change is open through the call. One that is closed later
    // takes its filters along (kqueue(2)); no memory is named.
    let count =
        unsafe { rustix::event::kqueue::kevent_timespec(queue, changes, found, wait.as_ref()) };
    count.map_err(Errno::raw_os_error)
}

/// Keeps a socket from raising `SIGPIPE`, where calls cannot say so themselves.
pub(crate) fn keep_quiet(fd: RawFd) {
    #[cfg(target_os = "macos")]
    if let Ok(fd) = borrow(fd) {
        // What is no socket raises none.
        let _ = sockopt::set_socket_nosigpipe(fd, true);
    }
    #[cfg(not(target_os = "macos"))]
    let _ = fd;
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
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
    #[cfg(not(target_os = "macos"))]
    let flags = SocketFlags::CLOEXEC;
    #[cfg(target_os = "macos")]
    let flags = SocketFlags::empty();
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    #[cfg(target_os = "macos")]
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    keep_quiet(socket.as_raw_fd());
    Ok(socket)
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

#[cfg(not(target_os = "macos"))]
fn unsent(fd: RawFd) -> io::Result<u64> {
    // SIOCOUTQ by its other name (tcp(7)); `FIONWRITE` of sys/filio.h.
    #[cfg(target_os = "linux")]
    const UNSENT: libc::Ioctl = libc::TIOCOUTQ;
    #[cfg(not(target_os = "linux"))]
    const UNSENT: libc::c_ulong = libc::FIONWRITE;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one c_int.
    if unsafe { libc::ioctl(fd, UNSENT, &raw mut bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(target_os = "macos")]
fn unsent(fd: RawFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    let value: *mut libc::c_int = &mut bytes;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_NWRITE);
    // SAFETY: the option's value is one c_int, as `length` says.
    if unsafe { libc::getsockopt(fd, level, name, value.cast(), &raw mut length) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// With `MSG_TRUNC` TCP throws the bytes away and writes no memory (tcp(7), Linux 2.4 on).
#[cfg(target_os = "linux")]
fn discard(fd: RawFd, bytes_max: u32) -> io::Result<u64> {
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: nothing is written; were it, a null pointer is the kernel's EFAULT, not our memory.
    let count =
        answer(|| unsafe { libc::recv(fd, std::ptr::null_mut(), bytes_max as usize, flags) });
    u64::try_from(count).map_err(|_| io::Error::from_raw_os_error(-count))
}

/// Elsewhere bytes are thrown away by receiving them, a little at a time.
#[cfg(not(target_os = "linux"))]
fn discard(fd: RawFd, bytes_max: u32) -> io::Result<u64> {
    let mut bytes = [0_u8; 16_384];
    let length = bytes_max.min(bytes.len() as u32);
    // SAFETY: a local array, at least that long.
    let count = unsafe { receive_now(fd, bytes.as_mut_ptr(), length) };
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
#[inline(always)]
fn answer(call: impl Fn() -> isize) -> i32 {
    loop {
        let result = call();
        if result >= 0 {
            // Lengths are 32 bits wide and capped by the kernel at 0x7ffff000 (read(2)).
            return i32::try_from(result).unwrap_or(i32::MAX);
        }
        let error = errno();
        if error != libc::EINTR {
            return -error;
        }
    }
}

#[cfg(test)]
#[path = "descriptor_tests.rs"]
mod tests;
