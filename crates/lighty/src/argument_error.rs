//! Malformed arguments of the command line.

/// Error in an argument: its valid forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgumentError {
    /// Not an address to listen on.
    #[error("expected PORT, ADDR:PORT, :PORT, [V6]:PORT or a path")]
    Listen,
    /// Not a backend's address.
    #[error(
        "expected HOST:PORT, :PORT, [V6]:PORT, http://HOST:PORT, https://HOST:PORT, \
         h2://HOST:PORT, unix:/path or srv:NAME"
    )]
    Backend,
    /// A backend's port without its colon.
    #[error("for a port of this machine, write :PORT")]
    BarePort,
    /// A backend's URL with a path.
    #[error("a backend has no path: requests keep theirs")]
    BackendPath,
    /// Not a user's name.
    #[error("expected NAME:PASSWORD or NAME, without control characters or a leading #")]
    User,
    /// Not the URL of a script's request.
    #[cfg(feature = "scripts")]
    #[error("expected http://HOST/PATH, https://HOST/PATH or /PATH")]
    Url,
    /// Not a header field.
    #[cfg(feature = "scripts")]
    #[error("expected NAME: VALUE")]
    Field,
    /// Not the access bits of a socket.
    #[cfg(feature = "tools")]
    #[error("expected access bits in octal, such as 0660")]
    Mode,
}
