//! Backends: where operations meet a kernel, a simulator or a script.
//!
//! A process runs one of rotor's own: [`backend()`](crate::backend()) says which and why, [`prefer`]
//! chooses by hand. With the feature `unstable` a program can bring its own, which keeps the contract
//! below.
//!
//! # The contract, for a porter to tick off
//!
//! The loop promises a backend:
//! 1. One thread: every call comes from the thread that made it, and none while another runs.
//! 2. A `Token` names one request at a time; it is used again only after its last completion.
//! 3. At most one receive-like request (`Accept`, `Receive`, `ReceivePicked`) and one send-like
//!    request (`Connect`, `Send`, `SendVectored`, `Shutdown`) a socket is queued at a time; order
//!    is the loop's business.
//! 4. Pointers in a request stay valid until its last completion, or, for one answered `Done` or
//!    `Full`, until `submit` returns.
//! 5. A descriptor is released only when no request on it is queued.
//! 6. Buffers are provided by number; a number is provided again only after a completion named it.
//!    A `Receive` may point into the memory of a buffer that is not provided: its completion names none.
//!
//! A backend promises the loop:
//! 1. `submit` answers `Queued` (completions follow, the last one without
//!    `more`), `Done` (the result, no completion) or `Full` (nothing was started; the loop asks
//!    again after a tick). A request with `now` set is never `Queued`: what would block is
//!    `Done(-EAGAIN)`.
//! 2. Results are the kernel's: a count or a descriptor number, or a negative `errno`.
//! 3. `cancel` is a request. The canceled request still completes: with what it
//!    had done, or with `-ECANCELED`. Bytes moved or a connection accepted are never thrown away.
//! 4. `tick` hands over everything queued and then waits as told: never less than
//!    the time given unless a completion, a wake-up or a signal ended it, and no longer than that
//!    rounded up to the granularity. With a completion at hand it does not wait. `spin` does not wait
//!    either, and may keep receives for the next `tick` to hand over.
//! 5. After the last completion of a request, and after drop, its memory is not touched.
//! 6. A receive into a picked buffer that finds none ends with `-ENOBUFS`.
//! 7. `waker`'s function may be called on any thread at any time, also after the
//!    backend is gone; called during or before a wait, it ends it.
//! 8. `now` never goes backwards and starts anywhere.
//! 9. In a child process after fork, `check` says so and no other call touches
//!    what is shared with the parent.
//! 10. What is queued on a number that `adopt` names belongs to another
//!     descriptor, closed behind the loop's back: it never touches the new one.
//!
//! Points 3 to 6 are what keeps memory sound: for them the trait is unsafe to implement.
#![deny(unsafe_code)]

pub(crate) mod choice;
mod contract;
mod kind;
pub(crate) mod readiness;
mod request;
#[cfg(feature = "unstable")]
pub mod scripted;
#[cfg(not(feature = "unstable"))]
mod scripted;
mod survey;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) mod uring;

pub use self::choice::{PreferError, prefer};
pub(crate) use self::contract::Driver;
pub use self::kind::{Chosen, Kind, Reason};
pub(crate) use self::survey::survey;
pub use self::survey::{Feature, Found};
#[cfg(feature = "unstable")]
pub use self::{contract::Backend, request::*};
#[cfg(not(feature = "unstable"))]
pub(crate) use self::{contract::Backend, request::*};
