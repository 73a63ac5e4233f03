//! Programs started per request: their variables, the processing of their output, and their end.

mod x_sendfile;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::http2::Http2;
use lighty_testkit::process::is_running;
use lighty_testkit::send_file;
use lighty_testkit::server::{Server, Setup, write_file};
use lighty_testkit::transfer::{self, Framing};
use lighty_testkit::websocket::handshake;
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(30);

/// A server that runs files that end in `.sh`, with these programs.
fn with(programs: &[(&str, &str)]) -> Setup {
    let setup = lighty!().config("cgi.assign = ( \".sh\" => \"/bin/sh\", \".cgi\" => \"\" )");
    programs.iter().fold(setup, |setup, (name, text)| setup.file(name, text))
}

fn post(server: &Server, target: &str, body: &str) -> Client {
    let mut client = server.connect();
    client.send(format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client
}

/// Waits for a program to note its number.
fn noted_pid(path: &Path) -> u32 {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    assert!(wait_until(SOON, || read().ends_with('\n')), "no program came to {}", path.display());
    read().trim().parse().expect("a number")
}

/// Children of the server that have exited and that it has not reaped.
fn zombies(server: &Server) -> usize {
    let parent = format!(" Z {} ", server.pid());
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let stats = entries.flatten().map(|entry| entry.path().join("stat"));
    stats.filter(|path| std::fs::read_to_string(path).is_ok_and(|s| s.contains(&parent))).count()
}

#[test]
fn a_program_gets_its_request() {
    let server = with(&[(
        "dir/env.sh",
        "printf 'Content-Type: text/plain\\n\\n'; env; echo cwd=$(pwd); cat",
    )])
    .config("setenv.add-environment = ( \"SET_FOR\" => \"this request\" )")
    .start();
    let mut client = server.connect();
    client.send(
        "POST /dir/env.sh/more/info?a=b&c HTTP/1.1\r\nHost: www.example.org:81\r\n\
         Content-Type: text/x\r\nContent-Length: 4\r\nX-Own: field\r\nProxy: evil\r\n\
         X_Own: forged\r\n\r\nbody",
    );
    let answer = client.response();
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("text/plain")));
    let root = server.root("");
    let root = root.to_str().expect("UTF-8").trim_end_matches('/');
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1".to_owned(),
        "REQUEST_METHOD=POST".to_owned(),
        "REQUEST_URI=/dir/env.sh/more/info?a=b&c".to_owned(),
        "QUERY_STRING=a=b&c".to_owned(),
        "SCRIPT_NAME=/dir/env.sh".to_owned(),
        "PATH_INFO=/more/info".to_owned(),
        format!("PATH_TRANSLATED={root}/more/info"),
        format!("SCRIPT_FILENAME={root}/dir/env.sh"),
        format!("DOCUMENT_ROOT={root}"),
        format!("cwd={root}/dir"),
        "SERVER_NAME=www.example.org".to_owned(),
        "SERVER_PROTOCOL=HTTP/1.1".to_owned(),
        "SERVER_ADDR=127.0.0.1".to_owned(),
        format!("SERVER_PORT={}", server.address().port()),
        "REMOTE_ADDR=127.0.0.1".to_owned(),
        "CONTENT_LENGTH=4".to_owned(),
        "CONTENT_TYPE=text/x".to_owned(),
        "HTTP_X_OWN=field".to_owned(),
        "REDIRECT_STATUS=200".to_owned(),
        "SET_FOR=this request".to_owned(),
    ] {
        assert!(answer.text().lines().any(|known| known == line), "{line}:\n{}", answer.text());
    }
    assert!(!answer.text().contains("HTTP_PROXY"));
    assert!(answer.text().ends_with("\nbody"));
}

/// Programs for the tests of errors.
fn for_errors(config: &str) -> Server {
    with(&[
        (
            "front.sh",
            "printf 'X-A: b\\n\\n'; echo $REQUEST_METHOD $REDIRECT_STATUS $REQUEST_URI; cat",
        ),
        ("gone.sh", "printf 'Status: 410\\n\\ngone for good'"),
        ("own.sh", "printf 'Status: 404\\n\\nin our words'"),
        ("broken.sh", "exit 1"),
    ])
    .file("dir/x", "")
    .config(config)
    .start()
}

