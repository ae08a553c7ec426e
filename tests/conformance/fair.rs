//! Promise 10: no task, flood or storm of timers keeps the others waiting. Shares are counts, never times.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::Write;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rotor::limits::POLLS_PER_TICK_MAX;
use rotor::time::sleep;
use rotor::{Event, Operation, Wait};

use crate::rig::*;

scenarios! {
    10 task "a task that wakes itself is polled a bounded number of times a tick" => self_waking;
    10 receive "reads that never wait let others run" => reads;
    10 read_exact "exact reads that never wait let others run" => exact_reads;
    10 read_buf "leases that never wait let others run" => leases;
    10 ready "attempts and waits that are always ready let others run" => attempts;
    10 send "writes that never wait let others run" => writes;
    10 vectored "vectored writes that never wait let others run" => vectored_writes;
    10 write_owned "owned writes that never wait let others run" => owned_writes;
    10 accept "accepts that never wait let others run" => accepts;
    10 timer "sleeps of zero let others run" => zero_sleeps;
    10 receive "a flood on one stream leaves another its turns" => flood;
    10 timer nop shutdown "a due timer is not starved by operations" => timer_beside_operations;
    10 nop timer "operations are not starved by due timers" => operations_beside_timers;
    10 timer "a repeating timer that is behind is not in the way of others" => timer_behind;
    10 receive "one receive and one buffer a stream, however many read" => one_receive;
}

/// How much may be ready at once in one poll of a task.
const BUDGET: u64 = 128;

/// Counts the turns of another task, up to when this is stopped.
fn others(turns: &Rc<Cell<u64>>) -> rotor::task::JoinHandle<()> {
    let turns = turns.clone();
    rotor::spawn(async move {
        loop {
            turns.set(turns.get() + 1);
            rotor::task::yield_now().await;
        }
    })
}

/// Makes a call that is ready `count` times over, and expects that another task had its turns meanwhile.
async fn lets_others_run(count: u64, mut call: impl AsyncFnMut()) {
    let turns = Rc::new(Cell::new(0));
    let other = others(&turns);
    for _ in 0..count {
        call().await;
    }
    other.abort();
    let (turns, least) = (turns.get(), count / BUDGET - 1);
    assert!(turns >= least, "another task had {turns} turns beside {count} calls, not {least}");
}

