//! Requests of a backend's response to its proxy (such as `X-Sendfile`), and changes of messages in
//! both directions.

use std::os::unix::fs::symlink;

use lighty_testkit::backend::{Backend, RequestSeen, answer};
use lighty_testkit::content::pattern;
use lighty_testkit::gateway::Gateway;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::send_file;
use lighty_testkit::server::{Server, Setup, write_file};

const HEAD_OF_GET: &str = "Host: www.example.org\r\nConnection: close\r\n";

/// A server that sends everything to a backend, under further lines of configuration.
fn proxied(setup: Setup, backend: &Backend, lines: &str) -> Server {
    setup.in_front_of(&backend.name()).config(lines).start()
}

fn ask(server: &Server, request: &str) -> Response {
    let mut client = server.connect();
    client.send(request);
    client.response()
}

/// Names the file in the query with the field in the path: `/X-Sendfile?/srv/a`.
fn named_file(seen: &RequestSeen) -> Vec<u8> {
    let (field, file) = seen.target().split_once('?').expect("a file");
    let field = field.trim_start_matches('/');
    let fields = format!(
        "{field}: {file}\r\nContent-Type: text/x-special\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
         Cache-Control: private\r\nETag: \"of-the-backend\"\r\n"
    );
    answer("200 OK", &fields, "what the backend says")
}

