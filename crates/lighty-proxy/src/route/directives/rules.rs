//! `proxy-core.*`: changes to requests and responses, and trust in response fields.

use std::sync::Arc;

use lighty_config::{
    BytePattern, CompileCtx, Key, Kind, NeedKind, Reject, Spanned, Value, parse_bool, parse_string,
};
use lighty_core::Settings;
use lighty_core::pipeline::sendfile::directories;
use lighty_core::settings::Directive;

use super::of;
use super::values::{keyed, unknown_key, within};
use crate::route::rules::{ForwardedRules, ReplacementPiece, RewriteRule, RewriteTarget};

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = sent_files();
    rows.extend(changes());
    rows
}

fn sent_files() -> Vec<Directive> {
    vec![
        Directive::bool("proxy-core.allow-x-sendfile", |s, on| of(s).core.allow_x_sendfile = on)
            .needs(NeedKind::RemovesServed)
            .default("disable")
            .since("1.5")
            .doc(
                "Lets backends answer with a file of this machine, which they name in \
                 `X-Sendfile`, `X-LIGHTTPD-send-file`, `X-LIGHTTPD-send-tempfile` (removed when it \
                 was sent) or `X-Accel-Redirect`. It is sent as any other file, with ranges and \
                 conditions. `X-Sendfile2` names parts of files, which are sent one after the \
                 other with the head that the backend sends. Only files beneath `proxy-core.x-sendfile-docroot` are sent.",
            )
            .example("proxy-core.allow-x-sendfile = \"enable\""),
        Directive::parsed(
            "proxy-core.x-sendfile-docroot",
            Kind::List,
            |value, _| directories(value),
            |s: &mut Settings, list| of(s).core.x_sendfile_docroot = Arc::clone(list),
        )
        .needs(NeedKind::Served)
        .default("()")
        .since("lighty 0.1")
        .doc(
            "Directories beneath which a backend may name files to send. An empty list: beneath \
             the document root.",
        )
        .example("proxy-core.x-sendfile-docroot = ( \"/srv/downloads\", \"/var/cache/app\" )"),
        Directive::bool("proxy-core.allow-x-rewrite", |s, on| of(s).core.allow_x_rewrite = on)
            .default("disable")
            .since("1.5")
            .doc(
                "Lets backends send a request on: `X-Rewrite-URI` and `X-Rewrite-Host` begin it \
                 again with another URL or host, `X-Rewrite-Backend` with the backend it names.",
            )
            .example("proxy-core.allow-x-rewrite = \"enable\""),
        Directive::bool("proxy-core.status-header", |s, on| of(s).core.status_field = on)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Adds `Proxy-Status` (RFC 9209) to responses that say that a backend has failed: \
                 `lighty; error=connection_refused`, or `lighty; received-status=500` for a \
                 backend's own error. Applies to backends of all directives.",
            )
            .example("proxy-core.status-header = \"enable\""),
        Directive::bool("proxy-core.strict-lines", |s, on| of(s).shared.strict_lines = on)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Answers 502 where a line in the head of an HTTP backend's response ends with a line \
                 feed alone. Else such a line is read like any other (RFC 9112 section 2.2), as \
                 lighttpd does. Applies to `proxy.server` as well.",
            )
            .example("proxy-core.strict-lines = \"enable\""),
    ]
}

