//! The body of a response that others read too.

use std::pin::Pin;
use std::task::{Context, Poll};

use lighty_buf::Chunk;
use lighty_cache::flight::Passenger;
use lighty_core::exchange::body::{BodyChunk, BodyStream};
use lighty_core::{Fault, FaultReport};

/// The body of a flight.
pub(super) struct FlightBody {
    pub(super) passenger: Passenger,
    pub(super) length: Option<u64>,
    /// Resolves when the client has gone: its passenger leaves then, although there is nothing to
    /// send.
    pub(super) gone: Pin<Box<dyn Future<Output = Fault>>>,
}

impl BodyStream for FlightBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<BodyChunk>> {
        let Poll::Ready(piece) = self.passenger.poll_piece(cx) else {
            return self.gone.as_mut().poll(cx).map(|fault| Some(Err(fault.into())));
        };
        Poll::Ready(match piece {
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
