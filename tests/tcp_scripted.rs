//! TCP on a backend that answers from a script: what is asked of it, and what is not.

mod support;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use rotor::backend::Request;
use rotor::backend::scripted::{Asked, Script, scripted};
use rotor::limits::{BULK_BYTES_MIN, TRANSFER_BYTES_MAX};
use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::task::yield_now;
use rotor::time::sleep;
use support::{MILLISECOND, PATIENCE, poll_once, watched, words_of};

/// A runtime on a script.
fn start() -> (Runtime, Script) {
    start_as(Builder::new())
}

fn start_as(builder: Builder) -> (Runtime, Script) {
    let (backend, script) = scripted();
    (builder.build_with_backend(Box::new(backend)).unwrap(), script)
}

/// A stream that is accepted as the first thing asked, and its listener.
async fn accepted(script: &Script) -> (TcpListener, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
    assert!(poll_once(listener.accept()).await.is_none());
    script.answer(script.asked().len() - 1, 1_000_500);
    let (stream, _) = listener.accept().await.unwrap();
    (listener, stream)
}

/// Waits until so many things have been asked: a receive is asked for before the next tick.
async fn asked(script: &Script, count: usize) {
    while script.asked().len() < count {
        yield_now().await;
    }
}

#[test]
fn numbers_of_a_programs_backend_are_lent_to_nobody_and_given_to_nobody() {
    const WORDS: &str = "this runtime's backend is the program's, and its numbers are not the \
                         system's descriptors";
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (listener, mut stream) = accepted(&script).await;
        // A receive and an accept are in flight, and stay.
        assert!(poll_once(stream.read(&mut [0])).await.is_none());
        asked(&script, 2).await;
        assert!(poll_once(listener.accept()).await.is_none());
        let refused = [
            catch_unwind(AssertUnwindSafe(|| _ = stream.as_fd())),
            catch_unwind(AssertUnwindSafe(|| _ = stream.as_raw_fd())),
            catch_unwind(AssertUnwindSafe(|| _ = listener.as_fd())),
            catch_unwind(AssertUnwindSafe(|| _ = listener.as_raw_fd())),
        ];
        for (refused, what) in refused.into_iter().zip(["Stream", "Stream", "Listener", "Listener"])
        {
            let panic = refused.expect_err("made-up numbers");
            let words = format!("rotor: this Tcp{what} has no descriptor: {WORDS}");
            assert_eq!(words_of(&*panic), words);
        }
        let kept = stream.into_std().await.unwrap_err();
        assert_eq!(kept.error().kind(), ErrorKind::Unsupported);
        assert_eq!(kept.error().to_string(), WORDS);
        let listener = listener.into_std().await.unwrap_err().socket;
        assert!(script.asked().iter().all(|asked| !asked.canceled), "something was canceled");
        // A tick provides buffers.
        sleep(MILLISECOND).await;
        script.answer_bytes(1, b"x", false);
        let (mut stream, mut byte) = (kept.socket, [0]);
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
        drop(listener);
    });
}

#[test]
fn a_lease_that_ends_a_receive_leaves_the_writers_poll_for_room_alone() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_listener, stream) = accepted(&script).await;
        let (mut reader, writer) = stream.into_split();
        let mut buffer = [0; 8];
        assert!(poll_once(reader.read_exact(&mut buffer)).await.is_none());
        sleep(MILLISECOND).await;
        script.answer_bytes(1, b"half", false);
        sleep(MILLISECOND).await;
        // A receive behind the bytes in hand, and a poll for room: the socket takes nothing.
        assert!(poll_once(reader.read_exact(&mut buffer)).await.is_none());
        asked(&script, 3).await;
        assert_eq!(writer.try_write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut room = pin!(writer.writable());
        assert!(poll_once(room.as_mut()).await.is_none());
        assert!(matches!(script.asked()[2].request, Request::Receive { .. }));
        assert!(matches!(script.asked()[3].request, Request::Poll { .. }));
        let lease = reader.read_buf().await.unwrap();
        assert_eq!(&*lease, b"half");
        assert!(script.asked()[2].canceled && !script.asked()[3].canceled);
        assert!(poll_once(room.as_mut()).await.is_none(), "there is no room yet");
        script.answer(3, i32::from(libc::POLLOUT));
        room.await.unwrap();
        let read = poll_once(reader.read(&mut buffer)).await;
        assert!(read.is_none(), "the end of the canceled receive is no error: {read:?}");
    });
}

