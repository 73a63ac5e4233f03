//! Scripts written for lighttpd, and the features that they rely on: each found in a public script.

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};

fn with(stage: &str, script: &str) -> Setup {
    lighty!()
        .file("a.txt", "aaaa\n")
        .file("docs/x.txt", "x")
        .file("index.php", "front")
        .file("a.html", "page")
        .file("../s.lua", script)
        .config(&format!("magnet.attract-{stage}-to = ( \"@DIR@/s.lua\" )"))
}

fn physical(script: &str) -> Server {
    with("physical-path", script).start()
}

#[track_caller]
fn gives(server: &Server, target: &str, status: u16, text: &str) {
    let response = server.get(target);
    assert_eq!((response.status, response.text()), (status, text), "{}", server.log());
}

#[test]
fn parts_of_the_physical_path_stand_alone() {
    let e = "local e = lighty.env ";
    let path = format!(
        "{e} e['physical.path'] = e['physical.path'] \
         e['physical.path'] = e['physical.doc-root'] .. '/index.php'"
    );
    gives(&physical(&path), "/docs/x.txt", 200, "front");
    let negotiates = format!(
        "{e} e['physical.rel-path'] = e['physical.rel-path'] .. '.html' \
         e['physical.path'] = e['physical.path'] .. '.html'"
    );
    gives(&physical(&negotiates), "/a", 200, "page");
    let both_ways = format!(
        "{e} e['physical.path'] = e['physical.doc-root'] .. '/docs/x.txt' \
         e['physical.rel-path'] = '/zzz' e['physical.basedir'] = '/other' \
         assert(e['physical.rel-path'] == '/zzz' and e['physical.basedir'] == '/other')"
    );
    gives(&physical(&both_ways), "/a.txt", 200, "x");
    for name in ["doc-root", "basedir", "rel-path"] {
        let alone = format!("{e} e['physical.{name}'] = '/zzz'");
        gives(&physical(&alone), "/a.txt", 200, "aaaa\n");
    }
}

#[test]
fn an_alias_changes_the_base_directory_alone() {
    let script = "local e = lighty.env \
         lighty.content = { e['physical.path'], ' ', e['physical.rel-path'], ' ', \
         e['physical.doc-root'], ' ', e['physical.basedir'] } return 200";
    let server = with("physical-path", script)
        .file("../homes/joe/www/x", "x")
        .config("alias.url = ( \"/o/\" => \"@DIR@/other/\" )")
        .config("userdir.path = \"www\"\nuserdir.basepath = \"@DIR@/homes\"")
        .start();
    let at = server.directory().display().to_string();
    let parts =
        |path: &str, rel: &str, base: &str| format!("{at}{path} {rel} {at}/root {at}{base}");
    gives(&server, "/a.txt", 200, &parts("/root/a.txt", "/a.txt", "/root"));
    gives(&server, "/o/x.txt", 200, &parts("/other/x.txt", "/o/x.txt", "/other"));
    gives(&server, "/~joe/x", 200, &parts("/homes/joe/www/x", "/~joe/x", "/homes/joe/www"));
}

#[test]
fn scripts_may_write_their_own_values_into_lighty() {
    let script = "lighty.status = 302 lighty.mine = 7 lighty.r = nil \
         assert(lighty.mine == 7 and lighty.r.req_attr) \
         lighty.header['Location'] = '/a.txt' return 302";
    let server = with("raw-url", script).start();
    let response = server.get("/x");
    assert_eq!((response.status, response.field("Location")), (302, Some("/a.txt")));
}

#[test]
fn objects_that_scripts_share_are_no_tables() {
    let changes = "local shared = { lighty.r, lighty.c, lighty.server } \
         for _, object in ipairs(shared) do \
         assert(type(object) == 'userdata') \
         assert(not pcall(rawset, object, 'mine', 1)) \
         assert(not pcall(function() object.mine = 1 end)) \
         assert(not pcall(rawget, object, 'md')) \
         assert(not pcall(next, object)) \
         end \
         return 204";
    gives(&with("raw-url", changes).start(), "/", 204, "");
}

