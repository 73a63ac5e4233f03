//! Limits of scripts, their accounting, and neighbours of a script that uses much.

use super::*;

#[test]
fn limits_stop_scripts_and_restarts() {
    let server = raw!(
        r#"
        local path = lighty.env["uri.path"]
        if path == "/loop" then while true do end end
        if path == "/catch" then while true do pcall(function() while true do end end) end end
        if path == "/memory" then local t = {} while true do t[#t + 1] = ("x"):rep(999) .. #t end end
        if path == "/sleep" then lighty.sleep(60) end
        if path == "/again" then return lighty.RESTART_REQUEST end
        "#,
        "magnet.max-instructions = 3000000\nmagnet.max-memory = 1024\nmagnet.max-time = 3000"
    );
    for path in ["/loop", "/catch", "/memory", "/sleep"] {
        assert_eq!(server.get(path).status, 503, "{path}");
    }
    assert_eq!(server.get("/again").status, 500);
    for limit in ["magnet.max-instructions", "magnet.max-memory", "magnet.max-time"] {
        server.await_log(limit);
    }
    server.await_log("magnet.max-restarts");
    assert_eq!(server.get("/a.txt").text(), "A");
}

#[test]
fn request_is_restarted_n_times_at_most() {
    const RESTARTS_MAX: usize = 10;
    let server = raw!(
        r#"
        local left = lighty.env["uri.path"]:match("^/left/(%d+)$")
        if not left then return 0 end
        if left == "0" then return 204 end
        lighty.env["request.uri"] = "/left/" .. math.floor(left - 1)
        return lighty.RESTART_REQUEST
        "#
    );
    let get = |restarts: usize| server.get(&format!("/left/{restarts}")).status;
    assert_eq!(get(RESTARTS_MAX), 204, "{}", server.log());
    assert_eq!(get(RESTARTS_MAX + 1), 500);
    server.await_log("magnet.max-restarts");
}

#[test]
fn script_has_n_bytes_at_most() {
    const SCRIPT_BYTES_MAX: usize = 1 << 20;
    let script = |bytes: usize| {
        let code = "return 204 --";
        code.to_owned() + &"-".repeat(bytes - code.len())
    };
    assert_eq!(raw!(script(SCRIPT_BYTES_MAX)).get("/").status, 204);
    let server = raw!(script(SCRIPT_BYTES_MAX + 1));
    assert_eq!(server.get("/").status, 500);
    server.await_log("more than 1048576 bytes (limit: a script)");
}

#[test]
fn scripts_are_accounted_and_keep_counters() {
    let server = lighty!()
        .file("../s.lua", "lighty.status['my.hits'] = lighty.status['my.hits'] + 1 return 204")
        .file("../e.lua", "error('no')")
        .file("../short.lua", "local n = 0 for i = 1, 300 do n = n + i end return 204")
        .config(
            "server.max-worker = 1\n\
             status.statistics-url = \"/stat\"\n\
             $HTTP[\"url\"] == \"/short\" { magnet.attract-raw-url-to = ( \"@DIR@/short.lua\" ) }\n\
             $HTTP[\"url\"] == \"/a\" { magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" ) }\n\
             $HTTP[\"url\"] == \"/e\" { magnet.attract-raw-url-to = ( \"@DIR@/e.lua\" ) }",
        )
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/a").status, 204);
    }
    assert_eq!(server.get("/e").status, 500);
    for _ in 0..30 {
        assert_eq!(server.get("/short").status, 204);
    }
    let text = server.get("/stat").text().to_owned();
    // No run has a thousand instructions; all of them together have some.
    let figure = |name: &str| -> u64 {
        let key = format!("magnet.{}.{name}: ", server.directory().join("short.lua").display());
        let line = text.lines().find_map(|line| line.strip_prefix(&key)).expect("a figure");
        line.trim().parse().expect("a number")
    };
    assert!((5_000..100_000).contains(&figure("instructions")), "{text}");
    assert!((100..10_000).contains(&figure("compiled-bytes")), "{text}");
    assert!(figure("memory-max") > 0, "{text}");
    let script = server.directory().join("s.lua");
    for line in [
        format!("magnet.{}.runs: 3", script.display()),
        format!("magnet.{}.failures: 0", script.display()),
        format!("magnet.{}.failures: 1", server.directory().join("e.lua").display()),
        "my.hits: 3".to_owned(),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[test]
fn a_neighbour_of_a_runaway_script_does_not_wait() {
    let server = raw!(
        "if lighty.env['uri.path'] == '/loop' then while true do end end",
        "magnet.max-instructions = 300000000"
    );
    assert_eq!(server.get("/a.txt").text(), "A");
    let mut loops = Vec::new();
    for _ in 0..4 {
        let mut client = server.connect();
        client.send(b"GET /loop HTTP/1.1\r\nHost: a\r\n\r\n");
        loops.push(client);
    }
    let mut waits: Vec<_> = (0..200)
        .map(|_| {
            let begins = std::time::Instant::now();
            assert_eq!(server.get("/a.txt").text(), "A");
            begins.elapsed()
        })
        .collect();
    waits.sort();
    // Generous, because the machine may be busy; a blocked loop takes a second for each script.
    assert!(waits[100] < std::time::Duration::from_millis(50), "{:?}", waits[100]);
    drop(loops);
}

#[test]
fn a_body_beyond_the_memory_of_a_script_stays_whole() {
    let backend = raw!(
        "if lighty.r.req_body.collect then lighty.content = { #lighty.r.req_body.get } return 200 end"
    );
    let config = format!(
        "magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )\nmagnet.max-memory = 1024\n\
         proxy-core.backends = ( \"{}\" )\nproxy-core.protocol = \"http\"",
        backend.address()
    );
    let script = "local all, why = lighty.r.req_body.collect \
                  if all == nil then print('kept') end";
    let server = lighty!().file("../s.lua", script).config(&config).start();
    let body = vec![b'x'; 3 << 20];
    let got = server.post("/a", &format!("Content-Length: {}", body.len()), &body);
    assert_eq!(got, (3 << 20).to_string().as_bytes());
    let chunked = [b"300000\r\n", &body[..], b"\r\n0\r\n\r\n"].concat();
    let got = server.post("/a", "Transfer-Encoding: chunked", &chunked);
    assert_eq!(got, (3 << 20).to_string().as_bytes());
    server.await_log("kept");
}

#[test]
fn response_data_counts_toward_the_memory_of_a_script() {
    for text in [
        "local s = ('x'):rep(400000) for i = 1, 2000 do lighty.r.resp_body.add(s) end return 200",
        "local s = ('x'):rep(4000) for i = 1, 1e5 do lighty.r.resp_header['X-' .. i] = s end",
        "local s = ('x'):rep(4000) for i = 1, 1e5 do lighty.r.req_env['X' .. i] = s end",
        "local s = ('x'):rep(400000) \
         while true do pcall(function() lighty.r.resp_body.add(s) end) end",
    ] {
        let server = lighty!()
            .file("../s.lua", text)
            .config("magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )")
            .start();
        assert_eq!(server.get("/").status, 503, "{text}");
        server.await_log("magnet.max-memory");
    }
    let server = raw!(
        "local s = ('x'):rep(4000) for i = 1, 5000 do lighty.r.resp_header.X = s \
         lighty.r.resp_body.set(s) end return 200"
    );
    assert_eq!(server.get("/").status, 200);
}
