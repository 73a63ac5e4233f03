//! `mod_deflate`: every coding over every kind of body, and what HTTP asks of whoever encodes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use lighty_testkit::client::Client;
use lighty_testkit::content::pattern;
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};

const CODINGS: [&str; 5] = ["gzip", "deflate", "br", "zstd", "bzip2"];

/// A text of this length that compresses well.
fn text(length: usize) -> String {
    let mut out = String::new();
    let mut line = 0;
    while out.len() < length {
        out.push_str(&format!("<li><a href=\"/page/{line}\">number {line}</a> and so on</li>\n"));
        line += 1;
    }
    out.truncate(length);
    out
}

fn decode(coding: &str, mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).map(|_| ()),
        "deflate" => flate2::read::ZlibDecoder::new(bytes).read_to_end(&mut out).map(|_| ()),
        "bzip2" => bzip2::read::BzDecoder::new(bytes).read_to_end(&mut out).map(|_| ()),
        "zstd" => zstd::stream::copy_decode(bytes, &mut out),
        "br" => brotli::BrotliDecompress(&mut bytes, &mut out),
        other => panic!("{other}?"),
    };
    read.unwrap_or_else(|error| panic!("{coding}: {error}"));
    out
}

fn plain(response: &Response) -> Vec<u8> {
    match response.field("Content-Encoding") {
        Some(coding) => decode(coding, &response.body),
        None => response.body.clone(),
    }
}

fn accepting(server: &Server, target: &str, accept: &str) -> Response {
    server.get_with(target, &format!("Accept-Encoding: {accept}\r\n"))
}

fn setup() -> Setup {
    lighty!()
        .config(
            "deflate.mimetypes = ( \"text/\" )\ndir-listing.activate = \"enable\"\n\
             mimetype.assign = ( \".html\" => \"text/html\", \".jpg\" => \"image/jpeg\" )",
        )
        .file("small.html", text(600))
        .file("middle.html", text(30_000))
        .file("large.html", text(700_000))
        .file("tiny.html", text(255))
        .file("just.html", text(256))
        .file("a.jpg", text(5000))
}

/// Asks with HEAD as `lines` say.
fn head(server: &Server, target: &str, lines: &str) -> Response {
    let mut client = server.connect();
    client.send(format!("HEAD {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n"));
    client.response_to_head()
}

#[test]
fn every_coding_over_every_kind_of_body() {
    let backend = Backend::start(|_, stream| {
        let body = text(50_000);
        let (early, late) = body.split_at(100);
        write!(stream, "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n{early}").expect("sent");
        write!(stream, "{late}").expect("sent");
    });
    let mut setup = setup().config(&backend.route("/backend"));
    for number in 0..300 {
        setup = setup.file(&format!("dir/a file with a name, number {number}.txt"), "x");
    }
    let server = setup.start();
    let get = |target: &str| server.get(target).body;
    for coding in CODINGS {
        for (target, status, body) in [
            ("/small.html", 200, text(600).into_bytes()),
            ("/middle.html", 200, text(30_000).into_bytes()),
            ("/large.html", 200, text(700_000).into_bytes()),
            ("/backend", 200, text(50_000).into_bytes()),
            ("/dir/", 200, get("/dir/")),
        ] {
            let response = accepting(&server, target, coding);
            assert_eq!(response.status, status, "{target} {coding}");
            assert_eq!(response.field("Content-Encoding"), Some(coding), "{target}");
            assert!(plain(&response) == body, "{target} {coding}");
            assert!(response.body.len() < body.len(), "{target} {coding}");
            assert_eq!(
                response.field("Vary").map(|vary| vary.contains("Accept-Encoding")),
                Some(true)
            );
        }
        let missing = accepting(&server, "/missing", &format!("{coding}, identity;q=0"));
        assert_eq!((missing.status, missing.field("Content-Encoding")), (404, Some(coding)));
        assert!(String::from_utf8_lossy(&plain(&missing)).contains("404 Not Found"));
    }
    for unasked in ["/small.html", "/large.html", "/backend", "/dir/"] {
        let response = server.get(unasked);
        assert_eq!(response.field("Content-Encoding"), None, "{unasked}");
        assert!(response.field("Vary").is_some_and(|vary| vary.contains("Accept-Encoding")));
    }
}

