//! The echo server on the bare loop: operations go in, events come out, no futures.
//!
//!     cargo run --release --example loop_echo -- 127.0.0.1:9000
//!
//! Each connection has one receive in flight, into a buffer the loop picks. What arrives is sent back
//! at once; what the socket does not take is sent as an operation, and the buffer goes back after it.

use std::io;
use std::net::SocketAddr;

use rotor::runtime::Options;
use rotor::{BufferId, Control, Descriptor, Event, EventKind, Loop, Operation, Reply, Wait};

/// What an event is about: the connection's number in `Server::connections`.
const LISTENER: u64 = u64::MAX;

struct Connection {
    descriptor: Descriptor,
    /// Bytes on their way out by an operation.
    sending: Option<BufferId>,
}

struct Server {
    event_loop: Loop,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".to_string());
    let mut event_loop = Loop::new(&Options::default())?;
    let listen = Control::Listen { address: address.parse::<SocketAddr>()?, backlog: 1024 };
    let Reply::Opened(listener) = event_loop.control(listen)? else { unreachable!() };
    let Reply::Address(bound) = event_loop.control(Control::LocalAddress(listener))? else {
        unreachable!()
    };
    println!("listening on {bound}");
    event_loop.submit(Operation::accept_multishot(listener), LISTENER)?;
    let mut server = Server { event_loop, connections: Vec::new(), free: Vec::new() };
    let mut events = [Event::EMPTY; 256];
    loop {
        let count = server.event_loop.tick(&mut events, Wait::Forever)?;
        for event in &events[..count] {
            server.handle(event)?;
        }
    }
}

impl Server {
    fn handle(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error>> {
        match event.kind() {
            EventKind::Accept => self.accepted(event)?,
            EventKind::Receive => self.received(event)?,
            EventKind::Send => self.sent(event)?,
            EventKind::Close => {}
            kind => unreachable!("no {kind:?} was submitted"),
        }
        Ok(())
    }

    fn accepted(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(descriptor) = event.descriptor() {
            let number = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.connections[number] = Some(Connection { descriptor, sending: None });
            self.event_loop.submit(Operation::receive_picked(descriptor), number as u64)?;
        }
        if !event.more() {
            event.result()?;
        }
        Ok(())
    }

    fn received(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error>> {
        let number = event.user_data() as usize;
        let (Some(buffer), Ok(count)) = (event.buffer(), event.result()) else {
            return self.close(number);
        };
        let Some(connection) = &mut self.connections[number] else { unreachable!() };
        let descriptor = connection.descriptor;
        let sent = match self.event_loop.send_from_now(descriptor, buffer, 0..count) {
            Ok(sent) => sent as u32,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.event_loop.return_buffer(buffer);
                return self.close(number);
            }
        };
        if sent == count {
            self.event_loop.return_buffer(buffer);
            self.event_loop.submit(Operation::receive_picked(descriptor), number as u64)?;
            return Ok(());
        }
        connection.sending = Some(buffer);
        self.event_loop.submit_send_from(descriptor, buffer, sent..count, number as u64)?;
        Ok(())
    }

    fn sent(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error>> {
        let number = event.user_data() as usize;
        let Some(connection) = &mut self.connections[number] else { unreachable!() };
        let descriptor = connection.descriptor;
        if let Some(buffer) = connection.sending.take() {
            self.event_loop.return_buffer(buffer);
        }
        if event.result().is_err() {
            return self.close(number);
        }
        self.event_loop.submit(Operation::receive_picked(descriptor), number as u64)?;
        Ok(())
    }

    fn close(&mut self, number: usize) -> Result<(), Box<dyn std::error::Error>> {
        if let Some(connection) = self.connections[number].take() {
            self.event_loop.submit(Operation::close(connection.descriptor), number as u64)?;
            self.free.push(number);
        }
        Ok(())
    }
}
