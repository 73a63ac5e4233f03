//! Process environment: inherited limits, capabilities and standard streams, and the ones that it
//! passes on.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

/// A CGI program that prints lines of its own `/proc/self/status`.
fn status_program() -> Setup {
    let setup = lighty!()
        .file("status.cgi", "#!/bin/sh\nprintf 'Status: 200\\r\\n\\r\\n'\ncat /proc/$$/status\n")
        .config("cgi.assign = ( \".cgi\" => \"\" )");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(setup.root("status.cgi"), executable.clone()).expect("chmod");
    fs::set_permissions(setup.directory(), executable).expect("chmod");
    setup
}

/// A hexadecimal set of a `/proc/PID/status`.
fn set(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a set")
}

fn status_of(server: &Server) -> String {
    fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("status")
}

#[test]
fn file_size_limit_fails_an_upload_but_not_the_server() {
    let server = status_program()
        .config("$HTTP[\"url\"] =^ \"/dav/\" { webdav.activate = \"enable\" }")
        .config("server.upload-dirs = ( \"@DIR@\" )")
        .file("dav/old", "old")
        .through(["prlimit", "--fsize=524288"])
        .start();
    let mut client = server.connect();
    let length = 1 << 20;
    client.send(format!("PUT /dav/new HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    client.send(vec![b'x'; length]);
    assert_eq!(client.response().status, 507, "{}", server.log());
    assert!(!server.root("dav/new").exists(), "no half of a file is left");
    assert_eq!(server.get("/dav/old").text(), "old");
    let status = server.get("/status.cgi");
    let xfsz = 1 << (Signal::XFSZ.as_raw() - 1);
    assert_eq!(set(status.text(), "SigIgn") & xfsz, 0, "programs get the default action");
}

#[test]
fn full_log_does_not_end_the_server() {
    let server = lighty!()
        .file("a", "x")
        .config("accesslog.filename = \"@DIR@/access.log\"")
        .through(["prlimit", "--fsize=16384"])
        .start();
    let query = "q".repeat(3_000);
    for _ in 0..8 {
        assert_eq!(server.get(&format!("/a?{query}")).text(), "x");
    }
    server.await_log("cannot write: File too large");
    assert_eq!(server.get("/a").text(), "x");
}

#[test]
fn programs_inherit_no_capabilities() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give capabilities");
        return;
    }
    let capability = "+net_bind_service";
    let log = "accesslog.filename = \"|cat /proc/self/status > @DIR@/log-status; cat > /dev/null\"";
    let shell = "include_shell \"cat /proc/self/status > @DIR@/shell-status\"";
    let setup = status_program().config(log).config(shell);
    fs::set_permissions(setup.directory(), fs::Permissions::from_mode(0o777)).expect("chmod");
    let server = setup
        .through([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            &format!("--inh-caps={capability}"),
            &format!("--ambient-caps={capability}"),
        ])
        .start();
    let own = status_of(&server);
    assert_eq!(set(&own, "CapEff"), 1 << 10, "the server keeps its capability");
    let of_file = |name: &str| {
        let path = server.directory().join(name);
        let read = || fs::read_to_string(&path).unwrap_or_default();
        assert!(wait_until(Duration::from_secs(60), || read().contains("CapAmb")), "{name}");
        read()
    };
    let programs = [
        server.get("/status.cgi").text().to_owned(),
        of_file("log-status"),
        of_file("shell-status"),
    ];
    for status in programs {
        for name in ["CapEff", "CapPrm", "CapAmb"] {
            assert_eq!(set(&status, name), 0, "{status}");
        }
    }
    let memory = fs::metadata(format!("/proc/{}/mem", server.pid())).expect("its memory");
    assert_eq!(memory.uid(), 0, "programs of the same user cannot read the server's memory");
}

