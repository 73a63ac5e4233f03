//! PHP behind the server: PHP-FPM over unix sockets and TCP, `php-cgi`, both spellings.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::content::{chunked, pattern};
use lighty_testkit::lighty;
use lighty_testkit::real::Listen;
use lighty_testkit::real::php::{PhpCgi, PhpFpm};
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::stopwatch::Stopwatch;
use lighty_testkit::transfer::{self, Framing};
use lighty_testkit::wait_until;

/// Prints PHP's variables.
const ECHO: &str = r#"<?php
header('Content-Type: text/plain');
foreach (['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'PATH_INFO',
    'SCRIPT_FILENAME', 'DOCUMENT_ROOT', 'CONTENT_LENGTH', 'CONTENT_TYPE', 'REMOTE_ADDR',
    'SERVER_NAME', 'SERVER_PROTOCOL', 'GATEWAY_INTERFACE', 'HTTP_X_WORD', 'HTTP_PROXY',
    'REMOTE_USER', 'USER_FROM_LEAVE'] as $name)
    if (isset($_SERVER[$name])) echo "$name=$_SERVER[$name]\n";
"#;

/// Echoes the posted data.
const MIRROR: &str = "<?php header('Content-Type: application/octet-stream');\n\
    echo file_get_contents('php://input');";

/// A 1.4 configuration for scripts beneath the document root.
fn setup(listen: &Listen, pool: u32) -> Setup {
    lighty!()
        .config(&format!("fastcgi.server = ( \".php\" => ( ( {} ) ) )", listen.host_keys()))
        .config(&format!("proxy-core.max-pool-size = {pool}"))
        .config("index-file.names = ( \"index.php\" )")
        .file("echo.php", ECHO)
        .file("mirror.php", MIRROR)
}

fn post(client: &mut Client, target: &str, body: &[u8]) -> Vec<u8> {
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-test\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(body);
    let response = client.response();
    assert_eq!(response.status, 200, "{response:?}");
    response.body
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn php_gets_the_request_as_it_was_sent() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let server = setup(fpm.listen(), 2).start();
    let head = "X-Word: hello\r\nProxy: evil\r\n";
    let response = server.get_with("/echo.php/some/where?a=b%20c", head);
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.field("Content-Type"), Some("text/plain;charset=UTF-8"));
    assert!(response.field("X-Powered-By").is_some());
    let text = response.text();
    let root = server.root("");
    let root = root.to_str().expect("UTF-8").trim_end_matches('/');
    for (name, value) in [
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/echo.php/some/where?a=b%20c"),
        ("QUERY_STRING", "a=b%20c"),
        ("SCRIPT_NAME", "/echo.php"),
        ("PATH_INFO", "/some/where"),
        ("SCRIPT_FILENAME", &format!("{root}/echo.php")),
        ("DOCUMENT_ROOT", root),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_X_WORD", "hello"),
    ] {
        assert_eq!(line(text, name), Some(value), "{name} in {text}");
    }
    assert_eq!(line(text, "HTTP_PROXY"), None, "{text}");
}

#[test]
fn bodies_go_there_and_back_over_tcp_and_unix_and_php_cgi() {
    let Some(unix) = PhpFpm::unix(2) else { return };
    let Some(tcp) = PhpFpm::tcp(2) else { return };
    let Some(cgi) = PhpCgi::tcp(2) else { return };
    let large = pattern(7, 3 << 20);
    for listen in [unix.listen(), tcp.listen(), cgi.listen()] {
        let server = setup(listen, 2).start();
        let mut client = server.connect();
        for body in [&b""[..], b"x", &large[..65_535], &large[..65_536], &large] {
            let back = post(&mut client, "/mirror.php", body);
            assert!(back == body, "{listen:?}: {} of {} bytes", back.len(), body.len());
        }
        assert!(server.get("/echo.php").text().contains("REQUEST_METHOD=GET"));
    }
}

