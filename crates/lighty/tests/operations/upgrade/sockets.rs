//! Listening sockets over upgrades that change the number of workers.

use super::*;

/// Number of listening sockets at a port, of all processes of this network namespace.
fn listening(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
    let is_it = |line: &&str| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().unwrap_or_default();
        let state = columns.nth(1).unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && state == "0A"
    };
    table.lines().filter(is_it).count()
}

/// Requests that each worker has counted.
fn by_worker(line: &Line) -> Vec<u64> {
    let workers = line.json("status")["workers"].clone();
    let workers = workers.as_array().expect("workers").clone();
    workers.iter().map(|one| one["requests"].as_u64().expect("a number")).collect()
}

fn serve(line: &Line, count: usize) {
    for _ in 0..count {
        let response = get(line.first.address()).expect("a response");
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}

#[test]
fn surplus_sockets_stay_with_their_listener() {
    let line = Line::start(site().config("server.max-worker = 4"));
    let path = line.first.directory().join("lighty.conf");
    let text = std::fs::read_to_string(&path).expect("the configuration");
    let port = line.first.address().port();
    assert_eq!(listening(port), 4);
    let workers = |count: usize| {
        let line = format!("server.max-worker = {count}");
        write_file(&path, text.replace("server.max-worker = 4", &line));
    };
    workers(2);
    line.upgrade();
    assert_eq!((listening(port), by_worker(&line).len()), (4, 2));
    let before = by_worker(&line);
    serve(&line, 200);
    let shares: Vec<_> = by_worker(&line).iter().zip(before).map(|(now, was)| now - was).collect();
    assert!(shares.iter().all(|share| *share >= 30), "of 200: {shares:?}");

    // A reload that changes nothing closes none of them, and names no listener as removed.
    let out = line.done(&["reload", "--dry-run"]);
    assert!(!out.contains("removed"), "{out}");
    line.done(&["reload"]);
    serve(&line, 40);
    assert_eq!(listening(port), 4);

    // More workers take them, fewer leave them to the others.
    for (count, sockets) in [(3, 4), (4, 4), (5, 5), (1, 1)] {
        workers(count);
        line.done(&["reload"]);
        serve(&line, 40);
        let is_done = || by_worker(&line).len() == count && listening(port) == sockets;
        let found = || (by_worker(&line).len(), listening(port));
        assert!(wait_until(PATIENCE, is_done), "{count} workers: {:?}", found());
    }

    // As many times as one likes.
    for count in [3, 1, 3, 2] {
        workers(count);
        line.upgrade();
        serve(&line, 40);
        assert_eq!((by_worker(&line).len(), listening(port)), (count, 3));
    }
}
