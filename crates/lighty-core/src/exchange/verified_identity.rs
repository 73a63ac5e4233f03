//! Consequences of a verified identity for the response.
//!
//! A cache between client and server shares responses to requests without `Authorization` (RFC 9111
//! section 3.5). It cannot know that a cookie or a certificate has decided about the response, so a
//! response that it could share becomes private.

use std::cell::RefCell;
use std::rc::Rc;

use lighty_http::fields::list_items;
use lighty_http::{Fields, Known};

use crate::exchange::Exchange;
use crate::exchange::extensions::Extension;
use crate::extension_slot;

/// The identity that modules have verified for a request. Its subrequests share it, because their
/// responses become parts of one response.
#[derive(Clone, Default)]
pub struct VerifiedIdentity(Rc<RefCell<Consequences>>);

impl Extension for VerifiedIdentity {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(self.clone())
    }
}

#[derive(Default)]
struct Consequences {
    is_verified: bool,
    /// Set-Cookie fields for the final response, whatever its status.
    cookies: Fields,
}

impl VerifiedIdentity {
    /// Records that the response depends on a verified identity.
    pub fn verify(&self) {
        self.0.borrow_mut().is_verified = true;
    }

    /// True if the response depends on a verified identity: a cache treats its request like one
    /// with `Authorization`.
    pub fn is_verified(&self) -> bool {
        self.0.borrow().is_verified
    }

    /// Adds the Set-Cookie fields of another response to the final one.
    pub fn add_cookies(&self, fields: &Fields) {
        let cookies = &mut self.0.borrow_mut().cookies;
        for cookie in fields.get_all(Known::SetCookie) {
            cookies.push_known(Known::SetCookie, cookie);
        }
    }
}

/// Adds the consequences to a response whose head is otherwise complete.
#[inline]
pub(crate) fn add_consequences(ex: &mut Exchange) {
    if let Some(identity) = ex.ext::<VerifiedIdentity>() {
        let identity = identity.clone();
        apply(&identity, ex);
    }
}

#[cold]
fn apply(identity: &VerifiedIdentity, ex: &mut Exchange) {
    // Not taken out: a subrequest may end before the response that it becomes a part of.
    let consequences = identity.0.borrow();
    let has_credentials = ex.request.fields.contains(Known::Authorization);
    let fields = &mut ex.response.fields;
    fields.append(&consequences.cookies);
    if consequences.is_verified && may_be_shared(fields, has_credentials) {
        let before = fields.joined(Known::CacheControl.as_str().as_bytes());
        let comma: &[u8] = if before.is_empty() { b"" } else { b", " };
        let joined = [&before, comma, b"private"].concat();
        fields.set(Known::CacheControl, joined);
    }
}

/// True if a shared cache may store a response with these fields although its request, had it
/// carried `Authorization`, would forbid that. With such a request (`has_credentials`), the cache
/// knows by itself.
fn may_be_shared(fields: &Fields, has_credentials: bool) -> bool {
    if has_credentials {
        return false;
    }
    let directives = || fields.get_all(Known::CacheControl).flat_map(list_items);
    let name = |directive: &[u8]| {
        let end = directive.iter().position(|byte| *byte == b'=').unwrap_or(directive.len());
        directive[..end].to_ascii_lowercase()
    };
    !directives().any(|directive| match &*name(directive) {
        b"no-store" | b"public" | b"s-maxage" | b"must-revalidate" => true,
        // With a list of fields, only these are private.
        b"private" => !directive.contains(&b'='),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_a_cache_could_share_are_made_private() {
        for (cache_control, is_made_private) in [
            ("", true),
            ("max-age=3600", true),
            ("no-cache", true),
            ("Private", false),
            ("max-age=5, private", false),
            ("private=\"x-a\"", true),
            ("no-store", false),
            ("public, max-age=5", false),
            ("S-MaxAge=5", false),
            ("must-revalidate", false),
        ] {
            let mut fields = Fields::default();
            if !cache_control.is_empty() {
                fields.push_known(Known::CacheControl, cache_control);
            }
            assert_eq!(may_be_shared(&fields, false), is_made_private, "{cache_control}");
            assert!(!may_be_shared(&fields, true), "{cache_control}");
        }
    }
}