#[test]
fn a_body_in_chunks_is_held_until_its_length_is_known() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let setup = setup(fpm.listen(), 2).config("server.upload-dirs = ( \"@DIR@/held\" )");
    let held = setup.directory().join("held");
    std::fs::create_dir(&held).expect("a directory");
    let server = setup.start();
    let large = pattern(3, 3 << 20);
    let mut client = server.connect();
    for length in [0, 1, 70_000, 3 << 20] {
        client.send("POST /mirror.php HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(chunked(&large[..length], 50_000));
        let response = client.response();
        assert_eq!(response.status, 200, "{response:?}\n{}", server.log());
        assert!(response.body == large[..length], "{} of {length} bytes", response.body.len());
    }
    assert_eq!(std::fs::read_dir(held).expect("the directory").count(), 0, "something is left");
}

#[test]
fn checks_see_php_go_and_come_back() {
    for check in ["", ", \"uri\" => \"/ping\""] {
        let Some(mut fpm) = PhpFpm::tcp(2) else { return };
        let server = lighty!()
            .config("proxy-core.protocol = \"fastcgi\"")
            .config(&format!("proxy-core.backends = ( \"{}\" )", fpm.listen().backend()))
            .config(&format!(
                "proxy-core.check = ( \"type\" => \"fastcgi\", \"interval\" => \"100ms\", \
                 \"fall\" => 2, \"rise\" => 1{check} )"
            ))
            .file("a.php", ECHO)
            .start();
        assert_eq!(server.get("/a.php").status, 200);
        std::thread::sleep(Duration::from_millis(350));
        assert!(!server.log().contains("is down"), "{check}: {}", server.log());
        fpm.stop();
        server.await_log("is down, its check says");
        fpm.restart();
        server.await_log("is up again");
        assert_eq!(server.get("/a.php").status, 200);
    }
}

#[test]
fn the_spelling_of_1_5_reaches_the_same_php() {
    let Some(fpm) = PhpFpm::tcp(1) else { return };
    let server = lighty!()
        .config("proxy-core.protocol = \"fastcgi\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", fpm.listen().backend()))
        .file("a.php", ECHO)
        .start();
    let response = server.get("/a.php?x");
    assert_eq!(line(response.text(), "QUERY_STRING"), Some("x"), "{response:?}");
    // Without check-local, PHP-FPM responds for missing files.
    let absent = server.get("/absent.php");
    assert_eq!((absent.status, absent.text()), (404, "File not found.\n"));
}

#[test]
fn variables_of_more_than_64_kilobytes_arrive_whole() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let mut environment = String::new();
    for number in 0..5 {
        environment += &format!("\"LONG_{number}\" => \"{}\",", "v".repeat(20_000 + number));
    }
    let server = setup(fpm.listen(), 1)
        .config(&format!("setenv.add-environment = ( {environment} )"))
        .file(
            "long.php",
            "<?php for ($n = 0; $n < 5; $n++) echo strlen($_SERVER[\"LONG_$n\"]), ' ';",
        )
        .start();
    assert_eq!(server.get("/long.php").text(), "20000 20001 20002 20003 20004 ");
}

#[test]
fn index_files_heads_and_validators() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let fresh = "<?php header('ETag: \"v1\"'); if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === \
        '\"v1\"') http_response_code(304); else echo 'the body';";
    let server =
        setup(fpm.listen(), 1).file("dir/index.php", ECHO).file("fresh.php", fresh).start();
    let index = server.get("/dir/?q");
    assert_eq!(line(index.text(), "SCRIPT_NAME"), Some("/dir/index.php"), "{index:?}");
    assert_eq!(line(index.text(), "REQUEST_URI"), Some("/dir/?q"));
    let mut client = server.connect();
    client.send("HEAD /fresh.php HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.response_to_head();
    assert_eq!((head.status, head.field("ETag")), (200, Some("\"v1\"")));
    client.send("GET /fresh.php HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"v1\"\r\n\r\n");
    let unchanged = client.response();
    assert_eq!((unchanged.status, unchanged.field("ETag")), (304, Some("\"v1\"")));
    client.send("GET /fresh.php HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "the body");
}

#[test]
fn path_info_does_not_turn_a_file_into_a_script() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let image = "<?php echo 'executed';";
    let server =
        setup(fpm.listen(), 1).file("image.jpg", image).file("dir.php/image.jpg", image).start();
    for target in ["/image.jpg/x.php", "/image.jpg%2fx.php", "/dir.php/image.jpg"] {
        let response = server.get(target);
        assert_eq!((response.status, response.text()), (200, image), "{target}");
    }
    let script = server.get("/echo.php/image.jpg/x.php");
    assert_eq!(line(script.text(), "SCRIPT_NAME"), Some("/echo.php"), "{script:?}");
}

