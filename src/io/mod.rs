//! What streams can be asked to be ready for.
//!
//! Reading and writing are methods of the streams in [`net`](crate::net).
#![deny(unsafe_code)]

mod readiness;

pub use self::readiness::{Interest, Ready};
