//! The rules of `docs/architecture.md` that a program can check.
//!
//! A rule nobody runs is a wish, so these run with every `cargo test`. Each check is a function of
//! a file's path and text; beside each stands a test that shows it can fail. A complaint names the
//! file, the line and the rule.
//!
//! To change a rule, change the architecture and the constant here in the same commit.

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/lengths.rs"]
mod lengths;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/unsafety.rs"]
mod unsafety;
#[path = "tidy/words.rs"]
mod words;

/// The only library files that may hold unsafe code. `tests/` and `benches/` are not counted.
const UNSAFE_FILES: [&str; 12] = [
    "executor/src/arena.rs",
    "executor/src/task.rs",
    "executor/src/waker.rs",
    "src/backend/contract.rs",
    "src/backend/readiness/mod.rs",
    "src/backend/scripted.rs",
    "src/backend/uring/buffers.rs",
    "src/backend/uring/mod.rs",
    "src/op.rs",
    "src/sys/descriptor.rs",
    "src/sys/fork.rs",
    "src/tables/arena.rs",
];

/// No more files than these, ever: what is unsafe must stay readable in one sitting.
const UNSAFE_FILES_MAX: usize = 12;

/// The rows of `src/`, top to bottom. A row may use itself and every row above it.
const ROWS: [&[&str]; 8] = [
    &["address", "limits", "op", "event", "error", "options", "rng"],
    &["tables"],
    &["sys"],
    &["backend"],
    &["sim"],
    &["event_loop"],
    &["runtime"],
    &["net", "fs", "time", "task", "io", "signal", "sync"],
];
