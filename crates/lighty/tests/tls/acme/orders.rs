//! Orders: conditions that lead to a certificate, and conditions that do not.

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::server::write_file;
use lighty_testkit::tls::{self, Authority};
use lighty_testkit::wait_until;
use serde_json::{Value, json};

use super::{ONE, PATIENCE, assert_refused, await_served, file, get, site, site_of};

#[test]
fn a_certificate_comes_by_one_word() {
    // Every other nonce is refused.
    let Some(pebble) = Pebble::start("", &[("PEBBLE_WFE_NONCEREJECT", "50")]) else { return };
    // No handler of other requests interferes with the authority's validation.
    let setup = site(
        &pebble,
        &format!(
            "server.modules += ( \"mod_redirect\" )\n\
             $HTTP[\"scheme\"] == \"http\" {{ url.redirect = ( \"\" => \"https://a.test/\" ) }}\n\
             {ONE}"
        ),
    );
    let server = setup.start();
    let mut client = await_served(&pebble, &server, "www.a.test");
    assert_eq!(get(&mut client, "www.a.test"), "hello\n");
    server.await_log("acme: www.a.test: 127.0.0.1");
    assert_eq!(pebble.signed(), 1);
    let mode = std::fs::metadata(file(&server, "www.a.test")).expect("there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    // The proof is gone.
    let proofs = server.directory().join("store/challenges/http-01");
    assert_eq!(std::fs::read_dir(proofs).expect("a directory").count(), 0);
}

#[test]
fn a_certificate_is_taken_up_at_a_restart_and_by_neighbours() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let names = "acme.activate = \"enable\"\nacme.names = ( \"a.test\", \"A.test.\", \"www.a.test\" )\n\
                 acme.profile = \"shortlived\"\nserver.max-worker = 2";
    let mut server = site(&pebble, names).start();
    for name in ["a.test", "www.a.test"] {
        assert_eq!(get(&mut await_served(&pebble, &server, name), name), "hello\n");
    }
    server.stop();
    let config = server.directory().join("lighty.conf");
    let config = config.to_str().expect("UTF-8");
    let mut again = lighty!().spawn(&["-D", "-f", config]);
    again.await_log("is serving");
    await_served(&pebble, &again, "www.a.test");
    assert_eq!(pebble.signed(), 1);
    again.stop();
}

#[test]
fn names_of_conditions_within_an_active_server_have_one_each() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let config = "acme.activate = \"enable\"\nacme.key-type = \"p384\"\n\
                  $HTTP[\"host\"] == \"a.test\" { server.tag = \"a\" }\n\
                  $HTTP[\"host\"] == \"b.test\" { server.tag = \"b\" }\n\
                  $HTTP[\"host\"] == \"localhost\" { server.tag = \"c\" }";
    let server = site(&pebble, config).start();
    for name in ["a.test", "b.test"] {
        get(&mut await_served(&pebble, &server, name), name);
    }
    assert_eq!(pebble.signed(), 2);
}

/// Clients that connect to an IP address send no server name.
#[test]
fn an_address_has_a_certificate() {
    for proof in ["http-01", "tls-alpn-01"] {
        let Some(pebble) = Pebble::start("", &[]) else { return };
        let config = format!(
            "acme.challenge = \"{proof}\"\nacme.profile = \"shortlived\"\n{ONE}\n\
             $HTTP[\"host\"] == \"127.0.0.1\" {{ acme.activate = \"enable\" }}"
        );
        let server = site(&pebble, &config).start();
        for name in ["127.0.0.1", "www.a.test"] {
            assert_eq!(get(&mut await_served(&pebble, &server, name), name), "hello\n");
        }
        assert!(file(&server, "127.0.0.1").exists());
    }
    assert_refused(
        "acme.challenge = \"dns-01\"\nacme.dns-hook = \"hook\"\nssl.engine = \"enable\"\n\
         acme.activate = \"enable\"\nacme.names = ( \"192.0.2.7\" )",
        "192.0.2.7: control over an address is not proven by DNS",
    );
}