#[test]
fn status_and_fields_of_php_are_passed_on_and_errors_logged() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let server = setup(fpm.listen(), 1)
        .file("own404.php", "<?php http_response_code(404); echo 'not mine';")
        .file("thrown.php", "<?php throw new Exception('thrown on purpose');")
        .file("left.php", "<?php echo 'until here'; exit(3); echo 'not here';")
        .file("says.php", "<?php error_log('said by the script'); echo 'done';")
        .file("moved.php", "<?php header('Location: /elsewhere');")
        .file(
            "status.php",
            "<?php header('Status: 418 Teapot'); header('X-A: 1'); header('X-A: 2', false);",
        )
        .start();
    let own = server.get("/own404.php");
    assert_eq!((own.status, own.text()), (404, "not mine"));
    assert_eq!(server.get("/thrown.php").status, 500);
    server.await_log("thrown on purpose");
    assert_eq!(server.get("/left.php").text(), "until here");
    assert_eq!(server.get("/says.php").text(), "done");
    server.await_log("said by the script");
    let moved = server.get("/moved.php");
    assert_eq!((moved.status, moved.field("Location")), (302, Some("/elsewhere")));
    let status = server.get("/status.php");
    assert_eq!((status.status, status.all("X-A").count()), (418, 2), "{status:?}");
    assert_eq!(server.get("/absent.php").status, 404, "a file that is not there is no script");
}

