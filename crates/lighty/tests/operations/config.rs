//! The user's view of the configuration: checks, diagnostics, the dump, conditions.

mod served;

use lighty_testkit::client::Client;
use lighty_testkit::lighty;
use lighty_testkit::server::{binary, write_file};

#[test]
fn a_good_configuration_passes_both_checks() {
    let setup = lighty!().config("server.tag = \"x\"");
    for arguments in
        [&["-t", "-f", "@CONF@"][..], &["-tt", "-f", "@CONF@"], &["check", "-f", "@CONF@"]]
    {
        let (code, out, err) = setup.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {err}");
        assert!(out.contains("Syntax OK"), "{arguments:?}: {out}");
    }
}

#[test]
fn all_errors_are_reported_at_once_with_their_places() {
    let setup = lighty!().config(
        "server.max-connections = \"many\"\nserver.network-backend = \"linux-sendfil\"\n\
         server.http-parseopts = ( \"no-such-option\" => \"enable\" )",
    );
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    for message in ["server.max-connections", "linux-sendfile", "no-such-option", "lighty.conf"] {
        assert!(err.contains(message), "{message} is not mentioned:\n{err}");
    }
    assert!(err.contains('^'), "no caret:\n{err}");
}

/// Like `lighty -t 2>&1 | head`.
#[test]
fn unread_errors_are_still_errors() {
    for arguments in [&["-t", "-f", "/none/x.conf"][..], &["serve", "/none"], &["fmt", "/none"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let status = std::process::Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
            .args(arguments)
            .stderr(full)
            .status()
            .expect("the binary runs");
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_syntax_error_names_line_and_column() {
    let setup = lighty!().config("server.tag = (");
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains("lighty.conf:"), "{err}");
}

#[test]
fn an_unknown_directive_warns_and_is_an_error_when_strict() {
    let setup = lighty!().config("server.document-rot = \"/x\"");
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("server.document-root"), "did you mean: {err}");
    let (code, _, err) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
}

#[test]
fn a_directive_of_lighttpd_that_is_not_there_yet_is_said_to_be_so() {
    let setup = lighty!().config("geoip.memory-cache = \"enable\"");
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("geoip.memory-cache"), "{err}");
    assert!(!err.contains("unknown"), "it is known, only not there yet: {err}");
}

#[test]
fn backends_of_other_systems_mean_auto() {
    for name in [
        "freebsd-sendfile",
        "gthread-freebsd-sendfile",
        "solaris-sendfilev",
        "win32-send",
        "win32-transmitfile",
    ] {
        let setup = lighty!().config(&format!("server.network-backend = \"{name}\""));
        let (code, _, err) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("note") && err.contains("means \"auto\" here"), "{err}");
    }
    let setup = lighty!().config("server.network-backend = \"win32-sendfile\"");
    assert_eq!(setup.run(&["-t", "-f", "@CONF@"]).0, 1);
}

#[test]
fn the_first_name_of_the_read_threads_is_known() {
    let setup = lighty!().config("server.max-write-threads = 9");
    let (code, out, err) = setup.run(&["-p", "-f", "@CONF@"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("max-read-threads = 9") || out.contains("max-write-threads = 9"), "{out}");
    let setup = lighty!().config("server.max-write-threads = 0");
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0);
    assert!(err.contains("server.max-write-threads is at least 1"), "{err}");
}

