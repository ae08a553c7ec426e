//! A set of tasks, joined in the order in which they end.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{RefUnwindSafe, UnwindSafe, resume_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::contain::wake;
use crate::coop;
use crate::error::{JoinError, SpawnError};
use crate::executor::{Executor, refused};
use crate::join::{AbortHandle, JoinHandle};
use crate::joiner::{Finished, Member};

/// Where a [`JoinSet`] spawns its tasks: an executor, or whoever knows the current one.
pub trait Spawn {
    /// Spawns a task, as [`Executor::try_spawn`] does.
    ///
    /// # Errors
    ///
    /// There is no room: see [`SpawnError`]. The future is dropped.
    #[track_caller]
    fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static;
}

impl Spawn for Executor {
    #[inline]
    fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        Executor::try_spawn(self, future)
    }
}

impl<S: Spawn> Spawn for Rc<S> {
    #[inline]
    fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        S::try_spawn(self, future)
    }
}

/// A set of tasks with outputs of one type, joined first ended, first out.
///
/// Dropping the set aborts the tasks that are left in it. A task that has ended keeps its place in
/// the executor's table until it is joined, so what a set holds is bounded as the table is. A set
/// allocates when it grows beyond the most tasks it ever held at once, and never for a task after
/// that.
///
/// `S` is where tasks are spawned. In a program that uses the runtime it is the runtime the thread
/// is in, and the type is spelled `rotor::task::JoinSet<T>`.
///
/// ```
/// # use std::{rc::Rc, sync::Arc};
/// # use rotor_executor::{Executor, JoinSet, Options, yield_now};
/// let executor = Rc::new(Executor::new(Options::default(), Arc::new(|| {}))?);
/// let mut set = JoinSet::on(executor.clone());
/// for turns in [2, 0, 1] {
///     set.spawn(async move {
///         for _ in 0..turns {
///             yield_now().await;
///         }
///         turns
///     });
/// }
/// let _ = executor.run(&mut 64);
/// let mut ended = Vec::new();
/// while let Some(output) = set.try_join_next() {
///     ended.push(output.unwrap());
/// }
/// assert_eq!(ended, [0, 1, 2]);
/// # Ok::<(), rotor_executor::CreateError>(())
/// ```
pub struct JoinSet<T, S> {
    spawner: S,
    places: Vec<Place<T>>,
    /// The numbers of the places without a task.
    free: Vec<usize>,
    finished: Rc<Finished>,
}

struct Place<T> {
    member: Rc<Member>,
    handle: Option<JoinHandle<T>>,
}

// Handles are rights to values and no access to them: a panic elsewhere leaves nothing of it broken.
impl<T, S: UnwindSafe> UnwindSafe for JoinSet<T, S> {}
impl<T, S: RefUnwindSafe> RefUnwindSafe for JoinSet<T, S> {}

impl<T, S: Default> JoinSet<T, S> {
    /// An empty set.
    pub fn new() -> JoinSet<T, S> {
        JoinSet::on(S::default())
    }
}

impl<T, S: Default> Default for JoinSet<T, S> {
    fn default() -> JoinSet<T, S> {
        JoinSet::new()
    }
}

impl<T, S> JoinSet<T, S> {
    /// An empty set whose tasks are spawned here.
    pub fn on(spawner: S) -> JoinSet<T, S> {
        JoinSet { spawner, places: Vec::new(), free: Vec::new(), finished: Rc::default() }
    }

