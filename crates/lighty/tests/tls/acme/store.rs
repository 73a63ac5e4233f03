//! Certificate store: shared by processes, on a full disk, with broken files.

use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::server::write_file;
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::{lighty, wait_until};
use std::path::Path;

use super::{ONE, PATIENCE, await_served, file, get, site};

#[test]
fn two_processes_on_one_store_order_once() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let shared = tempfile::tempdir().expect("a store");
    let store = format!("acme.store = \"{}\"\n", shared.path().display());
    // The second has no listener that the authority would find.
    let second = lighty!().config(&format!(
        "acme.issuers = ( \"{}\" )\nacme.ca-file = \"{}\"\n{store}{ONE}\nssl.engine = \"enable\"",
        pebble.directory(),
        pebble.ca_file().display(),
    ));
    let first = site(&pebble, &format!("{store}{ONE}")).start();
    let second = second.start();
    await_served(&pebble, &first, "www.a.test");
    let client = lighty_testkit::tls::TlsClient::trusting(&pebble.root());
    let is_shared =
        wait_until(PATIENCE, || client.try_connect(second.address(), "www.a.test").is_ok());
    assert!(is_shared, "{}", second.log());
    assert_eq!(pebble.signed(), 1, "{}\n{}", first.log(), second.log());
    let locks = std::fs::read_dir(shared.path().join("locks")).expect("a directory");
    assert_eq!(locks.count(), 0);
}

#[test]
fn store_that_cannot_be_read_is_not_called_empty() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    std::fs::create_dir(root.join("store")).expect("a directory");
    let config = root.join("a.conf");
    let lines = format!(
        "server.document-root = \"{root}\"\nserver.port = 8443\nssl.engine = \"enable\"\n\
         acme.store = \"{root}/store\"\n{ONE}\n",
        root = root.display()
    );
    write_file(&config, lines);
    let cert = |arguments: &[&str]| {
        let config = ["cert", "-f", config.to_str().expect("UTF-8")];
        let (code, printed, error) = lighty!().run(&[&config, arguments].concat());
        (code, printed + &error)
    };
    let (code, printed) = cert(&["list"]);
    assert!(code == 0 && printed.starts_with("www.a.test: is not there"), "{printed}");
    let path = printed_file(&cert(&["show", "www.a.test"]).1);
    std::fs::create_dir_all(Path::new(&path).parent().expect("a directory")).expect("made");
    // Root may read everything, but follows no link that leads to itself.
    std::os::unix::fs::symlink(&path, &path).expect("a link");
    for arguments in [&["list"][..], &["show", "www.a.test"]] {
        let (code, printed) = cert(arguments);
        assert!(
            code == 1 && printed.contains("Too many levels") && printed.contains(&path),
            "{printed}"
        );
    }
    std::fs::remove_file(&path).expect("removed");
    write_file(Path::new(&path), "nothing");
    let (code, printed) = cert(&["list"]);
    assert!(code == 0 && printed.starts_with("www.a.test: is broken"), "{printed}");
}

/// The file that `lighty cert show` names.
fn printed_file(printed: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix("file")).expect("a file");
    line.trim().to_owned()
}

#[test]
fn no_certificate_is_ordered_that_could_not_be_stored() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let setup = site(&pebble, ONE);
    let store = setup.directory().join("store");
    std::fs::create_dir(&store).expect("a directory");
    let Some(_disk) = SmallDisk::mount(&store, c"size=64k") else { return };
    write_file(&store.join("filler"), vec![0; 56 << 10]);
    let server = setup.start();
    server.await_log("No space left on device");
    let text = server.log();
    let line = text.lines().find(|line| line.contains("No space left")).expect("a line");
    assert!(line.contains("/store/"), "{line}");
    assert!(!pebble.log().contains("/order-plz"), "{}", pebble.log());
    std::fs::remove_file(store.join("filler")).expect("removed");
    write_file(&store.join("renew/www.a.test"), "");
    await_served(&pebble, &server, "www.a.test");
    drop(server);
}

