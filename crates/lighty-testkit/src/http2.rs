//! A raw HTTP/2 client: sends the given frames, and reads responses strictly.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::client::{Client, ConnectionEnd};
use crate::hpack::{Decoder, push_field};

/// Types of frames: RFC 9113 section 6.
pub mod kind {
    /// Content of a message: section 6.1.
    pub const DATA: u8 = 0;
    /// A field section, or its beginning: section 6.2.
    pub const HEADERS: u8 = 1;
    /// The end of one stream, with an error code: section 6.4.
    pub const RST_STREAM: u8 = 3;
    /// Parameters of a connection, and their acknowledgement: section 6.5.
    pub const SETTINGS: u8 = 4;
    /// A round-trip measurement: section 6.7.
    pub const PING: u8 = 6;
    /// The end of a connection, with the last stream processed: section 6.8.
    pub const GOAWAY: u8 = 7;
    /// Bytes added to a flow-control window: section 6.9.
    pub const WINDOW_UPDATE: u8 = 8;
    /// The next part of a field section: section 6.10.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames. ACK and END_STREAM are the same bit.
pub const END_STREAM: u8 = 1;
/// Flag of a frame that completes a field section.
pub const END_HEADERS: u8 = 4;

/// Error codes: RFC 9113 section 7.
pub const NO_ERROR: u32 = 0;
/// The peer broke a rule of the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// The endpoint failed by itself.
pub const INTERNAL_ERROR: u32 = 2;
/// The stream was refused before any processing, so that the request may be sent again.
pub const REFUSED_STREAM: u32 = 7;
/// The stream is no longer needed.
pub const CANCEL: u32 = 8;
/// The peer causes excessive load.
pub const ENHANCE_YOUR_CALM: u32 = 11;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The setting for the initial window of streams.
pub const INITIAL_WINDOW_SIZE: u16 = 4;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Frame {
    /// The frame's type, one of [`kind`].
    pub kind: u8,
    /// Flags. Their meaning depends on the type.
    pub flags: u8,
    /// The stream's number; 0 is the connection.
    pub stream: u32,
    /// The bytes after the nine-byte header, as received.
    pub payload: Vec<u8>,
}

impl Http2Frame {
    /// The 32-bit number at an offset of the payload.
    #[must_use]
    pub fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

/// Received parts of a response on one stream.
#[derive(Clone, Debug, Default)]
pub struct Http2Response {
    /// Statuses and fields of the interim responses.
    pub interim: Vec<(u16, Vec<(String, String)>)>,
    /// Status; 0 until the head has arrived.
    pub status: u16,
    /// Names and values of the final response, in the order received.
    pub fields: Vec<(String, String)>,
    /// Content received so far.
    pub body: Vec<u8>,
    /// Fields that followed the content.
    pub trailers: Vec<(String, String)>,
    /// The stream ended in order.
    pub has_ended: bool,
    /// The error code, if the stream was reset.
    pub reset: Option<u32>,
}

impl Http2Response {
    /// The values of a field, joined.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        let values = self.fields.iter().filter(|(known, _)| known == name);
        let values: Vec<&str> = values.map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn is_over(&self) -> bool {
        self.has_ended || self.reset.is_some()
    }
}

/// A connection.
pub struct Http2 {
    client: Client,
    decoder: Decoder,
    next_stream: u32,
    answers: BTreeMap<u32, Http2Response>,
    authority: String,
    /// Credits windows as content arrives.
    pub credits: bool,
    /// GOAWAY frames: last stream, code, debug data.
    pub goaways: Vec<(u32, u32, String)>,
    /// The server's settings.
    pub settings: BTreeMap<u16, u32>,
}

impl Http2 {
    /// Connects with prior knowledge and default settings.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(Client::tcp(address), &address.to_string(), &[])
    }

    /// Connects with these settings.
    #[must_use]
    pub fn connect_with(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        Self::over(Client::tcp(address), &address.to_string(), settings)
    }

