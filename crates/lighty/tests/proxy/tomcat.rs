//! Tomcat behind the server, over AJP13.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lighty_testkit::content::{chunked, pattern};
use lighty_testkit::lighty;
use lighty_testkit::real::Listen;
use lighty_testkit::real::tomcat::Tomcat;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;
use lighty_testkit::transfer::{self, Framing};

const SERVLET: &str = r#"
import jakarta.servlet.http.*;
import java.io.*;
import java.nio.file.*;
import java.util.*;

public class It extends HttpServlet {
    static final byte[] BLOCK = new byte[251 * 256];
    static { for (int at = 0; at < BLOCK.length; at++) BLOCK[at] = (byte) (at % 251); }

    @Override
    protected void service(HttpServletRequest ask, HttpServletResponse answer) throws IOException {
        answer.setContentType("text/plain");
        OutputStream out = answer.getOutputStream();
        switch (ask.getRequestURI()) {
            case "/mirror" -> ask.getInputStream().transferTo(out);
            case "/ignores" -> out.write("not read".getBytes());
            case "/bulk" -> { if (ask.getMethod().equals("POST")) count(ask, out); else make(ask, answer); }
            case "/stream" -> stream(ask, out);
            case "/fails" -> throw new IOException("on purpose");
            case "/cookies" -> { answer.addHeader("X-A", "1"); answer.addHeader("X-A", "2"); answer.setStatus(418); }
            default -> tell(ask, out);
        }
    }

    void tell(HttpServletRequest ask, OutputStream out) throws IOException {
        PrintStream to = new PrintStream(out);
        to.println("method=" + ask.getMethod());
        to.println("uri=" + ask.getRequestURI());
        to.println("query=" + ask.getQueryString());
        to.println("protocol=" + ask.getProtocol());
        to.println("remote=" + ask.getRemoteAddr());
        to.println("port=" + ask.getRemotePort());
        to.println("server=" + ask.getServerName() + ":" + ask.getServerPort());
        to.println("secure=" + ask.isSecure());
        to.println("cipher=" + ask.getAttribute("jakarta.servlet.request.cipher_suite"));
        to.println("bits=" + ask.getAttribute("jakarta.servlet.request.key_size"));
        Object certificates = ask.getAttribute("jakarta.servlet.request.X509Certificate");
        if (certificates instanceof java.security.cert.X509Certificate[] all)
            to.println("certificate=" + all[0].getSubjectX500Principal());
        for (String name : Collections.list(ask.getHeaderNames()))
            for (String value : Collections.list(ask.getHeaders(name)))
                to.println(name.toLowerCase() + ": " + value);
        to.flush();
    }

    void count(HttpServletRequest ask, OutputStream out) throws IOException {
        InputStream in = ask.getInputStream();
        long count = 0;
        for (byte[] piece = in.readNBytes(BLOCK.length); piece.length > 0; piece = in.readNBytes(BLOCK.length)) {
            if (!Arrays.equals(piece, 0, piece.length, BLOCK, 0, piece.length)) count += 1L << 60;
            count += piece.length;
        }
        out.write(Long.toString(count).getBytes());
    }

    void make(HttpServletRequest ask, HttpServletResponse answer) throws IOException {
        long left = Long.parseLong(ask.getQueryString());
        answer.setContentLengthLong(left);
        for (; left > 0; left -= BLOCK.length)
            answer.getOutputStream().write(BLOCK, 0, (int) Math.min(left, BLOCK.length));
    }

    void stream(HttpServletRequest ask, OutputStream out) throws IOException {
        out.write("first".getBytes());
        out.flush();
        while (!Files.exists(Path.of(ask.getQueryString()))) {
            try { Thread.sleep(2); } catch (InterruptedException over) { return; }
        }
        out.write("second".getBytes());
    }
}
"#;

