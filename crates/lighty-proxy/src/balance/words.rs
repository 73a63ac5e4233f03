//! How balancers are written in a configuration.

use std::sync::Arc;

use crate::spec::{BalancerKind, HashKey};

/// The cookie of `sticky` unless it is named.
pub const STICKY_COOKIE_DEFAULT: &str = "lighty-backend";

/// Per cent of the mean load that `bounded-hash` gives a backend at most, unless it is said.
pub const LOAD_PERCENT_DEFAULT: u32 = 125;

/// What `bounded-hash` may be told.
const LOAD_PERCENT_RANGE: std::ops::RangeInclusive<u32> = 101..=1_000;

/// The words of `proxy-core.balancer`, for a suggestion when another was written.
pub const WORDS: &[&str] = &[
    "round-robin",
    "sqf",
    "least-connection",
    "fair",
    "carp",
    "hash",
    "static",
    "least-time",
    "random",
    "two-choices",
    "sticky",
    "bounded-hash",
    "source-hash",
];

/// The words of `*.balance` in the configuration of 1.4.
pub const BALANCE_WORDS: &[&str] = &["fair", "least-connection", "round-robin", "hash", "sticky"];

/// A value of `proxy-core.balancer`: one of [`WORDS`], of which two take more after a colon:
/// `sticky:COOKIE` or `sticky:COOKIE:BALANCER` (who chooses for a client without the cookie),
/// `bounded-hash:url`, `bounded-hash:client`, with the load in per cent after another colon.
pub fn parse(written: &str) -> Option<BalancerKind> {
    match written.split_once(':') {
        None => parse_word(written),
        Some(("sticky", rest)) => parse_sticky(rest),
        Some(("bounded-hash", rest)) => parse_bounded(rest),
        Some(_) => None,
    }
}

/// A value of `fastcgi.balance` and its like, where `sticky` goes by the client's address; each
/// word of [`parse`] that 1.4 does not know is understood too.
pub fn parse_balance(written: &str) -> Option<BalancerKind> {
    match written {
        "sticky" => Some(BalancerKind::SourceHash),
        other => parse(other),
    }
}

fn parse_word(word: &str) -> Option<BalancerKind> {
    Some(match word {
        "round-robin" => BalancerKind::RoundRobin,
        "sqf" | "least-connection" | "fair" => BalancerKind::Sqf,
        "carp" | "hash" => BalancerKind::Carp,
        "static" => BalancerKind::Static,
        "least-time" => BalancerKind::LeastTime,
        "random" | "two-choices" => BalancerKind::TwoChoices,
        "sticky" => sticky(STICKY_COOKIE_DEFAULT, BalancerKind::default()),
        "bounded-hash" => {
            BalancerKind::BoundedHash { key: HashKey::Url, load_percent: LOAD_PERCENT_DEFAULT }
        }
        "source-hash" => BalancerKind::SourceHash,
        _ => return None,
    })
}

fn parse_sticky(rest: &str) -> Option<BalancerKind> {
    let (cookie, fallback) = match rest.split_once(':') {
        None => (rest, BalancerKind::default()),
        // One cookie is enough: a fallback that asks for another is a slip.
        Some((_, fallback)) if fallback.starts_with("sticky") => return None,
        Some((cookie, fallback)) => (cookie, parse(fallback)?),
    };
    is_token(cookie).then(|| sticky(cookie, fallback))
}

fn sticky(cookie: &str, fallback: BalancerKind) -> BalancerKind {
    BalancerKind::Sticky { cookie: Arc::from(cookie), fallback: Box::new(fallback) }
}

fn parse_bounded(rest: &str) -> Option<BalancerKind> {
    let (key, load_percent) = match rest.split_once(':') {
        None => (rest, LOAD_PERCENT_DEFAULT),
        Some((key, percent)) => (key, percent.parse().ok()?),
    };
    let key = match key {
        "url" => HashKey::Url,
        "client" => HashKey::Client,
        _ => return None,
    };
    let is_sane = LOAD_PERCENT_RANGE.contains(&load_percent);
    is_sane.then_some(BalancerKind::BoundedHash { key, load_percent })
}

/// A cookie's name is a token (RFC 6265, section 4.1.1).
fn is_token(name: &str) -> bool {
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_balancer_and_bears_its_own_name() {
        for word in WORDS {
            let kind = parse(word).unwrap_or_else(|| panic!("{word}"));
            let name = super::super::create(&kind).name();
            assert_eq!(parse(name), Some(kind), "{word} is called {name}");
        }
        for word in BALANCE_WORDS {
            assert!(parse_balance(word).is_some(), "{word}");
        }
        assert_eq!(parse_balance("sticky"), Some(BalancerKind::SourceHash));
    }

    #[test]
    fn cookies_fallbacks_and_loads_are_read() {
        assert_eq!(parse("sticky:ID"), Some(sticky("ID", BalancerKind::RoundRobin)));
        let fallback = BalancerKind::BoundedHash { key: HashKey::Client, load_percent: 150 };
        assert_eq!(parse("sticky:ID:bounded-hash:client:150"), Some(sticky("ID", fallback)));
        let default = BalancerKind::BoundedHash { key: HashKey::Url, load_percent: 125 };
        assert_eq!(parse("bounded-hash:url"), Some(default));
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        for written in [
            "",
            "roundrobin",
            "Round-Robin",
            "carp:",
            "sticky:",
            "sticky:a b",
            "sticky:a:nobody",
            "sticky:a:sticky:b",
            "bounded-hash:",
            "bounded-hash:cookie",
            "bounded-hash:url:100",
            "bounded-hash:url:1001",
            "bounded-hash:url:x",
        ] {
            assert_eq!(parse(written), None, "{written}");
        }
        for (written, is_good) in [("101", true), ("1000", true)] {
            assert_eq!(parse(&format!("bounded-hash:url:{written}")).is_some(), is_good);
        }
    }
}
