//! The client behind proxies: `Forwarded` (RFC 7239) and `X-Forwarded-For`.
//!
//! Each proxy appends an entry, so the right end of such a list was written by the direct peer, and
//! the left end may be forged. Everything here therefore goes from right to left, as far as the
//! proxies are trusted ([`walk`]), and malformed data further left does not affect entries to the
//! right.
//!
//! Reading order: [`node`] (one address) · [`Element`] (a proxy's entry) · [`list`] (splitting a
//! line, from the right) · [`walk`] (trusting entries) · [`write`](mod@write).

pub mod list;
pub mod node;
pub mod walk;
pub mod write;

use alloc::borrow::Cow;

pub use node::{Node, NodeName, NodePort};
pub use walk::{ForwardedOrigin, WalkEnd, by_forwarded, by_x_forwarded_for};
pub use write::{NewElement, WriteFault, append_forwarded, append_x_forwarded_for, push_element};

use crate::fields::{is_token_byte, trim};
use crate::{Fields, Known, quoted};

/// A proxy's statement about a connection: RFC 7239 section 4. Other parameters are checked and
/// skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Element<'a> {
    /// The client of the proxy.
    pub for_node: Option<ForwardedValue<'a>>,
    /// The proxy's address.
    pub by: Option<ForwardedValue<'a>>,
    /// The requested `Host`. Unchecked bytes.
    pub host: Option<ForwardedValue<'a>>,
    /// `http` or `https`.
    pub proto: Option<ForwardedValue<'a>>,
    /// The user authenticated by the proxy; lighttpd's own parameter.
    pub remote_user: Option<ForwardedValue<'a>>,
}

/// A token, or the content of a quoted string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedValue<'a> {
    inner: &'a [u8],
}

impl<'a> ForwardedValue<'a> {
    /// The text without quotes and backslashes; copied only if there are any.
    #[must_use]
    pub fn text(&self) -> Cow<'a, [u8]> {
        quoted::unescape(self.inner)
    }
}

impl<'a> Element<'a> {
    /// Parses one member of the list. `None` if it is malformed, or has a parameter twice.
    ///
    /// Spaces around `;` are accepted: RFC 7239 forbids them, but proxies send them.
    #[must_use]
    pub fn parse(member: &'a [u8]) -> Option<Self> {
        let (mut element, mut rest) = (Self::default(), trim(member));
        while !rest.is_empty() {
            if let [b';', behind @ ..] = rest {
                rest = trim(behind);
                continue;
            }
            let (name, value, behind) = split_pair(rest)?;
            element.keep(name, value)?;
            rest = trim(behind);
            if !matches!(rest.first(), None | Some(b';')) {
                return None;
            }
        }
        Some(element)
    }

    fn keep(&mut self, name: &[u8], value: ForwardedValue<'a>) -> Option<()> {
        let slot = match name {
            _ if name.eq_ignore_ascii_case(b"for") => &mut self.for_node,
            _ if name.eq_ignore_ascii_case(b"by") => &mut self.by,
            _ if name.eq_ignore_ascii_case(b"host") => &mut self.host,
            _ if name.eq_ignore_ascii_case(b"proto") => &mut self.proto,
            _ if name.eq_ignore_ascii_case(b"remote_user") => &mut self.remote_user,
            _ => return Some(()),
        };
        slot.replace(value).is_none().then_some(())
    }
}

/// The `nth` element from the right over all lines, from 0. With `ForwardedOrigin::hops - 1` it is
/// the entry of the outermost trusted proxy.
#[must_use]
pub fn element_from_right(fields: &Fields, nth: usize) -> Option<Element<'_>> {
    let lines = fields.get_all(Known::Forwarded).rev();
    Element::parse(lines.flat_map(list::from_right).nth(nth)?.ok()?)
}

/// Splits `token "=" ( token / quoted-string )` from the rest.
fn split_pair(bytes: &[u8]) -> Option<(&[u8], ForwardedValue<'_>, &[u8])> {
    let (name, rest) = split_token(bytes)?;
    match rest.strip_prefix(b"=")? {
        [b'"', string @ ..] => {
            let (inner, behind) = quoted::split(string)?;
            Some((name, ForwardedValue { inner }, behind))
        }
        plain => {
            let (inner, behind) = split_token(plain)?;
            Some((name, ForwardedValue { inner }, behind))
        }
    }
}

fn split_token(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = bytes.iter().position(|&byte| !is_token_byte(byte)).unwrap_or(bytes.len());
    (len > 0).then(|| bytes.split_at(len))
}

#[cfg(test)]
mod tests;
