//! Maps URLs and cookies between the client's and the backend's hosts and paths: `proxy.header` of
//! lighttpd 1.4.

use std::borrow::Cow;
use std::sync::Arc;

use lighty_config::Undecided;
use lighty_http::fields::trim;
use lighty_http::{Fields, Known};

use crate::route::rules::{RewriteRule, RewriteTarget, Route};

type Pairs = [(Arc<str>, Arc<str>)];

/// Maps URLs of one side to URLs of the other.
pub(crate) struct Mapping<'a> {
    /// Host pairs, from and to; `-` as the first is `here`, as the second `there`.
    hosts: &'a Pairs,
    /// This side's name for the server, and the other side's.
    here: &'a [u8],
    there: &'a [u8],
    /// Path prefixes: `(front, back)`, reversed for responses.
    paths: &'a Pairs,
    turned: bool,
    /// Scheme from and to.
    scheme: Option<(&'a [u8], &'a [u8])>,
    hosts_only: &'a [Arc<str>],
    hosts_not: &'a [Arc<str>],
}

impl<'a> Mapping<'a> {
    /// Creates a mapping for responses: the client requested host `requested`, the backend got
    /// `sent_host`.
    pub(crate) fn of_response(
        route: &'a Route,
        requested: &'a [u8],
        sent_host: &'a [u8],
        is_https: bool,
    ) -> Self {
        let rules = &route.response;
        let remaps = route.request.https_remap && is_https;
        Self {
            hosts: &rules.map_host,
            here: sent_host,
            there: requested,
            paths: &rules.map_urlpath,
            turned: true,
            scheme: remaps.then_some((&b"http"[..], &b"https"[..])),
            hosts_only: &rules.map_urlpath_hosts,
            hosts_not: &rules.map_urlpath_hosts_not,
        }
    }

    /// Creates a mapping for requests.
    pub(crate) fn of_request(
        route: &'a Route,
        requested: &'a [u8],
        sent_host: &'a [u8],
        is_https: bool,
    ) -> Self {
        let rules = &route.request;
        let remaps = rules.https_remap && is_https;
        Self {
            hosts: &rules.map_host,
            here: requested,
            there: sent_host,
            paths: &rules.map_urlpath,
            turned: false,
            scheme: remaps.then_some((&b"https"[..], &b"http"[..])),
            hosts_only: &[],
            hosts_not: &[],
        }
    }

