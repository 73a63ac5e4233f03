//! Variables of programs, compared with lighttpd 1.4: for CGI, FastCGI, SCGI, uwsgi, AJP13 and PHP;
//! beneath aliases, user directories, virtual hosts and lowercased names; for files, index files
//! and path info.

use std::collections::BTreeMap;

use lighty_testkit::backend::{Backend, answer};
use lighty_testkit::gateway::Gateway;
use lighty_testkit::lighty;
use lighty_testkit::peer::{LighttpdPeer, ask};
use lighty_testkit::real::find;
use lighty_testkit::real::php::{PhpCgi, PhpFpm};
use lighty_testkit::server::{Server, Setup};

/// Host with its configuration and its requests.
struct VariablesSite {
    host: &'static str,
    lines: &'static str,
    targets: &'static [&'static str],
    /// Variables in which lighttpd differs for a reason.
    differs: &'static [&'static str],
}

const fn site(
    host: &'static str,
    lines: &'static str,
    targets: &'static [&'static str],
) -> VariablesSite {
    VariablesSite { host, lines, targets, differs: &[] }
}

const ALIASES: &str = r#"alias.url = ( "/o/" => "@DIR@/other/", "/p" => "@DIR@/other", "/one.php" => "@DIR@/other/x.php" )"#;

const LOWER_ALIAS: &str = r#"alias.url = ( "/O/" => "@DIR@/other/" )
    server.force-lowercase-filenames = "enable""#;

const USERS: &str = r#"userdir.path = "public_html"
    userdir.basepath = "@DIR@/homes""#;

const LOWER_USERS: &str = r#"userdir.path = "public_html"
    userdir.basepath = "@DIR@/homes"
    server.force-lowercase-filenames = "enable""#;

const SIMPLE: &str = r#"simple-vhost.server-root = "@DIR@/vhosts/"
    simple-vhost.default-host = "default"
    simple-vhost.document-root = "htdocs""#;

const SIMPLE_ALIAS: &str = r#"simple-vhost.server-root = "@DIR@/vhosts/"
    simple-vhost.default-host = "default"
    simple-vhost.document-root = "htdocs"
    alias.url = ( "/o/" => "@DIR@/other/" )"#;

const SIMPLE_LOWER_USERS: &str = r#"simple-vhost.server-root = "@DIR@/vhosts/"
    simple-vhost.document-root = "htdocs"
    userdir.path = "public_html"
    userdir.basepath = "@DIR@/homes"
    alias.url = ( "/O/" => "@DIR@/other/" )
    server.force-lowercase-filenames = "enable""#;

const EVHOST_ALIAS: &str = r#"evhost.path-pattern = "@DIR@/ev/%1/%2/"
    alias.url = ( "/o/" => "@DIR@/other/" )"#;

const EVHOST_LOWER_USERS: &str = r#"evhost.path-pattern = "@DIR@/ev/%1/a/"
    server.force-lowercase-filenames = "enable"
    userdir.path = "public_html"
    userdir.basepath = "@DIR@/homes""#;

