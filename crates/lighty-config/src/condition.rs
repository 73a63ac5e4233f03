//! Conditions: operators and compiled comparisons.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::backtracking::Means;
use crate::field::{Facts, Field};
use crate::limits::CONDITION_BYTES_MAX;
use crate::pattern::{Notice, TextPattern, Undecided, ascii_classes, notice};
use crate::reject::BadCondition;
use crate::screen::{Letters, needle, required_text};

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `=~`
    Match,
    /// `!~`
    NotMatch,
    /// `=^` (1.4)
    Prefix,
    /// `=$` (1.4)
    Suffix,
}

impl Op {
    /// The operator as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Op::Eq => "==",
            Op::Ne => "!=",
            Op::Match => "=~",
            Op::NotMatch => "!~",
            Op::Prefix => "=^",
            Op::Suffix => "=$",
        }
    }

    /// True if the condition holds when the comparison does not.
    pub fn is_negative(self) -> bool {
        matches!(self, Op::Ne | Op::NotMatch)
    }
}

/// The compiled right side of a condition.
#[derive(Clone, Debug)]
pub(crate) enum Matcher {
    /// A lower-case host without port, and the port if one was written.
    Host {
        name: String,
        port: Option<String>,
        ports: Ports,
    },
    Exact(String),
    Prefix {
        text: String,
        fold: bool,
    },
    Suffix {
        text: String,
        fold: bool,
    },
    Net {
        address: IpAddr,
        bits: u8,
    },
    /// Addresses and networks of the file with this path, which may change.
    List(String),
    Pattern(TextPattern),
}

/// Treatment of ports in hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ports {
    /// Compared if both sides have one, as for `==` and `!=` of lighttpd 1.4.
    WhereBothHaveOne,
    /// Always part of the text, for patterns.
    Always,
}

impl Matcher {
    pub(crate) fn compile(
        field: &Field,
        op: Op,
        text: &str,
        means: Means,
    ) -> Result<Matcher, BadCondition> {
        if text.len() > CONDITION_BYTES_MAX {
            let message = format!("a condition compares with at most {CONDITION_BYTES_MAX} bytes");
            return Err(BadCondition::new(message, None));
        }
        let is_regex = matches!(op, Op::Match | Op::NotMatch);
        let (op, text) = match is_regex.then(|| literal(text)).flatten() {
            Some((op, literal)) => (op, Cow::from(literal)),
            None => (op, Cow::from(text)),
        };
        let fold = *field == Field::Host;
        match op {
            Op::Match | Op::NotMatch => TextPattern::compile(&text, means).map(Matcher::Pattern),
            Op::Prefix => Ok(Matcher::Prefix { text: text.into_owned(), fold }),
            Op::Suffix => Ok(Matcher::Suffix { text: text.into_owned(), fold }),
            Op::Eq | Op::Ne if fold && is_regex => Ok(host(&text, Ports::Always)),
            Op::Eq | Op::Ne if fold => Ok(host(&text, Ports::WhereBothHaveOne)),
            Op::Eq | Op::Ne if *field == Field::RemoteIp && !is_regex => net(&text),
            Op::Eq | Op::Ne => Ok(Matcher::Exact(text.into_owned())),
        }
    }

    /// The same matcher with another step limit for patterns.
    pub(crate) fn limited(&self, steps: u32) -> Matcher {
        let mut other = self.clone();
        if let Matcher::Pattern(TextPattern::Bounded(own)) = &mut other {
            own.steps = steps;
        }
        other
    }

    /// A note about a pattern, and the position concerned.
    pub(crate) fn notice(&self, text: &str) -> Option<Notice> {
        let is_bounded = matches!(self, Matcher::Pattern(TextPattern::Bounded(_)));
        is_bounded.then(|| notice(text))
    }

