//! `proxy-core.*`: rules for taking an address out of use, and back.

use std::sync::Arc;

use lighty_config::{CompileCtx, Key, Kind, Reject, Spanned, Value, parse_choice};
use lighty_core::Settings;
use lighty_core::settings::Directive;

use super::of;
use super::period::period;
use super::values::{keyed, number, parse_period, plain, unknown_key, within};
use crate::upstream::spec::{CheckKind, CheckSpec};

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = passive();
    rows.push(active());
    rows
}

fn passive() -> Vec<Directive> {
    vec![
        period("proxy-core.disable-time", 0, |parts, ms| parts.shared.health.disable_ms = ms)
            .default("1")
            .since("1.5")
            .doc(
                "Seconds that an address is skipped after it failed; doubled with each failure \
                 in a row, up to `proxy-core.max-disable-time`. Then one request tries it.",
            )
            .example("proxy-core.disable-time = 5"),
        period("proxy-core.max-disable-time", 0, |parts, ms| {
            parts.shared.health.disable_ms_max = ms;
        })
        .default("60")
        .since("lighty 0.1")
        .doc("Seconds that an address is skipped at most.")
        .example("proxy-core.max-disable-time = 10"),
        Directive::int("proxy-core.max-fails", 1..=1000, |s, v| {
            of(s).shared.health.fails_max = v as u32;
        })
        .default("1")
        .since("lighty 0.1")
        .doc(
            "Consecutive failures after which an address is skipped: refused and lost connections \
             and timeouts, not responses of the application.",
        )
        .example("proxy-core.max-fails = 3"),
        period("proxy-core.hold-time", 0, |parts, ms| parts.shared.health.hold_ms = ms)
            .default("3")
            .since("lighty 0.1")
            .doc(
                "Seconds that requests wait when the last backend that was up refuses, before \
                 they are answered 503: a backend that restarts costs waiting, not errors. A \
                 backend that never answered is not waited for. 0: 503 at once.",
            )
            .example("proxy-core.hold-time = 10"),
        period("proxy-core.slow-start", 0, |parts, ms| parts.shared.health.slow_start_ms = ms)
            .default("0")
            .since("lighty 0.1")
            .doc("Seconds in which the share of a recovered address grows to its full weight.")
            .example("proxy-core.slow-start = 30"),
    ]
}

fn active() -> Directive {
    Directive::parsed("proxy-core.check", Kind::Array, check, |s: &mut Settings, check| {
        of(s).shared.health.check = check.clone();
    })
    .default("()")
    .since("lighty 0.1")
    .doc(CHECK_DOC)
    .example(
        "proxy-core.check = ( \"type\" => \"http\", \"uri\" => \"/health\", \"status\" => \"200-299\", \
         \"interval\" => 2 )",
    )
}

const CHECK_DOC: &str = "\
Asks each address by itself, request or no request, whether it is well. An empty array: no checks.

| key | default | meaning |
|---|---|---|
| `type` | `tcp` | `tcp`: a connection is accepted; `http`: a GET is answered with a good status, over HTTP/2 by those of `h2`; `grpc`: gRPC's health service (`grpc.health.v1`) says SERVING; `fastcgi`: FCGI_GET_VALUES is answered, or a request for `uri`; `ajp13`: CPING is answered. Of the last four, the one that the backend speaks |
| `uri` | `/` | what is asked for (`http`, `fastcgi`) |
| `host` | `localhost` | the host that is asked for (`http`, `grpc`) |
| `service` | | the service that is asked about (`grpc`), at most 127 bytes; without it the whole backend |
| `status` | `200-399` | good answers (`http`): a status or a range |
| `interval` | `5` | seconds between two checks |
| `timeout` | `2` | seconds that one may take |
| `rise` | `2` | good ones in a row that bring an address back |
| `fall` | `3` | bad ones in a row that take it out |";

const KEYS: &[&str] =
    &["type", "uri", "host", "service", "status", "interval", "timeout", "rise", "fall"];

const TYPES: &[&str] = &["tcp", "http", "grpc", "fastcgi", "ajp13"];

/// Limit on the bytes of a service's name.
const SERVICE_BYTES_MAX: usize = 127;

/// Limit on the number of checks in a row.
const IN_A_ROW_MAX: i64 = 1000;

/// Values as written, key by key.
struct HealthDraft {
    kind: usize,
    uri: Option<Arc<str>>,
    host: Option<Arc<str>>,
    service: Option<Arc<str>>,
    status: Option<(u16, u16)>,
    spec: CheckSpec,
}

