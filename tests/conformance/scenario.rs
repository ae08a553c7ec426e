//! What a scenario is, and what it tells.

/// A promise's number in `docs/architecture.md`, the operations it is tried on, and how.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) promise: u8,
    pub(crate) operations: &'static [&'static str],
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Outcome,
}

/// How a scenario ended that did not panic.
pub(crate) enum Outcome {
    /// With what it observed: counts and outcomes, equal on every backend.
    Pass(String),
    /// This backend does not have what it needs, and its documentation says so.
    Skip(&'static str),
}

impl From<()> for Outcome {
    fn from((): ()) -> Outcome {
        Outcome::Pass(String::new())
    }
}

impl From<String> for Outcome {
    fn from(observation: String) -> Outcome {
        Outcome::Pass(observation)
    }
}

/// What scenarios are about, in the order of the closing table's rows.
pub(crate) const OPERATIONS: [&str; 19] = [
    "nop",
    "accept",
    "connect",
    "receive",
    "read_exact",
    "read_buf",
    "ready",
    "send",
    "vectored",
    "write_owned",
    "poll",
    "shutdown",
    "close",
    "file",
    "timer",
    "wake",
    "control",
    "task",
    "runtime",
];

/// A subject's table, a line a scenario: promise, operations, name, function.
macro_rules! scenarios {
    ($($promise:literal $($operation:ident)+ $name:literal => $run:path;)*) => {
        pub(crate) const SCENARIOS: &[$crate::scenario::Scenario] = &[
            $($crate::scenario::Scenario {
                promise: $promise,
                operations: &[$(stringify!($operation)),+],
                name: $name,
                run: || $run().into(),
            }),*
        ];
    };
}
