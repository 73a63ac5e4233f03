//! Memory use of the process, and operation under a memory limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::lighty;

/// Control group of a test, removed when dropped.
struct Group(PathBuf);

impl Group {
    /// Creates a control group with a memory limit; `None` without permission (no root, a
    /// container).
    fn with_memory(bytes: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("lighty-test-{}", std::process::id());
        for (tree, file) in
            [(root.join("memory"), "memory.limit_in_bytes"), (root.into(), "memory.max")]
        {
            let group = tree.join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            if fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    fn has_killed(&self) -> bool {
        ["memory.oom_control", "memory.events"].iter().any(|file| {
            let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
            text.lines()
                .any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = || fs::remove_dir(&self.0).is_ok();
        lighty_testkit::wait_until(Duration::from_secs(60), gone);
    }
}

#[test]
fn an_idle_server_is_small() {
    let server = lighty!().config("server.max-worker = 2\nserver.sandbox = \"off\"").start();
    // With transparent huge pages always on, each touched part of the heap takes 2 MB.
    let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let most = if huge.is_ok_and(|text| text.contains("[always]")) { 18 } else { 3 };
    let idle = server.heap_kib();
    assert!(idle <= most * 1024, "{idle} KiB");
    let sandboxed = lighty!().config("server.max-worker = 2").start().heap_kib();
    assert!(sandboxed <= most * 1024 + 512, "{sandboxed} KiB in the sandbox");
    // A build with debug assertions has four times the text.
    if std::env::var_os("LIGHTY_BIN").is_some() {
        assert!(server.resident_kib() <= (most + 7) * 1024, "{} KiB", server.resident_kib());
    }
}

#[test]
fn a_tight_control_group_is_lived_in() {
    let Some(group) = Group::with_memory(64 << 20) else { return };
    let procs = group.0.join("cgroup.procs");
    let enter = format!("echo $$ > {} && exec \"$0\" \"$@\"", procs.display());
    let setup = lighty!()
        .through(["sh", "-c", &enter])
        .config(
            "server.max-worker = 2
             dir-listing.activate = \"enable\"
             deflate.enabled = \"enable\"
             deflate.mimetypes = ( \"text/\" )
             deflate.allowed-encodings = ( \"br\", \"zstd\" )
             mimetype.assign = ( \".txt\" => \"text/plain\" )",
        )
        .file("noise.txt", pattern(0, 24 << 20));
    fs::create_dir(setup.root("long")).expect("a directory");
    for number in 0..80_000 {
        fs::File::create(setup.root(&format!("long/{number:0200}"))).expect("a file");
    }
    let server = setup.start();
    let ask = |head: &str| {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
        client.set_deadline(Duration::from_secs(120));
        client.send(format!("{head}\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response_head().status, 200);
        client
    };
    // All of them are on their way at once.
    let mut clients = Vec::new();
    for coding in ["br", "zstd"] {
        for _ in 0..20 {
            let head = format!("GET /noise.txt HTTP/1.1\r\nAccept-Encoding: {coding}");
            clients.push(ask(&head));
        }
    }
    for _ in 0..4 {
        clients.push(ask("GET /long/ HTTP/1.1"));
    }
    server.await_log("dir-listing.max-memory");
    drop(clients);
    assert_eq!(server.get("/none").status, 404);
    assert!(!group.has_killed(), "{}", server.log());
    drop(server);
}