#[test]
fn a_connection_carries_one_request_after_another() {
    let Some(fpm) = PhpFpm::tcp(1) else { return };
    let address = fpm.listen().address();
    let counted = Backend::start(move |peer| peer.relay(address));
    let server = setup(&Listen::Tcp(counted.address()), 1).start();
    let mut client = server.connect();
    for number in 0..200 {
        client.send(format!("GET /echo.php?{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let text = client.response();
        assert_eq!(line(text.text(), "QUERY_STRING"), Some(number.to_string().as_str()));
        // A POST takes the place of a kept connection: it could not be sent again.
        if number % 20 == 1 {
            assert_eq!(post(&mut client, "/mirror.php", b"between"), b"between");
        }
    }
    // On a busy machine a connection may be idle, or its process silent, for too long.
    assert!((1 + 10..30).contains(&counted.opened()), "{} connections", counted.opened());
}

/// Children that serve one connection each, and connections that are kept for them.
#[test]
fn a_burst_waits_for_no_child_that_an_idle_connection_holds() {
    let script = "<?php usleep(50000); echo 'ok';";
    for (children, workers) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let Some(fpm) = PhpFpm::unix(children) else { return };
        let Some(cgi) = PhpCgi::tcp(children) else { return };
        for listen in [fpm.listen(), cgi.listen()] {
            let server = setup(listen, 256)
                .config(&format!("server.max-worker = {workers}"))
                .file("slow.php", script)
                .start();
            let began = Instant::now();
            // Some one after another, some at once.
            assert_eq!(many(1, 6, |_| server.get("/slow.php").status == 200), 6);
            assert_eq!(many(8, 3, |_| server.get("/slow.php").status == 200), 24);
            // A connection may be idle for thirty seconds.
            let took = began.elapsed();
            assert!(took < Duration::from_secs(15), "{children}, {workers}, {listen:?}: {took:?}");
        }
    }
}

/// A typical setup of 1.5: a pool far larger than the number of children of `spawn-fcgi -C`, and a
/// program that names the file to send. Every client has a connection of its own.
#[test]
fn a_pool_larger_than_the_children_answers_everyone() {
    const CLIENTS: usize = 20;
    const EACH: usize = 15;
    let named = "<?php header('X-LIGHTTPD-send-file: ' . dirname(__FILE__) . '/page.txt');";
    for (children, pool, script) in [(2, 16, "<?php echo 'a page';"), (1, 20, named)] {
        let Some(cgi) = PhpCgi::tcp(children) else { return };
        let server = lighty!()
            .config(&format!(
                "$HTTP[\"url\"] =~ \"\\.php$\" {{\n\
                 proxy-core.balancer = \"static\"\nproxy-core.protocol = \"fastcgi\"\n\
                 proxy-core.backends = ( \"{}\" )\nproxy-core.allow-x-sendfile = \"enable\"\n\
                 proxy-core.max-pool-size = {pool}\n}}",
                cgi.listen().address()
            ))
            .file("page.txt", "a page")
            .file("a.php", script)
            .start();
        let began = Instant::now();
        let answered = many(CLIENTS, EACH, |_| {
            let response = server.get("/a.php");
            (response.status, response.text()) == (200, "a page")
        });
        assert_eq!(answered, CLIENTS * EACH, "{children}: {}", server.log());
        // A connection may be idle for thirty seconds, and no request waits for it.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(15), "{children} children, {pool}: {took:?}");
    }
}

/// Requests wait behind a full pool while no child responds. The worker serves others meanwhile.
#[test]
fn a_full_pool_whose_children_stall_holds_up_nobody_else() {
    let Some(cgi) = PhpCgi::tcp(2) else { return };
    let script = "<?php while (file_exists(__DIR__ . '/stall')) { clearstatcache(); usleep(5000); }\n\
                  echo 'ok';";
    let server = lighty!()
        .config(&format!("fastcgi.server = ( \".php\" => (( {} )) )", cgi.listen().host_keys()))
        .config("proxy-core.max-pool-size = 4\nserver.max-worker = 1")
        .file("a.php", script)
        .file("a.txt", "file")
        .start();
    let is_ok = |_| server.get("/a.php").text() == "ok";
    // The backend shows how many connections it accepts.
    assert_eq!(many(12, 10, is_ok), 120, "{}", server.log());
    let stall = server.root("stall");
    for _ in 0..3 {
        std::fs::write(&stall, "").expect("written");
        let answered = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| many(12, 2, is_ok));
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(server.get("/a.txt").text(), "file");
            }
            std::fs::remove_file(&stall).expect("removed");
            waiting.join().expect("responses")
        });
        assert_eq!(answered, 24, "{}", server.log());
    }
}

/// PHP gets the local address of its client's connection, at the cost of one system call per
/// connection.
#[test]
fn local_address_is_looked_up_once_for_each_connection() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let setup = setup(fpm.listen(), 1)
        .bind("0.0.0.0")
        .file("at.php", "<?php echo $_SERVER['SERVER_ADDR'];");
    let calls = setup.directory().join("calls");
    let trace =
        ["strace", "-D", "-f", "-e", "trace=getsockname", "-o", calls.to_str().expect("UTF-8")];
    let server = setup.through(trace).start();
    let count =
        || std::fs::read_to_string(&calls).unwrap_or_default().matches("getsockname(").count();
    let mut client = server.connect();
    let mut counts = Vec::new();
    for _ in 0..5 {
        client.send("GET /at.php HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "127.0.0.1");
        counts.push(count());
    }
    assert!(counts[0] > 0 && counts[4] == counts[0], "{counts:?}");
}

#[test]
fn output_arrives_as_php_flushes_it() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let script = "<?php echo 'first'; flush();\n\
        while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }\necho 'second';";
    let server = setup(fpm.listen(), 1).file("slow.php", script).start();
    let mut client = server.connect();
    client.send("GET /slow.php HTTP/1.0\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    assert_eq!(client.read_exact(5).as_deref(), Ok(&b"first"[..]));
    assert!(client.stays_silent(Duration::from_millis(50)));
    std::fs::write(server.root("go"), "").expect("a file");
    assert_eq!(client.read_to_end().0, b"second");
}