#[test]
fn modules_of_5_1_set_a_global() {
    let script = "require 'lfs' lighty.content = { lfs.attributes('/', 'mode') } return 200";
    gives(&with("raw-url", script).start(), "/", 200, "directory");
    let without = "lighty.content = { tostring(lfs) } return 200";
    gives(&with("raw-url", without).start(), "/", 200, "nil");
}

#[test]
fn a_file_that_was_looked_up_is_the_response() {
    let script = "local root = lighty.env['physical.doc-root'] \
         local found = lighty.c.stat(root .. '/a.html') \
         local seconds, nanoseconds = found.st_mtim() \
         assert(seconds == found.st_mtime and nanoseconds < 1e9 and found.none == nil) \
         if lighty.env['uri.path'] == '/dir' then \
           return lighty.stat(root .. '/docs')['http-response-send-file'] end \
         return found['http-response-send-file']";
    let server = with("physical-path", script)
        .config("mimetype.assign = ( \".html\" => \"text/html\" )")
        .start();
    let response = server.get("/about");
    assert_eq!((response.status, response.text()), (200, "page"), "{}", server.log());
    assert_eq!(response.field("Content-Type"), Some("text/html"));
    let tag = response.field("ETag").expect("a tag").to_owned();
    assert_eq!(server.get_with("/about", &format!("If-None-Match: {tag}\r\n")).status, 304);
    assert_eq!(server.get("/dir").status, 403);
}

#[test]
fn validators_that_scripts_set_are_compared() {
    let script = "lighty.header['ETag'] = '\"v1\"' \
         lighty.header['Last-Modified'] = 'Thu, 01 Jan 2026 00:00:00 GMT' \
         lighty.content = { 'body' } return 200";
    let server = with("raw-url", script).start();
    gives(&server, "/", 200, "body");
    for (field, status) in [
        ("If-None-Match: \"v1\"", 304),
        ("If-None-Match: \"v2\"", 200),
        ("If-Match: \"v1\"", 200),
        ("If-Match: \"v2\"", 412),
        ("If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT", 304),
        ("If-Unmodified-Since: Wed, 31 Dec 2025 00:00:00 GMT", 412),
    ] {
        let response = server.get_with("/", &format!("{field}\r\n"));
        assert_eq!(response.status, status, "{field}");
        assert_eq!(response.text() == "body", status == 200, "{field}");
    }
    let without = with("raw-url", "lighty.content = { 'body' } return 200").start();
    assert_eq!(without.get_with("/", "If-None-Match: *\r\n").status, 200);
}

#[test]
fn a_101_of_a_script_is_an_error() {
    let server = with("raw-url", "return 101").start();
    assert_eq!(server.get("/a.txt").status, 500);
    server.await_log("a script returned 101");
}

#[test]
fn random_numbers_differ_between_workers_and_starts() {
    let script = "lighty.content = { string.format('%.0f', math.random(1e9)) } return 200";
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let server = with("raw-url", script).start();
        seen.insert(server.get("/").text().to_owned());
    }
    // All the same: once in 10^18.
    assert!(seen.len() > 1, "{seen:?}");
}

#[test]
fn raw_url_scripts_see_what_setenv_sets() {
    let script = "lighty.content = { tostring(lighty.req_env['EXT']), ' ', \
         tostring(lighty.request['X-Set']) } return 200";
    let server = with("raw-url", script)
        .config(
            "setenv.add-environment = ( \"EXT\" => \"v1\" )\n\
             setenv.add-request-header = ( \"X-Set\" => \"v2\" )",
        )
        .start();
    gives(&server, "/", 200, "v1 v2");
}

