//! Parallel orders, and their ends.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use lighty_testkit::process::is_running;
use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::server::{Server, write_file};
use lighty_testkit::wait_until;
use rustix::process::Signal;

use super::{ONE, PATIENCE, await_served, file, get, site};

/// A name with a DNS program that never ends.
const SLOW: &str = "$HTTP[\"host\"] == \"slow.test\" { acme.activate = \"enable\"\n\
                    acme.challenge = \"dns-01\"\nacme.dns-hook = \"@DIR@/slow\" }\n";

/// Writes a program that records its process id and the id of a child.
fn slow_hook(directory: &Path) {
    let hook = directory.join("slow");
    write_file(&hook, "#!/bin/sh\nsleep 3600 &\necho \"$$ $!\" >\"$0.pids\"\nwait\n");
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).expect("set");
}

/// The recorded process ids.
fn await_hook(server: &Server) -> Vec<u32> {
    let noted = || fs::read_to_string(server.directory().join("slow.pids")).unwrap_or_default();
    assert!(wait_until(PATIENCE, || noted().ends_with('\n')), "{}", server.log());
    noted().split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

fn files(server: &Server, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(server.directory().join("store").join(directory)).expect("listed");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}

#[test]
fn an_order_that_hangs_holds_no_other_up_and_ends_with_its_name() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let silent = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mute = format!(
        "$HTTP[\"host\"] == \"mute.test\" {{ acme.activate = \"enable\"\n\
         acme.issuers = ( \"https://{}/dir\" ) }}\n",
        silent.local_addr().expect("an address")
    );
    let setup = site(&pebble, &format!("{mute}{SLOW}{ONE}"));
    slow_hook(setup.directory());
    let server = setup.start();
    let pids = await_hook(&server);
    get(&mut await_served(&pebble, &server, "www.a.test"), "www.a.test");
    assert!(!server.log().contains("no certificate"), "{}", server.log());
    assert!(files(&server, "locks").contains(&"slow.test.lock".to_owned()));
    // Without the name there is no order.
    let conf = server.directory().join("lighty.conf");
    let text = fs::read_to_string(&conf).expect("a configuration");
    let at = text.find("$HTTP[\"host\"] == \"mute.test\"").expect("there");
    let kept = text[at..].find("$HTTP[\"host\"] == \"www.a.test\"").expect("there");
    write_file(&conf, format!("{}{}", &text[..at], &text[at + kept..]));
    server.signal(Signal::USR1);
    let is_over = || pids.iter().all(|pid| !is_running(*pid)) && files(&server, "locks").is_empty();
    assert!(wait_until(PATIENCE, is_over), "{}", server.log());
    assert_eq!(files(&server, "certificates"), ["www.a.test.pem"]);
}

#[test]
fn a_stop_ends_an_order_and_leaves_nothing_behind() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let setup = site(&pebble, SLOW);
    slow_hook(setup.directory());
    let mut server = setup.start();
    let pids = await_hook(&server);
    assert_eq!(files(&server, "locks"), ["slow.test.lock"]);
    server.stop();
    assert!(wait_until(Duration::from_secs(60), || pids.iter().all(|pid| !is_running(*pid))));
    assert_eq!(files(&server, "locks"), [""; 0]);
    assert_eq!(files(&server, "certificates"), [""; 0]);
}

#[test]
fn a_record_that_an_ended_order_has_set_is_removed() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let setup = site(&pebble, SLOW);
    let hook = setup.directory().join("slow");
    // The authority never sees the record.
    write_file(&hook, "#!/bin/sh\necho \"$@\" >>\"$0.log\"\n[ $1 = cleanup ] || sleep 3600\n");
    fs::set_permissions(&hook, Permissions::from_mode(0o755)).expect("set");
    let mut server = setup.start();
    let calls = || fs::read_to_string(hook.with_extension("log")).unwrap_or_default();
    assert!(wait_until(PATIENCE, || calls().ends_with('\n')), "{}", server.log());
    server.stop();
    let calls = calls();
    let [set, removed] = *calls.lines().collect::<Vec<_>>() else { panic!("{calls}") };
    assert_eq!(set.strip_prefix("present "), removed.strip_prefix("cleanup "), "{calls}");
}

