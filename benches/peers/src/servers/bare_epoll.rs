//! A bare epoll loop: level-triggered, one receive and its sends an event. The floor of every
//! runtime that asks for readiness.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{BUFFER_BYTES, Sent, listen, send_pieces};

const LISTENER: u64 = u64::MAX;

struct Connection {
    stream: TcpStream,
    buffer: Box<[u8; BUFFER_BYTES]>,
    /// What was received and not sent yet. While it is not empty the loop waits for room, not input.
    unsent: std::ops::Range<usize>,
}

struct Server {
    epoll: rustix::fd::OwnedFd,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    piece: usize,
}

pub(super) fn serve(piece: usize) -> io::Result<()> {
    let listener = listen()?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut server = Server { epoll, listener, connections: Vec::new(), piece };
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        epoll::wait(&server.epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            match event.data.u64() {
                LISTENER => server.accept()?,
                index => server.serve_one(index as usize)?,
            }
        }
    }
}

impl Server {
    fn accept(&mut self) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let data = EventData::new_u64(self.connections.len() as u64);
        epoll::add(&self.epoll, &stream, data, EventFlags::IN)?;
        let buffer = Box::new([0; BUFFER_BYTES]);
        self.connections.push(Some(Connection { stream, buffer, unsent: 0..0 }));
        Ok(())
    }

    fn serve_one(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &mut self.connections[index] else { return Ok(()) };
        let waited = !connection.unsent.is_empty();
        if !waited {
            match connection.stream.read(&mut connection.buffer[..]) {
                Ok(count) if count > 0 => connection.unsent = 0..count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client is done, or resets at the end. Closing takes it out of the epoll set.
                _ => {
                    self.connections[index] = None;
                    return Ok(());
                }
            }
        }
        let bytes = &connection.buffer[connection.unsent.clone()];
        let Ok(sent) = send_pieces(&connection.stream, bytes, self.piece) else {
            self.connections[index] = None;
            return Ok(());
        };
        match sent {
            Sent::All => connection.unsent = 0..0,
            Sent::Full(count) => connection.unsent.start += count,
        }
        let waits = !connection.unsent.is_empty();
        if waits != waited {
            let interest = if waits { EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.stream, data, interest)?;
        }
        Ok(())
    }
}
