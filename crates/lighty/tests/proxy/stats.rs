//! Statistics of upstreams and of a request's path: on USR2, and in the access log.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use lighty_testkit::backend::Port;
use lighty_testkit::lighty;
use lighty_testkit::origin::Origin;
use lighty_testkit::server::Server;
use lighty_testkit::wait_until;
use rustix::process::Signal;

const PATIENCE: Duration = Duration::from_secs(20);

/// A backend that takes its time over each request, one connection after the other.
fn slow(pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            std::thread::sleep(pause);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn access_log(server: &Server, lines: usize) -> Vec<String> {
    let path = server.directory().join("access.log");
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    assert!(wait_until(PATIENCE, || read().lines().count() >= lines), "{}", read());
    read().lines().map(str::to_owned).collect()
}

#[test]
fn figures_have_the_keys_of_lighttpd() {
    let (well, drained) = (Origin::start("well"), Origin::start("drained"));
    let (w, d) = (well.address(), drained.address());
    let server = lighty!()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{w}\", \"{d}\" )"))
        .config(&format!("proxy-core.weights = ( \"{d}\" => 0 )"))
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/").status, 200);
    }
    server.signal(Signal::USR2);
    server.await_log("proxy-core.requests: 3");
    let front = "proxy-core.0.backends.";
    for pair in [
        "proxy-core.0.requests: 3".to_owned(),
        "proxy-core.0.backlogged: 0".to_owned(),
        format!("{front}\"{w}\".state: up"),
        format!("{front}\"{w}\".requests: 3"),
        format!("{front}\"{w}\".requests_failed: 0"),
        format!("{front}\"{w}\".load: 0"),
        format!("{front}\"{w}\".pool_size: 1"),
        format!("{front}\"{d}\".state: drained"),
        format!("{front}\"{d}\".pool_size: 0"),
    ] {
        server.await_log(&pair);
    }
}

/// Statistics identify pools by their place in the configuration, and backends by their configured
/// names.
#[test]
fn figures_name_pools_as_the_configuration_does() {
    let port = Port::reserve();
    let php = |name: &str, key: &str| {
        format!(
            "fastcgi.server = ( \"{key}\" => ( \"{name}\" => ( \"host\" => \"127.0.0.1\", \"port\" => {} ) ) )",
            port.address().port()
        )
    };
    let server = lighty!()
        .config(&php("blog", ".php"))
        .config(&format!("$HTTP[\"host\"] == \"wiki\" {{\n{}\n}}", php("wiki-php", ".phtml")))
        .config(&format!(
            "$HTTP[\"url\"] =^ \"/app/\" {{ $HTTP[\"host\"] == \"b\" {{\n\
             proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{}\" ) }} }}",
            port.address()
        ))
        .start();
    server.signal(Signal::USR2);
    for pair in [
        "proxy-core.0.name: fastcgi.server \".php\",",
        "proxy-core.0.backends.\"127.0.0.1:PORT\".name: blog,",
        "proxy-core.1.name: fastcgi.server \".phtml\" in $HTTP[\"host\"] == \"wiki\",",
        "proxy-core.1.backends.\"127.0.0.1:PORT\".name: wiki-php,",
        "proxy-core.2.name: proxy-core.backends in $HTTP[\"host\"] == \"b\" in \
         $HTTP[\"url\"] =^ \"/app/\",",
    ] {
        server.await_log(&pair.replace("PORT", &port.address().port().to_string()));
    }
}

#[test]
fn logs_opened_again_mean_connections_made_again() {
    let origin = Origin::start("a");
    let server = lighty!()
        .config("proxy-core.protocol = \"http\"")
        .config(&format!("proxy-core.backends = ( \"{}\" )", origin.address()))
        .start();
    assert_eq!(server.get("/").status, 200);
    server.signal(Signal::HUP);
    server.await_log("logs were opened again");
    let emptied = wait_until(PATIENCE, || {
        server.signal(Signal::USR2);
        server.log().contains(".pool_size: 0")
    });
    assert!(emptied, "{}", server.log());
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn the_access_log_tells_of_the_way_to_the_backend() {
    let backend = slow(Duration::from_millis(200));
    let server = lighty!()
        .file("local", "here")
        .config("accesslog.filename = \"@DIR@/access.log\"")
        .config(
            "accesslog.format = \"%U %{upstream}x %{upstream-wait}x %{upstream-connect}x \
             %{upstream-first-byte}x %{upstream-tries}x\"",
        )
        .config("proxy-core.protocol = \"http\"\nproxy-core.max-pool-size = 1")
        .config(&format!(
            "$HTTP[\"url\"] != \"/local\" {{ proxy-core.backends = ( \"{backend}\" ) }}"
        ))
        .start();
    assert_eq!(server.get("/local").text(), "here");
    let mut clients = [server.connect(), server.connect()];
    for client in &mut clients {
        client.send("GET /app HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    let lines = access_log(&server, 3);
    assert_eq!(lines[0], "/local - - - - -");
    let mut waits = Vec::new();
    for line in &lines[1..] {
        let columns: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| columns[at].parse::<u64>().expect("a number");
        assert_eq!(
            (columns[0], columns[1], number(5)),
            ("/app", &*backend.to_string(), 1),
            "{line}"
        );
        assert!(number(3) < 5_000_000 && number(4) >= 190_000, "{line}");
        waits.push(number(2));
    }
    waits.sort_unstable();
    assert!(waits[0] < waits[1] && waits[1] >= 100_000, "the second one waited: {waits:?}");
}

#[test]
fn the_same_as_json_and_of_a_request_without_a_backend() {
    let port = Port::reserve();
    let nobody = port.address();
    let server = lighty!()
        .config("accesslog.filename = \"@DIR@/access.log\"\naccesslog.json = \"enable\"")
        .config("proxy-core.protocol = \"http\"\nproxy-core.hold-time = 0")
        .config(&format!("proxy-core.backends = ( \"{nobody}\" )"))
        .start();
    assert_eq!(server.get("/").status, 503);
    assert_eq!(server.get("/").status, 503);
    let lines = access_log(&server, 2);
    let requested = format!("\"upstream\":\"{nobody}\",");
    assert!(
        lines[0].contains(&requested) && lines[0].contains("\"upstream_tries\":1"),
        "{}",
        lines[0]
    );
    let none = "\"upstream\":null,";
    assert!(lines[1].contains(none) && lines[1].contains("\"upstream_tries\":0"), "{}", lines[1]);
}
