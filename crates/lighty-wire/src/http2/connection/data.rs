//! Received DATA: RFC 9113 sections 6.1 and 6.9.

use super::super::event::Event;
use super::super::fault::{ConnFault, StreamFault};
use super::super::frame::{FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FrameHead, flag};
use super::super::streams::{ClosedBy, Recv, StreamKey};
use super::{Connection, Expect, Step, WAIT};

/// Received bytes that offset one unproductive frame.
const REPAYING_BYTES: usize = 16_384;

impl Connection {
    /// Handles the head of a frame, and the length of its padding. Windows are charged here for the
    /// whole frame, and the connection's window is credited.
    pub(super) fn handle_data_head(
        &mut self,
        head: FrameHead,
        rest: &[u8],
    ) -> Result<Step, ConnFault> {
        let mut taken = FRAME_HEAD_BYTES;
        let (mut data_len, mut padding) = (head.len, 0);
        if head.has(flag::PADDED) {
            if head.len == 0 {
                return Err(ConnFault::FrameLength);
            }
            let Some(&byte) = rest.first() else { return Ok(WAIT) };
            taken += 1;
            padding = usize::from(byte);
            data_len = (head.len - 1).checked_sub(padding).ok_or(ConnFault::Padding)?;
        }
        if head.stream == 0 {
            return Err(ConnFault::StreamZero);
        }
        if head.len as i64 > self.recv_window {
            return Err(ConnFault::WindowExceeded);
        }
        self.recv_window -= head.len as i64;
        debug_assert!(self.recv_window >= 0, "{}", self.recv_window);
        self.receive_data(head.len);
        let left = head.len - (taken - FRAME_HEAD_BYTES);
        debug_assert_eq!(left, data_len + padding, "bytes of the frame");
        let Some(slot) = self.streams.find(head.stream) else {
            self.drop_data(head, left)?;
            return Ok((taken, None));
        };
        let ends = head.has(flag::END_STREAM);
        if let Err(fault) = self.charge_stream(slot, head.len, data_len, ends) {
            self.skip(left);
            return Ok((taken, self.fail_stream(slot, fault)?));
        }
        // Padding is consumed on arrival.
        let overhead = head.len - data_len;
        if overhead > 0 {
            self.credit_stream(slot, overhead as u32);
        }
        let stream = StreamKey { slot, id: head.stream };
        if data_len > 0 {
            self.expect = Expect::Data { stream, left: data_len, padding, ends };
            return Ok((taken, None));
        }
        self.skip(padding);
        if !ends {
            self.charge_unproductive()?;
            return Ok((taken, None));
        }
        self.end_recv(slot);
        Ok((taken, Some(Event::Data { stream, start: taken, len: 0, ends })))
    }

    /// Counts a frame against its stream's window and announced length.
    fn charge_stream(
        &mut self,
        slot: u32,
        len: usize,
        data_len: usize,
        ends: bool,
    ) -> Result<(), StreamFault> {
        let stream = &mut self.streams.slots()[slot as usize];
        let left = match stream.recv {
            Recv::Head => return Err(StreamFault::DataBeforeHead),
            Recv::Ended => return Err(StreamFault::Closed),
            Recv::Body { left } => left,
        };
        if len as i64 > stream.recv_window {
            return Err(StreamFault::WindowExceeded);
        }
        stream.recv_window -= len as i64;
        debug_assert!(stream.recv_window >= 0, "{}", stream.recv_window);
        debug_assert!(data_len <= len, "{data_len} of {len}");
        if let Some(left) = left {
            let left = left.checked_sub(data_len as u64).ok_or(StreamFault::LengthMismatch)?;
            if ends && left > 0 {
                return Err(StreamFault::LengthMismatch);
            }
            stream.recv = Recv::Body { left: Some(left) };
        }
        Ok(())
    }

    /// Drops a frame for a stream that is no longer open.
    fn drop_data(&mut self, head: FrameHead, left: usize) -> Result<(), ConnFault> {
        if self.is_idle(head.stream) {
            return Err(ConnFault::IdleStream);
        }
        self.skip(left);
        match self.streams.closed_by(head.stream) {
            // If it is no longer remembered, we may have reset it while much was in transit.
            Some(ClosedBy::Us) | None => self.charge_unproductive(),
            Some(ClosedBy::Peer) => self.fail_unopened(head.stream, true, StreamFault::Closed),
            Some(ClosedBy::End) => Err(ConnFault::ClosedStream),
        }
    }

    /// Handles content, as much as has arrived.
    pub(super) fn handle_data(&mut self, input: &[u8]) -> Step {
        let Expect::Data { stream, left, padding, ends } = self.expect else { return WAIT };
        let len = left.min(input.len());
        if len == 0 {
            return WAIT;
        }
        debug_assert!(left <= FRAME_BYTES_MAX && padding <= 255, "{left} {padding}");
        let is_last = len == left;
        if is_last {
            self.skip(padding);
        } else {
            self.expect = Expect::Data { stream, left: left - len, padding, ends };
        }
        self.received += len;
        if self.received >= REPAYING_BYTES {
            self.unproductive.repay((self.received / REPAYING_BYTES) as u32);
            self.received %= REPAYING_BYTES;
        }
        let Some(state) = self.streams.live(stream) else {
            // Reset or released since the frame began.
            return (len, None);
        };
        debug_assert_ne!(state.recv, Recv::Ended, "content after the end of {stream:?}");
        state.uncredited += len as u32;
        self.intake.uncredited += len;
        let ends = ends && is_last;
        if ends {
            self.end_recv(stream.slot);
        }
        (len, Some(Event::Data { stream, start: 0, len, ends }))
    }
}
