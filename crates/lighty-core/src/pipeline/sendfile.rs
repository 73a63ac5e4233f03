//! Files that a backend or program names instead of sending a response body (`X-Sendfile` and the
//! like). Only files beneath configured directories are allowed.

mod parts;

use std::sync::Arc;

use lighty_config::{Reject, Strings, Value, parse_strings};
use lighty_http::{Fields, Known, Status, uri};

use crate::exchange::Exchange;
use crate::exchange::body::Body;
use crate::exchange::request_state::FileStatus;
use crate::exchange::response::BodyOrigin;
use crate::fault::{Fault, FaultReport};
use crate::module::{FileFate, Step};

const SEND_TEMPFILE: &[u8] = b"X-LIGHTTPD-send-tempfile";
const FOR_THE_SERVER: &[u8] = b"X-LIGHTTPD-";
const SEND_PARTS: &[u8] = b"X-Sendfile2";

/// File that a response names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedFile {
    /// A file by its absolute path, optionally percent-encoded.
    Whole {
        /// The path as written in the field.
        path: Vec<u8>,
        /// Fate of the file once it is open.
        fate: FileFate,
    },
    /// Parts of files: the value of `X-Sendfile2`.
    Parts(Vec<u8>),
}

/// The file that a response names (`X-Sendfile`, `X-LIGHTTPD-send-file`,
/// `X-LIGHTTPD-send-tempfile`), or the parts of files (`X-Sendfile2`).
pub fn requested_file(fields: &Fields) -> Option<RequestedFile> {
    if let Some(path) = fields.get_named(SEND_TEMPFILE) {
        return Some(RequestedFile::Whole { path: path.to_vec(), fate: FileFate::Removed });
    }
    let path = fields.get(Known::XSendfile).or_else(|| fields.get(Known::XLighttpdSendFile));
    match path.filter(|path| !path.is_empty()) {
        Some(path) => Some(RequestedFile::Whole { path: path.to_vec(), fate: FileFate::Stays }),
        None => Some(RequestedFile::Parts(fields.get_named(SEND_PARTS)?.to_vec())),
    }
}

/// Sends a file in place of the response in the exchange. Keeps the response's fields that describe
/// the file or do not depend on the body. Without `roots`, the document root is used.
///
/// # Errors
/// [`Fault::SendfileRefused`], if the file is beneath none of the roots.
pub fn send(
    ex: &mut Exchange,
    roots: &[Arc<str>],
    named: &RequestedFile,
) -> Result<Step<'static>, FaultReport> {
    let (path, fate) = match named {
        RequestedFile::Whole { path, fate } => (path, *fate),
        RequestedFile::Parts(value) => return Ok(Step::SendParts(parts::parse(ex, roots, value)?)),
    };
    let place = place_within(ex, roots, path)?;
    let status = ex.response.status;
    if ex.response.fields.get(Known::ContentType) == Some(b"") {
        ex.response.fields.remove(Known::ContentType);
    }
    let kept = OF_THE_FILE.map(|name| (name, ex.response.fields.get(name).map(<[u8]>::to_vec)));
    carry(ex, |known, name| match known {
        Some(known) => !OF_THE_BODY.contains(&known),
        None => !name.eq_ignore_ascii_case(SEND_TEMPFILE),
    });
    for (name, value) in kept {
        if let Some(value) = value {
            ex.response.fields.push_known(name, value);
        }
    }
    // Validators that the configuration sets replace those of the program.
    super::conditions::meet(ex);
    if ex.state.error_handler.is_none() {
        if status != Status::OK {
            // The file is a page for this status, not the requested content.
            ex.state.error_status.get_or_insert(status);
        }
    } else if !(ex.state.keeps_error_status() && ex.settings.core.error_intercept) {
        // As in lighttpd, an error handler's program chooses the status, with a file as well.
        ex.ext_mut::<FileStatus>().0 = Some(status);
    }
    ex.physical.clear();
    ex.physical.docroot = place.root;
    ex.physical.rel = place.rel;
    Ok(Step::SendFile(fate))
}

