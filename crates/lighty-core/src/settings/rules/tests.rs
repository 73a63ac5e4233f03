//! Rules in the form of configurations, applied as modules apply them.

use std::borrow::Cow;
use std::net::IpAddr;

use lighty_config::{
    Active, CaptureSet, Config, Directive, Facts, Field, Kind, LoadOptions, Main, MemoryLoader,
    Table, load,
};

use super::{Applied, Rules, UrlParts};
use crate::settings::limits;

#[derive(Clone, Default)]
struct Holder {
    rules: Rules,
}

struct StaticHost(&'static str);

impl Facts for StaticHost {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(if *field == Field::Host { self.0 } else { "" }))
    }
    fn remote_ip(&self) -> Option<IpAddr> {
        None
    }
}

/// The configuration, and the number of findings.
fn configured(text: &str) -> (Option<Config<Holder>>, usize) {
    let row = Directive::parsed("url.r", Kind::Map, Rules::parse, |s: &mut Holder, rules| {
        s.rules = rules.clone();
    });
    let table = Table::new().row(row);
    let main = Main::Text { name: "test", text: text.as_bytes() };
    let options = LoadOptions { strict: true };
    let (config, findings, _) = load(&MemoryLoader::default(), &main, &table, options);
    (config, findings.iter().count())
}

const URL: UrlParts<'static> = UrlParts {
    scheme: b"https",
    authority: b"www.Example.org",
    port: 8443,
    path: b"/p/a%20b",
    query: Some(b"x=1&y=%26"),
};

/// Applies `( pattern => replacement )` inside a condition on the host.
fn apply(pattern: &str, replacement: &str, subject: &str) -> (Applied, String) {
    let text = format!(
        "$HTTP[\"host\"] =~ \"^(www\\.)?(.*)$\" {{ url.r = ( \"{pattern}\" => \"{replacement}\" ) }}"
    );
    let (config, _) = configured(&text);
    let config = config.expect(replacement);
    let (mut active, mut captures) = (Active::new(), CaptureSet::default());
    config.evaluate(&StaticHost("www.a.example"), &mut active);
    let settings = config.settings(&active);
    active.swap_captures(&mut captures);
    let mut out = b"before".to_vec();
    let applied =
        settings.rules.apply(subject.as_bytes(), &captures, &URL, &mut out).expect("decided");
    (applied, String::from_utf8(out).expect("text"))
}

#[track_caller]
fn replaced(pattern: &str, replacement: &str, subject: &str, wanted: &str) {
    let (applied, out) = apply(pattern, replacement, subject);
    assert_eq!((applied, &*out), (Applied::Replaced, wanted), "{replacement}");
}

#[test]
fn groups_of_pattern_and_condition() {
    replaced("^/a/(.*)", "/n/$1/%2", "/a/x?y", "/n/x?y/a.example");
    replaced("b/(x)?(z)", "/$0|$1|$2|$9", "/b/z", "/b/z||z|");
    replaced("^/a", "[$0][$1][%0]", "/abc", "[/a][][www.a.example]");
    replaced(r"^/a\.b$", "[$0]", "/a.b", "[/a.b]");
    replaced("^/", "%%20$$1%a$", "/", "%20$1%a$");
}

#[test]
fn encodings() {
    let subject = "/x%20Y/z%C3%A9/q?A=b&c=%26+d";
    let cases = [
        ("${1}", "x%20Y/z%C3%A9/q%3FA%3Db%26c%3D%26%2Bd"),
        ("${escpsnde:1}", "x%20Y/z%C3%A9/q%3FA%3Db%26c%3D%26%2Bd"),
        ("${escnde:1}", "x%20Y%2Fz%C3%A9%2Fq%3FA%3Db%26c%3D%26%2Bd"),
        ("${esc:1}", "x%2520Y%2Fz%25C3%25A9%2Fq%3FA%3Db%26c%3D%2526%2Bd"),
        ("${escape:1}", "x%2520Y%2Fz%25C3%25A9%2Fq%3FA%3Db%26c%3D%2526%2Bd"),
        ("${noesc:1}", "x%20Y/z%C3%A9/q?A=b&c=%26+d"),
        ("${tolower:noesc:1}", "x%20y/z%C3%A9/q?a=b&c=%26+d"),
        ("${toupper:noesc:1}", "X%20Y/Z%C3%A9/Q?A=B&C=%26+D"),
        ("${tolower:1}", "x%20y/z%C3%A9/q%3Fa%3Db%26c%3D%26%2Bd"),
    ];
    for (replacement, wanted) in cases {
        replaced("^/(.*)", replacement, subject, wanted);
    }
    replaced("^/(.*)", "${encb64u:1}", "/hello?>~", "aGVsbG8_Pn4");
    replaced("^/(.*)", "${decb64u:1}", "/aGVsbG8_Pn4", "hello?>~");
    replaced("^/(.*)", "[${decb64u:1}]", "/*", "[]");
    replaced("^/(.*)", "%{2}|%{esc:2}", "/", "a.example|a.example");
}

