//! Negotiation of the content coding, and the header fields that describe it.

use std::io::Write;

use lighty_testkit::lighty;

use super::{CODINGS, OneResponseBackend, accepting, head, plain, setup, text};

#[test]
fn every_coding_over_every_kind_of_body() {
    let backend = OneResponseBackend::start(|_, stream| {
        let body = text(50_000);
        let (early, late) = body.split_at(100);
        write!(stream, "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n{early}").expect("sent");
        write!(stream, "{late}").expect("sent");
    });
    let mut setup = setup().config(&backend.route("/backend"));
    for number in 0..300 {
        setup = setup.file(&format!("dir/a file with a name, number {number}.txt"), "x");
    }
    let server = setup.start();
    let get = |target: &str| server.get(target).body;
    for coding in CODINGS {
        for (target, status, body) in [
            ("/small.html", 200, text(600).into_bytes()),
            ("/middle.html", 200, text(30_000).into_bytes()),
            ("/large.html", 200, text(700_000).into_bytes()),
            ("/backend", 200, text(50_000).into_bytes()),
            ("/dir/", 200, get("/dir/")),
        ] {
            let response = accepting(&server, target, coding);
            assert_eq!(response.status, status, "{target} {coding}");
            assert_eq!(response.field("Content-Encoding"), Some(coding), "{target}");
            assert!(plain(&response) == body, "{target} {coding}");
            assert!(response.body.len() < body.len(), "{target} {coding}");
            assert_eq!(
                response.field("Vary").map(|vary| vary.contains("Accept-Encoding")),
                Some(true)
            );
        }
        let missing = accepting(&server, "/missing", &format!("{coding}, identity;q=0"));
        assert_eq!((missing.status, missing.field("Content-Encoding")), (404, Some(coding)));
        assert!(String::from_utf8_lossy(&plain(&missing)).contains("404 Not Found"));
    }
    for path in ["/small.html", "/large.html", "/backend", "/dir/"] {
        let response = server.get(path);
        assert_eq!(response.field("Content-Encoding"), None, "{path}");
        assert!(response.field("Vary").is_some_and(|vary| vary.contains("Accept-Encoding")));
    }
}

#[test]
fn the_client_chooses() {
    let server = setup().start();
    for (accept, coding) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip;q=1.0, br;q=0.9", Some("gzip")),
        ("gzip;q=0", None),
        ("gzip;q=0, *;q=0.1", Some("br")),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0, gzip;q=0.001", Some("gzip")),
        ("", None),
        ("compress", None),
    ] {
        let response = accepting(&server, "/middle.html", accept);
        assert_eq!(response.field("Content-Encoding"), coding, "{accept}");
        assert!(plain(&response) == text(30_000).into_bytes(), "{accept}");
    }
    let lines = "Accept-Encoding: br;q=0.1\r\nAccept-Encoding: gzip\r\n";
    let response = server.get_with("/middle.html", lines);
    assert_eq!(response.field("Content-Encoding"), Some("gzip"));
    let server = setup().config("deflate.allowed_encodings = ( \"gzip\", \"br\" )").start();
    let coding = |accept| {
        accepting(&server, "/middle.html", accept).field("Content-Encoding").map(str::to_owned)
    };
    assert_eq!(coding("zstd").as_deref(), None);
    assert_eq!(coding("zstd, br, gzip").as_deref(), Some("gzip"));
}

