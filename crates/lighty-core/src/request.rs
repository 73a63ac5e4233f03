//! What the client asked for.

use std::net::IpAddr;

use lighty_http::{Fields, Method, Version};
use lighty_io::transport::Peer;

/// One request, reusable: `clear` keeps the capacity of every buffer.
pub struct Request {
    /// The method; `None` for a token the server does not know (answered 501).
    pub method: Option<Method>,
    /// Version of the request line.
    pub version: Version,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The request line as it came.
    pub line: Vec<u8>,
    /// Path and query as they came: `REQUEST_URI`.
    pub target_raw: Vec<u8>,
    /// The normalised target: path, still percent-encoded, with query; what rewriting changes.
    pub target: Vec<u8>,
    /// Where the path ends in `target` (the `?`, or its end).
    pub path_end: usize,
    /// Decoded, simplified path: begins with `/`, holds no `..`, no NUL.
    pub path: Vec<u8>,
    /// Host of the request, lower case, with its port as sent; empty where none was sent.
    pub authority: Vec<u8>,
    /// Header fields as sent.
    pub fields: Fields,
    /// The client.
    pub peer: Peer,
    /// Text of the listening address, as in `$SERVER["socket"]`.
    pub local_socket: std::rc::Rc<str>,
    /// Port of the listener, 0 for a unix socket.
    pub local_port: u16,
    /// Text of the client's address, kept because conditions and logs ask for it.
    pub peer_text: std::rc::Rc<str>,
    /// Whether the client asks to speak another protocol (`Connection: upgrade` and `Upgrade`).
    pub upgrade: bool,
    /// User name, once authenticated.
    pub remote_user: Vec<u8>,
    /// Realm in which that user has shown a password here.
    pub auth_realm: Option<std::sync::Arc<str>>,
    /// Bytes of the head as received, for the access log.
    pub head_bytes: u64,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            method: None,
            version: Version::Http11,
            scheme: "http",
            line: Vec::new(),
            target_raw: Vec::new(),
            target: Vec::new(),
            path_end: 0,
            path: Vec::new(),
            authority: Vec::new(),
            fields: Fields::default(),
            peer: Peer::Unix,
            local_socket: "".into(),
            local_port: 0,
            peer_text: "".into(),
            upgrade: false,
            remote_user: Vec::new(),
            auth_realm: None,
            head_bytes: 0,
        }
    }
}

impl Request {
    /// Forgets the request, keeps what belongs to the connection and the buffers' capacity.
    pub fn clear(&mut self) {
        self.method = None;
        self.line.clear();
        self.target_raw.clear();
        self.target.clear();
        self.path_end = 0;
        self.path.clear();
        self.authority.clear();
        self.fields.clear();
        self.upgrade = false;
        self.remote_user.clear();
        self.auth_realm = None;
        self.head_bytes = 0;
    }

    /// The normalised path, still percent-encoded.
    pub fn path_encoded(&self) -> &[u8] {
        &self.target[..self.path_end]
    }

    /// The query without its `?`.
    pub fn query(&self) -> &[u8] {
        self.target.get(self.path_end + 1..).unwrap_or_default()
    }

    /// The client's address, where it has one.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        match &self.peer {
            Peer::Inet(addr) => Some(addr.ip().to_canonical()),
            Peer::Unix => None,
        }
    }

    /// Whether the answer carries no body because the client asked with HEAD.
    pub fn is_head(&self) -> bool {
        self.method == Some(Method::Head)
    }
}
