//! The backends a scenario runs on, each as a process finds it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rotor::backend::Kind;

use crate::seccomp;

/// A process's surroundings, and the backend it must come to run in them.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) runs: Kind,
    /// `ROTOR_BACKEND`.
    variable: Option<&'static str>,
    refused: Option<Refusal>,
}

/// A system call that the kernel refuses: with this second argument, or always.
struct Refusal {
    call: libc::c_long,
    second: Option<u32>,
    errno: i32,
}

const fn asked_for(name: &'static str, runs: Kind) -> Setting {
    Setting { name, runs, variable: Some(name), refused: None }
}

/// io_uring asked for, on a kernel without one of the registrations (linux/io_uring.h).
const fn uring_without(name: &'static str, registration: u32) -> Setting {
    let call = libc::SYS_io_uring_register;
    let refused = Some(Refusal { call, second: Some(registration), errno: libc::EINVAL });
    Setting { name, runs: Kind::IoUring, variable: Some("io_uring"), refused }
}

/// In the order in which they run. What refuses a registration that io_uring cannot do without comes
/// to run epoll.
pub(crate) const SETTINGS: [Setting; 8] = [
    asked_for("io_uring", Kind::IoUring),
    asked_for("epoll", Kind::Epoll),
    asked_for("epoll-milliseconds", Kind::EpollMilliseconds),
    asked_for("kqueue", Kind::Kqueue),
    Setting {
        name: "io_uring-refused",
        runs: Kind::Epoll,
        variable: None,
        refused: Some(Refusal { call: libc::SYS_io_uring_setup, second: None, errno: libc::EPERM }),
    },
    // IORING_REGISTER_RING_FDS, Linux 5.18: each call names the ring by its descriptor.
    uring_without("io_uring-without-ring-numbers", 20),
    // IORING_REGISTER_SYNC_CANCEL, Linux 6.0: used when a ring is dropped.
    uring_without("io_uring-without-sync-cancel", 24),
    // IORING_REGISTER_PBUF_RING, Linux 5.19.
    Setting {
        name: "io_uring-without-buffer-rings",
        runs: Kind::Epoll,
        variable: None,
        refused: Some(Refusal {
            call: libc::SYS_io_uring_register,
            second: Some(22),
            errno: libc::EINVAL,
        }),
    },
];

impl Setting {
    /// This program, to be run in these surroundings.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env_remove("ROTOR_BACKEND").env_remove("ROTOR_REQUIRE");
        if let Some(kind) = self.variable {
            command.env("ROTOR_BACKEND", kind);
        }
        let refused = self.refused.as_ref().map(|it| (it.call, it.second, it.errno));
        let before = move || {
            // A child must not outlive whoever watches it.
            // SAFETY: no memory is passed.
            if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
                return Err(io::Error::last_os_error());
            }
            match refused {
                Some((call, second, errno)) => seccomp::refuse(call, second, errno),
                None => Ok(()),
            }
        };
        // SAFETY: what runs there makes a few system calls and allocates nothing.
        unsafe { command.pre_exec(before) };
        Ok(command)
    }
}
