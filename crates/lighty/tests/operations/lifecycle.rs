//! The process: signals, logs moved away, privileges, inherited sockets, descriptors running out.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lighty_testkit::backend::Port;
use lighty_testkit::client::{Client, ConnectionEnd};
use lighty_testkit::content::pattern;
use lighty_testkit::server::{STOP_DEADLINE, Server, write_file};
use lighty_testkit::{lighty, wait_until};
use rustix::process::{Resource, Rlimit, Signal};
use socket2::{Domain, Socket, Type};

/// Large enough that no socket buffer holds it.
const LARGE: usize = 24 << 20;

fn begin_download(server: &Server) -> Client {
    let mut client = Client::tcp_with_receive_buffer(server.address(), 8 * 1024);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    client
}

fn with_large_file() -> Server {
    lighty!().file("large", pattern(0, LARGE)).file("a", "x").start()
}

#[test]
fn int_lets_a_download_finish_and_then_ends() {
    let mut server = with_large_file();
    let mut idle = server.connect();
    idle.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(idle.response().text(), "x");
    let mut download = begin_download(&server);
    server.signal(Signal::INT);
    idle.expect_end();
    let refused =
        wait_until(Duration::from_secs(30), || Client::try_tcp(server.address()).is_err());
    assert!(refused, "a stopping server takes no new connection");
    assert!(!server.has_exited(), "a download is under way");
    let (body, _) = download.read_to_end();
    assert!(body == pattern(0, LARGE), "{} of {LARGE} bytes", body.len());
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
}

#[test]
fn stopping_server_still_reports_and_reopens_its_logs() {
    let mut server = with_large_file();
    let mut download = begin_download(&server);
    server.signal(Signal::INT);
    server.await_log("graceful");
    server.signal(Signal::USR2);
    server.await_log("worker 0: ");
    server.signal(Signal::HUP);
    server.await_log("logs were opened again");
    assert!(!server.has_exited(), "a download is under way");
    assert_eq!(download.read_to_end().0.len(), LARGE);
    assert!(server.await_exit(STOP_DEADLINE).0.success());
}

#[test]
fn request_behind_a_download_is_answered_and_cuts_nothing() {
    let mut server = with_large_file();
    let mut download = begin_download(&server);
    // The server does not read this request during the download.
    download.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    server.signal(Signal::INT);
    server.await_log("graceful");
    let (bytes, end) = download.read_to_end();
    assert!(bytes.len() > LARGE && bytes[..LARGE] == pattern(0, LARGE), "{}", bytes.len());
    let second = String::from_utf8_lossy(&bytes[LARGE..]);
    assert!(second.starts_with("HTTP/1.1 200 OK") && second.ends_with("\r\n\r\nx"), "{second}");
    assert_eq!(end, ConnectionEnd::Closed);
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
}

#[test]
fn client_of_a_response_that_had_begun_may_send_one_more_request() {
    let mut server = with_large_file();
    let mut download = begin_download(&server);
    server.signal(Signal::INT);
    server.await_log("graceful");
    let body = download.read_exact(LARGE).expect("the rest of the download");
    assert!(body == pattern(0, LARGE));
    // Nothing has told the client that the connection ends.
    download.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let last = download.response();
    assert_eq!((last.status, last.text()), (200, "x"));
    assert!(last.says_close());
    download.expect_end();
    assert!(server.await_exit(STOP_DEADLINE).0.success());
}

#[test]
fn a_second_int_does_not_wait() {
    let mut server = with_large_file();
    let download = begin_download(&server);
    server.signal(Signal::INT);
    server.await_log("graceful");
    assert!(!server.has_exited());
    server.signal(Signal::INT);
    let (status, took) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(download);
}

