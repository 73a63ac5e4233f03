//! The content codings, and their negotiation.

use std::ops::Deref;

use lighty_http::accept::CodingWeights;

/// A content coding (RFC 9110 section 8.4.1; RFC 7932, RFC 8878; bzip2 by custom).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Brotli,
    Zstd,
    Gzip,
    Deflate,
    Bzip2,
}

impl Coding {
    /// Order of preference among codings of equal weight: smallest output first, among codings
    /// that are fast enough for dynamic responses.
    pub(super) const ALL: [Coding; 5] =
        [Coding::Brotli, Coding::Zstd, Coding::Gzip, Coding::Deflate, Coding::Bzip2];

    /// Their names, in the same order.
    const NAMES: [&str; 5] = ["br", "zstd", "gzip", "deflate", "bzip2"];

    /// True if this build has the encoder. Precompressed files need none.
    pub(super) fn is_built(self) -> bool {
        match self {
            Coding::Brotli => cfg!(feature = "brotli"),
            Coding::Zstd => cfg!(feature = "zstd"),
            Coding::Bzip2 => cfg!(feature = "bzip2"),
            Coding::Gzip | Coding::Deflate => true,
        }
    }

    /// Name in `Content-Encoding`, in entity tags and in names of cached files.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The suffix of a precompressed file.
    pub(super) fn ending(self) -> Option<&'static str> {
        match self {
            Coding::Brotli => Some(".br"),
            Coding::Zstd => Some(".zst"),
            Coding::Gzip => Some(".gz"),
            Coding::Bzip2 => Some(".bz2"),
            Coding::Deflate => None,
        }
    }

    /// Parses a name of `deflate.allowed-encodings`; `x-gzip` and `x-bzip2` are legacy aliases.
    pub(super) fn from_name(name: &str) -> Option<Coding> {
        let plain = name.strip_prefix("x-").unwrap_or(name);
        match plain {
            "brotli" => Some(Coding::Brotli),
            _ => Coding::ALL.into_iter().find(|coding| coding.name() == plain),
        }
    }
}

/// Codings, each at most once.
#[derive(Clone, Copy, Debug)]
pub(super) struct CodingList {
    slots: [Coding; Coding::ALL.len()],
    len: usize,
}

impl Default for CodingList {
    fn default() -> Self {
        Self { slots: Coding::ALL, len: 0 }
    }
}

impl Deref for CodingList {
    type Target = [Coding];

    fn deref(&self) -> &[Coding] {
        &self.slots[..self.len]
    }
}

impl CodingList {
    /// Adds a coding unless it is there.
    fn add(&mut self, coding: Coding) {
        if !self.contains(&coding) {
            self.slots[self.len] = coding;
            self.len += 1;
        }
    }
}

/// The client's accepted codings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AcceptedCodings {
    /// The usable codings, best first.
    pub(super) codings: CodingList,
    /// The client rejects unencoded responses (`identity;q=0`).
    pub(super) refuses_identity: bool,
}

impl AcceptedCodings {
    /// Orders by weight, then as in `allowed` (RFC 9110 section 12.5.3). A coding with a lower
    /// weight than an explicit `identity` is not used.
    pub(super) fn of(accept_encoding: Option<&[u8]>, allowed: &[Coding]) -> Self {
        let Some(accept) = accept_encoding else { return Self::default() };
        let weights = CodingWeights::of(accept, &Coding::NAMES);
        let least = weights.identity().unwrap_or(0).max(1);
        let quality = |coding: Coding| weights.quality(coding as usize);
        let mut codings = CodingList::default();
        for coding in allowed.iter().copied().filter(|coding| quality(*coding) >= least) {
            codings.add(coding);
        }
        let usable = codings.len;
        if usable > 1 {
            codings.slots[..usable].sort_by_key(|coding| std::cmp::Reverse(quality(*coding)));
        }
        Self { codings, refuses_identity: weights.refuses_identity() }
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::{Brotli, Bzip2, Deflate, Gzip, Zstd};
    use super::*;

    fn wanted(accept: &str, allowed: &[Coding]) -> Vec<Coding> {
        AcceptedCodings::of(Some(accept.as_bytes()), allowed).codings.to_vec()
    }

    #[test]
    fn weights_decide_and_then_the_order() {
        let all = &Coding::ALL;
        for (accept, codings) in [
            ("", &[][..]),
            ("gzip", &[Gzip]),
            ("gzip, deflate, br, zstd", &[Brotli, Zstd, Gzip, Deflate]),
            ("gzip;q=0", &[]),
            ("gzip;q=0.5, br;q=0.4, zstd;q=0", &[Gzip, Brotli]),
            ("gzip;q=1.0, *;q=0", &[Gzip]),
            ("*", &[Brotli, Zstd, Gzip, Deflate, Bzip2]),
            ("*;q=0.1, bzip2", &[Bzip2, Brotli, Zstd, Gzip, Deflate]),
            ("x-gzip, X-BZIP2", &[Gzip, Bzip2]),
            ("GZIP;Q=0.7", &[Gzip]),
            ("identity, gzip;q=0.5", &[]),
            ("identity;q=0.5, gzip;q=0.5", &[Gzip]),
            ("identity;q=0.5, gzip;q=0.4, br", &[Brotli]),
            ("identity;q=0, gzip", &[Gzip]),
            ("gzip;q=2", &[Gzip]),
            ("gzipped, compress", &[]),
        ] {
            assert_eq!(wanted(accept, all), codings, "{accept}");
        }
        assert_eq!(wanted("gzip, br", &[Gzip, Brotli]), [Gzip, Brotli]);
        assert_eq!(wanted("gzip, br", &[Gzip]), [Gzip]);
        assert_eq!(wanted("gzip", &[Gzip, Gzip]), [Gzip], "a coding that is allowed twice");
        let none = AcceptedCodings::of(None, all);
        assert!(none.codings.is_empty() && !none.refuses_identity);
    }

    #[test]
    fn a_refused_identity_is_seen() {
        let refuses =
            |accept: &str| AcceptedCodings::of(Some(accept.as_bytes()), &[]).refuses_identity;
        assert!(refuses("identity;q=0") && refuses("gzip, *;q=0"));
        assert!(!refuses("gzip") && !refuses("") && !refuses("identity;q=0.001"));
    }

    #[test]
    fn names() {
        for coding in Coding::ALL {
            assert_eq!(Coding::from_name(coding.name()), Some(coding));
        }
        assert_eq!(Coding::from_name("x-bzip2"), Some(Bzip2));
        assert_eq!(Coding::from_name("identity"), None);
    }
}
