//! Making a ring, and saying what the kernel refuses when it does.
#![deny(unsafe_code)]

use std::io;

use io_uring::{IoUring, Probe, cqueue, squeue};

use super::buffers::{self, LACKING};
use super::probe::{Features, first_missing, list};
use crate::backend::BufferMemory;
use crate::backend::survey::{Feature, Found, Survey};
use crate::error::CreateError;
use crate::options::Options;

const NO_LIST: &str = "io_uring_register refused to list its operations";

/// Queues and rings are counted in whole pages.
const PAGE: u64 = 4096;

/// Bytes of an entry of a ring of provided buffers (`struct io_uring_buf`).
const BUFFER_ENTRY_BYTES: u64 = 16;

type Builder = io_uring::Builder<squeue::Entry, cqueue::Entry>;

/// The kernel's largest completion queue (`IORING_MAX_CQ_ENTRIES`).
const COMPLETIONS_MAX: u32 = 1 << 16;

/// Makes the ring and checks that it has all this backend needs.
pub(super) fn make_ring(options: &Options) -> Result<(IoUring, Features), CreateError> {
    let entries = options.ring_entries;
    if !entries.is_power_of_two() || entries > 32_768 {
        let rule = "must be a power of two, 32,768 at most";
        return Err(CreateError::Option { name: "ring_entries", rule });
    }
    let ring = build(options).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOMEM) => no_memory(ring_bytes(options)),
        _ => refused(setup_refusal(&error), error),
    })?;
    let mut probe = Probe::new();
    if let Err(error) = ring.submitter().register_probe(&mut probe) {
        return Err(refused(NO_LIST, error));
    }
    let features = Features::of(ring.params());
    match first_missing(&features, |code| probe.is_supported(code)) {
        Some(what) => Err(refused(what, io::ErrorKind::Unsupported.into())),
        None => Ok((ring, features)),
    }
}

/// What an error of registering the buffers' ring means. Since Linux 6.14 its memory counts against the
/// memory-lock limit, beside the queues'.
pub(crate) fn buffers_refusal(
    options: &Options,
    memory: &BufferMemory,
    error: io::Error,
) -> CreateError {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            let ring = u64::from(memory.ring_entries) * BUFFER_ENTRY_BYTES;
            no_memory(ring_bytes(options) + ring.next_multiple_of(PAGE))
        }
        Some(_) => refused(LACKING, error),
        None => refused("the receive buffers cannot be registered", error),
    }
}

/// What the kernel at hand has of what this backend asks for, by the smallest ring there is.
pub(crate) fn survey() -> Survey {
    const SETUP: &str = "IORING_SETUP_DEFER_TASKRUN (Linux 6.1)";
    const BUFFERS: &str = "IORING_REGISTER_PBUF_RING (Linux 5.19)";
    let named = |name, found| Feature { name, found };
    let options = Options { ring_entries: 1, operations: 1, ..Options::default() };
    let ring = match build(&options) {
        Ok(ring) => ring,
        Err(error) => {
            let why = setup_refusal(&error);
            let unknown = Found::NotAsked(why);
            let setup =
                if error.raw_os_error() == Some(libc::EINVAL) { Found::No } else { unknown };
            let mut features = vec![named(SETUP, setup), named(BUFFERS, unknown)];
            features.extend(list(Err(why), |_| unknown));
            return Survey { features, workers: None };
        }
    };
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe).is_ok();
    let has_opcode = |code| match probed {
        true => Found::from(probe.is_supported(code)),
        false => Found::NotAsked(NO_LIST),
    };
    let mut features =
        vec![named(SETUP, Found::Yes), named(BUFFERS, buffers::found(&ring.submitter()))];
    features.extend(list(Ok(Features::of(ring.params())), has_opcode));
    let mut workers = [0; 2];
    let asked = ring.submitter().register_iowq_max_workers(&mut workers);
    Survey { features, workers: asked.is_ok().then_some(workers) }
}

pub(super) fn refused(what: &'static str, error: io::Error) -> CreateError {
    CreateError::Backend { what, error }
}

/// First with everything, then without what is only a gain.
fn build(options: &Options) -> io::Result<IoUring> {
    let builder = builder(options);
    // Without the index array submission saves a load an entry (Linux 6.6).
    match builder.clone().setup_no_sqarray().build(options.ring_entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            builder.build(options.ring_entries)
        }
        made => made,
    }
}

/// The flags of the required set, Linux 6.1.
fn builder(options: &Options) -> Builder {
    let mut builder: Builder = IoUring::builder();
    builder
        // A child has no business in these pages; it gets SIGSEGV instead of its parent's events.
        .dontfork()
        .setup_clamp()
        .setup_cqsize(completion_entries(options))
        // One refused entry does not hold up those behind it.
        .setup_submit_all()
        // Completions are posted when this thread asks for them, inside io_uring_enter(2), and at
        // no other time; the flag says when there are some to ask for.
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag();
    builder
}

