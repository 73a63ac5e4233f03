//! Backends that the server starts itself (`bin-path`). The program is this test binary, run for
//! one "test" that serves HTTP on its standard input, or PHP.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::process::is_running;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal};

const PATIENCE: Duration = Duration::from_secs(20);

/// Program of the tests: responds to each request on its inherited socket with its process id.
/// `/exit` ends it, `/env` returns its environment, `/slow` takes half a second. It also ends after
/// `ANSWERS` requests.
#[test]
#[ignore = "a backend, not a test"]
fn backend() {
    let Ok(fd) = std::io::stdin().as_fd().try_clone_to_owned() else { return };
    if std::env::var_os("LIGHTY_TEST_BACKEND").is_none() {
        return;
    }
    let broken = std::env::var_os("BROKEN_WHILE");
    if broken.is_some_and(|mark| std::path::Path::new(&mark).exists()) {
        std::process::exit(3);
    }
    eprintln!("hello from {}", std::process::id());
    if std::env::var_os("COMPLAINS").is_some() {
        std::thread::spawn(|| (0..u64::MAX).for_each(|number| eprintln!("complaint {number}")));
    }
    let listener = UnixListener::from(fd);
    let answers = std::env::var("ANSWERS").ok().and_then(|count| count.parse().ok());
    for stream in listener.incoming().take(answers.unwrap_or(usize::MAX)) {
        answer(stream.expect("a connection"));
    }
    if answers.is_some() {
        std::process::exit(0);
    }
}

/// Serves one connection at a time, with one request on each.
fn answer(mut stream: UnixStream) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let target = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
    let body = match &*target {
        "/exit" => std::process::exit(7),
        "/env" => std::env::vars().map(|(name, value)| format!("{name}={value}\n")).collect(),
        "/slow" => {
            std::thread::sleep(Duration::from_millis(500));
            std::process::id().to_string()
        }
        _ => std::process::id().to_string(),
    };
    let length = body.len();
    let text =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let _ = stream.write_all(text.as_bytes());
}

fn program(keys: &str) -> Setup {
    let this = std::env::current_exe().expect("this program");
    let command = format!("{} --exact spawn::backend --ignored --nocapture", this.display());
    lighty!().config(&format!(
        "proxy.server = ( \"/\" => (( \"bin-path\" => \"{command}\", \"bin-environment\" => \
         ( \"LIGHTY_TEST_BACKEND\" => \"1\", \"MINE\" => \"a b\" ), {keys} )) )"
    ))
}

/// Children of a server and of its launcher (`server.sandbox`).
fn children(server: u32) -> BTreeSet<u32> {
    let is_launcher = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "lighty-launcher\n")
    };
    let (launchers, mut programs): (BTreeSet<_>, BTreeSet<_>) =
        direct_children(server).into_iter().partition(is_launcher);
    programs.extend(launchers.into_iter().flat_map(direct_children));
    programs
}

/// Children of a process, found by the parent of each process: the kernel lists children by thread,
/// and a child moves on when its thread ends.
fn direct_children(pid: u32) -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| parent_of(*number) == Some(pid)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Waits for `count` children: a server listens before it starts them.
fn await_children(server: &Server, count: usize) -> BTreeSet<u32> {
    let all = || children(server.pid());
    assert!(wait_until(PATIENCE, || all().len() == count), "{:?}\n{}", all(), server.log());
    all()
}

fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    rustix::process::kill_process(pid, signal).expect("a signal");
}

fn answers(server: &Server) -> bool {
    server.get("/").status == 200
}

#[test]
fn processes_run_before_the_first_request_and_end_with_the_server() {
    let mut server = program("\"socket\" => \"@DIR@/app.socket\", \"max-procs\" => 2").start();
    let running = await_children(&server, 2);
    assert!(server.root("../app.socket").exists());
    for _ in 0..8 {
        let who: u32 = server.get("/").text().parse().expect("a process number");
        assert!(running.contains(&who), "{who} of {running:?}");
    }
    server.await_log(": hello from");
    server.stop();
    assert!(running.iter().all(|pid| !is_running(*pid)), "{running:?}");
    assert!(!server.root("../app.socket").exists());
}

#[test]
fn a_process_that_always_writes_errors_fills_no_disk() {
    let server = program("\"max-procs\" => 1")
        .env("COMPLAINS", "1")
        .config("server.errorlog-program-rate = 16")
        .start();
    server.await_log("error output is left out from here on");
    server.await_log(
        "bytes of error output were left out (limit: server.errorlog-program-rate = 16)",
    );
    assert!(answers(&server), "{}", server.log());
    assert!(server.log().len() < 1 << 20, "{} bytes", server.log().len());
}

