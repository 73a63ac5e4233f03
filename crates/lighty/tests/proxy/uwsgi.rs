//! uWSGI behind the server: one application over uwsgi, SCGI and HTTP.

use std::time::Duration;

use lighty_testkit::content::{chunked, pattern};
use lighty_testkit::lighty;
use lighty_testkit::real::Listen;
use lighty_testkit::real::uwsgi::Uwsgi;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::transfer::{self, Framing};

const APPLICATION: &str = r#"
import os, time

BLOCK = bytes(range(251)) * 256

def pieces(env):
    if env.get('HTTP_TRANSFER_ENCODING') == 'chunked':
        import uwsgi
        return iter(uwsgi.chunked_read, b'')
    return limited(env['wsgi.input'], int(env.get('CONTENT_LENGTH') or 0))

def limited(source, left):
    while left > 0:
        piece = source.read(min(left, len(BLOCK)))
        if not piece:
            return
        left -= len(piece)
        yield piece

def counted(env):
    count = 0
    for piece in pieces(env):
        at = count % 251
        if piece != (BLOCK + BLOCK)[at:at + len(piece)]:
            return 'wrong behind %d' % count
        count += len(piece)
    return str(count)

def made(left):
    while left > 0:
        yield BLOCK[:min(left, len(BLOCK))]
        left -= len(BLOCK)

def streamed(signal):
    yield b'first'
    while not os.path.exists(signal):
        time.sleep(0.002)
    yield b'second'

def application(env, start):
    path, query = env['PATH_INFO'], env['QUERY_STRING']
    text = [('Content-Type', 'text/plain')]
    def answer(body, status='200 OK', fields=text):
        start(status, fields + [('Content-Length', str(len(body)))])
        return [body]
    if path.startswith('/env'):
        told = ['%s=%s' % (k, v) for k, v in env.items() if isinstance(v, str)]
        return answer('\n'.join(told).encode('latin-1'))
    if path == '/mirror':
        return answer(b''.join(pieces(env)))
    if path == '/bulk' and env['REQUEST_METHOD'] == 'POST':
        return answer(counted(env).encode())
    if path == '/bulk':
        start('200 OK', text + [('Content-Length', query)])
        return made(int(query))
    if path == '/stream':
        start('200 OK', text)
        return streamed(query)
    if path == '/fails':
        raise RuntimeError('on purpose')
    return answer(b'nothing here', '404 Nothing', text + [('X-A', '1'), ('X-A', '2')])
"#;

