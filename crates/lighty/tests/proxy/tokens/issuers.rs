//! Issuers that serve their keys: rotation, floods, and issuers that hang or are dead.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;
use lighty_testkit::token::{TokenSigner, key_set};
use lighty_testkit::{lighty, wait_until};
use serde_json::json;

use super::{claims, get, rule};

const PATIENCE: Duration = Duration::from_secs(30);

fn site(setup: Setup, issuer: &str) -> Server {
    setup
        .file("a", "page")
        .file("open/a", "open")
        .config(&format!(
            "{}auth.backend.jwt.jwks = \"http://{issuer}/jwks\"\n\
             $HTTP[\"url\"] =^ \"/open/\" {{ auth.require = () }}",
            rule("valid-user")
        ))
        .start()
}

/// An issuer with keys that may be replaced.
fn issuer(keys: &Arc<Mutex<String>>) -> Backend {
    let keys = Arc::clone(keys);
    Backend::replying(move |_| answer("200 OK", "", &keys.lock().expect("unpoisoned")))
}

#[test]
fn keys_are_fetched_and_rotated() {
    let (old, new) = (TokenSigner::rsa("old"), TokenSigner::rsa("new"));
    let keys = Arc::new(Mutex::new(key_set([&old])));
    let issuer = issuer(&keys);
    let server = site(lighty!(), &issuer.name());
    let (with_old, with_new) = (old.sign(&claims(json!({}))), new.sign(&claims(json!({}))));
    assert_eq!(get(&server, &with_old).status, 200, "{}", server.log());
    *keys.lock().expect("unpoisoned") = key_set([&old, &new]);
    assert_eq!(get(&server, &with_new).status, 200, "its key is fetched at once");
    assert_eq!((get(&server, &with_old).status, get(&server, &with_new).status), (200, 200));
    assert_eq!(issuer.requests().len(), 2);
    let request = issuer.requests().pop().expect("a request");
    assert_eq!(request.line(), "GET /jwks HTTP/1.1");
}

#[test]
fn own_authorities_vouch_for_an_issuer() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    authority.issue("issuer.pem", &["127.0.0.1"]);
    let signer = TokenSigner::ed25519("one");
    let keys = answer("200 OK", "", &key_set([&signer]));
    let issuer = Backend::start_tls(&authority.server("issuer.pem"), move |peer| {
        while peer.request().is_some() {
            if !peer.send(&keys) {
                return;
            }
        }
    });
    let jwks = format!("auth.backend.jwt.jwks = \"https://{}/jwks\"\n", issuer.name());
    let ca =
        |file: &str| format!("auth.backend.jwt.ca-file = \"{}\"\n", authority.path(file).display());
    let site = |lines: String| lighty!().file("a", "page").config(&(rule("valid-user") + &lines));
    let token = signer.sign(&claims(json!({})));
    for lines in [jwks.clone() + &ca("ca.pem"), ca("ca.pem") + &jwks] {
        let server = site(lines).start();
        assert_eq!(get(&server, &token).status, 200, "{}", server.log());
    }
    let _ = Authority::named(directory.path(), "other.pem");
    for lines in [jwks.clone() + &ca("other.pem"), jwks.clone()] {
        let server = site(lines).start();
        assert_eq!(get(&server, &token).status, 503);
        server.await_log("certificate");
    }
    let (code, _, errors) = site(jwks + &ca("none.pem")).run(&["-D", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("auth.backend.jwt.ca-file: "), "{code} {errors}");
}

#[test]
fn flood_of_unknown_keys_causes_one_fetch() {
    let signer = TokenSigner::ed25519("one");
    let keys = Arc::new(Mutex::new(key_set([&signer])));
    let issuer = issuer(&keys);
    let server = site(lighty!(), &issuer.name());
    assert_eq!(get(&server, &signer.sign(&claims(json!({})))).status, 200);
    let forger = TokenSigner::ed25519("x");
    let began = Instant::now();
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for round in 0..500 {
        for (at, client) in clients.iter_mut().enumerate() {
            let header = json!({ "alg": "EdDSA", "kid": format!("{round}-{at}") });
            let token = forger.sign_with(&header, &claims(json!({})));
            client.send(format!(
                "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n"
            ));
        }
        clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 401));
    }
    // The first fetch at the start, and one for each half minute of the flood.
    let permitted = 2 + began.elapsed().as_secs() as usize / 30;
    assert!(issuer.requests().len() <= permitted, "{}", issuer.requests().len());
    assert_eq!(get(&server, &signer.sign(&claims(json!({})))).status, 200);
}

#[test]
fn issuer_that_hangs_delays_no_other_request() {
    let signer = TokenSigner::ed25519("one");
    let issuer = Backend::after_request(|peer| {
        peer.hang();
    });
    let server = site(lighty!(), &issuer.name());
    let token = signer.sign(&claims(json!({})));
    let mut waiting = server.connect();
    waiting.send(format!("GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n"));
    assert!(wait_until(PATIENCE, || issuer.opened() == 1));
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(server.get("/open/a").status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(waiting.response().status, 503);
}

#[test]
fn dead_issuer_is_an_unavailable_service_until_it_returns() {
    let signer = TokenSigner::ed25519("one");
    let port = Port::reserve();
    let server = site(lighty!(), &port.address().to_string());
    let token = signer.sign(&claims(json!({})));
    assert_eq!(get(&server, &token).status, 503);
    assert_eq!(server.get("/a").status, 401, "without a token, keys do not matter");
    server.await_log("requests with tokens get 503");
    let keys = key_set([&signer]);
    let _issuer = Backend::start_at(&port, move |peer| {
        while peer.request().is_some() {
            if !peer.send(answer("200 OK", "", &keys)) {
                return;
            }
        }
    });
    assert!(wait_until(PATIENCE, || get(&server, &token).status == 200), "{}", server.log());
    server.await_log("fetched again");
}

#[test]
fn broken_key_sets_are_logged() {
    for (response, fault) in [
        (answer("500 No", "", ""), "the response has status 500"),
        (answer("302 Found", "Location: http://127.0.0.1/\r\n", ""), "status 302"),
        (answer("200 OK", "", "<html>"), "it is no JSON Web Key Set"),
        (answer("200 OK", "", &"x".repeat(300_000)), "too large"),
    ] {
        let issuer = Backend::replying(move |_| response.clone());
        let server = site(lighty!(), &issuer.name());
        server.await_log(fault);
        let token = TokenSigner::ed25519("one").sign(&claims(json!({})));
        assert_eq!(get(&server, &token).status, 503, "{fault}");
    }
}

#[test]
fn keys_outlive_a_reload() {
    let signer = TokenSigner::ed25519("one");
    let keys = Arc::new(Mutex::new(key_set([&signer])));
    let issuer = issuer(&keys);
    let server = site(lighty!(), &issuer.name());
    let token = signer.sign(&claims(json!({})));
    assert_eq!(get(&server, &token).status, 200);
    server.signal(rustix::process::Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert_eq!(get(&server, &token).status, 200);
    assert_eq!(issuer.requests().len(), 1, "equal URLs are one key set");
}
