//! Modules that change or answer requests by their URL: features of lighty alone, and features of
//! old versions of lighttpd alone.

use std::time::{SystemTime, UNIX_EPOCH};

use lighty_core::settings::limits::REWRITTEN_BYTES_MAX;
use lighty_testkit::content::{assert_pattern, pattern};
use lighty_testkit::lighty;
use lighty_testkit::peer::ask;

#[test]
fn rewritten_urls_are_checked() {
    let server = lighty!()
        .file("a.txt", "A")
        .config(
            r#"
            url.rewrite-repeat = (
                "^/relative" => "no-slash",
                "^/refused" => "/%%00",
                "^/circle/(.*)" => "/circle/$1",
                "^/grow/(.*)" => "/grow/$1$1",
                "^/99/(.*)$" => "/$1"
            )
            "#,
        )
        .start();
    assert_eq!(server.get("/relative").status, 500);
    server.await_log("does not begin with a slash");
    assert_eq!(server.get("/refused").status, 400);
    server.await_log("a rewrite made a URL that is refused: ");
    assert_eq!(server.get("/circle/x").status, 500);
    server.await_log("rewrite loop: url.rewrite-repeat");
    assert_eq!(server.get("/grow/0123456789").status, 500);
    server.await_log("rewrite loop: url.rewrite-repeat: a URL of more than 65536 bytes");
    let rounds = |count| format!("{}/a.txt", "/99".repeat(count));
    assert_eq!(server.get(&rounds(100)).text(), "A");
    assert_eq!(server.get(&rounds(101)).status, 500);
    server.await_log("rewrite loop: url.rewrite-repeat: more than 100 rewrites");
}

#[test]
fn rewritten_url_may_have_exactly_the_limit() {
    let longest = "x".repeat(REWRITTEN_BYTES_MAX - "/a.txt?".len());
    let server = lighty!()
        .file("a.txt", "A")
        .config(&format!(
            r#"
            url.rewrite = ( "^/longest$" => "/a.txt?{longest}", "^/longer$" => "/a.txt?{longest}x" )
            "#
        ))
        .start();
    assert_eq!(server.get("/longest").text(), "A");
    assert_eq!(server.get("/longer").status, 500);
    server.await_log(&format!("a URL of more than {REWRITTEN_BYTES_MAX} bytes"));
}

#[test]
fn rewriting_chooses_the_settings_of_the_new_url() {
    let server = lighty!()
        .file("new/a.txt", "A")
        .config(
            r#"
            url.rewrite = ( "^/old/(.*)" => "/new/$1" )
            $HTTP["url"] =~ "^/new/(.)" {
                setenv.add-response-header = ( "X-Seen" => "new" )
            }
            $HTTP["url"] =~ "^/old/" {
                setenv.add-response-header = ( "X-Seen" => "old" )
            }
            "#,
        )
        .start();
    let answer = server.get("/old/a.txt?q");
    assert_eq!((answer.text(), answer.field("X-Seen")), ("A", Some("new")));
}

#[test]
fn missing_files_are_rewritten_behind_hosts_and_aliases() {
    let server = lighty!()
        .file("front.txt", "front")
        .file("../elsewhere/real", "real")
        .config(
            r#"
            alias.url = ( "/al/" => "@DIR@/elsewhere/" )
            url.rewrite-if-not-file = ( "^/[^?]*" => "/front.txt" )
            "#,
        )
        .start();
    assert_eq!(server.get("/al/real").text(), "real");
    assert_eq!(server.get("/al/none").text(), "front");
    assert_eq!(server.get("/").text(), "front", "a directory is no file");
    // Once more, from the caches.
    assert_eq!(server.get("/al/real").text(), "real");
    assert_eq!(server.get("/al/none?x").text(), "front");
}

#[test]
fn repeated_rules_for_missing_files_end() {
    let server = lighty!()
        .file("c", "C")
        .config(
            r#"url.rewrite-repeat-if-not-file = (
                "^/a" => "/b", "^/b" => "/c", "^/x(.*)" => "/x$1x" )"#,
        )
        .start();
    assert_eq!(server.get("/a").text(), "C");
    assert_eq!(server.get("/x").status, 500);
    server.await_log("rewrite loop");
}

