//! Rows of the manual's page for users of other servers: nginx with its line and lighty with the
//! line beside it get the same requests.

use std::path::Path;

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::peer::ask;
use lighty_testkit::real::nginx::Nginx;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Setup, write_file};

/// lighty's line in the row that begins with this cell.
fn row(theirs: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/other-servers.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let head = format!("| `{theirs}` | `");
    let row = text.lines().find_map(|line| line.strip_prefix(&*head));
    let row = row.unwrap_or_else(|| panic!("no row for {theirs}"));
    let (ours, _) = row.split_once('`').expect("an end");
    ours.replace("\\|", "|")
}

/// Files that both serve.
fn site(setup: &Setup) {
    for (path, content) in [
        ("index.html", "home\n"),
        ("page.txt", "text\n"),
        ("b/page.txt", "b\n"),
        ("list/one.txt", "one\n"),
        ("index.php", "front\n"),
    ] {
        write_file(&setup.root(path), content);
    }
    let gone = "gone\n";
    write_file(&setup.root("404.html"), gone);
    write_file(&setup.directory().join("errors/404.html"), gone);
}

/// Properties of a response that must be equal for a client.
#[derive(Debug, PartialEq, Eq)]
struct ComparedResponse {
    status: u16,
    location: Option<String>,
    field: Option<String>,
    body: Option<String>,
}

fn seen(response: &Response, field: &str) -> ComparedResponse {
    let value = |name: &str| response.field(name).map(str::to_owned);
    // nginx makes redirections absolute.
    let location = value("Location").map(|place| place.replace("http://www.example.org", ""));
    // Pages that the servers make themselves differ.
    let (body, is_redirection) = (response.text(), (300..400).contains(&response.status));
    let body = (!is_redirection && !body.contains("<html")).then(|| body.to_owned());
    ComparedResponse { status: response.status, location, field: value(field), body }
}

/// Sends requests for these targets to both servers, and compares the responses, including `field`.
fn are_same(theirs: &str, field: &str, targets: &[&str]) {
    let ours = row(theirs).replace("/srv/errors/", "@DIR@/errors/");
    let mut setup = lighty!().config(&ours);
    if !ours.contains("index-file.names") {
        setup = setup.config("index-file.names = ( \"index.html\" )");
    }
    site(&setup);
    let root = setup.root("");
    let lines = format!("port_in_redirect off;\n{theirs}");
    let Some(nginx) = Nginx::start(&root, &lines) else { return };
    let server = setup.start();
    for target in targets {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: www.example.org\r\nConnection: close\r\n\r\n");
        let peer = ask(Client::tcp(nginx.listen().address()), &request);
        let own = ask(server.connect(), &request);
        let given = seen(&own, field);
        assert_eq!(given, seen(&peer, field), "{theirs} {target}: {own:?} and nginx: {peer:?}");
    }
}

#[test]
fn rows_do_what_nginx_does() {
    let missing = ["/none", "/none/deeper?a=1", "/page.txt"];
    are_same("error_page 404 /404.html;", "", &missing);
    let moved = ["/page.txt?a=1", "/", "/a%20b?c=%26d", "/none"];
    are_same("return 301 https://other.example$request_uri;", "", &moved);
    are_same("rewrite ^/a/(.*)$ /b/$1 last;", "", &["/a/page.txt", "/a/none", "/b/page.txt", "/"]);
    are_same("add_header X-Name value;", "X-Name", &["/page.txt", "/"]);
    are_same("expires 30d;", "Cache-Control", &["/page.txt", "/", "/none"]);
    are_same("autoindex on;", "", &["/list/", "/list", "/", "/none/"]);
    are_same("index index.php index.html;", "", &["/", "/list/"]);
    let front = ["/page.txt", "/none?a=1", "/none/deeper", "/list/", "/b/page.txt", "/"];
    are_same("try_files $uri $uri/ /index.php?$args;", "", &front);
    are_same("try_files $uri =404;", "", &["/page.txt", "/none", "/list/one.txt"]);
}

/// nginx redirects endlessly on port 443 with this server block; lighty must not.
#[test]
fn redirection_to_https_is_for_clear_text() {
    let setup = lighty!().config(&row("return 301 https://$host$request_uri;"));
    let server = setup.file("page.txt", "text\n").start();
    let response = server.get("/page.txt?a=1");
    assert_eq!(response.status, 301);
    assert_eq!(response.field("Location"), Some("https://localhost/page.txt?a=1"));
}

#[test]
fn redirections_of_caddy_and_apache() {
    for (theirs, expected) in [
        // Caddy compares the path alone, and the query of the request is dropped.
        ("redir /old /new", [Some("/new"), Some("/new"), None, None]),
        // Apache compares whole segments, and appends the rest of the URL, with the query.
        ("Redirect /old /new", [Some("/new"), Some("/new?a=1"), Some("/new/deep?a=1"), None]),
    ] {
        let server = lighty!().config(&row(theirs)).start();
        let targets = ["/old", "/old?a=1", "/old/deep?a=1", "/older"];
        for (target, to) in targets.iter().zip(expected) {
            assert_eq!(server.get(target).field("Location"), to, "{theirs} {target}");
        }
    }
}

/// Apache sends directories to the program, too, unless `!-d` excludes them. Caddy serves them.
#[test]
fn front_controllers_of_apache_and_caddy() {
    for (theirs, list, home) in [
        ("RewriteCond %{REQUEST_FILENAME} !-f`, `RewriteRule ^ index.php", "front\n", "front\n"),
        (
            "RewriteCond %{REQUEST_FILENAME} !-f`, `RewriteCond %{REQUEST_FILENAME} !-d`, \
             `RewriteRule ^ index.php",
            "listed\n",
            "home\n",
        ),
        ("php_fastcgi unix//run/php/php-fpm.sock", "listed\n", "home\n"),
    ] {
        let setup = lighty!().config(&row(theirs));
        let setup = setup.config("index-file.names = ( \"index.html\" )");
        site(&setup);
        write_file(&setup.root("list/index.html"), "listed\n");
        let server = setup.start();
        for (target, text) in
            [("/page.txt", "text\n"), ("/none?a=1", "front\n"), ("/list/", list), ("/", home)]
        {
            assert_eq!(server.get(target).text(), text, "{theirs} {target}");
        }
    }
}
