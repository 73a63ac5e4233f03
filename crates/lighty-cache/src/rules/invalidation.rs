//! Invalidation by responses to unsafe methods: RFC 9111 section 4.4.

use lighty_http::host;
use lighty_http::{Fields, Known, Method, Status};

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestUri<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host and port.
    pub authority: &'a [u8],
    /// Path and query.
    pub target: &'a [u8],
}

/// True if a response to this method invalidates stored responses: the method is unsafe or unknown,
/// and the status 2xx or 3xx.
#[must_use]
pub fn invalidates(method: Option<Method>, status: Status) -> bool {
    !method.is_some_and(Method::is_safe) && (200..400).contains(&status.code())
}

/// The targets, as path and query, of the invalid stored responses, with all their variants: that
/// of the request, then `Location` and `Content-Location` if they have the same origin.
/// The caller has checked [`invalidates`].
#[must_use]
pub fn invalidated_targets(uri: RequestUri<'_>, response: &Fields) -> Vec<Vec<u8>> {
    let mut targets = vec![without_fragment(uri.target).to_vec()];
    for name in [Known::Location, Known::ContentLocation] {
        let target = response.get(name).and_then(|reference| resolve(uri, reference));
        if let Some(target) = target.filter(|target| !targets.contains(target)) {
            targets.push(target);
        }
    }
    targets
}

fn without_fragment(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b'#').next().unwrap_or_default()
}

/// Resolves a reference to a target of the same origin: RFC 3986 section 5.2.
fn resolve(uri: RequestUri<'_>, reference: &[u8]) -> Option<Vec<u8>> {
    let reference = without_fragment(reference);
    let rest = match scheme_len(reference) {
        Some(len) if reference[..len].eq_ignore_ascii_case(uri.scheme.as_bytes()) => {
            let rest = &reference[len + 1..];
            // `http:path` is not a reference to a target.
            rest.starts_with(b"//").then_some(rest)?
        }
        Some(_) => return None,
        None => reference,
    };
    if let Some(rest) = rest.strip_prefix(b"//") {
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let is_same = is_same_authority(uri, authority);
        return is_same.then(|| with_path(target));
    }
    let (path, _) = split_query(uri.target);
    match rest.first() {
        None => Some(uri.target.to_vec()),
        Some(b'/') => Some(with_path(rest)),
        Some(b'?') => Some([path, rest].concat()),
        Some(_) => {
            let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            Some(with_path(&[&path[..directory], rest].concat()))
        }
    }
}

/// Length of the scheme of an absolute reference.
fn scheme_len(reference: &[u8]) -> Option<usize> {
    let end = reference.iter().position(|byte| b":/?".contains(byte))?;
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let is_scheme =
        reference.first()?.is_ascii_alphabetic() && reference[..end].iter().all(is_part);
    (reference[end] == b':' && is_scheme).then_some(end)
}

/// True if an authority has the host and the port of the request, in any case and with or without
/// the default port.
fn is_same_authority(uri: RequestUri<'_>, authority: &[u8]) -> bool {
    let plain = |authority: &[u8]| {
        let (host, port) = host::parts(host::without_default_port(authority, uri.scheme));
        let host = host.strip_suffix(b":").unwrap_or(host);
        (host.strip_suffix(b".").unwrap_or(host).to_ascii_lowercase(), port)
    };
    plain(uri.authority) == plain(authority)
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// A target with an absolute path and without dot segments: RFC 3986 section 5.2.4.
fn with_path(target: &[u8]) -> Vec<u8> {
    let (path, query) = split_query(target);
    let mut segments: Vec<&[u8]> = Vec::new();
    let parts: Vec<&[u8]> = path.strip_prefix(b"/").unwrap_or(path).split(|b| *b == b'/').collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        match *part {
            b"." => {}
            b".." => {
                segments.pop();
            }
            part => {
                segments.push(part);
                continue;
            }
        }
        if is_last {
            segments.push(b"");
        }
    }
    let mut out = vec![b'/'];
    out.extend_from_slice(&segments.join(&b'/'));
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out
}
