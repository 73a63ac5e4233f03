//! Live properties, computed by the server: RFC 4918 section 15.

use std::rc::Rc;

use lighty_core::Settings;
use lighty_http::{Status, date, mime};
use lighty_io::file::{FileKind, Meta};

use super::multistatus::{self, push, push_href, push_text};
use super::store::{Described, Lock};
use super::xml::{DAV, Element, XmlDocument};

/// A property that is computed. Clients cannot set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Live {
    CreationDate,
    ContentLength,
    ContentType,
    ETag,
    LastModified,
    LockDiscovery,
    ResourceType,
    SupportedLock,
}

const ALL: [(Live, &str); 8] = [
    (Live::ResourceType, "resourcetype"),
    (Live::CreationDate, "creationdate"),
    (Live::ContentLength, "getcontentlength"),
    (Live::ContentType, "getcontenttype"),
    (Live::ETag, "getetag"),
    (Live::LastModified, "getlastmodified"),
    (Live::SupportedLock, "supportedlock"),
    (Live::LockDiscovery, "lockdiscovery"),
];

impl Live {
    /// Returns the property of this name.
    pub(super) fn of(ns: &str, name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known)| ns == DAV && *known == name).map(|(live, _)| *live)
    }
}

/// Maximum number of properties in a `PROPFIND`.
pub(super) const NAMES_MAX: usize = 256;

/// The properties requested by a `PROPFIND`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestedProperties {
    /// All properties, plus these.
    All(Vec<(Rc<str>, String)>),
    /// The names of all properties.
    Names,
    /// Only these.
    These(Vec<(Rc<str>, String)>),
}

/// The reason for which a `PROPFIND` body is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PropfindError {
    #[error("not what PROPFIND takes")]
    Element,
    #[error("more than {NAMES_MAX} properties")]
    Properties,
}

impl RequestedProperties {
    /// Parses a `PROPFIND` body (RFC 4918 section 14.20).
    ///
    /// # Errors
    /// The document is not a `propfind` element, or it names more than [`NAMES_MAX`] properties.
    pub(super) fn of(document: &XmlDocument) -> Result<Self, PropfindError> {
        let root = &document.root;
        let kinds: Vec<_> = ["allprop", "propname", "prop"]
            .into_iter()
            .filter_map(|kind| root.dav_child(kind).map(|element| (kind, element)))
            .filter(|_| root.is_dav("propfind"))
            .collect();
        match kinds[..] {
            [("allprop", _)] => {
                let include = root.dav_child("include").map(names).transpose()?;
                Ok(Self::All(include.unwrap_or_default()))
            }
            [("propname", _)] => Ok(Self::Names),
            [("prop", element)] => Ok(Self::These(names(element)?)),
            _ => Err(PropfindError::Element),
        }
    }
}

