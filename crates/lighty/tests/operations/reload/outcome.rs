//! Effects of a reload: changed and kept state, and the report of a refusal.

use std::time::Duration;

use lighty_server::control::client::call;
use lighty_testkit::client::Client;
use lighty_testkit::process::is_running;
use lighty_testkit::wait_until;
use rustix::process::Signal;

use super::site::{Echo, ReloadSite};

const PATIENCE: Duration = Duration::from_secs(20);

/// A command at the start, so that the sandbox permits others at a reload.
const RUNS_COMMANDS: &str = "include_shell \"true\"\n";

fn start(lines: &str) -> ReloadSite {
    ReloadSite::start(1, lines, &[("a", b"static"), ("b/a", b"other")])
}

fn proxied(echo: &Echo, weight: u32) -> String {
    format!(
        "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{0}\" )\n\
         proxy-core.weights = ( \"{0}\" => {weight} )\n",
        echo.address
    )
}

#[test]
fn a_keep_alive_connection_goes_on_under_the_new_configuration() {
    let site = start("server.tag = \"one\"");
    let mut client = site.server.connect();
    let mut ask = || {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response();
        assert!(response.status == 200 && !response.says_close(), "{response:?}");
        (response.field("Server").unwrap_or_default().to_owned(), response.text().to_owned())
    };
    assert_eq!(ask(), ("one".into(), "static".into()));
    site.change("server.tag = \"two\"\nserver.document-root := \"@DIR@/root/b\"");
    assert_eq!(ask(), ("two".into(), "other".into()));
    site.change("server.tag = \"three\"\n$HTTP[\"host\"] == \"a\" { server.tag = \"four\" }");
    assert_eq!(ask(), ("four".into(), "static".into()));
}

#[test]
fn a_signal_reloads_as_well() {
    let site = start("server.tag = \"one\"");
    site.write("server.tag = \"two\"");
    site.server.signal(Signal::USR1);
    site.server.await_log("reloaded: generation 1");
    assert_eq!(site.tag(), "two");
    site.write("server.tag = ");
    site.server.signal(Signal::USR1);
    site.server.await_log("reload refused, the configuration stays as it was:");
    site.server.await_log("lighty.conf:");
    assert_eq!(site.tag(), "two");
}

#[test]
fn faulty_configuration_is_reported_and_changes_nothing() {
    let site = start("server.tag = \"one\"\naccesslog.filename = \"@DIR@/one.log\"");
    let lines = "server.tag = \"two\"\nserver.no-such = 1\n$HTTP[\"host\"] == \"a\" {\n";
    let output = site.refuse(lines);
    assert!(output.contains("lighty.conf:"), "{output}");
    assert_eq!(site.tag(), "one");
    let output = site.refuse("server.tag = \"two\"\naccesslog.filename = \"@DIR@/none/b.log\"");
    assert!(output.contains("accesslog.filename") && output.contains("none/b.log"), "{output}");
    assert_eq!(site.tag(), "one");
    std::fs::remove_file(site.server.directory().join("lighty.conf")).expect("removed");
    let output = site.refused();
    assert!(output.contains("lighty.conf"), "{output}");
    assert_eq!(site.tag(), "one");
}

#[test]
fn a_document_root_that_is_not_there_is_refused() {
    let site = start("server.tag = \"one\"");
    let output = site.refuse("server.tag = \"two\"\nserver.document-root := \"/nonexistent\"");
    assert!(output.contains("server.document-root = \"/nonexistent\""), "{output}");
    assert_eq!(site.tag(), "one");
}

#[test]
fn document_root_of_a_condition_that_is_not_there_is_warned_of() {
    let elsewhere = "$HTTP[\"host\"] == \"a\" { server.document-root := \"/nonexistent\" }\n";
    let site = start(elsewhere);
    site.server.await_log("server.document-root = \"/nonexistent\": No such file");
    site.write(&format!("{elsewhere}server.tag = \"two\""));
    let (status, out, _) = site.reload();
    assert_eq!(status, 0, "{out}");
    assert!(out.contains("server.document-root = \"/nonexistent\""), "{out}");
    assert_eq!(site.tag(), "two");
}

