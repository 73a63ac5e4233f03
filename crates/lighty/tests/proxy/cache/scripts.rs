//! `lighty.cache`: orders of scripts.

use lighty_testkit::lighty;
use lighty_testkit::server::Server;

use super::{counting, with_store};

const SCRIPT: &str = r#"
    local path = lighty.r.req_attr["uri.path"]
    local cache = lighty.cache
    if path == "/keyed" then cache.key = lighty.r.req_header["X-Plan"] end
    if path == "/timed" then cache.ttl = 600 end
    if path == "/never" then cache.ttl = 0 end
    if path == "/past" then cache.bypass = true end
    if path:find("^/tagged") then cache.tags = { "news", "sport" } end
    if path == "/undone" then cache.ttl = 0; cache.ttl = nil end
    if path == "/purge" then
        cache.purge { tag = "sport", soft = false }
        return 204
    end
    if path == "/wrong" then
        local results = {}
        for _, f in ipairs {
            function() cache.ttl = "soon" end,
            function() cache.ttl = -1 end,
            function() cache.unknown = 1 end,
            function() cache.purge { path = "/" } end,
            function() cache.purge { url = "a" } end,
            function() cache.purge("all") end,
            function() cache.key = ("x"):rep(16385) end,
        } do
            local ok, why = pcall(f)
            results[#results + 1] = tostring(ok) .. " " .. tostring(why)
        end
        lighty.content = { table.concat(results, "\n"), "\n", tostring(cache.key) }
        return 200
    end
"#;

fn scripted(fields: &'static str) -> (lighty_testkit::backend::Backend, Server) {
    let backend = counting(fields);
    let more = "magnet.attract-raw-url-to = ( \"@DIR@/s.lua\" )\ncache.debug = 1";
    let server = with_store(lighty!(), &backend, more).file("../s.lua", SCRIPT).start();
    (backend, server)
}

#[test]
fn scripts_give_orders_to_the_cache() {
    let (_backend, server) = scripted("Cache-Control: max-age=300\r\n");
    let is_hit = |target: &str, fields: &str| {
        let page = server.get_with(target, fields);
        page.field("Cache-Status").is_some_and(|text| text.contains("hit"))
    };
    let plan = |plan: &str| is_hit("/keyed", &format!("X-Plan: {plan}\r\n"));
    assert_eq!([plan("a"), plan("b"), plan("a"), plan("b")], [false, false, true, true]);
    assert_eq!([is_hit("/never", ""), is_hit("/never", "")], [false; 2]);
    server.await_log("cache: miss, not stored: a script forbids storing");
    assert_eq!([is_hit("/undone", ""), is_hit("/undone", "")], [false, true]);
    let past = server.get("/past");
    assert_eq!(past.field("Cache-Status"), Some("lighty; fwd=bypass; fwd-status=200"));
    assert_eq!([is_hit("/tagged", ""), is_hit("/other", "")], [false; 2]);
    assert_eq!([is_hit("/tagged", ""), is_hit("/other", "")], [true; 2]);
    assert_eq!(server.get("/purge").status, 204);
    server.await_log("lighty.cache.purge: tag sport");
    assert_eq!([is_hit("/tagged", ""), is_hit("/other", "")], [false, true]);
}

#[test]
fn lifetime_of_a_script_counts_in_place_of_the_response() {
    let (backend, server) = scripted("Cache-Control: no-store\r\n");
    let _ = server.get("/timed");
    let page = server.get("/timed");
    let status = page.field("Cache-Status").expect("a status");
    assert!(status.starts_with("lighty; hit; ttl="), "{status}");
    assert_eq!(backend.requests().len(), 1);
}

#[test]
fn wrong_orders_are_errors_of_the_script() {
    let (_backend, server) = scripted("");
    let page = server.get("/wrong");
    let lines: Vec<&str> = page.text().lines().collect();
    for (line, text) in lines.iter().zip([
        "lighty.cache['ttl']: not whole seconds",
        "lighty.cache['ttl']: not whole seconds",
        "lighty.cache['unknown']: there are key, ttl, bypass, tags and purge",
        "lighty.cache['purge']: there are url, prefix, tag, host, all and soft",
        "lighty.cache['purge']: url and prefix begin with a slash",
        "lighty.cache.purge takes a table",
        "lighty.cache['key']: the value has more than 16,384 bytes",
    ]) {
        assert!(line.starts_with("false ") && line.contains(text), "{line}: {text}");
    }
    assert_eq!((lines.len(), lines.last()), (8, Some(&"nil")), "{lines:?}");
}