    /// Starts HTTP/2 on a connection.
    #[must_use]
    pub fn over(mut client: Client, authority: &str, settings: &[(u16, u32)]) -> Self {
        client.send(PREFACE);
        let mut http2 = Self {
            client,
            decoder: Decoder::default(),
            next_stream: 1,
            answers: BTreeMap::new(),
            authority: authority.to_owned(),
            credits: true,
            goaways: Vec::new(),
            settings: BTreeMap::new(),
        };
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        http2.send_frame(kind::SETTINGS, 0, 0, &payload);
        http2
    }

    /// The underlying connection.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Sends a frame; fails the test if the server does not accept it.
    pub fn send_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_send_frame(kind, flags, stream, payload).expect("the server takes a frame");
    }

    /// Sends a frame that the server may reject by closing.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn try_send_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        self.client.try_send(frame(kind, flags, stream, payload))
    }

    /// The fields of a request for a target.
    #[must_use]
    pub fn request_fields(&self, method: &str, target: &str) -> Vec<(String, String)> {
        [
            (":method", method),
            (":scheme", "http"),
            (":authority", &self.authority),
            (":path", target),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }

    /// Sends the head of a request and returns its stream. `ends` is true if it has no content.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        more: &[(&str, &str)],
        ends: bool,
    ) -> u32 {
        let mut fields = self.request_fields(method, target);
        fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self.open(&fields, ends)
    }

    /// Opens a stream with these fields.
    pub fn open(&mut self, fields: &[(String, String)], ends: bool) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.send_frame(kind::HEADERS, flags, stream, &block(fields));
        stream
    }

    /// Sends a GET and reads the response.
    pub fn get(&mut self, target: &str) -> Http2Response {
        self.get_with(target, &[])
    }

    /// Like [`Http2::get`], with additional fields.
    pub fn get_with(&mut self, target: &str, more: &[(&str, &str)]) -> Http2Response {
        let stream = self.request("GET", target, more, true);
        self.answer(stream)
    }

    /// Sends a POST with content in one frame and its length, and reads the response.
    pub fn post(&mut self, target: &str, content: &[u8]) -> Http2Response {
        let length = content.len().to_string();
        let stream = self.request("POST", target, &[("content-length", &length)], false);
        self.send_data(stream, content, true);
        self.answer(stream)
    }

    /// Sends content, in frames of the maximum size. The caller observes the windows.
    pub fn send_data(&mut self, stream: u32, content: &[u8], ends: bool) {
        let mut pieces = content.chunks(16_384).peekable();
        if pieces.peek().is_none() {
            self.send_frame(kind::DATA, u8::from(ends), stream, &[]);
        }
        while let Some(piece) = pieces.next() {
            let is_last = ends && pieces.peek().is_none();
            self.send_frame(kind::DATA, u8::from(is_last), stream, piece);
        }
    }

    /// Opens the window of a stream, or of the connection (0), by this many bytes.
    pub fn open_window(&mut self, stream: u32, bytes: u32) {
        self.send_frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32, code: u32) {
        self.send_frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    /// Reads until a stream is complete; fails the test if the connection ends before.
    pub fn answer(&mut self, stream: u32) -> Http2Response {
        self.read_until(stream, Http2Response::is_over)
    }

    /// Reads until the head of a stream's response has arrived.
    pub fn head(&mut self, stream: u32) -> Http2Response {
        self.read_until(stream, |answer| answer.status != 0 || answer.is_over())
    }

    /// Reads until `is_enough` accepts the data received on a stream.
    pub fn read_until(
        &mut self,
        stream: u32,
        is_enough: impl Fn(&Http2Response) -> bool,
    ) -> Http2Response {
        loop {
            let answer = self.answers.entry(stream).or_default();
            if is_enough(answer) {
                return answer.clone();
            }
            if self.next_frame().is_none() {
                panic!("stream {stream}: the connection ends: {:?}", self.goaways);
            }
        }
    }

    /// Data received on a stream so far.
    #[must_use]
    pub fn so_far(&self, stream: u32) -> Http2Response {
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    /// Reads up to the end of the connection. Returns the kind of end.
    pub fn read_to_end(&mut self) -> ConnectionEnd {
        while self.next_frame().is_some() {}
        self.client.read_to_end().1
    }

    /// Reads the next frame and processes it; `None` at the end of the connection.
    pub fn next_frame(&mut self) -> Option<Http2Frame> {
        let head = self.client.read_exact(9).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        assert!(length <= 16_384, "a frame of {length}");
        let payload = self.client.read_exact(length).ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().expect("four bytes"));
        let frame = Http2Frame { kind: head[3], flags: head[4], stream, payload };
        self.take(&frame);
        Some(frame)
    }

    fn take(&mut self, frame: &Http2Frame) {
        match frame.kind {
            kind::DATA => self.take_data(frame),
            kind::HEADERS => self.take_head(frame),
            kind::RST_STREAM => {
                self.answers.entry(frame.stream).or_default().reset = Some(frame.number(0));
            }
            kind::SETTINGS if frame.flags & 1 == 0 => {
                for entry in frame.payload.chunks(6) {
                    let id = u16::from_be_bytes([entry[0], entry[1]]);
                    let value = u32::from_be_bytes(entry[2..].try_into().expect("four bytes"));
                    self.settings.insert(id, value);
                }
                // The server may already have ended the connection.
                let _ = self.try_send_frame(kind::SETTINGS, 1, 0, &[]);
            }
            kind::PING if frame.flags & 1 == 0 => {
                let _ = self.try_send_frame(kind::PING, 1, 0, &frame.payload);
            }
            kind::GOAWAY => {
                let message = String::from_utf8_lossy(&frame.payload[8..]).into_owned();
                self.goaways.push((frame.number(0), frame.number(4), message));
            }
            _ => {}
        }
    }

    fn take_data(&mut self, frame: &Http2Frame) {
        let answer = self.answers.entry(frame.stream).or_default();
        assert!(answer.status != 0 && !answer.is_over(), "content out of place");
        answer.body.extend_from_slice(&frame.payload);
        answer.has_ended = frame.flags & END_STREAM != 0;
        let has_ended = answer.has_ended;
        if self.credits && !frame.payload.is_empty() {
            let bytes = frame.payload.len() as u32;
            let streams = [Some(0), (!has_ended).then_some(frame.stream)];
            for stream in streams.into_iter().flatten() {
                let increment = bytes.to_be_bytes();
                let _ = self.try_send_frame(kind::WINDOW_UPDATE, 0, stream, &increment);
            }
        }
    }

    fn take_head(&mut self, frame: &Http2Frame) {
        assert_eq!(frame.flags & END_HEADERS, END_HEADERS, "one frame for a head");
        let mut fields = self.decoder.decode(&frame.payload);
        let answer = self.answers.entry(frame.stream).or_default();
        assert!(!answer.is_over(), "a head out of place");
        answer.has_ended = frame.flags & END_STREAM != 0;
        let is_lower = |(name, _): &(String, String)| !name.bytes().any(|b| b.is_ascii_uppercase());
        assert!(fields.iter().all(is_lower), "{fields:?}");
        if answer.status != 0 {
            assert!(answer.has_ended, "trailers end a stream");
            answer.trailers = fields;
            return;
        }
        assert!(fields.first().is_some_and(|(name, _)| name == ":status"), "{fields:?}");
        let status: u16 = fields.remove(0).1.parse().expect("a status");
        if status < 200 {
            answer.interim.push((status, fields));
        } else {
            (answer.status, answer.fields) = (status, fields);
        }
    }
}

/// Encodes a frame.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Encodes a field block.
#[must_use]
pub fn block(fields: &[(String, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fields.iter().for_each(|(name, value)| push_field(name, value, &mut bytes));
    bytes
}
