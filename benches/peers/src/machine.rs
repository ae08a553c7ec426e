//! What the machine is, which core does what, and the limits a run needs.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Which core the server runs on, and which the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) client: usize,
}

impl Cores {
    /// The first two this process may use, as it was started. Asked before anything is pinned.
    pub(crate) fn chosen() -> io::Result<Cores> {
        static CHOSEN: OnceLock<Cores> = OnceLock::new();
        if let Some(cores) = CHOSEN.get() {
            return Ok(*cores);
        }
        let allowed = sched_getaffinity(None)?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let server = cores.next().unwrap_or(0);
        let client = cores.next().unwrap_or(server);
        if server == client {
            eprintln!("peers: one core: server and client share it, these figures compare nothing");
        }
        Ok(*CHOSEN.get_or_init(|| Cores { server, client }))
    }
}

/// What a reader of figures asks first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) rotor: String,
    pub(crate) tokio: String,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let uname = rustix::system::uname();
        let (cores, cpu) = processors();
        Machine {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            cpu: cpu.unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
            cores,
            kernel: uname.release().to_string_lossy().into_owned(),
            rotor: rotor_commit().unwrap_or_else(|| "unknown".to_string()),
            tokio: locked_version("tokio").unwrap_or("unknown").to_string(),
        }
    }
}

/// The processors the kernel lists, and the name it has for them.
fn processors() -> (usize, Option<String>) {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |name| text.lines().filter(move |line: &&str| line.starts_with(name));
    let model = named("model name").next().and_then(|line| line.split_once(':'));
    (named("processor").count(), model.map(|(_, model)| model.trim().to_string()))
}

/// The commit, and whether the tree had changes: figures of a tree nobody can get back say so.
fn rotor_commit() -> Option<String> {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=10"];
    let output = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR")])
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The version of a package this program was built with.
fn locked_version(package: &str) -> Option<&'static str> {
    let lock = include_str!("../Cargo.lock");
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name).skip(1);
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
}

/// Keeps the process on one core.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises the limit of open descriptors as far as it goes. The error says what is missing.
pub(crate) fn raise_descriptors(needed: usize) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let enough = limit.maximum.is_none_or(|maximum| maximum >= needed as u64);
    enough.then_some(()).ok_or_else(|| {
        let limit = limit.maximum.unwrap_or_default();
        io::Error::other(format!("{needed} descriptors are needed, RLIMIT_NOFILE is {limit}"))
    })
}
