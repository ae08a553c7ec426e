//! What a program runs on, for a person to read.

use std::fmt;

use rustix::process::{Resource, getrlimit};

use crate::backend::{Chosen, Feature, Found, choice, survey};
use crate::error::CreateError;
use crate::event_loop::backend;
use crate::options::Options;
use crate::runtime::block_on::Runtime;
use crate::runtime::current;
use crate::tables::slots::Usage;

/// A limit in force for the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// Of what, with its unit.
    pub name: &'static str,
    /// Now; nothing for no limit.
    pub now: Option<u64>,
    /// What it may be raised to, where that has a limit of its own.
    pub most: Option<u64>,
}

/// What carries a program out.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunsOn {
    /// The process has chosen this backend.
    Chosen(Chosen),
    /// No runtime was made so far. One with the default options would choose this.
    Would(Chosen),
    /// The runtime is on a backend of the program's own, which says this of itself. What the process
    /// would choose was not asked.
    Own(&'static str),
    /// There is no backend, because of this.
    Nothing(CreateError),
}

impl fmt::Display for RunsOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunsOn::Chosen(chosen) => write!(f, "{chosen}"),
            RunsOn::Would(chosen) => write!(f, "would run {chosen}"),
            RunsOn::Own(words) => write!(f, "the program's own: {words}"),
            RunsOn::Nothing(error) => write!(f, "none: {error}"),
        }
    }
}

/// What [`doctor`] found. `Display` is a report of a few lines.
#[derive(Debug)]
#[non_exhaustive]
pub struct Doctor {
    /// The backend and why, or why there is none.
    pub backend: RunsOn,
    /// What the kernel has of what the backends use.
    pub features: Vec<Feature>,
    /// The limits in force.
    pub limits: Vec<Limit>,
    /// The options of the runtime it was asked in, or else the default ones.
    pub options: Options,
    /// Bytes a runtime with these options reserves. They are touched as they are used.
    pub memory_bytes: usize,
    /// Each table: its name, and how much of it is used. Without a runtime nothing is.
    tables: Vec<(&'static str, Usage)>,
    in_runtime: bool,
}

/// Finds out what the program runs on: the backend and why it is the one, what the kernel has and
/// lacks, the limits in force, the sizes of the tables and, inside a runtime, how full they were. It
/// opens a ring and a queue and closes them again, and decides nothing; a program has no use for it but
/// to print it.
pub fn doctor() -> Doctor {
    let survey = survey();
    let mut limits = vec![
        limit("open descriptors (RLIMIT_NOFILE)", Resource::Nofile),
        limit("locked memory, bytes (RLIMIT_MEMLOCK)", Resource::Memlock),
    ];
    if let Some([files, others]) = survey.workers {
        let workers = |name, count: u32| Limit { name, now: Some(count.into()), most: None };
        limits.push(workers("io_uring workers for files", files));
        limits.push(workers("io_uring workers for all else", others));
    }
    let current = current::current();
    let own = current.as_ref().and_then(|shared| shared.core.borrow().event_loop.own_backend());
    let backend = match (own, choice::chosen()) {
        (Some(words), _) => RunsOn::Own(words),
        (None, Some(chosen)) => RunsOn::Chosen(chosen),
        (None, None) => backend().map_or_else(RunsOn::Nothing, RunsOn::Would),
    };
    let (options, tables) = match &current {
        Some(shared) => {
            let core = shared.core.borrow();
            let loops = core.event_loop.statistics();
            let options = *core.event_loop.options();
            let executor = shared.executor.statistics();
            let tasks = Usage {
                now: executor.tasks_now,
                high: executor.tasks_high,
                limit: options.tasks,
                refused: executor.refused,
            };
            (options, [loops.operations, loops.sockets, loops.timers, tasks, loops.buffers])
        }
        None => {
            let options = Options::default();
            let limits = [
                options.operations,
                options.sockets,
                options.timers,
                options.tasks,
                options.buffers,
            ];
            (options, limits.map(Usage::new))
        }
    };
    let names = ["operations", "sockets", "timers", "tasks", "buffers"];
    Doctor {
        backend,
        features: survey.features,
        limits,
        options,
        memory_bytes: Runtime::memory_bytes(&options),
        tables: names.into_iter().zip(tables).collect(),
        in_runtime: current.is_some(),
    }
}

fn limit(name: &'static str, resource: Resource) -> Limit {
    let limit = getrlimit(resource);
    Limit { name, now: limit.current, most: limit.maximum }
}

/// A number, or that there is none.
struct Bound(Option<u64>);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("unlimited"),
        }
    }
}

impl fmt::Display for Doctor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "backend: {}", self.backend)?;
        for (found, word) in [(Found::Yes, "has"), (Found::No, "lacks")] {
            for feature in self.features.iter().filter(|feature| feature.found == found) {
                writeln!(f, "kernel {word}: {}", feature.name)?;
            }
        }
        for Feature { name, found } in &self.features {
            if let Found::NotAsked(why) = found {
                writeln!(f, "kernel not asked: {name}: {why}")?;
            }
        }
        for Limit { name, now, most } in &self.limits {
            write!(f, "limit: {name}: {}", Bound(*now))?;
            match most {
                Some(most) => writeln!(f, ", at most {most}")?,
                None => writeln!(f)?,
            }
        }
        let Options { task_bytes, buffer_bytes, ring_entries, .. } = self.options;
        writeln!(f, "memory: {} bytes reserved, touched as they are used", self.memory_bytes)?;
        writeln!(
            f,
            "sizes: task_bytes {task_bytes}, buffer_bytes {buffer_bytes}, ring_entries {ring_entries}"
        )?;
        for (name, usage) in &self.tables {
            write!(f, "table: {name}: {}", usage.limit)?;
            if self.in_runtime {
                let Usage { now, high, refused, .. } = usage;
                write!(f, ", {now} in use, {high} at most, {refused} refused")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_backend_the_limits_and_the_tables() {
        let outside = doctor().to_string();
        assert!(outside.contains("table: tasks: 16384\n"), "{outside}");
        let runtime = crate::runtime::Builder::new().sockets(7).build().unwrap();
        let inside = runtime.block_on(async { doctor() });
        assert!(matches!(inside.backend, RunsOn::Chosen(_)), "{inside}");
        let chosen = backend().unwrap();
        assert_eq!(inside.memory_bytes, Runtime::memory_bytes(runtime_options(7)));
        let text = inside.to_string();
        assert!(text.starts_with(&format!("backend: {chosen}\n")), "{text}");
        for words in ["RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "table: sockets: 7, 0 in use, 0 at most"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    fn runtime_options(sockets: u32) -> &'static Options {
        Box::leak(Box::new(Options { sockets, ..Options::default() }))
    }
}
