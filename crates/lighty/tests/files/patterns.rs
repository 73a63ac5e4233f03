//! Patterns that cannot be matched in linear time, in every directive with patterns.

use lighty_testkit::lighty;
use lighty_testkit::peer::{LighttpdPeer, ask};
use lighty_testkit::server::Setup;

/// Patterns modelled on the configurations of RaspAP, tar1090, Pi-hole and WordPress.
const LINES: &str = r#"
    $HTTP["url"] =~ "^/(?!app|api)(.*)$" {
        setenv.add-response-header = ( "X-One" => "outside" )
        url.redirect = ( "^/(?:(?!go).)*/go/(.*)" => "/went/$1/%1" )
    }
    $HTTP["host"] =~ "^(?<sub>[^.]+)\.(?=example)" {
        url.rewrite-once = ( "^/(.)\1(?<rest>.*)$" => "/$2" )
    }
    $HTTP["url"] !~ "(?<!\.txt)$" {
        url.access-deny = ( "" )
    }
    url.rewrite-if-not-file = ( "^/(?!wp-)([^?]*+)(\?.*)?$" => "/front.html" )
"#;

#[test]
fn patterns_mean_the_same_as_in_lighttpd() {
    let files = |setup: Setup| {
        let setup =
            setup.file("a.html", "A").file("a.txt", "A").file("b", "B").file("front.html", "front");
        setup.file("app/x", "X").config(LINES)
    };
    let Some(peer) =
        LighttpdPeer::setup(r#""mod_setenv", "mod_redirect", "mod_rewrite", "mod_access""#)
    else {
        return;
    };
    let (ours, theirs) = (files(lighty!()).start(), LighttpdPeer::start(files(peer)));
    for target in [
        "/a.html",
        "/a.txt",
        "/b",
        "/app/x",
        "/xxb",
        "/xya.html",
        "/wp-none",
        "/none?x",
        "/d/go/there",
    ] {
        for host in ["www.example", "www.other"] {
            let request =
                format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let (one, other) = (ask(ours.connect(), &request), theirs.ask(&request));
            let what = format!("{target} ({host})");
            assert_eq!(one.status, other.status, "{what}\n{}", theirs.log());
            for name in ["X-One", "Location"] {
                assert_eq!(one.field(name), other.field(name), "{what}: {name}");
            }
            if one.status < 400 {
                assert_eq!(one.text(), other.text(), "{what}");
            }
        }
    }
}

/// Each directive with patterns, and the request that exceeds the limit of steps.
#[test]
fn pattern_over_the_step_limit_gives_500_and_is_logged() {
    let long = format!("/{}!", "a".repeat(200));
    for lines in [
        r#"$HTTP["url"] =~ "^/(a+)+$(?!x)" { server.tag = "x" }"#,
        r#"$HTTP["url"] !~ "^/(a+)+$(?!x)" { server.tag = "x" }"#,
        r#"$PHYSICAL["path"] =~ "/(a+)+$(?!x)" { server.tag = "x" }"#,
        r#"url.redirect = ( "^/(a+)+$(?!x)" => "/b" )"#,
        r#"url.rewrite-once = ( "^/(a+)+$(?!x)" => "/b" )"#,
        r#"url.rewrite-if-not-file = ( "^/(a+)+$(?!x)" => "/b" )"#,
        r#"proxy-core.protocol = "http" proxy-core.backends = ( "127.0.0.1:9" )
           proxy-core.rewrite-request = ( "_uri" => ( "^/(a+)+$(?!x)" => "/b" ) )"#,
    ] {
        // Patterns with a condition on files need an existing file, or a missing one.
        let file = if lines.contains("not-file") { "c" } else { &long[1..] };
        let server = lighty!()
            .file("b", "B")
            .file(file, "")
            .config(&lines.replace(" proxy-core.", "\nproxy-core."));
        let server = server.start();
        assert_eq!(server.get(&long).status, 500, "{lines}");
        server.await_log("more steps than server.pcre-match-limit");
        server.await_log("(a+)+$(?!x)");
        if !lines.contains("proxy") {
            assert_eq!(server.get("/b").status, 200, "{lines}");
        }
    }
}

#[test]
fn the_limit_is_the_operators() {
    let long = format!("/{}!", "ab".repeat(8));
    let lines = r#"url.rewrite-once = ( "^/(?:a|b|ab)*$(?!x)" => "/b" )"#;
    let with = |limit: &str| lighty!().file("b", "B").config(&format!("{lines}\n{limit}")).start();
    assert_eq!(with("").get(&long).status, 404);
    assert_eq!(with("server.pcre-match-limit = 1000").get(&long).status, 500);
}

#[test]
fn a_listing_hides_what_a_pattern_cannot_tell() {
    let undecided = format!("{}!", "a".repeat(60));
    let server = lighty!()
        .file("d/a.txt", "")
        .file("d/b.tmp", "")
        .file(&format!("d/{undecided}"), "")
        .config(
            r#"
            dir-listing.activate = "enable"
            dir-listing.exclude = ( "^(?!.*\.txt$)b", "^(a+)+$(?!x)" )
            "#,
        )
        .start();
    let page = server.get("/d/");
    assert!(page.text().contains("a.txt"), "{}", page.text());
    assert!(!page.text().contains("b.tmp") && !page.text().contains(&undecided));
}

/// The pattern takes milliseconds; the limit of a second leaves room for a busy machine.
#[test]
fn a_pattern_that_explodes_does_not_hold_up_others() {
    let server = lighty!()
        .file("b", "B")
        .config(r#"$HTTP["url"] =~ "^/(?:(?!.*q).)*(a|b|ab)*$(?!x)" { server.tag = "x" }"#)
        .start();
    let long = format!("/{}!", "ab".repeat(2000));
    let begin = std::time::Instant::now();
    for _ in 0..5 {
        assert_eq!(server.get(&long).status, 500);
    }
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
}
