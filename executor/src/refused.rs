//! Tasks that are not admitted.

use std::alloc::Layout;

use crate::arena::Arena;
use crate::error::SpawnError;

/// Why a task was not admitted.
pub(crate) enum Refused {
    NoRoom(SpawnError),
    /// The executor shuts down.
    Closing,
}

impl Arena {
    #[cold]
    pub(crate) fn refuse_full(&self) -> Refused {
        if self.local.closing.get() {
            return Refused::Closing;
        }
        self.refuse(SpawnError::Full { limit: self.plan.tasks })
    }

    #[cold]
    pub(crate) fn refuse_large(&self, layout: Layout) -> Refused {
        self.refuse(SpawnError::TooLarge {
            bytes: layout.size(),
            align: layout.align(),
            task_bytes: self.plan.cell_bytes,
        })
    }

    #[cold]
    pub(crate) fn refuse(&self, error: SpawnError) -> Refused {
        self.local.refused.set(self.local.refused.get() + 1);
        Refused::NoRoom(error)
    }
}
