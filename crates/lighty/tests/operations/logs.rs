//! Access log and error log: their formats and destinations, and that neither delays a request.

use std::fs;
use std::time::{Duration, Instant};

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::wait_until;
use rustix::process::Signal;

fn logging() -> Setup {
    lighty!().file("a.txt", "hello\n").config("accesslog.filename = \"@DIR@/access.log\"")
}

/// The log's lines once there are `count` of them.
fn lines(server: &Server, name: &str, count: usize) -> Vec<String> {
    let path = server.directory().join(name);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    let complete = wait_until(Duration::from_secs(30), || read().matches('\n').count() >= count);
    let text = read();
    assert!(complete, "{count} lines were expected:\n{text}");
    assert_eq!(text.lines().count(), count, "{text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_default_format_is_the_combined_one() {
    let server = logging().start();
    let _ = server.get_with("/a.txt?q=1", "Referer: http://r/\r\nUser-Agent: test/1\r\n");
    let line = lines(&server, "access.log", 1).remove(0);
    assert!(line.starts_with("127.0.0.1 "), "{line}");
    assert!(line.contains("\"GET /a.txt?q=1 HTTP/1.1\" 200 6 \"http://r/\" \"test/1\""), "{line}");
    let date = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).expect("a date").0;
    assert_eq!(date.len(), "21/Nov/2026:06:12:01 +0000".len(), "{line}");
}

#[test]
fn letters_of_the_format_are_filled_in() {
    let server = logging()
        .config("accesslog.format = \"%h|%m|%U|%q|%H|%s|%b|%B|%X|%{X-Req}i|%{Content-Type}o|%%\"")
        .start();
    let _ = server.get_with("/a.txt?q=1", "X-Req: yes\r\n");
    let _ = server.get("/none");
    let lines = lines(&server, "access.log", 2);
    assert!(
        lines[0].starts_with("127.0.0.1|GET|/a.txt|")
            && lines[0].contains("q=1|HTTP/1.1|200|6|6|-|yes|text/plain"),
        "{}",
        lines[0]
    );
    assert!(lines[0].ends_with("|%"), "{}", lines[0]);
    assert!(lines[1].contains("|404|"), "{}", lines[1]);
}

#[test]
fn an_unknown_letter_is_an_error_of_the_configuration() {
    let (code, _, err) =
        logging().config("accesslog.format = \"%h %Y\"").run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains("%Y") && err.contains('^'), "{err}");
}

#[test]
fn no_request_can_forge_a_line() {
    let server = logging().start();
    let mut client = server.connect();
    client.send(
        &b"GET /a.txt\"%22%0a HTTP/1.1\r\nHost: a\r\nUser-Agent: \"x\\\" \xff\ty\r\nConnection: close\r\n\r\n"[..],
    );
    let _ = client.read_to_end();
    let line = lines(&server, "access.log", 1).remove(0);
    // Two quotes around the request, the referer and the agent; all others are escaped.
    assert_eq!(line.replace("\\\"", "").matches('"').count(), 6, "{line}");
    assert!(line.is_ascii(), "{line}");
}

#[test]
fn refused_requests_are_logged_too() {
    let server = logging().config("accesslog.format = \"%s %r\"").start();
    for request in ["GET /a.txt HTTP/1.1\r\n\r\n", "BREW /a HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut client = server.connect();
        client.send(request);
        let _ = client.response();
    }
    let lines = lines(&server, "access.log", 2);
    assert_eq!(lines[0], "400 GET /a.txt HTTP/1.1");
    assert_eq!(lines[1], "501 BREW /a HTTP/1.1");
}

#[test]
fn of_a_refused_head_the_log_tells_what_came() {
    let config = "accesslog.format = \"%s %I %H %m [%r]\"\nserver.max-head-time = 1";
    let server = logging().config(config).start();
    let mut logged = 0;
    for (sent, expected) in [
        ("GET /a HTTP/3.0\r\n\r\n", "505 19 HTTP/3.0 GET [GET /a HTTP/3.0]"),
        ("GET /a\r\n\r\n", "400 10 - GET [GET /a]"),
        ("\x16\x03\x01\"\r\n\r\n", "400 8 - - [\\x16\\x03\\x01\\x22]"),
        ("GET /b HTTP/1.0\r\nA b: c\r\n\r\n", "400 27 HTTP/1.0 GET [GET /b HTTP/1.0]"),
        // These never end.
        ("\r\nGET /slow HTTP/1.1\r\nHost: a\r\n", "408 31 HTTP/1.1 - [GET /slow HTTP/1.1]"),
        ("GET /sl", "408 7 - - [GET /sl]"),
    ] {
        let mut client = server.connect();
        client.send(sent);
        let _ = client.response();
        logged += 1;
        assert_eq!(lines(&server, "access.log", logged)[logged - 1], expected);
    }
}

#[test]
fn durations_are_in_microseconds() {
    let server = logging().config("accesslog.format = \"%D %{ms}T %{us}T\"").start();
    for _ in 0..20 {
        let _ = server.get("/a.txt");
    }
    let reported: Vec<u64> = lines(&server, "access.log", 20)
        .iter()
        .map(|line| line.split(' ').next().and_then(|us| us.parse().ok()).expect("a number"))
        .collect();
    assert!(reported.iter().all(|us| *us > 0), "no request takes no time: {reported:?}");
    assert!(reported.iter().any(|us| us % 1000 != 0), "{reported:?}");
}