/// Room for every operation to complete at once, but no more than four times what one call submits:
/// the memory counts against RLIMIT_MEMLOCK and is touched at once (the crate maps it populated),
/// and what does not fit is kept by the kernel and costs an allocation there.
fn completion_entries(options: &Options) -> u32 {
    let submissions = options.ring_entries;
    let wanted = options.operations.clamp(submissions * 2, submissions.saturating_mul(4));
    wanted.next_power_of_two().min(COMPLETIONS_MAX)
}

/// The bytes both queues take, in whole pages each (`io_allocate_scq_urings`): an entry of 64 bytes and
/// a number for each submission, 16 bytes for each completion, and the queues' heads.
fn ring_bytes(options: &Options) -> u64 {
    const HEADS: u64 = 320;
    let (submissions, completions) = (options.ring_entries, completion_entries(options));
    let entries = (u64::from(submissions) * 64).next_multiple_of(PAGE);
    let queues = HEADS + u64::from(submissions) * 4 + u64::from(completions) * 16;
    entries + queues.next_multiple_of(PAGE)
}

/// The kernel has no memory, or no more for this user to lock.
fn no_memory(needed: u64) -> CreateError {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    CreateError::MemoryLock { needed, limit: limit.filter(|_| !exempt_from_memory_lock()) }
}

/// Whether the limit is not for this process: it has `CAP_IPC_LOCK`, and not just in a user namespace
/// of its own, whose capabilities are none towards the system.
fn exempt_from_memory_lock() -> bool {
    let capable = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK));
    let namespace = || std::fs::read_to_string("/proc/self/uid_map");
    capable && namespace().map_or(true, |map| is_first_namespace(&map))
}

/// The first user namespace has every number, each as itself (user_namespaces(7)).
fn is_first_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Says what an error of io_uring_setup(2) means.
fn setup_refusal(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "io_uring_setup refused with EPERM (seccomp or kernel.io_uring_disabled)"
        }
        Some(libc::EACCES) => "io_uring_setup refused with EACCES (seccomp or a security module)",
        Some(libc::ENOSYS) => {
            "io_uring_setup refused with ENOSYS (a kernel without io_uring, or seccomp)"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "io_uring_setup found no free descriptor (RLIMIT_NOFILE)"
        }
        Some(libc::EINVAL) => "this kernel lacks IORING_SETUP_DEFER_TASKRUN (Linux 6.1)",
        _ => "io_uring_setup failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_refusal_is_named() {
        for (errno, word) in [
            (libc::EPERM, "seccomp"),
            (libc::EACCES, "EACCES"),
            (libc::ENOSYS, "without io_uring"),
            (libc::EMFILE, "RLIMIT_NOFILE"),
            (libc::EINVAL, "DEFER_TASKRUN (Linux 6.1)"),
            (libc::EIO, "failed"),
        ] {
            let what = setup_refusal(&io::Error::from_raw_os_error(errno));
            assert!(what.contains(word), "{errno}: {what}");
        }
    }

    #[test]
    fn only_the_first_namespace_is_exempt() {
        assert!(is_first_namespace("         0          0 4294967295\n"));
        for map in ["0 1000 1\n", "0 0 65536\n", "0 1000 1\n1 100000 65536\n", ""] {
            assert!(!is_first_namespace(map), "{map}");
        }
    }

    #[test]
    fn without_memory_for_the_buffers_ring_both_are_what_is_needed() {
        let options = Options { ring_entries: 1024, operations: 32_768, ..Options::default() };
        let memory = BufferMemory {
            base: std::ptr::null_mut(),
            stride: 64,
            count: 300,
            bytes: 64,
            ring: std::ptr::null_mut(),
            ring_entries: 512,
        };
        let refusal = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            buffers_refusal(&options, &memory, error)
        };
        match refusal(libc::ENOMEM) {
            CreateError::MemoryLock { needed, .. } => {
                assert_eq!(needed, ring_bytes(&options) + 8192)
            }
            other => panic!("{other:?}"),
        }
        match refusal(libc::EINVAL) {
            CreateError::Backend { what, error } => {
                assert!(what.contains("PBUF_RING"));
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "the kernel's answer is kept");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_completion_queue_is_sized_by_both_options() {
        let size = |operations, ring_entries| {
            completion_entries(&Options { operations, ring_entries, ..Options::default() })
        };
        assert_eq!(size(32_768, 1024), 4096);
        assert_eq!(size(3000, 1024), 4096);
        assert_eq!(size(10, 1024), 2048);
        assert_eq!(size(1 << 24, 32_768), 65_536);
        assert_eq!(size(1, 1), 2);
        assert_eq!(size(u32::MAX, 1), 4);
    }

    #[test]
    fn a_ring_size_no_kernel_takes_is_an_error_of_the_option() {
        for ring_entries in [0, 3, 65_536] {
            let made = make_ring(&Options { ring_entries, ..Options::default() });
            let error = made.err().expect("refused").to_string();
            assert!(error.contains("ring_entries"), "{error}");
        }
    }
}