#[test]
fn a_graceful_stop_has_a_time_limit_where_one_is_set() {
    let mut server = lighty!()
        .file("large", pattern(0, LARGE))
        .config("server.feature-flags = ( \"server.graceful-shutdown-timeout\" => 1 )")
        .start();
    let download = begin_download(&server);
    server.signal(Signal::INT);
    let (status, took) = server.await_exit(STOP_DEADLINE);
    assert!(status.success() && took >= Duration::from_millis(500), "{status}, {took:?}");
    drop(download);
}

#[test]
fn term_cuts_a_download() {
    let mut server = with_large_file();
    let mut download = begin_download(&server);
    let start = Instant::now();
    server.stop();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(download.read_to_end().0.len() < LARGE);
}

#[test]
fn a_client_with_the_rights_can_end_the_server_in_order() {
    for _ in 0..20 {
        let mut server = lighty!()
            .config("server.pid-file = \"@DIR@/lighty.pid\"")
            .config("$SERVER[\"socket\"] == \"@DIR@/web.sock\" { server.tag = \"unix\" }")
            .start();
        // When the first listener is ready, the start is still under way.
        server.stop();
        for left in ["lighty.pid", "web.sock"] {
            assert!(!server.directory().join(left).exists(), "{left} is left behind");
        }
    }
}

#[test]
fn hup_opens_logs_again_that_were_moved_away() {
    let server = lighty!()
        .file("a", "x")
        .config("server.errorlog = \"@DIR@/error.log\"\nserver.errorlog-level = \"debug\"")
        .config("debug.log-file-not-found = \"enable\"")
        .start();
    let log = server.directory().join("error.log");
    let holds = |name: &str, message: &str| {
        let path = server.directory().join(name);
        wait_until(Duration::from_secs(30), || {
            fs::read_to_string(&path).is_ok_and(|text| text.contains(message))
        })
    };
    assert!(holds("error.log", "serving"), "the start is in the log");
    fs::rename(&log, server.directory().join("error.log.1")).expect("rename");
    assert_eq!(server.get("/before-hup").status, 404);
    server.signal(Signal::HUP);
    assert!(wait_until(Duration::from_secs(30), || log.exists()), "no new log");
    assert_eq!(server.get("/after-hup").status, 404);
    assert!(holds("error.log", "/after-hup"));
    assert!(holds("error.log.1", "/before-hup"), "nothing is lost");
    assert!(!fs::read_to_string(&log).expect("a log").contains("/before-hup"));
    assert_eq!(server.get("/a").text(), "x", "and it serves on");
}

#[test]
fn the_pid_file_is_there_while_the_server_is() {
    let mut server = lighty!().config("server.pid-file = \"@DIR@/lighty.pid\"").start();
    // The server listens before the start is complete; the first response follows the complete
    // start.
    assert_eq!(server.get("/none").status, 404);
    let path = server.directory().join("lighty.pid");
    let written = fs::read_to_string(&path).expect("a pid file");
    assert_eq!(written.trim(), server.pid().to_string());
    server.stop();
    assert!(!path.exists());
}

#[test]
fn a_second_server_does_not_take_over_the_pid_file_of_the_first() {
    let mut first = lighty!().config("server.pid-file = \"@DIR@/lighty.pid\"").start();
    let path = first.directory().join("lighty.pid");
    let second = || lighty!().config(&format!("server.pid-file = \"{}\"", path.display()));
    let (code, _, output) = second().run(&["-D", "-f", "@CONF@"]);
    let why = format!("a running server holds it, process {}", first.pid());
    assert!(code == 1 && output.contains("server.pid-file") && output.contains(&why), "{output}");
    let written = fs::read_to_string(&path).expect("a pid file");
    assert_eq!(written.trim(), first.pid().to_string());
    // The remains of a killed server do not prevent a start.
    first.kill();
    let third = second().start();
    let written = fs::read_to_string(&path).expect("a pid file");
    assert_eq!(written.trim(), third.pid().to_string());
}

