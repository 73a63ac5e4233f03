//! Stored responses in front of applications.

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::real::Listen;
use lighty_testkit::real::php::PhpFpm;

use super::trial::{Recipe, Trial};

/// An application that responds with its target, and with these fields.
fn app(fields: &'static str) -> Backend {
    Backend::replying(move |seen| answer("200 OK", fields, &format!("{}\n", seen.target())))
}

/// The result of the cache, by `Cache-Status`.
fn result(trial: &Trial, host: &str, target: &str) -> String {
    let response = trial.get(host, target);
    response.field("Cache-Status").unwrap_or("none").to_owned()
}

#[test]
fn wordpress_cache() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let Listen::Unix(socket) = fpm.listen() else { panic!("PHP-FPM has a socket") };
    let recipe = Recipe::new("wordpress-cache");
    let trial = recipe.replace("/run/php/php-fpm.sock", socket.display()).run();
    // Permalinks are kept apart, although one script serves them all.
    for page in ["/first/", "/second/", "/first/", "/second/"] {
        let response = trial.get("www.example.org", page);
        assert_eq!(response.text(), format!("front GET {page} query=\n"));
    }
    let text = trial.get("www.example.org", "/first/?utm_x=1&a=2").text().to_owned();
    assert_eq!(text, "front GET /first/?a=2 query=a=2\n");
    assert_eq!(result(&trial, "www.example.org", "/wp-admin/"), "none");
}

#[test]
fn api_microcache() {
    let app = app("");
    let trial = Recipe::new("api-microcache").backend("127.0.0.1:3000", app.address()).run();
    assert_eq!(trial.get("api.example.org", "/a?b=1").text(), "/a?b=1\n");
}

#[test]
fn package_mirror() {
    let app = app("Content-Type: application/vnd.debian.binary-package\r\n\
         Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n");
    let trial = Recipe::new("package-mirror").backend("127.0.0.1:3000", app.address()).run();
    let index = "/debian/dists/stable/Release";
    for expected in ["lighty; fwd=uri-miss; stored", "lighty; hit; ttl="] {
        let found = result(&trial, "deb.example.org", index);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn registry_cache() {
    let app = app("");
    let trial = Recipe::new("registry-cache").backend("127.0.0.1:5000", app.address()).run();
    for expected in ["lighty; fwd=uri-miss; stored", "lighty; hit; ttl="] {
        let found = result(&trial, "registry.example.org", "/v2/app/manifests/latest");
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn image_cdn() {
    let app = app("Content-Type: image/webp\r\nVary: Accept\r\n");
    let trial = Recipe::new("image-cdn").backend("127.0.0.1:3000", app.address()).run();
    assert_eq!(trial.get("img.example.org", "/dog.jpg?w=1&x=2").text(), "/dog.jpg?w=1\n");
}
