//! What a script waits for: the calls that suspend it, and what they return.

use crate::chunk::Chunk;

/// A call that the program around the engine performs while the script is suspended.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `lighty.stat(path)`.
    Stat {
        /// The path as the script gives it.
        path: Vec<u8>,
    },
    /// `lighty.c.readdir(path)`.
    ReadDir {
        /// The directory's path as the script gives it.
        path: Vec<u8>,
    },
    /// `lighty.c.readlink(path)`.
    ReadLink {
        /// The link's path as the script gives it.
        path: Vec<u8>,
    },
    /// A whole file: `io.open`, `io.lines`.
    ReadFile {
        /// The file's path as the script gives it.
        path: Vec<u8>,
    },
    /// A file of Lua: `require`, `loadfile`, `dofile`. It is compiled again when it has changed.
    Module {
        /// The file's path as the script gives it, or as `require` makes it.
        path: Vec<u8>,
    },
    /// A long text for `load`.
    Compile {
        /// The chunk's name.
        name: Vec<u8>,
        /// What is compiled.
        text: Vec<u8>,
    },
    /// `lighty.sleep(seconds)`, in milliseconds.
    Sleep {
        /// Milliseconds, rounded down; 0 where the script asked for less.
        ms: u64,
    },
    /// `lighty.r.req_body.collect`.
    CollectBody,
    /// `lighty.r.resp_body.get` of a body that is not in memory.
    CollectResponse,
    /// `lighty.server.stats.clients_open`.
    ClientsOpen,
    /// `lighty.server.irequests()`.
    OpenRequests,
    /// `lighty.http.get` and `.post`, `lighty.backend`, `lighty.subrequest`.
    Request(HttpCall),
}

/// A request that a script makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpCall {
    /// Where it goes.
    pub to: Destination,
    /// The method, as the script spells it.
    pub method: Vec<u8>,
    /// A URL; for a backend or a subrequest a path with an optional query.
    pub url: Vec<u8>,
    /// Names and values of the fields that the script sets.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The content; empty for none.
    pub body: Vec<u8>,
}

/// Where a script's request goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Destination {
    /// To the host that the URL names.
    #[default]
    Url,
    /// To a backend that the configuration names.
    Backend(Vec<u8>),
    /// Through this server's own phases.
    Local,
}

/// What a call returns to the script.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Nothing but that it is done.
    Done,
    /// The script gets nil and this text.
    Failed(String),
    /// A table with the properties of a file.
    Stat(Stat),
    /// A function that gives the names in a directory one by one.
    Names(Vec<Vec<u8>>),
    /// A string: the content of a file or the target of a link.
    Bytes(Vec<u8>),
    /// A compiled text.
    Chunk(Chunk),
    /// An integer.
    Number(i64),
    /// A function that returns a table for each open request, one by one.
    Requests(Vec<OpenRequest>),
    /// A table with the response to [`Call::Request`].
    Response {
        /// The status code.
        status: u16,
        /// Names and values as received; the script sees names in lower case, equal ones joined
        /// and each for itself.
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        /// The whole content.
        body: Vec<u8>,
    },
}

/// What `lighty.stat` returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// Type and permissions, as `st_mode` has them.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// The inode's number.
    pub ino: u64,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Last change of the content: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds beyond `mtime_s`.
    pub mtime_ns: u32,
    /// Last change of the inode: seconds since 1970.
    pub ctime_s: i64,
    /// Nanoseconds beyond `ctime_s`.
    pub ctime_ns: u32,
    /// Last access: seconds since 1970, or the content's last change where that is not known.
    pub atime_s: i64,
    /// The strong validator with its quotes; empty for none.
    pub etag: Vec<u8>,
    /// The media type that the name has; empty for none.
    pub content_type: Vec<u8>,
}

/// A request that a client waits for, as `lighty.server.irequests()` tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRequest {
    /// Under the names of `lighty.r.req_attr`.
    pub attributes: Vec<(&'static str, Vec<u8>)>,
    /// Bytes moved in its present state.
    pub bytes: u64,
    /// Bytes received, while it is received or waits for a handler.
    pub bytes_in: u64,
    /// Bytes sent, while its response is sent.
    pub bytes_out: u64,
    /// How long it has been in that state.
    pub age: std::time::Duration,
}
