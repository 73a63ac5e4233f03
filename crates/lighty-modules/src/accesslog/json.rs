//! The structured form: one JSON object a line (`accesslog.json = "enable"`).
//!
//! The keys are part of the manual (see the directive): new ones may be added, none is renamed.
//! Unknown values are `null`, never `"-"`.

use lighty_core::exchange::cache_trace::CacheTrace;
use lighty_core::exchange::stage::Stages;
use lighty_core::exchange::trace_context::TraceContext;
use lighty_core::exchange::upstream_trace::UpstreamTrace;
use lighty_http::{Fields, Known, json};

use super::format::Unit;
use super::record::{AccessRecord, ConnectionOutcome, Moment};
use super::render::{fraction, number};
use lighty_core::log::strftime;

/// Appends the request's JSON object and a newline.
pub(super) fn line(record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    rfc3339(&record.end, out);
    out.push(b'"');
    string("id", record.id.to_string().as_bytes(), out);
    string("client", record.client.as_bytes(), out);
    string("user", record.user, out);
    string("host", record.host, out);
    string("method", record.method, out);
    string("target", record.target, out);
    string("protocol", record.protocol(), out);
    count("status", record.status.into(), out);
    count("bytes_body", record.body_out(), out);
    count("bytes_out", record.bytes_out, out);
    count("bytes_in", record.bytes_in, out);
    count("duration_us", record.elapsed_us, out);
    string("referer", first(record.request_fields, Known::Referer), out);
    string("user_agent", first(record.request_fields, Known::UserAgent), out);
    let connection = match record.connection {
        ConnectionOutcome::Aborted => "aborted",
        ConnectionOutcome::KeepAlive => "keep-alive",
        ConnectionOutcome::Close => "close",
    };
    string("connection", connection.as_bytes(), out);
    stages(record.stages, out);
    if let Some(trace) = record.upstream {
        upstream(trace, out);
    }
    if let Some(trace) = record.cache {
        cache(trace, out);
    }
    if let Some(trace) = record.trace {
        context(trace, out);
    }
    out.extend_from_slice(b"}\n");
}

/// Appends the duration of each stage, except stages that took no time.
fn stages(stages: &Stages, out: &mut Vec<u8>) {
    key("stages_us", out);
    let start = out.len();
    for (span, _, took_us) in stages.spans() {
        count(span.name(), took_us.into(), out);
    }
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

fn context(trace: &TraceContext, out: &mut Vec<u8>) {
    if !trace.request_id.is_empty() {
        string("request_id", &trace.request_id, out);
    }
    if let Some(span) = trace.span {
        string("trace_id", format!("{:032x}", span.trace_id).as_bytes(), out);
        string("span_id", format!("{:016x}", span.span_id).as_bytes(), out);
    }
}

fn upstream(trace: &UpstreamTrace, out: &mut Vec<u8>) {
    string("upstream", trace.address.as_deref().unwrap_or_default().as_bytes(), out);
    count("upstream_wait_us", trace.wait_us, out);
    optional("upstream_connect_us", trace.connect_us, out);
    if trace.tls_us.is_some() {
        optional("upstream_tls_us", trace.tls_us, out);
    }
    optional("upstream_first_byte_us", trace.first_byte_us, out);
    count("upstream_tries", trace.tries.into(), out);
}

fn cache(trace: &CacheTrace, out: &mut Vec<u8>) {
    string("cache", trace.result.as_bytes(), out);
    optional("cache_age_s", trace.age_s.map(u64::from), out);
    count("cache_wait_us", trace.wait_us, out);
}

fn optional(name: &str, value: Option<u64>, out: &mut Vec<u8>) {
    match value {
        Some(value) => count(name, value, out),
        None => string(name, b"", out),
    }
}

fn first(fields: &Fields, name: Known) -> &[u8] {
    fields.get(name).unwrap_or_default()
}

fn key(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn string(name: &str, value: &[u8], out: &mut Vec<u8>) {
    key(name, out);
    if value.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        json::push_string(value, out);
    }
}

fn count(name: &str, value: u64, out: &mut Vec<u8>) {
    key(name, out);
    number(value, out);
}

/// `2026-11-21T06:14:03.123456+01:00`.
fn rfc3339(moment: &Moment, out: &mut Vec<u8>) {
    strftime::render(b"%Y-%m-%dT%H:%M:%S.", &moment.local, out);
    fraction(moment, Unit::Micros, out);
    strftime::offset(moment.local.utc_offset_s, true, out);
}
