//! Users of PAM, by the modules of pam_wrapper.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::process::is_running;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};
use rustix::process::{Pid, Signal};

use crate::ctl::ctl;
use crate::upgrade::Line;

const PATIENCE: Duration = Duration::from_secs(60);

/// kim:right, kim:wrong
const RIGHT: &str = "Authorization: Basic a2ltOnJpZ2h0\r\n";
const WRONG: &str = "Authorization: Basic a2ltOndyb25n\r\n";

/// Finds a file of a package beneath the directories of libraries.
fn library(name: &str) -> Option<PathBuf> {
    let directories = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let found = directories.map(|entry| entry.path().join(name)).find(|path| path.exists());
    if found.is_none() {
        let may_skip = std::env::var_os("LIGHTY_TESTS_MAY_SKIP").is_some();
        assert!(may_skip, "{name} is not installed: run scripts/needs.sh");
        eprintln!("SKIPPED: {name} is not installed");
    }
    found
}

/// Removes directories that pam_wrapper has made for servers that have ended.
fn sweep() {
    for entry in fs::read_dir("/tmp").into_iter().flatten().flatten() {
        let path = entry.path();
        let is_own = path.extension().is_some_and(|letter| letter.len() == 1)
            && path.file_stem().is_some_and(|stem| stem == "pam");
        let pid = fs::read_to_string(path.join("pid")).unwrap_or_default();
        if is_own && pid.trim().parse().is_ok_and(|pid| !is_running(pid)) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// A site with users in the table of pam_matrix; services besides it have other modules.
fn site(more: &str) -> Option<Setup> {
    sweep();
    let (wrapper, matrix) = (library("libpam_wrapper.so")?, library("pam_wrapper/pam_matrix.so")?);
    let exec = library("security/pam_exec.so")?;
    let setup = lighty!().file("a", "page").file("open/a", "page").config(&format!(
        "auth.backend = \"pam\"\nauth.delay-invalid-creds = \"disable\"\n\
         server.pid-file = \"@DIR@/lighty.pid\"\n\
         $HTTP[\"url\"] !~ \"^/open/\" {{ auth.require = ( \"/\" => ( \"method\" => \"basic\", \
         \"realm\" => \"r\", \"require\" => \"valid-user\" ) ) }}\n{more}"
    ));
    let services = setup.directory().join("pam.d");
    let users = setup.directory().join("users.pam");
    fs::create_dir(&services).expect("a directory");
    fs::write(&users, "kim:right:http\nlee:right:http\nkim:right:closed\n").expect("written");
    let (matrix, users) = (matrix.display(), users.display());
    let usual = format!(
        "auth required {matrix} passdb={users}\naccount required {matrix} passdb={users}\n"
    );
    let closed = format!("auth required {matrix} passdb={users}\naccount required pam_deny.so\n");
    let stuck = format!("auth requisite {} quiet /bin/sleep 1000\n", exec.display());
    for (name, text) in [
        ("http", usual),
        ("closed", closed),
        ("stuck", stuck),
        ("broken", "auth required pam_no_such_module.so\n".to_owned()),
    ] {
        fs::write(services.join(name), text).expect("written");
    }
    let wrapper = wrapper.to_str().expect("text").to_owned();
    let services = services.to_str().expect("text").to_owned();
    Some(
        setup
            .env("LD_PRELOAD", &wrapper)
            .env("PAM_WRAPPER", "1")
            // Else the library gets another allocator than the program.
            .env("PAM_WRAPPER_DISABLE_DEEPBIND", "1")
            // The name of that variable before version 1.1.5.
            .env("UID_WRAPPER_DISABLE_DEEPBIND", "1")
            .env("PAM_WRAPPER_SERVICE_DIR", &services),
    )
}

fn status(server: &Server, credentials: &str) -> u16 {
    server.get_with("/a", credentials).status
}

/// Children of a process that are named `lighty-pam`.
fn children(parent: u32) -> Vec<u32> {
    let of = |directory: &Path| {
        let stat = fs::read_to_string(directory.join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        let (pid, name) = head.split_once(" (")?;
        let is_child = rest.split(' ').nth(1)? == parent.to_string() && !rest.starts_with('Z');
        pid.parse().ok().filter(|_| is_child && name == "lighty-pam")
    };
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    entries.filter_map(|entry| of(&entry.path())).collect()
}

/// The guard and the helper of a server.
fn helpers(server: u32) -> Vec<u32> {
    let guards = children(server);
    guards.iter().copied().chain(guards.iter().flat_map(|guard| children(*guard))).collect()
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().expect("a number")).expect("a process");
    rustix::process::kill_process(pid, Signal::KILL).expect("a signal");
}

#[test]
fn pam_decides_about_passwords_and_accounts() {
    let Some(site) = site("") else { return };
    let server = site.start();
    assert_eq!(status(&server, RIGHT), 200, "{}", server.log());
    assert_eq!(status(&server, WRONG), 401);
    assert_eq!(status(&server, "Authorization: Basic bm9ib2R5OnJpZ2h0\r\n"), 401);
    assert_eq!(status(&server, "Authorization: Basic a2ltOg==\r\n"), 401);
    assert_eq!(status(&server, ""), 401);
    // The second time from the cache.
    assert_eq!(status(&server, RIGHT), 200);
}

#[test]
fn each_service_has_its_modules() {
    for (service, wanted) in [("closed", 401), ("broken", 500), ("http", 200)] {
        let more = format!("auth.backend.pam.opts = ( \"service\" => \"{service}\" )");
        let Some(site) = site(&more) else { return };
        let server = site.start();
        assert_eq!(status(&server, RIGHT), wanted, "{service}: {}", server.log());
    }
}

#[test]
fn changed_modules_and_users_count_without_a_reload() {
    let Some(site) = site("") else { return };
    let server = site.start();
    assert_eq!(status(&server, RIGHT), 200, "{}", server.log());
    let eve = "Authorization: Basic ZXZlOnJpZ2h0\r\n";
    assert_eq!(status(&server, eve), 401);
    let users = server.directory().join("users.pam");
    let text = fs::read_to_string(&users).expect("users");
    fs::write(&users, text + "eve:right:http\n").expect("written");
    assert_eq!(status(&server, eve), 200, "{}", server.log());
    let services = server.directory().join("pam.d");
    fs::copy(services.join("closed"), services.join("http")).expect("copied");
    assert_eq!(status(&server, "Authorization: Basic bGVlOnJpZ2h0\r\n"), 401, "not from the cache");
}

#[test]
fn groups_of_users_are_in_the_file_of_groups() {
    let more = "auth.backend.plain.groupfile = \"@DIR@/groups\"\n\
                $HTTP[\"url\"] == \"/a\" { auth.require = ( \"/\" => ( \"method\" => \"basic\", \
                \"realm\" => \"r\", \"require\" => \"group=staff\" ) ) }";
    let Some(site) = site(more) else { return };
    let server = site.file("../groups", "staff: lee\n").start();
    assert_eq!(status(&server, RIGHT), 401);
    assert_eq!(status(&server, "Authorization: Basic bGVlOnJpZ2h0\r\n"), 200);
}

#[test]
fn module_that_hangs_delays_its_logins_alone() {
    let more =
        "$HTTP[\"host\"] == \"stuck\" { auth.backend.pam.opts = ( \"service\" => \"stuck\" ) }";
    let Some(site) = site(more) else { return };
    let server = site.start();
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    let begin = Instant::now();
    for client in &mut clients {
        client.send(format!("GET /a HTTP/1.1\r\nHost: stuck\r\n{RIGHT}\r\n"));
    }
    for _ in 0..20 {
        assert_eq!(server.get("/open/a").status, 200);
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "while all logins wait");
    // Waits for a worker, and is checked then.
    assert_eq!(status(&server, RIGHT), 200, "{}", server.log());
    for client in &mut clients {
        assert_eq!(client.response().status, 503);
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(9) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(status(&server, WRONG), 401);
}

#[test]
fn helper_that_is_killed_is_started_again() {
    let Some(site) = site("auth.cache = ( \"max-age\" => 0 )") else { return };
    let server = site.start();
    assert_eq!(status(&server, RIGHT), 200, "{}", server.log());
    let [guard, helper] = helpers(server.pid())[..] else { panic!("two processes") };
    kill(helper);
    assert!(wait_until(PATIENCE, || matches!(children(guard)[..], [new] if new != helper)));
    assert_eq!(status(&server, RIGHT), 200);
    let [new] = children(guard)[..] else { panic!("a process") };
    // Without its guard the helper goes on.
    kill(guard);
    assert!(wait_until(PATIENCE, || !is_running(guard)));
    assert_eq!(status(&server, RIGHT), 200);
    kill(new);
    assert!(wait_until(PATIENCE, || !is_running(new)));
    assert_eq!(status(&server, RIGHT), 503);
    server.await_log("the process that asks PAM has ended");
}

#[test]
fn helper_ends_with_the_server() {
    let Some(site) = site("") else { return };
    let mut server = site.start();
    assert_eq!(status(&server, RIGHT), 200, "{}", server.log());
    let processes = helpers(server.pid());
    assert_eq!(processes.len(), 2);
    server.kill();
    let is_gone = |pid: &u32| wait_until(PATIENCE, || !is_running(*pid));
    assert!(processes.iter().all(is_gone));
}

#[test]
fn helper_survives_reloads_and_is_made_again_by_an_upgrade() {
    let Some(site) = site("auth.cache = ( \"max-age\" => 0 )") else { return };
    let line = Line::start(site);
    let server = &line.first;
    let before = helpers(server.pid());
    assert_eq!(ctl(server, &["reload"]).0, 0, "{}", server.log());
    assert_eq!(status(server, RIGHT), 200);
    assert_eq!(helpers(server.pid()), before);
    let new = line.upgrade();
    assert_eq!(status(server, RIGHT), 200, "{}", server.log());
    assert_eq!(status(server, WRONG), 401);
    assert_eq!(helpers(new).len(), 2);
    assert!(
        before.iter().all(|pid| wait_until(PATIENCE, || !is_running(*pid))),
        "with the old one"
    );
}

/// The successor has the user's rights alone, so it goes on with the helper that root has started.
#[test]
fn helper_survives_an_upgrade_without_root() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    let more = "auth.cache = ( \"max-age\" => 0 )\nserver.username = \"nobody\"";
    let Some(setup) = site(more) else { return };
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(setup.directory(), open).expect("chmod");
    let line = Line::start(setup);
    let server = &line.first;
    let before = helpers(server.pid());
    assert_eq!((status(server, RIGHT), before.len()), (200, 2), "{}", server.log());
    let mut new = 0;
    for _ in 0..2 {
        new = line.upgrade();
        let uids = fs::read_to_string(format!("/proc/{new}/status")).expect("a status");
        let uids = uids.lines().find(|text| text.starts_with("Uid:")).expect("a line").to_owned();
        assert!(!uids.split_whitespace().any(|uid| uid == "0"), "{uids}");
        assert_eq!(status(server, RIGHT), 200, "{}", server.log());
        assert_eq!(status(server, WRONG), 401);
        assert!(before.iter().all(|pid| is_running(*pid)), "the same helper");
    }
    assert!(is_running(new));
    drop(line);
    assert!(before.iter().all(|pid| wait_until(PATIENCE, || !is_running(*pid))));
}

#[test]
fn helper_is_there_without_a_sandbox_and_absent_without_need() {
    let Some(setup) = site("server.sandbox = \"off\"") else { return };
    let server = setup.start();
    assert_eq!(status(&server, RIGHT), 200, "{}", server.log());
    let plain = lighty!().file("a", "page").start();
    assert_eq!(helpers(plain.pid()), [0; 0]);
}

#[test]
fn settings_that_cannot_work_are_reported() {
    let run = |lines: &str| lighty!().config(lines).run(&["-tt", "-f", "@CONF@"]);
    let (_, _, errors) = run("auth.backend = \"pam\"");
    assert!(errors.contains("/etc/pam.d/http"), "{errors}");
    let (code, _, errors) = run("auth.backend.pam.opts = ( \"service\" => \"../shadow\" )");
    assert!(code != 0 && errors.contains("no name of a file in /etc/pam.d"), "{errors}");
    let (code, _, errors) = run("auth.backend.pam.opts = ( \"servise\" => \"http\" )");
    assert!(code != 0 && errors.contains("service"), "{errors}");
}
