//! The other ways to receive and send on a bare io_uring loop, beside the one of `bare_uring.rs`: what
//! the choice among them was made from. For messages up to a buffer's size; a socket that takes no
//! more ends the server.
#![allow(
    unsafe_code,
    reason = "entries of the ring hold pointers, and a buffer ring is shared memory"
)]

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::net::{RecvFlags, recv};

use super::bare_uring::{connection_of, ring};
use super::{BUFFER_BYTES, Sent, listen, send_pieces};

const LISTENER: u64 = u64::MAX;
/// Marks a send; the rest is the connection's index.
const SEND: u64 = 1 << 63;
const GROUP: u16 = 1;
/// Buffers of the ring: more than connections.
const BUFFERS: u16 = 2048;
const PAGE_BYTES: usize = 4096;
/// `IOU_PBUF_RING_INC` of linux/io_uring.h.
const INCREMENTAL: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// One receive a connection, into a buffer the kernel picks when bytes arrive.
    Picked,
    /// The same, and it goes on by itself.
    Multishot,
    /// The same, and one buffer is handed out in parts.
    Incremental,
    /// A poll, and then a direct receive.
    Poll,
    /// One receive into a buffer of the connection's own; replies are operations, handed over together.
    Batched,
}

impl Design {
    fn picks(self) -> bool {
        match self {
            Design::Picked | Design::Multishot | Design::Incremental => true,
            Design::Poll | Design::Batched => false,
        }
    }
}

struct Connection {
    socket: OwnedFd,
    /// Taken apart from its owner, and never freed: the kernel uses it.
    buffer: *mut [u8; BUFFER_BYTES],
}

/// Provided buffers, and where the kernel looks for them.
struct Buffers {
    bytes: *mut u8,
    ring: *mut BufRingEntry,
    tail: u16,
    /// How far each buffer is used up; for incremental ones.
    used: Vec<u32>,
}

struct Server {
    design: Design,
    ring: IoUring,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    buffers: Buffers,
    piece: usize,
}

pub(super) fn serve(design: Design, piece: usize) -> io::Result<()> {
    let listener = listen()?;
    let ring = ring()?;
    let mut buffers = Buffers::new();
    let flags = if design == Design::Incremental { INCREMENTAL } else { 0 };
    let address = buffers.ring as u64;
    // SAFETY: the ring's memory is never freed.
    unsafe { ring.submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, flags) }?;
    (0..BUFFERS).for_each(|buffer| buffers.provide(buffer));
    let mut server = Server { design, ring, listener, connections: Vec::new(), buffers, piece };
    server.push(&opcode::AcceptMulti::new(Fd(server.listener.as_raw_fd())).build(), LISTENER)?;
    let mut completions = Vec::new();
    loop {
        server.buffers.publish();
        match server.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        completions.extend(server.ring.completion());
        for completion in completions.drain(..) {
            match completion.user_data() {
                LISTENER => server.accepted(&completion)?,
                send if send & SEND != 0 => server.sent((send & !SEND) as usize, &completion)?,
                index => server.completed(index as usize, &completion)?,
            }
        }
    }
}

impl Buffers {
    fn new() -> Buffers {
        let memory = |bytes| {
            let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a plain size");
            // SAFETY: the size is not zero.
            unsafe { alloc_zeroed(layout) }
        };
        let ring = memory(size_of::<BufRingEntry>() * usize::from(BUFFERS));
        let bytes = memory(stride() * usize::from(BUFFERS));
        Buffers { bytes, ring: ring.cast(), tail: 0, used: vec![0; usize::from(BUFFERS)] }
    }

    fn start(&self, buffer: u16) -> *mut u8 {
        self.bytes.wrapping_add(stride() * usize::from(buffer))
    }

