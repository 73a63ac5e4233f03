//! The names of `proxy-core.balancer` and of `balance` of 1.4.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use lighty_config::{Reject, Value, parse_choice};

use crate::upstream::balance::{Algorithm, REGISTRY};
use crate::upstream::spec::{BalancerOptions, BalancerSpec};

/// Word of the balancer by cookie. Clients without a known cookie get the default balancer.
const STICKY: &str = "sticky";

/// Default name of the cookie of `sticky`.
const STICKY_COOKIE: &str = "lighty-backend";

/// Limit on the bytes of a cookie's name.
const COOKIE_NAME_BYTES_MAX: usize = 256;

/// Returns the names of `proxy-core.balancer`: the main ones in the order of the manual, then the
/// others.
pub(super) fn names() -> &'static [&'static str] {
    static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let main = REGISTRY.iter().map(|entry| entry.names[0]).chain([STICKY]);
        main.chain(REGISTRY.iter().flat_map(|entry| &entry.names[1..]).copied()).collect()
    });
    &NAMES
}

/// Returns the manual's text on `proxy-core.balancer`.
pub(super) fn doc() -> &'static str {
    static DOC: LazyLock<String> = LazyLock::new(|| {
        let mut doc = "Method of choosing among the backends that are up and have capacity. All \
                       methods respect weights.\n\n| word | the backend |\n|---|---|\n"
            .to_owned();
        for entry in REGISTRY {
            let others: Vec<_> = entry.names[1..].iter().map(|word| format!("`{word}`")).collect();
            let also = match others.is_empty() {
                true => String::new(),
                false => format!(" (also {})", others.join(", ")),
            };
            let _ = writeln!(doc, "| `{}`{also} | {} |", entry.names[0], entry.doc);
        }
        doc + "| `sticky`, `sticky:NAME` | that a cookie names, else each in its turn; see \
               `proxy-core.sticky-cookie` |"
    });
    &DOC
}

/// Meaning of a balancer's word. Other directives set its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Balancing {
    algorithm: Algorithm,
    /// `sticky`, with the name of a cookie if it has one.
    sticky: Option<Option<Arc<str>>>,
}

impl Balancing {
    /// Reads a word of `proxy-core.balancer`; `sticky:NAME` names the cookie.
    pub(super) fn parse(value: &Value) -> Result<Balancing, Reject> {
        let sticky = |name| Balancing { sticky: Some(name), ..Balancing::default() };
        if let Some(name) = value.as_str().and_then(|text| text.strip_prefix("sticky:")) {
            return cookie_name(name).map(|name| sticky(Some(name)));
        }
        let word = names()[parse_choice(value, names())?];
        Ok(match Algorithm::named(word) {
            Some(algorithm) => Balancing { algorithm, sticky: None },
            None => sticky(None),
        })
    }

    /// Returns the balancer of a name of the registry; the default for other names.
    pub(super) fn named(word: &str) -> Balancing {
        Balancing { algorithm: Algorithm::named(word).unwrap_or_default(), sticky: None }
    }

    /// Reads a word of `balance` of 1.4, where `sticky` goes by the client's address.
    pub(super) fn parse_lighttpd(value: &Value) -> Result<Balancing, Reject> {
        match value.as_str() {
            Some(STICKY) => Ok(Self::named("source-hash")),
            _ => Self::parse(value),
        }
    }

    /// Returns the balancer with the options from other directives.
    pub(super) fn spec(&self, options: BalancerOptions, cookie: Option<&Arc<str>>) -> BalancerSpec {
        let named = || cookie.cloned();
        let cookie = match &self.sticky {
            Some(name) => {
                Some(name.clone().or_else(named).unwrap_or_else(|| Arc::from(STICKY_COOKIE)))
            }
            None => named(),
        };
        BalancerSpec { algorithm: self.algorithm, options, cookie }
    }
}

/// Checks the name of a cookie: a token (RFC 6265 section 4.1.1).
pub(super) fn cookie_name(name: &str) -> Result<Arc<str>, Reject> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.len() > COOKIE_NAME_BYTES_MAX {
        let message =
            format!("must be the name of a cookie, of {COOKIE_NAME_BYTES_MAX} bytes at most");
        return Err(Reject::new(message));
    }
    match !name.is_empty() && name.bytes().all(token) {
        true => Ok(name.into()),
        false => Err(Reject::new("must be the name of a cookie: letters, digits, \"-\" and \"_\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(word: &str) -> Result<BalancerSpec, Reject> {
        Ok(Balancing::parse(&Value::Str(word.into()))?.spec(BalancerOptions::default(), None))
    }

    fn sticky(cookie: &str) -> BalancerSpec {
        BalancerSpec { cookie: Some(cookie.into()), ..BalancerSpec::default() }
    }

    #[test]
    fn every_word_is_a_balancer_and_no_other_is() {
        for word in names() {
            let known = spec(word).unwrap_or_else(|reject| panic!("{word}: {reject:?}"));
            let is_default = known == BalancerSpec::default();
            assert_eq!(is_default, *word == "round-robin", "{word}");
        }
        for word in ["", "roundrobin", "Round-Robin", "carp:", "sticky:", "sticky:a b"] {
            assert!(spec(word).is_err(), "{word}");
        }
        let sticky = Balancing::parse_lighttpd(&Value::Str("sticky".into()));
        assert_eq!(sticky, Ok(Balancing::named("source-hash")));
    }

    #[test]
    fn no_word_names_two_balancers() {
        let names = names();
        let mut once = names.to_vec();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len(), "{names:?}");
    }

    #[test]
    fn a_cookie_has_a_name_of_a_bounded_length() {
        assert_eq!(spec("sticky"), Ok(sticky(STICKY_COOKIE)));
        assert_eq!(spec("sticky:ID"), Ok(sticky("ID")));
        let name = "n".repeat(COOKIE_NAME_BYTES_MAX);
        assert_eq!(spec(&format!("sticky:{name}")), Ok(sticky(&name)));
        let reject = spec(&format!("sticky:{name}n")).expect_err("a byte more");
        assert!(reject.message.contains("256 bytes"), "{reject:?}");
    }
}
