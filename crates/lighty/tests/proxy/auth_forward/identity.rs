//! Fields that only the service may set, and fields that only lighty may set.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::gateway::Gateway;
use lighty_testkit::http2::Http2;
use lighty_testkit::matrix::{assert_matrix, table};
use lighty_testkit::{lighty, wait_until};

use super::{guarded, only, send, values};

/// Spellings of a field that some program or server takes for `Remote-User`.
const SPELLINGS: [&str; 8] = [
    "Remote-User",
    "remote-user",
    "REMOTE-USER",
    "Remote_User",
    "REMOTE_USER",
    "rEMOTE_uSER",
    "Remote.User",
    "Remote!User",
];

/// A rule with a service that names a user only if the query has `as=NAME`.
const KEYS: &str = "\"response-headers\" => ( \"Remote-User\", \"X-authentik-*\" )";

fn naming_service() -> Backend {
    Backend::replying(|seen| {
        let uri = seen.field("X-Forwarded-Uri").expect("a URL");
        let fields = match uri.split_once("as=") {
            Some((_, user)) => format!("Remote-User: {user}\r\nX-Authentik-Groups: staff\r\n"),
            None => String::new(),
        };
        answer("204 No Content", &fields, "")
    })
}

#[test]
fn forged_identity_is_removed_in_every_spelling() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, KEYS);
    let mut rows = vec![vec!["sent".to_owned(), "seen without a user".into(), "with one".into()]];
    for spelling in SPELLINGS.into_iter().chain(["X-authentik-uid", "X_Authentik_Groups"]) {
        let mut row = vec![spelling.to_owned()];
        for target in ["/a", "/a?as=kim"] {
            let lines = format!("{spelling}: root\r\n{spelling}: admin\r\nX-Own: stays\r\n");
            assert_eq!(server.get_with(target, &lines).status, 200, "{}", server.log());
            let seen = backend.requests().pop().expect("a request");
            assert_eq!(seen.field("X-Own"), Some("stays"));
            assert!(!seen.head.contains("root") && !seen.head.contains("admin"), "{}", seen.head);
            let question = service.requests().pop().expect("a request");
            assert!(!question.head.contains("root"), "{}", question.head);
            row.push(format!("{:?}", values(&seen, "Remote-User")));
        }
        rows.push(row);
    }
    assert_matrix(&table(&rows), AS_SEEN);
}

const AS_SEEN: &str = r#"
sent                seen without a user  with one
Remote-User         []                   ["kim"]
remote-user         []                   ["kim"]
REMOTE-USER         []                   ["kim"]
Remote_User         []                   ["kim"]
REMOTE_USER         []                   ["kim"]
rEMOTE_uSER         []                   ["kim"]
Remote.User         []                   ["kim"]
Remote!User         []                   ["kim"]
X-authentik-uid     []                   ["kim"]
X_Authentik_Groups  []                   ["kim"]
"#;

#[test]
fn programs_see_the_services_user_in_their_variables() {
    let service = naming_service();
    let keys = "\"response-headers\" => ( \"Remote-User\" ), \"user-header\" => \"Remote-User\"";
    let program = "printf 'Content-Type: text/plain\\n\\n'; env";
    let server = lighty!()
        .file("env.sh", program)
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\naccesslog.filename = \"@DIR@/log\"")
        .config("accesslog.format = \"%u %{AUTH_TYPE}e %r\"")
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"url\" => \"http://{}\", {keys} ) )",
            service.name()
        ))
        .start();
    for spelling in SPELLINGS {
        let page = server.get_with("/env.sh?as=kim", &format!("{spelling}: root\r\n"));
        let lines: Vec<_> = page.text().lines().filter(|line| line.contains("REMOTE_U")).collect();
        let mut lines = lines;
        lines.sort_unstable();
        assert_eq!(lines, ["HTTP_REMOTE_USER=kim", "REMOTE_USER=kim"], "{spelling}");
        assert!(page.text().contains("\nAUTH_TYPE=Forward\n"), "{}", page.text());
        let page = server.get_with("/env.sh", &format!("{spelling}: root\r\n"));
        assert!(!page.text().contains("REMOTE_U"), "{spelling}: {}", page.text());
    }
    let log = server.directory().join("log");
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    let is_there = || logged().contains("kim Forward GET /env.sh?as=kim");
    assert!(wait_until(Duration::from_secs(30), is_there), "{}", logged());
}

