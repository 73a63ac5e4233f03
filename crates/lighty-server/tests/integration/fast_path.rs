//! The fast path responds like the general walk, for each pair of a configuration and a request.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lighty_core::module::{Acts, Hooks, Module, Step, Traits};
use lighty_core::pipeline::phase::Phase;
use lighty_core::{Exchange, Settings};
use lighty_testkit::client::Client;

use crate::harness;

/// Counts requests, and those on the general walk, where its hook is called.
#[derive(Clone, Default)]
struct Counter {
    served: Arc<AtomicUsize>,
    walked: Arc<AtomicUsize>,
}

impl Module for Counter {
    fn name(&self) -> &'static str {
        "mod_counter"
    }

    fn traits(&self) -> Traits {
        let hooks = Hooks { raw_url: true, done: true, ..Hooks::default() };
        Traits { hooks, acts_seldom: true, ..Traits::default() }
    }

    fn directives() -> Vec<lighty_config::Directive<Settings>> {
        Vec::new()
    }

    fn acts(&self, _phase: Phase, _ex: &Exchange) -> Acts {
        Acts::Never
    }

    fn raw_url<'a>(&'a self, _ex: &'a mut Exchange) -> Step<'a> {
        self.walked.fetch_add(1, Ordering::SeqCst);
        Step::Next
    }

    fn done(&self, _ex: &Exchange) {
        self.served.fetch_add(1, Ordering::SeqCst);
    }
}

/// Passes every request on, and so keeps each from the fast path.
struct Obstacle;

impl Module for Obstacle {
    fn name(&self) -> &'static str {
        "mod_obstacle"
    }

    fn traits(&self) -> Traits {
        Hooks { found: true, ..Hooks::default() }.into()
    }

    fn directives() -> Vec<lighty_config::Directive<Settings>> {
        Vec::new()
    }
}

const CONFIGS: &[&str] = &[
    "",
    "setenv.add-response-header = ( \"X-A\" => \"b\" )\n\
     expire.url = ( \"/page\" => \"access plus 1 days\" )",
    "setenv.set-response-header = ( \"ETag\" => \"\\\"own\\\"\" )",
    "setenv.add-request-header = ( \"X-In\" => \"1\" )\n\
     $REQUEST_HEADER[\"X-In\"] == \"1\" { setenv.add-response-header = ( \"X-Saw\" => \"it\" ) }",
    "deflate.mimetypes = ( \"text/\" )\ndeflate.allowed-encodings = ( \"gzip\" )",
    "$HTTP[\"url\"] =~ \"\\.html$\" { setenv.add-response-header = ( \"X-Html\" => \"1\" ) }\n\
     $PHYSICAL[\"path\"] =~ \"secret\" { url.access-deny = ( \"\" ) }",
    "url.access-deny = ( \".inc\" )\nstatic-file.exclude-extensions = ( \".txt\" )",
    "server.error-handler-404 = \"/page.html\"\nserver.range-requests = \"disable\"",
    "cors.allow-origins = ( \"https://a.example\" )\nstatus.status-url = \"/a.txt\"",
    "server.force-lowercase-filenames = \"enable\"\nstatic-file.etags = \"disable\"",
    "url.rewrite-once = ( \"^/old/(.*)\" => \"/$1\" )\nurl.redirect = ( \"^/gone\" => \"/\" )",
    "ssi.extension = ( \".shtml\" )\nflv-streaming.extensions = ( \".flv\" )",
    "index-file.names = ( \"index.html\" )\ndir-listing.activate = \"enable\"\n\
     server.follow-symlink = \"disable\"",
    "static-file.disable-pathinfo = \"enable\"\netag.use-mtime = \"disable\"\n\
     chunkqueue.debug = \"disable\"",
    "usertrack.cookie-name = \"u\"\ntiming.header = \"enable\"",
];

const PATHS: &[&str] = &[
    "/page.html",
    "/page.html?x=1",
    "/%70age.html",
    "/PAGE.html",
    "/page.html/info",
    "/a.txt",
    "/x.inc",
    "/empty",
    "/secret.html",
    "/old/page.html",
    "/part.shtml",
    "/film.flv",
    "/film.flv?start=2",
    "/link.html",
    "/dir",
    "/dir/",
    "/missing",
];

