//! The client's request.

use std::borrow::Cow;
use std::net::IpAddr;

use lighty_http::{Fields, Method, Version};
use lighty_io::transport::Peer;

/// One request, reusable: [`Request::clear`] keeps the capacity of every buffer.
pub struct Request {
    /// The method; `None` for an unknown token (501).
    pub method: Option<Method>,
    /// The client's method, set once a script has replaced it.
    pub original_method: Option<Method>,
    /// Version of the request line.
    pub version: Version,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The request line as received.
    pub line: Vec<u8>,
    /// Path and query as received: `REQUEST_URI`.
    pub target_raw: Vec<u8>,
    /// The normalised target: percent-encoded path, with query. Rewriting changes it.
    pub target: Vec<u8>,
    /// Index of the end of the path in `target` (the `?`, or the end).
    pub path_end: usize,
    /// Decoded, simplified path: begins with `/`, contains no `..`, no NUL.
    pub path: Vec<u8>,
    /// The request's host in lower case, with its port as sent; empty if none was sent.
    pub authority: Vec<u8>,
    /// Header fields as sent.
    pub fields: Fields,
    /// The client's address.
    pub peer: Peer,
    /// The connecting address, if it is that of a trusted proxy and `peer` comes from the proxy's
    /// header.
    pub proxy_ip: Option<IpAddr>,
    /// Text of the listening address, as in `$SERVER["socket"]`.
    pub local_socket: std::rc::Rc<str>,
    /// Port of the listener, 0 for a unix socket.
    pub local_port: u16,
    /// The client's address as text, kept for conditions and logs.
    pub peer_text: std::rc::Rc<str>,
    /// True if the client asks to switch to the protocol in its `Upgrade` field.
    pub upgrade: bool,
    /// The `Host` field is set by the configuration: backends receive it instead of the client's.
    pub sets_host: bool,
    /// User name, once authenticated.
    pub remote_user: Vec<u8>,
    /// Realm in which that user was authenticated by password.
    pub auth_realm: Option<std::sync::Arc<str>>,
    /// Bytes of the head as received, for the access log.
    pub head_bytes: u64,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            method: None,
            original_method: None,
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
            proxy_ip: None,
            local_socket: "".into(),
            local_port: 0,
            peer_text: "".into(),
            upgrade: false,
            sets_host: false,
            remote_user: Vec::new(),
            auth_realm: None,
            head_bytes: 0,
        }
    }
}

impl Request {
    /// Clears the request; keeps connection data and buffer capacity.
    pub fn clear(&mut self) {
        self.method = None;
        self.original_method = None;
        self.line.clear();
        self.target_raw.clear();
        self.target.clear();
        self.path_end = 0;
        self.path.clear();
        self.authority.clear();
        self.fields.clear();
        self.proxy_ip = None;
        self.upgrade = false;
        self.sets_host = false;
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

    /// The client's IP address, if it has one.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        match &self.peer {
            Peer::Inet(addr) => Some(addr.ip().to_canonical()),
            Peer::Unix => None,
        }
    }

    /// The connecting address, which a proxy passes to the next one (RFC 7239 section 5.2).
    pub fn neighbor_ip(&self) -> Option<IpAddr> {
        self.proxy_ip.or_else(|| self.remote_ip())
    }

    /// [`Self::neighbor_ip`] as text.
    pub fn neighbor_text(&self) -> Option<Cow<'_, str>> {
        match (self.proxy_ip, &self.peer) {
            (Some(ip), _) => Some(ip.to_string().into()),
            // Made once for the connection, as each request of it needs it.
            (None, Peer::Inet(_)) => Some(Cow::Borrowed(&*self.peer_text)),
            (None, Peer::Unix) => None,
        }
    }

    /// True for HEAD: its response carries no body.
    pub fn is_head(&self) -> bool {
        self.method == Some(Method::Head)
    }

    /// True if the client sent HEAD, whatever the method is now: it expects no body after the head.
    #[inline]
    pub fn came_as_head(&self) -> bool {
        self.original_method.or(self.method) == Some(Method::Head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_address_reads_the_same_as_an_address_and_as_text() {
        let client = |text: &str| Peer::Inet((text.parse::<IpAddr>().expect("an IP"), 1).into());
        for (peer, text, proxy_ip, expected) in [
            (client("192.0.2.1"), "192.0.2.1", None, Some("192.0.2.1")),
            (client("::ffff:192.0.2.1"), "192.0.2.1", None, Some("192.0.2.1")),
            (client("2001:db8::1"), "2001:db8::1", None, Some("2001:db8::1")),
            (client("0.0.0.0"), "unknown", Some("192.0.2.9"), Some("192.0.2.9")),
            (Peer::Unix, "/run/lighty.sock", None, None),
        ] {
            let mut request = Request::default();
            (request.peer, request.peer_text) = (peer, text.into());
            request.proxy_ip = proxy_ip.map(|ip| ip.parse().expect("an IP"));
            assert_eq!(request.neighbor_text().as_deref(), expected);
            assert_eq!(request.neighbor_ip().map(|ip| ip.to_string()).as_deref(), expected);
        }
    }
}
