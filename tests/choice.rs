//! Which backend a process runs, and what it says of it: free, by hand, and where the kernel refuses.
#![cfg(target_os = "linux")]

#[path = "support/seccomp.rs"]
mod seccomp;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rotor::backend::scripted::scripted;
use rotor::backend::{Kind, Reason, prefer};
use rotor::runtime::{Builder, CreateError, Runtime};

fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

/// Whether it went well, and its first line: of its output if it did, of its error if not.
fn first_line(
    variable: Option<&str>,
    before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> (bool, String) {
    let (well, told) = told(variable, before);
    (well, told.lines().next().unwrap_or_default().to_owned())
}

fn told(
    variable: Option<&str>,
    before: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> (bool, String) {
    let mut command = Command::new(example("which_backend"));
    command.env_remove("ROTOR_BACKEND").envs(variable.map(|kind| ("ROTOR_BACKEND", kind)));
    // SAFETY: what runs there makes a few system calls and allocates nothing.
    unsafe { command.pre_exec(before) };
    let output = command.output().unwrap();
    let told = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

#[track_caller]
fn assert_runs(variable: Option<&str>, words: &str) {
    assert_eq!(first_line(variable, || Ok(())), (true, words.to_owned()));
}

fn refuse_setup(errno: i32) -> impl Fn() -> io::Result<()> + Send + Sync {
    move || seccomp::refuse(libc::SYS_io_uring_setup, None, errno)
}

#[test]
fn free_or_by_hand_the_first_line_says_which_and_why() {
    assert_runs(None, "io_uring: the kernel has all it needs");
    assert_runs(Some(""), "io_uring: the kernel has all it needs");
    assert_runs(Some("io_uring"), "io_uring: asked for by ROTOR_BACKEND");
    assert_runs(Some("epoll"), "epoll: asked for by ROTOR_BACKEND");
    assert_runs(Some("epoll-milliseconds"), "epoll-milliseconds: asked for by ROTOR_BACKEND");
    let (well, line) = first_line(Some("kqueue"), || Ok(()));
    assert!(!well && line.contains("this system has no kqueue"), "{line}");
    let (well, line) = first_line(Some("select"), || Ok(()));
    assert!(!well && line.contains("ROTOR_BACKEND") && line.contains("select"), "{line}");
}

#[test]
fn where_io_uring_is_refused_epoll_runs_and_says_by_what() {
    for (errno, name) in [(libc::EPERM, "EPERM"), (libc::ENOSYS, "ENOSYS")] {
        let (well, line) = first_line(None, refuse_setup(errno));
        let words = format!("epoll: io_uring_setup refused with {name}");
        assert!(well && line.starts_with(&words), "{line}");
    }
    let (_, line) = first_line(None, refuse_setup(libc::EPERM));
    assert!(line.ends_with("(seccomp or kernel.io_uring_disabled)"), "{line}");
}

#[test]
fn what_could_not_be_asked_is_not_called_lacking() {
    let has_line = |told: &str, start: &str| told.lines().any(|line| line.starts_with(start));
    let (_, free) = told(None, || Ok(()));
    for name in ["IORING_SETUP_DEFER_TASKRUN", "IORING_REGISTER_PBUF_RING", "IORING_OP_ACCEPT"] {
        assert!(has_line(&free, &format!("kernel has: {name}")), "{free}");
        let (_, refused) = told(None, refuse_setup(libc::EPERM));
        assert!(has_line(&refused, &format!("kernel not asked: {name}")), "{refused}");
    }
    let (_, old) = told(None, refuse_setup(libc::EINVAL));
    assert!(has_line(&old, "kernel lacks: IORING_SETUP_DEFER_TASKRUN"), "{old}");
    assert!(has_line(&old, "kernel not asked: IORING_OP_ACCEPT"), "{old}");
    let without_rings = || seccomp::refuse(libc::SYS_io_uring_register, Some(22), libc::EINVAL);
    let (_, lacking) = told(None, without_rings);
    assert!(has_line(&lacking, "kernel lacks: IORING_REGISTER_PBUF_RING"), "{lacking}");
    let without_waits = || seccomp::refuse(libc::SYS_epoll_pwait2, None, libc::ENOSYS);
    let (well, coarse) = told(Some("epoll"), without_waits);
    assert!(well && has_line(&coarse, "kernel lacks: epoll_pwait2"), "{coarse}");
}

#[test]
fn a_kernel_that_lacks_a_part_is_one_that_refuses() {
    // IORING_REGISTER_PBUF_RING, Linux 5.19; io_uring_enter as a filter may have it.
    let without_rings = || seccomp::refuse(libc::SYS_io_uring_register, Some(22), libc::EINVAL);
    let (well, line) = first_line(None, without_rings);
    assert!(well && line.starts_with("epoll: ") && line.contains("PBUF_RING"), "{line}");
    let without_enter = || seccomp::refuse(libc::SYS_io_uring_enter, None, libc::EPERM);
    let (well, line) = first_line(None, without_enter);
    assert!(well && line.starts_with("epoll: io_uring_enter was refused"), "{line}");
}

#[test]
fn what_was_asked_for_by_hand_and_refused_is_an_error_and_no_other_backend() {
    let (well, line) = first_line(Some("io_uring"), refuse_setup(libc::EPERM));
    assert!(!well && line.contains("io_uring_setup refused with EPERM"), "{line}");
}

/// No descriptor is left for a ring: that may pass, so it decides nothing.
#[test]
fn a_shortage_is_an_error_and_no_refusal() {
    let (well, line) = first_line(None, refuse_setup(libc::EMFILE));
    assert!(!well && line.contains("RLIMIT_NOFILE"), "{line}");
    // Of the rings, and of the buffers' ring. Whoever is exempt from the limit is not sent to it.
    let without_rings = || seccomp::refuse(libc::SYS_io_uring_register, Some(22), libc::ENOMEM);
    for (well, line) in
        [first_line(None, refuse_setup(libc::ENOMEM)), first_line(None, without_rings)]
    {
        for words in ["locked memory", "ring_entries", "ROTOR_BACKEND=epoll"] {
            assert!(!well && line.contains(words), "{line}");
        }
        assert_ne!(line.contains("RLIMIT_MEMLOCK"), line.contains("no limit holds"), "{line}");
    }
}

/// Root is exempt from the limit, so the program runs as nobody. The first limit is below what the
/// queues take, the second one is enough for them, and below what they and the buffers' ring take.
#[test]
fn a_memory_lock_limit_below_the_rings_is_a_refusal() {
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can become nobody");
        return;
    }
    let copied = std::env::temp_dir().join(format!("rotor-which-backend-{}", std::process::id()));
    // By another process: a copy made here is open for writing meanwhile, and a child that another
    // test begins then keeps it open, which exec refuses (ETXTBSY).
    let made = Command::new("cp").arg(example("which_backend")).arg(&copied).status().unwrap();
    assert!(made.success());
    let lines = [0, 147_456].map(|limit| first_line_of_nobody(&copied, limit));
    let _ = std::fs::remove_file(&copied);
    for (limit, line) in [0, 147_456].into_iter().zip(lines) {
        if line.starts_with("io_uring") {
            println!("skipped: this kernel does not count all rings against the limit");
            continue;
        }
        let words = format!("epoll: the memory-lock limit of {limit} bytes is below the 155648 ");
        let queues = format!("epoll: the memory-lock limit of {limit} bytes is below the 139264 ");
        assert!(line.starts_with(if limit == 0 { &queues } else { &words }), "{line}");
    }
}

fn first_line_of_nobody(program: &Path, limit: u64) -> String {
    const NOBODY: u32 = 65_534;
    let mut command = Command::new(program);
    command.env_remove("ROTOR_BACKEND").current_dir("/");
    let limit_and_leave = move || {
        let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: the kernel reads the structure; two system calls.
        unsafe {
            if libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) != 0
                || libc::setuid(NOBODY) != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(limit_and_leave) };
    let told = String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned();
    told.lines().next().unwrap_or_default().to_owned()
}

/// Two hours pass in it, of its own time.
#[test]
fn a_program_s_own_backend_carries_tcp_and_timers() {
    let output = Command::new(example("custom_backend")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "backend: memory\n10.0.0.1:40001 has come\na network came back\nof memory came back\n\
         another connection: Some(ConnectionRefused)\na thread has woken it\n"
    );
}

/// In one test, since a process chooses once.
#[test]
fn a_process_keeps_its_choice_for_life() {
    if std::env::var_os("ROTOR_BACKEND").is_some() {
        println!("skipped: ROTOR_BACKEND chooses");
        return;
    }
    // Asking decides nothing, neither beforehand nor in a runtime of the program's own backend.
    let would = rotor::backend().unwrap();
    assert_eq!((would.kind, would.reason), (Kind::IoUring, Reason::Best));
    let report = rotor::doctor().to_string();
    assert!(report.starts_with("backend: would run io_uring: "), "{report}");
    let own = Builder::new().build_with_backend(Box::new(scripted().0));
    let report = own.unwrap().block_on(async { rotor::doctor() }).to_string();
    assert!(report.starts_with("backend: the program's own: scripted"), "{report}");

    prefer(Kind::Kqueue).unwrap();
    let refused = Runtime::new().expect_err("Linux has none");
    assert!(matches!(refused, CreateError::Backend { .. }), "{refused}");
    prefer(Kind::Epoll).unwrap();
    let first = Runtime::new().unwrap();
    assert_eq!(first.backend(), "epoll");
    let chosen = rotor::backend().unwrap();
    assert_eq!((chosen.kind, &chosen.reason), (Kind::Epoll, &Reason::Preferred));
    assert_eq!(chosen.to_string(), "epoll: asked for by the program");
    prefer(Kind::Epoll).unwrap();
    let late = prefer(Kind::IoUring).unwrap_err();
    assert_eq!(late.chosen(), &chosen);
    assert!(late.to_string().contains("epoll: asked for by the program"), "{late}");
    let others: Vec<_> =
        (0..4).map(|_| std::thread::spawn(|| Runtime::new().unwrap().backend())).collect();
    assert!(others.into_iter().all(|other| other.join().unwrap() == "epoll"));
}
