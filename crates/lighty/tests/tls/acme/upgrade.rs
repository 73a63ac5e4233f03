//! Orders that are under way when another process takes the server's place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use lighty_server::control::client::call;
use lighty_testkit::client::Client;
use lighty_testkit::process::is_running;
use lighty_testkit::real::pebble::Pebble;
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};
use serde_json::json;

use super::{ONE, PATIENCE, await_served, file, get, site};

/// A server that is upgraded; its successor is ended with it.
struct Upgraded(Server);

impl Upgraded {
    fn start(setup: Setup) -> Self {
        Self(setup.config("server.pid-file = \"@DIR@/lighty.pid\"").start())
    }

    /// The id in the pid file; 0 without one.
    fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.0.directory().join("lighty.pid")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    fn upgrade(&self) {
        let socket = self.0.directory().join("lighty.pid.ctl");
        let before = self.pid();
        let done = call(&socket, "POST", "/upgrade", &json!({}));
        assert!(done.is_ok(), "{done:?}: {}", self.0.log());
        assert_ne!(self.pid(), before);
    }

    /// The files in a directory of the store that are complete.
    fn files(&self, directory: &str) -> Vec<PathBuf> {
        let directory = self.0.directory().join("store").join(directory);
        let all = fs::read_dir(directory).into_iter().flatten().flatten().map(|one| one.path());
        let is_hidden = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        all.filter(|path| !is_hidden(path)).collect()
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        let last = self.pid();
        if last == 0 || last == self.0.pid() {
            return;
        }
        let pid = Pid::from_raw(i32::try_from(last).expect("an id")).expect("an id");
        let _ = rustix::process::kill_process(pid, Signal::TERM);
        let ended = wait_until(PATIENCE, || !is_running(last));
        assert!(ended || std::thread::panicking(), "process {last} does not stop");
    }
}

/// Number of orders that the authority has created.
fn orders(pebble: &Pebble) -> usize {
    pebble.log().matches("Added order").count()
}

#[test]
fn pending_challenge_is_answered_and_one_process_orders_at_a_time() {
    // The authority takes hours to validate.
    let slow = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "1000000")];
    let Some(pebble) = Pebble::start("", &slow) else { return };
    let server = Upgraded::start(site(&pebble, ONE));
    let first = server.pid();
    let proofs = || server.files("challenges/http-01");
    assert!(wait_until(PATIENCE, || proofs().len() == 1), "{}", server.0.log());
    let (proof, created) = (proofs().remove(0), orders(&pebble));
    let expected = fs::read_to_string(&proof).expect("a proof");
    let token = proof.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| server.upgrade());
        assert!(wait_until(PATIENCE, || server.pid() != first), "{}", server.0.log());
        // The new process serves, and the old one waits for the authority.
        let mut client = Client::tcp(pebble.http.address());
        let target = format!("/.well-known/acme-challenge/{token}");
        client.send(format!("GET {target} HTTP/1.1\r\nHost: www.a.test\r\n\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, expected.as_str()));
        assert_eq!(orders(&pebble), created, "the new process waits");
    });
    // The old process gives its order up, and the new one begins its own.
    let is_another = || proofs().first().is_some_and(|other| *other != proof);
    assert!(wait_until(PATIENCE, is_another), "{}", server.0.log());
    assert_eq!((proofs().len(), server.files("locks").len()), (1, 1));
    assert_eq!(orders(&pebble), created + 1, "{}", pebble.log());
    assert!(wait_until(PATIENCE, || !is_running(first)));
}

#[test]
fn program_of_an_order_ends_with_the_old_process() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let setup = site(
        &pebble,
        "$HTTP[\"host\"] == \"slow.test\" { acme.activate = \"enable\"\n\
         acme.challenge = \"dns-01\"\nacme.dns-hook = \"@DIR@/slow\" }\n\
         server.sandbox-paths = ( \"@DIR@:rw\" )",
    );
    let hook = setup.directory().join("slow");
    write_file(
        &hook,
        "#!/bin/sh\n[ $1 = present ] || exit 0\necho $$ >>\"$0.pids\"\nexec sleep 3600\n",
    );
    fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).expect("a mode");
    let pids = || -> Vec<u32> {
        let text = fs::read_to_string(hook.with_extension("pids")).unwrap_or_default();
        text.lines().map(|pid| pid.parse().expect("a number")).collect()
    };
    let server = Upgraded::start(setup);
    assert!(wait_until(PATIENCE, || pids().len() == 1), "{}", server.0.log());
    server.upgrade();
    let is_passed_on = || matches!(*pids(), [old, new] if !is_running(old) && is_running(new));
    assert!(wait_until(PATIENCE, is_passed_on), "{:?}: {}", pids(), server.0.log());
    assert_eq!(server.files("locks").len(), 1);
}

#[test]
fn certificate_of_the_new_configuration_is_ordered_by_the_new_process() {
    let Some(pebble) = Pebble::start("", &[]) else { return };
    let server = Upgraded::start(site(&pebble, &format!("{ONE}\n# end")));
    drop(await_served(&pebble, &server.0, "www.a.test"));
    let path = server.0.directory().join("lighty.conf");
    let text = fs::read_to_string(&path).expect("the configuration");
    write_file(&path, text.replace("# end", &ONE.replace("www.a", "www.b")));
    server.upgrade();
    for name in ["www.a.test", "www.b.test"] {
        get(&mut await_served(&pebble, &server.0, name), name);
    }
    assert!(file(&server.0, "www.b.test").exists());
    let log = server.0.log();
    let after = log.split("has taken over").nth(1).unwrap_or_else(|| panic!("{log}"));
    assert_eq!(after.matches("has signed the certificate").count(), 1, "{log}");
    assert_eq!(orders(&pebble), 2, "{}", pebble.log());
}
