//! Sends the same bytes to lighty and lighttpd 1.4: versions, methods, credentials, redirects,
//! error handlers.

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::peer::{LighttpdPeer, ask};
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

const HOST: &str = "Host: a\r\nConnection: close\r\n";

struct Both {
    lighty: Server,
    lighttpd: LighttpdPeer,
}

impl Both {
    /// Returns `None` without an installed lighttpd.
    fn start(modules: &str, files: &[(&str, &str)], lines: &str) -> Option<Both> {
        let peer = LighttpdPeer::setup(modules)?;
        let with = |setup: Setup| {
            files.iter().fold(setup, |setup, (path, text)| setup.file(path, text)).config(lines)
        };
        Some(Both { lighty: with(lighty!()).start(), lighttpd: LighttpdPeer::start(with(peer)) })
    }

    /// Responses to the same bytes: ours, theirs.
    fn ask(&self, request: &str) -> [Response; 2] {
        [ask(self.lighty.connect(), request), self.lighttpd.ask(request)]
    }

    /// Asserts that the status and these header fields agree; returns lighty's response.
    #[track_caller]
    fn agree(&self, request: &str, names: &[&str]) -> Response {
        let [ours, theirs] = self.ask(request);
        assert_eq!(ours.status, theirs.status, "{request:?}\n{}", self.lighttpd.log());
        for name in names {
            assert_eq!(ours.field(name), theirs.field(name), "{request:?}: {name}");
        }
        ours
    }
}