#[test]
fn a_stop_takes_a_proof_away() {
    // The authority takes a minute to validate.
    let slow = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "60")];
    let Some(pebble) = Pebble::start("", &slow) else { return };
    let mut server = site(&pebble, ONE).start();
    let proofs = || {
        let all = files(&server, "challenges/http-01");
        all.iter().filter(|name| !name.starts_with('.')).count()
    };
    assert!(wait_until(PATIENCE, || proofs() == 1), "{}", server.log());
    server.stop();
    for directory in ["challenges/http-01", "certificates", "locks"] {
        assert_eq!(files(&server, directory), [""; 0]);
    }
}

#[test]
fn an_order_waits_for_the_server_that_holds_its_lock_and_says_so_once() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let setup = site(&pebble, ONE);
    let store = setup.directory().join("store");
    fs::create_dir_all(store.join("locks")).expect("made");
    fs::create_dir_all(store.join("certificates")).expect("made");
    let lock = store.join("locks/www.a.test.lock");
    write_file(&lock, "0123456789abcdef");
    write_file(&store.join("certificates/.www.a.test.pem.0123456789abcdef"), "room");
    let server = setup.start();
    server.await_log("waiting for another server");
    // The lock vanishes although its order has not ended.
    fs::remove_file(&lock).expect("removed");
    await_served(&pebble, &server, "www.a.test");
    assert_eq!(server.log().matches("waiting for another").count(), 1, "{}", server.log());
    assert_eq!(files(&server, "certificates"), ["www.a.test.pem"]);
}

#[test]
fn a_store_that_has_vanished_is_made_again() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    // The sandbox's rule for the directory ends with it.
    let setup = site(&pebble, ONE).config("server.sandbox-paths = ( \"@DIR@:rw\" )");
    let server = setup.start();
    await_served(&pebble, &server, "www.a.test");
    fs::remove_dir_all(server.directory().join("store")).expect("removed");
    let is_there = || file(&server, "www.a.test").exists();
    assert!(wait_until(PATIENCE, is_there), "{}", server.log());
    assert!(!server.log().contains("no certificate"), "{}", server.log());
}

#[test]
fn a_programs_last_word_is_in_the_log() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let setup = site(&pebble, SLOW);
    slow_hook(setup.directory());
    write_file(
        &setup.directory().join("slow"),
        "#!/bin/sh\nyes 'a long story' | head -c 1000000 >&2\necho 'no such zone' >&2\nexit 3\n",
    );
    let server = setup.start();
    server.await_log("no such zone; the next order is in");
    assert!(!server.log().contains("a long story"), "it is dropped");
}

#[test]
fn orders_side_by_side_have_one_account() {
    let Some(mut pebble) = Pebble::start("", &[]) else { return };
    let names = ["a.test", "b.test", "c.test"];
    let conditions = names.map(|name| format!("$HTTP[\"host\"] == \"{name}\" {{ }}\n")).concat();
    let server = site(&pebble, &format!("acme.activate = \"enable\"\n{conditions}")).start();
    names.iter().for_each(|name| drop(await_served(&pebble, &server, name)));
    assert!(pebble.log().contains("There are now 1 accounts"), "{}", pebble.log());
    assert!(!pebble.log().contains("There are now 2 accounts"), "{}", pebble.log());
    // The restarted authority has forgotten the account, and all names renew at once.
    pebble.restart();
    for name in names {
        write_file(&server.directory().join("store/renew").join(name), "");
    }
    let signed = || server.log().matches("has signed the certificate").count();
    assert!(wait_until(PATIENCE, || signed() == 6), "{}", server.log());
    assert!(!pebble.log().contains("There are now 2 accounts"), "{}", pebble.log());
}
