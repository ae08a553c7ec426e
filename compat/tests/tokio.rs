//! A generic function of the tokio ecosystem, over rotor's streams.

use rotor::net::{TcpListener, TcpStream};
use rotor_compat::tokio::TokioIo;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index % 251) as u8).collect()
}

#[rotor::test]
async fn copy_bidirectional_carries_a_proxys_bytes_both_ways() {
    let (mut client, front) = pair().await;
    let (back, mut server) = pair().await;
    let proxy = rotor::spawn(async move {
        copy_bidirectional(&mut TokioIo::new(front), &mut TokioIo::new(back)).await
    });
    let upload = bytes(300_000);
    let echo = rotor::spawn(async move {
        let mut buffer = vec![0; 10_000];
        let mut total = 0;
        loop {
            let count = server.read(&mut buffer).await.unwrap();
            if count == 0 {
                server.shutdown().await.unwrap();
                return total;
            }
            server.write_all(&buffer[..count]).await.unwrap();
            total += count;
        }
    });
    let (mut read, mut write) = client.split();
    let mut download = vec![0; upload.len()];
    let sent = async {
        write.write_all(&upload).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let received = async { read.read_exact(&mut download).await.unwrap() };
    futures_util::future::join(sent, received).await;
    assert!(download == upload);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(echo.await.unwrap(), upload.len());
    let counts = proxy.await.unwrap().unwrap();
    assert_eq!(counts, (upload.len() as u64, upload.len() as u64));
}

#[rotor::test]
async fn the_owned_halves_can_be_wrapped_apart() {
    let (client, server) = pair().await;
    let (read, write) = server.into_split();
    let reply = rotor::spawn(async move {
        let mut lines = BufReader::new(TokioIo::new(read)).lines();
        let mut write = TokioIo::new(write);
        while let Some(line) = lines.next_line().await.unwrap() {
            write.write_all(line.to_uppercase().as_bytes()).await.unwrap();
            write.write_u8(b'\n').await.unwrap();
        }
    });
    let mut client = TokioIo::new(client);
    client.write_all(b"one\ntwo\n").await.unwrap();
    client.shutdown().await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "ONE\nTWO\n");
    reply.await.unwrap();
}

#[rotor::test]
async fn several_buffers_are_written_in_order() {
    use std::io::IoSlice;
    let (client, mut server) = pair().await;
    let mut client = TokioIo::new(client);
    let pieces = [IoSlice::new(b"a"), IoSlice::new(b""), IoSlice::new(b"bcd"), IoSlice::new(b"e")];
    assert_eq!(client.write_vectored(&pieces).await.unwrap(), 5);
    let mut text = [0; 5];
    server.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"abcde");
}