#[test]
fn a_graceful_stop_takes_as_long_as_the_new_configuration_allows() {
    let large = vec![b'x'; 24 << 20];
    let site = ReloadSite::start(1, "", &[("large", &large)]);
    let limit = |limit_s: u32| {
        format!("server.feature-flags = (\"server.graceful-shutdown-timeout\" => {limit_s})")
    };
    site.change(&limit(1));
    let mut download = Client::tcp_with_receive_buffer(site.server.address(), 8 * 1024);
    download.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(download.response_head().status, 200);
    site.server.signal(Signal::INT);
    site.server.await_log("graceful stop");
    site.server.await_log("stopped");
}

#[test]
fn command_of_a_reload_ends_with_the_server() {
    let mut site = start(RUNS_COMMANDS);
    site.write("include_shell \"echo $$ > @DIR@/shell; sleep 3600\"");
    site.server.signal(Signal::USR1);
    let path = site.server.directory().join("shell");
    let shell = || std::fs::read_to_string(&path).unwrap_or_default().trim().parse::<u32>().ok();
    assert!(wait_until(Duration::from_secs(60), || shell().is_some()), "no command");
    let pid = shell().expect("its number");
    site.server.stop();
    let has_ended = || !is_running(pid);
    assert!(wait_until(Duration::from_secs(60), has_ended), "it outlives the server");
}

#[test]
fn a_server_that_stops_refuses_to_reload() {
    let large = vec![b'x'; 24 << 20];
    let site = ReloadSite::start(1, "", &[("large", &large)]);
    let mut download = Client::tcp_with_receive_buffer(site.server.address(), 8 * 1024);
    download.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(download.response_head().status, 200);
    site.server.signal(Signal::INT);
    site.server.await_log("graceful stop");
    let output = site.refused();
    assert!(output.contains("the server is stopping"), "{output}");
}

#[test]
fn changes_that_need_a_restart_are_named() {
    let site = start("server.tag = \"one\"");
    for (lines, name) in [
        ("server.username = \"nobody\"", "server.username"),
        ("server.groupname = \"nogroup\"", "server.groupname"),
        ("server.chroot = \"@DIR@\"", "server.chroot"),
        ("server.max-fds = 5000", "server.max-fds"),
        ("server.core-files = \"enable\"", "server.core-files"),
        ("server.pid-file := \"@DIR@/other.pid\"", "server.pid-file"),
    ] {
        let output = site.refuse(&format!("server.tag = \"two\"\n{lines}"));
        let want = format!("changed, but needs a restart: {name}");
        assert!(output.contains(&want), "{lines}: {output}");
        assert_eq!(site.tag(), "one", "{lines}");
    }
}