#[test]
fn another_server_takes_the_pid_file_while_the_first_finishes() {
    let mut first = lighty!()
        .file("large", pattern(0, LARGE))
        .config("server.pid-file = \"@DIR@/lighty.pid\"")
        .start();
    let path = first.directory().join("lighty.pid");
    let mut download = begin_download(&first);
    first.signal(Signal::INT);
    first.await_log("graceful");
    let second = lighty!().config(&format!("server.pid-file = \"{}\"", path.display())).start();
    download.read_to_end();
    first.await_exit(STOP_DEADLINE);
    let written = fs::read_to_string(&path).expect("the second server's pid file");
    assert_eq!(written.trim(), second.pid().to_string());
}

#[test]
fn signals_during_a_graceful_stop_are_served_or_refused_in_words() {
    let server = with_large_file();
    let _download = begin_download(&server);
    server.signal(Signal::INT);
    server.await_log("graceful");
    server.signal(Signal::USR1);
    server.await_log("reload refused: the server is stopping");
    server.signal(Signal::HUP);
    server.await_log("logs were opened again");
}

#[test]
fn a_database_without_a_directory_keeps_the_server_from_starting() {
    let setup = lighty!().config("webdav.sqlite-db-name = \"@DIR@/none/dav.db\"");
    let (code, _, output) = setup.run(&["-D", "-f", "@CONF@"]);
    let why = "none/dav.db\": the directory does not exist";
    assert!(
        code == 1 && output.contains("webdav.sqlite-db-name") && output.contains(why),
        "{output}"
    );
}

/// Runs a command with standard input as descriptor 3, announced as an inherited socket.
const ACTIVATE: &str = "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID; exec \"$0\" \"$@\"";

#[test]
fn a_passed_socket_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let mut waiting = Client::tcp(address);
    waiting.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let setup = lighty!().file("a", "x").stdin(OwnedFd::from(listener));
    let server = setup.through(["sh", "-c", ACTIVATE]).env("LISTEN_FDNAMES", "web").start();
    assert_eq!(server.listening(), [address], "the passed socket stands in for the configured");
    assert_eq!(waiting.response().text(), "x", "a connection made before the start is served");
}

#[test]
fn a_socket_that_somebody_shut_down_listens_again() {
    let port = Port::reserve();
    let address = port.address();
    let listener = Socket::from(TcpListener::bind(address).expect("a listener"));
    let passed = listener.try_clone().expect("a second descriptor");
    let setup = lighty!().file("a", "x").stdin(OwnedFd::from(passed));
    let server = setup.through(["sh", "-c", ACTIVATE]).start();
    for _ in 0..2 {
        assert_eq!(server.get("/a").text(), "x");
        listener.shutdown(Shutdown::Both).expect("shut down");
        let listens = || server.listening() == [address];
        assert!(wait_until(Duration::from_secs(60), listens), "{}", server.log());
    }
    assert_eq!(server.get("/a").text(), "x");
    server.await_log(&format!("listening on {address} broke off"));
    server.await_log(&format!("listening on {address} again"));
}

#[test]
fn a_server_without_listeners_ends_so_that_it_is_started_again() {
    // The port that the kernel chose is lost with the shutdown.
    let listener = Socket::from(TcpListener::bind("127.0.0.1:0").expect("a listener"));
    let passed = listener.try_clone().expect("a second descriptor");
    let setup = lighty!().file("a", "x").stdin(OwnedFd::from(passed));
    let mut server = setup.through(["sh", "-c", ACTIVATE]).start();
    let mut busy = server.connect();
    busy.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(busy.response().text(), "x");
    listener.shutdown(Shutdown::Both).expect("shut down");
    let (status, _) = server.await_exit(Duration::from_secs(20));
    assert_eq!(status.code(), Some(1), "{}", server.log());
    for message in ["giving up on listener", "no listener accepts connections any more", "stopped"]
    {
        assert!(server.log().contains(message), "{message}: {}", server.log());
    }
}

