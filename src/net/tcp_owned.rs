//! Reads and writes that copy no byte.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use crate::net::loop_buf::{Kept, LoopBuf, OwnedBuf};
use crate::net::tcp_stream::TcpStream;
use crate::runtime::Sending;

const WHAT: &str = "TcpStream";

impl TcpStream {
    /// Reads what has arrived without copying it: lends the loop's buffer that it lies in. Empty at
    /// the end of the stream. Waits if nothing has arrived.
    ///
    /// A stream has at most one buffer of bytes in hand, and lends at most
    /// [`LEASES_PER_STREAM_MAX`](crate::limits::LEASES_PER_STREAM_MAX), counting what a
    /// [`write_owned`](TcpStream::write_owned) still sends. With all of them out this gives an error and takes no further buffer; reads that copy go on.
    ///
    /// Dropping the future loses nothing: bytes that had arrived are read next.
    ///
    /// # Errors
    /// [`QuotaExceeded`](io::ErrorKind::QuotaExceeded) when all leases are out. Else as
    /// [`read`](TcpStream::read).
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn read_buf(&mut self) -> io::Result<LoopBuf> {
        self.read_buf_shared().await
    }

    pub(super) async fn read_buf_shared(&self) -> io::Result<LoopBuf> {
        let leased = poll_fn(|cx| {
            let shared = self.socket().shared(WHAT)?;
            shared.poll_lease(cx, self.socket().descriptor())
        });
        Ok(LoopBuf::new(leased.await?))
    }

    /// Writes all of a buffer without copying it, and gives it back with the count of its bytes that
    /// were sent: all, or fewer if an error came after them, which the next write tells.
    ///
    /// The loop keeps the buffer meanwhile. **Dropping the future does not stop the write**, once it
    /// was polled: all of the buffer is still sent, in order with later writes, and then freed. Other
    /// writes and [`shutdown`](TcpStream::shutdown) wait until it is over; several of these queue.
    ///
    /// ```
    /// # #[rotor::main]
    /// # async fn main() -> std::io::Result<()> {
    /// use rotor::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let mut client = TcpStream::connect(listener.local_addr()?).await?;
    /// let (mut server, _) = listener.accept().await?;
    ///
    /// let (sent, greeting) = client.write_owned(b"hello".to_vec()).await;
    /// assert_eq!((sent?, greeting), (5, b"hello".to_vec()));
    /// // An echo that never copies.
    /// let received = server.read_buf().await?;
    /// assert_eq!(&*received, b"hello");
    /// server.write_owned(received).await.0?;
    /// assert_eq!(&*client.read_buf().await?, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](TcpStream::write); also when a [`LoopBuf`] is of another runtime. The buffer
    /// comes back; if the runtime goes while it has it, an empty one.
    ///
    /// # Panics
    /// As [`read`](TcpStream::read).
    pub async fn write_owned<B: OwnedBuf>(&mut self, buffer: B) -> (io::Result<usize>, B) {
        self.write_owned_shared(buffer).await
    }

    pub(super) async fn write_owned_shared<B: OwnedBuf>(
        &self,
        buffer: B,
    ) -> (io::Result<usize>, B) {
        let loop_id = self.socket().loop_id();
        if !buffer.belongs_to(loop_id) {
            let words = "the bytes were received by another runtime; copy them";
            return (Err(io::Error::new(io::ErrorKind::InvalidInput, words)), buffer);
        }
        let mut write = Write::Idle(buffer);
        let (result, kept) = poll_fn(|cx| {
            let shared = match self.socket().shared(WHAT) {
                Ok(shared) => shared,
                Err(error) => return Poll::Ready((Err(error), write.take())),
            };
            if let Write::Idle(_) = write {
                if rotor_executor::coop::poll_proceed(cx).is_pending() {
                    return Poll::Pending;
                }
                let Some(kept) = write.take() else {
                    unreachable!("rotor: a write that is idle has its buffer");
                };
                rotor_executor::coop::spend();
                let bytes = kept.into_bytes();
                if bytes.bytes().is_empty() {
                    return Poll::Ready((Ok(0), Some(Kept::new(bytes))));
                }
                match shared.begin_send(self.socket().descriptor(), bytes) {
                    Ok(sending) => write = Write::Sending(sending),
                    Err((result, bytes)) => return Poll::Ready((result, Some(Kept::new(bytes)))),
                }
            }
            let Write::Sending(sending) = &mut write else {
                unreachable!("rotor: a write was polled after it had ended");
            };
            sending.poll(&shared, cx).map(|(result, bytes)| (result, Some(Kept::new(bytes))))
        })
        .await;
        let kept = kept.unwrap_or_else(Kept::lost);
        (result, B::from_kept(kept, loop_id))
    }
}

/// Where a write stands.
enum Write<B> {
    /// Not begun.
    Idle(B),
    /// The loop has the buffer.
    Sending(Sending),
    /// It was handed out.
    Over,
}

impl<B: OwnedBuf> Write<B> {
    /// The buffer, unless the loop has it.
    fn take(&mut self) -> Option<Kept> {
        match std::mem::replace(self, Write::Over) {
            Write::Idle(buffer) => Some(buffer.into_kept()),
            Write::Sending(_) | Write::Over => None,
        }
    }
}
