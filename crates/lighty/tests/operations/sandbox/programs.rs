//! Programs of the configuration in a sandbox of the whole process: the launcher starts them.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use lighty_testkit::client::Client;
use lighty_testkit::process::is_running;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};

use super::{PATIENCE, ctl, edit, layer, site};

const MODES: [&str; 2] = ["auto", "required"];

/// A program of the tests: responds to each request on its inherited socket with its process id.
#[test]
#[ignore = "a backend, not a test"]
fn backend() {
    if std::env::var_os("LIGHTY_TEST_BACKEND").is_none() {
        return;
    }
    let Ok(fd) = std::io::stdin().as_fd().try_clone_to_owned() else { return };
    for stream in UnixListener::from(fd).incoming() {
        let mut stream = stream.expect("a connection");
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let body = std::process::id().to_string();
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all((head + &body).as_bytes());
    }
}

fn spawning() -> String {
    let this = std::env::current_exe().expect("this program");
    let command =
        format!("{} --exact sandbox::programs::backend --ignored --nocapture", this.display());
    format!(
        "$HTTP[\"url\"] =^ \"/back\" {{ proxy.server = ( \"\" => (( \"bin-path\" => \"{command}\", \
         \"max-procs\" => 1, \"bin-environment\" => ( \"LIGHTY_TEST_BACKEND\" => \"1\" ) )) ) }}"
    )
}

fn with(mode: &str) -> Setup {
    site()
        .config(&format!("server.sandbox := \"{mode}\""))
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\", \".cgi\" => \"\" )")
        .file("pid.sh", "echo $$ > ../run.pid; exec sleep 1000\n")
}

const HEAD: &str = "printf 'Content-Type: text/plain\\n\\n'\n";

/// Adds a file that is a program itself.
fn executable(setup: Setup, name: &str, text: &str) -> Setup {
    let setup = setup.file(name, format!("#!/bin/sh\n{text}"));
    let path = setup.root(name);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
    setup
}

#[track_caller]
fn assert_covered(server: &Server) {
    for name in ["no_new_privs", "capabilities", "landlock", "seccomp"] {
        let (state, why) = layer(server, name);
        assert_eq!(state, "on", "{name}: {why}");
    }
}

/// Starts `/pid.sh`. Returns the client and the program's process id.
fn running(server: &Server) -> (Client, u32) {
    let mut client = server.connect();
    client.send("GET /pid.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    (client, noted_pid(server, "run.pid"))
}

/// Waits for a program to note its number.
fn noted_pid(server: &Server, name: &str) -> u32 {
    let path = server.directory().join(name);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    assert!(wait_until(PATIENCE, || read().ends_with('\n')), "{name}\n{}", server.log());
    read().lines().last().and_then(|line| line.parse().ok()).expect("a number")
}

#[test]
fn cgi_programs_run_outside_and_every_layer_is_on() {
    let body = "env; grep NoNewPrivs /proc/self/status; head -c 4 /etc/passwd; pwd; cat\n";
    for mode in MODES {
        let setup = with(mode).file("a.sh", format!("{HEAD}{body}"));
        let setup = executable(setup, "a.cgi", &format!("{HEAD}{body}"));
        let server = setup.config("setenv.add-environment = ( \"set-for\" => \"it\" )").start();
        assert_covered(&server);
        for path in ["/a.sh", "/a.cgi"] {
            let mut client = server.connect();
            client.send(format!(
                "POST {path}/info?x=y HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
            ));
            let answer = client.response();
            let text = answer.text();
            for part in ["QUERY_STRING=x=y\n", "SET_FOR=it\n", "NoNewPrivs:\t0\n", "root", "body"] {
                assert!(text.contains(part), "{mode} {path} {part}: {text}\n{}", server.log());
            }
        }
    }
}

#[test]
fn ended_programs_leave_no_zombies() {
    let server = with("required").file("a.sh", format!("{HEAD}echo $PPID")).start();
    let launcher: u32 = server.get("/a.sh").text().trim().parse().expect("a number");
    for _ in 0..20 {
        assert_eq!(server.get("/a.sh").text().trim(), launcher.to_string(), "{}", server.log());
    }
    let has_none = || children(launcher).is_empty();
    assert!(wait_until(PATIENCE, has_none), "{:?}", children(launcher));
    assert_ne!(launcher, server.pid());
}

fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let columns = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        columns.clone().nth(1) == Some(&*parent.to_string())
    };
    numbers.filter(is_child).collect()
}

#[test]
fn long_requests_reach_programs() {
    let server = with("required")
        .config("server.max-request-field-size = 65535")
        .file("a.sh", format!("{HEAD}printf %s \"$HTTP_X_A$HTTP_X_B\" | wc -c"))
        .start();
    let lines = ["A", "B"].map(|name| format!("X-{name}: {}\r\n", "x".repeat(30_000)));
    assert_eq!(server.get_with("/a.sh", &lines.concat()).text().trim(), "60000");
}

#[test]
fn backends_are_started_again() {
    for mode in MODES {
        let server = with(mode).config(&spawning()).start();
        assert_covered(&server);
        let pid = || server.get("/back").text().trim().parse::<u32>().ok();
        assert!(wait_until(PATIENCE, || pid().is_some()), "{}", server.log());
        let first = pid().expect("a process");
        kill(first, Signal::KILL);
        let is_new = || pid().is_some_and(|pid| pid != first);
        assert!(wait_until(PATIENCE, is_new), "{}", server.log());
        server.await_log(&format!("process {first} ended: signal 9"));
    }
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    rustix::process::kill_process(pid, signal).expect("a signal");
}

