//! The example `echo`, as its users run it: a process of its own.
//!
//! `cargo test` builds the examples. After a change, `cargo test --test echo` alone would run the
//! one that was built before: run `cargo build --examples` first.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream as Client};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use support::{
    Clients, MILLISECOND, PATIENCE, Random, assert_same, connect, pattern, reset,
    wait_until_delivered, watched,
};

/// The example, running.
struct Echo {
    process: Child,
    address: SocketAddr,
    /// Descriptors it has with no client.
    idle: usize,
    _output: BufReader<ChildStdout>,
}

impl Echo {
    fn start() -> Echo {
        let test = std::env::current_exe().unwrap();
        let path = test.ancestors().nth(2).unwrap().join("examples/echo");
        let mut process = Command::new(&path)
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; run `cargo build --examples` first", path.display())
            });
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on ");
        let address = address.unwrap_or_else(|| panic!("the first line is {line:?}"));
        let address = address.parse().unwrap();
        let mut echo = Echo { process, address, idle: 0, _output: output };
        // A first client, so that what is opened once is open.
        exchange(&mut connect(address), b"hello");
        thread::sleep(20 * MILLISECOND);
        echo.idle = echo.descriptors();
        echo
    }

    fn connect(&self) -> Client {
        connect(self.address)
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count()
    }

    /// It still serves, and has let go of everyone who left.
    fn check(mut self) {
        exchange(&mut self.connect(), b"still there?");
        let begun = Instant::now();
        while self.descriptors() > self.idle {
            let open = self.descriptors() - self.idle;
            assert!(begun.elapsed() < PATIENCE, "{open} descriptors too many stay open");
            thread::sleep(MILLISECOND);
        }
        assert!(self.process.try_wait().unwrap().is_none(), "it has ended");
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mut complaints = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            let _ = errors.read_to_string(&mut complaints);
        }
        print!("{complaints}");
        if !thread::panicking() {
            assert!(!complaints.contains("panicked"), "{complaints}");
        }
    }
}

/// Sends and reads the same back.
fn exchange(client: &mut Client, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    let mut received = vec![0; bytes.len()];
    client.read_exact(&mut received).unwrap();
    assert_same(&received, bytes);
}

/// Sends on one thread and reads on this one, after a pause.
fn exchange_beside(client: &Client, bytes: &'static [u8], late_ms: u32) {
    let mut writing = client.try_clone().unwrap();
    let writer = thread::spawn(move || writing.write_all(bytes).unwrap());
    thread::sleep(MILLISECOND * late_ms);
    let mut received = vec![0; bytes.len()];
    (&*client).read_exact(&mut received).unwrap();
    assert_same(&received, bytes);
    writer.join().unwrap();
}

#[test]
fn a_line_comes_back() {
    let _watched = watched();
    let echo = Echo::start();
    exchange(&mut echo.connect(), b"a line\n");
    echo.check();
}

#[test]
fn thirty_two_clients_at_once_each_get_their_own_bytes_back() {
    let _watched = watched();
    let echo = Echo::start();
    let (address, begin) = (echo.address, Arc::new(Barrier::new(32)));
    let clients = Clients::start(32, move |number| {
        let mut client = connect(address);
        let mut random = Random::new(number);
        begin.wait();
        for _ in 0..50 {
            exchange(&mut client, pattern(number, random.up_to(20_000)));
        }
    });
    clients.join_blocking();
    echo.check();
}

#[test]
fn messages_of_four_mebibytes_come_back() {
    let _watched = watched();
    let echo = Echo::start();
    let address = echo.address;
    let clients = Clients::start(2, move |number| {
        let client = connect(address);
        for _ in 0..2 {
            exchange_beside(&client, pattern(number, 4 << 20), 0);
        }
    });
    clients.join_blocking();
    echo.check();
}

#[test]
fn a_client_that_reads_late_gets_everything_and_holds_up_nobody() {
    let _watched = watched();
    let echo = Echo::start();
    let late = echo.connect();
    // More than the sockets hold: the server waits for room meanwhile.
    let late = thread::spawn(move || exchange_beside(&late, pattern(0, 14 << 20), 400));
    let mut exchanges = 0;
    while !late.is_finished() {
        exchange(&mut echo.connect(), b"a line\n");
        exchanges += 1;
        thread::sleep(MILLISECOND);
    }
    late.join().unwrap();
    assert!(exchanges >= 20, "only {exchanges} exchanges beside the late reader");
    echo.check();
}

#[test]
fn clients_that_hang_up_leave_nothing_behind() {
    let _watched = watched();
    let echo = Echo::start();
    for round in 0..32 {
        let mut client = echo.connect();
        match round % 4 {
            0 => drop(client),
            1 => reset(client),
            2 => {
                client.write_all(pattern(round, 300_000)).unwrap();
                drop(client);
            }
            _ => {
                client.write_all(pattern(round, 300_000)).unwrap();
                client.read_exact(&mut [0; 1_000]).unwrap();
                reset(client);
            }
        }
    }
    echo.check();
}

#[test]
fn a_client_that_hangs_up_while_the_server_waits_for_room_leaves_nothing_behind() {
    let _watched = watched();
    let echo = Echo::start();
    let client = echo.connect();
    client.set_write_timeout(Some(100 * MILLISECOND)).unwrap();
    while (&client).write(pattern(0, 1 << 20)).is_ok() {}
    reset(client);
    echo.check();
}

#[test]
fn a_client_that_closes_its_sending_side_gets_everything_back() {
    let _watched = watched();
    let echo = Echo::start();
    for length in [0, 1, 300_000] {
        let mut client = echo.connect();
        client.write_all(pattern(0, length)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        wait_until_delivered(&client);
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_same(&received, pattern(0, length));
    }
    echo.check();
}