#[test]
fn bulk_reads_are_a_number_or_auto() {
    for value in ["\"auto\"", "0", "2", "64"] {
        let setup = lighty!().config(&format!("server.max-bulk-reads = {value}"));
        assert_eq!(setup.run(&["check", "--strict", "-f", "@CONF@"]).0, 0, "{value}");
        let (_, out, _) = setup.run(&["-p", "-f", "@CONF@"]);
        assert!(out.contains(&format!("server.max-bulk-reads = {value}")), "{out}");
    }
    for (value, message) in [
        ("65", "server.max-bulk-reads must be from 0 to 64"),
        ("-1", "server.max-bulk-reads must be"),
        ("\"never\"", "server.max-bulk-reads must be \"auto\" or a number from 0 to 64"),
        ("( 2 )", "server.max-bulk-reads must be \"auto\" or a number from 0 to 64"),
    ] {
        let setup = lighty!().config(&format!("server.max-bulk-reads = {value}"));
        let (code, _, err) = setup.run(&["check", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{value}: {err}");
        assert!(err.contains(message), "{value}: {err}");
    }
}

#[test]
fn tls_that_is_off_is_nothing_to_warn_of() {
    let setup = lighty!().config(
        "ssl.engine = \"disable\"\nssl.read-ahead = \"enable\"\n\
         $SERVER[\"socket\"] == \"127.0.0.1:4443\" { ssl.engine = 0\n\
         ssl.read-ahead = \"disable\" }",
    );
    let (code, _, err) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn diagnostics_come_as_json_too() {
    let setup = lighty!().config("server.max-connections = \"many\"");
    let (code, out, err) = setup.run(&["-t", "--format", "json", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    let text = format!("{out}{err}");
    let text = text.trim();
    assert!(text.starts_with(['[', '{']) && text.ends_with([']', '}']), "{text}");
    assert!(text.contains("server.max-connections") || text.contains("many"), "{text}");
    assert!(text.contains("\"line\""), "{text}");
}

#[test]
fn the_dump_is_a_configuration_that_means_the_same() {
    let setup = lighty!().config(
        "server.tag = \"dump \\\" me\"\nserver.max-keep-alive-requests = 7\n\
         index-file.names = ( \"a.html\", \"b.html\" )\n\
         mimetype.assign = ( \".x\" => \"text/x\", \"\" => \"text/rest\" )\n\
         $HTTP[\"host\"] =~ \"^(www\\.)?example\\.org$\" { server.tag = \"inside\"\n\
         $HTTP[\"url\"] =^ \"/a/\" { server.range-requests = \"disable\" } }\n\
         else $HTTP[\"remoteip\"] == \"10.0.0.0/8\" { server.tag = \"other\" }",
    );
    let (code, first, err) = setup.run(&["-p", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(first.contains("server.max-keep-alive-requests"), "{first}");
    let again = lighty!();
    let path = again.directory().join("dumped.conf");
    write_file(&path, &first);
    let (code, second, err) = again.run(&["-p", "-f", path.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{err}\n{first}");
    let without_marks = |text: &str| text.replace(" # default", "");
    assert_eq!(without_marks(&first), without_marks(&second));
    assert!(first.contains(" # default"), "defaults are marked");
    assert!(!first.contains("server.max-keep-alive-requests = 7 # default"), "{first}");
}

#[test]
fn deep_checking_finds_what_is_not_there_and_binds_nothing() {
    let setup = lighty!()
        .config("server.document-root := \"@DIR@/no-such-directory\"")
        .config("server.errorlog = \"@DIR@/no/such/directory/error.log\"");
    let (code, _, _) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "the language alone is in order");
    let (code, _, err) = setup.run(&["-tt", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(err.contains("no-such-directory"), "{err}");
    assert!(err.contains("^^^^"), "with the place: {err}");
    let (code, out, _) = setup.run(&["-tt", "-f", "@CONF@", "--format", "json"]);
    assert_eq!(code, 1);
    assert!(out.contains("\"errors\":1") && out.contains("no-such-directory"), "{out}");
    let (code, out, _) = setup.run(&["-tt", "--strict", "-f", "@CONF@", "--format", "json"]);
    assert_eq!(code, 1);
    assert!(out.contains("\"errors\":2"), "{out}");
}

#[test]
fn deep_checking_looks_at_what_start_and_requests_would_fail_on() {
    for (line, message, level) in [
        (
            "fastcgi.server = ( \".x\" => (( \"bin-path\" => \"/no/program -b\" )) )",
            "/no/program",
            "error",
        ),
        ("scgi.server = ( \"/x\" => (( \"bin-path\" => \"/etc/passwd\" )) )", "chmod +x", "error"),
        ("cgi.assign = ( \".pl\" => \"/no/perl\" )", "/no/perl", "warning"),
        ("server.bind := \"192.0.2.1\"", "does not have the address", "error"),
        ("$SERVER[\"socket\"] == \"192.0.2.1:81\" { }", "does not have the address", "error"),
        ("auth.backend.plain.userfile = \"@DIR@/no-users\"", "no-users", "warning"),
        ("auth.backend.htdigest.userfile = \"@DIR@/no-users\"", "no-users", "warning"),
        ("magnet.attract-raw-url-to = ( \"@DIR@/no.lua\" )", "no.lua", "warning"),
        ("webdav.sqlite-db-name = \"@DIR@/none/dav.db\"", "none/dav.db", "error"),
        ("alias.url = ( \"/a/\" => \"@DIR@/no-alias/\" )", "no-alias", "warning"),
        ("server.errorfile-prefix = \"@DIR@/no-pages/\"", "No such file", "warning"),
        ("server.errorfile-prefix = \"@DIR@/root/status-\"", "status-404.html", "warning"),
        ("deflate.cache-dir = \"/etc/passwd/no-cache\"", "no-cache", "warning"),
        ("cgi.x-sendfile-docroot = ( \"@DIR@/no-files\" )", "no-files", "warning"),
        (
            "fastcgi.server = ( \".x\" => (( \"socket\" => \"@DIR@/no.sock\" )) )",
            "no.sock",
            "warning",
        ),
        (
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"unix:@DIR@/no.sock\" )",
            "no.sock",
            "warning",
        ),
        ("ssl.stapling-file = \"@DIR@/no.der\"", "no.der", "warning"),
        (
            "fastcgi.server = ( \".x\" => (( \"host\" => \"127.0.0.1\", \"port\" => 9, \
             \"x-sendfile\" => \"enable\", \"x-sendfile-docroot\" => ( \"@DIR@/no-files\" ) )) )",
            "no-files",
            "warning",
        ),
        ("proxy-core.x-sendfile-docroot = ( \"@DIR@/no-files\" )", "no-files", "warning"),
        (
            "auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
            "without auth.backend",
            "warning",
        ),
    ] {
        let setup = lighty!().config(line);
        let (code, _, printed) = setup.run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "the language alone is in order: {line}: {printed}");
        let (code, _, printed) = setup.run(&["-tt", "-f", "@CONF@"]);
        assert_eq!(code, i32::from(level == "error"), "{line}: {printed}");
        assert!(printed.contains(level) && printed.contains(message), "{line}: {printed}");
        assert!(printed.contains("^^^"), "with the place: {line}: {printed}");
        let (code, _, _) = setup.run(&["-tt", "--strict", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{line}");
    }
    let fine = lighty!().file("status-404.html", "gone").file("../users", "kim:secret\n").config(
        "cgi.assign = ( \".sh\" => \"/bin/sh\", \".cgi\" => \"\" )
             fastcgi.server = ( \".x\" => (( \"bin-path\" => \"/bin/true\" )) )
             auth.backend.plain.userfile = \"@DIR@/users\"
             alias.url = ( \"/a/\" => \"@DIR@/root/\" )
             server.errorfile-prefix = \"@DIR@/root/status-\"
             deflate.cache-dir = \"@DIR@\"",
    );
    let (code, _, printed) = fine.run(&["-tt", "--strict", "-f", "@CONF@"]);
    assert_eq!((code, &*printed), (0, ""));
}

#[test]
fn low_ports_take_a_right() {
    let setup = lighty!()
        .without_listener()
        .config("server.bind = \"127.0.0.1\"\nserver.port = 81")
        .through(["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"]);
    let path = setup.write_config();
    let mut server = setup.spawn(&["-tt", "-f", path.to_str().expect("UTF-8")]);
    let _ = server.await_exit(std::time::Duration::from_secs(20));
    let printed = server.log();
    let port_start = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let is_low =
        port_start.is_ok_and(|text| text.trim().parse().is_ok_and(|first: u16| first > 81));
    assert_eq!(printed.contains("CAP_NET_BIND_SERVICE"), is_low, "{printed}");
}

#[test]
fn port_of_a_backend_is_no_part_of_its_name() {
    for (host, is_found) in [
        ("127.0.0.1:3000", true),
        ("[::1]:3000", true),
        ("localhost:3000", true),
        ("https://localhost:3000/", true),
        ("none.invalid:3000", false),
    ] {
        let setup =
            lighty!().config(&format!("proxy.server = ( \"\" => (( \"host\" => \"{host}\" )) )"));
        let (code, _, err) = setup.run(&["-tt", "-f", "@CONF@"]);
        assert_eq!((code, err.contains("does not resolve")), (0, !is_found), "{host}: {err}");
    }
}

#[test]
fn strictness_hides_nothing_and_nothing_is_no_configuration() {
    let setup = lighty!()
        .config("no.such-directive = 1")
        .config("server.document-root := \"@DIR@/no-such-directory\"");
    let (code, _, printed) = setup.run(&["-tt", "--strict", "-f", "@CONF@"]);
    assert_eq!(code, 1);
    assert!(
        printed.contains("no.such-directive") && printed.contains("no-such-directory"),
        "{printed}"
    );
    let empty = setup.directory().join("empty.conf");
    std::fs::write(&empty, "# nothing\n").expect("written");
    let (code, out, printed) = setup.run(&["-tt", "-f", empty.to_str().expect("UTF-8")]);
    assert_eq!((code, &*out), (1, ""));
    assert!(printed.contains("server.document-root is not set"), "{printed}");
}

#[test]
fn a_start_that_fails_shows_the_place() {
    for (line, message) in [
        ("server.bind := \"192.0.2.1\"", "does not have the address"),
        ("server.errorlog = \"@DIR@/no/such/error.log\"", "the directory does not exist"),
    ] {
        let (code, _, printed) = lighty!().config(line).run(&["-D", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{line}");
        assert!(printed.contains("^^^") && printed.contains(message), "{line}: {printed}");
        assert!(printed.contains("lighty.conf:"), "{line}: {printed}");
    }
}

#[test]
fn words_of_a_list_are_checked_and_suggested() {
    for (line, message) in [
        ("server.event-handler = \"linux-sysepol\"", "did you mean \"linux-sysepoll\"?"),
        ("server.network-backend = \"io-urin\"", "did you mean \"io-uring\"?"),
        (
            "server.http-parseopts = ( \"url-normalise\" => \"enable\" )",
            "did you mean \"url-normalize\"?",
        ),
    ] {
        let (code, _, err) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{line}");
        assert!(err.contains(message), "{err}");
    }
    let flags = |key: &str| format!("server.feature-flags = ( \"{key}\" => \"enable\" )");
    let (code, _, err) = lighty!().config(&flags("server.h2protoo")).run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0);
    assert!(err.contains("did you mean \"server.h2proto\"?"), "{err}");
}

#[test]
fn no_switch_of_lighttpd_is_without_effect_in_silence() {
    for (key, value, level, message) in [
        ("server.h2c", "enable", "note", "no Upgrade to HTTP/2"),
        ("request.trailer-whitelist", "X-Checksum", "warning", "never merged into the header"),
        ("auth.delay-invalid-creds", "disable", "warning", "the directive auth.delay-invalid"),
        ("proxy.force-http10", "enable", "warning", "proxy.header"),
        ("server.discard-backend-1xx", "enable", "note", "interim responses"),
    ] {
        let flags = format!("server.feature-flags = ( \"{key}\" => \"{value}\" )");
        let (code, _, err) = lighty!().config(&flags).run(&["-t", "--strict", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{key}: {err}");
        assert!(err.contains(&format!("{level}: ")) && err.contains(message), "{key}: {err}");
        assert!(err.contains(key) && err.contains('^'), "{key}: {err}");
    }
    for met in ["\"server.h2c\" => \"disable\"", "\"auth.delay-invalid-creds\" => \"enable\""] {
        let flags = format!("server.feature-flags = ( {met} )");
        let (code, _, err) = lighty!().config(&flags).run(&["-t", "-f", "@CONF@"]);
        assert_eq!((code, err.as_str()), (0, ""), "{met} is what happens");
    }
}

#[test]
fn removed_directives_and_modules_are_reported_as_gone() {
    let lines = "server.modules = ( \"mod_cml\" )\ncml.extension = \".cml\"\n\
                 cml.memcache-hosts = ( \"127.0.0.1:11211\" )\ncml.power-magnet = \"/x.cml\"";
    let setup = lighty!().config(lines);
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    for message in
        ["cml.extension", "cml.memcache-hosts", "cml.power-magnet", "mod_cml", "mod_magnet"]
    {
        assert!(err.contains(message), "{message}: {err}");
    }
    assert_eq!(err.matches(" is gone").count(), 4, "{err}");
    assert!(!err.contains("not a known") && !err.contains(" yet"), "{err}");
    assert_eq!(setup.run(&["-t", "--strict", "-f", "@CONF@"]).0, 1);
}

#[test]
fn versions_and_features_are_listed() {
    let setup = lighty!();
    let (code, out, _) = setup.run(&["-v"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("lighty/"), "{out}");
    let (code, out, _) = setup.run(&["-V"]);
    assert_eq!(code, 0);
    assert!(out.lines().filter(|l| l.trim_start().starts_with("+ ")).count() > 5, "{out}");
    for message in ["io-uring", "threads", "linux-sendfile", "mod_staticfile"] {
        assert!(out.contains(message), "{message}: {out}");
    }
}

#[test]
fn features_of_the_build_are_listed() {
    let (_, out, _) = lighty!().run(&["-V"]);
    let (_, listed) = out.split_once("\nFeatures of the build:\n").expect("a list");
    let listed: Vec<_> = listed.lines().take_while(|line| !line.is_empty()).collect();
    for feature in ["acme", "brotli", "bzip2", "dns", "tools", "tracing", "webdav", "zstd"] {
        assert!(listed.contains(&&*format!("\t+ {feature}")), "{feature}: {listed:?}");
    }
    let lua = ["luajit", "lua54"].map(|lua| listed.contains(&&*format!("\t+ {lua}")));
    assert_ne!(lua[0], lua[1], "one Lua: {listed:?}");
    assert!(!out.contains("\t- mod_"), "no module is missing: {out}");
}

#[test]
fn a_wrong_command_line_exits_with_2_and_a_missing_file_with_1() {
    let setup = lighty!();
    assert_eq!(setup.run(&["--no-such-flag"]).0, 2);
    let (code, _, err) = setup.run(&["-t", "-f", "/no/such/file.conf"]);
    assert_eq!(code, 1);
    assert!(err.contains("/no/such/file.conf"), "{err}");
    for misplaced in [
        &["serve", "-f", "@CONF@", "/no/such/directory"] as &[&str],
        &["-f", "@CONF@", "proxy", "--to", ":1"],
        &["-t", "serve", "/no/such/directory"],
        &["-p", "check", "-f", "@CONF@"],
        &["serve", "--format", "json"],
        &["load", "--strict", "http://127.0.0.1:1/"],
        &["--background", "check", "-f", "@CONF@"],
        &["-i", "3", "check", "-f", "@CONF@"],
    ] {
        assert_eq!(setup.run(misplaced).0, 2, "{misplaced:?}");
    }
}

#[test]
fn configuration_may_be_named_before_and_after_the_command() {
    let setup = lighty!().config("server.nonsense = 1");
    for arguments in [
        &["check", "-f", "@CONF@", "--format", "json"][..],
        &["-f", "@CONF@", "--format", "json", "check"],
        &["-f", "/no/such/file", "check", "-f", "@CONF@", "--format", "json"],
    ] {
        let (code, out, err) = setup.run(arguments);
        assert!(code == 0 && out.contains("server.nonsense"), "{arguments:?} {code} {out}{err}");
        let (code, out, _) = setup.run(&[arguments, &["--strict"]].concat());
        assert_eq!(code, 1, "{out}");
    }
    let (code, out, _) = setup.run(&["cert", "list", "-f", "@CONF@"]);
    assert_eq!((code, &*out), (0, ""));
}

#[test]
fn file_in_the_place_of_a_command_gets_a_hint() {
    let (code, _, err) = lighty!().run(&["@CONF@"]);
    assert!(code == 2 && err.contains("use '-f /") && err.contains("lighty.conf'"), "{err}");
}

#[test]
fn version_names_libraries_and_where_they_come_from() {
    let (code, out, _) = lighty!().run(&["-V"]);
    assert_eq!(code, 0);
    for message in [
        "HTTP/2",
        "TLS 1.2 and 1.3",
        "ACME",
        "PCRE2 10.",
        "SQLite 3.",
        "zstd 1.",
        "brotli 1.",
        "mimalloc ",
        "AWS-LC",
        "Lua",
        "rustls 0.",
    ] {
        assert!(out.contains(message), "{message}: {out}");
    }
    let of_pcre = out.lines().find(|line| line.contains("PCRE2 10.")).expect("a line");
    assert!(of_pcre.ends_with("(bundled)") || of_pcre.contains("(system: /"), "{of_pcre}");
}

#[test]
fn missing_directives_are_reported_with_alternatives() {
    let setup = lighty!().config("mysql-vhost.db = \"/x\"");
    let (_, out, err) = setup.run(&["-t", "-f", "@CONF@"]);
    let printed = out + &err;
    for message in ["mysql-vhost.db", "not available", "include_shell", "evhost.path-pattern"] {
        assert!(printed.contains(message), "{message}: {printed}");
    }
    let setup = lighty!().config("rrdtool.db-name = \"/var/x.rrd\"");
    let (code, out, err) = setup.run(&["-t", "-f", "@CONF@"]);
    let printed = out + &err;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("gone") && printed.contains("status.metrics-url"), "{printed}");
}

#[test]
fn formatting_is_stable_and_checked() {
    let setup = lighty!();
    let path = setup.directory().join("ugly.conf");
    write_file(&path, "server.tag=\"x\"\n$HTTP[\"host\"]==\"a\"{server.tag=\"y\"}\n");
    let file = path.to_str().expect("UTF-8");
    assert_eq!(setup.run(&["fmt", "--check", file]).0, 1);
    assert_eq!(setup.run(&["fmt", file]).0, 0);
    let once = std::fs::read_to_string(&path).expect("formatted");
    assert_eq!(setup.run(&["fmt", "--check", file]).0, 0, "{once}");
    let twice = {
        assert_eq!(setup.run(&["fmt", file]).0, 0);
        std::fs::read_to_string(&path).expect("formatted")
    };
    assert_eq!(once, twice);
}

#[test]
fn man_page_completions_and_manual_are_generated() {
    let setup = lighty!();
    let (code, out, _) = setup.run(&["generate", "man"]);
    assert!(code == 0 && out.contains(".TH"), "{out}");
    let (code, out, _) = setup.run(&["generate", "completions", "bash"]);
    assert!(code == 0 && out.contains("lighty"), "{out}");
    let pages = setup.directory().join("manual");
    let (code, _, err) = setup.run(&["generate", "manual", pages.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{err}");
    assert!(std::fs::read_dir(pages).expect("pages").count() > 0);
}

#[test]
fn a_configuration_may_come_from_standard_input() {
    let setup = lighty!().file("a", "x");
    let path = setup.directory().join("stdin.conf");
    let root = setup.root("");
    write_file(
        &path,
        format!(
            "server.document-root = \"{}\"\nserver.bind = \"127.0.0.1\"\nserver.port = 0\n\
             server.max-worker = 1\n",
            root.display()
        ),
    );
    let input = std::fs::File::open(&path).expect("the configuration");
    let mut server = setup.stdin(input).spawn(&["-D", "-f", "-"]);
    server.await_log("http://127.0.0.1:");
    let address = server.listening()[0];
    let mut client = Client::tcp(address);
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "x");
    server.stop();
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_no_panic() {
    for arguments in [&["-v"][..], &["-V"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let output = std::process::Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("run");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    }
}

#[test]
fn faults_of_two_directives_together_are_found() {
    let setup = lighty!().config("proxy-core.backends = ( \"127.0.0.1:80\" )");
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("proxy-core.protocol") && err.contains('^'), "{err}");
    let setup = lighty!()
        .config("proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"127.0.0.1:80\" )");
    let (code, _, err) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
    assert_eq!((code, &*err), (0, ""));
}

#[test]
fn a_proxy_without_a_configuration_says_what_is_wrong_with_its_backends() {
    let setup = lighty!().config("");
    for (arguments, message) in [
        (["--from", "127.0.0.1:1", "--to", "a b"], "'a b' for '--to <BACKEND>...'"),
        (["--from", "127.0.0.1:1", "--to", "a:99999"], "'a:99999' for '--to <BACKEND>...'"),
        (["--from", "here", "--to", "a"], "'here' for '--from <ADDRESS>'"),
    ] {
        let (code, _, err) = setup.run(&[&["proxy"][..], &arguments[..]].concat());
        assert!(code == 2 && err.contains(message), "{code} {err}");
    }
    let (code, _, err) = setup.run(&["serve", "--listen", "99999"]);
    assert!(code == 2 && err.contains("'99999' for '--listen <ADDRESS>'"), "{code} {err}");
    let (code, _, _) = setup.run(&["proxy", "--from", "127.0.0.1:1"]);
    assert_eq!(code, 2, "a proxy needs a backend");
}

#[test]
fn modules_are_known_lacking_or_near_one() {
    let setup = lighty!().config(
        "server.modules = ( \"mod_access\", \"mod_fastcgi\", \"mod_geoip\", \"mod_alais\" )",
    );
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("mod_geoip is a module of lighttpd that is not available"), "{err}");
    assert!(err.contains("did you mean \"mod_alias\"?"), "{err}");
    assert!(!err.contains("mod_access") || !err.contains("\"mod_access\", which"), "{err}");
    let (code, _, err) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
}

#[test]
fn a_module_that_works_without_being_listed_is_a_note() {
    let rule = "url.access-deny = ( \"~\" )";
    let message = "url.access-deny takes effect though server.modules does not name mod_access";
    let setup = lighty!().config(&format!("server.modules = ( \"mod_alias\" )\n{rule}"));
    let (code, _, err) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(message), "{err}");
    for modules in ["", "server.modules = ( \"mod_access\" )\n"] {
        let setup = lighty!().config(&format!("{modules}{rule}"));
        let (_, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
        assert!(!err.contains("takes effect though"), "{err}");
    }
}

#[test]
fn old_and_missing_names_are_known_and_say_what_to_use() {
    for (line, message) in [
        ("geoip.db-filename = \"x\"", "maxminddb.db"),
        ("mysql-vhost.db = \"x\"", "include_shell"),
        ("auth.backend.gssapi.keytab = \"x\"", "not available"),
    ] {
        let (_, _, err) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert!(err.contains("is a lighttpd 1.4/1.5 directive"), "{line}: {err}");
        assert!(err.contains(message), "{line}: {err}");
    }
}

#[test]
fn backends_behind_tls_and_words_of_other_proxies_are_understood() {
    for (line, message) in [
        ("proxy-core.balancer = \"leastconn\"", "did you mean \"least-connection\"?"),
        (
            "proxy-core.protocol = \"fastcgi\"\nproxy-core.backends = ( \"https://127.0.0.1:1\" )",
            "which alone are spoken over TLS",
        ),
        (
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"https://unix:/run/a.sock\" )",
            "set proxy-core.tls-server-name",
        ),
        (
            "fastcgi.server = ( \"\" => ( ( \"host\" => \"https://127.0.0.1\", \"port\" => 1 ) ) )",
            "hosts of proxy.server only",
        ),
        ("proxy-core.tls-server-name = \"a:1\"", "without a port"),
        (
            "proxy-core.protocol = \"h2\"\nproxy-core.backends = ( \"127.0.0.1:1\" )\n\
             proxy-core.proxy-protocol = \"v1\"",
            "carry requests of many",
        ),
        (
            "proxy-core.protocol = \"h2\"\nproxy-core.backends = ( \"127.0.0.1:1\" )\n\
             proxy-core.check = ( \"type\" => \"fastcgi\" )",
            "do not speak",
        ),
        (
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"https://127.0.0.1:1\" )\n\
             proxy-core.tls-key = \"/a\"",
            "without proxy-core.tls-cert",
        ),
    ] {
        let (code, _, err) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{line}: {err}");
        assert!(err.contains(message), "{line}: {err}");
    }
    let top = "proxy-core.upgrade = \"enable\"\nproxy-core.protocol = \"fastcgi\"\n\
               proxy-core.backends = ( \"127.0.0.1:1\" )\n";
    let (_, _, err) = lighty!().config(top).run(&["-t", "-f", "@CONF@"]);
    assert!(err.contains("can carry an upgrade"), "{err}");
    let below = "$HTTP[\"url\"] =^ \"/ws\" { proxy-core.protocol = \"http\"\n\
                 proxy-core.backends = ( \"127.0.0.1:2\" ) }";
    let (_, _, err) = lighty!().config(&format!("{top}{below}")).run(&["-t", "-f", "@CONF@"]);
    assert!(!err.contains("can carry an upgrade"), "{err}");
    let deaf = "$HTTP[\"url\"] =^ \"/a\" { proxy-core.upgrade = \"enable\"\n\
                proxy-core.protocol = \"scgi\"\nproxy-core.backends = ( \"127.0.0.1:3\" ) }";
    let config = format!("{top}{below}\n{deaf}");
    let (_, _, err) = lighty!().config(&config).run(&["-t", "-f", "@CONF@"]);
    assert!(err.contains("can carry an upgrade"), "{err}");
}

#[test]
fn the_build_says_that_it_has_pcre() {
    let (_, out, _) = lighty!().run(&["-V"]);
    assert!(out.contains("+ PCRE support"), "{out}");
}

/// A configuration copied from a web page: typographic quotes, dashes, arrows and spaces.
const PASTED: &str = "# “as is” – really\nserver.tag = “it’s # “\nserver.dir–listing = «enable»\n\
    $HTTP[‘host’] == “a.example” {\n    setenv.add-response-header\u{a0}= ( “X” ⇒ \"“y”\" )\n}\n";

#[test]
fn typographic_characters_are_named_with_their_place() {
    let setup = lighty!().config(PASTED);
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 1, "{err}");
    for message in [
        "`“` (left double quotation mark, U+201C): text stands between plain quotes",
        "`–` (en dash, U+2013): the plain `-` belongs here",
        "`«` (guillemet, U+00AB)",
        "`‘` (left single quotation mark, U+2018)",
        "`⇒` (arrow, U+21D2): write `=>`",
        "`lighty fmt` mends them",
    ] {
        assert!(err.contains(message), "{message}:\n{err}");
    }
    let pasted = setup.directory().join("value.conf");
    write_file(&pasted, "server.port = “eighty”\nserver.tag = ( “a”, “b” «c” )\n");
    let (code, _, value) = setup.run(&["-t", "-f", pasted.to_str().expect("UTF-8")]);
    assert_eq!(code, 1, "{value}");
    assert!(value.contains("1:15: error: server.port must be a number, not \"eighty\""), "{value}");
    assert!(value.contains("value.conf:2:23: error: a comma is missing after this"), "{value}");
    // Each quote gets an error; consequential errors, comments and correct strings get none.
    assert_eq!(err.matches("error: ").count(), 7, "{err}");
    assert_eq!(err.matches("[typography]").count(), 7, "{err}");
    assert!(!err.contains("[unknown-directive]"), "{err}");
    let caret = err.lines().skip_while(|line| !line.contains("server.tag")).nth(1);
    assert!(caret.is_some_and(|line| line.ends_with("|              ^")), "{err}");
}

#[test]
fn formatting_mends_typographic_characters_outside_of_strings() {
    let setup = lighty!();
    let path = setup.directory().join("pasted.conf");
    write_file(&path, PASTED);
    let name = path.to_str().expect("UTF-8");
    assert_eq!(setup.run(&["fmt", "--check", name]).0, 1);
    let (code, _, err) = setup.run(&["fmt", name]);
    assert_eq!((code, err.as_str()), (0, ""));
    let text = std::fs::read_to_string(&path).expect("the file");
    let wanted = "# “as is” – really\nserver.tag = \"it’s # \"\nserver.dir-listing = \"enable\"\n\
                  $HTTP[\"host\"] == \"a.example\" {\n    setenv.add-response-header = ( \"X\" => \
                  \"“y”\" )\n}\n";
    assert_eq!(text, wanted);
    let (code, _, err) = setup.run(&["-t", "--strict", "-f", name]);
    assert_eq!((code, err.as_str()), (0, ""));
    // A file that cannot be repaired stays unchanged, and its errors keep their lines.
    write_file(&path, "server.tag = “x”\nserver.port = (\n");
    let (code, _, err) = setup.run(&["fmt", name]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("pasted.conf:1:14") && err.contains("pasted.conf:2:15"), "{err}");
}

/// lighttpd 1.4 starts with it too.
#[test]
fn an_error_handler_without_a_slash_is_beneath_the_root() {
    let line = "server.error-handler-404 = \"a.txt\"";
    let server = lighty!().file("a.txt", "here").config(line).start();
    assert_eq!(server.get("/none").text(), "here");
    server.await_log("\"/a.txt\" is taken");
    let line = "server.error-handler-404 = \"http://a.test/\"";
    let server = lighty!().config(line).start();
    assert_eq!(server.get("/none").status, 404);
    server.await_log("it is left out");
}

#[test]
fn host_names_without_an_address_and_root_are_named_under_tt() {
    let setup = lighty!().config(
        "fastcgi.server = ( \"/a\" => (( \"host\" => \"none.invalid\", \"port\" => 9000 )) )\n\
         proxy.server = ( \"/b\" => (( \"host\" => \"127.0.0.1\", \"port\" => 81 ), \
                                   ( \"host\" => \"localhost\", \"port\" => 82 )) )\n\
         $HTTP[\"url\"] =^ \"/c\" { proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"other.invalid:80\", \"[::1]:81\", \"unix:/tmp/none.invalid\" ) }\n\
         server.username = \"root\"",
    );
    let (code, out, err) = setup.run(&["-tt", "-f", "@CONF@"]);
    let printed = out + &err;
    assert_eq!(code, 0, "{printed}");
    for name in ["none.invalid", "other.invalid"] {
        assert!(printed.contains(&format!("the backend's host {name}")), "{name}: {printed}");
    }
    assert_eq!(printed.matches("the backend's host").count(), 2, "{printed}");
    assert!(printed.contains("server.username names root"), "{printed}");
    let (_, out, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert!(!(out + &err).contains("the backend's host"), "-t asks no DNS");
}
