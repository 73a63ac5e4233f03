//! `mod_secdownload`: serves files behind expiring links that another program makes.
//!
//! A link is `<prefix><mac>/<time>/<path>`. The time is the link's creation, in hexadecimal digits;
//! the MAC is made with a secret that the server and that program share.

mod mac;

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{Directive, NeedKind};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Level, Settings, module_settings};
use lighty_http::Status;
use mac::MacAlgorithm;

/// Settings of the module.
#[derive(Clone)]
pub struct SecdownloadSettings {
    secret: Arc<str>,
    document_root: Arc<str>,
    uri_prefix: Arc<str>,
    timeout_s: u64,
    algorithm: Option<MacAlgorithm>,
    path_segments: usize,
    hash_querystr: bool,
}

impl Default for SecdownloadSettings {
    fn default() -> Self {
        let none: Arc<str> = "".into();
        Self {
            secret: none.clone(),
            document_root: none,
            uri_prefix: "/".into(),
            timeout_s: 60,
            algorithm: None,
            path_segments: 0,
            hash_querystr: false,
        }
    }
}
module_settings!(SecdownloadSettings);

/// Omits the secret, because the effective configuration can be displayed.
impl std::fmt::Debug for SecdownloadSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecdownloadSettings")
            .field("has_secret", &!self.secret.is_empty())
            .field("document_root", &self.document_root)
            .field("uri_prefix", &self.uri_prefix)
            .field("timeout_s", &self.timeout_s)
            .field("algorithm", &self.algorithm)
            .field("path_segments", &self.path_segments)
            .field("hash_querystr", &self.hash_querystr)
            .finish()
    }
}

/// The module.
pub struct Secdownload;

fn row(directive: Directive<Settings>) -> Directive<Settings> {
    directive.module("mod_secdownload").since("1.4")
}

fn own(s: &mut Settings) -> &mut SecdownloadSettings {
    s.module_mut()
}

impl Module for Secdownload {
    fn name(&self) -> &'static str {
        "mod_secdownload"
    }

    fn traits(&self) -> Traits {
        Hooks { physical: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<SecdownloadSettings>();
        self.traits().hooks.only_if(!own.secret.is_empty() && !own.document_root.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        let mut rows = places();
        rows.extend(checks());
        rows
    }

    fn physical<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<SecdownloadSettings>();
        if own.secret.is_empty() || own.document_root.is_empty() {
            return Step::Next;
        }
        let path = ex.request.path.strip_prefix(own.uri_prefix.as_bytes());
        let Some(link) = path.and_then(|rest| Link::parse(rest, own.algorithm())) else {
            return Step::Next;
        };
        let verdict = own.check(&link, ex.request.query(), ex.machine.clock.unix_s());
        let rel = link.path[1..].to_vec();
        match verdict {
            LinkVerdict::Good => {
                let root = own.document_root.trim_end_matches('/');
                ex.physical.docroot.clear();
                ex.physical
                    .docroot
                    .extend_from_slice(if root.is_empty() { "/" } else { root }.as_bytes());
                ex.physical.rel = rel;
                Step::Next
            }
            LinkVerdict::Expired => {
                ex.log(Level::Info, "secdownload.timeout: the link has expired");
                ex.fail_status(Status::GONE);
                Step::Answered
            }
            LinkVerdict::Forged => {
                ex.fail_saying(
                    Fault::Forbidden,
                    "secdownload: the link was not made with the secret",
                );
                Step::Answered
            }
        }
    }
}

fn places() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::string("secdownload.secret", |s, v| own(s).secret = v))
            .default("")
            .doc(
                "Secret that links are made with. Empty: off. A link is \
                 `<prefix><mac>/<time>/<path>`, with the time of its making in hexadecimal digits. \
                 With `md5`, the mac is the MD5 sum of secret, `/<path>` and `<time>` in \
                 hexadecimal digits; with `hmac-sha1` and `hmac-sha256` it is the HMAC of \
                 `/<time>/<path>` in URL-safe Base64 without padding. URLs without the prefix are \
                 served as usual; a link with a wrong mac is answered 403, an expired one 410.",
            )
            .example("secdownload.secret = \"a long and random text\""),
        row(Directive::string("secdownload.document-root", |s, v| own(s).document_root = v))
            .needs(NeedKind::Served)
            .default("")
            .doc("Directory of the files that links lead to; best outside of every document root.")
            .example("secdownload.document-root = \"/srv/downloads/\""),
        row(Directive::string("secdownload.uri-prefix", |s, v| own(s).uri_prefix = v))
            .default("/")
            .doc("Path prefix of links.")
            .example("secdownload.uri-prefix = \"/dl/\""),
    ]
}

