//! Orders for backends.

use lighty_testkit::backend::Backend;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use serde_json::Value;

use super::{PATIENCE, balanced, ctl, done, json, keeping, site};

#[test]
fn drained_backend_gets_no_new_requests_and_keeps_the_present_one() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    let gets = |count: usize| -> Vec<String> {
        (0..count).map(|_| server.get("/").text().to_owned()).collect()
    };
    let drain = done(&server, &["drain", &one.name(), "--wait", "20"]);
    assert!(drain.ends_with(&format!("{} is set to drain\n", one.name())), "{drain}");
    assert!(gets(6).iter().all(|text| text == "other"));
    let state = |name: &str| {
        let backends = json(&server, "backends");
        let rows = backends.as_array().expect("rows").clone();
        let row = rows.into_iter().find(|row| row["backend"] == name).expect("a row");
        row["state"].as_str().expect("a state").to_owned()
    };
    assert_eq!((state(&one.name()), state(&other.name())), ("drained".into(), "up".into()));
    // Orders outlive a reload.
    done(&server, &["reload"]);
    assert!(gets(6).iter().all(|text| text == "other"));
    done(&server, &["maintenance", &other.name()]);
    assert_eq!((server.get("/").status, state(&other.name())), (503, "maintenance".into()));
    done(&server, &["ready", &one.name()]);
    done(&server, &["ready", &other.name()]);
    let texts = gets(12);
    assert!(texts.iter().any(|text| text == "one") && texts.iter().any(|text| text == "other"));
    server.await_log("control: /backends/drain");
}

#[test]
fn drain_by_name_waits_for_the_request_under_way() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = site()
        .config(&format!(
            "proxy.server = ( \"\" => ( \"slow\" => ( \"host\" => \"127.0.0.1\", \"port\" => {} ) ) )",
            backend.address().port()
        ))
        .start();
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(wait_until(PATIENCE, || json(&server, "backends")[0]["in_use"] == 1));
    let (status, _, err) = ctl(&server, &["drain", "slow", "--wait", "1"]);
    assert!(
        status == 1 && err.contains("requests under way at ") && err.ends_with(": 1\n"),
        "{err}"
    );
    drop(client);
    done(&server, &["drain", "slow", "--wait", "30"]);
}

#[test]
fn ordered_weight_holds_until_the_configuration_has_another() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    let out = done(&server, &["weight", &one.name(), "0"]);
    assert!(out.ends_with("has weight 0\n"), "{out}");
    assert!((0..6).all(|_| server.get("/").text() == "other"));
    done(&server, &["reload"]);
    assert_eq!(json(&server, "backends")[0]["weight"], 0);
    let conf = server.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&conf).expect("the configuration");
    let weights = format!("{text}\nproxy-core.weights = ( \"{}\" => 3 )\n", one.name());
    lighty_testkit::server::write_file(&conf, weights);
    done(&server, &["reload"]);
    assert_eq!(json(&server, "backends")[0]["weight"], 3);
    done(&server, &["weight", &one.name(), "5"]);
    assert!(done(&server, &["weight", &one.name()]).ends_with("has weight 3\n"));
}

#[test]
fn wrong_backends_and_weights_are_refused() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    for (arguments, reason) in [
        (&["drain", "nobody:1"][..], "no backend is named nobody:1"),
        (&["weight", &one.name(), "1001"], "a weight is 0 to 1000"),
        (&["drain", &one.name(), "--upstream", "x"], "no backend is named"),
    ] {
        let (status, out, err) = ctl(&server, arguments);
        assert!(status == 1 && out.is_empty() && err.contains(reason), "{arguments:?}: {err}");
    }
    done(&server, &["weight", &one.name(), "1000"]);
    let twice = site()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/b\" {{ proxy-core.backends = ( \"{0}\" ) }}\n\
             $HTTP[\"url\"] =^ \"/c\" {{ proxy-core.backends = ( \"{0}\" )
             proxy-core.max-pool-size = 9 }}",
            one.name()
        ))
        .start();
    let (status, _, err) = ctl(&twice, &["drain", &one.name()]);
    assert!(status == 1 && err.contains("several upstreams have a backend"), "{err}");
    let upstream = json(&twice, "backends")[1]["upstream"].as_str().expect("a name").to_owned();
    done(&twice, &["drain", &one.name(), "--upstream", &upstream]);
    assert_eq!((twice.get("/b").status, twice.get("/c").status), (200, 503));
}

fn texts(server: &Server, count: usize) -> Vec<String> {
    (0..count).map(|_| server.get("/").text().to_owned()).collect()
}

/// A directive that lets the sandboxed server connect to a backend.
fn permitted_ports(backend: &Backend) -> String {
    format!("server.sandbox-ports = ( {} )", backend.address().port())
}

