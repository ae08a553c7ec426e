//! What the tests on the scripted backend share: a small loop, its descriptors, and its events.
#![allow(dead_code, unreachable_pub)]

use std::net::{Ipv4Addr, SocketAddr};

use rotor::backend::scripted::{Script, scripted};
use rotor::runtime::Options;
use rotor::{Control, Descriptor, Event, Loop, Operation, Reply, Wait};

pub fn small() -> Options {
    Options {
        operations: 64,
        sockets: 8,
        timers: 64,
        buffers: 4,
        buffer_bytes: 64,
        ..Options::default()
    }
}

pub fn start(options: Options) -> (Loop, Script) {
    let (backend, script) = scripted();
    let event_loop = Loop::with_backend(&options, Box::new(backend)).unwrap();
    (event_loop, script)
}

pub fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 9).into()
}

pub fn stream(event_loop: &mut Loop) -> Descriptor {
    let control = Control::OpenStream { family_of: anywhere() };
    match event_loop.control(control).unwrap() {
        Reply::Opened(descriptor) => descriptor,
        reply => panic!("{reply:?}"),
    }
}

pub fn listener(event_loop: &mut Loop) -> Descriptor {
    match event_loop.control(Control::Listen { address: anywhere(), backlog: 8 }).unwrap() {
        Reply::Opened(descriptor) => descriptor,
        reply => panic!("{reply:?}"),
    }
}

/// The events of one tick that does not wait.
pub fn tick(event_loop: &mut Loop) -> Vec<Event> {
    let mut events = [Event::EMPTY; 128];
    let count = event_loop.tick(&mut events, Wait::Zero).unwrap();
    events[..count].to_vec()
}

/// Pairs of user data and result (a negative errno for an error), in order.
pub fn outcomes(events: &[Event]) -> Vec<(u64, i32)> {
    let number = |event: &Event| match event.result() {
        Ok(count) => count as i32,
        Err(error) => -error.raw_os_error().unwrap(),
    };
    events.iter().map(|event| (event.user_data(), number(event))).collect()
}

pub static BYTES: [u8; 64] = [7; 64];

pub fn send(descriptor: Descriptor, length: usize) -> Operation {
    assert!(length <= BYTES.len());
    // SAFETY: the bytes are static and nothing writes them.
    unsafe { Operation::send(descriptor, BYTES.as_ptr(), length) }
}
