//! The Content-Length of a response: RFC 9110 section 8.6.

use lighty_core::Response;
use lighty_http::{Known, decimal};

/// Sets the length of the response's body, for HEAD that of GET; `None` if it is unknown.
#[inline(always)]
pub(super) fn set(response: &mut Response, length: Option<u64>, digits: &mut Vec<u8>) {
    let fields = &mut response.fields;
    if fields.contains(Known::ContentLength) {
        if length.is_some() && length == response.declared_length {
            return;
        }
        fields.remove(Known::ContentLength);
    }
    if let Some(length) = length {
        digits.clear();
        decimal::push(length, digits);
        fields.push_known(Known::ContentLength, &*digits);
    }
}