/// Returns the properties that an element names, without duplicates.
fn names(element: &Element) -> Result<Vec<(Rc<str>, String)>, PropfindError> {
    if element.children.len() > NAMES_MAX {
        return Err(PropfindError::Properties);
    }
    let mut names = Vec::new();
    for one in &element.children {
        let name = (Rc::clone(&one.ns), one.name.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// A resource to describe.
pub(super) struct ResourceFacts<'a> {
    /// The decoded path of its URL, as listed.
    pub(super) url: &'a [u8],
    /// The file name, which determines the media type.
    pub(super) name: &'a [u8],
    pub(super) meta: &'a Meta,
    pub(super) known: &'a Described,
}

/// Renders the responses about resources.
pub(super) struct Describer {
    pub(super) wanted: RequestedProperties,
    pub(super) settings: Rc<Settings>,
    pub(super) has_locks: bool,
    /// Seconds since 1970.
    pub(super) now_s: i64,
    /// Seconds since 1970 by the clock of locks.
    pub(super) lock_now_s: i64,
}

impl Describer {
    /// Appends the response about one resource.
    pub(super) fn push(&self, resource: &ResourceFacts<'_>, out: &mut Vec<u8>) {
        push(out, &["<D:response>"]);
        push_href(resource.url, out);
        match &self.wanted {
            RequestedProperties::Names => self.push_names(resource, out),
            RequestedProperties::These(names) => self.push_these(names, resource, out),
            RequestedProperties::All(include) => self.push_all(include, resource, out),
        }
        push(out, &["</D:response>\n"]);
    }

    fn push_names(&self, resource: &ResourceFacts<'_>, out: &mut Vec<u8>) {
        push(out, &["<D:propstat><D:prop>"]);
        for (live, name) in ALL {
            if self.has(live, resource.meta) {
                multistatus::push_name(DAV, name, out);
            }
        }
        for dead in &resource.known.dead {
            multistatus::push_name(&dead.ns, &dead.name, out);
        }
        end_group(Status::OK, out);
    }

    fn push_all(
        &self,
        include: &[(Rc<str>, String)],
        resource: &ResourceFacts<'_>,
        out: &mut Vec<u8>,
    ) {
        push(out, &["<D:propstat><D:prop>"]);
        for (live, name) in ALL {
            if self.has(live, resource.meta) {
                self.push_live(live, name, resource, out);
            }
        }
        for dead in &resource.known.dead {
            push(out, &[&dead.xml]);
        }
        end_group(Status::OK, out);
        let is_missing = |(ns, name): &&(Rc<str>, String)| !self.is_there(ns, name, resource);
        let mut missing = include.iter().filter(is_missing).peekable();
        if missing.peek().is_some() {
            push_missing(missing, out);
        }
    }

    fn push_these(
        &self,
        names: &[(Rc<str>, String)],
        resource: &ResourceFacts<'_>,
        out: &mut Vec<u8>,
    ) {
        let is_there = |(ns, name): &&(Rc<str>, String)| self.is_there(ns, name, resource);
        let mut found = names.iter().filter(is_there).peekable();
        let any = found.peek().is_some();
        if any || names.is_empty() {
            push(out, &["<D:propstat><D:prop>"]);
            for (ns, name) in found {
                match Live::of(ns, name) {
                    Some(live) => self.push_live(live, name, resource, out),
                    None => push_dead(ns, name, resource.known, out),
                }
            }
            end_group(Status::OK, out);
        }
        let mut missing = names.iter().filter(|one| !is_there(one)).peekable();
        if missing.peek().is_some() {
            push_missing(missing, out);
        }
    }

    fn is_there(&self, ns: &str, name: &str, resource: &ResourceFacts<'_>) -> bool {
        match Live::of(ns, name) {
            Some(live) => self.has(live, resource.meta),
            None => resource.known.dead.iter().any(|dead| dead.ns == ns && dead.name == name),
        }
    }

    /// Returns true if a resource has the property.
    fn has(&self, live: Live, meta: &Meta) -> bool {
        let is_file = meta.kind == FileKind::File;
        match live {
            Live::ContentLength | Live::ContentType => is_file,
            Live::ETag => is_file && self.settings.core.etag_of(meta).is_some(),
            Live::LockDiscovery | Live::SupportedLock => self.has_locks,
            Live::CreationDate | Live::LastModified | Live::ResourceType => true,
        }
    }

    fn push_live(&self, live: Live, name: &str, resource: &ResourceFacts<'_>, out: &mut Vec<u8>) {
        let meta = resource.meta;
        match live {
            // The creation time is not available. The earlier of both times is never later than
            // `getlastmodified`.
            Live::CreationDate => {
                push_text(name, &date::iso8601(meta.mtime_s.min(meta.ctime_s)), out);
            }
            Live::ContentLength => push_text(name, meta.size.to_string().as_bytes(), out),
            Live::ContentType => push_text(name, self.media_type(resource.name), out),
            Live::ETag => {
                if let Some(etag) = self.settings.core.etag_of(meta) {
                    push_text(name, etag.as_bytes(), out);
                }
            }
            // RFC 9110 section 8.8.2.1: not later than the response itself.
            Live::LastModified => {
                push_text(name, &date::format(meta.mtime_s.min(self.now_s)), out);
            }
            Live::ResourceType if meta.kind == FileKind::Directory => {
                push(out, &["<D:resourcetype><D:collection/></D:resourcetype>"]);
            }
            Live::ResourceType => push(out, &["<D:resourcetype/>"]),
            Live::SupportedLock => push(out, &[SUPPORTED_LOCK]),
            Live::LockDiscovery => push_locks(&resource.known.locks, self.lock_now_s, out),
        }
    }

    fn media_type(&self, name: &[u8]) -> &[u8] {
        let assigned = &self.settings.core.mime;
        let found = if assigned.is_empty() { mime::builtin(name) } else { assigned.lookup(name) };
        found.unwrap_or(mime::DEFAULT_TYPE).as_bytes()
    }
}

const SUPPORTED_LOCK: &str = "<D:supportedlock>\
    <D:lockentry><D:lockscope><D:exclusive/></D:lockscope>\
    <D:locktype><D:write/></D:locktype></D:lockentry>\
    <D:lockentry><D:lockscope><D:shared/></D:lockscope>\
    <D:locktype><D:write/></D:locktype></D:lockentry></D:supportedlock>";

fn push_dead(ns: &str, name: &str, known: &Described, out: &mut Vec<u8>) {
    for dead in known.dead.iter().filter(|dead| dead.ns == ns && dead.name == name) {
        push(out, &[&dead.xml]);
    }
}

fn push_missing<'a>(missing: impl Iterator<Item = &'a (Rc<str>, String)>, out: &mut Vec<u8>) {
    push(out, &["<D:propstat><D:prop>"]);
    missing.for_each(|(ns, name)| multistatus::push_name(ns, name, out));
    end_group(Status::NOT_FOUND, out);
}

fn end_group(status: Status, out: &mut Vec<u8>) {
    push(out, &["</D:prop>"]);
    multistatus::push_status(status, out);
    push(out, &["</D:propstat>"]);
}

/// Appends `lockdiscovery` (RFC 4918 section 15.8).
pub(super) fn push_locks(locks: &[Lock], now_s: i64, out: &mut Vec<u8>) {
    push(out, &["<D:lockdiscovery>"]);
    for lock in locks {
        let scope = if lock.exclusive { "exclusive" } else { "shared" };
        push(out, &["<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:", scope]);
        push(out, &["/></D:lockscope>"]);
        push_text("depth", if lock.infinite { b"infinity" } else { b"0" }, out);
        if !lock.owner.is_empty() {
            push(out, &[&lock.owner]);
        }
        let left = (lock.expires_s - now_s).max(0);
        push_text("timeout", format!("Second-{left}").as_bytes(), out);
        push(out, &["<D:locktoken>"]);
        push_text("href", lock.token.as_bytes(), out);
        push(out, &["</D:locktoken><D:lockroot>"]);
        push_href(&lock.url, out);
        push(out, &["</D:lockroot></D:activelock>"]);
    }
    push(out, &["</D:lockdiscovery>"]);
}
