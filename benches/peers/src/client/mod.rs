//! The load client: one thread on a core of its own that never sleeps, so that it costs the server
//! nothing but the bytes. Its ring takes sends in batches and looks for answers in user memory; a
//! server sends and receives by a system call each, so the client has time left, and says how much.
#![allow(unsafe_code, reason = "entries of the ring hold pointers")]

mod connection;
mod pattern;
#[cfg(test)]
mod tests;

use std::hint;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::AddAssign;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use self::connection::Connection;
use self::pattern::Pattern;
use crate::cells::Cell;

/// A server that answers nobody for so long is stuck.
const STALL_MAX: Duration = Duration::from_secs(5);
/// Until all have had an answer, the time between two looks whether they have.
const ANSWERED_LOOK: Duration = Duration::from_millis(1);
/// Looks at the ring between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 1024;
const RING_ENTRIES: u32 = 2048;
/// Marks the completion of a send; the rest is the connection's index. Only failures complete.
const SEND: u64 = 1 << 63;

/// What the server has used so far, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerUse {
    pub(crate) cpu_ns: u64,
    /// Ready to run, while another ran on its core.
    pub(crate) waited_ns: u64,
}

/// What a measured time came to.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) echoes: u64,
    pub(crate) seconds: f64,
    pub(crate) idle_seconds: f64,
    pub(crate) server: ServerUse,
    /// Seconds of CPU the client had. It never sleeps: what is missing, another program took.
    pub(crate) cpu_seconds: f64,
    pub(crate) latency_ns: Histogram<u64>,
}

impl Measured {
    pub(crate) fn nothing() -> Measured {
        Measured {
            echoes: 0,
            seconds: 0.0,
            idle_seconds: 0.0,
            server: ServerUse { cpu_ns: 0, waited_ns: 0 },
            cpu_seconds: 0.0,
            latency_ns: histogram(),
        }
    }
}

impl AddAssign for Measured {
    fn add_assign(&mut self, more: Measured) {
        self.echoes += more.echoes;
        self.seconds += more.seconds;
        self.idle_seconds += more.idle_seconds;
        self.server.cpu_ns += more.server.cpu_ns;
        self.server.waited_ns += more.server.waited_ns;
        self.cpu_seconds += more.cpu_seconds;
        self.latency_ns += more.latency_ns;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Nothing more is sent; what is in flight comes back and is checked.
    Ending,
}

#[allow(missing_debug_implementations, reason = "a ring has none")]
pub(crate) struct Client {
    ring: IoUring,
    cell: Cell,
    pattern: Pattern,
    connections: Vec<Connection>,
    /// A receive buffer a connection. The kernel writes to it while a receive is in flight.
    buffers: Box<[u8]>,
    receives_in_flight: usize,
    /// Connections that have had an answer.
    answered: usize,
    phase: Phase,
    begun: Instant,
    now_ns: u64,
    /// When something came last.
    progress_ns: u64,
    idle_ns: u64,
    echoes: u64,
    latency_ns: Histogram<u64>,
}

impl Client {
    pub(crate) fn connect(server: SocketAddr, cell: Cell) -> io::Result<Client> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(4 * RING_ENTRIES)
            .build(RING_ENTRIES)?;
        let mut connections = Vec::with_capacity(cell.connections);
        for _ in 0..cell.connections {
            connections.push(Connection::new(connect(server, &cell)?));
        }
        // The kernel need not look a descriptor up for each operation: a little less work than the
        // server has.
        let descriptors: Vec<_> =
            connections.iter().map(|connection| connection.stream.as_raw_fd()).collect();
        ring.submitter().register_files(&descriptors)?;
        Ok(Client {
            ring,
            cell,
            pattern: Pattern::new(),
            connections,
            buffers: vec![0; cell.connections * cell.bytes_in_flight()].into(),
            receives_in_flight: 0,
            answered: 0,
            phase: Phase::Running,
            begun: Instant::now(),
            now_ns: 0,
            progress_ns: 0,
            idle_ns: 0,
            echoes: 0,
            latency_ns: histogram(),
        })
    }