#[test]
fn a_large_read_waits_for_a_poll_while_bytes_come_many_at_a_time_and_no_buffer_is_lent() {
    let _watched = watched();
    // Too few to lend one.
    let (runtime, script) = start_as(Builder::new().buffers(3));
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        let (mut large, mut small) = (vec![0; 16_384], [0; 16]);
        assert!(poll_once(stream.read(&mut large)).await.is_none());
        asked(&script, 2).await;
        script.answer_bytes(1, &[7; BULK_BYTES_MIN], false);
        assert_eq!(stream.read(&mut large).await.unwrap(), BULK_BYTES_MIN);
        assert!(poll_once(stream.read(&mut large)).await.is_none());
        asked(&script, 3).await;
        assert!(matches!(script.asked()[2].request, Request::Poll { .. }));
        // Whoever reads less finds the poll in its way, and then has a receive.
        {
            let mut read = pin!(stream.read(&mut small));
            assert!(poll_once(read.as_mut()).await.is_none());
            script.answer(2, i32::from(libc::POLLIN));
            while script.asked().len() < 4 {
                yield_now().await;
                assert!(poll_once(read.as_mut()).await.is_none());
            }
            assert!(matches!(script.asked()[3].request, Request::ReceivePicked { .. }));
            script.answer_bytes(3, b"few", false);
            assert_eq!(read.await.unwrap(), 3);
        }
        // Few bytes end it.
        assert!(poll_once(stream.read(&mut large)).await.is_none());
        asked(&script, 5).await;
        assert!(matches!(script.asked()[4].request, Request::ReceivePicked { .. }));
        script.answer_bytes(4, &[7; BULK_BYTES_MIN], false);
        assert_eq!(stream.read(&mut large).await.unwrap(), BULK_BYTES_MIN);
        // The next waits in its turn, and receives directly: here the end.
        let mut read = pin!(stream.read(&mut large));
        assert!(poll_once(read.as_mut()).await.is_none());
        asked(&script, 6).await;
        script.answer(5, i32::from(libc::POLLIN));
        script.answer_at_once(&[0]);
        assert_eq!(read.await.unwrap(), 0);
        assert_eq!(script.asked().len(), 6);
    });
}

#[test]
fn a_read_beside_a_receive_that_fills_the_buffer_leaves_it_where_it_is() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        let (mut whole, mut part) = ([0; 8], [0; 8]);
        assert!(poll_once(stream.read_exact(&mut whole)).await.is_none());
        asked(&script, 2).await;
        script.answer_bytes(1, b"half", false);
        while script.asked().len() < 3 {
            yield_now().await;
            assert!(poll_once(stream.read_exact(&mut whole)).await.is_none());
        }
        assert_eq!(stream.read(&mut part).await.unwrap(), 4);
        assert_eq!(&part[..4], b"half");
        assert!(poll_once(stream.read(&mut part)).await.is_none());
        script.answer_bytes(2, b"rest", false);
        assert_eq!(stream.read(&mut part).await.unwrap(), 4);
        assert_eq!(&part[..4], b"rest");
        assert_eq!(script.asked().len(), 3);
    });
}

#[test]
fn an_error_is_told_to_the_read_that_waited_and_nothing_more_is_asked_for() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        let reading = rotor::spawn(async move { stream.read(&mut [0; 8]).await });
        asked(&script, 2).await;
        script.answer(1, -libc::ECONNRESET);
        while !reading.is_finished() && script.asked().len() == 2 {
            yield_now().await;
        }
        assert!(reading.is_finished(), "another receive was asked for");
        let error = reading.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_large_read_is_lent_a_buffer_while_few_are_though_bytes_come_many_at_a_time() {
    let _watched = watched();
    // Enough to lend one.
    let (runtime, script) = start_as(Builder::new().buffers(4));
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        let mut large = vec![0; 16_384];
        for nth in 1..=2 {
            assert!(poll_once(stream.read(&mut large)).await.is_none());
            asked(&script, nth + 1).await;
            assert!(matches!(script.asked()[nth].request, Request::Receive { .. }));
            script.answer_bytes(nth, &[7; BULK_BYTES_MIN], false);
            assert_eq!(stream.read(&mut large).await.unwrap(), BULK_BYTES_MIN);
        }
    });
}

