//! URLs of the load, and the address of their server.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use lighty_io::connect::Target;

/// Time limit to test that one of several addresses accepts connections.
const LOOK: Duration = Duration::from_secs(2);

/// A URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadUrl {
    /// True for `https`.
    pub tls: bool,
    /// The URL's host, without a port.
    pub host: String,
    /// The URL's port, or the default of its scheme.
    pub port: u16,
    /// Host and port as written in the URL.
    pub authority: String,
    /// The value of `Authorization` for the URL's name and password.
    pub credentials: Option<String>,
    /// Path and query.
    pub target: String,
}

impl LoadUrl {
    /// Parses a URL; `None` if its scheme is neither http nor https. The default scheme is http.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri = lighty_fetch::parse_url(&whole)?;
        let tls = uri.scheme_str() == Some("https");
        let authority = uri.authority()?.as_str();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Some(Self {
            tls,
            host: uri.host()?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.to_owned(),
            credentials: lighty_fetch::basic_credentials(&uri),
            target: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// Resolves the server's address: the first one that accepts connections, or else the first.
    ///
    /// # Errors
    /// The name cannot be resolved.
    pub fn resolve(&self) -> io::Result<Target> {
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.host));
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(at)?;
        let found: Vec<SocketAddr> = found.collect();
        let listens = |at: &&SocketAddr| TcpStream::connect_timeout(at, LOOK).is_ok();
        let address = match &found[..] {
            [only] => Some(only),
            several => several.iter().find(listens).or(several.first()),
        };
        let none = || io::Error::other(format!("{}: it has no address", self.host));
        address.map(|address| Target::Tcp(*address)).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = LoadUrl::parse("https://u:p@[::1]:8443/a?b#c").expect("a URL");
        assert_eq!((url.tls, &*url.host, url.port), (true, "::1", 8443));
        assert_eq!((&*url.authority, &*url.target), ("[::1]:8443", "/a?b"));
        assert_eq!(url.credentials.as_deref(), Some("Basic dTpw"));
        let plain = LoadUrl::parse("a.test").expect("a URL");
        assert_eq!((plain.tls, plain.port, &*plain.target), (false, 80, "/"));
        assert_eq!(LoadUrl::parse("ftp://a/"), None);
    }
}
