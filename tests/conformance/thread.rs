//! Promise 9: a loop belongs to its thread, and what breaks a rule stops at a check that names it.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use rotor::net::{TcpListener, TcpSocket, TcpStream};
use rotor::runtime::Runtime;
use rotor::{
    Control, Drained, Event, Interest, Loop, Operation, OwnedOperation, SubmitError, Wait,
};

use crate::rig::*;

scenarios! {
    9 runtime "a loop ticked on another thread stops at a named check" => other_thread;
    9 runtime receive send shutdown close timer "a loop starts no thread" => no_thread;
    9 runtime "twenty loops live on one thread" => twenty_loops;
    9 runtime "loops of several threads do not meet" => several_threads;
    9 runtime "a child made by fork is refused by name, and the parent goes on" => fork;
    9 runtime "block_on inside block_on panics, and the outer one goes on" => nested;
    9 runtime "a call outside a runtime panics by name" => outside;
    9 control close accept connect receive send poll shutdown write_owned
        "descriptors of another loop are refused" => foreign_descriptors;
    9 control receive "handles and buffers of another loop are nobody's" => foreign_handles;
    9 receive read_exact read_buf ready send vectored write_owned shutdown
        "a stream under another runtime stops by name, and harms neither" => other_runtime;
    9 receive read_exact read_buf ready send vectored write_owned shutdown connect accept control
        "what outlives its runtime answers with an error" => outlives;
    9 close "a stream dropped under another runtime is closed by its own" => dropped_elsewhere;
    9 task "a panic stays in its task" => panics;
    9 close task "foreign code runs while nothing of the loop is borrowed" => destructors;
}

/// Carries to another thread what must not go there.
struct Smuggled<T>(T);

// SAFETY: none can be given, for that is the fault under test. The other thread makes one call, which
// compares threads before it touches anything, and this thread waits for it.
unsafe impl<T> Send for Smuggled<T> {}

