//! Accepting while there are no descriptors left: told once, without spinning, nobody is lost.

mod support;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, Runtime};
use rotor::task::yield_now;
use rotor::time::{sleep, timeout};
use support::{
    Clients, Limited, MILLISECOND, PATIENCE, descriptors, eventually, poll_once, take_all,
    watched_alone, woken,
};

/// What this thread has used of the processor.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure, which outlives the call.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Clients whose sockets are open before the descriptors run out. They connect, and are greeted.
fn clients(address: SocketAddr, count: usize) -> Clients<()> {
    let sockets: Vec<_> = (0..count).map(|_| Some(socket())).collect();
    let sockets = std::sync::Arc::new(std::sync::Mutex::new(sockets));
    Clients::start(count, move |number| {
        let socket = sockets.lock().unwrap()[number].take().unwrap();
        let mut client = connect_with(socket, address);
        client.write_all(&[number as u8]).unwrap();
        let mut greeting = [0];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting[0], number as u8);
    })
}

fn socket() -> std::os::fd::OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: a new descriptor, whose only owner is the answer.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        std::os::fd::OwnedFd::from_raw_fd(fd)
    }
}

fn connect_with(socket: std::os::fd::OwnedFd, address: SocketAddr) -> Client {
    use std::os::fd::AsRawFd;
    let name = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(std::net::Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let length = size_of_val(&name) as libc::socklen_t;
    // SAFETY: the kernel reads one whole name, which outlives the call.
    let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const name).cast(), length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    let client = Client::from(socket);
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

async fn greet(mut stream: TcpStream) {
    let mut byte = [0];
    stream.read_exact(&mut byte).await.unwrap();
    stream.write_all(&byte).await.unwrap();
}

#[test]
fn an_episode_without_descriptors_costs_no_time_and_every_client_is_served_after_it() {
    const CLIENTS: usize = 50;
    let _watched = watched_alone();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = clients(address, CLIENTS);
        let limited = Limited::to_more(1);
        let taken = take_all();
        let (begun, used) = (Instant::now(), cpu_time());
        let freed = thread::spawn(move || {
            thread::sleep(Duration::from_millis(600));
            drop(taken);
            drop(limited);
        });
        let (mut served, mut errors) = (0, 0);
        let mut during = None;
        while served < CLIENTS {
            match listener.accept().await {
                Ok((stream, _)) => {
                    during.get_or_insert_with(|| (begun.elapsed(), cpu_time() - used));
                    served += 1;
                    drop(rotor::spawn(greet(stream)));
                }
                Err(error) => {
                    let errno = error.raw_os_error();
                    assert_eq!(errno, Some(libc::EMFILE), "{error}");
                    errors += 1;
                }
            }
        }
        let (elapsed, used) = during.unwrap();
        println!("{errors} errors, {used:?} of {elapsed:?} until the first connection");
        assert!(elapsed >= Duration::from_millis(500), "there were descriptors: {elapsed:?}");
        assert!(used < Duration::from_millis(60), "waiting took {used:?} of the processor");
        assert_eq!(errors, 1, "the error is told once an episode");
        waiting.join().await;
        freed.join().unwrap();
    });
}

#[test]
fn accepting_resumes_when_the_runtime_closes_a_descriptor() {
    let _watched = watched_alone();
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = support::connect(address);
        let (first, _) = listener.accept().await.unwrap();
        let waiting = clients(address, 1);
        let limited = Limited::to_more(1);
        let taken = take_all();
        assert!(listener.accept().await.is_err());
        // Long enough for the pause to have doubled to 320 ms.
        assert!(timeout(MILLISECOND * 330, listener.accept()).await.is_err());
        let begun = Instant::now();
        drop(first);
        let (stream, _) = listener.accept().await.unwrap();
        let waited = begun.elapsed();
        assert!(waited < MILLISECOND * 100, "the close was not noticed for {waited:?}");
        drop(taken);
        drop(limited);
        greet(stream).await;
        waiting.join().await;
        drop(peer);
    });
}

