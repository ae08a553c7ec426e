//! Refusals of the kernel's, as filters of the process.
#![allow(dead_code, unreachable_pub)]

use std::io;

/// Makes a system call fail with an `errno`, in this process and its children; with `second` only
/// where that is the call's second argument. Meant for the time between a fork and an exec: it makes
/// two system calls and allocates nothing.
pub fn refuse(number: libc::c_long, second: Option<u32>, errno: i32) -> io::Result<()> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equals = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let plain = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let unless = |k, jf| libc::sock_filter { code: equals, jt: 0, jf, k };
    // Offsets in `struct seccomp_data`: the number at 0, the arguments from 16, 8 bytes each. Without
    // a second argument the number is looked at twice.
    let (at, wanted) = match second {
        Some(value) => (24, value),
        None => (0, number as u32),
    };
    let mut filter = [
        plain(load, 0),
        unless(number as u32, 3),
        plain(load, at),
        unless(wanted, 1),
        plain(answer, libc::SECCOMP_RET_ERRNO | errno as u32),
        plain(answer, libc::SECCOMP_RET_ALLOW),
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // SAFETY: prctl(2) reads the program during the call.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
