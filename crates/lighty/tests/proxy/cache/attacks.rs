//! Poisoning, deception, and the mixing of identities.

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;

use super::{FRESH, caching, counting, with_store};

#[test]
fn fields_outside_the_key_do_not_reach_the_backend() {
    for field in [
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Scheme: nothttps",
        "X-Forwarded-Port: 12345",
        "X-Host: evil.example",
        "X-Original-URL: /other",
        "X-Rewrite-URL: /other",
        "X-HTTP-Method-Override: POST",
        "X_Original_URL: /other",
        "Forwarded: host=evil.example",
    ] {
        let backend = Backend::replying(|seen| answer("200 OK", FRESH, &seen.head));
        let server = caching(&backend, "");
        let page = server.get_with("/", &format!("{field}\r\n"));
        let value = field.split_once(": ").expect("a value").1;
        assert!(!page.text().contains(value), "{field}\n{}", page.text());
        assert_eq!(server.get("/").text(), page.text(), "{field}");
    }
}

#[test]
fn parts_of_the_key_keep_responses_apart() {
    let backend = Backend::replying(|seen| {
        let text = format!("{:?} {:?}", seen.field("X-Device"), seen.field("Cookie"));
        answer("200 OK", FRESH, &text)
    });
    let server = caching(&backend, "cache.key = ( \"header:X-Device\", \"cookie:lang\" )");
    let ask = |lines: &str| server.get_with("/", lines).text().to_owned();
    let phone = ask("X-Device: phone\r\n");
    assert_ne!(phone, ask("X-Device: desk\r\n"));
    assert_ne!(ask("Cookie: lang=de\r\n"), ask("Cookie: lang=en\r\n"));
    assert_eq!(ask("X-Device: phone\r\n"), phone);
    let other = ask("Cookie: other=1; lang=de\r\n");
    assert_eq!(other, ask("Cookie: lang=de\r\n"), "only this cookie counts");
}

#[test]
fn responses_to_credentials_are_not_shared() {
    let authorization = "Authorization: Basic YTpi\r\n";
    for (fields, shared) in [
        (FRESH, false),
        ("Cache-Control: public, max-age=600\r\n", true),
        ("Cache-Control: s-maxage=600\r\n", true),
    ] {
        let backend = counting(fields);
        let server = caching(&backend, "");
        let _ = server.get_with("/", authorization);
        let text = if shared { "answer 1" } else { "answer 2" };
        assert_eq!(server.get("/").text(), text, "{fields}");
    }
}

#[test]
fn access_rules_and_logins_come_before_the_store() {
    let backend = counting("Cache-Control: public, max-age=600\r\n");
    let setup = lighty!().file("../users", "a:b\n");
    let server = with_store(
        setup,
        &backend,
        "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
         auth.delay-invalid-creds = \"disable\"\n\
         auth.require = ( \"/private\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
         \"require\" => \"valid-user\" ) )\n\
         $HTTP[\"user-agent\"] == \"bad\" { url.access-deny = ( \"\" ) }",
    )
    .start();
    let login = "Authorization: Basic YTpi\r\n";
    assert_eq!(server.get_with("/private", login).text(), "answer 1");
    assert_eq!(server.get("/private").status, 401);
    assert_eq!(server.get_with("/private", login).text(), "answer 1");
    assert_eq!(server.get("/open").text(), "answer 2");
    assert_eq!(server.get_with("/open", "User-Agent: bad\r\n").status, 403);
}

#[test]
fn verified_identity_counts_as_credentials() {
    let service = Backend::replying(|_| answer("200 OK", "Remote-User: kim\r\n", ""));
    let backend = counting(FRESH);
    let rule = format!(
        "auth.forward = ( \"/\" => ( \"url\" => \"http://{}/\", \"response-headers\" => ( \
         \"Remote-User\" ) ) )",
        service.name()
    );
    let server = caching(&backend, &rule);
    assert_eq!(server.get("/").text(), "answer 1");
    assert_eq!(server.get("/").text(), "answer 2");
}

#[test]
fn get_with_content_goes_past_the_store() {
    let backend = counting(FRESH);
    let more = "server.http-parseopts = ( \"method-get-body\" => \"enable\" )";
    let server = caching(&backend, more);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.response().text(), "answer 1");
    assert_eq!(server.get("/").text(), "answer 2");
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(client.response().text(), "answer 3");
}