fn checks() -> Vec<Directive<Settings>> {
    vec![
        row(Directive::int("secdownload.timeout", 0..=i64::from(u32::MAX), |s, v| {
            own(s).timeout_s = u64::try_from(v).unwrap_or(0);
        }))
        .default("60")
        .doc("Seconds for which a link is valid, before and after its time.")
        .example("secdownload.timeout = 3600"),
        row(Directive::choice("secdownload.algorithm", MacAlgorithm::NAMES, |s, at| {
            own(s).algorithm = MacAlgorithm::ALL.get(at).copied();
        }))
        .default_prose("`md5`, as 1.5 has no other; choose `hmac-sha256`")
        .doc("Algorithm of a link's mac.")
        .example("secdownload.algorithm = \"hmac-sha256\""),
        row(Directive::int("secdownload.path-segments", 0..=256, |s, v| {
            own(s).path_segments = usize::try_from(v).unwrap_or(0);
        }))
        .default("0")
        .doc(
            "Segments of the path that the mac covers, so that one link opens a directory: with \
             1, `<mac>` of `/<time>/album` is good for all that is beneath `album`. 0: all.",
        )
        .example("secdownload.path-segments = 1"),
        row(Directive::bool("secdownload.hash-querystr", |s, on| own(s).hash_querystr = on))
            .default("disable")
            .doc("Includes the query, from the `?` on, in the mac.")
            .example("secdownload.hash-querystr = \"enable\""),
    ]
}

/// The parts of a link.
#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    mac: &'a [u8],
    /// Creation time in hexadecimal digits, as covered by the MAC.
    time: &'a [u8],
    /// Creation time in seconds since 1970.
    made_s: u64,
    /// The path with its leading slash.
    path: &'a [u8],
}

impl<'a> Link<'a> {
    /// Parses the part of the URL after the prefix; `None` if it is not a link.
    fn parse(rest: &'a [u8], algorithm: MacAlgorithm) -> Option<Self> {
        let (mac, rest) = rest.split_at_checked(algorithm.mac_length())?;
        let rest = rest.strip_prefix(b"/")?;
        let end = rest.iter().position(|byte| *byte == b'/')?;
        let (time, path) = rest.split_at(end);
        let fits = (1..=16).contains(&time.len()) && time.iter().all(u8::is_ascii_hexdigit);
        let made_s = u64::from_str_radix(std::str::from_utf8(time).ok()?, 16).ok()?;
        (fits && algorithm.is_alphabet(mac)).then_some(Self { mac, time, made_s, path })
    }

    /// Returns the part of the path that the MAC covers: its first segments.
    fn covered(&self, segments: usize) -> &'a [u8] {
        if segments == 0 {
            return self.path;
        }
        let slashes = self.path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let end = slashes.map(|(at, _)| at).nth(segments);
        &self.path[..end.unwrap_or(self.path.len())]
    }
}

#[derive(Debug, PartialEq, Eq)]
enum LinkVerdict {
    Good,
    Expired,
    Forged,
}

impl SecdownloadSettings {
    fn algorithm(&self) -> MacAlgorithm {
        self.algorithm.unwrap_or(MacAlgorithm::Md5)
    }

    fn check(&self, link: &Link<'_>, query: &[u8], now_s: i64) -> LinkVerdict {
        if link.made_s.abs_diff(u64::try_from(now_s).unwrap_or(0)) > self.timeout_s {
            return LinkVerdict::Expired;
        }
        let mut path = link.covered(self.path_segments).to_vec();
        if self.hash_querystr && !query.is_empty() {
            path.push(b'?');
            path.extend_from_slice(query);
        }
        match self.algorithm().verify(self.secret.as_bytes(), link.time, &path, link.mac) {
            true => LinkVerdict::Good,
            false => LinkVerdict::Forged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "6b03a2e5ed0bbf1eb58a9a22e6bb0b5b";

    #[test]
    fn links_are_distinguished_from_other_paths() {
        let path = format!("{MD5}/5be3/a/b.txt");
        let link = Link::parse(path.as_bytes(), MacAlgorithm::Md5).expect("a link");
        assert_eq!((link.made_s, link.path), (0x5be3, &b"/a/b.txt"[..]));
        assert_eq!(link.covered(0), b"/a/b.txt");
        assert_eq!(link.covered(1), b"/a");
        assert_eq!(link.covered(2), b"/a/b.txt");
        for bad in [
            String::new(),
            MD5.to_owned(),
            format!("{MD5}/"),
            format!("{MD5}//a"),
            format!("{MD5}/5be3"),
            format!("{MD5}/xyz/a"),
            format!("{MD5}/00000000000000001/a"),
            format!("{}/5be3/a", &MD5[1..]),
            format!("{}x/5be3/a", &MD5[1..]),
        ] {
            assert_eq!(Link::parse(bad.as_bytes(), MacAlgorithm::Md5), None, "{bad}");
        }
    }

    #[test]
    fn time_is_judged_before_the_mac() {
        let own = SecdownloadSettings { secret: "s".into(), ..SecdownloadSettings::default() };
        let path = format!("{MD5}/64/a");
        let link = Link::parse(path.as_bytes(), MacAlgorithm::Md5).expect("a link");
        assert_eq!(own.check(&link, b"", 161), LinkVerdict::Expired);
        assert_eq!(own.check(&link, b"", 160), LinkVerdict::Forged);
        assert_eq!(own.check(&link, b"", 40), LinkVerdict::Forged);
        assert_eq!(own.check(&link, b"", 39), LinkVerdict::Expired);
    }
}
