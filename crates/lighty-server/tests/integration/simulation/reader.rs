//! A client's reader: parses responses, with every way in which they may end.

use tokio::time::sleep;

use super::rng::Rng;
use super::wire::Wire;

/// Ways in which a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The connection was closed in its middle, without a reset.
    Closed,
    /// The connection was reset in its middle.
    Reset,
    /// It is malformed.
    Malformed,
}

/// A received response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
    /// It ends with the connection.
    pub(crate) ends_with_connection: bool,
}

impl Response {
    /// Returns a field's value.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns true if the server announces that it will close.
    pub(crate) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }
}

/// Reads responses from one connection.
pub(crate) struct Reader<'a> {
    wire: &'a Wire,
    buffer: Vec<u8>,
    pub(crate) responses: Vec<Response>,
    /// Way in which the connection ended, if it has.
    pub(crate) ended: Option<End>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(wire: &'a Wire) -> Self {
        Reader { wire, buffer: Vec::new(), responses: Vec::new(), ended: None }
    }

    /// Returns the bytes that belong to no response.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads one response and keeps it. Returns `None` if the connection ended before it.
    pub(crate) async fn respond(&mut self, is_head: bool, pace: Option<&Rng>) -> Option<End> {
        let head = loop {
            let Some(head) = self.head(pace).await else {
                if self.buffer.is_empty() {
                    return None;
                }
                break None;
            };
            if !head.starts_with("HTTP/1.1 1") {
                break Some(head);
            }
        };
        let Some(head) = head else {
            let end = self.ended.unwrap_or(End::Closed);
            let head = String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned();
            let ends_with_connection = false;
            self.responses.push(Response {
                status: 0,
                head,
                body: Vec::new(),
                end,
                ends_with_connection,
            });
            return Some(end);
        };
        let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
            end: End::Whole,
            ends_with_connection: false,
        };
        response.end = match status {
            0 => End::Malformed,
            _ if is_head || status == 304 || status == 204 => End::Whole,
            _ => self.body(&mut response, pace).await,
        };
        let end = response.end;
        self.responses.push(response);
        Some(end)
    }

    async fn body(&mut self, response: &mut Response, pace: Option<&Rng>) -> End {
        if let Some(length) = response.field("content-length") {
            let Ok(length) = length.parse::<usize>() else { return End::Malformed };
            return self.take(&mut response.body, length, pace).await;
        }
        if response.field("transfer-encoding").is_none() {
            response.ends_with_connection = true;
            while self.more(pace).await {
                response.body.append(&mut self.buffer);
            }
            response.body.append(&mut self.buffer);
            return match self.ended {
                Some(End::Reset) => End::Reset,
                _ if self.wire.is_truncated() => End::Closed,
                _ => End::Whole,
            };
        }
        loop {
            let line = loop {
                if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                    break self.buffer.drain(..end + 2).take(end).collect::<Vec<u8>>();
                }
                if !self.more(pace).await {
                    return self.ended.unwrap_or(End::Closed);
                }
            };
            let line = String::from_utf8_lossy(&line).into_owned();
            let Ok(length) = usize::from_str_radix(&line, 16) else { return End::Malformed };
            let mut chunk = Vec::new();
            let end = self.take(&mut chunk, length + 2, pace).await;
            chunk.truncate(length);
            response.body.append(&mut chunk);
            if end != End::Whole || length == 0 {
                return end;
            }
        }
    }

    async fn take(&mut self, into: &mut Vec<u8>, length: usize, pace: Option<&Rng>) -> End {
        while self.buffer.len() < length {
            if !self.more(pace).await {
                into.append(&mut self.buffer);
                return self.ended.unwrap_or(End::Closed);
            }
        }
        into.extend(self.buffer.drain(..length));
        End::Whole
    }

    async fn head(&mut self, pace: Option<&Rng>) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            if !self.more(pace).await {
                return None;
            }
        }
    }

    /// Reads more. Returns false at the end of the connection.
    async fn more(&mut self, pace: Option<&Rng>) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let mut piece = vec![0; 32_768];
        if let Some(rng) = pace {
            sleep(rng.ms(0, 200)).await;
            piece.truncate(rng.between(2_000, 32_768) as usize);
        }
        match self.wire.read(&mut piece).await {
            Ok(0) => self.ended = Some(End::Closed),
            Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
            Err(_) => self.ended = Some(End::Reset),
        }
        self.ended.is_none()
    }
}
