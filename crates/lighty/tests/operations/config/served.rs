//! Conditions, listeners and includes of a running server.

use super::*;

#[test]
fn the_start_is_announced_with_address_and_engine() {
    let server = lighty!().start();
    server.await_log(&format!("http://{}/", server.address()));
    let log = server.log();
    assert!(log.contains("io-uring") || log.contains("threads"), "{log}");
}

#[test]
fn conditions_choose_document_root_tag_and_types() {
    let server = lighty!()
        .file("a.x", "default\n")
        .file("../other/a.x", "other\n")
        .config(
            "server.tag = \"default\"\n\
             $HTTP[\"host\"] == \"other.example\" {\n\
               server.document-root = \"@DIR@/other\"\n  server.tag = \"other\"\n}\n\
             $HTTP[\"url\"] =^ \"/a\" { mimetype.assign = ( \".x\" => \"text/x-test\" ) }\n\
             $HTTP[\"query-string\"] =~ \"(^|&)plain=1\" { server.tag = \"query\" }\n\
             $REQUEST_HEADER[\"X-Test\"] == \"1\" { server.tag = \"header\" }\n\
             $HTTP[\"request-method\"] == \"HEAD\" { server.tag = \"head\" }\n\
             $HTTP[\"remoteip\"] == \"127.0.0.0/8\" { server.max-keep-alive-requests = 2 }",
        )
        .start();
    let mut client = server.connect();
    let mut ask = |line: &str, fields: &str| {
        client.send(format!("{line} HTTP/1.1\r\n{fields}\r\n"));
        let answer =
            if line.starts_with("HEAD") { client.response_to_head() } else { client.response() };
        if answer.says_close() {
            client = server.connect();
        }
        answer
    };
    let plain = ask("GET /a.x", "Host: some.example\r\n");
    assert_eq!((plain.text(), plain.field("Server")), ("default\n", Some("default")));
    assert_eq!(plain.field("Content-Type"), Some("text/x-test"));
    let other = ask("GET /a.x", "Host: other.example:8080\r\n");
    assert_eq!((other.text(), other.field("Server")), ("other\n", Some("other")));
    assert!(other.says_close(), "the second request is the last");
    assert_eq!(ask("GET /a.x?plain=1", "Host: a\r\n").field("Server"), Some("query"));
    assert_eq!(ask("GET /a.x", "Host: a\r\nx-test: 1\r\n").field("Server"), Some("header"));
    assert_eq!(ask("HEAD /a.x", "Host: a\r\n").field("Server"), Some("head"));
}

#[test]
fn else_chains_take_the_first_branch_that_is_true() {
    let server = lighty!()
        .config(
            "if $HTTP[\"url\"] == \"/one\" { server.tag = \"1\" }\n\
             elif $HTTP[\"url\"] =$ \"two\" { server.tag = \"2\" }\n\
             else { server.tag = \"3\" }",
        )
        .start();
    for (url, tag) in [("/one", "1"), ("/twotwo", "2"), ("/three", "3")] {
        assert_eq!(server.get(url).field("Server"), Some(tag), "{url}");
    }
}

#[test]
fn the_physical_path_is_a_condition_too() {
    let server = lighty!()
        .file("a.txt", "x")
        .file("dir/b.txt", "x")
        .config(
            "$PHYSICAL[\"path\"] =~ \"/dir/\" { server.tag = \"in dir\" }\n\
             $PHYSICAL[\"existing-path\"] =$ \"a.txt\" { server.tag = \"existing\" }",
        )
        .start();
    assert_eq!(server.get("/dir/b.txt").field("Server"), Some("in dir"));
    assert_eq!(server.get("/a.txt").field("Server"), Some("existing"));
}

#[test]
fn a_request_that_begins_again_has_no_physical_path_yet() {
    let server = lighty!()
        .file("a.txt", "x")
        .config(
            "url.rewrite-if-not-file = ( \"^/pretty$\" => \"/a.txt\" )\n\
             server.error-handler-404 = \"/a.txt\"\n\
             $PHYSICAL[\"path\"] !~ \"/root/\" { url.redirect = ( \"\" => \"/wrong\" ) }",
        )
        .start();
    assert_eq!(server.get("/pretty").status, 200);
    assert_eq!((server.get("/none").status, server.get("/none").text()), (200, "x"));
}

#[test]
fn sockets_open_listeners_of_every_family() {
    let setup = lighty!().file("a", "x").config(
        "server.tag = \"main\"\n\
         $SERVER[\"socket\"] == \"[::1]:0\" { server.tag = \"v6\" }\n\
         $SERVER[\"socket\"] == \"@DIR@/web.sock\" { server.tag = \"unix\" }",
    );
    let socket = setup.directory().join("web.sock");
    let mut server = setup.start();
    let ask = |mut client: Client| {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response();
        assert_eq!(response.text(), "x");
        response.field("Server").unwrap_or("").to_owned()
    };
    assert_eq!(ask(Client::unix(&socket)), "unix");
    let all = server.listening();
    let v4 = all.iter().find(|a| a.is_ipv4()).expect("the main listener");
    assert_eq!(ask(Client::tcp(*v4)), "main");
    match all.iter().find(|a| a.is_ipv6()) {
        Some(v6) => assert_eq!(ask(Client::tcp(*v6)), "v6"),
        None => panic!("no IPv6 listener; {:?}\n{}", all, server.log()),
    }
    server.stop();
    assert!(!socket.exists(), "the unix socket's file is removed at the end");
}

