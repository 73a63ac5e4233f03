//! Compressed answers, read by clients that are not ours.

use std::process::Command;

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

/// What a program prints that must succeed.
fn said(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn curl_takes_what_it_can_decode() {
    let server = serving();
    let url = format!("http://{}/page.html", server.address());
    let encoded = said(Command::new("curl").args(["-sS", "-H", "Accept-Encoding: gzip", &url]));
    assert_eq!(encoded[..2], [0x1f, 0x8b], "it is gzip");
    let decoded = said(Command::new("curl").args(["-sS", "--compressed", &url]));
    assert!(decoded == page().as_bytes(), "{} bytes", decoded.len());
}

#[test]
fn python_requests_decodes_each_coding() {
    let server = serving();
    for coding in ["gzip", "deflate", "br"] {
        let script = format!(
            "import requests, sys\n\
             answer = requests.get('http://{}/page.html', headers={{'Accept-Encoding': '{coding}'}})\n\
             assert answer.headers['Content-Encoding'] == '{coding}', answer.headers\n\
             assert answer.headers['Vary'] == 'Accept-Encoding', answer.headers\n\
             sys.stdout.buffer.write(answer.content)\n",
            server.address()
        );
        let decoded = said(Command::new("/usr/bin/python3").args(["-c", &script]));
        assert!(decoded == page().as_bytes(), "{coding}: {} bytes", decoded.len());
    }
}
