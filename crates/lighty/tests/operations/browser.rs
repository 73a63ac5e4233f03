//! `lighty serve --open`: opens the URL in the user's browser, through programs on `PATH`.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::{lighty, wait_until};

/// A setup with only these programs in its `PATH`. Each writes its name and arguments, one per
/// line, to `opened` in the test's directory, and exits with the given status.
fn setup(programs: &[(&str, u8)]) -> Setup {
    let setup = lighty!().file("a", "A");
    let directory = setup.directory().to_owned();
    let path = directory.join("bin");
    std::fs::create_dir(&path).expect("a directory");
    for (name, status) in programs {
        let opened = directory.join("opened");
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' {name} \"$@\" end >> '{}'\nexit {status}\n",
            opened.display()
        );
        let program = path.join(name);
        write_file(&program, script);
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, permissions).expect("an executable file");
    }
    let unset = ["BROWSER", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "SUDO_UID", "PKEXEC_UID"];
    let setup = unset.iter().fold(setup, |setup, name| setup.env(name, ""));
    setup.env("DOAS_USER", "").env("DISPLAY", ":9").env("PATH", &path.display().to_string())
}

fn serve(setup: Setup, listen: &str) -> Server {
    let root = setup.root("").to_str().expect("UTF-8").to_owned();
    let server = setup.spawn(&["serve", &root, "--open", "--listen", listen]);
    server.await_log("is serving");
    server
}

/// Lines that the programs wrote, once there are `ends` calls.
fn opened(server: &Server, ends: usize) -> Vec<String> {
    let path = server.directory().join("opened");
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    let is_there = || text().lines().filter(|line| *line == "end").count() >= ends;
    assert!(wait_until(Duration::from_secs(30), is_there), "{}{}", text(), server.log());
    text().lines().map(str::to_owned).collect()
}

fn url(server: &Server) -> String {
    format!("http://127.0.0.1:{}/", server.listening()[0].port())
}

/// The server works, regardless of the browser's result.
#[track_caller]
fn serves(server: &mut Server) {
    let address = server.listening()[0];
    let mut client = lighty_testkit::client::Client::tcp(address);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "A");
    server.stop();
}

#[test]
fn url_is_opened_once() {
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let mut server = serve(setup(&[("xdg-open", 0), ("gio", 0)]), listen);
        assert_eq!(opened(&server, 1), ["xdg-open", &url(&server), "end"]);
        serves(&mut server);
        let path = server.directory().join("opened");
        let text = std::fs::read_to_string(path).expect("the calls");
        assert_eq!(text.matches("end\n").count(), 1, "{text}");
        assert!(!server.log().contains("--open"), "{}", server.log());
    }
}

#[test]
fn next_program_is_tried_after_one_that_fails() {
    let mut server = serve(setup(&[("xdg-open", 3), ("gio", 0)]), "127.0.0.1:0");
    let url = url(&server);
    assert_eq!(opened(&server, 2), ["xdg-open", &url, "end", "gio", "open", &url, "end"]);
    serves(&mut server);
}

#[test]
fn without_browser_one_line_says_so() {
    for programs in [&[][..], &[("xdg-open", 4)]] {
        let mut server = serve(setup(programs), "127.0.0.1:0");
        server.await_log("no browser found");
        let line = format!("lighty: --open: no browser found; open {} yourself\n", url(&server));
        server.await_log(&line);
        assert_eq!(server.log().matches("--open").count(), 1, "{}", server.log());
        serves(&mut server);
    }
}

#[test]
fn nothing_is_started_without_display_or_for_another_user() {
    for (name, value, reason) in [
        ("DISPLAY", "", "there is no display"),
        ("SUDO_UID", "1000", "with the rights of another user"),
        ("PKEXEC_UID", "1000", "with the rights of another user"),
    ] {
        let mut server = serve(setup(&[("xdg-open", 0)]).env(name, value), "127.0.0.1:0");
        server.await_log(reason);
        server.await_log(&url(&server));
        serves(&mut server);
        assert!(!server.directory().join("opened").exists(), "{name}");
    }
}

#[test]
fn browser_of_the_environment_runs_without_shell() {
    let programs = [("xdg-open", 0), ("mine", 0)];
    let chosen = "none:mine --new=%s $(touch;x) *";
    let setup = setup(&programs).env("DISPLAY", "").env("BROWSER", chosen);
    let mut server = serve(setup, "127.0.0.1:0");
    let new = format!("--new={}", url(&server));
    assert_eq!(opened(&server, 1), ["mine", &new, "$(touch;x)", "*", "end"]);
    serves(&mut server);
}

#[test]
fn unix_socket_has_no_url() {
    let setup = setup(&[("xdg-open", 0)]);
    let socket = setup.directory().join("socket");
    let mut server = serve(setup, socket.to_str().expect("UTF-8"));
    server.await_log("--open: a Unix socket has no URL");
    server.stop();
    assert!(!server.directory().join("opened").exists());
}
