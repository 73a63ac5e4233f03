//! Attacks two at a time. The backend echoes the request, so a response that an attack planted
//! differs from the one that a plain request gets of an empty store.

use lighty_testkit::backend::Backend;
use lighty_testkit::matrix::{assert_matrix, table};
use lighty_testkit::server::Server;

use super::caching;
use super::poisoning::echo;

/// The parts of a request that an attack changes; an empty one stays as it is.
#[derive(Clone, Copy, Default)]
struct Attack {
    name: &'static str,
    method: &'static str,
    origin: &'static str,
    host: &'static str,
    query: &'static str,
    lines: &'static str,
    body: &'static str,
}

const PLAIN: Attack =
    Attack { name: "", method: "", origin: "", host: "", query: "", lines: "", body: "" };

/// An attack by fields alone.
const fn fields(name: &'static str, lines: &'static str) -> Attack {
    Attack { name, lines, ..PLAIN }
}

const ATTACKS: &[Attack] = &[
    fields("underscores", "X_Forwarded_Host: evil\r\n"),
    fields("repeated", "X-Original-URL: /good\r\nX-Original-URL: /evil\r\n"),
    fields("nominated", "Connection: X-Evil\r\nX-Evil: evil\r\n"),
    fields("nominated host", "Connection: Host\r\n"),
    fields("override", "X-HTTP-Method-Override: DELETE\r\n"),
    fields("range", "Range: bytes=0-3\r\n"),
    fields("whole range", "Range: bytes=0-\r\n"),
    fields("condition", "If-None-Match: *\r\n"),
    fields("match", "If-Match: \"evil\"\r\n"),
    fields("expect", "Expect: 100-continue\r\n"),
    fields("no-cache", "Cache-Control: no-cache\r\nPragma: no-cache\r\n"),
    fields("no-store", "Cache-Control: no-store\r\n"),
    fields("credentials", "Authorization: Basic ZXZpbDpldmls\r\n"),
    Attack { name: "cloaked", query: "&utm_a=1;a=evil", ..PLAIN },
    Attack { name: "ignored", query: "&utm_b=evil&utm_b=evil", ..PLAIN },
    Attack { name: "duplicate", query: "&a=evil", ..PLAIN },
    Attack { name: "absolute", origin: "http://localhost", host: "evil.example", ..PLAIN },
    Attack { name: "host case", host: "LocalHost", ..PLAIN },
    Attack { name: "host port", host: "localhost:12345", ..PLAIN },
    Attack { name: "host dot", host: "localhost.", ..PLAIN },
    Attack { name: "content", lines: "Content-Length: 4\r\n", body: "evil", ..PLAIN },
    Attack {
        name: "chunks",
        lines: "Transfer-Encoding: chunked\r\n",
        body: "4\r\nevil\r\n0\r\n\r\n",
        ..PLAIN
    },
    Attack { name: "head", method: "HEAD", ..PLAIN },
];

/// A request for `path?a=1` with both attacks.
fn request(path: &str, one: &Attack, other: &Attack) -> String {
    let pick = |get: fn(&Attack) -> &'static str, default| {
        [get(one), get(other)].into_iter().find(|text| !text.is_empty()).unwrap_or(default)
    };
    let (method, origin) = (pick(|a| a.method, "GET"), pick(|a| a.origin, ""));
    let (host, body) = (pick(|a| a.host, "localhost"), pick(|a| a.body, ""));
    let (query, lines) = (one.query.to_owned() + other.query, one.lines.to_owned() + other.lines);
    format!("{method} {origin}{path}?a=1{query} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n{body}")
}

/// The effect of a request on the store: `apart` if it stored nothing for plain requests, `shared`,
/// or `POISONED`.
fn effect(server: &Server, path: &str, plain: &str, attack: &str) -> &'static str {
    let mut client = server.connect();
    client.send(attack);
    let _ = client.try_response(attack.starts_with("HEAD "));
    let page = server.get(&format!("{path}?a=1"));
    let is_hit = page.field("Cache-Status").is_some_and(|text| text.starts_with("lighty; hit"));
    match (page.status, page.text() == plain.replace("/plain", path), is_hit) {
        (200, true, true) => "shared",
        (200, true, false) => "apart",
        _ => "POISONED",
    }
}

fn server(backend: &Backend) -> Server {
    let more = "cache.key-query = ( \"!utm_*\" )\n\
                server.http-parseopts = ( \"method-get-body\" => \"enable\" )";
    caching(backend, more)
}

#[test]
fn no_attack_changes_the_response_to_others() {
    let backend = echo();
    let server = server(&backend);
    let plain = server.get("/plain?a=1").text().to_owned();
    let mut rows = vec![vec!["attack".to_owned(), "effect".to_owned()]];
    for (number, attack) in ATTACKS.iter().enumerate() {
        let path = format!("/{number}");
        let effect = effect(&server, &path, &plain, &request(&path, attack, &PLAIN));
        rows.push(vec![attack.name.to_owned(), effect.to_owned()]);
    }
    let effects = "
attack          effect
underscores     shared
repeated        shared
nominated       apart
nominated host  apart
override        shared
range           apart
whole range     shared
condition       shared
match           shared
expect          shared
no-cache        shared
no-store        apart
credentials     apart
cloaked         shared
ignored         shared
duplicate       apart
absolute        shared
host case       shared
host port       apart
host dot        shared
content         apart
chunks          apart
head            apart
";
    assert_matrix(&table(&rows), effects);
}

#[test]
fn no_pair_of_attacks_changes_the_response_to_others() {
    let backend = echo();
    let server = server(&backend);
    let plain = server.get("/plain?a=1").text().to_owned();
    let mut poisoned = vec![vec!["attack".to_owned(), "beside".to_owned()]];
    for (nth, one) in ATTACKS.iter().enumerate() {
        for (mth, other) in ATTACKS.iter().enumerate() {
            let path = format!("/{nth}/{mth}");
            let effect = effect(&server, &path, &plain, &request(&path, one, other));
            if effect == "POISONED" {
                poisoned.push(vec![one.name.to_owned(), other.name.to_owned()]);
            }
        }
    }
    assert!(poisoned.len() == 1, "{}", table(&poisoned));
}
