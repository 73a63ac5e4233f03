//! `server.feature-flags`: supports a few of lighttpd's flags. The others are listed with the
//! reason why they have no effect.

use std::sync::Arc;

use lighty_config::{CompileCtx, Reject, Setter, Spanned, Value};

use crate::settings::Settings;

/// Supported flags.
const READ: &[&str] = &[
    "server.graceful-shutdown-timeout",
    "server.absolute-dir-redirect",
    "server.http-pathinfo",
    "http10.range",
    "server.h2proto",
    "server.odd-field-variables",
];

/// A flag of lighttpd 1.4 that has no effect here.
struct Flag {
    name: &'static str,
    /// The value that matches the behaviour of this server, if there is one.
    met_by: Option<bool>,
    /// True if configurations may depend on the flag.
    matters: bool,
    why: &'static str,
}

const fn flag(name: &'static str, met_by: Option<bool>, why: &'static str) -> Flag {
    Flag { name, met_by, matters: false, why }
}

const WITHOUT_EFFECT: &[Flag] = &[
    flag("server.h2c", Some(false), UPGRADE),
    flag("server.graceful-restart-bg", Some(false), RESTART),
    flag("server.graceful-unconfig-sock", Some(false), RESTART),
    flag("server.clock-jump-restart", None, "time-outs are measured by a clock that never jumps"),
    flag("server.pcre_jit", None, "most patterns are not PCRE's to match"),
    flag("server.errorlog-utf8", None, LOG),
    flag("server.errorlog-high-precision", None, LOG),
    flag("server.metrics-high-precision", None, "counters are as precise as they are"),
    flag("server.network-mptcp", Some(false), "listeners are plain TCP"),
    flag("chunkqueue.splice", None, "server.network-backend says how bytes are moved"),
    flag("auth.http-goaway-invalid-creds", Some(false), GOAWAY),
    flag("cgi.tempfile-accum", None, "server.stream-request-body says where bodies wait"),
    flag("ssl.session-cache", Some(false), "TLS sessions are resumed by tickets, without a cache"),
    flag("ssl.refresh-certs", Some(true), REFRESH),
    flag("ssl.refresh-crls", Some(true), REFRESH),
    Flag {
        name: "request.trailer-whitelist",
        met_by: None,
        matters: true,
        why: "trailer fields are never merged into the header; HTTP backends get them behind the \
              body",
    },
    Flag {
        name: "auth.delay-invalid-creds",
        met_by: Some(true),
        matters: true,
        why: "write the directive auth.delay-invalid-creds",
    },
    Flag {
        name: "proxy.force-http10",
        met_by: Some(false),
        matters: true,
        why: "write proxy.header = ( \"force-http10\" => \"enable\" )",
    },
];

const UPGRADE: &str =
    "RFC 9113 has no Upgrade to HTTP/2 any more; clients that know beforehand are served";
const GOAWAY: &str = "wrong credentials end no connection";
const REFRESH: &str =
    "certificates and revocation lists are loaded again whenever their files change";
const RESTART: &str = "the service manager restarts the server, and keeps its sockets open";
const LOG: &str = "the error log has a form of its own";
const INTERIM: &str = "interim responses of backends are passed on";

/// The setter for supported flags. Reports the others.
pub(super) fn compile(value: &Value, ctx: &CompileCtx) -> Result<Setter<Settings>, Reject> {
    let pairs =
        value.as_pairs().ok_or_else(|| Reject::new("must be an array of keys and values"))?;
    let mut graceful_s = None;
    let mut absolute = None;
    let mut pathinfo = None;
    let mut old_ranges = None;
    let mut http2 = None;
    let mut odd_fields = None;
    for (key, item) in pairs {
        let flag = || {
            ctx.or_skip(item.value.as_bool().ok_or_else(|| {
                Reject::new(format!("must have \"enable\" or \"disable\" for \"{key}\""))
                    .at(item.span)
            }))
        };
        match key {
            "server.graceful-shutdown-timeout" => {
                let wanted = item.value.as_int().and_then(|v| u32::try_from(v).ok());
                graceful_s = ctx.or_skip(wanted.ok_or_else(|| {
                    Reject::new(format!("must have seconds for \"{key}\"")).at(item.span)
                }));
            }
            "server.absolute-dir-redirect" => absolute = flag(),
            "server.http-pathinfo" => pathinfo = flag(),
            "http10.range" => old_ranges = flag(),
            "server.h2proto" => http2 = flag(),
            "server.odd-field-variables" => odd_fields = flag(),
            _ => report(key, item, ctx),
        }
    }
    Ok(Arc::new(move |s: &mut Settings| {
        s.server.graceful_shutdown_timeout_s =
            graceful_s.unwrap_or(s.server.graceful_shutdown_timeout_s);
        s.server.absolute_dir_redirect = absolute.unwrap_or(s.server.absolute_dir_redirect);
        s.core.pathinfo = pathinfo.unwrap_or(s.core.pathinfo);
        s.server.http2 = http2.unwrap_or(s.server.http2);
        s.server.odd_field_variables = odd_fields.unwrap_or(s.server.odd_field_variables);
        s.server.http10_range = old_ranges.unwrap_or(s.server.http10_range);
    }))
}

/// Reports the effect of an unsupported flag.
fn report(key: &str, item: &Spanned<Value>, ctx: &CompileCtx) {
    const INTERIM_FLAG: Flag = flag("", Some(false), INTERIM);
    let is_interim = key.starts_with("server.discard-backend-").then_some(&INTERIM_FLAG);
    let known = WITHOUT_EFFECT.iter().find(|flag| flag.name == key).or(is_interim);
    let Some(flag) = known else {
        let names = READ.iter().copied().chain(WITHOUT_EFFECT.iter().map(|flag| flag.name));
        let unknown = Reject::new(format!("has \"{key}\", which has no effect"));
        return ctx.warn(unknown.did_you_mean(key, names).at(item.span));
    };
    if flag.met_by.is_some() && item.value.as_bool() == flag.met_by {
        return;
    }
    let why = flag.why;
    let found = Reject::new(format!("has \"{key}\", which has no effect here: {why}"));
    if flag.matters { ctx.warn(found.at(item.span)) } else { ctx.note(found.at(item.span)) }
}
