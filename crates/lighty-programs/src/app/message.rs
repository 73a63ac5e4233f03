//! A request as an application sees it, and its response.

use lighty_wire::fastcgi::app::RequestDecoder;

/// A complete request.
pub struct Request<'a> {
    pub(super) decoder: &'a RequestDecoder,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A parameter; of several with one name the first.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'a [u8]> {
        self.params().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }

    /// All parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.decoder.params()
    }
}

/// What an application answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Head and body, as of a CGI program (RFC 3875, section 6).
    pub output: Vec<u8>,
    /// For the server's error log.
    pub errors: Vec<u8>,
    /// The exit status that a CGI program would have had.
    pub app_status: u32,
}

impl Response {
    /// An empty response with a status line of CGI, such as `404 Not Found`.
    #[must_use]
    pub fn status(status: &str) -> Self {
        let output = format!("Status: {status}\r\nContent-Type: text/plain\r\n\r\n").into_bytes();
        Self { output, ..Self::default() }
    }
}
