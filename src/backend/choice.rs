//! The process's one choice of a backend: made when its first loop is, and kept for life.
//!
//! The first loop asks for the system's best, with its real sizes. If that is refused for good (a
//! filter, a sysctl, an old kernel, a memory-lock limit below what its rings take) the next one is
//! tried, and the refusal is kept as the reason. A failure that may pass (no descriptor, no memory) is
//! an error and decides nothing. Later loops make what was chosen, or fail.
#![deny(unsafe_code)]

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kind::{Chosen, Kind, Reason};
use crate::error::CreateError;

/// The variable that chooses by hand.
const VARIABLE: &str = "ROTOR_BACKEND";

#[derive(Debug, Default)]
struct Process {
    preferred: Option<Kind>,
    chosen: Option<Chosen>,
}

/// Held while the first loop is made, so that threads which come meanwhile make what it chose.
static PROCESS: Mutex<Process> = Mutex::new(Process { preferred: None, chosen: None });

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chooses the process's backend by hand, before its first loop or runtime is made. The environment's
/// `ROTOR_BACKEND`, if it is set, wins. If the backend cannot be had, making the loop is an error: rotor
/// does not fall back to another.
///
/// # Errors
/// When another backend was chosen already.
pub fn prefer(kind: Kind) -> Result<(), PreferError> {
    let mut process = process();
    match &process.chosen {
        Some(chosen) if chosen.kind != kind => Err(PreferError { chosen: chosen.clone() }),
        Some(_) => Ok(()),
        None => {
            process.preferred = Some(kind);
            Ok(())
        }
    }
}

/// The process has chosen its backend already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferError {
    chosen: Chosen,
}

impl PreferError {
    /// What was chosen.
    pub fn chosen(&self) -> &Chosen {
        &self.chosen
    }
}

impl fmt::Display for PreferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = "the process runs another backend already; prefer one before the first runtime";
        write!(f, "{words} ({})", self.chosen)
    }
}

impl std::error::Error for PreferError {}

/// What was chosen, if something was.
pub(crate) fn chosen() -> Option<Chosen> {
    process().chosen.clone()
}

/// Makes what the process has chosen, or makes the choice.
pub(crate) fn make<T>(
    mut make_one: impl FnMut(Kind) -> Result<T, CreateError>,
) -> Result<T, CreateError> {
    let mut process = process();
    if let Some(kind) = process.chosen.as_ref().map(|chosen| chosen.kind) {
        drop(process);
        return make_one(kind);
    }
    let wish = wish(env::var_os(VARIABLE).as_deref(), process.preferred)?;
    let (made, chosen) = choose(wish, Kind::CHOICES, &mut make_one)?;
    process.chosen = Some(chosen);
    Ok(made)
}

/// As [`make`], but decides nothing: what was made is the caller's to drop. Answers also what the choice
/// is, or would be.
pub(crate) fn try_out<T>(
    mut make_one: impl FnMut(Kind) -> Result<T, CreateError>,
) -> Result<(T, Chosen), CreateError> {
    let process = process();
    if let Some(chosen) = process.chosen.clone() {
        return Ok((make_one(chosen.kind)?, chosen));
    }
    let wish = wish(env::var_os(VARIABLE).as_deref(), process.preferred)?;
    choose(wish, Kind::CHOICES, &mut make_one)
}

/// What was asked for by hand.
fn wish(variable: Option<&OsStr>, preferred: Option<Kind>) -> Result<Option<Chosen>, CreateError> {
    let Some(name) = variable.filter(|name| !name.is_empty()) else {
        return Ok(preferred.map(|kind| Chosen { kind, reason: Reason::Preferred }));
    };
    match Kind::ALL.into_iter().find(|kind| name == kind.name()) {
        Some(kind) => Ok(Some(Chosen { kind, reason: Reason::Environment })),
        None => {
            let words = format!("{name:?} is none of io_uring, epoll, epoll-milliseconds, kqueue");
            let error = io::Error::new(io::ErrorKind::InvalidInput, words);
            Err(CreateError::Backend { what: VARIABLE, error })
        }
    }
}

fn choose<T>(
    wish: Option<Chosen>,
    choices: &[Kind],
    make_one: &mut impl FnMut(Kind) -> Result<T, CreateError>,
) -> Result<(T, Chosen), CreateError> {
    if let Some(chosen) = wish {
        return make_one(chosen.kind).map(|made| (made, chosen));
    }
    let mut reason = Reason::Best;
    for (place, &kind) in choices.iter().enumerate() {
        match make_one(kind) {
            Ok(made) => return Ok((made, Chosen { kind, reason })),
            Err(error) => match refusal(&error) {
                Some(words) if place + 1 < choices.len() => reason = Reason::Refused(words),
                Some(_) | None => return Err(error),
            },
        }
    }
    unreachable!("a system has a backend of its own")
}

