//! `traceparent`: the trace of a request (W3C Trace Context, sections 3.2 and 4).

use core::fmt;

/// The field's name.
pub const TRACEPARENT: &[u8] = b"traceparent";

/// Length of a `traceparent` of version 00.
pub const LENGTH: usize = 55;

/// Flag: the caller may have recorded its part of the trace (section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// Identifies the whole trace; not 0.
    pub trace_id: u128,
    /// The caller's span; not 0.
    pub span_id: u64,
    /// The caller records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses a field's value. `None` if a new trace must be started: the value is malformed, an id
    /// is 0, or the version is `ff`. In later versions the parts of version 00 are read (section
    /// 4.3).
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(LENGTH)?;
        let version = hex::<2>(&known[..2])?;
        let is_well_formed = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => matches!(more.first(), None | Some(b'-')),
        };
        if !is_well_formed || known[2] != b'-' || known[35] != b'-' || known[52] != b'-' {
            return None;
        }
        let trace_id = hex::<32>(&known[3..35])?;
        let span_id = hex::<16>(&known[36..52])? as u64;
        let flags = hex::<2>(&known[53..])? as u8;
        (trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

impl fmt::Display for TraceParent {
    /// Formats the value in version 00.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.span_id)
    }
}

/// Parses `N` lower-case hexadecimal digits; upper-case ones are malformed here.
fn hex<const N: usize>(digits: &[u8]) -> Option<u128> {
    let digits: &[u8; N] = digits.try_into().ok()?;
    digits.iter().try_fold(0_u128, |sum, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    const SPEC: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_and_written() {
        let parent = TraceParent::parse(SPEC).expect("well-formed");
        assert_eq!(parent.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((parent.span_id, parent.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert_eq!(parent.to_string().as_bytes(), SPEC);
        let quiet = TraceParent { is_sampled: false, ..parent };
        assert_eq!(TraceParent::parse(quiet.to_string().as_bytes()), Some(quiet));
    }

    #[test]
    fn malformed_parent_is_not_read() {
        let with = |at: usize, byte: u8| {
            let mut text = SPEC.to_vec();
            text[at] = byte;
            TraceParent::parse(&text)
        };
        for at in [2, 35, 52] {
            assert_eq!(with(at, b'_'), None, "a separator at {at}");
        }
        for at in [0, 3, 36, 53, 54] {
            assert_eq!(with(at, b'A'), None, "a capital at {at}");
            assert_eq!(with(at, b'g'), None, "no digit at {at}");
        }
        let none = b"00-00000000000000000000000000000000-b7ad6b7169203331-01";
        assert_eq!(TraceParent::parse(none), None);
        let none = b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01";
        assert_eq!(TraceParent::parse(none), None);
        for length in 0..LENGTH {
            assert_eq!(TraceParent::parse(&SPEC[..length]), None, "{length} bytes");
        }
        let longer = [SPEC, b"-x"].concat();
        assert_eq!(TraceParent::parse(&longer), None, "version 00 has no more");
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let later = |more: &[u8]| {
            let text = [b"cc", &SPEC[2..], more].concat();
            TraceParent::parse(&text)
        };
        assert_eq!(later(b""), TraceParent::parse(SPEC));
        assert_eq!(later(b"-what the future holds"), TraceParent::parse(SPEC));
        assert_eq!(later(b".what"), None);
        assert_eq!(TraceParent::parse(&[b"ff", &SPEC[2..]].concat()), None);
    }
}
