//! Sign-ins at OpenID providers (`"method" => "oidc"` of `auth.require`).

mod attacks;
mod cookies;
mod failures;
mod lifetime;
mod provider;
mod sign_out;

use std::collections::BTreeMap;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use serde_json::json;

use provider::{StandIn, parameter};

/// A browser with cookies.
#[derive(Clone)]
struct Browser<'s> {
    server: &'s Server,
    host: &'static str,
    cookies: BTreeMap<String, String>,
}

impl<'s> Browser<'s> {
    fn new(server: &'s Server) -> Self {
        Self { server, host: "a.example", cookies: BTreeMap::new() }
    }

    fn cookie_line(&self) -> String {
        let pairs: Vec<_> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match pairs.is_empty() {
            true => String::new(),
            false => format!("Cookie: {}\r\n", pairs.join("; ")),
        }
    }

    /// Sends a request with further lines, and keeps the cookies of the response.
    fn send(&mut self, method: &str, target: &str, lines: &str) -> Response {
        let mut client = self.server.connect();
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{}{lines}\r\n",
            self.host,
            self.cookie_line()
        ));
        let response = client.response();
        for cookie in response.all("Set-Cookie") {
            let (name, rest) = cookie.split_once('=').expect("a name");
            let (value, attributes) = rest.split_once(';').expect("attributes");
            match attributes.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        response
    }

    /// Requests a page for the window.
    fn get(&mut self, target: &str) -> Response {
        self.send("GET", target, "Sec-Fetch-Mode: navigate\r\n")
    }

    /// Requests a protected page, signs in at the provider, and returns the response to the
    /// callback.
    fn sign_in(&mut self, provider: &StandIn, target: &str) -> Response {
        let page = self.get(target);
        assert_eq!(page.status, 302, "{}", self.server.log());
        let callback = provider.authorize(location(&page));
        self.get(&callback)
    }

    fn is_signed_in(&mut self) -> bool {
        self.get("/a").status == 200
    }
}

fn location(response: &Response) -> &str {
    response.field("Location").expect("a location")
}

/// A server with a provider; `keys` are further ones of it, `require` is that of the rule.
fn site_with(setup: Setup, provider: &StandIn, keys: &str, require: &str) -> Setup {
    setup.file("../secret", "s3cret\n").config(&format!(
        "auth.backend.oidc = ( \"corp\" => ( \"issuer\" => \"{}\", \"client-id\" => \"site\", \
         \"client-secret-file\" => \"@DIR@/secret\", {keys} ) )\n\
         auth.require = ( \"/\" => ( \"method\" => \"oidc\", \"realm\" => \"r\", \"require\" => \
         \"{require}\" ) )",
        provider.issuer()
    ))
}

fn site(provider: &StandIn) -> Setup {
    site_with(lighty!().file("a", "page"), provider, "", "valid-user")
}

#[test]
fn browser_signs_in_and_returns_to_its_page() {
    let provider = StandIn::start(json!({ "email": "kim@example.org", "groups": ["staff"] }));
    let backend = Backend::answering("page");
    let claims = "\"claims\" => ( \"X-Email\" => \"email\", \"X-Groups\" => \"groups\" )";
    let log =
        "accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%u %{AUTH_TYPE}e %s\"\n";
    let mut server = site_with(lighty!(), &provider, claims, "group=staff")
        .in_front_of(&backend.name())
        .config(log)
        .start();
    let mut browser = Browser::new(&server);
    let first = browser.get("/report?year=2026&x=%2F");
    let url = location(&first);
    assert_eq!(first.status, 302, "{}", server.log());
    assert!(url.starts_with(&format!("{}/authorize?", provider.issuer())), "{url}");
    assert_eq!(first.field("Cache-Control"), Some("no-store"));
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "site"),
        ("redirect_uri", "http://a.example/.lighty/oidc/corp/callback"),
        ("scope", "openid profile email"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(parameter(url, name).as_deref(), Some(value), "{url}");
    }
    let cookie = first.field("Set-Cookie").expect("a cookie");
    assert!(cookie.starts_with("lighty-corp.s-") && cookie.ends_with("; Max-Age=600"), "{cookie}");
    assert!(cookie.contains("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(backend.requests().is_empty());
    let callback = provider.authorize(url);
    let returned = browser.get(&callback);
    assert_eq!(returned.status, 302, "{}", server.log());
    assert_eq!(location(&returned), "http://a.example/report?year=2026&x=%2F");
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), ["lighty-corp"], "one session");
    browser.cookies.insert("own".to_owned(), "1".to_owned());
    let page = browser.send("GET", "/report", "X-Email: root\r\nx_groups: root\r\n");
    assert_eq!((page.status, page.text()), (200, "page"), "{}", server.log());
    assert_eq!(page.field("Cache-Control"), Some("private"));
    let seen = backend.requests().pop().expect("a request");
    assert_eq!(seen.field("X-Email"), Some("kim@example.org"));
    assert_eq!(seen.field("X-Groups"), Some("staff"));
    assert_eq!(seen.field("Cookie"), Some("own=1"), "the session stays here");
    assert!(!seen.head.contains("root"), "{}", seen.head);
    let access_log = server.directory().join("access.log");
    server.stop();
    let lines = std::fs::read_to_string(access_log).expect("a log");
    assert!(lines.ends_with("kim OpenID 200\n"), "{lines}");
}