#[test]
fn the_client_chooses() {
    let server = setup().start();
    for (accept, coding) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip;q=1.0, br;q=0.9", Some("gzip")),
        ("gzip;q=0", None),
        ("gzip;q=0, *;q=0.1", Some("br")),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0, gzip;q=0.001", Some("gzip")),
        ("", None),
        ("compress", None),
    ] {
        let response = accepting(&server, "/middle.html", accept);
        assert_eq!(response.field("Content-Encoding"), coding, "{accept}");
        assert!(plain(&response) == text(30_000).into_bytes(), "{accept}");
    }
    let lines = "Accept-Encoding: br;q=0.1\r\nAccept-Encoding: gzip\r\n";
    let response = server.get_with("/middle.html", lines);
    assert_eq!(response.field("Content-Encoding"), Some("gzip"));
    let server = setup().config("deflate.allowed_encodings = ( \"gzip\", \"br\" )").start();
    let coding = |accept| {
        accepting(&server, "/middle.html", accept).field("Content-Encoding").map(str::to_owned)
    };
    assert_eq!(coding("zstd").as_deref(), None);
    assert_eq!(coding("zstd, br, gzip").as_deref(), Some("gzip"));
}

#[test]
fn what_is_left_alone() {
    let server = setup()
        .config(
            "$HTTP[\"url\"] == \"/off/x.html\" { deflate.enabled = \"disable\" }\n\
             $HTTP[\"url\"] == \"/bound/x.html\" {\n\
             setenv.add-response-header = ( \"Cache-Control\" => \"public, no-transform\" ) }\n\
             $HTTP[\"url\"] == \"/coded/x.html\" {\n\
             setenv.add-response-header = ( \"Content-Encoding\" => \"gzip\" ) }\n\
             deflate.max-compress-size = 600",
        )
        .file("off/x.html", text(5000))
        .file("bound/x.html", text(5000))
        .file("coded/x.html", text(5000))
        .file("n.html", text(600 * 1024))
        .file("n1.html", text(600 * 1024 + 1))
        .start();
    for target in ["/off/x.html", "/bound/x.html", "/a.jpg", "/tiny.html", "/n1.html"] {
        let response = accepting(&server, target, "gzip");
        assert_eq!(response.field("Content-Encoding"), None, "{target}");
        assert_eq!(response.field("Vary"), None, "{target}");
        assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
    }
    let coded = accepting(&server, "/coded/x.html", "gzip");
    assert!(coded.body == text(5000).into_bytes(), "not twice");
    for target in ["/just.html", "/n.html"] {
        let response = accepting(&server, target, "gzip");
        assert_eq!(response.field("Content-Encoding"), Some("gzip"), "{target}");
    }
    let tiny = accepting(&server, "/tiny.html", "gzip, identity;q=0");
    assert_eq!(tiny.field("Content-Encoding"), Some("gzip"));
    // The range of a file is a range of the file.
    let part = server.get_with("/middle.html", "Accept-Encoding: gzip\r\nRange: bytes=10-19\r\n");
    assert_eq!((part.status, part.field("Content-Encoding")), (206, None));
    assert_eq!(part.body, &text(30_000).as_bytes()[10..20]);
    assert_eq!(part.field("Vary"), Some("Accept-Encoding"));
    let whole =
        server.get_with("/middle.html", "Accept-Encoding: gzip\r\nCache-Control: no-transform\r\n");
    assert_eq!(whole.field("Content-Encoding"), None);
}