#[test]
fn a_request_under_way_ends_under_the_configuration_it_began_with() {
    let echo = Echo::start();
    let lines = |tag: &str| format!("server.tag = \"{tag}\"\n{}", proxied(&echo, 1));
    let site = start(&lines("one"));
    let mut client = site.server.connect();
    client.send("POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.interim(), 100);
    site.change("server.tag = \"two\"");
    assert_eq!(site.tag(), "two");
    client.send("\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.text()), (200, "proxied"));
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!((response.text(), response.field("Server")), ("static", Some("two")));
}

#[test]
fn a_backend_keeps_connections_and_counters_when_its_weight_changes() {
    let echo = Echo::start();
    let site = start(&proxied(&echo, 1));
    assert_eq!(site.server.get("/x").text(), "proxied");
    assert_eq!(site.server.get("/x").text(), "proxied");
    for weight in [5, 7] {
        site.change(&proxied(&echo, weight));
        assert_eq!(site.server.get("/x").text(), "proxied");
    }
    let more = "proxy-core.connect-timeout = 4\nproxy-core.read-timeout = 50\n\
                proxy-core.max-pool-size = 9\nproxy-core.max-backlog-size = 5\n\
                proxy-core.balancer = \"sqf\"\nproxy-core.max-fails = 3\n\
                proxy-core.resolver = ( \"127.0.0.1\" )\n";
    site.change(&format!("{}{more}", proxied(&echo, 7)));
    assert_eq!(site.server.get("/x").text(), "proxied");
    assert_eq!(echo.opened(), 1, "the pool was kept");
    site.server.signal(Signal::USR2);
    site.server.await_log(&format!("proxy-core.0.backends.\"{}\".requests: 5", echo.address));
    site.server.await_log(&format!("proxy-core.0.backends.\"{}\".weight: 7", echo.address));
    let log = site.server.log();
    assert!(!log.contains("proxy-core.1."), "nothing of older generations is left: {log}");
}

#[test]
fn a_backend_that_is_down_stays_down() {
    let port = lighty_testkit::backend::Port::reserve();
    let lines = |weight: u32| {
        format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{0}\" )\n\
             proxy-core.weights = ( \"{0}\" => {weight} )\nproxy-core.disable-time = 3000\n\
             proxy-core.hold-time = 0\n",
            port.address()
        )
    };
    let site = start(&lines(1));
    assert_eq!(site.server.get("/x").status, 503);
    site.change(&lines(2));
    assert_eq!(site.server.get("/x").status, 503);
    site.server.signal(Signal::USR2);
    let front = format!("proxy-core.0.backends.\"{}\"", port.address());
    site.server.await_log(&format!("{front}.state: down"));
    site.server.await_log(&format!("{front}.requests: 1"));
}

#[test]
fn limits_count_on_after_a_reload() {
    let site = start("limit.requests = ( \"rate\" => 1, \"per\" => 600, \"burst\" => 2 )");
    assert_eq!(site.server.get("/a").status, 200);
    site.change(
        "limit.requests = ( \"rate\" => 1, \"per\" => 600, \"burst\" => 2 )\nserver.tag = \"x\"",
    );
    assert_eq!(site.server.get("/a").status, 200);
    assert_eq!(site.server.get("/a").status, 429);
    site.change("limit.requests = ( \"rate\" => 1, \"per\" => 500, \"burst\" => 2 )");
    assert_eq!(site.server.get("/a").status, 429);
    site.change("");
    assert_eq!(site.server.get("/a").status, 200);
}

/// A tunnel that outlives many reloads keeps none of the earlier configurations.
#[test]
fn old_generations_are_listed_and_tunnels_hold_none() {
    let echo = Echo::start();
    let large = vec![b'x'; 24 << 20];
    let lines = |tag: &str| {
        format!(
            "server.tag = \"{tag}\"\nproxy-core.protocol = \"http\"\n\
             $HTTP[\"url\"] =^ \"/p\" {{ proxy-core.backends = ( \"{}\" )\n\
             proxy-core.upgrade = \"enable\" }}\n",
            echo.address
        )
    };
    let site = ReloadSite::start(1, &lines("one"), &[("large", &large)]);
    let mut tunnel = site.server.connect();
    tunnel.send("GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(tunnel.response_head().status, 101);
    let mut download = Client::tcp_with_receive_buffer(site.server.address(), 8 * 1024);
    download.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(download.response_head().status, 200);
    let olds = || {
        let socket = site.server.directory().join("lighty.pid.ctl");
        let status = call(&socket, "GET", "/status", &serde_json::json!({})).expect("a status");
        status["old_generations"].as_array().expect("a list").clone()
    };
    assert!(olds().is_empty());
    site.change(&lines("two"));
    site.change(&lines("three"));
    let listed = || {
        let rows = olds();
        rows.len() == 1 && rows[0]["generation"] == 0 && rows[0]["holders"] == 1
    };
    assert!(wait_until(PATIENCE, listed), "only the download: {:?}", olds());
    assert_eq!(download.read_to_end().0.len(), large.len());
    assert!(wait_until(PATIENCE, || olds().is_empty()), "{:?}", olds());
    tunnel.send("still here");
    assert_eq!(tunnel.read_exact(10).expect("the tunnel is open"), b"still here");
}

#[test]
fn access_logs_are_opened_and_closed() {
    let log = |name: &str| format!("accesslog.filename = \"@DIR@/{name}.log\"");
    let site = start(&log("one"));
    let lines = |name: &str| {
        let path = site.server.directory().join(format!("{name}.log"));
        std::fs::read_to_string(path).unwrap_or_default().lines().count()
    };
    assert!(!site.tag().is_empty());
    assert!(wait_until(PATIENCE, || lines("one") == 1));
    let opens = |name: &str| {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", site.server.pid())).expect("/proc");
        let paths = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        paths.filter(|path| path.ends_with(name)).count()
    };
    for _ in 0..3 {
        site.change(&log("two"));
        site.change(&log("one"));
    }
    site.change(&log("two"));
    let _ = site.tag();
    assert!(wait_until(PATIENCE, || lines("two") == 1), "{}", lines("two"));
    assert_eq!(lines("one"), 1);
    assert!(wait_until(PATIENCE, || (opens("one.log"), opens("two.log")) == (0, 1)));
}

#[test]
fn the_error_log_moves() {
    let site = start("server.errorlog = \"@DIR@/one.log\"");
    let log = |name: &str| {
        std::fs::read_to_string(site.server.directory().join(name)).unwrap_or_default()
    };
    // Unwritten log lines go to the new file.
    assert!(wait_until(PATIENCE, || log("one.log").contains("is serving")), "{}", log("one.log"));
    site.change("server.errorlog = \"@DIR@/two.log\"");
    let moved = || log("two.log").contains("reloaded: generation 1");
    assert!(wait_until(PATIENCE, moved), "{}", log("two.log"));
    let output = site.refuse("server.errorlog = \"@DIR@/none/three.log\"");
    assert!(output.contains("none/three.log\": No such file"), "{output}");
    assert!(wait_until(PATIENCE, || log("two.log").contains("reload refused")));
    site.change("server.errorlog = \"@DIR@/two.log\"\nserver.errorlog-format = \"json\"");
    assert!(wait_until(PATIENCE, || log("two.log").contains("{\"time\":")), "{}", log("two.log"));
}

#[test]
fn a_server_without_a_configuration_file_says_so() {
    let site = lighty_testkit::lighty!()
        .without_listener()
        .file("a", "x")
        .config("server.bind = \"127.0.0.1\"\nserver.port = 0");
    let text = std::fs::read(site.write_config()).expect("written");
    let file = tempfile::tempfile().expect("a file");
    std::io::Write::write_all(&mut &file, &text).expect("written");
    std::io::Seek::rewind(&mut &file).expect("rewound");
    let server = site.stdin(file).spawn(&["-D", "-f", "-"]);
    assert!(wait_until(PATIENCE, || !server.listening().is_empty()), "{}", server.log());
    server.signal(Signal::USR1);
    server.await_log("the configuration did not come from a file");
}

#[test]
fn without_a_server_there_is_nothing_to_reload() {
    let site = lighty_testkit::lighty!();
    let (status, out, err) = site.run(&["reload", "--pid-file", "/nonexistent/lighty.pid"]);
    assert!(status == 1 && out.is_empty() && err.contains("/nonexistent/lighty.pid.ctl"), "{err}");
}

#[test]
fn a_stop_does_not_wait_for_a_reload_that_hangs() {
    let mut site = start(&format!("{RUNS_COMMANDS}server.tag = \"one\""));
    site.write("include_shell \"touch @DIR@/begun; sleep 600\"");
    let pid_file = site.server.directory().join("lighty.pid");
    let reload = move || {
        let socket = lighty_server::control::socket_beside(&pid_file);
        call(&socket, "POST", "/reload", &serde_json::json!({}))
    };
    let asking = std::thread::spawn(reload);
    let begun = site.server.directory().join("begun");
    assert!(wait_until(PATIENCE, || begun.exists()), "the command does not run");
    // Requests and other signals go on meanwhile.
    assert_eq!(site.tag(), "one");
    site.server.stop();
    let output = asking.join().expect("no panic").expect_err("no reload");
    assert_eq!(output.to_string(), "the server is stopping");
}

#[test]
fn signals_and_callers_are_served_while_a_reload_hangs() {
    let mut site = start(&format!("{RUNS_COMMANDS}server.tag = \"one\""));
    let hanging = "touch @DIR@/begun; while [ ! -e @DIR@/go ]; do sleep 0.05; done";
    site.write(&format!("server.tag = \"two\"\ninclude_shell \"{hanging}\""));
    site.server.signal(Signal::USR1);
    let path = |name: &str| site.server.directory().join(name);
    assert!(wait_until(PATIENCE, || path("begun").exists()), "the command does not run");
    site.server.signal(Signal::HUP);
    site.server.await_log("logs were opened again");
    site.server.signal(Signal::USR2);
    site.server.await_log("requests on");
    let socket = lighty_server::control::socket_beside(&path("lighty.pid"));
    let status = call(&socket, "GET", "/status", &serde_json::json!({})).expect("a status");
    assert_eq!(status["generation"], 0);
    assert_eq!(site.tag(), "one");
    lighty_testkit::server::write_file(&path("go"), "");
    site.server.await_log("reloaded: generation 1");
    assert_eq!(site.tag(), "two");
    std::fs::remove_file(path("go")).expect("removed");
    site.server.signal(Signal::USR1);
    site.server.stop();
}

/// A pipe without a writer would hang.
#[test]
fn pipe_in_place_of_a_file_is_refused() {
    let site = start("server.tag = \"one\"");
    let pipe = site.server.directory().join("pipe.conf");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let output = site.refuse("server.tag = \"two\"\ninclude \"@DIR@/pipe.conf\"");
    assert!(output.contains("pipe.conf"), "{output}");
    assert_eq!(site.tag(), "one");
}

#[test]
fn the_database_of_webdav_stays_private_when_webdav_goes() {
    let webdav = "webdav.activate = \"enable\"\nwebdav.sqlite-db-name = \"@DIR@/root/dav.db\"";
    let site = start(webdav);
    // The database is made for the first request that needs it.
    let mut client = site.server.connect();
    client.send("PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb");
    assert_eq!(client.response().status, 201);
    assert_eq!(site.server.get("/dav.db").status, 403);
    site.change("server.tag = \"two\"");
    assert_eq!(site.server.get("/dav.db").status, 403);
    assert_eq!(site.server.get("/a").status, 200);
}

#[test]
fn commands_that_took_a_log_leave_no_zombies() {
    let site = start("accesslog.filename = \"|cat >> @DIR@/0.log\"");
    for number in 1..=5 {
        site.change(&format!("accesslog.filename = \"|cat >> @DIR@/{number}.log\""));
    }
    let tasks = format!("/proc/{}/task", site.server.pid());
    let children = || -> Vec<String> {
        let of_task = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("children")).unwrap_or_default()
        };
        let tasks = std::fs::read_dir(&tasks).expect("a process").flatten();
        let all: Vec<String> = tasks.map(of_task).collect();
        all.join(" ").split_whitespace().map(str::to_owned).collect()
    };
    assert!(wait_until(PATIENCE, || children().len() == 1), "{:?}", children());
}