fn changes() -> Vec<Directive> {
    vec![
        Directive::parsed("proxy-core.rewrite-request", Kind::Array, request_rules, |s: &mut Settings, rules| {
            of(s).core.rewrite_request = Arc::clone(rules);
        })
        .default("()")
        .since("1.5")
        .doc(
            "Changes what a backend receives. Each key is a header field, or `_uri`, `_docroot`, \
             `_pathinfo` or `_scriptname`; its value is a pattern and a replacement, in which `$0` \
             to `$9` stand for the match and its groups. `_pathinfo` and `_scriptname` are made of \
             the URL's decoded path, `_uri` of path and query, `_docroot` of the document root. \
             Rules are tried in the order written; the first match of a key counts. If `_uri` \
             makes a path with `..`, the request is answered 400, because access rules have judged \
             another URL.",
        )
        .example(
            "proxy-core.rewrite-request = ( \"_uri\" => ( \"^/app/?(.*)\" => \"/$1\" ), \
             \"Host\" => ( \".*\" => \"internal.example.org\" ) )",
        ),
        Directive::parsed("proxy-core.rewrite-response", Kind::Array, response_rules, |s: &mut Settings, rules| {
            of(s).core.rewrite_response = Arc::clone(rules);
        })
        .default("()")
        .since("1.5")
        .doc("Changes header fields of a backend's response, as `proxy-core.rewrite-request` does.")
        .example(
            "proxy-core.rewrite-response = ( \"Location\" => ( \"^http://internal/(.*)\" => \"/app/$1\" ) )",
        ),
        Directive::parsed("proxy-core.forwarded", Kind::Array, forwarded, |s: &mut Settings, rules| {
            of(s).core.forwarded = rules.clone();
        })
        .default("()")
        .since("lighty 0.1")
        .doc(FORWARDED_DOC)
        .example("proxy-core.forwarded = ( \"for\" => \"enable\", \"proto\" => \"enable\" )"),
        Directive::bool("proxy-core.upgrade", |s, on| of(s).core.upgrade = on)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Passes on `Upgrade` requests, such as WebSocket, to an HTTP backend. After its \
                 101 the connection is a tunnel. An HTTP/2 backend gets an extended CONNECT (RFC \
                 8441) if it has announced support; otherwise the upgrade is not passed on.",
            )
            .example("proxy-core.upgrade = \"enable\""),
        forward_path(),
        Directive::bool("proxy-core.trailers", |s, on| of(s).core.trailers = on)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Passes on the trailer fields of chunked requests, except fields that would change \
                 decisions already made (RFC 9110 section 6.5.1). Trailer fields of responses \
                 reach every client that sends `TE: trailers`.",
            )
            .example("proxy-core.trailers = \"enable\""),
    ]
}

fn forward_path() -> Directive {
    Directive::choice("proxy-core.forward-path", FORWARD_PATH, |s, index| {
        of(s).shared.as_received = index == 1;
    })
    .default("normalized")
    .since("lighty 0.1")
    .doc(
        "Form of the path and query sent to HTTP backends. `normalized`: the form that conditions \
         and access rules see (`server.http-parseopts`), as in lighttpd; `/a//b`, `/a%2Fb` and \
         `/%41` become `/a/b`, `/a/b` and `/A`. `as-received`: the client's bytes, for \
         applications that distinguish or sign such paths (S3, package registries). Rules always \
         judge the normalized path. Rewritten URLs and paths with `.` or `..` segments are sent \
         normalized. Applies to `proxy.server` as well.",
    )
    .example("$HTTP[\"host\"] == \"s3.example.org\" { proxy-core.forward-path = \"as-received\" }")
}

const FORWARD_PATH: &[&str] = &["normalized", "as-received"];

const FORWARDED_DOC: &str = "\
Elements of the `Forwarded` field (RFC 7239) that a backend is sent: `for`, `by`, `host`, `proto`, `remote_user`. \
The older fields `X-Forwarded-For`, `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Host` go with every request, \
unless `x-forwarded` is `\"disable\"`.";

const ELEMENTS: &[&str] = &["for", "by", "host", "proto", "remote_user", "x-forwarded"];

/// Reads `( "for" => "enable" )` of 1.4.
pub(super) fn forwarded(value: &Value, _: &CompileCtx) -> Result<ForwardedRules, Reject> {
    let mut rules = ForwardedRules::default();
    for (key, item) in keyed(value, "write `( \"for\" => \"enable\" )`")? {
        let on = match &**key {
            "for" => &mut rules.for_,
            "by" => &mut rules.by,
            "host" => &mut rules.host,
            "proto" => &mut rules.proto,
            "remote_user" => &mut rules.remote_user,
            "x-forwarded" => &mut rules.x_forwarded,
            _ => return Err(unknown_key(key, ELEMENTS)),
        };
        *on = within(key, item, parse_bool)?;
    }
    Ok(rules)
}