#[test]
fn tags_tell_codings_apart() {
    let server = setup().start();
    for target in ["/small.html", "/large.html"] {
        let bare = server.get(target).field("ETag").expect("a tag").to_owned();
        for coding in CODINGS {
            let response = accepting(&server, target, coding);
            let tag = response.field("ETag").expect("a tag").to_owned();
            assert_eq!(tag, format!("{}-{coding}\"", bare.trim_end_matches('"')));
            assert_eq!(response.field("Accept-Ranges"), Some("none"));
            let ask = |accept: &str, name: &str, tag: &str| {
                server.get_with(target, &format!("Accept-Encoding: {accept}\r\n{name}: {tag}\r\n"))
            };
            let unchanged = ask(coding, "If-None-Match", &tag);
            assert_eq!((unchanged.status, unchanged.field("ETag")), (304, Some(&*tag)));
            assert_eq!(unchanged.field("Vary"), Some("Accept-Encoding"));
            assert_eq!(unchanged.field("Content-Encoding"), None);
            let held_plain = ask(coding, "If-None-Match", &bare);
            assert_eq!((held_plain.status, held_plain.field("ETag")), (304, Some(&*bare)));
            // It holds what it cannot be given any more.
            assert_eq!(ask("identity", "If-None-Match", &tag).status, 200);
            assert_eq!(ask(coding, "If-None-Match", "\"1-gzip\"").status, 200);
            assert_eq!(ask(coding, "If-Match", &tag).status, 200);
            assert_eq!(ask(coding, "If-Match", "\"1-gzip\"").status, 412);
            let ranged = server.get_with(
                target,
                &format!("Accept-Encoding: {coding}\r\nRange: bytes=0-9\r\nIf-Range: {tag}\r\n"),
            );
            assert_eq!(ranged.status, 200, "a range of the encoded form");
        }
    }
    // The picture is never encoded, and its tag stays.
    let picture = accepting(&server, "/a.jpg", "gzip");
    let tag = picture.field("ETag").expect("a tag");
    let unchanged =
        server.get_with("/a.jpg", &format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!(
        (unchanged.status, unchanged.field("Vary"), unchanged.field("ETag")),
        (304, None, Some(tag))
    );
    // A listing's tag is weak and stays so.
    let listing = accepting(&server, "/", "gzip");
    let tag = listing.field("ETag").expect("a tag").to_owned();
    assert!(tag.starts_with("W/\"") && tag.ends_with("-gzip\""), "{tag}");
    let lines = format!("Accept-Encoding: gzip\r\nIf-None-Match: {tag}\r\n");
    let unchanged = server.get_with("/", &lines);
    assert_eq!((unchanged.status, unchanged.field("ETag")), (304, Some(&*tag)));
}

#[test]
fn head_says_what_get_says() {
    let backend = Backend::start(|request, stream| {
        let body = text(50_000);
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
            .expect("sent");
        if !request.starts_with("HEAD") {
            stream.write_all(body.as_bytes()).expect("sent");
        }
    });
    let server = setup().config(&backend.route("/backend")).start();
    for target in [
        "/small.html",
        "/middle.html",
        "/large.html",
        "/tiny.html",
        "/a.jpg",
        "/",
        "/missing",
        "/backend",
    ] {
        for accept in ["gzip", "br", "identity", "zstd;q=0.1, *;q=0"] {
            let lines = format!("Accept-Encoding: {accept}\r\n");
            let get = server.get_with(target, &lines);
            let head = head(&server, target, &lines);
            assert_eq!(get.status, head.status, "{target} {accept}");
            for name in [
                "Content-Length",
                "Transfer-Encoding",
                "Content-Encoding",
                "Content-Type",
                "ETag",
                "Vary",
                "Accept-Ranges",
            ] {
                // What is known only once the body was made may be left out (RFC 9110 section 9.3.2).
                let is_made = target == "/" || (target == "/backend" && accept != "identity");
                if !(is_made && head.field(name).is_none()) {
                    assert_eq!(get.field(name), head.field(name), "{target} {accept} {name}");
                }
            }
        }
    }
}

#[test]
fn events_arrive_as_they_happen() {
    for (path, content_type, coding, more) in [
        ("/events", "text/event-stream", "gzip", ""),
        ("/events", "text/event-stream; charset=utf-8", "br", ""),
        ("/events", "text/event-stream", "zstd", ""),
        ("/page", "text/html", "gzip", "deflate.sync-flush = \"enable\""),
        ("/page", "text/html", "br", "deflate.sync-flush = \"enable\""),
    ] {
        let backend = Backend::start(move |_, stream| {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nConnection: close\r\n\r\n"
            )
            .expect("sent");
            for number in 0..3 {
                write!(stream, "data: event {number} {}\n\n", pattern_text(3000)).expect("sent");
                // The next one waits until the client has seen this one.
                let mut go = [0];
                if stream.read(&mut go).unwrap_or(0) == 0 {
                    return;
                }
            }
        });
        let server = setup().config(more).config(&backend.route(path)).start();
        let mut client = server.connect();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\nContent-Length: 3\r\n\r\n"
        ));
        let response = client.response_head();
        assert_eq!(response.field("Content-Encoding"), Some(coding));
        let mut seen = Vec::new();
        for number in 0..3 {
            let event = format!("event {number}");
            let all = format!("data: {event} {}\n\n", pattern_text(3000));
            while !String::from_utf8_lossy(&begun(coding, &seen)).contains(&all) {
                seen.extend(next_chunk(&mut client));
            }
            client.send("g");
        }
    }
}

