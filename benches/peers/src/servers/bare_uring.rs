//! A bare io_uring loop: one receive a connection in flight, into a buffer of the connection's own;
//! replies by a direct send at once. The best of the bare loops that were measured, hence the floor.
#![allow(unsafe_code, reason = "entries of the ring hold pointers")]

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::{BUFFER_BYTES, Sent, listen, send_pieces};

const LISTENER: u64 = u64::MAX;
const RING_ENTRIES: u32 = 1024;

struct Connection {
    socket: OwnedFd,
    /// Taken apart from its owner: the kernel writes to it while a receive is in flight. Never freed,
    /// the process is killed in the end.
    buffer: *mut [u8; BUFFER_BYTES],
    /// What was received and not sent yet.
    unsent: std::ops::Range<usize>,
}

struct Server {
    ring: IoUring,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    piece: usize,
}

pub(super) fn serve(piece: usize) -> io::Result<()> {
    let listener = listen()?;
    let mut server = Server { ring: ring()?, listener, connections: Vec::new(), piece };
    server.arm_accept()?;
    let mut completions = Vec::new();
    loop {
        match server.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        completions.extend(server.ring.completion());
        for completion in completions.drain(..) {
            match completion.user_data() {
                LISTENER => server.accepted(&completion)?,
                index => server.completed(index as usize, completion.result())?,
            }
        }
    }
}

/// The ring of every bare loop.
pub(super) fn ring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_cqsize(4 * RING_ENTRIES)
        .build(RING_ENTRIES)
}

/// What an accept brought.
pub(super) fn connection_of(accept: &cqueue::Entry) -> io::Result<OwnedFd> {
    if accept.result() < 0 {
        return Err(io::Error::from_raw_os_error(-accept.result()));
    }
    // SAFETY: the completion of an accept gives a new descriptor that nobody else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(accept.result()) };
    rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

impl Server {
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: descriptors and buffers outlive the operation: a connection is given up only
            // when none of its operations is in flight, and its buffer is never freed.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn arm_accept(&mut self) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(types::Fd(self.listener.as_raw_fd()));
        self.push(&entry.build().user_data(LISTENER))
    }

    fn accepted(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let socket = connection_of(completion)?;
        let buffer = Box::into_raw(Box::new([0; BUFFER_BYTES]));
        self.connections.push(Some(Connection { socket, buffer, unsent: 0..0 }));
        self.arm_receive(self.connections.len() - 1)?;
        if !cqueue::more(completion.flags()) {
            self.arm_accept()?;
        }
        Ok(())
    }

    fn arm_receive(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &self.connections[index] else { return Ok(()) };
        let fd = types::Fd(connection.socket.as_raw_fd());
        let entry = opcode::Recv::new(fd, connection.buffer.cast(), BUFFER_BYTES as u32);
        self.push(&entry.build().user_data(index as u64))
    }

    /// A receive has ended, or, while something is unsent, a wait for room.
    fn completed(&mut self, index: usize, result: i32) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        if result <= 0 {
            // The client is done, or resets at the end.
            self.connections[index] = None;
            return Ok(());
        }
        if connection.unsent.is_empty() {
            connection.unsent = 0..result as usize;
        }
        // SAFETY: no receive of this connection is in flight: its only operation has just ended.
        let buffer = unsafe { &*connection.buffer };
        let Ok(sent) =
            send_pieces(&connection.socket, &buffer[connection.unsent.clone()], self.piece)
        else {
            self.connections[index] = None;
            return Ok(());
        };
        match sent {
            Sent::All => {
                connection.unsent = 0..0;
                self.arm_receive(index)
            }
            Sent::Full(count) => {
                connection.unsent.start += count;
                let fd = types::Fd(connection.socket.as_raw_fd());
                let entry = opcode::PollAdd::new(fd, libc::POLLOUT as u32);
                self.push(&entry.build().user_data(index as u64))
            }
        }
    }
}