fn request_rules(value: &Value, ctx: &CompileCtx) -> Result<Arc<[RewriteRule]>, Reject> {
    rewrite(value, ctx, |key| match &**key {
        "_uri" => Ok(RewriteTarget::Uri),
        "_docroot" => Ok(RewriteTarget::Docroot),
        "_pathinfo" => Ok(RewriteTarget::PathInfo),
        "_scriptname" => Ok(RewriteTarget::ScriptName),
        _ => field(key, &["_uri", "_docroot", "_pathinfo", "_scriptname"]),
    })
}

fn response_rules(value: &Value, ctx: &CompileCtx) -> Result<Arc<[RewriteRule]>, Reject> {
    rewrite(value, ctx, |key| field(key, &[]))
}

const FRAMING: &[&str] =
    &["connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer"];

/// Checks a header field to change: the fields that frame a message are refused.
fn field(key: &Key, known: &[&str]) -> Result<RewriteTarget, Reject> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^`|~".contains(&b);
    let name: &str = key;
    let refuse = |text: String| Reject::new(text).did_you_mean(name, known.iter().copied());
    if name.is_empty() || !name.bytes().all(token) {
        let text = format!("has \"{name}\", which is not the name of a header field");
        return Err(refuse(text).at(key.span));
    }
    if FRAMING.contains(&&*name.to_ascii_lowercase()) {
        let text = format!("has \"{name}\", which belongs to the connection and is not changed");
        return Err(Reject::new(text).at(key.span));
    }
    Ok(RewriteTarget::Field(name.into()))
}

fn rewrite(
    value: &Value,
    ctx: &CompileCtx,
    target: impl Fn(&Key) -> Result<RewriteTarget, Reject>,
) -> Result<Arc<[RewriteRule]>, Reject> {
    const FORM: &str = "write `( \"Host\" => ( \"pattern\" => \"replacement\" ) )`";
    let mut rules = Vec::new();
    for (key, item) in keyed(value, FORM)? {
        let target = target(key)?;
        let pairs = within(key, item, |value| {
            keyed(value, FORM).map(|pairs| {
                pairs.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>()
            })
        })?;
        for (pattern, replacement) in pairs {
            rules.push(rule(target.clone(), &pattern, &replacement, ctx)?);
        }
    }
    Ok(rules.into())
}

fn rule(
    target: RewriteTarget,
    pattern: &Key,
    replacement: &Spanned<Value>,
    ctx: &CompileCtx,
) -> Result<RewriteRule, Reject> {
    let pattern = BytePattern::compile(pattern, pattern.span, ctx)?;
    let text = parse_string(&replacement.value).map_err(|r| r.at(replacement.span))?;
    if text.chars().any(char::is_control) {
        let reject = Reject::new("has a control character in a replacement");
        return Err(reject.at(replacement.span));
    }
    Ok(RewriteRule { target, pattern, replacement: pieces(&text) })
}

/// Parses a replacement. `$1` is the first group, whatever follows it; any other `$` is literal.
fn pieces(text: &str) -> Arc<[ReplacementPiece]> {
    let (mut pieces, mut plain) = (Vec::new(), String::new());
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        let digit = if next == '$' { rest.next_if(char::is_ascii_digit) } else { None };
        match digit.and_then(|digit| digit.to_digit(10)) {
            Some(group) => {
                if !plain.is_empty() {
                    pieces.push(ReplacementPiece::Text(std::mem::take(&mut plain).into()));
                }
                pieces.push(ReplacementPiece::Group(group as usize));
            }
            None => {
                plain.push(next);
                if next == '$' {
                    rest.next_if_eq(&'$');
                }
            }
        }
    }
    if !plain.is_empty() {
        pieces.push(ReplacementPiece::Text(plain.into()));
    }
    pieces.into()
}
