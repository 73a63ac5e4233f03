//! What a script sees of a request. A module of the server and a FastCGI program implement it.

use std::borrow::Cow;
use std::fmt;

/// The objects of `lighty.r` and `lighty.server` that hold named values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `lighty.r.req_header`, once `lighty.request`.
    RequestHeader,
    /// `lighty.r.req_attr`, once `lighty.env`.
    Attribute,
    /// `lighty.r.req_env`.
    Environment,
    /// `lighty.r.req_item`.
    RequestItem,
    /// `lighty.r.resp_header`.
    ResponseHeader,
    /// `lighty.r.req_body`: `len`, `bytes_in`, `bytes_out`, `get`, `unspecified_len`.
    RequestBody,
    /// `lighty.r.resp_body`: `len`, `bytes_in`, `bytes_out`, `get`.
    ResponseBody,
    /// `lighty.server.plugin_stats`, once `lighty.status`.
    PluginStats,
    /// `lighty.server.stats`.
    ServerStats,
}

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub enum Item<'a> {
    /// There is no value.
    Nil,
    /// Lua's `true` or `false`.
    Bool(bool),
    /// An integer, such as a length or a port.
    Int(i64),
    /// A string of any bytes.
    Bytes(Cow<'a, [u8]>),
}

impl Item<'_> {
    /// Bytes, or nil.
    pub fn of(bytes: Option<&[u8]>) -> Item<'_> {
        bytes.map_or(Item::Nil, |bytes| Item::Bytes(Cow::Borrowed(bytes)))
    }
}

/// Why a script cannot read or change a value. The words are for its author; where lighttpd has
/// some, they are lighttpd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The object has no value of this name.
    Unknown {
        /// The object, below `lighty`.
        object: &'static str,
        /// The name that the script used.
        name: Box<str>,
    },
    /// The body, named below `lighty`, has no such method or value.
    UnknownOfBody(&'static str),
    /// The attribute does not exist.
    UnknownAttribute(Box<str>),
    /// The value cannot be changed.
    ReadOnly,
    /// A counter is set to something else than a number.
    NotANumber,
    /// The request's body is changed before it was collected.
    NotCollected,
    /// A value of this attribute holds a NUL.
    ZeroByte(Box<str>),
    /// The path has more `..` than segments before them.
    LeavesRoot(Box<str>),
    /// The physical path is empty: it would be the root of the file system.
    NoPath,
    /// The request's target is not a path.
    NotAPath(Box<str>),
    /// The scheme is neither http nor https.
    Scheme,
    /// The request's method is not known.
    Method,
    /// The client's address is not an IP address.
    NotAnAddress,
    /// Name or value of a response field would end its line.
    LineBreak,
}

impl AccessError {
    /// The object has no value of this name.
    pub fn unknown(object: &'static str, name: &[u8]) -> Self {
        Self::Unknown { object, name: String::from_utf8_lossy(name).into() }
    }

    /// The attribute does not exist.
    pub fn unknown_attribute(name: &[u8]) -> Self {
        Self::UnknownAttribute(String::from_utf8_lossy(name).into())
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { object, name } => write!(f, "{object}['{name}'] invalid"),
            Self::UnknownOfBody(body) => write!(f, "{body} invalid method or param"),
            Self::UnknownAttribute(name) => write!(f, "couldn't store '{name}' in r.req_attr[]"),
            Self::ReadOnly => f.write_str("lua table is read-only"),
            Self::NotANumber => f.write_str("a counter is a number"),
            Self::NotCollected => f.write_str("the request's body is not collected"),
            Self::ZeroByte(name) => write!(f, "r.req_attr['{name}'] must not hold a zero byte"),
            Self::LeavesRoot(path) => write!(f, "the path {path} leaves its root"),
            Self::NoPath => f.write_str("r.req_attr['physical.path'] must not be empty"),
            Self::NotAPath(uri) => write!(f, "r.req_attr['request.uri']: {uri} is not a path"),
            Self::Scheme => f.write_str("r.req_attr['uri.scheme'] must be http or https"),
            Self::Method => f.write_str("r.req_attr['request.method'] is unknown"),
            Self::NotAnAddress => {
                f.write_str("r.req_attr['request.remote-addr'] is not an address")
            }
            Self::LineBreak => f.write_str("a response field holds a line break"),
        }
    }
}

impl std::error::Error for AccessError {}

/// A piece of a response's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// Part of a file. A negative offset counts from the end; no length: up to the end.
    File {
        /// The file's path as the script gives it.
        path: Vec<u8>,
        /// Where the part begins, in bytes.
        offset: i64,
        /// Bytes of the part; `None`: up to the file's end.
        length: Option<u64>,
    },
}

/// The requests of an engine's scripts. They may borrow from their owners.
pub trait Requests: 'static {
    /// The type of a request that borrows for this long.
    type Of<'a>: ScriptRequest;
}

/// A request and its response, as a script sees and changes them.
pub trait ScriptRequest {
    /// A named value.
    ///
    /// # Errors
    /// There is none of that name.
    fn get(&self, group: Group, name: &[u8]) -> Result<Item<'_>, AccessError>;

    /// Changes or, with `None`, removes a value.
    ///
    /// # Errors
    /// It cannot be changed, or not to this.
    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError>;

    /// All names and values of a group.
    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// Replaces the response's body by this piece or by nothing.
    fn set_body(&mut self, first: Option<Piece>);

    /// Adds to the response's body.
    fn add_body(&mut self, piece: Piece);

    /// Replaces or extends the request's body, which has been collected; its length.
    ///
    /// # Errors
    /// It has not been collected.
    fn add_request_body(&mut self, bytes: &[u8], replace: bool) -> Result<usize, AccessError>;

    /// What the script printed ("print", without the end of its line), wrote ("write"), or logged
    /// at a level by that name.
    fn log(&mut self, level: &str, text: &[u8]);
}