/// The status line of a response.
fn status_line(mut client: Client, request: &str) -> String {
    client.send(request);
    let (bytes, _) = client.read_to_end();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_client_is_answered_in_its_version() {
    let Some(both) = Both::start("\"mod_redirect\"", &[("a", "a")], "") else { return };
    for (request, version) in [
        ("GET /a HTTP/1.0\r\n\r\n", "HTTP/1.0 200"),
        ("HEAD /a HTTP/1.0\r\n\r\n", "HTTP/1.0 200"),
        ("GET /none HTTP/1.0\r\nHost: a\r\n\r\n", "HTTP/1.0 404"),
        ("GET /a HTTP/1.0\r\nBad Name: x\r\n\r\n", "HTTP/1.0 400"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 200"),
    ] {
        let ours = status_line(both.lighty.connect(), request);
        let theirs = status_line(both.lighttpd.connect(), request);
        assert!(ours.starts_with(version), "{request:?}: {ours}");
        assert_eq!(ours, theirs, "{request:?}");
    }
    // RFC 9110 section 2.5; lighttpd responds with 505.
    let later = format!("GET /a HTTP/1.7\r\n{HOST}\r\n");
    assert!(status_line(both.lighty.connect(), &later).starts_with("HTTP/1.1 200"));
    let none = "GET /a HTTP/1.7\r\nConnection: close\r\n\r\n";
    assert!(status_line(both.lighty.connect(), none).starts_with("HTTP/1.1 400"), "without Host");
}

#[test]
fn methods_of_files_and_directories() {
    let lines = "$HTTP[\"url\"] =^ \"/listed/\" { dir-listing.activate = \"enable\" }";
    let files = [("a", "text"), ("dir/b", "b"), ("listed/c", "c")];
    let Some(both) = Both::start("\"mod_dirlisting\"", &files, lines) else { return };
    for target in ["/a", "/dir/", "/", "/listed/", "*"] {
        let request = format!("OPTIONS {target} HTTP/1.1\r\n{HOST}\r\n");
        let got = both.agree(&request, &["Content-Length"]);
        let allowed = got.field("Allow").expect("what is allowed");
        let names: Vec<&str> = allowed.split(", ").collect();
        for name in ["GET", "HEAD", "OPTIONS"] {
            assert!(names.contains(&name), "{target}: {allowed}");
        }
    }
    assert_eq!(both.agree(&format!("OPTIONS /none HTTP/1.1\r\n{HOST}\r\n"), &[]).status, 404);
    let post = |more: &str| format!("POST /a HTTP/1.1\r\n{HOST}{more}Content-Length: 3\r\n\r\na=b");
    for more in ["", "Range: bytes=0-1\r\n", "If-None-Match: \"x\"\r\n"] {
        let got = both.agree(&post(more), &["Content-Length", "Content-Range"]);
        assert_eq!((got.status, got.text()), (200, "text"), "{more:?}");
    }
}

#[test]
fn a_post_without_a_length_has_no_body_unless_one_is_needed() {
    let lines = "cgi.assign = ( \".sh\" => \"/bin/sh\" )";
    let files = [("a.sh", "printf 'Content-Type: a/b\\n\\n'; echo \"got <$(cat)>\"")];
    let request = format!("POST /a.sh HTTP/1.1\r\n{HOST}\r\n");
    let strict =
        format!("{lines}\nserver.http-parseopts = ( \"post-needs-length\" => \"enable\" )");
    let with = |lines: &str| lighty!().file(files[0].0, files[0].1).config(lines).start();
    let open = with(lines);
    assert_eq!(ask(open.connect(), &request).text(), "got <>\n");
    assert_eq!(ask(open.connect(), "POST /a.sh HTTP/1.0\r\n\r\n").text(), "got <>\n");
    let Some(both) = Both::start("\"mod_cgi\"", &files, lines) else { return };
    assert_eq!(both.lighttpd.ask(&request).status, 411);
    assert_eq!(ask(with(&strict).connect(), &request).status, 411);
}

#[test]
fn credentials_of_no_user_are_asked_for_anew() {
    let lines = "
        auth.backend = \"plain\"
        auth.backend.plain.userfile = \"@DIR@/root/users\"
        auth.require = (
            \"/basic\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \"require\" => \"valid-user\" ),
            \"/digest\" => ( \"method\" => \"digest\", \"realm\" => \"r\", \"require\" => \"valid-user\" )
        )";
    let files = [("users", "alice:secret\n")];
    let modules = "\"mod_auth\", \"mod_authn_file\"";
    let Some(both) = Both::start(modules, &files, lines) else { return };
    // In turn: alice:sec\x01ret, al\0ice:secret, al\nice:x, nothing, no blank, another scheme.
    for basic in [
        "Basic YWxpY2U6c2VjAXJldA==",
        "Basic YWwAaWNlOnNlY3JldA==",
        "Basic YWwKaWNlOng=",
        "Basic ",
        "Basic",
        "Bearer x",
        "",
    ] {
        let request = format!("GET /basic HTTP/1.1\r\n{HOST}Authorization: {basic}\r\n\r\n");
        let got = both.agree(&request, &["WWW-Authenticate"]);
        assert_eq!(got.status, 401, "{basic}");
    }
    const REST: &str =
        "nonce=\"x\", uri=\"/digest\", response=\"00000000000000000000000000000000\"";
    let qop = "qop=auth, nc=00000001, cnonce=\"x\"";
    for (digest, status) in [
        (format!("username=\"alice\", realm=\"r\", {REST}"), 401),
        (format!("username=\"alice\", realm=\"r\", algorithm=MD5, {REST}"), 401),
        (format!("username=\"alice\", realm=\"other\", {qop}, {REST}"), 401),
        (format!("username=\"alice\", realm=\"r\", algorithm=FOO, {qop}, {REST}"), 401),
        (String::new(), 401),
        ("garbage".to_owned(), 400),
        ("username=\"alice\"".to_owned(), 400),
    ] {
        let request =
            format!("GET /digest HTTP/1.1\r\n{HOST}Authorization: Digest {digest}\r\n\r\n");
        let got = both.agree(&request, &[]);
        assert_eq!(got.status, status, "{digest}");
        assert_eq!(got.field("WWW-Authenticate").is_some(), status == 401, "{digest}");
    }
}

#[test]
fn page_in_place_of_a_missing_file_is_served_with_200() {
    let lines = "
        index-file.names = ( \"index.html\" )
        mimetype.assign = ( \".html\" => \"text/html\" )
        $HTTP[\"url\"] =^ \"/app/\" { server.error-handler-404 = \"/index.html\" }
        $HTTP[\"url\"] =^ \"/dir/\" { server.error-handler-404 = \"/index.html\" }
        $HTTP[\"url\"] =^ \"/gone/\" { server.error-handler-404 = \"/nowhere\" }
        $HTTP[\"url\"] =^ \"/error/\" { server.error-handler = \"/index.html\" }";
    let files = [("index.html", "the page"), ("dir/x", "x")];
    let Some(both) = Both::start("\"mod_indexfile\"", &files, lines) else { return };
    let fields = ["Content-Type", "Content-Length", "Content-Range", "Accept-Ranges"];
    for (method, target, more, status) in [
        ("GET", "/app/a", "", 200),
        ("HEAD", "/app/a", "", 200),
        ("GET", "/app/a", "Range: bytes=0-2\r\n", 206),
        ("GET", "/app/a?b=c", "", 200),
        ("GET", "/dir/", "", 200),
        ("GET", "/dir/x", "", 200),
    ] {
        let request = format!("{method} {target} HTTP/1.1\r\n{HOST}{more}\r\n");
        let got = both.agree(&request, if target == "/dir/x" { &[] } else { &fields });
        assert_eq!(got.status, status, "{method} {target} {more}");
        if method == "GET" && status == 200 && target != "/dir/x" {
            assert_eq!(got.text(), "the page");
        }
    }
    for (target, status) in [("/gone/a", 404), ("/error/a", 404), ("/none", 404)] {
        let got = both.agree(&format!("GET {target} HTTP/1.1\r\n{HOST}\r\n"), &[]);
        assert_eq!(got.status, status, "{target}");
    }
    let post = format!("POST /app/a HTTP/1.1\r\n{HOST}Content-Length: 3\r\n\r\na=b");
    let got = both.agree(&post, &["Content-Type", "Content-Length"]);
    assert_eq!((got.status, got.text()), (200, "the page"));
    // A validator of the page applies to the page.
    let tag = both.lighty.get("/app/a").field("ETag").expect("an entity tag").to_owned();
    let again = both.lighty.get_with("/app/b", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!(again.status, 304);
}

#[test]
fn target_of_a_redirect_is_a_valid_reference() {
    let lines = "
        $HTTP[\"url\"] =~ \"^/cap/(.*)\" { url.redirect = ( \"\" => \"/%1\" ) }
        $HTTP[\"url\"] =~ \"^/host/(.*)\" { url.redirect = ( \"\" => \"http://h/%1\" ) }
        $HTTP[\"useragent\"] =~ \"(.+)\" { url.redirect = ( \"^/agent\" => \"/x?u=%1\" ) }
        $HTTP[\"host\"] =~ \"^(\\[.*\\])$\" { url.redirect = ( \"^/six\" => \"http://%1/\" ) }
        url.redirect = ( \"^/group/(.*)\" => \"/n/$1\" )";
    let Some(both) = Both::start("\"mod_redirect\"", &[], lines) else { return };
    let location = |request: &str| {
        let [ours, theirs] = both.ask(request);
        let [ours, theirs] = [&ours, &theirs].map(|got| {
            assert_eq!(got.status, 301, "{request:?}");
            got.field("Location").unwrap_or_default().to_owned()
        });
        (ours, theirs)
    };
    let get = |target: &str| location(&format!("GET {target} HTTP/1.1\r\n{HOST}\r\n"));
    // Same result as lighttpd, where lighttpd is right.
    for target in
        ["/cap/x", "/cap/a/b;c@d", "/cap/a+b", "/host/x", "/group/%5cevil", "/group/a%20b"]
    {
        let (ours, theirs) = get(target);
        assert_eq!(ours, theirs, "{target}");
    }
    let six = location("GET /six HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n");
    assert_eq!(six, ("http://[::1]/".to_owned(), "http://[::1]/".to_owned()));
    // Here lighttpd is no reference: it sends the bytes unencoded.
    for (target, expected) in [
        ("/cap/%5cevil", "/%5Cevil"),
        ("/host/%5cevil", "http://h/%5Cevil"),
        ("/cap/%20a", "/%20a"),
        ("/cap/%C3%A9", "/%C3%A9"),
        ("/cap/a%25b", "/a%25b"),
        ("/cap/a%2541", "/a%2541"),
        ("/cap/%3fq%23f", "/%3Fq%23f"),
        ("/cap/%22%3c%3e%60%7b%7c%7d%5e", "/%22%3C%3E%60%7B%7C%7D%5E"),
    ] {
        assert_eq!(get(target).0, expected, "{target}");
    }
    for (agent, expected) in [
        ("a\\b \"c\"", "/x?u=a%5Cb%20%22c%22"),
        ("a%20b?c", "/x?u=a%20b?c"),
        ("\u{e9}", "/x?u=%C3%A9"),
    ] {
        let request = format!("GET /agent HTTP/1.1\r\n{HOST}User-Agent: {agent}\r\n\r\n");
        assert_eq!(location(&request).0, expected, "{agent}");
    }
}

#[test]
fn a_redirection_is_never_split() {
    let server = lighty!()
        .config(
            "server.errorlog-level = \"info\"\n\
             server.http-parseopts = ( \"url-ctrls-reject\" => \"disable\" )\n\
             $HTTP[\"url\"] =~ \"^/cap/(.*)\" { url.redirect = ( \"\" => \"/%1\" ) }\n\
             url.redirect = ( \"^/b/(.*)\" => \"/${decb64u:1}\" )",
        )
        .start();
    // The second is CR LF, the third NUL, in Base64.
    for target in ["/cap/a%0d%0aX:%20y", "/b/YQ0KWDogeQ", "/b/YQBi"] {
        let got = server.get(target);
        assert_eq!((got.status, got.field("X")), (400, None), "{target}: {}", server.log());
        assert_eq!(got.field("Location"), None, "{target}");
    }
    server.await_log("line end or NUL");
    assert_eq!(server.get("/b/YQ").field("Location"), Some("/a"));
    let log = server.log();
    let mut refused = log.lines().filter(|line| line.contains("line end or NUL"));
    assert!(refused.all(|line| line.contains("[info]")), "{log}");
}

#[test]
fn built_in_types_carry_no_charset() {
    let names = ["a.html", "a.css", "a.js", "a.txt", "a.xml", "a.md", "a.csv", "a.svg"];
    let server = names.iter().fold(lighty!(), |setup, name| setup.file(name, "x")).start();
    for name in names {
        let got = server.get(&format!("/{name}"));
        let media_type = got.field("Content-Type").expect("a type");
        assert!(media_type.contains('/') && !media_type.contains(';'), "{name}: {media_type}");
    }
}