/// Removes fields that are meant for the server, whether they were honoured or not: `X-Sendfile`
/// and all `X-LIGHTTPD-` fields, which would reveal paths of files.
pub fn take_out(fields: &mut Fields) {
    fields.remove(Known::XSendfile);
    fields.remove(Known::XLighttpdSendFile);
    // No other known field begins with this prefix.
    if fields.unknown_names().any(is_for_the_server) {
        take_out_unknown(fields);
    }
}

/// True for a field that names a file or instructs the server. Clients must not receive it.
pub fn is_order(name: &[u8]) -> bool {
    let sends = [Known::XSendfile.as_str().as_bytes(), SEND_PARTS];
    sends.iter().any(|known| name.eq_ignore_ascii_case(known)) || is_for_the_server(name)
}

fn is_for_the_server(name: &[u8]) -> bool {
    let start = name.get(..FOR_THE_SERVER.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(FOR_THE_SERVER))
}

#[cold]
fn take_out_unknown(fields: &mut Fields) {
    let names = fields.iter().map(|(name, _)| name);
    let ours: Vec<Vec<u8>> =
        names.filter(|name| is_for_the_server(name)).map(<[u8]>::to_vec).collect();
    for name in ours {
        fields.remove_named(&name);
    }
}

/// Makes parts of files the body of the current response. Its head already describes the ranges, so
/// it is kept unchanged.
pub(crate) fn take_parts(ex: &mut Exchange, body: Body) {
    let response = &mut ex.response;
    for name in [Known::ContentLength, Known::Date, Known::XSendfile, Known::XLighttpdSendFile] {
        response.fields.remove(name);
    }
    response.fields.remove_named(SEND_PARTS);
    (response.head_content_length, response.declared_length) = (None, None);
    response.body = body;
    response.origin = BodyOrigin::Other;
    response.answered = true;
}

/// The root and relative path of a file beneath one of the roots or, if there are none, beneath the
/// document root.
fn place_within(ex: &Exchange, roots: &[Arc<str>], path: &[u8]) -> Result<Place, FaultReport> {
    let place = match roots {
        [] if ex.physical.docroot.is_empty() => None,
        [] => place(path, [&*ex.physical.docroot]),
        several => place(path, several.iter().map(|root| root.as_bytes())),
    };
    place.ok_or_else(|| FaultReport::new(Fault::SendfileRefused, path.escape_ascii().to_string()))
}

/// Fields that take precedence over values derived from the file: the backend knows more about it,
/// for example that it is compressed.
const OF_THE_FILE: [Known; 4] =
    [Known::ContentEncoding, Known::AcceptRanges, Known::ETag, Known::LastModified];

/// Fields derived from the file itself, or about the replaced body.
const OF_THE_BODY: [Known; 10] = [
    Known::ContentLength,
    Known::ContentEncoding,
    Known::ContentRange,
    Known::AcceptRanges,
    Known::ETag,
    Known::LastModified,
    Known::Date,
    Known::XSendfile,
    Known::XLighttpdSendFile,
    Known::XAccelRedirect,
];

/// Carries over the fields that `wanted` selects and drops the response.
pub fn carry(ex: &mut Exchange, wanted: impl Fn(Option<Known>, &[u8]) -> bool) {
    let fields = std::mem::take(&mut ex.response.fields);
    ex.response.restart(Status::OK);
    ex.carried.clear();
    for (known, name, value) in fields.iter_known().filter(|(known, name, _)| wanted(*known, name))
    {
        ex.carried.push_looked_up(known, name, value);
    }
}

/// Parses directories for such files from a configuration. Each begins with `/` and has no trailing
/// `/`.
///
/// # Errors
/// The first entry that is not an absolute path.
pub fn directories(value: &Value) -> Result<Strings, Reject> {
    let list = parse_strings(value)?;
    let spans = value.as_list().unwrap_or_default();
    let each = |(at, path): (usize, &Arc<str>)| {
        if path.starts_with('/') && !path.split('/').any(|part| part == "..") {
            let trimmed = path.trim_end_matches('/');
            return Ok(if trimmed.is_empty() { "/".into() } else { trimmed.into() });
        }
        let reject = Reject::new(format!("has \"{path}\", which is not an absolute path"));
        Err(match spans.get(at) {
            Some((_, item)) => reject.at(item.span),
            None => reject,
        })
    };
    list.iter().enumerate().map(each).collect()
}

