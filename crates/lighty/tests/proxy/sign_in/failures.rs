//! Providers that are dead, slow or wrong.

use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::server::Server;
use lighty_testkit::{lighty, wait_until};
use serde_json::json;

use super::provider::StandIn;
use super::{Browser, site};

const PATIENCE: Duration = Duration::from_secs(30);

fn site_at(issuer: &str) -> Server {
    lighty!()
        .file("a", "page")
        .file("open/a", "open")
        .config(&format!(
            "auth.backend.oidc = ( \"corp\" => ( \"issuer\" => \"{issuer}\", \"client-id\" => \
             \"site\" ) )\nauth.require = ( \"/a\" => ( \"method\" => \"oidc\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )"
        ))
        .start()
}

#[test]
fn provider_without_metadata_is_an_unavailable_service() {
    for (response, fault) in [
        (answer("500 No", "", ""), "has status 500"),
        (answer("200 OK", "", "<html>"), "no JSON object"),
        (answer("200 OK", "", "{\"issuer\":\"https://evil.example\"}"), "of another issuer"),
    ] {
        let provider = Backend::replying(move |_| response.clone());
        let server = site_at(&format!("http://{}", provider.name()));
        let mut browser = Browser::new(&server);
        assert_eq!(browser.get("/a").status, 503, "{fault}");
        server.await_log(fault);
        assert_eq!(browser.send("GET", "/a", "").status, 401);
    }
}

#[test]
fn provider_that_hangs_delays_no_other_request() {
    let provider = Backend::after_request(|peer| {
        peer.hang();
    });
    let server = site_at(&format!("http://{}", provider.name()));
    let mut waiting = server.connect();
    waiting.send("GET /a HTTP/1.1\r\nHost: a.example\r\nSec-Fetch-Mode: navigate\r\n\r\n");
    assert!(wait_until(PATIENCE, || provider.opened() > 0));
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(server.get("/open/a").status, 200);
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(waiting.response().status, 503);
}

#[test]
fn provider_that_returns_signs_users_in() {
    let provider = StandIn::start(json!({}));
    provider.state().broken = Some("503 Busy");
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.get("/a").status, 503);
    provider.state().broken = None;
    assert!(wait_until(PATIENCE, || browser.get("/a").status == 302));
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    assert!(browser.is_signed_in());
}

#[test]
fn check_warns_of_a_provider_that_cannot_be_reached() {
    let provider = StandIn::start(json!({}));
    let (code, _, errors) = site(&provider).run(&["check", "--deep", "-f", "@CONF@"]);
    assert!(code == 0 && !errors.contains("cannot be reached"), "{errors}");
    provider.state().broken = Some("503 Busy");
    let (_, _, errors) = site(&provider).run(&["check", "--deep", "-f", "@CONF@"]);
    assert!(errors.contains("the provider \"corp\" cannot be reached"), "{errors}");
    let nowhere = "auth.require = ( \"/\" => ( \"method\" => \"oidc\", \"realm\" => \"r\", \
                   \"provider\" => \"other\", \"require\" => \"valid-user\" ) )";
    let (_, _, errors) = lighty!().config(nowhere).run(&["check", "-f", "@CONF@"]);
    assert!(errors.contains("its provider is not configured"), "{errors}");
}
