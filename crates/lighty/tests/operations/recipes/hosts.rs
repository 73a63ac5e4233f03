//! Names of hosts, certificates, redirections.

use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::tls::{Authority, TlsClient};

use super::applications::{echo, is};
use super::trial::Recipe;

const HOST: &str = "www.example.org";

#[test]
fn lets_encrypt() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let recipe = Recipe::at("lets-encrypt", pebble.http.clone(), pebble.https.clone());
    std::fs::copy(pebble.root(), recipe.path("ca.pem")).expect("a copy");
    let (client, address) = (TlsClient::trusting(&pebble.root()), pebble.https.address());
    let trial = recipe
        .with(&format!("acme.issuers = ( \"{}\" )", pebble.directory()))
        .with(&format!("acme.ca-file = \"{}\"", pebble.ca_file().display()))
        .with("acme.store = \"@DIR@/var/lib/lighty/acme\"")
        .ready_when(move || client.try_connect(address, HOST).is_ok())
        .run();
    let posted = trial.sh("curl -s -o /dev/null -w '%{http_code}' -d x http://example.org/form");
    assert_eq!(posted, "308", "{}", trial.server().log());
    let page = trial.sh("curl -s https://example.org/");
    assert_eq!(page, "home\n", "both names are in the certificate: {}", trial.server().log());
}

#[test]
fn https_with_a_certificate() {
    let recipe = Recipe::new("https-certificate");
    let authority = Authority::new(&recipe.path(""));
    authority.issue("etc/lighty/example.pem", &[HOST]);
    authority.issue("etc/lighty/shop.pem", &["shop.example.net"]);
    let trial = recipe.run();
    // Each name has its own certificate, and the listener's is for all others.
    for (name, is_trusted) in [(HOST, true), ("shop.example.net", true), ("other.test", false)] {
        let connected = authority.client().try_connect(trial.https_address(), name);
        assert_eq!(connected.is_ok(), is_trusted, "{name}");
    }
    let page = trial.sh(
        "curl -s -o /dev/null -w '%header{strict-transport-security}' https://www.example.org/",
    );
    assert_eq!(page, "max-age=31536000");
}

#[test]
fn client_certificates() {
    let recipe = Recipe::new("client-certificates");
    let authority = Authority::new(&recipe.path(""));
    authority.issue("etc/lighty/example.pem", &["*.example.org"]);
    let trial = recipe.run();
    let clear = trial.get("admin.example.org", "/");
    assert_eq!(clear.field("Location"), Some("https://admin.example.org/"), "{clear:?}");
    // A connection for the open host does not serve the other one.
    let mut client = authority.client().connect(trial.https_address(), HOST);
    client.send("GET / HTTP/1.1\r\nHost: admin.example.org\r\n\r\n");
    assert_eq!(client.response().status, 421);
}

#[test]
fn virtual_hosts() {
    let app = echo();
    let trial = Recipe::new("virtual-hosts")
        .backend("127.0.0.1:3000", app.address())
        .file("srv/www/none/index.html", "none\n")
        .file("srv/www/example.org/index.html", "example.org\n")
        .file("srv/www/blog/index.html", "blog\n")
        .run();
    is(&trial, ("example.org", "/"), 200, "example.org\n");
    is(&trial, ("app.example.net", "/users"), 200, "GET /users\n");
    for other in ["example-org", "blog.example.net.evil.example", "127.0.0.1"] {
        assert_eq!(trial.get(other, "/").status, 403, "{other}");
    }
}

#[test]
fn canonical_host() {
    let trial = Recipe::new("canonical-host").run();
    let response = trial.get("example.org", "/a%20b?c=%26");
    assert_eq!(response.field("Location"), Some("http://www.example.org/a%20b?c=%26"));
}

#[test]
fn redirects() {
    let trial = Recipe::new("redirects").run();
    let location = |target: &str| trial.get(HOST, target).field("Location").map(str::to_owned);
    for (target, to) in [
        ("/old", Some("/new")),
        ("/older", None),
        ("/blog", Some("https://blog.example.org")),
        ("/blog/", Some("https://blog.example.org/")),
        ("/blog?page=2", Some("https://blog.example.org?page=2")),
        ("/article.php?id=17", Some("/articles/17")),
        ("/article.php?grid=17", None),
        ("/article.php", None),
    ] {
        assert_eq!(location(target).as_deref(), to, "{target}");
    }
}

#[test]
fn real_address_behind_a_proxy() {
    let trial = Recipe::new("real-ip").replace("10.0.0.5", "127.0.0.1").run();
    // The page's last server wants the header of the PROXY protocol.
    let without = trial.sh("curl -s -o /dev/null -w '%{http_code}' http://www.example.org/");
    assert_eq!(without, "000", "{}", trial.server().log());
}
