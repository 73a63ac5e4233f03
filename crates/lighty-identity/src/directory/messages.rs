//! Messages of LDAP as bytes: their limits, and the few that the library does not handle.
//!
//! RFC 4511 section 5.1 restricts BER to lengths of the definite form. The library parses a message
//! by recursion and without limits, so each one is checked before it.

/// Maximum length of a message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Maximum depth of a message's elements. Search results need six, with controls seven.
pub const MESSAGE_DEPTH_MAX: usize = 16;

/// Maximum length in bytes of all responses to a request.
pub const RESPONSES_BYTES_MAX: usize = 4 << 20;

/// Maximum number of elements in all responses to a request. The library makes a structure of each.
pub const RESPONSES_ELEMENTS_MAX: usize = 32 * 1024;

/// Tags of elements (RFC 4511 appendix B).
mod tag {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const ENUMERATED: u8 = 0x0a;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const EXTENDED_RESPONSE: u8 = 0x78;
}

/// The bit of a tag for elements that consist of elements.
const CONSTRUCTED: u8 = 0x20;

/// The number in a tag that announces a longer one, which LDAP has nowhere.
const LONG_TAG: u8 = 0x1f;

/// The request for StartTLS (RFC 4511 section 4.14.1), with the message number 1.
pub(super) const STARTTLS_REQUEST: &[u8] =
    b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";

/// A message that is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    /// It is not BER as RFC 4511 restricts it.
    #[error("the response is not LDAP")]
    Form,
    /// It is too long.
    #[error("the response has a message of more than {max} bytes", max = MESSAGE_BYTES_MAX)]
    Long,
    /// It is nested too deep.
    #[error("the response is nested deeper than {max}", max = MESSAGE_DEPTH_MAX)]
    Deep,
    /// All responses to the request are too long.
    #[error("the responses have more than {max} bytes", max = RESPONSES_BYTES_MAX)]
    Many,
    /// They have too many elements.
    #[error("the responses have more than {max} elements", max = RESPONSES_ELEMENTS_MAX)]
    Elements,
}

/// The tag and length of an element.
struct BerElement {
    tag: u8,
    /// Length of the tag and the length, in bytes.
    head: usize,
    /// Length of the content in bytes.
    length: usize,
}

impl BerElement {
    /// Reads the beginning of an element; `None` if it is not complete.
    fn read(bytes: &[u8]) -> Result<Option<Self>, MessageFault> {
        let [tag, first, rest @ ..] = bytes else { return Ok(None) };
        if tag & LONG_TAG == LONG_TAG {
            return Err(MessageFault::Form);
        }
        let (tag, count) = (*tag, usize::from(first & 0x7f));
        if first & 0x80 == 0 {
            return Ok(Some(Self { tag, head: 2, length: count }));
        }
        if !(1..=size_of::<u64>()).contains(&count) {
            return Err(MessageFault::Form);
        }
        let Some(digits) = rest.get(..count) else { return Ok(None) };
        let length = digits.iter().fold(0, |sum: u64, digit| sum << 8 | u64::from(*digit));
        let length = usize::try_from(length).map_err(|_| MessageFault::Long)?;
        Ok(Some(Self { tag, head: 2 + count, length }))
    }
}

/// The size of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageSize {
    /// Its length in bytes.
    pub bytes: usize,
    /// The number of its elements.
    pub elements: usize,
}

/// The size of the message at the beginning of `bytes`; `None` if it is not complete.
///
/// # Errors
/// It is over a limit, or no message.
pub fn message_size(bytes: &[u8]) -> Result<Option<MessageSize>, MessageFault> {
    if bytes.first().is_some_and(|first| *first != tag::SEQUENCE) {
        return Err(MessageFault::Form);
    }
    let Some(outer) = BerElement::read(bytes)? else { return Ok(None) };
    if outer.length > MESSAGE_BYTES_MAX - outer.head {
        return Err(MessageFault::Long);
    }
    let length = outer.head + outer.length;
    let Some(content) = bytes.get(outer.head..length) else { return Ok(None) };
    let elements = count_elements(content)?;
    Ok(Some(MessageSize { bytes: length, elements }))
}

/// Counts the elements, and checks that each one lies within the one around it.
fn count_elements(content: &[u8]) -> Result<usize, MessageFault> {
    let mut ends = [0; MESSAGE_DEPTH_MAX];
    ends[0] = content.len();
    // The message itself is the first level.
    let (mut depth, mut at, mut count) = (1, 0, 0);
    while depth > 0 {
        let end = ends[depth - 1];
        if at == end {
            depth -= 1;
            continue;
        }
        let element = BerElement::read(&content[at..end])?.ok_or(MessageFault::Form)?;
        at += element.head;
        count += 1;
        if count > RESPONSES_ELEMENTS_MAX {
            return Err(MessageFault::Elements);
        }
        if element.length > end - at {
            return Err(MessageFault::Form);
        }
        if element.tag & CONSTRUCTED == 0 {
            at += element.length;
        } else if depth == MESSAGE_DEPTH_MAX {
            return Err(MessageFault::Deep);
        } else {
            ends[depth] = at + element.length;
            depth += 1;
        }
    }
    Ok(count)
}

