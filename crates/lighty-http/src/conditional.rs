//! Conditional requests: RFC 9110 section 13.

use crate::etag::{strong_match, tags, weak_match};
use crate::{Fields, Known, Method, date};

/// Validators of the chosen representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag with its quotes.
    pub etag: Option<&'a [u8]>,
    /// Seconds since 1970 of the last change.
    pub last_modified: Option<i64>,
    /// The current time in seconds since 1970. A file that changed within this second may change
    /// again without a new date, so its date is not a strong validator (RFC 9110 section 8.8.2.2).
    pub now: i64,
}

/// The fields that make a request conditional.
const CONDITIONS: [Known; 5] = [
    Known::IfMatch,
    Known::IfUnmodifiedSince,
    Known::IfNoneMatch,
    Known::IfModifiedSince,
    Known::IfRange,
];

/// The result of evaluating a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionOutcome {
    /// Respond as if there were no conditions.
    Proceed {
        /// True if `Range` may be evaluated.
        ranges: bool,
    },
    /// 304.
    NotModified,
    /// 412.
    PreconditionFailed,
}

/// Evaluates the conditions in the order of RFC 9110 section 13.2.2.
///
/// Call it only if the response without conditions would be 2xx. `exists` is false when the target
/// has no representation yet (a PUT that creates).
#[must_use]
pub fn evaluate(
    method: Method,
    fields: &Fields,
    exists: bool,
    validators: &Validators<'_>,
) -> PreconditionOutcome {
    if !fields.contains_any(&CONDITIONS) {
        return PreconditionOutcome::Proceed { ranges: method == Method::Get };
    }
    if fields.contains(Known::IfMatch) {
        if !any_tag(fields, Known::IfMatch, exists, validators, strong_match) {
            return PreconditionOutcome::PreconditionFailed;
        }
    } else if date_of(fields, Known::IfUnmodifiedSince)
        .is_some_and(|limit| validators.last_modified.is_some_and(|changed| changed > limit))
    {
        return PreconditionOutcome::PreconditionFailed;
    }
    if fields.contains(Known::IfNoneMatch) {
        if any_tag(fields, Known::IfNoneMatch, exists, validators, weak_match) {
            return match method.is_get_or_head() {
                true => PreconditionOutcome::NotModified,
                false => PreconditionOutcome::PreconditionFailed,
            };
        }
    } else if method.is_get_or_head()
        && date_of(fields, Known::IfModifiedSince)
            .is_some_and(|limit| validators.last_modified.is_some_and(|changed| changed <= limit))
    {
        return PreconditionOutcome::NotModified;
    }
    let ranges = method == Method::Get && if_range_holds(fields, validators);
    PreconditionOutcome::Proceed { ranges }
}

/// RFC 9110 section 13.1.5: a strong tag or the exact date; otherwise the whole is sent.
fn if_range_holds(fields: &Fields, validators: &Validators<'_>) -> bool {
    let Some(value) = fields.get(Known::IfRange) else { return true };
    if value.contains(&b'"') {
        return validators.etag.is_some_and(|etag| strong_match(etag, value));
    }
    let Some(changed) = validators.last_modified else { return false };
    date::parse(value) == Some(changed) && changed < validators.now
}

/// True if `*` or a tag of the field (in any line) matches the representation.
fn any_tag(
    fields: &Fields,
    name: Known,
    exists: bool,
    validators: &Validators<'_>,
    matches: fn(&[u8], &[u8]) -> bool,
) -> bool {
    fields.get_all(name).any(|value| match value {
        b"*" => exists,
        list => validators.etag.is_some_and(|etag| tags(list).any(|tag| matches(etag, tag))),
    })
}

