//! Conditional requests, ranges, codings and HEAD for every source of a response's body.

use std::time::{Duration, SystemTime};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::gateway::Gateway;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

const GZIP: &str = "Accept-Encoding: gzip\r\n";

/// Compressible text that begins with `0123456789`.
fn text() -> String {
    "0123456789 and so on, once more\n".repeat(60)
}

/// A source of bodies.
struct TaggedSource {
    target: &'static str,
    /// The identity response's tag, if it is known beforehand.
    tag: Option<&'static str>,
    /// The server compares validators itself.
    compares: bool,
    /// The server selects ranges itself.
    has_ranges: bool,
}

const fn source(target: &'static str, tag: Option<&'static str>) -> TaggedSource {
    TaggedSource { target, tag, compares: true, has_ranges: true }
}

impl TaggedSource {
    const fn without_ranges(self) -> Self {
        Self { has_ranges: false, ..self }
    }

    const fn made_elsewhere(self) -> Self {
        Self { compares: false, has_ranges: false, ..self }
    }
}

const SOURCES: &[TaggedSource] = &[
    source("/small.html", None),
    source("/big.html", None),
    source("/index/", None),
    source("/small.html/info", None),
    source("/setenv/a.html", Some("\"v1\"")),
    source("/setenv-add/a.html", Some("\"v1\"")),
    source("/script-file/a.html", Some("\"v1\"")),
    source("/script-start/a.html", Some("\"v1\"")).without_ranges(),
    source("/script-content/x", Some("\"v1\"")).without_ranges(),
    source("/setenv/script-content/x", Some("\"v1\"")).without_ranges(),
    source("/setenv-add/script-content/x", Some("\"v1\"")).without_ranges(),
    source("/script-start/script-content/x", Some("\"v1\"")).without_ranges(),
    source("/script-start/page.shtml", Some("\"v1\"")).without_ranges(),
    source("/script-start/list/", Some("\"v1\"")).without_ranges(),
    source("/list/", None).without_ranges(),
    source("/page.shtml", None).without_ranges(),
    source("/setenv/page.shtml", Some("\"v1\"")).without_ranges(),
    source("/setenv/list/", Some("\"v1\"")).without_ranges(),
    source("/sendfile.sh", None),
    source("/sendfile-tag.sh", Some("\"be\"")),
    source("/setenv/sendfile.sh", Some("\"v1\"")),
    source("/setenv/sendfile-tag.sh", Some("\"v1\"")),
    source("/script-start/sendfile-tag.sh", Some("\"v1\"")).without_ranges(),
    source("/http-sendfile", None),
    source("/setenv-http", Some("\"v1\"")).without_ranges(),
    source("/setenv/cgi.sh", Some("\"v1\"")).without_ranges(),
    source("/http", Some("\"be\"")).made_elsewhere(),
    source("/http-chunked", Some("\"be\"")).made_elsewhere(),
    source("/http-weak", Some("W/\"be\"")).made_elsewhere(),
    source("/cgi.sh", Some("\"be\"")).made_elsewhere(),
    source("/fastcgi", Some("\"be\"")).made_elsewhere(),
    source("/scgi", Some("\"be\"")).made_elsewhere(),
    source("/uwsgi", Some("\"be\"")).made_elsewhere(),
    source("/ajp13", Some("\"be\"")).made_elsewhere(),
    source("/h2", Some("\"be\"")).made_elsewhere(),
];