    fn provide(&mut self, buffer: u16) {
        self.used[usize::from(buffer)] = 0;
        let slot = usize::from(self.tail & (BUFFERS - 1));
        let start = self.start(buffer);
        // SAFETY: in the ring; the entry is not the kernel's before the tail passes it. Field by field,
        // for the tail lies in the first entry.
        unsafe {
            let entry = self.ring.add(slot);
            (*entry).set_addr(start as u64);
            (*entry).set_len(BUFFER_BYTES as u32);
            (*entry).set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the ring's memory is never freed, and its tail is written here only.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Buffers a power of two apart would all begin in the same set of the cache.
fn stride() -> usize {
    BUFFER_BYTES + 64
}

impl Server {
    fn push(&mut self, entry: &squeue::Entry, user_data: u64) -> io::Result<()> {
        let entry = entry.clone().user_data(user_data);
        loop {
            // SAFETY: buffers are never freed; a connection is given up when nothing of it is in flight.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.buffers.publish();
            self.ring.submit()?;
        }
    }

    fn accepted(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let socket = connection_of(completion)?;
        let buffer = Box::into_raw(Box::new([0; BUFFER_BYTES]));
        self.connections.push(Some(Connection { socket, buffer }));
        self.arm(self.connections.len() - 1)
    }

    /// Waits for the connection's next bytes, in the design's way.
    fn arm(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = &self.connections[index] else { return Ok(()) };
        let fd = Fd(connection.socket.as_raw_fd());
        let entry = match self.design {
            Design::Picked => opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            Design::Multishot | Design::Incremental => opcode::RecvMulti::new(fd, GROUP).build(),
            Design::Poll => opcode::PollAdd::new(fd, libc::POLLIN as u32).build(),
            Design::Batched => {
                opcode::Recv::new(fd, connection.buffer.cast(), BUFFER_BYTES as u32).build()
            }
        };
        self.push(&entry, index as u64)
    }

    fn completed(&mut self, index: usize, completion: &cqueue::Entry) -> io::Result<()> {
        let Some(connection) = &self.connections[index] else { return Ok(()) };
        let (mut pointer, mut result) = (connection.buffer.cast::<u8>(), completion.result());
        if self.design == Design::Poll {
            // SAFETY: the connection's own buffer, which nothing else uses.
            let buffer = unsafe { &mut *connection.buffer };
            result = match recv(&connection.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((count, _)) => count as i32,
                Err(rustix::io::Errno::AGAIN) => return self.arm(index),
                Err(error) => -error.raw_os_error(),
            };
        }
        if result == -libc::ENOBUFS {
            return self.arm(index);
        }
        if result <= 0 {
            // The client is done, or resets at the end.
            self.connections[index] = None;
            return Ok(());
        }
        let buffer = cqueue::buffer_select(completion.flags()).filter(|_| self.design.picks());
        if let Some(buffer) = buffer {
            let used = &mut self.buffers.used[usize::from(buffer)];
            let from = *used as usize;
            *used += result as u32;
            pointer = self.buffers.start(buffer).wrapping_add(from);
        }
        if self.design == Design::Batched {
            let fd = Fd(connection.socket.as_raw_fd());
            let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
            let entry = opcode::Send::new(fd, pointer, result as u32).flags(flags).build();
            return self.push(&entry, SEND | index as u64);
        }
        // SAFETY: the kernel has just written these bytes, and writes them no more until the buffer is
        // provided or the receive armed again.
        let bytes = unsafe { std::slice::from_raw_parts(pointer, result as usize) };
        match send_pieces(&connection.socket, bytes, self.piece) {
            Ok(Sent::All) => {}
            Ok(Sent::Full(_)) => return Err(io::Error::other("a socket is full")),
            Err(_) => self.connections[index] = None,
        }
        if let Some(buffer) = buffer {
            // Of an incremental buffer the kernel says whether it will use more of it.
            if !cqueue::buffer_more(completion.flags()) {
                self.buffers.provide(buffer);
            }
        }
        if cqueue::more(completion.flags()) { Ok(()) } else { self.arm(index) }
    }

    fn sent(&mut self, index: usize, completion: &cqueue::Entry) -> io::Result<()> {
        if completion.result() <= 0 {
            self.connections[index] = None;
            return Ok(());
        }
        self.arm(index)
    }
}