#[test]
fn json_lines_are_json() {
    let server = logging().config("accesslog.json = \"enable\"").start();
    let _ = server.get_with("/a.txt?x=\"y\"", "User-Agent: a \"quoted\" one\r\n");
    let line = lines(&server, "access.log", 1).remove(0);
    assert!(line.starts_with("{\"time\":\"") && line.ends_with('}'), "{line}");
    for part in [
        "\"client\":\"127.0.0.1\"",
        "\"method\":\"GET\"",
        "\"status\":200",
        "\"bytes_body\":6",
        "\"user_agent\":\"a \\\"quoted\\\" one\"",
        "\"connection\":\"close\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn conditions_choose_where_requests_are_logged() {
    let server = logging()
        .config("$HTTP[\"url\"] =^ \"/quiet\" { accesslog.filename = \"\" }")
        .config("$HTTP[\"host\"] == \"other\" { accesslog.filename = \"@DIR@/other.log\" }")
        .config("accesslog.format = \"%U\"")
        .start();
    let mut client = server.connect();
    for (path, host) in [("/a.txt", "a"), ("/quiet", "a"), ("/b", "other"), ("/c", "a")] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let _ = client.response();
    }
    assert_eq!(lines(&server, "access.log", 2), ["/a.txt", "/c"]);
    assert_eq!(lines(&server, "other.log", 1), ["/b"]);
}

#[test]
fn a_log_can_be_piped_into_a_program() {
    let server = lighty!()
        .file("a.txt", "x")
        .config("accesslog.filename = \"|sed -u 's/^/piped: /' > @DIR@/piped.log\"")
        .config("accesslog.format = \"%U\"")
        .start();
    assert_eq!(server.get("/a.txt").status, 200);
    assert_eq!(server.get("/none").status, 404);
    assert_eq!(lines(&server, "piped.log", 2), ["piped: /a.txt", "piped: /none"]);
}

#[test]
fn a_program_that_does_not_read_delays_no_client() {
    let mut server = lighty!()
        .file("a.txt", "x")
        .config("accesslog.filename = \"|exec sleep 600\"")
        .config("accesslog.format = \"%r %{X-Long}i\"")
        .start();
    let mut client = server.connect();
    let long = "y".repeat(6000);
    let start = Instant::now();
    for _ in 0..300 {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let stopping = Instant::now();
    server.stop();
    assert!(stopping.elapsed() < Duration::from_secs(20), "{:?}", stopping.elapsed());
}

#[test]
fn a_full_disk_delays_no_request() {
    let setup = lighty!().file("a.txt", "x");
    let disk = setup.directory().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let Some(mounted) = SmallDisk::mount(&disk, c"size=64k") else { return };
    let mut server = setup
        .config("accesslog.filename = \"@DIR@/disk/access.log\"")
        .config("accesslog.format = \"%r %{X-Long}i\"")
        .start();
    let mut client = server.connect();
    let long = "y".repeat(4000);
    let start = Instant::now();
    for _ in 0..200 {
        client.send(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n"));
        assert_eq!(client.response().status, 200);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    server.await_log("cannot write: No space left on device");
    server.stop();
    assert!(
        server.log().contains("disk/access.log\": its last lines are lost"),
        "{}",
        server.log()
    );
    drop(mounted);
}

#[test]
fn lines_held_back_by_a_full_disk_are_written_later() {
    let setup = lighty!().file("a.txt", "x");
    let disk = setup.directory().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let Some(_mounted) = SmallDisk::mount(&disk, c"size=256k") else { return };
    let config = "accesslog.filename = \"@DIR@/disk/access.log\"\naccesslog.format = \"%U\"";
    let server = setup.config(config).start();
    let _ = fs::write(disk.join("fill"), vec![0; 512 << 10]);
    let wanted: Vec<_> = (0..50).map(|number| format!("/{number}")).collect();
    for target in &wanted {
        assert_eq!(server.get(target).status, 404);
    }
    server.await_log("cannot write: No space left on device");
    fs::remove_file(disk.join("fill")).expect("removed");
    assert_eq!(lines(&server, "disk/access.log", wanted.len()), wanted);
}

#[test]
fn hup_opens_the_access_log_again() {
    let server = logging().config("accesslog.format = \"%U\"").start();
    let _ = server.get("/one");
    assert_eq!(lines(&server, "access.log", 1), ["/one"]);
    let log = server.directory().join("access.log");
    fs::rename(&log, server.directory().join("access.log.1")).expect("rename");
    server.signal(Signal::HUP);
    assert!(wait_until(Duration::from_secs(30), || log.exists()), "no new log");
    let _ = server.get("/two");
    assert_eq!(lines(&server, "access.log", 1), ["/two"]);
    assert_eq!(lines(&server, "access.log.1", 1), ["/one"]);
}

#[test]
fn the_error_log_can_be_json() {
    let server = lighty!()
        .file("a.txt", "x")
        .config("server.errorlog-format = \"json\"\nserver.errorlog-level = \"info\"")
        .start();
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n");
    assert_eq!(client.response().status, 400);
    server.await_log("space-before-colon");
    for line in server.log().lines() {
        assert!(line.starts_with("{\"time\":\"") && line.ends_with('}'), "{line}");
    }
}

#[test]
fn an_error_page_leads_to_the_lines_about_it() {
    let server = lighty!()
        .file("secret", "")
        .config(
            "accesslog.filename = \"@DIR@/access.log\"\naccesslog.format = \"%s %L\"\n\
             debug.log-request-handling = \"enable\"\nurl.access-deny = ( \"secret\" )",
        )
        .start();
    let page = server.get("/secret");
    assert_eq!(page.status, 403);
    let (_, behind) = page.text().split_once("Request ").expect("the request's name");
    let id = behind.split('<').next().expect("a name").to_owned();
    server.await_log(&format!("id: {id}"));
    assert_eq!(lines(&server, "access.log", 1), [format!("403 {id}")]);
    let other = server.get("/secret");
    assert!(!other.text().contains(&id) && other.body.len() == page.body.len());
}
