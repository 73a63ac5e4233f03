//! TLS on listeners: certificates, names, protocols above, and the results of handshakes.

mod carrying;
mod certificates;
mod clients;
mod handshakes;
mod local;
mod redirect;
mod renewal;
mod reported;

use std::process::Command;

use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::tls::Authority;

/// A server that speaks TLS, with a certificate for `a.test` and a page.
pub(crate) fn site(config: &str) -> (Authority, Setup) {
    let setup = lighty!().file("a.txt", "hello\n");
    let authority = Authority::new(setup.directory());
    authority.issue("a.pem", &["a.test", "localhost"]);
    let setup =
        setup.config("ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"").config(config);
    (authority, setup)
}

pub(crate) fn start(config: &str) -> (Authority, Server) {
    let (authority, setup) = site(config);
    (authority, setup.start())
}

pub(crate) const GET: &str = "GET /a.txt HTTP/1.1\r\nHost: a.test\r\n\r\n";

pub(crate) fn get(client: &mut Client) -> String {
    client.send(GET);
    let response = client.response();
    assert_eq!(response.status, 200, "{response:?}");
    String::from_utf8(response.body).expect("text")
}

/// Output of curl, which trusts the authority and knows `a.test` and `b.test`.
pub(crate) fn curl(authority: &Authority, server: &Server, arguments: &[&str]) -> String {
    let port = server.address().port();
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "30", "--cacert"]).arg(authority.path("ca.pem"));
    for name in ["a.test", "b.test"] {
        command.args(["--resolve", &format!("{name}:{port}:127.0.0.1")]);
    }
    let arguments = arguments.iter().map(|text| text.replace("@PORT@", &port.to_string()));
    let output = command.args(arguments).output().expect("curl runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Same as in lighttpd: an empty value in a condition restores the default.
#[test]
fn an_empty_list_of_suites_is_the_default() {
    let lines = "ssl.cipher-list = \"AES256\"\n\
                 $HTTP[\"host\"] == \"a.test\" { ssl.cipher-list = \"\" }\n\
                 $HTTP[\"host\"] == \"b.test\" { server.tag = \"b\" }";
    let (authority, server) = start(lines);
    let with = |name: &str| {
        let url = format!("https://{name}:@PORT@/a.txt");
        let suite = "ECDHE-ECDSA-AES128-GCM-SHA256";
        curl(&authority, &server, &["-k", "--tls-max", "1.2", "--ciphers", suite, &url])
    };
    assert_eq!(with("a.test"), "hello\n");
    assert!(with("b.test").contains("curl: (35)"), "{}", with("b.test"));
}

#[test]
fn requests_are_served_over_either_version_and_protocol() {
    let (authority, server) = start("");
    let url = "https://a.test:@PORT@/a.txt";
    for (version, arguments) in [
        ("2", &["--tlsv1.3"][..]),
        ("2", &["--tls-max", "1.2"]),
        ("1.1", &["--http1.1", "--tlsv1.3"]),
        ("1.1", &["--http1.1", "--tls-max", "1.2"]),
        ("1.1", &["--no-alpn"]),
    ] {
        let arguments = [arguments, &["-w", "%{http_version}", url]].concat();
        assert_eq!(curl(&authority, &server, &arguments), format!("hello\n{version}"));
    }
}

#[test]
fn a_connection_is_kept_and_its_end_is_said() {
    let (authority, server) = start("");
    for client in [authority.client(), authority.client().with_tls12()] {
        let mut client = client.connect(server.address(), "a.test");
        assert_eq!(get(&mut client), "hello\n");
        assert_eq!(get(&mut client), "hello\n");
        client.send("GET /a.txt HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        assert_eq!(client.response().status, 200);
        assert_eq!(client.expect_end(), ConnectionEnd::Closed);
    }
}

#[test]
fn http_in_the_clear_is_answered_in_words() {
    let (_, server) = start("");
    let mut client = server.connect();
    client.send(GET);
    let response = client.response();
    assert_eq!(response.status, 400);
    assert!(String::from_utf8_lossy(&response.body).contains("https://"), "{response:?}");
    client.half_close();
    client.expect_end();
    server.await_log("the client speaks HTTP in the clear");
}

#[test]
fn names_choose_certificates_before_a_request() {
    let (authority, setup) = site(
        "$HTTP[\"host\"] == \"b.test\" { ssl.pemfile = \"@DIR@/b.pem\"\n\
         ssl.privkey = \"@DIR@/b.key\" }",
    );
    authority.issue_apart("b.pem", "b.key", &["b.test"]);
    let server = setup.start();
    for name in ["a.test", "b.test", "localhost"] {
        let mut client = authority.client().connect(server.address(), name);
        assert_eq!(get(&mut client), "hello\n");
    }
    // The listener's own certificate serves unknown names.
    let error = authority.client().try_connect(server.address(), "c.test").err();
    let error = error.expect("another name").to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

#[test]
fn the_scheme_is_known_to_conditions_programs_and_logs() {
    let (authority, server) = start(
        "server.modules += ( \"mod_redirect\", \"mod_accesslog\" )\n\
         accesslog.filename = \"@DIR@/access.log\"\n\
         accesslog.format = \"%{SSL_PROTOCOL}e %{SSL_CIPHER}e %{SSL_CIPHER_USEKEYSIZE}e\"\n\
         $HTTP[\"scheme\"] == \"https\" { url.redirect = ( \"^/old\" => \"/new\" ) }",
    );
    let mut client = authority.client().connect(server.address(), "a.test");
    client.send("GET /old HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().status, 301);
    drop(client);
    let path = server.directory().join("access.log");
    let printed = || std::fs::read_to_string(&path).unwrap_or_default();
    let logged = lighty_testkit::wait_until(std::time::Duration::from_secs(60), || {
        printed().contains("TLSv1.3 TLS_AES_256_GCM_SHA384 256")
    });
    assert!(logged, "{}", printed());
}

#[test]
fn invalid_tls_settings_stop_the_start_with_the_reason() {
    for (lines, message) in [
        ("ssl.engine = \"enable\"", "ssl.pemfile is not set"),
        ("ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/none.pem\"", "none.pem"),
        ("ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/ca.pem\"", "holds no private key"),
        (
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/ca.pem\"\nssl.privkey = \"@DIR@/a.pem\"",
            "the private key belongs to another certificate",
        ),
        (
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n\
             ssl.verifyclient.activate = \"enable\"",
            "ssl.verifyclient.ca-file",
        ),
        (
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\nssl.ca-file = \"@DIR@/none\"",
            "ssl.ca-file",
        ),
        (
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n\
             ssl.ech-opts = ( \"keydir\" => \"/etc/ech\" )",
            "encrypted client hello",
        ),
        (
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\nssl.stek-file = \"@DIR@/a.pem\"",
            "a key file has",
        ),
        (
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n\
             ssl.key-log-file = \"@DIR@/none/keys.log\"",
            "ssl.key-log-file: ",
        ),
        (
            "ssl.engine = \"enable\"\nacme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             acme.store = \"/proc/none\"",
            "acme.store: ",
        ),
        (
            "ssl.engine = \"enable\"\nacme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             acme.store = \"@DIR@/acme\"\nacme.ca-file = \"@DIR@/none.pem\"",
            "acme.ca-file: ",
        ),
        (
            "$SERVER[\"socket\"] == \"127.0.0.1:0\" { ssl.engine = \"enable\" }",
            "ssl.pemfile is not set",
        ),
    ] {
        let setup = lighty!().config(lines);
        let authority = Authority::new(setup.directory());
        authority.issue("a.pem", &["a.test"]);
        let config = setup.write_config();
        let config = config.to_str().expect("UTF-8");
        let (code, _, printed) = setup.run(&["-tt", "-f", config]);
        assert!(code == 1 && printed.contains(message), "{lines}: {printed}");
        let mut server = setup.spawn(&["-D", "-f", config]);
        let (status, _) = server.await_exit(lighty_testkit::server::STOP_DEADLINE);
        assert_eq!(status.code(), Some(1));
        assert!(server.log().contains(message), "{lines}: {}", server.log());
    }
}
