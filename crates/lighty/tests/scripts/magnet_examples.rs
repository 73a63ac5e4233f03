//! Scripts of `examples/scripts`, and the manual's statements about scripts.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use lighty_testkit::lighty;
use lighty_testkit::peer::ask;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup, write_file};

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A server with an example in a stage.
fn with_example(name: &str, stage: &str) -> Setup {
    let text = example(name);
    let setup = lighty!().config(&format!(
        "server.modules = ( \"mod_magnet\", \"mod_cgi\" )\n\
         magnet.attract-{stage}-to = ( \"@DIR@/{name}\" )\n\
         mimetype.assign = ( \".html\" => \"text/html\", \".png\" => \"image/png\" )"
    ));
    let directory = setup.directory().display().to_string();
    write_file(&setup.directory().join(name), text.replace("/etc/lighty/scripts", &directory));
    setup
}

fn example(name: &str) -> String {
    let path = tree().join("examples/scripts").join(name);
    std::fs::read_to_string(path).expect("an example")
}

fn get(server: &Server, target: &str, fields: &str) -> Response {
    let request = format!("GET {target} HTTP/1.1\r\nHost: www.example.org\r\n{fields}\r\n");
    ask(server.connect(), &request)
}

#[track_caller]
fn is(server: &Server, response: &Response, status: u16, text: &str) {
    let given = (response.status, response.text());
    assert_eq!(given, (status, text), "{:?}\n{}", response.fields, server.log());
}

#[test]
fn maintenance() {
    let server =
        with_example("maintenance.lua", "physical-path").file("index.html", "site").start();
    is(&server, &get(&server, "/index.html", ""), 200, "site");
    let page = server.root("maintenance.html");
    write_file(&page, "back soon");
    // Cached file attributes may be a second old.
    let closed = lighty_testkit::wait_until(std::time::Duration::from_secs(60), || {
        get(&server, "/index.html", "").status == 503
    });
    assert!(closed, "{}", server.log());
    let response = get(&server, "/index.html", "");
    is(&server, &response, 503, "back soon");
    assert_eq!(response.field("Retry-After"), Some("600"));
    assert_eq!(response.field("Content-Type"), Some("text/html; charset=utf-8"));
}

#[test]
fn ab_test() {
    let setup = with_example("ab-test.lua", "physical-path")
        .config("server.modules += ( \"mod_indexfile\" )\nindex-file.names = ( \"index.html\" )");
    let server =
        setup.file("index.html", "a").file("only.html", "both").file("b/index.html", "b").start();
    is(&server, &get(&server, "/index.html", "Cookie: variant=a\r\n"), 200, "a");
    let chosen = get(&server, "/index.html", "Cookie: x=y; variant=b\r\n");
    is(&server, &chosen, 200, "b");
    assert_eq!((chosen.field("Set-Cookie"), chosen.field("Vary")), (None, Some("Cookie")));
    is(&server, &get(&server, "/only.html", "Cookie: variant=b\r\n"), 200, "both");
    is(&server, &get(&server, "/", "Cookie: variant=b\r\n"), 200, "b");
    is(&server, &get(&server, "/", "Cookie: variant=a\r\n"), 200, "a");
    let mut seen = BTreeSet::new();
    for _ in 0..64 {
        let fresh = get(&server, "/index.html", "Cookie: variant=c\r\n");
        let cookie = fresh.field("Set-Cookie").expect("a cookie").to_owned();
        assert!(cookie.starts_with(&format!("variant={};", fresh.text())), "{cookie}");
        seen.insert(fresh.text().to_owned());
    }
    // All 64 the same: once in 2^63 runs.
    assert_eq!(seen.len(), 2, "{seen:?}");
}

const GOOD: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
    eyJzdWIiOiJjYXJvbCIsImV4cCI6NDEwMjQ0NDgwMH0.GG5bV1iEmu3GaShydBTXpqg70oxmyVHoa8L8lXirFec";

