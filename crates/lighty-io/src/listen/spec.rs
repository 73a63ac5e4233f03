//! Addresses to listen on, as written in a configuration.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BindSpec {
    /// An internet address with its port; port 0 lets the kernel choose.
    Inet(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// Error in an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindSpecError {
    /// The text is empty.
    #[error("the address is empty")]
    Empty,
    /// The port is missing.
    #[error("the address has no port")]
    NoPort,
    /// The port is not a number up to 65535.
    #[error("\"{0}\" is not a port (0 to 65535)")]
    BadPort(String),
    /// Neither an IPv4 address, nor an IPv6 address in brackets. Only [`BindSpec::look_up`] accepts
    /// names.
    #[error("\"{0}\" is not an address: expected 1.2.3.4:80, :80, [::1]:80 or /path")]
    BadAddress(String),
    /// sun_path has 108 bytes, one of which ends it.
    #[error("the path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes, not {0}")]
    PathTooLong(usize),
}

/// unix(7): 108 bytes with the final zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl BindSpec {
    /// Parses `addr:port`, `:port`, `*:port`, `[v6]:port`, `/path` or `unix:/path`. An address
    /// without a port gets `port_default`, if there is one.
    ///
    /// # Errors
    /// See [`BindSpecError`].
    pub fn parse(text: &str, port_default: Option<u16>) -> Result<Self, BindSpecError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(BindSpecError::Empty);
        }
        if let Some(path) = unix_path(text) {
            return match path.len() {
                0..=UNIX_PATH_BYTES_MAX => Ok(BindSpec::Unix(PathBuf::from(path))),
                bytes => Err(BindSpecError::PathTooLong(bytes)),
            };
        }
        let (host, port) = split_port(text)?;
        let port = match (port, port_default) {
            (Some(port), _) => port.parse().map_err(|_| BindSpecError::BadPort(port.to_owned()))?,
            (None, Some(port)) => port,
            (None, None) => return Err(BindSpecError::NoPort),
        };
        Ok(BindSpec::Inet(SocketAddr::new(host, port)))
    }

    /// Like [`parse`](Self::parse), but also accepts a host name and resolves it by the system.
    /// Prefers the first address of the given family. May wait for a name server.
    ///
    /// # Errors
    /// A [`BindSpecError`], or the resolver's error.
    pub fn look_up(
        text: &str,
        port_default: Option<u16>,
        prefer: PreferredFamily,
    ) -> io::Result<Self> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        match BindSpec::parse(text, port_default) {
            Err(BindSpecError::BadAddress(_)) => {}
            other => return other.map_err(invalid),
        }
        let (name, port) = name_and_port(text.trim(), port_default).map_err(invalid)?;
        let mut known = (name, port).to_socket_addrs()?.collect::<Vec<_>>();
        // Stable: within a family the resolver's order counts.
        known.sort_by_key(|address| address.is_ipv6() != (prefer == PreferredFamily::V6));
        let first = known.first().ok_or_else(|| io::Error::other("the name has no address"))?;
        Ok(BindSpec::Inet(*first))
    }
}

/// Preferred family for a name with addresses of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferredFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Splits a host name and its port. A text of digits and dots is not a name: resolvers would turn
/// "81" into 0.0.0.81.
fn name_and_port(text: &str, port_default: Option<u16>) -> Result<(&str, u16), BindSpecError> {
    let bad = || BindSpecError::BadAddress(text.to_owned());
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    if !name.chars().all(allowed) || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let port = match (port, port_default) {
        (Some(port), _) => port.parse().map_err(|_| BindSpecError::BadPort(port.to_owned()))?,
        (None, Some(port)) => port,
        (None, None) => return Err(BindSpecError::NoPort),
    };
    Ok((name, port))
}

fn unix_path(text: &str) -> Option<&str> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    path.starts_with('/').then_some(path)
}

