//! What load is made, and what is expected of the responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lighty_io::tls::{ClientOptions, ClientPolicy, Materials, TlsError};

use super::target::LoadUrl;

/// When no further request begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Until {
    /// After so many requests; `None`: whatever their number.
    pub requests: Option<u64>,
    /// After so long; `None`: however long it takes.
    pub duration: Option<Duration>,
}

/// What a response has to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Its status; `None`: 200 to 399.
    pub status: Option<u16>,
    /// The length of its body; `None`: the same as that of the first response for the URL, if
    /// `same` is set.
    pub length: Option<u64>,
    /// All responses for a URL have bodies of one length, or with `checksum` of one content.
    pub same: bool,
    /// Bodies are summed up, so that other content of the same length is found.
    pub checksum: bool,
}

/// A field as it stands in a head: its name and its value.
pub fn parse_field(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(':')?;
    let value = value.trim();
    lighty_fetch::is_field(name, value).then(|| (name.to_owned(), value.to_owned()))
}

/// What load is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// URLs, of which each request takes one at random; all of one server.
    pub urls: Vec<LoadUrl>,
    /// Connections at a time.
    pub connections: usize,
    /// Threads that share them.
    pub threads: usize,
    /// Requests a second, at fixed times; `None`: each connection asks again once it has its
    /// response.
    pub rate: Option<f64>,
    /// When it ends.
    pub until: Until,
    /// Before anything is counted.
    pub warm_up: Duration,
    /// How long a response may take.
    pub timeout: Duration,
    /// Whether connections are kept for further requests.
    pub keep_alive: bool,
    /// The method.
    pub method: String,
    /// Fields, each a name and a value.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// What is expected.
    pub expected: Expected,
    /// Over TLS: a file of trusted authorities; `None`: the system's.
    pub ca_file: Option<Arc<str>>,
    /// Over TLS: certificates are not verified.
    pub insecure: bool,
    /// Seed of the choice of URLs.
    pub seed: u64,
}

impl Options {
    /// A closed loop of one connection for one second.
    pub fn new(urls: Vec<LoadUrl>) -> Self {
        Self {
            urls,
            connections: 1,
            threads: 1,
            rate: None,
            until: Until { requests: None, duration: Some(Duration::from_secs(1)) },
            warm_up: Duration::ZERO,
            timeout: Duration::from_secs(60),
            keep_alive: true,
            method: "GET".to_owned(),
            fields: Vec::new(),
            body: Bytes::new(),
            expected: Expected::default(),
            ca_file: None,
            insecure: false,
            seed: 1,
        }
    }

    /// How TLS is spoken, if it is.
    pub(super) fn policy(&self, url: &LoadUrl) -> Result<Option<ClientPolicy>, TlsError> {
        if !url.tls {
            return Ok(None);
        }
        let options = ClientOptions {
            server_name: url.host.as_str().into(),
            ca_file: self.ca_file.clone(),
            is_verified: !self.insecure,
            pair: None,
            alpn: &["http/1.1"],
        };
        let materials = Materials::default();
        if let Some(file) = options.authorities() {
            materials.load_authorities(file)?;
        }
        ClientPolicy::new(&options, &materials).map(Some)
    }

    /// The requests of a thread's URLs, as they are sent.
    pub(super) fn requests(&self) -> Vec<Bytes> {
        self.urls.iter().map(|url| self.request(url)).collect()
    }

    fn request(&self, url: &LoadUrl) -> Bytes {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, url.target);
        let has =
            |name: &str| self.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        if !has("host") {
            text += &format!("Host: {}\r\n", url.authority);
        }
        if !has("user-agent") {
            text += concat!("User-Agent: lighty-load/", env!("CARGO_PKG_VERSION"), "\r\n");
        }
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.keep_alive {
            text += "Connection: close\r\n";
        }
        if !self.body.is_empty() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        let mut bytes = (text + "\r\n").into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_fields_that_are_given_and_those_it_needs() {
        let url = LoadUrl::parse("http://a.test:81/x?y").expect("a URL");
        let mut options = Options::new(vec![url]);
        options.method = "POST".to_owned();
        options.body = Bytes::from_static(b"abc");
        options.fields = vec![("Host".to_owned(), "b.test".to_owned())];
        options.keep_alive = false;
        let text = String::from_utf8(options.requests()[0].to_vec()).expect("text");
        assert!(text.starts_with("POST /x?y HTTP/1.1\r\nUser-Agent: lighty-load/"), "{text}");
        assert!(text.contains("\r\nHost: b.test\r\n") && text.matches("Host:").count() == 1);
        assert!(text.ends_with("Connection: close\r\nContent-Length: 3\r\n\r\nabc"), "{text}");
    }
}
