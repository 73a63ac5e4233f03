//! Reasons for revoking a certificate.

use instant_acme::RevocationReason;

/// Reason for revoking a certificate (RFC 5280 section 5.3.1) that its holder may state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// Not stated.
    #[default]
    Unspecified,
    /// The key is or may be known to others.
    KeyCompromise,
    /// The holder's data in the certificate has changed.
    AffiliationChanged,
    /// Another certificate has replaced it.
    Superseded,
    /// The host is no longer in use.
    CessationOfOperation,
}

impl Reason {
    /// All reasons, in the order of [`NAMES`](Self::NAMES).
    pub const ALL: [Self; 5] = [
        Self::Unspecified,
        Self::KeyCompromise,
        Self::AffiliationChanged,
        Self::Superseded,
        Self::CessationOfOperation,
    ];

    /// Their names on the command line.
    pub const NAMES: [&'static str; 5] = [
        "unspecified",
        "key-compromise",
        "affiliation-changed",
        "superseded",
        "cessation-of-operation",
    ];

    /// The reason with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == word).map(|at| Self::ALL[at])
    }

    /// `None` for unspecified: RFC 5280 recommends omitting it.
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
    fn reasons_have_names() {
        for (reason, word) in Reason::ALL.into_iter().zip(Reason::NAMES) {
            assert_eq!(Reason::parse(word), Some(reason));
        }
        assert_eq!(Reason::parse("hold"), None);
        assert!(Reason::default().acme().is_none());
    }
}
