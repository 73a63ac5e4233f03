//! Access rules apply to the resource that is finally served, for every route to a script and every
//! kind of rule; compared with lighttpd 1.4 where it supports the rule.

use lighty_testkit::backend::Backend;
use lighty_testkit::dav;
use lighty_testkit::lighty;
use lighty_testkit::peer::{LighttpdPeer, ask};
use lighty_testkit::real::php::PhpFpm;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

/// Program for `/bin/sh`. The comment marks leaked source.
const SCRIPT: &str = "printf 'Content-Type: text/plain\\n\\nRAN\\n' # SOURCE\n";

/// Configuration of the routes to scripts.
const WAYS_LINES: &str = r#"
    index-file.names = ( "index.php", "/d/front.php" )
    url.rewrite-once = ( "^/pretty$" => "/d/index.php", "^/short/" => "/d/" )
    url.rewrite-if-not-file = ( "^/app/" => "/d/index.php" )
    alias.url = ( "/al/" => "@DIR@/root/d/", "/bare" => "@DIR@/root/d/index.php" )
    userdir.path = "public_html"
    userdir.basepath = "@DIR@/homes"
    server.error-handler-404 = "/d/index.php"
    ssi.extension = ( ".shtml" )
    auth.backend = "plain"
    auth.backend.plain.userfile = "@DIR@/users"
"#;

const FILES: [(&str, &str); 6] = [
    ("d/index.php", SCRIPT),
    ("d/front.php", SCRIPT),
    ("e/other", "other"),
    ("page.shtml", "<!--#include virtual=\"/d/index.php\" -->"),
    ("../homes/anna/public_html/index.php", SCRIPT),
    ("../users", "kim:secret\n"),
];

const MODULES: &str = "\"mod_rewrite\", \"mod_access\", \"mod_auth\", \"mod_authn_file\", \
    \"mod_alias\", \"mod_userdir\", \"mod_proxy\", \"mod_cgi\", \"mod_ssi\"";

/// Routes to a script: target and header lines of the request.
const WAYS: [(&str, &str); 22] = [
    ("/d/index.php", ""),
    ("/d/index.php?a=b", ""),
    ("/d/index%2ephp", ""),
    ("//d/.//index.php", ""),
    ("/e/../d/index.php", ""),
    ("/e/%2e%2e/d/index.php", ""),
    ("/d/index.php", "Range: bytes=0-\r\n"),
    ("/d/index.php", "If-Range: x\r\nRange: bytes=0-5\r\n"),
    ("/d/index.php", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
    ("/d/", ""),
    ("/d/?a=b", ""),
    ("/e/", ""),
    ("/d/index.php/", ""),
    ("/d/index.php/more.txt", ""),
    ("/d/index.php/%2e", ""),
    ("/pretty", ""),
    ("/short/", ""),
    ("/app/x", ""),
    ("/al/index.php", ""),
    ("/al/", ""),
    ("/~anna/index.php", ""),
    ("/~anna/", ""),
];

/// Routes that respond with the status of the error, or of the surrounding page.
const INNER_WAYS: [&str; 2] = ["/none", "/page.shtml"];

/// Route with a URL that does not name the script.
const NAMELESS_WAY: &str = "/bare";

/// Result of a request for a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptOutcome {
    Refused,
    Ran,
    Source,
}

fn outcome(answer: &Response) -> ScriptOutcome {
    let text = answer.text();
    match (text.contains("SOURCE"), text.contains("RAN")) {
        (true, _) => ScriptOutcome::Source,
        (false, true) => ScriptOutcome::Ran,
        (false, false) => ScriptOutcome::Refused,
    }
}

fn request(method: &str, target: &str, lines: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n")
}

fn with_ways(setup: Setup, rule: &str) -> Setup {
    let setup = FILES.iter().fold(setup, |setup, (path, text)| setup.file(path, text));
    setup.config(WAYS_LINES).config(rule)
}

const URL: &str = "$HTTP[\"url\"] =~ \"\\.php$\"";
const PATH: &str = "$PHYSICAL[\"path\"] =~ \"\\.php$\"";
const EXISTING: &str = "$PHYSICAL[\"existing-path\"] =~ \"\\.php$\"";

/// A rule under each condition: none, by URL, by path.
struct Rule {
    plain: Option<String>,
    conditional: String,
    outcome: ScriptOutcome,
}

