//! Received bytes on loan, and writes of buffers that the loop keeps. Neither copies a byte.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

use rotor_executor::coop;

use crate::limits::LEASES_PER_STREAM_MAX;
use crate::op::{Control, Descriptor, OrphanId};
use crate::runtime::core::{Core, Parking, Shared, Step};
use crate::runtime::current::find;
use crate::runtime::stream::{Stepped, closed};
use crate::runtime::streams::Receiving;
use crate::runtime::waits::Wait;
use crate::tables::arena::LeasedBytes;
use crate::tables::orphans::OwnedBytes;

/// Received bytes of a loop, on loan. They come back when this is dropped, and are nobody's when the
/// loop is gone.
pub(crate) struct Lease {
    bytes: Option<LeasedBytes>,
    loop_id: u32,
    stays: PhantomData<*const ()>,
}

impl Lease {
    /// No bytes.
    pub(crate) fn empty(loop_id: u32) -> Lease {
        Lease { bytes: None, loop_id, stays: PhantomData }
    }

    /// Bytes that come back from a send.
    pub(crate) fn returned(loop_id: u32, bytes: LeasedBytes) -> Lease {
        Lease { bytes: Some(bytes), ..Lease::empty(loop_id) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], LeasedBytes::bytes)
    }

    pub(crate) fn loop_id(&self) -> u32 {
        self.loop_id
    }

    /// The bytes, to be sent. They are on loan until the loop has them back.
    pub(crate) fn into_bytes(mut self) -> Option<LeasedBytes> {
        self.bytes.take()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        if let Some(shared) = find(self.loop_id) {
            shared.core.borrow_mut().event_loop.end_lease(bytes);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes of loop {})", self.bytes().len(), self.loop_id)
    }
}

impl Shared {
    /// Lends what is in hand, or nothing at the end of the stream.
    pub(crate) fn poll_lease(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
    ) -> Poll<io::Result<Lease>> {
        ready!(coop::poll_proceed(cx));
        let polled = self.poll_step(cx, |core, parking| core.lease(descriptor, self.id, parking));
        self.spend_if_ready(polled)
    }

    /// Sends what fits of a buffer at once, if nothing is queued ahead, and queues the rest. Answers
    /// the send to wait for, or what there is to say already.
    pub(crate) fn begin_send(
        &self,
        descriptor: Descriptor,
        bytes: OwnedBytes,
    ) -> Result<Sending, (io::Result<usize>, OwnedBytes)> {
        let begun = self.core.borrow_mut().begin_send(descriptor, bytes, self.id);
        self.count_calls();
        begun
    }

    /// Ends the stream that goes to the peer, after what is queued.
    pub(crate) fn poll_shutdown(
        &self,
        cx: &mut Context<'_>,
        descriptor: Descriptor,
    ) -> Poll<io::Result<()>> {
        self.poll_step(cx, |core, parking| {
            let Some(stream) = core.streams.stream(descriptor) else {
                return closed();
            };
            if stream.sending > 0 {
                return parking.park(&mut stream.writer);
            }
            let shut = core.event_loop.control(Control::Shutdown(descriptor, Shutdown::Write));
            Step::Ready(shut.map(|_| ()))
        })
    }

    /// As [`poll_shutdown`](Shared::poll_shutdown), for nobody who could wait.
    pub(crate) fn shutdown_quietly(&self, descriptor: Descriptor) {
        let mut core = self.core.borrow_mut();
        match core.streams.stream(descriptor) {
            Some(stream) if stream.sending > 0 => stream.ends_after_sends = true,
            Some(_) => {
                let end = Control::Shutdown(descriptor, Shutdown::Write);
                let _ = core.event_loop.control(end);
            }
            None => {}
        }
    }
}

impl Core {
    fn lease(
        &mut self,
        descriptor: Descriptor,
        loop_id: u32,
        parking: &mut Parking<'_>,
    ) -> Stepped<Lease> {
        let Some(stream) = self.streams.stream(descriptor) else {
            return closed();
        };
        if stream.in_hand() == 0 {
            if let Some(error) = stream.take_error() {
                return Step::Ready(Err(error));
            }
            if stream.ended {
                return Step::Ready(Ok(Lease::empty(loop_id)));
            }
        }
        if self.event_loop.leases(descriptor) >= LEASES_PER_STREAM_MAX {
            let words = format!(
                "all {LEASES_PER_STREAM_MAX} leases of this stream are out (LEASES_PER_STREAM_MAX); drop a LoopBuf, or read by copying"
            );
            return Step::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, words)));
        }
        if stream.in_hand() == 0 || stream.receiving == Receiving::Filling {
            if stream.in_hand() > 0 {
                // The buffer is lent as a whole, so the receive behind the bytes has to end.
                self.event_loop.cancel_receives(descriptor);
            }
            return self.arm_receive(descriptor, parking);
        }
        let Some(hand) = stream.hand.take() else {
            unreachable!("rotor: bytes are in hand and there is no hand");
        };
        let bytes = self.event_loop.lease(descriptor, hand.buffer, hand.start..hand.end);
        Step::Ready(Ok(Lease { bytes: Some(bytes), ..Lease::empty(loop_id) }))
    }

    fn begin_send(
        &mut self,
        descriptor: Descriptor,
        bytes: OwnedBytes,
        loop_id: u32,
    ) -> Result<Sending, (io::Result<usize>, OwnedBytes)> {
        let length = bytes.bytes().len();
        let mut sent = 0;
        match self.event_loop.send_now(descriptor, bytes.bytes()) {
            Ok(count) => sent = count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err((Err(error), bytes)),
        }
        if sent == length {
            return Err((Ok(sent), bytes));
        }
        match self.start_send(descriptor, bytes, sent) {
            Ok((key, orphan)) => {
                Ok(Sending { wait: Some(Wait::new(loop_id, key)), orphan, loop_id })
            }
            // What has gone beats the refusal.
            Err((_, bytes)) if sent > 0 => Err((Ok(sent), bytes)),
            Err((error, bytes)) => Err((Err(error.into()), bytes)),
        }
    }
}

/// A queued send of a buffer. Dropped, it leaves the send to itself: it goes on, and the loop frees
/// the buffer after its final event.
#[derive(Debug)]
pub(crate) struct Sending {
    wait: Option<Wait>,
    orphan: OrphanId,
    loop_id: u32,
}

impl Sending {
    /// How many bytes were sent, and the buffer; not to be polled again after that.
    pub(crate) fn poll(
        &mut self,
        shared: &Shared,
        cx: &mut Context<'_>,
    ) -> Poll<(io::Result<usize>, OwnedBytes)> {
        let Some(wait) = &mut self.wait else {
            panic!("rotor: a send was polled after it had ended");
        };
        let event = ready!(wait.poll(shared, cx));
        self.wait = None;
        let reclaimed = shared.core.borrow_mut().event_loop.reclaim_sent(self.orphan);
        let Some((bytes, sent)) = reclaimed else {
            unreachable!("rotor: a send has ended and its buffer is gone");
        };
        // What has gone beats the error.
        let result = if sent > 0 { Ok(sent as usize) } else { event.result().map(|_| 0) };
        Poll::Ready((result, bytes))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let Some(wait) = self.wait.take() else { return };
        if let Some(shared) = find(self.loop_id) {
            shared.core.borrow_mut().event_loop.abandon(self.orphan);
        }
        wait.detach();
    }
}
