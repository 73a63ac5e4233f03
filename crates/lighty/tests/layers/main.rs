//! The architecture's rules, as tests: which crate may know which, where `unsafe` may stand, how
//! long a function may be. Plain text scanning of the sources; a rule that a lint can hold is
//! left to the lint.

mod circles;
mod dependencies;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which crates of the project each crate may depend on (architecture, rule R1).
const EDGES: &[(&str, &[&str])] = &[
    ("lighty-buf", &[]),
    ("lighty-http", &[]),
    ("lighty-config", &[]),
    ("lighty-wire", &["lighty-buf", "lighty-http"]),
    ("lighty-io", &["lighty-buf"]),
    ("lighty-core", &["lighty-buf", "lighty-http", "lighty-wire", "lighty-config", "lighty-io"]),
    ("lighty-lua", &["lighty-http", "lighty-io"]),
    ("lighty-fetch", &["lighty-http", "lighty-wire", "lighty-io"]),
    ("lighty-acme", &["lighty-http", "lighty-io", "lighty-fetch"]),
    ("lighty-modules", FEATURES),
    ("lighty-proxy", BELOW_FEATURES),
    ("lighty-server", ABOVE_FEATURES),
    ("lighty-programs", &["lighty-http", "lighty-wire", "lighty-io", "lighty-lua", "lighty-fetch"]),
    ("lighty", WHOLE),
    ("lighty-testkit", &[]),
];

/// What features stand on; scripts are one of them.
const FEATURES: &[&str] = &[
    "lighty-acme",
    "lighty-buf",
    "lighty-fetch",
    "lighty-http",
    "lighty-wire",
    "lighty-config",
    "lighty-io",
    "lighty-core",
    "lighty-lua",
];

const BELOW_FEATURES: &[&str] =
    &["lighty-buf", "lighty-http", "lighty-wire", "lighty-config", "lighty-io", "lighty-core"];

const ABOVE_FEATURES: &[&str] = &[
    "lighty-acme",
    "lighty-buf",
    "lighty-http",
    "lighty-wire",
    "lighty-config",
    "lighty-io",
    "lighty-core",
    "lighty-lua",
    "lighty-modules",
    "lighty-proxy",
];

/// The door: the server, the programs beside it, and what it prints about it.
const WHOLE: &[&str] =
    &["lighty-server", "lighty-programs", "lighty-config", "lighty-core", "lighty-http"];

/// The crate in which `unsafe` may stand (R4).
const UNSAFE_CRATE: &str = "lighty-io";

/// Lines a file may have. Tables and files of tests are exempt: nobody reads them in one go.
const FILE_LINES_MAX: usize = 700;

/// Lines a function may have.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines that 95 of 100 functions keep within.
const FUNCTION_LINES_P95: usize = 30;

#[test]
fn crates_depend_only_on_those_below_them() {
    for (name, manifest) in manifests() {
        let allowed = EDGES
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name} is a new crate: say in EDGES what it may know"))
            .1;
        for (section, dependency) in own_dependencies(&manifest) {
            let in_tests = section == "dev-dependencies" && dependency == "lighty-testkit";
            assert!(
                in_tests || allowed.contains(&dependency.as_str()),
                "{name} must not know {dependency} ({section})"
            );
        }
    }
}

#[test]
fn features_do_not_import_each_other() {
    let sources = workspace().join("crates/lighty-modules/src");
    let features: Vec<String> = std::fs::read_dir(&sources)
        .expect("the features' directory")
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| name != "lib")
        .collect();
    for path in rust_files(&sources) {
        let own = path.strip_prefix(&sources).expect("beneath it").components().next();
        let own = own.and_then(|c| Path::new(c.as_os_str()).file_stem()?.to_str());
        for line in code_lines(&path) {
            for other in
                features.iter().filter(|name| Some(name.as_str()) != own && own != Some("lib"))
            {
                let crosses = line.contains(&format!("crate::{other}"));
                assert!(!crosses, "{} imports {other}: {line}", path.display());
            }
        }
    }
}

#[test]
fn unsafe_code_is_in_the_machine_room_only_and_says_why_it_is_sound() {
    for (name, directory) in crates() {
        let sources = directory.join("src");
        if name == UNSAFE_CRATE {
            for path in rust_files(&sources) {
                check_safety_comments(&path);
            }
            continue;
        }
        let root = ["lib.rs", "main.rs"].map(|f| sources.join(f)).into_iter().find(|p| p.exists());
        let text = std::fs::read_to_string(root.expect("a crate root")).expect("a text file");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
    }
}

