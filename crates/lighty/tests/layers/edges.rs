//! Dependency rules between layers: crates, features, files, clocks and sockets.

use std::process::Command;

use super::files::{TextFile, crates, workspace};
use super::source::Source;
use super::{Rule, Violation};

/// Crates of the project that each crate may depend on.
const EDGES: &[(&str, &[&str])] = &[
    ("lighty-buf", &[]),
    ("lighty-http", &[]),
    ("lighty-config", &[]),
    ("lighty-wire", &["lighty-buf", "lighty-http"]),
    ("lighty-io", &["lighty-buf"]),
    ("lighty-cache", &["lighty-buf", "lighty-http", "lighty-io"]),
    ("lighty-core", &["lighty-buf", "lighty-http", "lighty-wire", "lighty-config", "lighty-io"]),
    ("lighty-lua", &["lighty-http", "lighty-io"]),
    ("lighty-fetch", &["lighty-http", "lighty-wire", "lighty-io"]),
    ("lighty-acme", &["lighty-http", "lighty-io", "lighty-fetch"]),
    ("lighty-identity", &["lighty-http", "lighty-io", "lighty-fetch"]),
    ("lighty-modules", FEATURES),
    ("lighty-proxy", BELOW_FEATURES),
    ("lighty-server", ABOVE_FEATURES),
    ("lighty-admin", OFFLINE),
    ("lighty-programs", &["lighty-http", "lighty-wire", "lighty-io", "lighty-lua", "lighty-fetch"]),
    ("lighty", WHOLE),
    ("lighty-testkit", &[]),
];

/// Code that features build on; scripts are a feature.
const FEATURES: &[&str] = &[
    "lighty-acme",
    "lighty-buf",
    "lighty-cache",
    "lighty-fetch",
    "lighty-http",
    "lighty-identity",
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
    "lighty-modules",
    "lighty-proxy",
];

/// Commands that need no running server.
const OFFLINE: &[&str] = &[
    "lighty-acme",
    "lighty-http",
    "lighty-wire",
    "lighty-config",
    "lighty-io",
    "lighty-core",
    "lighty-lua",
    "lighty-modules",
    "lighty-proxy",
    "lighty-server",
];

/// Command line: the server, the programs beside it, and their messages.
const WHOLE: &[&str] = &[
    "lighty-admin",
    "lighty-server",
    "lighty-programs",
    "lighty-config",
    "lighty-core",
    "lighty-http",
];

#[test]
fn crates_depend_only_on_those_below_them() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--no-deps"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let metadata = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    let found = forbidden_edges(&metadata);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let packages = metadata["packages"].as_array().expect("packages");
    let names: Vec<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    assert!(crates().iter().all(|name| names.contains(&name.as_str())), "{names:?}");
}

/// Dependencies between crates of the project that `EDGES` does not allow.
fn forbidden_edges(metadata: &serde_json::Value) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let Some((_, allowed)) = EDGES.iter().find(|(known, _)| *known == name) else {
            found.push(format!("{name} is a new crate: say in EDGES what it may know"));
            continue;
        };
        for edge in package["dependencies"].as_array().expect("dependencies") {
            let dependency = edge["name"].as_str().expect("a name");
            let in_tests = edge["kind"] == "dev" && dependency == "lighty-testkit";
            let is_own = dependency.starts_with("lighty");
            // cargo-deny only checks the sources of downloaded libraries.
            if edge["path"].is_string() && !is_own {
                found.push(format!("{name} takes {dependency} from {}", edge["path"]));
            }
            if is_own && !in_tests && !allowed.contains(&dependency) {
                found.push(format!("{name} must not know {dependency} ({})", edge["kind"]));
            }
        }
    }
    found
}

#[test]
fn planted_dependencies_are_found() {
    let edge = |from: &str, to: &str, kind: Option<&str>| {
        let dependencies = serde_json::json!([{ "name": to, "kind": kind }]);
        let package = serde_json::json!({ "name": from, "dependencies": dependencies });
        forbidden_edges(&serde_json::json!({ "packages": [package] })).len()
    };
    assert_eq!(edge("lighty-wire", "lighty-io", None), 1);
    assert_eq!(edge("lighty-io", "lighty-core", Some("dev")), 1);
    assert_eq!(edge("lighty-io", "lighty-wire", Some("build")), 1);
    assert_eq!(edge("lighty-io", "lighty-testkit", None), 1);
    assert_eq!(edge("lighty-new", "memchr", None), 1);
    assert_eq!(edge("lighty-io", "lighty-testkit", Some("dev")), 0);
    assert_eq!(edge("lighty-wire", "lighty-buf", None), 0);
    assert_eq!(edge("lighty-wire", "memchr", None), 0);
    let copy = serde_json::json!({ "name": "memchr", "kind": null, "path": "/vendor/memchr" });
    let package = serde_json::json!({ "name": "lighty-wire", "dependencies": [copy] });
    assert_eq!(forbidden_edges(&serde_json::json!({ "packages": [package] })).len(), 1);
}

