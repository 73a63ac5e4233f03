//! Access control, and response header fields for browsers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use lighty_testkit::backend::{Backend, RequestSeen, answer};
use lighty_testkit::real::slapd::Slapd;
use lighty_testkit::token::{TokenSigner, key_set};

use super::applications::{echo, is};
use super::trial::Recipe;

const HOST: &str = "www.example.org";

/// A line of the password file: kim's is `correct horse`.
pub(super) const KIM: &str = "kim:$2y$04$snxvUC9xEG/RZaBLFVVTzu6WeLBohwybBefGJs4.aQXfUMDXcKWkG\n";

#[test]
fn basic_authentication() {
    let trial = Recipe::new("basic-auth").file("srv/www/private/index.html", "private\n").run();
    is(&trial, (HOST, "/"), 200, "home\n");
    for target in ["/private/", "/%70rivate/", "//private/", "/x/../private/"] {
        assert_eq!(trial.get(HOST, target).status, 401, "{target}");
    }
}

#[test]
fn allow_list() {
    let trial = Recipe::new("ip-allow-list").file("srv/www/admin/index.html", "admin\n").run();
    let reported = |ip: &str, block: &str| {
        let file = trial.path("allow.conf");
        let page = super::page::Page::read("ip-allow-list");
        let mut texts = page.blocks.iter().map(|block| &block.text);
        let text = texts.find(|text| text.contains(block)).expect("a configuration");
        lighty_testkit::server::write_file(&file, text);
        let command = format!("lighty explain -f allow.conf --from {ip} http://{HOST}/admin/");
        trial.sh(&command).contains("403")
    };
    for target in ["/%61dmin/", "//admin/", "/x/../admin/"] {
        let from_outside =
            format!("lighty explain -f allow.conf --from 203.0.113.9 'http://{HOST}{target}'");
        assert!(reported("203.0.113.9", "10.0.0.0/8") && trial.sh(&from_outside).contains("403"));
    }
    for (ip, is_refused) in [
        ("10.1.2.3", false),
        ("192.168.7.7", false),
        ("2001:db8::7", false),
        ("203.0.113.9", true),
        ("2001:db9::7", true),
    ] {
        assert_eq!(reported(ip, "10.0.0.0/8"), is_refused, "{ip}");
    }
    for (ip, is_refused) in [("203.0.113.9", true), ("198.51.100.7", true), ("10.1.2.3", false)] {
        assert_eq!(reported(ip, "198.51.100.7"), is_refused, "{ip}");
    }
}

#[test]
fn links_that_expire() {
    let recipe = Recipe::new("expiring-links").file("srv/downloads/album/1.jpg", "one\n");
    let trial = recipe.file("srv/downloads/album/2.jpg", "two\n").run();
    let link = trial.sh("sh /srv/bin/link /album/1.jpg");
    is(&trial, (HOST, link.trim()), 200, "one\n");
    let future = trial.sh("sh /srv/bin/link /album/1.jpg 4000000000");
    assert_eq!(trial.get(HOST, future.trim()).status, 410, "{future}");
    for target in ["/album/1.jpg", "/dl/album/1.jpg", "/srv/downloads/album/1.jpg"] {
        assert_eq!(trial.get(HOST, target).status, 404, "{target}");
    }
}

#[test]
fn ldap_groups() {
    let Some(slapd) = Slapd::start() else { return };
    let trial = Recipe::new("ldap-groups")
        .file("srv/www/ops/index.html", "ops\n")
        .backend("127.0.0.1:389", slapd.address())
        .run();
    assert_eq!(trial.get(HOST, "/ops/").status, 401);
}

/// Authelia's responses: requests with a session pass, others are redirected to the login.
fn authelia(seen: &RequestSeen) -> Vec<u8> {
    assert_eq!(seen.line(), "GET /api/authz/forward-auth HTTP/1.1");
    let field = |name: &str| seen.field(name).unwrap_or_default();
    if field("Cookie").contains("authelia_session=valid") {
        return answer("200 OK", "Remote-User: kim\r\nRemote-Email: kim@example.org\r\n", "");
    }
    assert_eq!((field("X-Forwarded-Method"), field("X-Forwarded-For")), ("GET", "127.0.0.1"));
    let url = ["Proto", "Host", "Uri"].map(|part| field(&format!("X-Forwarded-{part}")));
    let place = format!("https://auth.example.org/?rd={}://{}{}", url[0], url[1], url[2]);
    answer("302 Found", &format!("Location: {place}\r\n"), "")
}