#[test]
fn commands_of_logs_are_started_again() {
    for mode in MODES {
        let log = "accesslog.filename = \"|echo $$ >> @DIR@/pids; exec cat >> @DIR@/piped.log\"";
        let server = with(mode).config(log).start();
        assert_covered(&server);
        let read = |name: &str| fs::read_to_string(server.directory().join(name));
        let read = |name: &str| read(name).unwrap_or_default();
        assert_eq!(server.get("/a?first").status, 200);
        assert!(wait_until(PATIENCE, || read("piped.log").contains("/a?first")));
        let first: u32 = read("pids").trim().parse().expect("a number");
        kill(first, Signal::KILL);
        let is_written = || {
            let _ = server.get("/a?second");
            read("piped.log").contains("/a?second")
        };
        assert!(wait_until(PATIENCE, is_written), "{}", server.log());
        assert_eq!(read("pids").lines().count(), 2);
    }
}

#[test]
fn programs_end_with_a_killed_server() {
    let mut server = with("required").config(&spawning()).start();
    let backend = || server.get("/back").text().trim().parse::<u32>().ok();
    assert!(wait_until(PATIENCE, || backend().is_some()), "{}", server.log());
    let backend = backend().expect("a process");
    let (_client, program) = running(&server);
    assert!(is_running(program) && is_running(backend));
    server.kill();
    for pid in [program, backend] {
        assert!(wait_until(PATIENCE, || !is_running(pid)), "{pid}");
    }
}

#[test]
fn program_ends_with_its_client() {
    for mode in MODES {
        let server = with(mode).start();
        let (client, program) = running(&server);
        assert!(is_running(program));
        drop(client);
        assert!(wait_until(PATIENCE, || !is_running(program)), "{}", server.log());
    }
}

#[test]
fn time_limits_of_programs_hold() {
    let server = with("required")
        .config("cgi.limits = ( \"read-timeout\" => 1 )")
        .file("slow.sh", "trap '' TERM\necho $$ > ../slow.pid\nsleep 1000\n")
        .start();
    assert_eq!(server.get("/slow.sh").status, 504);
    server.await_log("cgi.limits' read-timeout ran out");
    let pid = noted_pid(&server, "slow.pid");
    assert!(wait_until(PATIENCE, || !is_running(pid)), "{}", server.log());
}

#[test]
fn program_that_is_not_there_is_the_operators_fault() {
    let server = with("required").config("cgi.assign += ( \".no\" => \"/no/such\" )");
    let server = server.file("a.no", "x").file("b.cgi", "not executable").start();
    assert_eq!(server.get("/a.no").status, 500);
    server.await_log("/no/such: No such file or directory");
    assert_eq!(server.get("/b.cgi").status, 403);
}

#[test]
fn scripts_that_the_server_can_write_do_not_run() {
    let setup = with("required").file("up/a.sh", HEAD).file("b.sh", format!("{HEAD}echo b"));
    let server = setup.config("server.upload-dirs = ( \"@DIR@/root/up\" )").start();
    assert_covered(&server);
    assert_eq!(server.get("/b.sh").text(), "b\n");
    assert_eq!(server.get("/up/a.sh").status, 403);
    server.await_log("no programs beneath directories that the server writes to");
}

#[test]
fn programs_among_files_of_the_server_are_covered_in_part() {
    let log = "server.errorlog = \"@DIR@/error.log\"";
    let server = with("auto").file("a.sh", format!("{HEAD}echo a")).config(log).start();
    let (state, why) = layer(&server, "landlock");
    assert!(state == "partly" && why.contains("cgi.assign: the server writes to"), "{why}");
    assert_eq!(server.get("/a.sh").text(), "a\n");
}

#[test]
fn reload_brings_and_removes_programs() {
    let server = with("required")
        .config(&spawning())
        .config("accesslog.filename = \"|cat > @DIR@/piped.log\"\n# end")
        .file("a.sh", format!("{HEAD}echo a"))
        .file("a.pl", "print \"Content-Type: text/plain\\n\\nperl\";")
        .start();
    edit(&server, "# end", "cgi.assign += ( \".pl\" => \"/usr/bin/perl\" )");
    let (status, text) = ctl(&server, &["reload"]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(server.get("/a.pl").text(), "perl");
    edit(&server, "cgi.assign += ( \".pl\" => \"/usr/bin/perl\" )", "# end");
    edit(&server, "\"max-procs\" => 1", "\"max-procs\" => 2");
    let (status, text) = ctl(&server, &["reload"]);
    assert_eq!(status, 0, "{text}\n{}", server.log());
    assert_eq!(server.get("/a.sh").text(), "a\n");
    edit(&server, ", \".cgi\" => \"\"", "");
    edit(&server, "accesslog.filename", "# accesslog.filename");
    let (status, text) = ctl(&server, &["reload"]);
    assert_eq!(status, 0, "{text}\n{}", server.log());
    assert_eq!(server.get("/a.sh").text(), "a\n");
}