/// Text that a coding does not make much of.
fn pattern_text(length: usize) -> String {
    pattern(0, length).iter().map(|byte| char::from(b' ' + byte % 90)).collect()
}

/// What can be read of the beginning of an encoded body.
fn begun(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reader: Box<dyn Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "zstd" => Box::new(zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
        _ => Box::new(brotli::Decompressor::new(bytes, 4096)),
    };
    let mut piece = [0];
    while let Ok(1) = reader.read(&mut piece) {
        out.push(piece[0]);
    }
    out
}

/// The next chunk of a body.
fn next_chunk(client: &mut Client) -> Vec<u8> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.read_exact(1).expect("a size"));
    }
    let size = std::str::from_utf8(&line).expect("a size").trim_end();
    let size = usize::from_str_radix(size, 16).expect("a size");
    let mut chunk = client.read_exact(size + 2).expect("a chunk");
    chunk.truncate(size);
    chunk
}

#[test]
fn a_client_that_takes_nothing_costs_little() {
    let server = lighty!().config("deflate.allowed-encodings = ( \"gzip\" )").start();
    // What does not compress, so that as much comes out as goes in.
    let noise: Vec<u8> = pattern(0, 16 << 20);
    std::fs::write(server.root("noise.bin"), noise).expect("a file");
    let before = server.peak_resident_kib();
    let mut clients: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
            client.send("GET /noise.bin HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
            assert_eq!(client.response_head().field("Content-Encoding"), Some("gzip"));
            client
        })
        .collect();
    // Encoding stops soon: no processor time is used any more.
    let mut used = server.cpu_time();
    assert!(
        wait_until(Duration::from_secs(60), || {
            std::thread::sleep(Duration::from_millis(200));
            let now = server.cpu_time();
            let rests = now == used;
            used = now;
            rests
        }),
        "it goes on"
    );
    let grown = server.peak_resident_kib() - before;
    assert!(grown < 8 * 2048, "{grown} KiB for eight clients");
    clients.iter_mut().for_each(|client| {
        client.read_exact(100_000).expect("it goes on when asked");
    });
}

