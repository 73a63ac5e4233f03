//! Providers that are dead, slow or wrong.

use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::server::Server;
use lighty_testkit::tls::Authority;
use lighty_testkit::{lighty, wait_until};
use serde_json::json;

use super::provider::StandIn;
use super::{Browser, location, site, site_with};

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
fn own_authorities_vouch_for_a_provider() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    authority.issue("provider.pem", &["127.0.0.1"]);
    let provider = StandIn::start_tls(json!({}), &authority.server("provider.pem"));
    let trusting = |authority: &Authority, file: &str| {
        let keys = format!("\"ca-file\" => \"{}\"", authority.path(file).display());
        site_with(lighty!().file("a", "page"), &provider, &keys, "valid-user")
    };
    let server = trusting(&authority, "ca.pem").start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302, "{}", server.log());
    assert!(browser.is_signed_in());
    let other = Authority::named(directory.path(), "other.pem");
    let server = trusting(&other, "other.pem").start();
    assert_eq!(Browser::new(&server).get("/a").status, 503);
    server.await_log("certificate");
    let (code, _, errors) = trusting(&other, "none.pem").run(&["-D", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("auth.backend.oidc: "), "{code} {errors}");
}

/// The limit of requests that wait for one provider.
#[test]
fn sign_ins_beyond_the_limit_are_refused_at_once() {
    const JOBS_MAX: usize = 64;
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browsers: Vec<_> = (0..=JOBS_MAX).map(|_| Browser::new(&server)).collect();
    let callbacks: Vec<_> = browsers
        .iter_mut()
        .map(|browser| provider.authorize(location(&browser.get("/a"))))
        .collect();
    provider.hold();
    let mut clients: Vec<_> = browsers
        .iter()
        .zip(&callbacks)
        .map(|(browser, callback)| {
            let mut client = server.connect();
            let cookies = browser.cookie_line();
            client.send(format!(
                "GET {callback} HTTP/1.1\r\nHost: a.example\r\nSec-Fetch-Mode: navigate\r\n\
                 {cookies}\r\n"
            ));
            client
        })
        .collect();
    server.await_log("64 requests wait for the provider already, request:");
    let log = server.log();
    let (_, behind) = log.split_once("64 requests wait for").expect("the refusal");
    let (_, behind) = behind.split_once("code=code-").expect("its code");
    let refused = behind.split('&').next().and_then(|number| number.parse().ok());
    assert_eq!(clients.remove(refused.expect("a number")).response().status, 503);
    assert_eq!(server.get("/a").status, 401, "others are served");
    provider.release();
    for client in &mut clients {
        assert_eq!(client.response().status, 302, "{}", server.log());
    }
    assert_eq!(clients.len(), JOBS_MAX);
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