/// A certificate in a file for the listener, and one that the server gets for its address.
#[test]
fn an_address_is_told_from_the_names_of_the_listener() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let config = "acme.activate = \"enable\"\n$HTTP[\"host\"] == \"192.0.2.7\" { server.tag = \"x\" }\n\
                  acme.names = ( \"a.test\" )\n\
                  $HTTP[\"host\"] == \"127.0.0.1\" { acme.names = ( \"127.0.0.1\", \"b.test\" ) }";
    let server = site(&pebble, config).start();
    for name in ["a.test", "127.0.0.1", "b.test"] {
        get(&mut await_served(&pebble, &server, name), name);
    }
    assert_eq!(pebble.signed(), 2, "none for an address that another condition names");
}

#[test]
fn a_wildcard_comes_by_records_of_dns() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let config = "acme.activate = \"enable\"\nacme.names = ( \"*.a.test\", \"a.test\" )\n\
                  acme.challenge = \"dns-01\"\nacme.dns-hook = \"@DIR@/hook\"";
    let setup = site(&pebble, config);
    let hook = pebble.dns_hook(setup.directory());
    let server = setup.start();
    for name in ["x.a.test", "a.test"] {
        get(&mut await_served(&pebble, &server, name), name);
    }
    assert!(file(&server, "_.a.test").exists());
    let calls = std::fs::read_to_string(hook.with_extension("log")).expect("calls");
    let of = |verb: &str| calls.lines().filter(|line| line.starts_with(verb)).count();
    assert_eq!((of("present _acme-challenge.a.test "), of("cleanup ")), (2, 2), "{calls}");
}

/// A server that sets and removes records with the authority's name server.
fn record_server(pebble: &Pebble) -> Backend {
    let records = pebble.records();
    Backend::replying(move |seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        let verb = match seen.line() {
            "POST /dns/present HTTP/1.1" => "set-txt",
            "POST /dns/cleanup HTTP/1.1" => "clear-txt",
            other => panic!("{other}"),
        };
        if seen.field("authorization") != Some("Bearer abc") {
            return answer("401 Unauthorized", "", "who are you?\n");
        }
        let set = json!({ "host": body["fqdn"], "value": body["value"] }).to_string();
        let mut names = Client::tcp(records);
        names.send(format!(
            "POST /{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{set}",
            set.len()
        ));
        assert_eq!(names.response().status, 200);
        answer("204 No Content", "", "")
    })
}

#[test]
fn records_of_dns_can_be_set_by_a_server() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let hook = record_server(&pebble);
    let lines = format!(
        "acme.activate = \"enable\"\nacme.names = ( \"*.a.test\" )\nacme.challenge = \"dns-01\"\n\
         acme.dns-hook = \"http://{}/dns/\"\n",
        hook.name()
    );
    let setup = site(&pebble, &lines);
    let mut refused = setup.start();
    let message = format!("http://{}/dns present _acme-challenge.a.test: status 401", hook.name());
    refused.await_log(&format!("{message}: who are you?"));
    refused.stop();
    let fields = "acme.dns-hook-headers = ( \"Authorization\" => \"Bearer abc\" )";
    let server = site(&pebble, &format!("{lines}{fields}")).start();
    get(&mut await_served(&pebble, &server, "x.a.test"), "x.a.test");
    let lines: Vec<String> = hook.requests().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines.last().map(String::as_str), Some("POST /dns/cleanup HTTP/1.1"), "{lines:?}");
}

/// Sets a TXT record of the authority's name server.
fn set_record(pebble: &Pebble, name: &str, value: &str) {
    let set = json!({ "host": name, "value": value }).to_string();
    let mut names = Client::tcp(pebble.records());
    names.send(format!(
        "POST /set-txt HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{set}",
        set.len()
    ));
    assert_eq!(names.response().status, 200);
}

