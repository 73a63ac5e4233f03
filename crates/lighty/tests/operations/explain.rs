//! `lighty explain`: the rules that apply to a request, and the handler that responds.

use lighty_testkit::lighty;

#[test]
fn explain_sees_a_host_as_a_request_would() {
    let setup = lighty!().config("$HTTP[\"host\"] == \"example.org\" { server.tag = \"for it\" }");
    for (url, field) in [
        ("http://Example.ORG./a", "X: y"),
        ("http://example.org:8080/a", "X: y"),
        ("/a", "Host: EXAMPLE.org"),
    ] {
        let (code, out, err) = setup.run(&["explain", url, "-H", field, "-f", "@CONF@"]);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("for it"), "{url} {field}: {out}");
    }
    let (code, _, err) = setup.run(&["explain", "http://[::1/", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains("[::1"), "{err}");
}

#[test]
fn explain_says_which_conditions_apply() {
    let setup = lighty!().config(
        "$HTTP[\"host\"] == \"example.org\" { server.tag = \"for example.org\" }\n\
         $HTTP[\"url\"] =^ \"/private/\" { server.tag = \"private\" }",
    );
    let url = "http://example.org/public/a";
    let (code, out, err) = setup.run(&["explain", url, "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("example.org") && out.contains("server.tag"), "{out}");
}

#[test]
fn explain_finds_its_way_through_a_thousand_conditions() {
    let mut lines = String::new();
    for number in 0..1000 {
        let field = ["host", "url"][number % 2];
        let value =
            [format!("h{number}.example.org"), format!("/dir{number}/")][number % 2].clone();
        let operator = ["==", "=^"][number % 2];
        lines += &format!(
            "$HTTP[\"{field}\"] {operator} \"{value}\" {{ server.tag = \"tag {number}\" }}\n"
        );
    }
    let setup = lighty!().config(&lines);
    let begun = std::time::Instant::now();
    let (code, out, err) =
        setup.run(&["explain", "http://h500.example.org/dir501/a", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    let hold: Vec<_> = out.lines().filter(|line| line.starts_with("  true")).collect();
    assert!(hold.len() == 2, "{hold:?}");
    assert!(hold[0].contains("h500.example.org") && hold[1].contains("/dir501/"), "{hold:?}");
    assert!(out.contains("server.tag = \"tag 501\""), "the later one counts: {out}");
}

#[test]
fn explain_asks_the_listener_of_the_port() {
    let setup = lighty!().without_listener().config(
        "server.port = 18080\nserver.bind = \"127.0.0.1\"\n\
         $SERVER[\"socket\"] == \"127.0.0.1:18443\" { server.tag = \"the other one\" }",
    );
    for (url, is_other) in [
        ("https://b.test:18443/", true),
        ("http://b.test:18080/", false),
        ("http://b.test:1/", false),
        ("http://b.test/", false),
    ] {
        let (code, out, err) = setup.run(&["explain", url, "-f", "@CONF@"]);
        assert_eq!(code, 0, "{err}");
        assert_eq!(out.contains("server.tag = \"the other one\""), is_other, "{url}: {out}");
    }
}

#[test]
fn explain_knows_a_listener_however_it_is_written() {
    let setup = lighty!().without_listener().config(
        "server.port = 8080\n\
         $SERVER[\"socket\"] == \"0.0.0.0:8080\" { server.tag = \"main\" }\n\
         $SERVER[\"socket\"] == \"localhost:81\" { server.tag = \"other\" }",
    );
    let cases: [(&[&str], &str); 4] = [
        (&[], "main"),
        (&["--socket", ":8080"], "main"),
        (&["--socket", "localhost:81"], "other"),
        (&["--socket", "127.0.0.1:81"], "other"),
    ];
    for (socket, tag) in cases {
        let requested = [&["explain", "http://a/", "-f", "@CONF@"], socket].concat();
        let (code, out, err) = setup.run(&requested);
        assert_eq!(code, 0, "{err}");
        assert!(out.contains(&format!("server.tag = \"{tag}\"")), "{socket:?}: {out}");
    }
}

/// Output lines about the response, each as `name value`.
fn answer(setup: &lighty_testkit::server::Setup, arguments: &[&str]) -> Vec<String> {
    let (code, out, err) = setup.run(&[&["explain", "-f", "@CONF@"], arguments].concat());
    assert_eq!(code, 0, "{err}");
    let (_, lines) = out.split_once("\nAnswer\n").unwrap_or_else(|| panic!("{out}"));
    let single_spaced = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.lines().map(single_spaced).collect()
}

#[test]
fn explain_follows_a_request_to_what_answers_it() {
    let setup = lighty!()
        .file("a.css", "a")
        .file("index.php", "<?php")
        .file("dir/index.php", "<?php")
        .file("run.sh", "touch \"$(dirname \"$0\")/ran\"")
        .file("secret.inc", "s")
        .config(
            "index-file.names = ( \"index.php\" )\n\
             url.rewrite-once = ( \"^/blog/(.*)\" => \"/index.php?q=$1\" )\n\
             url.redirect = ( \"^/old\" => \"/new\" )\n\
             url.access-deny = ( \".inc\" )\n\
             server.error-handler-404 = \"/index.php\"\n\
             fastcgi.server = ( \".php\" => (( \"socket\" => \"/no/such.sock\" )) )\n\
             cgi.assign = ( \".sh\" => \"/bin/sh\" )\n\
             $HTTP[\"url\"] =^ \"/dav/\" { webdav.activate = \"enable\" }",
        );
    let root = setup.root("").display().to_string();
    let root = root.trim_end_matches('/');
    let backend = "action asks a backend of fastcgi.server \".php\": unix:/no/such.sock";
    let cases: [(&[&str], &[&str]); 8] = [
        (&["/a.css"], &["file ROOT/a.css", "handler mod_staticfile", "status 200"]),
        (&["/dir/"], &["file ROOT/dir/index.php", "handler mod_proxy_core", backend]),
        (&["/dir"], &["file ROOT/dir", "status 301", "location /dir/"]),
        (
            &["/blog/x"],
            &["url /index.php?q=x", "file ROOT/index.php", "handler mod_proxy_core", backend],
        ),
        (&["/old"], &["handler mod_redirect", "status 301", "location /new"]),
        (
            &["/run.sh/info"],
            &[
                "file ROOT/run.sh",
                "path info /info",
                "handler mod_cgi",
                "action runs /bin/sh ROOT/run.sh",
            ],
        ),
        (
            &["/secret.inc"],
            &[
                "step permission denied: url.access-deny",
                "step error 403 is answered by /index.php",
                "url /index.php",
                "file ROOT/index.php",
                "handler mod_proxy_core",
                backend,
            ],
        ),
        (
            &["/dav/x", "--method", "DELETE"],
            &["handler mod_webdav", "action does DELETE with ROOT/dav/x"],
        ),
    ];
    for (arguments, want) in cases {
        let want: Vec<String> = want.iter().map(|line| line.replace("ROOT", root)).collect();
        assert_eq!(answer(&setup, arguments), want, "{arguments:?}");
    }
    assert!(!setup.root("ran").exists(), "nothing is run");
}

#[test]
fn explain_judges_physical_paths_as_they_are_found() {
    let setup = lighty!().file("d/index.php", "<?php").config(
        "index-file.names = ( \"index.php\" )\n\
         $PHYSICAL[\"path\"] =~ \"\\.php$\" { url.access-deny = ( \"\" ) }",
    );
    let lines = answer(&setup, &["/d/"]);
    assert!(lines.contains(&"status 403".to_owned()), "{lines:?}");
}

#[test]
fn explain_says_whether_a_response_would_be_stored() {
    let setup = lighty!().config(
        "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"127.0.0.1:1\" )\n\
         cache.stores = ( \"pages\" => ( \"memory\" => \"4M\" ) )\ncache.store = \"pages\"\n\
         cache.key = ( \"cookie:lang\" )\ncache.key-query = ( \"!utm_*\" )\n\
         cache.valid = ( \"200\" => \"10min\" )\ncache.stale-if-error = \"1h\"",
    );
    let lines = answer(&setup, &["http://a.example/b?utm_x=1&c=2"]);
    for line in [
        "step cache: store \"pages\"",
        "step cache: 200 with max-age=60 is stored for 60 s, and 3600 s longer if the backend fails",
        "step cache: 200 without a lifetime is stored for 600 s, and 3600 s longer if the backend fails",
        "step cache: 404 without a lifetime is not stored: the response has no lifetime",
        "step cache: 200 with max-age=60 and Set-Cookie is not stored: the response sets a cookie",
    ] {
        assert!(lines.iter().any(|known| known == line), "{line}: {lines:#?}");
    }
    let key = lines.iter().find(|line| line.starts_with("step cache: key")).expect("a key");
    assert!(key.contains("http://a.example/b?c=2 at "), "{key}");
    assert!(key.ends_with(", with cookie:lang"), "{key}");
    let lines = answer(&setup, &["http://a.example/b", "-H", "Authorization: Basic eA=="]);
    let line = "step cache: 200 with max-age=60 is not stored: the request has credentials";
    assert!(lines.iter().any(|known| known == line), "{lines:#?}");
    let lines = answer(&setup, &["http://a.example/b", "--method", "POST"]);
    let line = "step cache: the request goes past it: the method is neither GET nor HEAD";
    assert!(lines.iter().any(|known| known == line), "{lines:#?}");
}
