//! Published cache attacks, one after the other; `pairs` combines them.

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::Server;

use super::{FRESH, caching, counting, with_store};

/// A backend whose body is the head of the request, but for directives to caches, which a cache
/// forwards.
pub(super) fn echo() -> Backend {
    Backend::replying(|seen| {
        let is_kept =
            |line: &&str| !line.starts_with("Cache-Control") && !line.starts_with("Pragma");
        let lines: Vec<&str> = seen.head.split("\r\n").filter(is_kept).collect();
        answer("200 OK", FRESH, &lines.join("\r\n"))
    })
}

/// True if the response came from the store.
pub(super) fn is_hit(server: &Server, target: &str, lines: &str) -> bool {
    let page = server.get_with(target, lines);
    page.field("Cache-Status").is_some_and(|text| text.starts_with("lighty; hit"))
}

/// The response to a raw request with `Connection: close` or not.
fn raw(server: &Server, request: &str) -> (u16, String) {
    let mut client = server.connect();
    client.send(request);
    let page = client.response();
    (page.status, page.text().to_owned())
}

#[test]
fn every_spelling_of_an_unkeyed_field_is_removed() {
    let backend = echo();
    let server = caching(&backend, "");
    for name in [
        "Forwarded",
        "X-Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Forwarded-Prefix",
        "X-Forwarded-Proto",
        "X-Forwarded-Scheme",
        "X-Forwarded-Server",
        "X-Forwarded-Anything",
        "X-Host",
        "X-HTTP-Host-Override",
        "X-HTTP-Method",
        "X-HTTP-Method-Override",
        "X-Method-Override",
        "X-Now-Route-Matches",
        "X-Original-Host",
        "X-Original-URI",
        "X-Original-URL",
        "X-Rewrite-URI",
        "X-Rewrite-URL",
    ] {
        let spellings = [
            name.to_owned(),
            name.to_lowercase(),
            name.to_uppercase(),
            name.replace('-', "_"),
            name.replacen('-', "_", 1),
        ];
        for (number, spelling) in spellings.iter().enumerate() {
            let target = format!("/{name}/{number}");
            for lines in [
                format!("{spelling}: evil\r\n"),
                format!("{spelling}: good\r\n{spelling}: evil\r\n"),
                format!("{spelling}: good\r\n{}: evil\r\n", name.to_lowercase()),
            ] {
                let page = server.get_with(&target, &lines);
                assert!(!page.text().contains("evil"), "{lines}\n{}", page.text());
            }
        }
    }
}

#[test]
fn field_in_the_key_reaches_the_backend() {
    let backend = echo();
    let server = caching(&backend, "cache.key = ( \"header:X-Original-URL\" )");
    let ask = |lines: &str| server.get_with("/", lines).text().to_owned();
    let plain = ask("");
    assert!(ask("X-Original-URL: /a\r\n").contains("/a"));
    assert!(ask("X-Original-URL: /b\r\n").contains("/b"));
    assert_eq!(ask(""), plain);
}

#[test]
fn backend_is_part_of_the_key() {
    let (stable, canary) = (counting(FRESH), Backend::replying(|_| answer("200 OK", FRESH, "new")));
    let rule = format!(
        "$HTTP[\"cookie\"] == \"canary=1\" {{ proxy-core.backends := ( \"{}\" ) }}",
        canary.name()
    );
    let server = caching(&stable, &rule);
    for _ in 0..2 {
        assert_eq!(server.get_with("/", "Cookie: canary=1\r\n").text(), "new");
        assert_eq!(server.get("/").text(), "answer 1");
    }
    assert_eq!((stable.requests().len(), canary.requests().len()), (1, 1));
}

#[test]
fn ignored_parameter_hides_no_other() {
    let backend = echo();
    let server = caching(&backend, "cache.key-query = ( \"!utm_*\" )");
    for (number, query) in [
        "a=1&utm_x=1;a=evil",
        "utm_x=1;a=evil&a=1",
        "a=1&utm_x=%26a=evil",
        "a=1&utm_x=1&utm_x=evil",
        "a=1&utm_x[]=evil",
        "a=1&utm_x",
        "a=1&a=evil",
        "a=evil&a=1",
        "a=1;utm_x=evil",
        "a=1&%75tm_x=evil",
        "a=1&UTM_x=evil",
        "?a=1&utm_x=evil",
    ]
    .iter()
    .enumerate()
    {
        let _ = server.get(&format!("/{number}?{query}"));
        let page = server.get(&format!("/{number}?a=1"));
        assert!(!page.text().contains("evil"), "{query}\n{}", page.text());
        assert!(page.text().starts_with(&format!("GET /{number}?a=1 ")), "{query}");
    }
}

