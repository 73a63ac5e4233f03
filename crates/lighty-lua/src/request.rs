//! A script's view of a request, implemented by a server module and a FastCGI program.

use std::borrow::Cow;

/// The objects of `lighty.r` and `lighty.server` that hold named values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// `lighty.r.req_header`, formerly `lighty.request`.
    RequestHeader,
    /// `lighty.r.req_attr`, formerly `lighty.env`.
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
    /// `lighty.server.plugin_stats`, formerly `lighty.status`.
    PluginStats,
    /// `lighty.server.stats`.
    ServerStats,
    /// `lighty.cache`: `key`, `ttl`, `bypass`, `tags`, and `purge`, which only takes orders.
    Cache,
}

/// A named value.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptValue<'a> {
    /// There is no value.
    Nil,
    /// Lua's `true` or `false`.
    Bool(bool),
    /// An integer, such as a length or a port.
    Int(i64),
    /// A string of any bytes.
    Bytes(Cow<'a, [u8]>),
}

impl ScriptValue<'_> {
    /// Bytes, or nil.
    pub fn of(bytes: Option<&[u8]>) -> ScriptValue<'_> {
        bytes.map_or(ScriptValue::Nil, |bytes| ScriptValue::Bytes(Cow::Borrowed(bytes)))
    }
}

/// Error of reading or changing a value. The messages are for the script's author, and are
/// lighttpd's where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The object has no value of this name.
    #[error("{object}['{name}'] invalid")]
    Unknown {
        /// The object's name below `lighty`.
        object: &'static str,
        /// The name used by the script.
        name: Box<str>,
    },
    /// The body (its name below `lighty`) has no such method or value.
    #[error("{0} invalid method or param")]
    UnknownOfBody(&'static str),
    /// The attribute does not exist.
    #[error("couldn't store '{0}' in r.req_attr[]")]
    UnknownAttribute(Box<str>),
    /// The value cannot be changed.
    #[error("lua table is read-only")]
    ReadOnly,
    /// A counter was set to something other than a number.
    #[error("a counter is a number")]
    NotANumber,
    /// The request's body was changed before it was collected.
    #[error("the request's body is not collected")]
    NotCollected,
    /// A value for this attribute contains a NUL.
    #[error("r.req_attr['{0}'] must not hold a zero byte")]
    ZeroByte(Box<str>),
    /// The path has more `..` than segments before them.
    #[error("the path {0} leaves its root")]
    LeavesRoot(Box<str>),
    /// The physical path is empty, which would mean the root of the file system.
    #[error("r.req_attr['physical.path'] must not be empty")]
    NoPath,
    /// The request's target is not a path.
    #[error("r.req_attr['request.uri']: {0} is not a path")]
    NotAPath(Box<str>),
    /// The scheme is neither http nor https.
    #[error("r.req_attr['uri.scheme'] must be http or https")]
    Scheme,
    /// The request's method is unknown.
    #[error("r.req_attr['request.method'] is unknown")]
    Method,
    /// The client's address is not an IP address.
    #[error("r.req_attr['request.remote-addr'] is not an address")]
    NotAnAddress,
    /// `lighty.cache` has no such name, or the value is none for it.
    #[error("lighty.cache['{0}']: {1}")]
    Cache(Box<str>, &'static str),
    /// The name or value of a response field would end its line.
    #[error("a response field holds a line break")]
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

/// A piece of a response's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyPiece {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A part of a file. A negative offset counts from the end; without a length, up to the end.
    File {
        /// The file's path as given by the script.
        path: Vec<u8>,
        /// Start of the part, in bytes.
        offset: i64,
        /// Length of the part in bytes; `None`: up to the file's end.
        length: Option<u64>,
    },
}

/// The type of requests of an engine's scripts, which may borrow.
pub trait Requests: 'static {
    /// The type of a request with this lifetime.
    type Of<'a>: ScriptRequest;
}

/// A request and its response, as scripts see and change them.
pub trait ScriptRequest {
    /// Reads a named value.
    ///
    /// # Errors
    /// The name is unknown.
    fn get(&self, group: Group, name: &[u8]) -> Result<ScriptValue<'_>, AccessError>;

    /// Changes or, with `None`, removes a value.
    ///
    /// # Errors
    /// The value cannot be changed, or not to this.
    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), AccessError>;

    /// All names and values of a group.
    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// Replaces the response's body by this piece, or empties it.
    fn set_body(&mut self, first: Option<BodyPiece>);

    /// Appends to the response's body.
    fn add_body(&mut self, piece: BodyPiece);

    /// Replaces or extends the request's body, which has been collected. Returns its length.
    ///
    /// # Errors
    /// The body has not been collected.
    fn add_request_body(&mut self, bytes: &[u8], replace: bool) -> Result<usize, AccessError>;

    /// Logs a script's output: printed text ("print", without the final line end), written text
    /// ("write"), or a message of the level with this name.
    fn log(&mut self, level: &str, text: &[u8]);
}
