//! `mod_evhost`: builds the document root from parts of the host name.

use std::rc::Rc;
use std::sync::Arc;

use lighty_config::{CompileCtx, Directive, Kind, NeedKind, Reject, Value, parse_string};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Settings, module_settings, pipeline};
use lighty_http::host;

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub struct EvhostSettings {
    pattern: Arc<[PatternPiece]>,
}
module_settings!(EvhostSettings);

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPiece {
    Text(Box<str>),
    /// `%_`: the whole name.
    Name,
    /// `%n`: a part, counted from the end; 0 is the last two.
    Part(usize),
    /// `%{n.m}`: character m of a part, from 1.
    Character(usize, usize),
}

/// The module.
pub struct Evhost;

impl Module for Evhost {
    fn name(&self) -> &'static str {
        "mod_evhost"
    }

    fn traits(&self) -> Traits {
        Traits {
            hooks: Hooks { docroot: true, ..Hooks::default() },
            never_refuses_paths: true,
            ..Traits::default()
        }
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        self.traits().hooks.only_if(!settings.module::<EvhostSettings>().pattern.is_empty())
    }

    fn directives() -> Vec<Directive<Settings>> {
        vec![
            Directive::parsed("evhost.path-pattern", Kind::String, parse_pattern, |s: &mut Settings, pattern| {
                // As in lighttpd: an empty pattern leaves the one around it.
                if let Some(pattern) = pattern {
                    s.module_mut::<EvhostSettings>().pattern = Arc::clone(pattern);
                }
            })
            .needs(NeedKind::Served)
            .module("mod_evhost")
            .default("")
            .since("1.4")
            .doc(
                "Document root, made from the host that was asked for. In `a.b.example.org`, `%1` \
                 is `org`, `%2` is `example`, `%3` is `b`, `%4` is `a`; `%0` is `example.org`, `%_` \
                 the whole name without its port, `%{2.1}` the first character of `%2`, `%%` a \
                 percent sign. Where there is no such directory, `server.document-root` holds. An empty \
                 pattern has no effect: in a condition, the one around it holds.",
            )
            .example("evhost.path-pattern = \"/srv/www/vhosts/%0/%3/\""),
        ]
    }

    fn docroot<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<EvhostSettings>();
        if own.pattern.is_empty() || !ex.physical.docroot.is_empty() {
            return Step::Next;
        }
        pipeline::choose_docroot(ex, candidate)
    }
}

fn candidate(ex: &Exchange, attempt: usize, out: &mut Vec<u8>) -> bool {
    let name = host::as_directory(&ex.request.authority);
    let Some(name) = name.filter(|_| attempt == 0) else { return false };
    fill(&ex.settings.module::<EvhostSettings>().pattern, name, out);
    out.truncate(pipeline::physical::directory(out).len());
    true
}

fn fill(pattern: &[PatternPiece], name: &[u8], out: &mut Vec<u8>) {
    for piece in pattern {
        match piece {
            PatternPiece::Text(text) => out.extend_from_slice(text.as_bytes()),
            PatternPiece::Name => out.extend_from_slice(name),
            PatternPiece::Part(n) => out.extend_from_slice(part(name, *n)),
            PatternPiece::Character(n, at) => {
                out.extend(part(name, *n).get(at.saturating_sub(1)).copied());
            }
        }
    }
}

/// Returns `%n` of a name. An address in brackets has only `%0`, the complete address.
fn part(name: &[u8], n: usize) -> &[u8] {
    if name.starts_with(b"[") {
        return if n == 0 { name } else { b"" };
    }
    let from_end = |n: usize| name.rsplit(|byte| *byte == b'.').nth(n);
    match n {
        0 => {
            let last = from_end(0).map_or(0, <[u8]>::len);
            let both = from_end(1).map_or(last, |before| before.len() + 1 + last);
            &name[name.len() - both..]
        }
        n => from_end(n - 1).unwrap_or_default(),
    }
}

