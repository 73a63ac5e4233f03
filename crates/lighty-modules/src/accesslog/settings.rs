//! The directives and settings of `mod_accesslog`.

use std::sync::Arc;

use lighty_config::{
    CompileCtx, Kind, NeedKind, Reject, Span, Value, parse_choice, parse_int_clamped,
};
use lighty_core::settings::Directive;
use lighty_core::{Settings, module_settings};

use super::escape::Escaping;
use super::format::{self, FormatError, LogFormat};

/// Syslog's levels from the most to the least important; a number is an index.
const LEVELS: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Settings of the module.
#[derive(Clone, Debug)]
pub(super) struct AccessLogSettings {
    /// Empty: no log.
    pub(super) filename: Arc<str>,
    pub(super) use_syslog: bool,
    pub(super) syslog_level: &'static str,
    pub(super) format: Arc<LogFormat>,
    pub(super) escaping: Escaping,
    pub(super) json: bool,
}

impl Default for AccessLogSettings {
    fn default() -> Self {
        static DEFAULT: std::sync::LazyLock<Arc<LogFormat>> = std::sync::LazyLock::new(|| {
            Arc::new(LogFormat::parse(format::DEFAULT).expect("the default format is tested"))
        });
        Self {
            filename: "".into(),
            use_syslog: false,
            syslog_level: "info",
            format: Arc::clone(&DEFAULT),
            escaping: Escaping::default(),
            json: false,
        }
    }
}
module_settings!(AccessLogSettings);

fn of(settings: &mut Settings) -> &mut AccessLogSettings {
    settings.module_mut()
}

/// Rows of the directive table.
pub(super) fn rows() -> Vec<Directive> {
    let mut rows = destinations();
    rows.extend(contents());
    rows.into_iter().map(|row| row.module("mod_accesslog")).collect()
}

fn destinations() -> Vec<Directive> {
    vec![
        Directive::string("accesslog.filename", |s, name| of(s).filename = name)
            .needs(NeedKind::Log)
            .default("")
            .since("1.4")
            .doc(
                "File that a line is appended to for each request; `|command` starts a command \
                 and writes to its standard input. Empty: requests are not logged. Files are \
                 opened before privileges are dropped and again on HUP. Requests that were refused \
                 (400, 408, 414, 431) are logged where the global value says.",
            )
            .example("accesslog.filename = \"/var/log/lighty/access.log\""),
        Directive::bool("accesslog.use-syslog", |s, on| of(s).use_syslog = on)
            .default("disable")
            .since("1.4")
            .doc("Logs to syslog instead of a file, under `server.syslog-facility`.")
            .example("accesslog.use-syslog = \"enable\""),
        Directive::parsed("accesslog.syslog-level", Kind::String, parse_level, |s, level| {
            of(s).syslog_level = level;
        })
        .default("info")
        .since("1.4")
        .doc("Level of the lines in syslog: a name, or a number from 0 (emerg) to 7 (debug).")
        .example("accesslog.syslog-level = \"notice\""),
    ]
}

fn contents() -> Vec<Directive> {
    vec![
        Directive::parsed("accesslog.format", Kind::String, parse_format, |s, format| {
            of(s).format = Arc::clone(format);
        })
        .default(format::DEFAULT)
        .since("1.4")
        .doc(FORMAT_DOC)
        .example("accesslog.format = \"%h %V %u %t \\\"%r\\\" %>s %b %{ms}T\""),
        Directive::choice("accesslog.escaping", Escaping::NAMES, |s, index| {
            of(s).escaping = if index == 0 { Escaping::Hex } else { Escaping::Json };
        })
        .default("default")
        .since("1.4")
        .skips_unknown()
        .doc(
            "How values are made harmless in `accesslog.format`: `default` writes control \
             characters, quotes, backslashes and what is not ASCII as `\\xHH`; `json` writes them \
             as in a JSON string.",
        )
        .example("accesslog.escaping = \"json\""),
        Directive::bool("accesslog.json", |s, on| of(s).json = on)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Writes a JSON object for each request instead of `accesslog.format`. Its keys are \
                 `time` (RFC 3339, when the response was complete), `id` (as `%L`), `client`, \
                 `user`, `host`, `method`, `target`, `protocol`, `status`, `bytes_body`, \
                 `bytes_out` (with the head), `bytes_in`, `duration_us`, `referer`, `user_agent`, \
                 `connection` (`keep-alive`, `close` or `aborted`) and `stages_us`, an object with \
                 the duration of each [stage](../timings.md). Unknown values are `null`. A request \
                 that was proxied has `upstream`, `upstream_wait_us`, `upstream_connect_us`, \
                 `upstream_first_byte_us` and `upstream_tries` besides, and `upstream_tls_us` \
                 where a handshake of TLS was needed. A request that the \
                 [cache](../caching.md) concerns has `cache`, `cache_age_s` and `cache_wait_us`.",
            )
            .example("accesslog.json = \"enable\""),
    ]
}

