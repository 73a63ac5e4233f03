//! Turns a finished request into a line.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lighty_http::Fields;
use lighty_http::fields::trim;

use super::escape::Escaping;
use super::format::{
    FieldName, FormatPart, LogFormat, OfCache, OfUpstream, Show, TraceItem, Unit, When,
};
use super::record::{AccessRecord, ConnectionOutcome, Moment};
use lighty_core::log::strftime;

/// Appends the request's line and a newline.
pub(super) fn line(
    format: &LogFormat,
    escaping: Escaping,
    record: &AccessRecord<'_>,
    out: &mut Vec<u8>,
) {
    for part in &format.parts {
        render(part, escaping, record, out);
    }
    out.push(b'\n');
}

fn render(part: &FormatPart, escaping: Escaping, record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    match part {
        FormatPart::Literal(text) => out.extend_from_slice(text),
        FormatPart::RequestId => out.extend_from_slice(record.id.to_string().as_bytes()),
        FormatPart::Client { masked: false } => or_dash(record.client.as_bytes(), escaping, out),
        FormatPart::Client { masked: true } => masked(record, out),
        FormatPart::LocalAddress => or_dash(record.local_address().as_bytes(), escaping, out),
        FormatPart::LocalPort => number(record.local_port.into(), out),
        FormatPart::RemotePort => number(record.client_port.into(), out),
        FormatPart::ProcessId => number(std::process::id().into(), out),
        FormatPart::User => or_dash(record.user, escaping, out),
        FormatPart::Time { when, show } => time(*when, show, record, out),
        FormatPart::RequestLine => request_line(record, escaping, out),
        FormatPart::Method => or_dash(record.method, escaping, out),
        FormatPart::Protocol => or_dash(record.protocol(), escaping, out),
        FormatPart::UrlPath => or_dash(record.path_and_query().0, escaping, out),
        FormatPart::Query => escaping.push(record.path_and_query().1, out),
        FormatPart::Status => number(record.status.into(), out),
        FormatPart::BodyBytes => number(record.body_out(), out),
        FormatPart::BytesIn => number(record.bytes_in, out),
        FormatPart::BytesOut => number(record.bytes_out, out),
        FormatPart::RequestField(name) => field(name, record.request_fields, escaping, out),
        FormatPart::ResponseField(name) => field(name, record.response_fields, escaping, out),
        FormatPart::Cookie(name) => or_dash(cookie(name, record.request_fields), escaping, out),
        FormatPart::Elapsed(unit) => number(in_unit(record.elapsed_us, *unit), out),
        FormatPart::Environment(name) => {
            or_dash(record.environment.get(name).unwrap_or_default(), escaping, out);
        }
        FormatPart::Upstream(what) => of_upstream(*what, record, escaping, out),
        FormatPart::Cache(what) => of_cache(*what, record, escaping, out),
        FormatPart::Stage(span) => match record.stages.span_us(*span) {
            Some(took_us) => number(took_us.into(), out),
            None => out.push(b'-'),
        },
        FormatPart::Trace(what) => of_trace(*what, record, escaping, out),
        FormatPart::FileName => file_name(record, escaping, out),
        FormatPart::ServerName => server_name(record, escaping, out),
        FormatPart::Host => or_dash(record.host, escaping, out),
        FormatPart::ConnectionStatus => out.push(match record.connection {
            ConnectionOutcome::Aborted => b'X',
            ConnectionOutcome::KeepAlive => b'+',
            ConnectionOutcome::Close => b'-',
        }),
    }
}

fn or_dash(value: &[u8], escaping: Escaping, out: &mut Vec<u8>) {
    if value.is_empty() { out.push(b'-') } else { escaping.push(value, out) }
}

pub(super) fn number(value: u64, out: &mut Vec<u8>) {
    strftime::number(i64::try_from(value).unwrap_or(i64::MAX), 1, b'0', out);
}

fn of_upstream(what: OfUpstream, record: &AccessRecord<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    let Some(trace) = record.upstream else { return out.push(b'-') };
    let count = match what {
        OfUpstream::Address => {
            let text = trace.address.as_deref().unwrap_or_default();
            return or_dash(text.as_bytes(), escaping, out);
        }
        OfUpstream::Wait => Some(trace.wait_us),
        OfUpstream::Connect => trace.connect_us,
        OfUpstream::Tls => trace.tls_us,
        OfUpstream::FirstByte => trace.first_byte_us,
        OfUpstream::Tries => Some(trace.tries.into()),
    };
    match count {
        Some(count) => number(count, out),
        None => out.push(b'-'),
    }
}

