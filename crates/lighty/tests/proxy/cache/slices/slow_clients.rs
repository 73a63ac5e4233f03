//! Clients that read slowly, or not at all.

use super::renewal::await_stall;
use super::*;

/// Clients that stop reading a resource of their own, one after the other: bodies that arrive at
/// the same time have a budget of their own.
fn stalled(server: &Server, backend: &Backend, count: usize) -> Vec<Client> {
    let begin = |number| {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 4_096);
        client.send(format!(
            "GET /20000000/{number} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n"
        ));
        assert_eq!(client.response_head().status, 206);
        await_stall(backend);
        client
    };
    (0..count).map(begin).collect()
}

#[test]
fn stalled_clients_keep_the_memory_of_one_slice_each() {
    const CLIENTS: usize = 16;
    const BUDGET_KIB: u64 = 4 << 10;
    const SLICE_KIB: u64 = 1 << 10;
    let backend = backend(&Resource::new(FRESH));
    let server = slicing(&backend, "cache.slice-size := \"1M\"");
    get(&server, "/20000000/warm", "1-", 1, 20_000_000);
    let before = server.heap_kib();
    let mut clients = stalled(&server, &backend, CLIENTS);
    let grown = server.heap_kib().saturating_sub(before);
    println!("{CLIENTS} stalled clients: {grown} KiB");
    let most = BUDGET_KIB + CLIENTS as u64 * SLICE_KIB * 3 / 2;
    assert!(grown < most, "{grown} of {most} KiB");
    // The next slice of each has left the store: it is opened again.
    for client in clients.iter_mut().take(4) {
        let body = client.read_exact(19_999_999).expect("the body");
        assert!(body == content("/20000000/a", 1)[1..]);
    }
}

#[test]
fn client_that_stops_reading_does_not_hold_others_up() {
    let body = "x".repeat(1 << 16);
    let backend = Backend::after_request(move |peer| {
        let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n");
        peer.send(head);
        for _ in 0..400 {
            if !peer.send(format!("10000\r\n{body}\r\n")) {
                return;
            }
        }
        peer.send("0\r\n\r\n");
    });
    let server =
        caching(&backend, "cache.stores := ( \"pages\" => ( \"max-object-size\" => \"100K\" ) )");
    let mut slow = Client::tcp_with_receive_buffer(server.address(), 4_096);
    let mut quick = server.connect();
    for client in [&mut slow, &mut quick] {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    assert_eq!(slow.response_head().status, 200);
    let page = quick.response();
    assert_eq!((page.status, page.body.len()), (200, 400 << 16));
    server.await_log("held up others that read the same response");
    let (part, _) = slow.read_to_end();
    assert!(part.len() < 400 << 16, "{}", part.len());
    assert_eq!(backend.requests().len(), 1);
}
