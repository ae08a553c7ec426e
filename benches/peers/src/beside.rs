//! The crowd rows: rotor's echo alone and beside streams that stand still, in paired rounds.
//!
//! Half of the crowd floods streams nobody reads, until TCP holds it back; of the other half each has
//! one byte that the server holds a lease on. None of it may cost the echo its rate.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Error;
use crate::cells::Cell;
use crate::child::ServerProcess;
use crate::echo::{self, Contestant};
use crate::machine;
use crate::options::Plan;
use crate::results::{BesideRun, Crowd, Results, Section};
use crate::servers::{Job, Server};

/// What a flooding peer keeps in its own kernel: enough to be held back, and little enough that a
/// thousand of them do not make the kernel short of memory.
const SEND_BUFFER_BYTES: usize = 65_536;
/// A peer writes so much at a time.
static PIECE: [u8; 65_536] = [7; 65_536];
/// What comes first is more than a buffer of the server's, and less than the kernel takes at once.
const FIRST_BYTES: usize = 32_768;
/// All peers were held back for so long: the flood stands.
const SETTLE: Duration = Duration::from_millis(500);
/// The kernel makes a little room by itself when it packs what lies in its queue. One whose peer reads
/// has room for more than this: both sockets' buffers.
const LATE_BYTES_MAX: usize = 65_536;
/// A flood that is not held back by then never will be.
const FLOOD_MAX: Duration = Duration::from_secs(20);

pub(crate) fn run(plan: &Plan) -> Result<(), Error> {
    let connections = plan.cells_beside.iter().map(|cell| cell.connections).max().unwrap_or(0);
    machine::raise_descriptors(2 * (plan.crowd + connections) + 64)?;
    machine::pin(machine::Cores::chosen()?.client)?;
    let mut results = Results::load(&plan.results)?;
    let mut section = Section::new(plan.quick, Some(plan.measured.as_secs_f64()));
    for round in 0..plan.rounds {
        let servers = plan.servers.iter().filter(|server| server.has_crowd());
        for (&server, cell) in
            servers.flat_map(|server| plan.cells_beside.iter().map(move |cell| (server, cell)))
        {
            let runs = measure(plan, server, cell, round)
                .map_err(|error| format!("{} beside a crowd, at {cell}: {error}", server.name()))?;
            for run in runs {
                let beside = run.crowd.as_ref().map_or(0, |crowd| crowd.floods + crowd.leases);
                print!("beside {beside:>5} streams  ");
                echo::say(&run.echo);
                section.runs.push(run);
            }
        }
        results.beside = Some(section);
        results.store(&plan.results)?;
        section = results.beside.take().ok_or("the section was put there above")?;
    }
    Ok(())
}

/// The same server twice, one of them with a crowd.
fn measure(plan: &Plan, server: Server, cell: &Cell, round: u32) -> Result<[BesideRun; 2], Error> {
    let start = || ServerProcess::start(server, Job::Beside { crowd: plan.crowd });
    let (alone, mut crowded) = (start()?, start()?);
    let (floods, leases) = (crowded.address("floods on ")?, crowded.address("leases on ")?);
    let memory_bytes = crowded.line("memory ")?.parse()?;
    let before_bytes = crowded.resident_bytes()?;
    let gathered = Gathered::come(&mut crowded, floods, leases, plan.crowd);
    // A server that ended explains a crowd that did not come.
    crowded.check_alive()?;
    let mut gathered = gathered?;
    let mut contestants = [Contestant::meet(alone, *cell)?, Contestant::meet(crowded, *cell)?];
    echo::alternate(plan, &mut contestants)?;
    gathered.check()?;
    let [alone, crowded] = contestants;
    let crowd = Crowd {
        floods: gathered.floods.len(),
        leases: gathered.leases.len(),
        flooded_bytes: gathered.flooded_bytes,
        before_bytes,
        after_bytes: crowded.process().resident_bytes()?,
        memory_bytes,
    };
    let crowded = BesideRun { crowd: Some(crowd), echo: crowded.run(round) };
    Ok([BesideRun { crowd: None, echo: alone.run(round) }, crowded])
}

/// The peers of a crowd.
#[derive(Debug)]
struct Gathered {
    floods: Vec<TcpStream>,
    leases: Vec<TcpStream>,
    flooded_bytes: u64,
}

