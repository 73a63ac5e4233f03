//! Hop-by-hop fields, and fields that are forwarded: RFC 9110 section 7.6.1.

use alloc::vec::Vec;

use crate::decimal;
use crate::fields::{list_items, trim};
use crate::{Fields, Known};

/// True for a hop-by-hop field, whether or not `Connection` names it.
///
/// `Proxy-Authenticate` and `Proxy-Authorization` are not included: RFC 9110 sections 11.7.1 and
/// 11.7.2 permit forwarding them to the next proxy. `HTTP2-Settings` (RFC 7540 section 3.2.1) is
/// removed with its upgrade.
#[must_use]
pub fn is_hop_by_hop(name: Known) -> bool {
    HOP_BY_HOP.contains(&name)
}

const HOP_BY_HOP: [Known; 8] = [
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::Te,
    Known::Trailer,
    Known::TransferEncoding,
    Known::Upgrade,
    Known::Http2Settings,
];

/// The fields that a proxy forwards, in order.
///
/// Omitted are fields that are [`is_hop_by_hop`], and fields that `Connection` nominates, unless
/// they are [essential](is_essential). Of `TE` only the member `trailers` stays, which on HTTP/1.1
/// needs `Connection: TE` beside it. The caller adds a forwarded upgrade itself.
///
/// Each field is compared with each nomination; the size of the head bounds both.
pub fn end_to_end(fields: &Fields) -> impl Iterator<Item = (Option<Known>, &[u8], &[u8])> {
    const TRAILERS: &str = "trailers";
    let nominates = nominates(fields);
    let mut wants_trailers = fields.list_contains(Known::Te, TRAILERS);
    fields.iter_known().filter_map(move |(known, name, value)| {
        if known == Some(Known::Te) && wants_trailers {
            wants_trailers = false;
            return Some((known, name, TRAILERS.as_bytes()));
        }
        let stays = !known.is_some_and(is_hop_by_hop)
            && (!nominates || is_essential(known, name) || !is_nominated(fields, name));
        stays.then_some((known, name, value))
    })
}

/// True if `Connection` nominates a field.
#[inline(always)]
fn nominates(fields: &Fields) -> bool {
    fields.contains(Known::Connection)
        && fields.get_all(Known::Connection).flat_map(list_items).any(is_nomination)
}

/// Appends the end-to-end fields of `from` to `to`, which has no hop-by-hop fields. Cheaper than
/// one by one.
pub fn append_end_to_end(from: &Fields, to: &mut Fields) {
    if from.contains(Known::Te) || nominates(from) {
        for (known, name, value) in end_to_end(from) {
            to.push_looked_up(known, name, value);
        }
        return;
    }
    to.append(from);
    if from.contains_any(&HOP_BY_HOP) {
        for name in HOP_BY_HOP {
            to.remove(name);
        }
    }
}

/// Fields that a client cannot remove by naming them in `Connection`: a message's length,
/// recipient, content, sender, path and credentials. RFC 9110 section 7.6.1 forbids nominating
/// fields meant for all recipients; proxies that obeyed anyway let clients strip fields added by an
/// earlier proxy (CVE-2022-31813).
#[must_use]
pub fn is_essential(known: Option<Known>, name: &[u8]) -> bool {
    use Known as K;
    const FORWARDED: &[u8] = b"x-forwarded-";
    let Some(known) = known else {
        return name.get(..FORWARDED.len()).is_some_and(|n| n.eq_ignore_ascii_case(FORWARDED));
    };
    matches!(known, K::ContentLength | K::ContentType | K::ContentEncoding | K::ContentRange)
        || matches!(known, K::ContentLocation | K::ContentDisposition | K::ContentLanguage)
        || matches!(known, K::Host | K::Expect | K::MaxForwards | K::Date | K::Location)
        || matches!(known, K::Forwarded | K::Via | K::XRealIp | K::XForwardedFor)
        || matches!(known, K::XForwardedHost | K::XForwardedProto)
        || matches!(known, K::Authorization | K::ProxyAuthorization | K::Cookie | K::SetCookie)
        || matches!(known, K::WwwAuthenticate | K::ProxyAuthenticate | K::Origin)
        || matches!(known, K::CacheControl | K::Vary | K::StrictTransportSecurity)
        || matches!(known, K::ContentSecurityPolicy | K::XContentTypeOptions)
}

/// The idle timeout in seconds that a `Keep-Alive` field announces, if it does (RFC 2068 section
/// 19.7.1.1).
#[must_use]
pub fn keep_alive_timeout_s(value: &[u8]) -> Option<u64> {
    const TIMEOUT: &[u8] = b"timeout";
    list_items(value).find_map(|item| {
        let at = item.iter().position(|byte| *byte == b'=')?;
        let is_timeout = trim(&item[..at]).eq_ignore_ascii_case(TIMEOUT);
        is_timeout.then(|| decimal::parse(trim(&item[at + 1..]))).flatten()
    })
}