#[test]
fn a_listener_is_known_however_it_is_written() {
    let setup = lighty!().file("a", "x").config(
        "$SERVER[\"socket\"] == \"[::1]:0\" { server.tag = \"v6\" }\n\
         $SERVER[\"socket\"] == \"[0:0::1]:0\" { server.tag = \"the same\" }\n\
         $SERVER[\"socket\"] != \"[::0:1]:0\" { server.tag = \"not v6\" }",
    );
    let server = setup.start();
    server.await_log("is serving");
    let all = server.listening();
    let (v6, v4): (Vec<_>, Vec<_>) = all.into_iter().partition(|address| address.is_ipv6());
    assert_eq!((v6.len(), v4.len()), (1, 1), "{v6:?} {v4:?}");
    for (address, tag) in [(v6[0], "the same"), (v4[0], "not v6")] {
        let mut client = Client::tcp(address);
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().field("Server"), Some(tag));
    }
}

#[test]
fn listening_on_no_address_is_an_error() {
    let setup = |lines: &str| lighty!().without_listener().config(lines);
    // A label has 63 characters at most, so this name causes no DNS query.
    let nobody = "x".repeat(64);
    let long = format!("/{}", "p".repeat(107));
    let cases: [(&str, &str); 7] = [
        ("server.bind = \"300.1.1.1\"", "is not an address"),
        ("server.bind = \"127.0.0.1:80\"", "the port belongs into server.port"),
        (&format!("server.bind = \"{nobody}\""), &nobody),
        ("$SERVER[\"socket\"] == \"1.2.3.4:99999\" { }", "\"99999\" is not a port"),
        ("$SERVER[\"socket\"] == \"81\" { }", "is not an address"),
        (&format!("$SERVER[\"socket\"] == \"{nobody}:81\" {{ }}"), &nobody),
        (&format!("$SERVER[\"socket\"] == \"{long}\" {{ }}"), "at most 107 bytes, not 108"),
    ];
    for (line, printed) in cases {
        let (code, _, err) = setup(line).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{line}: {err}");
        assert!(
            err.contains(printed) && err.contains("^^^") && err.contains("[listener]"),
            "{err}"
        );
    }
    for line in [
        "server.bind = \"localhost\"",
        "$SERVER[\"socket\"] == \"localhost:81\" { }",
        &format!("$SERVER[\"socket\"] != \"{nobody}:81\" {{ }}"),
    ] {
        let (code, _, err) = setup(line).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{line}: {err}");
    }
}

#[test]
fn a_listener_has_the_socket_options_of_its_own_block() {
    use std::os::unix::fs::PermissionsExt;
    let setup = lighty!().file("a", "x").config(
        "server.socket-perms = \"0660\"\n\
         $SERVER[\"socket\"] == \"@DIR@/own.sock\" { server.socket-perms = \"0600\" }\n\
         $SERVER[\"socket\"] == \"@DIR@/other.sock\" { }",
    );
    let directory = setup.directory().to_owned();
    let _server = setup.start();
    let mode = |name: &str| {
        let meta = std::fs::metadata(directory.join(name)).expect("a socket");
        meta.permissions().mode() & 0o777
    };
    assert_eq!(mode("own.sock"), 0o600);
    assert_eq!(mode("other.sock"), 0o660);
}

#[test]
fn includes_and_variables_are_resolved() {
    let setup = lighty!().file("a", "x").config(
        "var.name = \"from \" + env.TEST_NAME\ninclude \"parts/*.conf\"\n\
         include_shell \"echo 'server.max-keep-alive-requests = 1'\"",
    );
    write_file(&setup.directory().join("parts/1.conf"), "server.tag = var.name\n");
    let server = setup.env("TEST_NAME", "the environment").start();
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!(response.field("Server"), Some("from the environment"));
    assert!(response.says_close());
}

#[test]
fn several_workers_share_one_address() {
    let server = lighty!().file("a", "x").config("server.max-worker = 3").start();
    assert_eq!(server.listening().len(), 1);
    for _ in 0..40 {
        assert_eq!(server.get("/a").text(), "x");
    }
}

#[test]
fn a_value_that_would_split_a_response_is_refused() {
    for line in [
        "server.tag = \"a\r\nX: y\"",
        "server.tag = \"a\u{0}b\"",
        "mimetype.assign = ( \".txt\" => \"text/plain\r\nX: y\" )",
        "dir-listing.encoding = \"utf-8\r\nX: y\"",
    ] {
        let (code, _, err) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{line:?}: {err}");
    }
}
