//! Reload after reload under load: nothing is lost, cut or closed, and nothing grows. Each third
//! reload changes listeners, each tenth is refused.
//! `LIGHTY_RELOADS` sets how many (1,000), `LIGHTY_SOCKETS` the tunnels that live meanwhile (100).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lighty_testkit::backend::Port;
use lighty_testkit::client::Client;
use lighty_testkit::wait_until;
use rustix::process::Signal;

use super::site::{Echo, ReloadSite};

const CLIENTS: usize = 8;
const WORKERS: usize = 2;
const DOWNLOADS: usize = 20;

/// More than sockets hold, so that it takes until the end.
const LARGE: usize = 24 << 20;

/// Bytes that a download reads at each reload.
const PIECE: usize = 4 << 10;

/// Receive buffer of a download, larger than the bytes read before the last reload. A reader that
/// empties the buffer waits seconds for its peer's probe of the zero window.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Growth allowed between the second and the last tenth of the reloads. Compares the minimum of
/// each, because freed memory is returned to the system only from time to time.
const GROWTH_KIB_MAX: u64 = 1536;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn threads(site: &ReloadSite) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", site.server.pid())).expect("a process");
    tasks.count()
}

/// Configuration of a turn: conditions, weights, modules, logs and limits change. Downloads pause
/// until the last reload, which takes minutes on a busy machine. A backend may be as slow.
fn lines(echo: &Echo, quiet: &Echo, port: &Port, turn: usize) -> String {
    let mut text = format!(
        "server.tag = \"turn-{turn}\"\nserver.errorlog-level = \"warning\"\n\
         server.max-keep-alive-requests = 10000000\n\
         server.max-write-idle = 30000\n\
         server.max-request-size = {}\n\
         $HTTP[\"url\"] =~ \"^/p\" {{\n  proxy-core.protocol = \"http\"\n  \
         proxy-core.upgrade = \"enable\"\n  proxy-core.max-pool-size = 4096\n  \
         proxy-core.backends = ( \"{}\" )\n  \
         proxy-core.weights = ( \"{}\" => {} )\n}}\n",
        1000 + turn,
        echo.address,
        echo.address,
        1 + turn % 7,
    );
    text += &format!(
        "proxy.server = ( \"/q\" => ( ( \"host\" => \"{}\", \"port\" => {} ) ) )\n\
         proxy-core.max-keep-alive-requests = 100000\n\
         proxy-core.max-idle-time = 600\nproxy-core.connect-timeout = {}\n",
        quiet.address.ip(),
        quiet.address.port(),
        3 + turn % 4,
    );
    if turn % 2 == 1 {
        text += "setenv.add-response-header = ( \"X-Odd\" => \"yes\" )\n";
    }
    if turn % 3 == 1 {
        text += &format!("accesslog.filename = \"@DIR@/access-{}.log\"\n", turn % 2);
    }
    // Comes, gets another queue, and goes.
    if turn % 9 >= 3 {
        let (address, backlog) = (port.address(), 100 + turn % 9 / 6);
        text += &format!(
            "$SERVER[\"socket\"] == \"{address}\" {{ server.listen-backlog = {backlog} }}\n"
        );
    }
    for host in 0..turn % 5 {
        text += &format!("$HTTP[\"host\"] == \"h{host}\" {{ server.tag = \"host\" }}\n");
    }
    text
}

