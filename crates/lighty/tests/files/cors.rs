//! `cors.*`: preflights and the fields of responses.

use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

const APP: &str = "https://app.test";

fn site(rules: &str) -> Setup {
    lighty!().file("a.txt", "A").file("app/a.txt", "A").config(rules)
}

fn preflight(server: &Server, path: &str, origin: &str, lines: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n{lines}\r\n"));
    client.response()
}

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";

#[test]
fn every_response_says_who_may_read_it() {
    let server = site(
        r#"
        cors.allow-origin = ( "https://app.test", "https://*.sub.test" )
        cors.allow-credentials = "enable"
        cors.expose-headers = ( "X-Total", "ETag" )
        "#,
    )
    .start();
    for path in ["/a.txt", "/missing", "/app"] {
        for origin in [APP, "https://x.sub.test"] {
            let response = server.get_with(path, &format!("Origin: {origin}\r\n"));
            assert_eq!(response.field(ALLOW_ORIGIN), Some(origin), "{path}");
            assert_eq!(response.field(ALLOW_CREDENTIALS), Some("true"));
            assert_eq!(response.field("Access-Control-Expose-Headers"), Some("X-Total, ETag"));
            assert_eq!(response.field("Vary"), Some("Origin"));
        }
        for lines in [
            "",
            "Origin: null\r\n",
            "Origin: https://app.test.evil.test\r\n",
            "Origin: https://evilsub.test\r\n",
            "Origin: http://app.test\r\n",
            "Origin: https://app.test\r\nOrigin: https://app.test\r\n",
        ] {
            let response = server.get_with(path, lines);
            assert_eq!(response.field(ALLOW_ORIGIN), None, "{path} {lines}");
            assert_eq!(response.field(ALLOW_CREDENTIALS), None);
            assert_eq!(response.field("Vary"), Some("Origin"), "{path} {lines}");
        }
    }
    let tag = server.get("/a.txt").field("ETag").expect("a tag").to_owned();
    let held = server.get_with("/a.txt", &format!("Origin: {APP}\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!((held.status, held.field(ALLOW_ORIGIN)), (304, Some(APP)));
}

#[test]
fn preflights_are_answered_before_users_are_asked() {
    let server = site(
        r#"
        auth.backend = "plain"
        auth.backend.plain.userfile = "@DIR@/users"
        auth.require = ( "" => ( "method" => "basic", "realm" => "r", "require" => "valid-user" ) )
        cors.allow-origin = ( "https://app.test" )
        cors.allow-methods = ( "PUT" )
        cors.allow-headers = ( "Authorization", "Content-Type" )
        cors.allow-credentials = "enable"
        cors.max-age = 60
        "#,
    )
    .file("../users", "kim:secret\n")
    .start();
    let asks = "Access-Control-Request-Method: PUT\r\n\
                Access-Control-Request-Headers: content-type,authorization\r\n";
    let response = preflight(&server, "/a.txt", APP, asks);
    assert_eq!((response.status, response.body.len()), (204, 0));
    assert_eq!(response.field(ALLOW_ORIGIN), Some(APP));
    assert_eq!(response.field(ALLOW_CREDENTIALS), Some("true"));
    let methods = response.field("Access-Control-Allow-Methods");
    assert_eq!(methods, Some("GET, HEAD, POST, PUT"));
    let fields = response.field("Access-Control-Allow-Headers");
    assert_eq!(fields, Some("content-type, authorization"));
    assert_eq!(response.field("Access-Control-Max-Age"), Some("60"));
    let vary = "Access-Control-Request-Method, Access-Control-Request-Headers, Origin";
    assert_eq!(response.field("Vary"), Some(vary));
    // The actual request needs a password, and scripts may read the 401 response.
    let refused = server.get_with("/a.txt", &format!("Origin: {APP}\r\n"));
    assert_eq!((refused.status, refused.field(ALLOW_ORIGIN)), (401, Some(APP)));
    // An OPTIONS request that is no preflight gets no special treatment.
    assert_eq!(preflight(&server, "/a.txt", APP, "").status, 401);
}

#[test]
fn preflights_are_refused_in_words() {
    let server = site(
        r#"
        cors.allow-origin = ( "https://app.test" )
        cors.allow-headers = ( "X-One" )
        "#,
    )
    .start();
    let get = "Access-Control-Request-Method: GET\r\n";
    for (origin, lines, message) in [
        ("https://evil.test", get, "cors.allow-origin has no https://evil.test"),
        ("null", get, "cors.allow-origin has no null"),
        (APP, "Access-Control-Request-Method: DELETE\r\n", "cors.allow-methods has no DELETE"),
        (
            APP,
            "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: x-one, x-two\r\n",
            "cors.allow-headers has no x-two",
        ),
    ] {
        let response = preflight(&server, "/a.txt", origin, lines);
        assert_eq!(response.status, 403, "{message}");
        server.await_log(message);
    }
    let one = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: X-ONE\r\n";
    assert_eq!(preflight(&server, "/a.txt", APP, one).status, 204);
}

#[test]
fn stars_allow_all_but_credentials() {
    let server = site(
        r#"
        cors.allow-origin = ( "*" )
        cors.allow-methods = ( "*" )
        cors.allow-headers = ( "*" )
        "#,
    )
    .start();
    let asks = "Access-Control-Request-Method: PATCH\r\n\
                Access-Control-Request-Headers: authorization, x-any\r\n";
    let response = preflight(&server, "/a.txt", "null", asks);
    assert_eq!((response.status, response.field(ALLOW_ORIGIN)), (204, Some("*")));
    assert_eq!(response.field("Access-Control-Allow-Methods"), Some("PATCH"));
    assert_eq!(response.field("Access-Control-Allow-Headers"), Some("authorization, x-any"));
    let response = server.get("/a.txt");
    assert_eq!((response.field(ALLOW_ORIGIN), response.field("Vary")), (Some("*"), None));
    for wrong in ["GET POST", "a(b"] {
        let lines = format!("Access-Control-Request-Method: {wrong}\r\n");
        assert_eq!(preflight(&server, "/a.txt", APP, &lines).status, 403, "{wrong}");
    }
}

#[test]
fn fields_of_backends_are_replaced() {
    let origin = lighty!()
        .file("x", "x")
        .config(
            r#"setenv.add-response-header = (
                "Access-Control-Allow-Origin" => "*",
                "Access-Control-Allow-Credentials" => "true",
                "Vary" => "Cookie"
            )"#,
        )
        .start();
    let port = origin.address().port();
    let server = site(&format!(
        r#"
        cors.allow-origin = ( "https://app.test" )
        proxy.server = ( "/x" => (( "host" => "127.0.0.1", "port" => {port} )) )
        "#
    ))
    .start();
    let response = server.get_with("/x", &format!("Origin: {APP}\r\n"));
    let fields = |name: &str| response.all(name).collect::<Vec<_>>();
    assert_eq!(fields(ALLOW_ORIGIN), [APP]);
    assert!(fields(ALLOW_CREDENTIALS).is_empty());
    assert_eq!(fields("Vary"), ["Cookie, Origin"]);
    assert_eq!(server.get("/x").field(ALLOW_ORIGIN), None);
}

#[test]
fn rules_are_those_of_the_url_that_was_asked_for() {
    let server = site(
        r#"
        $HTTP["url"] =~ "^/app/" {
            cors.allow-origin = ( "https://app.test" )
            cors.allow-private-network = "enable"
        }
        server.error-handler-404 = "/a.txt"
        url.rewrite-if-not-file = ( "^/app/old" => "/a.txt" )
        "#,
    )
    .start();
    let origin = format!("Origin: {APP}\r\n");
    for path in ["/app/a.txt", "/app/missing", "/app/old"] {
        let response = server.get_with(path, &origin);
        assert_eq!((response.text(), response.field(ALLOW_ORIGIN)), ("A", Some(APP)), "{path}");
    }
    assert_eq!(server.get_with("/a.txt", &origin).field(ALLOW_ORIGIN), None);
    let asks = "Access-Control-Request-Method: GET\r\n\
                Access-Control-Request-Private-Network: true\r\n";
    let response = preflight(&server, "/app/missing", APP, asks);
    assert_eq!(response.field("Access-Control-Allow-Private-Network"), Some("true"));
}

#[test]
fn pages_of_errors_follow_the_rules_of_the_url_that_failed() {
    let app = r#"$HTTP["url"] =~ "^/app/" { cors.allow-origin = ( "https://app.test" ) }"#;
    let page = r#"$HTTP["url"] == "/page.txt" { cors.allow-origin = ( "https://other.test" ) }"#;
    let open = r#"$HTTP["url"] =~ "^/app/" { cors.allow-origin = ( "*" ) }"#;
    let script = "cgi.assign = ( \".sh\" => \"/bin/sh\" )\n";
    for (rules, expected) in [
        (app.to_owned(), Some(APP)),
        (format!("{app}\n{page}"), Some(APP)),
        (page.to_owned(), None),
        (open.to_owned(), Some("*")),
    ] {
        for handler in ["/page.txt", "/page.sh", "/missing.txt"] {
            let rules = format!("{script}{rules}\nserver.error-handler = \"{handler}\"");
            let server = site(&rules)
                .file("page.txt", "page")
                .file("page.sh", "printf 'Status: 404\\r\\n\\r\\npage'\n")
                .start();
            let origin = format!("Origin: {APP}\r\n");
            let response = server.get_with("/app/missing", &origin);
            assert_eq!(response.status, 404, "{rules}");
            assert_eq!(response.field(ALLOW_ORIGIN), expected, "{rules}");
            let varies = expected.is_some_and(|origin| origin != "*");
            assert_eq!(response.field("Vary") == Some("Origin"), varies, "{rules}: {response:?}");
            let elsewhere = server.get_with("/elsewhere", &origin);
            assert_eq!(elsewhere.field(ALLOW_ORIGIN), None, "{rules}");
        }
    }
}

#[test]
fn allowed_origin_that_setenv_adds_too_is_warned_of() {
    let own = "cors.allow-origin = ( \"https://app.test\" )\n";
    let added = "setenv.add-response-header = ( \"access-control-allow-origin\" => \"*\" )\n";
    let inner = format!("{own}$HTTP[\"url\"] =^ \"/a/\" {{\n{added}}}\n");
    let apart = format!("$HTTP[\"url\"] =^ \"/a/\" {{\n{own}}}\nelse {{\n{added}}}\n");
    for (rules, is_warned_of) in
        [(format!("{own}{added}"), true), (inner, true), (apart, false), (added.to_owned(), false)]
    {
        let (status, out, err) = site(&rules).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(status, 0, "{rules}: {out}{err}");
        let is_named = err.contains("browsers refuse responses that have it twice");
        assert_eq!(is_named, is_warned_of, "{rules}: {out}{err}");
    }
}

#[test]
fn rules_that_give_visitors_away_are_refused() {
    let all = "cors.allow-origin = ( \"*\" )\ncors.allow-credentials = \"enable\"\n";
    let inner = "cors.allow-credentials = \"enable\"\n\
                 $HTTP[\"url\"] =~ \"^/a\" { cors.allow-origin = \"*\" }\n";
    for (rules, message) in [
        (all, "every site could act in the name of its visitors"),
        (inner, "every site could act in the name of its visitors"),
        ("cors.allow-origin = ( \"null\" )\n", "the origin of every sandboxed page"),
        ("cors.allow-origin = ( \"https://*.com\" )\n", "allows a whole top-level domain"),
        ("cors.allow-origin = ( \"app.test\" )\n", "is not an origin"),
        ("cors.allow-origin = ( \"*\", \"https://a.test\" )\n", "it must stand alone"),
        ("cors.allow-methods = ( \"GET, PUT\" )\n", "is not a name"),
    ] {
        let (status, out, err) = site(rules).run(&["-t", "-f", "@CONF@"]);
        assert!(status != 0 && format!("{out}{err}").contains(message), "{rules}: {out}{err}");
    }
    let apart = "cors.allow-origin = ( \"*\" )\n$HTTP[\"url\"] =~ \"^/app\" {\n\
                 cors.allow-origin = ( \"https://app.test\" )\n\
                 cors.allow-credentials = \"enable\"\n}\n";
    let server = site(apart).start();
    assert_eq!(server.get("/a.txt").field(ALLOW_ORIGIN), Some("*"));
}
