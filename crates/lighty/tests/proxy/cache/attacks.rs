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
