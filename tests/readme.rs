//! The README's errors, as they are printed.

#[cfg(target_os = "linux")]
#[path = "support/seccomp.rs"]
mod seccomp;

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

/// What is printed where io_uring is refused, as in a container with Docker's default profile.
#[cfg(target_os = "linux")]
#[test]
fn the_line_of_a_refused_io_uring_is_in_the_readme() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|folder| folder.parent()).unwrap().join("examples");
    let mut command = Command::new(folder.join("which_backend"));
    command.env_remove("ROTOR_BACKEND").stdout(Stdio::piped());
    // SAFETY: it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(|| seccomp::refuse(libc::SYS_io_uring_setup, None, libc::EPERM)) };
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_in_readme(text.lines().next().unwrap_or_default());
}
