//! The same configuration and the same requests for lighty and for lighttpd 1.4, side by side.

use lighty_testkit::lighty;
use lighty_testkit::peer::{Peer, ask};
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};

/// Both servers with the same files and lines.
struct Both {
    lighty: Server,
    lighttpd: Peer,
}

/// Fields that both are expected to send alike.
const COMPARED: [&str; 5] = ["Location", "Cache-Control", "Content-Length", "X-One", "X-Two"];

impl Both {
    /// `None` where lighttpd is not installed.
    fn start(modules: &str, files: &[(&str, &str)], lines: &str) -> Option<Both> {
        let peer = Peer::setup(modules)?;
        let with = |setup: Setup| {
            let setup = files.iter().fold(setup, |setup, (path, text)| {
                // A path that begins with a slash is beneath the test's directory.
                match path.strip_prefix('/') {
                    Some(path) => setup.file(&format!("../{path}"), text),
                    None => setup.file(path, text),
                }
            });
            setup.config(lines)
        };
        Some(Both { lighty: with(lighty!()).start(), lighttpd: Peer::start(with(peer)) })
    }

    /// Both answers to a request, once they are found to agree.
    #[track_caller]
    fn agree(&self, method: &str, target: &str, host: &str) -> Response {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}\r\n"
        );
        let ours = ask(self.lighty.connect(), &request);
        let theirs = self.lighttpd.ask(&request);
        let what = format!("{method} {target} ({host})");
        assert_eq!(ours.status, theirs.status, "{what}\nlighttpd says:\n{}", self.lighttpd.log());
        for name in COMPARED {
            // The text of error pages is everybody's own, and what HEAD says of its length.
            if name != "Content-Length" || (ours.status < 400 && method != "HEAD") {
                assert_eq!(ours.field(name), theirs.field(name), "{what}: {name}");
            }
        }
        if ours.status < 400 {
            assert_eq!(ours.text(), theirs.text(), "{what}: body");
        }
        ours
    }

    #[track_caller]
    fn all(&self, targets: &[&str]) {
        for target in targets {
            self.agree("GET", target, "www.a.example");
        }
    }
}

#[test]
fn redirections() {
    let lines = r#"
        $HTTP["host"] =~ "^(www\.)?(.*)$" {
            url.redirect = (
                "^/a/(.*)" => "/n/$1/%2",
                "^/b/(.*)" => "/n/${1}/%{2}",
                "^/c/(.*)" => "/n/${esc:1}",
                "^/d/(.*)" => "/n/${escnde:1}",
                "^/e/(.*)" => "/n/${escpsnde:1}",
                "^/f/(.*)" => "/n/${noesc:1}",
                "^/h/(.*)" => "/n/${tolower:noesc:1}",
                "^/i/(.*)" => "/n/${encb64u:1}",
                "^/j/(.*)" => "/n/${decb64u:1}",
                "^/k/([^?]*)" => "/n/$1${qsa}",
                "^/l/([^?]*)" => "/n/$1?x=1${qsa}",
                "^/m/([^?]*)" => "${url.scheme}://${url.authority}${url.path}|${url.query}",
                "^/n/" => "",
                "^/o/" => "/x%%20y$$z%a$",
                "^/q/(?:(x)|y)(z)" => "/n/$1/$2/$9",
                "^/r/(.*)" => "relative$1",
                "^/s/(.*)" => "http://h/$0",
                "^/v/(.*)" => "/n/%0|%1|%2|%3",
                "^/n" => "/never"
            )
        }
        $HTTP["url"] =~ "^/code/([0-9]+)" {
            url.redirect-code = 302
            url.redirect = ( "" => "/to/%1" )
        }
    "#;
    let Some(both) = Both::start("\"mod_redirect\"", &[("n/x", "x")], lines) else { return };
    for letter in ["a", "b", "c", "d", "e", "f", "h"] {
        both.all(&[&format!("/{letter}/x%20Y/z%C3%A9%2fq?A=b&c=%26+d")]);
    }
    both.all(&[
        "/i/hello?~",
        "/j/aGVsbG8_Pj5-",
        "/k/p?q=1",
        "/k/p",
        "/l/p?q=1",
        "/l/p",
        "/m/X?y=Z",
    ]);
    both.all(&[
        "/n/x", "/n/y", "/nx", "/o/", "/q/xz", "/q/yz", "/r/x", "/s/a?b", "/v/", "/code/17",
    ]);
    assert_eq!(both.agree("POST", "/a/x", "b.example").status, 301);
    both.agree("HEAD", "/a/x", "a.example:8080");
}

