//! `mod_deflate`: every coding with every kind of body, and HTTP's requirements for content coding.

mod codings;
mod kept;
mod memory;
mod streams;

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

const CODINGS: [&str; 5] = ["gzip", "deflate", "br", "zstd", "bzip2"];

/// A text of this length that compresses well.
fn text(length: usize) -> String {
    let mut out = String::new();
    let mut line = 0;
    while out.len() < length {
        out.push_str(&format!("<li><a href=\"/page/{line}\">number {line}</a> and so on</li>\n"));
        line += 1;
    }
    out.truncate(length);
    out
}

fn decode(coding: &str, mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).map(|_| ()),
        "deflate" => flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out).map(|_| ()),
        "bzip2" => bzip2::read::BzDecoder::new(bytes).read_to_end(&mut out).map(|_| ()),
        "zstd" => zstd::stream::copy_decode(bytes, &mut out),
        "br" => brotli::BrotliDecompress(&mut bytes, &mut out),
        other => panic!("{other}?"),
    };
    read.unwrap_or_else(|error| panic!("{coding}: {error}"));
    out
}

fn plain(response: &Response) -> Vec<u8> {
    match response.field("Content-Encoding") {
        Some(coding) => decode(coding, &response.body),
        None => response.body.clone(),
    }
}

fn accepting(server: &Server, target: &str, accept: &str) -> Response {
    server.get_with(target, &format!("Accept-Encoding: {accept}\r\n"))
}

fn setup() -> Setup {
    lighty!()
        .config(
            "deflate.mimetypes = ( \"text/\" )\ndir-listing.activate = \"enable\"\n\
             mimetype.assign = ( \".html\" => \"text/html\", \".jpg\" => \"image/jpeg\" )",
        )
        .file("small.html", text(600))
        .file("middle.html", text(30_000))
        .file("large.html", text(700_000))
        .file("tiny.html", text(255))
        .file("just.html", text(256))
        .file("a.jpg", text(5000))
}

/// Sends a HEAD request with the header lines `lines`.
fn head(server: &Server, target: &str, lines: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n"));
    client.response_to_head()
}

/// Backend that responds to the only request of each connection.
struct OneResponseBackend {
    address: SocketAddr,
}

impl OneResponseBackend {
    fn start(answer: impl Fn(&str, &mut std::net::TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
                let mut request = Vec::new();
                let started = Instant::now();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).is_err() || started.elapsed().as_secs() > 20 {
                        break;
                    }
                    request.push(byte[0]);
                }
                if !request.is_empty() {
                    answer(&String::from_utf8_lossy(&request), &mut stream);
                }
            }
        });
        Self { address }
    }

    /// Routes requests beneath a path to this backend.
    fn route(&self, path: &str) -> String {
        format!(
            "proxy.server = ( \"{path}\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {} ) ) )",
            self.address.port()
        )
    }
}
