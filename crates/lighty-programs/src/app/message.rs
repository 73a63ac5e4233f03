//! Requests and responses of an application.

use lighty_wire::fastcgi::app::RequestDecoder;

/// A complete request.
pub struct ApplicationRequest<'a> {
    pub(super) decoder: &'a RequestDecoder,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> ApplicationRequest<'a> {
    /// A parameter. Of several with the same name, returns the first.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'a [u8]> {
        self.params().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }

    /// All parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.decoder.params()
    }
}

/// The response of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Head and body in CGI format (RFC 3875, section 6).
    pub output: Vec<u8>,
    /// Text for the server's error log.
    pub errors: Vec<u8>,
    /// The exit status that a CGI program would have.
    pub app_status: u32,
}

impl Response {
    /// An empty response with a CGI status line, such as `404 Not Found`.
    #[must_use]
    pub fn status(status: &str) -> Self {
        let output = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n").into_bytes();
        Self { output, ..Self::default() }
    }
}