impl Gathered {
    fn come(
        process: &mut ServerProcess,
        floods: SocketAddr,
        leases: SocketAddr,
        each: usize,
    ) -> Result<Gathered, Error> {
        let mut gathered = Gathered { floods: Vec::new(), leases: Vec::new(), flooded_bytes: 0 };
        for _ in 0..each {
            let mut peer = connect(floods)?;
            rustix::net::sockopt::set_socket_send_buffer_size(&peer, SEND_BUFFER_BYTES)?;
            peer.write_all(&PIECE[..FIRST_BYTES])?;
            peer.set_nonblocking(true)?;
            gathered.floods.push(peer);
        }
        for number in 0..each {
            let mut peer = connect(leases)?;
            peer.write_all(&[number as u8])?;
            peer.set_nonblocking(true)?;
            gathered.leases.push(peer);
        }
        process.line("standing ")?;
        gathered.flood()?;
        Ok(gathered)
    }

    /// Writes on every flooding connection until none takes more.
    fn flood(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let mut held_back_since = begun;
        while held_back_since.elapsed() < SETTLE {
            if begun.elapsed() > FLOOD_MAX {
                return Err("somebody reads what nobody should: the flood is not held back".into());
            }
            let written = self.write_more()?;
            self.flooded_bytes += written;
            if written > 0 {
                held_back_since = Instant::now();
            } else {
                sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    fn write_more(&mut self) -> Result<u64, Error> {
        let mut written = 0;
        for peer in &mut self.floods {
            loop {
                match peer.write(&PIECE) {
                    Ok(count) => written += count as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(format!("a flood was cut off: {error}").into()),
                }
            }
        }
        Ok(written)
    }

    /// They stood all the time: none was read from, answered or cut off.
    fn check(&mut self) -> Result<(), Error> {
        let late_bytes = self.write_more()?;
        if late_bytes > (self.floods.len() * LATE_BYTES_MAX) as u64 {
            return Err(format!("{late_bytes} bytes of the flood were read meanwhile").into());
        }
        self.flooded_bytes += late_bytes;
        for peer in self.leases.iter_mut().chain(&mut self.floods) {
            match peer.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return Err(format!("one of the crowd was told {other:?}").into()),
            }
        }
        Ok(())
    }
}

fn connect(server: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(server)?;
    // Closing resets: thousands of connections in TIME_WAIT would slow the runs that follow.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(stream)
}

impl Crowd {
    /// What the server's resident memory grew by.
    pub(crate) fn grown_bytes(&self) -> u64 {
        self.after_bytes.saturating_sub(self.before_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// One peer of each kind, and the other ends, which nobody reads.
    fn gathered() -> (Gathered, [TcpStream; 2]) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let pair = || {
            let near = connect(listener.local_addr().expect("bound")).expect("a connection");
            near.set_nonblocking(true).expect("a mode");
            (near, listener.accept().expect("a connection").0)
        };
        let ((flood, unread), (lease, lent)) = (pair(), pair());
        let mut gathered = Gathered { floods: vec![flood], leases: vec![lease], flooded_bytes: 0 };
        gathered.flood().expect("it is held back");
        (gathered, [unread, lent])
    }

    #[test]
    fn a_crowd_that_stands_still_is_fine() {
        let (mut gathered, _others) = gathered();
        assert!(gathered.flooded_bytes > LATE_BYTES_MAX as u64);
        gathered.check().expect("nobody read and nobody was told anything");
    }

    #[test]
    fn a_flood_that_is_read_is_noticed() {
        let (mut gathered, [mut unread, _lent]) = gathered();
        let mut rest = vec![0; gathered.flooded_bytes as usize];
        unread.read_exact(&mut rest).expect("what was flooded");
        assert!(gathered.check().is_err());
    }

    #[test]
    fn one_that_is_answered_or_cut_off_is_noticed() {
        let (mut gathered_here, [_unread, mut lent]) = gathered();
        lent.write_all(b"x").expect("an answer");
        sleep(Duration::from_millis(20));
        assert!(gathered_here.check().is_err());
        let (mut cut, [unread, _lent]) = gathered();
        drop(unread);
        sleep(Duration::from_millis(20));
        assert!(cut.check().is_err());
    }
}
