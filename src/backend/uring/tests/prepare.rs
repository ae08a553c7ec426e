//! What is handed to the kernel, by the bytes of the entry (io_uring_enter(2), `struct io_uring_sqe`).
//!
//! # Unsafe
//! Entries are looked at as bytes.

use super::*;
use crate::backend::uring::prepare;

fn bytes_of(request: &Request) -> [u8; 64] {
    bytes(prepare::prepare(Token::new(7, 9), request))
}

fn bytes(entry: Entry) -> [u8; 64] {
    // SAFETY: an entry is 64 plain bytes, `repr(C)`.
    unsafe { std::mem::transmute(entry) }
}

fn u32_at(bytes: &[u8; 64], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8; 64], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

const FLAGS: usize = 1;
const PRIORITY: usize = 2;
const FD: usize = 4;
const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const LENGTH: usize = 24;
const OPERATION_FLAGS: usize = 28;
const USER_DATA: usize = 32;
const GROUP: usize = 40;
const BUFFER_SELECT: u8 = 1 << 5;

/// What the kernel reads of an entry, beside the token and the priority.
fn expect(
    request: Request,
    opcode: u8,
    offset: u64,
    address: u64,
    length: u32,
    flags: libc::c_int,
) {
    let bytes = bytes_of(&request);
    assert_eq!(bytes[0], opcode, "{request:?}");
    assert_eq!(u64_at(&bytes, USER_DATA), 9 << 32 | 7);
    assert_eq!(u64_at(&bytes, OFFSET), offset, "{request:?}");
    assert_eq!(u64_at(&bytes, ADDRESS), address, "{request:?}");
    assert_eq!(u32_at(&bytes, LENGTH), length, "{request:?}");
    assert_eq!(u32_at(&bytes, OPERATION_FLAGS), flags as u32, "{request:?}");
    assert_eq!(u32_at(&bytes, FD), if opcode == 0 { u32::MAX } else { 5 });
    assert_eq!((bytes[FLAGS], bytes[PRIORITY]), (0, 0), "{request:?}");
}

#[test]
fn requests_with_memory_are_prepared_as_the_manual_asks() {
    let mut byte = 0_u8;
    let pointer: *mut u8 = &mut byte;
    let (fd, length, now) = (5, 100, false);
    let at = pointer as u64;
    let whole = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    expect(Request::Send { fd, pointer, length, now }, 26, 0, at, 100, whole);
    expect(Request::Receive { fd, pointer, length, now }, 27, 0, at, 100, 0);
    let message: *const libc::msghdr = pointer.cast();
    expect(Request::SendVectored { fd, message, now }, 9, 0, at, 1, libc::MSG_NOSIGNAL);
    let offset = 1 << 40;
    expect(Request::ReadAt { fd, pointer, length, offset }, 22, offset, at, 100, 0);
    expect(Request::WriteAt { fd, pointer, length, offset: 3 }, 23, 3, at, 100, 0);
    let address: *mut RawAddress = pointer.cast();
    expect(Request::Accept { fd, address }, 13, at + 28, at, 0, libc::SOCK_CLOEXEC);
    expect(Request::Connect { fd, address }, 16, 28, at, 0, 0);
}

#[test]
fn requests_without_memory_are_prepared_as_the_manual_asks() {
    let fd = 5;
    expect(Request::Nop, 0, 0, 0, 0, 0);
    let poll = |interest| Request::Poll { fd, interest };
    expect(poll(Interest::Readable), 6, 0, 0, 0, libc::POLLIN.into());
    expect(poll(Interest::Writable), 6, 0, 0, 0, libc::POLLOUT.into());
    let shutdown = |how| Request::Shutdown { fd, how };
    expect(shutdown(Shutdown::Write), 34, 0, 0, libc::SHUT_WR as u32, 0);
    expect(shutdown(Shutdown::Both), 34, 0, 0, libc::SHUT_RDWR as u32, 0);
}

#[test]
fn receives_into_picked_buffers_select_from_the_group() {
    for multishot in [false, true] {
        let bytes = bytes_of(&Request::ReceivePicked { fd: 5, multishot });
        assert_eq!((bytes[0], bytes[FLAGS]), (27, BUFFER_SELECT));
        assert_eq!(bytes[PRIORITY], if multishot { 2 } else { 0 });
        assert_eq!((u64_at(&bytes, ADDRESS), u32_at(&bytes, LENGTH)), (0, 0));
        assert_eq!(bytes[GROUP], BUFFER_GROUP as u8);
    }
}

#[test]
fn the_backends_own_entries_carry_reserved_tokens() {
    let cancel = bytes(prepare::cancel(Token::new(7, 9)));
    assert_eq!((cancel[0], cancel[FLAGS]), (14, 1 << 6));
    assert_eq!(u64_at(&cancel, ADDRESS), 9 << 32 | 7);
    assert_eq!(u64_at(&cancel, USER_DATA), CANCEL_TOKEN.to_bits());
    let watch = bytes(prepare::watch_wake(5));
    assert_eq!((watch[0], u32_at(&watch, LENGTH)), (6, 1));
    assert_eq!(u64_at(&watch, USER_DATA), WAKE_TOKEN.to_bits());
    assert!(CANCEL_TOKEN.index() >= Token::RESERVED_FROM && CANCEL_TOKEN != WAKE_TOKEN);
}
