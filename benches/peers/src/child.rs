//! A server as a child process: started, watched from outside, ended with its handle.
#![allow(unsafe_code, reason = "the CPU clock of another process is not in rustix")]

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::machine::{self, Cores};
use crate::servers::{Job, Server};

#[derive(Debug)]
pub(crate) struct ServerProcess {
    pub(crate) server: Server,
    process: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts this program again as that server, and waits until it listens.
    pub(crate) fn start(server: Server, job: Job) -> io::Result<ServerProcess> {
        ServerProcess::start_from(&std::env::current_exe()?, server, job)
    }

    /// Starts another build of this program as its rotor.
    pub(crate) fn start_baseline(program: &Path, job: Job) -> io::Result<ServerProcess> {
        let mut process = ServerProcess::start_from(program, Server::Rotor, job)?;
        process.server = Server::Baseline;
        Ok(process)
    }

    fn start_from(program: &Path, server: Server, job: Job) -> io::Result<ServerProcess> {
        let mut process = Command::new(program)
            .args(["serve", "--core", &Cores::chosen()?.server.to_string(), server.name()])
            .args(job.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let lines = BufReader::new(stdout);
        let mut child = ServerProcess { server, process, lines, address };
        child.address = child.address("listening on ")?;
        Ok(child)
    }

    /// Waits for the server's next line, of an address and what stands before it.
    pub(crate) fn address(&mut self, start: &str) -> io::Result<SocketAddr> {
        self.line(start)?.parse().map_err(io::Error::other)
    }

    /// Waits for the server's next line and returns what follows `start`.
    pub(crate) fn line(&mut self, start: &str) -> io::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        match line.trim_end().strip_prefix(start) {
            Some(rest) => Ok(rest.to_string()),
            None => Err(io::Error::other(format!("{} said {line:?}", self.server.name()))),
        }
    }

    /// Nanoseconds of CPU the server has used, in all its threads (io_uring's workers too).
    ///
    /// The process's clock, not /proc/PID/schedstat: that is brought up to date only at a context
    /// switch or a timer tick, and a busy server has few of either.
    pub(crate) fn cpu_ns(&self) -> io::Result<u64> {
        let mut clock = 0;
        // SAFETY: the call writes one clock id through the pointer, which is valid.
        let error = unsafe { libc::clock_getcpuclockid(self.process.id() as i32, &mut clock) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes one timespec through the pointer, which is valid.
        if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Nanoseconds the server was ready to run and another ran on its core: the second field of
    /// /proc/PID/schedstat. On a quiet machine next to none.
    pub(crate) fn waited_ns(&self) -> io::Result<u64> {
        self.field("schedstat", 1)
    }

    /// Bytes of the server's memory that are resident: pages of /proc/PID/statm, second field.
    pub(crate) fn resident_bytes(&self) -> io::Result<u64> {
        Ok(self.field("statm", 1)? * rustix::param::page_size() as u64)
    }

    fn field(&self, file: &str, index: usize) -> io::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.process.id()))?;
        let field = text.split_ascii_whitespace().nth(index).and_then(|field| field.parse().ok());
        field.ok_or_else(|| io::Error::other(format!("/proc/PID/{file} says {text:?}")))
    }

    /// Fails when the server has ended: it serves until it is killed.
    pub(crate) fn check_alive(&mut self) -> io::Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => {
                Err(io::Error::other(format!("{} ended: {status}", self.server.name())))
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only when the server has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the child: keep to that core, and do not outlive the harness, whatever ends it.
pub(crate) fn begin(core: usize) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    machine::pin(core)
}