fn check(value: &Value, _: &CompileCtx) -> Result<Option<CheckSpec>, Reject> {
    let pairs = keyed(value, "write `( \"type\" => \"http\", \"uri\" => \"/health\" )`")?;
    if pairs.is_empty() {
        return Ok(None);
    }
    let (interval_ms, timeout_ms) = (5_000, 2_000);
    let spec = CheckSpec { kind: CheckKind::Tcp, interval_ms, timeout_ms, rise: 2, fall: 3 };
    let mut draft =
        HealthDraft { kind: 0, uri: None, host: None, service: None, status: None, spec };
    for (key, item) in &pairs {
        set(&mut draft, key, item)?;
    }
    fitting(&draft, &pairs)?;
    Ok(Some(finish(draft)))
}

fn set(draft: &mut HealthDraft, key: &Key, item: &Spanned<Value>) -> Result<(), Reject> {
    let in_a_row = |value: &Value| number(value, 1..=IN_A_ROW_MAX);
    match &**key {
        "type" => draft.kind = within(key, item, |value| parse_choice(value, TYPES))?,
        "uri" => draft.uri = Some(within(key, item, target)?),
        "host" => draft.host = Some(within(key, item, plain)?),
        "service" => draft.service = Some(within(key, item, service)?),
        "status" => draft.status = Some(within(key, item, status)?),
        "interval" => draft.spec.interval_ms = within(key, item, |v| parse_period(v, 100))?,
        "timeout" => draft.spec.timeout_ms = within(key, item, |v| parse_period(v, 1))?,
        "rise" => draft.spec.rise = within(key, item, in_a_row)?,
        "fall" => draft.spec.fall = within(key, item, in_a_row)?,
        _ => return Err(unknown_key(key, KEYS)),
    }
    Ok(())
}

/// Refuses keys without meaning for the type.
fn fitting(draft: &HealthDraft, pairs: &[(&Key, &Spanned<Value>)]) -> Result<(), Reject> {
    let meaningless: &[&str] = match TYPES[draft.kind] {
        "http" => &["service"],
        "grpc" => &["uri", "status"],
        "fastcgi" => &["host", "service", "status"],
        _ => &["uri", "host", "service", "status"],
    };
    match pairs.iter().find(|(key, _)| meaningless.contains(&&***key)) {
        Some((key, _)) => {
            let name = &***key;
            let kind = TYPES[draft.kind];
            let text = format!("has \"{name}\", which means nothing for the type \"{kind}\"");
            let wanted = if name == "service" { "grpc" } else { "http" };
            let help = format!("write \"type\" => \"{wanted}\"");
            Err(Reject::new(text).help(help).at(key.span))
        }
        None => Ok(()),
    }
}

fn finish(draft: HealthDraft) -> CheckSpec {
    let kind = match TYPES[draft.kind] {
        "http" => CheckKind::Http {
            target: draft.uri.unwrap_or_else(|| "/".into()),
            host: draft.host.unwrap_or_else(|| "localhost".into()),
            status: draft.status.unwrap_or((200, 399)),
        },
        "grpc" => CheckKind::Grpc {
            service: draft.service.unwrap_or_default(),
            host: draft.host.unwrap_or_else(|| "localhost".into()),
        },
        "fastcgi" => CheckKind::Fastcgi { target: draft.uri },
        "ajp13" => CheckKind::Ajp13,
        _ => CheckKind::Tcp,
    };
    CheckSpec { kind, ..draft.spec }
}

fn target(value: &Value) -> Result<Arc<str>, Reject> {
    let text = plain(value)?;
    match text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(text),
        false => Err(Reject::new("must be the path of a URL, beginning with \"/\"")),
    }
}

fn service(value: &Value) -> Result<Arc<str>, Reject> {
    let text = match value.as_str() {
        Some("") => return Ok("".into()),
        _ => plain(value)?,
    };
    match text.len() {
        0..=SERVICE_BYTES_MAX => Ok(text),
        _ => Err(Reject::new(format!("is longer than {SERVICE_BYTES_MAX} bytes"))),
    }
}

/// Reads `200` or `"200-299"`.
fn status(value: &Value) -> Result<(u16, u16), Reject> {
    let form = || Reject::new("must be a status or a range").help("write 200 or \"200-299\"");
    let text = lighty_config::parse_string(value)?;
    let (from, to) = text.split_once('-').unwrap_or((&*text, &*text));
    let code = |text: &str| text.parse::<u16>().ok().filter(|code| (100..=599).contains(code));
    match (code(from), code(to)) {
        (Some(from), Some(to)) if from <= to => Ok((from, to)),
        _ => Err(form()),
    }
}
