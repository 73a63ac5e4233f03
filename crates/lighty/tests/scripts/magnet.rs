//! `mod_magnet` in the binary: both generations of its interface, and misbehaving scripts.

use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;

/// A server with one script for raw URLs.
macro_rules! raw {
    ($script:expr) => {
        raw!($script, "")
    };
    ($script:expr, $config:expr) => {
        lighty!()
            .file("a.txt", "A")
            .file("../s.lua", $script)
            .config(concat!("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )\n", $config))
            .start()
    };
}

#[test]
fn the_interface_of_1_5_responds_rewrites_and_goes_on() {
    let server = raw!(
        r#"
        if lighty.env["uri.path"] == "/123" then
            lighty.header["Content-Type"] = "text/plain"
            lighty.header["X-Agent"] = lighty.request["User-Agent"]
            lighty.content = { "12", 3 }
            return 200
        elseif lighty.env["uri.path"] == "/old" then
            lighty.env["request.uri"] = "/a.txt"
            return lighty.RESTART_REQUEST
        elseif lighty.env["uri.path"] == "/forbidden" then
            return 403
        end
        "#
    );
    let response = server.get_with("/123", "User-Agent: me\r\n");
    assert_eq!((response.status, response.text()), (200, "123"));
    assert_eq!(response.field("Content-Type"), Some("text/plain"));
    assert_eq!(response.field("X-Agent"), Some("me"));
    assert_eq!(server.get("/old").text(), "A");
    assert_eq!(server.get("/forbidden").status, 403);
    assert_eq!(server.get("/a.txt").text(), "A");
    assert_eq!(server.get("/none").status, 404);
}

#[test]
fn the_interface_of_1_4_has_objects_with_methods() {
    let server = raw!(
        r#"
        local r = lighty.r
        r.resp_header["X-One"] = "1"
        if r.req_attr["uri.path"] == "/body" then
            r.resp_body.set("<")
            r.resp_body:add({ { filename = r.req_env.file or "none" }, "|" })
            return 200
        elseif r.req_attr["uri.path"] == "/get" then
            r.req_env["NAME"] = "value"
            r.resp_body.set { r.req_attr["request.method"], " ", r.req_attr["uri.query"], " ",
                r.req_attr["request.remote-addr"], " ", r.req_env["NAME"], " ",
                tostring(r.req_body.len) }
            return 201
        elseif r.req_attr["uri.path"] == "/echo" then
            if not r.req_body.collect then return 0 end
            r.resp_body.set(r.req_body.get)
            return 200
        end
        "#
    );
    let response = server.get("/get?a=b");
    assert_eq!((response.status, response.text()), (201, "GET a=b 127.0.0.1 value 0"));
    assert_eq!(response.field("X-One"), Some("1"));
    let response = server.get("/a.txt");
    assert_eq!((response.text(), response.field("X-One")), ("A", Some("1")));
    assert_eq!(server.get("/body").text(), "<");
    server.await_log("none");
    let echoed = server.post("/echo", "Content-Length: 5", b"hello");
    assert_eq!(echoed, b"hello");
}

#[test]
fn physical_paths_are_changed_and_files_sent_in_pieces() {
    let server = lighty!()
        .file("a.txt", "0123456789")
        .file("../elsewhere/b.txt", "B")
        .file(
            "../s.lua",
            r#"
            local env = lighty.env
            if env["uri.path"] == "/b" then
                env["physical.path"] = env["physical.doc-root"] .. "/../elsewhere/b.txt"
            elseif env["uri.path"] == "/rel" then
                env["physical.rel-path"] = "/a.txt"
                env["physical.path"] = env["physical.doc-root"] .. env["physical.rel-path"]
            elseif env["uri.path"] == "/parts" then
                local file = env["physical.doc-root"] .. "/a.txt"
                lighty.content = { "<", { filename = file, offset = 2, length = 5 }, ">" }
                return 200
            elseif env["uri.path"] == "/stat" then
                local found = lighty.stat(env["physical.doc-root"] .. "/a.txt")
                local none = lighty.stat("/nonexistent")
                lighty.content = { tostring(found.is_file), found.st_size, tostring(none) }
                return 200
            end
            "#,
        )
        .config("magnet.attract-physical-path-to = ( \"@DIR@/s.lua\" )")
        .start();
    for _ in 0..2 {
        assert_eq!(server.get("/b").text(), "B");
        assert_eq!(server.get("/rel").text(), "0123456789");
        assert_eq!(server.get("/parts").text(), "<234>");
        assert_eq!(server.get("/stat").text(), "true10nil");
    }
}

#[test]
fn response_fields_are_changed_before_they_are_sent() {
    let server = lighty!()
        .file("a.txt", "A")
        .file(
            "../s.lua",
            "lighty.r.resp_header['X-Seen'] = tostring(lighty.r.req_item.http_status)\n\
             lighty.r.resp_header['ETag'] = nil",
        )
        .config("magnet.attract-response-header-to = ( \"@DIR@/s.lua\" )")
        .start();
    let response = server.get("/a.txt");
    assert_eq!((response.field("X-Seen"), response.field("ETag")), (Some("200"), None));
    assert_eq!(server.get("/none").field("X-Seen"), Some("404"));
}

