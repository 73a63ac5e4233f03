//! The sandbox of the server, as operators and clients see it. Attacks from inside are tested in
//! `lighty-io/src/sandbox/tests.rs`.

mod programs;

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use lighty_testkit::backend::{Backend, Port, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::wait_until;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

const ENGINES: [&str; 2] = ["auto", "threads"];

fn site() -> Setup {
    lighty!().file("a", "x").config("server.pid-file = \"@DIR@/lighty.pid\"")
}

/// A site with a directory `data` beside its own one, which holds the file `secret`.
fn beside(setup: &Setup) -> lighty_testkit::scratch::Scratch {
    let data = lighty_testkit::scratch::Scratch::new("lighty-data-");
    assert_ne!(setup.directory().parent(), None);
    write_file(&data.path().join("secret"), "data");
    data
}

/// `lighty ctl ARGUMENTS`: exit status, and both outputs.
fn ctl(server: &Server, arguments: &[&str]) -> (i32, String) {
    let (status, out, err) = crate::ctl::ctl(server, arguments);
    (status, out + &err)
}

/// The state of a layer and its reason.
fn layer(server: &Server, name: &str) -> (String, String) {
    let (status, text) = ctl(server, &["status", "--format", "json"]);
    assert_eq!(status, 0, "{text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let layers = report["sandbox"].as_array().expect("layers").clone();
    let row = layers.into_iter().find(|row| row["layer"] == name);
    let cell = |key: &str| match &row {
        Some(row) => row[key].as_str().expect("a text").to_owned(),
        None => "none".to_owned(),
    };
    (cell("state"), cell("why"))
}

fn edit(server: &Server, from: &str, to: &str) {
    let path = server.directory().join("lighty.conf");
    let text = fs::read_to_string(&path).expect("the configuration");
    assert!(text.contains(from), "{text}");
    write_file(&path, text.replace(from, to));
}

#[test]
fn layers_are_on_by_default_and_reported() {
    let server = site().config("status.config-url = \"/config\"").start();
    for name in ["no_new_privs", "capabilities", "landlock", "seccomp", "io_uring"] {
        assert_eq!(layer(&server, name).0, "on", "{name}");
    }
    let page = server.get("/config").text().to_owned();
    assert!(page.contains("landlock: on, version "), "{page}");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("/proc");
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{status}");
    let (code, text, _) = site().run(&["-V"]);
    assert!(code == 0 && text.contains("Sandbox:\n\t+ no_new_privs: on\n"), "{text}");
}

#[test]
fn switched_off_sandbox_leaves_the_process_alone() {
    let server = site().config("server.sandbox := \"off\"").start();
    assert_eq!(layer(&server, "landlock").0, "none");
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("/proc");
    assert!(status.contains("NoNewPrivs:\t0") && status.contains("Seccomp:\t0"), "{status}");
}

#[test]
fn links_of_the_start_lead_out_and_later_ones_do_not() {
    for engine in ENGINES {
        let setup = site().config(&format!("server.io-engine = \"{engine}\""));
        let data = beside(&setup);
        let server = setup.link("early", data.path().join("secret")).start();
        assert_eq!(server.get("/early").text(), "data");
        let other = beside(&site());
        symlink(other.path(), server.root("late")).expect("a link");
        assert_eq!(server.get("/late/secret").status, 403, "{engine}");
        server.await_log("late/secret: the sandbox has no rule for it");
        assert_eq!(server.get("/a").text(), "x");
    }
}

#[test]
fn further_paths_are_permitted_by_a_directive() {
    let setup = site();
    let data = beside(&setup);
    let path = data.path().display().to_string();
    let server = setup.config(&format!("server.sandbox-paths = ( \"{path}\" )")).start();
    symlink(data.path(), server.root("late")).expect("a link");
    assert_eq!(server.get("/late/secret").text(), "data");
}

#[test]
fn document_root_may_be_swapped() {
    let setup = site().without_document_root();
    for release in ["1", "2"] {
        write_file(&setup.directory().join(format!("releases/{release}/page")), release);
    }
    let link = setup.directory().join("current");
    symlink("releases/1", &link).expect("a link");
    let server = setup.config("server.document-root = \"@DIR@/current\"").start();
    assert_eq!(server.get("/page").text(), "1");
    symlink("releases/2", server.directory().join("next")).expect("a link");
    fs::rename(server.directory().join("next"), &link).expect("swapped");
    assert!(wait_until(PATIENCE, || server.get("/page").text() == "2"), "{}", server.log());
}

#[test]
fn proxied_requests_uploads_and_logs_work() {
    let backend = Backend::answering("hello");
    let server = site()
        .config("accesslog.filename = \"@DIR@/access.log\"")
        .config("$HTTP[\"url\"] =^ \"/dav\" { webdav.activate = \"enable\" }")
        .file("dav/old", "x")
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/back\" {{\nproxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{}\" )\n}}",
            backend.name()
        ))
        .start();
    assert_eq!(server.get("/back").text(), "hello");
    let mut client = server.connect();
    client.send(&b"PUT /dav/new HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"[..]);
    client.send(&b"GET /dav/new HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"[..]);
    let text = String::from_utf8_lossy(&client.read_to_end().0).into_owned();
    assert!(text.starts_with("HTTP/1.1 201") && text.ends_with("abc"), "{text}");
    let log = server.directory().join("access.log");
    let has_lines = || fs::read_to_string(&log).is_ok_and(|text| text.lines().count() >= 1);
    assert!(wait_until(PATIENCE, has_lines), "{}", server.log());
    fs::rename(&log, server.directory().join("access.log.1")).expect("rotated");
    assert_eq!(ctl(&server, &["reopen-logs"]).0, 0);
    server.await_log("logs were opened again");
    assert_eq!(server.get("/a").status, 200);
    assert!(wait_until(PATIENCE, has_lines), "{}", server.log());
}