#[test]
fn server_that_stays_root_says_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can stay root");
        return;
    }
    const WARNING: &str = "run as root: set server.username";
    lighty!().start().await_log(WARNING);
    lighty!().config("server.username = \"root\"").start().await_log(WARNING);
    let server = lighty!().file("a", "x").config("server.username = \"nobody\"").start();
    server.await_log("serving");
    assert!(!server.log().contains(WARNING), "{}", server.log());
    // A command without a configuration has no directive to set.
    let server = lighty!().spawn(&["proxy", "--to", "127.0.0.1:1", "--from", "127.0.0.1:0"]);
    server.await_log("the server runs as root: start it as another user");
    assert!(!server.log().contains("server.username"), "{}", server.log());
}

#[test]
fn document_root_that_the_user_cannot_enter_is_warned_of() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: root can enter every directory");
        return;
    }
    let setup = lighty!().file("a", "x").config("server.username = \"nobody\"");
    fs::set_permissions(setup.root(""), fs::Permissions::from_mode(0o700)).expect("chmod");
    let server = setup.start();
    server.await_log("Permission denied (os error 13): no file can be served");
    assert_eq!(server.get("/a").status, 403);
}

#[test]
fn small_stack_limit_does_not_keep_the_server_from_starting() {
    for limit in ["--stack=65536", "--stack=98304:98304"] {
        let server = lighty!().file("a", "x").through(["prlimit", limit]).start();
        assert_eq!(server.get("/a").text(), "x");
    }
}

/// Both ends of a connected socket, as a service manager passes one as a standard stream.
fn stream() -> (UnixStream, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    (ours, theirs.into())
}

/// Reads until the input contains `message`.
fn await_message(stream: &mut UnixStream, message: &str) -> String {
    let mut text = String::new();
    let mut bytes = [0; 4_096];
    while !text.contains(message) {
        let count = stream.read(&mut bytes).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(count > 0, "it ended without {message:?}: {text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    text
}

/// Runs the server with a script that passes the socket on descriptor 0 as other descriptors.
fn with_socket(setup: Setup, script: &str) -> (Server, UnixStream) {
    let (ours, theirs) = stream();
    let server = setup.through(["sh", "-c", script, "sh"]).stdin(theirs).start();
    (server, ours)
}

#[test]
fn logs_go_to_standard_streams_that_are_sockets() {
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/dev/fd/7", "@DIR@/link"] {
        let setup = lighty!().file("a", "x").config(&format!("accesslog.filename = \"{name}\""));
        std::os::unix::fs::symlink("/dev/stdout", setup.directory().join("link")).expect("link");
        let (server, mut log) = with_socket(setup, "exec \"$@\" 1>&0 7>&0 </dev/null");
        assert_eq!(server.get("/a?first").text(), "x");
        await_message(&mut log, "/a?first");
        server.signal(Signal::HUP);
        server.await_log("logs were opened again");
        assert_eq!(server.get("/a?second").text(), "x");
        await_message(&mut log, "/a?second");
    }
}

#[test]
fn error_log_goes_to_a_standard_stream_that_is_a_socket() {
    let setup = lighty!().config("server.errorlog = \"/dev/stderr\"");
    let (_server, mut log) = with_socket(setup, "exec \"$@\" 2>&0 </dev/null");
    await_message(&mut log, "is serving");
}

#[test]
fn descriptor_that_was_not_passed_is_refused_as_a_log() {
    let setup = lighty!().config("accesslog.filename = \"/dev/fd/600\"");
    let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
    let why = "\"/dev/fd/600\": descriptor 600 is not open";
    assert!(code == 1 && err.contains(why), "{code} {err}");
}

/// Has `JOURNAL_STREAM` name descriptor 2, as systemd does. No journal listens.
const AS_JOURNAL: &str = "export JOURNAL_STREAM=$(stat -L -c %d:%i /dev/fd/0) \
                          LIGHTY_JOURNAL_SOCKET=${JOURNAL:-/nonexistent}; \
                          exec \"$@\" 2>&0 1>&0 </dev/null";

#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let setup = lighty!()
        .file("a", "x")
        .config("accesslog.filename = \"/dev/stdout\"\naccesslog.format = \"<0>%r\"")
        .config("debug.log-file-not-found = \"enable\"");
    let (server, mut log) = with_socket(setup, AS_JOURNAL);
    let text = await_message(&mut log, "is serving");
    let line = text.lines().find(|line| line.contains("is serving")).expect("the line");
    assert!(line.starts_with("<5>[notice] lighty "), "{line}");
    assert_eq!(server.get("/a").text(), "x");
    let text = await_message(&mut log, "GET /a ");
    assert!(text.contains("<6><0>GET /a "), "no client chooses a priority: {text}");
}