/// `None` for an empty pattern.
fn parse_pattern(value: &Value, ctx: &CompileCtx) -> Result<Option<Arc<[PatternPiece]>>, Reject> {
    let text = parse_string(value)?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with('/') {
        // Such a pattern never matches a directory in lighttpd.
        ctx.or_skip::<()>(Err(Reject::new("must begin with a slash")));
        return Ok(Some(Arc::default()));
    }
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = &*text;
    while let Some((before, after)) = rest.split_once('%') {
        plain.push_str(before);
        let (piece, tail) = parse_piece(after).ok_or_else(|| {
            Reject::new(format!(
                "has an unknown \"%{}\"",
                after.chars().take(5).collect::<String>()
            ))
            .help("write %%, %_, %0 to %9 or %{2.1}")
        })?;
        match piece {
            PatternPiece::Text(text) => plain.push_str(&text),
            piece => {
                if !plain.is_empty() {
                    pieces.push(PatternPiece::Text(std::mem::take(&mut plain).into()));
                }
                pieces.push(piece);
            }
        }
        rest = tail;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(PatternPiece::Text(plain.into()));
    }
    Ok(Some(pieces.into()))
}

/// Parses the text after a percent sign. Returns the piece and the remaining text.
fn parse_piece(after: &str) -> Option<(PatternPiece, &str)> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| usize::from(byte - b'0'));
    let bytes = after.as_bytes();
    match bytes {
        [b'%', ..] => Some((PatternPiece::Text("%".into()), &after[1..])),
        [b'_', ..] => Some((PatternPiece::Name, &after[1..])),
        [b'{', n, b'}', ..] => Some((PatternPiece::Part(digit(*n)?), &after[3..])),
        [b'{', n, b'.', m, b'}', ..] => {
            let (n, m) = (digit(*n)?, digit(*m)?);
            let piece = if m == 0 { PatternPiece::Part(n) } else { PatternPiece::Character(n, m) };
            Some((piece, &after[5..]))
        }
        [n, ..] => Some((PatternPiece::Part(digit(*n)?), &after[1..])),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pattern: &str, name: &str) -> String {
        let ctx_free = Value::Str(pattern.into());
        let pieces = parse(&ctx_free).expect(pattern);
        let mut out = Vec::new();
        fill(&pieces, name.as_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    fn parse(value: &Value) -> Result<Arc<[PatternPiece]>, Reject> {
        let row = Evhost::directives().remove(0);
        let text = format!("{} = {}", row.name, value.to_source());
        let table = lighty_config::Table::new().row(row);
        let main = lighty_config::Main::Text { name: "test", text: text.as_bytes() };
        let loader = lighty_config::MemoryLoader::default();
        let options = lighty_config::LoadOptions { strict: true };
        let (config, _, _) = lighty_config::load(&loader, &main, &table, options);
        let config = config.ok_or_else(|| Reject::new("refused"))?;
        Ok(Arc::clone(&config.global().module::<EvhostSettings>().pattern))
    }

    #[test]
    fn parts_are_counted_from_the_end() {
        let host = "a.b.example.org";
        assert_eq!(filled("/s/%0/%3/%4/", host), "/s/example.org/b/a/");
        assert_eq!(filled("/s/%1/%2/%9x/%_", host), "/s/org/example/x/a.b.example.org");
        assert_eq!(filled("/s/%{2.1}/%{2.2}/%{2.0}/%{3}/%{2.9}", host), "/s/e/x/example/b/");
        assert_eq!(filled("/100%%/%_", "x"), "/100%/x");
        assert_eq!(filled("/%0/%1/%2", "localhost"), "/localhost/localhost/");
        assert_eq!(filled("/%0/%1", "[::1]"), "/[::1]/");
    }

    #[test]
    fn broken_patterns_are_refused() {
        for bad in ["/s/%x", "/s/%", "/s/%{2.1", "/s/%{2.10}", "/s/%{x}"] {
            assert!(parse(&Value::Str(bad.into())).is_err(), "{bad}");
        }
    }
}