#[test]
fn a_process_that_dies_is_started_again_and_costs_no_request() {
    let server = program("\"max-procs\" => 1").start();
    let first = await_children(&server, 1);
    for pid in &first {
        kill(*pid, Signal::KILL);
    }
    // The socket is the server's: the request waits in it.
    assert!(answers(&server), "{}", server.log());
    server.await_log("ended: signal 9; started again in 100 ms");
    let second = children(server.pid());
    assert!(second.len() == 1 && second.is_disjoint(&first), "{first:?} {second:?}");
    assert_eq!(server.get("/exit").status, 502);
    server.await_log("ended: exit code 7; started again in 100 ms");
    assert_eq!(server.get("/exit").status, 502);
    server.await_log("ended: exit code 7; started again in 200 ms");
    assert!(wait_until(PATIENCE, || answers(&server)), "{}", server.log());
}

/// Programs end after a number of requests to give memory back; on a busy site that is soon.
#[test]
fn a_process_that_ends_after_some_answers_is_started_again_at_once() {
    let server = program("\"max-procs\" => 1")
        .env("ANSWERS", "3")
        .config("server.errorlog-level = \"info\"")
        .start();
    for _ in 0..18 {
        assert!(answers(&server), "{}", server.log());
    }
    let restarts = || server.log().matches("ended: exit code 0; started again\n").count();
    assert!(wait_until(PATIENCE, || restarts() == 6), "{}", server.log());
}

/// A program that cannot run, as after the deployment of a broken release.
#[test]
fn requests_to_a_program_that_ends_at_every_start_are_refused_soon() {
    refuses_soon("exit 3");
}

/// The program imports its application first.
#[test]
fn requests_to_a_program_that_ends_after_some_time_are_refused_soon() {
    refuses_soon("sleep 1.3; exit 3");
}

