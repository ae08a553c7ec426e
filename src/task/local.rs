//! Values that belong to a task, as thread locals belong to a thread.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use pin_project_lite::pin_project;

/// Declares task-local values: each becomes a static [`LocalKey`].
///
/// ```
/// rotor::task_local! {
///     /// Whom the task serves.
///     pub static CLIENT: u32;
///     static ROUNDS: std::cell::Cell<u8>;
/// }
///
/// # #[rotor::main]
/// # async fn main() {
/// CLIENT.scope(7, async {
///     assert_eq!(CLIENT.get(), 7);
///     // It belongs to this future, not to tasks spawned in it.
///     let seen = rotor::spawn(async { CLIENT.try_with(|client| *client).ok() }).await.unwrap();
///     assert_eq!(seen, None);
/// }).await;
/// # ROUNDS.sync_scope(std::cell::Cell::new(0), || ());
/// # }
/// ```
#[macro_export]
macro_rules! task_local {
    () => {};
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty $(; $($rest:tt)*)?) => {
        $(#[$attribute])*
        $visibility static $name: $crate::task::LocalKey<$type> = {
            ::std::thread_local! {
                static SLOT: ::std::cell::RefCell<::std::option::Option<$type>> =
                    const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }
            $crate::task::LocalKey::over(SLOT)
        };
        $($crate::task_local! { $($rest)* })?
    };
}

/// A value that is set while a future is polled and while it is dropped, and nowhere else. Declared
/// by [`task_local!`](crate::task_local).
pub struct LocalKey<T: 'static> {
    slot: thread::LocalKey<RefCell<Option<T>>>,
}

/// Why a task-local value could not be read: nobody has set it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the task-local value is not set here; read it inside the future given to `scope`",
        )
    }
}

impl Error for AccessError {}

/// Why a scope could not be entered.
enum EnterError {
    /// Somebody reads the value at the moment: the scope is inside a `with` of the same key.
    Borrowed,
    /// The thread's storage is being destroyed.
    Destroyed,
}

impl EnterError {
    #[cold]
    #[track_caller]
    fn panic(&self) -> ! {
        match self {
            EnterError::Borrowed => panic!(
                "rotor: a task-local scope is entered inside `with` of the same key; return from \
                 `with` first"
            ),
            EnterError::Destroyed => panic!(
                "rotor: a task-local scope is entered while the thread's storage is being \
                 destroyed; enter it before the thread ends"
            ),
        }
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn over(slot: thread::LocalKey<RefCell<Option<T>>>) -> LocalKey<T> {
        LocalKey { slot }
    }

    /// Makes a future that has the value set while it is polled and while it is dropped. A value
    /// set further out is set again in between.
    ///
    /// ```
    /// # rotor::task_local! { static NUMBER: u32; }
    /// # #[rotor::main]
    /// # async fn main() {
    /// NUMBER.scope(1, async {
    ///     NUMBER.scope(2, async { assert_eq!(NUMBER.get(), 2) }).await;
    ///     assert_eq!(NUMBER.get(), 1);
    /// }).await;
    /// # }
    /// ```
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> TaskLocalFuture<T, F> {
        TaskLocalFuture {
            key: self,
            value: Some(value),
            future: Some(future),
            _pinned: PhantomPinned,
        }
    }

    /// Sets the value while the closure runs, and returns what it returns.
    ///
    /// ```
    /// # rotor::task_local! { static NUMBER: u32; }
    /// assert_eq!(NUMBER.sync_scope(3, || NUMBER.get() + 1), 4);
    /// ```
    ///
    /// # Panics
    /// Inside [`with`](LocalKey::with) of the same key. While the thread's storage is being
    /// destroyed.
    #[track_caller]
    pub fn sync_scope<R>(&'static self, value: T, run: impl FnOnce() -> R) -> R {
        let mut value = Some(value);
        match self.entered(&mut value, run) {
            Ok(output) => output,
            Err(error) => error.panic(),
        }
    }

    /// Reads the value.
    ///
    /// # Panics
    /// Where it is not set.
    #[track_caller]
    pub fn with<R>(&'static self, read: impl FnOnce(&T) -> R) -> R {
        match self.try_with(read) {
            Ok(output) => output,
            Err(error) => panic!("rotor: {error}"),
        }
    }

    /// Reads the value.
    ///
    /// # Errors
    /// Where it is not set. The closure is not called.
    pub fn try_with<R>(&'static self, read: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let read_in = |slot: &RefCell<Option<T>>| match &*slot.borrow() {
            Some(value) => Ok(read(value)),
            None => Err(AccessError),
        };
        self.slot.try_with(read_in).unwrap_or(Err(AccessError))
    }

