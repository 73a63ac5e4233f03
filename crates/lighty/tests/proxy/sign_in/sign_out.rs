//! The end of sessions: by the user, and by the provider.

use std::time::Duration;

use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::provider::{StandIn, parameter};
use super::{Browser, location, site};

const PATIENCE: Duration = Duration::from_secs(60);

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

/// Posts a logout token, as a provider does. Returns the status.
fn post_logout_token(server: &Server, token: &str) -> u16 {
    let form = format!("logout_token={token}");
    let framing = format!(
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    let mut client = server.connect();
    let line = "POST /.lighty/oidc/corp/backchannel HTTP/1.1\r\nHost: a.example\r\n";
    client.send(format!("{line}{framing}"));
    client.response().status
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
    let post = |claims: Value| post_logout_token(&server, &provider.sign(claims));
    for bad in [
        json!({ "aud": "site", "sid": "s-1" }),
        json!({ "aud": "other", "sid": "s-1", "events": { EVENT: {} } }),
        json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} }, "nonce": "n" }),
        json!({ "aud": "site", "sid": "s-1", "events": { "other": {} } }),
        json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} }, "exp": 1 }),
        json!({ "aud": "site", "sub": null, "events": { EVENT: {} } }),
        // With `sid:`, a byte more than a name may have.
        json!({ "aud": "site", "sid": "x".repeat(2045), "events": { EVENT: {} } }),
    ] {
        assert_eq!(post(bad.clone()), 400, "{bad}");
    }
    assert!(one.is_signed_in() && two.is_signed_in());
    let longest = "x".repeat(2044);
    assert_eq!(post(json!({ "aud": "site", "sid": longest, "events": { EVENT: {} } })), 200);
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

#[test]
fn ended_sessions_stay_ended_over_reloads_and_restarts() {
    let provider = StandIn::start(json!({ "sid": "s-1" }));
    let shared = tempfile::tempdir().expect("a directory");
    std::fs::write(shared.path().join("keys"), "0123456789abcdef0123456789abcdef")
        .expect("written");
    let setup = || {
        let shared = shared.path().display();
        site(&provider).config(&format!(
            "auth.backend.oidc.key-file = \"{shared}/keys\"\n\
             auth.backend.oidc.ended-file = \"{shared}/ended\""
        ))
    };
    let mut server = setup().start();
    let cookies = {
        let mut browsers = ["s-1", "s-2", "s-3"].map(|sid| {
            provider.state().claims = json!({ "sid": sid });
            let mut browser = Browser::new(&server);
            assert_eq!(browser.sign_in(&provider, "/a").status, 302);
            browser
        });
        let cookies = browsers.clone().map(|browser| browser.cookies);
        let logout = json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} } });
        assert_eq!(post_logout_token(&server, &provider.sign(logout)), 200);
        assert_eq!(browsers[1].get("/.lighty/oidc/corp/logout").status, 302);
        cookies
    };
    let signed_in = |server: &Server| {
        cookies.clone().map(|cookies| Browser { cookies, ..Browser::new(server) }.is_signed_in())
    };
    assert_eq!(signed_in(&server), [false, false, true]);
    let noted = || std::fs::read_to_string(shared.path().join("ended")).expect("lines");
    assert!(wait_until(PATIENCE, || {
        let before = noted();
        let mut copy = Browser { cookies: cookies[1].clone(), ..Browser::new(&server) };
        assert_eq!(copy.get("/.lighty/oidc/corp/logout").status, 302);
        noted() == before
    }));
    // A provider with another specification is another one, with the same name.
    let config = server.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&config).expect("text");
    let changed = text.replace("\"client-id\"", "\"scopes\" => \"openid\", \"client-id\"");
    let changed = changed.replace("/ended", "/none");
    assert_ne!(text, changed);
    std::fs::write(&config, changed).expect("written");
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert_eq!(signed_in(&server), [false, false, true], "after a reload, without the file");
    server.stop();
    let restarted = setup().start();
    assert_eq!(signed_in(&restarted), [false, false, true], "after a restart");
    let other = site(&provider).config("auth.backend.oidc.ended-file = \"@DIR@/lighty.conf\"");
    let (code, _, errors) = other.run(&["check", "--deep", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("line 1 is no ended session"), "{errors}");
}

#[test]
fn file_that_cannot_be_written_fails_the_logout_of_a_provider() {
    let provider = StandIn::start(json!({ "sid": "s-1" }));
    let file = "auth.backend.oidc.ended-file = \"@DIR@/gone/ended\"";
    let (code, _, errors) = site(&provider).config(file).run(&["-D", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("gone: No such file or directory"), "{errors}");
    let server = site(&provider).config(file).file("../gone/other", "").start();
    std::fs::remove_dir_all(server.directory().join("gone")).expect("removed");
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    let logout = json!({ "aud": "site", "sid": "s-1", "events": { EVENT: {} } });
    assert_eq!(post_logout_token(&server, &provider.sign(logout)), 500, "it may try again");
    server.await_log("gone/ended");
    assert!(!browser.is_signed_in(), "it has ended here");
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    assert_eq!(browser.get("/.lighty/oidc/corp/logout").status, 302, "users leave in any case");
}