#[test]
fn code_is_redeemed_with_the_secret_and_the_verifier() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    assert_eq!(Browser::new(&server).sign_in(&provider, "/a").status, 302);
    let redeemed = provider.requests_for("/token").pop().expect("a request");
    // site:s3cret
    assert_eq!(redeemed.field("Authorization"), Some("Basic c2l0ZTpzM2NyZXQ="));
    let form = String::from_utf8(redeemed.body).expect("a form");
    assert_eq!(parameter(&form, "grant_type").as_deref(), Some("authorization_code"));
    assert!(!form.contains("s3cret") && !server.log().contains("s3cret"), "{form}");
}

#[test]
fn scripts_and_forms_are_not_led_to_the_provider() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut browser = Browser::new(&server);
    for (method, lines) in [
        ("GET", ""),
        ("GET", "Accept: application/json\r\n"),
        ("GET", "Sec-Fetch-Mode: cors\r\nAccept: text/html\r\n"),
        ("GET", "Accept: text/html\r\nX-Requested-With: XMLHttpRequest\r\n"),
        ("POST", "Sec-Fetch-Mode: navigate\r\nContent-Length: 0\r\n"),
        ("PUT", "Sec-Fetch-Mode: navigate\r\nContent-Length: 0\r\n"),
    ] {
        assert_eq!(browser.send(method, "/a", lines).status, 401, "{method} {lines}");
    }
    assert_eq!(browser.send("GET", "/a", "Accept: text/html\r\n").status, 302);
    assert!(browser.sign_in(&provider, "/a").status == 302 && browser.is_signed_in());
    assert_eq!(browser.send("GET", "/a", "Sec-Fetch-Mode: cors\r\n").status, 200);
}

#[test]
fn users_without_the_required_group_are_refused_without_a_loop() {
    let provider = StandIn::start(json!({ "groups": ["guests"], "role": "admin" }));
    for (require, status) in [
        ("group=staff", 403),
        ("user=lee", 403),
        ("claim:role=user", 403),
        ("group=staff|claim:role=admin", 200),
        ("user=kim", 200),
    ] {
        let server = site_with(lighty!().file("a", "page"), &provider, "", require).start();
        let mut browser = Browser::new(&server);
        assert_eq!(browser.sign_in(&provider, "/a").status, 302);
        assert_eq!(browser.get("/a").status, status, "{require}");
    }
}

#[test]
fn two_providers_have_sessions_of_their_own() {
    let (one, two) = (StandIn::start(json!({})), StandIn::start(json!({ "sub": "lee" })));
    let provider = |name: &str, url: String| {
        format!("\"{name}\" => ( \"issuer\" => \"{url}\", \"client-id\" => \"site\" )")
    };
    let rule = |path: &str, name: &str| {
        format!(
            "\"{path}\" => ( \"method\" => \"oidc\", \"realm\" => \"r\", \"provider\" => \"{name}\", \
             \"require\" => \"valid-user\" )"
        )
    };
    let server = lighty!()
        .file("one/a", "page")
        .file("two/a", "page")
        .config(&format!(
            "auth.backend.oidc = ( {}, {} )\nauth.require = ( {}, {} )",
            provider("one", one.issuer()),
            provider("two", two.issuer()),
            rule("/one/", "one"),
            rule("/two/", "two")
        ))
        .start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&one, "/one/a").status, 302, "{}", server.log());
    assert_eq!((browser.get("/one/a").status, browser.get("/two/a").status), (200, 302));
    let session = browser.cookies["lighty-one"].clone();
    browser.cookies.insert("lighty-two".to_owned(), session);
    assert_eq!(browser.get("/two/a").status, 302, "the session of another provider");
    assert_eq!(browser.sign_in(&two, "/two/a").status, 302);
    assert_eq!((browser.get("/one/a").status, browser.get("/two/a").status), (200, 200));
}

