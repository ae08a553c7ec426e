//! One connection of the load client: how far its stream is, and when its messages left.

use std::net::TcpStream;

use super::pattern::Pattern;
use crate::cells::Cell;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Bytes of the stream handed over, and bytes that came back.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// When the messages in flight left, in nanoseconds of the client's clock.
    pub(super) sent_at_ns: u64,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        Connection { stream, sent: 0, received: 0, sent_at_ns: 0 }
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.sent - self.received
    }

    /// Notes that so many bytes leave now.
    pub(super) fn send(&mut self, bytes: usize, now_ns: u64) {
        self.sent_at_ns = now_ns;
        self.sent += bytes as u64;
    }

    /// Takes what came back; gives the number of messages complete with it, or nothing when it is
    /// not what was sent.
    pub(super) fn receive(
        &mut self,
        index: usize,
        cell: &Cell,
        pattern: &Pattern,
        bytes: &[u8],
    ) -> Option<u64> {
        let expected = pattern.at(index, self.received, bytes.len());
        if bytes.len() as u64 > self.in_flight() || bytes != expected {
            return None;
        }
        let before = self.received / cell.bytes as u64;
        self.received += bytes.len() as u64;
        Some(self.received / cell.bytes as u64 - before)
    }
}