#[test]
fn all_that_is_in_the_way_is_named_at_once() {
    let site = start("server.tag = \"one\"");
    let output = site.refuse(
        "server.tag = \"two\"\nserver.username = \"nobody\"\n\
         server.document-root := \"/nonexistent\"\nserver.errorlog = \"@DIR@/none/e.log\"\n\
         accesslog.filename = \"@DIR@/none/a.log\"\nwebdav.sqlite-db-name = \"@DIR@/none/d\"",
    );
    for name in
        ["server.username", "/nonexistent", "none/e.log", "none/a.log", "webdav.sqlite-db-name"]
    {
        assert!(output.contains(name), "{name}: {output}");
    }
    assert_eq!(site.tag(), "one");
}

#[test]
fn files_that_requests_will_miss_are_warned_of() {
    let site = start("server.tag = \"one\"");
    for (lines, name) in [
        ("auth.backend.plain.userfile = \"@DIR@/no-users\"", "no-users"),
        ("magnet.attract-raw-url-to = ( \"@DIR@/no-script.lua\" )", "no-script.lua"),
        ("server.upload-dirs = ( \"@DIR@/no-uploads\" )", "no-uploads"),
    ] {
        site.write(lines);
        let (status, out, err) = site.reload();
        assert_eq!(status, 0, "{out}{err}");
        assert!(out.contains("warning:") && out.contains(name), "{out}");
        assert!(out.contains("reloaded: generation "), "{out}");
    }
}

