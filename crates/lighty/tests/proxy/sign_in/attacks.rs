//! Sign-ins that an attacker has begun, repeated, or changed.

use lighty_testkit::lighty;
use lighty_testkit::token::TokenSigner;
use serde_json::json;

use super::provider::{StandIn, parameter};
use super::{Browser, location, site, site_with};

#[test]
fn callback_counts_once_and_in_its_browser() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    let first = browser.get("/a");
    let callback = provider.authorize(location(&first));
    let mut stranger = Browser::new(&server);
    assert_eq!(stranger.get(&callback).status, 400, "another browser");
    stranger.get("/a");
    assert_eq!(stranger.get(&callback).status, 400, "another sign-in");
    let mut copy = browser.clone();
    assert_eq!(browser.get(&callback).status, 302);
    assert_eq!(copy.get(&callback).status, 400, "completed already");
    assert_eq!(browser.get(&callback).status, 400, "its cookie is gone");
    assert!(browser.is_signed_in() && !copy.is_signed_in());
    assert_eq!(provider.requests_for("/token").len(), 1);
}

#[test]
fn changed_callbacks_are_refused() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let state = |browser: &mut Browser<'_>| {
        let page = browser.get("/a");
        parameter(location(&page), "state").expect("a state")
    };
    let issuer = "https%3A%2F%2Fevil.example";
    for (query, status) in [
        ("code=x", 400),
        ("state=@", 400),
        ("code=&state=@", 400),
        ("code=x&state=@&state=@", 400),
        ("code=x&code=y&state=@", 400),
        ("code=x&state=@x", 400),
        ("code=unknown&state=@", 400),
        (&*format!("code=x&state=@&iss={issuer}"), 400),
        ("error=access_denied&state=@", 403),
    ] {
        let mut browser = Browser::new(&server);
        let state = state(&mut browser);
        let query = query.replace('@', &state);
        let refused = browser.get(&format!("/.lighty/oidc/corp/callback?{query}"));
        assert_eq!(refused.status, status, "{query}");
        assert_eq!(refused.field("Cache-Control"), Some("no-store"));
        assert!(!browser.is_signed_in(), "{query}");
    }
}

#[test]
fn tokens_of_other_sign_ins_and_clients_are_refused() {
    for (claims, status) in [
        (json!({ "nonce": "other" }), 400),
        (json!({ "nonce": null }), 400),
        (json!({ "aud": "other" }), 403),
        (json!({ "aud": ["site", "other"] }), 403),
        (json!({ "aud": ["site", "other"], "azp": "other" }), 403),
        (json!({ "azp": "other" }), 403),
        (json!({ "iss": "http://127.0.0.1:1" }), 403),
        (json!({ "exp": 1 }), 403),
        (json!({ "sub": "" }), 503),
        (json!({ "aud": ["site", "other"], "azp": "site" }), 302),
        (json!({ "aud": ["site"] }), 302),
    ] {
        let provider = StandIn::start(claims.clone());
        let server = site(&provider).start();
        let mut browser = Browser::new(&server);
        assert_eq!(browser.sign_in(&provider, "/a").status, status, "{claims} {}", server.log());
        assert_eq!(browser.is_signed_in(), status == 302, "{claims}");
    }
}

#[test]
fn token_of_another_key_is_refused() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    // The keys are known; a token is signed by another one of the same name.
    provider.state().signer = TokenSigner::es256("one");
    assert_eq!(Browser::new(&server).sign_in(&provider, "/a").status, 403);
}

#[test]
fn browser_returns_to_this_site_alone() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    for (target, end) in [
        ("/a?b=c", "/a?b=c"),
        ("/a?next=https://evil.example", "/a?next=https://evil.example"),
        ("//evil.example", "/"),
        ("///evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/%2Fevil.example", "/"),
        ("/%5Cevil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ("/a%0d%0aSet-Cookie:x", "/"),
        ("", "/"),
    ] {
        let encoded: String = target.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut browser = Browser::new(&server);
        let first = browser.get(&format!("/.lighty/oidc/corp/login?to={encoded}"));
        assert_eq!(first.status, 302, "{target}");
        let returned = browser.get(&provider.authorize(location(&first)));
        assert_eq!(location(&returned), format!("http://a.example{end}"), "{target}");
    }
    for target in ["//evil.example/a", "/%2fevil.example/a", "/x/..//evil.example"] {
        let mut browser = Browser::new(&server);
        let returned = browser.sign_in(&provider, target);
        assert!(location(&returned).starts_with("http://a.example/"), "{target}");
        assert!(!location(&returned)[17..].starts_with("/"), "{target}: {}", location(&returned));
    }
}

#[test]
fn session_is_new_after_each_sign_in() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut attacker = Browser::new(&server);
    assert_eq!(attacker.sign_in(&provider, "/a").status, 302);
    let planted = attacker.cookies["lighty-corp"].clone();
    // The victim's browser begins with the attacker's cookie.
    let mut victim = Browser::new(&server);
    victim.cookies.insert("lighty-corp".to_owned(), planted.clone());
    let first = victim.get("/.lighty/oidc/corp/login?to=/a");
    provider.state().claims = json!({ "sub": "lee" });
    assert_eq!(victim.get(&provider.authorize(location(&first))).status, 302);
    assert_ne!(victim.cookies["lighty-corp"], planted);
    let log = server.get_with("/a", &format!("Cookie: lighty-corp={planted}\r\n"));
    assert_eq!(log.status, 401, "the attacker's cookie is for its host alone");
}

#[test]
fn endpoints_need_their_methods() {
    let provider = StandIn::start(json!({}));
    let server = site_with(lighty!(), &provider, "", "valid-user").start();
    let mut browser = Browser::new(&server);
    for (method, name, allowed) in [
        ("POST", "callback", "GET"),
        ("POST", "login", "GET"),
        ("GET", "backchannel", "POST"),
        ("DELETE", "logout", "GET, POST"),
    ] {
        let target = format!("/.lighty/oidc/corp/{name}");
        let refused = browser.send(method, &target, "Content-Length: 0\r\n");
        assert_eq!((refused.status, refused.field("Allow")), (405, Some(allowed)), "{name}");
    }
    assert_eq!(browser.send("GET", "/.lighty/oidc/other/callback", "").status, 401);
}