pub(super) const RULES: &[Rule<Source>] = &[
    Rule {
        name: "features do not import each other",
        find: imports_between_features,
        planted: &[
            ("crates/lighty-modules/src/auth.rs", "use crate::ssi::Page;"),
            ("crates/lighty-modules/src/auth.rs", "use crate::{auth, ssi};"),
            ("crates/lighty-modules/src/auth.rs", "fn f() { super::ssi::page() }"),
            ("crates/lighty-modules/src/auth/basic.rs", "use super::super::ssi;"),
            ("crates/lighty-modules/src/auth.rs", "fn f() { assert!(crate::ssi::is_page()); }"),
            ("crates/lighty-modules/src/auth/tests.rs", "use crate::ssi;"),
            ("crates/lighty-modules/src/auth.rs", "#[cfg(test)] mod tests {} use crate::ssi;"),
        ],
        fine: &[
            ("crates/lighty-modules/src/lib.rs", "#![forbid(unsafe_code)] use crate::ssi;"),
            ("crates/lighty-modules/src/auth/basic.rs", "use crate::auth; use super::digest;"),
            ("crates/lighty-modules/src/auth.rs", "#[cfg(test)] mod tests { use crate::ssi; }"),
            (
                "crates/lighty-modules/src/auth.rs",
                "// use crate::ssi;\nconst A: &str = \"crate::ssi\";",
            ),
        ],
    },
    Rule {
        name: "the lower crates do no I/O and read no clock",
        find: io_in_lower_crates,
        planted: &[
            ("crates/lighty-buf/src/one.rs", "use std::{fs, io};"),
            ("crates/lighty-buf/src/one.rs", "fn f(_: TcpStream) {}"),
            ("crates/lighty-http/src/one.rs", "use std::net::TcpListener as Listener;"),
            ("crates/lighty-http/src/one.rs", "fn f(_: &std::net::UdpSocket) {}"),
            ("crates/lighty-wire/src/one.rs", "fn f(_: impl ToSocketAddrs) {}"),
            ("crates/lighty-wire/src/one.rs", "use std::os::unix::net;"),
            ("crates/lighty-config/src/one.rs", "fn f() { tokio::spawn(g()); }"),
            ("crates/lighty-config/src/one.rs", "fn f() { assert!(std::fs::exists(\"a\")); }"),
            ("crates/lighty-config/src/one.rs", "#[cfg(test)] mod tests {} use std::fs;"),
            ("crates/lighty-wire/src/one.rs", "use std::time::SystemTime;"),
        ],
        fine: &[
            ("crates/lighty-config/src/fs_loader.rs", "use std::fs;"),
            ("crates/lighty-wire/src/one/tests.rs", "use std::fs;"),
            ("crates/lighty-wire/src/one.rs", "#[cfg(test)] use std::fs;"),
            ("crates/lighty-wire/src/one.rs", "// std::fs\nfn f() { \"std::fs\"; }"),
            ("crates/lighty-io/src/one.rs", "use std::fs; use tokio::net;"),
        ],
    },
    Rule {
        name: "the time is read in one place",
        find: clock_reads,
        planted: &[
            ("crates/lighty-io/src/one.rs", "fn f() { std::time::Instant::now(); }"),
            ("crates/lighty-io/src/one.rs", "use std::time::Instant as I; fn f() { I::now(); }"),
            ("crates/lighty-core/src/one.rs", "fn f() { a.unwrap_or_else(Instant::now); }"),
            ("crates/lighty-core/src/one.rs", "fn f() { <Instant>::now(); }"),
            ("crates/lighty-core/src/one.rs", "fn f() { print!(\"{:?}\", SystemTime::now()); }"),
            ("crates/lighty-core/src/one.rs", "fn f() { SystemTime\n    ::now(); }"),
            ("crates/lighty-acme/src/one.rs", "fn f() { changed.elapsed(); }"),
            ("crates/lighty-io/src/one.rs", "use rustix::time::{ClockId, clock_gettime};"),
        ],
        fine: &[
            ("crates/lighty-io/src/clock.rs", "fn f() { Instant::now(); }"),
            ("crates/lighty-testkit/src/one.rs", "fn f() { Instant::now(); }"),
            ("crates/lighty-io/src/one.rs", "#[cfg(test)] fn f() { Instant::now(); }"),
            ("crates/lighty-io/src/one.rs", "// Instant::now\nfn f(_: Instant) { clock.now(); }"),
        ],
    },
    // Files are opened by the I/O layer, off the event loop.
    Rule {
        name: "features open no files",
        find: opened_files,
        planted: &[
            ("crates/lighty-core/src/one.rs", "use std::{fs, io};"),
            ("crates/lighty-modules/src/one.rs", "fn f() { std::fs::read(\"a\"); }"),
            ("crates/lighty-proxy/src/one.rs", "fn f(_: tokio::fs::File) {}"),
            ("crates/lighty-proxy/src/one.rs", "fn f(#[cfg(test)] a: u8) { std::fs::read(a); }"),
            ("crates/lighty-proxy/src/one.rs", "struct A { #[cfg(test)] a: u8, b: fs::File }"),
            ("crates/lighty-proxy/src/one.rs", "fn f() { #[cfg(test)] g(); std::fs::read(a); }"),
            ("crates/lighty-proxy/src/one.rs", "make! { use std::{fs, io}; }"),
            ("crates/lighty-proxy/src/one.rs", "fn f() { matches!(fs::File::open(a), Ok(_)); }"),
        ],
        fine: &[
            ("crates/lighty-proxy/src/one_tests.rs", "use std::fs;"),
            ("crates/lighty-proxy/src/one.rs", "#[cfg(test)] use std::fs;"),
            ("crates/lighty-proxy/src/one.rs", "fn f() { #[cfg(test)] std::fs::read(a); }"),
            ("crates/lighty-proxy/src/one.rs", "fn f(#[cfg(test)] a: fs::File) {}"),
            ("crates/lighty-server/src/one.rs", "use std::fs;"),
        ],
    },
    // ARCHITECTURE.md names the crates that make system calls.
    Rule {
        name: "only the I/O layer and the programs make system calls",
        find: system_calls,
        planted: &[
            ("crates/lighty-proxy/src/one.rs", "fn f() { rustix::io::read(a, b); }"),
            ("crates/lighty-core/src/one.rs", "use libc::getpid as pid;"),
        ],
        fine: &[
            ("crates/lighty-io/src/one.rs", "use rustix::fs;"),
            ("crates/lighty-proxy/src/one_tests.rs", "use rustix::fs;"),
            ("crates/lighty-proxy/src/one.rs", "// libc::getpid\nfn f() {}"),
        ],
    },
    // A worker serves thousands of connections: whoever blocks it, blocks all.
    Rule {
        name: "the event loop does not block",
        find: blocking_calls,
        planted: &[
            ("crates/lighty-server/src/conn/one.rs", "fn f() { std::fs::read(\"a\"); }"),
            ("crates/lighty-server/src/worker.rs", "use std::thread; fn f() { thread::sleep(a); }"),
            ("crates/lighty-lua/src/one.rs", "use std::process::Command;"),
            ("crates/lighty-modules/src/one.rs", "fn f() { std::thread::sleep(a); }"),
        ],
        fine: &[
            ("crates/lighty-server/src/boot.rs", "use std::fs;"),
            ("crates/lighty-server/src/conn/one_tests.rs", "use std::fs;"),
            (
                "crates/lighty-server/src/conn/one.rs",
                "async fn f() { tokio::time::sleep(a).await; }",
            ),
        ],
    },
    // Connections and listeners come from the I/O layer, which a simulation replaces.
    Rule {
        name: "features open no sockets",
        find: opened_sockets,
        planted: &[
            ("crates/lighty-core/src/one.rs", "use tokio::net::TcpListener as Listener;"),
            ("crates/lighty-proxy/src/one.rs", "fn f() { std::net::TcpStream::connect(a); }"),
            ("crates/lighty-lua/src/one.rs", "use std::os::unix::net::UnixStream;"),
            ("crates/lighty-server/src/conn/one.rs", "use tokio::net::TcpStream;"),
        ],
        fine: &[
            ("crates/lighty-proxy/src/one.rs", "use std::net::SocketAddr;"),
            ("crates/lighty-proxy/src/one_tests.rs", "use std::net::TcpStream;"),
            ("crates/lighty-io/src/one.rs", "use tokio::net::TcpStream;"),
        ],
    },
    // One owner per socket: a write elsewhere would mix bytes into a message.
    Rule {
        name: "only a socket's owner writes to it",
        find: socket_writes,
        planted: &[
            ("crates/lighty-server/src/one.rs", "fn f() { stream.try_write(b\"a\"); }"),
            ("crates/lighty-modules/src/one.rs", "fn f() { Stream::try_write(a, b); }"),
            ("crates/lighty-modules/src/one.rs", "fn f() { tunnel.poll_write(cx, b\"a\"); }"),
            ("crates/lighty-server/src/one.rs", "fn f() { sender.try_send(stream, queue, 1); }"),
            ("crates/lighty-server/src/one.rs", "async fn f() { a.send_timed(b, c).await; }"),
            ("crates/lighty-server/src/one.rs", "use lighty_io::send::Sender as S;"),
            ("crates/lighty-proxy/src/one.rs", "fn f() { File::from(stream.duplicate()?); }"),
            ("crates/lighty-proxy/src/one.rs", "use crate::connect::dial::{Dial, send};"),
            ("crates/lighty-server/src/conn/h2/turn.rs", "fn f() { sender.try_send(a, b, 1); }"),
        ],
        fine: &[
            ("crates/lighty-server/src/conn/h2/turn.rs", "fn f() { stream.try_write(b\"a\"); }"),
            ("crates/lighty-io/src/one.rs", "fn f() { stream.try_write(b\"a\"); }"),
            ("crates/lighty-server/src/one.rs", "fn f() { channel.send(a); use_sender(b); }"),
            ("crates/lighty-proxy/src/one.rs", "use crate::connect::dial::Dial;"),
        ],
    },
];