fn of_cache(what: OfCache, record: &AccessRecord<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    let Some(trace) = record.cache else { return out.push(b'-') };
    match (what, trace.age_s) {
        (OfCache::Result, _) => or_dash(trace.result.as_bytes(), escaping, out),
        (OfCache::Age, Some(age_s)) => number(age_s.into(), out),
        (OfCache::Age, None) => out.push(b'-'),
        (OfCache::Wait, _) => number(trace.wait_us, out),
    }
}

fn of_trace(what: TraceItem, record: &AccessRecord<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    let Some(trace) = record.trace else { return out.push(b'-') };
    // Writing to a vector cannot fail.
    let _ = match (what, trace.span) {
        (TraceItem::Request, _) => return or_dash(&trace.request_id, escaping, out),
        (TraceItem::Trace, Some(span)) => write!(out, "{:032x}", span.trace_id),
        (TraceItem::Span, Some(span)) => write!(out, "{:016x}", span.span_id),
        (_, None) => return out.push(b'-'),
    };
}

fn request_line(record: &AccessRecord<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    if !record.line.is_empty() || record.target.is_empty() {
        return or_dash(record.line, escaping, out);
    }
    or_dash(record.method, escaping, out);
    out.push(b' ');
    escaping.push(record.target, out);
    out.push(b' ');
    escaping.push(record.protocol(), out);
}

fn file_name(record: &AccessRecord<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    let (root, rel) = record.physical;
    if root.is_empty() {
        out.push(b'-');
        return;
    }
    escaping.push(root, out);
    out.push(b'/');
    escaping.push(rel, out);
}

/// Appends `server.name`, or the requested host if it is not set.
fn server_name(record: &AccessRecord<'_>, escaping: Escaping, out: &mut Vec<u8>) {
    or_dash(record.server_name.map_or(record.host, str::as_bytes), escaping, out);
}

/// Appends the values of all lines of a field, joined as in RFC 9110 section 5.3.
fn field(name: &FieldName, fields: &Fields, escaping: Escaping, out: &mut Vec<u8>) {
    let start = out.len();
    let mut add = |value: &[u8]| {
        if out.len() > start {
            out.extend_from_slice(b", ");
        }
        escaping.push(value, out);
    };
    match name.known {
        Some(known) => fields.get_all(known).for_each(&mut add),
        None => fields
            .iter()
            .filter(|(field, _)| field.eq_ignore_ascii_case(&name.text))
            .for_each(|(_, value)| add(value)),
    }
    if out.len() == start {
        out.push(b'-');
    }
}

/// Value of a cookie; the first one of that name.
fn cookie<'a>(name: &[u8], fields: &'a Fields) -> &'a [u8] {
    fields
        .get_all(lighty_http::Known::Cookie)
        .flat_map(|line| line.split(|byte| *byte == b';'))
        .filter_map(|pair| {
            let at = pair.iter().position(|byte| *byte == b'=')?;
            (trim(&pair[..at]) == name).then(|| trim(&pair[at + 1..]))
        })
        .next()
        .unwrap_or_default()
}

fn in_unit(micros: u64, unit: Unit) -> u64 {
    match unit {
        Unit::Seconds => micros / 1_000_000,
        Unit::Millis => micros / 1000,
        Unit::Micros => micros,
        Unit::Nanos => micros.saturating_mul(1000),
    }
}

fn time(when: When, show: &Show, record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    let moment = match when {
        When::Begin => &record.begin,
        When::End => &record.end,
    };
    match show {
        Show::Pattern(pattern) => strftime::render(pattern, &moment.local, out),
        Show::Since(unit) => since(moment, *unit, out),
        Show::Fraction(unit) => fraction(moment, *unit, out),
    }
}

fn since(moment: &Moment, unit: Unit, out: &mut Vec<u8>) {
    strftime::number(moment.local.unix_s, 1, b'0', out);
    if unit != Unit::Seconds {
        fraction(moment, unit, out);
    }
}

pub(super) fn fraction(moment: &Moment, unit: Unit, out: &mut Vec<u8>) {
    let micros = i64::from(moment.micros);
    let (value, width) = match unit {
        Unit::Seconds => (0, 1),
        Unit::Millis => (micros / 1000, 3),
        Unit::Micros => (micros, 6),
        Unit::Nanos => (micros * 1000, 9),
    };
    strftime::number(value, width, b'0', out);
}

/// The client's network: an IPv4 address without its last byte, an IPv6 address's first 48 bits.
fn masked(record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    let network = match record.client_ip {
        None => return or_dash(record.client.as_bytes(), Escaping::Hex, out),
        Some(IpAddr::V4(address)) => {
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & 0xffff_ff00))
        }
        Some(IpAddr::V6(address)) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 80)))
        }
    };
    // Writing to a vector cannot fail.
    let _ = write!(out, "{network}");
}
