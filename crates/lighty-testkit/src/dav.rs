//! A WebDAV client: requests with bodies, locks and properties.

use std::path::Path;

use crate::peer::ask;
use crate::response::Response;
use crate::server::{Server, Setup};

impl Setup {
    /// Serves the document root by WebDAV, with additional lines of configuration.
    #[must_use]
    pub fn webdav(self, lines: &str) -> Self {
        self.config(&format!("webdav.activate = \"enable\"\n{lines}"))
    }

    /// Like `webdav`, with a database beside the document root.
    #[must_use]
    pub fn webdav_with_database(self, lines: &str) -> Self {
        self.webdav(&format!("webdav.sqlite-db-name = \"@DIR@/dav.db\"\n{lines}"))
    }
}

/// Body of the request of [`lock`].
pub const LOCK_BODY: &str = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
    <D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>";

/// Sends one request with additional lines, each with its CRLF, and a body.
#[must_use]
pub fn request(server: &Server, method: &str, target: &str, lines: &str, body: &str) -> Response {
    let length = body.len();
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    );
    ask(server.connect(), &text)
}

/// Sends a request without a body and returns the status.
#[must_use]
pub fn status(server: &Server, method: &str, target: &str, lines: &str) -> u16 {
    let text = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    ask(server.connect(), &text).status
}

/// Sends a PUT and returns the status.
#[must_use]
pub fn put(server: &Server, target: &str, body: &str) -> u16 {
    request(server, "PUT", target, "", body).status
}

/// Requests an exclusive lock.
#[must_use]
pub fn lock(server: &Server, target: &str, lines: &str) -> Response {
    request(server, "LOCK", target, lines, LOCK_BODY)
}

/// The token of a granted lock.
#[must_use]
pub fn token_of(response: &Response) -> String {
    response.field("Lock-Token").expect("a token").to_owned()
}

/// Names in a directory, sorted.
#[must_use]
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// Sets a custom property of a resource.
#[must_use]
pub fn set_color(server: &Server, target: &str, color: &str) -> Response {
    let body = format!(
        "<propertyupdate xmlns='DAV:' xmlns:x='urn:x'><set><prop><x:color>{color}</x:color>\
         </prop></set></propertyupdate>"
    );
    request(server, "PROPPATCH", target, "", &body)
}

/// The property that [`set_color`] sets.
#[must_use]
pub fn color(server: &Server, target: &str) -> Option<String> {
    let body = "<propfind xmlns='DAV:'><prop><color xmlns='urn:x'/></prop></propfind>";
    let found = request(server, "PROPFIND", target, "Depth: 0\r\n", body);
    assert_eq!(found.status, 207);
    let (_, rest) = found.text().split_once(":color ")?;
    let (tag, rest) = rest.split_once('>')?;
    if tag.ends_with('/') {
        assert!(found.text().contains("404 Not Found"));
        return None;
    }
    rest.split_once("</").map(|(color, _)| color.to_owned())
}