const FORMAT_DOC: &str = "\
What a line says: text and these letters. Values that a client chose are escaped, so no request \
can forge a line or end a quote.

| letter | meaning |
|---|---|
| `%h`, `%a` | the client's address; `%{mask}h` without its host part (the last byte of IPv4, all but 48 bits of IPv6) |
| `%A`, `%p` | address and port of the listener; `%{remote}p` is the client's port |
| `%l`, `%u` | `-`; the authenticated user |
| `%L` | the request's name on error pages and in the error log |
| `%t` | when the response was complete, as `[06/Nov/1994:08:49:37 +0000]`; `%{…}t` takes a strftime pattern (C locale), or `sec`, `msec`, `usec`, `nsec` (since 1970), or `msec_frac`, `usec_frac`, `nsec_frac`; in front `begin:` or `end:` |
| `%r` | the request line as it came; parts of it: `%m` method, `%U` path, `%q` query, `%H` protocol |
| `%s`, `%>s` | status |
| `%b`, `%B` | bytes of the body sent |
| `%I`, `%O` | bytes received and sent, heads included, also of a head that was refused |
| `%{Name}i`, `%{Name}o` | a field of the request, of the response |
| `%{name}C` | a cookie |
| `%{name}e`, `%{name}n` | a variable of the request's environment |
| `%f` | the file |
| `%v`, `%V` | `server.name` (else as `%V`); host of the request |
| `%D`, `%T` | how long it took: microseconds, seconds; `%{ms}T`, `%{us}T`, `%{ns}T` |
| `%{upstream}x` | the backend that was asked last, of a request that was proxied; `%{upstream-wait}x` how long it waited for a place, `%{upstream-connect}x` how long connecting took (`-` for a connection that was there), `%{upstream-tls}x` how long the handshake of TLS took behind that, `%{upstream-first-byte}x` how long the backend took to begin its response once it had the request, in microseconds; `%{upstream-tries}x` how often it was given a place |
| `%{cache}x` | the [result of the cache](../caching.md#looking-at-it), such as `hit`; `%{cache-age}x` the age of the stored response in seconds, `%{cache-wait}x` how long the request waited for a fetch, in microseconds |
| `%{stage-queue}x` | microseconds that the request waited for a place at a backend, all tries together; so for [every stage](../timings.md), `-` for one that it did not come to |
| `%{request-id}x` | the id under which other servers know the request (`tracing.request-id`); `%{trace-id}x` and `%{span-id}x` its place in a trace (`tracing.activate`) |
| `%X` | `+` if the connection stays, `-` if it is closed, `X` if it broke |
| `%P` | process id |
| `%%` | a percent sign |

Time is measured in microseconds from when the request's head was read: for `%D` and `%T` to when its \
line is written, for `%t` to the begin of that turn of the loop.";

fn parse_level(value: &Value, ctx: &CompileCtx) -> Result<&'static str, Reject> {
    let index = match value.as_int() {
        Some(_) => {
            let range = 0..=LEVELS.len() as i64 - 1;
            parse_int_clamped(value, &range, |warning| ctx.warn(warning))? as usize
        }
        None => parse_choice(value, LEVELS)?,
    };
    Ok(LEVELS[index])
}

fn parse_format(value: &Value, ctx: &CompileCtx) -> Result<Arc<LogFormat>, Reject> {
    let text = lighty_config::parse_string(value)?;
    LogFormat::parse(&text).map(Arc::new).map_err(|error| {
        let reject = Reject::new(format!("has a fault: {}", error.message));
        match place_of(&error, &text, ctx.span) {
            Some(span) => reject.at(span),
            None => reject,
        }
    })
}

/// Position of a format error in the configuration file. `None` unless the value is a single
/// literal: quotes are escaped in the file and unescaped in `text`.
fn place_of(error: &FormatError, text: &str, literal: Span) -> Option<Span> {
    let quotes = |part: &str| part.bytes().filter(|byte| *byte == b'"').count();
    let written = u32::try_from(text.len() + quotes(text) + 2).ok()?;
    if literal.end.checked_sub(literal.start)? != written {
        return None;
    }
    let end = (error.at + error.length).min(text.len());
    let from = error.at + quotes(text.get(..error.at)?);
    let to = end + quotes(text.get(..end)?);
    let start = literal.start + 1 + u32::try_from(from).ok()?;
    Some(Span { start, end: literal.start + 1 + u32::try_from(to).ok()?, ..literal })
}
