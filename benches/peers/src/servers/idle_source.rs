//! Connections that wait. Compiled twice, as `echo_source.rs` is.

use super::runtime::*;

use std::io;

/// Sends back every byte of each connection, one by one. Says when the last of `connections` has been
/// accepted, then accepts no more.
pub(super) async fn serve(connections: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    for _ in 0..connections {
        let (mut stream, _) = listener.accept().await?;
        let task = async move {
            let mut byte = [0; 1];
            while let Ok(1) = stream.read(&mut byte).await {
                if stream.write_all(&byte).await.is_err() {
                    break;
                }
            }
        };
        assert!(size_of_val(&task) <= IDLE_CELL_BYTES, "a task has {} bytes", size_of_val(&task));
        spawn(task);
    }
    println!("accepted {connections}");
    std::future::pending().await
}