#[test]
fn there_is_a_limit_to_what_encoders_hold() {
    // gzip: 512 KB, a block of 256 and 64 that come out. One fits, two do not.
    let server = setup()
        .config("deflate.max-memory = 1663\ndeflate.allowed-encodings = ( \"gzip\" )")
        .file("noise.html", pattern(0, 16 << 20))
        .start();
    let start = || {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
        client.send("GET /noise.html HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
        let coding = client.response_head().field("Content-Encoding").map(str::to_owned);
        (client, coding)
    };
    let (first, coding) = start();
    assert_eq!(coding.as_deref(), Some("gzip"));
    let (_second, coding) = start();
    assert_eq!(coding, None, "there is no room for another");
    let short = accepting(&server, "/small.html", "gzip");
    assert_eq!(short.field("Content-Encoding"), Some("gzip"), "what is short needs none");
    first.reset();
    assert!(wait_until(Duration::from_secs(20), || start().1.is_some()), "the room is free again");
    let server = setup()
        .config("deflate.max-memory = 1664\ndeflate.allowed-encodings = ( \"gzip\" )")
        .file("noise.html", pattern(0, 16 << 20))
        .start();
    let start = || {
        let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
        client.send("GET /noise.html HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
        let coding = client.response_head().field("Content-Encoding").map(str::to_owned);
        (client, coding)
    };
    let clients = [start(), start(), start()];
    let codings: Vec<bool> = clients.iter().map(|(_, coding)| coding.is_some()).collect();
    assert_eq!(codings, [true, true, false]);
}

#[test]
fn the_next_body_has_the_memory_of_the_last() {
    const BODIES: u64 = 40;
    let server = setup().file("page.html", text(100 << 10)).start();
    for coding in ["br", "gzip", "zstd"] {
        let fetch = || {
            let response = accepting(&server, "/page.html", coding);
            assert_eq!(response.field("Content-Encoding"), Some(coding));
        };
        (0..BODIES / 2).for_each(|_| fetch());
        let before = server.minor_faults();
        (0..BODIES).for_each(|_| fetch());
        let pages = (server.minor_faults() - before) / BODIES;
        // Given back and asked for each time, the tables of br are more than 300.
        assert!(pages < 150, "{coding}: the kernel gave {pages} pages for each body");
    }
}

#[test]
fn what_encoders_held_is_given_back() {
    let server = setup()
        .config("deflate.allowed-encodings = ( \"br\" )")
        .file("noise.html", pattern(0, 16 << 20))
        .start();
    let before = server.resident_kib();
    let clients: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::tcp_with_receive_buffer(server.address(), 4096);
            client.send("GET /noise.html HTTP/1.1\r\nHost: x\r\nAccept-Encoding: br\r\n\r\n");
            assert_eq!(client.response_head().field("Content-Encoding"), Some("br"));
            client
        })
        .collect();
    let least = before + 20 * 2048;
    assert!(wait_until(Duration::from_secs(60), || server.resident_kib() > least), "tables");
    clients.into_iter().for_each(Client::reset);
    let given_back = wait_until(Duration::from_secs(60), || {
        accepting(&server, "/small.html", "br");
        server.resident_kib() < before + 16 * 1024
    });
    assert!(given_back, "{before} KiB before, {} after", server.resident_kib());
}

#[test]
fn what_no_filter_touches_goes_by_sendfile() {
    let length = 3 << 20;
    let server = setup()
        .config("server.network-backend = \"linux-sendfile\"\nserver.errorlog-level = \"info\"")
        .file("picture.jpg", pattern(0, length))
        .start();
    let response = accepting(&server, "/picture.jpg", "gzip");
    assert_eq!((response.body.len(), response.field("Content-Encoding")), (length, None));
    server.signal(rustix::process::Signal::USR2);
    server.await_log(&format!("({length} by sendfile)"));
}

#[test]
fn a_file_that_no_filter_is_for_is_for_one_under_another_type() {
    const SEND: &str = "printf 'X-Sendfile: %s\\nContent-Type: text/html\\n\\n' \"$QUERY_STRING\"";
    let server = setup()
        .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\ncgi.x-sendfile = \"enable\"")
        .file("a.jpg", text(30_000))
        .file("send.sh", SEND)
        .start();
    let file = server.root("a.jpg").display().to_string();
    for _ in 0..2 {
        for _ in 0..2 {
            let image = accepting(&server, "/a.jpg", "gzip");
            assert_eq!((image.status, image.field("Content-Encoding")), (200, None));
            assert_eq!(image.field("Vary"), None);
        }
        let page = accepting(&server, &format!("/send.sh?{file}"), "gzip");
        assert_eq!(page.field("Content-Encoding"), Some("gzip"), "{page:?}");
        assert_eq!(plain(&page), text(30_000).as_bytes());
    }
}

#[test]
fn compressed_files_are_kept() {
    for (dir, more) in [
        ("deflate.cache-dir", ""),
        ("compress.cache-dir", "compress.filetype = ( \"text/html\" )\n"),
    ] {
        let setup = setup();
        let cache = setup.directory().join("cache");
        std::fs::create_dir(&cache).expect("a directory");
        let server = setup
            .config(&format!("{more}{dir} = \"@DIR@/cache\"\nserver.errorlog-level = \"info\""))
            .start();
        for target in ["/small.html", "/large.html"] {
            let body = server.get(target).body;
            let kept = || files(&cache).len();
            let before = kept();
            for coding in ["gzip", "br"] {
                let first = accepting(&server, target, coding);
                assert!(plain(&first) == body, "{target}");
            }
            assert!(wait_until(Duration::from_secs(30), || kept() == before + 2));
            // The cache may remember for a second that there was none.
            assert!(
                wait_until(Duration::from_secs(30), || {
                    accepting(&server, target, "gzip").field("Content-Length").is_some()
                }),
                "{target} is answered from the cache"
            );
            let second = accepting(&server, target, "gzip");
            assert_eq!(second.field("Content-Encoding"), Some("gzip"));
            assert!(plain(&second) == body, "{target}");
            let head = head(&server, target, "Accept-Encoding: gzip\r\n");
            assert_eq!(head.field("Content-Length"), second.field("Content-Length"));
            assert_eq!(head.field("ETag"), second.field("ETag"));
        }
        let names = files(&cache);
        assert_eq!(names.len(), 4);
        assert!(names.iter().any(|name| name.contains("/small.html-gzip-")), "{names:?}");
        // Changed: compressed anew.
        std::fs::write(server.root("small.html"), text(900)).expect("written");
        assert!(wait_until(Duration::from_secs(30), || {
            plain(&accepting(&server, "/small.html", "gzip")) == text(900).into_bytes()
        }));
    }
}

