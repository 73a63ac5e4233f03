//! `lighty load`: its report about correct, slow and faulty servers.

mod form;
mod http2;
mod runs;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::binary;
use lighty_testkit::tls::Authority;
use serde_json::Value;

pub(crate) fn lighty_binary() -> PathBuf {
    binary(env!("CARGO_BIN_EXE_lighty"))
}

fn load(arguments: &[&str]) -> Output {
    let output =
        Command::new(lighty_binary()).arg("load").args(arguments).stdin(Stdio::null()).output();
    output.expect("lighty load")
}

/// JSON report, and true if the run succeeded.
fn measured(arguments: &[&str]) -> (Value, bool) {
    let output = load(&[arguments, &["--json"]].concat());
    let printed = String::from_utf8_lossy(&output.stderr);
    let value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {printed}"));
    (value, output.status.success())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn responses_are_counted_and_times_told() {
    let server = lighty!().file("a.txt", "0123456789").start();
    let url = format!("http://{}/a.txt", server.address());
    let (value, is_well) = measured(&[&url, "-n", "500", "-c", "4", "--threads", "2"]);
    assert!(is_well, "{value}");
    assert_eq!((&value["responses"], &value["body_bytes"]), (&500.into(), &5_000.into()));
    assert_eq!((&value["statuses"]["200"], &value["connections_made"]), (&500.into(), &4.into()));
    let us = |name: &str| value["total_us"][name].as_u64().expect("a number");
    assert!(us("50") > 0 && us("50") <= us("99") && us("99") <= us("max_us"), "{value}");
    let counted: u64 = value["intervals"]
        .as_array()
        .expect("intervals")
        .iter()
        .map(|one| one[0].as_u64().expect("a number"))
        .sum();
    assert_eq!(counted, 500);
    let message = text(&load(&[&url, "-n", "20", "--no-keep-alive"]));
    assert!(
        message.contains("20 responses in") && message.contains("made 20 connections"),
        "{message}"
    );
}

#[test]
fn a_number_of_requests_is_of_those_after_the_warm_up() {
    let backend = Backend::answering("x");
    let url = format!("http://{}/", backend.name());
    for more in [&[][..], &["--rate", "200"], &["--threads", "2"]] {
        let line = [&url, "-n", "7", "-c", "2", "--warm-up", "1"];
        let (value, is_well) = measured(&[&line[..], more].concat());
        assert!(is_well && value["responses"] == 7, "{more:?}: {value}");
    }
    assert!(backend.requests_for("/").len() > 100, "it was warmed up");
}

#[test]
fn name_and_password_of_a_url_are_sent() {
    let backend = Backend::answering("x");
    let server = lighty!()
        .config(&format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" )",
            backend.name()
        ))
        .start();
    for more in [&[][..], &["--http2"]] {
        let url = format!("http://u%40v:p@{}/{}", server.address(), more.len());
        let (value, is_well) = measured(&[&[&*url, "-n", "1", "-c", "1"], more].concat());
        assert!(is_well && !value.to_string().contains("v:p"), "{value}");
        let seen = &backend.requests_for(&format!("/{}", more.len()))[0];
        assert_eq!(seen.field("authorization"), Some("Basic dUB2OnA="), "{more:?}");
    }
}

#[test]
fn bodies_are_read_however_they_are_framed() {
    let server = Backend::replying(|seen| {
        match seen.target() {
        "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n".to_vec(),
        "/hint" => b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabcdefg".to_vec(),
        _ => answer("200 OK", "", "abcdefg"),
    }
    });
    for target in ["chunked", "hint", "length"] {
        let url = format!("http://{}/{target}", server.name());
        let expected = ["--expect-length", "7", "--checksum"];
        let (value, is_well) = measured(&[&[&*url, "-n", "20", "-c", "2"], &expected[..]].concat());
        assert!(is_well, "{target}: {value}");
        assert_eq!(
            (&value["responses"], &value["body_bytes"]),
            (&20.into(), &140.into()),
            "{target}"
        );
    }
    let head = measured(&[&format!("http://{}/length", server.name()), "-n", "3", "-X", "HEAD"]);
    assert_eq!((&head.0["responses"], &head.0["body_bytes"]), (&3.into(), &0.into()));
}

