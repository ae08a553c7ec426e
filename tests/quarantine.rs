//! A runtime dropped with hundreds of reads and receives in flight writes to nothing that was freed.
//!
//! The allocator of this program keeps freed memory, filled with a pattern. A disk or a peer that
//! writes to it after the runtime is gone leaves its traces there. That the test can fail was shown
//! by taking out the waits for final events (in `event_loop/drain.rs` and the backend's `Drop`): of
//! 408 to 433 buffers with a read in flight 299 to 403 were then written after they were freed.

#[path = "quarantine/allocator.rs"]
mod allocator;
#[path = "support/backend.rs"]
mod backend;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as Peer};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use allocator::Quarantine;
use rotor::backend::scripted::scripted;
use rotor::net::{TcpListener, TcpStream};
use rotor::runtime::{Builder, File, Options, Runtime};

#[global_allocator]
static QUARANTINE: Quarantine = Quarantine::new();

/// Some end before the drop; 320 at the least do not.
const READS: usize = 448;
const IN_FLIGHT: usize = 320;
/// A disk may be faster than the tasks, once in a while.
const TRIES_MAX: u32 = 5;
const READS_A_TASK: usize = 4;
const RECEIVES: usize = 320;
/// The size of a read's buffer, which tells it from the other blocks in quarantine.
const READ_BYTES: usize = 64 << 10;
/// What the file holds.
const FILE_BYTE: u8 = 0x5a;
/// What the peers send.
const PEER_BYTE: u8 = 0xa5;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A file of as many bytes as all reads take, on the disk and not only in memory.
fn scratch() -> Scratch {
    let name = format!("quarantine-{}", std::process::id());
    let scratch = Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    let mut file = std::fs::File::create(&scratch.0).unwrap();
    for _ in 0..READS {
        file.write_all(&[FILE_BYTE; READ_BYTES]).unwrap();
    }
    file.sync_all().unwrap();
    scratch
}

