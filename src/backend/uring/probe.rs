//! What the kernel has: the features and opcodes this backend needs, and those it uses where found.
//!
//! Pure: the kernel's answers come in as values, so that kernels not at hand can be tried.
#![deny(unsafe_code)]

use io_uring::{Parameters, opcode};

use crate::backend::{Feature, Found};

/// The kernel's answers at set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// Waits take a time-out and a signal mask in one structure (`IORING_FEAT_EXT_ARG`, Linux 5.11).
    pub(super) ext_arg: bool,
    /// Completions that do not fit their queue are kept (`IORING_FEAT_NODROP`, Linux 5.5).
    pub(super) nodrop: bool,
    /// A request may stay silent when it succeeds (`IORING_FEAT_CQE_SKIP`, Linux 5.17).
    pub(super) skip_success: bool,
    /// Waiting sockets are polled, not given a thread each (`IORING_FEAT_FAST_POLL`, Linux 5.7).
    pub(super) fast_poll: bool,
    /// A wait need not count as waiting for a disk (`IORING_FEAT_NO_IOWAIT`, Linux 6.15).
    pub(super) no_iowait: bool,
}

impl Features {
    /// Reads them from what io_uring_setup(2) filled in.
    pub(super) fn of(parameters: &Parameters) -> Features {
        Features {
            ext_arg: parameters.is_feature_ext_arg(),
            nodrop: parameters.is_feature_nodrop(),
            skip_success: parameters.is_feature_skip_cqe_on_success(),
            fast_poll: parameters.is_feature_fast_poll(),
            no_iowait: parameters.is_feature_no_iowait(),
        }
    }
}

/// The opcodes submitted, each with the release that brought it (io_uring_enter(2)).
const OPCODES: [(u8, &str); 10] = [
    (opcode::Nop::CODE, "this kernel's io_uring lacks IORING_OP_NOP (Linux 5.1)"),
    (opcode::PollAdd::CODE, "this kernel's io_uring lacks IORING_OP_POLL_ADD (Linux 5.1)"),
    (opcode::SendMsg::CODE, "this kernel's io_uring lacks IORING_OP_SENDMSG (Linux 5.3)"),
    (opcode::Accept::CODE, "this kernel's io_uring lacks IORING_OP_ACCEPT (Linux 5.5)"),
    (opcode::Connect::CODE, "this kernel's io_uring lacks IORING_OP_CONNECT (Linux 5.5)"),
    (opcode::AsyncCancel::CODE, "this kernel's io_uring lacks IORING_OP_ASYNC_CANCEL (Linux 5.5)"),
    (opcode::Send::CODE, "this kernel's io_uring lacks IORING_OP_SEND (Linux 5.6)"),
    (opcode::Recv::CODE, "this kernel's io_uring lacks IORING_OP_RECV (Linux 5.6)"),
    (opcode::Read::CODE, "this kernel's io_uring lacks IORING_OP_READ (Linux 5.6)"),
    (opcode::Write::CODE, "this kernel's io_uring lacks IORING_OP_WRITE (Linux 5.6)"),
];

/// What every entry of the lists begins with.
const LACKS: &str = "this kernel's io_uring lacks ";

/// Everything this backend asks for, and whether it is there. Without a ring nothing could be asked,
/// for the reason given.
pub(super) fn list(
    features: Result<Features, &'static str>,
    has_opcode: impl Fn(u8) -> Found,
) -> Vec<Feature> {
    let named = |(found, what): (Found, &'static str)| Feature {
        name: what.strip_prefix(LACKS).unwrap_or(what),
        found,
    };
    let known = features.unwrap_or(Features {
        ext_arg: false,
        nodrop: false,
        skip_success: false,
        fast_poll: false,
        no_iowait: false,
    });
    let of = |(there, what): (bool, &'static str)| match features {
        Ok(_) => (Found::from(there), what),
        Err(why) => (Found::NotAsked(why), what),
    };
    let wanted = (known.no_iowait, "IORING_FEAT_NO_IOWAIT (Linux 6.15)");
    let opcodes = OPCODES.iter().map(|&(code, what)| (has_opcode(code), what));
    required(&known).into_iter().chain([wanted]).map(of).chain(opcodes).map(named).collect()
}

fn required(features: &Features) -> [(bool, &'static str); 4] {
    [
        (features.nodrop, "this kernel's io_uring lacks IORING_FEAT_NODROP (Linux 5.5)"),
        (features.fast_poll, "this kernel's io_uring lacks IORING_FEAT_FAST_POLL (Linux 5.7)"),
        (features.ext_arg, "this kernel's io_uring lacks IORING_FEAT_EXT_ARG (Linux 5.11)"),
        (features.skip_success, "this kernel's io_uring lacks IORING_FEAT_CQE_SKIP (Linux 5.17)"),
    ]
}

/// The first thing this backend needs that the kernel does not have.
pub(super) fn first_missing(
    features: &Features,
    has_opcode: impl Fn(u8) -> bool,
) -> Option<&'static str> {
    let required = required(features);
    let feature = required.iter().find(|(there, _)| !there).map(|&(_, what)| what);
    feature.or_else(|| OPCODES.iter().find(|&&(code, _)| !has_opcode(code)).map(|&(_, what)| what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX_6_1: Features = Features {
        ext_arg: true,
        nodrop: true,
        skip_success: true,
        fast_poll: true,
        no_iowait: false,
    };

    #[test]
    fn the_set_of_linux_6_1_is_enough() {
        assert_eq!(first_missing(&LINUX_6_1, |_| true), None);
    }

    #[test]
    fn the_list_has_everything_by_its_name() {
        let all = list(Ok(LINUX_6_1), |code| Found::from(code != OPCODES[3].0));
        assert_eq!(all.len(), 4 + 1 + OPCODES.len());
        assert!(all.iter().all(|feature| feature.name.starts_with("IORING_")), "{all:?}");
        let lacking: Vec<_> =
            all.iter().filter(|it| it.found == Found::No).map(|it| it.name).collect();
        assert_eq!(lacking, ["IORING_FEAT_NO_IOWAIT (Linux 6.15)", "IORING_OP_ACCEPT (Linux 5.5)"]);
        let why = Found::NotAsked("there is no ring");
        let none = list(Err("there is no ring"), |_| why);
        assert!(none.len() == all.len() && none.iter().all(|it| it.found == why), "{none:?}");
    }

    #[test]
    fn each_missing_feature_is_named() {
        let without = |change: fn(&mut Features)| {
            let mut features = LINUX_6_1;
            change(&mut features);
            first_missing(&features, |_| true).unwrap_or("nothing")
        };
        assert!(without(|f| f.ext_arg = false).contains("EXT_ARG"));
        assert!(without(|f| f.nodrop = false).contains("NODROP"));
        assert!(without(|f| f.skip_success = false).contains("CQE_SKIP"));
        assert!(without(|f| f.fast_poll = false).contains("FAST_POLL"));
    }

    #[test]
    fn each_missing_opcode_is_named_and_the_oldest_first() {
        for (code, what) in OPCODES {
            assert_eq!(first_missing(&LINUX_6_1, |asked| asked != code), Some(what));
        }
        assert_eq!(first_missing(&LINUX_6_1, |_| false), Some(OPCODES[0].1));
    }
}