/// True if a response accepts only protocols that the request's `Upgrade` offered (RFC 9110 section
/// 7.8). `agreed` are the values of the response's `Upgrade`.
#[must_use]
pub fn is_upgrade_requested<'a>(request: &Fields, agreed: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut agreed = agreed.flat_map(list_items).peekable();
    let is_offered = |protocol: &[u8]| {
        let mut offers = request.get_all(Known::Upgrade).flat_map(list_items);
        offers.any(|offer| offer.eq_ignore_ascii_case(protocol))
    };
    agreed.peek().is_some() && agreed.all(is_offered)
}

/// Removes the nominations of end-to-end fields from `Connection`: they would remove fields that
/// the server sets afterwards.
pub fn drop_nominations(fields: &mut Fields) {
    if !nominates(fields) {
        return;
    }
    let options = fields.get_all(Known::Connection).flat_map(list_items);
    let kept: Vec<&[u8]> = options.filter(|option| !is_nomination(option)).collect();
    let kept = kept.join(&b", "[..]);
    match kept.is_empty() {
        true => drop(fields.remove(Known::Connection)),
        false => fields.set(Known::Connection, kept),
    }
}

/// False for options that are not fields, or are removed anyway: with these, as on most
/// connections, nothing needs to be compared.
fn is_nomination(option: &[u8]) -> bool {
    !option.eq_ignore_ascii_case(b"close") && !Known::from_bytes(option).is_some_and(is_hop_by_hop)
}

fn is_nominated(fields: &Fields, name: &[u8]) -> bool {
    fields
        .get_all(Known::Connection)
        .flat_map(list_items)
        .any(|option| option.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    fn forwarded(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut fields = Fields::new();
        for (name, value) in lines {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
        let mut appended = Fields::new();
        append_end_to_end(&fields, &mut appended);
        assert!(appended.iter().eq(end_to_end(&fields).map(|(_, name, value)| (name, value))));
        end_to_end(&fields).map(|(_, name, value)| (text(name), text(value))).collect()
    }

    fn names(lines: &[(&str, &str)]) -> Vec<String> {
        forwarded(lines).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn fields_of_one_connection_are_not_passed_on() {
        let lines = [
            ("Host", "a"),
            ("connection", "keep-alive, Upgrade"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "close"),
            ("TE", "gzip"),
            ("Trailer", "X-Sum"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "websocket"),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
            ("Proxy-Authorization", "Basic eA=="),
            ("X-A", "1"),
        ];
        assert_eq!(names(&lines), ["Host", "Proxy-Authorization", "X-A"]);
    }

    #[test]
    fn the_timeout_of_a_connection_is_read_where_it_is_one() {
        for (value, timeout_s) in [
            ("timeout=5", Some(5)),
            ("max=100, Timeout = 20", Some(20)),
            ("timeout=0", Some(0)),
            ("timeout=18446744073709551616", None),
            ("timeout=-1", None),
            ("timeout=", None),
            ("timeout", None),
            ("max=100", None),
            ("", None),
        ] {
            assert_eq!(keep_alive_timeout_s(value.as_bytes()), timeout_s, "{value}");
        }
    }

    #[test]
    fn nominated_fields_go_in_any_case_and_from_any_line() {
        let lines = [
            ("X-A", "1"),
            ("Connection", "close, x-a"),
            ("x-B", "2"),
            ("X-C", "3"),
            ("Connection", ",X-b ,"),
            ("Pragma", "no-cache"),
        ];
        assert_eq!(names(&lines), ["X-C", "Pragma"]);
        assert_eq!(names(&[("Connection", "pragma"), ("Pragma", "no-cache")]), [""; 0]);
        assert_eq!(names(&[("Connection", "x-a"), ("X-Ab", "1"), ("X", "2")]), ["X-Ab", "X"]);
    }

    #[test]
    fn essentials_cannot_be_nominated() {
        for name in [
            "Content-Length",
            "content-type",
            "Host",
            "Forwarded",
            "X-Forwarded-For",
            "x-forwarded-host",
            "X-Forwarded-Proto",
            "X-FORWARDED-PORT",
            "X-Forwarded-Client-Cert",
            "X-Real-IP",
            "Via",
            "Authorization",
            "Cookie",
            "Cache-Control",
        ] {
            let nominated = [("Connection", name), (name, "1")];
            assert_eq!(names(&nominated), [name], "{name}");
        }
        assert_eq!(names(&[("Connection", "x-forwarded"), ("X-Forwarded", "1")]), [""; 0]);
    }

    #[test]
    fn of_te_the_trailers_stay_once() {
        let lines = [("TE", "gzip;q=0.5"), ("Connection", "te"), ("te", "deflate, Trailers")];
        assert_eq!(forwarded(&lines), [("TE".into(), "trailers".into())]);
        assert_eq!(forwarded(&[("TE", "xtrailers")]), []);
    }
}