#[test]
fn failures_of_a_run_are_named() {
    let turn = std::sync::atomic::AtomicU64::new(0);
    let server = Backend::replying(move |seen| match seen.target() {
        "/status" => answer("500 Oh", "", "x"),
        "/short" => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nabc".to_vec()
        }
        "/noise" => b"noise\r\n\r\n".to_vec(),
        "/changes" => {
            let turn = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            answer("200 OK", "", if turn == 1 { "b" } else { "a" })
        }
        _ => {
            std::thread::sleep(Duration::from_secs(3));
            answer("200 OK", "", "late")
        }
    });
    for (target, message, more) in [
        ("status", "unexpected statuses", &[][..]),
        ("noise", "responses that are not HTTP", &[]),
        ("changes", "unexpected contents", &["--checksum"]),
        ("late", "responses timed out", &["--timeout", "1"]),
    ] {
        let url = format!("http://{}/{target}", server.name());
        let (value, is_well) = measured(&[&[&*url, "-n", "2", "-c", "1"], more].concat());
        assert!(!is_well && value["failures"][message].as_u64() >= Some(1), "{target}: {value}");
    }
    let nobody = lighty_testkit::backend::Port::reserve();
    let url = format!("http://{}/", nobody.address());
    let (value, is_well) = measured(&[&url, "-n", "3"]);
    assert!(!is_well, "{value}");
    assert_eq!(value["failures"]["connections refused"], 3);
    assert_eq!(
        (&value["connect_us"]["50"], &value["first_byte_us"]["max_us"]),
        (&Value::Null, &Value::Null)
    );
    let message = text(&load(&[&url, "-n", "3", "-c", "3"]));
    assert!(message.starts_with("no responses\nmade no connection\n"), "{message}");
    assert!(message.contains("3 connections refused"), "{message}");
    assert!(!message.contains("first byte"), "there are no times: {message}");
}

#[test]
fn connections_are_in_use_once_they_are_made() {
    let nobody = lighty_testkit::backend::Port::reserve();
    let url = format!("http://{}/", nobody.address());
    for more in [&[][..], &["--http2"]] {
        let message = text(&load(&[&[&*url, "-n", "9", "-c", "3", "--http-load"], more].concat()));
        assert!(message.starts_with("0 fetches, 0 max parallel, 0 bytes, in "), "{message}");
        assert!(!message.contains("msecs/"), "{message}");
    }
}

#[test]
fn a_response_that_is_wrong_at_once_makes_nothing_quicker() {
    let turn = std::sync::atomic::AtomicU64::new(0);
    let server = Backend::replying(move |_| {
        if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2) {
            return answer("503 Busy", "", "x");
        }
        std::thread::sleep(Duration::from_millis(20));
        answer("200 OK", "", "x")
    });
    let url = format!("http://{}/", server.name());
    let (value, is_well) = measured(&[&url, "-n", "20", "-c", "1"]);
    let total = &value["total_us"];
    assert_eq!((is_well, &total["count"], &total["failed"]), (false, &20.into(), &10.into()));
    // Among the responses as expected 50 % would be the quickest of all, too.
    assert!(total["50"].as_u64() >= Some(20_000), "{value}");
    assert!(total["90"].as_u64() >= total["50"].as_u64(), "{value}");
    let at_least = total["at_least"].as_array().expect("names");
    assert!(at_least.contains(&"90".into()) && !at_least.contains(&"50".into()), "{value}");
}

#[test]
fn a_stall_is_felt_by_all_who_were_due_in_it() {
    // Each sixth response takes 300 ms, by one connection: others wait behind it.
    let turn = std::sync::atomic::AtomicU64::new(0);
    let server = Backend::replying(move |_| {
        if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 20 {
            std::thread::sleep(Duration::from_millis(600));
        }
        answer("200 OK", "", "x")
    });
    let url = format!("http://{}/", server.name());
    let (fixed, _) = measured(&[&url, "--rate", "100", "-n", "100", "-c", "1"]);
    assert_eq!(fixed["responses"], 100);
    // Some 60 requests were due meanwhile: a third of all waited for 200 ms and more.
    assert!(fixed["total_us"]["75"].as_u64() > Some(100_000), "{fixed}");
    assert!(fixed["first_byte_us"]["75"].as_u64() < fixed["total_us"]["75"].as_u64(), "{fixed}");
}

