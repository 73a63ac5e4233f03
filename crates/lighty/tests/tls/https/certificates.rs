//! The server's credentials: certificates of several kinds, stapled responses, and the secrets that
//! it may log on request.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::tls::Authority;
use lighty_testkit::wait_until;
use rustix::process::Signal;

use super::{curl, get, site};

/// Output of a command; fails the test if the command fails.
fn run(directory: &Path, line: &str) -> String {
    let mut arguments = line.split_whitespace();
    let mut command = Command::new(arguments.next().expect("a program"));
    let output = command.args(arguments).current_dir(directory).output().expect("it runs");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{line}: {printed}");
    printed
}

/// Output of OpenSSL's client for a connection.
fn seen(server: &Server, arguments: &str) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &server.address().to_string()]);
    command.args(arguments.split_whitespace()).stdin(std::process::Stdio::null());
    let output = command.output().expect("openssl");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A list of certificates by OpenSSL: an authority, a leaf with an ECDSA and one with an RSA key.
fn issue(directory: &Path) {
    let new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
    run(directory, &format!("{new} -subj /CN=ca -keyout ca.key -out ca.pem"));
    let keys = [("ec", "ec -pkeyopt ec_paramgen_curve:P-256"), ("rsa", "rsa:2048")];
    for (serial, (name, key)) in [17, 18].iter().zip(keys) {
        run(
            directory,
            &format!(
                "openssl req -newkey {key} -nodes -subj /CN=a.test -keyout {name}.key -out {name}.csr"
            ),
        );
        run(
            directory,
            &format!(
                "openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -days 20 -set_serial \
                 {serial} -out {name}.pem"
            ),
        );
    }
}

/// OCSP response of the authority about a certificate.
fn respond(directory: &Path, name: &str, days: u32) {
    let line = |serial| format!("V\t490101000000Z\t\t{serial}\tunknown\t/CN={serial}\n");
    write_file(&directory.join("index"), [11, 12].map(line).concat());
    run(
        directory,
        &format!(
            "openssl ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca.key -issuer ca.pem \
             -cert {name}.pem -respout {name}.new -ndays {days}"
        ),
    );
    let (new, place) = (format!("{name}.new"), format!("{name}.der"));
    std::fs::rename(directory.join(new), directory.join(place)).expect("renamed");
}

#[test]
fn clients_of_either_kind_get_what_they_can_verify_and_what_is_said_of_it() {
    let setup = lighty!().file("a.txt", "hello\n");
    issue(setup.directory());
    respond(setup.directory(), "rsa", 3);
    let server = setup
        .config(
            "ssl.engine = \"enable\"\nssl.pemfile = ( \"@DIR@/ec.pem\", \"@DIR@/rsa.pem\" )\n\
             ssl.privkey = ( \"@DIR@/ec.key\", \"@DIR@/rsa.key\" )\n\
             ssl.stapling-file = ( \"@DIR@/ec.der\", \"@DIR@/rsa.der\" )",
        )
        .start();
    server.await_log("ec.der: No such file or directory: no OCSP response is sent");
    for (arguments, key, is_stapled) in [
        ("", "id-ecPublicKey", false),
        ("-sigalgs RSA-PSS+SHA256", "rsaEncryption", true),
        ("-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256", "rsaEncryption", true),
        ("-tls1_2 -cipher ECDHE-ECDSA-AES128-GCM-SHA256", "id-ecPublicKey", false),
    ] {
        let printed = seen(&server, &format!("-status -showcerts {arguments}"));
        assert!(printed.contains(&format!("PKEY: {key}")), "{arguments}: {printed}");
        let response = "OCSP Response Status: successful";
        assert_eq!(printed.contains(response), is_stapled, "{arguments}: {printed}");
    }
    respond(server.directory(), "ec", 3);
    server.await_log("ec.der: the OCSP response was loaded again");
    let is_good = || {
        let printed = seen(&server, "-status");
        printed.contains("Cert Status: good") && printed.contains("Serial Number: 11")
    };
    assert!(wait_until(Duration::from_secs(60), is_good), "{}", seen(&server, "-status"));
    write_file(&server.directory().join("ec.der"), "no response");
    server
        .await_log("ec.der: it is no OCSP response in DER: the OCSP response loaded before stays");
    assert!(is_good());
}

#[test]
fn the_key_of_another_certificate_of_a_list_is_refused() {
    let setup = lighty!().config(
        "ssl.engine = \"enable\"\nssl.pemfile = ( \"@DIR@/a.pem\", \"@DIR@/b.pem\" )\n\
         ssl.privkey = ( \"@DIR@/a.key\", \"@DIR@/a.key\" )",
    );
    let authority = lighty_testkit::tls::Authority::new(setup.directory());
    authority.issue_apart("a.pem", "a.key", &["a.test"]);
    authority.issue_apart("b.pem", "b.key", &["a.test"]);
    let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert!(code == 1 && printed.contains("belongs to another certificate"), "{printed}");
}