    /// Warms up, measures, and waits for what is still in flight, so that the server then has nothing to
    /// do until the next call. Every byte that comes is compared with what was sent; `server_use` is
    /// asked at both ends of the measured time.
    pub(crate) fn run(
        &mut self,
        warm_up: Duration,
        measured: Duration,
        server_use: impl Fn() -> io::Result<ServerUse>,
    ) -> io::Result<Measured> {
        self.phase = Phase::Running;
        self.progress_ns = self.clock();
        for index in 0..self.connections.len() {
            self.send(index)?;
            self.arm_receive(index)?;
        }
        // A server that is held up accepts late: nobody is measured before all are served.
        while self.answered < self.connections.len() {
            self.run_until(Duration::from_nanos(self.now_ns) + ANSWERED_LOOK)?;
        }
        self.run_until(Duration::from_nanos(self.now_ns) + warm_up)?;
        (self.echoes, self.idle_ns) = (0, 0);
        self.latency_ns.reset();
        let (started_ns, started, cpu_started) = (self.clock(), server_use()?, own_cpu_seconds());
        self.run_until(Duration::from_nanos(started_ns) + measured)?;
        let (ended_ns, ended, cpu_ended) = (self.clock(), server_use()?, own_cpu_seconds());
        let result = Measured {
            echoes: self.echoes,
            seconds: (ended_ns - started_ns) as f64 / 1e9,
            idle_seconds: self.idle_ns as f64 / 1e9,
            server: ServerUse {
                cpu_ns: ended.cpu_ns - started.cpu_ns,
                waited_ns: ended.waited_ns - started.waited_ns,
            },
            cpu_seconds: cpu_ended - cpu_started,
            latency_ns: self.latency_ns.clone(),
        };
        self.phase = Phase::Ending;
        self.run_until(Duration::MAX)?;
        Ok(result)
    }

    fn clock(&mut self) -> u64 {
        self.now_ns = self.begun.elapsed().as_nanos() as u64;
        self.now_ns
    }

