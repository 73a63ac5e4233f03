//! The command line and the output of http_load.

use std::os::unix::process::CommandExt;
use std::process::Command;

use lighty_testkit::lighty;
use lighty_testkit::server::Server;

use super::{lighty_binary, load, text};

fn urls(server: &Server) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let lines = ["a", "b"].map(|name| format!("http://{}/{name}\n", server.address()));
    std::fs::write(file.path(), lines.concat()).expect("written");
    file
}

fn expect_fetches(message: &str) {
    assert!(message.starts_with("50 fetches, 5 max parallel, 500 bytes, in "), "{message}");
    for line in ["10 mean bytes/connection", "HTTP response codes:", "  code 200 -- 50"] {
        assert!(message.lines().any(|one| one == line), "{line}: {message}");
    }
}

#[test]
fn http_load_output_is_kept() {
    let server = lighty!().file("a", "0123456789").file("b", "abcdefghij").start();
    let url = format!("http://{}/a", server.address());
    expect_fetches(&text(&load(&[&url, "-n", "50", "-c", "5", "--http-load"])));
}

#[test]
fn http_load_command_line_is_understood() {
    let server = lighty!().file("a", "0123456789").file("b", "abcdefghij").start();
    let file = urls(&server);
    let path = file.path().to_str().expect("UTF-8");
    expect_fetches(&text(&load(&["-parallel", "5", "-fetches", "50", path])));
    let called = Command::new(lighty_binary())
        .arg0("http_load")
        .args(["-p", "5", "-f", "50", path])
        .output();
    expect_fetches(&text(&called.expect("http_load")));
    let rate = text(&load(&["-rate", "100", "-fetches", "30", "-checksum", path]));
    assert!(rate.starts_with("30 fetches, ") && rate.contains("code 200 -- 30"), "{rate}");
    for (arguments, message) in [
        (&["-parallel", "5", path][..], "usage: http_load"),
        (&["-parallel", "5", "-fetches", "9", "-throttle", path], "-throttle is an option"),
        (&["-parallel", "5", "-fetches", "9", "/nonexistent"], "/nonexistent: No such file"),
    ] {
        let output = load(arguments);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(message), "{arguments:?}: {printed}");
    }
}
