//! Bodies of responses: filters, ranges, and those that a script makes.

use super::*;

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
