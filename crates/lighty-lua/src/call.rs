//! What a script waits for: the calls that suspend it, and what they return.

/// A call that the program around the engine performs while the script is suspended.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// `lighty.stat(path)`.
    Stat { path: Vec<u8> },
    /// `lighty.c.readdir(path)`.
    ReadDir { path: Vec<u8> },
    /// `lighty.c.readlink(path)`.
    ReadLink { path: Vec<u8> },
    /// A whole file: `io.open`, `io.lines`, `require`.
    ReadFile { path: Vec<u8> },
    /// `lighty.sleep(seconds)`, in milliseconds.
    Sleep { ms: u64 },
    /// `lighty.r.req_body.collect`.
    CollectBody,
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
    pub to: Destination,
    pub method: Vec<u8>,
    /// A URL; for a backend or a subrequest a path with an optional query.
    pub url: Vec<u8>,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
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
    Stat(Stat),
    Names(Vec<Vec<u8>>),
    Bytes(Vec<u8>),
    Number(i64),
    Requests(Vec<OpenRequest>),
    Response {
        status: u16,
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        body: Vec<u8>,
    },
}

/// What `lighty.stat` returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    pub mode: u32,
    pub size: u64,
    pub ino: u64,
    pub uid: u32,
    pub gid: u32,
    pub mtime_s: i64,
    pub mtime_ns: u32,
    pub ctime_s: i64,
    pub ctime_ns: u32,
    pub atime_s: i64,
    pub etag: Vec<u8>,
    pub content_type: Vec<u8>,
}

/// A request that a client waits for, as `lighty.server.irequests()` tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenRequest {
    /// Under the names of `lighty.r.req_attr`.
    pub attributes: Vec<(&'static str, Vec<u8>)>,
    /// Bytes moved in its present state.
    pub bytes: u64,
    /// How long it has been in that state.
    pub age: std::time::Duration,
}
