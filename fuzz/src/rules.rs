//! Rules of `url.rewrite` and `url.redirect`: takes any bytes, and panics when a promise is broken.

use std::borrow::Cow;
use std::net::IpAddr;

use lighty_config::{
    Active, BytePattern, CaptureSet, CompileCtx, Directive, Facts, Field, Kind, LoadOptions, Main,
    MemoryLoader, Table, load,
};
use lighty_core::settings::rules::{Applied, Rules, UrlParts};

/// Bytes of pattern, replacement and host: longer ones only take longer.
const PART_BYTES_MAX: usize = 200;

/// Rules that match nothing, but are as many as it takes for the search to be used that rules
/// out what cannot match.
const DECOYS: usize = 20;

/// Lines with a pattern, a replacement and a host; the rest is what the rule is applied to.
///
/// A rule among many does what it does alone, matches what its expression matches, and writes no
/// more than its places can hold.
pub fn rewrite(data: &[u8]) {
    let mut lines = data.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (pattern, replacement, host, subject) = (line(), line(), line(), line());
    let (Ok(pattern), Ok(replacement)) = (str::from_utf8(pattern), str::from_utf8(replacement))
    else {
        return;
    };
    let longest = [pattern.len(), replacement.len(), host.len()].into_iter().max();
    if longest > Some(PART_BYTES_MAX) || [pattern, replacement].iter().any(|p| p.contains('"')) {
        return;
    }
    let host = String::from_utf8_lossy(host);
    let rule = format!("\"{pattern}\" => \"{replacement}\"");
    let Some(alone) = applied(&rule, &host, subject) else {
        return;
    };
    let decoys: String = (0..DECOYS).map(|n| format!("\"never-{n}$x\" => \"/n\", ")).collect();
    assert_eq!(Some(&alone), applied(&(decoys + &rule), &host, subject).as_ref());
    let ctx = CompileCtx::nowhere("url.r");
    let compiled = BytePattern::compile(pattern, ctx.span, &ctx).expect("as it was loaded");
    assert_eq!(compiled.is_match(subject), Ok(alone.0 != Applied::NoMatch));
    let source_bytes = subject.len() + host.len() + URL.path.len() + 64;
    assert!(alone.1.len() <= (replacement.len() + 1) * 3 * source_bytes);
}

const URL: UrlParts<'static> = UrlParts {
    scheme: b"https",
    authority: b"www.Example.org",
    port: 8443,
    path: b"/p/a%20b",
    query: Some(b"x=1&y=%26"),
};

struct Host<'a>(&'a str);

impl Facts for Host<'_> {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(if *field == Field::Host { self.0 } else { "" }))
    }
    fn remote_ip(&self) -> Option<IpAddr> {
        None
    }
}

/// What rules make of a subject, inside a condition that every host meets; `None` if they are
/// refused.
fn applied(rules: &str, host: &str, subject: &[u8]) -> Option<(Applied, Vec<u8>)> {
    let row = Directive::parsed("url.r", Kind::Map, Rules::parse, |s: &mut Rules, rules| {
        *s = rules.clone();
    });
    let text = format!("$HTTP[\"host\"] =~ \"^(www\\.)?([^.]*)\" {{ url.r = ( {rules} ) }}");
    let main = Main::Text { name: "fuzz", text: text.as_bytes() };
    let table = Table::new().row(row);
    let (config, ..) = load(&MemoryLoader::default(), &main, &table, LoadOptions::default());
    let config = config?;
    let (mut active, mut captures) = (Active::new(), CaptureSet::default());
    config.evaluate(&Host(host), &mut active);
    let rules = config.settings(&active);
    active.swap_captures(&mut captures);
    let mut out = Vec::new();
    let applied = rules.apply(subject, &captures, &URL, &mut out).ok()?;
    Some((applied, out))
}
