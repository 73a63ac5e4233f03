//! Progress of running uploads, requested on other connections and from other workers.

use std::process::{Command, Stdio};
use std::time::Duration;

use lighty_testkit::backend::Backend;
use lighty_testkit::client::Client;
use lighty_testkit::peer::ask;
use lighty_testkit::server::Server;
use lighty_testkit::transfer::{self, Framing};
use lighty_testkit::{lighty, wait_until};

const ID: &str = "0123456789abcdef0123456789abcdef";

const SOON: Duration = Duration::from_secs(30);

/// Accepts all posts, and responds after the whole body.
fn sink() -> Backend {
    Backend::start(|peer| {
        while let Some(received) = peer.head() {
            let length =
                received.field("Content-Length").map_or(0, |n| n.parse().expect("a length"));
            if peer.skip(length) < length {
                return;
            }
            peer.answer("taken");
        }
    })
}

/// Server that tracks uploads and passes requests beneath `/take` to the backend.
fn watching(backend: &Backend, lines: &str) -> Server {
    let address = backend.address();
    lighty!()
        .file("a.txt", "A")
        .config(&format!(
            "upload-progress.progress-url = \"/progress\"\n{lines}\n\
             $HTTP[\"url\"] =^ \"/take\" {{\n  proxy-core.protocol = \"http\"\n  \
             proxy-core.backends = ( \"{address}\" )\n}}"
        ))
        .start()
}

fn begin_upload(server: &Server, lines: &str, length: usize) -> Client {
    let mut client = server.connect();
    client.send(format!(
        "POST /take HTTP/1.1\r\nHost: a\r\nX-Progress-ID: {ID}\r\n{lines}Content-Length: {length}\r\n\r\n"
    ));
    client
}

fn progress(server: &Server) -> String {
    server.get(&format!("/progress?X-Progress-ID={ID}")).text().to_owned()
}

fn await_progress(server: &Server, wanted: &str) {
    let wanted = format!("new Object({{ {wanted}}})\r\n");
    let came = wait_until(SOON, || progress(server) == wanted);
    assert!(came, "{wanted:?} does not come: {:?}", progress(server));
}

#[test]
fn an_upload_is_reported_to_the_letter() {
    let backend = sink();
    let server = watching(&backend, "");
    await_progress(&server, "'state' : 'starting' ");
    let mut client = begin_upload(&server, "", 600_000);
    await_progress(&server, "'state' : 'uploading', 'received' : 0, 'size' : 600000");
    client.send(vec![b'x'; 131_072]);
    await_progress(&server, "'state' : 'uploading', 'received' : 131072, 'size' : 600000");
    client.send(vec![b'x'; 600_000 - 131_072]);
    assert_eq!(client.response().text(), "taken");
    await_progress(&server, "'state' : 'done', 'size' : 600000");

    let answer = server.get(&format!("/progress?a=b&X-Progress-ID={ID}"));
    let field = |name| answer.field(name).unwrap_or_default();
    assert_eq!(field("Content-Type"), "text/javascript");
    assert_eq!(field("Pragma"), "no-cache");
    assert_eq!(field("Expires"), "Thu, 19 Nov 1981 08:52:00 GMT");
    assert_eq!(
        field("Cache-Control"),
        "no-store, no-cache, must-revalidate, post-check=0, pre-check=0"
    );
    let by_field = server.get_with("/progress", &format!("X-Progress-ID: {ID}\r\n"));
    assert_eq!(by_field.text(), "new Object({ 'state' : 'done', 'size' : 600000})\r\n");
    let head = ask(
        server.connect(),
        &format!("HEAD /progress?X-Progress-ID={ID} HTTP/1.1\r\nHost: a\r\n\r\n"),
    );
    assert_eq!(head.field("Content-Length"), Some(by_field.body.len().to_string().as_str()));
}

#[test]
fn a_client_that_asks_for_json_gets_it() {
    let backend = sink();
    let server =
        watching(&backend, "$HTTP[\"host\"] == \"json\" { upload-progress.json = \"enable\" }");
    let mut client = begin_upload(&server, "", 10);
    client.send("12345");
    await_progress(&server, "'state' : 'uploading', 'received' : 5, 'size' : 10");
    let asking =
        server.get_with(&format!("/progress?X-Progress-ID={ID}"), "Accept: application/json\r\n");
    assert_eq!(asking.field("Content-Type"), Some("application/json"));
    assert_eq!(asking.field("Vary"), Some("Accept"));
    assert_eq!(asking.text(), "{\"state\":\"uploading\",\"received\":5,\"size\":10}\n");
    let always = ask(
        server.connect(),
        &format!("GET /progress?X-Progress-ID={ID} HTTP/1.1\r\nHost: json\r\n\r\n"),
    );
    assert_eq!(always.field("Content-Type"), Some("application/json"));
    client.send("67890");
    assert_eq!(client.response().status, 200);
}

