//! Directives that limit connections and requests.

use std::sync::Arc;

use lighty_config::{CompileCtx, Kind, Reject, Scope, Setter, Value, parse_int};

use lighty_http::uri::ParseOpts;

use super::feature_flags;
use crate::exchange::throttle::Bucket;
use crate::settings::{Directive, Settings, limits, tunnel_reload};

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = keep_alive();
    rows.extend(times());
    rows.extend(sizes());
    rows.extend(rates());
    rows.extend(protocol());
    rows
}

fn seconds(v: i64) -> u32 {
    v as u32
}

const SECONDS_MAX: i64 = 86_400 * 365;

fn keep_alive() -> Vec<Directive> {
    vec![
        Directive::int("server.max-connections", 0..=1_000_000, |s, v| {
            s.server.max_connections = v as u32;
        })
        .scope(Scope::Server)
        .default("0")
        .since("1.4")
        .doc(
            "Maximum number of connections. 0: a third of `server.max-fds`. At the limit, idle \
             connections are closed to make room, the longest idle first.",
        )
        .example("server.max-connections = 4096"),
        Directive::int("server.max-keep-alive-requests", 0..=i64::from(u32::MAX), |s, v| {
            s.core.max_keep_alive_requests = (v as u32).max(1);
        })
        .default("1000")
        .since("1.4")
        .doc("Requests on one connection before it is closed. 0 and 1: no keep-alive.")
        .example("server.max-keep-alive-requests = 100"),
        Directive::int("server.max-keep-alive-idle", 0..=SECONDS_MAX, |s, v| {
            s.core.max_keep_alive_idle_s = seconds(v);
        })
        .default("5")
        .since("1.4")
        .doc("Seconds a connection may wait for its next request. 0: no limit.")
        .example("server.max-keep-alive-idle = 30"),
        Directive::int("server.max-connection-idle", 0..=SECONDS_MAX, |s, v| {
            s.core.max_connection_idle_s = seconds(v);
        })
        .default("360")
        .since("1.5")
        .doc("Seconds a new connection may wait before the first byte of its first request.")
        .example("server.max-connection-idle = 30"),
        Directive::int("server.tunnel-stop-timeout", 0..=SECONDS_MAX, |s, v| {
            s.server.tunnels.stop_timeout_s = seconds(v);
        })
        .scope(Scope::Server)
        .default("10")
        .since("lighty 0.1")
        .doc(
            "Seconds that a tunnel (WebSocket, `sockproxy.server`) may go on once a graceful stop \
             has begun; then both of its sides are closed. 0: as long as it lasts, or \
             `server.graceful-shutdown-timeout` of `server.feature-flags` says.",
        )
        .example("server.tunnel-stop-timeout = 60"),
        tunnel_reload::directive(),
        Directive::int("server.upgrade-timeout", 1..=3_600, |s, v| {
            s.server.upgrade_timeout_s = seconds(v);
        })
        .scope(Scope::Server)
        .default("30")
        .since("lighty 0.1")
        .doc(
            "Seconds that the new process of `lighty ctl upgrade` may take to become ready. One \
             that is not ready by then is ended, and the old process goes on serving.",
        )
        .example("server.upgrade-timeout = 120"),
    ]
}

fn times() -> Vec<Directive> {
    vec![
        Directive::int("server.max-head-time", 0..=SECONDS_MAX, |s, v| {
            s.server.max_head_time_s = seconds(v);
        })
        .scope(Scope::Server)
        .default("10")
        .since("lighty 0.1")
        .doc(
            "Seconds from the first byte of a request head to its last (408). Closes connections \
             of clients that send a header drop by drop. 0: no limit.",
        )
        .example("server.max-head-time = 20"),
        Directive::int("server.max-read-idle", 0..=SECONDS_MAX, |s, v| {
            s.core.max_read_idle_s = seconds(v);
        })
        .default("60")
        .since("1.4")
        .doc("Seconds without a byte of a request body that is being sent (408). 0: no limit.")
        .example("server.max-read-idle = 120"),
        Directive::int("server.max-write-idle", 0..=SECONDS_MAX, |s, v| {
            s.core.max_write_idle_s = seconds(v);
        })
        .default("360")
        .since("1.4")
        .doc(
            "Seconds for which a client may read nothing of a response before the connection is \
             closed. 0: no limit.",
        )
        .example("server.max-write-idle = 60"),
        Directive::int("server.max-half-closed-idle", 0..=SECONDS_MAX, |s, v| {
            s.core.max_half_closed_idle_s = seconds(v);
        })
        .default("5")
        .since("lighty 0.1")
        .doc(
            "Seconds that a backend or a program may go on working for a client that has closed \
             its sending half. Over TCP, a client that waits for its response after closing its \
             sending half cannot be distinguished from one that has left until a response is sent. \
             After this time the request to the backend is cancelled. 0: no limit.",
        )
        .example("server.max-half-closed-idle = 60"),
        Directive::int("server.min-read-rate", 0..=1_000_000_000, |s, v| {
            s.core.min_read_rate = v as u32;
        })
        .default("100")
        .since("lighty 0.1")
        .doc(
            "Bytes per second that a request body must bring on average, after its first ten \
             seconds (408). 0: no limit.",
        )
        .example("server.min-read-rate = 1000"),
        Directive::int("server.min-write-rate", 0..=1_000_000_000, |s, v| {
            s.core.min_write_rate = v as u32;
        })
        .default("0")
        .since("lighty 0.1")
        .doc(
            "Bytes per second that a client must take of a response on average, after its first \
             ten seconds, before it is cut. 0: no limit: a paused video is no attack.",
        )
        .example("server.min-write-rate = 500"),
    ]
}