/// The tests share one Tomcat while any of them runs: it is slow to start.
static SHARED: Mutex<Weak<Tomcat>> = Mutex::new(Weak::new());

fn tomcat() -> Option<Arc<Tomcat>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = shared.upgrade() {
        return Some(running);
    }
    let started = Arc::new(Tomcat::start("It", SERVLET, "hush")?);
    *shared = Arc::downgrade(&started);
    Some(started)
}

fn setup(listen: &Listen, secret: &str) -> Setup {
    lighty!()
        .config("proxy-core.protocol = \"ajp13\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", listen.backend()))
        .config(&format!("proxy-core.ajp-secret = \"{secret}\""))
        .config("proxy-core.max-pool-size = 4")
}

#[test]
fn a_servlet_gets_the_request_as_it_was_sent() {
    let Some(tomcat) = tomcat() else { return };
    let server = setup(tomcat.listen(), "hush").start();
    let response = server.get_with(
        "/where/a%20b?c=d%20e",
        "X-Word: hello\r\nX-Word: again\r\nCookie: a=b\r\nAccept: text/plain\r\n",
    );
    assert_eq!(response.status, 200, "{response:?}\n{}", server.log());
    let text = response.text();
    let port = server.address().port();
    for wanted in [
        "method=GET",
        "uri=/where/a%20b",
        "query=c=d%20e",
        "protocol=HTTP/1.1",
        "remote=127.0.0.1",
        "secure=false",
        "x-word: hello",
        "x-word: again",
        "cookie: a=b",
        "accept: text/plain",
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted} in {text}");
    }
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: shop.example:{port}\r\n\r\n"));
    let text = client.response();
    assert!(text.text().contains(&format!("server=shop.example:{port}\n")), "{text:?}");
}

#[test]
fn a_servlet_learns_of_the_tls_of_its_client() {
    let Some(tomcat) = tomcat() else { return };
    let setup = setup(tomcat.listen(), "hush").config(
        "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n\
         ssl.verifyclient.activate = \"enable\"\nssl.verifyclient.ca-file = \"@DIR@/ca.pem\"\n\
         ssl.verifyclient.exportcert = \"enable\"",
    );
    let authority = Authority::new(setup.directory());
    authority.issue("a.pem", &["a.test"]);
    authority.issue("jo.pem", &["jo"]);
    let server = setup.start();
    let client = authority.client().with_certificate(authority.path("jo.pem"));
    let mut client = client.connect(server.address(), "a.test");
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let response = client.response();
    let text = response.text();
    for wanted in ["secure=true", "cipher=TLS_AES_256_GCM_SHA384", "bits=256", "certificate=CN=jo"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}\n{}", server.log());
    }
}

