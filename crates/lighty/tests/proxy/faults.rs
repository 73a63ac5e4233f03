//! Backends that die, lie, hang or send too much: the client's response, and its delay.

mod clients;
mod connections;
mod responses;
mod status_field;

use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;

const SOON: Duration = Duration::from_secs(30);

/// Time limits that a test can wait for; the tick that judges them takes a tenth of a second.
const READ_LIMIT: &str = "proxy-core.read-timeout = \"600ms\"";

/// A server in front of a backend.
fn front(backend: &Backend, lines: &str) -> Server {
    lighty!().in_front_of(&backend.name()).config(lines).start()
}

fn ask(client: &mut Client, version: &str) {
    client.send(format!("GET /x HTTP/{version}\r\nHost: a\r\n\r\n"));
}

fn assert_status(server: &Server, status: u16, messages: &[&str]) {
    let response = server.get("/x");
    assert_eq!(response.status, status, "{response:?}\n{}", server.log());
    for message in messages {
        server.await_log(message);
    }
}
