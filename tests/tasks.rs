//! Tasks as a program sees them: sets, abort handles, task-local values.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rotor::runtime::{Builder, Runtime};
use rotor::task::{AbortHandle, JoinSet, spawn_local, yield_now};
use rotor::time::{sleep, timeout};

rotor::task_local! {
    static NUMBER: u32;
    /// Attributes and visibilities are kept.
    pub(crate) static WORDS: RefCell<Vec<&'static str>>
}

fn number() -> Option<u32> {
    NUMBER.try_with(|number| *number).ok()
}

/// Notes the number it sees when it is dropped.
struct Sees(Rc<Cell<Option<u32>>>);

impl Drop for Sees {
    fn drop(&mut self) {
        self.0.set(number());
    }
}

fn message_of(run: impl FnOnce()) -> String {
    let run = std::panic::AssertUnwindSafe(run);
    let payload = std::panic::catch_unwind(run).expect_err("it panics");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_string(),
    }
}

#[rotor::test]
async fn a_set_joins_tasks_in_the_order_in_which_they_end() {
    let mut set = JoinSet::new();
    for milliseconds in [30, 5, 15] {
        set.spawn(async move {
            sleep(Duration::from_millis(milliseconds)).await;
            milliseconds
        });
    }
    let mut joined = Vec::new();
    while let Some(output) = set.join_next().await {
        joined.push(output.unwrap());
    }
    assert_eq!(joined, [5, 15, 30]);
}

#[rotor::test]
async fn a_join_next_that_timed_out_lost_nothing() {
    let mut set = JoinSet::new();
    set.spawn_local(async {
        sleep(Duration::from_millis(30)).await;
        1
    });
    assert!(timeout(Duration::from_millis(1), set.join_next()).await.is_err());
    assert_eq!(set.len(), 1);
    assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
    assert!(set.join_next().await.is_none());
}

#[rotor::test]
async fn a_set_shuts_down_joins_all_and_detaches() {
    let mut set = JoinSet::<u32>::default();
    set.spawn(pending());
    set.shutdown().await;
    assert!(set.is_empty());
    set.spawn(async { 2 });
    set.spawn(async { 3 });
    assert_eq!(set.join_all().await, [2, 3]);
    let done = Rc::new(Cell::new(false));
    let inside = done.clone();
    let mut set = JoinSet::new();
    set.spawn(async move {
        yield_now().await;
        inside.set(true);
    });
    set.detach_all();
    drop(set);
    sleep(Duration::from_millis(1)).await;
    assert!(done.get());
}

#[test]
fn a_full_table_refuses_a_sets_task_and_the_set_goes_on() {
    let runtime = Builder::new().tasks(2).build().unwrap();
    runtime.block_on(async {
        let mut set = JoinSet::new();
        set.spawn(async { 1 });
        set.spawn(async { 2 });
        let error = set.try_spawn(async { 3 }).unwrap_err();
        assert!(error.to_string().contains("raise `tasks`"), "{error}");
        assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
        set.try_spawn(async { 4 }).unwrap();
        assert_eq!(set.join_all().await, [2, 4]);
    });
}

#[test]
fn spawning_into_a_set_outside_a_runtime_names_the_rule() {
    let message = message_of(|| {
        JoinSet::new().spawn(async {});
    });
    assert!(message.starts_with("rotor: JoinSet::spawn is called outside a runtime"), "{message}");
    let message = message_of(|| drop(spawn_local(async {})));
    assert!(message.starts_with("rotor: spawn_local is called outside a runtime"), "{message}");
}

#[test]
fn a_set_and_abort_handles_outlive_their_runtime() {
    let runtime = Runtime::new().unwrap();
    let (mut set, abort) = runtime.block_on(async {
        let mut set = JoinSet::new();
        set.spawn(async { 1 });
        let abort: AbortHandle = set.spawn(pending());
        yield_now().await;
        (set, abort)
    });
    drop(runtime);
    assert!(abort.is_finished());
    assert_eq!(set.try_join_next().unwrap().unwrap(), 1);
    assert!(set.try_join_next().unwrap().unwrap_err().is_cancelled());
    assert!(set.try_join_next().is_none());
}