#[test]
fn the_1_4_spelling_and_every_method_reach_it() {
    let Some(tomcat) = tomcat() else { return };
    let keys = tomcat.listen().host_keys();
    let server = lighty!()
        .config(&format!("ajp13.server = ( \"/\" => ( ( {keys}, \"secret\" => \"hush\" ) ) )"))
        .start();
    let mut client = server.connect();
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND"] {
        client.send(format!("{method} /m HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        let response = client.response();
        let wanted = format!("method={method}\n");
        assert!(response.text().starts_with(&wanted), "{response:?}\n{}", server.log());
    }
    client.send("HEAD /m HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to_head().status, 200);
    client.send("GET /after HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_wrong_secret_is_refused_by_the_container() {
    let Some(tomcat) = tomcat() else { return };
    for secret in ["wrong", ""] {
        let server = setup(tomcat.listen(), secret).start();
        assert_eq!(server.get("/").status, 403, "{}", server.log());
    }
}

#[test]
fn bodies_go_there_and_back_with_a_length_and_in_chunks() {
    let Some(tomcat) = tomcat() else { return };
    let server = setup(tomcat.listen(), "hush").start();
    let large = pattern(5, 3 << 20);
    // Lengths around the capacity of a packet, 8186 bytes, and of the following requested packets.
    for length in [0, 1, 8185, 8186, 8187, 16_372, 65_536, 3 << 20] {
        let body = &large[..length];
        let back = server.post("/mirror", &format!("Content-Length: {length}"), body);
        assert!(back == body, "{} of {length} bytes", back.len());
        let chunks = chunked(body, 40_000);
        let back = server.post("/mirror", "Transfer-Encoding: chunked", &chunks);
        assert!(back == body, "in chunks: {} of {length} bytes", back.len());
    }
}

#[test]
fn an_unread_body_harms_no_later_request() {
    let Some(tomcat) = tomcat() else { return };
    let server = setup(tomcat.listen(), "hush").start();
    let body = pattern(0, 100_000);
    for _ in 0..20 {
        assert_eq!(server.post("/ignores", "Content-Length: 100000", &body), b"not read");
        assert_eq!(server.post("/mirror", "Content-Length: 3", b"abc"), b"abc");
    }
}

#[test]
fn response_of_a_servlet_is_passed_on() {
    let Some(tomcat) = tomcat() else { return };
    let server = setup(tomcat.listen(), "hush").start();
    let response = server.get("/cookies");
    assert_eq!((response.status, response.all("X-A").count()), (418, 2), "{response:?}");
    assert_eq!(server.get("/fails").status, 500);
    let signal = server.root("go");
    let mut client = server.connect();
    client.send(format!("GET /stream?{} HTTP/1.0\r\nHost: a\r\n\r\n", signal.display()));
    assert_eq!(client.response_head().status, 200);
    assert_eq!(client.read_exact(5).as_deref(), Ok(&b"first"[..]));
    assert!(client.stays_silent(Duration::from_millis(50)));
    std::fs::write(signal, "").expect("a file");
    assert_eq!(client.read_to_end().0, b"second");
}

/// Connections to a port that the kernel knows of, over and under way.
fn connections_of(server: &Server, port: u16) -> usize {
    let port = format!(":{port:04X}");
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", server.pid()));
    let table = table.expect("the table of sockets");
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    table.lines().map(fields).filter(|f| f.len() > 3 && f[2].ends_with(&port)).count()
}

#[test]
fn container_is_found_by_its_pong_and_keeps_one_connection() {
    let listen = Listen::free_port();
    let server = setup(&listen, "")
        .config("proxy-core.check = ( \"type\" => \"ajp13\", \"interval\" => \"100ms\", \"fall\" => 1 )")
        .start();
    server.await_log("is down, its check says");
    assert_eq!(server.get("/").status, 503);
    let Some(tomcat) = Tomcat::start_at(listen, "It", SERVLET, "") else { return };
    server.await_log("is up again");
    drop(server);
    let server = setup(tomcat.listen(), "").start();
    let before = connections_of(&server, tomcat.listen().address().port());
    let mut client = server.connect();
    for number in 0..200 {
        client.send(format!("GET /n?{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(client.response().text().contains(&format!("query={number}\n")));
    }
    let after = connections_of(&server, tomcat.listen().address().port());
    assert_eq!(after - before, 1, "new connections for 200 requests");
}

#[test]
fn large_bodies_take_no_memory() {
    let Some(tomcat) = tomcat() else { return };
    let server = setup(tomcat.listen(), "hush").start();
    assert_eq!(server.get("/bulk?10").status, 200);
    let bytes = transfer::large();
    transfer::in_constant_memory(&server, "AJP13, down", || {
        transfer::download(&server, &format!("/bulk?{bytes}"), bytes);
    });
    for framing in [Framing::Length, Framing::Chunked] {
        transfer::in_constant_memory(&server, &format!("AJP13, up, {framing:?}"), || {
            let answer = transfer::upload(&server, "/bulk", bytes, framing);
            assert_eq!((answer.status, answer.text()), (200, bytes.to_string().as_str()));
        });
    }
}