#[test]
fn claims_of_the_user_are_requested() {
    let provider = StandIn::start(json!({}));
    provider.set_userinfo(json!({ "sub": "kim", "department": "ops" }));
    let keys = "\"userinfo\" => \"enable\"";
    let server =
        site_with(lighty!().file("a", "page"), &provider, keys, "claim:department=ops").start();
    let mut browser = Browser::new(&server);
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    assert!(browser.is_signed_in());
    provider.set_userinfo(json!({ "sub": "lee", "department": "ops" }));
    let mut other = Browser::new(&server);
    assert_eq!(other.sign_in(&provider, "/a").status, 503, "the claims of another user");
}

#[test]
fn oauth2_provider_names_the_user_by_a_resource() {
    let provider = StandIn::start(json!({}));
    provider.set_userinfo(json!({ "login": "kim", "id": 7, "plan": "free" }));
    let url = provider.issuer();
    let urls = format!(
        "\"authorization-url\" => \"{url}/authorize\", \"token-url\" => \"{url}/token\", \
         \"userinfo-url\" => \"{url}/userinfo\""
    );
    for (keys, user) in [
        (format!("\"type\" => \"github\", {urls}"), "kim"),
        (format!("\"type\" => \"oauth2\", \"user-claim\" => \"id\", {urls}"), "7"),
    ] {
        let server = lighty!()
            .file("a", "page")
            .file("../secret", "s3cret")
            .config(&format!(
                "auth.backend.oidc = ( \"hub\" => ( \"client-id\" => \"site\", \
                 \"client-secret-file\" => \"@DIR@/secret\", {keys} ) )\n\
                 auth.require = ( \"/\" => ( \"method\" => \"oidc\", \"realm\" => \"r\", \
                 \"require\" => \"user={user}\" ) )"
            ))
            .start();
        let mut browser = Browser::new(&server);
        assert_eq!(browser.sign_in(&provider, "/a").status, 302, "{}", server.log());
        assert!(browser.is_signed_in(), "{}", server.log());
    }
    let request = provider.requests_for("/userinfo").pop().expect("a request");
    assert!(request.field("Authorization").expect("a token").starts_with("Bearer "));
}

#[test]
fn provider_lists_groups_apart_from_the_claims() {
    let provider = StandIn::start(json!({ "groups": ["admin"] }));
    provider.set_userinfo(json!({ "login": "kim", "groups": ["admin"] }));
    let url = provider.issuer();
    let hub = format!(
        "\"type\" => \"github\", \"authorization-url\" => \"{url}/authorize\", \
         \"token-url\" => \"{url}/token\", \"userinfo-url\" => \"{url}/userinfo\""
    );
    let many = |count: usize| {
        let mut groups = vec![json!({}); count];
        groups[0] = json!({ "login": "acme" });
        json!(groups)
    };
    let corp = format!("\"issuer\" => \"{url}\", \"groups-member\" => \"team.slug\"");
    let numbers = format!("{hub}, \"groups-member\" => \"id\"");
    for (keys, groups, wanted) in [
        (&hub, json!([{ "login": "acme" }, { "login": "other" }]), 200),
        (&hub, json!([{ "login": "other" }, { "name": "acme" }, { "login": ["acme"] }]), 403),
        (&hub, json!([]), 403),
        (&corp, json!([{ "team": { "slug": "acme" } }]), 200),
        (&numbers, json!([{ "id": 7 }]), 200),
        (&hub, json!({ "login": "acme" }), 503),
        (&hub, json!(["acme"]), 503),
        (&hub, many(1000), 200),
        (&hub, many(1001), 503),
    ] {
        provider.state().groups = groups.clone();
        let setup = lighty!().file("a", "page").file("../secret", "s3cret").config(&format!(
            "auth.backend.oidc = ( \"hub\" => ( \"client-id\" => \"site\", \
             \"client-secret-file\" => \"@DIR@/secret\", {keys}, \
             \"groups-url\" => \"{url}/groups\" ) )\n\
             auth.require = ( \"/\" => ( \"method\" => \"oidc\", \"realm\" => \"r\", \
             \"require\" => \"group=acme|group=7\" ) )"
        ));
        let server = setup.start();
        let mut browser = Browser::new(&server);
        let status = browser.sign_in(&provider, "/a").status;
        let status = if status == 302 { browser.get("/a").status } else { status };
        assert_eq!(status, wanted, "{:.80}: {}", groups.to_string(), server.log());
    }
    let request = provider.requests_for("/groups").pop().expect("a request");
    assert!(request.field("Authorization").expect("a token").starts_with("Bearer "));
    for (keys, wanted) in [
        (format!("{hub}, \"groups-member\" => \"login\""), "without \"groups-url\""),
        (format!("{hub}, \"groups-url\" => \"http://hub.example/\""), "must be a URL of https"),
        (
            format!("{hub}, \"groups-url\" => \"{url}/\", \"groups-claim\" => \"a.b\""),
            "another \"groups-claim\"",
        ),
        (
            format!("{hub}, \"groups-url\" => \"{url}/\", \"groups-claim\" => \"sid\""),
            "another \"groups-claim\"",
        ),
        (
            format!("{hub}, \"groups-url\" => \"{url}/\", \"groups-claim\" => \"login\""),
            "another \"groups-claim\"",
        ),
    ] {
        let line = format!("auth.backend.oidc = ( \"hub\" => ( \"client-id\" => \"a\", {keys} ) )");
        let (code, _, errors) = lighty!().config(&line).run(&["-t", "-f", "@CONF@"]);
        assert!(code != 0 && errors.contains(wanted), "{wanted}: {errors}");
    }
}

