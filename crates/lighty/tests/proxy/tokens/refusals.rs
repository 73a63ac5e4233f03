//! Tokens that are refused, and their clients.

use lighty_testkit::lighty;
use lighty_testkit::token::TokenSigner;
use serde_json::json;

use super::{challenge, claims, get, guarded, now_s};

const INVALID: &str = "Bearer realm=\"api\", error=\"invalid_token\"";

#[test]
fn refused_tokens_get_a_challenge() {
    let (signer, attacker) = (TokenSigner::rsa("one"), TokenSigner::rsa("one"));
    let policy = "auth.backend.jwt.issuer = ( \"https://a.example\" )\n\
                  auth.backend.jwt.audience = ( \"api\" )\nauth.backend.jwt.type = ( \"at+jwt\" )\n\
                  auth.backend.jwt.leeway = 0\nserver.max-request-field-size = 16384\n";
    let server = guarded(lighty!().file("a", "page"), &signer).config(policy).start();
    let header = json!({ "alg": "RS256", "kid": "one", "typ": "at+jwt" });
    let own = || json!({ "iss": "https://a.example", "aud": ["api"] });
    let sign = |signer: &TokenSigner, name: &str, value: serde_json::Value| {
        let mut all = claims(own());
        all[name] = value;
        signer.sign_with(&header, &all)
    };
    let good = sign(&signer, "a", json!(1));
    assert_eq!(get(&server, &good).status, 200, "{}", server.log());
    let unsigned = good.rsplit_once('.').expect("a signature").0.to_owned() + ".";
    let none = TokenSigner::secret(b"").sign_with(&json!({ "alg": "none" }), &claims(own()));
    let public = signer.jwk().to_string();
    let confused = TokenSigner::secret(public.as_bytes());
    for (token, fault) in [
        (sign(&attacker, "a", json!(1)), "a wrong signature"),
        (unsigned, "a wrong signature"),
        (none, "an algorithm that is not permitted"),
        (
            confused.sign_with(&json!({ "alg": "HS256", "kid": "one" }), &claims(own())),
            "not permitted",
        ),
        (signer.sign(&claims(own())), "another type"),
        (sign(&signer, "iss", json!("https://b.example")), "another issuer"),
        (sign(&signer, "aud", json!("web")), "another audience"),
        (sign(&signer, "exp", json!((now_s() + 60).to_string())), "\"exp\" is not a number"),
        (sign(&signer, "nbf", json!(now_s() + 600)), "\"nbf\" is in the future"),
        ("x".repeat(8193), "longer than 8192 bytes"),
        ("a.b.c".to_owned(), "not three parts of base64url"),
    ] {
        let refused = get(&server, &token);
        assert_eq!((refused.status, challenge(&refused)), (401, INVALID), "{fault}");
        server.await_log(fault.split('"').next_back().expect("text").trim());
    }
    let expired = get(&server, &sign(&signer, "exp", json!(now_s() - 5)));
    assert_eq!((expired.status, challenge(&expired)), (401, INVALID));
    let absent = server.get("/a");
    assert_eq!((absent.status, challenge(&absent)), (401, "Bearer realm=\"api\""));
    assert!(!server.log().contains(&good), "tokens stay out of the log");
}

#[test]
fn two_credentials_are_a_bad_request() {
    let signer = TokenSigner::ed25519("one");
    let server = guarded(lighty!().file("a", "page"), &signer).start();
    let token = signer.sign(&claims(json!({})));
    for other in ["Bearer x", "Basic eDp4", &format!("Bearer {token}")] {
        let lines = format!("Authorization: Bearer {token}\r\nAuthorization: {other}\r\n");
        assert_eq!(server.get_with("/a", &lines).status, 400, "{other}");
    }
}

#[test]
fn forged_tokens_are_counted_and_expired_ones_are_not() {
    let signer = TokenSigner::ed25519("one");
    let server = guarded(lighty!().file("a", "page"), &signer)
        .config("auth.failures = ( \"max\" => 3, \"ban\" => 1000 )")
        .start();
    // One connection: a banned client's new connections are refused.
    let mut client = server.connect();
    let mut get = |token: &str| {
        client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n"));
        client.response().status
    };
    let (good, expired) = (claims(json!({})), claims(json!({ "exp": now_s() - 600 })));
    for _ in 0..5 {
        assert_eq!(get(&signer.sign(&expired)), 401);
    }
    assert_eq!(get(&signer.sign(&good)), 200);
    let forger = TokenSigner::ed25519("one");
    assert_eq!([(); 3].map(|()| get(&forger.sign(&good))), [401; 3]);
    assert_eq!(get(&signer.sign(&good)), 429);
}

#[test]
fn cached_token_expires() {
    let signer = TokenSigner::ed25519("one");
    let server =
        guarded(lighty!().file("a", "page"), &signer).config("auth.backend.jwt.leeway = 0").start();
    let token = signer.sign(&claims(json!({ "exp": now_s() + 2 })));
    assert_eq!(get(&server, &token).status, 200);
    let has_expired = || get(&server, &token).status == 401;
    assert!(lighty_testkit::wait_until(std::time::Duration::from_secs(30), has_expired));
}

#[test]
fn page_of_a_refusal_needs_no_token() {
    let signer = TokenSigner::ed25519("one");
    let server = guarded(lighty!().file("a", "page").file("401.html", "sign in"), &signer)
        .config("server.errorfile-prefix = \"@DIR@/root/\"")
        .start();
    let refused = get(&server, "a.b.c");
    assert_eq!((refused.status, refused.text()), (401, "sign in"));
}
