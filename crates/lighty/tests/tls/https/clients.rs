//! Client certificates: admission of clients, and the variables for programs.

use lighty_testkit::http2::Http2;
use lighty_testkit::lighty;
use lighty_testkit::peer::LighttpdPeer;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::tls::{Authority, TlsClient};

use super::{curl, site};

/// Prints a program's variables about the client's TLS.
const PROGRAM: &str = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n\
    env | grep -aE '^(SSL_|HTTPS|REQUEST_SCHEME|REMOTE_USER|AUTH_TYPE|HTTP_)' | sort\n";

const CLIENT_AUTH: &str = "ssl.verifyclient.activate = \"enable\"\n\
    ssl.verifyclient.ca-file = \"@DIR@/staff.pem\"\n\
    ssl.verifyclient.username = \"SSL_CLIENT_S_DN_CN\"\n\
    ssl.verifyclient.exportcert = \"enable\"\n";

/// A server with a program; the authority of clients signs `jo.pem`, another one `eve.pem`.
fn with_program(config: &str) -> (Authority, Server) {
    let (authority, setup) = site(&format!("cgi.assign = ( \".cgi\" => \"\" )\n{config}"));
    let setup = setup.file("e.cgi", PROGRAM);
    make_executable(&setup.root("e.cgi"));
    people(&authority);
    (authority, setup.start())
}

fn people(authority: &Authority) {
    let directory = authority.path("");
    Authority::named(&directory, "staff.pem").issue("jo.pem", &["Jo"]);
    Authority::named(&directory, "strangers.pem").issue("eve.pem", &["Eve"]);
}

fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

fn ask(client: &TlsClient, server: &Server) -> Result<String, String> {
    let connected = client.try_connect(server.address(), "a.test");
    let mut client = connected.map_err(|error| error.to_string())?;
    let sent = client.try_send(
        "GET /e.cgi HTTP/1.1\r\nHost: a.test\r\nSSL-Client-Verify: SUCCESS\r\n\
         SSL_CLIENT_S_DN: forged\r\nRemote-User: root\r\n\r\n",
    );
    sent.map_err(|error| error.to_string())?;
    client.try_response(false).map(|response| response.text().to_owned())
}

fn lines_of(text: &str, beginning: &str) -> Vec<String> {
    let found = text.lines().filter(|line| line.starts_with(beginning));
    found.map(str::to_owned).collect()
}

#[test]
fn without_a_certificate_of_the_authority_there_is_no_connection() {
    let (authority, server) = with_program(CLIENT_AUTH);
    for client in [authority.client(), authority.client().with_tls12()] {
        assert!(ask(&client, &server).is_err());
        let eve = client.clone().with_certificate(authority.path("eve.pem"));
        assert!(ask(&eve, &server).is_err());
        let jo = client.with_certificate(authority.path("jo.pem"));
        let output = ask(&jo, &server).expect("a response");
        assert_eq!(lines_of(&output, "SSL_CLIENT_VERIFY"), ["SSL_CLIENT_VERIFY=SUCCESS"]);
        assert_eq!(lines_of(&output, "REMOTE_USER"), ["REMOTE_USER=Jo"]);
        assert_eq!(
            lines_of(&output, "SSL_CLIENT_CERT"),
            ["SSL_CLIENT_CERT=-----BEGIN CERTIFICATE-----"]
        );
    }
    server.await_log("TLS handshake failed");
}

#[test]
fn clients_without_a_trusted_certificate_are_marked() {
    let (authority, server) =
        with_program(&format!("{CLIENT_AUTH}ssl.verifyclient.enforce = \"disable\""));
    for (file, verdict) in
        [(None, "NONE"), (Some("eve.pem"), "FAILED:"), (Some("jo.pem"), "SUCCESS")]
    {
        let client = authority.client();
        let client = match file {
            Some(file) => client.with_certificate(authority.path(file)),
            None => client,
        };
        let output = ask(&client, &server).expect("a response");
        assert!(output.contains(&format!("\nSSL_CLIENT_VERIFY={verdict}")), "{output}");
        let is_known = file == Some("jo.pem");
        assert_eq!(!lines_of(&output, "SSL_CLIENT_S_DN").is_empty(), is_known, "{output}");
        assert_eq!(!lines_of(&output, "REMOTE_USER").is_empty(), is_known, "{output}");
    }
}

