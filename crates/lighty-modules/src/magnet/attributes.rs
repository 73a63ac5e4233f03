//! `lighty.r.req_attr` (formerly `lighty.env`): the request's attributes under lighttpd's names.

use std::borrow::Cow;
use std::net::IpAddr;

use lighty_core::exchange::extensions::Extension;
use lighty_core::{Exchange, extension_slot};
use lighty_http::{Method, Version, host};
use lighty_io::transport::Peer;
use lighty_lua::{AccessError, ScriptValue};

use super::Stage;
use super::script_changes::{PathParts, ScriptChanges};

/// Every name, in lighttpd's order.
const NAMES: &[&str] = &[
    "physical.path",
    "physical.rel-path",
    "physical.doc-root",
    "physical.basedir",
    "uri.path",
    "uri.path-raw",
    "uri.scheme",
    "uri.authority",
    "uri.query",
    "request.method",
    "request.uri",
    "request.orig-uri",
    "request.path-info",
    "request.remote-ip",
    "request.remote-addr",
    "request.remote-port",
    "request.server-addr",
    "request.server-port",
    "request.protocol",
    "request.server-name",
    "request.stage",
    "response.http-status",
    "response.body-length",
    "response.body",
];

/// Returns all attributes that have a value, with their names.
pub(super) fn all(ex: &Exchange, stage: Stage) -> Vec<(Vec<u8>, Vec<u8>)> {
    let known = NAMES.iter().filter_map(|name| match get(ex, stage, name.as_bytes()) {
        ScriptValue::Bytes(value) => Some((name.as_bytes().to_vec(), value.into_owned())),
        ScriptValue::Int(number) => {
            Some((name.as_bytes().to_vec(), number.to_string().into_bytes()))
        }
        _ => None,
    });
    known.collect()
}

/// Returns the value of an attribute; nil if the name is unknown or has no value yet.
pub(super) fn get<'a>(ex: &'a Exchange, stage: Stage, name: &[u8]) -> ScriptValue<'a> {
    let request = &ex.request;
    let owned = |bytes: Vec<u8>| ScriptValue::Bytes(Cow::Owned(bytes));
    let lent = |bytes: &'a [u8]| ScriptValue::Bytes(Cow::Borrowed(bytes));
    let has_path = stage != Stage::RawUrl && !ex.physical.docroot.is_empty();
    match name {
        b"physical.path" if has_path => owned(ex.physical.path()),
        b"physical.rel-path" if has_path => match parts(ex) {
            Some(parts) => lent(&parts.rel_path),
            None => owned(rel_path(ex)),
        },
        b"physical.doc-root" if has_path => match parts(ex) {
            Some(parts) => lent(&parts.doc_root),
            None => lent(doc_root(ex)),
        },
        b"physical.basedir" if has_path => match parts(ex) {
            Some(parts) => lent(&parts.basedir),
            None => lent(&ex.physical.docroot),
        },
        b"uri.path" => lent(&request.path),
        b"uri.path-raw" => lent(request.path_encoded()),
        b"uri.scheme" => lent(request.scheme.as_bytes()),
        b"uri.authority" => lent(&request.authority),
        b"uri.query" => match request.path_end < request.target.len() {
            true => lent(request.query()),
            false => ScriptValue::Nil,
        },
        b"request.method" => {
            request.method.map_or(ScriptValue::Nil, |m| lent(m.as_str().as_bytes()))
        }
        b"request.uri" => lent(&request.target),
        b"request.orig-uri" => lent(&request.target_raw),
        b"request.path-info" => {
            ScriptValue::of(Some(&*ex.physical.path_info).filter(|p| !p.is_empty()))
        }
        b"request.remote-ip" | b"request.remote-addr" => lent(request.peer_text.as_bytes()),
        b"request.remote-port" => match request.peer {
            Peer::Inet(address) => owned(address.port().to_string().into_bytes()),
            Peer::Unix => lent(b"0"),
        },
        b"request.server-addr" => server_address(ex),
        b"request.server-port" => owned(request.local_port.to_string().into_bytes()),
        b"request.protocol" => lent(request.version.as_str().as_bytes()),
        b"request.server-name" => {
            let name = ex.settings.core.server_name.as_deref().map(str::as_bytes);
            lent(name.unwrap_or(&request.authority))
        }
        b"request.stage" => lent(match stage {
            Stage::RawUrl | Stage::PhysicalPath if ex.body.exists() => b"readpost",
            _ => b"handle-req",
        }),
        b"response.http-status" if stage != Stage::ResponseStart => ScriptValue::Nil,
        b"response.http-status" => ScriptValue::Int(ex.response.status.code().into()),
        b"response.body-length" if stage == Stage::ResponseStart => ex
            .response
            .body
            .known_length()
            .map_or(ScriptValue::Nil, |length| ScriptValue::Int(length as i64)),
        _ => ScriptValue::Nil,
    }
}