#[test]
fn excluded_responses_are_not_compressed() {
    let server = setup()
        .config(
            "$HTTP[\"url\"] == \"/off/x.html\" { deflate.enabled = \"disable\" }\n\
             $HTTP[\"url\"] == \"/bound/x.html\" {\n\
             setenv.add-response-header = ( \"Cache-Control\" => \"public, no-transform\" ) }\n\
             $HTTP[\"url\"] == \"/coded/x.html\" {\n\
             setenv.add-response-header = ( \"Content-Encoding\" => \"gzip\" ) }\n\
             deflate.max-compress-size = 600",
        )
        .file("off/x.html", text(5000))
        .file("bound/x.html", text(5000))
        .file("coded/x.html", text(5000))
        .file("n.html", text(600 * 1024))
        .file("n1.html", text(600 * 1024 + 1))
        .start();
    for target in ["/off/x.html", "/bound/x.html", "/a.jpg", "/tiny.html", "/n1.html"] {
        let response = accepting(&server, target, "gzip");
        assert_eq!(response.field("Content-Encoding"), None, "{target}");
        assert_eq!(response.field("Vary"), None, "{target}");
        assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
    }
    let coded = accepting(&server, "/coded/x.html", "gzip");
    assert!(coded.body == text(5000).into_bytes(), "not twice");
    for target in ["/just.html", "/n.html"] {
        let response = accepting(&server, target, "gzip");
        assert_eq!(response.field("Content-Encoding"), Some("gzip"), "{target}");
    }
    let tiny = accepting(&server, "/tiny.html", "gzip, identity;q=0");
    assert_eq!(tiny.field("Content-Encoding"), Some("gzip"));
    // Ranges refer to the identity form of a file.
    let part = server.get_with("/middle.html", "Accept-Encoding: gzip\r\nRange: bytes=10-19\r\n");
    assert_eq!((part.status, part.field("Content-Encoding")), (206, None));
    assert_eq!(part.body, &text(30_000).as_bytes()[10..20]);
    assert_eq!(part.field("Vary"), Some("Accept-Encoding"));
    let whole =
        server.get_with("/middle.html", "Accept-Encoding: gzip\r\nCache-Control: no-transform\r\n");
    assert_eq!(whole.field("Content-Encoding"), None);
}