#[test]
fn hosts_are_kept_apart() {
    let backend =
        Backend::replying(|seen| answer("200 OK", FRESH, seen.field("Host").unwrap_or("none")));
    let server = caching(&backend, "");
    let ask = |line: &str, host: &str| {
        let request = format!("GET {line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        raw(&server, &request)
    };
    assert_eq!(ask("/", "a.example").1, "a.example");
    assert_eq!(ask("/", "b.example").1, "b.example");
    assert_eq!(ask("/", "a.example:81").1, "a.example:81", "a backend may build links of it");
    // The authority of an absolute target counts, and not the field.
    assert_eq!(ask("http://b.example/", "a.example").1, "b.example");
    assert_eq!(ask("/", "a.example").1, "a.example");
    // Host names have no case.
    let before = backend.requests().len();
    assert_eq!(ask("/", "A.Example").1, "a.example");
    assert_eq!(backend.requests().len(), before);
}

#[test]
fn delimiters_join_no_parts_of_the_key() {
    let backend = echo();
    let server = caching(&backend, "cache.key = ( \"cookie:a\", \"cookie:b\", \"header:X-C\" )");
    let mut pages = Vec::new();
    for lines in [
        "Cookie: a=1; b=2\r\n",
        "Cookie: a=1|b=2\r\n",
        "Cookie: a=1,b=2\r\n",
        "Cookie: a=12\r\n",
        "Cookie: b=12\r\n",
        "Cookie: b=1; a=2\r\n",
        "Cookie: a=1\r\nX-C: 2\r\n",
        "X-C: 12\r\n",
        "X-C: 1|2\r\n",
        "X-C:\r\n",
        "Cookie: a=\r\n",
        "",
    ] {
        let page = server.get_with("/", lines).text().to_owned();
        assert!(!pages.contains(&page), "{lines}");
        pages.push(page);
    }
    let _ = server.get("/x?y");
    assert!(!is_hit(&server, "/x%3Fy", ""), "the question mark is part of the path");
}

#[test]
fn heads_of_unusual_size_go_past_the_store() {
    let backend = Backend::replying(|seen| match seen.field("X-Fill") {
        Some(_) => answer("400 Bad Request", FRESH, "too large"),
        None => answer("200 OK", FRESH, "page"),
    });
    let server = caching(&backend, "cache.max-request-head = \"1K\"");
    let fill = format!("X-Fill: {}\r\n", "a".repeat(1500));
    assert_eq!(server.get_with("/", &fill).status, 400);
    assert_eq!(server.get("/").text(), "page");
    assert_eq!(server.get_with("/", &fill).status, 400, "not even for a hit");
}

#[test]
fn errors_of_requests_get_no_lifetime_from_the_configuration() {
    let backend = Backend::replying(|seen| {
        let status = seen.target().trim_start_matches('/');
        answer(&format!("{status} X"), "", "error")
    });
    let server = caching(&backend, "cache.valid = ( \"any\" => 600 )");
    for status in [400, 405, 408, 411, 413, 414, 417, 421, 426, 429, 431, 501, 505] {
        let target = format!("/{status}");
        let _ = server.get(&target);
        assert!(!is_hit(&server, &target, ""), "{status}");
    }
    for status in [404, 410] {
        let target = format!("/{status}");
        let _ = server.get(&target);
        assert!(is_hit(&server, &target, ""), "{status}");
    }
    let server = caching(&backend, "");
    for status in [200, 404, 410, 301] {
        let target = format!("/{status}");
        let _ = server.get(&target);
        assert!(!is_hit(&server, &target, ""), "{status} without Last-Modified");
    }
}

#[test]
fn response_behind_another_is_never_stored() {
    let backend = Backend::start(|peer| {
        while let Some(seen) = peer.request() {
            let mut bytes = answer("200 OK", FRESH, seen.target());
            bytes.extend(answer("200 OK", FRESH, "evil"));
            if !peer.send(bytes) {
                break;
            }
        }
    });
    let server = caching(&backend, "");
    for _ in 0..2 {
        for target in ["/a", "/b", "/c", "/d"] {
            assert_eq!(server.get(target).text(), target);
        }
    }
    assert_eq!(backend.requests().len(), 4);
}

#[test]
fn fill_has_no_condition_or_range() {
    let backend = echo();
    let server = caching(&backend, "");
    for (number, line) in [
        "If-None-Match: \"evil\"",
        "If-Match: \"evil\"",
        "If-Modified-Since: Mon, 01 Jan 2001 00:00:01 GMT",
        "If-Unmodified-Since: Mon, 01 Jan 2001 00:00:01 GMT",
        "If-Range: \"evil\"",
        "Range: bytes=0-",
        "Expect: 100-continue",
    ]
    .iter()
    .enumerate()
    {
        let target = format!("/{number}");
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n"));
        let _ = client.response();
        let page = server.get(&target);
        let name = line.split_once(':').expect("a name").0;
        assert!(!page.text().contains(name), "{line}\n{}", page.text());
        assert_eq!(page.status, 200);
    }
}

#[test]
fn codings_are_served_only_to_clients_that_accept_them() {
    let backend = Backend::replying(|seen| {
        let accepted: Vec<&str> = seen.all("Accept-Encoding").flat_map(|v| v.split(',')).collect();
        let has = |coding: &str| accepted.iter().any(|one| one.trim() == coding);
        let coding = ["br", "gzip"].into_iter().find(|coding| has(coding));
        let line = coding.map_or(String::new(), |coding| format!("Content-Encoding: {coding}\r\n"));
        let fields = format!("{FRESH}Vary: Accept-Encoding\r\n{line}");
        answer("200 OK", &fields, coding.unwrap_or("plain"))
    });
    let server = caching(&backend, "");
    for round in 0..2 {
        for (lines, coding) in [
            ("Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n", "br"),
            ("", "plain"),
            ("Accept-Encoding: gzip\r\n", "gzip"),
            ("Accept-Encoding: gzip\r\nAccept-Encoding: gzip\r\n", "gzip"),
            ("Accept-Encoding: br, br\r\n", "br"),
            ("Accept-Encoding: deflate\r\n", "plain"),
            ("Accept-Encoding: gzip;q=0\r\n", "plain"),
            ("Accept-Encoding: identity\r\n", "plain"),
            ("Accept-Encoding:\r\n", "plain"),
        ] {
            assert_eq!(server.get_with("/", lines).text(), coding, "{round} {lines}");
        }
    }
}

#[test]
fn order_of_codings_does_not_matter() {
    let backend = counting("Cache-Control: max-age=600\r\nVary: Accept-Encoding\r\n");
    let server = caching(&backend, "");
    for lines in [
        "Accept-Encoding: gzip, deflate, br\r\n",
        "Accept-Encoding: br,deflate,gzip\r\n",
        "Accept-Encoding: gzip\r\nAccept-Encoding: deflate, BR\r\n",
    ] {
        assert_eq!(server.get_with("/", lines).text(), "answer 1", "{lines}");
    }
}

#[test]
fn flood_of_tags_stores_nothing() {
    for (tags, is_stored) in [(64, true), (65, false)] {
        let names: Vec<String> = (0..tags).map(|n| format!("tag{n}")).collect();
        let fields = format!("{FRESH}Surrogate-Key: {}\r\n", names.join(" "));
        let backend = Backend::replying(move |_| answer("200 OK", &fields, "page"));
        let server = caching(&backend, "");
        let _ = server.get("/");
        assert_eq!(is_hit(&server, "/", ""), is_stored, "{tags}");
    }
}

#[test]
fn page_under_the_name_of_a_file_gets_no_lifetime() {
    let backend =
        Backend::replying(|_| answer("200 OK", "Content-Type: text/html\r\n", "an account"));
    let more = "$HTTP[\"url\"] =^ \"/account\" { cache.valid = ( \"200\" => 600 ) }\n\
                $HTTP[\"url\"] =^ \"/static/\" { cache.valid = ( \"200\" => 600 ) }";
    let server = with_store(lighty!(), &backend, more).start();
    for target in [
        "/account/x.css",
        "/account;x.css",
        "/account/x.js",
        "/account/%2e%2e/x.png",
        "/account%2fx.css",
        "/account?x.css",
        "/static/..%2faccount.css",
        "/static/../account.css",
        "/static/%2e%2e/private",
        "/static/..%2fprivate",
    ] {
        let _ = server.get_with(target, "Cookie: session=1\r\n");
        assert!(!is_hit(&server, target, "Cookie: session=1\r\n"), "{target} with a cookie");
        let has_extension = target.contains('.') && !target.contains('?');
        let is_elsewhere = target.ends_with("private");
        let _ = server.get(target);
        if has_extension || is_elsewhere {
            assert!(!is_hit(&server, target, ""), "{target}");
        }
    }
    assert_ne!(server.get("/account%00x.css").status, 200);
    let _ = server.get("/account/");
    assert!(is_hit(&server, "/account/", ""), "the rule applies at all");
}

#[test]
fn field_by_which_a_page_differs_can_be_in_the_key() {
    let backend = Backend::replying(|seen| {
        answer("200 OK", FRESH, seen.field("RSC").map_or("page", |_| "payload"))
    });
    let server = caching(&backend, "cache.key = ( \"header:RSC\" )");
    for _ in 0..2 {
        assert_eq!(server.get_with("/", "RSC: 1\r\n").text(), "payload");
        assert_eq!(server.get("/").text(), "page");
    }
}