#[test]
fn error_handlers_are_denied_but_not_redirected() {
    let server = lighty!()
        .file("error.html", "sorry")
        .file("error.inc", "source")
        .config(
            r#"
            server.error-handler = "/error.html"
            url.access-deny = ( ".inc", ".key" )
            url.redirect = ( "^/error" => "/elsewhere" )
            $HTTP["url"] =$ ".key" { server.error-handler = "/error.inc" }
            "#,
        )
        .start();
    let answer = server.get("/a.inc");
    assert_eq!((answer.status, answer.text()), (403, "sorry"));
    let answer = server.get("/a.key");
    assert_eq!((answer.status, answer.text().contains("source")), (403, false));
    assert_eq!(server.get("/error.html").field("Location"), Some("/elsewhere"));
}

#[test]
fn denying_all_and_conditions_on_it() {
    let server = lighty!()
        .file("a", "a")
        .config("$HTTP[\"url\"] =^ \"/private\" { access.deny-all = \"enable\" }")
        .start();
    assert_eq!(server.get("/a").status, 200);
    assert_eq!(server.get("/private/a").status, 403);
}

#[test]
fn a_redirection_may_have_another_status() {
    let server = lighty!()
        .config("url.redirect-code = 308\nurl.redirect = ( \"^/(.*)\" => \"https://${url.authority}/$1\" )")
        .start();
    let answer = server.get("/a?b");
    assert_eq!((answer.status, answer.field("Location")), (308, Some("https://localhost/a?b")));
    assert_eq!(answer.field("Content-Length"), Some("0"));
}

#[test]
fn lifetimes_are_repeated_with_304() {
    let server = lighty!()
        .file("a.css", "x")
        .config("expire.url = ( \"/\" => \"modification plus 1 years\" )")
        .start();
    let first = server.get("/a.css");
    let age = first.field("Cache-Control").expect("a lifetime").to_owned();
    assert!(age.starts_with("max-age=315"), "{age}");
    assert!(first.field("Expires").is_some());
    let again = server
        .get_with("/a.css", &format!("If-None-Match: {}\r\n", first.field("ETag").expect("a tag")));
    assert_eq!(again.status, 304);
    assert!(again.field("Cache-Control").is_some_and(|value| value.starts_with("max-age=315")));
    assert_eq!(server.get("/none").field("Cache-Control"), None);
}

#[test]
fn request_fields_are_seen_by_later_conditions() {
    let server = lighty!()
        .file("a", "a")
        .config(
            r#"
            setenv.set-request-header = ( "X-Kind" => "set" )
            url.rewrite-if-not-file = ( "^/b" => "/a" )
            $REQUEST_HEADER["X-Kind"] == "set" { setenv.add-response-header = ( "X-Saw" => "it" ) }
            "#,
        )
        .start();
    assert_eq!(server.get_with("/b", "X-Kind: client\r\n").field("X-Saw"), Some("it"));
}

#[test]
fn visitors_are_tracked_by_a_random_cookie() {
    let server = lighty!()
        .file("a", "a")
        .config("server.modules = ( \"mod_usertrack\" )\nusertrack.cookie-max-age = 60")
        .start();
    let cookie = |lines: &str| server.get_with("/a", lines).field("Set-Cookie").map(str::to_owned);
    let first = cookie("").expect("a cookie");
    let (value, attributes) = first.split_once(';').expect("attributes");
    assert!(value.starts_with("TRACKID=") && value.len() == "TRACKID=".len() + 32, "{first}");
    assert_eq!(attributes, " Path=/; Version=1; max-age=60");
    assert_ne!(cookie("").as_ref(), Some(&first));
    assert_eq!(cookie(&format!("Cookie: x=1; {value}\r\n")), None);
}

#[test]
fn a_module_that_is_only_named_acts() {
    let named = lighty!().file("a", "a").config("server.modules = ( \"mod_usertrack\" )").start();
    assert!(named.get("/a").field("Set-Cookie").is_some());
    let not = lighty!().file("a", "a").config("server.modules = ( \"mod_access\" )").start();
    assert_eq!(not.get("/a").field("Set-Cookie"), None);
}