#[test]
fn the_other_listeners_go_on_without_one_that_is_lost() {
    let listener = Socket::from(TcpListener::bind("127.0.0.1:0").expect("a listener"));
    let passed = listener.try_clone().expect("a second descriptor");
    let setup = lighty!().file("a", "x").stdin(OwnedFd::from(passed));
    let setup = setup.config("$SERVER[\"socket\"] == \"127.0.0.2:0\" {}");
    let server = setup.through(["sh", "-c", ACTIVATE]).start();
    assert_eq!(server.get("/a").text(), "x");
    listener.shutdown(Shutdown::Both).expect("shut down");
    server.await_log("giving up on listener");
    let [other] = server.listening()[..] else { panic!("{:?}", server.listening()) };
    let mut client = Client::tcp(other);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "x");
}

#[test]
fn sockets_passed_to_another_process_are_left_alone() {
    let server = lighty!().file("a", "x").env("LISTEN_FDS", "1").env("LISTEN_PID", "1").start();
    assert_eq!(server.get("/a").text(), "x");
}

#[test]
fn a_host_name_is_listened_on() {
    let (held, other_held) = (Port::reserve(), Port::reserve());
    let (main, other) = (held.address(), other_held.address());
    let server = lighty!()
        .without_listener()
        .file("a", "x")
        .config(&format!(
            "server.bind = \"localhost\"\nserver.port = {}\n\
             $SERVER[\"socket\"] == \"127.0.0.1:{}\" {{ server.tag = \"main\" }}\n\
             $SERVER[\"socket\"] == \"localhost:{}\" {{ server.tag = \"other\" }}",
            main.port(),
            main.port(),
            other.port(),
        ))
        .start();
    server.await_log("is serving");
    for (address, tag) in [(main, "main"), (other, "other")] {
        let mut client = Client::tcp(address);
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().field("Server"), Some(tag));
    }
}

#[test]
fn a_passed_socket_for_both_families_stands_in_for_every_ipv4_address() {
    let passed = Socket::new(Domain::IPV6, Type::STREAM, None).expect("a socket");
    passed.set_only_v6(false).expect("an option");
    let any: SocketAddr = "[::]:0".parse().expect("an address");
    passed.bind(&any.into()).expect("a port");
    passed.listen(16).expect("a listener");
    let port = passed.local_addr().expect("its address").as_socket().expect("an address").port();
    let setup = lighty!().without_listener().file("a", "x").stdin(OwnedFd::from(passed));
    let setup = setup.config(&format!(
        "server.bind = \"127.0.0.2\"\nserver.port = 0\n\
         $SERVER[\"socket\"] == \":{port}\" {{ server.tag = \"every\" }}"
    ));
    let _server = setup.through(["sh", "-c", ACTIVATE]).start();
    let mut client = Client::tcp(SocketAddr::from(([127, 0, 0, 1], port)));
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().field("Server"), Some("every"));
}

#[test]
fn a_taken_port_is_said_and_the_start_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port();
    let setup = lighty!()
        .without_listener()
        .config(&format!("server.bind = \"127.0.0.1\"\nserver.port = {port}"));
    let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains(&port.to_string()), "{err}");
}

#[test]
fn a_second_server_does_not_share_the_port_of_the_first() {
    let server = lighty!().file("a", "x").config("server.max-worker = 2").start();
    let port = server.address().port();
    let lines = format!("server.bind = \"127.0.0.1\"\nserver.port = {port}");
    let setup = lighty!().without_listener().config(&lines).config("server.max-worker = 2");
    let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains(&port.to_string()), "{err}");
    assert_eq!(server.get("/a").text(), "x");
}

fn may_change_identity() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: only root can become another user");
    }
    root
}

