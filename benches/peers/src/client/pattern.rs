//! What is sent. Each connection's bytes are one endless stream: a fixed random pattern, repeated,
//! begun at a place of the connection's own. Sending copies nothing and filling costs nothing;
//! checking is one comparison.

use crate::cells::BYTES_MAX;

/// A prime: a message lost, doubled or out of place never lines up with the pattern again.
const PERIOD: u64 = 4093;

#[derive(Debug)]
pub(super) struct Pattern {
    bytes: Box<[u8]>,
}

impl Pattern {
    pub(super) fn new() -> Pattern {
        let mut random = fastrand::Rng::with_seed(0x726f_746f_7221);
        let mut bytes = vec![0; PERIOD as usize + BYTES_MAX];
        random.fill(&mut bytes[..PERIOD as usize]);
        for index in PERIOD as usize..bytes.len() {
            bytes[index] = bytes[index - PERIOD as usize];
        }
        Pattern { bytes: bytes.into() }
    }

    /// The bytes of a connection's stream from `position` on.
    pub(super) fn at(&self, connection: usize, position: u64, bytes: usize) -> &[u8] {
        let start = (connection as u64 * 257 + position) % PERIOD;
        &self.bytes[start as usize..start as usize + bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_one_piece_and_streams_differ() {
        let pattern = Pattern::new();
        let (first, second) = (pattern.at(3, 4000, 200), pattern.at(3, 4100, 200));
        assert_eq!(first[100..], second[..100]);
        assert_ne!(pattern.at(3, 0, 64), pattern.at(4, 0, 64));
        assert_ne!(pattern.at(3, 0, 64), pattern.at(3, 64, 64));
        assert_eq!(pattern.at(3, PERIOD - 1, BYTES_MAX).len(), BYTES_MAX);
    }
}