#[test]
fn secret_links_open_and_expire() {
    let server = lighty!()
        .file("../store/dir/file.txt", "secret")
        .file("dl/other", "plain")
        .config(
            r#"
            secdownload.secret = "verysecret"
            secdownload.document-root = "@DIR@/store/"
            secdownload.uri-prefix = "/dl/"
            secdownload.timeout = 4000000000
            "#,
        )
        .start();
    // Python: md5(b"verysecret" + b"/dir/file.txt" + b"5f5e1000").
    let good = "/dl/1fc6209a330a9827691d145ef6c7a8fd/5f5e1000/dir/file.txt";
    assert_eq!(server.get(good).text(), "secret");
    assert_eq!(server.get(&good.replace("file.txt", "file.tx")).status, 403);
    assert_eq!(server.get(&good.replace("5f5e1000", "5f5e1001")).status, 403);
    assert_eq!(server.get("/dl/other").text(), "plain", "what is no link is served as ever");
    assert_eq!(server.get("/store/dir/file.txt").status, 404);
}

#[test]
fn an_old_link_is_gone() {
    let server = lighty!()
        .config(
            "secdownload.secret = \"s\"\nsecdownload.document-root = \"@DIR@/root\"\n\
             secdownload.timeout = 60",
        )
        .start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    let at = |time: u64| server.get(&format!("/{}/{time:x}/f", "0".repeat(32))).status;
    assert_eq!(at(now - 3600), 410);
    assert_eq!(at(now + 3600), 410);
    assert_eq!(at(now), 403);
}

#[test]
fn flash_videos_begin_where_they_are_asked_to() {
    let server = lighty!()
        .file("v.flv", pattern(0, 100_000))
        .config("flv-streaming.extensions = ( \".flv\" )")
        .start();
    let answer = server.get("/v.flv?start=70000");
    assert_eq!(answer.field("Content-Type"), Some("video/x-flv"));
    assert_eq!(&answer.body[..13], b"FLV\x01\x01\0\0\0\x09\0\0\0\x09");
    assert_pattern(&answer.body[13..], 70_000, "the rest of the file");
    assert_eq!(answer.body.len(), 13 + 30_000);
    for whole in ["/v.flv", "/v.flv?start=0", "/v.flv?start=100000", "/v.flv?start=x"] {
        assert_eq!(server.get(whole).body.len(), 100_000, "{whole}");
    }
    let head = ask(server.connect(), "HEAD /v.flv?start=70000 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(head.field("Content-Length"), Some("30013"));
}

#[test]
fn homes_come_from_the_user_database() {
    let Ok(users) = std::fs::read_to_string("/etc/passwd") else { return };
    let root_home = users.lines().find(|line| line.starts_with("root:"));
    let Some(home) = root_home.and_then(|line| line.split(':').nth(5)) else { return };
    if std::fs::read_dir(home).is_err() {
        eprintln!("SKIPPED: the home of root is not readable");
        return;
    }
    // The home directory itself serves for a subdirectory, which a test should not create.
    let server =
        lighty!().config("userdir.path = \"/\"\ndir-listing.activate = \"enable\"").start();
    assert_eq!(server.get("/~root/").status, 200);
    assert_eq!(server.get("/~root").field("Location"), Some("/~root/"));
    assert_eq!(server.get("/~no-such-user-here/").status, 404);
}

#[test]
fn unknown_hosts_cost_no_more_than_a_default() {
    let server = lighty!()
        .file("f", "default root")
        .file("../v/known.example/f", "known")
        .config("simple-vhost.server-root = \"@DIR@/v\"")
        .start();
    let get = |host: &str| {
        let request = format!("GET /f HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(server.connect(), &request).text().to_owned()
    };
    for i in 0..50 {
        assert_eq!(get(&format!("host-{i}.example")), "default root");
    }
    assert_eq!(get("known.example:81"), "known");
    assert_eq!(get("known.example"), "known");
}

/// lighttpd's recovery images send every unknown URL to the start page this way.
#[test]
fn handler_of_missing_pages_may_redirect() {
    let server = lighty!()
        .config(
            "url.redirect = ( \"^/missing$\" => \"/\" )\n\
             $HTTP[\"url\"] == \"/inner\" { url.redirect = ( \"\" => \"/from-block\" ) }\n\
             $PHYSICAL[\"path\"] =~ \"/physical$\" { url.redirect = ( \"\" => \"/p\" ) }\n\
             $HTTP[\"host\"] == \"gone\" { server.error-handler-404 = \"/missing\" }\n\
             $HTTP[\"host\"] == \"inner\" { server.error-handler-404 = \"/inner\" }\n\
             $HTTP[\"host\"] == \"physical\" { server.error-handler-404 = \"/physical\" }\n\
             $HTTP[\"host\"] == \"all\" { server.error-handler = \"/missing\" }\n\
             $HTTP[\"url\"] =^ \"/denied\" { url.access-deny = ( \"\" ) }",
        )
        .file("physical", "P")
        .start();
    let ask = |host: &str, method: &str, target: &str| {
        let mut client = server.connect();
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
        ));
        let response = client.try_response(method == "HEAD").expect("a response");
        (response.status, response.field("Location").map(str::to_owned))
    };
    let to = |location: &str| (301, Some(location.to_owned()));
    for method in ["GET", "HEAD", "POST"] {
        for target in ["/nix", "/denied/x", "/missing", "/nix?a=b"] {
            assert_eq!(ask("gone", method, target), to("/"), "{method} {target}");
        }
        assert_eq!(ask("inner", method, "/nix"), to("/from-block"), "{method}");
        assert_eq!(ask("physical", method, "/nix"), to("/p"), "{method}");
        // The page of another error is no redirection.
        assert_eq!(ask("all", method, "/nix"), (404, None), "{method}");
        assert_eq!(ask("all", method, "/missing"), to("/"), "{method}");
    }
}