fn sizes() -> Vec<Directive> {
    vec![
        Directive::int("server.max-request-size", 0..=i64::MAX / 1024, |s, v| {
            s.core.max_request_bytes = v as u64 * 1024;
        })
        .default("0")
        .since("1.4")
        .doc("KB of a request body at most (413). 0: no limit.")
        .example("server.max-request-size = 102400"),
        Directive::int("server.max-request-field-size", 256..=65_535, |s, v| {
            s.server.max_request_field_bytes = v as usize;
            let in_http2 = v as usize + limits::HTTP2_FIELD_COST_BYTES;
            if in_http2 > limits::HEAD_BYTES_MAX {
                let http2 = &mut s.server.http2_limits;
                http2.field_bytes_max = http2.field_bytes_max.max(in_http2);
                http2.block_bytes_max = http2.block_bytes_max.max(in_http2);
            }
        })
        .scope(Scope::Server)
        .default("8192")
        .since("1.4")
        .doc(
            "Bytes of all header fields of a request together (431). Above 24576 it raises \
             `http2.max-field-size` and `http2.max-block-size` as well.",
        )
        .example("server.max-request-field-size = 16384"),
        Directive::int("server.max-request-fields", 1..=256, |s, v| {
            s.server.max_request_fields = v as u32;
        })
        .scope(Scope::Server)
        .default("100")
        .since("lighty 0.1")
        .doc("Header fields in a request (431).")
        .example("server.max-request-fields = 64"),
        Directive::int("server.max-url-length", 64..=8192, |s, v| {
            s.server.max_url_bytes = v as usize;
        })
        .scope(Scope::Server)
        .default("8192")
        .since("lighty 0.1")
        .doc("Bytes of a request target, query included (414).")
        .example("server.max-url-length = 4096"),
    ]
}

/// Maximum configurable rate in KB per second, beyond any network.
const RATE_MAX: i64 = u32::MAX as i64;

fn rates() -> Vec<Directive> {
    vec![
        Directive::parsed(
            "server.kbytes-per-second",
            Kind::Int { min: 0, max: RATE_MAX },
            |value, _| {
                let kbytes = parse_int(value, &(0..=RATE_MAX))?;
                Ok((kbytes > 0).then(|| Arc::new(Bucket::per_second(kbytes as u64, 0))))
            },
            |s: &mut Settings, bucket| s.core.shared_bucket = bucket.clone(),
        )
        .default("0")
        .since("1.4")
        .doc("KB per second for all connections together to which the value applies. 0: no limit.")
        .example("server.kbytes-per-second = 10240"),
        Directive::int("connection.kbytes-per-second", 0..=RATE_MAX, |s, v| {
            s.core.connection_kbytes_per_second = v as u64;
        })
        .default("0")
        .since("1.4")
        .doc("KB per second for each connection. 0: no limit.")
        .example("connection.kbytes-per-second = 512"),
    ]
}

fn protocol() -> Vec<Directive> {
    vec![
        Directive::bool("server.protocol-http11", |s, v| s.server.protocol_http11 = v)
            .scope(Scope::Server)
            .default("enable")
            .since("1.4")
            .doc("Keep connections open between requests; disabled, each response closes its own.")
            .example("server.protocol-http11 = \"disable\""),
        Directive::raw("server.http-parseopts", Kind::Map, parse_options)
            .scope(Scope::Server)
            .default("()")
            .since("1.4")
            .doc(
                "Strictness and normalisation of requests; a list of `key => \"enable\"` or \
                 `\"disable\"`. Keys: header-strict, host-strict, host-normalize, \
                 method-get-body, post-needs-length (lighty's own: POST without a length is 411, not \
                 one without a body), url-normalize, url-normalize-unreserved, \
                 url-normalize-required, url-ctrls-reject, url-path-backslash-trans, \
                 url-path-2f-decode, url-path-2f-reject, url-path-dotseg-remove, \
                 url-path-dotseg-reject, url-query-20-plus, url-invalid-utf8-reject. Framing is \
                 strict whatever is set here.",
            )
            .example("server.http-parseopts = ( \"url-path-2f-reject\" => \"enable\" )"),
        Directive::raw("server.feature-flags", Kind::Map, feature_flags::compile)
            .scope(Scope::Server)
            .default("()")
            .since("1.4")
            .doc(
                "Switches of lighttpd 1.4. Read here: `server.graceful-shutdown-timeout` (seconds; \
                 0 waits for the last response), `server.absolute-dir-redirect`, \
                 `server.http-pathinfo`, `http10.range`, `server.h2proto` (HTTP/2, which is on); \
                 and one of lighty's own, `server.odd-field-variables`: request fields whose names \
                 have other characters than letters, digits and `-`, such as `X_Api_Key`, become \
                 variables of programs. They do not by default, because `X_Remote_User` would \
                 reach a program under the name of a removed `X-Remote-User`. The other flags of \
                 lighttpd have no effect; a note explains flags that request other behaviour, and \
                 unknown names get a warning. So does `request.trailer-whitelist`, which merges \
                 trailer fields of requests into the header: here trailer fields go to HTTP \
                 backends unchanged, after the body.",
            )
            .example("server.feature-flags = ( \"server.graceful-shutdown-timeout\" => 30 )"),
    ]
}

