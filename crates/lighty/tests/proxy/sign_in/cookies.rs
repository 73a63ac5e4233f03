//! Cookies of sessions: sealed, split, bound to their host, and sealed again under new keys.

use std::time::Duration;

use lighty_testkit::{lighty, wait_until};
use serde_json::json;

use super::provider::StandIn;
use super::{Browser, location, site, site_with};

#[test]
fn changed_and_swapped_cookies_are_no_session() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    let good = browser.cookies["lighty-corp"].clone();
    let mut elsewhere = Browser { host: "b.example", ..browser.clone() };
    assert_eq!(elsewhere.get("/a").status, 302, "another host");
    for at in [2, 10, good.len() / 2, good.len() - 1] {
        let mut changed = good.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("ASCII");
        browser.cookies.insert("lighty-corp".to_owned(), changed);
        assert!(!browser.is_signed_in(), "{at}");
    }
    for value in ["", "1", "1.", "0.", "9.AAAA", "-1.A", "99999999999999999999.A"] {
        browser.cookies.insert("lighty-corp".to_owned(), value.to_owned());
        assert!(!browser.is_signed_in(), "{value}");
    }
    browser.cookies.insert("lighty-corp".to_owned(), good);
    assert!(browser.is_signed_in());
    let first = Browser::new(&server).get("/a");
    let begun = first.field("Set-Cookie").expect("a cookie");
    let begun = begun.split(['=', ';']).nth(1).expect("a value");
    browser.cookies.insert("lighty-corp".to_owned(), format!("1.{begun}"));
    assert!(!browser.is_signed_in(), "a sign-in is no session");
    assert!(location(&first).contains("/authorize?"));
}

#[test]
fn large_session_is_split() {
    let long = "x".repeat(1300);
    let provider = StandIn::start(json!({ "sid": long }));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    let returned = browser.sign_in(&provider, "/a");
    assert_eq!(returned.status, 302, "{}", server.log());
    let names: Vec<_> = browser.cookies.keys().cloned().collect();
    assert_eq!(names, ["lighty-corp", "lighty-corp.1"]);
    assert!(returned.all("Set-Cookie").all(|cookie| cookie.len() < 4096));
    assert!(browser.is_signed_in(), "{}", server.log());
    let mut torn = browser.clone();
    torn.cookies.remove("lighty-corp.1");
    assert!(!torn.is_signed_in());
    provider.state().claims = json!({});
    let first = browser.get("/.lighty/oidc/corp/login?to=/a");
    browser.get(&provider.authorize(location(&first)));
    let names: Vec<_> = browser.cookies.keys().cloned().collect();
    assert_eq!(names, ["lighty-corp"], "the second part is removed");
    assert!(browser.is_signed_in());
}

#[test]
fn claims_that_nobody_needs_make_room() {
    let provider = StandIn::start(json!({}));
    provider.set_userinfo(json!({ "sub": "kim", "filler": "x".repeat(6000), "groups": ["staff"] }));
    let keys = "\"userinfo\" => \"enable\"";
    let server = site_with(lighty!().file("a", "page"), &provider, keys, "group=staff").start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302, "{}", server.log());
    assert_eq!(browser.cookies.len(), 1);
    assert!(browser.is_signed_in());
    provider.set_userinfo(json!({ "sub": "kim", "groups": "y".repeat(7000) }));
    assert_eq!(Browser::new(&server).sign_in(&provider, "/a").status, 503, "too large");
    server.await_log("the session has");
}

#[test]
fn abandoned_sign_ins_make_room() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    for begun in 1..=4 {
        browser.get("/a");
        assert_eq!(browser.cookies.len(), begun);
    }
    let last = browser.get("/a");
    assert_eq!(browser.cookies.len(), 1);
    assert_eq!(browser.get(&provider.authorize(location(&last))).status, 302);
    assert!(browser.is_signed_in());
}

#[test]
fn keys_are_rotated_without_signing_users_out() {
    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";
    let provider = StandIn::start(json!({}));
    let server = site(&provider)
        .file("../keys", OLD)
        .config("auth.backend.oidc.key-file = \"@DIR@/keys\"")
        .start();
    let replace = |text: &str| {
        let beside = server.directory().join("keys.new");
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, server.directory().join("keys")).expect("renamed");
    };
    let mut old = Browser::new(&server);
    assert_eq!(old.sign_in(&provider, "/a").status, 302);
    replace(&format!("{NEW}\n{OLD}\n"));
    // A sign-in tells which key seals once the old one is gone.
    let patience = Duration::from_secs(30);
    assert!(old.is_signed_in());
    replace(NEW);
    assert!(wait_until(patience, || !old.is_signed_in()), "the old key is gone");
    let mut new = Browser::new(&server);
    assert_eq!(new.sign_in(&provider, "/a").status, 302);
    assert!(new.is_signed_in());
    replace("short");
    server.await_log("a key has at least 32 characters");
    assert!(new.is_signed_in(), "a broken file changes nothing");
}

#[test]
fn weak_keys_prevent_the_start() {
    let provider = StandIn::start(json!({}));
    let setup = site(&provider)
        .file("../keys", "short\n")
        .config("auth.backend.oidc.key-file = \"@DIR@/keys\"");
    let (code, _, errors) = setup.run(&["check", "--deep", "-f", "@CONF@"]);
    assert!(code != 0 && errors.contains("a key has at least 32 characters"), "{errors}");
}

#[test]
fn long_token_of_a_provider_is_accepted() {
    let roles: Vec<_> = (0..300).map(|role| format!("{role:0>36}")).collect();
    let provider = StandIn::start(json!({ "roles": roles, "groups": ["staff"] }));
    let setup = lighty!().file("a", "page");
    let server = site_with(setup, &provider, "", "group=staff").start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302, "{}", server.log());
    assert!(browser.is_signed_in(), "without the claims that nothing needs");
    // More groups than cookies have room for.
    provider.state().claims = json!({ "groups": roles });
    let mut browser = Browser::new(&server);
    assert_ne!(browser.sign_in(&provider, "/a").status, 302);
    server.await_log("more than 6000");
}
