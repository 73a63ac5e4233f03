//! Fields of a request that conditions can compare.

use std::borrow::Cow;
use std::net::IpAddr;

/// The field that a condition compares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `$SERVER["socket"]`: the listener that accepted the connection, as written.
    Socket,
    /// `$HTTP["scheme"]`
    Scheme,
    /// `$HTTP["url"]`: the decoded path without the query.
    Url,
    /// `$HTTP["host"]`, with its port if the client sent one.
    Host,
    /// `$HTTP["referer"]`
    Referer,
    /// `$HTTP["useragent"]`
    UserAgent,
    /// `$HTTP["cookie"]`
    Cookie,
    /// `$HTTP["remoteip"]`
    RemoteIp,
    /// `$HTTP["querystring"]`
    QueryString,
    /// `$HTTP["request-method"]`
    Method,
    /// `$HTTP["language"]`: the Accept-Language header (1.4).
    Language,
    /// `$PHYSICAL["path"]` (1.5).
    PhysicalPath,
    /// `$PHYSICAL["existing-path"]` (1.5).
    PhysicalExistingPath,
    /// `$REQUEST_HEADER["…"]` (1.4), with the name in lower case.
    RequestHeader(String),
    /// `$GEOIP["…"]`: a value of the database of places for the client's address. The name is a
    /// path of keys, such as `country/iso_code`.
    Place(String),
}

/// Spellings and their fields. The first spelling of a field is used for output.
const FIELDS: [(&str, &str, Field); 16] = [
    ("SERVER", "socket", Field::Socket),
    ("HTTP", "scheme", Field::Scheme),
    ("HTTP", "url", Field::Url),
    ("HTTP", "host", Field::Host),
    ("HTTP", "referer", Field::Referer),
    ("HTTP", "useragent", Field::UserAgent),
    ("HTTP", "user-agent", Field::UserAgent),
    ("HTTP", "cookie", Field::Cookie),
    ("HTTP", "remoteip", Field::RemoteIp),
    ("HTTP", "remote-ip", Field::RemoteIp),
    ("HTTP", "querystring", Field::QueryString),
    ("HTTP", "query-string", Field::QueryString),
    ("HTTP", "request-method", Field::Method),
    ("HTTP", "language", Field::Language),
    ("PHYSICAL", "path", Field::PhysicalPath),
    ("PHYSICAL", "existing-path", Field::PhysicalExistingPath),
];

/// Number of [`Field::slot`]s.
pub(crate) const SLOTS: usize = 15;

/// Number of slots that many fields share.
pub(crate) const SHARED_SLOTS: usize = 2;

impl Field {
    /// The field of `$OBJECT["name"]`.
    pub fn parse(object: &str, name: &str) -> Option<Field> {
        if object == "REQUEST_HEADER" {
            return Some(Field::RequestHeader(name.to_ascii_lowercase()));
        }
        if object == PLACES {
            return is_place(name).then(|| Field::Place(name.to_owned()));
        }
        let found = FIELDS.iter().find(|(o, n, _)| *o == object && *n == name);
        found.map(|(_, _, field)| field.clone())
    }

    /// All spellings, for messages.
    pub(crate) fn spellings() -> impl Iterator<Item = (&'static str, &'static str)> {
        FIELDS.iter().map(|(object, name, _)| (*object, *name))
    }

    /// The name of a field that shares its slot with others, and the number of that slot among the
    /// shared ones.
    pub(crate) fn in_shared_slot(&self) -> Option<(usize, &str)> {
        match self {
            Field::RequestHeader(name) => Some((0, name)),
            Field::Place(name) => Some((1, name)),
            _ => None,
        }
    }

    /// A small number for the kind of field. All request headers share one, and all values of
    /// places.
    pub(crate) fn slot(&self) -> usize {
        match self {
            Field::Socket => 0,
            Field::Scheme => 1,
            Field::Url => 2,
            Field::Host => 3,
            Field::Referer => 4,
            Field::UserAgent => 5,
            Field::Cookie => 6,
            Field::RemoteIp => 7,
            Field::QueryString => 8,
            Field::Method => 9,
            Field::Language => 10,
            Field::PhysicalPath => 11,
            Field::PhysicalExistingPath => 12,
            Field::RequestHeader(_) => 13,
            Field::Place(_) => 14,
        }
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Field::RequestHeader(name) = self {
            return write!(f, "$REQUEST_HEADER[\"{name}\"]");
        }
        if let Field::Place(name) = self {
            return write!(f, "${PLACES}[\"{name}\"]");
        }
        match FIELDS.iter().find(|(_, _, field)| field == self) {
            Some((object, name, _)) => write!(f, "${object}[\"{name}\"]"),
            None => write!(f, "{self:?}"),
        }
    }
}

/// The object of [`Field::Place`].
const PLACES: &str = "GEOIP";

/// True if a name is a path of keys in a database of places: parts between slashes, none empty.
pub fn is_place(name: &str) -> bool {
    name.split('/').all(|part| !part.is_empty())
}

/// The request's values. Queried only for fields that some condition uses.
pub trait Facts {
    /// The text of a field. `None`: not known *yet*, so that conditions on it do not apply now. A
    /// header that the client did not send is `Some("")`.
    fn get(&self, field: &Field) -> Option<Cow<'_, str>>;

    /// The client's address; `None` if it has none (a unix socket). [`get`](Facts::get) of
    /// [`Field::RemoteIp`] tells whether it is known already.
    fn remote_ip(&self) -> Option<IpAddr>;

    /// True if the file with this path lists the client's address, or a network around it.
    fn is_listed(&self, _list: &str) -> bool {
        false
    }
}