/// Backends that compare nothing.
struct Backends {
    http: Backend,
    /// Speaks HTTP/2, with `http` as its backend.
    h2: Server,
    gateways: [(&'static str, Backend); 4],
}

impl Backends {
    fn start(file: String) -> Self {
        let http = Backend::replying(move |seen| {
            let typed = |fields: &str| format!("{fields}Content-Type: text/html\r\n");
            let text = text();
            match seen.target() {
                "/http-sendfile" => answer("200 OK", &format!("X-Sendfile: {file}\r\n"), ""),
                _ if seen.method() == "HEAD" => {
                    let tag = if seen.target() == "/http-weak" { "W/\"be\"" } else { "\"be\"" };
                    let fields = typed(&format!("ETag: {tag}\r\n"));
                    let length = text.len();
                    format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n").into()
                }
                "/http-chunked" => format!(
                    "HTTP/1.1 200 OK\r\n{}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n\
                     0\r\n\r\n",
                    typed("ETag: \"be\"\r\n"),
                    text.len()
                )
                .into(),
                "/http-weak" => answer("200 OK", &typed("ETag: W/\"be\"\r\n"), &text),
                _ => answer("200 OK", &typed("ETag: \"be\"\r\n"), &text),
            }
        });
        let output: &'static str = Box::leak(
            format!("Content-Type: text/html\r\nETag: \"be\"\r\n\r\n{}", text()).into_boxed_str(),
        );
        let gateways = [
            ("fastcgi", Gateway::Fastcgi.printing(output)),
            ("scgi", Gateway::Scgi.printing(output)),
            ("uwsgi", Gateway::Uwsgi.printing(output)),
            ("ajp13", Gateway::Ajp13.printing(output)),
        ];
        let h2 = lighty!().in_front_of(&http.name()).start();
        Self { http, h2, gateways }
    }

    fn config(&self) -> String {
        let mut lines = format!(
            "$HTTP[\"url\"] =~ \"^/(setenv-)?http\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.allow-x-sendfile = \"enable\"\nproxy-core.backends = ( \"{}\" ) }}\n",
            self.http.address()
        );
        let gateways =
            self.gateways.iter().map(|(protocol, backend)| (*protocol, backend.address()));
        for (protocol, address) in gateways.chain([("h2", self.h2.address())]) {
            lines += &format!(
                "$HTTP[\"url\"] == \"/{protocol}\" {{ proxy-core.protocol = \"{protocol}\"\n\
                 proxy-core.backends = ( \"{address}\" ) }}\n"
            );
        }
        lines
    }
}

/// A script that makes a response with this tag.
fn script(tag: &str) -> String {
    format!(
        "lighty.header[\"ETag\"] = '\"{tag}\"'\nlighty.header[\"Content-Type\"] = \"text/html\"\n\
         local line = \"0123456789 and so on, once more\\n\"\n\
         lighty.content = {{ line:rep(60) }}\nreturn 200\n"
    )
}

fn setup(backends: impl Fn(&Setup) -> Backends) -> (Server, Backends) {
    let cgi = format!(
        "printf 'Content-Type: text/html\\r\\nETag: \"be\"\\r\\n\\r\\n'\ncat <<END\n{}END\n",
        text()
    );
    let setup = lighty!()
        .file("small.html", text())
        .file("big.html", text().repeat(500))
        .file("index/index.html", text())
        .file("setenv/a.html", text())
        .file("setenv-add/a.html", text())
        .file("script-file/a.html", text())
        .file("script-start/a.html", text())
        .file("page.shtml", format!("<!--#echo var=\"DOCUMENT_URI\" -->{}", text()))
        .file("setenv/page.shtml", text())
        .file("setenv/list/one.txt", "1")
        .file("script-start/list/one.txt", "1")
        .file("script-start/page.shtml", text())
        .file("list/one.txt", "1")
        .file("cgi.sh", &cgi)
        .file("setenv/cgi.sh", &cgi)
        .file("set-tag.lua", "lighty.header[\"ETag\"] = '\"v1\"'\n")
        .file("made.lua", script("v1"))
        .file("made-other.lua", script("other"));
    let root = setup.root("");
    let root = root.to_str().expect("UTF-8").trim_end_matches('/').to_owned();
    let sendfile = format!("printf 'X-Sendfile: {root}/small.html\\r\\n\\r\\n'\n");
    let tagged = format!("printf 'ETag: \"be\"\\r\\nX-Sendfile: {root}/small.html\\r\\n\\r\\n'\n");
    let setup = setup
        .file("sendfile.sh", &sendfile)
        .file("setenv/sendfile.sh", &sendfile)
        .file("sendfile-tag.sh", &tagged)
        .file("setenv/sendfile-tag.sh", &tagged)
        .file("script-start/sendfile-tag.sh", &tagged);
    let backends = backends(&setup);
    let config = format!(
        r#"deflate.mimetypes = ( "text/" )
        ssi.extension = ( ".shtml" )
        ssi.conditional-requests = "enable"
        dir-listing.activate = "enable"
        index-file.names = ( "index.html" )
        cgi.assign = ( ".sh" => "/bin/sh" )
        cgi.x-sendfile = "enable"
        cgi.x-sendfile-docroot = ( "{root}" )
        mimetype.assign = ( ".html" => "text/html" )
        $HTTP["url"] =~ "^/setenv(/|-http)" {{
            setenv.set-response-header = ( "ETag" => "\"v1\"" )
        }}
        $HTTP["url"] =^ "/setenv-add/" {{
            setenv.add-response-header = ( "etag" => "\"v1\"" )
        }}
        $HTTP["url"] =^ "/script-file/" {{
            magnet.attract-physical-path-to = ( "{root}/set-tag.lua" )
        }}
        $HTTP["url"] =^ "/script-start/" {{
            magnet.attract-response-start-to = ( "{root}/set-tag.lua" )
        }}
        $HTTP["url"] =^ "/script-content/" {{
            magnet.attract-physical-path-to = ( "{root}/made.lua" )
        }}
        $HTTP["url"] =~ "^/(setenv|setenv-add|script-start)/script-content/" {{
            magnet.attract-physical-path-to = ( "{root}/made-other.lua" )
        }}
        {}"#,
        backends.config()
    );
    (setup.config(&config).start(), backends)
}

fn start() -> (Server, Backends) {
    let (server, backends) = setup(|setup| {
        let file = setup.root("small.html");
        Backends::start(file.to_str().expect("UTF-8").to_owned())
    });
    // The date of a file that changed within the current second is no strong validator.
    let old = SystemTime::now() - Duration::from_secs(3600);
    for name in ["small.html", "big.html", "index/index.html"] {
        let file = std::fs::File::options().write(true).open(server.root(name)).expect("a file");
        file.set_modified(old).expect("set");
    }
    (server, backends)
}

fn head(server: &Server, target: &str, lines: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n"));
    client.response_to_head()
}

fn tag_of(response: &Response) -> String {
    assert_eq!(response.all("ETag").count(), 1, "{response:?}");
    response.field("ETag").expect("a tag").to_owned()
}

fn assert_held(response: &Response, tag: &str, what: &str) {
    assert_eq!(response.status, 304, "{what}: {response:?}");
    assert_eq!(response.field("ETag"), Some(tag), "{what}: {response:?}");
    assert!(response.body.is_empty(), "{what}: {response:?}");
    assert_eq!(response.field("Content-Encoding"), None, "{what}: {response:?}");
}

#[test]
fn compressed_response_is_recognized_by_its_tag() {
    let (server, _backends) = start();
    for TaggedSource { target, .. } in SOURCES {
        let first = server.get_with(target, GZIP);
        assert_eq!(first.status, 200, "{target}: {first:?}");
        assert_eq!(first.field("Content-Encoding"), Some("gzip"), "{target}: {first:?}");
        let tag = tag_of(&first);
        assert!(tag.ends_with("-gzip\""), "{target}: {tag}");
        let same = format!("{GZIP}If-None-Match: {tag}\r\n");
        assert_held(&server.get_with(target, &same), &tag, target);
        let among = format!("{GZIP}If-None-Match: \"x\", W/\"y-br\", {tag}\r\n");
        assert_held(&server.get_with(target, &among), &tag, target);
        let of_head = head(&server, target, GZIP);
        assert_eq!(tag_of(&of_head), tag, "{target}");
        assert_held(&head(&server, target, &same), &tag, target);
        // The whole compressed response: ranges of the file do not apply to it.
        let part = format!("{GZIP}Range: bytes=0-3\r\nIf-Range: {tag}\r\n");
        let whole = server.get_with(target, &part);
        assert_eq!((whole.status, whole.body.len()), (200, first.body.len()), "{target}");
        // A client that no longer accepts the coding gets the full response.
        let bare = server.get_with(target, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!(bare.status, 200, "{target}: {bare:?}");
        let other = server.get_with(target, &format!("{GZIP}If-None-Match: \"x-gzip\"\r\n"));
        assert_eq!(other.status, 200, "{target}: {other:?}");
    }
}

#[test]
fn not_modified_has_the_tag_that_get_would_have() {
    let (server, _backends) = start();
    for TaggedSource { target, compares, .. } in SOURCES.iter().filter(|source| source.compares) {
        assert!(compares);
        let first = server.get_with(target, GZIP);
        let (tag, bare) = (tag_of(&first), tag_of(&server.get(target)));
        assert_ne!(tag, bare, "{target}");
        let any = format!("{GZIP}If-None-Match: *\r\n");
        assert_held(&server.get_with(target, &any), &tag, target);
        assert_held(&head(&server, target, &any), &tag, target);
        assert_held(&server.get_with(target, "If-None-Match: *\r\n"), &bare, target);
        // The client has the identity form.
        let plain = format!("{GZIP}If-None-Match: {bare}\r\n");
        assert_held(&server.get_with(target, &plain), &bare, target);
        let asks_not = format!("{any}Cache-Control: no-transform\r\n");
        assert_held(&server.get_with(target, &asks_not), &bare, target);
        let Some(date) = first.field("Last-Modified") else { continue };
        let since = format!("{GZIP}If-Modified-Since: {date}\r\n");
        assert_held(&server.get_with(target, &since), &tag, target);
    }
}

#[test]
fn not_modified_varies_as_the_response_does() {
    let server = lighty!()
        .config("deflate.mimetypes = ( \"text/\" )")
        .file("short.html", "short")
        .file("long.html", text())
        .file("empty.html", "")
        .start();
    for (target, vary) in
        [("/short.html", None), ("/long.html", Some("Accept-Encoding")), ("/empty.html", None)]
    {
        for lines in ["", GZIP] {
            let first = server.get_with(target, lines);
            assert_eq!((first.status, first.field("Vary")), (200, vary), "{target}");
            let tag = tag_of(&first);
            for condition in ["*", &tag] {
                let held =
                    server.get_with(target, &format!("{lines}If-None-Match: {condition}\r\n"));
                assert_held(&held, &tag, target);
                assert_eq!(held.field("Vary"), vary, "{target}");
            }
        }
    }
}

#[test]
fn validator_that_is_sent_is_the_one_that_is_compared() {
    let (server, _backends) = start();
    for TaggedSource { target, tag: known, compares, has_ranges } in SOURCES {
        let first = server.get(target);
        assert_eq!((first.status, first.field("Content-Encoding")), (200, None), "{target}");
        let tag = tag_of(&first);
        assert_eq!(known.unwrap_or(&tag), tag, "{target}");
        assert_eq!(tag_of(&head(&server, target, "")), tag, "{target}");
        if !compares {
            continue;
        }
        let weak = format!("W/{}", tag.trim_start_matches("W/"));
        for condition in [tag.clone(), format!("\"x\", {tag}"), weak.clone(), "*".to_owned()] {
            let condition = format!("If-None-Match: {condition}\r\n");
            assert_held(&server.get_with(target, &condition), &tag, target);
            assert_held(&head(&server, target, &condition), &tag, target);
        }
        let other = server.get_with(target, "If-None-Match: \"x\"\r\n");
        assert_eq!((other.status, other.body.len()), (200, first.body.len()), "{target}");
        let met = server.get_with(target, &format!("If-Match: {tag}\r\n"));
        // A weak tag never matches.
        let expected = if tag == weak { 412 } else { 200 };
        assert_eq!(met.status, expected, "{target}: {met:?}");
        let unmet = server.get_with(target, "If-Match: \"x\"\r\n");
        assert_eq!(unmet.status, 412, "{target}: {unmet:?}");
        if !has_ranges {
            continue;
        }
        let part = server.get_with(target, &format!("Range: bytes=0-3\r\nIf-Range: {tag}\r\n"));
        assert_eq!((part.status, part.text()), (206, "0123"), "{target}: {part:?}");
        assert_eq!(tag_of(&part), tag, "{target}");
        let part = format!("{GZIP}Range: bytes=2-3\r\nIf-Range: {tag}\r\n");
        let part = server.get_with(target, &part);
        assert_eq!((part.status, part.text()), (206, "23"), "{target}: {part:?}");
        let changed = server.get_with(target, "Range: bytes=0-3\r\nIf-Range: \"x\"\r\n");
        assert_eq!((changed.status, changed.body.len()), (200, first.body.len()), "{target}");
    }
}

#[test]
fn date_that_is_sent_is_the_one_that_is_compared() {
    const SET: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    let server = lighty!()
        .config(&format!(
            "setenv.set-response-header = ( \"Last-Modified\" => \"{SET}\", \"ETag\" => \"\" )"
        ))
        .file("a.txt", text())
        .start();
    let response = server.get("/a.txt");
    assert_eq!(response.field("Last-Modified"), Some(SET));
    assert_eq!(response.field("ETag"), None);
    let since = |date: &str| server.get_with("/a.txt", &format!("If-Modified-Since: {date}\r\n"));
    assert_eq!(since(SET).status, 304);
    assert_eq!(since("Sun, 06 Nov 1994 08:49:36 GMT").status, 200);
    let range = format!("Range: bytes=0-3\r\nIf-Range: {SET}\r\n");
    assert_eq!(server.get_with("/a.txt", &range).text(), "0123");
}

#[test]
fn backend_sees_its_own_tag_beside_the_compressed_one() {
    let backend = Backend::replying(|seen| {
        let held = seen.field("If-None-Match").unwrap_or_default().to_owned();
        match held.split(", ").any(|tag| tag == "\"be\"") {
            true => b"HTTP/1.1 304 Not Modified\r\nETag: \"be\"\r\n\r\n".to_vec(),
            false => answer("200 OK", "ETag: \"be\"\r\nContent-Type: text/html\r\n", &text()),
        }
    });
    let server = lighty!()
        .config(&format!(
            "deflate.mimetypes = ( \"text/\" )\nproxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{}\" )",
            backend.address()
        ))
        .start();
    let same = format!("{GZIP}If-None-Match: \"be-gzip\"\r\n");
    assert_held(&server.get_with("/a", &same), "\"be-gzip\"", "304");
    let seen = backend.requests_for("/a");
    assert_eq!(seen[0].all("If-None-Match").collect::<Vec<_>>(), ["\"be-gzip\", \"be\""]);
    let _ = server.get_with("/b", "If-Match: \"be-br\"\r\n");
    let seen = backend.requests_for("/b");
    assert_eq!(seen[0].all("If-Match").collect::<Vec<_>>(), ["\"be-br\", \"be\""]);
}

#[test]
fn error_page_ignores_conditions_and_ranges() {
    let server = lighty!()
        .config(
            "deflate.mimetypes = ( \"text/\" )\nmimetype.assign = ( \".html\" => \"text/html\" )\n\
             setenv.set-response-header = ( \"ETag\" => \"\\\"v1\\\"\" )\n\
             $HTTP[\"url\"] =^ \"/own/\" { server.error-handler = \"/page.html\" }",
        )
        .file("page.html", text())
        .start();
    let conditions = ["If-None-Match: \"v1\"\r\n", "If-Match: \"x\"\r\n", "If-None-Match: *\r\n"];
    for target in ["/none", "/own/none"] {
        for lines in conditions.into_iter().chain(["Range: bytes=0-3\r\n"]) {
            for coding in ["", GZIP] {
                let response = server.get_with(target, &format!("{lines}{coding}"));
                assert_eq!(response.status, 404, "{target} {lines}: {response:?}");
                assert!(response.body.len() > 20, "{target} {lines}: {response:?}");
            }
        }
    }
}

/// RFC 9110 section 8.8.2.1.
#[test]
fn date_of_change_is_never_later_than_the_response() {
    let server = lighty!()
        .config(
            "ssi.extension = ( \".shtml\" )\nssi.conditional-requests = \"enable\"\n\
             expire.url = ( \"\" => \"modification plus 60 seconds\" )\n\
             webdav.activate = \"enable\"",
        )
        .file("a.txt", text())
        .file("big.txt", text().repeat(500))
        .file("a.shtml", text())
        .start();
    let later = SystemTime::now() + Duration::from_secs(30 * 86_400);
    for name in ["a.txt", "big.txt", "a.shtml"] {
        let file = std::fs::File::options().write(true).open(server.root(name)).expect("a file");
        file.set_modified(later).expect("set");
    }
    for target in ["/a.txt", "/a.txt", "/big.txt", "/a.shtml"] {
        let response = server.get(target);
        let seconds = |name: &str| {
            let date = response.field(name).expect(name);
            lighty_http::date::parse(date.as_bytes()).expect("a date")
        };
        assert!(seconds("Last-Modified") <= seconds("Date"), "{target}: {response:?}");
        assert_eq!(response.field("Cache-Control"), Some("max-age=60"), "{target}");
        let tag = tag_of(&response);
        let held = server.get_with(target, &format!("If-None-Match: {tag}\r\n"));
        assert_held(&held, &tag, target);
        let earlier = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert_eq!(server.get_with(target, earlier).status, 200, "{target}");
    }
}

/// A site with a file, a page of SSI, and a program that names the file.
fn site_of_bodies() -> Server {
    lighty!()
        .file("a.txt", "A file\n")
        .file("p.shtml", "<!--#echo var=\"LAST_MODIFIED\" -->")
        .file("send.sh", named_by_program(""))
        .file("coded.sh", named_by_program("Content-Encoding: gzip\\n"))
        .file("claims.sh", named_by_program("Content-Encoding: gzip\\nAccept-Ranges: bytes\\n"))
        .file("none.sh", named_by_program("Accept-Ranges: none\\n"))
        .config(
            "ssi.extension = ( \".shtml\" )\nssi.conditional-requests = \"enable\"\n\
             cgi.assign = ( \".sh\" => \"/bin/sh\" )\ncgi.x-sendfile = \"enable\"\n\
             server.error-handler-404 = \"/a.txt\"",
        )
        .start()
}

/// A program that names the file, with these fields.
fn named_by_program(fields: &str) -> String {
    format!("printf 'X-Sendfile: %s/a.txt\\n{fields}\\n' \"$DOCUMENT_ROOT\"")
}

fn status_of(server: &Server, method: &str, target: &str, condition: &str) -> u16 {
    let mut client = server.connect();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\
         {condition}\r\n\r\n"
    ));
    client.response().status
}