    /// True if the mapping changes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.hosts.is_empty() && self.paths.is_empty() && self.scheme.is_none()
    }

    /// Maps the fields of a response for the client.
    pub(crate) fn map_fields(&self, fields: &mut Fields) {
        if self.is_idle() {
            return;
        }
        replace_values(fields, |known, _, value| match known {
            Some(Known::Location | Known::ContentLocation) => self.url(value),
            Some(Known::SetCookie) => self.cookie(value),
            _ => None,
        });
    }

    /// Maps a URL, with or without scheme and host; `None`: unchanged.
    pub(crate) fn url(&self, url: &[u8]) -> Option<Vec<u8>> {
        let Some((scheme, host, path)) = split(url) else {
            return self.path(url);
        };
        let mapped = self.host(scheme, host);
        let is_ours = mapped.is_some()
            || is_same_host(scheme, self.here, host)
            || is_same_host(scheme, self.there, host);
        let names =
            |list: &[Arc<str>]| list.iter().any(|n| is_same_host(scheme, n.as_bytes(), host));
        let has_our_paths = match self.hosts_only {
            [] => is_ours && !names(self.hosts_not),
            only => names(only) && !names(self.hosts_not),
        };
        let scheme = match self.scheme {
            Some((from, to)) if is_ours && is_same(scheme, from) => to,
            _ => scheme,
        };
        let mapped_path = || match path.first() {
            Some(b'/') => self.path(path),
            // RFC 9110 section 4.2.3: an empty path is the path `/`.
            _ => self.path(&[b"/", path].concat()),
        };
        let path = has_our_paths.then(mapped_path).flatten().map_or(path.into(), Cow::Owned);
        let host = mapped.unwrap_or(host);
        let colon: &[u8] = if scheme.is_empty() { b"" } else { b":" };
        let whole = [scheme, colon, b"//", host, &path].concat();
        (whole != url).then_some(whole)
    }

    fn host<'b>(&'b self, scheme: &[u8], host: &[u8]) -> Option<&'b [u8]> {
        let from = |name: &'b str| if name == "-" { self.here } else { name.as_bytes() };
        let is_it = |name: &'b str| is_same_host(scheme, from(name), host);
        let (_, to) = self.hosts.iter().find(|(name, _)| is_it(name))?;
        Some(if &**to == "-" { self.there } else { to.as_bytes() })
    }

    fn path(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.paths.iter().find_map(|(front, back)| {
            let (from, to) = if self.turned { (back, front) } else { (front, back) };
            mapped(from.as_bytes(), to.as_bytes(), path)
        })
    }

    /// Maps a cookie's `Domain` and `Path` (RFC 6265 section 4.1.2).
    fn cookie(&self, cookie: &[u8]) -> Option<Vec<u8>> {
        let mut mapped = Vec::with_capacity(cookie.len());
        for (nth, attribute) in cookie.split(|byte| *byte == b';').enumerate() {
            if nth > 0 {
                mapped.push(b';');
            }
            match (nth, self.attribute(attribute)) {
                (1.., Some(changed)) => mapped.extend_from_slice(&changed),
                _ => mapped.extend_from_slice(attribute),
            }
        }
        (mapped != cookie).then_some(mapped)
    }

    fn attribute(&self, attribute: &[u8]) -> Option<Vec<u8>> {
        let at = attribute.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&attribute[..=at], trim(&attribute[at + 1..]));
        // RFC 2109 has values in quotes, which older frameworks write.
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        let (quote, value) = inner.map_or((&b""[..], value), |inner| (&b"\""[..], inner));
        let changed = match trim(&attribute[..at]) {
            domain if is_same(domain, b"Domain") => self.domain(value)?,
            path if is_same(path, b"Path") => self.path(value)?,
            _ => return None,
        };
        Some([name, quote, &changed, quote].concat())
    }

    /// Maps a domain: it has no port, and a leading dot has no meaning.
    fn domain(&self, domain: &[u8]) -> Option<Vec<u8>> {
        let (dot, host) = domain.split_at(usize::from(domain.first() == Some(&b'.')));
        let from = |name: &'a str| if name == "-" { self.here } else { name.as_bytes() };
        let (_, to) = self.hosts.iter().find(|(name, _)| is_same(portless(from(name)), host))?;
        let to = if &**to == "-" { self.there } else { to.as_bytes() };
        Some([dot, portless(to)].concat())
    }
}

/// Replaces the prefix `from` of a path, perhaps with a query, by `to`: whole segments only, joined
/// by one slash.
pub(crate) fn mapped(from: &[u8], to: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(from)?;
    let (from_ends, to_ends) = (from.ends_with(b"/"), to.ends_with(b"/"));
    if !from_ends && !matches!(rest.first(), None | Some(b'/' | b'?' | b'#')) {
        return None;
    }
    Some(match (from_ends, to_ends) {
        (true, false) => [to, b"/", rest].concat(),
        (false, true) => [to, rest.strip_prefix(b"/").unwrap_or(rest)].concat(),
        _ => [to, rest].concat(),
    })
}

/// True if an encoded path has a `.` or `..` segment.
pub(crate) fn has_dot_segment(path: &[u8]) -> bool {
    let is_dots = |segment: &[u8]| {
        let (mut rest, mut dots) = (segment, 0);
        while let Some(behind) = without_dot(rest) {
            (rest, dots) = (behind, dots + 1);
        }
        rest.is_empty() && matches!(dots, 1 | 2)
    };
    path.split(|byte| *byte == b'/').any(is_dots)
}

