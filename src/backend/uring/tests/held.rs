//! What a spinning loop receives by itself.
//!
//! # Unsafe
//! Numbers of descriptors are given to other files.

use super::*;

fn spinning() -> Uring {
    let spin_budget = Duration::from_millis(1);
    Uring::new(&Options { ring_entries: 8, spin_budget, ..Options::default() }).unwrap()
}

/// The next completion, found by spinning alone.
fn spun(uring: &mut Uring) -> Completion {
    let end = uring.now() + 10 * SECOND;
    while uring.spin().unwrap() != TickEnd::Event {
        assert!(uring.now() < end, "no completion came");
    }
    uring.next().unwrap()
}

#[test]
fn a_spin_receives_and_the_ring_is_not_entered() {
    let mut uring = spinning();
    let (near, mut far) = pair();
    let mut memory = [0; 8];
    for length in [1, 3, 8] {
        submit(&mut uring, 1, &receive(&near, &mut memory));
        assert_eq!(uring.spin().unwrap(), TickEnd::NotEntered, "nothing is there");
        far.write_all(&b"12345678"[..length]).unwrap();
        let completion = spun(&mut uring);
        assert_eq!((completion.token, completion.result), (token(1), length as i32));
        assert_eq!(completion.socket_nonempty, length == 8, "there may be more");
        assert_eq!(memory[..length], b"12345678"[..length]);
    }
    drop(far);
    submit(&mut uring, 1, &receive(&near, &mut memory));
    assert_eq!(spun(&mut uring).result, 0, "the end");
    assert_eq!((uring.statistics().enters, uring.in_flight), (0, 0));
}

#[test]
fn without_a_budget_nothing_is_held() {
    let mut uring = uring(8);
    let (near, _far) = pair();
    let mut memory = [0; 8];
    submit(&mut uring, 1, &receive(&near, &mut memory));
    assert!(uring.held.receives().is_empty());
    assert_eq!(uring.spin().unwrap(), TickEnd::Polled, "the ring was entered");
}

#[test]
fn a_tick_hands_over_what_is_held_and_sleeps_until_it_ends() {
    let mut uring = spinning();
    let (near, far) = pair();
    let mut memory = [0; 8];
    submit(&mut uring, 1, &receive(&near, &mut memory));
    assert_eq!(uring.spin().unwrap(), TickEnd::NotEntered);
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        (&far).write_all(b"late").unwrap();
        far
    });
    assert_eq!(uring.tick(TickWait::AtMost(10 * SECOND)).unwrap(), TickEnd::Event);
    assert_eq!(uring.next().unwrap().result, 4);
    writer.join().unwrap();
}

#[test]
fn more_than_a_few_are_the_kernels_and_all_end() {
    let mut uring = spinning();
    let pairs: Vec<_> = (0..7).map(|_| pair()).collect();
    let mut memory = [[0; 8]; 7];
    for (index, (near, _)) in pairs.iter().enumerate() {
        submit(&mut uring, index as u32, &receive(near, &mut memory[index]));
    }
    assert_eq!(uring.held.receives().len(), HELD_MAX);
    for (index, (_, far)) in pairs.iter().enumerate().rev() {
        let mut far = far;
        far.write_all(&vec![b'x'; index + 1]).unwrap();
        let completion = spun(&mut uring);
        assert_eq!(completion.token, token(index as u32));
        assert_eq!(completion.result, index as i32 + 1);
    }
    assert_eq!(uring.in_flight, 0);
}

#[test]
fn one_that_is_canceled_takes_no_bytes() {
    let mut uring = spinning();
    let (near, mut far) = pair();
    let mut memory = [0; 8];
    submit(&mut uring, 1, &receive(&near, &mut memory));
    far.write_all(b"kept").unwrap();
    assert!(uring.cancel(token(1)));
    assert_eq!(answer(&mut uring).result, -libc::ECANCELED);
    submit(&mut uring, 2, &receive(&near, &mut memory));
    let completion = spun(&mut uring);
    assert_eq!((completion.token, completion.result), (token(2), 4));
    assert!(uring.next().is_none() && uring.in_flight == 0);
}

#[test]
fn answers_nobody_has_reaped_take_places_too() {
    let mut uring = spinning();
    let (near, _far) = pair();
    let mut memory = [0; 8];
    for index in 0..100 {
        submit(&mut uring, index, &receive(&near, &mut memory));
        assert!(uring.cancel(token(index)));
        assert!(uring.held.receives().is_empty());
    }
    let kept = std::iter::from_fn(|| uring.held.next_answer()).count();
    uring.in_flight -= kept as u64;
    assert_eq!(kept, HELD_MAX);
    let mut seen = [0; 100];
    while uring.in_flight > 0 {
        let completion = answer(&mut uring);
        assert_eq!(completion.result, -libc::ECANCELED);
        seen[completion.token.index() as usize] += 1;
    }
    assert_eq!(seen[HELD_MAX..], [1; 100 - HELD_MAX]);
}

#[test]
fn dropped_with_receives_held_it_ends_at_once() {
    let mut uring = spinning();
    let (near, mut far) = pair();
    let (second, _) = pair();
    let (mut memory, mut others) = ([0; 8], [0; 8]);
    submit(&mut uring, 1, &receive(&near, &mut memory));
    far.write_all(b"unread").unwrap();
    submit(&mut uring, 2, &receive(&second, &mut others));
    assert!(uring.cancel(token(2)), "and with an answer nobody has reaped");
    drop(uring);
    assert_eq!(memory, [0; 8]);
}

#[test]
fn a_number_that_is_anothers_now_is_received_from_no_more() {
    let mut uring = spinning();
    let (near, mut far) = pair();
    let mut memory = [0; 8];
    submit(&mut uring, 1, &receive(&near, &mut memory));
    far.write_all(b"another's").unwrap();
    uring.adopt(near.as_raw_fd());
    assert_eq!(spun(&mut uring).result, -libc::EBADF);
    assert_eq!(memory, [0; 8]);
    // Given up with an heir, it goes on there.
    let heir = near.try_clone().unwrap();
    submit(&mut uring, 2, &receive(&near, &mut memory));
    uring.forget(near.as_raw_fd(), Some(heir.as_raw_fd()));
    drop(near);
    assert_eq!(spun(&mut uring).result, 8);
    assert_eq!(&memory, b"another'");
}
