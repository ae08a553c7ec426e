//! An echo server: every byte a client sends comes back to it.
//!
//!     cargo run --release --example echo -- 127.0.0.1:9000
//!
//! Then, in a second terminal: `cargo run --release --example echo_client -- 127.0.0.1:9000`.

use rotor::net::{TcpListener, TcpStream};

#[rotor::main(task_bytes = 17_408)]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".to_string());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client left before it was accepted, or descriptors are short: others wait.
                eprintln!("accept: {error}");
                rotor::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            }
        };
        rotor::spawn(async move {
            if let Err(error) = echo(stream).await {
                eprintln!("a client left: {error}");
            }
        });
    }
}

/// Sends back what comes, until the client ends its side. The buffer lies in the task.
async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 16_384];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}