/// Same as in lighttpd: an unused key would go unnoticed at the next renewal.
#[test]
fn key_of_another_certificate_is_refused_although_the_chain_has_its_own() {
    for (file, is_refused) in [("b.key", true), ("a.pem", false)] {
        let setup = lighty!().config(&format!(
            "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\n\
             ssl.privkey = \"@DIR@/{file}\"\n\
             $HTTP[\"host\"] == \"c.test\" {{ ssl.pemfile = \"@DIR@/c.pem\" }}"
        ));
        let authority = lighty_testkit::tls::Authority::new(setup.directory());
        authority.issue("a.pem", &["a.test"]);
        authority.issue("c.pem", &["c.test"]);
        authority.issue_apart("b.pem", "b.key", &["a.test"]);
        let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
        assert_eq!(code == 1, is_refused, "{printed}");
        assert_eq!(printed.contains("belongs to another certificate"), is_refused, "{printed}");
    }
}

#[test]
fn wrong_names_of_certificates_to_get_are_reported_alone() {
    let setup = lighty!().config(
        "ssl.engine = \"enable\"\nacme.names = ( \"*.a.test\" )\nacme.activate = \"enable\"",
    );
    let (code, _, printed) = setup.run(&["-t", "-f", "@CONF@"]);
    assert!(code == 1 && printed.contains("*.a.test"), "{printed}");
    assert!(!printed.contains("ssl.pemfile is not set"), "{printed}");
}

/// A pipe has no reader for a file that the server writes, and no writer for a file that it reads.
#[test]
fn pipes_in_the_place_of_files_are_refused_at_once() {
    for (name, message) in [
        ("ssl.stek-file", "not a regular file"),
        ("ssl.key-log-file", "No such device or address"),
        ("ssl.pemfile", "it is not a file"),
    ] {
        let setup = lighty!().config(&format!("{name} = \"@DIR@/pipe\"\nssl.engine = \"enable\""));
        let setup = match name {
            "ssl.pemfile" => setup,
            _ => setup.config("ssl.pemfile = \"@DIR@/a.pem\""),
        };
        let authority = lighty_testkit::tls::Authority::new(setup.directory());
        authority.issue("a.pem", &["a.test"]);
        let made = Command::new("mkfifo").arg(setup.directory().join("pipe")).status();
        assert!(made.expect("mkfifo runs").success());
        let config = setup.write_config();
        let config = config.to_str().expect("UTF-8");
        let (code, _, printed) = setup.run(&["-tt", "-f", config]);
        assert!(code == 1 && printed.contains(message), "{name}: {printed}");
        let mut server = setup.spawn(&["-D", "-f", config]);
        let (status, _) = server.await_exit(lighty_testkit::server::STOP_DEADLINE);
        assert_eq!(status.code(), Some(1), "{name}: {}", server.log());
    }
}