#[test]
fn a_record_that_stays_proves_control_for_every_order() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let config = "acme.activate = \"enable\"\nacme.names = ( \"*.a.test\", \"a.test\" )\n\
                  acme.challenge = \"dns-persist-01\"";
    let server = site(&pebble, config).start();
    let begin = "it looks for these records: _validation-persist.a.test. TXT \"";
    server.await_log(begin);
    let log = server.log();
    assert!(log.contains("; policy=wildcard\""), "{log}");
    // The record for the wildcard proves control over the name itself, too.
    let values = log.split("_validation-persist.a.test. TXT \"").skip(1);
    let mut values = values.filter_map(|rest| rest.split('"').next());
    let value = values.find(|value| value.ends_with("policy=wildcard")).expect("a record");
    assert!(value.starts_with("pebble.letsencrypt.org; accounturi=https://127.0.0.1:"), "{value}");
    set_record(&pebble, "_validation-persist.a.test.", value);
    let renew = || write_file(&server.directory().join("store/renew/_.a.test"), "");
    renew();
    get(&mut await_served(&pebble, &server, "x.a.test"), "x.a.test");
    // The next order needs nothing new.
    renew();
    assert!(wait_until(PATIENCE, || pebble.signed() == 2), "{}", server.log());
}

#[test]
fn a_handshake_is_a_proof() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let config = format!("acme.challenge = \"tls-alpn-01\"\nserver.max-worker = 2\n{ONE}");
    let server = site(&pebble, &config).start();
    get(&mut await_served(&pebble, &server, "www.a.test"), "www.a.test");
}

#[test]
fn another_programs_proofs_are_shown_too() {
    let setup = lighty!().config(
        "ssl.engine = \"enable\"\nssl.pemfile = \"@DIR@/a.pem\"\nssl.acme-tls-1 = \"@DIR@\"",
    );
    let authority = Authority::new(setup.directory());
    authority.issue("a.pem", &["a.test"]);
    authority.issue_apart("b.test.crt.pem", "b.test.key.pem", &["b.test"]);
    let server = setup.start();
    let looks = authority.client().with_alpn(&["acme-tls/1"]).config();
    let looks = |name: &str| tls::connect(&looks, server.address(), name);
    let stream = looks("b.test").expect("a proof");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"acme-tls/1"[..]));
    assert!(looks("a.test").is_err(), "no proof for it");
    // Others are served as ever.
    let _ = authority.client().connect(server.address(), "a.test");
}

#[test]
fn an_account_is_bound_to_one_elsewhere() {
    let lines = "\"externalAccountBindingRequired\": true, \"externalAccountMACKeys\": {\"kid-1\": \
                 \"zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\"},";
    let Some(pebble) = Pebble::start(lines, &[]) else { return };
    let setup = site(
        &pebble,
        &format!("acme.eab-kid = \"kid-1\"\nacme.eab-hmac-file = \"@DIR@/key\"\n{ONE}"),
    );
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W\n";
    write_file(&setup.directory().join("key"), key);
    let server = setup.start();
    await_served(&pebble, &server, "www.a.test");
}

#[test]
fn refusal_by_an_authority_is_logged_in_its_own_terms() {
    let Some(pebble) = Pebble::start("\"domainBlocklist\": [\"www.a.test\"],", &[]) else { return };
    let server = site(&pebble, ONE).start();
    server.await_log("forbidden by policy");
    server.await_log("the next order is in 6");
    // Until then the server uses a temporary certificate that no client trusts.
    let client = lighty_testkit::tls::TlsClient::trusting(&pebble.root());
    assert!(client.try_connect(pebble.https.address(), "www.a.test").is_err());
    assert_eq!(pebble.signed(), 0);
}

