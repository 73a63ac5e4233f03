//! Contents of the error log: levels of single modules.

use lighty_testkit::lighty;

/// A configuration whose log has errors alone, except for one module.
fn with_level(module: &str, level: &str) -> lighty_testkit::server::Setup {
    lighty!().file("a.txt", "x").config(&format!(
        "server.errorlog-level = \"notice\"\nserver.errorlog-levels = ( \"{module}\" => \"{level}\" )"
    ))
}

#[test]
fn module_with_a_lower_level_says_more() {
    for (module, is_logged) in [("core", true), ("mod_cgi", false)] {
        let server = with_level(module, "debug").start();
        assert_eq!(server.get("/missing").status, 404);
        // A line that any configuration has.
        server.signal(rustix::process::Signal::HUP);
        server.await_log("logs were opened again");
        assert_eq!(server.log().contains("/missing"), is_logged, "{module}: {}", server.log());
    }
}

#[test]
fn module_with_a_higher_level_says_less() {
    let mut server =
        with_level("server", "error").config("server.pid-file = \"@DIR@/pid\"").start();
    assert_eq!(server.get("/a.txt").status, 200);
    server.signal(rustix::process::Signal::HUP);
    server.stop();
    assert!(!server.log().contains("logs were opened again"), "{}", server.log());
}

#[test]
fn lines_in_json_name_their_module() {
    let server = lighty!().file("a.txt", "x").config("server.errorlog-format = \"json\"").start();
    server.signal(rustix::process::Signal::HUP);
    server.await_log("logs were opened again");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("opened again")).expect("the line");
    assert!(line.contains("\"module\":\"server\""), "{line}");
}

#[test]
fn unknown_modules_and_levels_are_errors() {
    for (module, level, expected) in
        [("prox", "debug", "did you mean \"proxy\"?"), ("proxy", "loud", "must be one of")]
    {
        let (status, _, error) = with_level(module, level).run(&["-t", "-f", "@CONF@"]);
        assert!(status == 1 && error.contains(expected), "{error}");
    }
}

#[test]
fn repeated_lines_are_counted() {
    let mut server = lighty!()
        .file("a.txt", "x")
        .config("server.errorlog-level = \"info\"\nserver.errorlog-max-repeats = 3")
        .start();
    for _ in 0..10 {
        let mut client = server.connect();
        client.send("GET /a.txt HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n");
        assert_eq!(client.response().status, 400);
    }
    server.await_log("space-before-colon");
    server.stop();
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("space-before-colon")).collect();
    assert_eq!(lines.len(), 4, "{log}");
    assert!(lines[3].contains(" [info] repeated 7 times more within a minute: "), "{log}");
    assert!(lines[3].contains("(limit: server.errorlog-max-repeats = 3)"), "{log}");
}

#[test]
fn lines_that_a_directive_asks_for_are_written_in_full() {
    let mut server = lighty!()
        .file("a.txt", "x")
        .config("debug.log-request-handling = \"enable\"\nserver.errorlog-max-repeats = 1")
        .start();
    for _ in 0..10 {
        assert_eq!(server.get("/a.txt").status, 200);
    }
    server.stop();
    let log = server.log();
    assert_eq!(log.matches("handled by mod_staticfile").count(), 10, "{log}");
}