/// Facts about the client of an exchange that is copied without its client.
#[derive(Clone, Copy, Default)]
struct ClientFacts {
    /// The address that the client connected to.
    local_ip: Option<IpAddr>,
    stream_id: u32,
}

impl Extension for ClientFacts {
    extension_slot!();

    fn inherited(&self) -> Option<Self> {
        Some(*self)
    }
}

/// Keeps the facts about the client for a copy of the exchange, which has no client.
pub(super) fn keep_client_facts(ex: &Exchange, copy: &mut Exchange) {
    *copy.ext_mut::<ClientFacts>() =
        ClientFacts { local_ip: local_ip(ex), stream_id: stream_id(ex) };
}

/// Number of the request's HTTP/2 stream; 0 over HTTP/1.
pub(super) fn stream_id(ex: &Exchange) -> u32 {
    match &ex.client {
        Some(client) => client.borrow().stream_id(),
        None => ex.ext::<ClientFacts>().map_or(0, |facts| facts.stream_id),
    }
}

fn local_ip(ex: &Exchange) -> Option<IpAddr> {
    match &ex.client {
        Some(client) => client.borrow().local_ip(),
        None => ex.ext::<ClientFacts>().and_then(|facts| facts.local_ip),
    }
}

fn server_address(ex: &Exchange) -> ScriptValue<'_> {
    match local_ip(ex) {
        Some(ip) => ScriptValue::Bytes(Cow::Owned(ip.to_string().into_bytes())),
        None => ScriptValue::Bytes(Cow::Borrowed(ex.request.local_socket.as_bytes())),
    }
}