#[test]
fn added_backend_takes_requests_until_it_is_removed() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = keeping(&one).config(&permitted_ports(&other)).start();
    let out = done(&server, &["add", &other.name(), "--to", "proxy-core.backends"]);
    assert!(out.ends_with(&format!("{} is added with weight 1\n", other.name())), "{out}");
    let has = |texts: Vec<String>, wanted: &str| texts.iter().any(|text| text == wanted);
    assert!(has(texts(&server, 12), "other") && has(texts(&server, 12), "one"));
    done(&server, &["reload"]);
    assert!(has(texts(&server, 12), "other"), "a reload keeps it");
    let row = json(&server, "backends")[1].clone();
    assert_eq!((&row["backend"], &row["added"]), (&other.name().into(), &true.into()));
    let refused = |arguments: &[&str], reason: &str| {
        let (status, _, err) = ctl(&server, arguments);
        assert!(status == 1 && err.contains(reason), "{arguments:?}: {err}");
    };
    refused(&["add", &other.name(), "--to", "proxy-core.backends"], "has the backend");
    refused(&["add", "a.example:80", "--to", "proxy-core.backends"], "is no address");
    refused(&["add", "192.0.2.1:80", "--to", "none"], "permits no connections to port 80");
    let here = other.address().port();
    let far = format!("192.0.2.1:{here}");
    refused(&["add", &far, "--to", "none"], "no upstream is named none");
    refused(&["remove", &one.name()], "the configuration has the backend");
    refused(&["remove", "192.0.2.1:80"], "no backend is named 192.0.2.1:80");
    let out =
        done(&server, &["remove", &other.name(), "--from", row["upstream"].as_str().expect("it")]);
    assert!(out.ends_with("is removed\n"), "{out}");
    assert!(!has(texts(&server, 12), "other"));
    assert_eq!(json(&server, "backends").as_array().map(Vec::len), Some(1));
}

#[test]
fn ordered_limit_holds_requests_back() {
    let backend = Backend::start(|peer| {
        let _ = peer.head();
        peer.hang();
    });
    let server = keeping(&backend).start();
    done(&server, &["limit", &backend.name(), "1"]);
    assert_eq!(json(&server, "backends")[0]["limit"], 1);
    let mut clients = [server.connect(), server.connect()];
    clients.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    let row = || json(&server, "backends")[0].clone();
    assert!(wait_until(PATIENCE, || row()["in_use"] == 1 && row()["waiting"] == 1));
    done(&server, &["limit", &backend.name()]);
    assert!(wait_until(PATIENCE, || row()["in_use"] == 2), "{}", row());
    for limit in ["0", "65536"] {
        let (status, _, err) = ctl(&server, &["limit", &backend.name(), limit]);
        assert!(status == 1 && err.contains("a limit is 1 to 65535 connections"), "{err}");
    }
    done(&server, &["limit", &backend.name(), "65535"]);
}

#[test]
fn kept_orders_hold_after_a_restart_until_they_are_forgotten() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let mut server = keeping(&one).config(&permitted_ports(&other)).start();
    done(
        &server,
        &["add", &other.name(), "--to", "proxy-core.backends", "--weight", "3", "--keep"],
    );
    done(&server, &["drain", &one.name(), "--keep"]);
    done(&server, &["limit", &one.name(), "9"]);
    let state = server.directory().join("state");
    let kept: Value =
        serde_json::from_slice(&std::fs::read(state.join("backends.json")).expect("the file"))
            .expect("JSON");
    assert_eq!(kept["version"], 1);
    assert_eq!(kept["backends"].as_array().map(Vec::len), Some(2));
    server.stop();
    let again = |backend: &Backend| {
        let setup = keeping(backend);
        std::fs::copy(state.join("backends.json"), setup.directory().join("state/backends.json"))
            .expect("copied");
        setup.start()
    };
    let server = again(&one);
    assert!(texts(&server, 6).iter().all(|text| text == "other"));
    let rows = json(&server, "backends");
    assert_eq!(
        (&rows[0]["state"], &rows[0]["kept"], &rows[1]["weight"], &rows[1]["kept"]),
        (&"drained".into(), &true.into(), &3.into(), &true.into())
    );
    assert_eq!(rows[0]["limit"], 256, "this order was not kept");
    done(&server, &["forget", &one.name()]);
    done(&server, &["remove", &other.name(), "--keep"]);
    assert_eq!(json(&server, "backends")[0]["state"], "drained", "until the end");
    let left = std::fs::read_to_string(server.directory().join("state/backends.json"));
    assert_eq!(left.expect("the file"), "{\"version\":1,\"backends\":[]}\n");
    let (status, _, err) = ctl(&server, &["forget", "x"]);
    assert!(status == 1 && err.contains("no backend is named x"), "{err}");
}

#[test]
fn orders_are_kept_only_with_a_state_directory() {
    let (one, other) = (Backend::answering("one"), Backend::answering("other"));
    let server = balanced(&one, &other);
    let (status, _, err) = ctl(&server, &["drain", &one.name(), "--keep"]);
    assert!(status == 1 && err.contains("nothing can be kept without server.state-dir"), "{err}");
    assert_eq!(json(&server, "backends")[0]["state"], "up", "nothing was changed");
    let setup = keeping(&one);
    std::fs::write(setup.directory().join("state/backends.json"), "[]").expect("written");
    let server = setup.start();
    server.await_log("no orders for backends are kept");
}
