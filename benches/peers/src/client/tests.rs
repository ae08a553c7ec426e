//! The client against servers that do wrong: it must say so, or a broken echo would be measured.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use super::*;

/// Runs the client against a server that does `serve` with what it received the nth time.
fn against(serve: impl Fn(usize, &mut [u8]) -> bool + Send + 'static) -> io::Result<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        let mut buffer = [0; 4096];
        for turn in 0.. {
            match stream.read(&mut buffer) {
                Ok(count @ 1..) if serve(turn, &mut buffer[..count]) => {
                    let _ = stream.write_all(&buffer[..count]);
                }
                _ => return,
            }
        }
    });
    let cell = "1x64".parse().expect("a cell");
    let idle = || Ok(ServerUse { cpu_ns: 0, waited_ns: 0 });
    let (warm_up, measured) = (Duration::from_millis(5), Duration::from_millis(20));
    let mut client = Client::connect(address, cell)?;
    let mut whole = client.run(warm_up, measured, idle)?;
    // Goes on where it was after a pause.
    whole += client.run(warm_up, measured, idle)?;
    Ok(whole)
}

#[test]
fn a_right_echo_is_measured() {
    let measured = against(|_, _| true).expect("every echo is right");
    assert!(measured.echoes > 0);
    assert_eq!(measured.echoes, measured.latency_ns.len());
}

#[test]
fn a_byte_that_differs_is_an_error() {
    let error = against(|turn, bytes| {
        bytes[7] ^= u8::from(turn == 3);
        true
    });
    let text = error.expect_err("the fourth echo is wrong").to_string();
    assert!(text.contains("other bytes back"), "{text}");
}

#[test]
fn an_answer_of_another_message_is_an_error() {
    let first = std::sync::Mutex::new(Vec::new());
    let error = against(move |turn, bytes| {
        let mut first = first.lock().expect("one thread");
        match turn {
            0 => *first = bytes.to_vec(),
            _ => bytes.copy_from_slice(&first),
        }
        true
    });
    let text = error.expect_err("the second echo is the first again").to_string();
    assert!(text.contains("other bytes back"), "{text}");
}

#[test]
fn a_server_that_closes_is_an_error() {
    let text = against(|turn, _| turn < 3).expect_err("the server leaves").to_string();
    assert!(text.contains("closed by the server"), "{text}");
}