fn rules(backend: &Backend) -> Vec<Rule> {
    let (refused, ran) = (ScriptOutcome::Refused, ScriptOutcome::Ran);
    let require = |prefix: &str| {
        format!(
            "auth.require = ( \"{prefix}\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )"
        )
    };
    let deny = |suffix: &str| format!("url.access-deny = ( \"{suffix}\" )");
    let exclude = "static-file.exclude-extensions = ( \".php\" )".to_owned();
    let cgi = "cgi.assign = ( \".php\" => \"/bin/sh\" )".to_owned();
    let host = backend.address();
    let proxied = |check: &str| {
        format!(
            "proxy.server = ( \".php\" => (( \"host\" => \"{}\", \"port\" => {}, \
             \"check-local\" => \"{check}\" )) )",
            host.ip(),
            host.port()
        )
    };
    let core =
        format!("proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" )", backend.name());
    let rule =
        |plain: Option<String>, conditional: String, outcome| Rule { plain, conditional, outcome };
    vec![
        rule(Some(deny(".php")), deny(""), refused),
        rule(None, "access.deny-all = \"enable\"".to_owned(), refused),
        rule(None, require("/"), refused),
        rule(Some(exclude.clone()), exclude, refused),
        rule(Some(cgi.clone()), cgi, ran),
        rule(Some(proxied("disable")), proxied("disable"), ran),
        rule(Some(proxied("enable")), proxied("enable"), ran),
        rule(None, core, ran),
    ]
}

/// Requests all routes and compares the results with the rule.
#[track_caller]
fn hold(server: &Server, rule: &str, wanted: ScriptOutcome, ways: &[(&str, &str)]) {
    for (target, lines) in ways {
        let answer = ask(server.connect(), &request("GET", target, lines));
        let found = outcome(&answer);
        assert_eq!(found, wanted, "{target} {lines}under {rule}: {}", answer.text());
        if wanted == ScriptOutcome::Refused {
            assert!(answer.status >= 400, "{target} {lines}under {rule}: {}", answer.status);
            let answer = ask(server.connect(), &request("HEAD", target, lines));
            assert!(answer.status >= 400, "HEAD {target} {lines}under {rule}: {}", answer.status);
            let answer = ask(server.connect(), &request("OPTIONS", target, lines));
            assert_ne!(outcome(&answer), ScriptOutcome::Source, "OPTIONS {target}");
        }
    }
}

#[test]
fn every_rule_holds_for_every_way() {
    let backend = Backend::answering("RAN");
    for Rule { plain, conditional, outcome } in rules(&backend) {
        let blocks = [URL, PATH, EXISTING].map(|head| format!("{head} {{ {conditional} }}"));
        for rule in plain.iter().chain(&blocks) {
            let server = with_ways(lighty!(), rule).start();
            hold(&server, rule, outcome, &WAYS);
            let knows_files = !rule.starts_with(URL) && !rule.starts_with("url.");
            let nameless = knows_files.then_some(&NAMELESS_WAY);
            for target in INNER_WAYS.iter().chain(nameless) {
                let answer = server.get(target);
                let found = self::outcome(&answer);
                assert_eq!(found, outcome, "{target} under {rule}: {}", answer.text());
            }
        }
    }
}

#[test]
fn lighttpd_is_nowhere_stricter() {
    let backend = Backend::answering("RAN");
    for Rule { plain, conditional, outcome: wanted } in rules(&backend) {
        let by_url = format!("{URL} {{ {conditional} }}");
        let known = !conditional.contains("proxy-core") && !conditional.contains("deny-all");
        for rule in plain.iter().chain(Some(&by_url)).filter(|_| known) {
            let Some(setup) = LighttpdPeer::setup(MODULES) else { return };
            let lighttpd = LighttpdPeer::start(with_ways(setup, rule));
            for (target, lines) in WAYS {
                let found = outcome(&lighttpd.ask(&request("GET", target, lines)));
                // Source leaks of lighttpd are not the subject of this test.
                let agrees = found == wanted || found == ScriptOutcome::Source;
                assert!(agrees, "{target} {lines}under {rule}: {found:?}, wanted {wanted:?}");
            }
        }
    }
}

/// The author of a page may include files that clients may not request.
#[test]
fn a_page_includes_a_file_that_is_denied() {
    let lines = "ssi.extension = ( \".shtml\" )\nurl.access-deny = ( \".inc\" )";
    let with = |setup: Setup| {
        let setup = setup.file("page.shtml", "<!--#include file=\"head.inc\" -->");
        setup.file("head.inc", "HEAD").config(lines)
    };
    let server = with(lighty!()).start();
    assert_eq!((server.get("/page.shtml").text(), server.get("/head.inc").status), ("HEAD", 403));
    let Some(setup) = LighttpdPeer::setup("\"mod_access\", \"mod_ssi\"") else { return };
    let lighttpd = LighttpdPeer::start(with(setup));
    assert_eq!(lighttpd.ask(&request("GET", "/page.shtml", "")).text(), "HEAD");
}