#[test]
fn expiry_may_stand_in_conditions_on_what_is_served() {
    let server = lighty!()
        .config(
            "index-file.names = ( \"index.html\" )\n\
             $HTTP[\"url\"] =~ \"\\.(html|txt)$\" { expire.url = ( \"\" => \"access 6 hours\" ) }\n\
             $HTTP[\"url\"] =^ \"/own/\" { expire.url = ( \"\" => \"access 1 hours\" ) }\n\
             $HTTP[\"url\"] == \"/typed/i.htm\" {\n\
             expire.mimetypes = ( \"text/\" => \"access 2 hours\" ) }",
        )
        .file("d/index.html", "D")
        .file("own/index.html", "O")
        .file("typed/i.htm", "T")
        .file("a.txt", "A")
        .file("a.bin", "B")
        .start();
    let age = |target: &str, lines: &str| {
        let response = server.get_with(target, lines);
        response.field("Cache-Control").map(str::to_owned)
    };
    let seconds = |seconds: u32| Some(format!("max-age={seconds}"));
    for target in ["/d/", "/d/index.html", "/a.txt", "/a.txt/x", "/a.txt/x/y?z"] {
        assert_eq!(age(target, ""), seconds(21_600), "{target}");
        let tag = server.get(target).field("ETag").expect("a tag").to_owned();
        let same = format!("If-None-Match: {tag}\r\n");
        assert_eq!(server.get_with(target, &same).status, 304, "{target}");
        assert_eq!(age(target, &same), seconds(21_600), "{target}");
    }
    assert_eq!(age("/own/", ""), seconds(3_600));
    assert_eq!(age("/typed/i.htm/x", ""), seconds(7_200));
    assert_eq!(age("/a.bin", ""), None);
    assert_eq!(age("/a.bin/x.txt", ""), seconds(21_600), "asked for");
    assert_eq!(age("/d/none.txt", ""), None, "an error");
}