#[test]
fn forward_authentication() {
    let (app, service) = (echo(), Backend::replying(authelia));
    let trial = Recipe::new("forward-auth")
        .backend("127.0.0.1:3000", app.address())
        .backend("127.0.0.1:9091", service.address())
        .run();
    let host = "app.example.org";
    let forged = "Cookie: authelia_session=valid\r\nRemote-User: root\r\nRemote_User: root\r\n\
                  Remote-Groups: admins\r\nRemote_Groups: admins\r\n";
    assert_eq!(trial.get_with(host, "/report", forged).status, 200);
    let seen = app.requests_for("/report").pop().expect("a request");
    assert_eq!(seen.field("Remote-User"), Some("kim"));
    assert_eq!(seen.field("Remote-Email"), Some("kim@example.org"));
    assert!(!seen.head.contains("root") && !seen.head.contains("admins"), "{}", seen.head);
    assert_eq!(trial.get(host, "/report").status, 302);
    assert_eq!(app.requests_for("/report").len(), 1, "a stranger's request does not pass");
    drop(service);
    assert_eq!(trial.get_with(host, "/report", forged).status, 503);
    assert_eq!(app.requests_for("/report").len(), 1, "nobody passes without the service");
}

#[test]
fn api_tokens() {
    let (app, signer) = (echo(), TokenSigner::rsa("one"));
    let keys = key_set([&signer]);
    let issuer = Backend::replying(move |_| answer("200 OK", "", &keys));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let expires = now.expect("after 1970").as_secs() + 3600;
    let token = signer.sign(&serde_json::json!({
        "iss": "https://auth.example.org/realms/main", "aud": ["account", "orders"], "sub": "kim",
        "exp": expires, "realm_access": { "roles": ["user"] }
    }));
    let path = "/realms/main/protocol/openid-connect/certs";
    let trial = Recipe::new("api-tokens")
        .file("srv/token", &token)
        .replace(
            &format!("https://auth.example.org{path}"),
            format!("http://{}{path}", issuer.address()),
        )
        .backend("127.0.0.1:3000", app.address())
        .run();
    let lines = format!("Authorization: Bearer {token}\r\nX-User: root\r\nx_roles: root\r\n");
    assert_eq!(trial.get_with("api.example.org", "/report", &lines).status, 200);
    let seen = app.requests_for("/report").pop().expect("a request");
    assert_eq!((seen.field("X-User"), seen.field("X-Roles")), (Some("kim"), Some("user")));
    assert!(!seen.head.contains("root") && !seen.head.contains(&token), "{}", seen.head);
}

/// An OpenID provider with its page at this URL.
fn provider(issuer: &'static str, page: &'static str) -> Backend {
    Backend::replying(move |seen| {
        let host = format!("http://{}", seen.field("Host").expect("a host"));
        let metadata = serde_json::json!({
            "issuer": format!("{host}{issuer}"),
            "authorization_endpoint": page,
            "token_endpoint": format!("{host}/token"),
            "jwks_uri": format!("{host}/jwks"),
        });
        answer("200 OK", "", &metadata.to_string())
    })
}

#[test]
fn sign_in_with_keycloak() {
    let provider = provider(
        "/realms/main",
        "https://auth.example.org/realms/main/protocol/openid-connect/auth",
    );
    let url = format!("http://{}", provider.address());
    Recipe::new("keycloak")
        .file("etc/lighty/oidc-secret", "secret")
        .file("etc/lighty/session-keys", "0123456789abcdef0123456789abcdef")
        .replace("https://auth.example.org", url)
        .run();
}

#[test]
fn sign_in_with_google() {
    let provider = provider("", "https://accounts.google.com/o/oauth2/v2/auth");
    let url = format!("http://{}", provider.address());
    Recipe::new("google")
        .file("etc/lighty/google-secret", "secret")
        .replace("https://accounts.google.com", url)
        .run();
}

#[test]
fn sign_in_with_github() {
    Recipe::new("github").file("etc/lighty/github-secret", "secret").run();
}

/// A field of a browser's navigation.
const HTML: &str = "Accept: text/html\r\n";

/// oauth2-proxy's responses: a refreshed session comes in two parts.
fn oauth2_proxy(seen: &RequestSeen) -> Vec<u8> {
    let cookie = seen.field("Cookie").unwrap_or_default();
    match seen.target() {
        "/oauth2/auth" if cookie.contains("_oauth2_proxy=valid") => {
            let fields = "X-Auth-Request-User: kim\r\nSet-Cookie: _oauth2_proxy_0=a\r\n\
                          Set-Cookie: _oauth2_proxy_1=b\r\n";
            answer("202 Accepted", fields, "Authenticated")
        }
        "/oauth2/auth" => answer("401 Unauthorized", "", ""),
        target => answer("200 OK", "", &format!("login {target}")),
    }
}

