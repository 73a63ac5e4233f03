//! spawn-fcgi: the same command lines for ours and for Debian's, and real applications started by
//! it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lighty_testkit::real::{Listen, find};
use lighty_testkit::wait_until;

use super::front::{
    Left, PATIENCE, await_listening, libfcgi, lighttpd_before, lighty_before, link,
};

/// Observable results of a run, process ids left out.
#[derive(Debug, PartialEq, Eq)]
struct SpawnResult {
    code: Option<i32>,
    output: String,
    errors: String,
    /// Each number in the pid file as `PID`.
    pid_file: Option<String>,
    /// Mode, owner, group of `s`.
    socket: Option<(u32, u32, u32)>,
    /// Facts that the program wrote about itself.
    facts: Option<String>,
}

/// Program that records its arguments and environment, and keeps running.
const FACTS: &str = "#!/bin/sh\n(\n\
    echo \"arguments: $0 $*\"; echo \"children: $PHP_FCGI_CHILDREN\"; echo \"directory: $PWD\"\n\
    echo \"ids: $(id -u) $(id -g) $(id -G)\"; echo \"umask: $(umask)\"\n\
    readlink /proc/$$/fd/0 | sed 's/[0-9]//g'; readlink /proc/$$/fd/1 /proc/$$/fd/2\n\
    [ $(cut -d' ' -f6 /proc/$$/stat) = $$ ] && echo 'leads a session'\n\
    ) >\"${FACTS:-$PWD/facts}.new\"\n\
    mv \"${FACTS:-$PWD/facts}.new\" \"${FACTS:-$PWD/facts}\"\nexec sleep 60\n";

fn run(program: &Path, arguments: &[&str]) -> SpawnResult {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path();
    make_public(at);
    let script = at.join("facts.sh");
    std::fs::write(&script, FACTS).expect("written");
    make_public(&script);
    std::fs::write(at.join("old-pid"), "an older and longer content").expect("written");
    // An earlier program's socket.
    drop(std::os::unix::net::UnixListener::bind(at.join("stale")).expect("a socket"));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(at)
        .env("FACTS", at.join("facts"))
        .env_remove("PHP_FCGI_CHILDREN")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let shown = text(output.stdout);
    let left = Left::from_output(&shown);
    let facts = at.join("facts");
    let writes = |word: &&str| word.to_lowercase().contains("facts.sh");
    if !left.0.is_empty() && arguments.iter().any(writes) {
        // A process that the spawner reported as running may still fail.
        let is_done = || facts.exists() || left.have_ended();
        assert!(wait_until(PATIENCE, is_done), "{arguments:?} wrote nothing");
    }
    let hidden = |text: String| {
        let own = at.canonicalize().expect("a path");
        hide(&left.0, &text.replace(own.to_str().expect("UTF-8"), "DIR"))
    };
    let read = |name: &str| std::fs::read_to_string(at.join(name)).ok();
    let meta = std::fs::symlink_metadata(at.join("s"));
    SpawnResult {
        code: output.status.code(),
        output: hidden(shown),
        errors: hidden(text(output.stderr)),
        pid_file: read("pid").or_else(|| read("old-pid")).map(&hidden),
        socket: meta.ok().map(|meta| (meta.mode() & 0o7777, meta.uid(), meta.gid())),
        facts: std::fs::read_to_string(facts).ok().map(hidden),
    }
}

fn make_public(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(path, all).expect("a mode");
}

fn hide(pids: &[i32], text: &str) -> String {
    pids.iter().fold(text.to_owned(), |text, pid| text.replace(&pid.to_string(), "PID"))
}

/// Runs both; without Debian's only ours, to see that it does not fail.
fn compare(lines: &[&[&str]]) {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = link(directory.path(), "spawn-fcgi");
    let Some(theirs) = find(&["/usr/bin/spawn-fcgi"]) else { return };
    for line in lines {
        let (mut one, mut other) = (run(&ours, line), run(&theirs, line));
        // Both look after a tenth of a second, which may be too early on a busy machine.
        for _ in 0..20 {
            if one == other {
                break;
            }
            (one, other) = (run(&ours, line), run(&theirs, line));
        }
        assert_eq!(one, other, "{line:?}: left is ours");
    }
}

