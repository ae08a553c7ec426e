//! How a connect has ended, as the BSDs tell it: by three answers, of which none says all.
#![deny(unsafe_code)]

/// 0, a negative `errno`, or `-EINPROGRESS` while it goes on. `error` is the socket's (0 for none), `peer`
/// the `errno` of asking for the other end's address (0 for an address), and a socket that connects cannot
/// be written to.
pub(super) fn outcome(
    error: i32,
    peer: impl FnOnce() -> i32,
    is_writable: impl FnOnce() -> bool,
) -> i32 {
    if error != 0 {
        return -error;
    }
    if peer() != libc::ENOTCONN {
        // It has connected, and may have been cut off since, which the next call will say.
        return 0;
    }
    // It goes on, or it has failed and somebody else was told the error.
    if is_writable() { -libc::ENOTCONN } else { -libc::EINPROGRESS }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_connect_whose_error_somebody_else_was_told_does_not_go_on_for_ever() {
        let outcome = |error, peer, is_writable| super::outcome(error, || peer, || is_writable);
        assert_eq!(outcome(libc::ECONNREFUSED, libc::ENOTCONN, true), -libc::ECONNREFUSED);
        assert_eq!(outcome(0, libc::ENOTCONN, false), -libc::EINPROGRESS);
        assert_eq!(outcome(0, libc::ENOTCONN, true), -libc::ENOTCONN);
        assert_eq!(outcome(0, 0, true), 0);
        assert_eq!(outcome(0, libc::EINVAL, true), 0, "it was connected");
    }
}