fn refuses_soon(end: &str) {
    let setup = lighty!().file("../app.sh", format!("#!/bin/sh\n{end}\n"));
    let script = setup.directory().join("app.sh");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let server = setup
        .config(&format!(
            "proxy.server = ( \"/\" => (( \"bin-path\" => \"{}\", \"max-procs\" => 2 )) )",
            script.display()
        ))
        .start();
    let began = std::time::Instant::now();
    let waiting = server.get("/waits");
    assert_eq!(waiting.status, 503, "{}", server.log());
    assert!(waiting.field("Retry-After").is_some(), "{waiting:?}");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    server.await_log("in succession ended before they took a request; requests are answered 503");
    let mut client = server.connect();
    client.send("POST /comes HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!(client.response().status, 503, "{}", server.log());
    assert!(!server.log().contains("requests are sent again"), "{}", server.log());
}

#[test]
fn requests_are_sent_again_once_a_process_of_a_broken_program_lives() {
    let setup = program("\"max-procs\" => 1");
    let mark = setup.directory().join("broken");
    std::fs::write(&mark, "").expect("written");
    let server = setup.env("BROKEN_WHILE", mark.to_str().expect("UTF-8")).start();
    assert_eq!(server.get("/").status, 503, "{}", server.log());
    std::fs::remove_file(mark).expect("removed");
    server.await_log("requests are sent again");
    assert!(answers(&server), "{}", server.log());
}

#[test]
fn a_socket_without_a_name_is_private() {
    // In the sandbox, the empty directory stays until the next start.
    let setup = program("\"max-procs\" => 1").config("server.sandbox = \"off\"");
    let tmp = setup.directory().to_str().expect("a path in UTF-8").to_owned();
    let mut server = setup.env("TMPDIR", &tmp).start();
    assert!(answers(&server), "{}", server.log());
    let private = || {
        let entries = std::fs::read_dir(&tmp).expect("the directory").flatten();
        entries.map(|e| e.path()).find(|p| {
            p.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lighty-"))
        })
    };
    let dir = private().expect("a directory for the socket");
    let mode = std::fs::metadata(&dir).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(std::fs::read_dir(&dir).expect("the sockets").count(), 1);
    // Killed, it leaves the directory behind for the next one to find.
    server.kill();
    assert_eq!(private(), Some(dir.clone()));
    let setup = program("\"max-procs\" => 1").config("server.sandbox = \"off\"");
    let mut server = setup.env("TMPDIR", &tmp).start();
    assert!(answers(&server), "{}", server.log());
    assert!(!dir.exists() && private().is_some());
    server.stop();
    assert_eq!(private(), None);
}

#[test]
fn no_process_outlives_a_server_that_was_killed() {
    let mut server = program("\"max-procs\" => 2").start();
    let running = await_children(&server, 2);
    server.kill();
    assert!(wait_until(PATIENCE, || running.iter().all(|pid| !is_running(*pid))), "{running:?}");
}

#[test]
fn a_process_that_does_not_heed_its_signal_is_killed() {
    let mut server = program("\"max-procs\" => 1, \"kill-signal\" => 18").start();
    let running = await_children(&server, 1);
    server.signal(Signal::TERM);
    server.await_exit(PATIENCE);
    assert!(running.iter().all(|pid| !is_running(*pid)), "{running:?}");
}

#[test]
fn a_process_has_the_environment_that_is_asked_for() {
    let server = program("\"bin-copy-environment\" => ( \"KEPT\" )")
        .env("KEPT", "yes")
        .env("LOST", "no")
        .start();
    let answer = server.get("/env");
    let lines: BTreeSet<&str> = answer.text().lines().collect();
    assert!(lines.contains("MINE=a b") && lines.contains("KEPT=yes"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("LOST=")), "{lines:?}");
    let all = program("\"max-procs\" => 1").env("LOST", "not").start();
    assert!(all.get("/env").text().contains("LOST=not\n"));
}

#[test]
fn more_requests_bring_more_processes_and_quiet_takes_them_away() {
    let server = program("\"min-procs\" => 1, \"max-procs\" => 3, \"idle-timeout\" => 1").start();
    await_children(&server, 1);
    let grown = wait_until(PATIENCE, || {
        let mut clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send("GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.response().status, 200);
        }
        children(server.pid()).len() == 3
    });
    assert!(grown, "{}", server.log());
    await_children(&server, 1);
    assert!(answers(&server));
}

/// Pi-hole's configuration has this form.
#[test]
fn with_no_process_at_least_the_first_request_starts_one() {
    let server = program("\"min-procs\" => 0, \"max-procs\" => 2, \"idle-timeout\" => 1").start();
    for round in 0..2 {
        assert_eq!(children(server.pid()).len(), 0, "round {round}: {}", server.log());
        assert!(answers(&server), "round {round}: {}", server.log());
        await_children(&server, 0);
    }
}

/// Another host already has the address: stock lighttpd, too, uses the program that it finds there.
#[test]
fn of_two_programs_at_one_address_the_first_is_started() {
    let this = std::env::current_exe().expect("this program");
    let command = format!("{} --exact spawn::backend --ignored --nocapture", this.display());
    let host = |mine: &str| {
        format!(
            "(( \"bin-path\" => \"{command}\", \"socket\" => \"@DIR@/app.socket\", \"max-procs\" => 1, \
             \"bin-environment\" => ( \"LIGHTY_TEST_BACKEND\" => \"1\", \"MINE\" => \"{mine}\" ) ))"
        )
    };
    let servers =
        format!("proxy.server = ( \"/one/\" => {}, \"/\" => {} )", host("first"), host("second"));
    let setup = lighty!().config(&servers);
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("app.socket: the first counts"), "{err}");
    let server = setup.start();
    await_children(&server, 1);
    assert!(server.get("/env").text().contains("MINE=first\n"), "{}", server.log());
    server.await_log("is not started as it says");
}

#[test]
fn a_program_that_is_not_there_keeps_the_server_from_starting() {
    let setup = lighty!()
        .config("fastcgi.server = ( \".php\" => (( \"bin-path\" => \"/nonexistent/php-cgi\" )) )");
    let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
    assert_ne!(code, 0);
    assert!(err.contains("cannot start /nonexistent/php-cgi"), "{err}");
}

#[test]
fn php_is_started_and_answers() {
    let server = lighty!()
        .file("who.php", "<?php error_log(\"heard\"); echo getmypid(), ' ', $_GET['x'];")
        .config("index-file.names = ( \"who.php\" )")
        .config(
            "fastcgi.server = ( \".php\" => (( \"bin-path\" => \"/usr/bin/php-cgi\", \
             \"socket\" => \"@DIR@/php.socket\", \"max-procs\" => 2 )) )",
        )
        .start();
    let mut masters = await_children(&server, 2);
    for round in 0..6 {
        let answer = server.get(&format!("/who.php?x={round}"));
        assert_eq!(answer.status, 200, "{answer:?}\n{}", server.log());
        assert!(answer.text().ends_with(&format!(" {round}")), "{answer:?}");
    }
    let victim = masters.pop_first().expect("a process");
    kill(victim, Signal::KILL);
    server.await_log("ended: signal 9");
    assert_eq!(server.get("/who.php?x=again").status, 200);
}
