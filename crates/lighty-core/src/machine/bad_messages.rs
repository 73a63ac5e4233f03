//! The latest malformed requests of clients and bad responses of backends, for operators. A worker
//! keeps a few, each with the bytes around its fault, and without credentials.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

use crate::log::recent::beginning;

/// Maximum number of messages that a worker keeps.
pub const BAD_MESSAGES_MAX: usize = 100;

/// Maximum bytes kept of a message.
const EXCERPT_BYTES_MAX: usize = 256;

/// Bytes kept before the fault, if the message is longer.
const BEFORE_BYTES: usize = 192;

/// Maximum bytes kept of each other text.
const TEXT_BYTES_MAX: usize = 256;

/// Stands for credentials.
pub(crate) const HIDDEN: &str = "***";

/// Parts of the names of fields whose values are not kept.
const SECRET_NAMES: [&[u8]; 8] =
    [b"auth", b"cookie", b"token", b"secret", b"key", b"password", b"session", b"credential"];

/// Sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMessageKind {
    /// A client sent a request.
    Request,
    /// A backend sent a response.
    Response,
}

/// A malformed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMessage {
    /// Wall-clock second.
    pub unix_s: i64,
    /// Its sender.
    pub kind: BadMessageKind,
    /// The client's address.
    pub client: String,
    /// The backend's address; empty for a request.
    pub backend: String,
    /// Method and target of the request, escaped, as far as known.
    pub request: String,
    /// The fault.
    pub reason: String,
    /// The bytes around the fault.
    pub excerpt: Excerpt,
}

/// A part of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The bytes, escaped as in a string of Rust.
    pub text: String,
    /// Offset of the fault in `text`, if it is at one byte.
    pub mark: Option<usize>,
    /// Offset of the fault in the message.
    pub position: Option<usize>,
    /// Offset of `text` in the message.
    pub offset: usize,
    /// Length of the received part of the message.
    pub length: usize,
}

impl Excerpt {
    /// Cuts a message around a fault.
    pub fn of(message: &[u8], position: Option<usize>) -> Self {
        let position = position.map(|at| at.min(message.len()));
        let latest = message.len().saturating_sub(EXCERPT_BYTES_MAX);
        let offset = position.unwrap_or(0).saturating_sub(BEFORE_BYTES).min(latest);
        let end = message.len().min(offset + EXCERPT_BYTES_MAX);
        let hidden = secrets(&message[..end]);
        let mut excerpt = Self { position, offset, length: message.len(), ..Self::default() };
        let mut at = offset;
        while at < end {
            if position == Some(at) {
                excerpt.mark = Some(excerpt.text.len());
            }
            if let Some(range) = hidden.iter().find(|range| range.contains(&at)) {
                if position.is_some_and(|position| range.contains(&position)) {
                    excerpt.mark = Some(excerpt.text.len());
                }
                excerpt.text.push_str(HIDDEN);
                at = range.end;
                continue;
            }
            excerpt.text.extend(message[at].escape_ascii().map(char::from));
            at += 1;
        }
        if position == Some(end) {
            excerpt.mark = Some(excerpt.text.len());
        }
        excerpt
    }
}

/// Returns the values of fields with credentials.
fn secrets(message: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut start, mut continues) = (0, false);
    for line in message.split_inclusive(|byte| matches!(byte, b'\r' | b'\n')) {
        let text = line.trim_ascii_end();
        let name = text.iter().position(|byte| *byte == b':');
        let value = match (text.first(), name) {
            (Some(b' ' | b'\t'), _) if continues => Some(0),
            (Some(_), Some(length)) => {
                continues = is_secret(&text[..length]);
                continues.then_some(length + 1)
            }
            (Some(_), None) => {
                continues = false;
                None
            }
            (None, _) => None,
        };
        if let Some(from) = value.filter(|from| *from < text.len()) {
            found.push(start + from..start + text.len());
        }
        start += line.len();
    }
    found
}

/// True for the name of a field that has credentials.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.windows(part.len()).any(|window| window == *part))
}

/// The latest bad messages of a worker.
#[derive(Debug, Default)]
pub struct BadMessages(RefCell<VecDeque<BadMessage>>);

impl BadMessages {
    /// Adds a message, in place of the oldest one if there are too many.
    pub fn add(&self, mut message: BadMessage) {
        for text in [&mut message.backend, &mut message.request, &mut message.reason] {
            text.truncate(beginning(text, TEXT_BYTES_MAX).len());
        }
        let mut kept = self.0.borrow_mut();
        if kept.len() >= BAD_MESSAGES_MAX {
            kept.pop_front();
        }
        kept.push_back(message);
    }

    /// Returns the messages, the oldest first.
    pub fn list(&self) -> Vec<BadMessage> {
        self.0.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_marks_the_fault_and_hides_credentials() {
        let head = b"GET / HTTP/1.1\r\nAuthorization: Basic c2VjcmV0\r\n more\r\nA: \x01\r\n\r\n";
        let position = head.iter().position(|byte| *byte == 1);
        let excerpt = Excerpt::of(head, position);
        let text = "GET / HTTP/1.1\\r\\nAuthorization:***\\r\\n***\\r\\nA: \\x01\\r\\n\\r\\n";
        assert_eq!(excerpt.text, text);
        assert_eq!(excerpt.mark, text.find("\\x01"));
        assert_eq!((excerpt.offset, excerpt.length), (0, head.len()));
    }

    #[test]
    fn credentials_stay_hidden_where_the_excerpt_begins_amid_them() {
        let mut head = b"GET / HTTP/1.1\r\nCookie: ".to_vec();
        head.extend([b's'; 600]);
        let excerpt = Excerpt::of(&head, Some(500));
        assert_eq!((excerpt.text.as_str(), excerpt.mark), (HIDDEN, Some(0)));
        for name in ["cookie2 ", "X-Api-Key", "x-auth\tTOKEN"] {
            let head = format!("GET / HTTP/1.1\n{name}: hush\n");
            assert!(!Excerpt::of(head.as_bytes(), None).text.contains("hush"), "{name}");
        }
    }

    #[test]
    fn excerpt_is_short_and_has_the_fault() {
        let message = vec![b'a'; 10_000];
        for position in [0, 1, 191, 192, 193, 5000, 9_999, 10_000, 20_000] {
            let excerpt = Excerpt::of(&message, Some(position));
            assert_eq!(excerpt.text.len(), EXCERPT_BYTES_MAX);
            let position = position.min(message.len());
            assert_eq!(excerpt.mark, Some(position - excerpt.offset), "{position}");
        }
        assert_eq!(Excerpt::of(b"", Some(3)).mark, Some(0));
    }

    #[test]
    fn oldest_message_makes_room() {
        let messages = BadMessages::default();
        for number in 0..=BAD_MESSAGES_MAX {
            messages.add(BadMessage {
                unix_s: number as i64,
                kind: BadMessageKind::Request,
                client: String::new(),
                backend: String::new(),
                request: "é".repeat(TEXT_BYTES_MAX),
                reason: String::new(),
                excerpt: Excerpt::default(),
            });
        }
        let list = messages.list();
        assert_eq!((list.len(), list[0].unix_s), (BAD_MESSAGES_MAX, 1));
        assert!(list.iter().all(|message| message.request.len() == TEXT_BYTES_MAX));
    }
}