/// Names of all files beneath a directory.
fn files(directory: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            match entry.file_type().expect("a type").is_dir() {
                true => left.push(entry.path()),
                false => names.push(entry.path().to_string_lossy().into_owned()),
            }
        }
    }
    names
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let setup = setup();
    // Not even root can write into a file.
    std::fs::write(setup.directory().join("cache"), "a file").expect("written");
    let server = setup
        .config("deflate.cache-dir = \"@DIR@/cache\"\nserver.errorlog-level = \"info\"")
        .start();
    for _ in 0..3 {
        let response = accepting(&server, "/large.html", "gzip");
        assert_eq!(response.field("Content-Encoding"), Some("gzip"));
        assert!(plain(&response) == text(700_000).into_bytes());
    }
    server.await_log("deflate.cache-dir cannot be written");
}

#[test]
fn the_cache_follows_no_links() {
    let setup = setup();
    let (cache, secret) = (setup.directory().join("cache"), setup.directory().join("secret"));
    std::fs::create_dir(&cache).expect("a directory");
    std::fs::write(&secret, "secret").expect("a file");
    let server = setup.config("deflate.cache-dir = \"@DIR@/cache\"").start();
    let body = server.get("/large.html").body;
    let ask = || assert!(plain(&accepting(&server, "/large.html", "gzip")) == body);
    ask();
    assert!(wait_until(Duration::from_secs(30), || files(&cache).len() == 1));
    let kept = files(&cache).remove(0);
    std::fs::remove_file(&kept).expect("it is there");
    std::os::unix::fs::symlink(&secret, &kept).expect("a link");
    let is_file = || std::fs::symlink_metadata(&kept).is_ok_and(|meta| meta.is_file());
    let replaced = wait_until(Duration::from_secs(30), || {
        ask();
        is_file()
    });
    assert!(replaced, "made anew");
    assert_eq!(std::fs::read(&secret).expect("it is there"), b"secret");
}

#[test]
fn files_compressed_beforehand() {
    let gzipped = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text.as_bytes()).expect("encoded");
        encoder.finish().expect("encoded")
    };
    let marked = text(30_000).replace("number", "NUMBER");
    let prepare = || {
        setup()
            .file("middle.html.gz", gzipped(&marked))
            .file("old.html.gz", gzipped("old"))
            .file("old.html", text(30_000))
    };
    let server = prepare().config("deflate.precompressed = \"enable\"").start();
    let age = Duration::from_secs(1000);
    let long_ago = std::time::SystemTime::now() - age;
    let old = std::fs::File::options().write(true).open(server.root("old.html.gz")).expect("open");
    old.set_modified(long_ago).expect("set");
    let answer = accepting(&server, "/middle.html", "gzip, br;q=0.5");
    assert_eq!(answer.field("Content-Encoding"), Some("gzip"));
    assert_eq!(answer.field("Content-Type"), Some("text/html"));
    assert_eq!(answer.field("Content-Length"), Some(&*answer.body.len().to_string()));
    assert!(answer.field("ETag").is_some_and(|tag| tag.ends_with("-gzip\"")));
    assert!(plain(&answer) == marked.as_bytes(), "the one beside it");
    let head = head(&server, "/middle.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(head.field("Content-Length"), answer.field("Content-Length"));
    let other = accepting(&server, "/middle.html", "br");
    assert!(plain(&other) == text(30_000).as_bytes(), "made here");
    let fresh = accepting(&server, "/old.html", "gzip");
    assert!(plain(&fresh) == text(30_000).as_bytes(), "what is older is not sent");
    let server = prepare().start();
    let answer = accepting(&server, "/middle.html", "gzip");
    assert!(plain(&answer) == text(30_000).as_bytes(), "not unless enabled");
}

