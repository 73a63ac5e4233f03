//! A stream's content between the codec and the stream's tasks, and the tasks that wait for it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use bytes::{Buf, Bytes};
use lighty_http::Fields;
use lighty_wire::http2::StreamKey;

use super::stream_state::{StreamEvent, StreamRecv, StreamState};
use super::stream_turns::StreamTurns;
use crate::worker::conn_table::StreamEntry;

/// Condition that a sending task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendWait {
    Room,
    /// The codec has taken all its content.
    Drained,
}

/// State and content of a stream. The codec's slots number these buffers, and a slot is reused.
#[derive(Default)]
pub(super) struct H2StreamBuffers {
    /// `None` while the slot is free.
    pub(super) key: Option<StreamKey>,
    pub(super) state: StreamState,
    content: VecDeque<Bytes>,
    content_bytes: usize,
    pub(super) received: Vec<u8>,
    /// Received bytes that were dropped.
    pub(super) dropped: u64,
    /// Trailers of the request. Boxed, because few requests have some.
    pub(super) trailers: Option<Box<Fields>>,
    pub(super) sender: Option<(SendWait, Waker)>,
    pub(super) reader: Option<Waker>,
    pub(super) watcher: Option<Waker>,
    /// Counts the bytes sent.
    pub(super) progress: Option<Rc<StreamEntry>>,
    pub(super) turns: StreamTurns,
    /// Content that was dropped, in bytes.
    pub(super) lost_bytes: usize,
}

impl H2StreamBuffers {
    /// Takes a new stream; `ends` if its request has no content.
    pub(super) fn begin(&mut self, key: StreamKey, ends: bool) {
        debug_assert!(self.key.is_none(), "{key:?} takes the slot of {:?}", self.key);
        debug_assert!(self.content.is_empty() && self.sender.is_none(), "{key:?}: a used slot");
        self.state.handle(if ends { StreamEvent::BeginEnded } else { StreamEvent::Begin });
        self.key = Some(key);
        self.received.clear();
        self.dropped = 0;
        self.turns = StreamTurns::default();
        self.lost_bytes = 0;
        self.trailers = None;
    }

    /// Frees the slot for another stream, which reuses the buffers.
    pub(super) fn free(&mut self) {
        debug_assert_eq!(self.state, StreamState::default(), "{:?}", self.key);
        debug_assert_eq!(self.content_bytes, 0, "{:?}", self.key);
        debug_assert!(self.content.is_empty() && self.received.is_empty(), "{:?}", self.key);
        let is_awaited = self.sender.is_some() || self.reader.is_some() || self.watcher.is_some();
        debug_assert!(!is_awaited && self.progress.is_none(), "{:?} has a task", self.key);
        self.key = None;
    }

    /// Returns true if content has arrived, or none will.
    pub(super) fn has_input(&self) -> bool {
        !self.received.is_empty() || self.state.recv == StreamRecv::Ended
    }

    /// Bytes of content to be sent.
    pub(super) fn content_bytes(&self) -> usize {
        self.content_bytes
    }

    /// Adds content to be sent.
    pub(super) fn push(&mut self, bytes: Bytes) {
        debug_assert!(!bytes.is_empty() && self.state.is_live(), "{:?} {:?}", self.key, self.state);
        self.content_bytes += bytes.len();
        self.content.push_back(bytes);
    }

    /// Moves the next `count` bytes of content to `out`.
    pub(super) fn take_content(&mut self, count: usize, out: &mut Vec<u8>) {
        let mut left = count;
        while left > 0
            && let Some(front) = self.content.front_mut()
        {
            let count = left.min(front.len());
            lighty_buf::append(out, &front[..count]);
            front.advance(count);
            if front.is_empty() {
                self.content.pop_front();
            }
            left -= count;
        }
        debug_assert_eq!(left, 0, "content was announced that is not there");
        self.content_bytes -= count;
    }

    /// Drops all content, and wakes the waiting tasks. Returns the bytes of content that will not
    /// be sent.
    pub(super) fn drop_content(&mut self) -> usize {
        self.content.clear();
        self.received.clear();
        let sender = self.sender.take().map(|(_, waker)| waker);
        let waiting = [sender, self.reader.take(), self.watcher.take()];
        waiting.into_iter().flatten().for_each(Waker::wake);
        let dropped_bytes = std::mem::take(&mut self.content_bytes);
        self.lost_bytes += dropped_bytes;
        dropped_bytes
    }

    /// Ends the exchange's side. Returns the received bytes that were not read.
    pub(super) fn end(&mut self) -> usize {
        self.progress = None;
        (self.sender, self.reader, self.watcher) = (None, None, None);
        std::mem::take(&mut self.received).len()
    }

    /// Checks the counts of a debug build.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        let bytes: usize = self.content.iter().map(Bytes::len).sum();
        debug_assert_eq!(bytes, self.content_bytes, "{:?}", self.key);
        let is_free = self.state == StreamState::default();
        debug_assert_eq!(self.key.is_none(), is_free, "{:?} {:?}", self.key, self.state);
        let waits = self.sender.is_some() || self.reader.is_some() || self.watcher.is_some();
        debug_assert!(!waits || self.state.is_live(), "{:?} {:?}", self.key, self.state);
    }
}