fn check_safety_comments(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a text file");
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_block = !code.starts_with("//")
            && (code.contains("unsafe {") || code.starts_with("unsafe impl"));
        if !is_block {
            continue;
        }
        let from = number.saturating_sub(8);
        let explained = lines[from..=number].iter().any(|l| l.contains("SAFETY:"));
        assert!(explained, "{}:{}: no SAFETY comment", path.display(), number + 1);
    }
}

/// What every protocol shares. The words of HTTP/1's framing belong to `conn/h1`.
const SEAMS: &[&str] = &[
    "lighty-core/src/exchange/body.rs",
    "lighty-core/src/exchange/client.rs",
    "lighty-core/src/exchange.rs",
    "lighty-core/src/pipeline/filter.rs",
    "lighty-core/src/module.rs",
    "lighty-core/src/pipeline.rs",
    "lighty-core/src/exchange/request_state.rs",
    "lighty-core/src/exchange/response.rs",
    "lighty-core/src/exchange/tunnel.rs",
    "lighty-server/src/conn/driver.rs",
    "lighty-server/src/conn/sink.rs",
    "lighty-server/src/conn/stream.rs",
    CONNECTION,
];

/// The one of them that owns what carries the bytes.
const CONNECTION: &str = "lighty-server/src/conn.rs";

#[test]
fn what_protocols_share_knows_no_framing_and_no_socket() {
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
    for seam in SEAMS {
        let path = workspace().join("crates").join(seam);
        let text = std::fs::read_to_string(&path).expect("a seam");
        let own = text.split("#[cfg(test)]").next().unwrap_or_default();
        // Directives keep the names that administrators know.
        let own = own.replace("max-keep-alive", "").replace("max_keep_alive", "");
        let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
        let hit = own.split(|c| !is_in_word(c)).find(|word| framing.contains(word));
        assert!(hit.is_none() && !own.contains("keep-alive"), "{seam} knows {hit:?} of HTTP/1");
        let socket = ["transport::Stream", "Rc<Stream>", "&Stream"].map(|used| own.contains(used));
        assert!(*seam == CONNECTION || socket == [false; 3], "{seam} knows a socket");
    }
}

#[test]
fn the_lower_crates_do_no_io_and_read_no_clock() {
    let banned = [
        "std::fs",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "ToSocketAddrs",
        "std::os::unix::net",
        "SystemTime",
        "Instant::now",
        "tokio::",
    ];
    for name in ["lighty-buf", "lighty-http", "lighty-wire", "lighty-config"] {
        for path in rust_files(&workspace().join("crates").join(name).join("src")) {
            // The one door through which configuration files come in.
            let is_loader = name == "lighty-config" && path.ends_with("fs_loader.rs");
            if is_loader || is_test_file(&path) {
                continue;
            }
            for line in code_lines(&path) {
                let hit = banned.iter().find(|word| line.contains(*word));
                assert!(hit.is_none(), "{} uses {hit:?}: {line}", path.display());
            }
        }
    }
}

/// Where the machine's clocks may be read: a worker's clock, the end of a wait of a thread without
/// a loop, and timers of the runtime, whose time a simulation pauses.
const CLOCK_READERS: &[&str] = &[
    "lighty-io/src/clock.rs",
    "lighty-io/src/clock/deadline.rs",
    "lighty-io/src/simulated.rs",
    "lighty-io/src/clock/ticks.rs",
    "lighty-core/src/machine/status_board.rs",
];

#[test]
fn the_time_is_read_in_one_place() {
    for (name, directory) in crates() {
        for path in rust_files(&directory.join("src")) {
            let allowed = CLOCK_READERS.iter().any(|reader| path.ends_with(reader));
            if allowed || name == "lighty-testkit" || is_test_file(&path) {
                continue;
            }
            for line in code_lines(&path) {
                let reads = line.contains("Instant::now") || line.contains("SystemTime::now");
                assert!(!reads, "{}: {line}: ask a Clock, or a Deadline", path.display());
            }
        }
    }
}

