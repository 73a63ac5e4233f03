//! HTTP clients of other platforms, over HTTP/2 and HTTP/1.1.

use lighty_testkit::content::pattern;
use lighty_testkit::lighty;
use lighty_testkit::real::clients::{Platform, requests};
use lighty_testkit::tls::Authority;

const LARGE_BYTES: usize = 5 << 20;

/// Output of a client after a run without failures.
fn expected(platform: Platform, hash: u32) -> Vec<String> {
    let version = if platform == Platform::Fetch { "HTTP/1" } else { "HTTP/2" };
    let lines = [
        &format!("get: {version} 200 hello"),
        "validated: 304",
        &format!("head: 200 {LARGE_BYTES}"),
        &format!("large: 200 {LARGE_BYTES} {hash}"),
        "many: 100",
        "upload: 200 7340032",
        "streamed: 200 7340032",
        "expected: 200 10",
        "refused: 404",
        "cancelled: hello",
        "cut: hello",
    ];
    // The fetch API does not support Expect.
    let has = |line: &&&str| platform != Platform::Fetch || !line.starts_with("expected");
    lines.iter().filter(has).map(|line| (*line).to_owned()).collect()
}

fn hash(content: &[u8]) -> u32 {
    content.iter().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

/// The series of requests succeeds, over HTTP/2 on one connection.
fn assert_served(platform: Platform) {
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("server.pem", &["127.0.0.1"]);
    let pem = authority.path("server.pem");
    let large = pattern(7, LARGE_BYTES);
    let hash = hash(&large);
    let mut setup = setup
        .file("hello.txt", "hello")
        .file("large", large)
        .file("up.cgi", "n=$(wc -c); printf 'Content-Type: text/plain\\n\\n%s' \"$n\"\n")
        .file("early.cgi", "printf 'Content-Type: text/plain\\n\\n\\n'; wc -c\n")
        .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )\nserver.errorlog-level = \"info\"")
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%{remote}p %H\"");
    let is_fetch = platform == Platform::Fetch;
    if !is_fetch {
        setup =
            setup.config(&format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"", pem.display()));
    }
    let mut server = setup.start();
    let scheme = if is_fetch { "http" } else { "https" };
    let url = format!("{scheme}://{}", server.address());
    let Some(output) = requests(platform, &url, &authority.path("ca.pem")) else { return };
    assert_eq!(output, expected(platform, hash), "{}", server.log());
    server.stop();
    let log = std::fs::read_to_string(server.directory().join("access.log")).expect("a log");
    let mut connections: Vec<&str> = log.lines().collect();
    connections.sort_unstable();
    connections.dedup();
    assert!(is_fetch || connections.len() == 1, "{connections:?}");
    assert!(is_fetch || connections[0].ends_with("HTTP/2.0"), "{connections:?}");
}

#[test]
fn go_is_served() {
    assert_served(Platform::Go);
}

#[test]
fn node_is_served_over_http2() {
    assert_served(Platform::Node);
}

#[test]
fn node_is_served_by_fetch() {
    assert_served(Platform::Fetch);
}

#[test]
fn java_is_served() {
    assert_served(Platform::Java);
}