fn status_line(server: &Server, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("status");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn start_that_gets_no_thread_fails_with_a_message() {
    if !may_change_identity() {
        return;
    }
    // Root is exempt from this limit.
    // The sandbox would fail to make its launcher first.
    let setup = lighty!()
        .config("server.username = \"nobody\"\nserver.sandbox = \"off\"")
        .through(["prlimit", "--nproc=1"]);
    let config = setup.write_config();
    let mut server = setup.spawn(&["-D", "-f", config.to_str().expect("a path in UTF-8")]);
    let (status, _) = server.await_exit(Duration::from_secs(20));
    assert_eq!(status.code(), Some(1), "{}", server.log());
    let reported = "server.errorlog: cannot make a thread";
    server.await_log(reported);
}

#[test]
fn files_are_sent_where_no_thread_can_be_had_any_more() {
    if !may_change_identity() {
        return;
    }
    // The limit counts all threads of a user, so the server gets a user of its own.
    let uid = format!("--reuid={}", 54_000 + std::process::id() % 1_000);
    let large = vec![b'x'; 300_000];
    for engine in ["threads", "auto"] {
        let setup = lighty!().file("a", "small").file("large", &large).file("dir/b", "deep");
        fs::set_permissions(setup.directory(), fs::Permissions::from_mode(0o755)).expect("chmod");
        let server = setup
            .config(&format!("server.io-engine = \"{engine}\""))
            .through(["setpriv", &uid, "--clear-groups"])
            .start();
        let pid = server.pid().to_string();
        let limited = std::process::Command::new("setpriv")
            .args([&uid, "--clear-groups", "prlimit", "--pid", &pid, "--nproc=1:1"])
            .status();
        assert!(limited.is_ok_and(|status| status.success()));
        // Threads of the pool that are there leave when they have been idle for a while.
        let has_pool = || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
            let names = tasks.flatten().map(|task| fs::read_to_string(task.path().join("comm")));
            names.flatten().any(|name| name.starts_with("io-"))
        };
        assert!(wait_until(Duration::from_secs(30), || !has_pool()), "threads stay");
        for (target, length) in [("/a", 5), ("/dir/b", 4), ("/large", large.len())] {
            let got = server.get(target);
            let what = format!("{engine}: {target}\n{}", server.log());
            assert_eq!((got.status, got.body.len()), (200, length), "{what}");
        }
        assert!(!has_pool(), "no thread was to be had");
    }
}

#[test]
fn rights_are_given_up_and_cannot_be_had_again() {
    if !may_change_identity() {
        return;
    }
    let setup = lighty!()
        .file("a", "x")
        .file("secret", "s")
        .config("server.username = \"nobody\"\nserver.errorlog = \"@DIR@/error.log\"");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(setup.directory(), open).expect("chmod");
    fs::set_permissions(setup.root("secret"), fs::Permissions::from_mode(0o600)).expect("chmod");
    let server = setup.start();
    assert_eq!(server.get("/a").text(), "x");
    assert_eq!(server.get("/secret").status, 403);
    let uids = status_line(&server, "Uid:");
    assert!(!uids.split(' ').any(|uid| uid == "0"), "{uids}");
    let gids = status_line(&server, "Gid:");
    assert!(!gids.split(' ').any(|gid| gid == "0"), "{gids}");
    let groups = status_line(&server, "Groups:");
    assert!(!groups.split(' ').any(|gid| gid == "0"), "{groups}");
    assert_eq!(status_line(&server, "CapEff:").trim_start_matches('0'), "");
}