#[test]
fn rewriting() {
    let lines = r#"
        url.rewrite-once = (
            "^/keep" => "",
            "^/once/(.*)$" => "/two/$1",
            "^/enc/([^?]*)" => "/$1.txt",
            "^/query\?(.*)$" => "/$1.txt",
            "^/qsa/([^?]*)" => "/$1.txt${qsa}"
        )
        url.rewrite-repeat = (
            "^/r/x/(.*)$" => "/r/$1",
            "^/r/y$" => "/a.txt",
            "^/two/(.*)$" => "/never/$1"
        )
        url.rewrite-if-not-file = ( "^/app/([^?]*)" => "/front.txt?p=$1" )
        $HTTP["url"] =~ "^/cond/([a-z]+)" {
            url.rewrite-once = ( "" => "/%1.txt" )
        }
        $HTTP["url"] == "/a.txt" { server.tag = "seen" }
    "#;
    let files = [
        ("a.txt", "A"),
        ("b c.txt", "BC"),
        ("front.txt", "front"),
        ("app/file", "file"),
        ("two/x", "two"),
        ("keep", "kept"),
    ];
    let Some(both) = Both::start("\"mod_rewrite\"", &files, lines) else { return };
    both.all(&["/keep", "/once/x", "/once/y", "/enc/a", "/enc/b%20c", "/enc/a?x=1"]);
    both.all(&["/query?a", "/query", "/qsa/a?x", "/r/x/x/x/y", "/r/z", "/cond/a"]);
    both.all(&["/app/file", "/app/none", "/app/none?x=y", "/app/", "/app", "/a.txt", "/cond/none"]);
    assert_eq!(both.agree("GET", "/app/none", "a").text(), "front");
    assert_eq!(both.agree("GET", "/r/x/x/y", "a").field("Server"), Some("seen"));
}

#[test]
fn denied_and_aliased() {
    let lines = r#"
        url.access-deny = ( "~", ".inc" )
        $HTTP["url"] =~ "^/only/" { url.access-allow = ( ".html" ) }
        alias.url = (
            "/al/long/" => "@DIR@/other/",
            "/al/" => "@DIR@/aliased/",
            "/bare" => "@DIR@/aliased/",
            "/both" => "@DIR@/aliased",
            "/icon" => "@DIR@/aliased/icon.ico"
        )
    "#;
    let files = [
        ("a~", ""),
        ("b.inc", ""),
        ("c.txt", "c"),
        ("only/a.html", "1"),
        ("only/a.css", "2"),
        ("/aliased/f", "f"),
        ("/aliased/icon.ico", "icon"),
        ("/aliased/sub/g", "g"),
        ("/aliased-too/h", "h"),
        ("/other/f", "other"),
        ("/secret", "no"),
    ];
    let Some(both) = Both::start("\"mod_access\", \"mod_alias\"", &files, lines) else { return };
    both.all(&[
        "/a~", "/b.inc", "/b.inc/x", "/b.inc/", "/b%2einc", "/b.inc?x", "/c.txt", "/no.inc",
    ]);
    both.all(&[
        "/only/a.html",
        "/only/a.css",
        "/only/",
        "/al/f",
        "/al/long/f",
        "/al/sub/g",
        "/al/sub",
    ]);
    both.all(&[
        "/al/none",
        "/baref",
        "/bare/f",
        "/bare../secret",
        "/bare..",
        "/both/f",
        "/both-too/h",
    ]);
    both.all(&["/both../secret", "/icon", "/icon/x", "/iconx", "/al/%2e%2e/secret", "/al/.."]);
}

