//! A server without configuration: `lighty serve`, and its messages when it cannot start.

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

/// A request with these fields and this body.
fn send(address: SocketAddr, method: &str, target: &str, fields: &str, body: &str) -> Response {
    let mut client = Client::tcp(address);
    let length = body.len();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    ));
    client.response()
}

#[test]
fn user_and_password_are_required_where_given() {
    let setup = lighty!().file("a", "A");
    let (_server, address) = serve(setup, "", &["--user", "ali:open:sesame"]);
    assert_eq!(ask(address, "GET", "/a").status, 401);
    // "ali:open:sesame", "ali:open" and "bob:open:sesame".
    for (credentials, status) in
        [("YWxpOm9wZW46c2VzYW1l", 200), ("YWxpOm9wZW4=", 401), ("Ym9iOm9wZW46c2VzYW1l", 401)]
    {
        let fields = format!("Authorization: Basic {credentials}\r\n");
        assert_eq!(send(address, "GET", "/a", &fields, "").status, status, "{credentials}");
    }
}

#[test]
fn uploads_are_taken_where_asked_for_and_replace_nothing() {
    let setup = || lighty!().file("old", "old").file("dir/x", "x");
    let (_server, address) = serve(setup(), "", &[]);
    assert!(send(address, "PUT", "/new", "", "new").status >= 400);
    assert_eq!(ask(address, "GET", "/new").status, 404);
    let (_server, address) = serve(setup(), "", &["--upload"]);
    assert_eq!(send(address, "PUT", "/dir/new", "", "new").status, 201);
    assert_eq!(ask(address, "GET", "/dir/new").text(), "new");
    for target in ["/old", "/dir/new"] {
        assert_eq!(send(address, "PUT", target, "", "other").status, 412, "{target}");
    }
    assert_eq!(ask(address, "GET", "/old").text(), "old");
    for (method, fields) in [
        ("DELETE", ""),
        ("MOVE", "Destination: /moved\r\n"),
        ("COPY", "Destination: /copied\r\n"),
        ("PROPFIND", ""),
        ("MKCOL", ""),
    ] {
        assert_eq!(send(address, method, "/old", fields, "").status, 403, "{method}");
    }
    assert_eq!(send(address, "PUT", "/.env", "", "x").status, 403);
    let listing = send(address, "GET", "/dir/", "Accept: text/html\r\n", "");
    assert!(listing.text().contains("data-upload"), "{}", listing.text());
    assert!(listing.text().contains("<main>") && listing.text().contains("</main>"));
    let policy = listing.field("Content-Security-Policy").unwrap_or_default();
    assert!(policy.contains("connect-src 'self'"), "{policy}");
    let (_server, address) = serve(setup(), "", &["--upload", "--overwrite"]);
    assert_eq!(send(address, "PUT", "/old", "", "other").status, 204);
    assert_eq!(ask(address, "GET", "/old").text(), "other");
}

#[test]
fn directory_is_sent_as_zip_archive() {
    let setup = || {
        let long = "0123456789".repeat(30_000);
        let setup = lighty!().file("d/a.txt", "A").file("d/sub/b c.txt", &long);
        setup.file("d/.env", "secret").file("d/sub/.git/config", "secret").file("d/empty", "")
    };
    let (_server, address) = serve(setup(), "", &["--browse"]);
    assert_ne!(ask(address, "GET", "/d/?zip").field("Content-Type"), Some("application/zip"));
    let (server, address) = serve(setup(), "", &["--zip"]);
    let listing = send(address, "GET", "/d/", "Accept: text/html\r\n", "");
    assert!(listing.text().contains("href=\"?zip\""), "{}", listing.text());
    let archive = send(address, "GET", "/d/?zip", "", "");
    assert_eq!((archive.status, archive.field("Content-Type")), (200, Some("application/zip")));
    let file = server.directory().join("d.zip");
    std::fs::write(&file, &archive.body).expect("written");
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
                  for n in z.namelist(): print(n, len(z.read(n)))";
    let read = Command::new("python3").args(["-c", script]).arg(&file).output().expect("python3");
    let names = String::from_utf8_lossy(&read.stdout).into_owned();
    let errors = String::from_utf8_lossy(&read.stderr).into_owned();
    let wanted = "d/a.txt 1\nd/empty 0\nd/sub/ 0\nd/sub/b c.txt 300000\n";
    assert_eq!(names, wanted, "{errors}");
    assert_eq!(ask(address, "HEAD", "/d/?zip").status, 200);
}

#[test]
fn zip_archive_has_only_what_the_client_would_get() {
    let lines = "dir-listing.activate = \"enable\"\ndir-listing.zip = \"enable\"\n\
                 dir-listing.zip-max-files = 5\n\
                 $HTTP[\"url\"] =^ \"/d/denied\" { url.access-deny = ( \"\" ) }\n\
                 $HTTP[\"url\"] =^ \"/d/unlisted/\" { dir-listing.activate = \"disable\" }\n\
                 url.redirect = ( \"^/d/moved$\" => \"/else\" )";
    let server = lighty!()
        .file("d/a", "A")
        .file("d/denied/x", "secret")
        .file("d/denied.txt", "secret")
        .file("d/unlisted/y", "secret")
        .file("d/moved", "secret")
        .file("big/1", "1")
        .file("big/2", "2")
        .file("big/3", "3")
        .file("big/4", "4")
        .file("big/sub/5", "5")
        .file("just/1", "1")
        .file("just/2", "2")
        .file("just/3", "3")
        .file("just/sub/4", "4")
        .config(lines)
        .start();
    let archive = server.get("/d/?zip");
    let has = |text: &str| archive.body.windows(text.len()).any(|part| part == text.as_bytes());
    assert_eq!(archive.status, 200);
    assert!(has("d/a"), "{archive:?}");
    for text in ["secret", "denied", "moved", "unlisted/y"] {
        assert!(!has(text), "{text}: {archive:?}");
    }
    assert_eq!(server.get("/just/?zip").status, 200);
    assert_eq!(server.get("/big/?zip").status, 403);
    server.await_log("dir-listing.zip-max-files");
}