#[test]
fn downloads_are_for_those_who_came_by_the_page() {
    let config = |lines: &str| {
        format!(
            "trigger-before-download.trigger-url = \"^/page\"\n\
             trigger-before-download.download-url = \"^/files/\"\n\
             trigger-before-download.gdbm-filename = \"@DIR@/trigger.db\"\n\
             extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )\n{lines}"
        )
    };
    let deny = "trigger-before-download.deny-url = \"http://a.test/page\"\n\
                trigger-before-download.trigger-timeout = 3600";
    let setup = lighty!().config(&config(deny)).file("page", "P").file("files/a", "A");
    let server = setup.config("server.max-worker = 2").start();
    let ask = |target: &str, client: &str| {
        let response = server.get_with(target, &format!("X-Forwarded-For: {client}\r\n"));
        (response.status, response.field("Location").map(str::to_owned))
    };
    let denied = (307, Some("http://a.test/page".to_owned()));
    assert_eq!(ask("/files/a", "192.0.2.1"), denied);
    assert_eq!(ask("/page", "192.0.2.1"), (200, None));
    for _ in 0..8 {
        // Holds for every worker.
        assert_eq!(ask("/files/a", "192.0.2.1"), (200, None));
        assert_eq!(ask("/files/a", "192.0.2.2"), denied);
    }
    assert_eq!(ask("/files/none", "192.0.2.1"), (404, None));
    assert_eq!(ask("/files/none", "2001:db8::1"), denied);
    let server = lighty!().config(&config("trigger-before-download.trigger-timeout = 1"));
    let server = server.file("page", "P").file("files/a", "A").start();
    assert_eq!(server.get("/files/a").status, 403, "there is nowhere to be sent");
    assert_eq!(server.get("/page").status, 200);
    assert_eq!(server.get("/files/a").status, 200);
    let is_denied = || {
        // Each download restarts the interval, so the request follows only after its end.
        std::thread::sleep(std::time::Duration::from_millis(2_100));
        server.get("/files/a").status == 403
    };
    assert!(lighty_testkit::wait_until(std::time::Duration::from_secs(60), is_denied));
}

/// Expected responses recorded from lighttpd.
#[test]
fn error_page_has_fields_and_variables_of_one_url() {
    let all = |who: &str| {
        format!(
            "setenv.add-environment = ( \"ENV_ADD\" => \"{who}\" )\n\
             setenv.set-environment = ( \"ENV_SET\" => \"{who}\" )\n\
             setenv.add-request-header = ( \"X-Add\" => \"{who}\" )\n\
             setenv.set-request-header = ( \"X-Set\" => \"{who}\" )\n\
             setenv.add-response-header = ( \"X-Response-Add\" => \"{who}\" )\n\
             setenv.set-response-header = ( \"X-Response-Set\" => \"{who}\" )\n"
        )
    };
    let script = "printf 'Content-Type: text/plain\\n\\n'\n\
                  printf '%s' \"$ENV_ADD|$ENV_SET|$HTTP_X_ADD|$HTTP_X_SET\"";
    for (directive, fields, variables) in [
        ("server.error-handler-404", "missing", "missing|missing|missing|missing"),
        ("server.error-handler", "handler", "handler|handler|missing, handler|handler"),
    ] {
        let server = lighty!()
            .file("handler.sh", script)
            .config(&format!(
                "cgi.assign = ( \".sh\" => \"/bin/sh\" )\n{directive} = \"/handler.sh\"\n\
                 setenv.add-environment = ( \"GLOBAL\" => \"1\" )\n\
                 $HTTP[\"url\"] =^ \"/missing\" {{ {} }}\n\
                 $HTTP[\"url\"] =^ \"/denied\" {{ {} url.access-deny = ( \"\" ) }}\n\
                 $HTTP[\"url\"] =^ \"/handler\" {{ {} }}",
                all("missing"),
                all("missing"),
                all("handler")
            ))
            .start();
        let got = server.get("/missing");
        assert_eq!(got.text(), variables, "{directive}");
        assert_eq!(got.field("X-Response-Add"), Some(fields), "{directive}");
        assert_eq!(got.field("X-Response-Set"), Some(fields), "{directive}");
        // Same result as lighttpd with mod_access before mod_setenv: nothing of the failed URL was
        // set.
        let denied = server.get("/denied");
        assert_eq!(denied.text(), "handler|handler|handler|handler", "{directive}");
        assert_eq!(denied.field("X-Response-Add"), Some("handler"), "{directive}");
        assert_eq!(server.get("/handler.sh").text(), "handler|handler|handler|handler");
    }
}
