//! What a script sees of a request. A module of the server and a FastCGI program implement it.

use std::borrow::Cow;

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

/// A request and its response, as a script sees and changes them.
pub trait ScriptRequest: 'static {
    /// A named value.
    ///
    /// # Errors
    /// There is none of that name, said in words for the script's author.
    fn get(&self, group: Group, name: &[u8]) -> Result<Item<'_>, String>;

    /// Changes or, with `None`, removes a value.
    ///
    /// # Errors
    /// It cannot be changed, or not to this.
    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), String>;

    /// All names and values of a group.
    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)>;

    /// Drops the response's body.
    fn clear_body(&mut self);

    /// Adds to the response's body.
    fn add_body(&mut self, piece: Piece);

    /// Replaces or extends the request's body, which has been collected.
    ///
    /// # Errors
    /// It has not been collected.
    fn add_request_body(&mut self, bytes: &[u8], replace: bool) -> Result<(), String>;

    /// What the script printed ("print", without the end of its line), wrote ("write"), or logged
    /// at a level by that name.
    fn log(&mut self, level: &str, text: &[u8]);
}

impl<R: ScriptRequest> ScriptRequest for Box<R> {
    fn get(&self, group: Group, name: &[u8]) -> Result<Item<'_>, String> {
        (**self).get(group, name)
    }

    fn set(&mut self, group: Group, name: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        (**self).set(group, name, value)
    }

    fn pairs(&self, group: Group) -> Vec<(Vec<u8>, Vec<u8>)> {
        (**self).pairs(group)
    }

    fn clear_body(&mut self) {
        (**self).clear_body();
    }

    fn add_body(&mut self, piece: Piece) {
        (**self).add_body(piece);
    }

    fn add_request_body(&mut self, bytes: &[u8], replace: bool) -> Result<(), String> {
        (**self).add_request_body(bytes, replace)
    }

    fn log(&mut self, level: &str, text: &[u8]) {
        (**self).log(level, text);
    }
}
