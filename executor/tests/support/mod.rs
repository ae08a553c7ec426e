//! What the tests share: executors, a blocking loop, counters of wakes and drops.
#![allow(dead_code, unreachable_pub)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use rotor_executor::{Executor, JoinHandle, Options, Oversized, Turn, coop};

/// An executor of a few tasks whose unpark hook unparks this thread.
pub fn executor(tasks: u32) -> Rc<Executor> {
    executor_of(Options { tasks, task_bytes: 512, oversized: Oversized::Heap })
}

pub fn executor_of(options: Options) -> Rc<Executor> {
    let thread = std::thread::current();
    Rc::new(Executor::new(options, Arc::new(move || thread.unpark())).unwrap())
}

/// Runs until nothing is ready. Nobody polls a main future.
pub fn run_all(executor: &Executor) -> u32 {
    let mut polls_left = 1_000_000;
    assert_eq!(executor.run(&mut polls_left), Turn::Idle);
    1_000_000 - polls_left
}

/// Polls a future as the main future, parking the thread while nothing is ready.
pub fn block_on<F: Future>(executor: &Executor, future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = executor.main_waker();
    let mut cx = Context::from_waker(&waker);
    executor.wake_main();
    loop {
        let mut polls_left = 64;
        match executor.run(&mut polls_left) {
            Turn::Main => {
                coop::reset();
                let polled = future.as_mut().poll(&mut cx);
                coop::lift();
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            Turn::Spent => {}
            Turn::Idle => {
                if executor.prepare_wait() {
                    std::thread::park();
                }
            }
        }
    }
}

/// Polls a join handle once, with a waker that does nothing.
pub fn poll_once<T>(handle: &mut JoinHandle<T>) -> Poll<Result<T, rotor_executor::JoinError>> {
    std::pin::Pin::new(handle).poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of a task that has finished.
pub fn output_of<T>(mut handle: JoinHandle<T>) -> Result<T, rotor_executor::JoinError> {
    match poll_once(&mut handle) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the task has not finished"),
    }
}

/// A waker that counts its wakes.
#[derive(Default)]
pub struct CountingWaker(AtomicUsize);

impl CountingWaker {
    pub fn wakes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Counts its drops, and insists on being dropped on the thread that made it.
pub struct DropCounter {
    drops: Rc<Cell<u32>>,
    thread: std::thread::ThreadId,
}

impl DropCounter {
    pub fn new(drops: &Rc<Cell<u32>>) -> DropCounter {
        DropCounter { drops: drops.clone(), thread: std::thread::current().id() }
    }
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        assert_eq!(self.thread, std::thread::current().id());
        self.drops.set(self.drops.get() + 1);
    }
}

/// Runs a closure when dropped.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Lets a test see a task's polls and hold its waker. Pending until `open` is called.
#[derive(Clone, Default)]
pub struct Gate {
    pub polls: Rc<Cell<u32>>,
    pub waker: Rc<RefCell<Option<Waker>>>,
    open: Rc<Cell<bool>>,
}

impl Gate {
    pub fn open(&self) {
        self.open.set(true);
        self.wake();
    }

    pub fn wake(&self) {
        let waker = self.waker.borrow().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.polls.set(self.polls.get() + 1);
        if self.open.get() {
            return Poll::Ready(());
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Hides the messages of panics that a test causes on purpose. For the whole process, for good.
pub fn quiet_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = info.payload().downcast_ref::<&str>().copied().unwrap_or("");
            if !message.contains("on purpose") {
                shown(info);
            }
        }));
    });
}