#[test]
fn verbs_that_need_files_and_threads_work() {
    let backend = Backend::answering("hello");
    let setup = site();
    fs::create_dir(setup.directory().join("state")).expect("a directory");
    let server = setup
        .config("server.state-dir = \"@DIR@/state\"\nproxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
        .start();
    let name = backend.name();
    let drain = ["drain", name.as_str(), "--keep"];
    for arguments in [
        &["explain", "/a"][..],
        &["dump"],
        &["configuration"],
        &["timings"],
        &["metrics"],
        &["connections"],
        &drain,
    ] {
        let (status, text) = ctl(&server, arguments);
        assert_eq!(status, 0, "{arguments:?}: {text}\n{}", server.log());
    }
    assert!(server.directory().join("state/backends.json").exists());
}

#[test]
fn control_socket_is_removed_from_its_path() {
    let mut server = site().config("server.control-socket = \"@DIR@/control.sock\"").start();
    let socket = server.directory().join("control.sock");
    assert!(socket.exists() && !server.directory().join("lighty.pid.ctl").exists());
    server.stop();
    assert!(!socket.exists(), "{}", server.log());
}

#[test]
fn unknown_commands_run_and_the_layers_report_it() {
    for engine in ENGINES {
        let setup = site()
            .config(&format!("server.io-engine = \"{engine}\""))
            .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
            .config("ssi.extension = ( \".shtml\" )\nssi.exec = \"enable\"")
            .config("accesslog.filename = \"|cat > @DIR@/piped.log\"")
            .file("a.sh", "printf 'Content-Type: text/plain\\n\\n'; head -1 /proc/self/status\n")
            .file("a.shtml", "<!--#exec cmd=\"head -1 /proc/self/status\" -->");
        let server = setup.start();
        for path in ["/a.sh", "/a.shtml"] {
            assert!(server.get(path).text().starts_with("Name:"), "{path}: {}", server.log());
        }
        let (state, why) = layer(&server, "landlock");
        assert!(state == "partly" && why.contains("programs are started (ssi.exec)"), "{why}");
        let piped = server.directory().join("piped.log");
        let has_line = || fs::read_to_string(&piped).is_ok_and(|text| text.contains("/a.sh"));
        assert!(wait_until(PATIENCE, has_line), "{}", server.log());
        // The threads that serve are restricted all the same.
        let other = beside(&site());
        symlink(other.path(), server.root("late")).expect("a link");
        assert_eq!(server.get("/late/secret").status, 403, "{engine}");
    }
}

#[test]
fn reload_that_needs_more_rights_is_refused() {
    let server = site().config("# end").start();
    assert_eq!(ctl(&server, &["reload"]).0, 0);
    let data = beside(&site());
    let alias = format!("alias.url = ( \"/d/\" => \"{}/\" )", data.path().display());
    edit(&server, "# end", &alias);
    let (status, text) = ctl(&server, &["reload"]);
    assert_eq!(status, 1, "{text}");
    let sentence = format!("alias.url: reading {}", data.path().display());
    assert!(text.contains(&sentence) && text.contains("lighty ctl upgrade"), "{text}");
    edit(&server, &alias, "alias.url = ( \"/d/\" => \"@/\" )");
    let inside = server.directory().join("inside");
    write_file(&inside.join("b"), "b");
    edit(&server, "@/", &format!("{}/", inside.display()));
    assert_eq!(ctl(&server, &["reload"]).0, 0, "{}", server.log());
    assert_eq!(server.get("/d/b").text(), "b");
    edit(&server, "alias.url", "ssi.exec = \"enable\"\nalias.url");
    let (status, text) = ctl(&server, &["reload"]);
    assert!(status == 1 && text.contains("ssi.exec: starting programs"), "{text}");
}

#[test]
fn reload_brings_ports_and_programs_through_the_launcher() {
    let (backend, raw) = (Backend::answering("hello"), Port::reserve());
    let script = "printf 'Content-Type: text/plain\\n\\n'; head -1 /proc/self/status\n";
    let server = site().file("a.sh", script).config("# end").start();
    let lines = format!(
        "proxy.server = ( \"/p\" => (( \"host\" => \"127.0.0.1\", \"port\" => {} )) )\n\
         cgi.assign = ( \".sh\" => \"/bin/sh\" )\n\
         $SERVER[\"socket\"] == \"{}\" {{ server.tag = \"other\" }}\n# end",
        backend.address().port(),
        raw.address(),
    );
    edit(&server, "# end", &lines);
    let (status, text) = ctl(&server, &["reload", "--dry-run"]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(server.get("/p").status, 404, "nothing has changed");
    let (status, text) = ctl(&server, &["reload"]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(server.get("/p").text(), "hello", "{}", server.log());
    assert!(server.get("/a.sh").text().starts_with("Name:"), "{}", server.log());
    let mut client = lighty_testkit::client::Client::tcp(raw.address());
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "x");
    assert_eq!(layer(&server, "landlock").0, "on");
    // A refused reload changes nothing of that.
    edit(&server, "# end", "server.tag =");
    assert_eq!(ctl(&server, &["reload"]).0, 1);
    assert_eq!(server.get("/p").text(), "hello");
}

#[test]
fn reload_that_brings_a_command_is_refused_with_the_reason() {
    let server = site().config("# end").start();
    edit(&server, "# end", "include_shell \"echo 'var.x = 1'\"");
    let (status, text) = ctl(&server, &["reload"]);
    assert!(
        status == 1 && text.contains("the command failed: the sandbox of the running"),
        "{text}"
    );
    let data = beside(&site());
    let include = format!("include \"{}/secret\"", data.path().display());
    edit(&server, "include_shell \"echo 'var.x = 1'\"", &include);
    let (status, text) = ctl(&server, &["reload"]);
    assert!(status == 1 && text.contains("the sandbox has no rule for it"), "{text}");
}

#[test]
fn temporary_files_of_backends_are_removed_once_they_are_sent() {
    let setup = site();
    let data = beside(&setup);
    let path = data.path().join("secret");
    let field = format!("X-LIGHTTPD-send-tempfile: {}\r\n", path.display());
    let backend = Backend::replying(move |_| answer("200 OK", &field, ""));
    let (host, port) = (backend.address().ip(), backend.address().port());
    let server = setup
        .config(&format!(
            "proxy.server = ( \"/b\" => (( \"host\" => \"{host}\", \"port\" => {port}, \
             \"x-sendfile\" => \"enable\", \"x-sendfile-docroot\" => ( \"{}\" ) )) )",
            data.path().display()
        ))
        .start();
    assert_eq!(server.get("/b").text(), "data");
    assert!(wait_until(PATIENCE, || !path.exists()), "{}", server.log());
}

#[test]
fn header_of_listings_outside_served_directories_is_shown() {
    let setup = site();
    let data = beside(&setup);
    let header = data.path().join("secret").display().to_string();
    let lines = "dir-listing.activate = \"enable\"\ndir-listing.show-header";
    let server = setup.config(&format!("{lines} = \"{header}\"")).start();
    assert!(server.get("/").text().contains("data"), "{}", server.log());
}

#[test]
fn included_commands_run_at_a_reload() {
    let server = site().config("include_shell \"echo 'var.x = 1'\"").start();
    assert_eq!(layer(&server, "landlock").0, "partly");
    assert_eq!(ctl(&server, &["reload"]).0, 0, "{}", server.log());
}

#[test]
fn required_sandbox_covers_the_process_or_the_server_does_not_start() {
    let required = || site().config("server.sandbox := \"required\"");
    let server = required().start();
    assert_eq!(server.get("/a").status, 200);
    let setup = required().config("ssi.exec = \"enable\"");
    let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
    assert!(code == 1 && err.contains("server.sandbox = \"required\""), "{code}: {err}");
    assert!(err.contains("ssi.exec"), "{err}");
}

#[test]
fn kernel_without_landlock_is_reported() {
    let server = site().env("LIGHTY_LANDLOCK_MAX", "0").start();
    let (state, why) = layer(&server, "landlock");
    assert!(state == "off" && why.contains("Linux 5.13"), "{state}: {why}");
    server.await_log("sandbox: landlock: off");
    let data = beside(&site());
    symlink(data.path(), server.root("late")).expect("a link");
    assert_eq!(server.get("/late/secret").text(), "data");
    for version in ["1", "3", "5"] {
        let server = site().env("LIGHTY_LANDLOCK_MAX", version).start();
        let (state, why) = layer(&server, "landlock");
        assert!(state == "on" && why.starts_with(&format!("version {version},")), "{why}");
        assert_eq!(server.get("/a").status, 200);
    }
}

#[test]
fn document_root_that_appears_later_is_explained() {
    let setup = site().without_document_root();
    let data = beside(&setup);
    let root = data.path().join("htdocs/site");
    let server = setup.config(&format!("server.document-root = \"{}\"", root.display())).start();
    write_file(&root.join("page"), "page");
    // The directory around it existed at the start, and is shared by nobody.
    let served = || server.get("/page").status == 200;
    assert!(wait_until(PATIENCE, served), "{}", server.log());
}
