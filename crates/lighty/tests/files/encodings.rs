//! Compressed responses, decoded by third-party clients.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use lighty_testkit::backend::Backend;
use lighty_testkit::lighty;
use lighty_testkit::server::Server;

fn page() -> String {
    (0..5_000).map(|line| format!("<li>number {line} and so on</li>\n")).collect()
}

fn serving() -> Server {
    lighty!()
        .config(
            "deflate.mimetypes = ( \"text/\" )\nmimetype.assign = ( \".html\" => \"text/html\" )",
        )
        .file("page.html", page())
        .start()
}

/// Output of a program that must succeed.
fn output_of(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn curl_takes_what_it_can_decode() {
    let server = serving();
    let url = format!("http://{}/page.html", server.address());
    let encoded =
        output_of(Command::new("curl").args(["-sS", "-H", "Accept-Encoding: gzip", &url]));
    assert_eq!(encoded[..2], [0x1f, 0x8b], "it is gzip");
    let decoded = output_of(Command::new("curl").args(["-sS", "--compressed", &url]));
    assert!(decoded == page().as_bytes(), "{} bytes", decoded.len());
}

#[test]
fn curl_sees_each_event_before_the_next_one_happens() {
    for coding in ["gzip", "br", "zstd"] {
        let (go, went) = std::sync::mpsc::channel();
        let went = std::sync::Mutex::new(went);
        let backend = Backend::after_request(move |peer| {
            peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n");
            peer.send("Connection: close\r\n\r\n");
            while let Ok(number) = went.lock().expect("one request").recv() {
                let number: u32 = number;
                peer.send(format!("data: event {number}\n\n"));
            }
        });
        let server = lighty!()
            .config("deflate.mimetypes = ( \"text/\" )\nproxy-core.protocol = \"http\"")
            .config(&format!("proxy-core.backends = ( \"{}\" )", backend.name()))
            .start();
        let curl = Command::new("curl")
            .args(["-sSN", "--compressed", "-H", &format!("Accept-Encoding: {coding}")])
            .args(["-D", "-", &format!("http://{}/", server.address())])
            .stdout(Stdio::piped())
            .spawn();
        let mut curl = curl.expect("curl runs");
        let mut lines = BufReader::new(curl.stdout.take().expect("its output")).lines();
        let mut next = |wanted: &str| {
            let found = lines.by_ref().find(|line| line.as_ref().is_ok_and(|l| l.contains(wanted)));
            assert!(found.is_some(), "{coding}: {wanted:?}");
        };
        next(&format!("Content-Encoding: {coding}"));
        for number in 0..10 {
            go.send(number).expect("a backend");
            next(&format!("data: event {number}"));
        }
        drop(go);
        assert!(curl.wait().expect("it ended").success(), "{coding}");
    }
}

#[test]
fn python_requests_decodes_each_coding() {
    let server = serving();
    for coding in ["gzip", "deflate", "br"] {
        let script = format!(
            "import requests, sys\n\
             response = requests.get('http://{}/page.html', headers={{'Accept-Encoding': '{coding}'}})\n\
             assert response.headers['Content-Encoding'] == '{coding}', response.headers\n\
             assert response.headers['Vary'] == 'Accept-Encoding', response.headers\n\
             sys.stdout.buffer.write(response.content)\n",
            server.address()
        );
        let decoded = output_of(Command::new("/usr/bin/python3").args(["-c", &script]));
        assert!(decoded == page().as_bytes(), "{coding}: {} bytes", decoded.len());
    }
}
