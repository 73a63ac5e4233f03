//! A server that nobody configured: `lighty serve`, and what it says when it cannot start.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

/// `lighty serve` of a path beneath the document root, on a port that the kernel chooses.
fn serve(setup: Setup, path: &str, flags: &[&str]) -> (Server, SocketAddr) {
    let path = setup.root(path);
    let mut arguments = vec!["serve", path.to_str().expect("UTF-8"), "--listen", "127.0.0.1:0"];
    arguments.extend(flags);
    let server = setup.spawn(&arguments);
    server.await_log("http://127.0.0.1:");
    let address = server.listening()[0];
    (server, address)
}

fn ask(address: SocketAddr, method: &str, target: &str) -> Response {
    let mut client = Client::tcp(address);
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
    client.response()
}

#[test]
fn a_directory_is_served_without_a_configuration() {
    let setup = lighty!().file("a.txt", "hello\n").file("dir/b", "x");
    let root = setup.root("");
    let root = root.to_str().expect("UTF-8").to_owned();
    let mut server = setup.spawn(&["serve", &root, "--listen", "127.0.0.1:0", "--browse"]);
    server.await_log("http://127.0.0.1:");
    let mut client = Client::tcp(server.listening()[0]);
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "hello\n");
    client.send("GET /dir/ HTTP/1.1\r\nHost: a\r\n\r\n");
    let listing = client.response();
    assert_eq!(listing.status, 200);
    assert!(listing.text().contains("href=\"b\""), "{listing:?}");
    server.stop();
}

#[test]
fn a_page_is_served_as_the_index_of_its_directory() {
    let setup = lighty!().file("my page.html", "mine").file("index.html", "other").file("a", "A");
    let (_server, address) = serve(setup, "my page.html", &[]);
    assert_eq!(ask(address, "GET", "/").text(), "mine");
    assert_eq!(ask(address, "GET", "/my%20page.html").text(), "mine");
}

#[test]
fn named_file_does_not_publish_its_directory() {
    let neighbours = ["/a", "/index.html", "/dir/", "/dir/b", "/.env", "/my%20page.html/x"];
    for flags in [&[][..], &["--browse"], &["--precompressed"], &["--hidden"]] {
        let setup = lighty!().file("my page.html", "mine").file("index.html", "other");
        let setup = setup.file("a", "A").file("dir/b", "B").file(".env", "secret");
        let (_server, address) = serve(setup, "my page.html", flags);
        assert_eq!(ask(address, "GET", "/").text(), "mine");
        for target in neighbours {
            let response = ask(address, "GET", target);
            assert!([403, 404].contains(&response.status), "{flags:?} {target}: {response:?}");
        }
    }
    let setup = lighty!().file("my page.html", "mine").file("a", "A").file("dir/b", "B");
    let (_server, address) = serve(setup, "my page.html", &["--spa"]);
    for target in ["/", "/a", "/dir/b", "/none?x=1", "/my%20page.html", "/dir/"] {
        assert_eq!(ask(address, "GET", target).text(), "mine", "{target}");
    }
}

#[test]
fn names_that_begin_with_a_dot_need_a_switch() {
    let setup = || {
        let setup = lighty!().file(".env", "secret").file(".git/config", "url").file("a.b", "A");
        setup.file(".well-known/security.txt", "mail").file(".well-known/.x", "no")
    };
    let (_server, address) = serve(setup(), "", &[]);
    let hidden = ["/.env", "/%2eenv", "/.git/config", "/.git/", "//.env", "/.well-known/.x"];
    for target in hidden.into_iter().chain(["/.well-known/../.env", "/.git"]) {
        assert_eq!(ask(address, "GET", target).status, 403, "{target}");
    }
    assert_eq!(ask(address, "GET", "/a.b").text(), "A");
    assert_eq!(ask(address, "GET", "/.well-known/security.txt").text(), "mail");
    let (_server, address) = serve(setup(), "", &["--hidden"]);
    assert_eq!(ask(address, "GET", "/.env").text(), "secret");
}

#[test]
fn index_files_can_be_named() {
    let setup = lighty!().file("start.txt", "started").file("index.html", "other");
    let (_server, address) = serve(setup, "", &["--index", "none", "--index", "start.txt"]);
    assert_eq!(ask(address, "GET", "/").text(), "started");
}

#[test]
fn a_single_page_application_gets_every_url_that_is_no_file() {
    let setup = lighty!().file("index.html", "app").file("dir/a.js", "js");
    let (_server, address) = serve(setup, "", &["--spa"]);
    for target in ["/", "/some/route", "/some/route?a=b", "/dir/none.js"] {
        let answer = ask(address, "GET", target);
        assert_eq!((answer.status, answer.text()), (200, "app"), "{target}");
    }
    assert_eq!(ask(address, "GET", "/dir/a.js").text(), "js");
}