/// An invalid or repeated date is ignored (section 13.1.3).
fn date_of(fields: &Fields, name: Known) -> Option<i64> {
    let mut values = fields.get_all(name);
    let first = values.next()?;
    if values.next().is_some() { None } else { date::parse(first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED: i64 = 784_111_777;
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const ALL: PreconditionOutcome = PreconditionOutcome::Proceed { ranges: true };
    const WHOLE: PreconditionOutcome = PreconditionOutcome::Proceed { ranges: false };

    fn run(method: Method, lines: &[(Known, &str)]) -> PreconditionOutcome {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push_known(*name, value);
        }
        let validators =
            Validators { etag: Some(b"\"1\""), last_modified: Some(CHANGED), now: CHANGED + 60 };
        evaluate(method, &fields, true, &validators)
    }

    #[test]
    fn if_match_and_if_unmodified_since() {
        let get = |lines: &[(Known, &str)]| run(Method::Get, lines);
        assert_eq!(get(&[]), ALL);
        assert_eq!(get(&[(Known::IfMatch, "*")]), ALL);
        assert_eq!(get(&[(Known::IfMatch, "\"0\", \"1\"")]), ALL);
        assert_eq!(get(&[(Known::IfMatch, "\"0\"")]), PreconditionOutcome::PreconditionFailed);
        assert_eq!(get(&[(Known::IfMatch, "W/\"1\"")]), PreconditionOutcome::PreconditionFailed);
        assert_eq!(get(&[(Known::IfMatch, "\"0\""), (Known::IfMatch, "\"1\"")]), ALL);
        assert_eq!(
            get(&[(Known::IfUnmodifiedSince, BEFORE)]),
            PreconditionOutcome::PreconditionFailed
        );
        assert_eq!(get(&[(Known::IfUnmodifiedSince, SAME)]), ALL);
        assert_eq!(get(&[(Known::IfUnmodifiedSince, "yesterday")]), ALL);
        assert_eq!(get(&[(Known::IfMatch, "\"1\""), (Known::IfUnmodifiedSince, BEFORE)]), ALL);
    }

    #[test]
    fn if_none_match_and_if_modified_since() {
        let get = |lines: &[(Known, &str)]| run(Method::Get, lines);
        assert_eq!(get(&[(Known::IfNoneMatch, "\"1\"")]), PreconditionOutcome::NotModified);
        assert_eq!(
            get(&[(Known::IfNoneMatch, "\"0\", W/\"1\"")]),
            PreconditionOutcome::NotModified
        );
        assert_eq!(get(&[(Known::IfNoneMatch, "*")]), PreconditionOutcome::NotModified);
        assert_eq!(get(&[(Known::IfNoneMatch, "\"0\"")]), ALL);
        assert_eq!(get(&[(Known::IfModifiedSince, SAME)]), PreconditionOutcome::NotModified);
        assert_eq!(get(&[(Known::IfModifiedSince, AFTER)]), PreconditionOutcome::NotModified);
        assert_eq!(get(&[(Known::IfModifiedSince, BEFORE)]), ALL);
        assert_eq!(get(&[(Known::IfModifiedSince, "1")]), ALL);
        let both = [(Known::IfNoneMatch, "\"0\""), (Known::IfModifiedSince, SAME)];
        assert_eq!(get(&both), ALL);
        let twice = [(Known::IfModifiedSince, SAME), (Known::IfModifiedSince, SAME)];
        assert_eq!(get(&twice), ALL);
        let put = |lines: &[(Known, &str)]| run(Method::Put, lines);
        assert_eq!(put(&[(Known::IfNoneMatch, "\"1\"")]), PreconditionOutcome::PreconditionFailed);
        assert_eq!(put(&[(Known::IfModifiedSince, SAME)]), WHOLE);
        assert_eq!(
            run(Method::Head, &[(Known::IfNoneMatch, "\"1\"")]),
            PreconditionOutcome::NotModified
        );
    }

    #[test]
    fn a_failed_precondition_comes_before_not_modified() {
        let lines = [(Known::IfMatch, "\"0\""), (Known::IfNoneMatch, "\"1\"")];
        assert_eq!(run(Method::Get, &lines), PreconditionOutcome::PreconditionFailed);
    }

    #[test]
    fn if_range() {
        let get = |value: &str| run(Method::Get, &[(Known::IfRange, value)]);
        assert_eq!(get("\"1\""), ALL);
        assert_eq!(get(SAME), ALL);
        for other in ["W/\"1\"", "\"0\"", BEFORE, AFTER, "x"] {
            assert_eq!(get(other), WHOLE, "{other}");
        }
        assert_eq!(run(Method::Head, &[]), WHOLE);
    }

    #[test]
    fn a_date_of_this_very_second_is_weak() {
        let mut fields = Fields::new();
        fields.push_known(Known::IfRange, SAME);
        let validators = |now| Validators { etag: None, last_modified: Some(CHANGED), now };
        assert_eq!(evaluate(Method::Get, &fields, true, &validators(CHANGED)), WHOLE);
        assert_eq!(evaluate(Method::Get, &fields, true, &validators(CHANGED + 1)), ALL);
    }

    #[test]
    fn missing_resource_does_not_match_a_star() {
        for (name, outcome) in
            [(Known::IfMatch, PreconditionOutcome::PreconditionFailed), (Known::IfNoneMatch, WHOLE)]
        {
            let mut fields = Fields::new();
            fields.push_known(name, "*");
            let nothing = Validators::default();
            assert_eq!(evaluate(Method::Put, &fields, false, &nothing), outcome);
        }
    }
}