/// Files are opened by the machine room, off the event loop.
#[test]
fn features_open_no_files() {
    for name in ["lighty-core", "lighty-modules", "lighty-proxy"] {
        for path in rust_files(&workspace().join("crates").join(name).join("src")) {
            if is_test_file(&path) {
                continue;
            }
            for line in code_lines(&path) {
                let opens = line.contains("std::fs") || line.contains("fs::File");
                assert!(!opens, "{}: {line}", path.display());
            }
        }
    }
}

/// An error has a type, so that its caller can act on it and its words stand in one place.
#[test]
fn no_function_fails_with_a_text() {
    for (name, directory) in crates() {
        for path in rust_files(&directory.join("src")) {
            if name == "lighty-testkit" || is_test_file(&path) {
                continue;
            }
            let code: String = code_lines(&path).join("\n");
            for function in code.split("fn ").skip(1) {
                let signature = function.split(['{', ';']).next().unwrap_or_default();
                let result = signature.split_once("->").map_or("", |(_, result)| result);
                let result: String = result.split_whitespace().collect();
                let is_text = result.contains("Result<") && result.contains(",String>");
                assert!(!is_text, "{}: fn {signature}", path.display());
            }
        }
    }
}

#[test]
fn no_file_is_a_drawer_for_odds_and_ends() {
    for (_, directory) in crates() {
        for path in rust_files(&directory) {
            let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or("");
            let banned = ["util", "utils", "common", "helper", "helpers", "misc", "manager"];
            assert!(!banned.contains(&stem), "{}", path.display());
        }
    }
}

#[test]
fn nothing_is_re_exported_by_the_glob() {
    for (_, directory) in crates() {
        for path in rust_files(&directory.join("src")) {
            for line in code_lines(&path) {
                let line = line.trim_start();
                let glob = line.starts_with("pub use") && line.contains("::*");
                assert!(!glob, "{}: {line}", path.display());
            }
        }
    }
}

/// A response or a module says what it is; nothing is decided by a feature's name.
#[test]
fn no_feature_is_asked_for_by_its_name() {
    for (_, directory) in crates() {
        for path in rust_files(&directory.join("src")) {
            for line in code_lines(&path) {
                let compares = ["== \"mod_", "!= \"mod_", "name() ==", "handler =="];
                let asks = compares.iter().any(|how| line.contains(how)) && !is_own_name(&line);
                assert!(!asks, "{}: {line}", path.display());
            }
        }
    }
}

/// A value of an enum looked up by the word for it.
fn is_own_name(line: &str) -> bool {
    line.contains("ALL.into_iter().find(")
}

#[test]
fn each_crate_begins_with_an_essay() {
    for (name, directory) in crates() {
        let root = ["src/lib.rs", "src/main.rs"].map(|f| directory.join(f));
        let root = root.into_iter().find(|p| p.exists()).expect("a crate root");
        let text = std::fs::read_to_string(root).expect("a text file");
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(lines >= 3, "{name} does not say what it is and how to read it");
    }
}

#[test]
fn files_and_functions_stay_short() {
    let mut lengths = Vec::new();
    for (_, directory) in crates() {
        for path in rust_files(&directory.join("src")) {
            let text = std::fs::read_to_string(&path).expect("a text file");
            let lines = text.lines().count();
            let exempt = is_test_file(&path)
                || path.file_stem().is_some_and(|s| s.to_string_lossy().ends_with("table"));
            assert!(exempt || lines <= FILE_LINES_MAX, "{}: {lines} lines", path.display());
            lengths.extend(functions(&text).into_iter().map(|(name, n)| (n, name, path.clone())));
        }
    }
    lengths.sort();
    let p95 = lengths[lengths.len() * 95 / 100].0;
    println!(
        "{} functions: median {} lines, 95th percentile {p95}",
        lengths.len(),
        lengths[lengths.len() / 2].0
    );
    let longest: Vec<_> = lengths.iter().rev().take(5).collect();
    assert!(longest[0].0 <= FUNCTION_LINES_MAX, "{longest:#?}");
    assert!(p95 <= FUNCTION_LINES_P95, "{p95} lines; the longest: {longest:#?}");
}

