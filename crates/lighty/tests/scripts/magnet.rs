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

// Behind the macro, which they use.
mod backends;
mod bodies;
mod limits;
mod trials;

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
