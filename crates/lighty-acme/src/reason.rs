//! Why a certificate is revoked.

use instant_acme::RevocationReason;

/// Why a certificate is revoked (RFC 5280 section 5.3.1): what its holder may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Not said.
    #[default]
    Unspecified,
    /// Somebody else has its key, or may have it.
    KeyCompromise,
    /// What it says of its holder is not true any more.
    AffiliationChanged,
    /// Another one has taken its place.
    Superseded,
    /// The host is no more.
    CessationOfOperation,
}

impl Reason {
    /// Every one, in the order of [`WORDS`](Self::WORDS).
    pub const ALL: [Self; 5] = [
        Self::Unspecified,
        Self::KeyCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
    ];

    /// As they are written.
    pub const WORDS: [&'static str; 5] = [
        "unspecified",
        "key-compromise",
        "affiliation-changed",
        "superseded",
        "cessation-of-operation",
    ];

    /// The reason with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.iter().position(|known| *known == word).map(|at| Self::ALL[at])
    }

    /// `None`: RFC 5280 has nothing said rather than that nothing is.
    pub(crate) fn acme(self) -> Option<RevocationReason> {
        match self {
            Self::Unspecified => None,
            Self::KeyCompromise => Some(RevocationReason::KeyCompromise),
            Self::AffiliationChanged => Some(RevocationReason::AffiliationChanged),
            Self::Superseded => Some(RevocationReason::Superseded),
            Self::CessationOfOperation => Some(RevocationReason::CessationOfOperation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_words() {
        for (reason, word) in Reason::ALL.into_iter().zip(Reason::WORDS) {
            assert_eq!(Reason::parse(word), Some(reason));
        }
        assert_eq!(Reason::parse("hold"), None);
        assert!(Reason::default().acme().is_none());
    }
}
