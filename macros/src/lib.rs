//! The attributes `#[rotor::main]` and `#[rotor::test]`.
//!
//! Use them through the crate `rotor`, which re-exports both. This crate depends on nothing else
//! of rotor's: it writes the path `::rotor` into its expansion, and the compiler finds it in the
//! user's crate.
//!
//! What is computed and what is done are apart: `arguments` reads the attribute, `function`
//! reads the function under it, `expand` joins the two. All three work on `proc_macro2` tokens,
//! so they are tested here without a compiler around them.

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used)]

mod arguments;
mod expand;
mod function;

use proc_macro::TokenStream;

/// Makes an `async fn main` the program's entry: builds a runtime, and runs the body on it.
///
/// ```
/// # extern crate self as rotor;
/// # pub use rotor_macros::main;
/// # pub mod runtime {
/// #     #[derive(Debug)]
/// #     pub struct Builder;
/// #     impl Builder {
/// #         pub fn new() -> Self { Self }
/// #         pub fn build(self) -> std::io::Result<Self> { Ok(self) }
/// #         pub fn block_on<F: Future>(&self, f: F) -> F::Output {
/// #             let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #             match std::pin::pin!(f).poll(&mut context) {
/// #                 std::task::Poll::Ready(output) => output,
/// #                 std::task::Poll::Pending => panic!("the example waits"),
/// #             }
/// #         }
/// #     }
/// # }
/// #[rotor::main]
/// async fn main() -> std::io::Result<()> {
///     println!("runs on the runtime");
///     Ok(())
/// }
/// ```
///
/// # Arguments
///
/// Each is `name = value` and sets the option of the same name on `rotor::runtime::Builder`. The
/// value is any expression. What is not named keeps its default.
///
/// | name | what it bounds |
/// |---|---|
/// | `operations` | operations in flight at once |
/// | `sockets` | open sockets and listeners |
/// | `timers` | armed timers |
/// | `tasks` | tasks that have not ended |
/// | `task_bytes` | size of a task's cell; a larger future goes to the heap or is refused |
/// | `buffers` | receive buffers shared by all streams |
/// | `buffer_bytes` | size of one of them |
/// | `ring_entries` | entries of the submission ring |
/// | `spin_budget` | a `Duration`: how long an idle loop polls before it sleeps |
/// | `timer_slack` | a `Duration`: how much later than due a timer may fire, with others |
/// | `start_paused` | a `bool`: the clock stands still from the start, for tests |
/// | `drain` | a `Duration`: how long shutdown waits for the kernel to end what is in flight |
///
/// One more, `crate = some::path`, says where the crate `rotor` is found if not at `::rotor`: after
/// a rename, or through another crate's re-export.
///
/// ```
/// # extern crate self as rotor;
/// # pub use rotor_macros::main;
/// # pub mod runtime {
/// #     #[derive(Debug)]
/// #     pub struct Builder;
/// #     impl Builder {
/// #         pub fn new() -> Self { Self }
/// #         pub fn tasks(self, _: u32) -> Self { self }
/// #         pub fn drain(self, _: std::time::Duration) -> Self { self }
/// #         pub fn build(self) -> std::io::Result<Self> { Ok(self) }
/// #         pub fn block_on<F: Future>(&self, f: F) -> F::Output {
/// #             let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #             match std::pin::pin!(f).poll(&mut context) {
/// #                 std::task::Poll::Ready(output) => output,
/// #                 std::task::Poll::Pending => panic!("the example waits"),
/// #             }
/// #         }
/// #     }
/// # }
/// use std::time::Duration;
///
/// #[rotor::main(tasks = 64, drain = Duration::from_millis(500))]
/// async fn main() {
///     println!("at most 64 tasks; half a second to shut down");
/// }
/// ```
///
/// # What it becomes
///
/// ```text
/// fn main() -> std::io::Result<()> {
///     async fn main() -> std::io::Result<()> {
///         /* the body */
///     }
///     ::rotor::runtime::Builder::new()
///         .tasks(64)
///         .build()
///         .unwrap_or_else(|error| panic!("rotor: cannot start the runtime: {error}"))
///         .block_on(main())
/// }
/// ```
///
/// # Panics
///
/// The program panics at its start if the runtime cannot be built. The text names the first thing
/// that the kernel lacks or refuses. A program that wants the error as a value calls the builder
/// itself.
///
/// # Errors
///
/// It does not compile where the function is not `async`, takes arguments or is generic, or where
/// an argument of the attribute is unknown or repeated.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Main, arguments.into(), item.into()).into()
}

/// Makes an `async fn` a test that runs on a runtime of its own.
///
/// It takes the arguments of [`main`](macro@main), and adds `#[test]` itself. Other attributes, as
/// `#[should_panic]`, stay with the test.
///
/// ```
/// # extern crate self as rotor;
/// # pub use rotor_macros::test;
/// # fn main() {}
/// #[rotor::test(tasks = 8)]
/// async fn two_and_two_are_four() {
///     assert_eq!(2 + 2, 4);
/// }
/// ```
///
/// # Panics
///
/// The test fails if the runtime cannot be built, with the text that [`main`](macro@main) uses.
///
/// # Errors
///
/// It does not compile where [`main`](macro@main) would not, or where the function is marked as a
/// test already: it would run twice.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(expand::Entry::Test, arguments.into(), item.into()).into()
}
