//! Certificates obtained through ACME, from an authority on this machine.

mod on_demand;
mod orders;
mod side_by_side;
mod store;
mod upgrade;

use std::path::PathBuf;
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::server::{STOP_DEADLINE, Server, Setup};
use lighty_testkit::tls::TlsClient;
use lighty_testkit::wait_until;

/// Longer than an order takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Server on the ports that the authority validates, with a page.
pub(crate) fn site(pebble: &Pebble, config: &str) -> Setup {
    let issuer = pebble.directory();
    site_of(pebble, &[&issuer], config)
}

/// Like [`site`], with other issuers.
pub(crate) fn site_of(pebble: &Pebble, issuers: &[&str], config: &str) -> Setup {
    let (http, https) = (pebble.http.address(), pebble.https.address());
    let own = if config.contains("acme.store") { "" } else { "acme.store = \"@DIR@/store\"\n" };
    lighty!().without_listener().file("a.txt", "hello\n").config(&format!(
        "server.bind = \"{}\"\nserver.port = {}\n\
         $SERVER[\"socket\"] == \"{https}\" {{ ssl.engine = \"enable\" }}\n\
         acme.issuers = ( \"{}\" )\nacme.ca-file = \"{}\"\n{own}{config}",
        http.ip(),
        http.port(),
        issuers.join("\", \""),
        pebble.ca_file().display(),
    ))
}

/// Enables a certificate for one name.
pub(crate) const ONE: &str = "$HTTP[\"host\"] == \"www.a.test\" { acme.activate = \"enable\" }";

/// The file of a certificate in the store.
pub(crate) fn file(server: &Server, name: &str) -> PathBuf {
    server.directory().join(format!("store/certificates/{name}.pem"))
}

/// Waits until clients that trust the authority alone are served under this name.
pub(crate) fn await_served(pebble: &Pebble, server: &Server, name: &str) -> Client {
    let client = TlsClient::trusting(&pebble.root());
    let connect = || client.try_connect(pebble.https.address(), name);
    let is_served = wait_until(PATIENCE, || connect().is_ok());
    assert!(is_served, "{}\n{}", server.log(), pebble.log());
    connect().expect("a connection")
}

pub(crate) fn get(client: &mut Client, name: &str) -> String {
    client.send(format!("GET /a.txt HTTP/1.1\r\nHost: {name}\r\n\r\n"));
    let response = client.response();
    String::from_utf8(response.body).expect("text")
}

/// Asserts that a start and `-t` refuse these lines for this reason. Only `-tt` checks the files
/// that a directive names, and only a start checks permissions.
pub(crate) fn assert_refused(lines: &str, message: &str) {
    let setup = lighty!().config(lines);
    let config = setup.write_config();
    let mut server = setup.spawn(&["-D", "-f", config.to_str().expect("UTF-8")]);
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert_eq!(status.code(), Some(1), "{lines}");
    assert!(server.log().contains(message), "{lines}: {}", server.log());
    let tests: &[&str] = match lines {
        lines if lines.contains("/proc/none") => &[],
        lines if lines.contains("/etc/passwd") || lines.contains("@DIR@/none") => &["-tt"],
        _ => &["-t", "-tt"],
    };
    for test in tests {
        let (code, _, output) = lighty!().run(&[test, "-f", config.to_str().expect("UTF-8")]);
        assert!(code != 0 && output.matches(message).count() == 1, "{test} {lines}: {output}");
    }
}