const REQUESTS: &[(&str, &str)] = &[
    ("GET", ""),
    ("HEAD", ""),
    ("GET", "If-None-Match: *\r\n"),
    ("GET", "If-None-Match: \"own\"\r\n"),
    ("GET", "If-Match: \"other\"\r\n"),
    ("GET", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n"),
    ("GET", "If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT\r\n"),
    ("GET", "Range: bytes=1-3\r\n"),
    ("GET", "Range: bytes=-2\r\n"),
    ("GET", "Range: bytes=99999-\r\n"),
    ("GET", "Range: bytes=0-3\r\nIf-Range: \"other\"\r\n"),
    ("GET", "Accept-Encoding: gzip\r\n"),
    ("HEAD", "Accept-Encoding: gzip\r\nRange: bytes=0-0\r\n"),
    ("GET", "Origin: https://a.example\r\n"),
    ("OPTIONS", "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n"),
    ("GET", "Content-Length: 3\r\n"),
    ("POST", "Content-Length: 3\r\n"),
    ("DELETE", ""),
];

fn site(root: &Path) {
    let page = "<p>A line of a page that compresses.</p>\n".repeat(60);
    for (name, text) in [
        ("page.html", &*page),
        ("a.txt", "a text of some bytes"),
        ("x.inc", "source"),
        ("empty", ""),
        ("secret.html", "hidden"),
        ("part.shtml", "a <!--#echo var=\"DOCUMENT_URI\" --> b"),
        ("film.flv", "FLV-film"),
    ] {
        std::fs::write(root.join(name), text).expect("a file");
    }
    std::fs::create_dir(root.join("dir")).expect("a directory");
    std::fs::write(root.join("dir/index.html"), "an index").expect("a file");
    std::os::unix::fs::symlink("a.txt", root.join("link.html")).expect("a link");
}

/// Returns the response without what differs from one second to the next: dates, the cookie, times,
/// and pages that a server generates (`generated`, and those of errors, which have a number).
fn response(
    server: SocketAddr,
    (method, path, fields): (&str, &str, &str),
    generated: bool,
) -> Vec<u8> {
    let mut client = Client::tcp(server);
    let body = if fields.contains("Content-Length") { "abc" } else { "" };
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{fields}\r\n{body}"
    ));
    let bytes = client.read_to_end().0;
    let generated =
        generated || bytes.starts_with(b"HTTP/1.1 4") || bytes.starts_with(b"HTTP/1.1 5");
    let varies = |line: &[u8]| {
        [&b"Date:"[..], b"Expires:", b"Set-Cookie:", b"Server-Timing:"]
            .iter()
            .any(|name| line.starts_with(name))
            || generated && line.starts_with(b"Content-Length:")
    };
    let mut kept: Vec<u8> = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        // The name of the field is compared, the value is not.
        let end = if varies(line) { line.iter().position(|b| *b == b':') } else { None };
        kept.extend_from_slice(&line[..end.unwrap_or(line.len())]);
        if generated && line == b"\r\n" {
            break;
        }
    }
    kept
}

#[test]
fn fast_path_responds_like_the_walk() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("secret-free");
    std::fs::create_dir(&root).expect("a directory");
    site(&root);
    let (mut differences, fast) = (Vec::new(), Counter::default());
    for config in CONFIGS {
        let text = format!("server.document-root = \"{}\"\n{config}\n", root.display());
        let counter = fast.clone();
        let quick = harness::start(Vec::new(), &text, move |config| {
            harness::built_in(config).followed_by(&[Rc::new(counter)])
        });
        let walking = harness::start(Vec::new(), &text, |config| {
            harness::built_in(config).followed_by(&[Rc::new(Obstacle)])
        });
        for path in PATHS {
            // The file is known from here on.
            response(quick, ("GET", path, ""), false);
            let generated = config.contains(&format!("status-url = \"{path}\""));
            for (method, fields) in REQUESTS {
                let request = (*method, *path, *fields);
                let [ours, theirs] =
                    [quick, walking].map(|server| response(server, request, generated));
                if ours != theirs {
                    let [ours, theirs] = [ours, theirs].map(|r| r.escape_ascii().to_string());
                    differences.push(format!(
                        "{config}\n{method} {path} {fields}\nfast: {ours}\nwalk: {theirs}\n"
                    ));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}\n{}", differences.len(), differences.join("\n"));
    let served = fast.served.load(Ordering::SeqCst);
    let walked = fast.walked.load(Ordering::SeqCst);
    assert!(served - walked > served / 10, "only {served} - {walked} on the fast path");
}
