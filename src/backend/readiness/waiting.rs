//! Who waits on which descriptor, and when it is performed: the part of the engine without pointers.
#![deny(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

use super::requests::Answer;
use super::selector::{READ, Selector, WRITE};
use super::{Engine, direction_of};
use crate::backend::{Request, Submission, TickEnd, Token};
use crate::op::Interest;
use crate::sys::{clock, descriptor};
use crate::tables::NONE;

impl<S: Selector> Engine<S> {
    /// Queues a request until its descriptor is ready.
    pub(super) fn queue(
        &mut self,
        token: Token,
        request: &Request,
        fd: RawFd,
        direction: u8,
    ) -> Submission {
        let Some(row) = self.rows.find_or_take(fd) else { return Submission::Full };
        if let Err(errno) = self.arm(row, direction) {
            return Submission::Done(-errno);
        }
        let generation = self.rows.get(row).generation;
        let chain = self.rows.get_mut(row).chain(direction);
        self.requests.put(token, *request, [row, generation], chain);
        if self.rows.get(row).ready & direction != 0 {
            self.rows.list(row);
        }
        Submission::Queued
    }

    /// Has the selector watch a direction, if it does not yet. A row that this leaves without use is
    /// freed.
    pub(super) fn arm(&mut self, index: u32, directions: u8) -> Result<(), i32> {
        let key = self.rows.key(index);
        let row = self.rows.get_mut(index);
        if row.armed & directions == directions || row.unwatchable {
            return Ok(());
        }
        let (fd, wanted) = (row.fd, row.armed | directions);
        match self.selector.arm(fd, key, wanted, row.armed) {
            Ok(()) => {
                row.armed = wanted;
                if wanted & READ != 0 && row.short_drains.is_none() {
                    let drains = self.selector.tells_after_short() && descriptor::is_tcp(fd);
                    row.short_drains = Some(drains);
                }
            }
            Err(libc::EPERM) => {
                row.unwatchable = true;
                row.ready = READ | WRITE;
            }
            Err(errno) => {
                self.free_unused(index);
                return Err(errno);
            }
        }
        Ok(())
    }

    pub(super) fn free_unused(&mut self, index: u32) {
        let row = self.rows.get(index);
        if row.armed == 0 && row.is_idle() {
            self.rows.free(index);
        }
    }

    /// Whether a send may find room: a socket mostly has it, so a send is tried unless it is known not
    /// to, or others are in the way.
    pub(super) fn may_send(&self, fd: RawFd) -> bool {
        let Some(row) = self.rows.find(fd).map(|row| self.rows.get(row)) else { return true };
        row.first(WRITE) == NONE && (row.armed & WRITE == 0 || row.ready & WRITE != 0)
    }

    /// A send was tried, or was not because it would have found no room.
    pub(super) fn sent(
        &mut self,
        token: Token,
        request: &Request,
        fd: RawFd,
        result: i32,
    ) -> Submission {
        if result != -libc::EAGAIN {
            return Submission::Done(result);
        }
        self.exhausted(fd, WRITE);
        self.queue(token, request, fd, WRITE)
    }

    /// A call by the side has found a descriptor exhausted.
    pub(super) fn exhausted(&mut self, fd: RawFd, direction: u8) {
        if let Some(row) = self.rows.find(fd) {
            self.rows.get_mut(row).ready &= !direction;
        }
    }

    /// A receive by the side has taken `result` of `length` bytes.
    pub(super) fn received(&mut self, fd: RawFd, result: i32, length: u32) {
        if result == -libc::EAGAIN || result > 0 && (result as u32) < length {
            if let Some(row) = self.rows.find(fd) {
                self.after_receive(row, result, length);
            }
        }
    }

    /// A short receive has drained a TCP stream; what comes after it is told by another edge. Others
    /// may end a receive where a message ends, or what came along with it, and have more.
    pub(super) fn after_receive(&mut self, index: u32, result: i32, length: u32) {
        let row = self.rows.get_mut(index);
        let short = result > 0 && (result as u32) < length && row.short_drains == Some(true);
        if result == -libc::EAGAIN || short && !row.over {
            row.ready &= !READ;
        }
    }

