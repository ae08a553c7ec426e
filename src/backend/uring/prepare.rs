//! Requests as submission entries: pure, nothing is handed over here.
#![deny(unsafe_code)]

use std::ptr;

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types::Fd};

use super::{BUFFER_GROUP, CANCEL_TOKEN, WAKE_TOKEN};
use crate::address::RawAddress;
use crate::backend::{Request, Token};
use crate::op::Interest;
use crate::sys::descriptor;

/// The entry for a request. Its `now` is not looked at: what is answered at once does not come here.
#[inline(always)]
pub(super) fn prepare(token: Token, request: &Request) -> Entry {
    let entry = match *request {
        Request::Nop => opcode::Nop::new().build(),
        // Close-on-exec and blocking. The kernel needs the pointers until the connection is there.
        Request::Accept { fd, address } => {
            let length = RawAddress::length_pointer(address);
            let address = RawAddress::address_pointer(address).cast_mut();
            opcode::Accept::new(Fd(fd), address, length).flags(libc::SOCK_CLOEXEC).build()
        }
        // The length of the longer family serves both: the kernel refuses an address that is too
        // short and ignores what lies behind one (`tcp_v4_connect`, `tcp_v6_connect`).
        Request::Connect { fd, address } => {
            let address = RawAddress::address_pointer(address);
            opcode::Connect::new(Fd(fd), address, RawAddress::CAPACITY).build()
        }
        Request::Receive { fd, pointer, length, now: _ } => {
            opcode::Recv::new(Fd(fd), pointer, length).build()
        }
        Request::ReceivePicked { fd, multishot } => receive_picked(fd, multishot),
        // With MSG_WAITALL the kernel goes on after a short send (Linux 5.19), and answers with the
        // bytes already sent when it is canceled in between (`io_sendrecv_fail`, Linux 6.0).
        Request::Send { fd, pointer, length, now: _ } => {
            let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
            opcode::Send::new(Fd(fd), pointer, length).flags(flags).build()
        }
        Request::SendVectored { fd, message, now: _ } => {
            opcode::SendMsg::new(Fd(fd), message).flags(libc::MSG_NOSIGNAL as u32).build()
        }
        Request::Poll { fd, interest } => {
            opcode::PollAdd::new(Fd(fd), poll_events(interest)).build()
        }
        // Known here for completeness: `answer_now` keeps shutdowns away from io_uring's threads.
        Request::Shutdown { fd, how } => {
            opcode::Shutdown::new(Fd(fd), descriptor::shutdown_number(how)).build()
        }
        Request::ReadAt { fd, pointer, length, offset } => {
            opcode::Read::new(Fd(fd), pointer, length).offset(offset).build()
        }
        Request::WriteAt { fd, pointer, length, offset } => {
            opcode::Write::new(Fd(fd), pointer, length).offset(offset).build()
        }
    };
    entry.user_data(token.to_bits())
}

/// A length of zero means the whole buffer, of which one receive takes one
/// (io_uring_prep_recv(3), io_uring_prep_recv_multishot(3)).
fn receive_picked(fd: i32, multishot: bool) -> Entry {
    if multishot {
        opcode::RecvMulti::new(Fd(fd), BUFFER_GROUP).build()
    } else {
        let receive = opcode::Recv::new(Fd(fd), ptr::null_mut(), 0).buf_group(BUFFER_GROUP);
        receive.build().flags(Flags::BUFFER_SELECT)
    }
}

/// The kernel adds POLLERR and POLLHUP to either (poll(2)).
fn poll_events(interest: Interest) -> u32 {
    let events = match interest {
        Interest::Readable => libc::POLLIN,
        Interest::Writable => libc::POLLOUT,
    };
    events as u32
}

/// Asks for a request to end. Silent when it is found; when it is over already, or too far gone to
/// stop, a completion of [`CANCEL_TOKEN`] says so, which nobody needs to know.
pub(super) fn cancel(token: Token) -> Entry {
    let entry = opcode::AsyncCancel::new(token.to_bits()).build();
    entry.flags(Flags::SKIP_SUCCESS).user_data(CANCEL_TOKEN.to_bits())
}

/// Watches the eventfd until told otherwise. Multishot polls are edge-triggered (Linux 5.13): each
/// write completes once though the counter is never read.
pub(super) fn watch_wake(fd: i32) -> Entry {
    let entry = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true).build();
    entry.user_data(WAKE_TOKEN.to_bits())
}
