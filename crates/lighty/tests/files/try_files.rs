//! `url.try-files` and `url.rewrite-if-missing`: the layouts of applications with a front
//! controller.

use lighty_testkit::dav;
use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};

/// Prints the name of the program and its variables.
const PROGRAM: &str = r#"
printf 'Content-Type: text/plain\r\n\r\n'
printf '%s %s [%s]' "$SCRIPT_NAME" "$REQUEST_URI" "$QUERY_STRING"
"#;

const PROGRAMS: &str = r#"
cgi.assign = ( ".php" => "/bin/sh" )
index-file.names = ( "index.php", "index.html" )
"#;

fn site(config: &str) -> Setup {
    lighty!().config(&format!("{PROGRAMS}{config}"))
}

fn asks(server: &Server, expected: &[(&str, &str)]) {
    // Twice: the second time from the caches.
    for (url, text) in expected.iter().chain(expected) {
        assert_eq!(server.get(url).text(), *text, "{url}");
    }
}

#[test]
fn wordpress_has_directories_of_its_own() {
    for rules in [
        r#"url.try-files = ( "$uri", "$uri/", "/index.php?$args" )"#,
        r#"url.try-files = ( "$uri", "$uri/", "/index.php$is_args$args" )"#,
        r#"url.try-files = ( "${url.path}", "${url.path}/", "/index.php" )"#,
        r#"url.rewrite-if-missing = ( "^/[^?]*(\?.*)?$" => "/index.php$1" )"#,
    ] {
        let server = site(rules)
            .file("index.php", PROGRAM)
            .file("wp-admin/index.php", PROGRAM)
            .file("wp-content/a b.txt", "text")
            .start();
        asks(
            &server,
            &[
                ("/", "/index.php / []"),
                ("/?p=1", "/index.php /?p=1 [p=1]"),
                ("/2026/11/a-post/?x=%7e&y", "/index.php /2026/11/a-post/?x=%7e&y [x=~&y]"),
                ("/wp-admin/?a", "/wp-admin/index.php /wp-admin/?a [a]"),
                ("/wp-content/a%20b.txt?v=2", "text"),
                ("/wp-content/missing.txt", "/index.php /wp-content/missing.txt []"),
                ("/caf%C3%A9/%25", "/index.php /caf%C3%A9/%25 []"),
            ],
        );
        assert_eq!(server.get("/wp-admin").status, 301, "{rules}");
    }
}