#[rotor::test]
async fn an_abort_handle_ends_a_task_that_sleeps() {
    let task = spawn_local(sleep(Duration::from_secs(3600)));
    let abort = task.abort_handle();
    yield_now().await;
    abort.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(abort.is_finished());
}

#[rotor::test]
async fn a_task_local_value_is_set_in_every_poll_of_its_future_and_nowhere_else() {
    assert_eq!(number(), None);
    let scoped = |value| {
        NUMBER.scope(value, async move {
            for _ in 0..3 {
                assert_eq!(NUMBER.get(), value);
                yield_now().await;
            }
            NUMBER.with(|number| *number)
        })
    };
    let (first, second) = (rotor::spawn(scoped(1)), rotor::spawn(scoped(2)));
    yield_now().await;
    assert_eq!(number(), None);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (1, 2));
    assert_eq!(NUMBER.try_get().ok(), None);
}

#[rotor::test]
async fn scopes_nest_and_a_spawned_task_is_outside() {
    NUMBER
        .scope(1, async {
            let seen =
                NUMBER.scope(2, async { (number(), rotor::spawn(async { number() }).await) });
            let (inside, spawned) = seen.await;
            assert_eq!((inside, spawned.unwrap(), number()), (Some(2), None, Some(1)));
            assert_eq!(NUMBER.sync_scope(3, || NUMBER.get()), 3);
            assert_eq!(number(), Some(1));
        })
        .await;
    let words = WORDS.scope(RefCell::default(), async {
        WORDS.with(|words| words.borrow_mut().push("one"));
        yield_now().await;
        WORDS.with(|words| words.borrow_mut().push("two"));
        WORDS.with(|words| words.take())
    });
    assert_eq!(words.await, ["one", "two"]);
}

#[rotor::test]
async fn a_task_local_value_is_set_while_its_future_is_dropped() {
    // Unfinished.
    let seen = Rc::new(Cell::new(None));
    let sees = Sees(seen.clone());
    let task = rotor::spawn(NUMBER.scope(4, async move {
        let _sees = sees;
        pending::<()>().await;
    }));
    yield_now().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(seen.take(), Some(4));
    // Never polled.
    let sees = Sees(seen.clone());
    drop(NUMBER.scope(5, async move { drop(sees) }));
    assert_eq!(seen.take(), Some(5));
    // Finished, with a future that still owns it.
    let sees = Sees(seen.clone());
    let mut scope = pin!(NUMBER.scope(
        6,
        poll_fn(move |_| {
            let _ = &sees;
            Poll::Ready(())
        })
    ));
    scope.as_mut().await;
    assert_eq!(seen.take(), Some(6));
    assert_eq!(scope.as_mut().take_value(), Some(6));
    assert_eq!((scope.take_value(), number()), (None, None));
}

#[rotor::test]
async fn a_panic_in_a_scope_puts_back_what_was_set_before() {
    NUMBER
        .scope(1, async {
            let message = message_of(|| NUMBER.sync_scope(2, || panic!("on purpose")));
            assert_eq!((message.as_str(), number()), ("on purpose", Some(1)));
        })
        .await;
}

#[test]
fn misuse_of_task_local_values_is_named() {
    let message = message_of(|| {
        let _ = NUMBER.get();
    });
    assert!(message.contains("the task-local value is not set here"), "{message}");
    let message = message_of(|| {
        NUMBER.sync_scope(1, || NUMBER.with(|_| NUMBER.sync_scope(2, || ())));
    });
    assert!(message.contains("inside `with` of the same key"), "{message}");
    let message = message_of(|| {
        let mut scope = pin!(NUMBER.scope(1, async {}));
        let mut poll = || Pin::as_mut(&mut scope).poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_ready());
        let _ = poll();
    });
    assert!(message.contains("polled after it gave its output"), "{message}");
    assert_eq!(number(), None);
}