/// Changes a value.
///
/// # Errors
/// The name is unknown or the value is invalid.
pub(super) fn set(
    ex: &mut Exchange,
    stage: Stage,
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<(), AccessError> {
    let bytes = value.unwrap_or_default();
    if bytes.contains(&0) {
        return Err(AccessError::ZeroByte(String::from_utf8_lossy(name).into()));
    }
    match name {
        // There is no physical path yet; it is set when the URL is mapped, as in lighttpd.
        b"physical.path" | b"physical.rel-path" | b"physical.doc-root" | b"physical.basedir"
            if stage == Stage::RawUrl =>
        {
            Ok(())
        }
        _ if name.starts_with(b"physical.") => set_path(ex, name, bytes),
        b"uri.path" => {
            let mut path = simplified(bytes).ok_or_else(|| leaves(bytes))?;
            path.insert(0, b'/');
            ex.request.path = path;
            Ok(())
        }
        b"uri.path-raw" => set_target(ex, bytes, None),
        b"uri.query" => {
            let path = ex.request.path_encoded().to_vec();
            set_query(ex, &path, value);
            Ok(())
        }
        b"request.uri" => set_uri(ex, bytes),
        // The REQUEST_URI of programs.
        b"request.orig-uri" => set_original_uri(ex, bytes),
        b"uri.scheme" => {
            let schemes = ["http", "https"].into_iter();
            let mut named = schemes.filter(|name| bytes.eq_ignore_ascii_case(name.as_bytes()));
            ex.request.scheme = named.next().ok_or(AccessError::Scheme)?;
            Ok(())
        }
        b"uri.authority" => {
            set_authority(ex, bytes);
            Ok(())
        }
        b"request.method" => {
            let method = Method::from_bytes(bytes).ok_or(AccessError::Method)?;
            let before = ex.request.method.replace(method);
            // The client frames the response by the method that it sent (RFC 9112 section 6.3).
            ex.request.original_method = ex.request.original_method.or(before);
            Ok(())
        }
        b"request.protocol" => {
            if bytes == b"HTTP/1.0" && ex.request.version == Version::Http11 {
                ex.request.version = Version::Http10;
            }
            Ok(())
        }
        b"request.path-info" => {
            ex.physical.path_info = bytes.to_vec();
            Ok(())
        }
        b"request.remote-ip" | b"request.remote-addr" => set_peer(ex, bytes),
        b"request.remote-port" => set_peer_port(ex, bytes),
        _ if NAMES.iter().any(|known| known.as_bytes() == name) => Ok(()),
        _ => return Err(AccessError::unknown_attribute(name)),
    }?;
    ex.ext_mut::<ScriptChanges>().changed = true;
    Ok(())
}

/// Changes a part of the physical path. The parts are independent; only `physical.path` selects the
/// served file.
fn set_path(ex: &mut Exchange, name: &[u8], bytes: &[u8]) -> Result<(), AccessError> {
    match name {
        b"physical.path" if bytes.is_empty() => Err(AccessError::NoPath),
        b"physical.path" => {
            parts_mut(ex);
            set_physical(ex, bytes)
        }
        b"physical.rel-path" => {
            parts_mut(ex).rel_path = bytes.to_vec();
            Ok(())
        }
        b"physical.doc-root" => {
            parts_mut(ex).doc_root = bytes.to_vec();
            Ok(())
        }
        b"physical.basedir" => {
            parts_mut(ex).basedir = bytes.to_vec();
            // The DOCUMENT_ROOT of programs.
            ex.physical.site = bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec();
            Ok(())
        }
        _ => Err(AccessError::unknown_attribute(name)),
    }
}

fn leaves(path: &[u8]) -> AccessError {
    AccessError::LeavesRoot(path.escape_ascii().to_string().into())
}

/// A path without empty and dot segments and without its leading slash; `None` if it climbs out.
fn simplified(path: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let is_dir = path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..");
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    let mut simple = parts.join(&b'/');
    if is_dir && !simple.is_empty() {
        simple.push(b'/');
    }
    Some(simple)
}

fn set_physical(ex: &mut Exchange, path: &[u8]) -> Result<(), AccessError> {
    let simple = simplified(path).ok_or_else(|| leaves(path))?;
    let whole = [b"/", &simple[..]].concat();
    let docroot = &ex.physical.docroot;
    let root = docroot.strip_suffix(b"/").unwrap_or(docroot);
    let beneath = whole.strip_prefix(root).filter(|_| !docroot.is_empty());
    if let Some(rel) = beneath.and_then(|rest| rest.strip_prefix(b"/")) {
        ex.physical.rel = rel.to_vec();
    } else {
        let end = simple.strip_suffix(b"/").unwrap_or(&simple).len();
        let slash = simple[..end].iter().rposition(|byte| *byte == b'/');
        let (dir, name) = match slash {
            Some(slash) => ([b"/", &simple[..slash]].concat(), &simple[slash + 1..]),
            None => (b"/".to_vec(), &simple[..]),
        };
        ex.physical.lead_to(dir);
        ex.physical.rel = name.to_vec();
    }
    ex.physical.root = None;
    ex.physical.entry = None;
    Ok(())
}

/// The document root of the site, even if an alias applies. The directory of an alias is
/// `physical.basedir`.
fn doc_root(ex: &Exchange) -> &[u8] {
    let site = &ex.physical.site;
    if site.is_empty() { &ex.physical.docroot } else { site }
}

/// The path beneath the document root of the site, which an alias does not change.
fn rel_path(ex: &Exchange) -> Vec<u8> {
    match ex.physical.site.is_empty() {
        true => [b"/", &ex.physical.rel[..]].concat(),
        false => ex.request.path.clone(),
    }
}

/// The parts of the physical path as scripts see them, if a script has changed any.
fn parts(ex: &Exchange) -> Option<&PathParts> {
    ex.ext::<ScriptChanges>().and_then(|changes| changes.path_parts.as_ref())
}

/// Returns the parts for a script to change. From now on they no longer follow the physical path.
fn parts_mut(ex: &mut Exchange) -> &mut PathParts {
    let now = match parts(ex) {
        Some(_) => PathParts::default(),
        None => PathParts {
            rel_path: rel_path(ex),
            doc_root: doc_root(ex).to_vec(),
            basedir: ex.physical.docroot.clone(),
        },
    };
    ex.ext_mut::<ScriptChanges>().path_parts.get_or_insert(now)
}

/// As in lighttpd, a script may set an authority that no client may send.
fn set_authority(ex: &mut Exchange, value: &[u8]) {
    let opts = &ex.settings.server.parse;
    let authority = host::normalized_authority(value, ex.request.scheme, opts);
    ex.request.authority = authority.unwrap_or_else(|_| value.to_ascii_lowercase());
}

fn set_uri(ex: &mut Exchange, target: &[u8]) -> Result<(), AccessError> {
    let refused = |_| AccessError::NotAPath(target.escape_ascii().to_string().into());
    ex.set_target(target).map_err(refused)
}

fn set_original_uri(ex: &mut Exchange, target: &[u8]) -> Result<(), AccessError> {
    if target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Err(AccessError::NotAPath(target.escape_ascii().to_string().into()));
    }
    ex.request.target_raw = target.to_vec();
    Ok(())
}