/// A module is `foo.rs`, with its parts in `foo/`. Its unit tests stand at its end; those of any
/// length are `foo/tests.rs`, or `foo_tests.rs` beside a module without parts.
#[test]
fn modules_and_their_tests_are_named_in_one_way() {
    for (_, directory) in crates() {
        for path in rust_files(&directory.join("src")) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let folder = path.parent().expect("a folder");
            assert_ne!(stem, "mod", "{}: name it by its folder", path.display());
            if stem == "tests" {
                let module = folder.with_extension("rs");
                assert!(module.exists(), "{}: tests of no module", path.display());
            }
            let Some(tested) = stem.strip_suffix("_tests") else { continue };
            let module = folder.join(tested).with_extension("rs");
            assert!(module.exists(), "{}: tests of no module", path.display());
            let parts = folder.join(tested);
            assert!(!parts.exists(), "{}: belongs into {}", path.display(), parts.display());
        }
    }
}

/// Columns of a comment; rustfmt holds those of code.
const COMMENT_COLUMNS_MAX: usize = 100;

#[test]
fn comments_keep_within_their_columns() {
    for (_, directory) in crates() {
        for path in rust_files(&directory) {
            let text = std::fs::read_to_string(&path).expect("a text file");
            for (number, line) in text.lines().enumerate() {
                let is_comment = line.trim_start().starts_with("//");
                let fits = !is_comment || line.chars().count() <= COMMENT_COLUMNS_MAX;
                assert!(fits, "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn no_path_of_somebodys_machine_is_in_the_tree() {
    let banned = [concat!("/wo", "rk/"), concat!("/home", "/"), concat!("/tmp/", "wt")];
    let mut files = Vec::new();
    for entry in std::fs::read_dir(workspace()).expect("the workspace").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != "target" && name != ".git" {
            collect(&entry.path(), &mut files);
        }
    }
    assert!(files.len() > 50, "only {} files were found", files.len());
    for path in files {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let hit = text.lines().find(|line| banned.iter().any(|word| line.contains(word)));
        // Examples and tests speak of users' home directories as such.
        let spoken = hit.is_some_and(|l| l.contains("/home/user") || l.contains("/home/alice"));
        assert!(hit.is_none() || spoken, "{}: {hit:?}", path.display());
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn crates() -> Vec<(String, PathBuf)> {
    let mut all: Vec<_> = std::fs::read_dir(workspace().join("crates"))
        .expect("the crates")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path))
        .collect();
    all.sort();
    assert!(all.len() >= 9, "only {} crates were found", all.len());
    all
}

fn manifests() -> BTreeMap<String, String> {
    crates()
        .into_iter()
        .map(|(name, path)| {
            (name, std::fs::read_to_string(path.join("Cargo.toml")).expect("a manifest"))
        })
        .collect()
}

/// Section and name of every dependency on a crate of the project.
fn own_dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.to_owned();
        } else if section.ends_with("dependencies") && line.starts_with("lighty") {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            found.push((section.clone(), line[..end].to_owned()));
        }
    }
    found
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(directory, &mut files);
    files.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    files
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_symlink() {
        return;
    }
    if !path.is_dir() {
        files.push(path.to_owned());
        return;
    }
    let name = path.file_name().unwrap_or_default();
    if name == "target" {
        return;
    }
    for entry in std::fs::read_dir(path).expect("a directory").flatten() {
        collect(&entry.path(), files);
    }
}

fn is_test_file(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem == "tests"
        || stem.ends_with("_tests")
        || path.components().any(|c| c.as_os_str() == "tests")
}

/// Lines of a file that are neither comment nor, at its end, unit tests.
fn code_lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("a text file");
    text.lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(str::to_owned)
        .collect()
}

/// Names and lengths of the functions in a formatted source: each ends at the first closing brace
/// that stands as far to the left as it began.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        if line.ends_with('}') {
            found.push((name, 1));
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let close = format!("{indent}}}");
        let declared = format!("{indent})");
        for (end, line) in lines.iter().enumerate().skip(start) {
            if *line == close {
                found.push((name, end - start + 1));
                break;
            }
            let is_declaration =
                line.ends_with(';') && (end == start || line.starts_with(&declared));
            if is_declaration {
                break;
            }
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let code = line.trim_start();
    if code.starts_with("//") {
        return None;
    }
    let (before, after) = code.split_once("fn ")?;
    let words = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern", "\"C\""];
    if !before.split_whitespace().all(|word| words.contains(&word)) {
        return None;
    }
    let end = after.find(['(', '<'])?;
    Some(after[..end].to_owned())
}
