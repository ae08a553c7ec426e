//! What the kernel has of what the backends use, for a person to read.
#![deny(unsafe_code)]

/// Something a kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name, and the release that brought it.
    pub name: &'static str,
    /// Whether the kernel at hand has it, and lets it be used.
    pub found: Found,
}

/// An answer of the kernel's about something it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It has it.
    Yes,
    /// It has not, or keeps it from this process.
    No,
    /// It could not be asked, because of this.
    NotAsked(&'static str),
}

impl From<bool> for Found {
    fn from(there: bool) -> Found {
        if there { Found::Yes } else { Found::No }
    }
}

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) features: Vec<Feature>,
    /// The kernel's threads a ring may use for each processor node: for files, and for all else.
    pub(crate) workers: Option<[u32; 2]>,
}

/// Asks the kernel, by rings and queues that are closed again.
#[cfg(target_os = "linux")]
pub(crate) fn survey() -> Survey {
    let mut survey = super::uring::survey();
    let found = super::readiness::epoll::has_nanoseconds();
    survey.features.push(Feature { name: "epoll_pwait2 (Linux 5.11)", found });
    survey
}

/// Nothing here is optional.
#[cfg(not(target_os = "linux"))]
pub(crate) fn survey() -> Survey {
    Survey::default()
}
