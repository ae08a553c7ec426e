//! The echo server. Compiled twice: `runtime` is rotor in `on_rotor.rs` and tokio in `on_tokio.rs`.

use super::runtime::*;

use std::io;

use crate::servers::{BUFFER_BYTES, TASK_BYTES};

/// Serves until accepting fails. Replies go out in writes of at most `piece` bytes.
pub(in crate::servers) async fn serve(piece: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let task = async move {
            match echo(stream, piece).await {
                // The client resets its connections at the end: none is left in TIME_WAIT.
                Err(error) if error.kind() != io::ErrorKind::ConnectionReset => {
                    eprintln!("a connection failed: {error}");
                }
                _ => {}
            }
        };
        // rotor keeps it in a cell; a larger one it would put on the heap, as tokio does with all.
        assert!(size_of_val(&task) <= TASK_BYTES, "a task has {} bytes", size_of_val(&task));
        spawn(task);
    }
}

/// The buffer lies in the task.
async fn echo(mut stream: TcpStream, piece: usize) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        for reply in buffer[..count].chunks(piece) {
            stream.write_all(reply).await?;
        }
    }
}