#[test]
fn a_certificate_stands_for_a_password() {
    let require = |who: &str| {
        format!(
            "{CLIENT_AUTH}ssl.verifyclient.enforce = \"disable\"\nauth.require = ( \"/\" => (\n\
             \"method\" => \"extern\", \"realm\" => \"r\", \"require\" => \"{who}\" ) )"
        )
    };
    for (who, is_admitted) in [("valid-user", true), ("user=Jo", true), ("user=Kim", false)] {
        let (authority, server) = with_program(&require(who));
        for (file, is_known) in [(None, false), (Some("eve.pem"), false), (Some("jo.pem"), true)] {
            let client = authority.client();
            let client = match file {
                Some(file) => client.with_certificate(authority.path(file)),
                None => client,
            };
            let mut client = client.try_connect(server.address(), "a.test").expect("connected");
            client.send("GET /e.cgi HTTP/1.1\r\nHost: a.test\r\n\r\n");
            let response = client.response();
            let status = if is_known && is_admitted { 200 } else { 401 };
            assert_eq!(response.status, status, "{who}, {file:?}: {}", server.log());
            assert_eq!(response.field("WWW-Authenticate"), None, "there is no password to ask for");
        }
    }
}

#[test]
fn programs_learn_what_lighttpd_tells_them() {
    let config = format!("{CLIENT_AUTH}ssl.verifyclient.enforce = \"disable\"");
    let (authority, server) = with_program(&config);
    let Some(setup) = LighttpdPeer::setup("\"mod_openssl\", \"mod_cgi\"") else { return };
    if !std::path::Path::new("/usr/lib/lighttpd/mod_openssl.so").exists() {
        eprintln!("SKIPPED: lighttpd has no mod_openssl");
        return;
    }
    // It does without a chain only where it finds one among the authorities of clients.
    let chain = ["a.pem", "ca.pem"].map(|file| std::fs::read(authority.path(file)).expect(file));
    write_file(&authority.path("chain.pem"), chain.concat());
    let directory = authority.path("");
    let directory = directory.to_str().expect("UTF-8").trim_end_matches('/');
    let port = lighty_testkit::backend::Port::reserve();
    let address = port.address();
    drop(port);
    let own = "cgi.assign = ( \".cgi\" => \"\" )\nssl.engine = \"enable\"\n\
               ssl.pemfile = \"@SITE@/chain.pem\"\n";
    let socket = format!("$SERVER[\"socket\"] == \"{address}\" {{ ssl.engine = \"enable\" }}");
    let config = format!("{own}{config}\n{socket}").replace("@DIR@", directory);
    let setup = setup.config(&config.replace("@SITE@", directory)).file("e.cgi", PROGRAM);
    make_executable(&setup.root("e.cgi"));
    let peer = LighttpdPeer::start(setup);
    for file in [None, Some("jo.pem")] {
        let client = authority.client();
        let client = match file {
            Some(file) => client.with_certificate(authority.path(file)),
            None => client,
        };
        let ours = ask(&client, &server).expect("a response");
        let connected = client.try_connect(address, "a.test");
        let mut theirs = connected.unwrap_or_else(|error| panic!("{error}: {}", peer.log()));
        theirs.send("GET /e.cgi HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let theirs = theirs.response().text().to_owned();
        for beginning in ["SSL_", "HTTPS", "REQUEST_SCHEME", "REMOTE_USER", "AUTH_TYPE"] {
            assert_eq!(lines_of(&ours, beginning), lines_of(&theirs, beginning));
        }
    }
}

#[test]
fn a_host_that_wants_another_certificate_is_misdirected() {
    let (authority, server) =
        with_program(&format!("$HTTP[\"host\"] == \"b.test\" {{ {CLIENT_AUTH} }}"));
    let mut client = authority.client().connect(server.address(), "a.test");
    for (host, status) in [("a.test", 200), ("b.test", 421), ("a.test", 200)] {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, status, "{host}");
    }
    let port = server.address().port();
    let connect_to = format!("b.test:{port}:a.test:{port}");
    let url = format!("https://a.test:{port}/a.txt");
    let status = curl(
        &authority,
        &server,
        &[
            "--connect-to",
            &connect_to,
            "-H",
            "Host: b.test",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            &url,
        ],
    );
    assert_eq!(status, "421");
}