fn without_dot(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Returns the path of a URL, which may have a scheme and a host.
pub(crate) fn path_of(url: &[u8]) -> &[u8] {
    let path = split(url).map_or(url, |(_, _, path)| path);
    let end = path.iter().position(|byte| b"?#".contains(byte)).unwrap_or(path.len());
    &path[..end]
}

/// Applies `proxy-core.rewrite-response`: the first matching rule for a field wins.
///
/// # Errors
/// A pattern ran into its limit.
pub(crate) fn rewrite(fields: &mut Fields, rules: &[RewriteRule]) -> Result<(), Undecided> {
    if rules.is_empty() {
        return Ok(());
    }
    let mut undecided = None;
    replace_values(fields, |_, name, value| {
        let is_for = |rule: &&RewriteRule| match &rule.target {
            RewriteTarget::Field(field) => is_same(field.as_bytes(), name),
            _ => false,
        };
        RewriteRule::first(rules.iter().filter(is_for), value).unwrap_or_else(|why| {
            undecided.get_or_insert(why);
            None
        })
    });
    undecided.map_or(Ok(()), Err)
}

/// Replaces values one by one, without changing their order.
fn replace_values(
    fields: &mut Fields,
    mut change: impl FnMut(Option<Known>, &[u8], &[u8]) -> Option<Vec<u8>>,
) {
    let mut changed = Fields::default();
    for (known, name, value) in fields.iter_known() {
        let other = change(known, name, value);
        changed.push_looked_up(known, name, other.as_deref().unwrap_or(value));
    }
    *fields = changed;
}

/// Splits a URL that names a host into scheme, host with port, and the rest. The scheme is empty if
/// the URL begins with two slashes (RFC 3986 section 4.2).
fn split(url: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (scheme, rest) = match url {
        [b'/', b'/', rest @ ..] => (&url[..0], rest),
        [b'/', ..] => return None,
        _ => {
            let colon = url.iter().position(|byte| *byte == b':')?;
            (&url[..colon], url[colon..].strip_prefix(b"://")?)
        }
    };
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// Returns true if two hosts are equal under a scheme: its default port may be left out.
fn is_same_host(scheme: &[u8], one: &[u8], other: &[u8]) -> bool {
    is_same(without_default_port(scheme, one), without_default_port(scheme, other))
}

fn without_default_port<'a>(scheme: &[u8], host: &'a [u8]) -> &'a [u8] {
    let port: &[u8] = match scheme {
        http if is_same(http, b"http") => b":80",
        https if is_same(https, b"https") => b":443",
        _ => return host,
    };
    host.strip_suffix(port).unwrap_or(host)
}

