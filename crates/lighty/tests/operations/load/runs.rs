//! Runs of `lighty load`: watched, interrupted, plotted and compared.

use std::process::{Command, Stdio};
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::{lighty, wait_until};

use super::{lighty_binary, load, measured, text};

#[test]
fn a_run_that_is_told_to_end_says_what_there_is() {
    let backend = Backend::start(|peer| {
        for _ in 0..3 {
            if peer.request().is_none() {
                return;
            }
            peer.answer("x");
        }
        if peer.request().is_some() {
            let _ = peer.hang();
        }
    });
    let url = format!("http://{}/", backend.name());
    let child = Command::new(lighty_binary())
        .args(["load", &url, "-d", "600", "-c", "2", "--progress"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lighty load");
    assert!(wait_until(Duration::from_secs(30), || backend.requests_for("/").len() == 8));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("told");
    let output = child.wait_with_output().expect("it ends");
    let message = text(&output);
    assert!(message.contains(" responses in "), "{message}");
}

#[test]
fn a_run_has_a_picture() {
    let server = lighty!().file("a.txt", "0123456789").start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run.svg");
    let path = path.to_str().expect("UTF-8");
    let url = format!("http://{}/a.txt", server.address());
    assert!(load(&[&url, "-n", "200", "--plot", path]).status.success());
    let drawn = std::fs::read_to_string(path).expect("a picture");
    assert!(drawn.starts_with("<svg ") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
    assert!(drawn.contains("200 responses") && !drawn.contains("NaN"), "{drawn}");
    let output = load(&[&url, "-n", "200", "--plot", "/nonexistent/run.svg"]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("/nonexistent/run.svg: No such file"), "{printed}");
}

#[test]
fn runs_are_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, delay: Duration| {
        let backend = Backend::replying(move |_| {
            std::thread::sleep(delay);
            answer("200 OK", "", "x")
        });
        let url = format!("http://{}/", backend.name());
        let (value, _) = measured(&[&url, "--rate", "50", "-d", "6", "-c", "10"]);
        let path = directory.path().join(name);
        std::fs::write(&path, value.to_string()).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let quick = write("quick.json", Duration::ZERO);
    let slow = write("slow.json", Duration::from_millis(100));
    let message = text(&load(&["compare", &quick, &slow]));
    let row = |name: &str| {
        let found = message.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {message}")).to_owned()
    };
    assert!(message.contains("The runs differ in url"), "{message}");
    assert!(row("50 %").ends_with(": worse") && row("mean").ends_with(": worse"), "{message}");
    assert!(text(&load(&["compare", &slow, &slow])).contains(": noise"));
    for (name, content) in [("none", None), ("other", Some("{}")), ("text", Some("x"))] {
        let path = directory.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).expect("written");
        }
        let output = load(&["compare", &quick, path.to_str().expect("UTF-8")]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && printed.contains(name), "{printed}");
    }
}

#[test]
fn a_run_of_which_half_hangs_is_not_better() {
    let answering = Backend::replying(|_| {
        std::thread::sleep(Duration::from_millis(2));
        answer("200 OK", "", "x")
    });
    let turn = std::sync::atomic::AtomicU64::new(0);
    let hanging = Backend::start(move |peer| {
        while peer.request().is_some() {
            if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2) {
                peer.hang();
                return;
            }
            peer.answer("x");
        }
    });
    let run = |backend: &Backend| {
        let url = format!("http://{}/", backend.name());
        measured(&[&url, "--rate", "60", "-c", "100", "-d", "6", "--timeout", "1"])
    };
    let ((whole, _), (half, is_well)) = std::thread::scope(|scope| {
        let whole = scope.spawn(|| run(&answering));
        let half = run(&hanging);
        (whole.join().expect("a run"), half)
    });
    let total = &half["total_us"];
    assert!(!is_well && half["failures"]["responses timed out"].as_u64() > Some(100), "{half}");
    assert!(total["75"].as_u64() >= Some(1_000_000), "{half}");
    assert!(total["at_least"].as_array().is_some_and(|all| all.contains(&"75".into())), "{half}");
    assert!(half["seconds"].as_f64() < Some(6.9), "{half}");
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, value: &serde_json::Value| {
        let path = directory.path().join(name);
        std::fs::write(&path, value.to_string()).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let mut older = half.clone();
    // The format before intervals counted failures.
    for part in older["intervals"].as_array_mut().expect("parts") {
        part.as_array_mut().expect("a part").truncate(3);
    }
    let whole = write("whole.json", &whole);
    // An older run does not report the waiting time of its requests.
    let rows = [("half.json", &half, &["99 %", "failed"][..]), ("older.json", &older, &["failed"])];
    for (name, value, rows) in rows {
        let message = text(&load(&["compare", &whole, &write(name, value)]));
        assert!(!message.contains(": better"), "{message}");
        for row in rows {
            let row = message.lines().find(|line| line.starts_with(row)).expect("a row");
            assert!(row.ends_with(": worse"), "{message}");
        }
    }
}

#[test]
fn lengths_are_compared_and_unix_sockets_reached() {
    let turn = std::sync::atomic::AtomicU64::new(0);
    let backend = Backend::replying(move |_| {
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answer("200 OK", "", if turn == 1 { "bb" } else { "a" })
    });
    let url = format!("http://{}/", backend.name());
    let (value, is_well) = measured(&[&url, "-n", "3", "-c", "1", "--same-length"]);
    assert!(!is_well && value["failures"]["unexpected lengths"] == 1, "{value}");
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("lighty.sock");
    let socket = socket.to_str().expect("UTF-8");
    let config = format!("$SERVER[\"socket\"] == \"{socket}\" {{ }}");
    let _server = lighty!().file("a.txt", "0123456789").config(&config).start();
    for more in [&[][..], &["--http2"]] {
        let line = ["http://a.test/a.txt", "--unix-socket", socket, "-n", "10"];
        let (value, is_well) = measured(&[&line[..], more].concat());
        assert!(is_well && value["body_bytes"] == 100, "{value}");
    }
}
