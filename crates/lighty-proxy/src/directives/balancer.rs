//! The words of `proxy-core.balancer` and of `balance` of 1.4.

use std::sync::Arc;

use lighty_config::{Reject, Value, parse_choice};

use super::parts::Shared;
use crate::spec::BalancerKind;

/// Name of the cookie where `sticky` is asked for without one.
const STICKY_COOKIE: &str = "lighty-backend";

/// Bytes of a cookie's name.
const COOKIE_NAME_BYTES_MAX: usize = 256;

/// What a word asks for; what else it depends on is set by other directives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Balancing {
    #[default]
    RoundRobin,
    Sqf,
    Carp,
    Static,
    LeastTime,
    TwoChoices,
    BoundedHash,
    SourceHash,
    /// With the name of a cookie, if one is written.
    Sticky(Option<Arc<str>>),
}

impl Balancing {
    /// Words of `proxy-core.balancer`, in the order of the manual.
    pub(super) const WORDS: &'static [&'static str] = &[
        "round-robin",
        "sqf",
        "carp",
        "static",
        "least-time",
        "random",
        "bounded-hash",
        "source-hash",
        "sticky",
        "least-connection",
        "fair",
        "hash",
        "two-choices",
    ];

    /// Reads a word of `proxy-core.balancer`; `sticky:NAME` names the cookie.
    pub(super) fn parse(value: &Value) -> Result<Balancing, Reject> {
        if let Some(name) = value.as_str().and_then(|text| text.strip_prefix("sticky:")) {
            return cookie_name(name).map(|name| Balancing::Sticky(Some(name)));
        }
        let index = parse_choice(value, Self::WORDS)?;
        Ok(match Self::WORDS[index] {
            "sqf" | "least-connection" | "fair" => Balancing::Sqf,
            "carp" | "hash" => Balancing::Carp,
            "static" => Balancing::Static,
            "least-time" => Balancing::LeastTime,
            "random" | "two-choices" => Balancing::TwoChoices,
            "bounded-hash" => Balancing::BoundedHash,
            "source-hash" => Balancing::SourceHash,
            "sticky" => Balancing::Sticky(None),
            _ => Balancing::RoundRobin,
        })
    }

    /// Reads a word of `balance` of 1.4, where `sticky` goes by the client's address.
    pub(super) fn parse_ancestors(value: &Value) -> Result<Balancing, Reject> {
        match value.as_str() {
            Some("sticky") => Ok(Balancing::SourceHash),
            _ => Self::parse(value),
        }
    }

    /// The balancer, with what other directives say of it.
    pub(super) fn kind(&self, shared: &Shared) -> BalancerKind {
        let (cookie, kind) = match self {
            Balancing::Sticky(name) => {
                let default = || Arc::from(STICKY_COOKIE);
                let name = name.clone().or_else(|| shared.sticky_cookie.clone());
                (Some(name.unwrap_or_else(default)), BalancerKind::RoundRobin)
            }
            other => (shared.sticky_cookie.clone(), other.plain(shared)),
        };
        match cookie {
            Some(cookie) => BalancerKind::Sticky { cookie, fallback: Box::new(kind) },
            None => kind,
        }
    }

    fn plain(&self, shared: &Shared) -> BalancerKind {
        match self {
            Balancing::RoundRobin | Balancing::Sticky(_) => BalancerKind::RoundRobin,
            Balancing::Sqf => BalancerKind::Sqf,
            Balancing::Carp => BalancerKind::Carp,
            Balancing::Static => BalancerKind::Static,
            Balancing::LeastTime => BalancerKind::LeastTime,
            Balancing::TwoChoices => BalancerKind::TwoChoices,
            Balancing::SourceHash => BalancerKind::SourceHash,
            Balancing::BoundedHash => BalancerKind::BoundedHash {
                key: shared.hash_key,
                load_percent: shared.hash_load_percent,
            },
        }
    }
}

/// A name that a cookie may have: a token (RFC 6265 section 4.1.1).
pub(super) fn cookie_name(name: &str) -> Result<Arc<str>, Reject> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.len() > COOKIE_NAME_BYTES_MAX {
        let words =
            format!("must be the name of a cookie, of {COOKIE_NAME_BYTES_MAX} bytes at most");
        return Err(Reject::new(words));
    }
    match !name.is_empty() && name.bytes().all(token) {
        true => Ok(name.into()),
        false => Err(Reject::new("must be the name of a cookie: letters, digits, \"-\" and \"_\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(word: &str) -> Result<BalancerKind, Reject> {
        Ok(Balancing::parse(&Value::Str(word.into()))?.kind(&Shared::default()))
    }

    fn sticky(cookie: &str) -> BalancerKind {
        BalancerKind::Sticky { cookie: cookie.into(), fallback: Box::default() }
    }

    #[test]
    fn every_word_is_a_balancer_and_no_other_is() {
        for word in Balancing::WORDS {
            let known = kind(word).unwrap_or_else(|reject| panic!("{word}: {reject:?}"));
            let is_default = known == BalancerKind::RoundRobin;
            assert_eq!(is_default, *word == "round-robin", "{word}");
        }
        for word in ["", "roundrobin", "Round-Robin", "carp:", "sticky:", "sticky:a b"] {
            assert!(kind(word).is_err(), "{word}");
        }
        let bounded = BalancerKind::BoundedHash { key: Default::default(), load_percent: 125 };
        assert_eq!(kind("bounded-hash"), Ok(bounded));
        let ancestors = Balancing::parse_ancestors(&Value::Str("sticky".into()));
        assert_eq!(ancestors, Ok(Balancing::SourceHash));
    }

    #[test]
    fn a_cookie_has_a_name_of_a_bounded_length() {
        assert_eq!(kind("sticky"), Ok(sticky(STICKY_COOKIE)));
        assert_eq!(kind("sticky:ID"), Ok(sticky("ID")));
        let name = "n".repeat(COOKIE_NAME_BYTES_MAX);
        assert_eq!(kind(&format!("sticky:{name}")), Ok(sticky(&name)));
        let reject = kind(&format!("sticky:{name}n")).expect_err("a byte more");
        assert!(reject.message.contains("256 bytes"), "{reject:?}");
    }
}