/// Files that may read the machine's clocks: a worker's clock, timeouts of threads without a loop,
/// and timers of the runtime, which a simulation pauses.
const CLOCK_READERS: &[&str] = &[
    "crates/lighty-io/src/clock.rs",
    "crates/lighty-io/src/clock/deadline.rs",
    "crates/lighty-io/src/simulated.rs",
    "crates/lighty-io/src/clock/ticks.rs",
    "crates/lighty-core/src/machine/status_board.rs",
    "crates/lighty-io/src/process/service_manager.rs",
];

const CLOCK_READS: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "UnixTime::now",
    "elapsed",
    "clock_gettime",
    "gettimeofday",
    "libc::time",
];

fn clock_reads(source: &Source) -> Vec<Violation> {
    let allowed = CLOCK_READERS.contains(&source.file.path.as_str());
    if allowed || source.file.crate_name() == "lighty-testkit" || source.file.is_test() {
        return Vec::new();
    }
    let mut found = named(source, CLOCK_READS);
    found.iter_mut().for_each(|(_, what)| what.push_str(": ask a Clock, or a Deadline"));
    found
}

fn io_in_lower_crates(source: &Source) -> Vec<Violation> {
    let lower = ["lighty-buf", "lighty-http", "lighty-wire", "lighty-config"];
    // The only place that reads configuration files.
    let is_loader = source.file.path == "crates/lighty-config/src/fs_loader.rs";
    if !lower.contains(&source.file.crate_name()) || is_loader || source.file.is_test() {
        return Vec::new();
    }
    let banned = [
        "std::fs",
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "ToSocketAddrs",
        "std::os::unix::net",
        "SystemTime",
        "Instant::now",
        "tokio",
    ];
    named(source, &banned)
}