fn parse_options(value: &Value, _: &CompileCtx) -> Result<Setter<Settings>, Reject> {
    let pairs =
        value.as_pairs().ok_or_else(|| Reject::new("must be an array of keys and values"))?;
    let mut changes: Vec<(String, bool)> = Vec::new();
    for (key, item) in pairs {
        let on = item.value.as_bool().ok_or_else(|| {
            Reject::new(format!("must have \"enable\" or \"disable\" for \"{key}\"")).at(item.span)
        })?;
        if !set_parse_option(&mut ParseOpts::default(), key, on) {
            return Err(Reject::new(format!("has no option \"{key}\""))
                .did_you_mean(key, PARSE_OPTIONS.iter().copied())
                .at(item.span));
        }
        changes.push((key.to_owned(), on));
    }
    let is_on = |option: &str| changes.iter().any(|(key, on)| key == option && *on);
    if let Some((one, other)) = PARSE_CONFLICTS.iter().find(|(a, b)| is_on(a) && is_on(b)) {
        return Err(Reject::new(format!("has both \"{one}\" and \"{other}\": one of them alone")));
    }
    Ok(Arc::new(move |s: &mut Settings| {
        s.server.parse = ParseOpts::default();
        for (key, on) in &changes {
            set_parse_option(&mut s.server.parse, key, *on);
        }
    }))
}

/// Keys of `server.http-parseopts`.
const PARSE_OPTIONS: &[&str] = &[
    "header-strict",
    "host-strict",
    "host-normalize",
    "method-get-body",
    "post-needs-length",
    "url-normalize",
    "url-normalize-unreserved",
    "url-normalize-required",
    "url-ctrls-reject",
    "url-path-backslash-trans",
    "url-path-2f-decode",
    "url-path-2f-reject",
    "url-path-dotseg-remove",
    "url-path-dotseg-reject",
    "url-query-20-plus",
    "url-invalid-utf8-reject",
];

/// Conflicting options.
const PARSE_CONFLICTS: [(&str, &str); 2] = [
    ("url-path-2f-decode", "url-path-2f-reject"),
    ("url-path-dotseg-remove", "url-path-dotseg-reject"),
];

/// Sets the option for a key. Returns `false` if the key is unknown.
fn set_parse_option(parse: &mut ParseOpts, key: &str, on: bool) -> bool {
    let option = match key {
        "header-strict" => &mut parse.header_strict,
        "host-strict" => &mut parse.host_strict,
        "host-normalize" => &mut parse.host_normalize,
        "method-get-body" => &mut parse.method_get_body,
        "post-needs-length" => &mut parse.post_needs_length,
        "url-normalize" => &mut parse.url_normalize,
        "url-normalize-unreserved" => &mut parse.url_normalize_unreserved,
        "url-normalize-required" => &mut parse.url_normalize_required,
        "url-ctrls-reject" => &mut parse.url_ctrls_reject,
        "url-path-backslash-trans" => &mut parse.url_path_backslash_trans,
        "url-path-2f-decode" => &mut parse.url_path_2f_decode,
        "url-path-2f-reject" => &mut parse.url_path_2f_reject,
        "url-path-dotseg-remove" => &mut parse.url_path_dotseg_remove,
        "url-path-dotseg-reject" => &mut parse.url_path_dotseg_reject,
        "url-query-20-plus" => &mut parse.url_query_20_plus,
        "url-invalid-utf8-reject" => &mut parse.url_invalid_utf8_reject,
        _ => return false,
    };
    *option = on;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parse_option_that_is_suggested_can_be_set() {
        for key in PARSE_OPTIONS {
            assert!(set_parse_option(&mut ParseOpts::default(), key, true), "{key}");
        }
        assert!(!set_parse_option(&mut ParseOpts::default(), "url-normalise", true));
    }
}