/// Conditions see all fields of a name as one, so a further field in front does not evade them.
#[test]
fn repeated_fields_are_one_to_conditions() {
    let lines = r#"
        $REQUEST_HEADER["X-K"] == "a, b" { url.access-deny = ( "" ) }
        $HTTP["cookie"] =~ "(^|; )bad=1(;|$)" { url.access-deny = ( "" ) }
        $HTTP["referer"] =~ "evil" { url.access-deny = ( "" ) }
        $HTTP["useragent"] =~ "Bot" { url.access-deny = ( "" ) }
        $HTTP["language"] == "de, en" { url.access-deny = ( "" ) }
        $REQUEST_HEADER["accept"] =$ "x/y" { url.access-deny = ( "" ) }
        $REQUEST_HEADER["content-type"] == "t/t" { url.access-deny = ( "" ) }
    "#;
    let setup = |setup: Setup| setup.file("f", "f").config(lines);
    let server = setup(lighty!()).start();
    let peer = LighttpdPeer::setup("\"mod_access\"").map(|peer| LighttpdPeer::start(setup(peer)));
    for (fields, status) in [
        ("X-K: a\r\nX-K: b\r\n", 403),
        ("x-k: a\r\nX-Other: c\r\nX-K:  b \r\n", 403),
        ("X-K:\r\nX-K: a\r\nX-K:\r\nX-K: b\r\n", 403),
        ("X-K: b\r\nX-K: a\r\n", 200),
        ("X-K: a\r\n", 200),
        ("Cookie: good=1\r\nCookie: bad=1\r\n", 403),
        ("Cookie: bad=1\r\nCookie: good=1\r\n", 403),
        ("Cookie: good=1\r\nCookie: worse=bad=1\r\n", 200),
        ("Referer: a\r\nReferer: evil\r\n", 403),
        ("User-Agent: a\r\nUser-Agent: Bot\r\n", 403),
        ("Accept-Language: de\r\nAccept-Language: en\r\n", 403),
        ("Accept: a/b\r\nAccept: x/y\r\n", 403),
        ("Content-Type: t/t\r\nContent-Type: t/t\r\n", 403),
    ] {
        let request = request("GET", "/f", fields);
        assert_eq!(ask(server.connect(), &request).status, status, "{fields}");
        if let Some(peer) = &peer {
            assert_eq!(peer.ask(&request).status, status, "lighttpd: {fields}");
        }
    }
}

#[test]
fn rules_for_an_index_file_differ_from_those_for_its_directory() {
    let lines = r#"
        index-file.names = ( "index.html" )
        $HTTP["url"] == "/" { setenv.add-response-header = ( "X-One" => "asked" ) }
        $HTTP["url"] == "/index.html" { setenv.add-response-header = ( "X-One" => "named" ) }
    "#;
    let with = |setup: Setup| setup.file("index.html", "index").config(lines);
    let server = with(lighty!()).start();
    let field = |answer: &Response| answer.field("X-One").map(str::to_owned);
    let peer = LighttpdPeer::setup("\"mod_setenv\"").map(|peer| LighttpdPeer::start(with(peer)));
    for (target, printed) in [("/", "asked"), ("/index.html", "named")] {
        assert_eq!(field(&server.get(target)).as_deref(), Some(printed), "{target}");
        if let Some(peer) = &peer {
            let answer = peer.ask(&request("GET", target, ""));
            assert_eq!(field(&answer).as_deref(), Some(printed), "lighttpd: {target}");
        }
    }
}

#[test]
fn names_in_lower_case_are_judged_as_such() {
    let lines = r#"
        server.force-lowercase-filenames = "enable"
        $HTTP["url"] =^ "/secret/" { url.access-deny = ( "" ) }
        $HTTP["url"] =^ "/list/" { dir-listing.activate = "disable" }
        dir-listing.activate = "enable"
        $HTTP["url"] =$ ".php" { static-file.exclude-extensions = ( ".php" ) }
    "#;
    let server = lighty!()
        .file("secret/f", "S")
        .file("list/f", "L")
        .file("open/f", "O")
        .file("a.php", SCRIPT)
        .config(lines)
        .start();
    for target in ["/secret/f", "/SECRET/f", "/Secret/F", "/LIST/", "/list/", "/A.PHP", "/a.php"] {
        assert_eq!(server.get(target).status, 403, "{target}");
    }
    assert_eq!((server.get("/OPEN/F").text(), server.get("/OPEN/").status), ("O", 200));
}

