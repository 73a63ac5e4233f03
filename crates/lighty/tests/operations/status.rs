//! Status and statistics of the server.

use std::time::Duration;

use lighty_testkit::backend::{Backend, Port};
use lighty_testkit::http2::Http2;
use lighty_testkit::{lighty, wait_until};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);

const URLS: &str = "status.status-url = \"/server-status\"\n\
                    status.config-url = \"/server-config\"\n\
                    status.statistics-url = \"/server-counters\"\n";

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    found.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

#[test]
fn figures_are_those_of_all_workers() {
    let server =
        lighty!().file("a", "0123456789").config(URLS).config("server.max-worker = 3").start();
    for _ in 0..60 {
        assert_eq!(server.get("/a").status, 200);
    }
    // A request is counted when its response is out, which its client may know first.
    let mut seen = 0;
    let total = || server.get("/server-status?auto");
    let counted = wait_until(SOON, || {
        seen += 1;
        line(total().text(), "Total Accesses") == (59 + seen).to_string()
    });
    assert!(counted, "{}", total().text());
    let auto = server.get("/server-status?auto");
    assert_eq!(auto.field("Content-Type"), Some("text/plain"));
    for name in ["Total kBytes", "Uptime", "BusyServers", "IdleServers", "Traffic", "Traffic5s"] {
        let value: Result<u64, _> = line(auto.text(), name).parse();
        assert!(value.is_ok(), "{name}:\n{}", auto.text());
    }
    assert!(line(auto.text(), "Scoreboard").contains('h'), "the one that asks: {}", auto.text());

    let counters = server.get("/server-counters").text().to_owned();
    let requests: u64 = line(&counters, "server.requests").parse().expect("a number");
    assert!(requests >= 60, "{counters}");
    let names: Vec<_> = counters.lines().map(|line| line.split(": ").next()).collect();
    assert!(names.is_sorted(), "{counters}");

    let script = server.get("/server-status?jsonp=cb");
    assert_eq!(script.field("Content-Type"), Some("application/javascript"));
    assert!(
        script.text().starts_with("cb({\"RequestsTotal\":") && script.text().ends_with("});\n")
    );
    assert_eq!(script.text().matches(['{', '[']).count(), 1, "totals alone: {}", script.text());
    assert_eq!(script.field("Cross-Origin-Resource-Policy"), None);
    for (target, accept) in
        [("?jsonp=alert(1)", ""), ("?json", ""), ("", "Accept: application/json\r\n")]
    {
        let json = server.get_with(&format!("/server-status{target}"), accept);
        assert_eq!(json.field("Content-Type"), Some("application/json"));
        assert_eq!(json.field("Cache-Control"), Some("no-store"));
        assert_eq!(json.field("Cross-Origin-Resource-Policy"), Some("same-origin"));
        assert_eq!(json.field("X-Content-Type-Options"), Some("nosniff"));
        assert!(json.text().contains("\"workers_expected\":3,"), "{}", json.text());
        assert!(json.text().contains("\"worker\":2,"), "{}", json.text());
        assert!(json.text().contains("\"file_engine\":"), "{}", json.text());
    }
}