#[test]
fn an_unknown_user_is_an_error_at_start() {
    if !may_change_identity() {
        return;
    }
    let setup = lighty!().config("server.username = \"no-such-user-here\"");
    let (code, _, err) = setup.run(&["-D", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains("no-such-user-here") || err.contains("server.username"), "{err}");
}

#[test]
fn a_chroot_is_where_every_path_begins() {
    if !may_change_identity() {
        return;
    }
    let setup = lighty!().config("server.chroot = \"@DIR@\"\nserver.document-root := \"/site\"");
    write_file(&setup.directory().join("site/a"), "inside");
    let server = setup.start();
    assert_eq!(server.get("/a").text(), "inside");
}

#[test]
fn running_out_of_descriptors_is_survived() {
    let server = lighty!().file("a", "x").config("server.stat-cache-engine = \"disable\"").start();
    assert_eq!(server.get("/a").text(), "x");
    let limit = server.descriptors() as u64 + 8;
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed());
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let cut = Rlimit { current: Some(limit), maximum };
    let before = rustix::process::prlimit(pid, Resource::Nofile, cut);
    let before = before.expect("a limit");
    let in_want = Instant::now();
    let mut clients: Vec<Client> = (0..60).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    // Connections above the limit wait in the listen queue; the process must not spin meanwhile.
    let cpu = server.cpu_time();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let spent = server.cpu_time() - cpu;
    assert!(spent < Duration::from_millis(300), "{spent:?} of CPU in one second of want");
    drop(clients);
    let again = wait_until(Duration::from_secs(30), || {
        let mut client = server.connect();
        client.set_deadline(Duration::from_secs(1));
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.try_response(false).is_ok_and(|response| response.status == 200)
    });
    assert!(again, "does not recover:\n{}", server.log());
    let output = server.log().matches("accepting pauses").count() as u64;
    let most = 2 + in_want.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&output), "{output} of {most} times:\n{}", server.log());
    rustix::process::prlimit(pid, Resource::Nofile, before).expect("a limit");
    assert_eq!(server.get("/a").text(), "x");
}

#[test]
fn kill_leaves_nothing_that_hinders_the_next_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let shared = directory.path().to_str().expect("UTF-8");
    let config = format!(
        "server.pid-file = \"{shared}/lighty.pid\"\n\
         $SERVER[\"socket\"] == \"{shared}/web.sock\" {{ server.tag = \"unix\" }}"
    );
    let mut first = lighty!().file("a", "first").config(&config).start();
    first.kill();
    assert!(directory.path().join("web.sock").exists(), "the test needs what a kill leaves");
    let second = lighty!().file("a", "second").config(&config).start();
    let mut client = Client::unix(&directory.path().join("web.sock"));
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "second");
    let pid = fs::read_to_string(directory.path().join("lighty.pid")).expect("a pid file");
    assert_eq!(pid.trim(), second.pid().to_string());
}

