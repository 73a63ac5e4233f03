//! Requests with tokens (`"method" => "bearer"` of `auth.require`), and the issuers of their keys.

mod claims;
mod issuers;
mod other_signers;
mod refusals;

use std::time::{SystemTime, UNIX_EPOCH};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::token::{TokenSigner, key_set};
use serde_json::{Value, json};

/// A rule for `/` with these keys besides its method and realm.
fn rule(require: &str) -> String {
    format!(
        "auth.require = ( \"/\" => ( \"method\" => \"bearer\", \"realm\" => \"api\", \
         \"require\" => \"{require}\" ) )\n"
    )
}

/// A server with the keys of a signer in a file, and a rule for every valid user.
fn guarded(setup: Setup, signer: &TokenSigner) -> Setup {
    setup
        .file("../keys.json", key_set([signer]))
        .config(&(rule("valid-user") + "auth.backend.jwt.jwks = \"@DIR@/keys.json\""))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Claims of kim that are good for ten minutes, with others.
fn claims(others: Value) -> Value {
    let mut all = json!({ "sub": "kim", "exp": now_s() + 600 });
    let others = others.as_object().expect("an object").clone();
    all.as_object_mut().expect("an object").extend(others);
    all
}

fn get(server: &Server, token: &str) -> Response {
    server.get_with("/a", &format!("Authorization: Bearer {token}\r\n"))
}

fn challenge(response: &Response) -> &str {
    response.field("WWW-Authenticate").unwrap_or_default()
}

#[test]
fn token_opens_the_site_and_does_not_reach_the_backend() {
    let signer = TokenSigner::rsa("one");
    let backend = Backend::answering("page");
    let log =
        "accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%u %{AUTH_TYPE}e\"\n";
    let setup = guarded(lighty!(), &signer).in_front_of(&backend.name()).config(log);
    let mut server = setup.start();
    let token = signer.sign(&claims(json!({})));
    for _ in 0..3 {
        let page = get(&server, &token);
        assert_eq!((page.status, page.text()), (200, "page"), "{}", server.log());
        assert_eq!(page.field("Cache-Control"), Some("private"));
    }
    for seen in backend.requests() {
        assert_eq!(seen.field("Authorization"), None, "{}", seen.head);
    }
    let access_log = server.directory().join("access.log");
    server.stop();
    let lines = std::fs::read_to_string(access_log).expect("a log");
    assert_eq!(lines, "kim Bearer\n".repeat(3));
}

#[test]
fn token_is_forwarded_on_request() {
    let signer = TokenSigner::es256("one");
    let backend = Backend::answering("page");
    let server = guarded(lighty!(), &signer)
        .in_front_of(&backend.name())
        .config("auth.backend.jwt.forward = \"enable\"")
        .start();
    let token = signer.sign(&claims(json!({})));
    assert_eq!(get(&server, &token).status, 200);
    let seen = backend.requests().pop().expect("a request");
    assert_eq!(seen.field("Authorization"), Some(&*format!("Bearer {token}")));
}

#[test]
fn tokens_come_from_cookies_and_other_fields() {
    let signer = TokenSigner::ed25519("one");
    let backend = Backend::answering("page");
    let token = signer.sign(&claims(json!({})));
    for (source, line, left) in [
        ("cookie:t", format!("Cookie: a=1; t={token}; b=2\r\n"), Some("a=1; b=2")),
        (
            "header:X-Token",
            format!("x-token: {token}\r\nX_Token: forged\r\nCookie: a\r\n"),
            Some("a"),
        ),
    ] {
        let server = guarded(lighty!(), &signer)
            .in_front_of(&backend.name())
            .config(&format!("auth.backend.jwt.source = \"{source}\""))
            .start();
        assert_eq!(get(&server, &token).status, 401, "{source}: another place");
        assert_eq!(server.get_with("/a", &line).status, 200, "{source}: {}", server.log());
        let seen = backend.requests().pop().expect("a request");
        assert_eq!(seen.field("Cookie"), left);
        assert!(!seen.head.contains(&token) && !seen.head.contains("forged"), "{}", seen.head);
    }
}

#[test]
fn passwords_and_tokens_open_one_site() {
    let signer = TokenSigner::rsa("one");
    let server = lighty!()
        .file("a", "page")
        .file("../keys.json", key_set([&signer]))
        .file("../users", "lee:right\n")
        .config(
            "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
             auth.backend.jwt.jwks = \"@DIR@/keys.json\"\n\
             auth.require = ( \"/\" => ( \"method\" => \"basic|bearer\", \"realm\" => \"r\", \
             \"require\" => \"user=lee|claim:role=admin\" ) )",
        )
        .start();
    let refused = server.get("/a");
    let offered: Vec<_> = refused.all("WWW-Authenticate").collect();
    assert_eq!(offered, ["Basic realm=\"r\", charset=\"UTF-8\"", "Bearer realm=\"r\""]);
    let basic = "Authorization: Basic bGVlOnJpZ2h0\r\n";
    assert_eq!(server.get_with("/a", basic).status, 200);
    assert_eq!(get(&server, &signer.sign(&claims(json!({ "role": "admin" })))).status, 200);
    assert_eq!(get(&server, &signer.sign(&claims(json!({ "role": "user" })))).status, 403);
    // A name alone decides about passwords as about tokens.
    assert_eq!(get(&server, &signer.sign(&claims(json!({ "sub": "lee" })))).status, 200);
}

#[test]
fn secret_in_a_file_verifies_tokens() {
    let secret = "0123456789abcdef0123456789abcdef";
    let server = lighty!()
        .file("a", "page")
        .file("../secret", format!("{secret}\n"))
        .config(&(rule("valid-user") + "auth.backend.jwt.secret-file = \"@DIR@/secret\""))
        .start();
    assert_eq!(
        get(&server, &TokenSigner::secret(secret.as_bytes()).sign(&claims(json!({})))).status,
        200
    );
    assert_eq!(
        get(&server, &TokenSigner::secret(&[b'x'; 32]).sign(&claims(json!({})))).status,
        401
    );
}

#[test]
fn replaced_key_file_is_read_again() {
    let (old, new) = (TokenSigner::rsa("old"), TokenSigner::rsa("new"));
    let server = guarded(lighty!().file("a", "page"), &old).start();
    let (with_old, with_new) = (old.sign(&claims(json!({}))), new.sign(&claims(json!({}))));
    assert_eq!((get(&server, &with_old).status, get(&server, &with_new).status), (200, 401));
    let keys = server.directory().join("keys.json");
    let replace = |text: &str| {
        let beside = server.directory().join("keys.new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(&beside, &keys).expect("renamed");
    };
    replace(&key_set([&new]));
    let patience = std::time::Duration::from_secs(30);
    assert!(lighty_testkit::wait_until(patience, || get(&server, &with_new).status == 200));
    assert_eq!(get(&server, &with_old).status, 401, "the cache does not keep withdrawn keys");
    replace("{}");
    server.await_log("the contents that were read before stay in use");
    assert_eq!(get(&server, &with_new).status, 200);
}

#[test]
fn unusable_keys_prevent_the_start() {
    for (name, text, fault) in [
        ("jwks", "{\"keys\":[]}", "none of its keys can verify tokens"),
        ("jwks", "[]", "it is no JSON Web Key Set"),
        ("jwks", "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}", "secrets do not belong"),
        ("secret-file", "short", "the secret is shorter than 32 bytes"),
    ] {
        let setup = lighty!()
            .file("../keys", text)
            .config(&(rule("valid-user") + &format!("auth.backend.jwt.{name} = \"@DIR@/keys\"")));
        let (code, _, errors) = setup.run(&["check", "--deep", "-f", "@CONF@"]);
        assert!(code != 0 && errors.contains(fault), "{code} {errors}");
        let (code, _, errors) = setup.run(&["-D", "-f", "@CONF@"]);
        assert!(code != 0 && errors.contains(fault), "{code} {errors}");
    }
}

#[test]
fn check_warns_of_tokens_for_anybody() {
    let signer = TokenSigner::ed25519("one");
    let check = |lines: &str| {
        let setup = lighty!().file("../keys.json", key_set([&signer])).config(lines);
        setup.run(&["check", "-f", "@CONF@"]).2
    };
    let keys = "auth.backend.jwt.jwks = \"@DIR@/keys.json\"\n";
    let unbound = "verifies tokens, whoever has issued them";
    assert!(check(&(rule("valid-user") + keys)).contains(unbound));
    let bound = keys.to_owned() + "auth.backend.jwt.audience = ( \"api\" )";
    assert!(!check(&(rule("valid-user") + &bound)).contains(unbound));
    assert!(check(&rule("valid-user")).contains("there are no keys"));
    for bad in [
        "auth.backend.jwt.jwks = \"http://issuer.example/keys\"",
        "auth.backend.jwt.algorithms = ( \"none\" )",
        "auth.backend.jwt.leeway = 301",
        "auth.backend.jwt.source = \"query:token\"",
        "auth.backend.jwt.claims = ( \"Host\" => \"sub\" )",
        "auth.backend.jwt.claims = ( \"content_length\" => \"sub\" )",
    ] {
        assert!(check(bad).contains(bad.split(' ').next().expect("a name")), "{bad}");
    }
}

#[test]
fn explain_shows_the_rule() {
    let signer = TokenSigner::ed25519("one");
    let setup = guarded(lighty!().file("a", "page"), &signer)
        .config("auth.backend.jwt.issuer = ( \"https://issuer.example\" )");
    let token = format!("Authorization: Bearer {}", signer.sign(&claims(json!({}))));
    let (_, shown, errors) =
        setup.run(&["explain", "http://localhost/a", "-H", &token, "-f", "@CONF@"]);
    assert!(shown.contains("keys.json, issuer https://issuer.example"), "{shown}{errors}");
}

/// A backend that tells which fields it got.
fn echo() -> Backend {
    Backend::replying(|seen| answer("200 OK", "", &seen.head))
}

#[test]
fn credentials_for_the_backend_stay() {
    let signer = TokenSigner::ed25519("one");
    let backend = echo();
    let server = guarded(lighty!().file("dir/a", "page"), &signer)
        .in_front_of(&backend.name())
        .config(
            "setenv.set-request-header = ( \"Authorization\" => \"Bearer of-the-site\" )\n\
             $PHYSICAL[\"path\"] =~ \"/a$\" { server.tag = \"other\" }",
        )
        .start();
    assert_eq!(get(&server, &signer.sign(&claims(json!({})))).status, 200, "{}", server.log());
    let seen = backend.requests().pop().expect("a request");
    assert_eq!(seen.field("Authorization"), Some("Bearer of-the-site"));
    assert_eq!(server.get("/a").status, 401, "the site's own credentials admit no client");
}

#[test]
fn part_of_a_page_makes_it_private() {
    let signer = TokenSigner::ed25519("one");
    let server = guarded(lighty!(), &signer)
        .file("page.shtml", "<!--#include virtual=\"/private/a\" -->")
        .file("private/a", "part")
        .config(
            "ssi.extension = ( \".shtml\" )\nauth.require := ( \"/private/\" => ( \"method\" => \
             \"bearer\", \"realm\" => \"api\", \"require\" => \"valid-user\" ) )",
        )
        .start();
    let line = format!("Authorization: Bearer {}\r\n", signer.sign(&claims(json!({}))));
    let page = server.get_with("/page.shtml", &line);
    assert_eq!((page.status, page.text()), (200, "part"), "{}", server.log());
    assert!(!server.get("/page.shtml").text().contains("part"));
}
