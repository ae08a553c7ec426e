//! Buffers that change hands and are never copied.

use std::fmt;
use std::ops::Deref;

use crate::runtime::Lease;
use crate::tables::orphans::OwnedBytes;

/// Received bytes in a buffer of the loop, on loan; from
/// [`TcpStream::read_buf`](crate::net::TcpStream::read_buf).
///
/// The buffer goes back to the loop when this is dropped. A stream has at most
/// [`LEASES_PER_STREAM_MAX`](crate::limits::LEASES_PER_STREAM_MAX) of them out, those that a
/// `write_owned` sends or has given back among them, and the loop has the
/// option `buffers` for all streams together: keep one only while it is looked at. The bytes stay
/// valid when the stream is closed and also when the runtime is gone; the loop's memory is then freed
/// with the last of them.
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<rotor::net::LoopBuf>();
/// ```
pub struct LoopBuf {
    lease: Lease,
}

impl LoopBuf {
    pub(super) fn new(lease: Lease) -> LoopBuf {
        LoopBuf { lease }
    }
}

impl Deref for LoopBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.bytes()
    }
}

impl AsRef<[u8]> for LoopBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for LoopBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoopBuf").field(&self.lease.bytes()).finish()
    }
}

/// What [`TcpStream::write_owned`](crate::net::TcpStream::write_owned) takes: `Vec<u8>`,
/// `Box<[u8]>`, `&'static [u8]` and [`LoopBuf`]. Their bytes stay where they are when they are moved,
/// and freeing them runs no code of the program's.
///
/// The trait is sealed.
pub trait OwnedBuf: Sealed {}

/// A buffer on its way through the loop.
#[derive(Debug)]
#[doc(hidden)]
pub struct Kept(OwnedBytes);

impl Kept {
    pub(super) fn new(bytes: OwnedBytes) -> Kept {
        Kept(bytes)
    }

    /// In place of a buffer that went with its loop.
    pub(super) fn lost() -> Kept {
        Kept(OwnedBytes::Static(&[]))
    }

    pub(super) fn into_bytes(self) -> OwnedBytes {
        self.0
    }
}

mod sealed {
    use super::Kept;

    /// Keeps the set of buffers closed: the loop relies on what they are.
    pub trait Sealed: Sized {
        /// Whether the loop with this number may keep it.
        fn belongs_to(&self, _loop_id: u32) -> bool {
            true
        }
        /// Hands it over.
        fn into_kept(self) -> Kept;
        /// Takes it back from the loop with this number.
        fn from_kept(kept: Kept, loop_id: u32) -> Self;
    }
}

pub(super) use sealed::Sealed;

impl OwnedBuf for Vec<u8> {}

impl Sealed for Vec<u8> {
    fn into_kept(self) -> Kept {
        Kept(OwnedBytes::Heap(self))
    }

    fn from_kept(kept: Kept, _loop_id: u32) -> Vec<u8> {
        match kept.0 {
            OwnedBytes::Heap(bytes) => bytes,
            OwnedBytes::Static(_) | OwnedBytes::Leased(_) => Vec::new(),
        }
    }
}

impl OwnedBuf for Box<[u8]> {}

impl Sealed for Box<[u8]> {
    fn into_kept(self) -> Kept {
        Kept(OwnedBytes::Heap(self.into_vec()))
    }

    fn from_kept(kept: Kept, loop_id: u32) -> Box<[u8]> {
        // It came from a box, so it has no spare room and is not copied.
        Vec::from_kept(kept, loop_id).into_boxed_slice()
    }
}

impl OwnedBuf for &'static [u8] {}

impl Sealed for &'static [u8] {
    fn into_kept(self) -> Kept {
        Kept(OwnedBytes::Static(self))
    }

    fn from_kept(kept: Kept, _loop_id: u32) -> &'static [u8] {
        match kept.0 {
            OwnedBytes::Static(bytes) => bytes,
            OwnedBytes::Heap(_) | OwnedBytes::Leased(_) => &[],
        }
    }
}

impl OwnedBuf for LoopBuf {}

impl Sealed for LoopBuf {
    fn belongs_to(&self, loop_id: u32) -> bool {
        self.is_empty() || self.lease.loop_id() == loop_id
    }

    fn into_kept(self) -> Kept {
        Kept(self.lease.into_bytes().map_or(OwnedBytes::Static(&[]), OwnedBytes::Leased))
    }

    fn from_kept(kept: Kept, loop_id: u32) -> LoopBuf {
        match kept.0 {
            OwnedBytes::Leased(bytes) => LoopBuf::new(Lease::returned(loop_id, bytes)),
            OwnedBytes::Heap(_) | OwnedBytes::Static(_) => LoopBuf::new(Lease::empty(loop_id)),
        }
    }
}
