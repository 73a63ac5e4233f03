//! Files that a program names in its response: X-Sendfile and X-Sendfile2.

use super::*;

/// Names the file in the query, in the field in the path info: `/send.sh/X-Sendfile?/srv/a`.
const SEND: &str = "printf '%s: %s\\n' \"${PATH_INFO#/}\" \"$QUERY_STRING\"; \
    printf 'Content-Type: text/x-special\\nSet-Cookie: a=1\\nETag: \"of-the-program\"\\n\\n'; \
    echo 'what the program says'";

#[test]
fn a_named_file_is_sent_as_any_other_with_the_programs_fields() {
    let content: String = (0..30_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    let server = with(&[("send.sh", SEND), ("../files/some file", &content)])
        .config(
            "cgi.x-sendfile = \"enable\"\n\
             cgi.x-sendfile-docroot = ( \"/nowhere\", \"@DIR@/files/\" )",
        )
        .start();
    let file = format!("{}/files//./some%20file", server.directory().display());
    for field in ["X-Sendfile", "X-LIGHTTPD-send-file"] {
        let target = format!("/send.sh/{field}?{file}");
        let whole = server.get(&target);
        assert_eq!((whole.status, whole.text()), (200, &*content));
        assert_eq!(whole.field("Content-Type"), Some("text/x-special"));
        assert_eq!((whole.field("Set-Cookie"), whole.field(field)), (Some("a=1"), None));
        let etag = whole.field("ETag").expect("the program's").to_owned();
        assert_eq!(etag, "\"of-the-program\"", "the program knows more of the file");
        let part = server.get_with(&target, "Range: bytes=1000-1999\r\n");
        assert_eq!((part.status, part.text()), (206, &content[1000..2000]));
        let same = server.get_with(&target, &format!("If-None-Match: {etag}\r\n"));
        assert_eq!((same.status, same.text()), (304, ""));
        let mut client = server.connect();
        client.send(format!("HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = client.response_to_head();
        assert_eq!((head.status, head.field("Content-Length")), (200, Some("30000")));
        assert_eq!(post(&server, &target, "a body").response().text(), content);
    }
    let temporary = format!("{}/files/some%20file", server.directory().display());
    let sent = server.get(&format!("/send.sh/X-LIGHTTPD-send-tempfile?{temporary}"));
    assert_eq!((sent.status, sent.text()), (200, &*content));
    assert!(!server.directory().join("files/some file").exists(), "it was made for this response");
}

#[test]
fn a_program_says_of_its_file_that_it_is_compressed() {
    let program = "printf 'Content-Type:\\n%s\\nX-Sendfile: %s\\n\\n' \
                   \"$(echo \"$QUERY_STRING\" | tr _ ' ')\" \"$(pwd)/big.txt\"";
    let server = with(&[("send.sh", program), ("big.txt", "0123456789")])
        .config("cgi.x-sendfile = \"enable\"")
        .start();
    for (field, wanted) in
        [("Content-Encoding:_gzip", "gzip"), ("Accept-Ranges:_none", "none"), ("X-A:_b", "bytes")]
    {
        let requested = server.get_with(&format!("/send.sh?{field}"), "Range: bytes=2-4\r\n");
        let (status, text) = if wanted == "bytes" { (206, "234") } else { (200, "0123456789") };
        assert_eq!((requested.status, requested.text()), (status, text), "{field}: {requested:?}");
        let name = field.split(':').next().expect("a name");
        let output = requested.field(if wanted == "bytes" { "Accept-Ranges" } else { name });
        assert_eq!(output, Some(wanted), "{requested:?}");
        // No range of a coded file is served.
        let count = usize::from(wanted != "gzip");
        assert_eq!(requested.all("Accept-Ranges").count(), count, "{requested:?}");
        assert_eq!(requested.field("Content-Type"), Some("text/plain"), "{requested:?}");
    }
}

#[test]
fn an_empty_name_of_a_file_names_none() {
    let server = with(&[("a.sh", "printf 'X-Sendfile:\\nContent-Type: text/plain\\n\\nbody'")])
        .config("cgi.x-sendfile = \"enable\"")
        .start();
    let got = server.get("/a.sh");
    assert_eq!((got.status, got.text(), got.field("X-Sendfile")), (200, "body", None));
}

/// Sends the parts of files given in the query, with `+` for spaces.
const SEND_PARTS: &str = "printf 'Status: 206\\nContent-Type: text/x-special\\nETag: \"own\"\\n'; \
    printf 'Content-Range: bytes 5-9/26\\nContent-Length: 3\\n'; \
    printf 'X-Sendfile2: %s\\n\\nnot this' \"$(echo \"$QUERY_STRING\" | tr + ' ')\"";

#[test]
fn parts_of_files_are_sent_one_after_the_other() {
    let letters: String = ('a'..='z').collect();
    let digits = "0123456789".repeat(10_000);
    let server = with(&[
        ("parts.sh", SEND_PARTS),
        ("../files/a, b", &letters),
        ("../files/digits", &digits),
        ("../files/empty", ""),
        ("../secret", "secret"),
    ])
    .link("../files/link", "../secret")
    .config("cgi.x-sendfile = \"enable\"\ncgi.x-sendfile-docroot = ( \"@DIR@/files/\" )")
    .start();
    let files = server.directory().join("files").display().to_string();
    let get = |value: &str| server.get(&format!("/parts.sh?{}", value.replace('@', &files)));
    let one = get("@/a,%20b+5-9");
    assert_eq!((one.status, one.text()), (206, "fghij"));
    assert_eq!(one.field("Content-Range"), Some("bytes 5-9/26"));
    assert_eq!((one.field("ETag"), one.field("X-Sendfile2")), (Some("\"own\""), None));
    assert_eq!(get("@/a,%20b+20-25,+@/digits+99998-,@/empty+0-,@/a,%20b+0-0").text(), "uvwxyz89a");
    let long = get("@/digits+0-,+@/digits+0-");
    assert_eq!((long.body.len(), &long.body[..3]), (200_000, &b"012"[..]));
    let mut client = server.connect();
    client.send(format!("HEAD /parts.sh?{files}/digits+1-10 HTTP/1.1\r\nHost: a\r\n\r\n"));
    let head = client.response_to_head();
    assert_eq!((head.status, head.field("Content-Length")), (206, Some("10")));
    for (refused, status) in [
        ("@/digits", 502),
        ("@/digits+5", 502),
        ("@/digits+9-5", 502),
        ("@/digits+0-100000", 502),
        ("@/digits+0-1;@/digits+0-1", 502),
        ("@/digits+0-1,+/etc/hostname+0-1", 403),
        ("@/../secret+0-1", 403),
        ("@/link+0-1", 403),
        ("@+0-", 403),
        ("digits+0-1", 403),
    ] {
        let answer = get(refused);
        assert_eq!((answer.status, answer.field("ETag")), (status, None), "{refused}: {answer:?}");
        assert!(!answer.text().contains("secret"), "{refused}");
    }
    server.await_log("has no such part");
    assert_eq!(get("@/missing+0-").status, 404);
    let many = |count: usize| vec!["@/digits+7-7"; count].join(",");
    // A URL can hold fewer parts than the limit; the program repeats its URL.
    assert_eq!(get(&many(100)).text(), "7".repeat(100));
}

#[test]
fn a_response_has_n_parts_of_files_at_most() {
    const MANY: &str = "printf 'X: y\\nX-Sendfile2: '; \
        for i in $(seq $QUERY_STRING); do printf '%s/a 0-0,' \"$DOCUMENT_ROOT\"; done; printf '\\n\\n'";
    let server =
        with(&[("many.sh", MANY), ("a", "a")]).config("cgi.x-sendfile = \"enable\"").start();
    assert_eq!(server.get("/many.sh?256").text(), "a".repeat(256));
    assert_eq!(server.get("/many.sh?257").status, 502);
    server.await_log("X-Sendfile2 with more than 256 parts");
}

#[test]
fn files_outside_of_the_allowed_directories_are_refused() {
    let setup = with(&[("send.sh", SEND), ("inside", "x"), ("../secret", "secret")])
        .link("link", "../secret")
        .link("up", "..")
        .link("fine", "inside")
        .config("$HTTP[\"url\"] =^ \"/send\" { cgi.x-sendfile = \"enable\" }")
        .file("other.sh", SEND)
        .file("send0.sh", "printf 'X-Sendfile: %s/inside%%00\\n\\n' \"$DOCUMENT_ROOT\"");
    let server = setup.start();
    let root = server.root("").display().to_string();
    let get = |file: &str| server.get(&format!("/send.sh/X-Sendfile?{file}"));
    send_file::stays_inside(&root, get);
    server.await_log("x-sendfile-docroot");
    server.await_log("/etc/hostname");
    assert_eq!(server.get("/send0.sh").status, 403);
    server.await_log("root/inside%00");
    let unheard = server.get(&format!("/other.sh/X-Sendfile?{root}inside"));
    assert_eq!((unheard.status, unheard.text()), (200, "what the program says\n"));
    assert_eq!(unheard.field("X-Sendfile"), None, "clients learn no path of the server");
}