    /// A descriptor has come to the loop: its sends must not wait.
    pub(super) fn came(&self, fd: RawFd) {
        if self.selector.sends_may_wait() {
            descriptor::set_blocking(fd, false);
        }
    }

    /// A stream connects no longer: it is in the mode of all streams again.
    pub(super) fn settle(&self, fd: RawFd) {
        descriptor::set_blocking(fd, !self.selector.sends_may_wait());
    }

    /// Performs what waits on descriptors that are ready.
    pub(super) fn attend(&mut self) {
        for _ in 0..self.rows.listed() {
            let Some(index) = self.rows.take_listed() else { return };
            if self.rows.get(index).fd >= 0 {
                self.serve(index, READ);
                self.serve(index, WRITE);
                self.rows.get_mut(index).fresh = 0;
            }
        }
    }

    pub(super) fn serve(&mut self, row: u32, direction: u8) {
        let mut next = self.rows.get(row).first(direction);
        while next != NONE && self.rows.get(row).ready & direction != 0 {
            let index = next;
            next = self.requests.get(index).next;
            match self.perform(row, index) {
                Some(answer) => {
                    if !matches!(self.requests.get(index).request, Request::Poll { .. }) {
                        self.rows.get_mut(row).fresh &= !direction;
                    }
                    let chain = self.rows.get_mut(row).chain(direction);
                    self.requests.answer(chain, index, answer);
                }
                None => self.rows.get_mut(row).ready &= !direction,
            }
        }
    }

    /// A poll asks how things are, and what is known may be out of date.
    pub(super) fn look(&self, row: u32, fd: RawFd, interest: Interest) -> i32 {
        let row = self.rows.get(row);
        let fresh = row.unwatchable || row.fresh & direction_of(interest) != 0;
        if fresh || descriptor::is_ready(fd, interest) { 1 } else { -libc::EAGAIN }
    }

    /// A number that the system has just given out: what is known of it is out of date.
    pub(super) fn unknown(&mut self, fd: RawFd) {
        if let Some(row) = self.rows.find(fd) {
            self.end_waiting(row, -libc::EBADF);
            self.rows.free(row);
        }
    }

    pub(super) fn end_waiting(&mut self, row: u32, result: i32) {
        for direction in [READ, WRITE] {
            loop {
                let index = self.rows.get(row).first(direction);
                if index == NONE {
                    break;
                }
                let chain = self.rows.get_mut(row).chain(direction);
                self.requests.answer(chain, index, Answer::last(result));
            }
        }
    }

    /// Asks the selector once and attends to what it found.
    pub(super) fn select(&mut self, wait_ns: Option<u64>) -> io::Result<()> {
        self.statistics.enters += 1;
        match self.selector.wait(wait_ns) {
            Ok(woken) => self.woken |= woken,
            Err(libc::EINTR) => {}
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
        while let Some(found) = self.selector.found() {
            let Some(index) = self.rows.named(found.key) else { continue };
            let row = self.rows.get_mut(index);
            row.ready |= found.ready;
            row.over |= found.over;
            if !row.is_idle() {
                row.fresh |= found.ready;
                self.rows.list(index);
            }
        }
        self.attend();
        Ok(())
    }

    pub(super) fn wait(&mut self, wait_ns: Option<u64>) -> io::Result<TickEnd> {
        let start_ns = if wait_ns.is_some() { clock::now_ns() } else { 0 };
        let mut left_ns = wait_ns;
        loop {
            self.select(left_ns)?;
            let woken = std::mem::take(&mut self.woken);
            if woken || self.requests.has_answers() {
                return Ok(TickEnd::Event);
            }
            if let Some(wait_ns) = wait_ns {
                let passed_ns = clock::now_ns() - start_ns;
                if passed_ns >= wait_ns {
                    return Ok(TickEnd::TimedOut);
                }
                left_ns = Some(wait_ns - passed_ns);
            }
        }
    }
}