/// RFC 9110, 13.1: other methods than GET and HEAD are refused with 412.
#[test]
fn conditions_of_post_are_412_where_get_is_304() {
    let server = site_of_bodies();
    for target in ["/a.txt", "/p.shtml"] {
        let first = server.get(target);
        let tag = first.field("ETag").expect("a tag");
        let changed = first.field("Last-Modified").expect("a date");
        let strong = if tag.starts_with("W/") { 412 } else { 200 };
        for (condition, get, post) in [
            (format!("If-None-Match: {tag}"), 304, 412),
            (format!("If-None-Match: \"x\", {tag}"), 304, 412),
            ("If-None-Match: *".to_owned(), 304, 412),
            ("If-None-Match: \"x\"".to_owned(), 200, 200),
            // A weak tag never matches there (RFC 9110, 13.1.1).
            (format!("If-Match: {tag}"), strong, strong),
            ("If-Match: *".to_owned(), 200, 200),
            ("If-Match: \"x\"".to_owned(), 412, 412),
            (format!("If-Unmodified-Since: {changed}"), 200, 200),
            ("If-Unmodified-Since: Mon, 01 Jan 1990 00:00:00 GMT".to_owned(), 412, 412),
            (format!("If-Modified-Since: {changed}"), 304, 200),
        ] {
            for (method, expected) in [("GET", get), ("POST", post), ("DELETE", 405)] {
                let status = status_of(&server, method, target, &condition);
                assert_eq!(status, expected, "{method} {target} {condition}");
            }
        }
    }
}