/// A file, split into a directory and the path beneath it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Absolute, without a trailing slash.
    root: Vec<u8>,
    /// Without a leading slash, `.` or `..`.
    rel: Vec<u8>,
}

/// Locates a file that a backend names by absolute path, optionally percent-encoded (as in lighttpd
/// 1.4). `None` if it is beneath none of the roots.
fn place<'a>(named: &[u8], roots: impl IntoIterator<Item = &'a [u8]>) -> Option<Place> {
    let path = decode(named)?;
    roots.into_iter().find_map(|root| {
        let end = root.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        let rel = path.strip_prefix(&root[..end])?.strip_prefix(b"/")?;
        let root = if end == 0 { b"/".to_vec() } else { root[..end].to_vec() };
        (!rel.is_empty()).then(|| Place { root, rel: rel.to_vec() })
    })
}

/// Decodes once and normalises. A path with `..` segments is rejected, not repaired.
fn decode(named: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(named.len());
    uri::decode_into(named, &mut decoded);
    let climbs = decoded.split(|byte| *byte == b'/').any(|segment| segment == b"..");
    if decoded.first() != Some(&b'/') || decoded.contains(&0) || climbs {
        return None;
    }
    let mut path = Vec::with_capacity(decoded.len());
    for segment in decoded.split(|byte| *byte == b'/') {
        if !segment.is_empty() && segment != b"." {
            path.push(b'/');
            path.extend_from_slice(segment);
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(named: &str, roots: &[&str]) -> Option<String> {
        let place = place(named.as_bytes(), roots.iter().map(|root| root.as_bytes()))?;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Some(format!("{}|{}", text(place.root), text(place.rel)))
    }

    #[test]
    fn files_beneath_a_root_are_found_there() {
        let of = |named: &str| found(named, &["/srv/files", "/var/cache/"]);
        assert_eq!(of("/srv/files/a/b.txt").as_deref(), Some("/srv/files|a/b.txt"));
        assert_eq!(of("/srv//files/./a%20b").as_deref(), Some("/srv/files|a b"));
        assert_eq!(of("/var/cache/x").as_deref(), Some("/var/cache|x"));
        assert_eq!(found("/etc/passwd", &["/"]).as_deref(), Some("/|etc/passwd"));
        assert_eq!(of("/srv/files/100% sure").as_deref(), Some("/srv/files|100% sure"));
    }

    #[test]
    fn paths_not_plainly_beneath_a_root_are_refused() {
        for named in [
            "",
            "/",
            "a.txt",
            "/srv/files",
            "/srv/files/",
            "/srv/files2/a",
            "/srv/files/../secret",
            "/srv/files/%2e%2e/secret",
            "/srv/files/a/../b",
            "/srv/files/a%00b",
            "/etc/passwd",
            "file:///srv/files/a",
        ] {
            assert_eq!(found(named, &["/srv/files"]), None, "{named}");
        }
        assert_eq!(found("/srv/files/a", &[]), None);
    }

    #[test]
    fn fields_addressed_to_the_server_are_taken_out() {
        let mut fields = Fields::new();
        let names = ["x-sendfile", "X-A", "X-Lighttpd-KBytes-per-second", "X-LIGHTTPD-send-file"];
        let orders = names.map(|name| is_order(name.as_bytes()));
        assert_eq!(orders, [true, false, true, true]);
        assert!(is_order(b"X-SENDFILE2") && !is_order(b"X-Sendfile3"));
        names.iter().chain(&names).for_each(|name| fields.push(name.as_bytes(), b"1"));
        take_out(&mut fields);
        let left: Vec<_> = fields.iter().map(|(name, _)| name).collect();
        assert_eq!(left, [b"X-A", b"X-A"]);
    }

    #[test]
    fn directories_are_absolute_and_have_no_slash_at_the_end() {
        let read = |text: &str| directories(&Value::Str(text.into())).ok().map(|l| l.to_vec());
        assert_eq!(read("/srv/a/"), Some(vec!["/srv/a".into()]));
        assert_eq!(read("/"), Some(vec!["/".into()]));
        assert_eq!((read("srv"), read(""), read("/srv/../etc")), (None, None, None));
    }
}
