//! One end of an HTTP/2 connection: a machine over a wire, for clients and backends.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use lighty_wire::http2::{ConnFault, Connection, ErrorCode, Event, MessageHead, StreamKey};
use tokio::time::sleep;

use super::sim::now_ms;
use super::wire::Wire;

/// Unwritten bytes above which no more content is framed.
const OUTPUT_BYTES_MAX: usize = 32_768;

/// An event of the machine, with what belongs to it.
pub(crate) enum News {
    /// The head of a request, or of the response to one.
    Head { key: StreamKey, head: Box<MessageHead>, ends: bool },
    /// Content of a message. Nothing of it is credited yet.
    Data { key: StreamKey, bytes: Vec<u8>, ends: bool },
    /// Trailers, which end a message.
    Trailers { key: StreamKey },
    /// The stream was reset: by the peer, or by the machine for the peer's `mistake`.
    Reset { key: StreamKey, code: ErrorCode, mistake: Option<&'static str> },
    /// Streams above this one are not processed.
    GoAway { last_stream: u32 },
}

/// Ways in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Closed,
    Failed(io::ErrorKind),
}

/// One end of a connection.
pub(crate) struct H2End {
    pub(crate) machine: Connection,
    pub(crate) wire: Wire,
    pub(crate) ended: Option<Ended>,
    input: Vec<u8>,
    out: Vec<u8>,
    /// Content that is queued and not framed, by stream.
    contents: BTreeMap<u32, Vec<u8>>,
}

impl H2End {
    pub(crate) fn new(machine: Connection, wire: Wire) -> H2End {
        let (input, out, contents) = (Vec::new(), Vec::new(), BTreeMap::new());
        H2End { machine, wire, ended: None, input, out, contents }
    }

    /// Queues content of a stream, within the machine's room. Returns false if the stream is gone.
    pub(crate) fn queue(&mut self, key: StreamKey, bytes: &[u8], ends: bool) -> bool {
        if self.machine.queue_data(key, bytes.len() as u64, ends).is_err() {
            return false;
        }
        self.contents.entry(key.id()).or_default().extend_from_slice(bytes);
        true
    }

    /// Adds bytes to the output that no machine would send.
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        self.fill();
        self.out.extend_from_slice(bytes);
    }

    /// Releases a stream, which resets it if it is not complete.
    pub(crate) fn release(&mut self, key: StreamKey) {
        self.contents.remove(&key.id());
        self.machine.release(key);
    }

    /// Releases a stream if all its content is framed. Returns whether it was.
    pub(crate) fn release_if_complete(&mut self, key: StreamKey) -> bool {
        // An end without bytes is a frame, too.
        self.fill();
        let is_framed = self.contents.get(&key.id()).is_none_or(Vec::is_empty);
        let is_complete = is_framed && self.out.len() < OUTPUT_BYTES_MAX;
        if is_complete {
            self.release(key);
        }
        is_complete
    }

    /// Writes what is due. Then waits for input, for room to write or for `pause`, whichever comes
    /// first, and returns what has arrived. A deaf end reads nothing.
    pub(crate) async fn turn(
        &mut self,
        pause: Duration,
        is_deaf: bool,
    ) -> Result<Vec<News>, ConnFault> {
        if self.ended.is_some() {
            return Ok(Vec::new());
        }
        loop {
            self.fill();
            let due = self.out.len();
            self.write();
            if due == 0 || !self.out.is_empty() {
                break;
            }
        }
        // A deaf end cannot know that its peer is late.
        let deadline = self.machine.deadline_ms().filter(|_| !is_deaf);
        let timer = deadline.map_or(u64::MAX, |at| at.saturating_sub(now_ms()));
        let pause = pause.min(Duration::from_millis(timer));
        let mut piece = [0; 16_384];
        tokio::select! {
            biased;
            read = self.wire.read(&mut piece), if !is_deaf => match read {
                Ok(0) => self.ended = Some(Ended::Closed),
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                Err(error) => self.ended = Some(Ended::Failed(error.kind())),
            },
            _ = self.wire.writable(), if !self.out.is_empty() => self.write(),
            () = sleep(pause) => if !is_deaf {
                self.machine.handle_timeout(now_ms())?;
            },
        }
        self.news()
    }

    /// Writes everything that is due, unless the peer reads nothing for a second.
    pub(crate) async fn flush(&mut self) {
        self.fill();
        let writing = async {
            // The connection ends in any case.
            let _ = self.wire.write_all(&self.out).await;
            self.wire.settle().await;
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
        self.out.clear();
    }

    /// Writes everything that is due, ends this end's stream, and reads until the peer has closed.
    /// A close without that resets the connection, which destroys what the peer has not read.
    pub(crate) async fn close(&mut self, limit: Duration) {
        let closing = async {
            while !self.out.is_empty() && self.ended.is_none() {
                // The connection ends in any case.
                let _ = self.turn(Duration::MAX, false).await;
            }
            self.wire.shutdown_write().await;
            while self.ended.is_none() {
                let _ = self.turn(Duration::MAX, false).await;
            }
        };
        let _ = tokio::time::timeout(limit, closing).await;
    }

    fn fill(&mut self) {
        while self.out.len() < OUTPUT_BYTES_MAX {
            let room = OUTPUT_BYTES_MAX;
            let Some(frame) = self.machine.poll_data(room, now_ms(), &mut self.out) else { return };
            let content = self.contents.get_mut(&frame.stream.id()).expect("queued content");
            self.out.extend(content.drain(..frame.len));
        }
    }

    fn write(&mut self) {
        while !self.out.is_empty() && self.ended.is_none() {
            match self.wire.try_write(&self.out) {
                Ok(count) => {
                    self.out.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Bytes that arrived before are still read.
                Err(_) => self.out.clear(),
            }
        }
    }

    fn news(&mut self) -> Result<Vec<News>, ConnFault> {
        let mut news = Vec::new();
        loop {
            let handled = self.machine.handle_input(&self.input, now_ms())?;
            if let Some(event) = handled.event {
                news.extend(self.tell(event));
            }
            self.input.drain(..handled.consumed);
            if handled.event.is_none() {
                return Ok(news);
            }
        }
    }

    fn tell(&mut self, event: Event) -> Option<News> {
        let mut head = || Box::new(self.machine.head().clone());
        Some(match event {
            Event::Request { stream: key, ends }
            | Event::Oversized { stream: key, ends }
            | Event::Response { stream: key, ends } => News::Head { key, head: head(), ends },
            Event::Data { stream: key, start, len, ends } => {
                News::Data { key, bytes: self.input[start..start + len].to_vec(), ends }
            }
            Event::Trailers { stream: key } => News::Trailers { key },
            Event::Reset { stream: key, code, fault } => {
                self.contents.remove(&key.id());
                News::Reset { key, code, mistake: fault.map(|fault| fault.message()) }
            }
            Event::GoAway { last_stream, .. } => News::GoAway { last_stream },
            Event::Interim { .. } | Event::Pong { .. } => return None,
        })
    }
}