#[test]
fn parts_of_the_url() {
    replaced(
        "^/",
        "${url.scheme}://${tolower:url.authority}:${url.port}${url.path}|${url.query}",
        "/",
        "https://www.example.org:8443/p/a%20b|x=1&y=%26",
    );
    replaced("^/", "/n${qsa}", "/", "/n?x=1&y=%26");
    replaced("^/", "/n?a${qsa}", "/", "/n?a&x=1&y=%26");
    replaced("^/", "${esc:url.path}", "/", "%2Fp%2Fa%2520b");
}

#[test]
fn the_first_match_wins_and_an_empty_replacement_keeps() {
    assert_eq!(apply("^/b", "/x", "/a"), (Applied::NoMatch, "before".into()));
    assert_eq!(apply("^/a", "", "/a"), (Applied::Keep, "before".into()));
    let (config, _) =
        configured("url.r = ( \"^/a/keep\" => \"\", \"^/a\" => \"/1\", \"/a\" => \"/2\" )");
    let rules = config.expect("valid").global().rules.clone();
    let mut out = Vec::new();
    let mut of = |subject: &[u8]| {
        let applied =
            rules.apply(subject, &CaptureSet::default(), &URL, &mut out).expect("decided");
        (applied, String::from_utf8_lossy(&out).into_owned())
    };
    assert_eq!(of(b"/a"), (Applied::Replaced, "/1".into()));
    assert_eq!(of(b"/b/a"), (Applied::Replaced, "/2".into()));
    assert_eq!(of(b"/a/keep").0, Applied::Keep);
}

#[test]
fn unknown_placeholders_are_warned_of_and_insert_nothing() {
    for odd in ["${url.bogus}", "${xx:1}", "${}", "%{123}", "${esc:}", "${1"] {
        let (config, findings) = configured(&format!("url.r = ( \"a(.)\" => \"/{odd}\" )"));
        if odd == "${1" {
            assert_eq!(findings, 0, "lighttpd forgives a missing brace");
            continue;
        }
        assert_eq!(findings, 1, "{odd}");
        let mut out = Vec::new();
        let rules = config.expect("a warning only").global().rules.clone();
        rules.apply(b"ab", &CaptureSet::default(), &URL, &mut out).expect("decided");
        assert_eq!(out, b"/", "{odd}");
    }
}

#[test]
fn broken_rules_are_refused_where_they_stand() {
    for bad in ["( \"(\" => \"/\" )", "( \"(?=a)\" => \"/\" )", "( \"/a\" )", "\"/a\""] {
        assert!(configured(&format!("url.r = {bad}")).0.is_none(), "{bad}");
    }
}

#[test]
fn many_rules_keep_their_order() {
    // Two rules for each number; the first of them wins.
    let rules: Vec<String> = (0..500)
        .map(|i| format!("\"^/old/{}/(.{{{}}}.*)$\" => \"/new/{i}/$1\"", i % 250, i / 250))
        .collect();
    let (config, _) = configured(&format!("url.r = ( {}, \"x$\" => \"/x\" )", rules.join(", ")));
    let rules = config.expect("valid").global().rules.clone();
    let mut out = Vec::new();
    for i in [0, 1, 25, 249] {
        let subject = format!("/old/{i}/page");
        assert_eq!(
            rules.apply(subject.as_bytes(), &CaptureSet::default(), &URL, &mut out),
            Ok(Applied::Replaced)
        );
        assert_eq!(String::from_utf8_lossy(&out), format!("/new/{i}/page"));
    }
    rules.apply(b"/old/250/x", &CaptureSet::default(), &URL, &mut out).expect("decided");
    assert_eq!(out, b"/x");
}

#[test]
fn number_of_rules_is_limited() {
    let list = |count| vec!["\"a\" => \"b\""; count].join(",");
    // Patterns of a map may repeat only with equal values; these are equal.
    let (config, findings) = configured(&format!("url.r = ( {} )", list(3)));
    assert!(config.is_some() && findings == 0);
    let distinct = |count: usize| {
        (0..count).map(|i| format!("\"^/{i}\" => \"\"")).collect::<Vec<_>>().join(",")
    };
    assert!(configured(&format!("url.r = ( {} )", distinct(limits::RULES_MAX + 1))).0.is_none());
}
