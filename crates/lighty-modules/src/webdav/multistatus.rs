//! XML of responses. All elements have the prefix `D` and no default namespace is declared, so that
//! client properties keep their meaning (RFC 4918 section 14).

use lighty_http::{Status, uri, xml};

/// The media type.
pub(super) const MEDIA_TYPE: &str = "application/xml; charset=\"utf-8\"";

const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Begins a document.
pub(super) fn begin(root: &str) -> Vec<u8> {
    let mut out = DECLARATION.to_vec();
    out.extend_from_slice(format!("<D:{root} xmlns:D=\"DAV:\">\n").as_bytes());
    out
}

/// Ends a document begun with [`begin`].
pub(super) fn end(root: &str, out: &mut Vec<u8>) {
    push(out, &["</D:", root, ">\n"]);
}

/// Appends text that needs no escaping.
pub(super) fn push(out: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// Appends a WebDAV element with text.
pub(super) fn push_text(name: &str, text: &[u8], out: &mut Vec<u8>) {
    push(out, &["<D:", name, ">"]);
    xml::escape(text, out);
    push(out, &["</D:", name, ">"]);
}

/// Appends the URL of a decoded path.
pub(super) fn push_href(path: &[u8], out: &mut Vec<u8>) {
    let mut encoded = Vec::with_capacity(path.len() + 16);
    uri::encode_path(path, &mut encoded);
    push_text("href", &encoded, out);
}

/// Appends a status.
pub(super) fn push_status(status: Status, out: &mut Vec<u8>) {
    let line = format!("HTTP/1.1 {} {}", status.code(), status.reason());
    push_text("status", line.as_bytes(), out);
}

/// Appends the result for one resource, with the failed condition if there is one.
pub(super) fn push_outcome(
    path: &[u8],
    status: Status,
    condition: Option<&str>,
    out: &mut Vec<u8>,
) {
    push(out, &["<D:response>"]);
    push_href(path, out);
    push_status(status, out);
    if let Some(name) = condition {
        push(out, &["<D:error><D:", name, "/></D:error>"]);
    }
    push(out, &["</D:response>\n"]);
}

/// Returns the body of an error: the failed condition (RFC 4918 section 16) and its paths.
pub(super) fn error(condition: &str, paths: &[Vec<u8>]) -> Vec<u8> {
    let mut out = begin("error");
    push(&mut out, &["<D:", condition, ">"]);
    paths.iter().for_each(|path| push_href(path, &mut out));
    push(&mut out, &["</D:", condition, ">\n"]);
    end("error", &mut out);
    out
}

/// Appends an empty element of any namespace. Names come from parsed XML and need no escaping.
pub(super) fn push_name(ns: &str, name: &str, out: &mut Vec<u8>) {
    match ns {
        "" => push(out, &["<", name, "/>"]),
        super::xml::DAV => push(out, &["<D:", name, "/>"]),
        _ => {
            push(out, &["<N:", name, " xmlns:N=\""]);
            xml::escape(ns.as_bytes(), out);
            push(out, &["\"/>"]);
        }
    }
}