/// Runs `one` on several threads, `each` times on each; returns how often it held.
fn many(threads: usize, each: usize, one: impl Fn(usize) -> bool + Sync) -> usize {
    let good = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (good, one) = (&good, &one);
            scope.spawn(move || {
                for round in 0..each {
                    good.fetch_add(usize::from(one(thread * each + round)), Ordering::Relaxed);
                }
            });
        }
    });
    good.into_inner()
}

#[test]
fn a_hundred_uploads_wait_for_two_children() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let script = "<?php usleep(5000); echo strlen(file_get_contents('php://input'));";
    let server = setup(fpm.listen(), 2).file("count.php", script).start();
    let body = pattern(0, 50_000);
    let good = many(100, 1, |number| {
        let mut client = server.connect();
        let count = 40_000 + number * 100;
        post(&mut client, "/count.php", &body[..count]) == count.to_string().as_bytes()
    });
    assert_eq!(good, 100, "{}", server.log());
}

#[test]
fn a_client_that_leaves_frees_the_child() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let endless = "<?php while (true) { echo str_repeat('x', 8192); flush(); }";
    let waits = "<?php sleep(1); echo 'late';";
    let server =
        setup(fpm.listen(), 1).file("endless.php", endless).file("waits.php", waits).start();
    for _ in 0..3 {
        let mut client = server.connect();
        client.send("GET /endless.php HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response_head().status, 200);
        client.reset();
        let start = Stopwatch::start(&server);
        assert_eq!(server.get("/echo.php").status, 200);
        assert!(start.took() < Duration::from_secs(3), "{:?}", start.took());
    }
    let mut client = server.connect();
    client.send("GET /waits.php HTTP/1.1\r\nHost: a\r\n\r\n");
    client.reset();
    assert_eq!(server.get("/echo.php").status, 200, "{}", server.log());
}

/// Sends requests while `meanwhile` runs, which can wait for a number of further responses; each
/// must be good.
fn under_load(server: &Server, meanwhile: impl FnOnce(&dyn Fn(usize))) {
    let over = AtomicBool::new(false);
    let good = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.connect();
                while !over.load(Ordering::Relaxed) {
                    client.send("GET /echo.php HTTP/1.1\r\nHost: a\r\n\r\n");
                    let response = client.response();
                    assert_eq!(response.status, 200, "{response:?}\n{}", server.log());
                    good.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let stop = StopWhenDone(&over);
        let await_more = |count: usize| {
            let enough = good.load(Ordering::Relaxed) + count;
            let goes_on =
                wait_until(Duration::from_secs(60), || good.load(Ordering::Relaxed) >= enough);
            assert!(goes_on, "nothing is answered any more\n{}", server.log());
        };
        meanwhile(&await_more);
        await_more(100);
        drop(stop);
    });
}

/// Stops the load though the test fails.
struct StopWhenDone<'a>(&'a AtomicBool);

impl Drop for StopWhenDone<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_restart_of_php_costs_waiting_and_no_errors() {
    let Some(mut fpm) = PhpFpm::unix(4) else { return };
    let lines = "proxy-core.hold-time = \"20s\"\nserver.max-keep-alive-requests = 1000000";
    let server = setup(fpm.listen(), 4).config(lines).start();
    under_load(&server, |await_more| {
        for _ in 0..3 {
            await_more(50);
            fpm.restart();
        }
    });
}