#[test]
fn a_database_that_is_named_no_more_is_closed() {
    let webdav = "webdav.activate = \"enable\"\nwebdav.sqlite-db-name = \"@DIR@/dav.db\"";
    let site = start(webdav);
    let put = || {
        let mut client = site.server.connect();
        client.send("PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb");
        client.response().status
    };
    let process = format!("/proc/{}", site.server.pid());
    let opened = || {
        let entries = std::fs::read_dir(format!("{process}/fd")).expect("/proc");
        let paths = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        paths.filter(|path| path.to_string_lossy().contains("/dav.db")).count()
    };
    let has_thread = || {
        let tasks = std::fs::read_dir(format!("{process}/task")).expect("/proc").flatten();
        let names = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
        names.into_iter().any(|name| name.trim_end() == "webdav")
    };
    assert_eq!(put(), 201);
    assert!(opened() > 0 && has_thread(), "{}", opened());
    site.change(&format!("server.tag = \"two\"\n{webdav}"));
    assert!(opened() > 0 && has_thread(), "what is named stays open");
    site.change("server.tag = \"three\"");
    // One descriptor pins the database file, which is not served even now.
    assert!(wait_until(PATIENCE, || opened() == 1 && !has_thread()), "{}", opened());
    site.change(webdav);
    assert_eq!(put(), 204);
    assert!(opened() > 1 && has_thread(), "{}", opened());
}