#[test]
fn errors_that_clients_cause_are_not_stored() {
    for status in ["400 Bad Request", "405 Method Not Allowed", "431 Too Large", "501 Unknown"] {
        let backend = Backend::replying(move |_| answer(status, "", "no"));
        let server = caching(&backend, "cache.valid = ( \"any\" => 600 )");
        let _ = server.get("/");
        let _ = server.get("/");
        assert_eq!(backend.requests().len(), 2, "{status}");
    }
}

#[test]
fn script_with_path_info_keeps_its_access_rules() {
    let backend = counting("Cache-Control: public, max-age=600\r\n");
    let server = lighty!()
        .config(&format!(
            "cache.stores = ( \"pages\" => ( \"memory\" => \"4M\" ) )\ncache.store = \"pages\"\n\
             proxy.server = ( \".php\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {}, \
             \"check-local\" => \"disable\" ) ) )\n\
             $HTTP[\"url\"] == \"/a.php\" {{ $HTTP[\"user-agent\"] != \"friend\" {{ \
             url.access-deny = ( \"\" ) }} }}",
            backend.address().port()
        ))
        .start();
    assert_eq!(server.get_with("/a.php/x", "User-Agent: friend\r\n").status, 200);
    assert_eq!(server.get("/a.php/x").status, 403);
}

#[test]
fn requests_with_credentials_do_not_share_a_response_that_is_stale_on_arrival() {
    for (fields, lines) in [
        ("Cache-Control: max-age=0, must-revalidate\r\n", "Authorization: Basic YTp"),
        ("Cache-Control: s-maxage=0\r\n", "Authorization: Basic YTp"),
        ("Cache-Control: public, max-age=0\r\n", "Cookie: user="),
    ] {
        let backend = Backend::after_request(move |peer| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            peer.send(answer("200 OK", fields, &format!("answer {}", peer.number())));
        });
        let server = caching(&backend, "");
        let mut clients: Vec<_> = ["A", "B", "C"]
            .map(|user| {
                let mut client = server.connect();
                client.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{lines}{user}\r\n\r\n"));
                client
            })
            .into();
        let mut texts: Vec<String> =
            clients.iter_mut().map(|client| client.response().text().to_owned()).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 3, "{fields} {texts:?}");
    }
}

#[test]
fn file_that_a_backend_names_has_the_backends_fields() {
    let root = lighty!().file("files/secret", "secret");
    let path = root.root("files/secret");
    let name = path.display().to_string();
    let backend = Backend::replying(move |_| {
        let fields = format!(
            "X-Sendfile: {name}\r\nCache-Control: private, no-store\r\nSet-Cookie: sid=a\r\n"
        );
        answer("200 OK", &fields, "")
    });
    let server = with_store(root, &backend, "proxy-core.allow-x-sendfile = \"enable\"").start();
    for _ in 0..2 {
        let page = server.get("/");
        assert_eq!((page.status, page.text()), (200, "secret"));
        assert_eq!(page.field("Set-Cookie"), Some("sid=a"));
    }
    assert_eq!(backend.requests().len(), 2);
}

#[test]
fn field_that_connection_names_poisons_nothing() {
    let backend = Backend::replying(|seen| {
        let text = seen.field("X-Device").unwrap_or("default").to_owned();
        answer("200 OK", "Cache-Control: max-age=600\r\nVary: X-Device\r\n", &text)
    });
    let server = caching(&backend, "");
    let trick = "X-Device: mobile\r\nConnection: close, X-Device\r\n";
    assert_eq!(server.get_with("/", trick).text(), "default");
    assert_eq!(server.get_with("/", "X-Device: mobile\r\n").text(), "mobile");
}

#[test]
fn repeated_parts_of_the_key_are_another_key() {
    let backend = counting(FRESH);
    let server = caching(&backend, "cache.key = ( \"cookie:lang\", \"header:X-Device\" )");
    let ask = |lines: &str| server.get_with("/", lines).text().to_owned();
    let one = ask("Cookie: lang=en; lang=evil\r\n");
    assert_ne!(one, ask("Cookie: lang=en\r\n"));
    assert_ne!(ask("X-Device: a\r\nX-Device: b\r\n"), ask("X-Device: a, b\r\n"));
}

#[test]
fn error_of_one_request_leaves_the_store_in_use() {
    let backend = Backend::replying(|seen| match seen.field("X-Bad") {
        Some(_) => answer("400 Bad Request", "", "bad"),
        None => answer("200 OK", FRESH, "page"),
    });
    let server = caching(&backend, "");
    assert_eq!(server.get_with("/", "X-Bad: yes\r\n").status, 400);
    for _ in 0..3 {
        assert_eq!(server.get("/").text(), "page");
    }
    assert_eq!(backend.requests().len(), 2);
}