fn self_waking() {
    let ((), _) = run_counted(builder(), async |counts| {
        let stop = Rc::new(Cell::new(false));
        for _ in 0..3 {
            let stop = stop.clone();
            rotor::spawn(poll_fn(move |cx| {
                cx.waker().wake_by_ref();
                if stop.get() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        let before = counts();
        for _ in 0..5 {
            sleep(MILLISECOND).await;
        }
        let after = counts();
        stop.set(true);
        let polls = after.executor.polls - before.executor.polls;
        let ticks = after.event_loop.ticks - before.event_loop.ticks;
        let most = u64::from(POLLS_PER_TICK_MAX) * (ticks + 1);
        assert!(polls <= most, "{polls} polls in {ticks} ticks");
    });
}

fn reads() {
    run(async {
        let (mut stream, client) = pair().await;
        deliver(&client, pattern(0, 3000));
        stream.readable().await.unwrap();
        lets_others_run(3000, async || {
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 1);
        })
        .await;
    });
}

fn exact_reads() {
    run(async {
        let (mut stream, client) = pair().await;
        deliver(&client, pattern(0, 3000));
        stream.readable().await.unwrap();
        lets_others_run(1500, async || {
            assert_eq!(stream.read_exact(&mut [0; 2]).await.unwrap(), 2);
        })
        .await;
    });
}

fn leases() {
    run_in(builder().buffer_bytes(64), async {
        let (mut stream, client) = pair().await;
        deliver(&client, pattern(0, 64 * 600));
        lets_others_run(600, async || {
            assert!(!stream.read_buf().await.unwrap().is_empty());
        })
        .await;
    });
}

fn attempts() {
    run(async {
        let (stream, client) = pair().await;
        deliver(&client, b"x");
        stream.readable().await.unwrap();
        lets_others_run(2000, async || stream.readable().await.unwrap()).await;
        lets_others_run(2000, async || stream.writable().await.unwrap()).await;
        lets_others_run(2000, async || {
            assert_eq!(stream.peek(&mut [0]).await.unwrap(), 1);
        })
        .await;
    });
}

fn writes() {
    run(async {
        let (mut stream, client) = pair().await;
        let peer = read_all(client);
        lets_others_run(2000, async || {
            assert_eq!(stream.write(b"x").await.unwrap(), 1);
        })
        .await;
        drop(stream);
        assert_eq!(joined(peer).await.unwrap().len(), 2000);
    });
}

fn vectored_writes() {
    run(async {
        let (mut stream, client) = pair().await;
        let peer = read_all(client);
        let pieces = [std::io::IoSlice::new(b"x"), std::io::IoSlice::new(b"y")];
        lets_others_run(2000, async || {
            assert_eq!(stream.write_vectored(&pieces).await.unwrap(), 2);
        })
        .await;
        drop(stream);
        assert_eq!(joined(peer).await.unwrap().len(), 4000);
    });
}

fn owned_writes() {
    run(async {
        let (mut stream, client) = pair().await;
        let peer = read_all(client);
        lets_others_run(2000, async || {
            assert_eq!(stream.write_owned(&b"x"[..]).await.0.unwrap(), 1);
        })
        .await;
        drop(stream);
        assert_eq!(joined(peer).await.unwrap().len(), 2000);
    });
}

fn accepts() {
    run_in(builder().sockets(512).tasks(512), async {
        let listener = rotor::net::TcpListener::bind(ANY_PORT).await.unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..300).map(|_| connect(address)).collect();
        let mut accepted = Vec::new();
        lets_others_run(300, async || accepted.push(listener.accept().await.unwrap().0)).await;
        assert_eq!(accepted.len(), clients.len());
    });
}

fn zero_sleeps() {
    run(async {
        lets_others_run(1000, async || sleep(Duration::ZERO).await).await;
    });
}

fn flood() {
    run(async {
        let (mut loud, client) = pair().await;
        let (mut quiet, quiet_client) = pair().await;
        let flood = std::thread::spawn(move || {
            let mut client = client;
            while client.write_all(&[1; 65_536]).is_ok() {}
        });
        let heard = Rc::new(Cell::new(0_u64));
        let its = heard.clone();
        let listening = rotor::spawn(async move {
            let mut buffer = [0; 512];
            while loud.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                its.set(its.get() + 1);
            }
        });
        eventually("the flood has begun", || heard.get() > 0).await;
        let peer = std::thread::spawn(move || {
            let mut client = quiet_client;
            for _ in 0..100 {
                client.write_all(b"x").unwrap();
                std::io::Read::read_exact(&mut client, &mut [0]).unwrap();
            }
        });
        // The quiet one has a hundred turns, each within few of the loud one's.
        let (mut turns, mut byte) = (0_u64, [0]);
        while quiet.read(&mut byte).await.unwrap() > 0 {
            quiet.write_all(&byte).await.unwrap();
            turns += 1;
        }
        assert_eq!(turns, 100);
        listening.abort();
        joined(peer).await;
        joined(flood).await;
    });
}

fn timer_beside_operations() {
    for room in [1, 2, 3, 8] {
        let mut event_loop = small_loop();
        let (stream, _peer) = loop_pair(&mut event_loop);
        let due = event_loop.now();
        event_loop.submit(Operation::timer(due), 77).unwrap();
        let mut events = vec![Event::EMPTY; room];
        let fires = (0..10).any(|_| {
            // More than there is room for, all of it over at once.
            for _ in 0..2 * room {
                event_loop.submit(Operation::nop(), 0).unwrap();
                let shutdown = Operation::shutdown(stream, Shutdown::Read);
                event_loop.submit(shutdown, 0).unwrap();
            }
            let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
            events[..count].iter().any(|event| event.user_data() == 77)
        });
        assert!(fires, "with room for {room}");
    }
}

fn operations_beside_timers() {
    for room in [1, 2, 8] {
        let mut event_loop = small_loop();
        let now = event_loop.now();
        event_loop.submit(Operation::repeating_timer(now, 1), 77).unwrap();
        event_loop.submit(Operation::nop(), 1).unwrap();
        let mut events = vec![Event::EMPTY; room];
        let mut seen = Vec::new();
        for _ in 0..10 {
            let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
            seen.extend(events[..count].iter().map(Event::user_data));
        }
        assert!(seen.contains(&1) && seen.contains(&77), "with room for {room}: {seen:?}");
    }
}

fn timer_behind() {
    let mut event_loop = small_loop();
    let now = event_loop.now();
    event_loop.submit(Operation::repeating_timer(now, 1000), 1).unwrap();
    std::thread::sleep(MILLISECOND);
    let due = event_loop.now();
    event_loop.submit(Operation::timer(due), 2).unwrap();
    let mut events = [Event::EMPTY; 4];
    let count = event_loop.tick(&mut events, Wait::Forever).unwrap();
    let seen: Vec<u64> = events[..count].iter().map(Event::user_data).collect();
    assert_eq!(seen, [1, 2], "a thousand periods were missed, and one is told a tick");
}

fn one_receive() -> String {
    let (high, _) = run_counted(builder(), async |counts| {
        let (stream, client) = pair().await;
        let stream = Rc::new(stream);
        let reading = |stream: Rc<rotor::net::TcpStream>| {
            rotor::spawn(async move { stream.peek(&mut [0; 8]).await.unwrap() })
        };
        ticks().await;
        let idle = counts().event_loop.operations.now;
        let tasks: Vec<_> = (0..10).map(|_| reading(stream.clone())).collect();
        ticks().await;
        let receives = counts().event_loop.operations.now - idle;
        deliver(&client, b"for all");
        for task in tasks {
            assert_eq!(task.await.unwrap(), 7);
        }
        let buffers = counts().event_loop.buffers;
        (receives, buffers.now, buffers.high)
    });
    format!("{high:?}")
}