#[test]
fn a_body_is_extended_or_replaced_with_what_belongs_to_it() {
    let add = with("response-start", "lighty.r.resp_body.add('NEW')").start();
    gives(&add, "/a.txt", 200, "aaaa\nNEW");
    assert_eq!(add.get("/a.txt").field("ETag"), None);
    let part = add.get_with("/a.txt", "Range: bytes=0-1\r\n");
    assert_eq!((part.status, part.text()), (206, "aa"));
    let set = with("response-start", "lighty.r.resp_body.set('NEWNEW')").start();
    let plain = set.get("/a.txt");
    assert_eq!((plain.status, plain.text()), (200, "NEWNEW"));
    assert_eq!((plain.field("ETag"), plain.field("Last-Modified")), (None, None));
    let part = set.get_with("/a.txt", "Range: bytes=0-1\r\n");
    assert_eq!((part.status, part.text()), (200, "NEWNEW"));
    assert_eq!(part.field("Content-Range"), None);
    let tag = with("response-start", "").start().get("/a.txt").field("ETag").map(str::to_owned);
    let later = format!("If-None-Match: {}\r\n", tag.expect("a tag"));
    let unchanged = set.get_with("/a.txt", &later);
    assert_eq!((unchanged.status, unchanged.text()), (200, "NEWNEW"));
    let own = "lighty.r.resp_header['ETag'] = '\"own\"' lighty.r.resp_body.set('N')";
    let own = with("response-start", own).start();
    assert_eq!(own.get("/a.txt").field("ETag"), Some("\"own\""));
}

#[test]
fn a_program_s_page_is_read_and_replaced() {
    let script = "local r = lighty.r if r.req_item.http_status == 500 and \
         r.resp_body.get:find('bad input') then r.resp_body.set('asked wrongly') return 400 end";
    let server = with("response-start", script)
        .file("bad.cgi", "printf 'Status: 500\\r\\n\\r\\n'; sleep 0.1; echo bad input")
        .file("good.cgi", "printf 'Status: 500\\r\\n\\r\\n'; echo other")
        .config("server.modules = ( \"mod_magnet\", \"mod_cgi\" )\ncgi.assign = ( \".cgi\" => \"/bin/sh\" )")
        .start();
    gives(&server, "/bad.cgi", 400, "asked wrongly");
    gives(&server, "/good.cgi", 500, "other\n");
}

/// Programs and logs get it, and a port of its own with it.
#[test]
fn client_s_port_is_set_like_its_address() {
    let script = "local a = lighty.r.req_attr \
         a['request.remote-addr'] = '192.0.2.7' a['request.remote-port'] = lighty.r.req_attr['uri.query']";
    for stage in ["raw-url", "physical-path"] {
        let server = with(stage, script)
            .file(
                "env.cgi",
                "printf 'Content-Type: text/plain\\r\\n\\r\\n'\necho $REMOTE_ADDR $REMOTE_PORT",
            )
            .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )")
            .start();
        gives(&server, "/env.cgi?99", 200, "192.0.2.7 99\n");
        gives(&server, "/env.cgi?x", 200, "192.0.2.7 0\n");
    }
}

/// Same result as lighttpd: no body (`nil`, length zero) until there is a response, or a script has
/// made one.
#[test]
fn body_is_described_once_there_is_one() {
    let script = "local r, s = lighty.r, tostring \
         local function all() local b = r.resp_body \
           return s(b.get) .. ',' .. s(b.len) .. ',' .. s(b.bytes_in) .. ',' .. s(b.bytes_out) end \
         r.resp_header['X-Before'] = all() \
         if r.req_attr['uri.query'] == 'set' then r.resp_body.set('abc') r.resp_body.add('de') \
           r.resp_header['X-After'] = all() r.resp_body.set('') return 200 end";
    for stage in ["raw-url", "physical-path", "response-start"] {
        let server = with(stage, script)
            .file("b.cgi", "printf 'Content-Type: text/plain\\r\\n\\r\\nfrom a program'")
            .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )")
            .start();
        let is_there = stage == "response-start";
        let before = |there: &'static str| Some(if is_there { there } else { "nil,nil,0,0" });
        let file = server.get("/docs/x.txt");
        assert_eq!(file.field("X-Before"), before("x,1,1,0"), "{stage}");
        let program = server.get("/b.cgi");
        assert_eq!(program.field("X-Before"), before("from a program,14,14,0"), "{stage}");
        let set = server.get("/a.txt?set");
        assert_eq!(set.field("X-After"), Some("abcde,5,5,0"), "{stage}");
        assert_eq!((set.status, set.text()), (200, ""), "{stage}");
    }
}