#[test]
fn each_episode_tells_its_error_and_waiting_for_its_end_can_be_dropped() {
    let _watched = watched_alone();
    let runtime = Runtime::new().unwrap();
    let before = descriptors();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..3 {
            let waiting = clients(address, 2);
            let limited = Limited::to_more(1);
            let taken = take_all();
            assert_eq!(listener.accept().await.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            assert!(poll_once(listener.accept()).await.is_none());
            assert!(timeout(MILLISECOND * 15, listener.accept()).await.is_err());
            drop(taken);
            drop(limited);
            for _ in 0..2 {
                let (stream, _) = listener.accept().await.unwrap();
                greet(stream).await;
            }
            waiting.join().await;
        }
        // Dropped in the middle of an episode: its timer goes with it.
        let limited = Limited::to_more(1);
        let taken = take_all();
        assert!(listener.accept().await.is_err());
        drop(listener);
        drop(taken);
        drop(limited);
        sleep(MILLISECOND * 20).await;
        eventually("the listener is closed", || descriptors() <= before).await;
    });
    assert_eq!(runtime.statistics().event_loop.timers.now, 0);
}

#[test]
fn the_pause_doubles_up_to_half_a_second_whichever_shortage_it_is() {
    let _watched = watched_alone();
    let (backend, script) = rotor::backend::scripted::scripted();
    let runtime = Builder::new().build_with_backend(Box::new(backend)).unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:1").await.unwrap();
        let accepted = Rc::new(RefCell::new(Vec::new()));
        let outcomes = accepted.clone();
        drop(rotor::spawn(async move {
            loop {
                let outcome = listener.accept().await.map(|_| ());
                outcomes.borrow_mut().push(outcome.map_err(|error| error.raw_os_error()));
            }
        }));
        yield_now().await;
        let shortages = [libc::ENOMEM, libc::ENFILE, libc::EMFILE, libc::ENOBUFS];
        // The second episode begins anew, with the first pause.
        for episode in 0..2 {
            let first = script.asked().len();
            script.answer(first - 1, -shortages[episode]);
            yield_now().await;
            yield_now().await;
            for (tried, pause) in [10, 20, 40, 80, 160, 320, 500, 500].into_iter().enumerate() {
                sleep(MILLISECOND * (pause - 1)).await;
                assert_eq!(script.asked().len(), first + tried, "it tried before {pause} ms");
                sleep(MILLISECOND).await;
                assert_eq!(script.asked().len(), first + tried + 1, "not tried after {pause} ms");
                script.answer(first + tried, -shortages[tried % 4]);
                yield_now().await;
            }
            sleep(MILLISECOND * 500).await;
            script.answer(script.asked().len() - 1, 1_000_500);
            sleep(MILLISECOND).await;
        }
        let told = [Err(Some(libc::ENOMEM)), Ok(()), Err(Some(libc::ENFILE)), Ok(())];
        assert_eq!(*accepted.borrow(), told);
    });
}

#[test]
fn an_episode_with_every_timer_armed_ends_too() {
    let _watched = watched_alone();
    let runtime = Builder::new().timers(1).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let waiting = clients(listener.local_addr().unwrap(), 1);
        let timer = rotor::spawn(sleep(Duration::from_millis(300)));
        yield_now().await;
        let limited = Limited::to_more(1);
        let taken = take_all();
        assert!(listener.accept().await.is_err());
        drop((taken, limited));
        let (stream, _) = listener.accept().await.unwrap();
        greet(stream).await;
        timer.await.unwrap();
        waiting.join().await;
    });
}

#[test]
fn a_listener_goes_to_std_in_the_middle_of_an_episode() {
    let _watched = watched_alone();
    let runtime = Builder::new().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // epoll meets the shortage when there is somebody to accept, io_uring before.
        let client = socket();
        let limited = Limited::to_more(1);
        let taken = take_all();
        let client = connect_with(client, listener.local_addr().unwrap());
        assert!(listener.accept().await.is_err());
        // The pause is over, and the accept that is then armed fails while nobody waits for it.
        sleep(Duration::from_millis(700)).await;
        assert!(poll_once(listener.accept()).await.is_none());
        // Whoever waits for the accept to end does not wait for the episode's end.
        let given = woken(listener.into_std()).await;
        drop((taken, limited, client));
        given.unwrap();
    });
}
