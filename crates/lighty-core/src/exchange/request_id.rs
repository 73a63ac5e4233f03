//! A request's id, which leads from an error page to the matching log lines.

use std::fmt;

use crate::machine::random::Random;

/// A request's id. Unique within a process for practical purposes: 48 bits of an unpredictable
/// sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(u64);

impl RequestId {
    /// The next id.
    pub fn next(random: &Random) -> Self {
        Self(random.next() >> 16)
    }

    /// Appends a UUID of version 7 (RFC 9562 section 5.7) that ends with the id: the time, random
    /// bits, and the id as the last group.
    pub fn push_uuid(self, unix_ms: u64, random: u64, out: &mut Vec<u8>) {
        use std::io::Write;
        // Writing to a vector cannot fail.
        let _ = write!(
            out,
            "{:08x}-{:04x}-7{:03x}-{:04x}-{:012x}",
            unix_ms >> 16 & 0xffff_ffff,
            unix_ms & 0xffff,
            random & 0xfff,
            random >> 12 & 0x3fff | 0x8000,
            self.0
        );
    }
}

impl fmt::Display for RequestId {
    /// Writes it as `3f9a-11c0-88d2`: short enough to read out over the telephone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift: u32| self.0 >> shift & 0xffff;
        write!(f, "{:04x}-{:04x}-{:04x}", part(32), part(16), part(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_differ_and_have_one_form() {
        let random = Random::new(7);
        let names: HashSet<String> =
            (0..10_000).map(|_| RequestId::next(&random).to_string()).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.len() == 14 && name.matches('-').count() == 2));
        assert_ne!(RequestId::next(&Random::new(8)), RequestId::next(&Random::new(9)));
    }

    #[test]
    fn a_uuid_has_the_time_first_and_the_id_last() {
        let mut uuid = Vec::new();
        RequestId(0x3f9a_11c0_88d2).push_uuid(0x0192_3456_789a, u64::MAX, &mut uuid);
        assert_eq!(uuid, b"01923456-789a-7fff-bfff-3f9a11c088d2");
        uuid.clear();
        RequestId(1).push_uuid(u64::MAX, 0, &mut uuid);
        assert_eq!(uuid, b"ffffffff-ffff-7000-8000-000000000001");
    }
}
