//! Servers without a document root: only backends, redirects or other directories respond.

use lighty_testkit::backend::Backend;
use lighty_testkit::gateway::Gateway;
use lighty_testkit::lighty;
use lighty_testkit::server::Setup;

const MESSAGE: &str = "server.document-root is not set here";

fn rootless(lines: &str) -> Setup {
    lighty!().without_document_root().config(lines)
}

#[test]
fn backends_answer_and_files_are_not_found() {
    let backend = Backend::answering("from the backend");
    let (host, port) = (backend.address().ip(), backend.address().port());
    let hosts = format!("(( \"host\" => \"{host}\", \"port\" => {port} ))");
    let name = backend.name();
    for lines in [
        format!("proxy.server = ( \"/app\" => {hosts} )"),
        format!(
            "$HTTP[\"url\"] =^ \"/app\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( \"{name}\" ) }}"
        ),
    ] {
        let server = rootless(&lines).start();
        assert_eq!(server.get("/app/x").text(), "from the backend", "{lines}");
        for path in ["/", "/etc/passwd", "/x/", "/x.php/a"] {
            assert_eq!(server.get(path).status, 404, "{path}, {lines}");
        }
        assert_eq!(server.get_with("/etc/passwd", "Range: bytes=0-1\r\n").status, 404);
        server.await_log(MESSAGE);
        assert_eq!(server.log().matches(MESSAGE).count(), 1, "{}", server.log());
    }
}

#[test]
fn redirects_and_virtual_hosts_need_none() {
    let server = rootless(
        "url.redirect = ( \"^/old\" => \"/new\" )\n\
         $HTTP[\"host\"] == \"files\" { server.document-root = \"@DIR@/root\" }",
    )
    .file("a", "x")
    .start();
    assert_eq!(server.get("/old").field("Location"), Some("/new"));
    assert_eq!(server.get("/a").status, 404);
    let mut client = server.connect();
    client.send("GET /a HTTP/1.1\r\nHost: files\r\n\r\n");
    assert_eq!(client.response().text(), "x");
}

/// Without a directory there is no script path for a program.
#[test]
fn programs_get_no_script_beneath_the_root_of_the_file_system() {
    for (gateway, name) in [(Gateway::Fastcgi, "fastcgi"), (Gateway::Scgi, "scgi")] {
        let backend = gateway.telling_variables();
        let port = backend.address().port();
        let server = rootless(&format!(
            "{name}.server = ( \"/app\" => (( \"host\" => \"127.0.0.1\", \"port\" => {port}, \
             \"check-local\" => \"disable\" )) )"
        ))
        .start();
        let output = server.get("/app/etc/x.php").text().to_owned();
        assert!(output.contains("SCRIPT_NAME=/app"), "{output}");
        for name in ["SCRIPT_FILENAME", "DOCUMENT_ROOT", "PATH_TRANSLATED"] {
            assert!(!output.contains(name), "{name}: {output}");
        }
    }
}

#[test]
fn checks_agree_with_the_start() {
    let redirects = rootless("url.redirect = ( \"^/old\" => \"/new\" )");
    for option in ["-t", "-tt"] {
        let (code, _, output) = redirects.run(&[option, "-f", "@CONF@"]);
        assert_eq!((code, output.contains("document-root")), (0, false), "{option}: {output}");
    }
    let nothing = rootless("server.tag = \"x\"");
    let (code, _, output) = nothing.run(&["-tt", "-f", "@CONF@"]);
    assert_eq!((code, output.contains("server.document-root is not set")), (1, true), "{output}");
    let (code, _, output) = nothing.run(&["-D", "-f", "@CONF@"]);
    assert_eq!((code, output.contains("server.document-root is not set")), (1, true), "{output}");
}