#[test]
fn other_sites_may_read_where_that_is_asked_for() {
    let (_server, address) = serve(lighty!().file("a", "A"), "", &["--cors"]);
    assert_eq!(ask(address, "GET", "/a").field("Access-Control-Allow-Origin"), Some("*"));
    let preflight = ask(address, "OPTIONS", "/a");
    assert!(preflight.status < 300, "{preflight:?}");
    assert_eq!(preflight.field("Access-Control-Allow-Headers"), Some("*"));
    let (_server, address) = serve(lighty!().file("a", "A"), "", &[]);
    assert_eq!(ask(address, "GET", "/a").field("Access-Control-Allow-Origin"), None);
}

#[test]
fn text_is_compressed_unless_that_is_not_wanted() {
    let text = "so much text ".repeat(1000);
    let setup = || lighty!().file("a.txt", &text).file("b.txt", &text).file("b.txt.gz", "made");
    let coding = |flags: &[&str], target| {
        let (_server, address) = serve(setup(), "", flags);
        let answer = ask(address, "GET", target);
        (answer.field("Content-Encoding").map(str::to_owned), answer.body.len())
    };
    let (encoding, length) = coding(&[], "/a.txt");
    assert!(encoding.as_deref() == Some("gzip") && length < text.len(), "{encoding:?} {length}");
    assert_eq!(coding(&["--no-compress"], "/a.txt"), (None, text.len()));
    assert_eq!(coding(&["--precompressed"], "/b.txt"), (Some("gzip".to_owned()), 4));
}

/// What `lighty serve` writes to a terminal while `/a` is asked for.
fn seen_on_a_terminal(flags: &str) -> String {
    let setup = lighty!().file("a", "A");
    let shown = setup.directory().join("shown");
    // A terminal throws away what it has not shown yet when Ctrl-C is typed, unless told otherwise.
    let command = format!(
        "stty noflsh; exec '{}' serve '{}' --listen 127.0.0.1:0 {flags}",
        lighty_testkit::server::binary(env!("CARGO_BIN_EXE_lighty")).display(),
        setup.root("").display(),
    );
    let mut terminal = Command::new("script")
        .args(["-qfec", &command])
        .arg(&shown)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script(1)");
    let text = || std::fs::read_to_string(&shown).unwrap_or_default();
    let mut port = None;
    let is_announced = lighty_testkit::wait_until(Duration::from_secs(30), || {
        let text = text();
        let behind = text.split_once("http://127.0.0.1:").map(|(_, behind)| behind);
        port = behind.and_then(|rest| rest.split_once('/')?.0.parse::<u16>().ok());
        port.is_some()
    });
    assert!(is_announced, "{}", text());
    let port = port.expect("a port");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(ask(address, "GET", "/a").text(), "A");
    // The end of what is typed: Ctrl-C, and the log is written out.
    terminal.stdin.take().expect("a pipe").write_all(b"\x03").expect("typed");
    terminal.wait().expect("its end");
    text()
}

#[test]
fn a_terminal_shows_requests() {
    let shown = seen_on_a_terminal("");
    assert!(shown.contains("127.0.0.1 \"GET /a HTTP/1.1\" 200 1 "), "{shown}");
    let quiet = seen_on_a_terminal("--quiet");
    assert!(quiet.contains("is serving") && !quiet.contains("GET /a"), "{quiet}");
}

#[test]
fn a_port_that_is_taken_says_by_whom() {
    let held = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("its address").port().to_string();
    let setup = lighty!();
    let root = setup.root("");
    let (code, _, err) = setup.run(&["serve", root.to_str().expect("UTF-8"), "--listen", &port]);
    assert_eq!(code, 1);
    assert!(err.contains(&format!("(process {})", std::process::id())), "{err}");
    let foreign = setup.run(&["serve", root.to_str().expect("UTF-8"), "--listen", "192.0.2.1:80"]);
    assert!(foreign.2.contains("no interface of this machine"), "{}", foreign.2);
}

#[test]
fn a_hash_that_is_made_lets_its_user_in() {
    let typed = |password: &str| {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), password).expect("written");
        std::fs::File::open(file.path()).expect("open")
    };
    let hash = |password: &str, arguments: &[&str]| {
        let binary = lighty_testkit::server::binary(env!("CARGO_BIN_EXE_lighty"));
        let made = Command::new(binary)
            .args([&["hash-password", "--cost", "4"], arguments].concat())
            .stdin(typed(password))
            .output()
            .expect("the command");
        (made.status.code(), String::from_utf8_lossy(&made.stdout).into_owned())
    };
    let (code, line) = hash("open sesame\nmore", &["ali"]);
    assert_eq!(code, Some(0));
    assert!(line.starts_with("ali:$2y$04$"), "{line}");
    let server = lighty!()
        .file("a", "A")
        .file("../users", &line)
        .config(
            "auth.backend = \"htpasswd\"\nauth.backend.htpasswd.userfile = \"@DIR@/users\"\n\
             auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    // "ali:open sesame" and "ali:shut".
    for (credentials, status) in [("YWxpOm9wZW4gc2VzYW1l", 200), ("YWxpOnNodXQ=", 401)] {
        let fields = format!("Authorization: Basic {credentials}\r\n");
        assert_eq!(server.get_with("/a", &fields).status, status);
    }
    assert_eq!(hash("", &[]).0, Some(1));
    assert_eq!(hash("x", &["a:b"]).0, Some(1));
}
