//! Refused files, and the responses in their place.

use std::fs;

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, write_file};

use super::find;

#[test]
fn the_error_handler_answers_every_kind_of_refusal() {
    let server = lighty!()
        .file("a.txt", "x")
        .file("error.html", "sorry")
        .config("server.error-handler = \"/error.html\"\nserver.max-request-size = 1")
        .start();
    let answer_to = |request: &str| {
        let mut client = server.connect();
        client.send(request);
        let answer = client.response();
        assert_eq!(answer.text(), "sorry", "{request}");
        answer
    };
    assert_eq!(answer_to("GET /none HTTP/1.1\r\nHost: a\r\n\r\n").status, 404);
    assert_eq!(answer_to("WINK /a.txt HTTP/1.1\r\nHost: a\r\n\r\n").status, 501);
    let too_large = "POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n";
    let refused = answer_to(too_large);
    assert_eq!(refused.status, 413);
    assert!(refused.says_close());
    let refused = answer_to("DELETE /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((refused.status, refused.field("Allow")), (405, Some("OPTIONS, GET, HEAD, POST")));
    let refused = answer_to("GET /a.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=9-\r\n\r\n");
    assert_eq!((refused.status, refused.field("Content-Range")), (416, Some("bytes */1")));
}

#[test]
fn excluded_endings_are_never_sent() {
    let server = lighty!()
        .file("a.php", "<?php secret")
        .file("a.txt", "x")
        .config("static-file.exclude-extensions = ( \".php\", \"~\" )")
        .start();
    assert_eq!(server.get("/a.php").status, 403);
    assert_eq!(server.get("/a.php/info").status, 403);
    assert_eq!(server.get("/a.txt").status, 200);
}

#[test]
fn error_pages_come_from_their_prefix() {
    let server = lighty!().file("dir/x", "").config("server.errorfile-prefix = \"@DIR@/error-\"");
    write_file(&server.directory().join("error-404.html"), "my 404\n");
    let server = server.start();
    let response = server.get("/none");
    assert_eq!((response.status, response.text()), (404, "my 404\n"));
    assert!(response.field("Content-Type").unwrap_or("").starts_with("text/html"));
    let built_in = server.get("/dir/");
    assert_eq!(built_in.status, 403);
    assert!(built_in.text().contains("403"));
    let largest = " ".repeat(1024 * 1024);
    write_file(&server.directory().join("error-403.html"), &largest);
    assert_eq!(server.get("/dir/").body, largest.as_bytes());
    write_file(&server.directory().join("error-403.html"), largest + " ");
    // Each built-in page has an identifier of its own, which is as long as any other.
    assert_eq!(server.get("/dir/").body.len(), built_in.body.len());
    server.await_log("error-403.html is not sent: it has more than 1048576 bytes");
}

#[test]
fn an_error_page_that_is_no_file_is_not_waited_for() {
    let server = lighty!().file("dir/x", "").config("server.errorfile-prefix = \"@DIR@/error-\"");
    let pipe = server.directory().join("error-404.html");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RWXU).expect("mkfifo");
    std::fs::create_dir(server.directory().join("error-403.html")).expect("a directory");
    let server = server.start();
    for (path, status) in [("/none", 404), ("/dir/", 403)] {
        let built_in = server.get(path);
        assert_eq!(built_in.status, status);
        assert!(built_in.text().contains(&status.to_string()), "{path}");
    }
}