#[test]
fn tokens_and_sessions_open_one_site() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider)
        .config(&format!(
            "auth.backend.jwt.jwks = \"{}/jwks\"\nauth.require := ( \"/\" => ( \"method\" => \
             \"bearer|oidc\", \"realm\" => \"r\", \"require\" => \"valid-user\" ) )",
            provider.issuer()
        ))
        .start();
    let token = provider.sign(json!({ "aud": "site" }));
    let mut browser = Browser::new(&server);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(browser.send("GET", "/a", &bearer).status, 200, "{}", server.log());
    let refused = browser.send("GET", "/a", "");
    assert_eq!(
        (refused.status, refused.field("WWW-Authenticate")),
        (401, Some("Bearer realm=\"r\""))
    );
    assert_eq!(browser.sign_in(&provider, "/a").status, 302);
    assert!(browser.is_signed_in());
}

#[test]
fn trusted_proxy_tells_scheme_and_host() {
    let provider = StandIn::start(json!({}));
    let trust = "extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n\
                 extforward.headers = ( \"X-Forwarded-For\" )\n";
    let lines =
        "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nSec-Fetch-Mode: navigate\r\n";
    for (config, scheme, prefix) in
        [(trust, "https", "__Host-lighty-corp"), ("", "http", "lighty-corp")]
    {
        let server = site(&provider).config(config).start();
        let mut browser = Browser::new(&server);
        let first = browser.send("GET", "/a", lines);
        let back = parameter(location(&first), "redirect_uri").expect("a URL");
        assert_eq!(back, format!("{scheme}://a.example/.lighty/oidc/corp/callback"));
        let callback = provider.authorize(location(&first));
        let returned = browser.send("GET", &callback, lines);
        assert_eq!(location(&returned), format!("{scheme}://a.example/a"), "{}", server.log());
        let session = returned.all("Set-Cookie").find(|cookie| !cookie.contains("Max-Age=0"));
        let session = session.expect("a session");
        assert!(session.starts_with(&format!("{prefix}=")), "{session}");
        assert_eq!(session.contains("; Secure"), scheme == "https", "{session}");
        assert_eq!(browser.send("GET", "/a", lines).status, 200);
    }
}

#[test]
fn explain_names_the_provider() {
    let provider = StandIn::start(json!({}));
    let setup = site(&provider);
    let (_, shown, errors) =
        setup.run(&["explain", "http://a.example/a", "-H", "Accept: text/html", "-f", "@CONF@"]);
    assert!(shown.contains("\"corp\" signs users in"), "{shown}{errors}");
}

/// A response with JSON.
fn json_answer(status: &str, value: &serde_json::Value) -> Vec<u8> {
    answer(status, "Content-Type: application/json\r\n", &value.to_string())
}

#[test]
fn browser_signs_in_over_http2() {
    let provider = StandIn::start(json!({}));
    let server = site(&provider).start();
    let mut client = Http2::connect(server.address());
    let navigates = ("sec-fetch-mode", "navigate");
    let first = client.get_with("/a", &[navigates]);
    assert_eq!(first.status, 302, "{}", server.log());
    let cookie = |field: Option<String>| {
        let field = field.expect("a cookie");
        field.split(';').next().expect("a pair").to_owned()
    };
    let begun = cookie(first.field("set-cookie"));
    let callback = provider.authorize(&first.field("location").expect("a location"));
    let returned = client.get_with(&callback, &[navigates, ("cookie", &begun)]);
    assert_eq!(returned.status, 302, "{}", server.log());
    let cookies = returned.fields.iter().filter(|(name, _)| name == "set-cookie");
    let session = cookies.map(|(_, value)| value).find(|value| !value.contains("Max-Age=0"));
    let session = cookie(session.cloned());
    // HTTP/2 splits cookies into fields of their own.
    let page = client.get_with("/a", &[("cookie", "own=1"), ("cookie", &session)]);
    assert_eq!((page.status, &*page.text()), (200, "page"));
}