    /// How many tasks are in the set: those that run, and those that have ended and are not joined.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether no task is in the set.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next task to end and gives its output, or a [`JoinError`] if it panicked or
    /// was aborted. `None` if the set is empty.
    ///
    /// Dropping the future loses nothing: what has ended stays in the set.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// What the longest-ended task gave, without waiting. `None` if none has ended.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let place = self.finished.pop()?;
        let mut handle = self.places[place].handle.take();
        self.free.push(place);
        handle.as_mut().map(JoinHandle::take)
    }

    /// As [`join_next`](JoinSet::join_next), for use in a future's `poll`. Of the tasks that poll
    /// one set the last one is woken.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.is_empty() {
            return Poll::Ready(None);
        }
        if self.finished.is_empty() {
            self.finished.wake_at_next(cx.waker());
            // Storing a waker is foreign code, which may have run the executor.
            if self.finished.is_empty() {
                return Poll::Pending;
            }
        }
        ready!(coop::poll_proceed(cx));
        coop::spend();
        Poll::Ready(self.try_join_next())
    }

    /// Aborts every task, as [`JoinHandle::abort`] does. Aborted tasks stay in the set until they
    /// are joined.
    pub fn abort_all(&mut self) {
        for handle in self.places.iter().filter_map(|place| place.handle.as_ref()) {
            handle.abort();
        }
    }

    /// Aborts every task and waits until all are over. Their outputs and errors are dropped.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Waits for every task and gives their outputs in the order in which they ended.
    ///
    /// # Panics
    ///
    /// As soon as a task has ended without an output: with its own panic, or with the words of its
    /// [`JoinError`] if it was aborted. The rest are aborted then, as when this future is dropped.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.len());
        while let Some(output) = self.join_next().await {
            match output.map_err(JoinError::try_into_panic) {
                Ok(output) => outputs.push(output),
                Err(Ok(payload)) => resume_unwind(payload),
                Err(Err(error)) => panic!("{error}"),
            }
        }
        outputs
    }

    /// Takes all tasks out of the set. They go on by themselves; outputs that are there are
    /// dropped.
    pub fn detach_all(&mut self) {
        self.finished.clear();
        self.free.clear();
        for (number, place) in self.places.iter_mut().enumerate() {
            self.free.push(number);
            drop(place.handle.take());
        }
    }

    fn insert(&mut self, handle: JoinHandle<T>) -> AbortHandle {
        let abort_handle = handle.abort_handle();
        let number = match self.free.pop() {
            Some(number) => number,
            None => self.grow(),
        };
        let place = &mut self.places[number];
        let ended = handle.report_to(place.member.clone());
        place.handle = Some(handle);
        ended.into_iter().for_each(wake);
        abort_handle
    }

    #[cold]
    fn grow(&mut self) -> usize {
        let number = self.places.len();
        self.places.push(Place { member: Member::new(number, &self.finished), handle: None });
        // So that neither a task's end nor joining it ever allocates.
        self.finished.reserve(self.places.capacity());
        self.free.reserve(self.places.capacity());
        number
    }
}

impl<T: 'static, S: Spawn> JoinSet<T, S> {
    /// Spawns a task into the set.
    ///
    /// # Panics
    ///
    /// If there is no room, with the words of the [`SpawnError`]; [`try_spawn`](JoinSet::try_spawn)
    /// returns it instead. Where the thread's current runtime is what spawns: outside of one.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        match self.try_spawn(future) {
            Ok(handle) => handle,
            Err(error) => refused(error),
        }
    }

    /// Another name of [`spawn`](JoinSet::spawn): every task stays on the thread and none need be
    /// `Send`.
    ///
    /// # Panics
    ///
    /// As `spawn`.
    #[track_caller]
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.spawn(future)
    }

    /// Spawns a task into the set if there is room.
    ///
    /// # Errors
    ///
    /// There is none: see [`SpawnError`]. The future is dropped, and the set is as before.
    ///
    /// # Panics
    ///
    /// Where the thread's current runtime is what spawns: outside of one.
    #[track_caller]
    pub fn try_spawn<F>(&mut self, future: F) -> Result<AbortHandle, SpawnError>
    where
        F: Future<Output = T> + 'static,
    {
        let handle = self.spawner.try_spawn(future)?;
        Ok(self.insert(handle))
    }
}

impl<T, S> Drop for JoinSet<T, S> {
    fn drop(&mut self) {
        self.abort_all();
        self.detach_all();
    }
}

impl<T, S> fmt::Debug for JoinSet<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}