#[test]
fn error_handlers_answer_and_the_status_of_every_error_stays() {
    let for_404 = lighty!()
        .file("sorry.html", "sorry\n")
        .file("dir/x", "")
        .config("server.error-handler-404 = \"/sorry.html\"")
        .start();
    let response = for_404.get("/none");
    assert_eq!((response.status, response.text()), (200, "sorry\n"));
    let response = for_404.get("/dir/");
    assert_eq!((response.status, response.text()), (200, "sorry\n"));
    let for_all = lighty!()
        .file("sorry.html", "sorry\n")
        .config("server.error-handler = \"/sorry.html\"")
        .start();
    let mut client = for_all.connect();
    client.send("DELETE /sorry.html HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.text()), (405, "sorry\n"));
    let mut client = for_404.connect();
    client.send("POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    let response = client.response();
    assert_eq!((response.status, response.text()), (200, "sorry\n"));
    let missing = lighty!().config("server.error-handler = \"/gone.html\"").start();
    assert_eq!(missing.get("/none").status, 404);
}

/// A site with handlers of every kind; `directive` names the handler's URL.
fn with_handler(directive: &str, handler: &str) -> Server {
    let script = |name: &str| {
        format!(
            "$HTTP[\"url\"] == \"/{name}\" {{\n\
             magnet.attract-physical-path-to = ( \"@DIR@/root/{name}.lua\" ) }}\n"
        )
    };
    lighty!()
        .file("d/x", "x")
        .file("empty.txt", "")
        .file("away.lua", "lighty.header['Location'] = '/d/x'\nreturn 302\n")
        .file("none.lua", "return 204\n")
        .file("bare.lua", "return 200\n")
        .file("text.lua", "lighty.content = { 'text' }\nreturn 200\n")
        .file("away.sh", "printf 'Status: 302\\r\\nLocation: /d/x\\r\\n\\r\\n'\n")
        .config(&["away", "none", "bare", "text"].map(script).concat())
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\ndir-listing.activate = \"enable\"")
        .config(&format!("{directive} = \"{handler}\""))
        .start()
}

#[test]
fn error_handler_that_leads_elsewhere_leaves_the_error() {
    for (handler, for_all, for_404) in [
        ("/d", 404, 301),
        ("/away", 404, 302),
        ("/none", 404, 204),
        ("/bare", 404, 200),
        ("/text", 200, 200),
        ("/d/", 200, 200),
        ("/empty.txt", 404, 200),
        // A program's response is its own.
        ("/away.sh", 302, 302),
    ] {
        for (directive, status) in
            [("server.error-handler", for_all), ("server.error-handler-404", for_404)]
        {
            let server = with_handler(directive, handler);
            let response = server.get("/missing");
            assert_eq!(response.status, status, "{directive} {handler}: {response:?}");
            assert_eq!(response.field("Location").is_some(), status / 100 == 3, "{handler}");
            let is_page = response.text().contains("404");
            assert_eq!(is_page, status == 404, "{handler}: {response:?}");
            let mut client = server.connect();
            client.send("HEAD /missing HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response_to_head().status, status, "{directive} {handler}");
        }
    }
}

#[test]
fn listing_as_error_handler_takes_posts_for_missing_urls() {
    for (directive, status) in [("server.error-handler", 200), ("server.error-handler-404", 404)] {
        let server = with_handler(directive, "/d/");
        let mut client = server.connect();
        client.send("POST /missing HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        assert_eq!(client.response().status, status, "{directive}");
        client.send("POST /d/ HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        // The handler of all errors treats that as an error.
        let refused = if status == 200 { 200 } else { 405 };
        assert_eq!(client.response().status, refused, "{directive}");
    }
}

#[test]
fn document_root_that_may_not_be_entered_is_forbidden() {
    // Even root cannot enter a regular file.
    let setup = lighty!().file("a.txt", "A").config(
        "$HTTP[\"host\"] == \"gone\" { server.document-root = \"@DIR@/none\" }\n\
         $HTTP[\"host\"] == \"closed\" { server.document-root = \"@DIR@/closed/root\" }\n\
         userdir.basepath = \"@DIR@\"\nuserdir.path = \"root\"\n\
         server.username = \"nobody\"",
    );
    let closed = setup.directory().join("closed");
    std::fs::create_dir_all(closed.join("root")).expect("directories");
    write_file(&closed.join("root/a.txt"), "A");
    let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&closed, only_owner).expect("closed");
    let server = setup.start();
    let ask = |host: &str, target: &str| {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.response().status
    };
    assert_eq!(ask("any", "/~nobody/a.txt"), 404);
    for target in ["/a.txt", "/", "/missing"] {
        assert_eq!(ask("gone", target), 404, "{target}");
        if rustix::process::geteuid().is_root() {
            assert_eq!(ask("closed", target), 403, "{target}");
            // The home of a user of this name.
            assert_eq!(ask("any", &format!("/~closed{target}")), 403, "{target}");
        }
    }
    if rustix::process::geteuid().is_root() {
        server.await_log("server.document-root cannot be opened");
    }
}

#[test]
fn symbolic_links_are_followed_refused_or_kept_beneath() {
    for (setting, inside, outside, through) in
        [("\"enable\"", 200, 200, 200), ("0", 403, 403, 403), ("\"beneath\"", 200, 403, 403)]
    {
        let setup = lighty!()
            .file("real.txt", "inside\n")
            .link("inside.txt", "real.txt")
            .link("outside.txt", "../secret.txt")
            .link("up", "..")
            .config(&format!("server.follow-symlink = {setting}"));
        write_file(&setup.directory().join("secret.txt"), "outside\n");
        let server = setup.start();
        assert_eq!(server.get("/real.txt").status, 200, "{setting}");
        assert_eq!(server.get("/inside.txt").status, inside, "{setting}");
        assert_eq!(server.get("/outside.txt").status, outside, "{setting}");
        assert_eq!(server.get("/up/secret.txt").status, through, "{setting}");
    }
}

#[test]
fn a_loop_of_links_is_a_response() {
    let server = lighty!().link("loop", "loop").start();
    let status = server.get("/loop").status;
    assert!(matches!(status, 403 | 404), "{status}");
}

#[test]
fn nothing_leaves_the_document_root() {
    let setup = lighty!().file("in/a.txt", "inside\n");
    write_file(&setup.directory().join("secret.txt"), "secret\n");
    let server = setup.start();
    for target in [
        "/../secret.txt",
        "/in/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2e./secret.txt",
        "/.%2E/secret.txt",
        "/in/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/in%2f..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%252e%252e/secret.txt",
        "/..%252fsecret.txt",
        "/....//secret.txt",
        "/.../secret.txt",
        "/..;/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%c0%af../secret.txt",
        "/..%00/secret.txt",
        "//../secret.txt",
        "/./../secret.txt",
        "/in/a.txt/../../../secret.txt",
        "/in/a.txt%2f..%2f..%2f..%2fsecret.txt",
        "http://h/../secret.txt",
    ] {
        let response = server.get(target);
        assert!(matches!(response.status, 400 | 403 | 404), "{target}: {response:?}");
        assert!(find(&response.body, b"secret\n").is_none(), "{target}");
    }
}

#[test]
fn every_special_file_is_refused_without_a_hang() {
    let setup = lighty!();
    rustix::fs::mkfifoat(rustix::fs::CWD, setup.root("pipe"), rustix::fs::Mode::RWXU)
        .expect("a named pipe");
    let _listening =
        std::os::unix::net::UnixListener::bind(setup.root("socket")).expect("a socket");
    let server = setup.link("null", "/dev/null").start();
    for path in ["/pipe", "/socket", "/null"] {
        let status = server.get(path).status;
        assert!(matches!(status, 403 | 404), "{path}: {status}");
    }
}

#[test]
fn a_file_without_permission_is_forbidden() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED here: root may read every file (lifecycle.rs has it as another user)");
        return;
    }
    let setup = lighty!().file("a", "x");
    fs::set_permissions(setup.root("a"), fs::Permissions::from_mode(0o000)).expect("chmod");
    assert_eq!(setup.start().get("/a").status, 403);
}