/// Tokens made by another program, and why each is refused.
const BAD: &[(&str, &str)] = &[
    (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJjYXJvbCIsImV4cCI6MTAwMDAwMDAwMH0.\
         v2okrCfXx7mpFhpCEWDUggJ-T3a99jVggKXxv9NgJ3Y",
        "the token has expired",
    ),
    (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
         eyJzdWIiOiJjYXJvbCIsImV4cCI6NDEwMjQ0NDgwMCwibmJmIjo0MTAyNDQ0MDAwfQ.\
         p1PbEjsscwxk4Z3uZrI3x1iOOtig9G02fUc0lGtJdKs",
        "the token is not valid yet",
    ),
    (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjQxMDI0NDQ4MDB9.\
         eFlGnrbIm89Ws5l0NgPJWQ7ID102H2bfBip5fE3VZP0",
        "the token names nobody",
    ),
    (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJjYXJvbCIsImV4cCI6NDEwMjQ0NDgwMH0.\
         hd43PisfAD_GMoskDVYbTe4AxibhPwZEQAqsH-EzCjI",
        "the signature is wrong",
    ),
    (
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYXJvbCIsImV4cCI6NDEwMjQ0NDgwMH0.\
         eQ7sPQiCRiniEbHgBwu597BYyfEqk3CNMH73pFtysHE",
        "the algorithm is not HS256",
    ),
];

#[test]
fn token_check() {
    let setup = with_example("token-check.lua", "raw-url")
        .config("cgi.assign = ( \".cgi\" => \"/bin/sh\" )")
        .file(
            "who.cgi",
            "printf 'Content-Type: text/plain\\r\\n\\r\\n'\nprintf %s \"$REMOTE_USER\"",
        );
    write_file(&setup.directory().join("token-secret"), "0123456789abcdef-secret\n");
    let server = setup.start();
    let bearer =
        |token: &str| get(&server, "/who.cgi", &format!("Authorization: Bearer {token}\r\n"));
    is(&server, &bearer(GOOD), 200, "carol");
    let without = get(&server, "/who.cgi", "");
    assert_eq!(
        (without.status, without.field("WWW-Authenticate")),
        (401, Some("Bearer realm=\"api\""))
    );
    for (token, why) in BAD {
        let refused = bearer(token);
        let output = refused.field("WWW-Authenticate").unwrap_or_default();
        assert!(
            refused.status == 401 && output.contains(why),
            "{why}: {} {output}",
            refused.status
        );
    }
    // Changing any byte of a token makes it invalid.
    for at in (0..GOOD.len()).step_by(7) {
        let mut token = GOOD.as_bytes().to_vec();
        token[at] = if token[at] == b'A' { b'B' } else { b'A' };
        assert_eq!(bearer(str::from_utf8(&token).expect("ASCII")).status, 401, "at {at}");
    }
}

#[test]
fn image_by_hash() {
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let server = with_example("image-by-hash.lua", "physical-path")
        .file(&format!("img/9f/86/{hash}.png"), "picture")
        .file("img/plain.png", "not by hash")
        .start();
    let picture = get(&server, &format!("/img/{hash}.png"), "");
    is(&server, &picture, 200, "picture");
    assert_eq!(picture.field("Content-Type"), Some("image/png"));
    assert!(picture.field("Cache-Control").is_some_and(|field| field.contains("immutable")));
    is(&server, &get(&server, &format!("/img/{}.png", hash.to_uppercase()), ""), 200, "picture");
    for target in ["/img/plain.png", "/img/9f.png", &format!("/img/{hash}.jpg")] {
        assert_eq!(get(&server, target, "").status, 404, "{target}");
    }
}

#[test]
fn redirects() {
    let setup = with_example("redirects.lua", "raw-url").file("stays.html", "stays");
    write_file(&setup.directory().join("redirect_table.lua"), example("redirect_table.lua"));
    let server = setup.start();
    for (target, location) in [
        ("/contact.php", "/contact/"),
        ("/contact.php?a=b", "/contact/?a=b"),
        ("/shop/list?page=2", "https://shop.example.org/list?all=1&page=2"),
        ("/blog/archive/2007/x%20y", "/archive/2007/x%20y"),
        ("/blog/today", "https://blog.example.org/today"),
    ] {
        let response = get(&server, target, "");
        assert_eq!(
            (response.status, response.field("Location")),
            (301, Some(location)),
            "{target}"
        );
    }
    assert_eq!(get(&server, "/old-news", "").status, 410);
    is(&server, &get(&server, "/stays.html", ""), 200, "stays");
}

