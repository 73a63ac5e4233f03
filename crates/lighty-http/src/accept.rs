//! Content negotiation: `Accept` and `Accept-Encoding`, RFC 9110 section 12.5.

use crate::fields::{list_items, trim};

/// A weight in thousandths, 0 to 1000.
pub type Quality = u16;

const QUALITY_FULL: Quality = 1000;

/// The client's weight for a media type, by the most specific matching range. Without the field
/// (`None`) everything is accepted; a type that no range matches has weight 0.
#[must_use]
pub fn media_quality(accept: Option<&[u8]>, media_type: &str) -> Quality {
    let Some(accept) = accept else { return QUALITY_FULL };
    let mut best = (0, 0);
    for item in list_items(accept) {
        let (range, quality) = split_quality(item);
        let specificity = media_specificity(range, media_type.as_bytes());
        if specificity > best.0 || (specificity == best.0 && specificity > 0 && quality > best.1) {
            best = (specificity, quality);
        }
    }
    best.1
}

/// True if `wanted` outweighs `default`: a directory listing is JSON only for clients that prefer
/// it.
#[must_use]
pub fn prefers(accept: Option<&[u8]>, wanted: &str, default: &str) -> bool {
    media_quality(accept, wanted) > media_quality(accept, default)
}

/// The weights that an `Accept-Encoding` gives to some codings and to `identity`, read in one pass.
#[derive(Clone, Copy, Debug)]
pub struct CodingWeights<const N: usize> {
    named: [Option<Quality>; N],
    identity: Option<Quality>,
    /// The weight of `*`.
    others: Option<Quality>,
}

impl<const N: usize> CodingWeights<N> {
    /// Reads the weights of `codings`. A name may have the prefix `x-`; the first of equal names
    /// counts.
    #[must_use]
    pub fn of(accept_encoding: &[u8], codings: &[&str; N]) -> Self {
        let mut weights = Self { named: [None; N], identity: None, others: None };
        for item in list_items(accept_encoding) {
            let (name, quality) = split_quality(item);
            let plain = match name {
                [b'x' | b'X', b'-', plain @ ..] => plain,
                _ => name,
            };
            let is = |coding: &str| {
                let coding = coding.as_bytes();
                name.eq_ignore_ascii_case(coding) || plain.eq_ignore_ascii_case(coding)
            };
            for (weight, coding) in weights.named.iter_mut().zip(codings) {
                if is(coding) {
                    weight.get_or_insert(quality);
                }
            }
            if is("identity") {
                weights.identity.get_or_insert(quality);
            } else if is("*") {
                weights.others.get_or_insert(quality);
            }
        }
        weights
    }

    /// The weight of the coding of this index; 0 unless it is named or `*` is.
    #[must_use]
    pub fn quality(&self, index: usize) -> Quality {
        self.named[index].or(self.others).unwrap_or(0)
    }

    /// The weight of `identity`, if it is named.
    #[must_use]
    pub const fn identity(&self) -> Option<Quality> {
        self.identity
    }

    /// True if an unencoded response is not acceptable: `identity;q=0`, or `*;q=0` without
    /// `identity`.
    #[must_use]
    pub fn refuses_identity(&self) -> bool {
        self.identity.or(self.others) == Some(0)
    }
}

/// 3 for the type itself, 2 for `type/*`, 1 for `*/*`, 0 for no match. Parameters of the range are
/// ignored: no resource has variants that differ by them.
fn media_specificity(range: &[u8], media_type: &[u8]) -> u8 {
    let major_len = media_type.iter().position(|&byte| byte == b'/').map_or(0, |at| at + 1);
    if range.eq_ignore_ascii_case(media_type) {
        3
    } else if range == b"*/*" || range == b"*" {
        1
    } else if range.ends_with(b"/*")
        && range[..range.len() - 1].eq_ignore_ascii_case(&media_type[..major_len])
    {
        2
    } else {
        0
    }
}

