//! Demanding clients of a proxy: signed paths, and upgrades to protocols other than WebSocket.

use std::time::Duration;

use lighty_testkit::real::clients::{ServerProcess, java_websocket, spdy_exec, store_objects};
use lighty_testkit::real::websocket::WebSocketServer;
use lighty_testkit::server::Setup;
use lighty_testkit::tls::Authority;
use lighty_testkit::{lighty, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Both spellings of a proxy for everything, with upgrades.
fn fronts(peer: &lighty_testkit::real::Listen) -> [Setup; 2] {
    let core = lighty!()
        .in_front_of(&peer.backend())
        .config("proxy-core.upgrade = \"enable\"\nproxy-core.forward-path = \"as-received\"");
    let module = lighty!()
        .config(&format!("proxy.server = ( \"\" => ( ( {} ) ) )", peer.host_keys()))
        .config("proxy.header = ( \"upgrade\" => \"enable\" )")
        .config("proxy-core.forward-path = \"as-received\"");
    [core, module]
}

const STORED: [&str; 4] = ["stored: 18", "listed: 18", "left: ['plain']", "large: True"];

/// Signatures cover the path as the client has encoded it.
#[test]
fn boto3_stores_objects_with_odd_keys_through_mod_proxy() {
    let Some(store) = ServerProcess::object_store() else { return };
    let [_, module] = fronts(store.listen());
    let server = module.start();
    let url = format!("http://{}", server.address());
    assert_eq!(store_objects(&url).expect("boto3"), STORED, "{}", server.log());
}

#[test]
fn boto3_stores_objects_with_odd_keys_without_a_configuration() {
    let Some(store) = ServerProcess::object_store() else { return };
    let to = store.listen().backend();
    let server = lighty!().spawn(&["proxy", "--from", "127.0.0.1:0", "--to", &to, "--quiet"]);
    assert!(wait_until(PATIENCE, || !server.listening().is_empty()), "{}", server.log());
    let url = format!("http://{}", server.listening()[0]);
    assert_eq!(store_objects(&url).expect("boto3"), STORED, "{}", server.log());
}

/// kubectl's `exec`: POST without a body, `Upgrade: SPDY/3.1`, several streams both ways.
#[test]
fn kubectl_executes_over_spdy() {
    let Some(peer) = ServerProcess::spdy() else { return };
    for setup in fronts(peer.listen()) {
        let server = setup.start();
        let output = spdy_exec(&format!("http://{}", server.address())).expect("a client");
        let expected = [
            "upgrade: 101 SPDY/3.1 v4.channel.k8s.io",
            "stdout: 700000 true",
            "error: {\"status\":\"Success\"}",
        ];
        assert_eq!(output, expected, "{}", server.log());
    }
}

/// Java's client announces a body of no bytes.
#[test]
fn java_opens_websockets() {
    let Some(backend) = WebSocketServer::start() else { return };
    let [setup, _] = fronts(backend.listen());
    let authority = Authority::new(setup.directory());
    authority.issue("server.pem", &["127.0.0.1"]);
    let pem = authority.path("server.pem");
    let server = setup
        .config(&format!("ssl.engine = \"enable\"\nssl.pemfile = \"{}\"", pem.display()))
        .start();
    let url = format!("wss://{}", server.address());
    let Some(output) = java_websocket(&url, &authority.path("ca.pem")) else { return };
    let expected =
        ["open: echo", "text: true", "binary: 1048576", "pong: there", "close: 4001 as asked"];
    assert_eq!(output, expected, "{}", server.log());
}