#[test]
fn login_by_oauth2_proxy() {
    let (app, service) = (echo(), Backend::replying(oauth2_proxy));
    let trial = Recipe::new("oauth2-proxy")
        .backend("127.0.0.1:3000", app.address())
        .backend("127.0.0.1:4180", service.address())
        .run();
    let host = "app.example.org";
    let forged = "Cookie: _oauth2_proxy=valid\r\nX-Auth-Request-User: root\r\n\
                  X-Auth-Request-Email: root@example.org\r\n";
    let page = trial.get_with(host, "/mail", forged);
    assert_eq!((page.status, page.all("Set-Cookie").count()), (200, 2));
    let seen = app.requests_for("/mail").pop().expect("a request");
    assert_eq!(seen.field("X-Auth-Request-User"), Some("kim"));
    assert_eq!(seen.field("X-Auth-Request-Email"), None);
    is(&trial, (host, "/oauth2/sign_in?rd=/mail"), 200, "login /oauth2/sign_in?rd=/mail");
    for target in ["/oauth2/../mail", "/oauth2/%2e%2e/mail", "/oauth2/..%2fmail", "//mail"] {
        assert_eq!(trial.get_with(host, target, HTML).status, 302, "{target}");
        assert_eq!(trial.get(host, target).status, 401, "{target}");
    }
    assert_eq!(app.requests().len(), 2, "no stranger passes by another spelling");
    let response = trial.get_with(host, "/a?b=1&c=2", HTML);
    assert_eq!(response.field("Location"), Some("/oauth2/sign_in?rd=%2Fa%3Fb%3D1%26c%3D2"));
}

/// The responses of authentik's outpost.
fn authentik(seen: &RequestSeen) -> Vec<u8> {
    let field = |name: &str| seen.field(name).unwrap_or_default();
    if seen.target() != "/outpost.goauthentik.io/auth/caddy" {
        return answer("200 OK", "", &format!("outpost {}", seen.target()));
    }
    if field("Cookie").contains("authentik_proxy_x=valid") {
        let fields = "X-authentik-username: kim\r\nX-authentik-groups: staff|ops\r\n\
                      X-Authentik-Jwt: token\r\n";
        return answer("200 OK", fields, "");
    }
    let [scheme, host, uri] = ["Proto", "Host", "Uri"].map(|n| field(&format!("X-Forwarded-{n}")));
    let url = format!("{scheme}://{host}{uri}").replace(':', "%3A").replace('/', "%2F");
    let place = format!("http://{host}/outpost.goauthentik.io/start?rd={url}");
    answer("302 Found", &format!("Location: {place}\r\nSet-Cookie: authentik_state=1\r\n"), "")
}

#[test]
fn login_by_authentik() {
    let (app, service) = (echo(), Backend::replying(authentik));
    let trial = Recipe::new("authentik")
        .backend("127.0.0.1:3000", app.address())
        .backend("127.0.0.1:9000", service.address())
        .run();
    let host = "app.example.org";
    let forged = "Cookie: authentik_proxy_x=valid\r\nX-authentik-username: root\r\n\
                  X_Authentik_Entitlements: admin\r\nX-authentik-meta-app: evil\r\n";
    assert_eq!(trial.get_with(host, "/report", forged).status, 200);
    let seen = app.requests_for("/report").pop().expect("a request");
    assert_eq!(seen.field("X-authentik-username"), Some("kim"));
    assert_eq!(seen.field("X-authentik-groups"), Some("staff|ops"));
    assert_eq!(seen.field("X-authentik-jwt"), Some("token"));
    for forged in ["root", "admin", "evil"] {
        assert!(!seen.head.contains(forged), "{forged}: {}", seen.head);
    }
    let login = trial.get(host, "/report");
    assert_eq!((login.status, login.field("Set-Cookie")), (302, Some("authentik_state=1")));
    let start = "/outpost.goauthentik.io/start?rd=x";
    is(&trial, (host, start), 200, &format!("outpost {start}"));
    assert_eq!(app.requests_for("/report").len(), 2, "a stranger's request does not pass");
}