#[test]
fn programs_start_as_those_of_spawn_fcgi_do() {
    compare(&[
        &["-s", "s", "--", "./facts.sh", "one", "-n"],
        &["-s", "s", "./facts.sh", "one"],
        &["-ss", "-C4", "-b", "5", "-f", "./facts.sh a b"],
        &["-s", "s", "-C", "0", "-P", "pid", "--", "./facts.sh"],
        &["-s", "s", "-P", "old-pid", "--", "./facts.sh"],
        &["-s", "s", "-F", "3", "-P", "pid", "--", "/bin/sleep", "60"],
        &["-s", "s", "-F", "0", "-P", "pid", "--", "/bin/sleep", "60"],
        &["-s", "s", "-M", "0604", "--", "./facts.sh"],
        &["-s=s", "--", "./facts.sh"],
        &["-s", "--", "./facts.sh", "one"],
        &["-nSs", "s", "--", "/bin/sh", "-c", "exit 3"],
        &["-s", "stale", "--", "./facts.sh"],
        &["-s", "s", "-d", "/", "-f", "$FACTS.sh"],
        &["-s", "s", "-n", "--", "/bin/sh", "-c", "echo $PHP_FCGI_CHILDREN; exit 3"],
        &["-s", "s", "-n", "-C", "7", "-P", "pid", "-f", "echo $PHP_FCGI_CHILDREN"],
    ]);
}

#[test]
fn failures_are_those_of_spawn_fcgi() {
    let long = "p".repeat(200);
    compare(&[
        &["-s", "s", "--", "/bin/true"],
        &["-s", "s", "--", "/nonexistent"],
        &["-s", "s", "--", "./old-pid"],
        &["-s", "s", "-P", "pid", "-f", "nonexistent 1 2>/dev/null"],
        &["-s", "s", "-f", "sh -c 'exit 3'"],
        &["-s", "s", "-f", "sh -c 'kill -9 $$'"],
        &["-s", "s", "-n", "--", "/nonexistent"],
        &["-f", "/bin/true"],
        &["-s", "s"],
        &["-p", "0", "--", "/bin/true"],
        &["-p", "1", "-s", "s", "--", "/bin/true"],
        &["-a", "300.1.1.1", "-p", "1", "--", "/bin/true"],
        &["-s", "/nonexistent/s", "--", "/bin/true"],
        &["-s", &long, "--", "/bin/true"],
        &["-s", "s", "-d", "/nonexistent", "--", "/bin/true"],
        &["-s", "s", "-P", "/nonexistent/pid", "--", "/bin/true"],
        &["-s", "s", "-P", ".", "--", "/bin/true"],
    ]);
}

#[test]
fn rights_are_given_up_as_in_spawn_fcgi() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    compare(&[
        &["-s", "s", "-u", "www-data", "--", "./facts.sh"],
        &["-s", "s", "-u", "www-data", "-g", "daemon", "-M", "0600", "--", "./facts.sh"],
        &["-s", "s", "-u", "www-data", "-U", "games", "-G", "daemon", "--", "./facts.sh"],
        &["-s", "s", "-g", "daemon", "--", "./facts.sh"],
        &["-s", "s", "-u", "33", "-g", "54321", "--", "./facts.sh"],
        &["-s", "s", "-u", "nonexistent", "--", "./facts.sh"],
        &["-s", "s", "-g", "nonexistent", "--", "./facts.sh"],
        &["-s", "s", "-u", "", "--", "./facts.sh"],
        &["-s", "s", "-g", "", "--", "./facts.sh"],
        &["-s", "s", "-u", "root", "-g", "nonexistent", "--", "./facts.sh"],
        &["-s", "s", "-u", "0", "--", "./facts.sh"],
        &["-s", "s", "-u", "www-data", "-g", "root", "--", "./facts.sh"],
        &["-s", "s", "-u", "www-data", "-g", "00", "--", "./facts.sh"],
        &["-s", "s", "-U", "root", "--", "./facts.sh"],
        &["-s", "s", "-G", "root", "--", "./facts.sh"],
        &["-s", "s", "-U", "", "--", "./facts.sh"],
        &["-s", "s", "-c", "/nonexistent", "--", "./facts.sh"],
        // In the new root there is no program, but the socket is.
        &["-s", "/s", "-c", ".", "--", "/facts.sh"],
        &["-s", "s", "-S", "-c", ".", "--", "/facts.sh"],
    ]);
}

#[test]
fn usage_and_unknown_options_end_as_in_spawn_fcgi() {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = link(directory.path(), "spawn-fcgi");
    let Some(theirs) = find(&["/usr/bin/spawn-fcgi"]) else { return };
    let unknown: [&[&str]; 5] = [&["-Z"], &["-s", "s", "-Z"], &["-nZ"], &["-n=1"], &["--port"]];
    let others: [&[&str]; 7] = [&["-h"], &["-?"], &["-v"], &["-nSv"], &[], &["-s"], &["-nSs"]];
    for line in unknown.into_iter().chain(others) {
        let (one, other) = (run(&ours, line), run(&theirs, line));
        // `getopt` prints the path of the program.
        let errors = other.errors.replace("/usr/bin/", "");
        assert_eq!((one.code, &*one.errors), (other.code, &*errors), "{line:?}");
        assert_eq!(one.output.is_empty(), other.output.is_empty(), "{line:?}");
        for letter in "fdapsMCFbPnvhcSugUG".chars().filter(|_| line == ["-h"]) {
            assert!(one.output.contains(&format!("-{letter}")), "{letter}: {}", one.output);
        }
    }
}