#[test]
fn a_named_file_is_sent_as_any_other_with_the_backends_fields() {
    let backend = Backend::replying(named_file);
    let content = pattern(0, 300_000);
    let setup = lighty!();
    write_file(&setup.directory().join("files/some file"), &content);
    let server = proxied(
        setup,
        &backend,
        "proxy-core.allow-x-sendfile = \"enable\"\n\
         proxy-core.x-sendfile-docroot = ( \"/nowhere\", \"@DIR@/files/\" )",
    );
    let file = format!("{}/files//./some%20file", server.directory().display());
    for field in ["X-Sendfile", "X-LIGHTTPD-send-file"] {
        let target = format!("/{field}?{file}");
        let whole = server.get(&target);
        assert_eq!((whole.status, whole.body.len()), (200, content.len()), "{whole:?}");
        assert!(whole.body == content);
        assert_eq!(whole.field("Content-Type"), Some("text/x-special"));
        assert_eq!(whole.field("Cache-Control"), Some("private"));
        assert_eq!(whole.all("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!((whole.field(field), whole.field("Content-Encoding")), (None, None));
        let etag = whole.field("ETag").expect("the backend's").to_owned();
        assert_eq!(etag, "\"of-the-backend\"", "the backend knows more of the file");

        let part = server.get_with(&target, "Range: bytes=1000-1999\r\n");
        assert_eq!(part.status, 206);
        assert!(part.body == content[1000..2000]);
        let parts = server.get_with(&target, "Range: bytes=0-1,100000-100001\r\n");
        assert!(parts.field("Content-Type").is_some_and(|t| t.starts_with("multipart/byteranges")));
        let same = server.get_with(&target, &format!("If-None-Match: {etag}\r\n"));
        assert_eq!((same.status, same.body.len()), (304, 0));
        assert_eq!(same.field("Cache-Control"), Some("private"));

        let posted = ask(
            &server,
            &format!("POST {target} HTTP/1.1\r\n{HEAD_OF_GET}Content-Length: 3\r\n\r\nabc"),
        );
        assert_eq!((posted.status, posted.body == content), (200, true));
    }
    assert!(backend.opened() <= 2, "connections are used again: {}", backend.opened());
}

#[test]
fn parts_of_files_are_sent_with_the_backends_head() {
    let backend = Backend::replying(|seen| {
        let files = seen.target().split_once('?').expect("files").1.replace('+', " ");
        let fields =
            format!("X-Sendfile2: {files}\r\nContent-Range: bytes 1-2/9\r\nETag: \"b\"\r\n");
        answer("206 Partial Content", &fields, "what the backend says")
    });
    let setup = lighty!().file("a", "0123456789").file("b", "abcdefghij");
    let server = proxied(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    let root = server.root("").display().to_string();
    let parts = server.get(&format!("/x?{root}a+1-2,+{root}b+8-"));
    assert_eq!((parts.status, parts.text()), (206, "12ij"));
    assert_eq!(parts.field("Content-Length"), Some("4"));
    assert_eq!(parts.field("Content-Range"), Some("bytes 1-2/9"));
    assert_eq!((parts.field("ETag"), parts.field("X-Sendfile2")), (Some("\"b\""), None));
    assert_eq!(server.get(&format!("/x?{root}a+1-2,+/etc/hostname+0-")).status, 403);
    server.await_log("x-sendfile-docroot");
    assert!(backend.opened() <= 2, "connections are used again: {}", backend.opened());
}

#[test]
fn files_outside_of_the_allowed_directories_are_refused() {
    let backend = Backend::replying(named_file);
    let setup = lighty!().file("inside", "x");
    write_file(&setup.directory().join("secret"), "secret");
    symlink("../secret", setup.root("link")).expect("a link");
    symlink("..", setup.root("up")).expect("a link");
    symlink("inside", setup.root("fine")).expect("a link");
    let server = proxied(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    let root = server.root("").display().to_string();
    let get = |file: &str| server.get(&format!("/X-Sendfile?{file}"));
    send_file::stays_inside(&root, get);
    server.await_log("x-sendfile-docroot");
    server.await_log("/etc/hostname");
    server.await_log("root/missing");
}

#[test]
fn an_error_page_takes_nothing_of_the_response_that_failed() {
    let backend = Backend::replying(|seen| {
        let file = seen.target().split_once('?').expect("a file").1;
        answer("200 OK", &format!("X-Sendfile: {file}\r\nSet-Cookie: a=1\r\n"), "")
    });
    let setup =
        lighty!().file("sorry.html", "our words").config("server.error-handler = \"/sorry.html\"");
    let server = app(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    let missing = server.root("missing").display().to_string();
    for (file, status) in [(missing.as_str(), 404), ("/etc/x", 403)] {
        let sorry = server.get(&format!("/app/?{file}"));
        assert_eq!((sorry.status, sorry.text()), (status, "our words"));
        assert_eq!(sorry.field("Set-Cookie"), None);
    }
}

#[test]
fn an_unread_body_is_drained_up_to_a_limit() {
    const LIMIT: usize = 64 * 1024;
    let backend = Backend::replying(|seen| {
        let (length, file) = seen.target()[1..].split_once('?').expect("a file");
        let body = "x".repeat(length.parse().expect("a length"));
        answer("200 OK", &format!("X-Sendfile: {file}\r\n"), &body)
    });
    let setup = lighty!().file("a", "content");
    let server = proxied(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    let file = server.root("a").display().to_string();
    let get = |length: usize| {
        assert_eq!(server.get(&format!("/{length}?{file}")).text(), "content");
    };
    get(0);
    get(LIMIT);
    // The body may still be on its way when the next request comes: it then takes a connection of
    // its own, and whichever is there serves all that follow.
    get(0);
    let before = backend.opened();
    assert!(before <= 2, "{before} connections");
    get(0);
    assert_eq!(backend.opened(), before, "connections are used again");
    for _ in 0..4 {
        get(LIMIT + 1);
    }
    assert!(backend.opened() >= before + 2, "{} connections", backend.opened());
}

#[test]
fn nothing_is_sent_for_a_backend_that_may_not_name_files() {
    let backend = Backend::replying(named_file);
    let server = proxied(lighty!().file("a", "x"), &backend, "");
    let file = server.root("a").display().to_string();
    let get = server.get(&format!("/X-Sendfile?{file}"));
    assert_eq!(get.text(), "what the backend says");
}

#[test]
fn a_temporary_file_is_gone_once_it_is_sent() {
    let backend = Backend::replying(named_file);
    let setup = lighty!();
    let server = proxied(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    for round in 0..3 {
        let content = pattern(round, 200_000);
        write_file(&server.root("made"), &content);
        let file = server.root("made").display().to_string();
        let sent = server.get(&format!("/X-LIGHTTPD-send-tempfile?{file}"));
        assert!(sent.body == content, "each round its own content");
        assert!(!server.root("made").exists());
    }
    write_file(&server.directory().join("outside"), "x");
    let outside = server.directory().join("outside");
    let refused = server.get(&format!("/X-LIGHTTPD-send-tempfile?{}", outside.display()));
    assert_eq!((refused.status, outside.exists()), (403, true));
}

#[test]
fn a_status_of_the_backends_stays_with_its_file() {
    let backend = Backend::replying(|seen| {
        let file = seen.target().split_once('?').expect("a file").1;
        answer("403 Forbidden", &format!("X-Sendfile: {file}\r\n"), "")
    });
    let setup = lighty!().file("page.html", "not for you");
    let server = proxied(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    let file = server.root("page.html").display().to_string();
    let page = server.get_with(&format!("/?{file}"), "Range: bytes=0-1\r\n");
    assert_eq!((page.status, page.text()), (403, "not for you"));
}

/// Sends everything beneath `/app/` to the backend.
fn app(setup: Setup, backend: &Backend, lines: &str) -> Server {
    let config = format!(
        "$HTTP[\"url\"] =~ \"^/app/\" {{\nproxy-core.protocol = \"http\"\n\
         proxy-core.backends = ( \"{}\" )\n{lines}\n}}",
        backend.name()
    );
    setup.config(&config).start()
}

#[test]
fn an_accelerated_url_is_answered_inside() {
    let backend = Backend::replying(|seen| {
        let target = seen.target().strip_prefix("/app/?").expect("its own");
        let fields = format!(
            "X-Accel-Redirect: {target}\r\nContent-Disposition: attachment\r\n\
             Content-Type: text/x-special\r\nX-Other: dropped\r\n"
        );
        answer("200 OK", &fields, "body of the backend")
    });
    let setup = lighty!().file("protected/a b.txt", "0123456789");
    let server = app(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    let sent = server.get_with("/app/?/protected/a%20b.txt", "Range: bytes=2-4\r\n");
    assert_eq!((sent.status, sent.text()), (206, "234"));
    assert_eq!(sent.field("Content-Disposition"), Some("attachment"));
    assert_eq!(sent.field("Content-Type"), Some("text/x-special"));
    assert_eq!(sent.field("X-Other"), None);
    assert_eq!(server.get("/app/?etc/passwd").status, 502, "not a path");
    assert_eq!(server.get("/app/?/nothing").status, 404);
    assert_eq!(server.get("/app/?/app/?/app/?/protected/a%20b.txt").text(), "0123456789");
    let posted = ask(
        &server,
        &format!(
            "POST /app/?/protected/a%20b.txt HTTP/1.1\r\n{HEAD_OF_GET}Content-Length: 2\r\n\r\nxy"
        ),
    );
    assert_eq!(posted.text(), "0123456789");
}

/// The local redirect is a different URL than the rewritten one.
#[test]
fn accelerated_url_of_a_rewritten_request_is_rewritten() {
    let backend = Backend::replying(|_| answer("200 OK", "X-Accel-Redirect: /files/a.txt\r\n", ""));
    let rules =
        "url.rewrite-once = ( \"^/pretty$\" => \"/app/x\", \"^/files/(.*)\" => \"/kept/$1\" )";
    let setup = lighty!().file("kept/a.txt", "0123456789").config(rules);
    let server = app(setup, &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    assert_eq!(server.get("/app/x").text(), "0123456789");
    assert_eq!(server.get("/pretty").text(), "0123456789");
}

#[test]
fn a_circle_of_redirects_inside_ends() {
    let backend =
        Backend::replying(|_| answer("200 OK", "X-Accel-Redirect: /app/again\r\n", "round"));
    let server = app(lighty!(), &backend, "proxy-core.allow-x-sendfile = \"enable\"");
    assert_eq!(server.get("/app/").status, 500);
    server.await_log("rewrite loop");
    assert!(backend.opened() <= 2, "bodies are read to their end");
}

#[test]
fn a_rewritten_request_begins_again_with_its_body() {
    let backend = Backend::replying(|seen| match seen.target() {
        "/app/first" => answer(
            "200 OK",
            "X-Rewrite-URI: /app/second?x=1\r\nX-Rewrite-Host: Other.example\r\n",
            "",
        ),
        "/app/out" => answer("200 OK", "X-Rewrite-URI: /static.txt\r\n", ""),
        "/app/wrong" => answer("200 OK", "X-Rewrite-Host: a/b\r\n", ""),
        "/app/port" => answer(
            "200 OK",
            "X-Rewrite-URI: /app/second\r\nX-Rewrite-Host: Other.example.:80\r\n",
            "",
        ),
        _ => {
            let host = seen.field("Host").expect("a host");
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            answer("200 OK", "", &format!("{} {host} {body}", seen.head.split(' ').next().unwrap()))
        }
    });
    let setup = lighty!().file("static.txt", "a file");
    let server = app(setup, &backend, "proxy-core.allow-x-rewrite = \"enable\"");
    let posted = ask(
        &server,
        &format!("POST /app/first HTTP/1.1\r\n{HEAD_OF_GET}Content-Length: 5\r\n\r\nhello"),
    );
    assert_eq!(posted.text(), "POST other.example hello");
    assert_eq!(backend.requests().last().expect("two").target(), "/app/second?x=1");
    assert_eq!(server.get("/app/port").text(), "GET other.example ", "as a client's Host");
    assert_eq!(server.get("/app/out").text(), "a file");
    assert_eq!(server.get("/app/wrong").status, 502);
}

#[test]
fn a_rewritten_request_goes_to_the_backend_that_was_asked_for() {
    let one = Backend::replying(|seen| answer("200 OK", "", &format!("one {}", seen.target())));
    let name = one.name();
    let two = Backend::replying(move |_| {
        answer("200 OK", &format!("X-Rewrite-Backend: {name}\r\n"), "from the second")
    });
    let config = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.allow-x-rewrite = \"enable\"\n\
         proxy-core.balancer = \"static\"\nproxy-core.backends = ( \"{}\", \"{}\" )",
        two.name(),
        one.name()
    );
    let server = lighty!().config(&config).start();
    assert_eq!(server.get("/x").text(), "one /x");
    assert_eq!((one.requests().len(), two.requests().len()), (1, 1));
}

#[test]
fn error_pages_of_ours_stand_in_for_the_backends() {
    let backend = Backend::replying(|seen| {
        let (status, fields) = match seen.target() {
            "/401" => ("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n"),
            "/503" => ("503 Service Unavailable", "Retry-After: 77\r\nSet-Cookie: a=b\r\n"),
            _ => ("200 OK", ""),
        };
        answer(status, fields, "the backend's words")
    });
    let setup = lighty!();
    write_file(&setup.directory().join("error-503.html"), "our words");
    let lines = "server.error-intercept = \"enable\"\n\
                 server.errorfile-prefix = \"@DIR@/error-\"";
    let server = proxied(setup, &backend, lines);
    let away = server.get("/503");
    assert_eq!((away.status, away.text()), (503, "our words"));
    assert_eq!((away.field("Retry-After"), away.field("Set-Cookie")), (Some("77"), None));
    let unknown = server.get("/401");
    assert_eq!(unknown.field("WWW-Authenticate"), Some("Basic realm=\"x\""));
    assert!(unknown.status == 401 && !unknown.text().contains("backend"));
    assert_eq!(server.get("/200").text(), "the backend's words");
    assert_eq!(backend.opened(), 1, "the connection outlives the errors");
}

#[test]
fn a_backend_that_is_down_is_said_to_be_back_when_it_is_tried_again() {
    let backend = Backend::replying(|_| Vec::new());
    let name = backend.name();
    drop(backend);
    let config = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{name}\" )\n\
         proxy-core.hold-time = 0\nproxy-core.disable-time = 30"
    );
    let server = lighty!().config(&config).start();
    assert!(server.get("/").status >= 502);
    let down = server.get("/");
    assert_eq!(down.status, 503);
    let after: u32 = down.field("Retry-After").expect("a time").parse().expect("seconds");
    assert!((25..=30).contains(&after), "{after}");
}

#[test]
fn backend_urls_and_cookies_are_mapped_for_the_client() {
    let backend = Backend::replying(|seen| {
        let me = seen.field("Host").expect("a host").to_owned();
        let fields = format!(
            "Location: http://{me}/back/x\r\nContent-Location: /back/y\r\n\
             Set-Cookie: a=b; Domain=inner.example; Path=/back/; HttpOnly\r\n\
             Link: <http://inner.example/back/>\r\n"
        );
        answer("302 Found", &fields, &me)
    });
    let (host, port) =
        backend.name().split_once(':').map(|(h, p)| (h.to_owned(), p.to_owned())).unwrap();
    let config = format!(
        "proxy.server = ( \"/front/\" => ( ( \"host\" => \"{host}\", \"port\" => {port} ) ) )\n\
         proxy.header = ( \"map-urlpath\" => ( \"/front/\" => \"/back/\" ),\n\
         \"map-host-request\" => ( \"-\" => \"inner.example\" ),\n\
         \"map-host-response\" => ( \"inner.example\" => \"-\" ) )"
    );
    let server = lighty!().config(&config).start();
    let moved = ask(
        &server,
        &format!(
            "MOVE /front/a HTTP/1.1\r\n{HEAD_OF_GET}\
                  Destination: http://www.example.org/front/b\r\n\r\n"
        ),
    );
    let seen = backend.requests().pop().expect("a request");
    assert_eq!(seen.target(), "/back/a");
    assert_eq!(seen.field("Destination"), Some("http://inner.example/back/b"));
    assert_eq!(moved.text(), "inner.example");
    assert_eq!(moved.field("Location"), Some("http://www.example.org/front/x"));
    assert_eq!(moved.field("Content-Location"), Some("/front/y"));
    let cookie = "a=b; Domain=www.example.org; Path=/front/; HttpOnly";
    assert_eq!(moved.field("Set-Cookie"), Some(cookie));
    assert_eq!(moved.field("Link"), Some("<http://inner.example/back/>"));
}

#[test]
fn a_backend_may_get_its_own_name() {
    let backend = Backend::replying(|seen| answer("200 OK", "", seen.field("Host").unwrap_or("")));
    let (host, port) =
        backend.name().split_once(':').map(|(h, p)| (h.to_owned(), p.to_owned())).unwrap();
    let config = format!(
        "proxy.server = ( \"\" => ( \"inner.example\" => \
         ( \"host\" => \"{host}\", \"port\" => {port} ) ) )\n\
         proxy.replace-http-host = \"enable\""
    );
    let server = lighty!().config(&config).start();
    assert_eq!(server.get("/").text(), "inner.example");
}

#[test]
fn the_first_rule_that_matches_changes_a_field() {
    let backend = Backend::replying(|seen| {
        let fields = format!(
            "X-Told: {} {} {}\r\nLocation: http://internal/x\r\n",
            seen.target(),
            seen.field("X-In").unwrap_or("-"),
            seen.field("Host").unwrap_or("-"),
        );
        answer("302 Found", &fields, "")
    });
    let server = proxied(
        lighty!(),
        &backend,
        "proxy-core.rewrite-request = (\n\
         \"_uri\" => ( \"^/a(.*)\" => \"/b$1c\", \"^/b\" => \"/wrong\" ),\n\
         \"X-In\" => ( \"^one$\" => \"two\", \"^two$\" => \"three\" ),\n\
         \"Host\" => ( \"^(.*)$\" => \"$1.internal\" ) )\n\
         proxy-core.rewrite-response = (\n\
         \"Location\" => ( \"^http://internal/(.*)\" => \"/app/$1\" ),\n\
         \"X-Absent\" => ( \"\" => \"present\" ) )",
    );
    let answer = server.get_with("/a1", "X-In: one\r\n");
    assert_eq!(answer.field("X-Told"), Some("/b1c two localhost.internal"));
    assert_eq!(answer.field("Location"), Some("/app/x"));
    assert_eq!(answer.field("X-Absent"), None);
}

#[test]
fn a_client_stays_with_the_backend_that_its_cookie_names() {
    let backends =
        ["one", "two"].map(|name| Backend::replying(move |_| answer("200 OK", "", name)));
    let config = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.balancer = \"sticky:WHO\"\n\
         proxy-core.backends = ( \"{}\", \"{}\" )",
        backends[0].name(),
        backends[1].name()
    );
    let server = lighty!().config(&config).start();
    let first = server.get("/");
    let cookie = first.field("Set-Cookie").expect("a cookie").to_owned();
    let (pair, attributes) = cookie.split_once("; ").expect("attributes");
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
    for _ in 0..6 {
        let again = server.get_with("/", &format!("Cookie: other=1; {pair}\r\n"));
        assert_eq!(again.text(), first.text());
        assert_eq!(again.field("Set-Cookie"), None);
    }
    let strange = server.get_with("/", "Cookie: WHO=0000000000000000\r\n");
    assert!(strange.field("Set-Cookie").is_some_and(|c| c.starts_with("WHO=")));
}

#[test]
fn a_backend_learns_of_the_client_before_its_request() {
    for (version, count) in [("v1", 0), ("v2", 28)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let config = format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" )\n\
             proxy-core.proxy-protocol = \"{version}\"",
            listener.local_addr().expect("its address")
        );
        let server = lighty!().config(&config).start();
        let reported = std::thread::spawn(move || {
            (0..2).map(|_| seen_before_request(&listener, count)).collect::<Vec<_>>()
        });
        let mut client = server.connect();
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().text(), "ok");
        }
        for header in reported.join().expect("a backend") {
            let port = server.address().port();
            match version {
                "v1" => {
                    let line = String::from_utf8(header).expect("text");
                    assert!(line.starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{line}");
                    assert!(line.ends_with(&format!(" {port}\r\n")), "{line}");
                }
                _ => {
                    assert_eq!(header[..16], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
                    assert_eq!(header[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
                    assert_eq!(header[26..28], port.to_be_bytes());
                }
            }
        }
    }
}

/// Accepts a connection, serves its request, and returns the bytes before the request: `count`
/// bytes, or a line.
fn seen_before_request(listener: &std::net::TcpListener, count: usize) -> Vec<u8> {
    use std::io::{Read, Write};
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut input = Vec::new();
    while !input.ends_with(b"\r\n\r\n") || input.len() <= count {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        input.push(byte[0]);
    }
    stream.write_all(&answer("200 OK", "", "ok")).expect("a response");
    let line = || input.iter().position(|b| *b == b'\n').expect("a line") + 1;
    input[..if count == 0 { line() } else { count }].to_vec()
}

#[test]
fn a_redirect_to_a_path_of_ours_is_the_clients_to_follow() {
    use std::io::{Read, Write};
    const LOCATIONS: [&str; 2] = ["/page.txt?x", "http://www.example.org/"];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let config = format!(
        "scgi.server = ( \"/app\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {}, \
         \"check-local\" => \"disable\" ) ) )",
        listener.local_addr().expect("its address").port()
    );
    let server = lighty!().file("page.txt", "a page of ours").config(&config).start();
    let program = std::thread::spawn(move || {
        for location in LOCATIONS {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).expect("a request") > 0);
            write!(stream, "Location: {location}\r\n\r\n").expect("a response");
        }
    });
    for location in LOCATIONS {
        let answer = server.get("/app");
        assert_eq!((answer.status, answer.field("Location")), (302, Some(location)));
    }
    program.join().expect("the program");
}

/// Same as in lighttpd 1.4.69: fields set by a script count as sent by the client. The proxy
/// appends the client's address to `X-Forwarded-For`, and replaces the other fields with its own
/// values.
#[test]
fn fields_about_the_client_are_the_proxys_whatever_a_script_sets() {
    let backend = Backend::answering("ok");
    let lines = "magnet.attract-raw-url-to = ( \"@DIR@/root/s.lua\" )\n\
                 $HTTP[\"url\"] == \"/forwarded\" { proxy.forwarded = ( \"for\" => 1 ) }";
    let script = "local fields = lighty.r.req_header\n\
                  fields[\"X-Forwarded-For\"] = \"192.0.2.9\"\n\
                  fields[\"X-Forwarded-Proto\"] = \"gopher\"\n\
                  fields[\"X-Forwarded-Host\"] = \"script.example\"\n\
                  fields[\"X-Host\"] = \"script.example\"\n\
                  fields[\"Forwarded\"] = \"for=192.0.2.8\"\n\
                  return 0\n";
    let (host, port) = (backend.address().ip(), backend.address().port());
    let server = lighty!()
        .file("s.lua", script)
        .config(&format!(
            "proxy.server = ( \"\" => (( \"host\" => \"{host}\", \"port\" => {port} )) )\n{lines}"
        ))
        .start();
    for path in ["/", "/forwarded"] {
        assert_eq!(server.get(path).text(), "ok", "{path}: {}", server.log());
    }
    let seen = backend.requests();
    for seen in &seen {
        let host = seen.field("Host");
        assert_eq!(seen.field("X-Forwarded-For"), Some("192.0.2.9, 127.0.0.1"));
        assert_eq!(seen.field("X-Forwarded-Proto"), Some("http"));
        assert_eq!((seen.field("X-Forwarded-Host"), seen.field("X-Host")), (host, host));
    }
    assert_eq!(seen[0].field("Forwarded"), Some("for=192.0.2.8"));
    assert_eq!(seen[1].field("Forwarded"), Some("for=192.0.2.8, for=127.0.0.1"));
}

#[test]
fn empty_fields_that_have_a_grammar_are_left_out() {
    const OUTPUT: &str = "Content-Type: \r\nETag: \r\nLast-Modified: \r\nX-Empty: \r\n\r\ntext";
    let http = Backend::replying(|_| {
        let fields = "Content-Type: \r\nETag: \r\nLast-Modified: \r\nX-Empty: \r\n";
        answer("200 OK", fields, "text")
    });
    let gateways = [
        ("http", http),
        ("fastcgi", Gateway::Fastcgi.printing(OUTPUT)),
        ("scgi", Gateway::Scgi.printing(OUTPUT)),
        ("uwsgi", Gateway::Uwsgi.printing(OUTPUT)),
        ("ajp13", Gateway::Ajp13.printing(OUTPUT)),
    ];
    let rules = gateways.each_ref().map(|(protocol, backend)| {
        format!(
            "$HTTP[\"url\"] == \"/{protocol}\" {{ proxy-core.protocol = \"{protocol}\"\n\
             proxy-core.backends = ( \"{}\" ) }}\n",
            backend.address()
        )
    });
    let program =
        "printf 'Content-Type: \\r\\nETag: \\r\\nLast-Modified: \\r\\nX-Empty: \\r\\n\\r\\ntext'\n";
    let server = lighty!()
        .config(&rules.concat())
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
        .file("cgi.sh", program)
        .start();
    for target in ["/http", "/fastcgi", "/scgi", "/uwsgi", "/ajp13", "/cgi.sh"] {
        let response = server.get(target);
        assert_eq!((response.status, response.text()), (200, "text"), "{target}");
        for name in ["Content-Type", "ETag", "Last-Modified"] {
            assert_eq!(response.field(name), None, "{target}: {response:?}");
        }
        assert_eq!(response.field("X-Empty"), Some(""), "{target}: {response:?}");
    }
}