#[test]
fn a_busy_machine_compresses_nothing() {
    let server = setup().config("deflate.max-loadavg = \"0.0\"").start();
    let response = accepting(&server, "/middle.html", "gzip");
    assert_eq!(response.field("Content-Encoding"), None);
    assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
    let server = setup().config("deflate.max-loadavg = \"100000\"").start();
    assert!(accepting(&server, "/middle.html", "gzip").field("Content-Encoding").is_some());
}

#[test]
fn a_backend_that_breaks_off_is_noticed_behind_the_filter() {
    for framing in ["Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let backend = Backend::start(move |_, stream| {
            let begin = if framing.contains("chunked") { "4000\r\n" } else { "" };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{framing}\r\n{begin}{}",
                text(0x3000)
            )
            .expect("sent");
        });
        let server = setup().config(&backend.route("/cut")).start();
        let mut client = server.connect();
        client.send("GET /cut HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n");
        assert!(client.try_response(false).is_err(), "a torn answer must not look whole");
        server.await_log("ended early");
    }
}

#[test]
fn without_chunks_the_end_of_the_connection_is_the_end_of_the_body() {
    let server = setup().config("chunked.encoding = \"disable\"").start();
    let response = accepting(&server, "/large.html", "gzip");
    assert_eq!(
        (response.field("Transfer-Encoding"), response.field("Content-Length")),
        (None, None)
    );
    assert!(response.until_close && response.says_close());
    assert!(plain(&response) == text(700_000).as_bytes());
    let server = setup().start();
    let mut client = server.connect();
    client.send("GET /large.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    let old = client.response();
    assert!(old.until_close && old.field("Transfer-Encoding").is_none());
    assert!(plain(&old) == text(700_000).as_bytes());
}

#[test]
fn broken_configurations_are_refused() {
    for (line, words) in [
        ("deflate.allowed-encodings = ( \"gzip\", \"gzipp\" )", "did you mean"),
        ("deflate.params = ( \"BROTLI_PARAM_QUALITY\" => 12 )", "from 0 to 11"),
        ("deflate.params = ( \"BROTLI_PARAM_QALITY\" => 2 )", "BROTLI_PARAM_QUALITY"),
        ("deflate.max-loadavg = \"high\"", "3.50"),
        ("deflate.cache-dir = \"relative\"", "absolute"),
        ("deflate.work-block-size = 2049", "2048"),
    ] {
        let (code, out, error) = lighty!().config(line).run(&["-t", "-f", "@CONF@"]);
        assert_ne!(code, 0, "{line}");
        assert!(format!("{out}{error}").contains(words), "{line}: {out}{error}");
    }
    let good = "deflate.params = ( \"BROTLI_PARAM_QUALITY\" => 11, \"BROTLI_PARAM_MODE\" => \"text\",\n\
                \"ZSTD_c_strategy\" => 1, \"gzip.memLevel\" => 9, \"bzip2.blockSize100k\" => 1 )\n\
                deflate.allowed-encodings = ( \"bzip2\", \"x-gzip\", \"zstd\" )";
    let (code, out, error) = lighty!().config(good).run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{out}{error}");
}

/// A backend that answers each connection's one request.
struct Backend {
    address: SocketAddr,
}

impl Backend {
    fn start(answer: impl Fn(&str, &mut std::net::TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
                let mut request = Vec::new();
                let started = Instant::now();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read(&mut byte).unwrap_or(0) == 0 || started.elapsed().as_secs() > 20
                    {
                        break;
                    }
                    request.push(byte[0]);
                }
                if !request.is_empty() {
                    answer(&String::from_utf8_lossy(&request), &mut stream);
                }
            }
        });
        Self { address }
    }

    /// Sends what is asked for beneath a path to this backend.
    fn route(&self, path: &str) -> String {
        format!(
            "proxy.server = ( \"{path}\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => {} ) ) )",
            self.address.port()
        )
    }
}