/// Conditions do not undo a program's action, and an error page is not the requested resource.
#[test]
fn file_that_a_handler_names_for_post_is_sent_whatever_the_conditions() {
    let server = site_of_bodies();
    let tag = server.get("/a.txt").field("ETag").expect("a tag").to_owned();
    for condition in [format!("If-None-Match: {tag}"), "If-Match: \"x\"".to_owned()] {
        for target in ["/send.sh", "/none"] {
            let status = status_of(&server, "POST", target, &condition);
            assert_eq!(status, 200, "{target} {condition}");
        }
    }
    assert_eq!(status_of(&server, "GET", "/send.sh", &format!("If-None-Match: {tag}")), 304);
}

#[test]
fn accept_ranges_is_said_only_where_ranges_are_served() {
    let server = site_of_bodies();
    for (target, printed, ranged) in [
        ("/a.txt", Some("bytes"), 206),
        ("/send.sh", Some("bytes"), 206),
        ("/coded.sh", None, 200),
        ("/claims.sh", None, 200),
        ("/none.sh", Some("none"), 200),
    ] {
        let whole = server.get(target);
        assert_eq!((whole.status, whole.field("Accept-Ranges")), (200, printed), "{target}");
        assert_eq!(server.get_with(target, "Range: bytes=0-1\r\n").status, ranged, "{target}");
    }
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.0\r\nRange: bytes=0-1\r\n\r\n");
    let old = client.response();
    assert_eq!((old.status, old.field("Accept-Ranges")), (200, None));
}