fn split_port(text: &str) -> Result<(IpAddr, Option<&str>), BindSpecError> {
    let bad = || BindSpecError::BadAddress(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(bad)?;
        let host = host.parse().map(IpAddr::V6).map_err(|_| bad())?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(bad()),
        };
    }
    let (host, port) = match text.split_once(':') {
        // An IPv6 address without brackets.
        Some((_, port)) if port.contains(':') => return Err(bad()),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    match host {
        "" | "*" => Ok((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
        _ => Ok((host.parse().map(IpAddr::V4).map_err(|_| bad())?, port)),
    }
}

impl FromStr for BindSpec {
    type Err = BindSpecError;

    fn from_str(text: &str) -> Result<Self, BindSpecError> {
        BindSpec::parse(text, None)
    }
}

impl fmt::Display for BindSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindSpec::Inet(address) => address.fmt(f),
            BindSpec::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_an_address() {
        let table = [
            ("127.0.0.1:80", "127.0.0.1:80"),
            (":8080", "0.0.0.0:8080"),
            ("*:0", "0.0.0.0:0"),
            (" [::1]:443 ", "[::1]:443"),
            ("[::]:65535", "[::]:65535"),
            ("/run/lighty.sock", "/run/lighty.sock"),
            ("unix:/run/lighty.sock", "/run/lighty.sock"),
        ];
        for (written, shown) in table {
            let spec: BindSpec =
                written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(spec.to_string(), shown);
        }
        let spec = BindSpec::parse("[::1]", Some(80)).expect("default port");
        assert_eq!(spec.to_string(), "[::1]:80");
        let spec = BindSpec::parse("10.0.0.1", Some(81)).expect("default port");
        assert_eq!(spec.to_string(), "10.0.0.1:81");
    }

    #[test]
    fn bad_listen_addresses_get_specific_errors() {
        let bad = |text: &str| BindSpecError::BadAddress(text.to_owned());
        let table = [
            ("", BindSpecError::Empty),
            ("127.0.0.1", BindSpecError::NoPort),
            ("127.0.0.1:", BindSpecError::BadPort(String::new())),
            (":65536", BindSpecError::BadPort("65536".to_owned())),
            ("::1:80", bad("::1:80")),
            ("localhost:80", bad("localhost:80")),
            ("[::1:80", bad("[::1:80")),
            ("[::1]80", bad("[::1]80")),
            ("[127.0.0.1]:80", bad("[127.0.0.1]:80")),
        ];
        for (written, error) in table {
            assert_eq!(written.parse::<BindSpec>(), Err(error), "{written}");
        }
    }

    #[test]
    fn the_path_limit_holds_at_n_and_n_plus_one() {
        let path = |bytes: usize| format!("/{}", "p".repeat(bytes - 1));
        assert!(path(UNIX_PATH_BYTES_MAX).parse::<BindSpec>().is_ok());
        let error = path(UNIX_PATH_BYTES_MAX + 1).parse::<BindSpec>().expect_err("too long");
        assert_eq!(error, BindSpecError::PathTooLong(108));
    }

    #[test]
    fn names_are_looked_up_and_numbers_are_none() {
        let look_up = |text: &str| BindSpec::look_up(text, Some(80), PreferredFamily::V4);
        let shown = |text: &str| look_up(text).expect(text).to_string();
        assert_eq!(shown("localhost:81"), "127.0.0.1:81");
        assert_eq!(shown("localhost"), "127.0.0.1:80");
        assert_eq!(shown(":81"), "0.0.0.0:81");
        let error_of = |text: &str| look_up(text).expect_err(text).to_string();
        for text in ["300.1.1.1:81", "81", "1.2.3.4.", "::1:80", "a b:80", "[localhost]:80", "."] {
            assert!(error_of(text).contains("is not an address"), "{}", error_of(text));
        }
        assert!(error_of("localhost:http").contains("\"http\" is not a port"));
        assert!(error_of("localhost:65536").contains("\"65536\" is not a port"));
        // A label has at most 63 characters: no name server is queried for this one.
        assert!(!error_of(&format!("{}:80", "x".repeat(64))).is_empty());
    }
}
