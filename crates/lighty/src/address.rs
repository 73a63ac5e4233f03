//! Addresses on the command line.

use crate::argument_error::ArgumentError;

/// Checks an address to listen on, for the command line.
pub(crate) fn listen(text: &str) -> Result<String, ArgumentError> {
    split(text).map(|_| text.to_owned()).ok_or(ArgumentError::Listen)
}

/// Checks the form of a backend's address, for the command line.
pub(crate) fn backend(text: &str) -> Result<String, ArgumentError> {
    let is_path = text.starts_with("unix:") || text.starts_with('/');
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = authority.trim_end_matches('/');
    let has_space = text.contains(|c: char| c.is_whitespace() || c.is_control());
    let port = authority.rsplit_once(':').filter(|(host, _)| !host.contains(':')).map(|(_, p)| p);
    let is_port_wrong = |port: &str| !text.starts_with("srv:") && port.parse::<u16>().is_err();
    if authority.is_empty() || !is_path && (has_space || port.is_some_and(is_port_wrong)) {
        return Err(ArgumentError::Backend);
    }
    // A bare number is a port without its colon.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ArgumentError::BarePort);
    }
    let is_url_of_http = text.starts_with("http://") || text.starts_with("https://");
    if is_url_of_http && authority.contains('/') {
        return Err(ArgumentError::BackendPath);
    }
    Ok(text.to_owned())
}

/// Checks a user's name, with an optional password after a colon, for the command line.
pub(crate) fn user(text: &str) -> Result<String, ArgumentError> {
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    let has_control = text.contains(|c: char| c.is_control());
    if name.is_empty() || name.starts_with('#') || has_control {
        return Err(ArgumentError::User);
    }
    Ok(text.to_owned())
}

/// Splits an address to listen on into host (or path) and port; `None` if it is invalid.
pub(crate) fn split(listen: &str) -> Option<(&str, u16)> {
    if listen.starts_with('/') {
        return Some((listen, 80));
    }
    if listen.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(("127.0.0.1", listen.parse().ok()?));
    }
    let (host, port) = listen.rsplit_once(':')?;
    let is_clear = !host.contains(':') || host.ends_with(']');
    Some((host, port.parse().ok().filter(|_| is_clear)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_split() {
        assert_eq!(split("127.0.0.1:8080"), Some(("127.0.0.1", 8080)));
        assert_eq!(split(":81"), Some(("", 81)));
        assert_eq!(split("8080"), Some(("127.0.0.1", 8080)));
        assert_eq!(split("70000"), None);
        assert_eq!(split(""), None);
        assert_eq!(split("[::1]:82"), Some(("[::1]", 82)));
        assert_eq!(split("/run/x.sock"), Some(("/run/x.sock", 80)));
        assert_eq!(split("::1"), None);
        assert_eq!(split("host"), None);
        assert_eq!(split("host:70000"), None);
    }

    #[test]
    fn backends_are_checked_at_first_sight() {
        for good in
            ["a", "a:1", ":3000", "[::1]:80", "http://a/", "https://a:443", "srv:_x.a", "unix:/a b"]
        {
            assert!(backend(good).is_ok(), "{good}");
        }
        for bad in
            ["", "a b", "a:99999", ":x", "http://", "http://a:0x/", "99999", "80", "http://a/b"]
        {
            assert!(backend(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn users_have_a_name() {
        for good in ["a", "a:b", "a:", "a:b:c", "ä:ö"] {
            assert!(user(good).is_ok(), "{good}");
        }
        for bad in ["", ":b", "#a:b", "a:b\n", "a\u{0}"] {
            assert!(user(bad).is_err(), "{bad}");
        }
    }
}