/// Tailscale's program at its socket: a device outside of the tailnet is refused.
fn tailscale(stream: UnixStream) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 0) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        for field in
            ["Remote-Addr: 127.0.0.1", "Remote-Port: ", "Expected-Tailnet: tailnet.example"]
        {
            assert!(head.contains(field), "{head}");
        }
        let response = match head.contains("device=unknown") {
            true => answer("401 Unauthorized", "", ""),
            false => {
                let fields = "Tailscale-User: kim@tailnet.example\r\nTailscale-Name: Kim\r\n";
                format!("HTTP/1.1 204 No Content\r\n{fields}\r\n").into_bytes()
            }
        };
        reader.get_mut().write_all(&response).expect("sent");
        head.clear();
    }
}

#[test]
fn identity_by_tailscale() {
    let app = echo();
    let recipe = Recipe::new("tailscale").backend("127.0.0.1:3000", app.address());
    let socket = recipe.path("run/tailscale.nginx-auth.sock");
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| {
            std::thread::spawn(|| tailscale(stream));
        });
    });
    let trial = recipe.run();
    let host = "app.tailnet.example";
    let forged = "Tailscale-User: root\r\nTailscale_Login: root\r\nExpected-Tailnet: evil\r\n";
    assert_eq!(trial.get_with(host, "/report", forged).status, 200);
    let seen = app.requests_for("/report").pop().expect("a request");
    assert_eq!(seen.field("Tailscale-User"), Some("kim@tailnet.example"));
    assert_eq!(seen.field("Tailscale-Login"), None);
    assert!(!seen.head.contains("root"), "{}", seen.head);
}

#[test]
fn cors() {
    let app = Backend::replying(|seen| match seen.target() {
        "/api/none" => answer("404 Not Found", "", "none"),
        "/api/own" => answer("200 OK", "Vary: Accept\r\nAccess-Control-Allow-Origin: *\r\n", ""),
        target => answer("200 OK", "", target),
    });
    let trial = Recipe::new("cors").backend("127.0.0.1:3000", app.address()).run();
    assert!(app.requests().iter().all(|seen| seen.method() == "GET"), "preflights do not pass");
    let host = "api.example.org";
    let ask = |target: &str, origin: &str| {
        let response = trial.get_with(host, target, &format!("Origin: {origin}\r\n"));
        assert_eq!(response.field("Vary"), Some("Origin"), "{response:?}");
        response.field("Access-Control-Allow-Origin").map(str::to_owned)
    };
    let page = "https://app.example.org";
    assert_eq!(ask("/api/none", page).as_deref(), Some(page), "errors have the fields, too");
    let own = trial.get_with(host, "/api/own", &format!("Origin: {page}\r\n"));
    let fields = ["Vary", "Access-Control-Allow-Origin"].map(|name| own.field(name));
    assert_eq!(fields, [Some("Accept, Origin"), Some(page)], "{own:?}");
    let plain = trial
        .sh("curl -s -o /dev/null -w '%{http_code}' -X OPTIONS http://api.example.org/api/users");
    assert_eq!(plain, "200", "an OPTIONS that is no preflight passes");
    for other in ["null", "https://app.example.org.evil.example", "http://app.example.org"] {
        assert_eq!(ask("/api/users", other), None, "{other}");
    }
    drop(app);
    assert_eq!(ask("/api/users", page).as_deref(), Some(page), "and errors of the server's own");
}

#[test]
fn security_headers() {
    let trial = Recipe::new("security-headers").run();
    let response = trial.get(HOST, "/");
    let policy = "default-src 'self'; frame-ancestors 'self'";
    assert_eq!(response.field("Content-Security-Policy"), Some(policy));
    assert_eq!(response.field("Server"), None, "{response:?}");
}

#[test]
fn hidden_files() {
    let recipe = Recipe::new("hidden-files")
        .file("srv/www/.env", "secret")
        .file("srv/www/.git/config", "[core]")
        .file("srv/www/.well-known/security.txt", "Contact: mailto:a@example.org\n")
        .file("srv/www/.well-known/.env", "secret")
        .file("srv/www/dump.sql", "secret")
        .file("srv/outside", "secret");
    std::os::unix::fs::symlink("../outside", recipe.path("srv/www/link")).expect("a link");
    let trial = recipe.run();
    for target in [
        "/.git/config",
        "/a/.svn/entries",
        "/index.html~",
        "/link",
        "//.env",
        "/./.env",
        "/.well-known/.env",
        "/.well-known/../.env",
    ] {
        assert_eq!(trial.get(HOST, target).status, 403, "{target}");
    }
    is(&trial, (HOST, "/"), 200, "home\n");
}