    /// A copy of the value.
    ///
    /// # Panics
    /// Where it is not set.
    #[track_caller]
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    /// A copy of the value.
    ///
    /// # Errors
    /// Where it is not set.
    pub fn try_get(&'static self) -> Result<T, AccessError>
    where
        T: Clone,
    {
        self.try_with(T::clone)
    }

    /// Has `value` in the slot while the closure runs, whether it returns or panics, and what was
    /// there before in `value`.
    fn entered<R>(
        &'static self,
        value: &mut Option<T>,
        run: impl FnOnce() -> R,
    ) -> Result<R, EnterError> {
        self.swap(value)?;
        let _entered = Entered { key: self, value };
        Ok(run())
    }

    fn swap(&'static self, value: &mut Option<T>) -> Result<(), EnterError> {
        let swap = |slot: &RefCell<Option<T>>| match slot.try_borrow_mut() {
            Ok(mut slot) => {
                std::mem::swap(&mut *slot, value);
                Ok(())
            }
            Err(_) => Err(EnterError::Borrowed),
        };
        self.slot.try_with(swap).unwrap_or(Err(EnterError::Destroyed))
    }
}

/// Swaps the values back.
struct Entered<'a, T: 'static> {
    key: &'static LocalKey<T>,
    value: &'a mut Option<T>,
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        // Every borrow that began in the scope has ended, and the storage was there when it did.
        let _ = self.key.swap(self.value);
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`LocalKey::scope`].
    ///
    /// # Panics
    /// Polling it inside [`LocalKey::with`] of the same key panics, and so does polling it again
    /// after it gave its output.
    #[must_use = "futures do nothing unless awaited"]
    pub struct TaskLocalFuture<T, F>
    where
        T: 'static,
    {
        key: &'static LocalKey<T>,
        // The value; while the future is polled, what was set further out.
        value: Option<T>,
        // Dropped as soon as it has ended, so that its destructor sees the value too.
        #[pin]
        future: Option<F>,
        #[pin]
        _pinned: PhantomPinned,
    }

    impl<T: 'static, F> PinnedDrop for TaskLocalFuture<T, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.future.is_some() {
                // Where the value cannot be set, the future is dropped all the same, without it.
                let _ = this.key.entered(this.value, || this.future.set(None));
            }
        }
    }
}

impl<T: 'static, F> TaskLocalFuture<T, F> {
    /// Takes the value out, usually after the future has ended. What runs of the future after that
    /// runs without it.
    pub fn take_value(self: Pin<&mut Self>) -> Option<T> {
        self.project().value.take()
    }
}

impl<T: 'static, F: Future> Future for TaskLocalFuture<T, F> {
    type Output = F::Output;

    #[track_caller]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let polled = this.key.entered(this.value, || {
            let future = this.future.as_mut().as_pin_mut()?;
            let polled = future.poll(cx);
            if polled.is_ready() {
                this.future.set(None);
            }
            Some(polled)
        });
        match polled {
            Ok(Some(polled)) => polled,
            Ok(None) => panic!("rotor: a task-local scope was polled after it gave its output"),
            Err(error) => error.panic(),
        }
    }
}

impl<T: 'static + fmt::Debug, F> fmt::Debug for TaskLocalFuture<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskLocalFuture").field("value", &self.value).finish_non_exhaustive()
    }
}
