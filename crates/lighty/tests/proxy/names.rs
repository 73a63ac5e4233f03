//! Backends by name: looked up before the first request, again when they move, and never a reason
//! not to start.

use std::net::SocketAddr;
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::name_server::NameServer;
use lighty_testkit::origin::Origin;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::wait_until;

const PATIENCE: Duration = Duration::from_secs(20);

/// Two backends on one port at two addresses of this machine.
fn two() -> (Origin, Origin) {
    loop {
        let first = Origin::start_at("127.0.0.2:0".parse().expect("an address"), "two");
        let second = SocketAddr::from(([127, 0, 0, 3], first.address().port()));
        if std::net::TcpListener::bind(second).is_ok() {
            return (first, Origin::start_at(second, "three"));
        }
    }
}

fn proxy(names: &NameServer, backend: &str) -> Setup {
    lighty!()
        .config(&format!("proxy-core.resolver = ( \"{}\" )", names.address()))
        .config("proxy-core.resolver-timeout = \"500ms\"")
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{backend}\" )"))
}

/// Names of the backends that respond to `count` requests.
fn who(server: &Server, count: usize) -> Vec<String> {
    let mut names: Vec<String> = (0..count).map(|_| server.get("/").text().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn the_first_request_waits_for_the_first_answer_and_a_move_is_followed() {
    let (two, three) = two();
    let names = NameServer::start("127.0.0.2 app.test\n", &[]);
    let server = proxy(&names, &format!("app.test:{}", two.address().port())).start();
    let first = server.get("/");
    assert_eq!((first.status, first.text()), (200, "two"), "{}", server.log());
    names.set_hosts("127.0.0.3 app.test\n");
    assert!(wait_until(PATIENCE, || server.get("/").text() == "three"), "{}", server.log());
    assert_eq!(who(&server, 5), ["three"]);
    assert!(three.requests() >= 5);
    assert!(!server.log().contains("error"), "{}", server.log());
}

#[test]
fn a_name_that_cannot_be_resolved_is_a_503_until_it_can() {
    let backend = Origin::start_at("127.0.0.2:0".parse().expect("an address"), "found");
    let names = NameServer::start("127.0.0.9 other.test\n", &[]);
    let server = proxy(&names, &format!("app.test:{}", backend.address().port()))
        .file("local", "here")
        .config("$HTTP[\"url\"] == \"/local\" { proxy-core.backends = () }")
        .start();
    assert_eq!(server.get("/local").text(), "here");
    let response = server.get("/");
    assert_eq!(response.status, 503);
    assert!(response.field("Retry-After").is_some(), "{response:?}");
    server.await_log("backend app.test");
    server.await_log("has no address, it cannot be resolved");
    names.set_hosts("127.0.0.2 app.test\n");
    assert!(wait_until(PATIENCE, || server.get("/").text() == "found"), "{}", server.log());
    server.await_log("is resolved");
}

#[test]
fn addresses_outlive_their_name_server() {
    let backend = Origin::start_at("127.0.0.2:0".parse().expect("an address"), "still");
    let mut names = NameServer::start("127.0.0.2 app.test\n", &[]);
    let server = proxy(&names, &format!("app.test:{}", backend.address().port())).start();
    assert_eq!(server.get("/").text(), "still");
    names.stop();
    server.await_log("keeps its addresses, it cannot be resolved again");
    assert_eq!(server.get("/").text(), "still");
    names.restart();
    server.await_log("is resolved");
    assert_eq!(server.get("/").text(), "still");
}

#[test]
fn a_name_with_two_addresses_is_balanced_or_has_a_reserve() {
    for (split, all) in [("enable", &["three", "two"][..]), ("disable", &["two"][..])] {
        let (two, _three) = two();
        let names = NameServer::start("127.0.0.2 app.test\n127.0.0.3 app.test\n", &[]);
        let server = proxy(&names, &format!("app.test:{}", two.address().port()))
            .config(&format!("proxy-core.split-hostnames = \"{split}\""))
            .start();
        assert_eq!(who(&server, 8), all, "{split}: {}", server.log());
        drop(two);
        assert!(wait_until(PATIENCE, || server.get("/").text() == "three"), "{}", server.log());
    }
}

#[test]
fn a_service_brings_ports_weights_and_reserves() {
    let (heavy, light, reserve) =
        (Origin::start("heavy"), Origin::start("light"), Origin::start("reserve"));
    let record = |origin: &Origin, priority, weight| {
        let port = origin.address().port();
        format!("--srv-host=_http._tcp.shop.test,app.test,{port},{priority},{weight}")
    };
    let records = [record(&heavy, 1, 3), record(&light, 1, 1), record(&reserve, 2, 9)];
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let names = NameServer::start("127.0.0.1 app.test\n", &records);
    let server = proxy(&names, "srv:_http._tcp.shop.test").start();
    assert_eq!(who(&server, 40), ["heavy", "light"], "{}", server.log());
    assert_eq!((heavy.requests(), light.requests()), (30, 10));
    drop((heavy, light));
    assert!(wait_until(PATIENCE, || server.get("/").text() == "reserve"), "{}", server.log());
}