#[test]
fn port_is_an_option_of_its_own() {
    let setup = lighty!().file("a", "A");
    let root = setup.root("");
    let server = setup.spawn(&["serve", root.to_str().expect("UTF-8"), "--port", "0"]);
    server.await_log("http://127.0.0.1:");
    assert_eq!(ask(server.listening()[0], "GET", "/a").text(), "A");
}

#[test]
fn listening_everywhere_names_addresses_of_the_network() {
    let setup = lighty!().file("a", "A");
    let root = setup.root("");
    let server = setup.spawn(&["serve", root.to_str().expect("UTF-8"), "--listen", "0.0.0.0:0"]);
    server.await_log("(every address)");
    // A machine without a network has no address to show.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    if let Ok(own) = probe.map(|own| own.ip()).map_err(drop)
        && !own.is_loopback()
    {
        server.await_log(&format!("http://{own}:"));
    }
}

#[test]
fn wrong_options_are_named_and_end_with_2() {
    let setup = lighty!().file("a", "A");
    let (root, file) = (setup.root(""), setup.root("a"));
    let (root, file) = (root.to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    for (arguments, message) in [
        (&["serve", root, "--listen", "99999"][..], "--listen"),
        (&["serve", root, "--port", "80000"], "--port"),
        (&["serve", root, "--port", "80", "--listen", ":81"], "--listen"),
        (&["serve", root, "--user", ":x"], "--user"),
        (&["serve", root, "--overwrite"], "--upload"),
        (&["serve", file, "--upload"], "--upload needs a directory"),
        (&["proxy", "--to", "99999"], "--to"),
        (&["proxy", "--to", "a..b"], "--to"),
        (&["proxy", "--to", "http://a/path"], "--to"),
        (&["proxy", "--to", "h2://a:1", "--protocol", "ajp13"], "--to"),
    ] {
        let (code, _, err) = setup.run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {err}");
        assert!(err.contains(message) && !err.contains("proxy-core"), "{arguments:?}: {err}");
    }
    let (code, _, err) = setup.run(&["serve", root, "--listen", "nix.invalid:80"]);
    assert_eq!(code, 1);
    assert!(err.contains("--listen \"nix.invalid\"") && !err.contains("server.bind"), "{err}");
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
    let (_server, address) = serve(lighty!().file("a", "A"), "", &[]);
    assert_eq!(ask(address, "GET", "/a").field("Access-Control-Allow-Origin"), None);
}

#[test]
fn preflight_of_other_site_needs_no_password_and_permits_no_upload() {
    let flags = ["--cors", "--upload", "--user", "alice:secret"];
    let (_server, address) = serve(lighty!().file("a", "A"), "", &flags);
    let preflight = |method: &str| {
        let mut client = Client::tcp(address);
        client.send(format!(
            "OPTIONS /a HTTP/1.1\r\nHost: a\r\nOrigin: https://b.example\r\n\
             Access-Control-Request-Method: {method}\r\n\
             Access-Control-Request-Headers: authorization\r\n\r\n"
        ));
        client.response()
    };
    let permitted = preflight("GET");
    assert_eq!(permitted.status, 204, "{permitted:?}");
    // Browsers do not take `*` for Authorization (Fetch Standard, "CORS non-wildcard request-header
    // name").
    assert_eq!(permitted.field("Access-Control-Allow-Headers"), Some("authorization"));
    assert_eq!(preflight("PUT").status, 403);
    let refused = ask(address, "GET", "/a");
    assert_eq!((refused.status, refused.field("Access-Control-Allow-Origin")), (401, Some("*")));
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

/// Terminal output of `lighty serve` during a request for `/a`.
fn seen_on_a_terminal(flags: &str) -> String {
    let setup = lighty!().file("a", "A");
    let shown = setup.directory().join("shown");
    // On Ctrl-C a terminal discards pending output, unless `noflsh` is set.
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
    // Ends the input with Ctrl-C; the server then writes out its log.
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
    let nowhere = setup.run(&["serve", root.to_str().expect("UTF-8"), "--listen", "/nix/x.sock"]);
    for (code, _, err) in [foreign, nowhere] {
        assert_eq!(code, 1, "{err}");
        // The user never sees the configuration generated from the options, so messages do not
        // mention it.
        assert!(!err.contains("command line:") && !err.contains("server.bind"), "{err}");
    }
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
    let (code, second) = hash("open sesame\n", &["--scheme", "argon2id", "bo"]);
    assert!(code == Some(0) && second.starts_with("bo:$argon2id$v=19$m=65536,"), "{second}");
    let server = lighty!()
        .file("a", "A")
        .file("../users", &(line + &second))
        .config(
            "auth.backend = \"htpasswd\"\nauth.backend.htpasswd.userfile = \"@DIR@/users\"\n\
             auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    // "ali:open sesame", "ali:shut", "bo:open sesame" and "bo:shut".
    for (credentials, status) in [
        ("YWxpOm9wZW4gc2VzYW1l", 200),
        ("YWxpOnNodXQ=", 401),
        ("Ym86b3BlbiBzZXNhbWU=", 200),
        ("Ym86c2h1dA==", 401),
    ] {
        let fields = format!("Authorization: Basic {credentials}\r\n");
        assert_eq!(server.get_with("/a", &fields).status, status);
    }
    assert_eq!(hash("", &[]).0, Some(1));
    assert_eq!(hash("x", &["a:b"]).0, Some(1));
}