/// Queues a send on a stream whose socket takes nothing; answers its place among what was asked.
async fn queue_a_send(stream: &mut TcpStream, script: &Script) -> usize {
    assert!(poll_once(stream.write_owned(vec![7; 10])).await.is_none());
    let nth = script.asked().len() - 1;
    assert!(matches!(script.asked()[nth].request, Request::Send { .. }));
    nth
}

#[test]
fn a_write_behind_a_queued_send_asks_for_no_room_and_goes_when_the_send_is_over() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        let send = queue_a_send(&mut stream, &script).await;
        let mut write = pin!(stream.write(b"then"));
        assert!(poll_once(write.as_mut()).await.is_none());
        sleep(MILLISECOND).await;
        assert_eq!(script.asked().len(), send + 1, "the send's end is what it waits for");
        script.answer(send, 10);
        script.answer_at_once(&[4]);
        assert_eq!(write.await.unwrap(), 4);
    });
}

#[test]
fn waiting_for_room_behind_a_queued_send_asks_for_none_and_is_over_with_the_send() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        let send = queue_a_send(&mut stream, &script).await;
        let mut room = pin!(stream.writable());
        assert!(poll_once(room.as_mut()).await.is_none());
        sleep(MILLISECOND).await;
        assert_eq!(script.asked().len(), send + 1, "the send's end is what it waits for");
        script.answer(send, 10);
        room.await.unwrap();
        assert_eq!(script.asked().len(), send + 1);
    });
}

/// A listener that has met a shortage and rests.
async fn resting(script: &Script) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
    assert!(poll_once(listener.accept()).await.is_none());
    script.answer(script.asked().len() - 1, -libc::EMFILE);
    assert_eq!(listener.accept().await.unwrap_err().raw_os_error(), Some(libc::EMFILE));
    listener
}

#[test]
fn a_descriptor_that_was_closed_is_a_chance_for_a_listener_that_is_awaited() {
    let _watched = watched();
    for by_poll in [false, true] {
        let (runtime, script) = start();
        runtime.block_on(async {
            let (_other, stream) = accepted(&script).await;
            let (first, second) = (resting(&script).await, resting(&script).await);
            let third = resting(&script).await;
            let mut accept = Box::pin(second.accept());
            let mut poll = poll_fn(|cx| second.poll_accept(cx));
            if by_poll {
                assert!(poll_once(&mut poll).await.is_none());
            } else {
                assert!(poll_once(accept.as_mut()).await.is_none());
            }
            let asked = script.asked().len();
            drop(stream);
            // Far less than the pause of 10 ms.
            sleep(MILLISECOND).await;
            assert_eq!(script.asked().len(), asked + 1, "nobody tried");
            script.answer(asked, 1_000_600);
            let (stream, _) = if by_poll { poll.await } else { accept.await }.unwrap();
            // With nobody waiting, whoever asks next finds the chance.
            drop(stream);
            sleep(MILLISECOND).await;
            assert_eq!(script.asked().len(), asked + 1, "tried for nobody");
            for listener in [&third, &first] {
                let asked = script.asked().len();
                assert!(poll_once(listener.accept()).await.is_none());
                assert_eq!(script.asked().len(), asked + 1, "it rests though one was closed");
            }
        });
    }
}

#[test]
fn a_chance_goes_to_who_surely_waits_before_who_polled_once() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_other, stream) = accepted(&script).await;
        let (polled, queued) = (resting(&script).await, resting(&script).await);
        assert!(poll_once(poll_fn(|cx| polled.poll_accept(cx))).await.is_none());
        let mut accept = pin!(queued.accept());
        assert!(poll_once(accept.as_mut()).await.is_none());
        let asked = script.asked().len();
        drop(stream);
        sleep(MILLISECOND).await;
        assert_eq!(script.asked().len(), asked + 1);
        script.answer(asked, 1_000_600);
        // Far less than the pause of the queued one.
        sleep(MILLISECOND).await;
        assert!(poll_once(accept.as_mut()).await.is_some(), "the other had the chance");
    });
}

