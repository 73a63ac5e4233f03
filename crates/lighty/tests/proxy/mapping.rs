//! Paths and hosts mapped for a backend (`proxy.header`, `proxy-core.rewrite-request`): only whole
//! segments, and never out of the mapped path.

use lighty_testkit::backend::Backend;
use lighty_testkit::lighty;
use lighty_testkit::peer::ask;
use lighty_testkit::server::Server;

/// Backend that responds with the request target, a `Location` and a cookie.
fn echo() -> Backend {
    Backend::replying(|seen| {
        let target = seen.target();
        format!(
            "HTTP/1.1 200 OK\r\nLocation: /x\r\nSet-Cookie: a=b; Path=/back/\r\n\
             Content-Length: {}\r\n\r\n{target}",
            target.len()
        )
        .into_bytes()
    })
}

fn mapped(backend: &Backend, pairs: &str) -> Server {
    let port = backend.address().port();
    lighty!()
        .config(&format!(
            "server.errorlog-level = \"info\"\n\
             proxy.server = ( \"\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {port} ) ) )\n\
             proxy.header = ( \"map-urlpath\" => ( {pairs} ) )"
        ))
        .start()
}

#[test]
fn whole_segments_are_mapped() {
    let backend = echo();
    for (pairs, seen) in [
        (
            r#""/wiki" => "/""#,
            [("/wiki/x?q", "/x?q"), ("/wiki", "/"), ("/wikipedia", "/wikipedia")],
        ),
        (r#""/wiki/" => "/""#, [("/wiki/x", "/x"), ("/wiki", "/wiki"), ("/wiki/?q", "/?q")]),
        (r#""/wiki" => "/w""#, [("/wiki/x", "/w/x"), ("/wiki?q", "/w?q"), ("/wikis", "/wikis")]),
        (r#""/wiki/" => "/w""#, [("/wiki/x", "/w/x"), ("/wiki/", "/w/"), ("/wiki", "/wiki")]),
    ] {
        let server = mapped(&backend, pairs);
        for (target, wanted) in seen {
            let response = server.get(target);
            assert_eq!(response.text(), wanted, "{pairs}: {target}");
        }
    }
    // And back, where only one of the two ends with a slash.
    let server = mapped(&backend, r#""/wiki" => "/""#);
    assert_eq!(server.get("/wiki/x").field("Location"), Some("/wiki/x"));
    let server = mapped(&backend, r#""/front" => "/back/""#);
    assert_eq!(server.get("/front/x").field("Set-Cookie"), Some("a=b; Path=/front/"));
}

/// Same result as lighttpd: RFC 2109 has such values.
#[test]
fn cookie_paths_in_quotes_are_mapped() {
    for (cookie, wanted) in [
        ("a=b; Path=\"/back/\"; Secure", "a=b; Path=\"/front/\"; Secure"),
        ("a=b; path=\"/back\"", "a=b; path=\"/back\""),
        ("a=\"/back/\"", "a=\"/back/\""),
        ("a=b; Path=\"", "a=b; Path=\""),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\nSet-Cookie: {cookie}\r\nContent-Length: 0\r\n\r\n");
        let backend = Backend::replying(move |_| head.clone().into_bytes());
        let server = mapped(&backend, r#""/front/" => "/back/""#);
        assert_eq!(server.get("/front/x").field("Set-Cookie"), Some(wanted));
    }
}

#[test]
fn no_rule_of_a_url_is_passed_by_where_it_is_mapped() {
    let backend = echo();
    let server = mapped(&backend, r#""/wiki" => "/", "/up/" => "/a/../""#);
    // Paths outside the key are not mapped, and do not lead upwards.
    assert_eq!(server.get("/wiki../admin/x").text(), "/wiki../admin/x");
    // Paths made by the configuration do not lead upwards either.
    for target in ["/up/x", "/up/", "/up/?q=/"] {
        assert_eq!(server.get(target).status, 400, "{target}");
    }
    assert_eq!(server.get("/wiki/a?x=/../b").text(), "/a?x=/../b");
    assert!(!backend.requests().iter().any(|seen| seen.target().contains("/a/..")));
    server.await_log("a rule for the backend made a path with dot segments");
    server.await_log("/up/x would become /a/../x");
}

#[test]
fn rewritten_request_urls_are_checked_for_dot_segments() {
    let backend = echo();
    let name = backend.name();
    let server = lighty!()
        .config(&format!(
            r#"proxy-core.protocol = "http"
            proxy-core.backends = ( "{name}" )
            proxy-core.rewrite-request = ( "_uri" => (
                "^/wiki(.*)" => "/$1", "^/q\?(.*)" => "$1", "^/ok(.*)" => "/fine$1"
            ) )"#
        ))
        .start();
    assert_eq!(server.get("/ok/x").text(), "/fine/x");
    // A rule takes text, not segments: this is where it leads.
    assert_eq!(server.get("/wiki../admin/x").status, 400);
    assert_eq!(server.get("/wiki%2e%2E/admin/x").status, 400);
    assert_eq!(server.get("/q?/a/%2e%2E/b").status, 400);
    assert_eq!(server.get("/q?/a/..b/.c").text(), "/a/..b/.c");
    assert!(
        backend
            .requests()
            .iter()
            .all(|seen| !seen.target().contains("..") || seen.target().contains("..b"))
    );
}

#[test]
fn a_destination_is_mapped_by_the_same_rules() {
    let backend = echo();
    let server = mapped(&backend, r#""/dav/" => "/""#);
    let moves = |to: &str| {
        let request = format!(
            "MOVE /dav/a HTTP/1.1\r\nHost: h.test\r\nDestination: {to}\r\nConnection: close\r\n\r\n"
        );
        ask(server.connect(), &request).status
    };
    assert_eq!(moves("http://h.test/dav/b"), 200);
    assert_eq!(backend.requests()[0].field("Destination"), Some("http://h.test/b"));
    assert_eq!(moves("http://h.test/dav/../b"), 400);
    assert_eq!(moves("/dav/%2e%2e/b"), 400);
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn slashes_that_do_not_match_are_warned_of() {
    let lines = |pairs: &str| {
        format!(
            "proxy.server = ( \"\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => 9 ) ) )\n\
             proxy.header = ( \"map-urlpath\" => ( {pairs} ) )"
        )
    };
    for pairs in [r#""/a" => "/""#, r#""/a/" => "/b""#] {
        let (code, out, err) = lighty!().config(&lines(pairs)).run(&["-t", "-f", "@CONF@"]);
        let output = out + &err;
        assert_eq!(code, 0, "{output}");
        assert!(output.contains("of which only one ends with a slash"), "{output}");
    }
    for pairs in [r#""/a/" => "/""#, r#""/a" => "/b""#] {
        let (code, out, err) =
            lighty!().config(&lines(pairs)).run(&["-t", "--strict", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{out}{err}");
    }
}

/// HTTP/1.0 needs no `Host`, the HTTP/1.1 of the backend does.
#[test]
fn a_request_without_a_host_is_given_that_of_the_backend() {
    let backend = echo();
    let name = backend.name();
    let core = |lines: &str| {
        let core = format!("proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{name}\" )");
        lighty!().config(&core).config(lines).start()
    };
    let server = core("");
    assert_eq!(ask(server.connect(), "GET /none HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(ask(server.connect(), "GET /own HTTP/1.0\r\nHost: a.test\r\n\r\n").status, 200);
    assert_eq!(backend.requests_for("/none")[0].field("Host"), Some(&*name));
    assert_eq!(backend.requests_for("/own")[0].field("Host"), Some("a.test"));
    // A host set by the configuration takes precedence.
    let port = backend.address().port();
    let server = lighty!()
        .config(&format!(
            "proxy.server = ( \"\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {port} ) ) )\n\
             proxy.header = ( \"map-host-request\" => ( \"-\" => \"z.test\" ) )"
        ))
        .start();
    assert_eq!(ask(server.connect(), "GET /mapped HTTP/1.0\r\n\r\n").status, 200);
    assert_eq!(backend.requests_for("/mapped")[0].field("Host"), Some("z.test"));
}