#[test]
fn journal_gets_lines_with_fields() {
    let setup = lighty!()
        .file("a", "x")
        .config("accesslog.filename = \"/dev/stdout\"\nserver.errorlog-level = \"info\"");
    let path = setup.directory().join("journal");
    let journal = UnixDatagram::bind(&path).expect("bound");
    journal.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let setup = setup.env("JOURNAL", path.to_str().expect("UTF-8"));
    let (server, _log) = with_socket(setup, AS_JOURNAL);
    let entry = |message: &str| {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let length = journal.recv(&mut bytes).expect("an entry");
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.contains(message) {
                return text;
            }
        }
    };
    let serving = entry("is serving");
    for field in [
        "PRIORITY=5\n",
        "SYSLOG_IDENTIFIER=lighty\n",
        "CODE_FILE=crates/lighty-server/src/boot.rs\n",
        "CODE_LINE=",
        "LIGHTY_MODULE=server\n",
        "\nMESSAGE=[notice] lighty ",
    ] {
        assert!(serving.contains(field), "{field}: {serving}");
    }
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n");
    assert_eq!(client.response().status, 400);
    let refused = entry("space-before-colon");
    assert!(refused.contains("LIGHTY_CLIENT=127.0.0.1\n"), "{refused}");
    assert_eq!(server.get("/a").text(), "x");
    let access = entry("GET /a ");
    assert!(access.starts_with("PRIORITY=6\n") && !access.contains("CODE_FILE"), "{access}");
}

#[test]
fn journal_elsewhere_changes_nothing() {
    let setup = lighty!();
    let script = "export JOURNAL_STREAM=1:1; exec \"$@\" 2>&0 </dev/null";
    let (_server, mut log) = with_socket(setup, script);
    let text = await_message(&mut log, "is serving");
    assert!(text.contains(" [notice] lighty ") && !text.contains('<'), "{text}");
}

#[test]
fn log_that_cannot_be_opened_again_is_no_success() {
    let setup = lighty!().config("accesslog.filename = \"@DIR@/logs/access.log\"");
    let logs = setup.directory().join("logs");
    fs::create_dir(&logs).expect("a directory");
    let server = setup.start();
    fs::rename(&logs, logs.with_extension("aside")).expect("moved away");
    server.signal(Signal::HUP);
    server.await_log("a log could not be opened again");
    let text = server.log();
    let at = |message: &str| text.find(message).unwrap_or_else(|| panic!("{message}: {text}"));
    assert!(at("cannot open it again") < at("a log could not be opened again"), "{text}");
    assert!(!text.contains("logs were opened again"), "{text}");
}

#[test]
fn killed_shell_of_a_log_command_does_not_stay_a_zombie() {
    let log = "accesslog.filename = \"|echo $$ > @DIR@/shell; cat > @DIR@/access.log; true\"";
    let server = lighty!().file("a", "x").config(log).start();
    let path = server.directory().join("shell");
    let shell = || fs::read_to_string(&path).unwrap_or_default().trim().parse::<i32>().ok();
    assert!(wait_until(Duration::from_secs(60), || shell().is_some()), "no shell");
    let shell = shell().expect("its number");
    let pid = Pid::from_raw(shell).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
    let is_gone = || !Path::new(&format!("/proc/{shell}")).exists();
    assert!(wait_until(Duration::from_secs(60), is_gone), "a zombie stays");
}

