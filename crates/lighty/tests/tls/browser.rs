//! lighty's pages in a real browser.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lighty_testkit::real::chromium::Chromium;
use lighty_testkit::real::find_optional;
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;
use lighty_testkit::{lighty, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that shows a copy of the example site's page of this name.
fn showing(page: &str, config: &str) -> Server {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site/root");
    let mut setup: Setup = lighty!().config(config);
    for directory in ["", page] {
        let entries = std::fs::read_dir(site.join(directory)).expect("the example site");
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            let name = entry.file_name().into_string().expect("UTF-8");
            let path = Path::new(directory).join(name);
            let content = std::fs::read(entry.path()).expect("a file");
            setup = setup.file(path.to_str().expect("UTF-8"), content);
        }
    }
    setup.start()
}

#[test]
fn a_browser_watches_its_upload() {
    let Some(browser) = Chromium::start() else { return };
    let server = showing(
        "upload",
        "server.max-worker = 2\nindex-file.names = ( \"index.html\" )\n\
         upload-progress.progress-url = \"/progress\"\n\
         $HTTP[\"url\"] =^ \"/upload/\" { cgi.assign = ( \".sh\" => \"/bin/sh\" ) }",
    );
    browser.open(&format!("http://{}/upload/", server.address()));
    assert_eq!(browser.run("return document.title"), "Upload · lighty");
    // A program that is slow to read makes an upload that takes a while, however fast the machine.
    let slow = "bytes=0\nwhile piece=$(head -c 4194304 | wc -c) && [ \"$piece\" -gt 0 ]; do\n\
                bytes=$((bytes + piece))\nsleep 0.1\ndone\nprintf 'X: y\\n\\n%s' \"$bytes\"\n";
    std::fs::write(server.root("upload/receive.sh"), slow).expect("a file");
    let begun = Instant::now();
    let _ = browser.run("document.getElementById('sample').click(); return 'clicked'");
    let state = || {
        browser.run(
            "const row = document.querySelector('.upload'); \
             return [row.dataset.state, row.dataset.seen || 0, \
             row.querySelector('progress').value, \
             row.querySelector('.numbers').textContent].join('|')",
        )
    };
    let done = wait_until(PATIENCE, || state().starts_with("done|"));
    assert!(done, "{} after {:?}\n{}", state(), begun.elapsed(), server.log());
    let state = state();
    let fields: Vec<&str> = state.split('|').collect();
    let seen: u32 = fields[1].parse().expect("a number");
    assert!(seen >= 2, "the bar was seen on its way: {state}");
    assert_eq!(fields[2..], ["1", "67.1 MB"], "{state}");
}

#[test]
fn the_status_page_sorts_its_connections() {
    let Some(browser) = Chromium::start() else { return };
    let server = showing("", "status.status-url = \"/server-status\"\nserver.max-worker = 2");
    let _idle: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let mut asks = server.connect();
    asks.send("GET /<b>bold</b> HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(asks.response().status, 404);
    browser.open(&format!("http://{}/server-status", server.address()));
    let rows = "return String(document.querySelectorAll('#connections tbody tr').length)";
    let listed = wait_until(PATIENCE, || {
        let count: u32 = browser.run(rows).parse().expect("a number");
        if count < 5 {
            browser.open(&format!("http://{}/server-status", server.address()));
        }
        count >= 5
    });
    assert!(listed, "{}", browser.run(rows));
    let sorted = browser.run(
        "document.querySelectorAll('th button')[1].click(); \
         const states = Array.from(document.querySelectorAll('#connections tbody tr'), \
         (row) => row.cells[1].textContent); \
         return String(states.join() === states.toSorted().join())",
    );
    assert_eq!(sorted, "true");
    assert_eq!(browser.run("return String(document.querySelectorAll('td b').length)"), "0");
}

#[test]
fn the_status_page_renews_itself() {
    let Some(browser) = Chromium::start() else { return };
    let server = showing("", "status.status-url = \"/server-status\"");
    browser.open(&format!("http://{}/server-status", server.address()));
    let _ = browser.run(
        "document.querySelectorAll('th button')[0].click(); \
         document.querySelectorAll('th button')[0].focus(); return ''",
    );
    for _ in 0..25 {
        assert_eq!(server.get("/nothing").status, 404);
    }
    let rows = "return Array.from(document.querySelectorAll('#routes tbody tr'), \
                (row) => row.cells[0].textContent + '=' + row.cells[1].textContent).join(' ')";
    let is_shown = || browser.run(rows).split(' ').any(|row| row == "mod_staticfile=25");
    assert!(wait_until(PATIENCE, is_shown), "{}", browser.run(rows));
    let drawn = "return String(document.querySelectorAll('#charts polyline').length)";
    assert!(wait_until(PATIENCE, || browser.run(drawn) == "7"), "{}", browser.run(drawn));
    // The selected heading stays selected, and has the keyboard focus.
    let chosen = browser.run(
        "return [document.activeElement.textContent, \
         document.querySelector('th[aria-sort]').textContent].join('|')",
    );
    assert_eq!(chosen, "Client|Client");
    let _ = browser.run("document.querySelector('.live').click(); return ''");
    let paused = browser.run("return document.querySelector('.live').textContent");
    assert_eq!(paused, "Paused: go on");
    let output = "return document.querySelector('svg').getAttribute('aria-label')";
    assert!(browser.run(output).starts_with("Responses per second: "), "{}", browser.run(output));
}

/// Search of `make docs` in the browser. `operations::documentation` covers all phrases.
#[test]
fn documentation_site_is_searched() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let generator = tree.join("target/docs/venv/bin/mkdocs");
    let Some(_) = find_optional(&[generator.to_str().expect("UTF-8")]) else { return };
    let Some(browser) = Chromium::start() else { return };
    let server = showing("", "");
    let status = Command::new(tree.join("scripts/docs.sh")).arg(server.root("manual")).status();
    assert!(status.expect("scripts/docs.sh starts").success());
    browser.open(&format!("http://{}/manual/index.html?q=ip+whitelist", server.address()));
    let first = "const link = document.querySelector('.md-search-result__link'); \
                 return link ? link.pathname : ''";
    assert!(wait_until(PATIENCE, || !browser.run(first).is_empty()), "no result");
    assert_eq!(browser.run(first), "/manual/recipes/ip-allow-list.html");
}