#[test]
fn variables_of_gateways_have_one_user() {
    let service = naming_service();
    let backend = Gateway::Fastcgi.telling_variables();
    let keys = "\"response-headers\" => ( \"Remote-User\" ), \"user-header\" => \"Remote-User\"";
    let server = lighty!()
        .config("proxy-core.protocol = \"fastcgi\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .config(&format!(
            "auth.forward = ( \"/\" => ( \"url\" => \"http://{}\", {keys} ) )",
            service.name()
        ))
        .start();
    let page = server.get_with("/a?as=kim", "Remote_User: root\r\nREMOTE-USER: root\r\n");
    assert!(page.text().contains("HTTP_REMOTE_USER=kim"), "{}", page.text());
    assert!(page.text().contains("REMOTE_USER=kim") && !page.text().contains("=root"));
}

#[test]
fn connection_option_removes_nothing_that_lighty_sets() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, KEYS);
    let page = send(
        &server,
        "GET /a?as=kim HTTP/1.1\r\nHost: a\r\nConnection: Remote-User, X-Forwarded-Uri, X-Own\r\n\
         Connection: X-Forwarded-Method, x-forwarded-host, close\r\nX-Own: mine\r\n\
         Remote-User: root\r\n\r\n",
    );
    assert_eq!(page.status, 200);
    assert!(page.says_close(), "its own options count");
    let question = only(service.requests());
    assert_eq!(question.field("X-Forwarded-Uri"), Some("/a?as=kim"));
    assert_eq!(
        (question.field("X-Forwarded-Method"), question.field("X-Forwarded-Host")),
        (Some("GET"), Some("a"))
    );
    assert_eq!(question.field("X-Own"), None);
    let seen = only(backend.requests());
    assert_eq!((seen.field("Remote-User"), seen.field("X-Own")), (Some("kim"), None));
}

#[test]
fn forwarded_fields_are_lightys_own() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, "\"preset\" => \"nginx\"");
    let forged = "X-Forwarded-Method: DELETE\r\nX-Forwarded-Uri: /public\r\nX_Forwarded_Uri: /b\r\n\
                  X-Forwarded-Host: evil\r\nX-Forwarded-Proto: wss\r\nX-Forwarded-For: 9.9.9.9\r\n\
                  X-Original-URL: http://evil/\r\nX-Original-Method: PUT\r\nX_Original_URI: /x\r\n\
                  X-Original-Uri: /y\r\nForwarded: for=9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\n\
                  X-Forwarded-Server: evil\r\nX-Forwarded-Prefix: /evil\r\n";
    assert_eq!(server.get_with("/a?b", forged).status, 200);
    let question = only(service.requests());
    for (name, value) in [
        ("X-Forwarded-Method", "GET"),
        ("X-Forwarded-Uri", "/a?b"),
        ("X-Forwarded-Host", "localhost"),
        ("X-Forwarded-Proto", "http"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Original-URL", "http://localhost/a?b"),
        ("X-Original-URI", "/a?b"),
        ("X-Original-Method", "GET"),
    ] {
        assert_eq!(question.field(name), Some(value), "{name}");
    }
    for evil in ["evil", "9.9.9.9", "DELETE", "PUT", "wss", "X_", "public"] {
        assert!(!question.head.contains(evil), "{evil}: {}", question.head);
    }
    let seen = only(backend.requests());
    for evil in ["X-Original", "X_", "/public", "X-Forwarded-Server", "X-Forwarded-Prefix", "wss"] {
        assert!(!seen.head.contains(evil), "{evil}: {}", seen.head);
    }
    assert_eq!(seen.field("X-Forwarded-For"), Some("127.0.0.1"));
}