/// The three ways to the application.
fn ways(uwsgi: &Uwsgi) -> [(&'static str, &Listen); 3] {
    [("uwsgi", &uwsgi.uwsgi), ("scgi", &uwsgi.scgi), ("http", &uwsgi.http)]
}

fn setup(protocol: &str, listen: &Listen) -> Setup {
    lighty!()
        .config(&format!("proxy-core.protocol = \"{protocol}\""))
        .config(&format!("proxy-core.backends = ( \"{}\" )", listen.backend()))
        .config("proxy-core.max-pool-size = 2")
}

/// Runs `test` for each protocol.
fn for_each(test: impl Fn(&str, Server)) {
    let Some(uwsgi) = Uwsgi::start(APPLICATION) else { return };
    for (protocol, listen) in ways(&uwsgi) {
        test(protocol, setup(protocol, listen).start());
    }
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_application_gets_the_request_as_it_was_sent() {
    for_each(|protocol, server| {
        let response = server.get_with("/env/a%20b?c=d%20e", "X-Word: hello\r\n");
        assert_eq!(response.status, 200, "{protocol}: {response:?}\n{}", server.log());
        let text = response.text();
        for (name, value) in [
            ("REQUEST_METHOD", "GET"),
            ("SCRIPT_NAME", ""),
            ("PATH_INFO", "/env/a b"),
            ("QUERY_STRING", "c=d%20e"),
            ("REQUEST_URI", "/env/a%20b?c=d%20e"),
            ("HTTP_X_WORD", "hello"),
            ("HTTP_HOST", "localhost"),
        ] {
            assert_eq!(line(text, name), Some(value), "{protocol}: {name} in {text}");
        }
        let peer = if protocol == "http" { "HTTP_X_FORWARDED_FOR" } else { "REMOTE_ADDR" };
        assert_eq!(line(text, peer), Some("127.0.0.1"), "{protocol}: {text}");
    });
}

#[test]
fn a_prefix_of_1_4_is_the_applications_name() {
    let Some(uwsgi) = Uwsgi::start(APPLICATION) else { return };
    let keys = uwsgi.scgi.host_keys();
    let other = uwsgi.uwsgi.host_keys();
    let server = lighty!()
        .config("scgi.protocol = \"scgi\"")
        .config(&format!(
            "scgi.server = ( \"/app\" => ( ( {keys}, \"check-local\" => \"disable\" ) ) )"
        ))
        .start();
    let text = server.get("/app/env/x?y");
    assert_eq!(line(text.text(), "SCRIPT_NAME"), Some("/app"), "{text:?}");
    assert_eq!(line(text.text(), "PATH_INFO"), Some("/env/x"), "{text:?}");
    let server = lighty!()
        .config("scgi.protocol = \"uwsgi\"")
        .config(&format!(
            "scgi.server = ( \"/\" => ( ( {other}, \"check-local\" => \"disable\", \
             \"fix-root-scriptname\" => \"enable\" ) ) )"
        ))
        .start();
    let text = server.get("/env/x?y");
    assert_eq!(line(text.text(), "SCRIPT_NAME"), Some(""), "{text:?}");
    assert_eq!(line(text.text(), "PATH_INFO"), Some("/env/x"), "{text:?}");
}

#[test]
fn bodies_go_there_and_back() {
    let large = pattern(5, 3 << 20);
    for_each(|protocol, server| {
        for body in [&large[..0], &large[..1], &large[..65_536], &large] {
            let framing = format!("Content-Length: {}", body.len());
            let back = server.post("/mirror", &framing, body);
            assert!(back == body, "{protocol}: {} of {} bytes", back.len(), body.len());
            let back = server.post("/mirror", "Transfer-Encoding: chunked", &chunked(body, 40_000));
            assert!(back == body, "{protocol}, chunked: {} of {}", back.len(), body.len());
        }
    });
}

#[test]
fn response_of_the_application_is_passed_on() {
    for_each(|protocol, server| {
        let response = server.get("/else");
        assert_eq!((response.status, response.text()), (404, "nothing here"), "{protocol}");
        assert_eq!(response.all("X-A").count(), 2, "{protocol}: {response:?}");
        let mut client = server.connect();
        client.send("HEAD /env HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.response_to_head();
        assert_eq!(head.status, 200, "{protocol}: {head:?}");
        client.send("GET /else HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "nothing here", "{protocol}");
    });
}

#[test]
fn an_application_that_fails_fails_alone() {
    for_each(|protocol, server| {
        if protocol == "http" {
            // There uWSGI waits for another request on the connection until its timeout.
            return;
        }
        for _ in 0..3 {
            // uWSGI sends nothing if an application fails before its head.
            let failed = server.get("/fails");
            assert!([500, 502].contains(&failed.status), "{protocol}: {failed:?}");
            assert_eq!(server.get("/env").status, 200, "{protocol}: {}", server.log());
        }
    });
}

#[test]
fn output_arrives_as_it_is_made() {
    for_each(|protocol, server| {
        let signal = server.root("go");
        let mut client = server.connect();
        let target = format!("/stream?{}", signal.display());
        client.send(format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response_head().status, 200, "{protocol}");
        assert_eq!(client.read_exact(5).as_deref(), Ok(&b"first"[..]), "{protocol}");
        assert!(client.stays_silent(Duration::from_millis(50)), "{protocol}");
        std::fs::write(signal, "").expect("a file");
        assert_eq!(client.read_to_end().0, b"second", "{protocol}");
    });
}

#[test]
fn large_bodies_take_no_memory() {
    let bytes = transfer::large();
    for_each(|protocol, server| {
        assert_eq!(server.get("/bulk?10").status, 200);
        transfer::in_constant_memory(&server, &format!("{protocol}, down"), || {
            transfer::download(&server, &format!("/bulk?{bytes}"), bytes);
        });
        transfer::in_constant_memory(&server, &format!("{protocol}, up"), || {
            let answer = transfer::upload(&server, "/bulk", bytes, Framing::Length);
            let wanted = (200, bytes.to_string());
            assert_eq!((answer.status, answer.text().to_owned()), wanted, "{protocol}");
        });
    });
}