#[test]
fn laravel_and_symfony_have_one_program() {
    let server = site(r#"url.try-files = ( "$uri", "/index.php" )"#)
        .file("index.php", PROGRAM)
        .file("build/app.js", "script")
        .start();
    asks(
        &server,
        &[
            ("/users/7?page=2", "/index.php /users/7?page=2 [page=2]"),
            ("/build/app.js?id=1", "script"),
            ("/build/", "/index.php /build/ []"),
            ("/index.php?q", "/index.php /index.php?q [q]"),
        ],
    );
}

#[test]
fn dokuwiki_and_drupal_move_the_path_to_the_query() {
    let server = site(r#"url.try-files = ( "$uri", "$uri/", "/doku.php?id=$uri&$args" )"#)
        .file("doku.php", PROGRAM)
        .file("lib/exe/css.php", PROGRAM)
        .start();
    asks(
        &server,
        &[
            ("/wiki/start?do=edit", "/doku.php /wiki/start?do=edit [id=/wiki/start&do=edit]"),
            ("/a%20b", "/doku.php /a%20b [id=/a%20b&]"),
            ("/a%26b", "/doku.php /a%26b [id=/a%26b&]"),
            ("/a+b=%3F", "/doku.php /a+b=%3F [id=/a%2Bb%3D%3F&]"),
            ("/lib/exe/css.php?t=x", "/lib/exe/css.php /lib/exe/css.php?t=x [t=x]"),
        ],
    );
}

#[test]
fn candidates_may_be_elsewhere() {
    let server = site(
        r#"
        alias.url = ( "/kept/" => "@DIR@/kept/" )
        url.try-files = ( "/kept$uri.html", "$uri", "$uri.html", "$uri/index.html", "=404" )
        $HTTP["url"] =~ "^/kept/secret" { url.access-deny = ( "" ) }
        "#,
    )
    .file("../kept/a.html", "kept a")
    .file("../kept/secret.html", "secret")
    .file("a", "a")
    .file("b", "b")
    .file("c.html", "c")
    .file("d/index.html", "d")
    .start();
    asks(&server, &[("/a", "kept a"), ("/b?x", "b"), ("/c", "c"), ("/d", "d")]);
    assert_eq!(server.get("/secret").status, 404, "a refused candidate is none");
    assert_eq!(server.get("/nothing").status, 404);
}

#[test]
fn other_statuses_end_the_search() {
    let server = site(
        r#"
        url.try-files = ( "$uri", "=410" )
        server.error-handler = "/gone.html"
        "#,
    )
    .file("gone.html", "gone")
    .start();
    let response = server.get("/old");
    assert_eq!((response.status, response.text()), (410, "gone"));
}

#[test]
fn backends_of_a_prefix_come_first() {
    let origin = lighty!().file("api/x", "backend").start();
    let rules = [
        r#"url.try-files = ( "$uri", "/index.html" )"#,
        r#"url.rewrite-if-missing = ( "" => "/index.html" )"#,
    ];
    for rules in rules {
        let port = origin.address().port();
        let backend = format!(
            r#"proxy.server = ( "/api" => (( "host" => "127.0.0.1", "port" => {port} )) )"#
        );
        let server = site(rules).config(&backend).file("index.html", "app").start();
        asks(&server, &[("/api/x", "backend"), ("/settings", "app"), ("/", "app")]);
        assert_eq!(server.get("/api/y").status, 404, "of the backend");
    }
}

#[test]
fn rules_of_the_url_and_conditions_come_before() {
    let server = site(
        r#"
        url.rewrite-once = ( "^/moved/(.*)" => "/new/$1" )
        $HTTP["url"] =~ "^/new/" { url.try-files = ( "$uri", "/new.html" ) }
        $HTTP["url"] =~ "^/round" { url.try-files = ( "$uri", "/round" ) }
        "#,
    )
    .file("new.html", "new")
    .file("new/file", "file")
    .start();
    asks(&server, &[("/moved/x", "new"), ("/moved/file", "file"), ("/new/y", "new")]);
    assert_eq!(server.get("/other").status, 404);
    assert_eq!(server.get("/round").status, 404, "once");
}

#[test]
fn request_methods_and_bodies_stay() {
    let program =
        "printf 'Content-Type: text/plain\\r\\n\\r\\n'; printf %s \"$REQUEST_METHOD \"; cat";
    let server =
        site(r#"url.try-files = ( "$uri", "/index.php" )"#).file("index.php", program).start();
    assert_eq!(server.post("/form?x", "Content-Length: 3", b"a=b"), b"POST a=b");
}

#[test]
fn streams_of_http2_try_files_each_for_itself() {
    let server = site(r#"url.try-files = ( "$uri", "$uri/", "/index.php?$args" )"#)
        .file("index.php", PROGRAM)
        .file("a.txt", "text")
        .file("d/index.html", "index")
        .start();
    let mut client = Http2::connect(server.address());
    let wanted = [
        ("/a.txt", "text"),
        ("/missing?x=1", "/index.php /missing?x=1 [x=1]"),
        ("/d/", "index"),
        ("/d/none", "/index.php /d/none []"),
        ("/a.txt?q", "text"),
    ];
    let opened = wanted.map(|(target, _)| {
        let fields = client.request_fields("GET", target);
        client.open(&fields, true)
    });
    for (stream, (target, text)) in opened.into_iter().zip(wanted) {
        let answer = client.answer(stream);
        assert_eq!(answer.status, 200, "{target}");
        assert_eq!(answer.text(), text, "{target}");
    }
    let posted = client.post("/missing", b"content");
    assert_eq!(posted.text(), "/index.php /missing []");
}

#[test]
fn webdav_changes_the_url_that_it_names() {
    let server = site(r#"url.try-files = ( "$uri", "/index.php" )"#)
        .webdav("")
        .file("index.php", PROGRAM)
        .file("a.txt", "text")
        .start();
    let status = |method: &str, target: &str, lines: &str, body: &str| {
        dav::request(&server, method, target, lines, body).status
    };
    assert_eq!(status("PUT", "/new.txt", "", "new"), 201);
    assert_eq!(server.get("/new.txt").text(), "new");
    assert_eq!(status("PUT", "/a.txt", "", "more"), 204);
    assert_eq!(status("MKCOL", "/c", "", ""), 201);
    assert_eq!(status("MOVE", "/new.txt", "Destination: /c/moved.txt\r\n", ""), 201);
    assert_eq!(server.get("/c/moved.txt").text(), "new");
    assert_eq!(status("PROPFIND", "/c/", "Depth: 0\r\n", ""), 207);
    assert_eq!(status("DELETE", "/c/moved.txt", "", ""), 204);
    assert_eq!(status("DELETE", "/missing.txt", "", ""), 404);
    // These methods never reach the front controller, even for missing files.
    assert_eq!(server.get("/index.php").text(), "/index.php /index.php []");
    assert_eq!(server.get("/new.txt").text(), "/index.php /new.txt []");
}