#[test]
fn a_host_that_wants_no_more_than_was_shown_is_served() {
    let host = |name: &str, lines: &str| format!("$HTTP[\"host\"] == \"{name}\" {{ {lines} }}\n");
    let lax = format!("{CLIENT_AUTH}ssl.verifyclient.enforce = \"disable\"\n");
    let strangers = CLIENT_AUTH.replace("staff.pem", "strangers.pem");
    let (authority, server) = with_program(
        &[host("localhost", CLIENT_AUTH), host("lax", &lax), host("strangers", &strangers)]
            .concat(),
    );
    let jo = authority.client().with_certificate(authority.path("jo.pem"));
    let wanted = [("localhost", 200), ("a.test", 200), ("lax", 200), ("strangers", 421)];
    let mut client = jo.connect(server.address(), "localhost");
    for (host, status) in wanted {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, status, "{host}");
    }
    let client = jo.with_alpn(&["h2"]).connect(server.address(), "localhost");
    let mut client = Http2::over(client, "localhost", &[]);
    for (host, status) in wanted {
        let mut fields = client.request_fields("GET", "/a.txt");
        let authority = fields.iter_mut().find(|(name, _)| name == ":authority");
        host.clone_into(&mut authority.expect("an authority").1);
        let stream = client.open(&fields, true);
        assert_eq!(client.answer(stream).status, status, "{host}");
    }
}

#[test]
fn another_connection_cannot_go_on_with_what_a_host_has_not_seen() {
    let (authority, server) =
        with_program(&format!("$HTTP[\"host\"] == \"localhost\" {{ {CLIENT_AUTH} }}"));
    let config = authority.client().config();
    let first = lighty_testkit::tls::connect(&config, server.address(), "a.test").expect("shaken");
    let mut first = lighty_testkit::client::Client::over_tls(first);
    assert_eq!(super::get(&mut first), "hello\n");
    let second = lighty_testkit::tls::connect(&config, server.address(), "localhost");
    let refused = second.map(lighty_testkit::client::Client::over_tls).map(|mut client| {
        client.try_send(super::GET).is_err() || client.try_response(false).is_err()
    });
    assert!(refused.unwrap_or(true));
}

#[test]
fn conditions_that_no_handshake_knows_are_warned_of() {
    let of = |condition: &str| {
        let setup = lighty!().config(&format!(
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n{condition} {{\n{CLIENT_AUTH}}}"
        ));
        let authority = Authority::new(setup.directory());
        authority.issue("a.pem", &["a.test"]);
        people(&authority);
        let (code, out, output) = setup.run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{output}");
        out + &output
    };
    let message = "is known only when a request is there";
    assert!(of("$HTTP[\"url\"] =^ \"/staff/\"").contains(message));
    assert!(!of("$HTTP[\"host\"] == \"a.test\"").contains(message));
}

#[test]
fn certificates_that_are_asked_for_without_an_authority_are_reported_once() {
    let setup = lighty!().config(
        "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n\
         ssl.verifyclient.activate = \"enable\"",
    );
    Authority::new(setup.directory()).issue("a.pem", &["a.test"]);
    for check in ["-t", "-tt"] {
        let (code, _, output) = setup.run(&[check, "-f", "@CONF@"]);
        assert!(code == 1 && output.matches("error: ").count() == 1, "{output}");
        assert!(output.contains("| ssl.verifyclient.activate = "), "{output}");
    }
}

#[test]
fn a_list_of_revoked_certificates_that_is_none_does_not_start() {
    let setup = lighty!().config(&format!(
        "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n{CLIENT_AUTH}\
         ssl.verifyclient.ca-crl-file = \"@DIR@/crl.pem\""
    ));
    let authority = Authority::new(setup.directory());
    authority.issue("a.pem", &["a.test"]);
    people(&authority);
    write_file(&authority.path("crl.pem"), "");
    let (code, _, output) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert!(code == 1 && output.contains("no certificate revocation list"), "{output}");
}