fn opened_files(source: &Source) -> Vec<Violation> {
    let crates = ["lighty-core", "lighty-modules", "lighty-proxy"];
    if !crates.contains(&source.file.crate_name()) || source.file.is_test() {
        return Vec::new();
    }
    named(source, &["std::fs", "fs::File"])
}

fn system_calls(source: &Source) -> Vec<Violation> {
    let crates = [
        "lighty-buf",
        "lighty-http",
        "lighty-wire",
        "lighty-config",
        "lighty-core",
        "lighty-proxy",
        "lighty-lua",
        "lighty-modules",
    ];
    if !crates.contains(&source.file.crate_name()) || source.file.is_test() {
        return Vec::new();
    }
    named(source, &["rustix", "libc"])
}

/// Files that run outside the event loop: the main thread waits for the supervisor's at a stop.
const OUTSIDE_LOOP: &[&str] = &["crates/lighty-proxy/src/upstream/supervisor.rs"];

/// For files, core, modules and proxy have [`opened_files`].
fn blocking_calls(source: &Source) -> Vec<Violation> {
    let crate_name = source.file.crate_name();
    let in_loop = match crate_name {
        "lighty-core" | "lighty-modules" | "lighty-proxy" | "lighty-lua" => true,
        "lighty-server" => {
            let parts = ["conn", "listen", "worker"];
            let path = source.file.below_src().unwrap_or_default();
            parts.iter().any(|part| path.split(['/', '.']).next() == Some(part))
        }
        _ => false,
    };
    let is_outside = OUTSIDE_LOOP.contains(&source.file.path.as_str());
    if !in_loop || is_outside || source.file.is_test() {
        return Vec::new();
    }
    let files = matches!(crate_name, "lighty-server" | "lighty-lua").then_some("std::fs");
    let calls = ["thread::sleep", "process::Command"].into_iter().chain(files);
    named(source, &calls.collect::<Vec<_>>())
}

