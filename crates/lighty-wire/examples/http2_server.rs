//! A server for programs that test HTTP/2: `cargo run --example http2_server -- 8080`.

#[allow(unreachable_pub, reason = "shared with the tests")]
#[path = "../tests/integration/http2_server.rs"]
mod http2_server;

fn main() {
    let port = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    println!("http://{}/", http2_server::start(port));
    loop {
        std::thread::park();
    }
}
