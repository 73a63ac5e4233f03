//! Values that lighttpd accepts although they have no meaning, or one that only lighttpd knew.

use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;
use lighty_testkit::{lighty, wait_until};

/// Configuration lines, and a part of the warning about each.
const LINES: [(&str, &str); 28] = [
    ("server.stat-cache-engine = \"none\"", "this value has no effect"),
    ("server.syslog-facility = \"nonsense\"", "this value has no effect"),
    ("server.socket-perms = \"abc\"", "this value has no effect"),
    ("server.feature-flags = ( \"server.h2proto\" => \"x\" )", "this value has no effect"),
    (
        "server.feature-flags = ( \"server.graceful-shutdown-timeout\" => \"-1\" )",
        "this value has no effect",
    ),
    ("accesslog.escaping = \"nonsense\"", "this value has no effect"),
    ("expire.url = ( \"\" => \"access -1 days\" )", "in place of which 0 s are used"),
    ("expire.url = ( \"\" => \"access 100 years\" )", "is more than 68 years"),
    ("setenv.add-environment = ( \"\" => \"a\" )", "is no variable and is left out"),
    ("setenv.add-response-header = ( \"X-A\" => \"a\nb\" )", "which is left out"),
    ("evhost.path-pattern = \"relative/%0/\"", "must begin with a slash; this value has no effect"),
    ("dir-listing.exclude = ( \"(\", \"^a\" )", "this value has no effect"),
    ("dir-listing.cache = ( \"nonsense\" => 1 )", "this value has no effect"),
    ("deflate.max-loadavg = \"x\"", "this value has no effect"),
    ("deflate.max-loadavg = \"-1\"", "this value has no effect"),
    ("deflate.params = ( \"nonsense\" => 1 )", "this value has no effect"),
    ("deflate.params = ( \"gzip.level\" => 10 )", "gzip.level is at most 9"),
    ("extforward.forwarder = ( \"proxy.example\" => \"trust\" )", "names are not looked up"),
    ("extforward.forwarder = ( \"10.0.0.0/33\" => \"trust\" )", "this value has no effect"),
    ("fastcgi.server = ( \"/a\" => () )", "has no hosts for \"/a\""),
    ("proxy.server = ( \"\" => () )", "has no hosts for \"\""),
    ("wstunnel.frame-type = \"x\"", "this value has no effect"),
    ("cgi.limits = ( \"nonsense\" => 1 )", "has no limit \"nonsense\"; this value has no effect"),
    ("cgi.limits = ( \"read-timeout\" => \"x\" )", "this value has no effect"),
    ("cgi.limits = ( \"tcp-fin-propagate\" => \"x\" )", "this value has no effect"),
    ("auth.cache = ( \"max-age\" => \"x\" )", "this value has no effect"),
    ("auth.cache = ( \"nonsense\" => 1 )", "this value has no effect"),
    (
        "fastcgi.server = ( \"/f/\" => (( \"host\" => \"127.0.0.1\", \"port\" => 9, \
         \"kill-signal\" => 99, \"docroot\" => \"\" )) )",
        "this value has no effect",
    ),
];

#[test]
fn server_starts_with_a_warning_about_each_value_without_meaning() {
    for (lines, message) in LINES {
        let setup = lighty!().config(lines);
        let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{lines}: {printed}");
        assert!(printed.contains("warning: ") && printed.contains(message), "{lines}: {printed}");
    }
    for (lines, _) in LINES {
        let server = lighty!().config(lines).file("a.txt", "A").start();
        assert_eq!(server.get("/a.txt").text(), "A", "{lines}: {}", server.log());
    }
}

#[test]
fn words_that_lighttpd_refuses_are_errors() {
    for lines in [
        "server.event-handler = \"nonsense\"",
        "server.network-backend = \"nonsense\"",
        "scgi.protocol = \"nonsense\"",
        "expire.url = ( \"\" => \"access 1 fortnight\" )",
        "expire.url = ( \"\" => \"access - days\" )",
    ] {
        let (code, _, printed) = lighty!().config(lines).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{lines}: {printed}");
    }
}

#[test]
fn relative_places_are_those_of_the_working_directory() {
    let setup = lighty!()
        .file("a.txt", "text ".repeat(2000))
        .file("script.lua", "lighty.r.resp_header['X-Lua'] = 'ran'")
        .config(
            "deflate.mimetypes = ( \"text/\" )\ndeflate.allowed-encodings = ( \"gzip\" )\n\
             deflate.cache-dir = \"cache\"\n\
             magnet.attract-response-start-to = ( \"root/script.lua\" )",
        );
    let cache = setup.directory().join("cache");
    std::fs::create_dir(&cache).expect("made");
    let server = setup.start();
    let got = server.get_with("/a.txt", "Accept-Encoding: gzip\r\n");
    assert_eq!((got.field("Content-Encoding"), got.field("X-Lua")), (Some("gzip"), Some("ran")));
    let is_kept = || std::fs::read_dir(&cache).is_ok_and(|mut kept| kept.next().is_some());
    assert!(wait_until(Duration::from_secs(60), is_kept), "{}", server.log());
}

