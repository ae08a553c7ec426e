//! Sets of tasks of the runtime the thread is in.

use rotor_executor::Spawn;

use crate::runtime::current_named;
use crate::task::{JoinHandle, SpawnError};

/// A set of tasks with outputs of one type, joined first ended, first out. Its tasks are spawned on
/// the runtime the thread is in.
///
/// Dropping the set aborts what is left in it. Ended tasks keep their places in the runtime's table
/// until they are joined, so a set is bounded as the table is, by the option `tasks`.
///
/// ```
/// use rotor::task::JoinSet;
///
/// # #[rotor::main]
/// # async fn main() {
/// let mut set = JoinSet::new();
/// for number in 0..3 {
///     set.spawn(async move { number * number });
/// }
/// let mut sum = 0;
/// while let Some(square) = set.join_next().await {
///     sum += square.unwrap();
/// }
/// assert_eq!(sum, 5);
/// # }
/// ```
///
/// Aborting what takes too long:
///
/// ```
/// # #[rotor::main]
/// # async fn main() {
/// let mut set = rotor::task::JoinSet::new();
/// let slow = set.spawn(std::future::pending::<u8>());
/// set.spawn(async { 1 });
/// assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
/// slow.abort();
/// assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
/// assert!(set.is_empty());
/// # }
/// ```
pub type JoinSet<T> = rotor_executor::JoinSet<T, CurrentRuntime>;

/// The runtime the thread is in, as what a [`JoinSet`] spawns on.
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentRuntime;

impl Spawn for CurrentRuntime {
    #[inline]
    #[track_caller]
    fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        current_named("JoinSet::spawn").executor.try_spawn(future)
    }
}