#[test]
fn lifetimes() {
    let lines = r#"
        expire.url = ( "/img/long/" => "access plus 2 weeks", "/img/" => "now 3 hours",
            "/mod/" => "modification 1 seconds" )
        expire.mimetypes = ( "text/*" => "access 1 days 1 hours", "application/json" => "access 5 minutes" )
        mimetype.assign = ( ".txt" => "text/plain", ".json" => "application/json", ".png" => "image/png" )
    "#;
    let files = [
        ("img/a.png", "png"),
        ("img/long/a.png", "png"),
        ("mod/a.png", "png"),
        ("a.txt", "t"),
        ("a.json", "{}"),
        ("a.png", "p"),
    ];
    let Some(both) = Both::start("\"mod_expire\"", &files, lines) else { return };
    both.all(&["/img/a.png", "/img/long/a.png", "/a.txt", "/a.json", "/a.png", "/img/none"]);
    assert_eq!(
        both.agree("HEAD", "/img/long/a.png", "a").field("Cache-Control"),
        Some("max-age=1209600")
    );
}

#[test]
fn hosts_with_directories() {
    let files = [
        ("f", "default"),
        ("/v/a.example/htdocs/f", "a"),
        ("/v/b.example/htdocs/f", "b"),
        ("/v/htdocs/f", "none"),
        ("/e/example.org/www/f", "www"),
        ("/e/localhost/f", "local"),
        ("/e/example.org/f", "bare"),
        ("/c/e/example/f", "char"),
    ];
    let simple = r#"
        simple-vhost.server-root = "@DIR@/v/"
        simple-vhost.default-host = "b.example"
        simple-vhost.document-root = "/htdocs/"
    "#;
    let Some(both) = Both::start("\"mod_simple_vhost\"", &files, simple) else { return };
    for host in ["a.example", "A.Example:8080", "b.example", "c.example", "[::1]", "127.0.0.1"] {
        both.agree("GET", "/f", host);
        both.agree("GET", "/none", host);
    }
    assert_eq!(both.agree("GET", "/f", "c.example").text(), "b");
    for pattern in ["@DIR@/e/%0/%3/", "@DIR@/c/%{2.1}/%2/", "@DIR@/e/%_"] {
        let lines = format!("evhost.path-pattern = \"{pattern}\"");
        let Some(both) = Both::start("\"mod_evhost\"", &files, &lines) else { return };
        for host in ["www.example.org", "example.org:80", "x.example.org", "localhost", "[::1]"] {
            both.agree("GET", "/f", host);
        }
    }
}

#[test]
fn fields_and_users() {
    let lines = r#"
        setenv.add-response-header = ( "X-One" => "1" )
        $HTTP["url"] =~ "^/set/" {
            setenv.set-response-header = ( "X-One" => "", "X-Two" => "2" )
        }
        $HTTP["url"] =~ "^/cc/" { setenv.add-response-header = ( "Cache-Control" => "no-store" ) }
        userdir.path = "public_html"
        userdir.basepath = "@DIR@/homes"
        userdir.exclude-user = ( "root" )
    "#;
    let files = [
        ("f", "f"),
        ("set/f", "s"),
        ("cc/f", "c"),
        ("/homes/anna/public_html/p", "anna"),
        ("/homes/anna/private", "no"),
        ("/homes/root/public_html/p", "root"),
    ];
    let Some(both) = Both::start("\"mod_setenv\", \"mod_userdir\"", &files, lines) else { return };
    both.all(&["/f", "/none", "/set/f", "/cc/f", "/~anna/p", "/~anna", "/~anna/", "/~root/p"]);
    both.all(&[
        "/~nobody/p",
        "/~anna/../private",
        "/~anna/%2e%2e/private",
        "/~/p",
        "/~../p",
        "/~anna?x",
    ]);
}