#[test]
fn failed_order_is_rehearsed_before_the_next_real_one() {
    let no_names = "\"domainBlocklist\": [\"www.a.test\"],";
    let Some(authority) = Pebble::start(no_names, &[]) else { return };
    let Some(rehearsal) = Pebble::start("", &[]) else { return };
    let setup = site(&authority, ONE);
    let both = [authority.ca_file(), rehearsal.ca_file()].map(std::fs::read);
    let both = both.map(|text| text.expect("a certificate")).concat();
    write_file(&setup.directory().join("both.pem"), both);
    let server = setup
        .config(&format!("$SERVER[\"socket\"] == \"{}\" {{ }}", rehearsal.http.address()))
        .config("acme.ca-file := \"@DIR@/both.pem\"")
        .config(&format!(
            "acme.rehearsals = ( \"{}\" => \"{}\" )",
            authority.directory(),
            rehearsal.directory()
        ))
        .start();
    server.await_log("the next order is in 6");
    assert_eq!((authority.signed(), rehearsal.signed()), (0, 0));
    let failures = || server.log().matches("forbidden by policy").count();
    write_file(&server.directory().join("store/renew/www.a.test"), "");
    assert!(wait_until(PATIENCE, || failures() == 2), "{}", server.log());
    // The rehearsal went well, and the authority has refused again.
    assert_eq!((authority.signed(), rehearsal.signed()), (0, 1), "{}", server.log());
}

#[test]
fn an_authority_that_takes_its_time_is_waited_for() {
    let slow = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "4")];
    let Some(pebble) = Pebble::start("", &slow) else { return };
    let server = site(&pebble, ONE).start();
    await_served(&pebble, &server, "www.a.test");
}

#[test]
fn the_next_issuer_is_asked_where_one_is_down() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let down = lighty_testkit::real::Listen::free_port().address();
    let issuers = [&*format!("https://{down}/dir"), &*pebble.directory()];
    let server = site_of(&pebble, &issuers, ONE).start();
    await_served(&pebble, &server, "www.a.test");
}

#[test]
fn invalid_acme_settings_stop_the_start_with_the_reason() {
    for (lines, message) in [
        ("acme.activate = \"enable\"", "needs acme.names"),
        ("$HTTP[\"host\"] == \"localhost\" { acme.activate = \"enable\" }", "has no dot"),
        ("$HTTP[\"host\"] =~ \"a\" { acme.activate = \"enable\" }", "needs acme.names"),
        ("acme.names = ( \"a_b.test\" )", "is not the name of a host"),
        ("acme.activate = \"enable\"\nacme.names = ( \"*.a.test\" )", "needs acme.challenge"),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\nacme.challenge = \"dns-01\"",
            "needs acme.dns-hook",
        ),
        ("acme.issuers = ( \"letsencript\" )", "neither an https:// URL nor one of"),
        ("acme.rehearsals = ( \"letsencript\" => \"\" )", "neither an https:// URL nor one of"),
        ("acme.rehearsals = ( \"google\" => \"a\" )", "neither an https:// URL nor one of"),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\nacme.eab-kid = \"k\"",
            "belong together",
        ),
        (
            "$HTTP[\"host\"] == \"a.test\" { acme.activate = \"enable\"\n\
             ssl.pemfile = \"@DIR@/x.pem\" }",
            "stand in one block",
        ),
        (
            "$HTTP[\"host\"] == \"a.test\" { acme.activate = \"enable\" }\n\
             $HTTP[\"host\"] =~ \"^b\" { acme.activate = \"enable\"\n\
             acme.names = ( \"a.test\", \"b.test\" ) }",
            "two certificates begin with a.test",
        ),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             ssl.pemfile = \"@DIR@/x.pem\"",
            "stand in one block",
        ),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             acme.store = \"/etc/passwd/x\"",
            "acme.store: /etc/passwd is not a directory",
        ),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             acme.challenge = \"dns-01\"\nacme.dns-hook = \"@DIR@/none\"",
            "none: No such file",
        ),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             acme.challenge = \"dns-01\"\nacme.dns-hook = \"/etc/passwd\"",
            "acme.dns-hook: /etc/passwd: it is no program that can be run",
        ),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\n\
             acme.challenge = \"dns-01\"\nacme.dns-hook = \"https:// x\"",
            "is no URL that can be asked",
        ),
        ("acme.dns-hook-headers = ( \"a b\" => \"c\" )", "is no field with a value"),
        (
            "acme.activate = \"enable\"\nacme.names = ( \"a.test\" )\nacme.store = \"/proc/none\"",
            "acme.store",
        ),
    ] {
        assert_refused(lines, message);
    }
}
