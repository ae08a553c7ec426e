//! Generic functions of the futures ecosystem, over rotor's streams.

use futures_util::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy};
use rotor::net::{TcpListener, TcpStream};
use rotor_compat::futures::FuturesIo;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

#[rotor::test]
async fn copy_echoes_a_megabyte_between_the_halves_of_a_stream() {
    let (client, server) = pair().await;
    let (read, write) = server.into_split();
    let echo = rotor::spawn(async move {
        let mut write = FuturesIo::new(write);
        let count = copy(FuturesIo::new(read), &mut write).await.unwrap();
        write.close().await.unwrap();
        count
    });
    let upload: Vec<u8> = (0..1_000_000).map(|index| (index % 251) as u8).collect();
    let (read, write) = client.into_split();
    let sent = upload.clone();
    let sender = rotor::spawn(async move {
        let mut write = FuturesIo::new(write);
        write.write_all(&sent).await.unwrap();
        write.close().await.unwrap();
    });
    let mut download = Vec::new();
    FuturesIo::new(read).read_to_end(&mut download).await.unwrap();
    assert!(download == upload);
    assert_eq!(echo.await.unwrap(), upload.len() as u64);
    sender.await.unwrap();
}

#[rotor::test]
async fn lines_are_read_through_a_buffered_reader() {
    let (client, server) = pair().await;
    let mut client = FuturesIo::new(client);
    client.write_all(b"first\nsecond\n").await.unwrap();
    client.close().await.unwrap();
    let mut reader = BufReader::new(FuturesIo::new(server));
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    assert_eq!(line, "first\n");
    line.clear();
    reader.read_line(&mut line).await.unwrap();
    assert_eq!(line, "second\n");
    assert_eq!(reader.read_line(&mut line).await.unwrap(), 0);
    drop(reader.into_inner().into_inner());
}
