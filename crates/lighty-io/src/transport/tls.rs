//! TLS on a connection: the parts of [`Stream`] that apply once it is [secured](Stream::secure).

use std::cell::RefCell;
use std::fmt::{self, Debug};
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use super::{Idle, Stream};
use crate::clock::machine_us;
use crate::tls::{Read, Traffic};

/// Size of a segment on most links: a shorter write fits into one, so it needs no short records.
const SEGMENT_BYTES: usize = 1_400;

/// A connection's TLS. Boxed, because most connections have none.
pub(super) struct Tls(RefCell<Traffic>);

impl Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Stream {
    /// Encrypts the connection with these keys from now on.
    pub(crate) fn secure(&mut self, traffic: Traffic) {
        self.tls = Some(Box::new(Tls(RefCell::new(traffic))));
    }

    /// True if the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// True if the connection uses TLS and the peer has not sent close_notify: an attacker on the
    /// path may have truncated it.
    pub fn may_be_cut(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.0.borrow().is_ended())
    }

    /// True if the connection uses TLS and an incomplete record has arrived.
    pub fn is_amid_record(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.0.borrow().is_amid_record())
    }

    /// Frees the parts of an idle connection's TLS state that can be recreated. For connections
    /// that are idle for long, because the next record takes longer.
    pub fn release_buffers(&self) {
        if let Some(tls) = &self.tls {
            tls.0.borrow_mut().release_buffers();
        }
    }

    /// Sends close_notify, if the connection uses TLS (RFC 8446 section 6.1). Does not wait for
    /// earlier unwritten data. A connection that ends with a reset has no orderly end.
    pub fn close_notify(&self) {
        if let Some(tls) = self.tls.as_ref().filter(|_| !self.ends_with_reset()) {
            let mut traffic = tls.0.borrow_mut();
            traffic.close();
            // If this fails, the peer still sees the end of the connection.
            let _ = traffic.flush(|bytes| self.try_send(bytes));
        }
    }
}

impl Stream {
    /// True if the socket has not accepted all records yet, such as close_notify.
    pub fn has_unsent_records(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.0.borrow().has_output())
    }

    /// Sends records that the socket has not accepted yet, as far as it accepts them now.
    ///
    /// # Errors
    /// `WouldBlock` if some are left, otherwise an error of the socket.
    pub(super) fn try_send_records(&self) -> io::Result<()> {
        match &self.tls {
            Some(tls) => tls.0.borrow_mut().flush(|bytes| self.try_send(bytes)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
impl Stream {
    /// True if nothing but the keys is held.
    pub(crate) fn is_resting(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.0.borrow().is_resting())
    }

    /// Simulates a peer that is 50 ms away.
    pub(crate) fn seem_far_away(&self) {
        let link = crate::tls::Link { round_trip_us: 50_000, segment_bytes: 1_448 };
        let tls = self.tls.as_ref().expect("TLS");
        tls.0.borrow_mut().ramp().begin(machine_us() / 1_000, || Some(link));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A client must send close_notify (RFC 9112 section 9.8). A server decides by itself,
        // depending on whether the client has the whole response.
        if self.tls.as_ref().is_some_and(|tls| tls.0.borrow().is_client()) {
            self.close_notify();
        }
        if self.ends_with_reset() {
            self.reset_on_close();
        }
    }
}

impl Tls {
    /// Bytes sent, as ciphertext, since application data was last received.
    pub(super) fn sent_since_read(&self) -> u64 {
        self.0.borrow().sent_since_read()
    }

    /// Processes records that follow a response: tickets and key updates do not count as data.
    pub(super) fn probe(&self, stream: &Stream) -> Idle {
        let mut traffic = self.0.borrow_mut();
        loop {
            let read = traffic.read(&mut [0; 1]);
            let _ = traffic.flush(|bytes| stream.try_send(bytes));
            match read {
                Ok(Read::Wants) => {}
                Ok(Read::Bytes(_)) => return Idle::Unsolicited,
                Ok(Read::End) | Err(_) => return Idle::Closed,
            }
            let received = stream.try_recv(traffic.room());
            traffic.filled(*received.as_ref().unwrap_or(&0));
            match received {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.forget_readable();
                    return if traffic.is_amid_record() { Idle::Unsolicited } else { Idle::Quiet };
                }
                Ok(0) | Err(_) => return Idle::Closed,
            }
        }
    }

    pub(super) fn has_input(&self) -> bool {
        self.0.borrow().has_input()
    }

    pub(super) fn poll_read(
        &self,
        stream: &Stream,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut traffic = self.0.borrow_mut();
        loop {
            let read = traffic.read(buffer);
            // Sends a reply to the record, if there is space for it now; otherwise with the next
            // write.
            let _ = traffic.flush(|bytes| stream.try_send(bytes));
            match read? {
                Read::Bytes(count) => return Poll::Ready(Ok(count)),
                Read::End => return Poll::Ready(Ok(0)),
                Read::Wants => {}
            }
            let received = stream.poll_recv(cx, traffic.room());
            let count = match &received {
                Poll::Ready(Ok(count)) => *count,
                _ => 0,
            };
            traffic.filled(count);
            // Many clients close without close_notify; lengths and framing tell whether a message
            // is complete.
            if ready!(received)? == 0 {
                return Poll::Ready(Ok(0));
            }
        }
    }

    pub(super) fn try_write(&self, stream: &Stream, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut traffic = self.0.borrow_mut();
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() > SEGMENT_BYTES {
            traffic.ramp().begin(machine_us() / 1_000, || stream.link());
        }
        traffic.write(pieces, |bytes| stream.try_send(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every idle connection has one. The allocator's next larger size has 128 bytes more.
    #[test]
    fn a_connection_fits_its_block() {
        assert!(size_of::<Tls>() <= 896, "{}", size_of::<Tls>());
    }
}