    /// True if the comparison holds. The caller applies the negation of `!=` and `!~`.
    pub(crate) fn is_match(&self, value: &str, facts: &dyn Facts) -> Result<bool, Undecided> {
        Ok(match self {
            Matcher::Host { name, port, ports } => {
                host_matches(name, port.as_deref(), *ports, value)
            }
            Matcher::Exact(text) => text == value,
            Matcher::Prefix { text, fold } => {
                value.as_bytes().get(..text.len()).is_some_and(|head| same(head, text, *fold))
            }
            Matcher::Suffix { text, fold } => {
                let from = value.len().checked_sub(text.len());
                from.is_some_and(|from| same(&value.as_bytes()[from..], text, *fold))
            }
            Matcher::Net { address, bits } => {
                facts.remote_ip().is_some_and(|ip| in_net(ip.to_canonical(), *address, *bits))
            }
            Matcher::List(path) => facts.is_listed(path),
            Matcher::Pattern(pattern) => return pattern.is_match(value),
        })
    }

    /// The path of the file with addresses.
    pub(crate) fn list(&self) -> Option<&str> {
        match self {
            Matcher::List(path) => Some(path),
            _ => None,
        }
    }

    /// A text contained in every value that matches, and whether its case matters. Used for the
    /// search index.
    pub(crate) fn part(&self, text: &str) -> Option<(Letters, Vec<u8>)> {
        match self {
            Matcher::Prefix { text, fold } | Matcher::Suffix { text, fold } => {
                let letters = if *fold { Letters::Folded } else { Letters::Exact };
                Some((letters, needle(text.as_bytes())?.to_vec()))
            }
            Matcher::Pattern(TextPattern::Linear(_)) => {
                let hir = regex_syntax::parse(&ascii_classes(text)).ok()?;
                Some((Letters::Exact, required_text(&hir)?))
            }
            _ => None,
        }
    }
}

fn same(value: &[u8], text: &str, fold: bool) -> bool {
    if fold { value.eq_ignore_ascii_case(text.as_bytes()) } else { value == text.as_bytes() }
}

fn host(text: &str, ports: Ports) -> Matcher {
    let (name, port) = split_port(text);
    Matcher::Host { name: name.to_ascii_lowercase(), port: port.map(str::to_owned), ports }
}

fn host_matches(name: &str, port: Option<&str>, ports: Ports, value: &str) -> bool {
    let (value_name, value_port) = split_port(value);
    let is_port = || match ports {
        Ports::Always => port == value_port,
        Ports::WhereBothHaveOne => port.zip(value_port).is_none_or(|(port, of)| port == of),
    };
    value_name.eq_ignore_ascii_case(name) && is_port()
}

/// Splits `name:port`. The colons of `[::1]` are not mistaken for a port separator.
pub(crate) fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => {
            (name, Some(port))
        }
        _ => (text, None),
    }
}

fn net(text: &str) -> Result<Matcher, BadCondition> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let help = "write an address (\"192.0.2.1\", \"2001:db8::1\"), a network (\"192.0.2.0/24\") or \
                a file with a list of them (\"file:/etc/lighty/office.txt\")";
    if let Some(path) = text.strip_prefix(LIST_PREFIX) {
        return match path.starts_with('/') && !path.contains('\0') {
            true => Ok(Matcher::List(path.to_owned())),
            false => {
                let message = format!("the path of a list of addresses is absolute: {text:?}");
                Err(BadCondition::new(message, Some(help)))
            }
        };
    }
    // A path stands for the address of clients on a unix socket.
    if address.is_empty() && text.starts_with('/') {
        return Ok(Matcher::Exact(text.to_owned()));
    }
    let bare = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
    let Ok(address) = bare.parse::<IpAddr>() else {
        return Err(BadCondition::new(format!("{text:?} is not an IP address"), Some(help)));
    };
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits.map(str::parse::<u8>) {
        None => width,
        Some(Ok(bits)) if bits <= width => bits,
        Some(_) => {
            let message = format!("the prefix length of {text:?} is not between 0 and {width}");
            return Err(BadCondition::new(message, Some(help)));
        }
    };
    // Clients have canonical addresses, so a network of mapped addresses is one of IPv4.
    match address {
        IpAddr::V6(ip) if bits >= MAPPED_BITS => match ip.to_ipv4_mapped() {
            Some(ip) => Ok(Matcher::Net { address: ip.into(), bits: bits - MAPPED_BITS }),
            None => Ok(Matcher::Net { address, bits }),
        },
        _ => Ok(Matcher::Net { address, bits }),
    }
}