/// Sends requests on one connection until `stop`, and counts them.
fn keep_asking(address: SocketAddr, stop: &AtomicBool, requested: &AtomicUsize) {
    let mut client = Client::tcp(address);
    while !stop.load(Ordering::Relaxed) {
        for (target, body) in [("/a", "static"), ("/p", "proxied")] {
            ask(&mut client, target, body);
        }
        requested.fetch_add(1, Ordering::Relaxed);
        // A steady load, not a full machine: there the reloads take minutes.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn ask(client: &mut Client, target: &str, body: &str) {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: h1\r\n\r\n"));
    let response = client.response();
    assert!(!response.says_close(), "kept alive through a reload: {response:?}");
    assert_eq!((response.status, response.text()), (200, body));
}

fn upgraded(site: &ReloadSite) -> Client {
    let mut client = site.server.connect();
    client.send("GET /p HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.response_head().status, 101);
    client
}

fn expect_echo(client: &mut Client, turn: usize) {
    let message = format!("turn {turn:06}");
    client.send(&message);
    let echo = client.read_exact(message.len()).expect("the tunnel is open");
    assert_eq!(echo, message.as_bytes());
}

fn downloading(site: &ReloadSite) -> Client {
    let mut client = Client::tcp_with_receive_buffer(site.server.address(), RECEIVE_BUFFER);
    client.send("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response_head().status, 200);
    client
}

#[test]
fn reload_after_reload_loses_and_keeps_nothing() {
    let (echo, quiet, port) = (Echo::start(), Echo::start(), Port::reserve());
    let large = vec![b'x'; LARGE];
    let files: [(&str, &[u8]); 2] = [("a", b"static"), ("large", &large)];
    let site = ReloadSite::start(WORKERS, &lines(&echo, &quiet, &port, 0), &files);
    let (stop, requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (stop, requested) = (Arc::clone(&stop), Arc::clone(&requested));
            let address = site.server.address();
            std::thread::spawn(move || keep_asking(address, &stop, &requested))
        })
        .collect();
    let mut sockets: Vec<Client> =
        (0..number("LIGHTY_SOCKETS", 100)).map(|_| upgraded(&site)).collect();
    let mut quietly = site.server.connect();
    let mut downloads: Vec<Client> = (0..DOWNLOADS).map(|_| downloading(&site)).collect();
    let mut taken = [0; DOWNLOADS];
    let (count, mut descriptors, mut threads_before) = (number("LIGHTY_RELOADS", 1_000), 0, 0);
    let mut least = [u64::MAX; 10];
    for turn in 1..=count {
        match turn % 10 {
            0 => assert!(site.refuse("server.tag = ").contains("lighty.conf:")),
            _ => site.change(&lines(&echo, &quiet, &port, turn)),
        }
        if turn % 10 != 0 && turn % 9 >= 3 {
            ask(&mut Client::tcp(port.address()), "/a", "static");
        }
        let at = turn % sockets.len();
        expect_echo(&mut sockets[at], turn);
        ask(&mut quietly, "/q", "proxied");
        let at = turn % DOWNLOADS;
        taken[at] += downloads[at].read_exact(PIECE).map_or(0, |bytes| bytes.len());
        if turn == 10 {
            (descriptors, threads_before) = (site.server.descriptors(), threads(&site));
        }
        let tenth = &mut least[(turn - 1) * 10 / count];
        *tenth = site.server.own_kib().min(*tenth);
    }
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("nothing was lost"));
    sockets.iter_mut().for_each(|socket| expect_echo(socket, count));
    for (at, mut download) in downloads.into_iter().enumerate() {
        assert_eq!(taken[at] + download.read_to_end().0.len(), LARGE, "download {at}");
    }
    let requested = requested.load(Ordering::Relaxed);
    println!("{count} reloads, {requested} rounds, at least {least:?} KiB");
    assert!(least[9] <= least[1] + GROWTH_KIB_MAX, "at least {least:?} KiB in each tenth");
    assert_eq!(quiet.opened(), 1, "the pool was kept");
    expect_counter(&site, &lines(&echo, &quiet, &port, 0), &quiet, count);
    drop(sockets);
    let settled = || site.server.descriptors() <= descriptors && threads(&site) <= threads_before;
    let patience = std::time::Duration::from_secs(60);
    assert!(wait_until(patience, settled), "{descriptors} {threads_before}");
}

/// The backend's requests are all still counted.
fn expect_counter(site: &ReloadSite, lines: &str, backend: &Echo, count: usize) {
    site.change(&lines.replace("\"warning\"", "\"notice\""));
    site.server.signal(Signal::USR2);
    site.server.await_log(&format!(".backends.\"{}\".requests: {count}", backend.address));
}
