//! Sessions over time: refreshed, ended by the provider, kept across a reload.

use std::time::{Duration, Instant};

use lighty_testkit::{lighty, wait_until};
use serde_json::json;

use super::provider::StandIn;
use super::{Browser, site, site_with};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn session_is_refreshed_once_for_all_requests_of_a_page() {
    let provider = StandIn::start(json!({}));
    provider.state().expires_in = Some(2);
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    let before = browser.cookies["lighty-corp"].clone();
    provider.state().expires_in = Some(600);
    let refreshed = || provider.requests_for("/token").len() == 2;
    let is_refreshed = wait_until(PATIENCE, || {
        // All of them have the old cookie.
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let mut client = server.connect();
                client.send(format!(
                    "GET /a HTTP/1.1\r\nHost: a.example\r\nCookie: lighty-corp={before}\r\n\r\n"
                ));
                client
            })
            .collect();
        for mut client in clients {
            let response = client.response();
            assert_eq!(response.status, 200, "{}", server.log());
        }
        refreshed()
    });
    assert!(is_refreshed, "{}", server.log());
    assert_eq!(browser.send("GET", "/a", "").status, 200);
    assert_ne!(browser.cookies["lighty-corp"], before, "a new session");
    for _ in 0..3 {
        assert_eq!(browser.send("GET", "/a", "").status, 200);
    }
    assert_eq!(provider.requests_for("/token").len(), 2, "one refresh");
}

#[test]
fn groups_of_a_list_outlive_a_refresh() {
    let provider = StandIn::start(json!({ "groups": ["other"] }));
    provider.state().expires_in = Some(1);
    provider.state().groups = json!([{ "name": "staff" }]);
    let keys = format!("\"groups-url\" => \"{}/groups\"", provider.issuer());
    let server = site_with(lighty!().file("a", "page"), &provider, &keys, "group=staff").start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    let is_refreshed = wait_until(PATIENCE, || {
        assert!(browser.is_signed_in(), "{}", server.log());
        provider.requests_for("/token").len() > 2
    });
    assert!(is_refreshed && browser.is_signed_in(), "{}", server.log());
}

#[test]
fn refused_refresh_ends_the_session() {
    let provider = StandIn::start(json!({}));
    provider.state().expires_in = Some(1);
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    let mut copy = browser.clone();
    provider.state().refuses_refresh = true;
    assert!(wait_until(PATIENCE, || browser.get("/a").status == 302), "{}", server.log());
    assert_eq!(copy.send("GET", "/a", "").status, 401);
}

#[test]
fn provider_that_is_down_ends_no_session() {
    let mut provider = StandIn::start(json!({}));
    provider.state().expires_in = Some(1);
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    let mut late = Browser::new(&server);
    let first = late.get("/a");
    let callback = provider.authorize(super::location(&first));
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    provider.kill();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1500) {
        assert!(browser.is_signed_in(), "{}", server.log());
    }
    assert_eq!(late.get(&callback).status, 503);
}

#[test]
fn session_ends_after_its_time() {
    let provider = StandIn::start(json!({}));
    let keys = "\"session\" => \"1min\"";
    let server =
        site_with(lighty_testkit::lighty!().file("a", "page"), &provider, keys, "valid-user")
            .start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    assert!(browser.is_signed_in());
    let setup =
        site_with(lighty_testkit::lighty!(), &provider, "\"session\" => \"59s\"", "valid-user");
    let (code, _, errors) = setup.run(&["check", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("from 1min to 30d"), "{errors}");
}

#[test]
fn sessions_outlive_a_reload() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    server.signal(rustix::process::Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert!(browser.is_signed_in(), "{}", server.log());
}
