//! Rules about names and vocabulary: of files, of machines, and of code shared by all protocols.

use super::files::{TextFile, workspace};
use super::{Rule, Violation};

pub(super) const RULES: &[Rule<TextFile>] = &[
    Rule {
        name: "no file is a drawer for odds and ends",
        find: drawers,
        planted: &[
            ("crates/lighty-io/src/utils.rs", ""),
            ("crates/lighty-io/tests/io/helpers.rs", ""),
            ("crates/lighty-io/examples/misc.rs", ""),
        ],
        fine: &[("crates/lighty-io/src/common_log.rs", "")],
    },
    // A module is `foo.rs`, with its parts in `foo/`. Short unit tests are at its end. Long ones
    // are in `foo/tests.rs`, or in `foo_tests.rs` beside a module without parts.
    Rule {
        name: "modules and their tests are named in one way",
        find: unusual_modules,
        planted: &[
            ("crates/lighty-io/src/clock/mod.rs", ""),
            ("crates/lighty-io/src/nothing/tests.rs", ""),
            ("crates/lighty-io/src/nothing_tests.rs", ""),
            ("crates/lighty-io/src/clock_tests.rs", ""),
        ],
        fine: &[
            ("crates/lighty-io/src/clock/tests.rs", ""),
            ("crates/lighty-io/src/simulated_tests.rs", ""),
            ("crates/lighty-io/tests/nothing_tests.rs", ""),
        ],
    },
    Rule {
        name: "no path of somebody's machine is in the tree",
        find: machine_paths,
        planted: &[
            ("docs/one.md", concat!("Text.\ncd /wo", "rk/main")),
            ("scripts/one.sh", concat!("cd /home", "/bob")),
            ("Makefile", concat!("cd /tmp/", "wt/one")),
        ],
        fine: &[("docs/one.md", "Text of /home/alice and of /home/user/www, /homes and /works.")],
    },
    Rule {
        name: "what protocols share knows no framing and no socket",
        find: framing_in_seams,
        planted: &[
            ("crates/lighty-core/src/exchange.rs", "fn f() { response.chunked = true; }"),
            ("crates/lighty-core/src/module.rs", "fn f() { Name::Connection; }"),
            ("crates/lighty-core/src/pipeline.rs", "fn f() { \"keep-alive\"; }"),
            ("crates/lighty-server/src/conn/driver.rs", "use wire::http1;"),
            ("crates/lighty-server/src/conn/sink.rs", "fn f(stream: Rc<Stream>) {}"),
            ("crates/lighty-server/src/conn.rs", "fn f() { keep_alive }"),
        ],
        fine: &[
            ("crates/lighty-server/src/conn.rs", "fn f(stream: &Stream) { max_keep_alive }"),
            ("crates/lighty-server/src/conn/sink.rs", "fn f() {}\n#[cfg(test)]\nmod chunked;"),
            ("crates/lighty-server/src/conn/h1.rs", "fn f() { chunked(keep_alive) }"),
        ],
    },
];

fn drawers(file: &TextFile) -> Vec<Violation> {
    let banned = ["util", "utils", "common", "helper", "helpers", "misc", "manager"];
    let is_drawer = file.is_rust() && banned.contains(&file.stem());
    is_drawer.then(|| (1, "name it by what is in it".to_owned())).into_iter().collect()
}

fn unusual_modules(file: &TextFile) -> Vec<Violation> {
    if !file.is_rust() || file.below_src().is_none() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut report = |what: &str| found.push((1, what.to_owned()));
    let path = workspace().join(&file.path);
    let folder = path.parent().expect("a folder");
    let stem = file.stem();
    if stem == "mod" {
        report("name it by its folder");
    }
    if stem == "tests" && !folder.with_extension("rs").exists() {
        report("tests of no module");
    }
    if let Some(tested) = stem.strip_suffix("_tests") {
        if !folder.join(tested).with_extension("rs").exists() {
            report("tests of no module");
        }
        if folder.join(tested).exists() {
            report("belongs into the folder of the module");
        }
    }
    found
}

fn machine_paths(file: &TextFile) -> Vec<Violation> {
    let banned = [concat!("/wo", "rk/"), concat!("/home", "/"), concat!("/tmp/", "wt")];
    // Examples and tests speak of users' home directories as such.
    let spoken = ["/home/user", "/home/alice"];
    let mut found = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        let is_hit = banned.iter().any(|word| line.contains(word));
        if is_hit && !spoken.iter().any(|word| line.contains(word)) {
            found.push((at + 1, line.trim().to_owned()));
        }
    }
    found
}

/// Files shared by all protocols. The terms of HTTP/1 framing belong to `conn/h1`.
const SEAMS: &[&str] = &[
    "crates/lighty-core/src/exchange/body.rs",
    "crates/lighty-core/src/exchange/client.rs",
    "crates/lighty-core/src/exchange.rs",
    "crates/lighty-core/src/pipeline/filter.rs",
    "crates/lighty-core/src/module.rs",
    "crates/lighty-core/src/pipeline.rs",
    "crates/lighty-core/src/exchange/request_state.rs",
    "crates/lighty-core/src/exchange/response.rs",
    "crates/lighty-core/src/exchange/tunnel.rs",
    "crates/lighty-server/src/conn/driver.rs",
    "crates/lighty-server/src/conn/sink.rs",
    "crates/lighty-server/src/conn/stream.rs",
    CONNECTION,
];

/// The shared file that owns the transport.
const CONNECTION: &str = "crates/lighty-server/src/conn.rs";

#[test]
fn files_shared_by_protocols_exist() {
    for seam in SEAMS {
        assert!(workspace().join(seam).exists(), "{seam}");
    }
}

fn framing_in_seams(file: &TextFile) -> Vec<Violation> {
    if !SEAMS.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let framing = [
        "chunked",
        "Chunked",
        "unchunked",
        "keep_alive",
        "Connection",
        "TransferEncoding",
        "http1",
        "Http11",
    ];
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let own = file.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
    for (at, line) in own.enumerate() {
        // Directives keep the names that administrators know.
        let line = line.replace("max-keep-alive", "").replace("max_keep_alive", "");
        let word = line.split(|c| !is_in_word(c)).find(|word| framing.contains(word));
        let word = word.or_else(|| line.contains("keep-alive").then_some("keep-alive"));
        found.extend(word.map(|word| (at + 1, format!("knows {word} of HTTP/1"))));
        let has_socket = ["transport::Stream", "Rc<Stream>", "&Stream"].map(|s| line.contains(s));
        if file.path != CONNECTION && has_socket.contains(&true) {
            found.push((at + 1, "knows a socket".to_owned()));
        }
    }
    found
}
