//! Options of the load, and expectations on responses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lighty_http::Fields;
use lighty_io::tls::{ClientOptions, ClientPolicy, Materials, TlsError};

use super::dial::ALPN_H2;
use super::target::LoadUrl;

const USER_AGENT: &str = concat!("lighty-load/", env!("CARGO_PKG_VERSION"));

fn is_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("host")
}

/// Limits after which no further request begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Until {
    /// Maximum number of counted requests; `None`: unlimited.
    pub requests: Option<u64>,
    /// Maximum duration, without the warm-up; `None`: unlimited.
    pub duration: Option<Duration>,
}

/// Expectations on a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The status; `None`: 200 to 399.
    pub status: Option<u16>,
    /// The length of the body; `None`: that of the first response for the URL, if `same` is set.
    pub length: Option<u64>,
    /// All responses for a URL have bodies of the same length, or with `checksum` the same content.
    pub same: bool,
    /// Bodies are summed, to detect other content of the same length.
    pub checksum: bool,
}

/// Parses a header line into name and value.
pub fn parse_field(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once(':')?;
    let value = value.trim();
    lighty_fetch::is_field(name, value).then(|| (name.to_owned(), value.to_owned()))
}

/// Options of `lighty load`.
#[derive(Clone, Debug)]
pub struct LoadTestOptions {
    /// URLs, one of which is chosen at random for each request; all of one server.
    pub urls: Vec<LoadUrl>,
    /// Number of connections.
    pub connections: usize,
    /// Number of threads that share them.
    pub threads: usize,
    /// Requests per second, at fixed times; `None`: each connection sends the next request after
    /// its response.
    pub rate: Option<f64>,
    /// When to stop.
    pub until: Until,
    /// Time before counting starts.
    pub warm_up: Duration,
    /// Time limit of a response.
    pub timeout: Duration,
    /// Use HTTP/2: chosen by ALPN over TLS, else with prior knowledge.
    pub http2: bool,
    /// For HTTP/2: concurrent requests on each connection.
    pub streams: usize,
    /// The server's unix socket (`@name`: an abstract one).
    pub unix_socket: Option<PathBuf>,
    /// Keep connections for further requests.
    pub keep_alive: bool,
    /// The request method.
    pub method: String,
    /// Request fields, each a name and a value.
    pub fields: Vec<(String, String)>,
    /// The request body.
    pub body: Bytes,
    /// Expectations on responses.
    pub expected: Expected,
    /// For TLS: a file of trusted authorities; `None`: the system's.
    pub ca_file: Option<Arc<str>>,
    /// For TLS: do not verify certificates.
    pub insecure: bool,
    /// Seed for the choice of URLs.
    pub seed: u64,
}

