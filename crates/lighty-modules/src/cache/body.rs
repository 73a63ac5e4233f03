//! The body of a response that others read too.

use std::task::{Context, Poll, ready};

use lighty_buf::Chunk;
use lighty_cache::flight::Passenger;
use lighty_core::exchange::body::{BodyChunk, BodyStream};
use lighty_core::{Fault, FaultReport};

/// The body of a flight.
pub(super) struct FlightBody {
    pub(super) passenger: Passenger,
    pub(super) length: Option<u64>,
}

impl BodyStream for FlightBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        Poll::Ready(match ready!(self.passenger.poll_piece(cx)) {
            Some(Ok(piece)) => Some(Ok(Chunk::Memory(piece))),
            Some(Err(broken)) => Some(Err(FaultReport::new(Fault::BackendCut, broken.to_string()))),
            None => None,
        })
    }

    fn poll_meanwhile(&mut self, _: &mut Context<'_>) -> bool {
        false
    }

    fn known_length(&self) -> Option<u64> {
        self.length
    }
}
