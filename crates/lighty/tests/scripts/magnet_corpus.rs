//! Scripts of the kind written for lighttpd (`testdata/magnet`), in lighty and in lighttpd, on the
//! same site: both must give the same responses to the same requests.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use lighty_testkit::lighty;
use lighty_testkit::peer::{LighttpdPeer, ask};
use lighty_testkit::response::Response;
use lighty_testkit::server::Setup;

/// Header fields about the server, the time or a file's identity; each server has its own.
const OWN_FIELDS: &[&str] =
    &["Date", "Server", "ETag", "Last-Modified", "Connection", "Accept-Ranges", "Keep-Alive"];

/// Intended differences of lighty: script, target and reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("new-echo.lua", "/echo", "lighttpd gives the head of the request before its body"),
    ("new-type.lua", "/env.cgi", "lighttpd sends two fields of which a response has one"),
];

/// Names that scripts use of lighttpd 1.4's mod_magnet; each occurs in the corpus.
const NAMES: &[&str] = &[
    "b64dec",
    "b64enc",
    "b64urldec",
    "b64urlenc",
    "bsdec",
    "bsenc",
    "bsenc_json",
    "cookie_tokens",
    "digest_eq",
    "fspath_simplify",
    "header_tokens",
    "hexdec",
    "hexenc",
    "hmac",
    "hrtime",
    "md",
    "quoteddec",
    "quotedenc",
    "rand",
    "readdir",
    "secret_eq",
    "stat",
    "time",
    "urldec",
    "urldec_query",
    "urlenc",
    "urlenc_normalize",
    "urlenc_query",
    "xmlenc",
    "req_header",
    "req_attr",
    "req_env",
    "req_body",
    "req_item",
    "resp_header",
    "resp_body",
    "irequests",
    "plugin_stats",
    "stats",
    "collect",
    "start_time",
    "keep_alive",
    "RESTART_REQUEST",
];