/// Page that opens a WebSocket to its origin, and reports the reply.
const SOCKET_PAGE: &str = "<!doctype html><title>before</title><p></p>\
<script src=\"app.js\"></script>";

const SOCKET_SCRIPT: &str = "\
const socket = new WebSocket('wss://' + location.host + '/socket', 'echo');
socket.binaryType = 'arraybuffer';
const said = [];
socket.onopen = () => { said.push('open ' + socket.protocol); socket.send('a word'); };
socket.onerror = () => { document.title = 'failed'; };
socket.onclose = (event) => {
    said.push('closed ' + event.code + ' ' + event.reason);
    document.title = said.join(', ');
};
socket.onmessage = (event) => {
    if (event.data === 'a word') {
        said.push(event.data);
        socket.send(new Uint8Array(300000).fill(7));
    } else {
        const bytes = new Uint8Array(event.data);
        said.push(bytes.length + ' times ' + (bytes.every((byte) => byte === 7) ? 7 : '?'));
        socket.send('close 4001');
    }
};
document.querySelector('p').textContent = 'run';
";

#[test]
fn a_page_and_its_websocket_come_over_tls_and_http2() {
    let Some(browser) = Chromium::start() else { return };
    let Some(backend) = WebSocketServer::start() else { return };
    let setup = lighty!();
    let authority = Authority::new(setup.directory());
    authority.issue("pair.pem", &["127.0.0.1"]);
    let server = setup
        .file("index.html", SOCKET_PAGE)
        .file("app.js", SOCKET_SCRIPT)
        .config("index-file.names = ( \"index.html\" )\nssl.engine = \"enable\"")
        .config("mimetype.assign = ( \".html\" => \"text/html\", \".js\" => \"text/javascript\" )")
        .config(&format!("ssl.pemfile = \"{}\"", authority.path("pair.pem").display()))
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%U %H %s\"")
        .config(&format!(
            "$HTTP[\"url\"] == \"/socket\" {{\n  proxy-core.protocol = \"http\"\n  \
             proxy-core.upgrade = \"enable\"\n  proxy-core.backends = ( \"{}\" )\n}}",
            backend.listen().backend()
        ))
        .start();
    browser.open(&format!("https://{}/", server.address()));
    let title = || browser.run("return document.title");
    let is_over = wait_until(PATIENCE, || title() != "before");
    assert!(is_over, "{}\n{}", browser.run("return document.body.innerText"), server.log());
    assert_eq!(title(), "open echo, a word, 300000 times 7, closed 4001 as asked");
    let protocols = "return ['navigation', 'resource'].flatMap((kind) => \
                     performance.getEntriesByType(kind).map((one) => one.nextHopProtocol)).join()";
    assert!(browser.run(protocols).starts_with("h2,h2"), "{}", browser.run(protocols));
    // The WebSocket is a stream of the page's connection.
    let log = || std::fs::read_to_string(server.directory().join("access.log")).unwrap_or_default();
    assert!(wait_until(PATIENCE, || log().contains("/socket HTTP/2.0 200")), "{}", log());
}