/// The words of an error that says the kernel will not have it, now or later.
fn refusal(error: &CreateError) -> Option<Box<str>> {
    match error {
        CreateError::Backend { what, error } => match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP) => {
                Some((*what).into())
            }
            Some(_) => None,
            None => match error.kind() {
                io::ErrorKind::Unsupported => Some((*what).into()),
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => {
                    Some(format!("{what}: {error}").into())
                }
                _ => None,
            },
        },
        CreateError::MemoryLock { needed, limit: Some(limit) } if limit < needed => Some(
            format!(
                "the memory-lock limit of {limit} bytes is below the {needed} io_uring's rings take"
            )
            .into(),
        ),
        CreateError::MemoryLock { .. }
        | CreateError::Option { .. }
        | CreateError::MemoryTooSmall { .. }
        | CreateError::OutOfMemory { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Kind; 2] = [Kind::IoUring, Kind::Epoll];

    /// Chooses, with an answer of the kernel's to io_uring. Everything else can be had.
    fn choose_when(
        wish: Option<Chosen>,
        answer: fn() -> Result<(), CreateError>,
    ) -> (Vec<Kind>, Result<Chosen, CreateError>) {
        let mut asked = Vec::new();
        let chosen = choose(wish, &BOTH, &mut |kind| {
            asked.push(kind);
            if kind == Kind::IoUring { answer() } else { Ok(()) }
        });
        (asked, chosen.map(|((), chosen)| chosen))
    }

    fn refused(errno: i32) -> Result<(), CreateError> {
        let what = "io_uring_setup refused with EPERM (seccomp or kernel.io_uring_disabled)";
        Err(CreateError::Backend { what, error: io::Error::from_raw_os_error(errno) })
    }

    #[test]
    fn the_best_is_taken_where_it_can_be_had() {
        let (asked, chosen) = choose_when(None, || Ok(()));
        assert_eq!(asked, [Kind::IoUring]);
        assert_eq!(chosen.unwrap().to_string(), "io_uring: the kernel has all it needs");
    }

    #[test]
    fn a_refusal_for_good_falls_back_and_is_the_reason() {
        let (asked, chosen) = choose_when(None, || refused(libc::EPERM));
        assert_eq!(asked, BOTH);
        assert_eq!(
            chosen.unwrap().to_string(),
            "epoll: io_uring_setup refused with EPERM (seccomp or kernel.io_uring_disabled)"
        );
        for answer in [
            || refused(libc::ENOSYS),
            || refused(libc::EINVAL),
            || Err(CreateError::MemoryLock { needed: 100, limit: Some(99) }),
            || {
                let error = io::ErrorKind::Unsupported.into();
                Err(CreateError::Backend { what: "a feature", error })
            },
        ] {
            let (asked, chosen) = choose_when(None, answer);
            let chosen = chosen.unwrap();
            assert_eq!((asked.len(), chosen.kind), (2, Kind::Epoll));
            assert!(matches!(chosen.reason, Reason::Refused(_)), "{chosen}");
        }
    }

    #[test]
    fn a_failure_that_may_pass_is_an_error_and_no_fallback() {
        for answer in [
            || refused(libc::EMFILE),
            || refused(libc::ENFILE),
            || Err(CreateError::MemoryLock { needed: 100, limit: Some(100) }),
            || Err(CreateError::MemoryLock { needed: 100, limit: None }),
            || Err(CreateError::OutOfMemory { needed: 100 }),
        ] {
            let (asked, chosen) = choose_when(None, answer);
            assert!(asked == [Kind::IoUring] && chosen.is_err());
        }
    }

    #[test]
    fn a_wish_is_granted_or_an_error() {
        let wish = |kind, reason| Some(Chosen { kind, reason });
        let (asked, chosen) =
            choose_when(wish(Kind::Epoll, Reason::Environment), || refused(libc::EPERM));
        assert_eq!(asked, [Kind::Epoll]);
        assert_eq!(chosen.unwrap().to_string(), "epoll: asked for by ROTOR_BACKEND");
        let (asked, chosen) =
            choose_when(wish(Kind::IoUring, Reason::Preferred), || refused(libc::EPERM));
        assert!(asked == [Kind::IoUring] && chosen.is_err());
    }

    #[test]
    fn the_variable_wins_and_must_name_a_backend() {
        let kind_of = |variable: Option<&str>, preferred| {
            wish(variable.map(OsStr::new), preferred).map(|wish| wish.map(|wish| wish.kind))
        };
        assert_eq!(kind_of(None, None).unwrap(), None);
        assert_eq!(kind_of(Some(""), Some(Kind::Epoll)).unwrap(), Some(Kind::Epoll));
        assert_eq!(kind_of(Some("io_uring"), Some(Kind::Epoll)).unwrap(), Some(Kind::IoUring));
        for kind in Kind::ALL {
            assert_eq!(kind_of(Some(kind.name()), None).unwrap(), Some(kind));
        }
        let words = kind_of(Some("select"), None).unwrap_err().to_string();
        assert!(words.contains("ROTOR_BACKEND") && words.contains("select"), "{words}");
    }
}
