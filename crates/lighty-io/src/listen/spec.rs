//! Addresses as they are written in a configuration.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BindSpec {
    /// An internet address with its port; port 0 lets the kernel choose.
    Inet(SocketAddr),
    /// The path of a unix socket.
    Unix(PathBuf),
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindSpecError {
    /// Nothing was written.
    Empty,
    /// No port behind the address.
    NoPort,
    /// The port is not a number up to 65535.
    BadPort(String),
    /// Neither an IPv4 address, nor an IPv6 address in brackets. Names are not looked up here.
    BadAddress(String),
    /// sun_path has 108 bytes, one of which ends it.
    PathTooLong(usize),
}

/// unix(7): 108 bytes with the final zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

impl BindSpec {
    /// Reads `addr:port`, `:port`, `*:port`, `[v6]:port`, `/path` or `unix:/path`. An address
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

impl fmt::Display for BindSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindSpecError::Empty => write!(f, "the address is empty"),
            BindSpecError::NoPort => write!(f, "the address has no port"),
            BindSpecError::BadPort(port) => write!(f, "\"{port}\" is not a port (0 to 65535)"),
            BindSpecError::BadAddress(text) => write!(
                f,
                "\"{text}\" is not an address: expected 1.2.3.4:80, :80, [::1]:80 or /path"
            ),
            BindSpecError::PathTooLong(bytes) => write!(
                f,
                "the path of a unix socket has at most {UNIX_PATH_BYTES_MAX} bytes, not {bytes}"
            ),
        }
    }
}

impl std::error::Error for BindSpecError {}

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
    fn what_is_wrong_is_said() {
        let bad = |text: &str| BindSpecError::BadAddress(text.to_owned());
        let table = [
            ("", BindSpecError::Empty),
            ("127.0.0.1", BindSpecError::NoPort),
            ("127.0.0.1:", BindSpecError::BadPort(String::new())),
            (":65536", BindSpecError::BadPort("65536".to_owned())),
            ("::1:80", BindSpecError::BadPort(":1:80".to_owned())),
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
}