#[test]
fn a_live_servers_unix_socket_is_not_taken_away() {
    let first = lighty!()
        .file("a", "first")
        .config("$SERVER[\"socket\"] == \"@DIR@/web.sock\" { server.tag = \"unix\" }")
        .start();
    let path = first.directory().join("web.sock");
    let second = lighty!().config(&format!(
        "$SERVER[\"socket\"] == \"{}\" {{ server.tag = \"unix\" }}",
        path.display()
    ));
    let (code, _, err) = second.run(&["-D", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
    let mut client = Client::unix(&path);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "first");
}

/// Opens connections and sends requests until a connection is refused. Returns the number of
/// responses, and the errors of the requests without one.
fn ask_until_refused(address: SocketAddr) -> (usize, Vec<String>) {
    let (mut answered, mut lost) = (0, Vec::new());
    while let Ok(stream) = TcpStream::connect(address) {
        match ask_on(stream) {
            Ok(()) => answered += 1,
            Err(how) => lost.push(how),
        }
    }
    (answered, lost)
}

fn ask_on(mut stream: TcpStream) -> Result<(), String> {
    let mut got = Vec::new();
    let requested = stream.write_all(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let heard = requested.and_then(|()| stream.read_to_end(&mut got));
    match heard {
        Ok(_) if got.starts_with(b"HTTP/1.1 200 ") && got.ends_with(b"x") => Ok(()),
        Ok(_) => Err(format!("{:?}", String::from_utf8_lossy(&got))),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends requests until `over`; a refused connection was never accepted, so it is retried.
fn ask_until(over: &AtomicBool, address: SocketAddr) -> (usize, Vec<String>) {
    let (mut answered, mut lost) = (0, Vec::new());
    while !over.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect(address) else {
            // The new server needs a core, too.
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        match ask_on(stream) {
            Ok(()) => answered += 1,
            Err(how) => lost.push(how),
        }
    }
    (answered, lost)
}

/// Starts of a server at a port with clients already waiting.
const STARTS: usize = 8;

#[test]
fn clients_that_connect_while_the_server_starts_or_stops_are_answered() {
    let port = Port::reserve();
    let address = port.address();
    let lines = format!("server.bind = \"127.0.0.1\"\nserver.port = {}", address.port());
    let over = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = (0..16)
        .map(|_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || ask_until(&over, address))
        })
        .collect();
    for _ in 0..STARTS {
        let setup = lighty!().file("a", "x").without_listener().config(&lines);
        let mut server = setup.config("server.max-worker = 2").start();
        assert_eq!(server.get("/a").text(), "x");
        server.signal(Signal::INT);
        let (status, _) = server.await_exit(STOP_DEADLINE);
        assert!(status.success(), "{status}");
    }
    over.store(true, Ordering::Relaxed);
    let (mut answered, mut lost) = (0, Vec::new());
    for thread in asking {
        let (some, others) = thread.join().expect("a count");
        answered += some;
        lost.extend(others);
    }
    assert!(answered > STARTS && lost.is_empty(), "{answered} answered, lost: {lost:?}");
}

#[test]
fn clients_connected_before_a_graceful_stop_are_answered() {
    let mut server = lighty!().file("a", "x").config("server.max-worker = 2").start();
    let address = server.address();
    // Connected clients that delay their requests.
    let mut slow: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let asking: Vec<_> =
        (0..16).map(|_| std::thread::spawn(move || ask_until_refused(address))).collect();
    std::thread::sleep(Duration::from_millis(300));
    server.signal(Signal::INT);
    server.await_log("graceful");
    for client in &mut slow {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut slow {
        assert_eq!(client.response().text(), "x");
    }
    let (mut answered, mut lost) = (0, Vec::new());
    for thread in asking {
        let (some, others) = thread.join().expect("a count");
        answered += some;
        lost.extend(others);
    }
    eprintln!("{answered} were answered, {} lost", lost.len());
    assert!(lost.is_empty(), "{} of {answered} were lost: {lost:?}", lost.len());
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
}

#[test]
fn a_connection_that_never_asks_does_not_hold_a_graceful_stop() {
    let mut server = lighty!().file("a", "x").start();
    let mut silent = server.connect();
    server.signal(Signal::INT);
    silent.expect_end();
    let (status, took) = server.await_exit(STOP_DEADLINE);
    assert!(status.success() && took < Duration::from_secs(4), "{status}, {took:?}");
}

#[test]
fn signals_that_the_parent_blocked_or_ignored_are_handled() {
    let program = "#!/bin/sh\nexec sleep 1000\n";
    let setup = lighty!().file("a", "x").config(
        "server.errorlog-level = \"info\"\nfastcgi.server = ( \".f\" => (( \"socket\" => \
         \"@DIR@/f.sock\", \"bin-path\" => \"@DIR@/program\", \"max-procs\" => 1 )) )",
    );
    let path = setup.directory().join("program");
    write_file(&path, program);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a program");
    let block = ["env", "--block-signal=TERM,INT,HUP,CHLD", "--ignore-signal=CHLD"];
    let mut server = setup.through(block).start();
    let started = || {
        let log = server.log();
        let all = log.lines().filter_map(|line| {
            let (_, rest) = line.split_once(": process ")?;
            rest.strip_suffix(" runs")?.trim().parse::<i32>().ok()
        });
        all.collect::<Vec<_>>()
    };
    assert!(wait_until(STOP_DEADLINE, || started().len() == 1), "{}", server.log());
    let pid = rustix::process::Pid::from_raw(started()[0]).expect("a number");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    assert!(wait_until(STOP_DEADLINE, || started().len() == 2), "{}", server.log());
    assert_eq!(server.get("/a").text(), "x");
    server.signal(Signal::TERM);
    let (status, _) = server.await_exit(STOP_DEADLINE);
    assert!(status.success(), "{status}");
}
