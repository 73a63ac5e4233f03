//! Scripts that are checked and run without a server.

use super::*;

#[test]
fn scripts_are_checked_and_run_without_a_server() {
    let setup = lighty!()
        .file(
            "../good.lua",
            "lighty.header['X'] = 'y' lighty.content = { lighty.env['uri.path'] } return 200",
        )
        .file("../bad.lua", "return (")
        .file("../filter.lua", "return function(piece) return piece end")
        .file(
            "../calls.lua",
            "lighty.stat('/no such')\nlighty.sleep(1.5)\n\
             lighty.http.get('http://127.0.0.1:1/x')\nerror('over')",
        );
    let path = |name: &str| setup.directory().join(name).display().to_string();
    let (good, bad) = (path("good.lua"), path("bad.lua"));
    let (code, _, err) = setup.run(&["script", "check", &good]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = setup.run(&["script", "check", &good, &bad]);
    assert!(code == 1 && err.contains("bad.lua:1:"), "{code} {err}");
    let (code, out, err) = setup.run(&["script", "run", &good, "http://a/b?c"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("responds with 200") && out.contains("body: /b"), "{out}");
    assert!(out.contains("resp_header[X] = y"), "{out}");
    assert!(out.contains("used ") && out.contains("00 instructions, "), "{out}");
    let (code, out, err) = setup.run(&["script", "run", &path("calls.lua"), "/"]);
    assert_eq!(code, 1, "{out} {err}");
    for line in [
        "waits for lighty.stat(\"/no such\")",
        "waits for 1500 ms to pass",
        "waits for GET http://127.0.0.1:1/x",
    ] {
        assert!(out.contains(line), "{line}\n{out}");
    }
    assert!(err.starts_with("lighty: ") && err.contains("calls.lua:4: over"), "{err}");
    let (_, out, _) = setup.run(&["script", "run", &path("filter.lua"), "/"]);
    assert!(out.contains("--stage response-content runs body filters"), "{out}");
}

#[test]
fn trials_have_stages_methods_fields_and_bodies() {
    let setup = lighty!()
        .file(
            "../raw.lua",
            "local r = lighty.r print(r.req_attr['request.method'], r.req_header.Cookie, \
             r.req_attr['uri.path'], r.req_attr['uri.path-raw'], r.req_attr['uri.authority'], \
             r.req_body.collect and r.req_body.get, r.req_attr['physical.path'])",
        )
        .file(
            "../physical.lua",
            "lighty.env['physical.path'] = lighty.env['physical.path'] .. '.html'",
        )
        .file(
            "../start.lua",
            "local r = lighty.r print(r.req_item.http_status, r.resp_header.ETag, r.resp_body.get, \
             r.resp_body.len, r.req_attr['response.http-status'])",
        )
        .file("../filter.lua", "return function(piece) return piece and piece:upper() or '!' end")
        .file("../sent.txt", "from a file");
    let path = |name: &str| setup.directory().join(name).display().to_string();
    let run = |script: &str, options: &[&str]| {
        let script = path(script);
        setup.run(&[&["script", "run", &*script], options].concat())
    };
    let fields = ["-X", "PUT", "-H", "Cookie: a=1", "-H", "Host: b.example", "-d", "text"];
    let (code, out, err) = run("raw.lua", &[&["/a%20b?q"][..], &fields].concat());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("PUT\ta=1\t/a b\t/a%20b\tb.example\ttext\tnil"), "{out}");
    let file = format!("@{}", path("sent.txt"));
    let (_, out, _) = run("raw.lua", &["/", "--data", &file]);
    assert!(out.contains("from a file"), "{out}");
    let root = setup.root("").display().to_string();
    let stage = ["--stage", "physical-path", "--document-root", &root];
    let (_, out, _) = run("physical.lua", &[&["/a"][..], &stage].concat());
    let path_set = format!("req_attr[physical.path] = {}/a.html", root.trim_end_matches('/'));
    assert!(out.contains(&path_set), "{path_set}\n{out}");
    let stage =
        ["--stage", "response-start", "--status", "404", "--response-header", "ETag: \"x\""];
    let options = [&["/"][..], &stage, &["--response-data", "none"]].concat();
    let (_, out, _) = run("start.lua", &options);
    assert!(out.contains("404\t\"x\"\tnone\t4\t404"), "{out}");
    let stage = ["--stage", "response-content", "--response-data", "body"];
    let (_, out, _) = run("filter.lua", &[&["/"][..], &stage].concat());
    assert!(out.contains("sends: BODY\nsends: !\nused "), "{out}");
    for wrong in [
        &["notaurl"][..],
        &["ftp://a/"],
        &["/", "-H", "no colon"],
        &["/", "--stage", "none"],
        &["/", "--status", "99"],
    ] {
        let (code, _, err) = run("raw.lua", wrong);
        assert_eq!(code, 2, "{wrong:?} {err}");
    }
}