const SITES: &[VariablesSite] = &[
    site(
        "plain.test",
        "",
        &[
            "/a.php",
            "/a.php?q=1",
            "/a.php/x/y",
            "/a.php/%78%20y?q",
            "/d/",
            "/d/?q",
            "/d/e/b.php/",
            "/d/index.php/pi",
            "/a.php/",
        ],
    ),
    site(
        "alias.test",
        ALIASES,
        &[
            "/o/x.php",
            "/o/x.php/pi",
            "/o/d/",
            "/o/d/?q",
            "/o/d/index.php/a",
            "/p/x.php",
            "/p/x.php/pi",
            "/p/d/",
            "/o/sub/y.php?a=b",
        ],
    ),
    VariablesSite {
        host: "file.alias.test",
        lines: ALIASES,
        targets: &["/one.php", "/one.php/z"],
        // lighttpd takes the file for the document root.
        differs: &["DOCUMENT_ROOT", "PATH_TRANSLATED"],
    },
    site(
        "user.test",
        USERS,
        &["/~anna/u.php", "/~anna/u.php/pi", "/~anna/", "/~anna/d/", "/a.php", "/~anna/d/?q"],
    ),
    site(
        "lower.test",
        r#"server.force-lowercase-filenames = "enable""#,
        &["/UP/Z.php", "/UP/Z.PHP/Pi", "/D/", "/A.php?Q"],
    ),
    site("lower.alias.test", LOWER_ALIAS, &["/o/X.php", "/O/x.PHP/Pi", "/O/D/", "/O/Sub/Y.php"]),
    site("lower.user.test", LOWER_USERS, &["/~anna/U.php", "/~anna/U.php/P", "/~anna/D/"]),
    site(
        "rewritten.test",
        r#"url.rewrite-once = ( "^/r/(.*)" => "/$1" )"#,
        &["/r/a.php?x", "/r/a.php/pi", "/r/d/"],
    ),
    site(
        "rewritten.alias.test",
        r#"url.rewrite-once = ( "^/r/(.*)" => "/o/$1" )
           alias.url = ( "/o/" => "@DIR@/other/" )"#,
        &["/r/x.php?x", "/r/x.php/pi", "/r/d/"],
    ),
    site("index.test", r#"index-file.names = ( "/all.php" )"#, &["/d/e/", "/d/e/?q"]),
    site("missing.test", r#"server.error-handler-404 = "/a.php""#, &["/none", "/none/x?y=1"]),
    site("a.simple.test", SIMPLE, &["/v.php", "/v.php/p", "/", "/?q"]),
    site("b.simple.test", SIMPLE_ALIAS, &["/v.php/p", "/", "/o/x.php/pi", "/o/d/"]),
    site(
        "c.simple.test",
        SIMPLE_LOWER_USERS,
        &["/V.php/P", "/~anna/U.php/P", "/O/X.php/P", "/O/D/"],
    ),
    VariablesSite {
        host: "other.simple.test",
        lines: SIMPLE,
        targets: &["/v.php"],
        // lighttpd takes the name of the directory for that of the server.
        differs: &["SERVER_NAME"],
    },
    site("a.example", EVHOST_ALIAS, &["/v.php", "/v.php/p", "/", "/o/x.php/pi", "/o/d/"]),
    site("b.c.example", EVHOST_LOWER_USERS, &["/V.php/P", "/", "/~anna/U.php/P", "/~anna/D/"]),
    site("named.test", r#"server.name = "www.named.example""#, &["/a.php"]),
    site(
        "variables.test",
        r#"setenv.add-environment = ( "my_var" => "added", "trac-env" => "/srv/trac" )
           setenv.set-environment = ( "My-Var" => "set", "lower.x+y z" => "1", "2nd" => "2",
               "remote_user" => "anna" )
           setenv.add-request-header = ( "x-added" => "3", "Y_Z" => "4" )"#,
        &["/a.php"],
    ),
];

/// Files of the sites; the program under test sets their contents.
const FILES: &[&str] = &[
    "root/a.php",
    "root/all.php",
    "root/d/index.php",
    "root/d/e/b.php",
    "root/up/z.php",
    "other/x.php",
    "other/d/index.php",
    "other/sub/y.php",
    "homes/anna/public_html/u.php",
    "homes/anna/public_html/index.php",
    "homes/anna/public_html/d/index.php",
    "vhosts/a.simple.test/htdocs/v.php",
    "vhosts/a.simple.test/htdocs/index.php",
    "vhosts/b.simple.test/htdocs/v.php",
    "vhosts/b.simple.test/htdocs/index.php",
    "vhosts/c.simple.test/htdocs/v.php",
    "vhosts/default/htdocs/v.php",
    "ev/example/a/v.php",
    "ev/example/a/index.php",
];

/// Variables that depend on the address or the environment of the server.
const OF_THE_PLACE: &[&str] = &[
    "SERVER_PORT",
    "SERVER_ADDR",
    "SERVER_SOFTWARE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    // Inherited variables, and the ones that a shell adds.
    "PATH",
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
];

const MODULES: &str = "\"mod_indexfile\", \"mod_alias\", \"mod_userdir\", \"mod_simple_vhost\", \
    \"mod_evhost\", \"mod_setenv\", \"mod_rewrite\", \"mod_cgi\", \"mod_fastcgi\", \"mod_scgi\", \
    \"mod_ajp13\", \"mod_proxy\"";

/// Shell program that prints its environment.
const SHELL: &str = "printf 'Content-Type: text/plain\\r\\n\\r\\n'; exec env";

/// The same of a page of PHP, and where it finds itself.
const PAGE: &str = "<?php header('Content-Type: text/plain'); foreach ($_SERVER as $name => $value) \
    if (is_string($value)) echo \"$name=$value\\n\"; \
    echo 'own-file=', __FILE__, \"\\nown-directory=\", getcwd(), \"\\n\";";

/// Both servers with the same sites.
struct Both {
    lighty: Server,
    lighttpd: LighttpdPeer,
}

type Variables = BTreeMap<String, String>;

impl Both {
    /// `None` where lighttpd is not installed.
    fn start(handler: &str, sites: &[VariablesSite], program: &str) -> Option<Self> {
        let peer = LighttpdPeer::setup(MODULES)?;
        let mut lines = format!("index-file.names = ( \"index.php\" )\n{handler}\n");
        for VariablesSite { host, lines: own, .. } in sites {
            lines += &format!("$HTTP[\"host\"] == \"{host}\" {{\n{own}\n}}\n");
        }
        let with = |setup: Setup| {
            let file = |setup: Setup, path: &&str| setup.file(&format!("../{path}"), program);
            FILES.iter().fold(setup, file).config(&lines)
        };
        Some(Self { lighty: with(lighty!()).start(), lighttpd: LighttpdPeer::start(with(peer)) })
    }

    /// Variables that a program got from lighty and from lighttpd, or the status if no program ran.
    #[track_caller]
    fn reported(&self, host: &str, target: &str, fields: &str) -> [Variables; 2] {
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n");
        let reported = |answer: lighty_testkit::response::Response| {
            let mut reported: Variables = answer
                .text()
                .lines()
                .filter_map(|line| line.split_once('='))
                .filter(|(name, _)| !OF_THE_PLACE.contains(name) && !name.starts_with('<'))
                .map(|(name, value)| (name.to_owned(), without_directory(value)))
                .collect();
            reported.insert("status".to_owned(), answer.status.to_string());
            reported
        };
        [reported(ask(self.lighty.connect(), &request)), reported(self.lighttpd.ask(&request))]
    }

    /// Asserts that each request of each site gives a program the same variables.
    #[track_caller]
    fn agree(&self, what: &str, sites: &[VariablesSite], is_compared: fn(&str) -> bool) {
        let mut differences = String::new();
        for VariablesSite { host, targets, differs, .. } in sites {
            for target in *targets {
                let [ours, theirs] = self.reported(host, target, "");
                assert_eq!(
                    theirs["status"],
                    "200",
                    "{what}: {host}{target}: {}",
                    self.lighttpd.log()
                );
                let names = ours.keys().chain(theirs.keys()).filter(|name| is_compared(name));
                let names: std::collections::BTreeSet<_> = names.collect();
                assert!(names.len() > 3, "{what}: {host}{target}: {theirs:?}");
                for name in names.into_iter().filter(|name| !differs.contains(&name.as_str())) {
                    // A slash at the end of the configuration's directory is not passed on.
                    let end: &[char] = if name == "DOCUMENT_ROOT" { &['/'] } else { &[] };
                    let value = |reported: &Variables| {
                        reported.get(name).map(|v| v.trim_end_matches(end).to_owned())
                    };
                    let (ours, theirs) = (value(&ours), value(&theirs));
                    if ours != theirs {
                        differences += &format!(
                            "{what}: {host}{target}: {name}: lighty {ours:?}, lighttpd {theirs:?}\n"
                        );
                    }
                }
            }
        }
        assert!(differences.is_empty(), "\n{differences}{}", self.lighty.log());
    }
}

/// The directories of the two tests have names of their own.
fn without_directory(value: &str) -> String {
    let Some(at) = value.find("lighty-test-") else { return value.to_owned() };
    let begin = value[..at].rfind(['=', ' ', ':']).map_or(0, |at| at + 1);
    let end = value[at..].find('/').map_or(value.len(), |end| at + end);
    format!("{}@DIR@{}", &value[..begin], without_directory(&value[end..]))
}

fn every(_: &str) -> bool {
    true
}

/// `fastcgi.server` and its like with one backend.
fn server(gateway: Gateway, backend: &Backend, key: &str, options: &str) -> String {
    let port = backend.address().port();
    let hosts =
        format!("( \"{key}\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {port}{options} ) ) )");
    match gateway {
        Gateway::Fastcgi => format!("fastcgi.server = {hosts}"),
        Gateway::Scgi => format!("scgi.server = {hosts}"),
        Gateway::Uwsgi => format!("scgi.protocol = \"uwsgi\"\nscgi.server = {hosts}"),
        Gateway::Ajp13 => format!("ajp13.server = {hosts}"),
    }
}

fn gateway_agrees(gateway: Gateway) {
    let backend = gateway.telling_variables();
    let handler = server(gateway, &backend, ".php", "");
    let Some(both) = Both::start(&handler, SITES, "") else { return };
    both.agree(&format!("{gateway:?}"), SITES, every);
}

#[test]
fn cgi_programs_get_the_same() {
    let handler = "cgi.assign = ( \".php\" => \"/bin/sh\" )";
    let Some(both) = Both::start(handler, SITES, SHELL) else { return };
    // Shells drop variables with names that begin with a digit.
    both.agree("CGI", SITES, every);
}

#[test]
fn fastcgi_programs_get_the_same() {
    gateway_agrees(Gateway::Fastcgi);
}

#[test]
fn scgi_programs_get_the_same() {
    gateway_agrees(Gateway::Scgi);
}

#[test]
fn uwsgi_programs_get_the_same() {
    gateway_agrees(Gateway::Uwsgi);
}

/// Containers get URLs, not files: lighttpd's variables for them check no file, and have no path
/// info.
#[test]
fn containers_get_the_same() {
    const COMPARED: [&str; 7] =
        ["status", "method", "protocol", "uri", "server_name", "attribute 05", "field a00b"];
    const OF_URLS: &[VariablesSite] = &[
        site("plain.test", "", &["/a.php", "/a.php?q=1", "/d/e/b.php", "/none.php?a=b&c=%20"]),
        site("alias.test", ALIASES, &["/o/x.php", "/p/x.php", "/o/sub/y.php?a=b"]),
        site("user.test", USERS, &["/~anna/u.php", "/a.php"]),
        site("lower.test", r#"server.force-lowercase-filenames = "enable""#, &["/UP/Z.php"]),
        site("rewritten.test", r#"url.rewrite-once = ( "^/r/(.*)" => "/o/$1" )"#, &["/r/x.php?x"]),
        site("a.simple.test", SIMPLE, &["/v.php"]),
        site("a.example", EVHOST_ALIAS, &["/v.php", "/o/x.php"]),
    ];
    let backend = Gateway::Ajp13.telling_variables();
    let handler = server(Gateway::Ajp13, &backend, ".php", "");
    let Some(both) = Both::start(&handler, OF_URLS, "") else { return };
    both.agree("AJP13", OF_URLS, |name| COMPARED.contains(&name));
}

/// Returns true for variables that PHP derives from others.
fn of_php(name: &str) -> bool {
    !["REQUEST_TIME", "REQUEST_TIME_FLOAT"].contains(&name)
}

#[test]
fn pages_of_php_fpm_get_the_same() {
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let keys = fpm.listen().host_keys();
    let handler = format!("fastcgi.server = ( \".php\" => ( ( {keys} ) ) )");
    let Some(both) = Both::start(&handler, SITES, PAGE) else { return };
    both.agree("PHP-FPM", SITES, of_php);
}

#[test]
fn pages_of_php_cgi_get_the_same() {
    let Some(php) = PhpCgi::tcp(2) else { return };
    let keys = php.listen().host_keys();
    let handler = format!("fastcgi.server = ( \".php\" => ( ( {keys} ) ) )");
    let Some(both) = Both::start(&handler, SITES, PAGE) else { return };
    both.agree("php-cgi", SITES, of_php);
}

#[test]
fn pages_of_php_as_a_cgi_program_get_the_same() {
    let Some(php) = find(&["php-cgi", "php-cgi8.2"]) else { return };
    let handler = format!("cgi.assign = ( \".php\" => \"{}\" )", php.display());
    let Some(both) = Both::start(&handler, SITES, PAGE) else { return };
    both.agree("php-cgi as CGI", SITES, of_php);
}

/// Keys, options and targets: one site of each.
const OPTIONS: &[(&str, &str, &str, &[&str])] = &[
    ("/app", OFF, "", &["/app", "/app/", "/app/x/y?q", "/application/z", "/app.php/x"]),
    ("/bin/", OFF, "", &["/bin/foo", "/bin/foo/bar", "/bin/"]),
    ("/", OFF, "", &["/", "/a", "/a/b/c"]),
    (
        "/",
        ", \"check-local\" => \"disable\", \"fix-root-scriptname\" => \"enable\"",
        "",
        &["/", "/a", "/a/b/c?q"],
    ),
    ("/", ", \"check-local\" => \"disable\", \"docroot\" => \"/srv/x/\"", "", &["/", "/a/b/c"]),
    (".php", OFF, ALIASES, &["/none.php", "/o/none.php", "/long/dir/none.php", "/a.php"]),
    (".php", OFF, USERS, &["/~anna/none.php", "/~anna/u.php"]),
    (".php", OFF, LOWER_ALIAS, &["/o/None.php", "/A.php", "/O/d/X.php"]),
    ("/o/", OFF, ALIASES, &["/o/x.php/z", "/o/x.php", "/o/", "/o/d/e/f"]),
    ("/app", OFF, LOWER_ALIAS, &["/app/X", "/app/x/Y"]),
    (
        ".php",
        ", \"docroot\" => \"/srv/x\"",
        ALIASES,
        &["/a.php", "/a.php/pi", "/o/x.php/pi", "/d/"],
    ),
    (
        ".php",
        ", \"docroot\" => \"/srv/x\", \"broken-scriptfilename\" => \"enable\"",
        ALIASES,
        &["/a.php/pi", "/o/x.php/pi"],
    ),
    (".php", ", \"broken-scriptfilename\" => \"enable\"", ALIASES, &["/a.php/pi", "/o/x.php/pi"]),
    (".php", ", \"strip-request-uri\" => \"/d\"", "", &["/d/e/b.php?x", "/d/", "/a.php", "/d/?q"]),
    (".php", ", \"strip-request-uri\" => \"/d/\"", "", &["/d/e/b.php?x", "/d/", "/a.php"]),
    (
        "/app",
        ", \"check-local\" => \"disable\", \"strip-request-uri\" => \"/app\"",
        r#"url.rewrite-once = ( "^/r(.*)" => "/app$1" )"#,
        &["/r/x", "/app/y", "/app", "/app?x", "/application", "/app/"],
    ),
];

const OFF: &str = ", \"check-local\" => \"disable\"";

fn options_agree(gateway: Gateway) {
    let backend = gateway.telling_variables();
    let leaked = |text: String| -> &'static str { text.leak() };
    // lighttpd reads these for SCGI, too, and they have no effect there.
    let is_idle = |options: &str| options.contains("strip-") || options.contains("broken-");
    let sites: Vec<VariablesSite> = OPTIONS
        .iter()
        .enumerate()
        .filter(|(_, (_, options, ..))| gateway == Gateway::Fastcgi || !is_idle(options))
        .map(|(number, (key, options, lines, targets))| {
            let own =
                server(gateway, &backend, key, options).replace("scgi.protocol = \"uwsgi\"", "");
            let host = leaked(format!("option{number}.test"));
            VariablesSite { host, lines: leaked(format!("{own}\n{lines}")), targets, differs: &[] }
        })
        .collect();
    let protocol = if gateway == Gateway::Uwsgi { "scgi.protocol = \"uwsgi\"" } else { "" };
    let Some(both) = Both::start(protocol, &sites, "") else { return };
    both.agree(&format!("{gateway:?}"), &sites, every);
}

#[test]
fn the_options_of_fastcgi_mean_the_same() {
    options_agree(Gateway::Fastcgi);
}

#[test]
fn the_options_of_scgi_mean_the_same() {
    options_agree(Gateway::Scgi);
}

#[test]
fn the_options_of_uwsgi_mean_the_same() {
    options_agree(Gateway::Uwsgi);
}

/// Header fields with other characters in their names than letters, digits and `-`.
#[test]
fn fields_with_other_names_reach_programs_unless_they_collide() {
    let backend = Gateway::Fastcgi.telling_variables();
    let handler =
        server(Gateway::Fastcgi, &backend, ".php", "") + "\nstatus.statistics-url = \"/figures\"";
    let lighty = lighty!().config(&handler).file("a.php", "").start();
    let strict_one = lighty!().config(&handler).file("a.php", "").start();
    const FLAG: &str = "\nserver.feature-flags = ( \"server.odd-field-variables\" => \"enable\" )";
    let odd = server(Gateway::Fastcgi, &backend, ".php", "") + FLAG;
    let Some(both) = Both::start(&odd, &[], "") else { return };
    for name in ["X_Foo", "X.Foo", "X+Foo", "x~foo", "X`Foo", "X#Foo"] {
        let [ours, theirs] = both.reported("a.test", "/a.php", &format!("{name}: 1\r\n"));
        assert_eq!(ours.get("HTTP_X_FOO").map(String::as_str), Some("1"), "{name}: {ours:?}");
        assert_eq!(ours, theirs, "{name}");
        let strict = strict_one.get_with("/a.php", &format!("{name}: 1\r\n"));
        assert!(!strict.text().contains("HTTP_X_FOO"), "{name}: {strict:?}");
    }
    // lighttpd lets the last or the first of them through; ours is the one that cannot be another.
    let fields = "X_Foo: bad\r\nX-Foo: good\r\nX.Foo: bad\r\nX_Forwarded_For: 6.6.6.6\r\n";
    let reported = lighty.get_with("/a.php", fields);
    assert!(reported.text().contains("HTTP_X_FOO=good\n"), "{reported:?}");
    assert!(
        !reported.text().contains("bad") && !reported.text().contains("6.6.6.6"),
        "{reported:?}"
    );
    lighty.await_log("not passed to the program: X_Foo, X.Foo, X_Forwarded_For: as a variable");
    for _ in 0..20 {
        assert_eq!(lighty.get_with("/a.php", fields).status, 200);
    }
    let figures = lighty.get("/figures");
    assert!(figures.text().contains("server.fields-withheld: 63\n"), "{figures:?}");
    // A line now and then, not one for each.
    let lines = lighty.log().matches("as a variable it could have").count();
    assert!((1..=2).contains(&lines), "{}", lighty.log());
}

/// A rule about a field is one about all its spellings.
#[test]
fn removed_field_does_not_come_back_under_another_spelling() {
    let spellings = ["X-Remote-User", "X_Remote_User", "X.Remote.User", "X~Remote~User"];
    let mixed = ["X-Remote_User", "x_remote-user", "X!Remote'User", "X_REMOTE_USER"];
    let rules = [
        "setenv.set-request-header = ( \"X-Remote-User\" => \"\" )".to_owned(),
        "setenv.set-request-header = ( \"X-Remote-User\" => \"kim\" )".to_owned(),
    ];
    for rule in rules {
        for flag in ["", "server.feature-flags = ( \"server.odd-field-variables\" => \"enable\" )"]
        {
            let http = Backend::replying(|seen| answer("200 OK", "", &seen.head));
            let fastcgi = Gateway::Fastcgi.telling_variables();
            let lighty = lighty!()
                .config(&format!(
                    "{}\ncgi.assign = ( \".sh\" => \"/bin/sh\" )\n{rule}\n{flag}\n\
                     $HTTP[\"url\"] =^ \"/http\" {{ proxy-core.protocol = \"http\"\n\
                     proxy-core.backends = ( \"{}\" ) }}",
                    server(Gateway::Fastcgi, &fastcgi, ".php", ""),
                    http.address()
                ))
                .file("a.php", "")
                .file("a.sh", "printf 'Content-Type: text/plain\\r\\n\\r\\n'\nenv\n")
                .start();
            for spelling in spellings.into_iter().chain(mixed) {
                for target in ["/a.sh", "/a.php", "/http"] {
                    let reported = lighty.get_with(target, &format!("{spelling}: admin\r\n"));
                    assert_eq!(reported.status, 200, "{reported:?}");
                    assert!(
                        !reported.text().contains("admin"),
                        "{rule} {flag} {spelling}: {reported:?}"
                    );
                    assert_eq!(
                        reported.text().contains("kim"),
                        rule.contains("kim"),
                        "{reported:?}"
                    );
                }
            }
        }
    }
}

/// Variables from an authorizer (`Variable-NAME`) are named like other variables.
#[test]
fn fields_of_an_authorizer_become_variables() {
    const LEAVE: &str =
        "<?php header('Variable-my-note.x: from leave'); header('Variable-who: jo');";
    let Some(fpm) = PhpFpm::unix(2) else { return };
    let keys = fpm.listen().host_keys();
    let server = lighty!()
        .config(&format!(
            "fastcgi.server = ( \"/private/\" => ( ( {keys}, \"mode\" => \"authorizer\", \
             \"check-local\" => \"disable\", \"docroot\" => \"@DIR@/leave\" ) ),\n\
             \".php\" => ( ( {keys} ) ) )"
        ))
        .file("private/a.php", PAGE)
        .file("../leave/private/a.php", LEAVE)
        .start();
    let answer = server.get("/private/a.php");
    for line in ["MY_NOTE_X=from leave", "WHO=jo"] {
        assert!(answer.text().lines().any(|l| l == line), "{line}: {answer:?}");
    }
}

/// `SERVER_NAME` is the server's own name where it has one, also where the client names none.
#[test]
fn the_servers_name_is_what_the_configuration_says() {
    let backend = Gateway::Fastcgi.telling_variables();
    let handler = server(Gateway::Fastcgi, &backend, ".php", "");
    let named = format!("{handler}\nserver.name = \"www.named.example\"");
    for (handler, hosts) in [
        (&named, ["a.test", "A.test:81", "[::1]:8080"]),
        (&handler, ["a.test", "a.test:81", "[::1]:8080"]),
    ] {
        let Some(both) = Both::start(handler, &[], "") else { return };
        let names = |request: &str| {
            let name = |answer: lighty_testkit::response::Response| {
                let line = answer.text().lines().find(|line| line.starts_with("SERVER_NAME="));
                line.map(str::to_owned)
            };
            [name(ask(both.lighty.connect(), request)), name(both.lighttpd.ask(request))]
        };
        for host in hosts {
            let [ours, theirs] =
                names(&format!("GET /a.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
            assert!(ours.is_some() && ours == theirs, "{host}: {ours:?}, lighttpd {theirs:?}");
        }
        let [ours, theirs] = names("GET /a.php HTTP/1.0\r\n\r\n");
        assert!(ours.is_some() && ours == theirs, "no host: {ours:?}, lighttpd {theirs:?}");
    }
}

/// lighttpd 1.5 derives the variables about names and path info from the URL's path.
#[test]
fn rules_for_names_and_path_info_look_at_the_url() {
    let backend = Gateway::Fastcgi.telling_variables();
    let address = backend.name();
    let server = lighty!()
        .config(&format!(
            r#"proxy-core.protocol = "fastcgi"
            proxy-core.backends = ( "{address}" )
            proxy-core.rewrite-request = (
                "_pathinfo" => ( "^/wiki(/[^?]*)" => "$1", "^/app\.php(.*)" => "$1" ),
                "_scriptname" => ( "^(/app\.php)" => "$1", "^/wiki" => "/dispatch.fcgi" )
            )"#
        ))
        .start();
    let reported = |target: &str| {
        let answer = server.get(target);
        let line = |name: &str| {
            let mut lines = answer.text().lines();
            lines.find_map(|line| line.strip_prefix(&format!("{name}=")).map(without_directory))
        };
        ["SCRIPT_NAME", "PATH_INFO", "SCRIPT_FILENAME"].map(|name| line(name).unwrap_or_default())
    };
    assert_eq!(reported("/wiki/a/b?q"), ["/dispatch.fcgi", "/a/b", "@DIR@/root/dispatch.fcgi"]);
    assert_eq!(reported("/app.php/x%20y"), ["/app.php", "/x y", "@DIR@/root/app.php"]);
    assert_eq!(reported("/app.php"), ["/app.php", "", "@DIR@/root/app.php"]);
    assert_eq!(reported("/plain"), ["/plain", "", "@DIR@/root/plain"]);
}

/// `proxy-core.*` beneath an alias: the equivalent of `fastcgi.server` in 1.5.
#[test]
fn routes_of_proxy_core_know_aliases() {
    let backend = Gateway::Fastcgi.telling_variables();
    let address = backend.name();
    let core =
        format!("proxy-core.protocol = \"fastcgi\"\nproxy-core.backends = ( \"{address}\" )");
    for check_local in ["enable", "disable"] {
        let server = lighty!()
            .config(&core)
            .config(&format!("proxy-core.check-local = \"{check_local}\""))
            .config("alias.url = ( \"/o/\" => \"@DIR@/other/\" )")
            .file("../other/x.php", "")
            .start();
        let answer = server.get("/o/x.php?q");
        let text = without_directory(answer.text());
        assert!(text.contains("SCRIPT_NAME=/o/x.php\n"), "{check_local}: {text}");
        assert!(answer.text().contains("/other/x.php\n"), "{check_local}: {text}");
        assert!(!answer.text().contains("/other/o/x.php"), "{check_local}: {text}");
    }
}
