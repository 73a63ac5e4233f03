//! Values at the edges of lighttpd's syntax: the separator alone, numbers beyond lighty's ranges,
//! paths that do not exist yet.

use std::path::Path;

use lighty_config::Kind;
use lighty_testkit::lighty;
use lighty_testkit::response::Response;
use lighty_testkit::server::Server;

/// A file of this test's directory, named from the root of the file system.
fn from_root(server: &Server, name: &str) -> String {
    let path = server.root(name);
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn root_directory_can_be_the_document_root() {
    for root in ["/", "//", "/."] {
        let server = lighty!()
            .config(&format!(
                "server.document-root := \"{root}\"\ncgi.assign = ( \".sh\" => \"/bin/sh\" )\n\
                 index-file.names = ( \"index.txt\" )\n\
                 $PHYSICAL[\"path\"] =~ \"^/[^/].*/secret\" {{ url.access-deny = ( \"\" ) }}"
            ))
            .file("a.txt", "A")
            .file("secret", "S")
            .file("dir/index.txt", "I")
            .file(
                "a.sh",
                "printf 'Content-Type: text/plain\\r\\n\\r\\n'; echo \"$SCRIPT_FILENAME\"",
            )
            .start();
        let get = |name: &str| server.get(&from_root(&server, name));
        assert_eq!(get("a.txt").text(), "A", "{root}");
        assert_eq!(get("dir/").text(), "I", "{root}");
        assert_eq!(get("none").status, 404, "{root}");
        assert_eq!(server.get("/").status, 403, "{root}");
        if root != "/." {
            let program = get("a.sh");
            assert_eq!(program.text().trim_end(), from_root(&server, "a.sh"), "{root}");
            assert_eq!(get("secret").status, 403, "{root}");
        }
    }
}

#[test]
fn separator_alone_is_a_place_for_every_directive() {
    let with_host = |server: &Server, host: &str, target: &str| -> Response {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        client.response()
    };
    for (lines, prefix) in [
        ("$HTTP[\"host\"] == \"x\" { server.document-root = \"/\" }", ""),
        ("evhost.path-pattern = \"/\"", ""),
        ("evhost.path-pattern = \"//\"", ""),
        ("alias.url = ( \"/r/\" => \"/\" )", "/r"),
        ("alias.url = ( \"/r\" => \"/\" )", "/r"),
        ("alias.url = ( \"\" => \"/\" )", ""),
        ("alias.url = ( \"/\" => \"/\" )", ""),
        ("userdir.basepath = \"/\"\nuserdir.path = \"/\"\nuserdir.active = \"enable\"", "/~"),
    ] {
        let server = lighty!().config(lines).file("a.txt", "A").start();
        let path = from_root(&server, "a.txt");
        let target = match prefix {
            "/~" => format!("/~{}", &path[1..]),
            _ => format!("{prefix}{path}"),
        };
        assert_eq!(with_host(&server, "x", &target).text(), "A", "{lines} {target}");
    }
    // The host's directory lies beneath the root: `/tmp` for the host `tmp`.
    let server = lighty!()
        .config("simple-vhost.server-root = \"/\"\nsimple-vhost.document-root = \"/\"")
        .file("a.txt", "A")
        .start();
    let path = from_root(&server, "a.txt");
    let (host, rest) = path[1..].split_once('/').expect("two segments");
    assert_eq!(with_host(&server, host, &format!("/{rest}")).text(), "A");
}

/// Numbers that lighttpd accepts.
const NUMBERS: [i64; 7] = [0, 1, 2, 65_535, 65_536, 2_147_483_647, 4_294_967_295];

/// Directives of lighttpd with a number, and its range here.
fn numbers() -> Vec<(&'static str, i64, i64)> {
    let rows = lighty_server::modules::directives();
    let numbers: Vec<_> = rows
        .iter()
        .filter(|row| matches!(row.since, "1.4" | "1.5") && row.name != "server.port")
        .filter_map(|row| match row.kind {
            Kind::Int { min, max } => Some((row.name, min, max)),
            _ => None,
        })
        .collect();
    assert!(numbers.len() > 30, "{numbers:?}");
    numbers
}

#[test]
fn every_number_of_lighttpd_is_taken_or_clamped_with_a_warning() {
    for number in NUMBERS {
        let numbers = numbers();
        let lines: Vec<_> =
            numbers.iter().map(|(name, ..)| format!("{name} := {number}\n")).collect();
        let setup = lighty!().config(&lines.concat());
        let (code, _, output) = setup.run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{number}: {output}");
        for (name, min, max) in numbers {
            let clamped = [
                (number > max).then(|| format!("{name} is at most {max}, which is used in place")),
                (number < min).then(|| format!("{name} is at least {min}, which is used in place")),
            ];
            for message in clamped.into_iter().flatten() {
                assert!(output.contains(&message), "{number}: {message}: {output}");
            }
            let is_clamped = output.contains(&format!("{name} is at "));
            assert_eq!(is_clamped, !(min..=max).contains(&number), "{name} {number}: {output}");
        }
        let setup = lighty!().config(&lines.concat());
        let (strict, _, output) = setup.run(&["-t", "--strict", "-f", "@CONF@"]);
        assert_eq!(strict, 0, "a value of lighttpd is no mistake: {output}");
    }
}

/// Starts a server for each directive that clamps the number.
fn server_starts_with(number: i64) {
    for (name, ..) in numbers().into_iter().filter(|(_, min, max)| !(*min..=*max).contains(&number))
    {
        let lines = format!("{name} := {number}");
        let server = lighty!().config(&lines).file("a.txt", "A").start();
        let status = server.get("/a.txt").status;
        assert_eq!(status, 200, "{lines}: {}", server.log());
    }
}

/// Defines a test for each of [`NUMBERS`]: they start hundreds of servers, so they run in parallel.
macro_rules! starts_with {
    ($($test:ident: $index:literal,)*) => {
        $(
            #[test]
            fn $test() {
                server_starts_with(NUMBERS[$index]);
            }
        )*

        #[test]
        fn every_number_has_a_test_of_starts() {
            assert_eq!([$($index),*], std::array::from_fn::<usize, { NUMBERS.len() }, _>(|i| i));
        }
    };
}

starts_with! {
    server_starts_with_0_clamped: 0,
    server_starts_with_1_clamped: 1,
    server_starts_with_2_clamped: 2,
    server_starts_with_65535_clamped: 3,
    server_starts_with_65536_clamped: 4,
    server_starts_with_two_to_the_31_clamped: 5,
    server_starts_with_two_to_the_32_clamped: 6,
}

/// lighttpd takes an empty string for the default of an enumeration.
#[test]
fn empty_words_set_nothing() {
    let rows = lighty_server::modules::directives();
    let choices = rows.iter().filter(|row| {
        let is_from_lighttpd = matches!(row.since, "1.4" | "1.5");
        is_from_lighttpd && matches!(row.kind, Kind::Choice(_) | Kind::Bool)
    });
    let names: Vec<_> = choices.map(|row| row.name).collect();
    assert!(names.len() > 30, "{names:?}");
    let strings = ["server.network-backend", "server.syslog-facility"];
    for name in names.into_iter().chain(strings) {
        let lines = format!("{name} := \"\"");
        let (code, _, output) = lighty!().config(&lines).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{name}: {output}");
    }
}

#[test]
fn values_that_messages_cannot_carry_are_left_out() {
    let setup = lighty!().file("a.txt", "A").file("b.nix", "B").config(
        "setenv.add-response-header = ( \"\" => \"a\", \"X N:\" => \"b\", \"X-A\" => \"\", \
         \"X-B\" => \"b\" )\nsetenv.add-request-header = ( \"Foo\" => \"\" )\n\
         mimetype.assign = ( \".txt\" => \"text/plain\", \".nix\" => \"\" )\n\
         cgi.assign = ( \".sh\" => \"/bin/sh\" )",
    );
    let setup = setup.file("a.sh", "printf 'X: y\\n\\n'; printf \"<$HTTP_FOO>\"");
    let (code, _, output) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{output}");
    assert_eq!(output.matches("is no name of a field and is left out").count(), 2, "{output}");
    let server = setup.start();
    let got = server.get("/a.txt");
    assert_eq!((got.field("X-A"), got.field("X-B")), (None, Some("b")), "{got:?}");
    assert_eq!(server.get("/b.nix").field("Content-Type"), Some("application/octet-stream"));
    assert_eq!(server.get("/a.sh").text(), "<>");
    assert_eq!(server.get_with("/a.sh", "Foo: cl\r\n").text(), "<cl>");
}

#[test]
fn a_redirection_beyond_all_statuses_is_permanent() {
    for code in [0, 199, 1000, 65_535, 4_294_967_295_u32] {
        let server = lighty!()
            .config(&format!("url.redirect = ( \"^/\" => \"/b\" )\nurl.redirect-code = {code}"))
            .start();
        assert_eq!(server.get("/").status, 301, "{code}");
    }
}

#[test]
fn numbers_of_programs_and_hosts_are_clamped() {
    for (key, number, message) in [
        ("max-procs", 0_i64, "\"max-procs\" is at least 1, which is used in place of 0"),
        ("max-procs", 65_535, "\"max-procs\" is at most 1024"),
        ("min-procs", 65_535, "\"min-procs\" is at most 1024"),
        ("idle-timeout", 4_294_967_295, "\"idle-timeout\" is at most 86400"),
        ("listen-backlog", 65_536, "\"listen-backlog\" is at most 65535"),
        ("disable-time", 4_294_967_295, "\"disable-time\" is at most 31536000"),
        ("connect-timeout", 4_294_967_295, "\"connect-timeout\" is at most 31536000"),
        ("read-timeout", 4_294_967_295, "\"read-timeout\" is at most 31536000"),
        ("write-timeout", 4_294_967_295, "\"write-timeout\" is at most 31536000"),
        ("max-load-per-proc", 65_536, "\"max-load-per-proc\" is at most 65535"),
    ] {
        let lines = format!(
            "fastcgi.server = ( \".x\" => (( \"socket\" => \"@DIR@/x.sock\", \
             \"bin-path\" => \"/bin/true\", \"{key}\" => {number} )) )"
        );
        let (code, _, output) = lighty!().config(&lines).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{key} {number}: {output}");
        assert!(
            output.contains("warning: ") && output.contains(message),
            "{key} {number}: {output}"
        );
    }
    for (lines, message) in [
        ("auth.cache = ( \"max-age\" => 65536000 )", "is at most 86400"),
        ("dir-listing.cache = ( \"max-age\" => 4294967295 )", "\"max-age\" is at most 31536000"),
    ] {
        let (code, _, output) = lighty!().config(lines).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{lines}: {output}");
        assert!(output.contains(message), "{lines}: {output}");
    }
    for (lines, message) in [
        ("server.port := 73310", "must be from 0 to 65535"),
        ("fastcgi.server = ( \"\" => (( \"host\" => \"::1\", \"port\" => 65536 )) )", "65535"),
    ] {
        let (code, _, output) = lighty!().config(lines).run(&["-t", "-f", "@CONF@"]);
        assert_eq!(code, 1, "another port is another server: {output}");
        assert!(output.contains(message), "{output}");
    }
}

#[test]
fn missing_places_keep_no_other_host_from_being_served() {
    for lines in [
        "$HTTP[\"host\"] == \"gone\" { server.document-root = \"@DIR@/none\" }",
        "simple-vhost.server-root = \"@DIR@/none\"",
        "userdir.basepath = \"@DIR@/none\"\nuserdir.path = \"\"",
        "secdownload.secret = \"a secret of some length\"\n\
         secdownload.document-root = \"@DIR@/none\"\nsecdownload.uri-prefix = \"/dl/\"",
        "$HTTP[\"host\"] == \"gone\" { magnet.attract-raw-url-to = ( \"@DIR@/none.lua\" ) }",
        "$HTTP[\"host\"] == \"gone\" { auth.backend.htpasswd.userfile = \"@DIR@/none\" }",
        "alias.url = ( \"/none/\" => \"@DIR@/none/\" )",
        "server.upload-dirs = ( \"@DIR@/none\" )",
        "deflate.cache-dir = \"@DIR@/root/a.txt/none\"",
    ] {
        let setup = lighty!().config(lines).file("a.txt", "A");
        let (code, _, output) = setup.run(&["-tt", "-f", "@CONF@"]);
        assert_eq!(code, 0, "{lines}: {output}");
        assert!(output.contains("warning: ") && output.contains("none"), "{lines}: {output}");
        let (code, _, output) = setup.run(&["-tt", "--strict", "-f", "@CONF@"]);
        assert_eq!(code, 1, "{lines}: {output}");
        let server = setup.start();
        assert_eq!(server.get("/a.txt").text(), "A", "{lines}");
    }
}

#[test]
fn document_root_may_be_mounted_later() {
    let server = lighty!().config("server.document-root := \"@DIR@/later\"").start();
    server.await_log("/later\": No such file or directory");
    assert_eq!(server.get("/a.txt").status, 404);
    let later = server.directory().join("later");
    std::fs::create_dir(&later).expect("made");
    std::fs::write(Path::new(&later).join("a.txt"), "A").expect("written");
    assert!(lighty_testkit::wait_until(std::time::Duration::from_secs(60), || {
        server.get("/a.txt").status == 200
    }));
}

#[test]
fn empty_pattern_of_hosts_leaves_the_one_around_it() {
    let server = lighty!()
        .config(
            "evhost.path-pattern = \"@DIR@/v/%0/\"\n\
             $HTTP[\"url\"] =~ \"txt\" { evhost.path-pattern = \"\" }\n\
             $HTTP[\"url\"] =~ \"html\" { evhost.path-pattern = \"@DIR@/w/%0/\" }",
        )
        .file("a.txt", "root")
        .file("../v/localhost/a.txt", "v")
        .file("../w/localhost/a.html", "w")
        .start();
    assert_eq!(server.get("/a.txt").text(), "v");
    assert_eq!(server.get("/a.html").text(), "w");
}