/// Limits the user of a running server to its current number of threads, and waits until the
/// threads of the pool have exited. Returns false without permission.
fn without_threads(server: &Server, uid: &str) -> bool {
    // It listens before its workers run.
    server.await_log("is serving");
    let pid = server.pid().to_string();
    let limited = std::process::Command::new("setpriv")
        .args([uid, "--clear-groups", "prlimit", "--pid", &pid, "--nproc=1:1"])
        .status();
    assert!(limited.is_ok_and(|status| status.success()));
    let has_pool = || {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
        let names = tasks.flatten().map(|task| fs::read_to_string(task.path().join("comm")));
        names.flatten().any(|name| name.starts_with("io-"))
    };
    wait_until(Duration::from_secs(30), || !has_pool())
}

#[test]
fn responses_are_whole_where_no_thread_can_be_had() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can become another user");
        return;
    }
    // The limit counts all threads of a user, so the server gets a user of its own.
    let uid = format!("--reuid={}", 56_000 + std::process::id() % 1_000);
    let text = "a text that is worth compressing\n".repeat(20_000);
    let backend =
        Backend::replying(|seen| answer("200 OK", "", &format!("{} bytes came", seen.body.len())));
    let setup = lighty!()
        .file("large.txt", &text)
        .file("script.lua", "lighty.content = { \"by a script\" }\nreturn 200\n")
        .config("deflate.mimetypes = ( \"text/\" )\ndeflate.allowed-encodings = ( \"gzip\" )")
        .config("$HTTP[\"url\"] == \"/script\" {")
        .config("magnet.attract-raw-url-to = ( \"@DIR@/root/script.lua\" ) }")
        .config("server.upload-dirs = ( \"@DIR@\" )")
        .config(&format!(
            "proxy.server = ( \"/post\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {} ) ) )",
            backend.address().port()
        ));
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(setup.directory(), open).expect("chmod");
    let server = setup.through(["setpriv", &uid, "--clear-groups"]).start();
    assert!(without_threads(&server, &uid), "threads stay");
    let got = server.get_with("/large.txt", "Accept-Encoding: gzip\r\n");
    let mut plain = String::new();
    let unzipped = flate2::read::GzDecoder::new(&*got.body).read_to_string(&mut plain);
    assert!(unzipped.is_ok() && plain == text, "{} bytes: {}", got.body.len(), server.log());
    let got = server.get("/script");
    assert_eq!((got.status, got.text()), (200, "by a script"), "{}", server.log());
    let length = 1 << 20;
    let framing = format!("Content-Length: {length}\r\n");
    let came = server.post("/post", &framing, &vec![b'x'; length]);
    assert_eq!(String::from_utf8_lossy(&came), format!("{length} bytes came"));
}

/// Runs a program under a filter of system calls that forbids `prlimit64`, as old filters of
/// containers do.
const WITHOUT_PRLIMIT: &str = "
import ctypes, os, platform, struct, sys
number = 261 if platform.machine() == 'aarch64' else 302
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(rules), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
word = ctypes.c_ulong
assert libc.prctl(38, word(1), word(0), word(0), word(0)) == 0
assert libc.prctl(22, word(2), program, word(0), word(0)) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn start_without_prlimit_keeps_the_limits_and_warns() {
    let server =
        lighty!().file("a.txt", "page").through(["python3", "-c", WITHOUT_PRLIMIT]).start();
    assert_eq!(server.get("/a.txt").text(), "page");
    server.await_log("core dumps cannot be forbidden: Operation not permitted");
    server.await_log("descriptors cannot be raised: Operation not permitted");
    for line in ["server.max-fds = 4096", "server.core-files = \"enable\""] {
        let setup = lighty!().config(line).through(["python3", "-c", WITHOUT_PRLIMIT]);
        let config = setup.write_config();
        let mut refused = setup.spawn(&["-D", "-f", config.to_str().expect("UTF-8")]);
        let (status, _) = refused.await_exit(Duration::from_secs(60));
        assert_eq!(status.code(), Some(1), "{line}: {}", refused.log());
        let name = line.split(' ').next().unwrap_or_default();
        assert!(refused.log().contains(name), "{line}: {}", refused.log());
    }
}
