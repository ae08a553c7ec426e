//! The cells: how many connections exchange messages of which size.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most messages of one connection in flight.
const IN_FLIGHT_MAX: usize = 16;
/// The most bytes of one connection in flight.
pub(crate) const BYTES_MAX: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) connections: usize,
    /// Bytes of a message.
    pub(crate) bytes: usize,
    /// Messages each connection sends at once, before it waits for the answers to all. More than
    /// one: the server answers each with a write of its own.
    pub(crate) in_flight: usize,
}

impl Cell {
    const fn new(connections: usize, bytes: usize, in_flight: usize) -> Cell {
        Cell { connections, bytes, in_flight }
    }

    /// Bytes each connection keeps in flight.
    pub(crate) fn bytes_in_flight(&self) -> usize {
        self.bytes * self.in_flight
    }

    /// Whether the geometric mean that decides counts this row.
    pub(crate) fn counts(&self) -> bool {
        self.in_flight == 1 && self.connections >= 16 && self.bytes <= 4096
    }

    /// Whether a spin budget is measured in this cell.
    pub(crate) fn spins(&self) -> bool {
        *self == Cell::new(1, 64, 1)
    }
}

/// Every cell of the full run.
pub(crate) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for bytes in [64, 4096] {
        cells.extend([1, 16, 64, 256, 1000].map(|connections| Cell::new(connections, bytes, 1)));
    }
    cells.extend([16, 64].map(|connections| Cell::new(connections, 65_536, 1)));
    cells.extend([1, 16].map(|connections| Cell::new(connections, 64, IN_FLIGHT_MAX)));
    cells
}

/// One cell of every kind.
pub(crate) fn quick() -> Vec<Cell> {
    vec![
        Cell::new(1, 64, 1),
        Cell::new(64, 64, 1),
        Cell::new(1000, 64, 1),
        Cell::new(64, 4096, 1),
        Cell::new(16, 65_536, 1),
        Cell::new(16, 64, IN_FLIGHT_MAX),
    ]
}

/// The cells of the echo beside a crowd.
pub(crate) fn beside(quick: bool) -> Vec<Cell> {
    let cells = [Cell::new(64, 64, 1), Cell::new(1, 64, 1), Cell::new(64, 4096, 1)];
    cells[..if quick { 1 } else { cells.len() }].to_vec()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { connections, bytes, in_flight } = *self;
        match bytes {
            0..4096 => write!(f, "{connections} x {bytes} B")?,
            _ => write!(f, "{connections} x {} KiB", bytes / 1024)?,
        }
        if in_flight > 1 {
            write!(f, ", {in_flight} in flight")?;
        }
        Ok(())
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        let numbers: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
        let (connections, bytes, in_flight) = match numbers.as_deref() {
            Ok(&[connections, bytes]) => (connections, bytes, 1),
            Ok(&[connections, bytes, in_flight]) => (connections, bytes, in_flight),
            _ => return Err("a cell is CONNECTIONSxBYTES or CONNECTIONSxBYTESxIN_FLIGHT".into()),
        };
        if connections == 0 || !(1..=IN_FLIGHT_MAX).contains(&in_flight) {
            return Err(format!("at least 1 connection, 1 to {IN_FLIGHT_MAX} messages in flight"));
        }
        if bytes == 0 || bytes * in_flight > BYTES_MAX {
            return Err(format!("1 to {BYTES_MAX} bytes in flight a connection"));
        }
        Ok(Cell::new(connections, bytes, in_flight))
    }
}