/// Public calls that write to a socket or to an end of a relayed stream, or give its descriptor
/// away. Others are private to lighty-io.
const WRITES: &[&str] = &[
    "try_write",
    "poll_write",
    "try_send",
    "send_timed",
    "send::Sender",
    "duplicate",
    "dial::send",
    "shutdown_write",
    "AsyncWriteExt",
];

/// Files that may use names of [`WRITES`], with these names.
const WRITERS: &[(&str, &[&str])] = &[
    // Owners of a socket, or of an end of a relayed stream.
    ("crates/lighty-proxy/src/connect/dial.rs", &["try_write"]),
    ("crates/lighty-proxy/src/connect/h2/backend_stream.rs", &["try_write", "shutdown_write"]),
    ("crates/lighty-proxy/src/connect/h2/driver.rs", &["try_write"]),
    ("crates/lighty-proxy/src/serve/upstream_call.rs", &["try_write"]),
    ("crates/lighty-proxy/src/upstream/health/checks.rs", &["dial::send"]),
    ("crates/lighty-proxy/src/upstream/health/http2_checks.rs", &["try_write", "dial::send"]),
    ("crates/lighty-proxy/src/websocket/pump.rs", &["poll_write"]),
    ("crates/lighty-server/src/conn/h1/input.rs", &["try_write"]),
    ("crates/lighty-server/src/conn/h1/output.rs", &["try_write", "try_send", "send_timed"]),
    ("crates/lighty-server/src/conn/h2/tunnel.rs", &["poll_write"]),
    ("crates/lighty-server/src/conn/h2/turn.rs", &["try_write"]),
    // The worker holds the sender for its connections.
    ("crates/lighty-server/src/worker.rs", &["send::Sender"]),
    ("crates/lighty-server/src/worker/thread.rs", &["send::Sender"]),
    // Owner of a directory's connection, and of the socket pair to the library.
    ("crates/lighty-identity/src/directory/channel.rs", &["AsyncWriteExt"]),
    // `Sink::try_send`, which calls that of the protocol.
    ("crates/lighty-server/src/conn/driver.rs", &["try_send"]),
    ("crates/lighty-server/src/conn/sink.rs", &["try_send"]),
    ("crates/lighty-server/src/conn/h2/output.rs", &["try_send"]),
    // Channels between threads, pipes of programs, and listening sockets of spawned backends.
    ("crates/lighty-core/src/machine/status_board.rs", &["try_send"]),
    ("crates/lighty-core/src/machine/status_board/carried.rs", &["try_send"]),
    ("crates/lighty-modules/src/tracing/access_exporter.rs", &["try_send"]),
    ("crates/lighty-modules/src/tracing/exporter.rs", &["try_send"]),
    ("crates/lighty-modules/src/tracing/telemetry.rs", &["try_send"]),
    ("crates/lighty-modules/src/cgi/talk.rs", &["poll_write"]),
    ("crates/lighty-proxy/src/upstream/supervisor/process.rs", &["duplicate"]),
];