#[test]
fn tags_tell_codings_apart() {
    let server = setup().start();
    for target in ["/small.html", "/large.html"] {
        let bare = server.get(target).field("ETag").expect("a tag").to_owned();
        for coding in CODINGS {
            let response = accepting(&server, target, coding);
            let tag = response.field("ETag").expect("a tag").to_owned();
            assert_eq!(tag, format!("{}-{coding}\"", bare.trim_end_matches('"')));
            assert_eq!(response.field("Accept-Ranges"), Some("none"));
            let ask = |accept: &str, name: &str, tag: &str| {
                server.get_with(target, &format!("Accept-Encoding: {accept}\r\n{name}: {tag}\r\n"))
            };
            let unchanged = ask(coding, "If-None-Match", &tag);
            assert_eq!((unchanged.status, unchanged.field("ETag")), (304, Some(&*tag)));
            assert_eq!(unchanged.field("Vary"), Some("Accept-Encoding"));
            assert_eq!(unchanged.field("Content-Encoding"), None);
            let held_plain = ask(coding, "If-None-Match", &bare);
            assert_eq!((held_plain.status, held_plain.field("ETag")), (304, Some(&*bare)));
            // The client holds a coding that it no longer accepts.
            assert_eq!(ask("identity", "If-None-Match", &tag).status, 200);
            assert_eq!(ask(coding, "If-None-Match", "\"1-gzip\"").status, 200);
            assert_eq!(ask(coding, "If-Match", &tag).status, 200);
            assert_eq!(ask(coding, "If-Match", "\"1-gzip\"").status, 412);
            let ranged = server.get_with(
                target,
                &format!("Accept-Encoding: {coding}\r\nRange: bytes=0-9\r\nIf-Range: {tag}\r\n"),
            );
            assert_eq!(ranged.status, 200, "a range of the encoded form");
        }
    }
    // The picture is never encoded, and its tag stays.
    let picture = accepting(&server, "/a.jpg", "gzip");
    let tag = picture.field("ETag").expect("a tag");
    let unchanged =
        server.get_with("/a.jpg", &format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!(
        (unchanged.status, unchanged.field("Vary"), unchanged.field("ETag")),
        (304, None, Some(tag))
    );
    // A listing's tag is weak and stays so.
    let listing = accepting(&server, "/", "gzip");
    let tag = listing.field("ETag").expect("a tag").to_owned();
    assert!(tag.starts_with("W/\"") && tag.ends_with("-gzip\""), "{tag}");
    let lines = format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n");
    let unchanged = server.get_with("/", &lines);
    assert_eq!((unchanged.status, unchanged.field("ETag")), (304, Some(&*tag)));
}

#[test]
fn head_says_what_get_says() {
    let backend = OneResponseBackend::start(|request, stream| {
        let body = text(50_000);
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .expect("sent");
        if !request.starts_with("HEAD") {
            stream.write_all(body.as_bytes()).expect("sent");
        }
    });
    let server = setup().config(&backend.route("/backend")).start();
    for target in [
        "/small.html",
        "/middle.html",
        "/large.html",
        "/tiny.html",
        "/a.jpg",
        "/",
        "/missing",
        "/backend",
    ] {
        for accept in ["gzip", "br", "identity", "zstd;q=0.1, *;q=0"] {
            let lines = format!("Accept-Encoding: {accept}\r\n");
            let get = server.get_with(target, &lines);
            let head = head(&server, target, &lines);
            assert_eq!(get.status, head.status, "{target} {accept}");
            for name in [
                "Content-Length",
                "Transfer-Encoding",
                "Content-Encoding",
                "Content-Type",
                "ETag",
                "Vary",
                "Accept-Ranges",
            ] {
                // Fields known only after the body was generated may be left out (RFC 9110 section
                // 9.3.2).
                let is_made = target == "/" || (target == "/backend" && accept != "identity");
                // Each error page has an id of its own, which compresses to a length of its own.
                let is_own = target == "/missing"
                    && name == "Content-Length"
                    && get.field("Content-Encoding").is_some();
                let may_differ = is_own || (is_made && head.field(name).is_none());
                if !may_differ {
                    assert_eq!(get.field(name), head.field(name), "{target} {accept} {name}");
                }
            }
        }
    }
}

#[test]
fn a_file_that_no_filter_is_for_is_for_one_under_another_type() {
    const SEND: &str = "printf 'X-Sendfile: %s\\nContent-Type: text/html\\n\\n' \"$QUERY_STRING\"";
    let server = setup()
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\ncgi.x-sendfile = \"enable\"")
        .file("a.jpg", text(30_000))
        .file("send.sh", SEND)
        .start();
    let file = server.root("a.jpg").display().to_string();
    for _ in 0..2 {
        for _ in 0..2 {
            let image = accepting(&server, "/a.jpg", "gzip");
            assert_eq!((image.status, image.field("Content-Encoding")), (200, None));
            assert_eq!(image.field("Vary"), None);
        }
        let page = accepting(&server, &format!("/send.sh?{file}"), "gzip");
        assert_eq!(page.field("Content-Encoding"), Some("gzip"), "{page:?}");
        assert_eq!(plain(&page), text(30_000).as_bytes());
    }
}

#[test]
fn values_without_a_meaning_are_warned_of() {
    for (line, message) in [
        ("deflate.params = ( \"BROTLI_PARAM_QUALITY\" => 12 )", "is at most 11"),
        ("deflate.params = ( \"BROTLI_PARAM_QALITY\" => 2 )", "BROTLI_PARAM_QUALITY"),
        ("deflate.max-loadavg = \"high\"", "3.50"),
    ] {
        let (code, out, error) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{line}: as in lighttpd");
        assert!(format!("{out}{error}").contains(message), "{line}: {out}{error}");
    }
    // Same result as lighttpd.
    let line = "deflate.allowed-encodings = ( \"gzip\", \"gzipp\" )";
    let (code, out, error) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
    assert!(code == 0 && format!("{out}{error}").contains("did you mean"), "{out}{error}");
    let good = "deflate.params = ( \"BROTLI_PARAM_QUALITY\" => 11, \"BROTLI_PARAM_MODE\" => \"text\",\n\
                \"ZSTD_c_strategy\" => 1, \"gzip.memLevel\" => 9, \"bzip2.blockSize100k\" => 1 )\n\
                deflate.allowed-encodings = ( \"bzip2\", \"x-gzip\", \"zstd\" )";
    let (code, out, error) = lighty!().config(good).run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{out}{error}");
}
