//! Writing the XML of responses. Everything is in the prefix `D`, and nothing is declared by
//! default, so that properties of clients keep their meaning (RFC 4918 section 14).

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

/// Ends what [`begin`] began.
pub(super) fn end(root: &str, out: &mut Vec<u8>) {
    push(out, &["</D:", root, ">\n"]);
}

/// Appends texts that need no escaping.
pub(super) fn push(out: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// Appends an element of WebDAV with a text.
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

/// Appends what became of one resource, with the condition that it failed by, if there is one.
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

/// The body of an error: the condition that failed (RFC 4918 section 16), about these paths.
pub(super) fn error(condition: &str, paths: &[Vec<u8>]) -> Vec<u8> {
    let mut out = begin("error");
    push(&mut out, &["<D:", condition, ">"]);
    paths.iter().for_each(|path| push_href(path, &mut out));
    push(&mut out, &["</D:", condition, ">\n"]);
    end("error", &mut out);
    out
}

/// Appends an empty element of any namespace. Names were read from XML: they need no escaping.
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