#[test]
fn a_certificate_that_is_cut_off_is_told_in_words() {
    let setup = lighty!().config("ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/cut.pem\"");
    write_file(&setup.directory().join("cut.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert!(code == 1 && printed.contains("the END line of a CERTIFICATE is missing"), "{printed}");
}

#[test]
fn secrets_are_written_for_those_who_ask_and_the_log_warns() {
    let (authority, setup) = site("ssl.key-log-file = \"@DIR@/keys.log\"");
    let server = setup.start();
    server.await_log("ssl.key-log-file: the secrets of every TLS connection are written to");
    let own = server.directory().join("curl.log");
    for version in ["1.2", "1.3"] {
        let status = Command::new("curl")
            .args(["-sSo", "/dev/null", "--tls-max", version, "--max-time", "30", "--cacert"])
            .arg(authority.path("ca.pem"))
            .arg(format!("https://localhost:{}/a.txt", server.address().port()))
            .env("SSLKEYLOGFILE", &own)
            .status();
        assert!(status.expect("curl").success());
    }
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let wanted = read(&own);
    assert!(wanted.contains("CLIENT_RANDOM ") && wanted.contains("CLIENT_TRAFFIC_SECRET_0 "));
    let path = server.directory().join("keys.log");
    // curl notes early and exporter secrets that the server does not have.
    let shared = wanted.lines().filter(|line| !line.starts_with('#') && !line.contains("EXPORTER"));
    let is_there = || shared.clone().all(|line| read(&path).contains(line));
    assert!(wait_until(Duration::from_secs(60), is_there), "{wanted}\n{}", read(&path));
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    let before = read(&path).len();
    get(&mut authority.client().connect(server.address(), "a.test"));
    assert!(wait_until(Duration::from_secs(60), || read(&path).len() > before));
}

#[test]
fn secrets_that_cannot_be_written_stop_the_start() {
    let (_, setup) = site("ssl.key-log-file = \"/none/keys.log\"");
    let config = setup.write_config();
    let mut server = setup.spawn(&["-D", "-f", config.to_str().expect("UTF-8")]);
    let (status, _) = server.await_exit(lighty_testkit::server::STOP_DEADLINE);
    assert_eq!(status.code(), Some(1));
    server.await_log("ssl.key-log-file: /none/keys.log: No such file");
}

#[test]
fn files_that_became_unreadable_are_kept_at_a_reload() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give up rights");
        return;
    }
    let (authority, setup) = site(
        "server.username = \"nobody\"\nssl.stek-file = \"@DIR@/stek\"\n\
         ssl.verifyclient.ca-file = \"@DIR@/ca.pem\"",
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.expect("after 1970").as_secs() as u32;
    let numbers = [0, now - 10, now + 3600].map(u32::to_ne_bytes).concat();
    write_file(&setup.directory().join("stek"), [numbers, vec![3; 80]].concat());
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode(setup.directory(), 0o755);
    for file in ["a.pem", "ca.pem"] {
        mode(&authority.path(file), 0o600);
    }
    let server = setup.start();
    get(&mut authority.client().connect(server.address(), "a.test"));
    server.signal(Signal::USR1);
    server.await_log("reloaded: generation 1");
    get(&mut authority.client().connect(server.address(), "a.test"));
    let url = "https://a.test:@PORT@/a.txt";
    assert_eq!(curl(&authority, &server, &["--tlsv1.3", url]), "hello\n");
}

#[test]
fn a_key_that_cannot_be_used_is_named_with_its_place() {
    let (authority, setup) = site("ssl.privkey = \"@DIR@/key\"");
    // A file that has both would not need the other.
    authority.issue_apart("a.pem", "own.key", &["a.test"]);
    let directory = setup.directory();
    let rsa = "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024";
    let curve = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve";
    run(directory, &format!("{rsa} -out small"));
    run(directory, &format!("{rsa} -aes-128-cbc -pass pass:word -out sealed"));
    run(directory, "openssl rsa -in small -traditional -aes128 -passout pass:word -out headed");
    run(directory, &format!("{curve}:secp256k1 -out koblitz"));
    let config = setup.write_config();
    let config = config.to_str().expect("UTF-8");
    let text = std::fs::read_to_string(config).expect("a configuration");
    let line_of = |name: &str| {
        let at = text.lines().position(|line| line.starts_with(name)).expect("a line");
        format!("{config}:{}:", at + 1)
    };
    let refused = |message: &str, place: &str| {
        let (code, _, printed) = setup.run(&["-tt", "-f", config]);
        assert!(
            code == 1 && printed.contains(message) && printed.contains(place),
            "{message}: {printed}"
        );
    };
    for (file, message) in [
        ("small", "it is of RSA with 1024 bits; 2048 to 8192 are taken"),
        ("sealed", "the private key is encrypted"),
        ("headed", "the private key is encrypted"),
        ("koblitz", "it is on the curve secp256k1"),
    ] {
        std::fs::copy(directory.join(file), directory.join("key")).expect("copied");
        refused(message, &line_of("ssl.privkey"));
        refused("ssl.privkey: ", &line_of("ssl.privkey"));
    }
    write_file(&directory.join("a.pem"), "");
    refused("ssl.pemfile: ", &line_of("ssl.pemfile"));
}

/// Such conditions cannot be evaluated when a client connects.
#[test]
fn a_listener_inside_of_a_condition_speaks_tls_to_everybody() {
    let setup = lighty!().file("a.txt", "hello\n");
    let authority = Authority::new(setup.directory());
    authority.issue("a.pem", &["a.test"]);
    let lines = "$HTTP[\"host\"] == \"other.test\" {\n    $SERVER[\"socket\"] == \"127.0.0.2:0\" {\n\
                 ssl.engine = \"enable\"\n        ssl.pemfile = \"@DIR@/a.pem\"\n    }\n}";
    let server = setup.config(lines).start();
    let client = authority.client().try_connect(server.listening()[1], "a.test");
    let mut client = client.unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    assert_eq!(get(&mut client), "hello\n");
    server.await_log("belongs to the listener 127.0.0.2:0");
}