/// A server on a unix socket. Its path takes the place of a client's address.
fn on_unix_socket(lines: &str) -> (Server, impl Fn(&str) -> Response) {
    let server = lighty!()
        .config(&format!("$SERVER[\"socket\"] == \"@DIR@/l.sock\" {{ }}\n{lines}"))
        .file("a.txt", "A")
        .start();
    let path = server.directory().join("l.sock");
    assert!(wait_until(Duration::from_secs(60), || path.exists()));
    let get = move |fields: &str| {
        let mut client = Client::unix(&path);
        let head = "GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
        client.send(format!("{head}{fields}\r\n"));
        client.response()
    };
    (server, get)
}

#[test]
fn clients_of_a_unix_socket_have_its_path_for_an_address() {
    for (condition, holds) in [
        ("== \"@DIR@/l.sock\"", true),
        ("!= \"@DIR@/l.sock\"", false),
        ("== \"/another\"", false),
        ("!= \"/another\"", true),
        ("=~ \"/l.sock$\"", true),
        ("== \"127.0.0.1\"", false),
        ("!= \"127.0.0.1\"", true),
        ("!= \"0.0.0.0/0\"", true),
        ("!= \"::/0\"", true),
    ] {
        let lines = format!("$HTTP[\"remote-ip\"] {condition} {{ url.access-deny = ( \"\" ) }}");
        let (server, get) = on_unix_socket(&lines);
        assert_eq!(get("").status, if holds { 403 } else { 200 }, "{condition}: {}", server.log());
    }
}

#[test]
fn forwarded_address_replaces_the_path_of_a_unix_socket() {
    let (_server, get) = on_unix_socket(
        "extforward.forwarder = ( \"all\" => \"trust\" )\n\
         $HTTP[\"remote-ip\"] == \"192.0.2.1\" { url.access-deny = ( \"\" ) }",
    );
    assert_eq!(get("X-Forwarded-For: 192.0.2.1\r\n").status, 403);
    assert_eq!(get("X-Forwarded-For: 192.0.2.2\r\n").status, 200);
}

/// Results recorded from lighttpd.
#[test]
fn else_that_follows_no_condition_stands_alone() {
    let tag = |server: &Server, host: &str| {
        let mut client = server.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        client.response().field("Server").unwrap_or_default().to_owned()
    };
    let setup = lighty!()
        .file(
            "else.conf",
            "else $HTTP[\"host\"] == \"b\" { server.tag = \"y\" }\nelse { server.tag = \"z\" }\n",
        )
        .config(
            "$HTTP[\"host\"] == \"a\" { server.tag = \"x\" }\ninclude \"@DIR@/root/else.conf\"",
        );
    let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("warning: this `else` does not follow"), "{printed}");
    let server = setup.start();
    assert_eq!(["a", "b", "c"].map(|host| tag(&server, host)), ["z", "y", "z"]);
    let server = lighty!()
        .config("$HTTP[\"host\"] == \"a\" { server.tag = \"x\" }\nserver.max-worker = 1\nelse { server.tag = \"z\" }")
        .start();
    assert_eq!(["a", "b"].map(|host| tag(&server, host)), ["x", "z"]);
}

#[test]
fn fields_of_64_kb_pass_where_the_limit_says_so() {
    let server = lighty!().config("server.max-request-field-size = 65535").file("a", "A").start();
    let with = |bytes: usize| {
        let mut client = server.connect();
        let head = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Large: ";
        client.send(format!("{head}{}\r\n\r\n", "x".repeat(bytes)));
        client.response().status
    };
    // `Host: a`, `Connection: close` and `X-Large: ` with their line ends are 39 bytes.
    assert_eq!([24_000, 60_000, 65_535 - 39].map(with), [200, 200, 200]);
    assert_eq!([65_535 - 38, 70_000].map(with), [431, 431]);
    let with_http2 = |bytes: usize| {
        let output = std::process::Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--http2-prior-knowledge", "-H"])
            .arg(format!("X-Large: {}", "x".repeat(bytes)))
            .arg(format!("http://{}/a", server.address()))
            .output()
            .expect("curl");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!([24_000, 60_000, 65_000].map(with_http2), ["200", "200", "200"]);
    let default = lighty!().file("a", "A").start();
    let status = default.get_with("/a", &format!("X-Large: {}\r\n", "x".repeat(9000))).status;
    assert_eq!(status, 431);
}
