//! The end of sessions: by the user, and by the provider.

use serde_json::{Value, json};

use super::provider::{StandIn, parameter};
use super::{Browser, location, site};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

#[test]
fn user_signs_out_here_and_at_the_provider() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    let mut copy = browser.clone();
    let cross = browser.send("GET", "/.lighty/oidc/corp/logout", "Sec-Fetch-Site: cross-site\r\n");
    assert_eq!(cross.status, 403);
    assert!(browser.is_signed_in());
    let left = browser.get("/.lighty/oidc/corp/logout");
    assert_eq!(left.status, 302);
    let url = location(&left);
    assert!(url.starts_with(&format!("{}/logout?", provider.issuer())), "{url}");
    assert_eq!(parameter(url, "client_id").as_deref(), Some("site"));
    assert_eq!(parameter(url, "post_logout_redirect_uri").as_deref(), Some("http://a.example/"));
    assert!(parameter(url, "id_token_hint").expect("a token").contains('.'));
    assert!(browser.cookies.is_empty());
    assert!(!browser.is_signed_in() && !copy.is_signed_in(), "a copy of the cookie is worthless");
}

#[test]
fn provider_ends_sessions() {
    let provider = StandIn::start(json!({ "sid": "s-1" }));
    let server = site(&provider).start();
    let mut one = Browser::new(&server);
    assert_eq!(one.sign_in(&provider, "/a").status, 302);
    provider.state().claims = json!({ "sid": "s-2" });
    let mut two = Browser::new(&server);
    assert_eq!(two.sign_in(&provider, "/a").status, 302);
    let post = |claims: Value| {
        let form = format!("logout_token={}", provider.sign(claims));
        let framing = format!(
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        let mut client = server.connect();
        let line = "POST /.lighty/oidc/corp/backchannel HTTP/1.1\r\nHost: a.example\r\n";
        client.send(format!("{line}{framing}"));
        client.response().status
    };
    for bad in [
        json!({ "aud": "site", "sid": "s-1" }),
        json!({ "aud": "other", "sid": "s-1", "events": { EVENT: {} } }),
        json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} }, "nonce": "n" }),
        json!({ "aud": "site", "sid": "s-1", "events": { "other": {} } }),
        json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} }, "exp": 1 }),
        json!({ "aud": "site", "sub": null, "events": { EVENT: {} } }),
    ] {
        assert_eq!(post(bad.clone()), 400, "{bad}");
    }
    assert!(one.is_signed_in() && two.is_signed_in());
    assert_eq!(post(json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} } })), 200);
    assert!(!one.is_signed_in() && two.is_signed_in());
    assert_eq!(post(json!({ "aud": "site", "events": { EVENT: {} } })), 200, "all of the user");
    assert!(!two.is_signed_in());
}

#[test]
fn requests_without_a_token_end_nothing() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let target = "/.lighty/oidc/corp/backchannel";
    let response = |framing: &str, body: &[u8]| {
        let mut client = server.connect();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: a.example\r\n{framing}\r\n\r\n"));
        client.send(body);
        client.response().status
    };
    assert_eq!(response("Content-Length: 0", b""), 400);
    assert_eq!(response("Content-Length: 14", b"logout_token=x"), 400);
    let large = "x".repeat(20_000);
    assert_eq!(response("Content-Length: 20000", large.as_bytes()), 413);
}