#[test]
fn a_certificate_is_renewed_when_asked_for_and_what_is_broken_is_ordered_again() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let server = site(&pebble, ONE).start();
    let mut kept = await_served(&pebble, &server, "www.a.test");
    let path = file(&server, "www.a.test");
    let first = std::fs::read(&path).expect("a certificate");
    write_file(&server.directory().join("store/renew/www.a.test"), "");
    assert!(wait_until(PATIENCE, || std::fs::read(&path).expect("a certificate") != first));
    server.await_log("the certificate was loaded again");
    assert_eq!(pebble.signed(), 2, "{}", server.log());
    let config = server.directory().join("lighty.conf");
    let cert = |arguments: &[&str]| {
        let config = ["cert", "-f", config.to_str().expect("UTF-8")];
        let (code, printed, error) = lighty!().run(&[&config, arguments].concat());
        (code, printed + &error)
    };
    let (code, printed) = cert(&["list"]);
    assert!(code == 0 && printed.starts_with("www.a.test: until 2"), "{printed}");
    let (code, printed) = cert(&["show", "www.a.test"]);
    assert!(code == 0 && printed.contains("CN = Pebble Intermediate CA"), "{printed}");
    assert_eq!(cert(&["show", "b.test"]).0, 1);
    let second = std::fs::read(&path).expect("a certificate");
    assert_eq!(cert(&["renew", "www.a.test"]).0, 0);
    let printed = || server.log().matches("has signed the certificate").count();
    assert!(wait_until(PATIENCE, || printed() == 3), "{}", server.log());
    assert_ne!(std::fs::read(&path).expect("a certificate"), second);
    // The authority has forgotten the account; progress and certificate are not to be read.
    let name = "store/progress/www.a.test.json";
    write_file(&server.directory().join(name), "{{{");
    write_file(&path, "-----BEGIN CERTIFICATE-----\n");
    assert!(wait_until(PATIENCE, || pebble.signed() == 4), "{}", server.log());
    await_served(&pebble, &server, "www.a.test");
    assert_eq!(get(&mut kept, "www.a.test"), "hello\n");
}

#[test]
fn certificates_are_revoked_and_accounts_get_other_keys() {
    let Some(pebble) = Pebble::start("", &[("PEBBLE_WFE_NONCEREJECT", "50")]) else { return };
    let mut server = site(&pebble, ONE).start();
    await_served(&pebble, &server, "www.a.test");
    let (path, old) = (file(&server, "www.a.test"), server.directory().join("old.pem"));
    let cert = |config: &Path, arguments: &[&str]| {
        let config = ["cert", "-f", config.to_str().expect("UTF-8")];
        let (code, printed, error) = lighty!().run(&[&config, arguments].concat());
        (code, printed + &error)
    };
    let config = server.directory().join("lighty.conf");
    // Root may have it done, and the server reads the account again.
    let account =
        || std::fs::read_dir(server.directory().join("store/accounts")).expect("accounts");
    let account = account().next().expect("one").expect("one").path();
    let first = std::fs::read(&account).expect("an account");
    let (code, printed) = cert(&config, &["rollover"]);
    assert!(code == 0 && printed.contains("the account has another key"), "{printed}");
    assert_ne!(std::fs::read(&account).expect("an account"), first);
    std::fs::copy(&path, &old).expect("copied");
    let revoke = ["revoke", "www.a.test", "--reason", "key-compromise"];
    let (code, printed) = cert(&config, &revoke);
    assert!(
        code == 0 && printed.contains("has revoked the certificate; a running server"),
        "{printed}"
    );
    let status = pebble.status(&old);
    assert!(status.contains("Revoked") && status.contains("\"Reason\": 1"), "{status}");
    assert!(wait_until(PATIENCE, || pebble.signed() == 2), "{}", server.log());
    let is_new = || std::fs::read(&path).expect("there") != std::fs::read(&old).expect("there");
    assert!(wait_until(PATIENCE, is_new), "{}", server.log());
    assert!(pebble.status(&path).contains("Valid"));
    assert_eq!(cert(&config, &["revoke", "b.test"]).0, 1);
    assert_eq!(cert(&config, &["revoke", "www.a.test", "--reason", "spite"]).0, 2);
    server.stop();
    // A certificate that is no longer configured is removed.
    let lines =
        std::fs::read_to_string(&config).expect("a configuration").replace("www.a.test", "b.test");
    write_file(&config, lines);
    std::fs::copy(&path, &old).expect("copied");
    let (code, printed) = cert(&config, &["revoke", "WWW.a.test"]);
    assert!(code == 0 && printed.contains("it is removed"), "{printed}");
    assert!(!path.exists() && pebble.status(&old).contains("Revoked"));
}

#[test]
fn certificates_are_served_while_the_authority_is_down() {
    let Some(mut pebble) = Pebble::start("", &[]) else { return };
    let server = site(&pebble, ONE).start();
    await_served(&pebble, &server, "www.a.test");
    let root = pebble.root();
    pebble.kill();
    write_file(&server.directory().join("store/renew/www.a.test"), "");
    server.await_log("not renewed: 127.0.0.1");
    let client = lighty_testkit::tls::TlsClient::trusting(&root);
    let mut client = client.connect(pebble.https.address(), "www.a.test");
    assert_eq!(get(&mut client, "www.a.test"), "hello\n");
    // It comes back with another root, and without its accounts.
    pebble.restart();
    write_file(&server.directory().join("store/renew/www.a.test"), "");
    await_served(&pebble, &server, "www.a.test");
}
