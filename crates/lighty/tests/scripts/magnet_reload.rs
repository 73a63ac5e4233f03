//! A replaced configuration is freed even if its scripts have run.

use std::process::Command;
use std::time::Duration;

use lighty_testkit::lighty;
use lighty_testkit::server::{Server, binary, write_file};
use lighty_testkit::wait_until;

const FRONT: &str = "server.document-root = \"@DIR@/root\"\nserver.bind = \"127.0.0.1\"\n\
     server.port = 0\nserver.pid-file = \"@DIR@/lighty.pid\"\nserver.max-worker = 1\n\
     magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )\n\
     magnet.attract-response-start-to = ( \"@DIR@/s.lua\" )\n";

fn start(lines: &str) -> Server {
    let front = FRONT.replace("server.document-root = \"@DIR@/root\"\n", "");
    let setup = lighty!().without_listener().file("a.txt", "A").file("../s.lua", "local x = 1");
    setup.config(&format!("{front}{lines}")).start()
}

/// Reloads with these lines and has a script of the new configuration run.
fn reload(server: &Server, lines: &str) {
    let directory = server.directory().to_str().expect("a path in UTF-8");
    let text = format!("{FRONT}{lines}\n").replace("@DIR@", directory);
    write_file(&server.directory().join("lighty.conf"), text);
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .args(["reload", "--pid-file"])
        .arg(server.directory().join("lighty.pid"))
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(server.get("/a.txt").text(), "A", "{}", server.log());
}

/// Processes that the server has started and that still run.
fn children(server: &Server) -> usize {
    let parent = format!("PPid:\t{}", server.pid());
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let statuses =
        processes.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    statuses.filter(|status| status.lines().any(|line| line == parent)).count()
}

#[test]
fn replaced_configurations_take_their_log_commands_with_them() {
    let lines = |turn: usize| format!("accesslog.filename = \"|cat > @DIR@/log-{turn}\"");
    let server = start(&lines(0));
    assert_eq!(server.get("/a.txt").text(), "A");
    let before = children(&server);
    assert!(before > 0);
    for turn in 1..=10 {
        reload(&server, &lines(turn));
    }
    let ended = wait_until(Duration::from_secs(60), || children(&server) <= before);
    assert!(ended, "{} children, {before} before\n{}", children(&server), server.log());
}

#[test]
fn reloads_keep_no_memory_of_replaced_configurations() {
    const RELOADS: usize = 60;
    // A configuration with its Lua state takes 230 KiB and more.
    const GROWTH_KIB_MAX: u64 = RELOADS as u64 * 60;
    let server = start("");
    let lines = |turn: usize| format!("server.tag = \"turn-{turn}\"");
    for turn in 0..20 {
        reload(&server, &lines(turn));
    }
    let before = server.own_kib();
    for turn in 0..RELOADS {
        reload(&server, &lines(turn));
    }
    let growth = || server.own_kib().saturating_sub(before);
    let small = wait_until(Duration::from_secs(60), || growth() <= GROWTH_KIB_MAX);
    assert!(small, "{} KiB more after {RELOADS} reloads", growth());
}