fn set_target(ex: &mut Exchange, path: &[u8], query: Option<&[u8]>) -> Result<(), AccessError> {
    let query = query.unwrap_or_else(|| ex.request.query()).to_vec();
    let target = match query.is_empty() {
        true => path.to_vec(),
        false => [path, b"?", &query].concat(),
    };
    set_uri(ex, &target)
}

/// Sets or removes the query. The decoded path is unchanged.
fn set_query(ex: &mut Exchange, path: &[u8], query: Option<&[u8]>) {
    let request = &mut ex.request;
    request.target.truncate(path.len());
    request.path_end = path.len();
    if let Some(query) = query {
        request.target.push(b'?');
        request.target.extend_from_slice(query);
    }
}

fn set_peer(ex: &mut Exchange, text: &[u8]) -> Result<(), AccessError> {
    let text = std::str::from_utf8(text).ok();
    let ip = text.and_then(|text| text.parse::<IpAddr>().ok());
    let ip = ip.ok_or(AccessError::NotAnAddress)?;
    ex.request.peer = Peer::Inet((ip, 0).into());
    ex.request.peer_text = ip.to_canonical().to_string().into();
    Ok(())
}

/// Sets the `REMOTE_PORT` of programs. As in lighttpd, invalid ports, and any port for a unix
/// socket, have no effect.
fn set_peer_port(ex: &mut Exchange, text: &[u8]) -> Result<(), AccessError> {
    let port = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    if let (Peer::Inet(address), Some(port)) = (&mut ex.request.peer, port) {
        address.set_port(port);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::simplified;

    #[test]
    fn paths_are_simplified_and_do_not_climb_out() {
        let simple = |path: &str| {
            simplified(path.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("UTF-8"))
        };
        assert_eq!(simple("/a//b/./c").as_deref(), Some("a/b/c"));
        assert_eq!(simple("/a/../b/").as_deref(), Some("b/"));
        assert_eq!(simple("a/.").as_deref(), Some("a/"));
        assert_eq!(simple("/").as_deref(), Some(""));
        assert_eq!(simple("/../a"), None);
        assert_eq!(simple("/a/../../b"), None);
    }
}
