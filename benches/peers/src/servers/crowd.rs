//! An echo server of rotor's with streams beside it that stand still: some that peers flood and nobody
//! reads, and some that hold a lease of one byte.

use std::io;

use rotor::net::TcpListener;
use rotor::runtime::{Options, Runtime};

use super::{BUFFER_BYTES, CROWD_ROOM, TASK_BYTES, on_rotor::echo};

/// Serves an echo, and takes a crowd in if one comes: `each` streams of either kind.
pub(super) fn serve(each: usize) -> io::Result<()> {
    let crowd = u32::try_from(2 * each).map_err(io::Error::other)?;
    let options = Options {
        sockets: crowd + CROWD_ROOM,
        buffers: crowd + CROWD_ROOM,
        tasks: CROWD_ROOM,
        task_bytes: TASK_BYTES as u32,
        ..Options::default()
    };
    let runtime = Runtime::with_options(&options).map_err(io::Error::other)?;
    runtime.block_on(async {
        let floods = TcpListener::bind("127.0.0.1:0").await?;
        let leases = TcpListener::bind("127.0.0.1:0").await?;
        let addresses = (floods.local_addr()?, leases.local_addr()?);
        let serving = rotor::spawn(async move {
            // The echo has said where it listens.
            println!("floods on {}\nleases on {}", addresses.0, addresses.1);
            println!("memory {}", Runtime::memory_bytes(&options));
            if let Err(error) = gather(floods, leases, each).await {
                eprintln!("the crowd failed: {error}");
            }
        });
        let served = echo::serve(BUFFER_BYTES).await;
        drop(serving);
        served
    })
}

/// Takes the crowd in, says so, and keeps it.
async fn gather(floods: TcpListener, leases: TcpListener, each: usize) -> io::Result<()> {
    let (mut unread, mut lent) = (Vec::with_capacity(each), Vec::with_capacity(each));
    while unread.len() < each {
        let (mut stream, _) = floods.accept().await?;
        // What had arrived is in hand, up to a whole buffer, and nobody reads on.
        stream.read_exact(&mut [0; 1]).await?;
        unread.push(stream);
    }
    while lent.len() < each {
        let (mut stream, _) = leases.accept().await?;
        let lease = stream.read_buf().await?;
        if lease.len() != 1 {
            return Err(io::Error::other(format!("a lease has {} bytes", lease.len())));
        }
        lent.push((stream, lease));
    }
    println!("standing {}", unread.len() + lent.len());
    std::future::pending().await
}
