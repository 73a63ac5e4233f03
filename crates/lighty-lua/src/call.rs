//! Calls that suspend a script, and their results.

use crate::chunk::Chunk;

/// A call that the program around the engine performs while the script is suspended.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `lighty.stat(path)`.
    Stat {
        /// The path as given by the script.
        path: Vec<u8>,
    },
    /// `lighty.c.readdir(path)`.
    ReadDir {
        /// The directory's path as given by the script.
        path: Vec<u8>,
    },
    /// `lighty.c.readlink(path)`.
    ReadLink {
        /// The link's path as given by the script.
        path: Vec<u8>,
    },
    /// A whole file: `io.open`, `io.lines`.
    ReadFile {
        /// The file's path as given by the script.
        path: Vec<u8>,
    },
    /// A Lua file: `require`, `loadfile`, `dofile`. It is compiled again after a change.
    Module {
        /// The file's path as given by the script or built by `require`.
        path: Vec<u8>,
    },
    /// A long text for `load`.
    Compile {
        /// The chunk's name.
        name: Vec<u8>,
        /// The text to compile.
        text: Vec<u8>,
    },
    /// `lighty.sleep(seconds)`, in milliseconds.
    Sleep {
        /// Milliseconds, rounded down; 0 for a negative number.
        ms: u64,
    },
    /// `lighty.r.req_body.collect`.
    CollectBody,
    /// `lighty.r.resp_body.get` for a body that is not in memory.
    CollectResponse,
    /// `lighty.server.stats.clients_open`.
    ClientsOpen,
    /// `lighty.server.irequests()`.
    OpenRequests,
    /// `lighty.http.get` and `.post`, `lighty.backend`, `lighty.subrequest`.
    Request(HttpCall),
}

/// A request made by a script.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpCall {
    /// The destination.
    pub to: Destination,
    /// The method, as the script spells it.
    pub method: Vec<u8>,
    /// A URL; for a backend or a subrequest a path with an optional query.
    pub url: Vec<u8>,
    /// Names and values of the header fields.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The content; empty for none.
    pub body: Vec<u8>,
}

/// Destination of a script's request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Destination {
    /// The host in the URL.
    #[default]
    Url,
    /// A backend in the configuration.
    Backend(Vec<u8>),
    /// Through this server's own phases.
    Local,
}

/// Result of a call for the script.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Success without a value.
    Done,
    /// Failure: the script gets nil and this text.
    Failed(String),
    /// A table with the properties of a file.
    Stat(Stat),
    /// A function that gives the names in a directory one by one.
    Names(Vec<Vec<u8>>),
    /// A function that returns the names in a directory one by one.
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
        /// Names and values as received. The script gets names in lower case, once with equal ones
        /// joined, and once one by one.
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        /// The whole content.
        body: Vec<u8>,
    },
}

/// Result of `lighty.stat`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Size in bytes.
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
    /// Last access: seconds since 1970, or the content's last change if unknown.
    pub atime_s: i64,
    /// The strong validator with its quotes; empty if there is none.
    pub etag: Vec<u8>,
    /// The media type by the name; empty if there is none.
    pub content_type: Vec<u8>,
}

/// An open request, for `lighty.server.irequests()`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRequest {
    /// Attributes by their names in `lighty.r.req_attr`.
    pub attributes: Vec<(&'static str, Vec<u8>)>,
    /// Bytes moved in its present state.
    pub bytes: u64,
    /// Bytes received, while it is being received or waits for a handler.
    pub bytes_in: u64,
    /// Bytes sent, while its response is being sent.
    pub bytes_out: u64,
    /// Time in the present state.
    pub age: std::time::Duration,
}
