//! The one place that knows whether the crate runs on the standard library's atomics or on loom's.

#[cfg(not(loom))]
mod shipped {
    use std::cell::Cell as StdCell;

    pub(crate) use std::alloc::{alloc, dealloc};
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize};

    thread_local! {
        // Const and without a destructor, so that its address can be asked for at any time of a
        // thread's life, also while its other thread locals are being destroyed. A `Cell` so that
        // no two of them are ever one.
        static MARK: StdCell<u8> = const { StdCell::new(0) };
    }

    /// A thread, told apart from every other living thread by the address of a thread local.
    ///
    /// A thread that started after the owner ended may have its address. It is then treated as the
    /// owner, which is sound: the owner's plain accesses all came before the end of its life, and
    /// nobody else makes any.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct OwnerId(usize);

    impl OwnerId {
        #[inline]
        pub(crate) fn current() -> OwnerId {
            MARK.with(|mark| OwnerId(std::ptr::from_ref(mark).addr()))
        }
    }

    /// Tells loom about uses of the arena and its end. Nothing here.
    #[derive(Debug)]
    pub(crate) struct Life;

    impl Life {
        pub(crate) fn new() -> Life {
            Life
        }

        #[inline]
        pub(crate) fn in_use(&self) {}

        #[inline]
        pub(crate) fn ended(&self) {}
    }
}

#[cfg(loom)]
mod modelled {
    pub(crate) use loom::alloc::{alloc, dealloc};
    pub(crate) use loom::cell::Cell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicUsize};

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct OwnerId(loom::thread::ThreadId);

    impl OwnerId {
        pub(crate) fn current() -> OwnerId {
            OwnerId(loom::thread::current().id())
        }
    }

    /// Loom sees plain reads of the arena as reads of this cell and its end as a write: a read not
    /// ordered before the end is a race it reports.
    #[derive(Debug)]
    pub(crate) struct Life(loom::cell::UnsafeCell<()>);

    impl Life {
        pub(crate) fn new() -> Life {
            Life(loom::cell::UnsafeCell::new(()))
        }

        pub(crate) fn in_use(&self) {
            self.0.with(|_| {});
        }

        pub(crate) fn ended(&self) {
            self.0.with_mut(|_| {});
        }
    }
}

#[cfg(loom)]
pub(crate) use modelled::*;
#[cfg(not(loom))]
pub(crate) use shipped::*;