#[test]
fn trusted_proxy_names_the_client() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let setup = lighty!().config("extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )");
    let server = guarded(setup, &service, &backend, KEYS);
    let lines = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nRemote-User: root\r\n\
                 X-Forwarded-Uri: /public\r\n";
    assert_eq!(server.get_with("/a", lines).status, 200);
    let question = only(service.requests());
    assert_eq!(question.field("X-Forwarded-For"), Some("192.0.2.7"));
    assert_eq!(question.field("X-Forwarded-Proto"), Some("https"));
    assert_eq!(question.field("X-Forwarded-Uri"), Some("/a"));
    let seen = only(backend.requests());
    assert_eq!(seen.field("X-Forwarded-For"), Some("192.0.2.7, 127.0.0.1"));
    assert_eq!(seen.field("Remote-User"), None, "a proxy's word does not name the user");
}

#[test]
fn request_without_a_rule_has_no_forged_identity_either() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = lighty!()
        .in_front_of(&backend.name())
        .config(&format!(
            "auth.forward = ( \"/private/\" => ( \"url\" => \"http://{}\", {KEYS} ),
                              \"/private-too\" => ( \"exempt\" => \"enable\" ) )",
            service.name()
        ))
        .start();
    for target in ["/public", "/private-too", "/PRIVATE/a"] {
        assert_eq!(server.get_with(target, "Remote_User: root\r\nRemote-User: r\r\n").status, 200);
        let seen = backend.requests().pop().expect("a request");
        assert!(!seen.head.to_lowercase().contains("user"), "{}", seen.head);
    }
    assert!(service.requests().is_empty());
}

#[test]
fn service_sees_the_url_that_the_backend_gets() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, KEYS);
    for target in ["/public/../private", "/public/%2e%2e/private", "//private", "/a%20b?c=%20d"] {
        assert_eq!(server.get(target).status, 200);
        let question = service.requests().pop().expect("a request");
        let seen = backend.requests().pop().expect("a request");
        assert_eq!(question.field("X-Forwarded-Uri"), Some(seen.target()), "{target}");
        assert!(!seen.target().contains(".."));
    }
}

#[test]
fn body_and_its_fields_are_not_sent_to_the_service() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, KEYS);
    let page = send(
        &server,
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nContent-Length: 4\r\n\
         Content_Length: 9\r\nContent-Encoding: x\r\nContent-MD5: y\r\nExpect: 100-continue\r\n\
         Range: bytes=0-1\r\nIf-Range: \"x\"\r\nIf-None-Match: *\r\nIf-Modified-Since: x\r\n\
         TE: trailers\r\nConnection: TE\r\nMax-Forwards: 3\r\nX-Own: stays\r\n\
         Sec-WebSocket-Key: x\r\nAccept: a/b\r\nAuthorization: Basic eDp5\r\n\r\nbody",
    );
    assert_eq!(page.status, 200);
    let question = only(service.requests());
    assert_eq!((question.line(), &*question.body), ("GET /auth HTTP/1.1", &b""[..]));
    assert_eq!(question.field("X-Forwarded-Method"), Some("POST"));
    let names: Vec<String> = question
        .head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':').map(|(name, _)| name.to_ascii_lowercase()))
        .collect();
    let mut names = names;
    names.sort_unstable();
    let expected = [
        "accept",
        "authorization",
        "host",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-method",
        "x-forwarded-proto",
        "x-forwarded-uri",
        "x-own",
    ];
    assert_eq!(names, expected, "{}", question.head);
}

#[test]
fn trailers_bring_no_identity() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let setup = lighty!().config("proxy-core.trailers = \"enable\"");
    let server = guarded(setup, &service, &backend, KEYS);
    let page = send(
        &server,
        "POST /a HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n\
         4\r\nbody\r\n0\r\nRemote-User: root\r\nRemote_User: root\r\nX-Sum: 7\r\n\r\n",
    );
    assert_eq!(page.status, 200);
    let seen = only(backend.requests());
    assert_eq!((&*seen.body, &*seen.trailers), (&b"body"[..], &["X-Sum: 7".to_owned()][..]));
}

