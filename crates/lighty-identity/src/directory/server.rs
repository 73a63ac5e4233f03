//! Addresses of directory servers.

use std::fmt;
use std::path::PathBuf;

/// Maximum number of servers of a directory.
pub const SERVERS_MAX: usize = 16;

/// The socket of OpenLDAP's server for `ldapi:///`.
const DEFAULT_SOCKET: &str = "/var/run/slapd/ldapi";

const LDAP_PORT: u16 = 389;
const LDAPS_PORT: u16 = 636;

/// A list of servers that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerTextError {
    /// Another scheme.
    #[error("has the scheme \"{0}\", which is none of ldap, ldaps and ldapi")]
    Scheme(String),
    /// The port is no number from 1 to 65535.
    #[error("has the port \"{0}\", which is none")]
    Port(String),
    /// The host is missing or has characters that no host has.
    #[error("has the host \"{0}\", which is none")]
    Host(String),
    /// There is something behind the port.
    #[error("has \"{0}\" behind the host")]
    Rest(String),
    /// No server, or more than the limit.
    #[error("must name 1 to {max} servers", max = SERVERS_MAX)]
    Count,
}

/// A server of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DirectoryServer {
    /// Over TCP.
    Tcp {
        /// A name or an address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
        /// TLS from the first byte on (`ldaps`).
        is_tls: bool,
    },
    /// Over a unix socket (`ldapi`).
    Unix(PathBuf),
}

impl DirectoryServer {
    /// Parses servers with commas or spaces between them, as lighttpd does. `ldap://` may be left
    /// out.
    ///
    /// # Errors
    /// A server has another form, or there are none or too many.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ServerTextError> {
        let separators = [',', ' ', '\t', '\r', '\n'];
        let names = text.split(separators).filter(|name| !name.is_empty());
        let servers = names.map(Self::parse).collect::<Result<Vec<_>, _>>()?;
        if (1..=SERVERS_MAX).contains(&servers.len()) {
            Ok(servers)
        } else {
            Err(ServerTextError::Count)
        }
    }

    fn parse(text: &str) -> Result<Self, ServerTextError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("ldap", text));
        match scheme.to_ascii_lowercase().as_str() {
            "ldap" => parse_host(rest, false),
            "ldaps" => parse_host(rest, true),
            "ldapi" => Ok(Self::Unix(parse_socket(rest))),
            _ => Err(ServerTextError::Scheme(scheme.to_owned())),
        }
    }

    /// The TCP port.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp { port, .. } => Some(*port),
            Self::Unix(_) => None,
        }
    }

    /// Name or address of its host; `None` for a unix socket.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { host, .. } => Some(host),
            Self::Unix(_) => None,
        }
    }

    /// True if TLS comes first, without StartTLS.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { is_tls: true, .. })
    }

    /// True if the connection is encrypted. A unix socket never is: its data leave no machine.
    pub(super) fn needs_tls(&self, starttls: bool) -> bool {
        matches!(self, Self::Tcp { is_tls, .. } if *is_tls || starttls)
    }
}

/// As a URL, without a port that is the default.
impl fmt::Display for DirectoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, is_tls } => {
                let (scheme, default) =
                    if *is_tls { ("ldaps", LDAPS_PORT) } else { ("ldap", LDAP_PORT) };
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                write!(f, "{scheme}://{host}")?;
                if *port == default { Ok(()) } else { write!(f, ":{port}") }
            }
            Self::Unix(path) => write!(f, "ldapi:{}", path.display()),
        }
    }
}

fn parse_host(rest: &str, is_tls: bool) -> Result<DirectoryServer, ServerTextError> {
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if let Some(slash) = authority.find(['/', '?']) {
        return Err(ServerTextError::Rest(authority[slash..].to_owned()));
    }
    let bracketed = authority.strip_prefix('[').and_then(|inner| inner.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, "")) => (host, None),
        Some((host, port)) => {
            let port = port.strip_prefix(':');
            (host, Some(port.ok_or_else(|| ServerTextError::Host(authority.to_owned()))?))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        None if is_tls => LDAPS_PORT,
        None => LDAP_PORT,
        Some(text) => match text.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(ServerTextError::Port(text.to_owned())),
        },
    };
    let host = if host.is_empty() { "localhost" } else { host };
    let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
    let is_name =
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if is_address != bracketed.is_some() || !(is_address || is_name) {
        return Err(ServerTextError::Host(host.to_owned()));
    }
    Ok(DirectoryServer::Tcp { host: host.to_owned(), port, is_tls })
}

/// A path with escapes in place of the host, or one behind an empty host.
fn parse_socket(rest: &str) -> PathBuf {
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut decoded = Vec::new();
    lighty_http::uri::decode_into(host.as_bytes(), &mut decoded);
    match (host, path) {
        ("", "" | "/") => DEFAULT_SOCKET.into(),
        ("", path) => path.into(),
        _ => String::from_utf8_lossy(&decoded).into_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, ServerTextError> {
        let servers = DirectoryServer::parse_list(text)?;
        Ok(servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lists_have_commas_or_spaces_and_schemes_may_be_left_out() {
        for (text, wanted) in [
            ("a.test", "ldap://a.test"),
            (
                " a.test:390,\tLDAPS://b.test/ ,ldap://c.test:389",
                "ldap://a.test:390 ldaps://b.test ldap://c.test",
            ),
            ("ldap://[::1]:3389 [2001:db8::1]", "ldap://[::1]:3389 ldap://[2001:db8::1]"),
            ("ldap:///", "ldap://localhost"),
            (
                "ldapi://%2Frun%2Fldapi ldapi:/// ldapi:///run/x",
                "ldapi:/run/ldapi ldapi:/var/run/slapd/ldapi ldapi:/run/x",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn servers_of_another_form_are_refused() {
        use ServerTextError::{Count, Host, Port, Rest, Scheme};
        let text = |text: &str| text.to_owned();
        for (bad, wanted) in [
            ("", Count),
            (" , ", Count),
            ("cldap://a", Scheme(text("cldap"))),
            ("a:0", Port(text("0"))),
            ("a:65536", Port(text("65536"))),
            ("::1", Port(text(":1"))),
            ("[a]", Host(text("a"))),
            ("[::1]x", Host(text("[::1]x"))),
            ("a@b", Host(text("a@b"))),
            ("ldap://a/dc=b", Rest(text("/dc=b"))),
        ] {
            assert_eq!(shown(bad), Err(wanted), "{bad}");
        }
        let many = |count| vec!["a.test"; count].join(" ");
        assert!(shown(&many(SERVERS_MAX)).is_ok());
        assert_eq!(shown(&many(SERVERS_MAX + 1)), Err(Count));
    }

    #[test]
    fn unix_sockets_need_no_tls() {
        let server = |text: &str| DirectoryServer::parse(text).expect("a server");
        assert!(server("ldaps://a").needs_tls(false) && server("a").needs_tls(true));
        assert!(!server("a").needs_tls(false) && !server("ldapi:///").needs_tls(true));
    }
}