fn socket_writes(source: &Source) -> Vec<Violation> {
    // The programs beside the server and the tests have connections of their own.
    let has_own =
        ["lighty-io", "lighty-programs", "lighty-testkit"].contains(&source.file.crate_name());
    if has_own || source.file.is_test() {
        return Vec::new();
    }
    let row = WRITERS.iter().find(|(path, _)| *path == source.file.path);
    let permitted = row.map_or(&[][..], |(_, names)| names);
    let is_refused = |name: &&&str| !permitted.contains(name);
    let refused: Vec<_> = WRITES.iter().filter(is_refused).copied().collect();
    named(source, &refused)
}

/// Names in [`WRITERS`], and files in it and in [`CLOCK_READERS`], without a use: such a row would
/// permit a later one unseen.
pub(super) fn idle_permissions(sources: &[Source]) -> Vec<String> {
    let find = |path: &str| sources.iter().find(|source| source.file.path == path);
    let is_idle = |path: &str, names: &[&str]| {
        find(path).is_none_or(|source| named(source, names).is_empty())
    };
    let mut found = Vec::new();
    for (path, names) in WRITERS {
        let idle = names.iter().filter(|name| is_idle(path, &[**name]));
        found.extend(idle.map(|name| format!("{path}: WRITERS permits {name}, which is unused")));
    }
    let idle = CLOCK_READERS.iter().filter(|path| is_idle(path, CLOCK_READS));
    found.extend(idle.map(|path| format!("{path}: CLOCK_READERS permits clocks, unused")));
    found
}

#[test]
fn permissions_without_a_use_are_found() {
    let (path, names) = WRITERS[0];
    let read = |text: &str| Source::read(TextFile::new(path, text));
    let is_reported = |text: &str| {
        let found = idle_permissions(&[read(text)]);
        found.contains(&format!("{path}: WRITERS permits {}, which is unused", names[0]))
    };
    assert!(is_reported("fn f() {}"));
    assert!(!is_reported(&format!("fn f() {{ a.{}(b); }}", names[0])));
}

fn opened_sockets(source: &Source) -> Vec<Violation> {
    let crates = ["lighty-core", "lighty-modules", "lighty-proxy", "lighty-lua", "lighty-server"];
    if !crates.contains(&source.file.crate_name()) || source.file.is_test() {
        return Vec::new();
    }
    named(source, &["tokio::net", "TcpStream", "TcpListener", "UnixStream", "UnixListener"])
}

/// Uses of one of `paths` in the source, alone or as a part of a path.
fn named(source: &Source, paths: &[&str]) -> Vec<Violation> {
    let all = source.all_paths();
    let mut found = Vec::new();
    for banned in paths {
        let parts: Vec<_> = banned.split("::").collect();
        let has = |path: &Vec<String>| path.windows(parts.len()).any(|run| run == parts);
        let in_path = all.iter().filter(|(path, _)| has(path)).map(|(_, line)| *line);
        let lines = in_path.chain(source.facts.names.get(*banned).copied());
        found.extend(lines.min().map(|line| (line, format!("uses {banned}"))));
    }
    found
}

fn imports_between_features(source: &Source) -> Vec<Violation> {
    let module = source.module();
    let own = module.split("::").next().unwrap_or_default();
    if source.file.crate_name() != "lighty-modules" || own.is_empty() {
        return Vec::new();
    }
    let other = |(path, line): (Vec<String>, usize)| {
        let feature = absolute(&module, &path)?.into_iter().next()?;
        let is_other = feature != own && is_feature(&feature);
        is_other.then(|| (line, format!("imports {feature}")))
    };
    let mut found: Vec<_> = source.all_paths().into_iter().filter_map(other).collect();
    found.dedup();
    found
}

fn is_feature(name: &str) -> bool {
    let sources = workspace().join("crates/lighty-modules/src");
    sources.join(name).with_extension("rs").exists() || sources.join(name).is_dir()
}

/// The path below the root of the crate, for one that `module` begins with `crate`, `self` or
/// `super`.
fn absolute(module: &str, path: &[String]) -> Option<Vec<String>> {
    let mut found: Vec<String> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => module.split("::").map(str::to_owned).collect(),
        _ => return None,
    };
    for part in path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => _ = found.pop(),
            name => found.push(name.to_owned()),
        }
    }
    Some(found)
}