#[test]
fn without_a_proper_id_the_path_is_as_any_other() {
    let backend = sink();
    let server = watching(&backend, "");
    for query in [
        "",
        "?X-Progress-ID=",
        "?X-Progress-ID=0123456789abcdef0123456789abcde",
        "?X-Progress-ID=0123456789abcdef0123456789abcdef0",
        "?X-Progress-ID=0123456789abcdef0123456789abcdeg",
        "?Y-Progress-ID=0123456789abcdef0123456789abcdef",
    ] {
        assert_eq!(server.get(&format!("/progress{query}")).status, 404, "{query}");
    }
    assert_eq!(server.get(&format!("/a.txt?X-Progress-ID={ID}")).text(), "A");
}

#[test]
fn failed_uploads_are_reported() {
    let backend = sink();
    let server = watching(&backend, "server.max-request-size = 100");
    let refused = begin_upload(&server, "", 102_401).response();
    assert_eq!(refused.status, 413);
    await_progress(&server, "'state' : 'error', 'status' : 413");

    // The next upload of the same id is reported without a trace of the previous one.
    let mut client = begin_upload(&server, "", 1000);
    client.send("only this");
    await_progress(&server, "'state' : 'uploading', 'received' : 9, 'size' : 1000");
    client.reset();
    await_progress(&server, "'state' : 'error', 'status' : 400");

    // No handler accepts uploads here.
    let mut client = server.connect();
    client.send(format!(
        "POST /none?X-Progress-ID={ID} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    ));
    assert_eq!(client.response().status, 404);
    await_progress(&server, "'state' : 'error', 'status' : 404");
}

#[test]
fn an_error_handler_ends_the_report_of_an_upload() {
    let progress_url = "upload-progress.progress-url = \"/progress\"";
    // The second condition matches the upload, but not the page of its error.
    let here = format!("$HTTP[\"url\"] =~ \"^/(none|progress)\" {{ {progress_url} }}");
    for (line, reported) in
        [(progress_url, "'state' : 'error', 'status' : 404"), (&here, "'state' : 'starting' ")]
    {
        let server = lighty!()
            .file("sorry.html", "sorry")
            .config("server.error-handler = \"/sorry.html\"")
            .config(line)
            .start();
        let upload = format!(
            "POST /none HTTP/1.1\r\nHost: a\r\nX-Progress-ID: {ID}\r\nContent-Length: 1\r\n\r\nx"
        );
        let answer = ask(server.connect(), &upload);
        assert_eq!((answer.status, answer.text()), (404, "sorry"));
        await_progress(&server, reported);
    }
}

#[test]
fn every_worker_knows_and_forgets_in_time() {
    let backend = sink();
    let server = watching(
        &backend,
        "server.max-worker = 4\nupload-progress.remove-timeout = 1\n\
         upload-progress.debug = \"enable\"",
    );
    let mut client = begin_upload(&server, "", 4);
    client.send("ab");
    await_progress(&server, "'state' : 'uploading', 'received' : 2, 'size' : 4");
    for _ in 0..32 {
        assert!(progress(&server).contains("'received' : 2"), "every worker tells the same");
    }
    client.send("cd");
    assert_eq!(client.response().status, 200);
    await_progress(&server, "'state' : 'done', 'size' : 4");
    await_progress(&server, "'state' : 'starting' ");
    server.await_log(&format!("upload {ID} begins"));
    server.await_log(&format!("upload {ID} has ended: Done {{ received: 4 }}"));
}

#[test]
fn hundreds_of_uploads_are_distinguished() {
    const COUNT: usize = 200;
    let backend = sink();
    let server = watching(
        &backend,
        "server.max-worker = 4\nupload-progress.max-uploads = 200\nproxy-core.max-pool-size = 300",
    );
    let id = |number: usize| format!("{number:032x}");
    let reported = |number| server.get(&format!("/progress?X-Progress-ID={}", id(number)));
    let mut uploads: Vec<_> = (0..COUNT)
        .map(|number| {
            let mut client = server.connect();
            client.send(format!(
                "POST /take?X-Progress-ID={} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
                id(number)
            ));
            client.send("x".repeat(number));
            client
        })
        .collect();
    for number in 0..COUNT {
        let wanted = format!("'received' : {number}, 'size' : 1000");
        assert!(
            wait_until(SOON, || reported(number).text().contains(&wanted)),
            "{number}: {wanted}"
        );
    }
    for (number, client) in uploads.iter_mut().enumerate() {
        client.send("x".repeat(1000 - number));
        assert_eq!(client.response().text(), "taken", "{number}");
    }
    for number in 0..COUNT {
        let done = || reported(number).text().contains("'state' : 'done', 'size' : 1000");
        assert!(wait_until(SOON, done), "{number}: {:?}", reported(number));
    }
}

#[test]
fn hostile_ids_watch_nothing_and_do_no_harm() {
    let backend = sink();
    let server = watching(&backend, "upload-progress.max-uploads = 2");
    let long = "a".repeat(4000);
    let hostile = [
        "%30123456789abcdef0123456789abcdef",
        "../../../../../../../../etc/passwd",
        "0123456789abcdef0123456789abcdef%27%7d",
        "<script>alert(1)</script>",
        &long,
    ];
    for id in hostile {
        let mut client = server.connect();
        let target = id.replace(['<', '>'], "%3c");
        client.send(format!(
            "POST /take?X-Progress-ID={target} HTTP/1.1\r\nHost: a\r\nX-Progress-ID: {id}\r\n\
             Content-Length: 2\r\n\r\nab"
        ));
        assert_eq!(client.response().text(), "taken", "{id}: it is served as any other");
        let received = server.get(&format!("/progress?X-Progress-ID={target}"));
        assert_eq!(received.status, 404, "{id}");
        assert!(!received.text().contains("script"), "{id}");
    }
    // Two uploads of one id at once: both are served, and the progress is that of one of them.
    let (mut first, mut second) = (begin_upload(&server, "", 100), begin_upload(&server, "", 200));
    first.send("x".repeat(100));
    second.send("x".repeat(200));
    assert_eq!((first.response().text(), second.response().text()), ("taken", "taken"));
    let done = || progress(&server).contains("'state' : 'done'");
    assert!(wait_until(SOON, done), "{}", progress(&server));
}

#[test]
fn one_upload_more_than_the_limit_goes_unwatched() {
    let backend = sink();
    let server =
        watching(&backend, "upload-progress.max-uploads = 1\nserver.errorlog-level = \"info\"");
    let mut first = begin_upload(&server, "", 4);
    first.send("ab");
    await_progress(&server, "'state' : 'uploading', 'received' : 2, 'size' : 4");
    let other = "f".repeat(32);
    let mut second = server.connect();
    second.send(format!(
        "POST /take?X-Progress-ID={other} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
    ));
    assert_eq!(second.response().status, 200, "it is served all the same");
    server.await_log("upload-progress.max-uploads is reached");
    assert!(server.get(&format!("/progress?X-Progress-ID={other}")).text().contains("starting"));
    first.send("cd");
    assert_eq!(first.response().status, 200);
    await_progress(&server, "'state' : 'done', 'size' : 4");
}

#[test]
fn large_uploads_are_watched_in_constant_memory() {
    const BYTES: u64 = 1 << 30;
    let backend = sink();
    let server = watching(&backend, "");
    let target = format!("/take?X-Progress-ID={ID}");
    transfer::in_constant_memory(&server, "1 GB watched", || {
        let answer = transfer::upload(&server, &target, BYTES, Framing::Length);
        assert_eq!(answer.text(), "taken");
    });
    await_progress(&server, &format!("'state' : 'done', 'size' : {BYTES}"));
}

#[test]
fn curl_is_watched_while_it_is_slow() {
    let backend = sink();
    let server = watching(&backend, "");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--limit-rate", "400k", "-H", "Expect:", "--data-binary", "@-"])
        .arg(format!("http://{}/take?X-Progress-ID={ID}", server.address()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut curl = curl.spawn().expect("curl runs");
    let mut stdin = curl.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, &vec![b'x'; 1_000_000]).expect("curl reads");
    drop(stdin);
    let mut seen = Vec::new();
    let ended = wait_until(Duration::from_secs(30), || {
        let text = progress(&server);
        if let Some((_, rest)) = text.split_once("'received' : ") {
            let digits = rest.split(',').next().unwrap_or_default();
            seen.push(digits.parse::<u64>().expect("a number"));
        }
        text.contains("'done', 'size' : 1000000")
    });
    assert!(ended, "{}", progress(&server));
    assert!(seen.is_sorted(), "{seen:?}");
    seen.dedup();
    assert!(seen.len() >= 3, "it was seen on its way: {seen:?}");
    assert_eq!(curl.wait_with_output().expect("curl ends").stdout, b"taken");
}