#[test]
fn api() {
    let server = with_example("api.lua", "raw-url")
        .config("magnet.shared = ( \"counters\" => \"64\" )")
        .start();
    let call = |method: &str, name: &str, body: &str| {
        let length = body.len();
        let request = format!(
            "{method} /counters/{name} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        ask(server.connect(), &request)
    };
    assert_eq!(call("GET", "n", "").status, 404);
    is(&server, &call("POST", "n", ""), 200, "{\"name\":\"n\",\"value\":1}\n");
    let up = call("POST", "n", "{\"by\": 41}");
    is(&server, &up, 200, "{\"name\":\"n\",\"value\":42}\n");
    assert_eq!(up.field("Content-Type"), Some("application/json"));
    is(&server, &call("GET", "n", ""), 200, "{\"name\":\"n\",\"value\":42}\n");
    for body in ["{", "[]", "{\"by\":\"1\"}", "{\"by\":0.5}", "12"] {
        assert_eq!(call("POST", "n", body).status, 400, "{body}");
    }
    assert_eq!(call("DELETE", "n", "").status, 204);
    assert_eq!(call("GET", "n", "").status, 404);
    let put = call("PUT", "n", "");
    assert_eq!((put.status, put.field("Allow")), (405, Some("GET, HEAD, POST, DELETE")));
    assert_eq!(call("GET", "a%2fb", "").status, 404);
}

#[test]
fn page_cache() {
    let origin = lighty!()
        .config("setenv.add-response-header = ( \"X-Origin\" => \"yes\" )")
        .config(
            "$HTTP[\"url\"] =^ \"/slow/private\" {\n\
                 setenv.add-response-header = ( \"Cache-Control\" => \"private\" ) }",
        )
        .file("slow/a.html", "first")
        .file("slow/private.html", "first")
        .start();
    let config = format!(
        "server.modules += ( \"mod_proxy_core\" )\n\
         magnet.backends = ( \"slow\" => \"{}\" )\nmagnet.shared = ( \"pages\" => \"1024\" )",
        origin.address()
    );
    let server = with_example("page-cache.lua", "raw-url").config(&config).start();
    let miss = get(&server, "/slow/a.html", "");
    is(&server, &miss, 200, "first");
    assert_eq!(miss.field("X-Cache"), Some("miss"));
    for page in ["slow/a.html", "slow/private.html"] {
        write_file(&origin.root(page), "other");
    }
    let hit = get(&server, "/slow/a.html", "");
    is(&server, &hit, 200, "first");
    let fields = (hit.field("X-Cache"), hit.field("Content-Type"));
    assert_eq!(fields, (Some("hit"), miss.field("Content-Type")));
    for _ in 0..2 {
        let private = get(&server, "/slow/private.html", "");
        assert_eq!((private.status, private.field("X-Cache")), (200, Some("miss")));
    }
    assert_eq!(get(&server, "/slow/none.html", "").status, 404);
    // Pages may depend on the host, which clients choose: each host has its own.
    let request = "GET /slow/a.html HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let other = ask(server.connect(), request);
    assert_eq!((other.status, other.field("X-Cache")), (200, Some("miss")));
    is(&server, &get(&server, "/slow/a.html", ""), 200, "first");
    // A request with a cookie gets no cached page: it continues, and finds no file here.
    assert_eq!(get(&server, "/slow/a.html", "Cookie: a=b\r\n").status, 404);
}

#[test]
fn rewrite_links() {
    let link = "<a href=\"http://old.example.org/x\">http://old.example.com</a>\n";
    let page = format!("{}http://old.exam", link.repeat(9000));
    let server = with_example("rewrite-links.lua", "response-content")
        .config("mimetype.assign += ( \".txt\" => \"text/plain\" )")
        .file("page.html", &page)
        .file("page.txt", &page)
        .start();
    let expected = page.replace("http://old.example.org/", "https://www.example.org/");
    let response = get(&server, "/page.html", "");
    assert_eq!(response.status, 200, "{}", server.log());
    assert!(response.text() == expected, "{} bytes", response.text().len());
    let plain = get(&server, "/page.txt", "");
    assert!(plain.status == 200 && plain.text() == page, "{} bytes", plain.text().len());
}

/// Lists the names found by a walk through `lighty`.
const WALK: &str = r#"
local names = {}
for _, group in ipairs { "c", "json", "http" } do
  for name, value in pairs(lighty[group] or {}) do
    names[#names + 1] = "lighty." .. group .. "." .. name .. (type(value) == "function" and "(" or "")
  end
end
for name in pairs(lighty.r.req_attr) do names[#names + 1] = name end
for name, value in pairs(lighty) do
  names[#names + 1] = "lighty." .. name .. (type(value) == "function" and "(" or "")
end
lighty.r.resp_header["Content-Type"] = "text/plain"
lighty.r.resp_body.set(table.concat(names, "\n"))
return 200
"#;

#[test]
fn the_manual_has_every_name_that_scripts_see() {
    let setup = lighty!().config(
        "server.modules = ( \"mod_magnet\" )\n\
         magnet.attract-physical-path-to = ( \"@DIR@/walk.lua\" )",
    );
    write_file(&setup.directory().join("walk.lua"), WALK);
    let server = setup.start();
    let response = get(&server, "/?a=b", "");
    assert_eq!(response.status, 200, "{}", server.log());
    let names: Vec<&str> = response.text().lines().collect();
    assert!(names.len() > 60, "{names:?}");
    let manual = std::fs::read_to_string(tree().join("docs/manual/magnet.md")).expect("the page");
    for name in names {
        let is_there = manual.contains(&format!("`{name}"));
        assert!(is_there, "docs/manual/magnet.md has no `{name}`");
    }
}

#[test]
fn scripts_see_every_name_that_the_manual_has() {
    let manual = std::fs::read_to_string(tree().join("docs/manual/magnet.md")).expect("the page");
    let (_, reference) = manual.split_once("## The whole interface").expect("the tables");
    let (reference, _) = reference.split_once("## Examples").expect("their end");
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap_or_default());
    let mut names: Vec<String> = Vec::new();
    for name in cells.flat_map(|cell| cell.split('`').step_by(2)) {
        // `.get` beside `lighty.r.req_body.len` is of the same object.
        match name.strip_prefix('.').zip(names.last()) {
            Some((own, before)) => {
                let object = before.rsplit_once('.').map_or("", |(object, _)| object);
                names.push(format!("{object}.{own}"));
            }
            None => names.push(name.to_owned()),
        }
    }
    assert!(names.len() > 90, "{names:?}");
    let mut script = "local lines = {}\nlocal function check(name, f)\n  local ok, value = \
                      pcall(f)\n  if not ok or value == false then lines[#lines + 1] = name .. ': ' .. \
                      tostring(value) end\nend\n"
        .to_owned();
    for name in &names {
        let test = match name.split_once('(') {
            Some((function, _)) => match function.strip_prefix(':') {
                Some(method) => format!("type(lighty.shared.own['{method}']) == 'function'"),
                None if function == "require" => "type(require) == 'function'".to_owned(),
                None => format!("type({function}) == 'function'"),
            },
            None if name.starts_with("lighty") => match name.strip_suffix("[]") {
                Some(object) => format!("type({object}):find('^[ut]') ~= nil"),
                // Some have no value here; a name that is not known is an error.
                None => format!("({name}) or true"),
            },
            None => format!("lighty.r.req_attr['{name}'] or true"),
        };
        writeln!(script, "check([==[{name}]==], function() return {test} end)").expect("a text");
    }
    script.push_str("lighty.r.resp_body.set(table.concat(lines, '\\n'))\nreturn 200\n");
    let setup = lighty!().config(
        "server.modules = ( \"mod_magnet\" )\nmagnet.shared = ( \"own\" => \"64\" )\n\
         magnet.attract-physical-path-to = ( \"@DIR@/all.lua\" )",
    );
    write_file(&setup.directory().join("all.lua"), script);
    let server = setup.start();
    let response = get(&server, "/?a=b", "");
    assert_eq!((response.status, response.text()), (200, ""), "{}", server.log());
}

#[test]
fn the_manual_has_every_example() {
    let manual = std::fs::read_to_string(tree().join("docs/manual/magnet.md")).expect("the page");
    for entry in std::fs::read_dir(tree().join("examples/scripts")).expect("examples").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name == "redirect_table.lua" || manual.contains(&format!("`{name}`")), "{name}");
    }
}
