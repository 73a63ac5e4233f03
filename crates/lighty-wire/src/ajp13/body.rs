//! Flow control of the request body.

use super::fault::{AjpFault, EncodeFault};
use super::packet::{BODY_PREFIX_BYTES, PacketSize, TO_CONTAINER};

/// Body of a request, after its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// No body, and no Content-Length.
    #[default]
    None,
    /// A body of this many bytes; may be 0.
    Length(u64),
    /// A body of unknown length: the client's body is chunked.
    Unknown,
}

/// Tracks the body packets of one request.
///
/// Call `on_get_body` when the container requests body bytes; `due` returns the number of bytes
/// that may be sent now; `take_head` returns the bytes to send before them.
#[derive(Clone, Debug)]
pub struct RequestBody {
    /// Announced bytes not yet sent; `None` if the length is unknown.
    left: Option<u64>,
    /// Maximum bytes of the next packet, if one is due.
    requested: Option<usize>,
    size: PacketSize,
}

impl RequestBody {
    /// Creates the state after the head of a request. With a length above 0 the first packet is due
    /// at once.
    #[must_use]
    pub fn new(body: Body, size: PacketSize) -> Self {
        let left = match body {
            Body::None => Some(0),
            Body::Length(len) => Some(len),
            Body::Unknown => None,
        };
        let requested = matches!(body, Body::Length(1..)).then_some(size.body_bytes());
        Self { left, requested, size }
    }

    /// The container requests up to `len` bytes: [`super::AjpEvent::GetBody`].
    ///
    /// # Errors
    /// [`AjpFault::BodyRequestedTwice`] if the previously requested packet has not been sent yet.
    pub fn on_get_body(&mut self, len: u16) -> Result<(), AjpFault> {
        if self.requested.is_some() {
            return Err(AjpFault::BodyRequestedTwice);
        }
        self.requested = Some(usize::from(len).min(self.size.body_bytes()));
        Ok(())
    }

    /// Maximum bytes of the next packet; `None` if the container must request more first. 0: the
    /// body is complete and an empty packet is due.
    #[must_use]
    pub fn due(&self) -> Option<usize> {
        let requested = self.requested?;
        let left = self.left.map_or(requested, |left| usize::try_from(left).unwrap_or(requested));
        Some(requested.min(left))
    }

    /// True if all announced bytes are sent. Never true for a body of unknown length.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.left == Some(0)
    }

    /// Returns the bytes to send before `len` bytes of body. A length of 0 ends the body.
    ///
    /// # Errors
    /// [`EncodeFault`] if a packet of this length is not due.
    pub fn take_head(&mut self, len: usize) -> Result<BodyHead, EncodeFault> {
        let due = self.due().ok_or(EncodeFault::BodyNotDue)?;
        match (len, self.left) {
            (0, Some(1..)) => return Err(EncodeFault::BodyTooShort),
            (0, _) => self.left = Some(0),
            _ if len > due => return Err(EncodeFault::BodyTooLarge),
            (_, Some(left)) => self.left = Some(left - len as u64),
            (_, None) => {}
        }
        debug_assert!(len <= due && due <= self.size.body_bytes(), "{len} {due}");
        self.requested = None;
        BodyHead::new(len).ok_or(EncodeFault::BodyTooLarge)
    }
}

/// Header of a body packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyHead {
    bytes: [u8; BODY_PREFIX_BYTES],
    len: u8,
}

impl BodyHead {
    /// Creates the header for `len` bytes; `None` for more than the largest packet can carry. An
    /// empty packet has a payload of no bytes, without the inner length.
    #[must_use]
    pub fn new(len: usize) -> Option<Self> {
        let [a, b] = TO_CONTAINER;
        if len == 0 {
            return Some(Self { bytes: [a, b, 0, 0, 0, 0], len: 4 });
        }
        let inner = u16::try_from(len).ok()?;
        let ([c, d], [e, f]) = (inner.checked_add(2)?.to_be_bytes(), inner.to_be_bytes());
        (len <= PacketSize::MAX.body_bytes()).then_some(Self { bytes: [a, b, c, d, e, f], len: 6 })
    }

    /// The header: four or six bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_length_sends_first_and_then_when_asked() {
        let mut body = RequestBody::new(Body::Length(10_000), PacketSize::DEFAULT);
        assert_eq!(body.due(), Some(8186));
        assert_eq!(body.on_get_body(1), Err(AjpFault::BodyRequestedTwice));
        assert_eq!(body.take_head(8187), Err(EncodeFault::BodyTooLarge));
        assert_eq!(body.take_head(0), Err(EncodeFault::BodyTooShort));
        let head = body.take_head(8186).expect("as much as is due");
        assert_eq!(head.as_bytes(), b"\x12\x34\x1f\xfc\x1f\xfa");
        assert_eq!((body.due(), body.is_complete()), (None, false));
        assert_eq!(body.take_head(1), Err(EncodeFault::BodyNotDue));
        body.on_get_body(60_000).expect("its turn");
        assert_eq!(body.due(), Some(1814));
        assert!(body.take_head(1814).is_ok() && body.is_complete());
        body.on_get_body(8186).expect("its turn");
        assert_eq!(body.due(), Some(0));
        assert_eq!(body.take_head(0).expect("the end").as_bytes(), b"\x12\x34\0\0");
    }

    #[test]
    fn an_unknown_length_sends_when_asked_only() {
        let mut body = RequestBody::new(Body::Unknown, PacketSize::MAX);
        assert_eq!(body.due(), None);
        body.on_get_body(100).expect("its turn");
        assert_eq!(body.due(), Some(100));
        assert!(body.take_head(7).is_ok() && !body.is_complete());
        body.on_get_body(u16::MAX).expect("its turn");
        assert_eq!(body.due(), Some(65530));
        assert!(body.take_head(0).is_ok() && body.is_complete());
        body.on_get_body(100).expect("its turn");
        assert_eq!(body.due(), Some(0));
    }

    #[test]
    fn no_body_is_an_empty_packet_for_who_asks() {
        for body in [Body::None, Body::Length(0)] {
            let mut body = RequestBody::new(body, PacketSize::DEFAULT);
            assert_eq!((body.due(), body.is_complete()), (None, true));
            body.on_get_body(8186).expect("its turn");
            assert_eq!(body.due(), Some(0));
            assert_eq!(body.take_head(1), Err(EncodeFault::BodyTooLarge));
        }
    }

    #[test]
    fn heads_have_a_bound() {
        assert_eq!(BodyHead::new(65530).expect("fits").as_bytes(), b"\x12\x34\xff\xfc\xff\xfa");
        assert_eq!((BodyHead::new(65531), BodyHead::new(65536)), (None, None));
    }
}