#[test]
fn a_range_does_not_pass_by_a_body_filter() {
    let filter = "return function(p) return p and p:gsub('a', '*') end";
    let server = with("response-content", filter)
        .config(
            "deflate.mimetypes = ( \"text/\" )\nmimetype.assign = ( \".txt\" => \"text/plain\" )",
        )
        .start();
    gives(&server, "/a.txt", 200, "****\n");
    let part = server.get_with("/a.txt", "Range: bytes=0-\r\n");
    assert_eq!((part.status, part.text()), (200, "****\n"));
    assert_eq!(part.field("Content-Range"), None);
}

#[test]
fn another_error_of_the_same_line_is_logged() {
    let server = with("raw-url", "error('about ' .. lighty.env['uri.path'])").start();
    for path in ["/one", "/two", "/one"] {
        assert_eq!(server.get(path).status, 500);
    }
    server.await_log("about /one");
    server.await_log("about /two");
    assert_eq!(server.log().matches("about /one").count(), 1, "{}", server.log());
}

#[test]
fn a_long_text_is_cut_in_the_log() {
    let server =
        with("raw-url", "print(('x'):rep(65536)) print(('y'):rep(65540)) return 204").start();
    assert_eq!(server.get("/").status, 204);
    server.await_log("yyy (4 bytes more)");
    assert!(!server.log().contains("xxx ("));
}

#[test]
fn orig_uri_is_what_programs_get_and_an_empty_path_is_refused() {
    let script = "if lighty.env['uri.path'] == '/empty' then lighty.env['physical.path'] = nil end \
         lighty.env['request.orig-uri'] = '/as/asked?x=1'";
    let server = with("physical-path", script)
        .file("u.cgi", "printf 'Content-Type: text/plain\\r\\n\\r\\n%s' \"$REQUEST_URI\"")
        .config("server.modules = ( \"mod_magnet\", \"mod_cgi\" )\ncgi.assign = ( \".cgi\" => \"/bin/sh\" )")
        .start();
    gives(&server, "/u.cgi", 200, "/as/asked?x=1");
    assert_eq!(server.get("/empty").status, 500);
    server.await_log("must not be empty");
}

#[test]
fn a_module_is_compiled_again_when_its_file_changes() {
    let server = with("raw-url", "lighty.content = { require('own').text } return 200")
        .file("../own.lua", "return { text = 'one' }")
        .start();
    for _ in 0..3 {
        gives(&server, "/", 200, "one");
    }
    let long = format!("-- {}\nreturn {{ text = 'two' }}", "x".repeat(20_000));
    std::fs::write(server.directory().join("own.lua"), long).expect("a module");
    let changed = lighty_testkit::wait_until(std::time::Duration::from_secs(60), || {
        server.get("/").text() == "two"
    });
    assert!(changed, "{}", server.log());
    std::fs::write(server.directory().join("own.lua"), "return (").expect("a module");
    let broken = lighty_testkit::wait_until(std::time::Duration::from_secs(60), || {
        server.get("/").status == 500
    });
    assert!(broken, "the module of before still runs");
    server.await_log("own.lua:1:");
}

#[test]
fn a_deep_check_names_scripts_that_are_no_lua() {
    let setup = with("raw-url", "return (");
    let config = setup.write_config();
    let config = config.to_str().expect("a path in UTF-8");
    // The server starts with it, and the requests that it is for get 500.
    for (strict, expected) in [(false, 0), (true, 1)] {
        let arguments = ["-tt", "-f", config, "--strict"];
        let (code, out, err) = setup.run(&arguments[..if strict { 4 } else { 3 }]);
        assert_eq!(code, expected, "{out} {err}");
        assert!(format!("{out}{err}").contains("s.lua:1:"), "{out} {err}");
    }
}

#[test]
fn errors_of_dictionaries_speak_lua() {
    let script = "local ok, why = pcall(lighty.shared.d.set, lighty.shared.d, nil, 1) \
         lighty.content = { why } return 200";
    let server = with("raw-url", script).config("magnet.shared = ( \"d\" => \"64\" )").start();
    gives(&server, "/", 200, "bad argument #1 to 'set' (string expected, got nil)");
}
