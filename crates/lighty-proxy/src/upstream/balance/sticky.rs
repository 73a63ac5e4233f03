//! `sticky`: a client stays with the backend in its cookie.

use super::{BalanceKey, Balancer, Choice};

/// Chooses the cookie's backend while it is up and has room; otherwise the fallback chooses.
pub(super) struct Sticky {
    pub(super) fallback: Box<dyn Balancer>,
}

impl Balancer for Sticky {
    fn pick(&self, choices: &[Choice], key: &BalanceKey<'_>) -> usize {
        let named = key.sticky.and_then(|hash| choices.iter().position(|c| c.name_hash == hash));
        named.unwrap_or_else(|| self.fallback.pick(choices, key))
    }
}

/// Digits of a cookie's value.
const DIGITS: usize = 16;

/// Returns the cookie's value for an address: its name's hash in hexadecimal. It identifies the
/// backend without revealing its address.
pub(crate) fn cookie_value(name_hash: u64) -> String {
    format!("{name_hash:016x}")
}

/// Returns the hash in a cookie's value; `None` if the value has another form.
pub(crate) fn parse_cookie_value(value: &[u8]) -> Option<u64> {
    let is_ours =
        value.len() == DIGITS && value.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(value).ok().filter(|_| is_ours)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::static_order::StaticOrder;
    use super::super::tests::addresses;
    use super::*;

    #[test]
    fn the_cookie_decides_while_its_backend_is_there() {
        let balancer = Sticky { fallback: Box::new(StaticOrder) };
        let choices = addresses(&[1, 1, 1]);
        let key = BalanceKey { sticky: Some(choices[2].name_hash), ..BalanceKey::default() };
        assert_eq!(balancer.pick(&choices, &key), 2);
        assert_eq!(balancer.pick(&choices[..2], &key), 0);
        assert_eq!(balancer.pick(&choices, &BalanceKey::default()), 0);
    }

    #[test]
    fn a_cookie_is_read_back_and_strange_ones_are_not() {
        for hash in [0, 1, 0xdead_beef, u64::MAX] {
            assert_eq!(parse_cookie_value(cookie_value(hash).as_bytes()), Some(hash));
        }
        let strange: [&[u8]; 6] =
            [b"", b"0", b"+000000000000000", b"000000000000000A", &[b'0'; 15], &[b'0'; 17]];
        for value in strange {
            assert_eq!(parse_cookie_value(value), None, "{value:?}");
        }
    }
}
