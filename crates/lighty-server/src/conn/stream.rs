//! A stream of requests on a connection.

use lighty_core::exchange::stage::{Stage, Stages};
use lighty_core::machine::status_board::ConnState;
use lighty_core::{BodyChunk, BodyStream};

use super::Conn;
use crate::worker::conn_table::StreamEntry;

/// The stream that carries an exchange. HTTP/1 has one stream, with one request at a time.
#[derive(Clone, Copy)]
pub(crate) struct RequestStream<'c> {
    pub conn: &'c Conn,
    /// Timeout state, which the sweep checks.
    pub entry: &'c StreamEntry,
}

impl RequestStream<'_> {
    /// Moves the stream's exchange to a stage: sets the timeout state, the letter on the status
    /// page, and the stamp.
    #[inline]
    pub(super) fn enter(self, stage: Stage, stages: &mut Stages) {
        let clock = &self.conn.worker().machine.clock;
        stages.enter(stage, clock.mono_us());
        match stage {
            Stage::FirstByte => self.conn.entry.wait_for_head(clock),
            Stage::Head => {
                self.conn.entry.begin_request();
                self.entry.wait_for(ConnState::Handler, clock);
            }
            Stage::FirstByteOut => self.entry.write(clock),
            _ => {}
        }
    }

    /// Returns the next piece of a response's body. While there is none, the sweep checks only the
    /// timeout of the request body, as long as the response still reads it.
    pub(super) async fn next_piece(self, source: &mut dyn BodyStream) -> Option<BodyChunk> {
        let clock = &self.conn.worker().machine.clock;
        self.entry.wait_for_piece(clock);
        let next = std::future::poll_fn(|cx| {
            let next = source.poll_next(cx);
            let waits = next.is_pending() && self.entry.is_waiting_for_body();
            if waits && !source.poll_meanwhile(cx) {
                self.entry.stop_waiting_for_body(clock);
            }
            next
        })
        .await;
        self.entry.write(clock);
        next
    }

    /// Records the condition that the exchange waits for within a stage.
    #[inline]
    pub(super) fn wait_for(self, state: ConnState) {
        self.entry.wait_for(state, &self.conn.worker().machine.clock);
    }
}
