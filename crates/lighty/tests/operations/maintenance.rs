//! Routes that are closed for a while: `lighty ctl maintenance ROUTE on`.

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, write_file};

fn shop() -> Setup {
    lighty!()
        .file("shop/a", "shop")
        .file("blog/a", "blog")
        .config("server.pid-file = \"@DIR@/lighty.pid\"\nhealth.ready-url = \"/shop/ready\"")
        .config("$HTTP[\"url\"] =^ \"/shop/\" { status.route = \"shop\" }")
        .config("$HTTP[\"url\"] =^ \"/blog/\" { status.route = \"blog\" }")
}

/// Exit status of `lighty ctl maintenance ARGUMENTS`, and its output.
fn maintenance(server: &Server, arguments: &[&str]) -> (i32, String) {
    let (status, out, err) = crate::ctl::ctl(server, &[&["maintenance"], arguments].concat());
    (status, out + &err)
}

#[test]
fn closed_route_shows_its_page_and_others_are_served() {
    let server = shop().start();
    let page = server.directory().join("page.html");
    write_file(&page, "<p>back at noon</p>");
    let page = page.to_str().expect("UTF-8");
    // Files that are known already are closed, too.
    assert_eq!((server.get("/shop/a").text(), server.get("/blog/a").text()), ("shop", "blog"));
    let (status, text) = maintenance(&server, &["shop", "on", "--page", page]);
    assert_eq!((status, text.as_str()), (0, "shop is closed: its requests get 503\n"));
    for path in ["/shop/a", "/shop/none"] {
        let response = server.get(path);
        assert_eq!((response.status, response.text()), (503, "<p>back at noon</p>"), "{path}");
        assert_eq!(response.field("Retry-After"), Some("120"));
        assert_eq!(response.field("Cache-Control"), Some("no-store"));
    }
    assert_eq!(server.get("/blog/a").text(), "blog");
    assert_eq!(server.get("/shop/ready").status, 200, "probes are answered");
    assert_eq!(maintenance(&server, &["shop", "on"]).0, 0);
    assert!(server.get("/shop/a").text().contains("Down for maintenance"));
    server.signal(rustix::process::Signal::USR1);
    server.await_log("reloaded: generation 1");
    assert_eq!(server.get("/shop/a").status, 503, "a reload keeps the order");
    assert_eq!(maintenance(&server, &["shop", "off"]), (0, "shop is open again\n".into()));
    assert_eq!(server.get("/shop/a").text(), "shop");
    assert_eq!(maintenance(&server, &["shop", "off"]), (0, "shop was not closed\n".into()));
    server.await_log("control: /routes/maintenance");
}

#[test]
fn unknown_routes_and_missing_pages_are_refused() {
    let server = shop().start();
    let (status, text) = maintenance(&server, &["shopp", "on"]);
    assert!(status == 1 && text.contains("the routes are: shop, blog"), "{text}");
    let (status, text) = maintenance(&server, &["shop", "on", "--page", "/nonexistent"]);
    assert!(status == 1 && text.contains("/nonexistent: No such file"), "{text}");
    assert_eq!(server.get("/shop/a").text(), "shop");
}
