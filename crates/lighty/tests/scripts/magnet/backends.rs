//! Requests of a script to backends and to this server.

use super::*;

#[test]
fn scripts_request_from_backends_and_from_this_server() {
    let origin = lighty!().file("hello.txt", "hello").start();
    let address = origin.address();
    let config = format!(
        "magnet.backends = ( \"api\" => \"{address}\" )\n\
         magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )"
    );
    let script = r#"
        local path = lighty.env["uri.path"]
        local got, why
        if path == "/http" then got, why = lighty.http.get("http://ADDRESS/hello.txt")
        elseif path == "/backend" then got, why = lighty.backend("api", { url = "/hello.txt" })
        elseif path == "/local" then got, why = lighty.subrequest("/a.txt")
        elseif path == "/unknown" then got, why = lighty.backend("none", "/")
        elseif path == "/far" then got, why = lighty.http.get("http://192.0.2.1/")
        elseif path == "/dead" then got, why = lighty.http.get("http://127.0.0.1:1/")
        elseif path == "/missing" then got, why = lighty.backend("api", "/missing")
        elseif path == "/self" then got, why = lighty.subrequest("/self")
        else return end
        if not got then lighty.content = { why } return 502 end
        lighty.content = { got.status, " ", got.body, " ", tostring(got.headers["content-type"]) }
        return 200
    "#;
    let server = lighty!()
        .file("a.txt", "A")
        .file("../s.lua", script.replace("ADDRESS", &address.to_string()))
        .config(&config)
        .start();
    for _ in 0..2 {
        assert_eq!(server.get("/http").text(), "200 hello text/plain");
        assert_eq!(server.get("/backend").text(), "200 hello text/plain");
        assert_eq!(server.get("/local").text(), "200 A text/plain");
    }
    assert!(server.get("/unknown").text().contains("magnet.backends"));
    assert!(server.get("/far").text().contains("magnet.http-hosts"));
    let dead = server.get("/dead");
    assert_eq!((dead.status, dead.text()), (502, "no backend is up"));
    // This 404 comes from the backend.
    assert!(server.get("/missing").text().starts_with("404 "));
    let nested = server.get("/self");
    assert!(nested.text().contains("too many requests within"), "{}", nested.text());
}

#[test]
fn interim_response_to_a_script_does_not_reach_the_client() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let backend = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut peer, _) = listener.accept().expect("the server");
        let mut head = [0; 1024];
        let _ = peer.read(&mut head).expect("a request");
        let early = b"HTTP/1.1 103 Early Hints\r\nLink: </theirs.css>; rel=preload\r\n\r\n";
        peer.write_all(early).expect("the server reads");
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\
            Set-Cookie: a=1; Expires=Thu, 26 Nov 2026 00:00:00 GMT\r\nset-cookie: b=2\r\n\r\nok";
        peer.write_all(response).expect("the server reads");
    });
    let script = "local got, why = lighty.http.get('http://ADDRESS/') \
                  local cookies = '' for _, field in ipairs(got and got.fields or {}) do \
                  if field[1] == 'set-cookie' then cookies = cookies .. field[2] .. '|' end end \
                  lighty.content = { cookies, got and got.body or why } return 200";
    let server = lighty!()
        .file("../s.lua", script.replace("ADDRESS", &address.to_string()))
        .config("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )")
        .start();
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (all, _) = client.read_to_end();
    let all = String::from_utf8_lossy(&all);
    let reported = "\r\n\r\na=1; Expires=Thu, 26 Nov 2026 00:00:00 GMT|b=2|ok";
    assert!(all.starts_with("HTTP/1.1 200") && all.ends_with(reported), "{all}");
    backend.join().expect("the backend");
}
