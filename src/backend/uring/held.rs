//! Receives that a spinning loop makes by itself before the kernel is asked to watch their sockets: it
//! looks whether bytes are there, and has them with one call more, where an entry of the ring costs one
//! to hand it over and one to fetch its completion (decision 0015).
#![deny(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::RawFd;

use crate::backend::{Completion, Request, Token};
use crate::options::Options;

/// Looked at together by one call, again and again: more are better watched by the kernel.
pub(super) const HELD_MAX: usize = 4;

/// A receive the kernel does not know of yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) token: Token,
    pub(super) fd: RawFd,
    pub(super) pointer: *mut u8,
    pub(super) length: u32,
}

impl Receive {
    fn of(token: Token, request: &Request) -> Option<Receive> {
        let Request::Receive { fd, pointer, length, now: false } = *request else { return None };
        Some(Receive { token, fd, pointer, length })
    }

    pub(super) fn request(&self) -> Request {
        Request::Receive { fd: self.fd, pointer: self.pointer, length: self.length, now: false }
    }

    fn completion(&self, result: i32) -> Completion {
        // Bytes that fill the memory may not be all there are.
        let socket_nonempty = u32::try_from(result) == Ok(self.length);
        Completion { token: self.token, result, more: false, buffer: None, socket_nonempty }
    }
}

/// Receives held back, and the answers of those that have ended.
#[derive(Debug)]
pub(super) struct Held {
    receives: Vec<Receive>,
    answers: VecDeque<Completion>,
    /// None unless the loop has a spin budget.
    most: usize,
}

impl Held {
    pub(super) fn new(options: &Options) -> Held {
        let most = if options.spin_budget.is_zero() { 0 } else { HELD_MAX };
        Held { receives: Vec::with_capacity(most), answers: VecDeque::with_capacity(most), most }
    }

    /// Holds a receive back. False: it is another request, or there is no place.
    #[inline(always)]
    pub(super) fn keep(&mut self, token: Token, request: &Request) -> bool {
        self.most > 0 && self.keep_if_few(token, request)
    }

    #[cold]
    fn keep_if_few(&mut self, token: Token, request: &Request) -> bool {
        if self.receives.len() + self.answers.len() >= self.most {
            return false;
        }
        let receive = Receive::of(token, request);
        self.receives.extend(receive);
        receive.is_some()
    }

    pub(super) fn receives(&self) -> &[Receive] {
        &self.receives
    }

    /// The one that was kept last.
    pub(super) fn last(&self) -> Option<Receive> {
        self.receives.last().copied()
    }

    /// That one is the kernel's now.
    pub(super) fn forget_last(&mut self) {
        self.receives.pop();
    }

    /// Ends receives: `try_one` gives the result of one, or nothing if it is to be held on.
    pub(super) fn answer(&mut self, mut try_one: impl FnMut(&Receive) -> Option<i32>) {
        let answers = &mut self.answers;
        self.receives.retain(|receive| match try_one(receive) {
            Some(result) => {
                answers.push_back(receive.completion(result));
                false
            }
            None => true,
        });
    }

    /// Ends a receive with `ECANCELED`. False: it is not held.
    pub(super) fn cancel(&mut self, token: Token) -> bool {
        let before = self.answers.len();
        self.answer(|receive| (receive.token == token).then_some(-libc::ECANCELED));
        self.answers.len() > before
    }

    /// The number is another descriptor's from here on; what was meant goes on under `heir`, or ends.
    pub(super) fn renumber(&mut self, fd: RawFd, heir: Option<RawFd>) {
        match heir {
            Some(heir) => {
                for receive in self.receives.iter_mut().filter(|receive| receive.fd == fd) {
                    receive.fd = heir;
                }
            }
            None => self.answer(|receive| (receive.fd == fd).then_some(-libc::EBADF)),
        }
    }

    /// The next answer, in the order they were had.
    #[inline(always)]
    pub(super) fn next_answer(&mut self) -> Option<Completion> {
        if self.answers.is_empty() { None } else { self.take_answer() }
    }

    #[cold]
    fn take_answer(&mut self) -> Option<Completion> {
        self.answers.pop_front()
    }

    /// Forgets all of it, whose memory may go. Answers how many requests that were.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.receives.len() + self.answers.len();
        self.receives.clear();
        self.answers.clear();
        count as u64
    }
}