#[test]
fn a_program_stands_in_for_what_is_missing() {
    let server = for_errors("server.error-handler-404 = \"/front.sh\"");
    let answer = server.get("/a/page?of=it");
    assert_eq!((answer.status, answer.text()), (200, "GET 404 /a/page?of=it\n"));
    assert_eq!(server.get("/dir/").text(), "GET 403 /dir/\n");
    let mut client = server.connect();
    client.send("POST /a/form HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    let answer = client.response();
    assert_eq!((answer.status, answer.text()), (200, "POST 404 /a/form\nbody"));
    for (handler, status, text) in
        [("gone", 410, "gone for good"), ("own", 404, "in our words"), ("broken", 502, "502 Bad")]
    {
        let server = for_errors(&format!("server.error-handler-404 = \"/{handler}.sh\""));
        let answer = server.get("/none");
        assert_eq!(answer.status, status, "{handler}");
        assert!(answer.text().contains(text), "{handler}: {}", answer.text());
    }
}

#[test]
fn an_error_handler_that_fails_leaves_the_error_as_it_was() {
    for handler in ["broken.sh", "none.sh", "dir/", "front.sh/../none"] {
        for directive in ["server.error-handler", "server.error-handler-404"] {
            // The error of a failing program is its own.
            if (directive, handler) == ("server.error-handler-404", "broken.sh") {
                continue;
            }
            let server = for_errors(&format!(
                "{directive} = \"/{handler}\"\nserver.errorfile-prefix = \"@DIR@/error-\""
            ));
            for (path, status) in [("/none", 404), ("/dir/", 403)] {
                let page = format!("our page for {status}");
                write_file(&server.directory().join(format!("error-{status}.html")), &page);
                let answer = server.get(path);
                assert_eq!(
                    (answer.status, answer.text()),
                    (status, &*page),
                    "{directive} {handler}"
                );
            }
        }
    }
}

#[test]
fn the_handler_of_every_error_goes_before_that_of_missing_files() {
    let server =
        for_errors("server.error-handler-404 = \"/own.sh\"\nserver.error-handler = \"/front.sh\"");
    let mut client = server.connect();
    client.send("POST /none HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    let answer = client.response();
    assert_eq!((answer.status, answer.text()), (200, "GET 404 /none\n"));
    client.send("GET /front.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "GET 200 /front.sh\n");
}

#[test]
fn heads_become_ours() {
    let server = with(&[
        ("status.sh", "printf 'Status: 404 Gone fishing\\nX-A: b\\n\\nnot here'"),
        ("nph-raw.sh", "printf 'HTTP/1.1 203 Fine\\r\\nX-A: b\\r\\n\\r\\nraw'"),
        ("found.sh", "printf 'Location: http://example.org/\\n\\n'"),
        ("length.sh", "printf 'Content-Length: 5\\n\\n12345 and more'"),
        ("torn.sh", "printf 'Content-Length: 50\\n\\nonly this'"),
        ("none.sh", "echo 'to the log' >&2; exit 3"),
        ("bad.sh", "printf 'no colon\\n\\n'"),
        ("early.sh", "printf 'Status: 103\\n\\n'"),
        ("empty.sh", "printf 'Status: 204\\n\\n'"),
        ("reset.sh", "printf 'Status: 205\\nContent-Length: 4\\n\\nbody'"),
    ])
    .start();
    let answer = server.get("/status.sh");
    assert_eq!((answer.status, answer.field("X-A"), answer.text()), (404, Some("b"), "not here"));
    let answer = server.get("/nph-raw.sh");
    assert_eq!((answer.status, answer.text()), (203, "raw"));
    let answer = server.get("/found.sh");
    assert_eq!((answer.status, answer.field("Location")), (302, Some("http://example.org/")));
    let answer = server.get("/length.sh");
    assert_eq!((answer.field("Content-Length"), answer.text()), (Some("5"), "12345"));
    assert_eq!(server.get("/empty.sh").status, 204);
    let answer = server.get("/reset.sh");
    assert_eq!(
        (answer.status, answer.field("Content-Length"), answer.text()),
        (205, Some("0"), "")
    );
    for (target, message) in [
        ("/none.sh", "the program ended without the head of a response"),
        ("/bad.sh", "has no colon"),
        ("/early.sh", "the program ended without the head of a response"),
    ] {
        assert_eq!(server.get(target).status, 502, "{target}");
        server.await_log(message);
    }
    server.await_log("none.sh: to the log");
    server.await_log("none.sh: exit code 3");
    let mut client = server.connect();
    client.send("GET /torn.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err(), "a response that is not whole never looks whole");
    server.await_log("before its Content-Length was reached");
}

#[test]
fn hints_of_a_program_are_passed_on_but_not_without_end() {
    let hints = "printf 'Status: 103\\r\\nLink: </a.css>\\r\\n\\r\\n'";
    let server = with(&[
        (
            "hints.sh",
            &format!(
                "{hints}; printf 'Status: 100\\n\\n'; sleep 0.1; {hints}; printf 'X-A: b\\n\\ndone'"
            ),
        ),
        ("flood.sh", &format!("while {hints}; do :; done")),
        ("100.sh", &format!("for n in $(seq 100); do {hints}; done; printf 'X-A: b\\n\\ndone'")),
        ("101.sh", &format!("for n in $(seq 101); do {hints}; done; printf 'X-A: b\\n\\ndone'")),
    ])
    .start();
    let ask = |version: &str| {
        let mut client = server.connect();
        client.send(format!("GET /hints.sh HTTP/{version}\r\nHost: a\r\n\r\n"));
        client.response()
    };
    let got = ask("1.1");
    assert_eq!((got.text(), &got.interim[..]), ("done", &[103; 2][..]));
    assert_eq!((got.status, got.field("X-A"), got.field("Link")), (200, Some("b"), None));
    let got = ask("1.0");
    assert_eq!((got.text(), &got.interim[..]), ("done", &[][..]));
    let got = Http2::connect(server.address()).get("/hints.sh");
    let hint = (103, vec![("link".to_owned(), "</a.css>".to_owned())]);
    assert_eq!((got.status, got.interim), (200, vec![hint.clone(), hint]));
    let got = server.get("/100.sh");
    assert_eq!((got.text(), got.interim.len()), ("done", 100), "{}", server.log());
    assert!(!server.log().contains("interim responses"), "{}", server.log());
    for path in ["/101.sh", "/flood.sh"] {
        assert_eq!(server.get(path).status, 502, "{path}");
        server.await_log("more than 100 interim responses");
    }
}

#[test]
fn a_head_request_runs_the_program_to_its_end() {
    let server = with(&[(
        "slow.sh",
        "printf 'Content-Length: 12\\n\\n'; sleep 0.3; printf 'twelve bytes'; touch ended",
    )])
    .start();
    let mut client = server.connect();
    client.send("HEAD /slow.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.response_to_head();
    assert_eq!(answer.field("Content-Length"), Some("12"));
    assert!(wait_until(SOON, || server.root("ended").exists()), "it was not cut short");
    client.send("GET /slow.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "twelve bytes");
}

#[test]
fn a_head_request_gets_the_fields_of_get() {
    let server = for_errors("server.error-handler = \"/front.sh\"");
    for (path, status) in [("/front.sh", 200), ("/gone.sh", 410)] {
        let mut client = server.connect();
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.response_to_head();
        assert_eq!(answer.status, status);
        // Not even a length of zero.
        assert_eq!(answer.field("Content-Length"), None, "{path}");
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let whole = client.response();
        assert_eq!(whole.status, status);
        for name in ["Transfer-Encoding", "Content-Length", "X-A"] {
            assert_eq!(answer.field(name), whole.field(name), "{path}");
        }
    }
}

#[test]
fn files_run_themselves_where_they_may() {
    let setup = with(&[
        ("run.cgi", "#!/bin/sh\nprintf 'X: y\\n\\nran'"),
        ("data.cgi", "data"),
        ("bin/all", "#!/bin/sh\nprintf 'X: y\\n\\nall'"),
    ])
    .config(
        "$HTTP[\"url\"] =^ \"/bin/\" { cgi.execute-all = \"enable\" }\n\
         $HTTP[\"host\"] == \"x-only\" { cgi.execute-x-only = \"enable\" }",
    );
    for name in ["run.cgi", "bin/all"] {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(setup.root(name), mode).expect("a mode");
    }
    let server = setup.start();
    assert_eq!(server.get("/run.cgi").text(), "ran");
    assert_eq!(server.get("/bin/all").text(), "all");
    assert_eq!(server.get("/data.cgi").status, 403, "it may not be executed");
    let mut client = server.connect();
    client.send("GET /data.cgi HTTP/1.1\r\nHost: x-only\r\n\r\n");
    assert_eq!(client.response().text(), "data", "it is no program then");
}

#[test]
fn an_interpreter_that_is_not_there_is_the_operators_fault() {
    let server =
        lighty!().file("a.x", "").config("cgi.assign = ( \".x\" => \"/no/such/program\" )").start();
    assert_eq!(server.get("/a.x").status, 500);
    server.await_log("a program cannot be started: /no/such/program: No such file");
}

#[test]
fn both_ways_stream() {
    let server =
        with(&[("echo.sh", "printf 'X: y\\n\\n'; while read -r line; do echo \"<$line>\"; done")])
            .start();
    let mut client = server.connect();
    client.send("POST /echo.sh HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\none\n");
    let head = client.response_head();
    assert_eq!(head.status, 200);
    assert_eq!(client.read_exact(11).expect("a chunk"), b"6\r\n<one>\n\r\n");
    client.send("two\n");
    assert_eq!(client.read_exact(11).expect("a chunk"), b"6\r\n<two>\n\r\n");
    assert_eq!(client.read_exact(5).expect("the end"), b"0\r\n\r\n");
}

#[test]
fn large_bodies_pass_in_constant_memory() {
    let server = with(&[
        ("count.sh", "printf 'X: y\\n\\n'; wc -c"),
        ("all.sh", "printf 'X: y\\n\\n'; head -c 67108864 /dev/zero"),
        ("deaf.sh", "printf 'X: y\\n\\ndid not read'"),
    ])
    .start();
    const BYTES: u64 = 64 << 20;
    for framing in [Framing::Length, Framing::Chunked] {
        transfer::in_constant_memory(&server, "64 MB up", || {
            let answer = transfer::upload(&server, "/count.sh", BYTES, framing);
            assert_eq!(answer.text().trim(), BYTES.to_string());
        });
    }
    let answer = server.get("/all.sh");
    assert_eq!(answer.body.len() as u64, BYTES);
    assert_eq!(post(&server, "/deaf.sh", "a body").response().text(), "did not read");
}

#[test]
fn a_program_whose_client_left_is_ended() {
    let server = with(&[
        ("before.sh", "echo $$ > before.pid; exec sleep 60"),
        ("within.sh", "printf 'X: y\\n\\nbegun'; echo $$ > within.pid; exec sleep 60"),
        ("stubborn.sh", "trap '' TERM; echo $$ > stubborn.pid; while :; do sleep 1; done"),
    ])
    .start();
    for name in ["before", "within", "stubborn"] {
        let mut client = server.connect();
        client.send(format!("GET /{name}.sh HTTP/1.1\r\nHost: a\r\n\r\n"));
        let pid = noted_pid(&server.root(&format!("{name}.pid")));
        assert!(is_running(pid), "{name}");
        client.reset();
        assert!(wait_until(SOON, || !is_running(pid)), "{name} lives on");
    }
    assert!(wait_until(SOON, || zombies(&server) == 0));
}

#[test]
fn a_body_that_ends_early_is_a_bad_request() {
    let server = with(&[("late.sh", "cat > /dev/null; printf 'X: y\\n\\nread'")]).start();
    for rest in ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhe"] {
        let mut client = server.connect();
        client.send(format!("POST /late.sh HTTP/1.1\r\nHost: a\r\n{rest}"));
        client.half_close();
        assert_eq!(client.response_head().status, 400, "{rest}");
    }
}

#[test]
fn faulty_request_body_is_not_the_fault_of_the_program() {
    let server = with(&[("echo.sh", "printf 'X: y\\n\\nbegun'; cat")])
        .config("server.max-request-size = 1")
        .config("server.errorlog-level = \"debug\"")
        .start();
    for (bytes, status) in [("zz\r\n", 400), ("401\r\n", 413), ("", 400)] {
        let mut client = server.connect();
        client.send("POST /echo.sh HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(bytes);
        client.half_close_quietly();
        assert_eq!(client.response_head().status, status, "{bytes}");
    }
    let mut client = server.connect();
    client.send("POST /echo.sh HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    assert_eq!(client.response_head().status, 200);
    client.half_close_quietly();
    server.await_log("client closed the connection: request body");
    assert!(!server.log().contains("[error]"), "{}", server.log());
}

#[test]
fn a_response_ends_soon_after_its_program() {
    let server = with(&[
        ("silent.sh", "printf 'X: y\\n\\nanswered'; sleep 60 & echo $! > silent.pid; exit 0"),
        ("late.sh", "printf 'X: y\\n\\nanswered'; (sleep 0.3; printf ' late') & exit 0"),
        ("headless.sh", "sleep 60 & exit 0"),
        ("short.sh", "printf 'Content-Length: 9\\n\\nbegun'; sleep 60 & exit 0"),
    ])
    .start();
    let begun = Instant::now();
    assert_eq!(server.get("/silent.sh").text(), "answered");
    let pid = noted_pid(&server.root("silent.pid"));
    assert!(wait_until(SOON, || !is_running(pid)), "what was left behind goes on");
    assert_eq!(server.get("/late.sh").text(), "answered late");
    assert_eq!(server.get("/headless.sh").status, 502);
    let mut client = server.connect();
    client.send("GET /short.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err(), "it is cut");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(wait_until(SOON, || zombies(&server) == 0));
}

#[test]
fn half_closed_client_gets_the_response() {
    let server = with(&[
        ("slow.sh", "printf 'X: y\\n\\n'; cat; sleep 2; printf answered"),
        ("silent.sh", "echo $$ > silent.pid; exec sleep 60"),
    ])
    .config("server.max-half-closed-idle = 1")
    .start();
    let mut client = post(&server, "/slow.sh", "body ");
    client.half_close();
    assert_eq!(client.response().text(), "body answered");
    // Before a response, a half-closed client looks like one that has left.
    let mut client = post(&server, "/silent.sh", "body ");
    client.half_close();
    assert_eq!(client.response().status, 408);
    let pid = noted_pid(&server.root("silent.pid"));
    assert!(wait_until(SOON, || !is_running(pid)), "it runs on");
}

#[test]
fn programs_end_with_the_server() {
    let mut server = with(&[("long.sh", "echo $$ > long.pid; exec sleep 60")]).start();
    let mut client = server.connect();
    client.send("GET /long.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    let pid = noted_pid(&server.root("long.pid"));
    server.stop();
    assert!(wait_until(SOON, || !is_running(pid)));
}

#[test]
fn time_limits_hold() {
    let server = with(&[
        ("silent.sh", "exec sleep 60"),
        ("stalls.sh", "printf 'Content-Length: 9\\n\\nbegun'; exec sleep 60"),
        ("deaf.sh", "exec sleep 60"),
        (
            "lingers.sh",
            "printf 'X: y\\n\\nanswered'; echo $$ > lingers.pid; exec >&- 2>&-; sleep 60",
        ),
    ])
    .config("cgi.limits = ( \"read-timeout\" => 1, \"write-timeout\" => 1, \"exit-timeout\" => 1 )")
    .start();
    let start = Instant::now();
    assert_eq!(server.get("/silent.sh").status, 504);
    server.await_log("cgi.limits' read-timeout ran out");
    assert!(start.elapsed() >= Duration::from_millis(900));
    let mut client = server.connect();
    client.send("GET /stalls.sh HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err());
    let deaf = post(&server, "/deaf.sh", &"x".repeat(1 << 20)).response();
    assert_eq!(deaf.status, 504);
    server.await_log("cgi.limits' write-timeout ran out");
    assert_eq!(server.get("/lingers.sh").text(), "answered");
    let pid = noted_pid(&server.root("lingers.pid"));
    assert!(wait_until(SOON, || !is_running(pid)), "it runs on");
    assert!(wait_until(SOON, || zombies(&server) == 0));
}

/// The program reads its input late, which arms the timer for ten minutes.
#[test]
fn shorter_limit_is_not_delayed_by_a_longer_one_before_it() {
    let server = with(&[("late.sh", "sleep 0.5; cat > /dev/null; exec sleep 600")])
        .config("cgi.limits = ( \"read-timeout\" => 1, \"write-timeout\" => 600 )")
        .start();
    assert_eq!(post(&server, "/late.sh", &"x".repeat(1 << 20)).response().status, 504);
    server.await_log("cgi.limits' read-timeout ran out");
}

#[test]
fn n_programs_run_and_one_more_is_refused() {
    let server = with(&[
        (
            "waits.sh",
            "printf 'X: y\\n\\n'; echo $$ > $QUERY_STRING.pid; read -r line; echo \"$line\"",
        ),
        ("quick.sh", "printf 'X: y\\n\\nquick'"),
    ])
    .config("cgi.max-processes = 2\nserver.max-worker = 2")
    .start();
    let begin = |name: &str| {
        let mut client = server.connect();
        client.send(format!(
            "POST /waits.sh?{name} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"
        ));
        noted_pid(&server.root(&format!("{name}.pid")));
        client
    };
    let (mut first, _second) = (begin("first"), begin("second"));
    let refused = server.get("/quick.sh");
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")));
    server.await_log("cgi.max-processes is reached: 2 programs run");
    first.send("go\n");
    assert_eq!(first.response().text(), "go\n");
    let freed = wait_until(SOON, || server.get("/quick.sh").status == 200);
    assert!(freed, "the place is free again");
}

#[test]
fn local_redirections_are_followed_where_that_is_asked_for() {
    let server = with(&[
        ("to.sh", "printf 'Location: /a.txt\\n\\n'"),
        ("circle.sh", "printf 'Location: /back.sh\\n\\n'"),
        ("back.sh", "printf 'Location: /circle.sh\\n\\n'"),
        ("self.sh", "printf 'Location: /self.sh?again\\n\\n'"),
    ])
    .file("a.txt", "A")
    .config("$HTTP[\"host\"] == \"follow\" { cgi.local-redir = \"enable\" }")
    .start();
    let plain = server.get("/to.sh");
    assert_eq!((plain.status, plain.field("Location")), (302, Some("/a.txt")));
    let follow = |target: &str| {
        let mut client = server.connect();
        client
            .send(format!("POST {target} HTTP/1.1\r\nHost: follow\r\nContent-Length: 1\r\n\r\nx"));
        client.response()
    };
    assert_eq!(follow("/to.sh").text(), "A");
    let again = follow("/self.sh");
    assert_eq!((again.status, again.field("Location")), (302, Some("/self.sh?again")));
    assert_eq!(follow("/circle.sh").status, 500);
    server.await_log("rewrite loop");
}

#[test]
fn local_redirections_are_followed_n_times_at_most() {
    const RESTARTS_MAX: usize = 10;
    let redirect = |n| {
        let name = format!("{n}.sh");
        (name, format!("printf 'Location: /{}.sh\\n\\n'", n - 1))
    };
    let mut programs: Vec<(String, String)> = (1..=RESTARTS_MAX + 1).map(redirect).collect();
    programs.push(("0.sh".into(), "printf 'X-A: b\\n\\nat last'".into()));
    let programs: Vec<(&str, &str)> =
        programs.iter().map(|(name, text)| (&**name, &**text)).collect();
    let server = with(&programs).config("cgi.local-redir = \"enable\"").start();
    let got = server.get(&format!("/{RESTARTS_MAX}.sh"));
    assert_eq!((got.status, got.text()), (200, "at last"), "{}", server.log());
    assert_eq!(server.get(&format!("/{}.sh", RESTARTS_MAX + 1)).status, 500);
    server.await_log("more than 10 restarts of the request");
}

#[test]
fn a_program_may_agree_to_another_protocol() {
    let server = with(&[
        (
            "chat.sh",
            "printf 'Status: 101\\nX-A: b\\n\\n'; \
             while read -r line; do echo \"heard $line\"; done; echo bye",
        ),
        ("no.sh", "printf 'Status: 101\\n\\n'"),
    ])
    .config("$HTTP[\"url\"] == \"/chat.sh\" { cgi.upgrade = \"enable\" }")
    .start();
    let ask = |target: &str| {
        let mut client = server.connect();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\nearly\n"
        ));
        client
    };
    let mut client = ask("/chat.sh");
    let wanted: &[u8] = b"heard early\n";
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.read_exact(1).expect("a head"));
    }
    let head = String::from_utf8(head).expect("text");
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let lower = head.to_ascii_lowercase();
    assert!(lower.contains("connection: upgrade\r\n") && lower.contains("upgrade: lines\r\n"));
    assert_eq!(client.read_exact(wanted.len()).expect("an echo"), wanted);
    client.send("more\n");
    assert_eq!(client.read_exact(11).expect("an echo"), b"heard more\n");
    client.half_close();
    assert_eq!(client.read_to_end().0, b"bye\n");
    assert_eq!(ask("/no.sh").response().status, 502, "nobody allowed that");
}

#[test]
fn a_program_that_may_not_upgrade_is_named_where_a_websocket_is_asked_for() {
    let server =
        with(&[("a.sh", "printf 'X-A: b\\n\\nplain'")]).config("server.max-worker = 1").start();
    let message =
        "[notice] 127.0.0.1: the client asks for a WebSocket, and cgi.upgrade is off here";
    assert_eq!(server.get("/a.sh").text(), "plain");
    let mut other = server.connect();
    other.send("GET /a.sh HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n");
    assert_eq!(other.response().text(), "plain");
    assert!(!server.log().contains("WebSocket"), "{}", server.log());
    for _ in 0..5 {
        let mut client = server.connect();
        client.send(handshake("/a.sh", ""));
        assert_eq!(client.response().text(), "plain");
    }
    server.await_log(message);
    assert!(server.log().matches("WebSocket").count() < 5, "{}", server.log());
}

/// RFC 3875 section 4.1.2: a program gets the length of its body.
#[test]
fn a_body_of_unknown_length_has_one_before_its_program_begins() {
    const SAY: &str = "printf 'X: y\\n\\n'; printf \"$CONTENT_LENGTH \"; head -c $CONTENT_LENGTH";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n2\r\na=\r\n3\r\nbcd\r\n0\r\n\r\n";
    let large: String = "0123456789".repeat(30_000);
    for how in ["0", "1", "2"] {
        let server =
            with(&[("say.sh", SAY)]).config(&format!("server.stream-request-body = {how}")).start();
        let mut client = server.connect();
        client.send(format!("POST /say.sh HTTP/1.1\r\nHost: a\r\n{chunked}"));
        assert_eq!(client.response().text(), "5 a=bcd", "{how}");
        client.send("POST /say.sh HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len()));
        let got = client.response();
        assert!(got.text() == format!("300000 {large}"), "{how}: {}", got.text().len());
    }
}

#[test]
fn a_body_that_is_received_whole_first_holds_no_program() {
    let server = with(&[("note.sh", "echo run >>runs; printf 'X: y\\n\\n'; cat")])
        .config("server.stream-request-body = 0")
        .start();
    let mut client = server.connect();
    client.send("POST /note.sh HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
    assert!(client.stays_silent(Duration::from_millis(300)));
    assert!(!server.root("runs").exists(), "no program runs for half a body");
    client.send("56789");
    assert_eq!(client.response().text(), "0123456789");
}

#[test]
fn an_error_page_in_place_of_a_programs_keeps_the_fields_it_is_owed() {
    let program = "printf 'Status: %s\\nWWW-Authenticate: Basic realm=x\\nUpgrade: h9\\n\\nold' \
                   \"$QUERY_STRING\"";
    let server = with(&[("a.sh", program), ("b.html", "page")])
        .config("server.error-intercept = \"enable\"\nserver.error-handler = \"/b.html\"")
        .start();
    for (status, field, value) in
        [(401, "WWW-Authenticate", "Basic realm=x"), (426, "Upgrade", "h9")]
    {
        let got = server.get(&format!("/a.sh?{status}"));
        assert_eq!((got.status, got.text()), (status, "page"));
        assert_eq!(got.field(field), Some(value), "{got:?}");
    }
}

#[test]
fn an_error_handlers_page_has_the_fields_of_its_own_url() {
    let server = with(&[("errors/e.sh", "printf 'Content-Type: text/plain\\n\\nerror'")])
        .config(
            "server.error-handler = \"/errors/e.sh\"\n\
             $HTTP[\"url\"] =^ \"/assets/\" {\n\
             setenv.add-response-header = ( \"Cache-Control\" => \"immutable\" )\n}\n\
             $HTTP[\"url\"] =^ \"/errors/\" {\n\
             setenv.add-response-header = ( \"Cache-Control\" => \"no-store\" )\n}",
        )
        .start();
    let got = server.get("/assets/missing.js");
    assert_eq!((got.text(), got.field("Cache-Control")), ("error", Some("no-store")), "{got:?}");
}

#[test]
fn a_program_agrees_to_no_unrequested_protocol() {
    let chat = |upgrade: &str| format!("printf 'Status: 101\\n{upgrade}\\n'; cat");
    let programs = [
        ("echo.sh", chat("Upgrade: Echo\\n")),
        ("other.sh", chat("Upgrade: h2c\\n")),
        ("both.sh", chat("Upgrade: echo, h2c\\n")),
        ("none.sh", chat("")),
    ];
    let programs: Vec<_> = programs.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let server = with(&programs).config("cgi.upgrade = \"enable\"").start();
    for (target, wish, status) in [
        ("/echo.sh", "Connection: upgrade\r\nUpgrade: echo\r\n", 101),
        ("/echo.sh", "Connection: upgrade\r\nUpgrade: a, echo\r\n", 101),
        ("/none.sh", "Connection: upgrade\r\nUpgrade: echo\r\n", 101),
        ("/none.sh", "Connection: upgrade\r\nUpgrade: a, echo\r\n", 502),
        ("/other.sh", "Connection: upgrade\r\nUpgrade: echo\r\n", 502),
        ("/both.sh", "Connection: upgrade\r\nUpgrade: echo\r\n", 502),
        ("/echo.sh", "", 502),
    ] {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{wish}\r\n"));
        let head = client.response_head();
        assert_eq!(head.status, status, "{target} {wish:?}\n{}", server.log());
        let named = head.field("Upgrade").map(str::to_ascii_lowercase);
        assert_eq!(named.as_deref(), (status == 101).then_some("echo"), "{target} {wish:?}");
    }
}

#[test]
fn chunks_that_a_program_writes_itself_are_decoded() {
    let head = "Status: 200\\r\\nTransfer-Encoding: chunked\\r\\nContent-Length: 99\\r\\n\\r\\n";
    let body = "5\\r\\nhello\\r\\n6\\r\\n world\\r\\n";
    let server = with(&[
        ("whole.sh", &format!("printf '{head}{body}0\\r\\n\\r\\nmore'")),
        (
            "slow.sh",
            &format!("printf '{head}5\\r\\nhel'; sleep 0.1; printf 'lo\\r\\n0\\r\\n\\r\\n'"),
        ),
        ("torn.sh", &format!("printf '{head}{body}'")),
        ("none.sh", &format!("printf '{head}hello'")),
        ("gzip.sh", "printf 'Transfer-Encoding: gzip\\n\\nhello'"),
    ])
    .start();
    for version in ["1.1", "1.0"] {
        let ask = |target: &str| {
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/{version}\r\nHost: a\r\n\r\n"));
            client.try_response(false)
        };
        assert_eq!(ask("/whole.sh").expect("a response").text(), "hello world", "{version}");
        assert_eq!(ask("/slow.sh").expect("a response").text(), "hello", "{version}");
        assert!(ask("/torn.sh").is_err() && ask("/none.sh").is_err(), "{version}");
        assert_eq!(ask("/gzip.sh").expect("a response").status, 502);
    }
    server.await_log("before its last chunk");
    server.await_log("a chunk size that is not a hexadecimal number");
}

#[test]
fn a_response_whose_program_was_killed_never_ends_cleanly() {
    let server = with(&[
        ("killed.sh", "printf 'Content-Type: a/b\\n\\nhello'; kill -9 $$"),
        ("failed.sh", "printf 'Content-Type: a/b\\n\\nhello'; exit 3"),
        ("closed.sh", "printf 'Content-Type: a/b\\n\\nhello'; exec >&-; sleep 20; kill -9 $$"),
        ("whole.sh", "printf 'Content-Length: 5\\n\\nhello'; kill -9 $$"),
    ])
    .start();
    for version in ["1.1", "1.0"] {
        let ask = |target: &str| {
            let mut client = server.connect();
            client.send(format!("GET {target} HTTP/{version}\r\nHost: a\r\n\r\n"));
            client.try_response(false)
        };
        let killed = ask("/killed.sh");
        assert!(killed.is_err(), "{version}: {killed:?}");
        let start = Instant::now();
        for target in ["/failed.sh", "/closed.sh", "/whole.sh"] {
            let got = ask(target).unwrap_or_else(|error| panic!("{target}, {version}: {error}"));
            assert_eq!(got.text(), "hello", "{target}, {version}");
        }
        assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    }
    server.await_log("ended by signal 9");
}

#[test]
fn programs_run_where_there_is_no_dev_null() {
    const WITHOUT_DEVICES: &str = "mount -t tmpfs none /dev && exec \"$0\" \"$@\"";
    let may_mount = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", "mount -t tmpfs none /dev"])
        .status()
        .is_ok_and(|status| status.success());
    if !may_mount {
        eprintln!("SKIPPED: nothing can be mounted here");
        return;
    }
    let server = with(&[("a.sh", "printf 'Content-Type: a/b\\n\\n'; echo \"<$(cat)>\"; ls /dev")])
        .through(["unshare", "-m", "sh", "-c", WITHOUT_DEVICES])
        .start();
    assert_eq!(server.get("/a.sh").text(), "<>\n", "{}", server.log());
    assert_eq!(post(&server, "/a.sh", "body").response().text(), "<body>\n");
}