/// Opens a file for reads that go from the disk to the reader's memory. `None` if the file system
/// cannot do that.
fn open_direct(path: &Path) -> Option<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    match options.read(true).custom_flags(libc::O_DIRECT).open(path) {
        Ok(file) => Some(file),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The other ends of the streams: they connect, and send when told and once more after that, whatever
/// becomes of it.
fn peers(address: SocketAddr, send: mpsc::Receiver<()>) -> Vec<Peer> {
    let mut peers: Vec<Peer> = (0..RECEIVES).map(|_| Peer::connect(address).unwrap()).collect();
    for peer in &peers {
        peer.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    // These receives go on behind the bytes in hand; the others pick a buffer when bytes arrive.
    for peer in peers.iter_mut().step_by(2) {
        peer.write_all(&[PEER_BYTE; 10]).unwrap();
    }
    send.recv().unwrap();
    for _ in 0..2 {
        for peer in &mut peers {
            let _ = peer.write_all(&[PEER_BYTE; 1000]);
        }
    }
    peers
}

/// Several reads at once, so that all tasks have had their first turn before the loop's next tick.
async fn read_four(file: Rc<File>, first: usize) {
    let mut reads: [_; READS_A_TASK] = std::array::from_fn(|n| {
        let offset = ((first + n) * READ_BYTES) as u64;
        Some(file.read_at(vec![0; READ_BYTES], offset))
    });
    poll_fn(|cx| {
        for read in &mut reads {
            let Some(waiting) = read else { continue };
            if let Poll::Ready((ended, bytes)) = Pin::new(waiting).poll(cx) {
                assert_eq!(ended.unwrap(), READ_BYTES);
                assert!(bytes.iter().all(|&byte| byte == FILE_BYTE));
                *read = None;
            }
        }
        if reads.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Brings a runtime to the point where everything is in flight, and drops it there. Gives how many
/// reads that were, and the other ends of the streams.
fn drop_in_flight(file: std::fs::File) -> (usize, Vec<Peer>) {
    let options = Options {
        operations: 2048,
        sockets: 512,
        timers: 16,
        tasks: 1024,
        buffers: 512,
        buffer_bytes: 4096,
        ring_entries: 1024,
        ..Options::default()
    };
    let runtime = Runtime::with_options(&options).unwrap();
    let (tell, told) = mpsc::channel();
    let connected = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connected = std::thread::spawn(move || peers(address, told));
        for _ in 0..RECEIVES {
            let (mut stream, _) = listener.accept().await.unwrap();
            let reading = rotor::spawn(async move {
                let mut bytes = vec![0; 3000];
                let ended = stream.read_exact(&mut bytes).await;
                panic!("a read ended: {ended:?}");
            });
            drop(reading);
        }
        rotor::time::sleep(Duration::from_millis(50)).await;
        connected
    });
    let waiting = runtime.statistics().event_loop.operations.now as usize;
    assert!(waiting >= RECEIVES, "{waiting} operations wait for {RECEIVES} peers");
    runtime.block_on(async {
        let file = Rc::new(File::adopt(file).unwrap());
        for task in 0..READS / READS_A_TASK {
            drop(rotor::spawn(read_four(file.clone(), task * READS_A_TASK)));
        }
        // First in, first out: when this task's turn comes again, each of those has had one.
        rotor::task::yield_now().await;
    });
    let in_flight = runtime.statistics().event_loop.operations.now as usize - waiting;
    println!("dropped with {in_flight} reads and {RECEIVES} receives in flight");
    tell.send(()).unwrap();
    drop(runtime);
    (in_flight, connected.join().unwrap())
}

#[test]
fn a_runtime_dropped_with_320_reads_and_320_receives_in_flight_writes_to_nothing_freed() {
    if backend::no_files() {
        return;
    }
    let scratch = scratch();
    let mut most_in_flight = 0;
    for _ in 0..TRIES_MAX {
        let Some(file) = open_direct(&scratch.0) else {
            println!("skipped: the file system of the build directory has no O_DIRECT");
            return;
        };
        let (in_flight, peers) = drop_in_flight(file);
        // What is still under way at a disk or in the kernel's own threads has time to arrive.
        std::thread::sleep(Duration::from_millis(500));
        let found = QUARANTINE.look(READ_BYTES);
        println!("{found:?}");
        assert_eq!(found.refused, 0, "the quarantine was full");
        assert!(found.blocks >= READS, "the buffers of the reads were freed");
        assert_eq!((found.buffers_hit, found.others_hit, found.bytes_written), (0, 0, 0));
        for mut peer in peers {
            // The end, or a reset: the runtime closed every stream.
            assert!(!matches!(peer.read(&mut [0; 16]), Ok(1..)));
        }
        most_in_flight = most_in_flight.max(in_flight);
        if in_flight >= IN_FLIGHT {
            break;
        }
    }
    assert!(most_in_flight >= IN_FLIGHT, "never more than {most_in_flight} reads were in flight");
}

/// A backend that never answers a read of a file and a receive until everything is gone: the memory
/// they were given is not among what was freed.
#[test]
fn answers_that_come_after_a_shutdown_gave_up_write_to_nothing_freed() {
    let (backend, script) = scripted();
    script.answer_cancels(false);
    let builder = Builder::new().operations(64).sockets(16).timers(16).tasks(16).buffers(16);
    let builder = builder.drain(Duration::from_millis(1));
    let runtime = builder.build_with_backend(Box::new(backend)).unwrap();
    let asking = script.clone();
    runtime.block_on(async move {
        let mut connecting = Box::pin(TcpStream::connect("127.0.0.1:9"));
        poll_fn(|cx| {
            assert!(connecting.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        asking.answer(0, 0);
        let mut stream = connecting.await.unwrap();
        let file = File::adopt(std::fs::File::open("/dev/null").unwrap()).unwrap();
        drop(rotor::spawn(async move { file.read_at(vec![0; 3 * READ_BYTES], 0).await.0 }));
        drop(rotor::spawn(async move { stream.read(&mut [0; 64]).await }));
        rotor::task::yield_now().await;
    });
    assert_eq!(script.asked().len(), 3);
    let report = runtime.shut_down();
    assert_eq!(report.leaked, 2);
    for late in 1..3 {
        script.answer_bytes(late, &[PEER_BYTE; 3 * READ_BYTES], false);
    }
    let found = QUARANTINE.look(READ_BYTES);
    assert_eq!((found.buffers_hit, found.others_hit, found.bytes_written), (0, 0, 0), "{found:?}");
}
