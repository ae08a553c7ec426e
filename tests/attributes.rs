//! `#[rotor::main]` and `#[rotor::test]` on real functions: they run on a runtime with the options
//! that were written, and give back what the body gives.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use rotor::net::{TcpListener, TcpStream};
use rotor::task::try_spawn;
use rotor::time::{Instant, sleep};

const LIMIT: u32 = 3;

#[rotor::test]
async fn a_test_runs_on_a_runtime() {
    let task = rotor::spawn(async {
        sleep(Duration::from_millis(1)).await;
        7
    });
    assert_eq!(task.await.unwrap(), 7);
}

#[rotor::test]
async fn a_test_may_return_a_result() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut client = TcpStream::connect(listener.local_addr()?).await?;
    let (mut stream, _) = listener.accept().await?;
    client.write_all(b"hello").await?;
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await?;
    assert_eq!(&greeting, b"hello");
    Ok(())
}

#[rotor::test]
#[should_panic(expected = "the body's words")]
async fn a_test_that_panics_fails() {
    sleep(Duration::ZERO).await;
    panic!("the body's words");
}

#[rotor::main]
async fn fails() -> Result<(), std::num::ParseIntError> {
    "seven".parse::<u32>()?;
    Ok(())
}

#[test]
fn the_bodys_error_is_the_functions() {
    assert!(fails().is_err());
}

#[rotor::test(tasks = LIMIT, drain = Duration::from_millis(100))]
async fn the_options_of_a_test_are_its_runtimes() {
    let pending: Vec<_> =
        (0..LIMIT).map(|_| try_spawn(std::future::pending::<()>()).unwrap()).collect();
    assert!(try_spawn(async {}).is_err(), "all {LIMIT} tasks are in use");
    drop(pending);
}

#[rotor::test(sockets = 2)]
async fn the_sockets_of_a_test_are_limited() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = TcpListener::bind("127.0.0.1:0").await.unwrap_err();
    assert!(error.to_string().contains("raise the option `sockets`"), "{error}");
    drop((listener, other));
}

#[rotor::test(
    operations = 64,
    sockets = 16,
    timers = 16,
    tasks = 16,
    task_bytes = 1_024,
    buffers = 16,
    buffer_bytes = 4_096,
    ring_entries = 32,
    spin_budget = Duration::from_micros(10),
    timer_slack = Duration::from_micros(10),
    start_paused = false,
    drain = Duration::from_secs(1),
    crate = ::rotor,
)]
async fn every_argument_is_taken_at_once() -> io::Result<()> {
    let before = Instant::now();
    sleep(Duration::from_millis(2)).await;
    assert!(before.elapsed() >= Duration::from_millis(2));
    Ok(())
}

#[rotor::test(timers = 0)]
#[should_panic(expected = "rotor: cannot start the runtime: option `timers`")]
async fn an_option_no_runtime_can_have_is_named() {}

#[rotor::main]
async fn answer() -> u32 {
    rotor::spawn(async { 40 }).await.unwrap() + 2
}

#[rotor::main(tasks = 8 * LIMIT, buffer_bytes = 1 << 12, drain = Duration::ZERO)]
async fn answer_within_limits() -> Result<&'static str, String> {
    sleep(Duration::from_millis(1)).await;
    Ok("an answer")
}

#[test]
fn a_main_function_gives_back_what_its_body_gives() {
    assert_eq!(answer(), 42);
    // Each call has a runtime of its own.
    assert_eq!(answer(), 42);
    assert_eq!(answer_within_limits().unwrap(), "an answer");
}

mod elsewhere {
    pub(crate) use rotor as renamed;
}

#[rotor::main(crate = crate::elsewhere::renamed)]
async fn found_elsewhere() -> bool {
    true
}

#[test]
fn the_crate_may_be_found_under_another_path() {
    assert!(found_elsewhere());
}
