//! `--tls` of a server without configuration.

use lighty_testkit::lighty;
use lighty_testkit::server::Server;
use lighty_testkit::tls::TlsClient;

use super::get;

fn serve(home: &str, arguments: &[&str]) -> (Server, TlsClient) {
    let setup = lighty!().file("a.txt", "hello\n").env("HOME", home).env("XDG_DATA_HOME", "");
    let root = setup.root("");
    let root = root.to_str().expect("UTF-8").to_owned();
    let arguments: Vec<&str> =
        arguments.iter().map(|word| if *word == "@ROOT@" { &root } else { *word }).collect();
    let server = setup.spawn(&arguments);
    server.await_log("is serving https://127.0.0.1:");
    let authority = std::path::Path::new(home).join(".local/share/lighty/ca.pem");
    assert!(server.log().contains(&format!("trust {}", authority.display())), "{}", server.log());
    let client = TlsClient::trusting(&authority);
    (server, client)
}

#[test]
fn a_site_has_a_certificate_of_the_users_own_authority() {
    let home = tempfile::tempdir().expect("a home");
    let home = home.path().to_str().expect("UTF-8");
    let arguments = ["serve", "@ROOT@", "--listen", "127.0.0.1:0", "--tls"];
    let (first, client) = serve(home, &arguments);
    for name in ["localhost", "127.0.0.1"] {
        let mut client = client.connect(first.listening()[0], name);
        assert_eq!(get(&mut client), "hello\n");
    }
    // The authority stays the same, so that it is trusted once.
    let (second, _) = serve(home, &arguments);
    assert_eq!(get(&mut client.connect(second.listening()[0], "localhost")), "hello\n");
}

#[test]
fn a_proxy_speaks_tls_too() {
    let home = tempfile::tempdir().expect("a home");
    let home = home.path().to_str().expect("UTF-8");
    let backend = lighty_testkit::backend::Backend::answering("hello\n");
    let to = backend.name();
    let (server, client) = serve(home, &["proxy", "--from", "127.0.0.1:0", "--to", &to, "--tls"]);
    assert_eq!(get(&mut client.connect(server.listening()[0], "localhost")), "hello\n");
}

#[test]
fn without_a_home_there_is_no_authority() {
    let setup = lighty!().env("HOME", "").env("XDG_DATA_HOME", "");
    let (code, _, output) = setup.run(&["serve", ".", "--listen", "127.0.0.1:0", "--tls"]);
    assert!(code == 1 && output.contains("HOME"), "{output}");
}
