//! Several parts of a body in one response (`multipart/byteranges`, RFC 9110 section 14.6).

use std::hash::{BuildHasher, Hash, RandomState};
use std::rc::Rc;

use bytes::Bytes;
use lighty_buf::{ChunkQueue, QUEUE_BYTES_MAX};
use lighty_http::Known;
use lighty_http::range::{ByteRange, Multipart};
use lighty_io::file::OpenFile;

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::stage::Stage;

/// Upper bound for the heads of all parts, in bytes.
const PART_HEADS_BYTES_MAX: u64 = 1 << 20;

/// True if the parts fit into the length of a body: their sum may overflow (RFC 9110 section 14.2).
#[must_use]
pub fn is_a_length(parts: &[ByteRange]) -> bool {
    let sum = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.len()));
    sum.is_some_and(|sum| sum <= QUEUE_BYTES_MAX - PART_HEADS_BYTES_MAX)
}

/// The body that the parts are of.
pub struct Divided<'a, T> {
    /// Its media type.
    pub media_type: &'a str,
    /// Its length in bytes.
    pub length: u64,
    /// Tells it from others, for the separator.
    pub identity: T,
}

/// Gives the response the parts, which `push` adds to a queue, and their media type.
pub fn give_parts<T: Hash>(
    ex: &mut Exchange,
    of: &Divided<'_, T>,
    parts: &[ByteRange],
    mut push: impl FnMut(ByteRange, &mut ChunkQueue<Rc<OpenFile>>),
) {
    let boundary = boundary(ex, &of.identity);
    let framing = Multipart { boundary: &boundary, content_type: of.media_type, len: of.length };
    let mut queue = ChunkQueue::new();
    for part in parts {
        let mut head = Vec::with_capacity(160);
        framing.push_part_head(*part, &mut head);
        queue.push_bytes(Bytes::from(head));
        push(*part, &mut queue);
    }
    let mut end = Vec::new();
    framing.push_end(&mut end);
    queue.push_bytes(Bytes::from(end));
    let mut content_type = Vec::new();
    framing.push_content_type(&mut content_type);
    ex.response.fields.set(Known::ContentType, content_type);
    ex.response.body = Body::Chunks(queue);
}

/// Returns a separator that a body cannot predict: keyed by the process's random hash state.
fn boundary(ex: &Exchange, identity: &impl Hash) -> String {
    thread_local! {
        static KEY: RandomState = RandomState::new();
    }
    let what = (ex.machine.counters.requests.get(), identity, ex.stages.when_us(Stage::Head));
    let (one, two) = KEY.with(|key| (key.hash_one(what), key.hash_one((what, 1u8))));
    format!("{one:016x}{two:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_leave_space_for_their_heads_in_the_length() {
        let most = QUEUE_BYTES_MAX - PART_HEADS_BYTES_MAX;
        let part = |start: u64, len: u64| ByteRange { start, end: start + len };
        assert!(is_a_length(&[part(0, most)]));
        assert!(!is_a_length(&[part(0, most + 1)]));
        assert!(is_a_length(&[part(0, most - 5), part(7, 5)]));
        assert!(!is_a_length(&[part(0, most - 5), part(7, 6)]));
        assert!(!is_a_length(&[part(0, u64::MAX), part(0, u64::MAX)]));
    }
}