fn portless(host: &[u8]) -> &[u8] {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let is_port = |at: &usize| host[at + 1..].iter().all(u8::is_ascii_digit);
    colon.filter(is_port).map_or(host, |at| &host[..at])
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use lighty_config::BytePattern;

    use super::*;
    use crate::route::rules::ReplacementPiece;

    fn pairs(list: &[(&str, &str)]) -> Vec<(Arc<str>, Arc<str>)> {
        list.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect()
    }

    fn with<'a>(hosts: &'a Pairs, paths: &'a Pairs) -> Mapping<'a> {
        Mapping {
            hosts,
            here: b"back:8080",
            there: b"www.example.org",
            paths,
            turned: true,
            scheme: Some((b"http", b"https")),
            hosts_only: &[],
            hosts_not: &[],
        }
    }

    fn mapped(mapping: &Mapping<'_>, url: &str) -> String {
        let changed = mapping.url(url.as_bytes());
        String::from_utf8(changed.unwrap_or_else(|| url.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn urls_of_the_backend_become_urls_of_ours() {
        let (hosts, paths) = (pairs(&[("-", "-"), ("old", "new")]), pairs(&[("/app/", "/")]));
        let mapping = with(&hosts, &paths);
        for (from, to) in [
            ("/x", "/app/x"),
            ("http://back:8080/x?y#z", "https://www.example.org/app/x?y#z"),
            ("//back:8080/x", "//www.example.org/app/x"),
            ("http://back:8080", "https://www.example.org/app/"),
            ("http://back:8080?y", "https://www.example.org/app/?y"),
            ("http://other.example?y", "http://other.example?y"),
            ("//other.example/x", "//other.example/x"),
            ("///x", "///x"),
            ("http://old:80/x", "https://new/app/x"),
            ("http://old:443/x", "http://old:443/x"),
            ("http://www.example.org:80/x", "https://www.example.org:80/app/x"),
            ("HTTP://BACK:8080/x", "https://www.example.org/app/x"),
            ("http://old/", "https://new/app/"),
            ("https://www.example.org/x", "https://www.example.org/app/x"),
            ("http://elsewhere.example/x", "http://elsewhere.example/x"),
            ("mailto:x@y", "mailto:x@y"),
            ("relative/path", "relative/path"),
            ("", ""),
        ] {
            assert_eq!(mapped(&mapping, from), to, "{from}");
        }
    }

    #[test]
    fn whole_segments_are_mapped_with_one_slash_between() {
        let case = |from: &str, to: &str, path: &str| {
            let made = super::mapped(from.as_bytes(), to.as_bytes(), path.as_bytes());
            made.map(|path| String::from_utf8(path).unwrap())
        };
        for (from, to, path, wanted) in [
            ("/wiki/", "/", "/wiki/x", Some("/x")),
            ("/wiki/", "/", "/wiki", None),
            ("/wiki", "/", "/wiki/x", Some("/x")),
            ("/wiki", "/", "/wiki", Some("/")),
            ("/wiki", "/", "/wiki?q", Some("/?q")),
            ("/wiki", "/", "/wikipedia", None),
            ("/wiki", "/", "/wiki../admin", None),
            ("/wiki", "/w", "/wiki/x", Some("/w/x")),
            ("/wiki/", "/w", "/wiki/x", Some("/w/x")),
            ("/", "/wiki", "/x", Some("/wiki/x")),
            ("/", "/wiki/", "/", Some("/wiki/")),
        ] {
            assert_eq!(case(from, to, path).as_deref(), wanted, "{from} => {to}: {path}");
        }
    }

    #[test]
    fn dot_segments_are_seen_in_every_spelling() {
        for path in ["/..", "/a/../b", "/./x", "/a/%2e%2E/x", "/.%2e", "..", "/a/."] {
            assert!(has_dot_segment(path.as_bytes()), "{path}");
        }
        for path in ["/", "/a..b", "/...", "/..a/", "/.hidden", "/%2f..x", "//"] {
            assert!(!has_dot_segment(path.as_bytes()), "{path}");
        }
        assert_eq!(path_of(b"http://h/a/../b?/../"), b"/a/../b");
        assert_eq!(path_of(b"/a?x"), b"/a");
    }

    #[test]
    fn lists_of_hosts_say_whose_paths_are_mapped() {
        let (hosts, paths) = (pairs(&[]), pairs(&[("/app/", "/")]));
        let listed: [Arc<str>; 1] = ["other".into()];
        let only = Mapping { hosts_only: &listed, ..with(&hosts, &paths) };
        assert_eq!(mapped(&only, "http://other/x"), "http://other/app/x");
        assert_eq!(mapped(&only, "https://back:8080/x"), "https://back:8080/x");
        let here: [Arc<str>; 1] = ["back:8080".into()];
        let not = Mapping { hosts_not: &here, ..with(&hosts, &paths) };
        assert_eq!(mapped(&not, "https://back:8080/x"), "https://back:8080/x");
    }

    #[test]
    fn cookies_keep_everything_but_domain_and_path() {
        let (hosts, paths) = (pairs(&[("-", "-")]), pairs(&[("/app/", "/")]));
        let mapping = with(&hosts, &paths);
        let cookie = |text: &str| {
            let changed = mapping.cookie(text.as_bytes());
            changed.map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(
            cookie("path=/; Domain=.back; path=/; HttpOnly").as_deref(),
            Some("path=/; Domain=.www.example.org; path=/app/; HttpOnly")
        );
        assert_eq!(cookie("a=b; Domain=other; Secure"), None);
    }

    #[test]
    fn the_first_rule_that_matches_counts_for_each_value() {
        let text = |text: &str| vec![ReplacementPiece::Text(text.into())];
        let group_and_mark =
            || vec![ReplacementPiece::Group(1), ReplacementPiece::Text("!".into())];
        let rule = |field: &str, pattern: &str, replacement: Vec<ReplacementPiece>| RewriteRule {
            target: RewriteTarget::Field(field.into()),
            pattern: BytePattern::small(pattern).unwrap(),
            replacement: replacement.into(),
        };
        let rules = [
            rule("X-A", "^a(.*)", group_and_mark()),
            rule("x-a", ".*", text("none")),
            rule("X-B", "", text("")),
        ];
        let mut fields = Fields::default();
        fields.push(b"X-A", b"abc");
        fields.push(b"X-A", b"xyz");
        fields.push(b"X-C", b"abc");
        rewrite(&mut fields, &rules).unwrap();
        let values: Vec<&[u8]> = fields.iter().map(|(_, value)| value).collect();
        assert_eq!(values, [&b"bc!"[..], b"none", b"abc"]);
    }
}