#[test]
fn an_authorizer_gives_leave_and_names() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let leave = "<?php if (($_SERVER['HTTP_X_KEY'] ?? '') === 'open') {\n\
        header('Variable-USER_FROM_LEAVE: jo'); http_response_code(200);\n\
        } else { http_response_code(403); echo 'no leave'; }";
    let keys = fpm.listen().host_keys();
    let server = lighty!()
        .config("proxy-core.max-pool-size = 2")
        .config(&format!(
            "fastcgi.server = ( \"/private/\" => ( ( {keys}, \"mode\" => \"authorizer\", \
             \"check-local\" => \"disable\", \"docroot\" => \"@DIR@/leave\" ) ),\n\
             \".php\" => ( ( {keys} ) ) )"
        ))
        .file("private/echo.php", ECHO)
        .file("private/page.txt", "a page")
        .file("../leave/private/echo.php", leave)
        .file("../leave/private/page.txt", leave)
        .start();
    let refused = server.get("/private/echo.php");
    assert_eq!((refused.status, refused.text()), (403, "no leave"), "{}", server.log());
    let granted = server.get_with("/private/echo.php", "X-Key: open\r\n");
    assert_eq!(granted.status, 200, "{granted:?}");
    assert_eq!(line(granted.text(), "USER_FROM_LEAVE"), Some("jo"), "{granted:?}");
}

/// The same in one key, with a file check for the authorizer and none for the responder: no module
/// responds before the authorizer.
#[test]
fn an_authorizer_and_a_responder_of_one_key_are_each_asked() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let leave = "<?php if (($_SERVER['HTTP_X_KEY'] ?? '') === 'open') {\n\
        header('Variable-USER_FROM_LEAVE: jo'); http_response_code(200);\n\
        } else { http_response_code(403); echo 'no leave'; }";
    let keys = fpm.listen().host_keys();
    for (of_authorizer, of_responder) in
        [("disable", "disable"), ("enable", "enable"), ("enable", "disable")]
    {
        let server = lighty!()
            .config("proxy-core.max-pool-size = 2")
            .config(&format!(
                "fastcgi.server = ( \"/private/\" => (\n\
                 ( {keys}, \"check-local\" => \"{of_responder}\" ),\n\
                 ( {keys}, \"mode\" => \"authorizer\", \"check-local\" => \"{of_authorizer}\", \
                 \"docroot\" => \"@DIR@/leave\" ) ) )"
            ))
            .file("private/echo.php", ECHO)
            .file("../leave/private/echo.php", leave)
            .start();
        let refused = server.get("/private/echo.php");
        assert_eq!((refused.status, refused.text()), (403, "no leave"), "{}", server.log());
        let granted = server.get_with("/private/echo.php", "X-Key: open\r\n");
        assert_eq!(granted.status, 200, "{granted:?}");
        assert_eq!(line(granted.text(), "USER_FROM_LEAVE"), Some("jo"), "{granted:?}");
    }
}

/// Verifies and counts posted data, and generates as much data as requested.
const BULK: &str = r#"<?php
set_time_limit(0);
$unit = implode('', array_map('chr', range(0, 250)));
$block = str_repeat($unit, 256);
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $input = fopen('php://input', 'rb');
    for ($count = 0; !feof($input); $count += strlen($piece)) {
        $piece = stream_get_contents($input, strlen($block));
        if ($piece !== substr($block, 0, strlen($piece))) { http_response_code(400); exit; }
    }
    echo $count;
} else {
    $left = (int) $_GET['bytes'];
    header('Content-Length: ' . $left);
    for (; $left > 0; $left -= strlen($block)) echo $left < strlen($block) ? substr($block, 0, $left) : $block;
}
"#;

#[test]
fn large_bodies_take_no_memory() {
    let Some(fpm) = PhpFpm::unix(1) else { return };
    let server = setup(fpm.listen(), 1).file("bulk.php", BULK).start();
    assert_eq!(server.get("/bulk.php?bytes=10").status, 200);
    let bytes = transfer::large();
    transfer::in_constant_memory(&server, "FastCGI, down", || {
        transfer::download(&server, &format!("/bulk.php?bytes={bytes}"), bytes);
    });
    transfer::in_constant_memory(&server, "FastCGI, up", || {
        let answer = transfer::upload(&server, "/bulk.php", bytes, Framing::Length);
        assert_eq!((answer.status, answer.text()), (200, bytes.to_string().as_str()));
    });
}