#[test]
fn a_socket_in_use_and_a_file_stay_what_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = link(directory.path(), "spawn-fcgi");
    let spawn = |path: &Path| {
        let mut command = Command::new(&ours);
        command.arg("-s").arg(path).args(["--", "/bin/sleep", "60"]);
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), Left::from_output(&text), errors)
    };
    let socket = directory.path().join("s");
    let (code, _left, _) = spawn(&socket);
    assert_eq!(code, Some(0));
    let (code, _, errors) = spawn(&socket);
    assert_eq!(
        (code, &*errors),
        (Some(255), "spawn-fcgi: socket is already in use, can't spawn\n")
    );
    let file = directory.path().join("file");
    std::fs::write(&file, "mine").expect("written");
    assert_eq!(spawn(&file).0, Some(255));
    assert_eq!(std::fs::read(&file).expect("kept"), b"mine");
}

/// A socket with an application that spawn-fcgi started on it.
struct Spawned {
    _left: Left,
    _directory: tempfile::TempDir,
    socket: PathBuf,
}

fn spawn(options: &[&str], application: &[&str]) -> Spawned {
    let directory = tempfile::tempdir().expect("a directory");
    let ours = link(directory.path(), "spawn-fcgi");
    let socket = directory.path().join("app.socket");
    let output = Command::new(ours)
        .arg("-s")
        .arg(&socket)
        .args(options)
        .arg("--")
        .args(application)
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let left = Left::from_output(&text);
    Spawned { _left: left, _directory: directory, socket }
}

#[test]
fn php_cgi_serves_behind_lighty_and_lighttpd() {
    let Some(php) = find(&["php-cgi", "php-cgi8.2"]) else { return };
    let php = php.to_str().expect("UTF-8");
    for options in [&["-C", "2"][..], &["-F", "2"]] {
        let spawned = spawn(options, &[php, "-n"]);
        await_listening(&spawned.socket);
        let listen = Listen::Unix(spawned.socket.clone());
        let servers = [Some(lighty_before(&listen, "")), lighttpd_before(&listen, "")];
        for server in servers.into_iter().flatten() {
            let script = "<?php echo 'n=', getenv('PHP_FCGI_CHILDREN'), ' b=', \
                          file_get_contents('php://input');";
            std::fs::write(server.root("a.php"), script).expect("written");
            let children = if options[0] == "-C" { "2" } else { "" };
            assert_eq!(server.get("/a.php").text(), format!("n={children} b="));
            let body = server.post("/a.php", "Content-Length: 5", b"hello");
            assert_eq!(String::from_utf8_lossy(&body), format!("n={children} b=hello"));
        }
    }
}

#[test]
fn an_application_of_libfcgi_serves_behind_lighty_and_lighttpd() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = libfcgi(directory.path()) else { return };
    let spawned = spawn(&["-F", "2"], &[program.to_str().expect("UTF-8")]);
    let listen = Listen::Unix(spawned.socket.clone());
    for server in [Some(lighty_before(&listen, "")), lighttpd_before(&listen, "")] {
        let Some(server) = server else { continue };
        assert!(server.get("/x").text().starts_with("pid="), "{}", server.log());
        let body = server.post("/x", "Content-Length: 5", b"hello");
        let body = String::from_utf8_lossy(&body).into_owned();
        assert!(body.ends_with("body=hello\n"), "{body}");
    }
}

#[test]
fn php_fpm_serves_on_a_socket_of_its_own() {
    // It closes the one that it is handed.
    let Some(fpm) = find(&["php-fpm8.2", "php-fpm"]) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("fpm.socket");
    let user =
        if rustix::process::geteuid().is_root() { "user = root\ngroup = root\n" } else { "" };
    let text = format!(
        "[global]\nerror_log = /dev/null\ndaemonize = no\n[www]\n{user}listen = {}\n\
         pm = static\npm.max_children = 2\n",
        socket.display()
    );
    let conf = directory.path().join("fpm.conf");
    std::fs::write(&conf, text).expect("written");
    let (fpm, conf) = (fpm.to_str().expect("UTF-8"), conf.to_str().expect("UTF-8"));
    let mut line = vec![fpm, "-n", "-F", "-y", conf];
    line.extend(rustix::process::geteuid().is_root().then_some("-R"));
    let _spawned = spawn(&[], &line);
    await_listening(&socket);
    let server = lighty_before(&Listen::Unix(socket.clone()), "");
    std::fs::write(server.root("a.php"), "<?php echo 6 * 7;").expect("written");
    assert_eq!(server.get("/a.php").text(), "42");
}