#[test]
fn every_name_of_the_interface_is_in_the_corpus() {
    let all: String = scripts().into_iter().map(|script| script.text).collect();
    let tokens: Vec<&str> = all.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let missing: Vec<_> = NAMES.iter().filter(|name| !tokens.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

struct CorpusScript {
    name: String,
    text: String,
    stage: String,
    requests: Vec<String>,
}

#[test]
fn scripts_make_the_same_of_requests_as_in_lighttpd() {
    if !Path::new("/usr/lib/lighttpd/mod_magnet.so").exists() {
        eprintln!("SKIPPED: lighttpd has no mod_magnet");
        return;
    }
    let mut report = String::new();
    for script in scripts() {
        let Some(peer) = LighttpdPeer::setup("\"mod_magnet\", \"mod_cgi\", \"mod_indexfile\"")
        else {
            return;
        };
        let peer = LighttpdPeer::start(site(peer, Some(&script)));
        let lighty = site(
            lighty!().config("server.modules = ( \"mod_magnet\", \"mod_cgi\" )"),
            Some(&script),
        )
        .start();
        for request in &script.requests {
            let theirs = ask(peer.connect(), request);
            let ours = ask(lighty.connect(), request);
            let line = request.lines().next().unwrap_or_default();
            if let Some(what) = difference(&theirs, &ours)
                && !DIFFERENCES.iter().any(|(name, target, _)| {
                    *name == script.name && line.contains(&format!(" {target} "))
                })
            {
                writeln!(report, "{}: {line}: {what}", script.name).expect("a text");
            }
        }
        if report.contains(&format!("{}: ", script.name)) {
            writeln!(report, "lighttpd wrote:\n{}\nlighty wrote:\n{}", peer.log(), lighty.log())
                .expect("a text");
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// A script that changes nothing would agree everywhere.
#[test]
fn every_script_changes_what_lighttpd_responds() {
    let Some(plain) = LighttpdPeer::setup("\"mod_cgi\", \"mod_indexfile\"") else { return };
    if !Path::new("/usr/lib/lighttpd/mod_magnet.so").exists() {
        eprintln!("SKIPPED: lighttpd has no mod_magnet");
        return;
    }
    let plain = LighttpdPeer::start(site(plain, None));
    for script in scripts() {
        let Some(setup) = LighttpdPeer::setup("\"mod_magnet\", \"mod_cgi\", \"mod_indexfile\"")
        else {
            return;
        };
        let peer = LighttpdPeer::start(site(setup, Some(&script)));
        let mut changes = false;
        for request in &script.requests {
            let with = ask(peer.connect(), request);
            changes |= difference(&ask(plain.connect(), request), &with).is_some();
        }
        assert!(changes, "{} changes nothing:\n{}", script.name, peer.log());
    }
}

fn scripts() -> Vec<CorpusScript> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/magnet");
    let entries = std::fs::read_dir(directory).expect("the corpus").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "lua"));
    paths.sort();
    assert!(paths.len() > 20, "only {} scripts", paths.len());
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> CorpusScript {
    let text = std::fs::read_to_string(path).expect("a script");
    let printed = |what: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("-- ")?.strip_prefix(what));
        lines.map(|line| line.trim().to_owned()).collect()
    };
    let stage = printed("stage:").pop().expect("a stage");
    let requests = printed("ask:").iter().map(|line| request(line)).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    CorpusScript { name, stage, requests, text }
}

/// A whole request of a line `METHOD TARGET | Field: value | body TEXT`.
fn request(line: &str) -> String {
    let mut parts = line.split(" | ");
    let mut head = format!("{} HTTP/1.1\r\n", parts.next().unwrap_or_default());
    let mut body = "";
    let mut has_host = false;
    for part in parts {
        match part.strip_prefix("body ") {
            Some(text) => body = text,
            None => {
                has_host |= part.starts_with("Host:");
                head.push_str(&format!("{part}\r\n"));
            }
        }
    }
    if !has_host {
        head.push_str("Host: www.example.org\r\n");
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    format!("{head}Connection: close\r\n\r\n{body}")
}

/// The site that all scripts are run on.
fn site(setup: Setup, script: Option<&CorpusScript>) -> Setup {
    let program = "printf 'Content-Type: text/plain\\r\\nX-Powered-By: sh\\r\\n\\r\\n'\n\
        echo \"query=$QUERY_STRING script=$SCRIPT_NAME site=$SITE_NAME user=$SITE_USER\"\n\
        echo \"remove=$HTTP_X_REMOVE keep=$HTTP_X_KEEP added=$HTTP_X_ADDED\"\n";
    let setup = setup
        .file("index.html", "start\n")
        .file("file.txt", "0123456789\n")
        .file("index.cgi", program)
        .file("env.cgi", program)
        .file("blog/index.cgi", program)
        .file("blog/style.css", "p { }\n")
        .file("about.html", "about\n")
        .file("docs/index.html", "docs\n")
        .file("docs/a b.txt", "a b\n")
        .file("repair.html", "back soon\n")
        .file("images/a.png", "picture\n")
        .file("film.flv", "0123456789")
        .file("photos/1.jpg", "one\n")
        .file("photos/none.jpg", "none\n")
        .file("hosts/one.example/index.html", "first\n")
        .file("hosts/two.example/index.html", "second\n")
        .config(
            "index-file.names = ( \"index.html\" )\n\
             cgi.assign = ( \".cgi\" => \"/bin/sh\" )\n\
             mimetype.assign = ( \".html\" => \"text/html\", \".txt\" => \"text/plain\", \
             \".css\" => \"text/css\", \".png\" => \"image/png\", \".jpg\" => \"image/jpeg\" )",
        );
    let Some(script) = script else { return setup };
    let root = setup.root("").display().to_string();
    let text = script.text.replace("@SITE@", root.trim_end_matches('/'));
    let path = setup.directory().join("script.lua");
    lighty_testkit::server::write_file(&path, text);
    let stage = &script.stage;
    setup.config(&format!("magnet.attract-{stage}-to = ( \"@DIR@/script.lua\" )"))
}

/// Describes the difference between both responses.
fn difference(theirs: &Response, ours: &Response) -> Option<String> {
    let fields = |response: &Response| {
        let shown = |name: &String| !OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name));
        let mut fields: Vec<String> = response
            .fields
            .iter()
            .filter(|(name, _)| shown(name))
            .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
            // The framing of a body is the server's choice.
            .filter(|field| !field.starts_with("content-length") && !field.starts_with("transfer"))
            .collect();
        fields.sort();
        fields
    };
    // The text of an error page is the server's own.
    let is_page = theirs.status >= 400 && theirs.text().contains("<title>");
    let bodies =
        [theirs.text(), ours.text()].map(|text| if is_page { "" } else { text }.to_owned());
    let pairs = [theirs, ours].map(fields);
    let pairs = pairs.map(|mut fields| {
        fields.retain(|field| !is_page || !field.starts_with("content-type"));
        fields
    });
    (theirs.status != ours.status || bodies[0] != bodies[1] || pairs[0] != pairs[1]).then(|| {
        format!(
            "\n  lighttpd {} {:?}\n    {:?}\n  lighty   {} {:?}\n    {:?}",
            theirs.status, pairs[0], bodies[0], ours.status, pairs[1], bodies[1]
        )
    })
}
