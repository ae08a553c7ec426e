//! The README's errors, as they are printed.

use std::io;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};

const README: &str = include_str!("../README.md");

/// A row of the README's table of errors begins with this text.
#[track_caller]
fn assert_in_readme(text: &str) {
    // A code span that holds backticks is written with its own doubled.
    let cell = format!("| `{}` |", text.replace('`', "``"));
    assert!(README.contains(&cell), "not in the README as it is printed: {text}");
}

fn panic_text(work: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).expect_err("it panics");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => payload.downcast::<&str>().expect("a text").to_string(),
    }
}

#[test]
fn the_error_of_a_full_task_table_is_in_the_readme() {
    let runtime = rotor::runtime::Runtime::new().unwrap();
    let refused = runtime.block_on(async {
        loop {
            if let Err(error) = rotor::task::try_spawn(std::future::pending::<()>()) {
                return error;
            }
        }
    });
    assert_in_readme(&refused.to_string());
}

#[test]
fn the_error_of_a_spawn_without_a_runtime_is_in_the_readme() {
    let text = panic_text(|| drop(rotor::spawn(async {})));
    assert_in_readme(&text);
}

/// Makes io_uring_setup fail with EPERM in this process and its children, as Docker's profile does.
#[cfg(target_os = "linux")]
fn refuse_io_uring() -> io::Result<()> {
    let number = libc::SYS_io_uring_setup as u32;
    let (load, equals, answer) = (
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        (libc::BPF_RET | libc::BPF_K) as u16,
    );
    let mut filter = [
        libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 },
        libc::sock_filter { code: equals, jt: 0, jf: 1, k: number },
        libc::sock_filter {
            code: answer,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        },
        libc::sock_filter { code: answer, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program =
        libc::sock_fprog { len: filter.len() as libc::c_ushort, filter: filter.as_mut_ptr() };
    // SAFETY: prctl(2) reads the program during the call; both calls are allowed between fork and
    // exec, where they allocate nothing.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn the_error_of_a_refused_io_uring_is_in_the_readme() {
    let test = std::env::current_exe().unwrap();
    let echo = test.parent().and_then(|folder| folder.parent()).unwrap().join("examples/echo");
    let mut command = Command::new(echo);
    command.arg("127.0.0.1:0").stdout(Stdio::null()).env_remove("RUST_BACKTRACE");
    // SAFETY: `refuse_io_uring` makes two system calls and allocates nothing.
    unsafe { command.pre_exec(refuse_io_uring) };
    let output = command.stderr(Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.starts_with("rotor:"));
    assert_in_readme(line.unwrap_or_else(|| panic!("no line of rotor's: {text}")));
}