/// Result code and text of a complete message that is an extended response (RFC 4511 section 4.12).
///
/// # Errors
/// It is another message.
pub(super) fn extended_result(message: &[u8]) -> Result<(u32, String), MessageFault> {
    let mut rest = content_of(&mut &message[..], tag::SEQUENCE)?;
    content_of(&mut rest, tag::INTEGER)?;
    let mut response = content_of(&mut rest, tag::EXTENDED_RESPONSE)?;
    let code = content_of(&mut response, tag::ENUMERATED)?;
    content_of(&mut response, tag::OCTET_STRING)?;
    let text = content_of(&mut response, tag::OCTET_STRING)?;
    let code = code.iter().fold(0u32, |sum, digit| sum.wrapping_shl(8) | u32::from(*digit));
    Ok((code, String::from_utf8_lossy(text).into_owned()))
}

/// Takes an element with this tag off the front, and returns its content.
fn content_of<'a>(bytes: &mut &'a [u8], tag: u8) -> Result<&'a [u8], MessageFault> {
    let element = BerElement::read(bytes)?.filter(|element| element.tag == tag);
    let element = element.ok_or(MessageFault::Form)?;
    let rest = &bytes[element.head..];
    let (content, rest) = rest.split_at_checked(element.length).ok_or(MessageFault::Form)?;
    *bytes = rest;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element in the shortest form.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = match u8::try_from(content.len()) {
            Ok(short @ ..0x80) => vec![short],
            _ => [&[0x84][..], &(content.len() as u32).to_be_bytes()].concat(),
        };
        [&[tag][..], &length, content].concat()
    }

    fn message_length(bytes: &[u8]) -> Result<Option<usize>, MessageFault> {
        Ok(message_size(bytes)?.map(|size| size.bytes))
    }

    fn message(content: &[u8]) -> Vec<u8> {
        element(tag::SEQUENCE, content)
    }

    /// A message with `depth` levels, itself included.
    fn nested(depth: usize) -> Vec<u8> {
        (0..depth).fold(Vec::new(), |inner, _| message(&inner))
    }

    #[test]
    fn complete_messages_have_a_length() {
        let entry = message(b"\x02\x01\x02\x64\x0c\x04\x04cn=k\x30\x04\x30\x02\x04\x00");
        for whole in [message(b""), entry, nested(3), message(&element(4, &[7; 300]))] {
            assert_eq!(message_length(&whole), Ok(Some(whole.len())));
            let more = [&whole[..], b"\x30\xff\xff"].concat();
            assert_eq!(
                message_length(&more),
                Ok(Some(whole.len())),
                "the next one is not looked at"
            );
            for cut in 0..whole.len() {
                assert_eq!(message_length(&whole[..cut]), Ok(None), "cut at {cut}");
            }
        }
    }

    #[test]
    fn length_and_depth_are_limited() {
        let at_most = |bytes: usize| message(&element(4, &vec![0; bytes - 12]));
        let longest = at_most(MESSAGE_BYTES_MAX);
        assert_eq!(longest.len(), MESSAGE_BYTES_MAX);
        assert_eq!(message_length(&longest), Ok(Some(longest.len())));
        // Refused at its first bytes, before anything is kept.
        let longer = &at_most(MESSAGE_BYTES_MAX + 1)[..6];
        assert_eq!(message_length(longer), Err(MessageFault::Long));
        assert_eq!(
            message_length(b"\x30\x88\xff\xff\xff\xff\xff\xff\xff\xff"),
            Err(MessageFault::Long)
        );
        let deepest = nested(MESSAGE_DEPTH_MAX);
        assert_eq!(message_length(&deepest), Ok(Some(deepest.len())));
        assert_eq!(message_length(&nested(MESSAGE_DEPTH_MAX + 1)), Err(MessageFault::Deep));
        assert_eq!(message_length(&nested(100_000)), Err(MessageFault::Deep));
        let most = message(&[4, 0].repeat(RESPONSES_ELEMENTS_MAX));
        let size = MessageSize { bytes: most.len(), elements: RESPONSES_ELEMENTS_MAX };
        assert_eq!(message_size(&most), Ok(Some(size)));
        let more = message(&[4, 0].repeat(RESPONSES_ELEMENTS_MAX + 1));
        assert_eq!(message_length(&more), Err(MessageFault::Elements));
    }

    #[test]
    fn other_bytes_are_no_messages() {
        for bad in [
            &b"\x31\x00"[..],
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\x30\x80\x04\x00\x00\x00",
            b"\x30\x89\x00",
            b"\x30\x02\x04\x01",
            b"\x30\x02\x1f\x00",
            b"\x30\x03\x30\x02\x04",
            b"\x30\x04\x30\x01\x04\x00",
            b"\x30\x02\x04\x84",
        ] {
            assert_eq!(message_length(bad), Err(MessageFault::Form), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn result_of_starttls_is_read() {
        let accepted = b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00";
        assert_eq!(extended_result(accepted), Ok((0, String::new())));
        let refused = b"\x30\x0e\x02\x01\x01\x78\x09\x0a\x01\x02\x04\x00\x04\x02no";
        assert_eq!(extended_result(refused), Ok((2, "no".to_owned())));
        let other = b"\x30\x0c\x02\x01\x01\x61\x07\x0a\x01\x00\x04\x00\x04\x00";
        assert_eq!(extended_result(other), Err(MessageFault::Form));
        assert_eq!(message_length(STARTTLS_REQUEST), Ok(Some(STARTTLS_REQUEST.len())));
    }
}