/// A body that a script replaces loses each field about it that the script has not set itself.
#[test]
fn another_body_keeps_the_fields_of_its_script_alone() {
    for (script, etag, modified, coding) in [
        ("resp_header['ETag'] = '\"mine\"'", Some("\"mine\""), None, None),
        ("resp_header['Last-Modified'] = DATE", None, Some(DATE), None),
        ("resp_header['Content-Encoding'] = 'gzip'", None, None, Some("gzip")),
        ("resp_header['X-A'] = 'b'", None, None, None),
    ] {
        let script = script.replace("DATE", &format!("'{DATE}'"));
        let server = lighty!()
            .file("a.txt", "A")
            .file("../s.lua", format!("lighty.r.{script}\nlighty.r.resp_body.set('abc')"))
            .config("magnet.attract-response-start-to = ( \"@DIR@/s.lua\" )")
            .start();
        let got = server.get("/a.txt");
        assert_eq!((got.status, got.text()), (200, "abc"));
        let printed = ["ETag", "Last-Modified", "Content-Encoding"].map(|name| got.field(name));
        assert_eq!(printed, [etag, modified, coding], "{script}");
    }
}

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

#[test]
fn a_request_without_a_body_is_given_one() {
    let server = raw!(
        r#"
        lighty.r.req_body.set("x=1")
        lighty.r.req_body.add("&y=2")
        lighty.r.req_attr["uri.path"] = "/env.sh"
        "#,
        "cgi.assign = ( \".sh\" => \"/bin/sh\" )"
    );
    let program = "printf 'X: y\\n\\n'; printf \"$CONTENT_LENGTH \"; cat";
    lighty_testkit::server::write_file(&server.root("env.sh"), program);
    assert_eq!(server.get("/").text(), "7 x=1&y=2", "{}", server.log());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.response().text(), "7 x=1&y=2");
}

#[test]
fn a_range_without_an_end_goes_to_the_end_of_the_file() {
    let server = raw!(
        r#"
        lighty.content = { { filename = lighty.request["X-File"], offset = 2, length = -1 } }
        return 200
        "#
    );
    lighty_testkit::server::write_file(&server.root("a.txt"), "ABCDEF");
    let file = format!("X-File: {}\r\n", server.root("a.txt").display());
    assert_eq!(server.get_with("/", &file).text(), "CDEF", "{}", server.log());
}

#[test]
fn file_of_script_is_served_in_ranges_and_text_is_not() {
    let server = raw!(
        r#"
        local r = lighty.r
        r.resp_header["ETag"] = r.req_header["X-Tag"]
        r.resp_header["Content-Encoding"] = r.req_header["X-Coding"]
        local file = { filename = r.req_header["X-File"], offset = tonumber(r.req_header["X-From"]) }
        r.resp_body.set(r.req_header["X-File"] and { file } or "0123456789")
        return tonumber(r.req_header["X-Status"] or 200)
        "#
    );
    lighty_testkit::server::write_file(&server.root("a"), "0123456789");
    let file = format!("X-File: {}\r\n", server.root("a").display());
    let tag = "X-Tag: \"a\"\r\n";
    for (fields, status, body, range) in [
        ("Range: bytes=2-4\r\n".to_owned(), 206, "234", Some("bytes 2-4/10")),
        ("Range: bytes=-2\r\n".to_owned(), 206, "89", Some("bytes 8-9/10")),
        ("X-From: 5\r\nRange: bytes=1-2\r\n".to_owned(), 206, "67", Some("bytes 1-2/5")),
        ("Range: bytes=a\r\n".to_owned(), 200, "0123456789", None),
        ("X-Coding: br\r\nRange: bytes=2-4\r\n".to_owned(), 200, "0123456789", None),
        ("X-Status: 403\r\nRange: bytes=2-4\r\n".to_owned(), 403, "0123456789", None),
        // Without a validator nothing says that the part fits.
        ("If-Range: \"a\"\r\nRange: bytes=2-4\r\n".to_owned(), 200, "0123456789", None),
        (format!("{tag}If-Range: \"a\"\r\nRange: bytes=2-4\r\n"), 206, "234", Some("bytes 2-4/10")),
        (format!("{tag}If-Range: \"b\"\r\nRange: bytes=2-4\r\n"), 200, "0123456789", None),
    ] {
        let response = server.get_with("/", &format!("{file}{fields}"));
        assert_eq!((response.status, response.text()), (status, body), "{fields}");
        assert_eq!(response.field("Content-Range"), range, "{fields}");
    }
    let long = "long ".repeat(100);
    lighty_testkit::server::write_file(&server.root("b"), &long);
    let several = format!("X-File: {}\r\nRange: bytes=0-0,400-\r\n", server.root("b").display());
    assert_eq!(server.get_with("/", &several).text(), long, "several ranges are optional");
    let response = server.get_with("/", &format!("{file}Range: bytes=10-\r\n"));
    assert_eq!((response.status, response.field("Content-Range")), (416, Some("bytes */10")));
    assert_eq!(server.get_with("/", &file).field("Accept-Ranges"), Some("bytes"));
    let text = server.get_with("/", "Range: bytes=2-4\r\n");
    assert_eq!((text.status, text.field("Accept-Ranges")), (200, None));
}