    /// Serves completions until that time on the client's clock, or until nothing is in flight.
    fn run_until(&mut self, end: Duration) -> io::Result<()> {
        let end_ns = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX);
        let mut completions = Vec::with_capacity(self.connections.len());
        while self.receives_in_flight > 0 && self.now_ns < end_ns {
            self.enter()?;
            completions.extend(self.ring.completion());
            if completions.is_empty() {
                self.spin(end_ns)?;
                continue;
            }
            self.progress_ns = self.clock();
            for completion in completions.drain(..) {
                self.completed(&completion)?;
            }
        }
        Ok(())
    }

    /// Looks until something has come, and counts the time as idle.
    fn spin(&mut self, end_ns: u64) -> io::Result<()> {
        let since_ns = self.clock();
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.ring.submission().taskrun() || !self.ring.completion().is_empty() {
                    self.idle_ns += self.clock() - since_ns;
                    return Ok(());
                }
                hint::spin_loop();
            }
            if self.clock() >= end_ns {
                self.idle_ns += self.now_ns - since_ns;
                return Ok(());
            }
            if self.now_ns - self.progress_ns > STALL_MAX.as_nanos() as u64 {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "no answer for {STALL_MAX:?}, {} receives wait",
                        self.receives_in_flight
                    ),
                ));
            }
        }
    }

    /// Hands over what is queued and has the kernel post what is ready. Waits for nothing.
    fn enter(&mut self) -> io::Result<()> {
        let queued = {
            let mut queue = self.ring.submission();
            queue.sync();
            queue.len() as u32
        };
        const GET_EVENTS: u32 = 1;
        // SAFETY: no argument is passed; `push` answers for the entries that are handed over.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, GET_EVENTS, None) };
        match entered {
            Ok(_) => Ok(()),
            // A signal came, or completions must be taken first: the caller does, and comes again.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn completed(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let index = (completion.user_data() & !SEND) as usize;
        if completion.user_data() & SEND != 0 {
            let error = io::Error::from_raw_os_error(-completion.result());
            return Err(io::Error::new(
                error.kind(),
                format!("connection {index} cannot send: {error}"),
            ));
        }
        self.receives_in_flight -= 1;
        let messages = match completion.result() {
            0 => return Err(self.lost(index, "was closed by the server")),
            count @ 1.. => self.check(index, count as usize)?,
            error => {
                let error = io::Error::from_raw_os_error(-error);
                return Err(self.lost(index, &error.to_string()));
            }
        };
        self.echoes += messages;
        let all_came = self.connections[index].in_flight() == 0;
        match (all_came, &self.phase) {
            (true, Phase::Ending) => return Ok(()),
            (true, Phase::Running) => self.send(index)?,
            (false, _) => {}
        }
        self.arm_receive(index)
    }

    fn check(&mut self, index: usize, count: usize) -> io::Result<u64> {
        let size = self.cell.bytes_in_flight();
        let bytes = &self.buffers[index * size..][..count];
        let connection = &mut self.connections[index];
        self.answered += usize::from(connection.received == 0);
        let Some(messages) = connection.receive(index, &self.cell, &self.pattern, bytes) else {
            return Err(self.lost(index, "got other bytes back than it sent"));
        };
        let latency_ns = self.now_ns - connection.sent_at_ns;
        self.latency_ns.saturating_record_n(latency_ns, messages);
        Ok(messages)
    }

    fn lost(&self, index: usize, how: &str) -> io::Error {
        let Connection { sent, received, .. } = self.connections[index];
        io::Error::other(format!(
            "connection {index} {how}, after {received} of {sent} bytes had come back"
        ))
    }

    /// Queues the next messages of a connection, as many as it keeps in flight, once all before
    /// have come back: a window that refills piece by piece would settle into another rhythm with
    /// each server. The kernel retries a short send itself.
    fn send(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        let bytes = self.pattern.at(index, connection.sent, self.cell.bytes_in_flight());
        connection.send(bytes.len(), self.now_ns);
        let entry =
            opcode::Send::new(types::Fixed(index as u32), bytes.as_ptr(), bytes.len() as u32)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(SEND | index as u64);
        self.push(&entry)
    }

    /// The answer is not there yet: `poll first` saves looking for it.
    fn arm_receive(&mut self, index: usize) -> io::Result<()> {
        const POLL_FIRST: u16 = 1;
        let size = self.cell.bytes_in_flight();
        let buffer = self.buffers[index * size..][..size].as_mut_ptr();
        let entry = opcode::Recv::new(types::Fixed(index as u32), buffer, size as u32)
            .ioprio(POLL_FIRST)
            .build();
        self.receives_in_flight += 1;
        self.push(&entry.user_data(index as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the pattern is never written; a connection has one receive in flight, into its
            // own part of `buffers`, which is not looked at until that receive has ended; `drop`
            // keeps the memory when operations are in flight then.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter()?;
        }
    }
}

impl Drop for Client {
    /// After an error operations are in flight: what the kernel may still use is leaked. The
    /// program ends with the error.
    fn drop(&mut self) {
        if self.receives_in_flight > 0 {
            std::mem::forget(std::mem::take(&mut self.buffers));
            std::mem::forget(std::mem::replace(&mut self.pattern, Pattern::new()));
        }
    }
}

fn connect(server: SocketAddr, cell: &Cell) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    // Woken when all has come, not by each piece the server sends: that is work the client would
    // have more of than the server.
    set_low_water(&stream, cell.bytes_in_flight())?;
    // Closing resets: thousands of connections in TIME_WAIT would slow the runs that follow.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(stream)
}

/// Sets `SO_RCVLOWAT`, which rustix does not have.
fn set_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let value = bytes as libc::c_int;
    // SAFETY: the pointer is to an int that outlives the call, and the length is that of an int.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn own_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Three digits, up to ten seconds.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(10_000_000_000, 3).expect("the bounds are valid")
}