/// Splits an item into its name and its `q`; a malformed weight counts as missing.
fn split_quality(item: &[u8]) -> (&[u8], Quality) {
    if !item.contains(&b';') {
        return (item, QUALITY_FULL);
    }
    let mut parts = item.split(|&byte| byte == b';').map(trim);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| match part {
        [b'q' | b'Q', b'=', value @ ..] => parse_quality(value),
        _ => None,
    });
    (name, quality.unwrap_or(QUALITY_FULL))
}

/// Parses a weight: RFC 9110 section 12.4.2: `0`, `1`, and up to three decimals.
#[must_use]
pub fn parse_quality(text: &[u8]) -> Option<Quality> {
    let (whole, decimals) = match text {
        [whole @ (b'0' | b'1')] | [whole @ (b'0' | b'1'), b'.'] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut quality = Quality::from(whole - b'0') * QUALITY_FULL;
    for (digit, scale) in decimals.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            return None;
        }
        quality += Quality::from(digit - b'0') * scale;
    }
    (quality <= QUALITY_FULL).then_some(quality)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROWSER: &str =
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";

    fn media(accept: &str, media_type: &str) -> Quality {
        media_quality(Some(accept.as_bytes()), media_type)
    }

    #[test]
    fn the_most_specific_range_decides() {
        assert_eq!(media(BROWSER, "text/html"), 1000);
        assert_eq!(media(BROWSER, "application/json"), 800);
        assert_eq!(media("text/*;q=0.3, text/plain, */*;q=0.5", "text/css"), 300);
        assert_eq!(media("TEXT/Plain;q=0.25", "text/plain"), 250);
        assert_eq!(media("*/*, text/html;q=0", "text/html"), 0);
        assert_eq!(media("image/png", "text/html"), 0);
        assert_eq!(media("text/html;level=1;q=0.4", "text/html"), 400);
        assert_eq!(media("", "text/html"), 0);
        assert_eq!(media_quality(None, "text/html"), 1000);
    }

    #[test]
    fn weights() {
        for (text, quality) in [
            ("0", Some(0)),
            ("1", Some(1000)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.123", Some(123)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.1234", None),
            ("2", None),
            (".5", None),
            ("", None),
            ("0.x", None),
        ] {
            assert_eq!(parse_quality(text.as_bytes()), quality, "{text}");
        }
    }

    #[test]
    fn json_only_for_who_asks() {
        let prefers_json =
            |accept: &str| prefers(Some(accept.as_bytes()), "application/json", "text/html");
        assert!(!prefers_json(BROWSER) && !prefers_json("*/*") && !prefers_json(""));
        assert!(prefers_json("application/json") && prefers_json("application/*"));
        assert!(prefers_json("text/html;q=0.5, application/json;q=0.6"));
        assert!(!prefers(None, "application/json", "text/html"));
    }

    #[test]
    fn codings_are_weighed() {
        const CODINGS: [&str; 2] = ["gzip", "br"];
        for (value, qualities, refuses_identity) in [
            ("gzip, deflate, br;q=0.5", [1000, 500], false),
            ("gzip", [1000, 0], false),
            ("x-gzip", [1000, 0], false),
            ("*;q=0.2", [200, 200], false),
            ("gzip;q=0, *", [0, 1000], false),
            ("gzip;q=0.1, gzip", [100, 0], false),
            ("identity;q=0", [0, 0], true),
            ("*;q=0", [0, 0], true),
            ("*;q=0, identity", [0, 0], false),
            ("", [0, 0], false),
        ] {
            let weights = CodingWeights::of(value.as_bytes(), &CODINGS);
            assert_eq!([0, 1].map(|index| weights.quality(index)), qualities, "{value}");
            assert_eq!(weights.refuses_identity(), refuses_identity, "{value}");
        }
        let identity = |value: &str| CodingWeights::of(value.as_bytes(), &CODINGS).identity();
        assert_eq!((identity("gzip"), identity("identity;q=0.5")), (None, Some(500)));
    }
}