#[test]
fn a_script_gives_a_response_that_is_there_another_status() {
    let server = lighty!()
        .file("a.txt", "A")
        .file("../s.lua", "return tonumber(lighty.r.req_header['X-Want'])")
        .config("magnet.attract-response-start-to = ( \"@DIR@/s.lua\" )")
        .start();
    // The client refuses a 204 that announces a body.
    for (wanted, given, body) in [
        ("404", 404, "A"),
        ("204", 204, ""),
        ("0", 200, "A"),
        ("150", 200, "A"),
        ("1000", 200, "A"),
    ] {
        let mut client = server.connect();
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nX-Want: {wanted}\r\n\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (given, body), "{wanted}");
    }
    server.await_log("a script returned 1000, which is no status");
}

#[test]
fn errors_are_a_500_and_logged_once_with_their_line() {
    let server = raw!("local x\nreturn x.y\n");
    for _ in 0..3 {
        assert_eq!(server.get("/").status, 500);
    }
    server.await_log("s.lua:2: attempt to index");
    let syntax = raw!("return (");
    assert_eq!(syntax.get("/").status, 500);
    syntax.await_log("s.lua:1:");
    assert_eq!(server.log().matches("attempt to index").count(), 1, "{}", server.log());
    let missing = lighty!().config("magnet.attract-raw-url-to = ( \"/nonexistent.lua\" )").start();
    assert_eq!(missing.get("/").status, 500);
    missing.await_log("/nonexistent.lua");
}

#[test]
fn a_missing_script_is_warned_about() {
    let setup = lighty!().config(
        "server.modules = ( \"mod_magnet\" )\n\
         magnet.attract-response-start-to = ( \"@DIR@/none.lua\" )",
    );
    let server = setup.start();
    let log = server.log();
    for message in ["magnet.attract-response-start-to", "none.lua", "warning"] {
        assert!(log.contains(message), "{message}: {log}");
    }
}