/// Beginning of a value that names a file with addresses.
const LIST_PREFIX: &str = "file:";

/// Prefix length of `::ffff:0:0/96`, the network of IPv4-mapped IPv6 addresses.
const MAPPED_BITS: u8 = 96;

fn in_net(ip: IpAddr, net: IpAddr, bits: u8) -> bool {
    match (ip, net) {
        (IpAddr::V4(ip), IpAddr::V4(net)) => {
            (ip.to_bits() ^ net.to_bits()).checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(net)) => {
            (ip.to_bits() ^ net.to_bits()).checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Converts `^lit$`, `^lit` and `lit$` to comparisons of text, which are much cheaper.
fn literal(pattern: &str) -> Option<(Op, String)> {
    let (anchored, rest) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut text = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    let mut ended = false;
    while let Some(c) = chars.next() {
        match c {
            _ if ended => return None,
            '$' => ended = true,
            '\\' => match chars.next() {
                Some(c) if c.is_ascii_punctuation() && c != '<' && c != '>' => text.push(c),
                _ => return None,
            },
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' => return None,
            c => text.push(c),
        }
    }
    match (anchored, ended) {
        (true, true) => Some((Op::Eq, text)),
        (true, false) => Some((Op::Prefix, text)),
        (false, true) => Some((Op::Suffix, text)),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::SLOTS;

    struct Fixed(&'static str, Option<&'static str>, Option<IpAddr>);

    impl Facts for Fixed {
        fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
            let value = if *field == Field::Socket { self.1? } else { self.0 };
            Some(Cow::from(value))
        }
        fn remote_ip(&self) -> Option<IpAddr> {
            self.2
        }
    }

    const MEANS: Means = Means { backtracking: None, steps: 0 };

    fn matches(field: Field, op: Op, pattern: &str, value: &'static str) -> bool {
        let matcher = Matcher::compile(&field, op, pattern, MEANS).unwrap();
        let facts = Fixed(value, Some("127.0.0.1:8080"), value.parse().ok());
        matcher.is_match(value, &facts).unwrap()
    }

    fn bad(field: Field, op: Op, pattern: &str) -> BadCondition {
        Matcher::compile(&field, op, pattern, MEANS).unwrap_err()
    }

    #[test]
    fn ports_of_hosts_are_compared_where_both_have_one() {
        let host = |pattern, value| matches(Field::Host, Op::Eq, pattern, value);
        assert!(host("example.com", "example.com"));
        assert!(host("Example.COM", "eXample.com:81"));
        assert!(host("example.com:81", "example.com:81"));
        assert!(!host("example.com:81", "example.com:82"));
        assert!(host("example.com:81", "example.com"));
        assert!(host("[::1]", "[::1]:80"));
        assert!(!host("[::1]:81", "[::1]:80"));
        assert!(!host("example.com", "example.com.evil"));
        let pattern = |value| matches(Field::Host, Op::Match, "^www\\.example\\.com$", value);
        assert!(pattern("www.example.com"));
        assert!(!pattern("www.example.com:81"), "a pattern sees the port");
        assert!(matches(Field::Host, Op::Suffix, ".example.com", "WWW.Example.com"));
        assert!(!matches(Field::Url, Op::Eq, "/A", "/a"), "all else is case sensitive");
    }

    #[test]
    fn addresses_match_networks() {
        let ip = |pattern, value| matches(Field::RemoteIp, Op::Eq, pattern, value);
        assert!(ip("10.0.0.1", "10.0.0.1"));
        assert!(!ip("10.0.0.1", "10.0.0.2"));
        assert!(ip("10.0.0.0/8", "10.255.3.4"));
        assert!(!ip("10.0.0.0/8", "11.0.0.0"));
        assert!(ip("0.0.0.0/0", "203.0.113.9"));
        assert!(ip("10.0.0.1/32", "10.0.0.1"));
        assert!(ip("10.0.0.0/31", "10.0.0.1"));
        assert!(!ip("10.0.0.0/31", "10.0.0.2"));
        assert!(ip("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!ip("2001:db8::/32", "2001:db9::1"));
        assert!(ip("::/0", "::1"));
        assert!(ip("[2001:DB8::1]", "2001:db8:0::1"));
        assert!(ip("10.0.0.0/8", "::ffff:10.1.2.3"), "a mapped address is an IPv4 address");
        assert!(!ip("0.0.0.0/0", "::1"));
        assert!(ip("::ffff:10.0.0.0/104", "10.1.2.3"), "a mapped network is one of IPv4");
        assert!(!ip("::ffff:10.0.0.0/104", "11.1.2.3"));
        assert!(ip("::ffff:10.0.0.1", "10.0.0.1"));
    }

    #[test]
    fn path_of_a_unix_socket_is_compared_as_text() {
        let path = |value| matches(Field::RemoteIp, Op::Eq, "/run/l.sock", value);
        assert!(path("/run/l.sock"));
        assert!(!path("/run/l.sock2") && !path("127.0.0.1"));
    }

    #[test]
    fn bad_networks_are_refused() {
        for text in ["example.com", "a/b", "10.0.0.0/33", "::/129", "10.0.0.0/x", "10.0.0/8", ""] {
            bad(Field::RemoteIp, Op::Eq, text);
        }
    }

    #[test]
    fn literal_patterns_become_comparisons() {
        assert_eq!(literal("^/a\\.b$"), Some((Op::Eq, "/a.b".into())));
        assert_eq!(literal("^/a/"), Some((Op::Prefix, "/a/".into())));
        assert_eq!(literal("\\.php$"), Some((Op::Suffix, ".php".into())));
        for regex in ["abc", "^a.c$", "^(a)$", "a$b", "^\\d", "\\$", "^a|b$", "^a*", "^a\\"] {
            assert_eq!(literal(regex), None, "{regex}");
        }
        assert_eq!(literal("cost\\$$"), Some((Op::Suffix, "cost$".into())));
        assert!(matches(Field::Url, Op::Match, "^/a", "/abc"));
        assert!(!matches(Field::Url, Op::Match, "^/a$", "/abc"));
    }

    #[test]
    fn patterns_are_unanchored_and_case_sensitive() {
        assert!(matches(Field::Url, Op::Match, "b+", "abbc"));
        assert!(!matches(Field::Url, Op::Match, "B", "abbc"));
        assert!(matches(Field::Url, Op::Match, "(?i)B", "abbc"));
        assert!(matches(Field::Url, Op::Match, "[\\w/]+[[]x\\/", "/a[x/"));
        assert!(!matches(Field::Url, Op::Match, "^\\d$", "٣"), "digits are ASCII digits");
    }

    #[test]
    fn a_regular_expression_has_a_size_limit() {
        let found = bad(Field::Url, Op::Match, "((a{1000}){1000}){1000}");
        assert!(found.message.contains("bytes"), "{}", found.message);
    }

    #[test]
    fn every_spelling_is_known() {
        for (object, name) in Field::spellings() {
            let field = Field::parse(object, name).unwrap();
            assert!(field.slot() < SLOTS);
        }
        assert_eq!(Field::Host.to_string(), "$HTTP[\"host\"]");
        let header = Field::parse("REQUEST_HEADER", "X-Foo").unwrap();
        assert_eq!(header.to_string(), "$REQUEST_HEADER[\"x-foo\"]");
        assert_eq!(Field::parse("HTTP", "Host"), None);
    }
}
