//! A client for the echo server: sends each line it is given and prints what comes back.
//!
//!     cargo run --release --example echo_client -- 127.0.0.1:9000 [TEXT ...]
//!
//! With no text it reads lines from standard input.

use std::io::BufRead;

use rotor::net::TcpStream;

#[rotor::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:9000".to_string());
    let mut stream = TcpStream::connect(address).await?;
    println!("connected to {}", stream.peer_addr()?);
    let text: Vec<String> = arguments.collect();
    if !text.is_empty() {
        return exchange(&mut stream, &text.join(" ")).await;
    }
    // Standard input blocks the loop. A client that does nothing else meanwhile may do so.
    for line in std::io::stdin().lock().lines() {
        exchange(&mut stream, &line?).await?;
    }
    stream.shutdown().await
}

async fn exchange(stream: &mut TcpStream, line: &str) -> std::io::Result<()> {
    let message = format!("{line}\n");
    stream.write_all(message.as_bytes()).await?;
    let mut answer = vec![0; message.len()];
    stream.read_exact(&mut answer).await?;
    print!("{}", String::from_utf8_lossy(&answer));
    Ok(())
}
