//! Certificates for names outside the configuration: admission of names, and limits for strangers.

use std::time::{Duration, Instant};

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::server::Server;
use lighty_testkit::tls::TlsClient;
use lighty_testkit::wait_until;

use super::{PATIENCE, assert_refused, await_served, file, get, site};

/// Server that admits names that begin with `shop`, and fails for names with `sick`.
fn admitting() -> Backend {
    Backend::replying(|seen| {
        let target = seen.target();
        assert!(target.starts_with("/may?domain=") && target.ends_with("&address=127.0.0.1"));
        match target {
            target if target.contains("=shop") => answer("200 OK", "", ""),
            target if target.contains("=sick") => answer("500 Oh", "", ""),
            _ => answer("404 Not Found", "", ""),
        }
    })
}

fn asking(backend: &Backend, lines: &str) -> String {
    format!(
        "acme.activate = \"enable\"\nacme.on-demand-ask = \"http://{}/may\"\n{lines}",
        backend.name()
    )
}

/// Returns true if a client that trusts only the authority gets a certificate for this name.
fn is_served(pebble: &Pebble, name: &str) -> bool {
    TlsClient::trusting(&pebble.root()).try_connect(pebble.https.address(), name).is_ok()
}

/// Server with all its listeners ready.
fn serving(pebble: &Pebble, config: &str) -> Server {
    let server = site(pebble, config).start();
    server.await_log("is serving");
    server
}

/// Waits for a counter.
fn await_figure(pebble: &Pebble, name: &str, wanted: &str) {
    let line = format!("{name}: {wanted}\n");
    let counters = || {
        let mut client = Client::tcp(pebble.http.address());
        client.send("GET /counters HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response().text().to_owned()
    };
    assert!(wait_until(PATIENCE, || counters().contains(&line)), "{}", counters());
}

#[test]
fn the_first_handshake_waits_for_the_certificate() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let seen = admitting();
    let lines = "server.max-worker = 2\nstatus.statistics-url = \"/counters\"\n\
                 server.https-redirect = \"disable\"";
    let mut server = serving(&pebble, &asking(&seen, lines));
    let client = TlsClient::trusting(&pebble.root());
    let mut first = client.try_connect(pebble.https.address(), "Shop1.a.test").expect("at once");
    assert_eq!(get(&mut first, "shop1.a.test"), "hello\n");
    assert!(is_served(&pebble, "shop1.a.test"), "and again");
    assert_eq!((pebble.signed(), seen.requests().len()), (1, 1));
    assert!(file(&server, "shop1.a.test").exists());
    await_figure(&pebble, "acme.on-demand.names", "1");
    server.stop();
    // After a restart it is there, once it is admitted.
    let config = server.directory().join("lighty.conf");
    let again = lighty!().spawn(&["-D", "-f", config.to_str().expect("UTF-8")]);
    again.await_log("is serving");
    assert!(is_served(&pebble, "shop1.a.test"));
    assert_eq!(pebble.signed(), 1);
    assert_eq!(seen.requests().len(), 2);
}

#[test]
fn refused_names_are_queried_once_a_minute_and_not_served() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let seen = admitting();
    let own = "$HTTP[\"host\"] == \"www.a.test\" { server.tag = \"x\" }\n";
    let server = serving(&pebble, &asking(&seen, own));
    await_served(&pebble, &server, "www.a.test");
    let began = Instant::now();
    for _ in 0..3 {
        assert!(!is_served(&pebble, "stranger.test"));
        assert!(!is_served(&pebble, "sick.test"));
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(seen.requests().len(), 2, "one about each");
    server.await_log("acme.on-demand-ask: sick.test: status 500");
    for name in ["localhost", "a_b.test"] {
        assert!(!is_served(&pebble, name), "{name}");
    }
    assert_eq!(seen.requests().len(), 2, "no authority signs for these");
    assert_eq!(pebble.signed(), 1);
}

#[test]
fn a_list_admits_without_asking() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let lines = "acme.activate = \"enable\"\nacme.on-demand-max-names = 1\n\
                 acme.on-demand-names = ( \"*.a.test\", \"b.test\" )\n\
                 status.statistics-url = \"/counters\"\nserver.https-redirect = \"disable\"";
    let server = serving(&pebble, lines);
    assert!(is_served(&pebble, "x.a.test"), "{}", server.log());
    assert!(!is_served(&pebble, "x.y.a.test"));
    // This name exceeds the limit.
    assert!(!is_served(&pebble, "b.test"));
    await_figure(&pebble, "acme.on-demand.full", "1");
    assert_eq!(pebble.signed(), 1);
}

#[test]
fn an_authority_that_refuses_is_not_asked_for_each_client() {
    let Some(pebble) = Pebble::start("\"domainBlocklist\": [\"shop.a.test\"],", &[]) else {
        return;
    };
    let seen = admitting();
    let server = serving(&pebble, &asking(&seen, ""));
    for _ in 0..3 {
        assert!(!is_served(&pebble, "shop.a.test"));
    }
    server.await_log("the next order is in 6");
    assert_eq!(server.log().matches("forbidden by policy").count(), 1, "{}", server.log());
    assert_eq!(seen.requests().len(), 1);
}

#[test]
fn a_stop_does_not_wait_for_who_is_asked() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let mute = Backend::replying(|_| {
        std::thread::sleep(Duration::from_secs(3));
        answer("200 OK", "", "")
    });
    let mut server = serving(&pebble, &asking(&mute, ""));
    let waiting = std::thread::scope(|scope| {
        let handle = scope.spawn(|| is_served(&pebble, "slow.a.test"));
        assert!(wait_until(PATIENCE, || !mute.requests().is_empty()));
        server.stop();
        handle.join().expect("no panic")
    });
    assert!(!waiting);
}

#[test]
fn incomplete_settings_of_orders_on_demand_are_refused() {
    for (lines, message) in [
        ("acme.on-demand-ask = \"http://127.0.0.1/x\"", "need acme.activate"),
        ("acme.on-demand-ask = \"127.0.0.1\"", "is no URL that can be asked"),
        (
            "acme.activate = \"enable\"\nacme.on-demand-names = ( \"a.test\" )\n\
             acme.challenge = \"dns-01\"",
            "needs acme.dns-hook",
        ),
    ] {
        assert_refused(lines, message);
    }
}