impl LoadTestOptions {
    /// Options for a closed loop of one connection for one second.
    pub fn new(urls: Vec<LoadUrl>) -> Self {
        Self {
            urls,
            connections: 1,
            threads: 1,
            rate: None,
            until: Until { requests: None, duration: Some(Duration::from_secs(1)) },
            warm_up: Duration::ZERO,
            timeout: Duration::from_secs(60),
            http2: false,
            streams: 1,
            unix_socket: None,
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

    /// The TLS policy, if the URL uses TLS.
    pub(super) fn policy(&self, url: &LoadUrl) -> Result<Option<ClientPolicy>, TlsError> {
        if !url.tls {
            return Ok(None);
        }
        let options = ClientOptions {
            server_name: url.host.as_str().into(),
            ca_file: self.ca_file.clone(),
            is_verified: !self.insecure,
            pair: None,
            alpn: if self.http2 { &[ALPN_H2, "http/1.1"] } else { &["http/1.1"] },
        };
        let materials = Materials::default();
        if let Some(file) = options.authorities() {
            materials.load_authorities(file)?;
        }
        ClientPolicy::new(&options, &materials).map(Some)
    }

    /// The encoded HTTP/1.1 requests for the URLs.
    pub(super) fn requests(&self) -> Vec<Bytes> {
        self.urls.iter().map(|url| self.request(url)).collect()
    }

    /// The HTTP/2 request fields for the URLs.
    pub(super) fn http2_fields(&self) -> Vec<Fields> {
        self.urls.iter().map(|url| self.fields_for(url)).collect()
    }

    fn fields_for(&self, url: &LoadUrl) -> Fields {
        let mut fields = Fields::new();
        if !self.has("user-agent") {
            fields.push(b"user-agent", USER_AGENT.as_bytes());
        }
        if let Some(credentials) = self.credentials(url) {
            fields.push(b"authorization", credentials.as_bytes());
        }
        for (name, value) in self.fields.iter().filter(|(name, _)| !is_host(name)) {
            fields.push(name.to_ascii_lowercase().as_bytes(), value.as_bytes());
        }
        if !self.body.is_empty() && !self.has("content-length") {
            fields.push(b"content-length", self.body.len().to_string().as_bytes());
        }
        fields
    }

    /// The host for requests to a URL.
    pub(super) fn authority<'a>(&'a self, url: &'a LoadUrl) -> &'a str {
        let given = self.fields.iter().find(|(name, _)| is_host(name));
        given.map_or(&*url.authority, |(_, value)| value)
    }

    /// The `Authorization` value from a URL's name and password, unless the field is already set.
    fn credentials<'a>(&self, url: &'a LoadUrl) -> Option<&'a str> {
        url.credentials.as_deref().filter(|_| !self.has("authorization"))
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    fn request(&self, url: &LoadUrl) -> Bytes {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, url.target);
        if !self.has("host") {
            text += &format!("Host: {}\r\n", url.authority);
        }
        if !self.has("user-agent") {
            text += &format!("User-Agent: {USER_AGENT}\r\n");
        }
        if let Some(credentials) = self.credentials(url) {
            text += &format!("Authorization: {credentials}\r\n");
        }
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        if !self.keep_alive {
            text += "Connection: close\r\n";
        }
        if !self.body.is_empty() && !self.has("content-length") {
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
        let mut options = LoadTestOptions::new(vec![url]);
        options.method = "POST".to_owned();
        options.body = Bytes::from_static(b"abc");
        options.fields = vec![("Host".to_owned(), "b.test".to_owned())];
        options.keep_alive = false;
        let text = String::from_utf8(options.requests()[0].to_vec()).expect("text");
        assert!(text.starts_with("POST /x?y HTTP/1.1\r\nUser-Agent: lighty-load/"), "{text}");
        assert!(text.contains("\r\nHost: b.test\r\n") && text.matches("Host:").count() == 1);
        assert!(text.ends_with("Connection: close\r\nContent-Length: 3\r\n\r\nabc"), "{text}");
    }

    #[test]
    fn name_and_password_of_a_url_are_a_field_unless_there_is_one() {
        let urls = ["http://a.test/", "http://u:p@a.test/"].map(LoadUrl::parse);
        let mut options = LoadTestOptions::new(urls.into_iter().flatten().collect());
        for own in [None, Some(("authorization".to_owned(), "Bearer x".to_owned()))] {
            options.fields = own.into_iter().collect();
            let wanted = match options.fields.is_empty() {
                true => [None, Some("Basic dTpw")],
                false => [Some("Bearer x"); 2],
            };
            let (requests, fields) = (options.requests(), options.http2_fields());
            for (at, wanted) in wanted.into_iter().enumerate() {
                let text = String::from_utf8_lossy(&requests[at]).to_ascii_lowercase();
                let line = text.lines().find_map(|line| line.strip_prefix("authorization: "));
                assert_eq!(line, wanted.map(str::to_ascii_lowercase).as_deref());
                let value = fields[at].get_named(b"authorization");
                assert_eq!(value, wanted.map(str::as_bytes));
            }
        }
    }
}
