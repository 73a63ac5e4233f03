//! Messages whose parts must be forwarded immediately: the field `Incremental`, and nginx's
//! `X-Accel-Buffering`.

use crate::Fields;
use crate::fields::trim;

/// True if a message's sender requests that each part is forwarded immediately.
///
/// `Incremental` is a boolean structured field (RFC 9651 section 3.3.6), possibly with parameters.
/// `X-Accel-Buffering: no` has the same meaning in a response.
#[must_use]
pub fn is_requested(fields: &Fields) -> bool {
    let incremental = fields.get_named(b"Incremental").map(trim);
    let is_true = incremental.is_some_and(|value| {
        let rest = value.strip_prefix(b"?1");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b';' | b' ')))
    });
    is_true
        || fields
            .get_named(b"X-Accel-Buffering")
            .is_some_and(|value| trim(value).eq_ignore_ascii_case(b"no"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fields_are_read() {
        for (name, value, wanted) in [
            ("Incremental", "?1", true),
            ("incremental", " ?1;a=b", true),
            ("Incremental", "?0", false),
            ("Incremental", "1", false),
            ("Incremental", "?10", false),
            ("X-Accel-Buffering", "no", true),
            ("x-accel-buffering", "No ", true),
            ("X-Accel-Buffering", "yes", false),
            ("Accept", "?1", false),
        ] {
            let mut fields = Fields::default();
            fields.push(name.as_bytes(), value.as_bytes());
            assert_eq!(is_requested(&fields), wanted, "{name}: {value}");
        }
    }
}
