//! Completion entries as completions: pure, from the three fields the kernel fills in.
#![deny(unsafe_code)]

use io_uring::cqueue;

use super::{CANCEL_TOKEN, WAKE_TOKEN};
use crate::backend::{Completion, Token};

/// What a completion entry says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reaped {
    /// An answer for the loop.
    Completion(Completion),
    /// Another thread woke this one. The watch on the eventfd may be over: arm it again.
    Wake {
        /// The watch has ended.
        rearm: bool,
    },
    /// A cancel that found nothing to cancel, or could not: the request answers for itself.
    CancelAcknowledged,
    /// A reserved token this backend never used. Nothing waits for it.
    Unknown,
}

/// Reads an entry.
#[inline]
pub(super) fn reap(user_data: u64, result: i32, flags: u32) -> Reaped {
    let token = Token::from_bits(user_data);
    let more = cqueue::more(flags);
    if token.index() < Token::RESERVED_FROM {
        let buffer = cqueue::buffer_select(flags);
        let socket_nonempty = cqueue::sock_nonempty(flags);
        return Reaped::Completion(Completion { token, result, more, buffer, socket_nonempty });
    }
    if token == WAKE_TOKEN {
        Reaped::Wake { rearm: !more }
    } else if token == CANCEL_TOKEN {
        Reaped::CancelAcknowledged
    } else {
        Reaped::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The bits of a completion's flags, from linux/io_uring.h: they are the kernel's for good.
    const BUFFER: u32 = 1;
    const MORE: u32 = 2;
    const SOCK_NONEMPTY: u32 = 4;

    fn completion(user_data: u64, result: i32, flags: u32) -> Completion {
        match reap(user_data, result, flags) {
            Reaped::Completion(completion) => completion,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_plain_answer_is_final_and_names_no_buffer() {
        let token = Token::new(7, 9);
        let answer = completion(token.to_bits(), 42, 0);
        assert_eq!((answer.token, answer.result), (token, 42));
        assert_eq!((answer.more, answer.buffer, answer.socket_nonempty), (false, None, false));
    }

    #[test]
    fn every_flag_is_read_alone_and_together() {
        assert!(completion(1, 0, MORE).more);
        assert!(completion(1, 0, SOCK_NONEMPTY).socket_nonempty);
        for buffer in [0_u16, 1, 0x7fff, 0xffff] {
            let flags = u32::from(buffer) << 16 | BUFFER;
            assert_eq!(completion(1, 10, flags).buffer, Some(buffer));
            let all = completion(1, 10, flags | MORE | SOCK_NONEMPTY);
            assert_eq!((all.more, all.buffer, all.socket_nonempty), (true, Some(buffer), true));
        }
        // The upper half means nothing without the flag.
        assert_eq!(completion(1, 10, 5 << 16).buffer, None);
    }

    #[test]
    fn errors_pass_through_with_whatever_came_with_them() {
        let answer = completion(3, -libc::ENOBUFS, 0);
        assert_eq!((answer.result, answer.buffer, answer.more), (-libc::ENOBUFS, None, false));
        // A receive that ends with an error while holding a buffer must give it back.
        assert_eq!(completion(3, -libc::ECANCELED, 4 << 16 | BUFFER).buffer, Some(4));
        assert_eq!(completion(3, i32::MIN, 0).result, i32::MIN);
    }

    #[test]
    fn the_backends_own_requests_are_told_apart_at_any_generation() {
        assert!(matches!(reap(WAKE_TOKEN.to_bits(), 1, MORE), Reaped::Wake { rearm: false }));
        assert!(matches!(reap(WAKE_TOKEN.to_bits(), 1, 0), Reaped::Wake { rearm: true }));
        let canceled = reap(WAKE_TOKEN.to_bits(), -libc::ECANCELED, 0);
        assert!(matches!(canceled, Reaped::Wake { rearm: true }));
        let missed = reap(CANCEL_TOKEN.to_bits(), -libc::ENOENT, 0);
        assert!(matches!(missed, Reaped::CancelAcknowledged));
        assert!(matches!(reap(u64::MAX, 0, 0), Reaped::Unknown));
        assert!(matches!(reap(WAKE_TOKEN.to_bits() | 1 << 32, 0, 0), Reaped::Unknown));
        let last = Token::new(Token::RESERVED_FROM - 1, u32::MAX);
        assert_eq!(completion(last.to_bits(), 0, 0).token, last);
    }
}