#[test]
fn a_changed_script_is_compiled_again() {
    let server = raw!("lighty.content = { 'one' } return 200");
    assert_eq!(server.get("/").text(), "one");
    let script = server.directory().join("s.lua");
    std::fs::write(script, "lighty.content = { 'the second' } return 200").expect("a script");
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.get("/").text() != "the second" {
        assert!(std::time::Instant::now() < ends, "the script of before still runs");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn limits_stop_scripts_and_restarts() {
    let server = raw!(
        r#"
        local path = lighty.env["uri.path"]
        if path == "/loop" then while true do end end
        if path == "/catch" then while true do pcall(function() while true do end end) end end
        if path == "/memory" then local t = {} while true do t[#t + 1] = ("x"):rep(999) .. #t end end
        if path == "/sleep" then lighty.sleep(60) end
        if path == "/again" then return lighty.RESTART_REQUEST end
        "#,
        "magnet.max-instructions = 3000000\nmagnet.max-memory = 1024\nmagnet.max-time = 3000"
    );
    for path in ["/loop", "/catch", "/memory", "/sleep"] {
        assert_eq!(server.get(path).status, 503, "{path}");
    }
    assert_eq!(server.get("/again").status, 500);
    for limit in ["magnet.max-instructions", "magnet.max-memory", "magnet.max-time"] {
        server.await_log(limit);
    }
    server.await_log("magnet.max-restarts");
    assert_eq!(server.get("/a.txt").text(), "A");
}

#[test]
fn request_is_restarted_n_times_at_most() {
    const RESTARTS_MAX: usize = 10;
    let server = raw!(
        r#"
        local left = lighty.env["uri.path"]:match("^/left/(%d+)$")
        if not left then return 0 end
        if left == "0" then return 204 end
        lighty.env["request.uri"] = "/left/" .. math.floor(left - 1)
        return lighty.RESTART_REQUEST
        "#
    );
    let get = |restarts: usize| server.get(&format!("/left/{restarts}")).status;
    assert_eq!(get(RESTARTS_MAX), 204, "{}", server.log());
    assert_eq!(get(RESTARTS_MAX + 1), 500);
    server.await_log("magnet.max-restarts");
}

#[test]
fn script_has_n_bytes_at_most() {
    const SCRIPT_BYTES_MAX: usize = 1 << 20;
    let script = |bytes: usize| {
        let code = "return 204 --";
        code.to_owned() + &"-".repeat(bytes - code.len())
    };
    assert_eq!(raw!(script(SCRIPT_BYTES_MAX)).get("/").status, 204);
    let server = raw!(script(SCRIPT_BYTES_MAX + 1));
    assert_eq!(server.get("/").status, 500);
    server.await_log("more than 1048576 bytes (limit: a script)");
}

#[test]
fn scripts_share_dictionaries_and_parse_json() {
    let server = raw!(
        r#"
        local cache = lighty.shared.cache
        local n = cache:incr("hits", 1, 0)
        local value = lighty.json.decode('{"a": [1, 2]}')
        local lfs = require "lfs"
        lighty.content = { tostring(n), " ", #value.a, " ", lfs.attributes("/", "mode"), " ",
            lighty.c.b64urlenc("hi") }
        return 200
        "#,
        "magnet.shared = ( \"cache\" => \"64\" )"
    );
    assert_eq!(server.get("/").text(), "1 2 directory aGk");
    assert_eq!(server.get("/").text(), "2 2 directory aGk");
}

#[test]
fn modules_beside_the_script_are_required_afresh() {
    let server = lighty!()
        .file("../own.lua", "local M = { n = 0 } function M.next() M.n = M.n + 1 return M.n end return M")
        .file("../s.lua", "local own = require('own') assert(own == require 'own') lighty.content = { own.next() } return 200")
        .config("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )")
        .start();
    assert_eq!(server.get("/").text(), "1");
    assert_eq!(server.get("/").text(), "1");
}

#[test]
fn scripts_request_from_backends_and_from_this_server() {
    let origin = lighty!().file("hello.txt", "hello").start();
    let address = origin.address();
    let config = format!(
        "magnet.backends = ( \"api\" => \"{address}\" )\n\
         magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )"
    );
    let script = r#"
        local path = lighty.env["uri.path"]
        local got, why
        if path == "/http" then got, why = lighty.http.get("http://ADDRESS/hello.txt")
        elseif path == "/backend" then got, why = lighty.backend("api", { url = "/hello.txt" })
        elseif path == "/local" then got, why = lighty.subrequest("/a.txt")
        elseif path == "/unknown" then got, why = lighty.backend("none", "/")
        elseif path == "/far" then got, why = lighty.http.get("http://192.0.2.1/")
        elseif path == "/dead" then got, why = lighty.http.get("http://127.0.0.1:1/")
        elseif path == "/missing" then got, why = lighty.backend("api", "/missing")
        elseif path == "/self" then got, why = lighty.subrequest("/self")
        else return end
        if not got then lighty.content = { why } return 502 end
        lighty.content = { got.status, " ", got.body, " ", tostring(got.headers["content-type"]) }
        return 200
    "#;
    let server = lighty!()
        .file("a.txt", "A")
        .file("../s.lua", script.replace("ADDRESS", &address.to_string()))
        .config(&config)
        .start();
    for _ in 0..2 {
        assert_eq!(server.get("/http").text(), "200 hello text/plain");
        assert_eq!(server.get("/backend").text(), "200 hello text/plain");
        assert_eq!(server.get("/local").text(), "200 A text/plain");
    }
    assert!(server.get("/unknown").text().contains("magnet.backends"));
    assert!(server.get("/far").text().contains("magnet.http-hosts"));
    let dead = server.get("/dead");
    assert_eq!((dead.status, dead.text()), (502, "no backend is up"));
    // This 404 comes from the backend.
    assert!(server.get("/missing").text().starts_with("404 "));
    let nested = server.get("/self");
    assert!(nested.text().contains("too many requests within"), "{}", nested.text());
}

#[test]
fn a_body_is_filtered_while_it_is_sent() {
    let text = "line with http://old.example/ in it\n".repeat(8000);
    let server = lighty!()
        .file("big.txt", &text)
        .file("small.txt", "http://old.example/")
        .file("slow.txt", "x")
        .file(
            "../f.lua",
            r#"
            local kept = ""
            if lighty.r.req_attr["uri.path"] == "/slow.txt" then
                return function(piece)
                    if piece then lighty.sleep(0.01) return piece:upper() end
                    return "!"
                end
            end
            return function(piece)
                if piece == nil then return kept end
                local all = kept .. piece
                local stop = #all - 40
                if stop < 1 then kept = all return nil end
                local edge = all:sub(1, stop):match("^.*\n()") or 1
                kept = all:sub(edge)
                return (all:sub(1, edge - 1):gsub("old%.example", "new.example"))
            end
            "#,
        )
        .config("magnet.attract-response-content-to = ( \"@DIR@/f.lua\" )")
        .start();
    for _ in 0..2 {
        let response = server.get("/big.txt");
        assert_eq!(response.status, 200);
        let got = response.text();
        assert_eq!(got.matches("new.example").count(), 8000 - got.matches("old.").count());
        assert_eq!(got.len(), text.len());
        assert!(got.matches("old.").count() <= 2);
        assert_eq!(response.field("ETag"), None);
        assert_eq!(server.get("/slow.txt").text(), "X!");
        assert_eq!(server.get("/none").status, 404);
    }
}

#[test]
fn a_filter_is_accounted_and_does_not_wait_beyond_its_time() {
    let server = lighty!()
        .file("a.txt", "A")
        .file("slow.txt", "A")
        .file(
            "../f.lua",
            "return function(piece) if lighty.r.req_attr['uri.path'] == '/slow.txt' then \
             lighty.sleep(600) end return piece end",
        )
        .config(
            "status.statistics-url = \"/stat\"\nmagnet.max-time = 100\n\
             $HTTP[\"url\"] =$ \".txt\" { magnet.attract-response-content-to = ( \"@DIR@/f.lua\" ) }",
        )
        .start();
    assert_eq!(server.get("/a.txt").text(), "A");
    let mut client = server.connect();
    client.send(b"GET /slow.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    server.await_log("magnet.max-time");
    drop(client);
    let script = server.directory().join("f.lua");
    let ends = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let text = server.get("/stat").text().to_owned();
        let figure = |name: &str, value: u32| {
            text.contains(&format!("magnet.{}.{name}: {value}\n", script.display()))
        };
        if figure("runs", 2) && figure("failures", 1) {
            break;
        }
        assert!(std::time::Instant::now() < ends, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn scripts_are_accounted_and_keep_counters() {
    let server = lighty!()
        .file("../s.lua", "lighty.status['my.hits'] = lighty.status['my.hits'] + 1 return 204")
        .file("../e.lua", "error('no')")
        .file("../short.lua", "local n = 0 for i = 1, 300 do n = n + i end return 204")
        .config(
            "server.max-worker = 1\n\
             status.statistics-url = \"/stat\"\n\
             $HTTP[\"url\"] == \"/short\" { magnet.attract-raw-url-to = ( \"@DIR@/short.lua\" ) }\n\
             $HTTP[\"url\"] == \"/a\" { magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" ) }\n\
             $HTTP[\"url\"] == \"/e\" { magnet.attract-raw-url-to = ( \"@DIR@/e.lua\" ) }",
        )
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/a").status, 204);
    }
    assert_eq!(server.get("/e").status, 500);
    for _ in 0..30 {
        assert_eq!(server.get("/short").status, 204);
    }
    let text = server.get("/stat").text().to_owned();
    // No run has a thousand instructions; all of them together have some.
    let figure = |name: &str| -> u64 {
        let key = format!("magnet.{}.{name}: ", server.directory().join("short.lua").display());
        let line = text.lines().find_map(|line| line.strip_prefix(&key)).expect("a figure");
        line.trim().parse().expect("a number")
    };
    assert!((5_000..100_000).contains(&figure("instructions")), "{text}");
    assert!((100..10_000).contains(&figure("compiled-bytes")), "{text}");
    assert!(figure("memory-max") > 0, "{text}");
    let script = server.directory().join("s.lua");
    for line in [
        format!("magnet.{}.runs: 3", script.display()),
        format!("magnet.{}.failures: 0", script.display()),
        format!("magnet.{}.failures: 1", server.directory().join("e.lua").display()),
        "my.hits: 3".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn a_neighbour_of_a_runaway_script_does_not_wait() {
    let server = raw!(
        "if lighty.env['uri.path'] == '/loop' then while true do end end",
        "magnet.max-instructions = 300000000"
    );
    assert_eq!(server.get("/a.txt").text(), "A");
    let mut loops = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect();
        client.send(b"GET /loop HTTP/1.1\r\nHost: a\r\n\r\n");
        loops.push(client);
    }
    let mut waits: Vec<_> = (0..200)
        .map(|_| {
            let begins = std::time::Instant::now();
            assert_eq!(server.get("/a.txt").text(), "A");
            begins.elapsed()
        })
        .collect();
    waits.sort();
    // Generous, because the machine may be busy; a blocked loop takes a second for each script.
    assert!(waits[100] < std::time::Duration::from_millis(50), "{:?}", waits[100]);
    drop(loops);
}

#[test]
fn scripts_are_checked_and_run_without_a_server() {
    let setup = lighty!()
        .file(
            "../good.lua",
            "lighty.header['X'] = 'y' lighty.content = { lighty.env['uri.path'] } return 200",
        )
        .file("../bad.lua", "return (")
        .file("../filter.lua", "return function(piece) return piece end")
        .file(
            "../calls.lua",
            "lighty.stat('/no such')\nlighty.sleep(1.5)\n\
             lighty.http.get('http://127.0.0.1:1/x')\nerror('over')",
        );
    let path = |name: &str| setup.directory().join(name).display().to_string();
    let (good, bad) = (path("good.lua"), path("bad.lua"));
    let (code, _, err) = setup.run(&["script", "check", &good]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = setup.run(&["script", "check", &good, &bad]);
    assert!(code == 1 && err.contains("bad.lua:1:"), "{code} {err}");
    let (code, out, err) = setup.run(&["script", "run", &good, "http://a/b?c"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("responds with 200") && out.contains("body: /b"), "{out}");
    assert!(out.contains("resp_header[X] = y"), "{out}");
    assert!(out.contains("used ") && out.contains("00 instructions, "), "{out}");
    let (code, out, err) = setup.run(&["script", "run", &path("calls.lua"), "/"]);
    assert_eq!(code, 1, "{out} {err}");
    for line in [
        "waits for lighty.stat(\"/no such\")",
        "waits for 1500 ms to pass",
        "waits for GET http://127.0.0.1:1/x",
    ] {
        assert!(out.contains(line), "{line}\n{out}");
    }
    assert!(err.starts_with("lighty: ") && err.contains("calls.lua:4: over"), "{err}");
    let (_, out, _) = setup.run(&["script", "run", &path("filter.lua"), "/"]);
    assert!(out.contains("--stage response-content runs body filters"), "{out}");
}

#[test]
fn trials_have_stages_methods_fields_and_bodies() {
    let setup = lighty!()
        .file(
            "../raw.lua",
            "local r = lighty.r print(r.req_attr['request.method'], r.req_header.Cookie, \
             r.req_attr['uri.path'], r.req_attr['uri.path-raw'], r.req_attr['uri.authority'], \
             r.req_body.collect and r.req_body.get, r.req_attr['physical.path'])",
        )
        .file(
            "../physical.lua",
            "lighty.env['physical.path'] = lighty.env['physical.path'] .. '.html'",
        )
        .file(
            "../start.lua",
            "local r = lighty.r print(r.req_item.http_status, r.resp_header.ETag, r.resp_body.get, \
             r.resp_body.len, r.req_attr['response.http-status'])",
        )
        .file("../filter.lua", "return function(piece) return piece and piece:upper() or '!' end")
        .file("../sent.txt", "from a file");
    let path = |name: &str| setup.directory().join(name).display().to_string();
    let run = |script: &str, options: &[&str]| {
        let script = path(script);
        setup.run(&[&["script", "run", &*script], options].concat())
    };
    let fields = ["-X", "PUT", "-H", "Cookie: a=1", "-H", "Host: b.example", "-d", "text"];
    let (code, out, err) = run("raw.lua", &[&["/a%20b?q"][..], &fields].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("PUT\ta=1\t/a b\t/a%20b\tb.example\ttext\tnil"), "{out}");
    let file = format!("@{}", path("sent.txt"));
    let (_, out, _) = run("raw.lua", &["/", "--data", &file]);
    assert!(out.contains("from a file"), "{out}");
    let root = setup.root("").display().to_string();
    let stage = ["--stage", "physical-path", "--document-root", &root];
    let (_, out, _) = run("physical.lua", &[&["/a"][..], &stage].concat());
    let path_set = format!("req_attr[physical.path] = {}/a.html", root.trim_end_matches('/'));
    assert!(out.contains(&path_set), "{path_set}\n{out}");
    let stage =
        ["--stage", "response-start", "--status", "404", "--response-header", "ETag: \"x\""];
    let options = [&["/"][..], &stage, &["--response-data", "none"]].concat();
    let (_, out, _) = run("start.lua", &options);
    assert!(out.contains("404\t\"x\"\tnone\t4\t404"), "{out}");
    let stage = ["--stage", "response-content", "--response-data", "body"];
    let (_, out, _) = run("filter.lua", &[&["/"][..], &stage].concat());
    assert!(out.contains("sends: BODY\nsends: !\nused "), "{out}");
    for wrong in [
        &["notaurl"][..],
        &["ftp://a/"],
        &["/", "-H", "no colon"],
        &["/", "--stage", "none"],
        &["/", "--status", "99"],
    ] {
        let (code, _, err) = run("raw.lua", wrong);
        assert_eq!(code, 2, "{wrong:?} {err}");
    }
}

#[test]
fn a_filter_that_requests_what_it_filters_ends() {
    let within = "return function(p) if p then return p end \
                  local got, why = lighty.subrequest('/rec/a.txt') \
                  return (got and got.body or why) .. '|' .. lighty.r.req_attr['physical.path'] \
                  .. lighty.r.req_attr['request.server-addr'] end";
    let at_load = "local got, why = lighty.subrequest('/load/a.txt') \
                   return function(p) return p or (got and got.body or why) end";
    let server = lighty!()
        .file("rec/a.txt", "A")
        .file("load/a.txt", "A")
        .file("../within.lua", within)
        .file("../load.lua", at_load)
        .config(
            "$HTTP[\"url\"] =^ \"/rec\" {\n\
                 magnet.attract-response-content-to = ( \"@DIR@/within.lua\" ) }\n\
             $HTTP[\"url\"] =^ \"/load\" {\n\
                 magnet.attract-response-content-to = ( \"@DIR@/load.lua\" ) }",
        )
        .start();
    let path = format!("|{}127.0.0.1", server.root("rec/a.txt").display());
    let got = server.get("/rec/a.txt").text().to_owned();
    assert_eq!(got, format!("AAAAAAtoo many requests within requests{}", path.repeat(6)));
    let got = server.get("/load/a.txt").text().to_owned();
    assert_eq!(got, "AAAAAAtoo many requests within requests");
}

#[test]
fn the_method_that_the_client_sent_decides_about_a_body() {
    let server = raw!("lighty.r.req_attr['request.method'] = lighty.r.req_header.X");
    let mut client = server.connect();
    client.send(b"HEAD /a.txt HTTP/1.1\r\nHost: a\r\nX: GET\r\n\r\n");
    client.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\nX: GET\r\nConnection: close\r\n\r\n");
    let (all, _) = client.read_to_end();
    let all = String::from_utf8_lossy(&all);
    let second = all.split("\r\n\r\n").nth(1).expect("a second response");
    assert!(second.starts_with("HTTP/1.1 200"), "{all}");
    assert!(all.ends_with("\r\n\r\nA"), "{all}");
}

#[test]
fn a_body_beyond_the_memory_of_a_script_stays_whole() {
    let backend = raw!(
        "if lighty.r.req_body.collect then lighty.content = { #lighty.r.req_body.get } return 200 end"
    );
    let config = format!(
        "magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )\nmagnet.max-memory = 1024\n\
         proxy-core.backends = ( \"{}\" )\nproxy-core.protocol = \"http\"",
        backend.address()
    );
    let script = "local all, why = lighty.r.req_body.collect \
                  if all == nil then print('kept') end";
    let server = lighty!().file("../s.lua", script).config(&config).start();
    let body = vec![b'x'; 3 << 20];
    let got = server.post("/a", &format!("Content-Length: {}", body.len()), &body);
    assert_eq!(got, (3 << 20).to_string().as_bytes());
    let chunked = [b"300000\r\n", &body[..], b"\r\n0\r\n\r\n"].concat();
    let got = server.post("/a", "Transfer-Encoding: chunked", &chunked);
    assert_eq!(got, (3 << 20).to_string().as_bytes());
    server.await_log("kept");
}

#[test]
fn fields_are_walked_through_as_lighttpd_tells_them() {
    let server = raw!(
        "local all = {} for name, value in pairs(lighty.r.req_header) do \
         all[#all + 1] = name .. '=' .. value end lighty.content = { table.concat(all, '|') } return 200"
    );
    let got = server.get_with(
        "/",
        "X-A: 1\r\nX-Empty:\r\nCookie: a=1\r\nx-a: 2\r\nCookie: b=2\r\nX-Empty: \r\n",
    );
    let got = got.text();
    assert!(got.contains("|X-A=1, 2|") && got.contains("Cookie=a=1; b=2"), "{got}");
    assert!(!got.contains("Empty"), "{got}");
}

#[test]
fn a_physical_path_has_no_effect_before_there_is_one() {
    let server = raw!("lighty.r.req_attr['physical.path'] = '/nowhere/else.txt'");
    assert_eq!(server.get("/a.txt").text(), "A");
}

#[test]
fn a_response_does_not_pass_by_a_script_that_fails() {
    for (directive, text, wanted) in [
        ("start", "error('x' .. lighty.r.req_attr['request.uri'])", 500),
        ("start", "return (", 500),
        ("start", "while true do end", 503),
        ("content", "error('x' .. lighty.r.req_attr['request.uri'])", 500),
        ("content", "return (", 500),
        ("content", "return 1", 500),
        ("content", "lighty.sleep(0) while true do end", 503),
    ] {
        let server = lighty!()
            .file("a.txt", "secret")
            .file("../s.lua", text)
            .config(&format!("magnet.attract-response-{directive}-to = ( \"@DIR@/s.lua\" )"))
            .start();
        for at in 0..8 {
            let response = server.get(&format!("/a.txt?{at}"));
            assert_eq!(response.status, wanted, "{directive} {text}");
            assert!(response.text().contains("<h1>"), "{directive} {text}");
        }
        server.await_log("mod_magnet: ");
        // Number of texts mentioned in a line. The log is written in parallel with the responses.
        let printed = || server.log().matches("mod_magnet: ").count();
        let wanted = if text.contains("uri") { 4 } else { 1 };
        lighty_testkit::wait_until(std::time::Duration::from_secs(60), || printed() >= wanted);
        assert_eq!(printed(), wanted, "{text}: {}", server.log());
    }
    let server = lighty!()
        .file("a.txt", "A")
        .config("magnet.attract-response-content-to = ( \"@DIR@/none.lua\" )")
        .start();
    assert_eq!(server.get("/a.txt").status, 500);
}

#[test]
fn head_says_of_a_filtered_response_what_get_says() {
    let server = lighty!()
        .file("a.txt", "A")
        .file("../f.lua", "return function(piece) return piece and piece .. '!' end")
        .config("magnet.attract-response-content-to = ( \"@DIR@/f.lua\" )")
        .start();
    let mut client = server.connect();
    client.send(b"HEAD /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(b"GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (all, _) = client.read_to_end();
    let all = String::from_utf8_lossy(&all);
    assert!(all.contains("A!"), "{all}");
    assert!(!all.contains("Content-Length") && !all.contains("ETag"), "{all}");
}

#[test]
fn response_data_counts_toward_the_memory_of_a_script() {
    for text in [
        "local s = ('x'):rep(400000) for i = 1, 2000 do lighty.r.resp_body.add(s) end return 200",
        "local s = ('x'):rep(4000) for i = 1, 1e5 do lighty.r.resp_header['X-' .. i] = s end",
        "local s = ('x'):rep(4000) for i = 1, 1e5 do lighty.r.req_env['X' .. i] = s end",
        "local s = ('x'):rep(400000) \
         while true do pcall(function() lighty.r.resp_body.add(s) end) end",
    ] {
        let server = lighty!()
            .file("../s.lua", text)
            .config("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )")
            .start();
        assert_eq!(server.get("/").status, 503, "{text}");
        server.await_log("magnet.max-memory");
    }
    let server = raw!(
        "local s = ('x'):rep(4000) for i = 1, 5000 do lighty.r.resp_header.X = s \
         lighty.r.resp_body.set(s) end return 200"
    );
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn interim_response_to_a_script_does_not_reach_the_client() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let backend = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut peer, _) = listener.accept().expect("the server");
        let mut head = [0; 1024];
        let _ = peer.read(&mut head).expect("a request");
        let early = b"HTTP/1.1 103 Early Hints\r\nLink: </theirs.css>; rel=preload\r\n\r\n";
        peer.write_all(early).expect("the server reads");
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\
            Set-Cookie: a=1; Expires=Thu, 26 Nov 2026 00:00:00 GMT\r\nset-cookie: b=2\r\n\r\nok";
        peer.write_all(response).expect("the server reads");
    });
    let script = "local got, why = lighty.http.get('http://ADDRESS/') \
                  local cookies = '' for _, field in ipairs(got and got.fields or {}) do \
                  if field[1] == 'set-cookie' then cookies = cookies .. field[2] .. '|' end end \
                  lighty.content = { cookies, got and got.body or why } return 200";
    let server = lighty!()
        .file("../s.lua", script.replace("ADDRESS", &address.to_string()))
        .config("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )")
        .start();
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (all, _) = client.read_to_end();
    let all = String::from_utf8_lossy(&all);
    let reported = "\r\n\r\na=1; Expires=Thu, 26 Nov 2026 00:00:00 GMT|b=2|ok";
    assert!(all.starts_with("HTTP/1.1 200") && all.ends_with(reported), "{all}");
    backend.join().expect("the backend");
}

#[test]
fn status_without_a_body_drops_the_body_of_the_script() {
    let script = "local status = lighty.env['uri.path']:match('%d+') \
                  lighty.r.resp_header['Content-Type'] = 'text/plain' \
                  lighty.r.resp_header['X-Sendfile'] = '/etc/hostname' \
                  lighty.r.resp_header['x-lighttpd-send-file'] = '/etc/hostname' \
                  lighty.r.resp_body.set('body') return tonumber(status)";
    let server = lighty!()
        .file("at-start/205.txt", "a file")
        .file("../s.lua", script)
        .config(
            "$HTTP[\"url\"] =~ \"^/at-start\" { magnet.attract-response-start-to = ( \"@DIR@/s.lua\" ) }\n\
             else $HTTP[\"url\"] =~ \"\" { magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" ) }",
        )
        .start();
    for path in ["/204", "/205", "/304", "/200", "/at-start/205.txt"] {
        let mut client = server.connect();
        client.send(
            format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        let (all, _) = client.read_to_end();
        let all = String::from_utf8_lossy(&all);
        let (head, body) = all.split_once("\r\n\r\n").expect("a response");
        assert_eq!(body, if path == "/200" { "body" } else { "" }, "{path}: {head}");
        assert_eq!(head.contains("Content-Length: 0"), path.contains("205"), "{path}: {head}");
        assert!(!head.to_ascii_lowercase().contains("send"), "{head}");
    }
}

#[test]
fn scripts_see_the_stream_of_http2() {
    let show = "lighty.r.resp_header['X-Stream'] = tostring(lighty.r.req_item.stream_id)";
    let filter = "local id = lighty.r.req_item.stream_id \
                  return function(piece) return piece and piece .. id end";
    let server = lighty!()
        .file("a.txt", "a")
        .file("../show.lua", show)
        .file("../filter.lua", filter)
        .config(
            "magnet.attract-response-start-to = ( \"@DIR@/show.lua\" )\n\
             magnet.attract-response-content-to = ( \"@DIR@/filter.lua\" )",
        )
        .start();
    let response = server.get("/a.txt");
    assert_eq!((response.field("X-Stream"), response.text()), (Some("0"), "a0"));
    let mut client = Http2::connect(server.address());
    for id in ["1", "3"] {
        let got = client.get("/a.txt");
        assert_eq!(got.field("x-stream").as_deref(), Some(id));
        assert_eq!(got.text(), format!("a{id}"));
    }
}

#[test]
fn scripts_set_no_other_scheme_than_http_and_https() {
    let script = "lighty.r.req_attr['uri.scheme'] = lighty.r.req_attr['uri.query'] \
                  lighty.r.resp_body.set(lighty.r.req_attr['uri.scheme']) return 200";
    let server = lighty!()
        .file("../s.lua", script)
        .config("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )")
        .start();
    for (query, scheme) in [("http", "http"), ("HTTPS", "https"), ("https", "https")] {
        let response = server.get(&format!("/?{query}"));
        assert_eq!((response.status, response.text()), (200, scheme), "{query}");
    }
    for query in ["", "?ftp", "?https:"] {
        assert_eq!(server.get(&format!("/{query}")).status, 500, "{query}");
    }
    server.await_log("['uri.scheme'] must be http or https");
}