/// The descriptors that accepts were asked for, in order.
fn accepts(script: &Script) -> Vec<i32> {
    let accept = |asked: Asked| match asked.request {
        Request::Accept { fd, .. } => Some(fd),
        _ => None,
    };
    script.asked().into_iter().filter_map(accept).collect()
}

#[test]
fn an_accept_that_nobody_awaits_leaves_the_last_row_to_one_that_is_awaited() {
    let _watched = watched();
    let (backend, script) = scripted();
    let runtime = Builder::new().sockets(3).build_with_backend(Box::new(backend)).unwrap();
    runtime.block_on(async {
        let first = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let second = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let (one, two) = (1_000_001, 1_000_002);
        // It has the last row and is with the kernel, and its future is gone.
        assert!(poll_once(first.accept()).await.is_none());
        let mut accept = pin!(second.accept());
        assert!(poll_once(accept.as_mut()).await.is_none());
        sleep(MILLISECOND).await;
        assert_eq!(accepts(&script), [one, two]);
        script.answer(1, 1_000_500);
        let (stream, _) = accept.await.unwrap();
        // Now both are in line for the next row, and the first in line goes away.
        let mut gone = Box::pin(first.accept());
        let mut accept = pin!(second.accept());
        assert!(poll_once(gone.as_mut()).await.is_none());
        assert!(poll_once(accept.as_mut()).await.is_none());
        drop(gone);
        sleep(MILLISECOND).await;
        assert_eq!(accepts(&script), [one, two], "there is no row");
        drop(stream);
        sleep(MILLISECOND).await;
        assert_eq!(accepts(&script), [one, two, two]);
        script.answer(2, 1_000_600);
        drop(accept.await.unwrap());
        // Nothing of it is for good.
        let mut accept = pin!(first.accept());
        assert!(poll_once(accept.as_mut()).await.is_none());
        sleep(MILLISECOND).await;
        assert_eq!(accepts(&script), [one, two, two, one]);
        script.answer(3, 1_000_700);
        accept.await.unwrap();
    });
}

#[test]
fn a_buffer_longer_than_one_transfer_is_sent_in_transfers_of_at_most_that() {
    const MOST: usize = TRANSFER_BYTES_MAX as usize;
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let (_listener, mut stream) = accepted(&script).await;
        // Zeroed pages that nobody touches take no memory.
        let long = vec![0_u8; 2 * MOST + 10];
        let first = long.as_ptr() as usize;
        let mut write = pin!(stream.write_owned(long));
        assert!(poll_once(write.as_mut()).await.is_none());
        // The second transfer is cut short, and goes on where it was.
        let steps =
            [(0, MOST, MOST), (MOST, MOST, 1_000), (MOST + 1_000, MOST - 1_000, MOST - 1_000)];
        let last = [(2 * MOST, 10, 10)];
        for (step, (offset, asked, sent)) in steps.into_iter().chain(last).enumerate() {
            let Request::Send { pointer, length, .. } = script.asked()[1 + step].request else {
                panic!("a send follows");
            };
            assert_eq!((pointer as usize - first, length as usize), (offset, asked), "step {step}");
            script.answer(1 + step, sent as i32);
            assert!(poll_once(write.as_mut()).await.is_none());
            sleep(MILLISECOND).await;
        }
        let (written, long) = write.await;
        assert_eq!((written.unwrap(), long.len()), (2 * MOST + 10, 2 * MOST + 10));
        assert_eq!(script.asked().len(), 5);
    });
}

