//! The number of workers and their parts change with a reload.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lighty_server::control::client::call;
use lighty_testkit::client::Client;
use lighty_testkit::wait_until;
use serde_json::{Value, json};

use super::site::{Echo, FRONT, ReloadSite};

const PATIENCE: Duration = Duration::from_secs(30);

/// Writes and reloads a configuration with another number of workers.
fn change(site: &ReloadSite, workers: usize, lines: &str) {
    site.write_whole(&format!("{FRONT}server.max-worker = {workers}\n{lines}\n"));
    let (status, out, err) = site.reload();
    assert_eq!(status, 0, "{out}{err}\n{}", site.server.log());
    assert!(!out.contains("not begun"), "{out}");
}

fn threads(site: &ReloadSite) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", site.server.pid())).expect("a process");
    let names = tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    names.filter(|name| name.starts_with("worker-")).count()
}

fn status(site: &ReloadSite) -> Value {
    let socket = site.server.directory().join("lighty.pid.ctl");
    call(&socket, "GET", "/status", &json!({})).expect("a status")
}

fn get(client: &mut Client) -> u16 {
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response().status
}

#[test]
fn workers_are_added_and_drained_without_losing_a_connection() {
    let site = ReloadSite::start(1, "", &[("a", b"static")]);
    let address = site.server.address();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(get(&mut Client::tcp(address)), 200);
                }
            });
        }
        for workers in [3, 2, 4, 1, 2, 1, 3] {
            change(&site, workers, "");
            let has_so_many = || threads(&site) == workers;
            assert!(wait_until(PATIENCE, has_so_many), "{} of {workers}", threads(&site));
            let listed = status(&site)["workers"].as_array().expect("workers").len();
            assert_eq!((listed, &status(&site)["hanging_workers"]), (workers, &json!([])));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn parts_of_workers_change_and_requests_under_way_end() {
    let large = vec![b'x'; 8 << 20];
    let echo = Echo::start();
    let lines = format!(
        "proxy-core.protocol = \"http\"\nproxy-core.upgrade = \"enable\"\n\
         $HTTP[\"url\"] =^ \"/p\" {{ proxy-core.backends = ( \"{}\" ) }}\n",
        echo.address
    );
    let site = ReloadSite::start(2, &lines, &[("a", b"static"), ("large", &large)]);
    assert_eq!(get(&mut site.server.connect()), 200);
    let descriptors = site.descriptors();
    let mut download = Client::tcp_with_receive_buffer(site.server.address(), 8 << 10);
    download.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(download.response_head().status, 200);
    let mut tunnel = site.server.connect();
    tunnel.send("GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(tunnel.response_head().status, 101);
    for engine in ["threads", "auto"] {
        for backend in ["write", "sendfile"] {
            let more = format!(
                "{lines}server.io-engine = \"{engine}\"\nserver.network-backend = \"{backend}\"\n"
            );
            change(&site, 2, &more);
            assert_eq!(get(&mut site.server.connect()), 200, "{engine} {backend}");
        }
    }
    tunnel.send("still here");
    assert_eq!(tunnel.read_exact(10).expect("the tunnel is open"), b"still here");
    assert_eq!(download.read_to_end().0.len(), large.len());
    drop(tunnel);
    assert!(wait_until(PATIENCE, || threads(&site) == 2), "{}", threads(&site));
    let settled = || site.server.descriptors() <= descriptors;
    assert!(wait_until(PATIENCE, settled), "{} {descriptors}", site.server.descriptors());
}

#[test]
fn refused_reload_leaves_no_worker_behind() {
    let site = ReloadSite::start(1, "", &[("a", b"static")]);
    site.write("server.max-worker := 2\nserver.errorlog = \"@DIR@/none/e.log\"");
    assert!(site.refused().contains("none/e.log"));
    assert!(wait_until(PATIENCE, || threads(&site) == 1), "{}", threads(&site));
    assert_eq!(get(&mut site.server.connect()), 200);
}
