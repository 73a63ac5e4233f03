//! The module that `docs/example-module.md` shows.

#[expect(unreachable_pub, reason = "a module of lighty-modules is public")]
mod gone;

use lighty_testkit::client::Client;

use crate::harness;
use gone::Gone;

#[test]
fn module_of_the_documentation_works() {
    let urls = "gone.urls = ( \"/2006/\", \"/old/\" )";
    let conditional = format!("$HTTP[\"host\"] == \"a\" {{ {urls} }}");
    let mut client = Client::tcp(harness::start_one(Gone, &conditional));
    for (host, path, status) in
        [("a", "/2006/x", 410), ("a", "/old/", 410), ("a", "/2007/", 404), ("b", "/2006/x", 404)]
    {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, status, "{host}{path}");
    }
}

#[test]
fn documentation_shows_the_module_as_it_is() {
    let page = include_str!("../../../../docs/example-module.md");
    let source = include_str!("example_module/gone.rs");
    assert!(
        page.contains(&format!("```rust\n{source}```\n")),
        "docs/example-module.md is outdated"
    );
    assert!(source.lines().count() <= 60, "the module is to stay small");
}