#[test]
fn requests_without_a_connection_until_the_end_are_told_apart() {
    // A response takes 100 ms, so one connection makes ten a second.
    let server = Backend::replying(|_| {
        std::thread::sleep(Duration::from_millis(100));
        answer("200 OK", "", "x")
    });
    let url = format!("http://{}/", server.name());
    let (value, is_well) = measured(&[&url, "--rate", "100", "-d", "2", "-c", "1"]);
    let (responses, unsent) = (value["responses"].as_u64(), value["unsent"].as_u64());
    assert!(!is_well && responses <= Some(21) && unsent >= Some(170), "{value}");
    assert!(value["seconds"].as_f64() < Some(3.0), "{value}");
    let (count, failed) = (&value["total_us"]["count"], &value["total_us"]["failed"]);
    assert_eq!(
        (count.as_u64(), failed.as_u64()),
        (responses.zip(unsent).map(|(a, b)| a + b), unsent)
    );
    assert!(value["total_us"]["at_least"].as_array().is_some_and(|all| all.contains(&"50".into())));
}

#[test]
fn times_have_fractions_of_a_second() {
    let server = Backend::start(|peer| {
        while let Some(seen) = peer.request() {
            match seen.target() {
                "/hangs" => drop(peer.hang()),
                _ => drop(peer.answer("x")),
            }
        }
    });
    let url = format!("http://{}/", server.name());
    let (value, is_well) = measured(&[&url, "-c", "1", "--warm-up", "0.3", "-d", "0.5"]);
    let seconds = value["seconds"].as_f64().expect("a number");
    assert!(is_well && (0.5..5.0).contains(&seconds), "{value}");
    assert!(server.requests_for("/").len() as u64 > value["responses"].as_u64().expect("a number"));
    let (value, _) = measured(&[&format!("{url}hangs"), "-n", "1", "-c", "1", "--timeout", "0.25"]);
    let longest_us = value["total_us"]["max_us"].as_u64().expect("a number");
    assert!((250_000..5_000_000).contains(&longest_us), "{value}");
    assert_eq!(
        (&value["timeout_s"], &value["failures"]["responses timed out"]),
        (&0.25.into(), &1.into())
    );
    let least =
        [("--timeout", "0.001 to 3600"), ("-d", "0.001 to 864000"), ("--warm-up", "0 to 86400")];
    for (option, message) in least {
        for wrong in ["x", "inf", "1e2", "NaN", "999999", "-1"] {
            let output = load(&[&url, &format!("{option}={wrong}")]);
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.code() == Some(2) && printed.contains(message),
                "{option} {wrong}: {printed}"
            );
        }
    }
}

#[test]
fn tls_is_verified_unless_it_is_not_to_be() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path());
    authority.issue("one.pem", &["localhost"]);
    let server = lighty!()
        .file("a.txt", "0123456789")
        .config(&format!(
            "ssl.engine = \"enable\"\nssl.pemfile = \"{}/one.pem\"",
            directory.path().display()
        ))
        .start();
    let url = format!("https://localhost:{}/a.txt", server.address().port());
    let file = directory.path().join("ca.pem");
    let file = file.to_str().expect("UTF-8");
    for (more, is_trusted) in [(&["--cacert", file][..], true), (&["-k"], true), (&[], false)] {
        let (value, is_well) = measured(&[&[&*url, "-n", "20", "-c", "2"], more].concat());
        assert_eq!(is_well, is_trusted, "{more:?}: {value}");
        let wanted = if is_trusted { 20 } else { 0 };
        assert_eq!(value["responses"], wanted, "{more:?}: {value}");
    }
    let message = text(&load(&[&url, "-n", "1"]));
    assert!(message.contains("1 handshakes failed: its certificate "), "{message}");
}

#[test]
fn a_wrong_line_is_answered_in_words() {
    for (arguments, message) in [
        (&["ftp://a/"][..], "ftp://a/: no URL of http or https"),
        (&["http://127.0.0.1/", "-H", "no field"], "no field: no field, as in"),
        (&["http://127.0.0.1:1/", "http://127.0.0.1:2/"], "are two servers"),
        (&["http://127.0.0.1:1/", "-X", "G ET"], "G ET: no method"),
        (&["http://127.0.0.1:1/", "-m", "5"], "--http2"),
        (&["http://127.0.0.1:99999/"], "no URL of http or https"),
        (&["http://127.0.0.1:1/", "--body", "/"], "/: Is a directory"),
        (&["--urls-from", "/nonexistent"], "/nonexistent: No such file"),
        (&[], "required"),
    ] {
        let output = load(arguments);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(message), "{arguments:?}: {printed}");
    }
}