#[test]
fn body_is_not_asked_for_before_the_verdict() {
    let release = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&release);
    let service = Backend::replying(move |seen| {
        wait_until(Duration::from_secs(60), || held.load(Ordering::SeqCst));
        let is_good = seen.field("X-Forwarded-Uri") == Some("/good");
        answer(if is_good { "200 OK" } else { "403 Forbidden" }, "", "")
    });
    let backend = Backend::answering("page");
    let server = guarded(lighty!(), &service, &backend, "\"timeout\" => 60");
    let mut clients = ["/good", "/bad"].map(|target| {
        let mut client = server.connect();
        client.send(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        ));
        client
    });
    assert!(wait_until(Duration::from_secs(30), || service.requests().len() == 2));
    assert!(clients[0].stays_silent(Duration::from_millis(200)));
    release.store(true, Ordering::SeqCst);
    assert_eq!(clients[0].interim(), 100);
    clients[0].send("body");
    assert_eq!(clients[0].response().text(), "page");
    let refusal = clients[1].response();
    assert_eq!((refusal.status, refusal.interim.len()), (403, 0));
    assert_eq!(only(backend.requests()).body, b"body");
}

#[test]
fn all_values_and_nothing_else_of_a_permission_are_set() {
    let service = Backend::replying(|_| {
        answer(
            "200 OK",
            "Remote-Groups: a\r\nremote-groups: b\r\nRemote-Name:\r\nRemote-Other: x\r\n\
             Connection: Remote-Email\r\nRemote-Email: kim@example.org\r\n",
            "",
        )
    });
    let backend = Backend::answering("page");
    let keys = "\"response-headers\" => ( \"Remote-User\", \"Remote-Groups\", \"Remote-Name\", \
                \"Remote-Email\" )";
    let server = guarded(lighty!(), &service, &backend, keys);
    assert_eq!(server.get_with("/", "Remote-Email: forged\r\n").status, 200);
    let seen = only(backend.requests());
    assert_eq!(values(&seen, "Remote-Groups"), ["a", "b"]);
    assert_eq!(values(&seen, "Remote-Name"), [""]);
    assert_eq!(values(&seen, "Remote-Other"), [""; 0]);
    assert_eq!(values(&seen, "Remote-Email"), [""; 0], "it is for one connection");
}

#[test]
fn service_may_replace_the_clients_credentials() {
    let service = Backend::replying(|seen| {
        let own = seen.field("Authorization").unwrap_or("none").to_owned();
        let token = if own == "Bearer client" { "Authorization: Bearer service\r\n" } else { "" };
        answer("200 OK", token, "")
    });
    let backend = Backend::answering("page");
    let server =
        guarded(lighty!(), &service, &backend, "\"response-headers\" => ( \"Authorization\" )");
    for (lines, expected) in [
        ("Authorization: Bearer client\r\n", Some("Bearer service")),
        ("Authorization: Bearer other\r\n", None),
        ("", None),
    ] {
        assert_eq!(server.get_with("/", lines).status, 200);
        let seen = backend.requests().pop().expect("a request");
        assert_eq!(seen.field("Authorization"), expected, "{lines}");
    }
}

#[test]
fn streams_of_http2_have_the_same_rules() {
    let (service, backend) = (naming_service(), Backend::answering("page"));
    let server = guarded(lighty!(), &service, &backend, KEYS);
    let mut client = Http2::connect(server.address());
    let page = client.get_with("/a?as=kim", &[("remote-user", "root"), ("remote_user", "root")]);
    assert_eq!((page.status, &*page.text()), (200, "page"));
    let seen = only(backend.requests());
    assert_eq!(values(&seen, "Remote-User"), ["kim"]);
    assert!(!seen.head.contains("root"), "{}", seen.head);
    let page = client.post("/a", b"content");
    assert_eq!(page.status, 200);
    let question = service.requests().pop().expect("a request");
    assert_eq!((question.method(), question.field("X-Forwarded-Method")), ("GET", Some("POST")));
    assert_eq!(backend.requests().pop().expect("a request").body, b"content");
}