fn other_thread() -> String {
    let mut smuggled = Smuggled(small_loop());
    let elsewhere = std::thread::spawn(move || {
        let whole = &mut smuggled;
        let ticked =
            catch_unwind(AssertUnwindSafe(|| whole.0.tick(&mut [Event::EMPTY], Wait::Zero)));
        let words = words_of(&*ticked.unwrap_err()).to_owned();
        (smuggled, words)
    });
    let (mut smuggled, words) = elsewhere.join().unwrap();
    assert_eq!(finish(&mut smuggled.0, Operation::nop()).result().unwrap(), 0);
    words
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn no_thread() {
    let mut event_loop = small_loop();
    let before = threads();
    let (stream, peer) = loop_pair(&mut event_loop);
    for _ in 0..5 {
        deliver(&peer, b"x");
        let event = finish(&mut event_loop, Operation::receive_picked(stream));
        take(&mut event_loop, &event);
        finish(&mut event_loop, send(stream, b"y"));
    }
    finish(&mut event_loop, Operation::shutdown(stream, Shutdown::Write));
    finish(&mut event_loop, Operation::close(stream));
    run(async {
        let (mut stream, client) = pair().await;
        deliver(&client, b"x");
        stream.read_exact(&mut [0]).await.unwrap();
        rotor::time::sleep(MILLISECOND).await;
        assert_eq!(threads(), before);
    });
    assert_eq!(threads(), before);
}

fn twenty_loops() {
    let mut loops: Vec<Loop> = (0..20).map(|_| small_loop()).collect();
    for _ in 0..2 {
        for event_loop in &mut loops {
            assert_eq!(finish(event_loop, Operation::nop()).result().unwrap(), 0);
        }
    }
    loops.drain(5..15);
    for event_loop in &mut loops {
        assert_eq!(finish(event_loop, Operation::nop()).result().unwrap(), 0);
    }
}

fn several_threads() {
    let talk = || {
        run(async {
            let (mut stream, client) = pair().await;
            for round in 0..20_u8 {
                deliver(&client, &[round]);
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                assert_eq!(byte, [round]);
            }
            rotor::time::sleep(MILLISECOND).await;
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(talk);
        }
    });
}

/// Runs `inside` in a child process and gives its exit code.
fn in_a_child(inside: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs what follows and ends in `_exit`. No other thread of this process holds a
    // lock that the child takes.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let code = catch_unwind(AssertUnwindSafe(inside)).unwrap_or(101);
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    libc::WEXITSTATUS(status)
}

fn fork() {
    let mut event_loop = small_loop();
    let (stream, peer) = loop_pair(&mut event_loop);
    event_loop.submit(Operation::receive_picked(stream), 1).unwrap();
    settle(&mut event_loop);
    let looped = &mut event_loop;
    let code = in_a_child(move || {
        let refused = looped.submit(Operation::nop(), 1) == Err(SubmitError::Forked);
        let ticked = looped.tick(&mut [Event::EMPTY], Wait::Forever);
        let words = ticked.err().map(|error| error.to_string()).unwrap_or_default();
        let drained = looped.drain(Duration::from_secs(9)) == Drained::default();
        let own = finish(&mut small_loop(), Operation::nop()).result().is_ok();
        i32::from(!(refused && words.contains("belongs to the parent process") && drained && own))
    });
    assert_eq!(code, 0);
    deliver(&peer, b"here");
    let event = the_final(&mut event_loop);
    assert_eq!(take(&mut event_loop, &event), b"here");
}

/// The words a call panics with.
fn words_of_panic(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it did not panic");
    words_of(&*panic).to_owned()
}

fn nested() {
    let outer = builder().build().unwrap();
    let inner = builder().build().unwrap();
    outer.block_on(async {
        for nested in [&outer, &inner] {
            let words = words_of_panic(|| nested.block_on(async {}));
            assert!(words.starts_with("rotor: block_on inside a runtime"), "{words}");
        }
        rotor::time::sleep(MILLISECOND).await;
    });
    assert_eq!(inner.block_on(async { 2 }), 2);
}

fn outside() {
    let words = words_of_panic(|| drop(rotor::spawn(async {})));
    assert!(words.contains("outside a runtime"), "{words}");
    let words = words_of_panic(|| drop(rotor::time::sleep(Duration::ZERO)));
    assert!(words.contains("outside a runtime"), "{words}");
    let words = words_of_panic(|| drop(poll_outside(TcpListener::bind(ANY_PORT))));
    assert!(words.contains("outside a runtime"), "{words}");
}

fn foreign_descriptors() {
    let (mut mine, mut other) = (small_loop(), small_loop());
    let (foreign, _peer) = loop_pair(&mut mine);
    let (_same_place, _other_peer) = loop_pair(&mut other);
    let closed = Err(SubmitError::Closed);
    assert_eq!(other.submit(Operation::close(foreign), 1), closed);
    assert_eq!(other.submit(Operation::receive_picked(foreign), 1), closed);
    assert_eq!(other.submit(send(foreign, b"lost"), 1), closed);
    assert_eq!(other.submit(Operation::accept(foreign), 1), closed);
    assert_eq!(other.submit(Operation::connect(foreign, ([127, 0, 0, 1], 9).into()), 1), closed);
    assert_eq!(other.submit(Operation::poll(foreign, Interest::Readable), 1), closed);
    assert_eq!(other.submit(Operation::shutdown(foreign, Shutdown::Both), 1), closed);
    assert_eq!(other.send_now(foreign, b"lost").unwrap_err().kind(), ErrorKind::NotConnected);
    assert!(other.control(Control::SetNoDelay(foreign, true)).is_err());
    let receive = OwnedOperation::Receive { descriptor: foreign };
    let (refused, bytes) = other.submit_owned(receive, vec![5; 8], 1).unwrap_err();
    assert_eq!((refused, bytes), (SubmitError::Closed, vec![5; 8]));
    assert_eq!(other.statistics().owned_buffers.now, 0);
    assert_eq!(finish(&mut mine, send(foreign, b"mine")).result().unwrap(), 4);
}

fn foreign_handles() {
    let (mut mine, mut other) = (small_loop(), small_loop());
    let begin = |event_loop: &mut Loop| {
        let (descriptor, peer) = loop_pair(event_loop);
        let receive = OwnedOperation::Receive { descriptor };
        let (handle, orphan) = event_loop.submit_owned(receive, vec![5; 8], 1).unwrap();
        settle(event_loop);
        (handle, orphan, peer)
    };
    let (handle, orphan, _peer) = begin(&mut mine);
    let (others, _, _other_peer) = begin(&mut other);
    assert!(!other.cancel(handle) && other.reclaim(orphan).is_none());
    assert!(cancel(&mut mine, handle).is_canceled());
    assert_eq!(mine.reclaim(orphan).unwrap(), [5; 8]);
    assert!(cancel(&mut other, others).is_canceled());
}

fn other_runtime() -> String {
    let (first, second) = (builder().build().unwrap(), builder().build().unwrap());
    let (mut stream, client) = first.block_on(pair());
    let words = words_of_panic(|| drop(second.block_on(stream.read(&mut [0]))));
    let pieces = [std::io::IoSlice::new(b"x")];
    let others = [
        words_of_panic(|| drop(second.block_on(stream.read_exact(&mut [0])))),
        words_of_panic(|| drop(second.block_on(stream.read_buf()))),
        words_of_panic(|| drop(second.block_on(stream.readable()))),
        words_of_panic(|| drop(second.block_on(stream.write(b"x")))),
        words_of_panic(|| drop(second.block_on(stream.write_vectored(&pieces)))),
        words_of_panic(|| drop(second.block_on(stream.write_owned(vec![1])))),
        words_of_panic(|| drop(second.block_on(stream.shutdown()))),
    ];
    assert!(others.iter().all(|other| *other == words), "{others:?}");
    second.block_on(async { rotor::time::sleep(MILLISECOND).await });
    deliver(&client, b"home");
    let mut four = [0; 4];
    first.block_on(async { stream.read_exact(&mut four).await.unwrap() });
    assert_eq!(&four, b"home");
    words
}

fn outlives() -> String {
    let runtime = builder().build().unwrap();
    let (mut stream, listener, socket, _client) = runtime.block_on(async {
        let (stream, client) = pair().await;
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        (stream, listener, TcpSocket::new_v4().unwrap(), client)
    });
    assert_eq!(runtime.shut_down().leaked, 0);
    let mut kinds = Vec::new();
    run(async {
        kinds.push(stream.read(&mut [0]).await.unwrap_err().kind());
        kinds.push(stream.read_exact(&mut [0]).await.unwrap_err().kind());
        kinds.push(stream.read_buf().await.map(drop).unwrap_err().kind());
        kinds.push(stream.peek(&mut [0]).await.unwrap_err().kind());
        kinds.push(stream.try_read(&mut [0]).unwrap_err().kind());
        kinds.push(stream.readable().await.unwrap_err().kind());
        kinds.push(stream.write(b"x").await.unwrap_err().kind());
        let pieces = [std::io::IoSlice::new(b"x")];
        kinds.push(stream.write_vectored(&pieces).await.unwrap_err().kind());
        kinds.push(socket.local_addr().unwrap_err().kind());
        let connecting = socket.connect(([127, 0, 0, 1], 9).into());
        kinds.push(connecting.await.map(drop).unwrap_err().kind());
        let (written, kept) = stream.write_owned(vec![1, 2]).await;
        assert_eq!(kept, [1, 2]);
        kinds.push(written.unwrap_err().kind());
        kinds.push(stream.shutdown().await.unwrap_err().kind());
        kinds.push(listener.accept().await.map(drop).unwrap_err().kind());
        kinds.push(stream.local_addr().unwrap_err().kind());
    });
    drop((stream, listener));
    format!("{kinds:?}")
}

fn dropped_elsewhere() {
    let (first, second) = (builder().build().unwrap(), builder().build().unwrap());
    let (stream, client) = first.block_on(pair());
    second.block_on(async move { drop(stream) });
    first.block_on(ticks());
    assert_eq!(first.statistics().event_loop.sockets.now, 0);
    assert_eq!(read_all(client).join().unwrap().unwrap(), b"");
}

fn panics() {
    run(async {
        let error = rotor::spawn(async { panic!("contained") }).await.map(drop).unwrap_err();
        assert!(error.is_panic());
        assert_eq!(rotor::spawn(async { 1 }).await.unwrap(), 1);
    });
}

/// Uses the runtime while it is dropped.
struct Uses {
    stream: Option<TcpStream>,
    count: Rc<Cell<u32>>,
}

impl Drop for Uses {
    fn drop(&mut self) {
        self.count.set(self.count.get() + 1);
        let _ = rotor::task::try_spawn(async {});
        drop(rotor::time::try_sleep(MILLISECOND));
        if let Some(stream) = &self.stream {
            let _ = stream.try_write(b"bye");
        }
    }
}

fn destructors() {
    let count = Rc::new(Cell::new(0));
    let runtime: Runtime = builder().build().unwrap();
    let clients = runtime.block_on(async {
        let mut clients = Vec::new();
        for aborted in [true, false] {
            let (stream, client) = pair().await;
            let uses = Uses { stream: Some(stream), count: count.clone() };
            let task = rotor::spawn(async move {
                let uses = uses;
                uses.stream.as_ref().unwrap().readable().await.unwrap();
            });
            ticks().await;
            if aborted {
                task.abort();
            }
            clients.push(client);
        }
        ticks().await;
        assert_eq!(count.get(), 1);
        clients
    });
    assert_eq!(runtime.shut_down().leaked, 0);
    assert_eq!(count.get(), 2);
    for client in clients {
        assert_eq!(read_all(client).join().unwrap().unwrap(), b"bye");
    }
}