#[test]
fn a_listener_that_finds_no_timer_for_its_pause_keeps_no_other_from_its_turn() {
    let _watched = watched();
    let (backend, script) = scripted();
    let builder = Builder::new().operations(2).timers(1);
    let runtime = builder.build_with_backend(Box::new(backend)).unwrap();
    runtime.block_on(async {
        let short = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let (_other, mut stream) = accepted(&script).await;
        drop(rotor::spawn(sleep(PATIENCE)));
        yield_now().await;
        assert!(poll_once(stream.read(&mut [0])).await.is_none());
        asked(&script, 2).await;
        assert!(poll_once(short.accept()).await.is_none());
        // Every operation is in use, so this one is held.
        let held = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let accept = rotor::spawn(async move { held.accept().await.map(|_| ()) });
        yield_now().await;
        let asked = script.asked().len();
        // The other is out of descriptors, and every timer is armed.
        script.answer(asked - 1, -libc::EMFILE);
        assert!(short.accept().await.is_err());
        for _ in 0..4 {
            yield_now().await;
        }
        assert_eq!(script.asked().len(), asked + 1, "there is an operation for the one held");
        script.answer(asked, 1_000_700);
        accept.await.unwrap().unwrap();
    });
}

#[test]
fn a_stream_that_is_dropped_gives_its_buffer_back() {
    let _watched = watched();
    // With bytes in hand; while a receive fills the buffer behind them; and before bytes have come.
    for (taken, late) in [(1, false), (8, false), (1, true)] {
        let (runtime, script) = start();
        runtime.block_on(async {
            let buffers = || runtime.statistics().event_loop.buffers.now;
            let (_listener, mut stream) = accepted(&script).await;
            let mut into = vec![0; taken];
            assert!(poll_once(stream.read_exact(&mut into)).await.is_none());
            sleep(MILLISECOND).await;
            if late {
                script.answer_cancels(false);
                drop(stream);
                script.answer_bytes(1, b"late", false);
            } else {
                script.answer_bytes(1, b"hand", false);
                sleep(MILLISECOND).await;
                assert_eq!(buffers(), 1);
                let whole = poll_once(stream.read_exact(&mut into)).await;
                assert_eq!(whole.is_some(), taken == 1);
                sleep(MILLISECOND).await;
                drop(stream);
            }
            sleep(MILLISECOND).await;
            assert_eq!(buffers(), 0, "{taken} bytes wanted, late: {late}");
        });
    }
}

/// A waker that counts, and its count.
fn counting() -> (Waker, Arc<Counting>) {
    let counting = Arc::new(Counting(AtomicU32::new(0)));
    (Waker::from(counting.clone()), counting)
}

struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counting {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn an_accept_that_goes_away_after_it_was_woken_passes_its_turn_on() {
    let _watched = watched();
    let (runtime, script) = start();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let [mut first, mut second] = [(); 2].map(|()| Box::pin(listener.accept()));
        let ((waker, woken), (next_waker, next_woken)) = (counting(), counting());
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let mut next = Context::from_waker(&next_waker);
        assert!(second.as_mut().poll(&mut next).is_pending());
        script.answer(0, 1_000_500);
        sleep(MILLISECOND).await;
        assert_eq!((woken.count(), next_woken.count()), (1, 0));
        drop(first);
        assert_eq!(next_woken.count(), 1, "a connection is there, and nobody knows");
        assert!(second.as_mut().poll(&mut next).is_ready());
    });
}

#[test]
fn accepting_waits_for_a_task_cell_before_it_asks_and_before_it_hands_out() {
    let _watched = watched();
    let (backend, script) = scripted();
    let runtime = Builder::new().tasks(1).build_with_backend(Box::new(backend)).unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let mut accept = pin!(listener.accept());
        let task = rotor::spawn(sleep(PATIENCE));
        assert!(poll_once(accept.as_mut()).await.is_none());
        sleep(MILLISECOND).await;
        assert!(script.asked().is_empty(), "the connection would have no task");
        task.abort();
        drop(task);
        sleep(MILLISECOND).await;
        assert!(poll_once(accept.as_mut()).await.is_none());
        assert_eq!(script.asked().len(), 1);
        // The cell is gone again before the connection comes.
        let task = rotor::spawn(sleep(PATIENCE));
        script.answer(0, 1_000_500);
        sleep(MILLISECOND).await;
        assert!(poll_once(accept.as_mut()).await.is_none(), "it has no task");
        task.abort();
        drop(task);
        accept.await.unwrap();
    });
}