#[test]
fn an_index_file_is_for_those_whose_key_begins_its_path() {
    let backend = Backend::answering("RAN");
    let (ip, port) = (backend.address().ip(), backend.address().port());
    for check in ["enable", "disable"] {
        let lines = format!(
            "index-file.names = ( \"index.php\" )\nproxy.server = ( \"/d/index\" => (( \
             \"host\" => \"{ip}\", \"port\" => {port}, \"check-local\" => \"{check}\" )) )"
        );
        let server = lighty!().file("d/index.php", SCRIPT).config(&lines).start();
        for target in ["/d/", "/d/index.php", "/d/index.php/more"] {
            assert_eq!(
                outcome(&server.get(target)),
                ScriptOutcome::Ran,
                "{target}, check-local {check}"
            );
        }
    }
}

#[test]
fn guard_of_a_place_holds_for_every_method() {
    const REQUIRE: &str = "auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
        \"require\" => \"valid-user\" ) )";
    let kim = "Authorization: Basic a2ltOnNlY3JldA==\r\n";
    for field in ["path", "existing-path"] {
        for (lines, status) in [(REQUIRE, 401), ("url.access-deny = ( \"\" )", 403)] {
            let lines = format!(
                "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
                 $PHYSICAL[\"{field}\"] =~ \"/private(/|$)|\\.key$\" {{ {lines} }}"
            );
            let server = lighty!()
                .webdav_with_database(&lines)
                .file("../users", "kim:secret\n")
                .file("private/f", "F")
                .file("d/a.key", "K")
                .file("d/b", "B")
                .start();
            for target in ["/private/", "/private", "/private/f", "/private/new", "/d/a.key"] {
                for method in ["PROPFIND", "DELETE", "PROPPATCH", "MKCOL", "LOCK", "OPTIONS"] {
                    let found = dav::status(&server, method, target, "Depth: 0\r\n");
                    assert_eq!(found, status, "{method} {target} under {lines}");
                }
                let to = "Destination: /mine\r\n";
                assert_eq!(dav::status(&server, "COPY", target, to), status, "COPY {target}");
                assert_eq!(dav::status(&server, "MOVE", target, to), status, "MOVE {target}");
                assert_eq!(dav::put(&server, target, "x"), status, "PUT {target}");
                let to = format!("Destination: {target}\r\n");
                assert_eq!(dav::status(&server, "COPY", "/d/b", &to), status, "COPY to {target}");
            }
            assert_eq!(dav::names(&server.root("")), ["d", "private"]);
            assert_eq!(dav::names(&server.root("d")), ["a.key", "b"]);
            if status == 401 {
                let found = dav::status(&server, "PROPFIND", "/private/", kim);
                assert_ne!(found, 401, "who may have it gets it");
            }
        }
    }
}

#[test]
fn a_script_is_judged_where_no_file_is_looked_for_too() {
    let backend = Backend::answering("RAN");
    let (ip, port) = (backend.address().ip(), backend.address().port());
    let proxied = format!(
        "proxy.server = ( \".php\" => (( \"host\" => \"{ip}\", \"port\" => {port}, \
         \"check-local\" => \"disable\" )) )"
    );
    let none = "url.access-deny = ( \"\" )";
    for rule in [
        "url.access-deny = ( \"x.php\" )".to_owned(),
        format!("$HTTP[\"url\"] == \"/x.php\" {{ {none} }}"),
        format!("$PHYSICAL[\"path\"] =$ \"/x.php\" {{ {none} }}"),
    ] {
        let server = lighty!().config(&proxied).config(&rule).start();
        for target in ["/x.php", "/x.php/", "/x.php/more", "/x.php/more.php", "/x.php%2fmore"] {
            assert_eq!(server.get(target).status, 403, "{target} under {rule}");
        }
        for target in ["/y.php", "/y.php/more", "/y.php/x.phpx"] {
            assert_eq!(outcome(&server.get(target)), ScriptOutcome::Ran, "{target} under {rule}");
        }
    }
}

#[test]
fn redirections_by_the_physical_path_are_obeyed_once() {
    let lines = r#"
        index-file.names = ( "index.php" )
        url.redirect = ( "^/old$" => "/new", "^/index\.php$" => "/" )
        $PHYSICAL["path"] =~ "/moved/" { url.redirect = ( "^/moved/(.*)" => "/to/$1" ) }
        $PHYSICAL["existing-path"] =$ ".bak" { url.redirect = ( "" => "/backups" ) }
    "#;
    let server = lighty!()
        .file("index.php", "index")
        .file("moved/a", "a")
        .file("b.bak", "b")
        .config(lines)
        .start();
    for (target, location) in [
        ("/old", Some("/new")),
        ("/index.php", Some("/")),
        ("/moved/a", Some("/to/a")),
        ("/moved/none", Some("/to/none")),
        ("/b.bak", Some("/backups")),
        ("/none.bak", None),
        ("/", None),
    ] {
        assert_eq!(server.get(target).field("Location"), location, "{target}");
    }
    assert_eq!(server.get("/").text(), "index");
}

/// Local redirects pass the access rules like any request. Files named in `X-Sendfile` do not: the
/// program is trusted, as in lighttpd.
#[test]
fn access_rules_apply_to_local_redirects_and_not_to_x_sendfile() {
    let lines = r#"
        $HTTP["url"] =$ ".sh" {
            cgi.assign = ( ".sh" => "/bin/sh" )
            cgi.local-redir = "enable"
            cgi.x-sendfile = "enable"
            cgi.x-sendfile-docroot = ( "@DIR@/root" )
        }
    "#;
    let goes = "printf 'Location: /d/index.php\\n\\n'";
    let names = "printf \"X-Sendfile: $DOCUMENT_ROOT/d/index.php\\n\\n\"";
    for rule in [
        format!("{URL} {{ url.access-deny = ( \"\" ) }}"),
        format!("{PATH} {{ url.access-deny = ( \"\" ) }}"),
        format!("{EXISTING} {{ static-file.exclude-extensions = ( \".php\" ) }}"),
    ] {
        let with = |setup: Setup| {
            let setup = setup.file("goes.sh", goes).file("names.sh", names);
            setup.file("d/index.php", SCRIPT).config(lines).config(&rule)
        };
        let server = with(lighty!()).start();
        assert_eq!(outcome(&server.get("/goes.sh")), ScriptOutcome::Refused, "under {rule}");
        assert_eq!(outcome(&server.get("/names.sh")), ScriptOutcome::Source, "under {rule}");
        if rule.starts_with(URL)
            && let Some(setup) = LighttpdPeer::setup("\"mod_access\", \"mod_cgi\"")
        {
            let lighttpd = LighttpdPeer::start(with(setup));
            let found = |target: &str| outcome(&lighttpd.ask(&request("GET", target, "")));
            assert_eq!(found("/goes.sh"), ScriptOutcome::Refused, "lighttpd");
            assert_eq!(found("/names.sh"), ScriptOutcome::Source, "lighttpd");
        }
    }
}

/// PHP script that prints its name.
const PHP: &str = "<?php header('Content-Type: text/plain'); echo 'RAN ', $_SERVER['SCRIPT_NAME'], \
    ' ', $_SERVER['PATH_INFO'] ?? '', ' ', $_SERVER['SCRIPT_FILENAME']; /* SOURCE */";

#[test]
fn php_is_found_by_what_is_there_as_1_5_writes_it() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let listen = fpm.listen();
    let core = |field: &str| {
        format!(
            "$PHYSICAL[\"{field}\"] =~ \"\\.php$\" {{\n proxy-core.protocol = \"fastcgi\"\n \
             proxy-core.backends = ( \"{}\" )\n}}",
            listen.backend()
        )
    };
    let local = |field: &str| {
        format!(
            "$PHYSICAL[\"{field}\"] =~ \"\\.php$\" {{ fastcgi.server = ( \".php\" => (( {}, \
             \"check-local\" => \"disable\" )) ) }}",
            listen.host_keys()
        )
    };
    let plain = format!(
        "fastcgi.server = ( \".php\" => (( {}, \"check-local\" => \"disable\" )) )",
        listen.host_keys()
    );
    let rules = [core("existing-path"), local("existing-path"), core("path"), local("path"), plain];
    for rule in rules {
        let server = lighty!()
            .config("index-file.names = ( \"index.php\" )")
            .config(&rule)
            .file("d/index.php", PHP)
            .file("d/page.txt", "page")
            .start();
        let root = server.root("");
        let root = root.to_str().expect("UTF-8").trim_end_matches('/').to_owned();
        let printed = |info: &str| format!("RAN /d/index.php {info} {root}/d/index.php");
        for (target, printed) in [("/d/", printed("")), ("/d/index.php", printed(""))] {
            assert_eq!(server.get(target).text(), printed, "{target} under {rule}");
        }
        if !rule.contains("[\"path") {
            assert_eq!(server.get("/d/index.php/a/b").text(), printed("/a/b"), "under {rule}");
        }
        assert_eq!(server.get("/d/page.txt").text(), "page", "under {rule}");
    }
}