#[test]
fn connections_are_listed_with_their_requests() {
    let backend = Backend::start(|peer| {
        while peer.head().is_some() {
            // The server responds when the connection ends.
            peer.hang();
        }
    });
    let server = lighty!()
        .config(URLS)
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/hang\" {{\n  proxy-core.protocol = \"http\"\n  \
             proxy-core.backends = ( \"{}\" )\n}}",
            backend.address()
        ))
        .start();
    let mut waits = server.connect();
    waits.send("GET /hang/<there>?q=1 HTTP/1.1\r\nHost: Some.Host\r\n\r\n");
    let mut sends = server.connect();
    sends.send("POST /hang/up HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
    let idle = server.connect();
    let page = || server.get("/server-status?json").text().to_owned();
    let wanted = |page: &str| {
        page.contains(
            "\"state\":\"handle request\",\"client\":\"127.0.0.1\",\"method\":\"GET\",\
                       \"host\":\"some.host\",\"url\":\"/hang/\\u003cthere>?q=1\"",
        ) && page.contains("\"state\":\"read body\"")
            && page.contains("\"state\":\"idle\"")
    };
    assert!(wait_until(SOON, || wanted(&page())), "{}", page());
    drop(idle);
    let html = server.get("/server-status?refresh=7");
    assert_eq!(html.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert!(html.text().contains("<meta http-equiv=\"refresh\" content=\"7\">"));
    assert!(html.text().contains("GET /hang/&lt;there&gt;?q=1"), "{}", html.text());
    assert!(html.text().contains("<script>"));
    let counters = server.get("/server-counters").text().to_owned();
    assert_eq!(line(&counters, "proxy-core.requests"), "2");
}

#[test]
fn each_stream_is_counted_and_listed_with_its_request() {
    let backend = Backend::start(|peer| {
        while peer.head().is_some() {
            // The server responds when the connection ends.
            peer.hang();
        }
    });
    let server = lighty!()
        .config(URLS)
        .config("status.metrics-url = \"/metrics\"\nserver.max-worker = 1")
        .config(&format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" )",
            backend.address()
        ))
        .start();
    let mut client = Http2::connect(server.address());
    let long = format!("/long?{}", "x".repeat(2000));
    for target in ["/one", "/two", &long] {
        client.request("GET", target, &[], true);
    }
    let listed = || {
        let page: Value =
            serde_json::from_slice(&server.get("/server-status?json").body).expect("JSON");
        page["connections"].as_array().expect("a list").clone()
    };
    let of = |rows: &[Value], url: &str| {
        let is_it = |row: &&Value| row["url"].as_str().is_some_and(|text| text.starts_with(url));
        rows.iter().find(is_it).map(|row| row["connection"].clone())
    };
    let rows = || ["/one", "/two", "/long?x"].map(|url| of(&listed(), url));
    assert!(wait_until(SOON, || rows().iter().all(Option::is_some)), "{:?}", listed());
    let rows = rows();
    assert!(rows[0] == rows[1] && rows[1] == rows[2], "of one connection: {rows:?}");
    let listed = listed();
    assert_eq!(listed.len(), 4, "one for each stream, and the one that asks: {listed:?}");
    assert!(listed.iter().all(|row| row["url"].as_str().is_some_and(|url| url.len() <= 1024)));
    let metrics = server.get("/metrics");
    for line in [
        "lighty_http2_streams{state=\"handle_request\"} 3\n",
        "lighty_connections{state=\"handle_request\"} 2\n",
    ] {
        assert!(metrics.text().contains(line), "{line}{}", metrics.text());
    }
    let page = server.get("/server-status");
    assert!(page.text().contains("GET /two</td>"), "{}", page.text());
    let auto = server.get("/server-status?auto");
    assert_eq!(line(auto.text(), "Scoreboard").len(), 2, "a letter for each connection");
}

#[test]
fn paths_are_others_without_a_setting_or_another_method() {
    let server = lighty!()
        .config("server.modules += ( \"mod_status\" )\n\
                 $HTTP[\"host\"] == \"on\" { status.status-url = \"/s\"\nstatus.enable-sort = \"disable\" }")
        .start();
    assert_eq!(server.get("/s").status, 404);
    let ask = |request: &str| lighty_testkit::peer::ask(server.connect(), request);
    let on = ask("GET /s HTTP/1.1\r\nHost: on\r\n\r\n");
    assert_eq!(on.status, 200);
    assert!(!on.text().contains("<script>"), "{}", on.text());
    assert_eq!(ask("POST /s HTTP/1.1\r\nHost: on\r\nContent-Length: 0\r\n\r\n").status, 404);
    let head = ask("HEAD /s HTTP/1.1\r\nHost: on\r\n\r\n");
    assert_eq!(head.status, 200);
    let config = lighty!().config(URLS).start();
    let page = config.get("/server-config");
    assert!(page.text().contains("<code>mod_status</code>"), "{}", page.text());
    assert!(page.text().contains("File engine"), "{}", page.text());
}

/// Same result as lighttpd, for the handler of all errors alone.
#[test]
fn page_as_error_handler_keeps_the_status_of_the_error() {
    for (handler, status) in [("error-handler", 404), ("error-handler-404", 200)] {
        for page in ["/server-status?auto", "/server-config", "/server-counters"] {
            let config = format!("{URLS}server.{handler} = \"{page}\"");
            let server = lighty!().config(&config).start();
            let got = server.get("/none");
            assert_eq!(got.status, status, "{handler} {page}");
            assert_eq!(got.field("Cache-Control"), Some("no-store"));
            assert!(got.text().contains(": ") && !got.text().contains("404"), "{}", got.text());
            assert_eq!(server.get(page).status, 200);
        }
    }
}

#[test]
fn the_page_says_how_each_backend_does_and_why() {
    let well = Backend::answering("x");
    let port = Port::reserve();
    let gone = port.address();
    let server = lighty!()
        .config(URLS)
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/app/\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{}\", \"{gone}\" ) }}",
            well.address(),
        ))
        .start();
    let page = || server.get("/server-status").text().to_owned();
    let is_down = wait_until(SOON, || {
        assert_eq!(server.get("/app/").status, 200);
        page().contains("<td class=\"down\">down: ")
    });
    let page = page();
    assert!(is_down && page.contains("<h2>Backends</h2>"), "{page}");
    assert!(
        page.contains(&format!("<tr><td>{}</td><td class=\"up\">up</td>", well.address())),
        "{page}"
    );
    assert!(page.contains(&gone.to_string()) && page.contains("refused"), "{page}");
    let json = server.get("/server-status?json");
    assert!(json.text().contains("\"state\":\"down\",\"why\":\""), "{}", json.text());
}
