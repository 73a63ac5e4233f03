//! Tests of listings through requests and responses, with real directories.

use std::ffi::OsStr;
use std::future::poll_fn;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use lighty_buf::Chunk;
use lighty_config::{LoadOptions, Main, MemoryLoader, Style, Table, load};
use lighty_core::settings::directives;
use lighty_core::{Generation, Log, Machine, ModuleList, pipeline};
use lighty_http::Fields;
use lighty_io::clock::Clock;
use lighty_io::file::{EngineChoice, EngineLimits, FileEngine};
use lighty_io::log_writer::{LogTarget, LogWriter};
use lighty_io::stat_cache::{CacheEngine, CacheLimits, StatCache};

use super::*;

struct Answer {
    status: u16,
    fields: Fields,
    body: Vec<u8>,
    /// Chunks that a streamed body came in; 0 for one from memory.
    chunks: usize,
}

impl Answer {
    fn field(&self, name: Known) -> &str {
        std::str::from_utf8(self.fields.get(name).unwrap_or_default()).expect("ASCII")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    fn names(&self) -> Vec<String> {
        let rows: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        let rows = rows.as_array().expect("an array");
        rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    }
}

/// A server without sockets, over a directory.
struct Site {
    generation: Rc<Generation>,
    clock: Clock,
}

impl Site {
    fn open(root: &Path, config: &str) -> Site {
        let text = format!(
            "server.document-root = \"{}\"\ndir-listing.activate = \"enable\"\n{config}\n",
            root.display()
        );
        let table = Table::new().rows(directives::all()).rows(DirListing::directives());
        let main = Main::Text { name: "test", text: text.as_bytes() };
        let (config, findings, sources) =
            load(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
        let config = config.unwrap_or_else(|| {
            panic!("{}", findings.render(&sources, Style { color: false }));
        });
        let clock = Clock::manual(4_000_000_000);
        let engine = FileEngine::start_with_clock(
            EngineChoice::Threads,
            EngineLimits::default(),
            clock.clone(),
        )
        .expect("an engine");
        let cache = StatCache::new(engine.clone(), CacheEngine::Simple, CacheLimits::default());
        let errors = LogWriter::open(LogTarget::stderr()).expect("stderr");
        let log = Log::new(errors.handle(), Level::Error, false);
        let modules = ModuleList::new(vec![Rc::new(DirListing::new(Listings::default()))]);
        let machine = Rc::new(Machine::new(clock.clone(), engine, cache, log));
        let generation = Generation::new(machine, Arc::new(config), modules);
        Site { generation: Rc::new(generation), clock }
    }

    async fn ask(&self, method: Method, path: &[u8], fields: &[(Known, &str)]) -> Answer {
        let mut ex = Exchange::new(&self.generation);
        ex.request.method = Some(method);
        ex.request.target = path.to_vec();
        ex.request.path_end = path.len();
        ex.decode_path().expect("a good path");
        for (name, value) in fields {
            ex.request.fields.push_known(*name, value);
        }
        ex.resolve_settings();
        pipeline::respond(&mut ex).await;
        let (mut body, mut chunks) = (Vec::new(), 0);
        match ex.response.body {
            Body::Empty => {}
            Body::Memory(bytes) => body.extend_from_slice(&bytes),
            Body::Stream(mut stream) => {
                while let Some(chunk) = poll_fn(|cx| stream.poll_next(cx)).await {
                    let Chunk::Memory(bytes) = chunk.expect("no disk error") else {
                        panic!("a listing is no file");
                    };
                    body.extend_from_slice(&bytes);
                    chunks += 1;
                }
            }
            _ => panic!("a listing is no file"),
        }
        let (status, fields) = (ex.response.status.code(), ex.response.fields);
        Answer { status, fields, body, chunks }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::Get, path.as_bytes(), &[]).await
    }

    async fn json(&self, path: &str) -> Answer {
        self.ask(Method::Get, path.as_bytes(), &[(Known::Accept, "application/json")]).await
    }
}

fn run(test: impl AsyncFnOnce()) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test());
}

fn tree(names: &[&[u8]]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for name in names {
        let path = dir.path().join(OsStr::from_bytes(name));
        match name.ends_with(b"/") {
            true => std::fs::create_dir(path).expect("mkdir"),
            false => std::fs::write(path, "12345").expect("write"),
        }
    }
    dir
}

#[test]
fn a_directory_is_a_page_or_an_array() {
    let dir = tree(&[b"b.txt", b"sub/", b"a.txt", b".secret", b"bad\xe4", b"<script>"]);
    run(async || {
        let site = Site::open(dir.path(), "");
        let page = site.get("/").await;
        assert_eq!(page.status, 200);
        assert_eq!(page.field(Known::ContentType), "text/html; charset=utf-8");
        assert_eq!(page.field(Known::Vary), "Accept");
        assert!(page.field(Known::ContentSecurityPolicy).starts_with("default-src 'none'"));
        assert!(page.text().contains("<a href=\"bad%E4\"><bdi>bad\u{fffd}</bdi>"));
        assert!(page.text().contains("<bdi>&lt;script&gt;</bdi>"));
        assert_eq!(page.text().matches("<script>").count(), 1, "its own");
        assert!(!page.text().contains(".secret"));
        assert_eq!(page.chunks, 0, "a short listing has a length");

        let list = site.json("/").await;
        assert_eq!(list.field(Known::ContentType), "application/json");
        assert_eq!(list.field(Known::Vary), "Accept");
        assert_eq!(list.names(), ["sub", "<script>", "a.txt", "b.txt", "bad\u{fffd}"]);
    });
}

#[test]
fn a_name_that_no_url_may_have_is_no_link() {
    let dir = tree(&[b"line\nbreak", b"\x01/", b"late\xff", b"a b"]);
    let refused = |list: &Answer| -> Vec<String> {
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&list.body).expect("JSON");
        let refused = rows.iter().filter(|row| row["fetchable"] == false);
        refused.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
    };
    run(async || {
        let site = Site::open(dir.path(), "");
        let page = site.get("/").await;
        assert_eq!(page.text().matches("<a href=").count(), 1, "{}", page.text());
        assert!(
            page.text().contains("<a title=\"A URL with this name is refused\"><bdi>line\u{240a}")
        );
        assert_eq!(refused(&site.json("/").await), ["\u{1}", "late\u{fffd}", "line\nbreak"]);
        // A name that the URL parser accepts becomes a link.
        let lax = "server.http-parseopts = ( \"url-ctrls-reject\" => \"disable\" )";
        let site = Site::open(dir.path(), lax);
        assert!(site.get("/").await.text().contains("<a href=\"line%0Abreak\">"));
        assert_eq!(site.get("/%01/").await.status, 200);
        assert_eq!(refused(&site.json("/").await), ["late\u{fffd}"]);
    });
}

#[test]
fn json_is_for_who_prefers_it() {
    let dir = tree(&[b"a"]);
    run(async || {
        let site = Site::open(dir.path(), "");
        for (accept, expected) in [
            ("*/*", "text/html; charset=utf-8"),
            ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"),
            ("application/json", "application/json"),
            ("application/json;q=0.5, text/html;q=0.4", "application/json"),
            ("application/json;q=0.5, text/html", "text/html; charset=utf-8"),
        ] {
            let answer = site.ask(Method::Get, b"/", &[(Known::Accept, accept)]).await;
            assert_eq!(answer.field(Known::ContentType), expected, "{accept}");
        }
    });
}

#[test]
fn validators_answer_304_for_the_same_form_only() {
    let dir = tree(&[b"a"]);
    run(async || {
        let site = Site::open(dir.path(), "");
        let page = site.get("/").await;
        let tag = page.field(Known::ETag);
        assert!(tag.starts_with("W/\""), "{tag}");
        let known = [(Known::IfNoneMatch, tag)];
        let again = site.ask(Method::Get, b"/", &known).await;
        assert_eq!((again.status, again.body.len()), (304, 0));
        assert_eq!(again.field(Known::ETag), tag);
        let json = [(Known::IfNoneMatch, tag), (Known::Accept, "application/json")];
        assert_eq!(site.ask(Method::Get, b"/", &json).await.status, 200);
        // The directory's mtime does not change.
        std::fs::write(dir.path().join("a"), "it has grown").expect("written");
        let grown = site.ask(Method::Get, b"/", &known).await;
        assert_eq!(grown.status, 200);
        assert_ne!(grown.field(Known::ETag), tag);
    });
}

#[test]
fn head_tells_what_get_would() {
    let dir = tree(&[b"a"]);
    run(async || {
        let site = Site::open(dir.path(), "");
        let (get, head) = (site.get("/").await, site.ask(Method::Head, b"/", &[]).await);
        // The protocol layer omits the body.
        assert_eq!((head.status, head.body.len()), (200, get.body.len()));
        for name in [Known::ContentType, Known::ETag, Known::Vary] {
            assert_eq!(head.field(name), get.field(name), "{name:?}");
        }
    });
}

#[test]
fn other_methods_and_switched_off_listings_are_refused() {
    let dir = tree(&[b"a"]);
    run(async || {
        let site = Site::open(dir.path(), "");
        let post = site.ask(Method::Post, b"/", &[]).await;
        assert_eq!((post.status, post.field(Known::Allow)), (405, "OPTIONS, GET, HEAD"));
        assert_eq!(site.ask(Method::Options, b"/", &[]).await.status, 200);
        let off = "$HTTP[\"url\"] == \"/\" { dir-listing.activate = \"disable\" }";
        assert_eq!(Site::open(dir.path(), off).get("/").await.status, 403);
    });
}

#[test]
fn a_long_listing_is_streamed_whole_and_sorted() {
    const FILES: usize = 3000;
    let dir = tempfile::tempdir().expect("a directory");
    let name = |number: usize| format!("file-{number:05}.txt");
    for number in (0..FILES).rev() {
        std::fs::write(dir.path().join(name(number)), "").expect("write");
    }
    run(async || {
        for sort in ["enable", "disable"] {
            let site = Site::open(dir.path(), &format!("dir-listing.sort = \"{sort}\""));
            let page = site.get("/").await;
            assert!(page.chunks > 10, "{} chunks", page.chunks);
            assert_eq!(page.text().matches("<tr><th scope=row>").count(), FILES);
            assert!(page.text().ends_with("</html>\n"));
            let mut names = site.json("/").await.names();
            if sort == "disable" {
                names.sort();
            }
            assert_eq!(names, (0..FILES).map(name).collect::<Vec<_>>());
        }
    });
}

#[test]
fn links_that_lead_nowhere_are_not_listed() {
    let dir = tree(&[b"a", b"sub/"]);
    std::os::unix::fs::symlink("gone", dir.path().join("dangling")).expect("symlink");
    std::os::unix::fs::symlink("a", dir.path().join("link")).expect("symlink");
    run(async || {
        let site = Site::open(dir.path(), "");
        assert_eq!(site.json("/").await.names(), ["sub", "a", "link"]);
        let closed = Site::open(dir.path(), "server.follow-symlink = \"disable\"");
        assert_eq!(closed.json("/").await.names(), ["sub", "a"]);
    });
}

#[test]
fn header_and_readme_stand_around_the_table() {
    let dir = tree(&[b"a", b"sub/"]);
    std::fs::write(dir.path().join("HEADER.txt"), "<b>above</b>").expect("write");
    std::fs::write(dir.path().join("README.html"), "<b>below</b>").expect("write");
    let config = "dir-listing.show-header = \"enable\"\n\
                  dir-listing.hide-header-file = \"enable\"\n\
                  dir-listing.show-readme = \"README.html\"\n\
                  dir-listing.encode-readme = \"disable\"\n\
                  dir-listing.set-footer = \"<i>foot</i>\"";
    run(async || {
        let site = Site::open(dir.path(), config);
        let page = site.get("/").await;
        let text = page.text();
        let at = |piece: &str| text.find(piece).unwrap_or_else(|| panic!("{piece} in {text}"));
        assert!(at("<pre>&lt;b&gt;above&lt;/b&gt;</pre>") < at("<table>"));
        assert!(at("</table>") < at("<b>below</b>"));
        assert!(at("<b>below</b>") < at("<footer><i>foot</i></footer>"));
        assert!(!text.contains("href=\"HEADER.txt\""));
        assert!(text.contains("href=\"README.html\""));
        assert!(page.field(Known::ContentSecurityPolicy).contains("style-src 'unsafe-inline'"));
        assert!(!site.get("/sub/").await.text().contains("below"));
    });
}

#[test]
fn protected_files_are_never_shown_whichever_way_they_are_named() {
    let dir = tree(&[]);
    for name in ["secret", "public"] {
        std::fs::write(dir.path().join(name), format!("the {name} text")).expect("write");
    }
    protected_files::keep(&dir.path().join("secret"), &[]);
    let absolute = |name: &str| dir.path().join(name).display().to_string();
    run(async || {
        for (header, readme) in
            [("secret".to_owned(), "public".to_owned()), (absolute("secret"), absolute("public"))]
        {
            let config = format!(
                "dir-listing.show-header = \"{header}\"\ndir-listing.show-readme = \"{readme}\""
            );
            let page = Site::open(dir.path(), &config).get("/").await;
            assert!(page.text().contains("the public text"), "{readme}");
            assert!(!page.text().contains("secret"), "{header}");
        }
    });
}

#[test]
fn a_file_is_shown_up_to_its_limit() {
    let dir = tree(&[]);
    let path = dir.path().join("README.txt");
    run(async || {
        let site = Site::open(dir.path(), "dir-listing.show-readme = \"enable\"");
        for (length, shown) in
            [(INSERT_BYTES_MAX, INSERT_BYTES_MAX), (INSERT_BYTES_MAX + 1, INSERT_BYTES_MAX)]
        {
            std::fs::write(&path, "~".repeat(length)).expect("write");
            site.generation.machine.drop_caches();
            assert_eq!(site.get("/").await.text().matches('~').count(), shown);
        }
    });
}

#[test]
fn a_cached_listing_is_reused_for_its_age() {
    let dir = tree(&[b"a"]);
    let file = dir.path().join("a");
    run(async || {
        // The stat cache looks twice at a directory that changed less than 20 ms ago.
        let age = || dir.path().metadata().and_then(|meta| meta.modified()).map(|t| t.elapsed());
        while !matches!(age(), Ok(Ok(age)) if age.as_millis() > 30) {
            tokio::task::yield_now().await;
        }
        let site = Site::open(dir.path(), "dir-listing.cache = ( \"max-age\" => 15 )");
        let size = async || {
            let rows = site.json("/").await;
            assert_eq!(rows.field(Known::CacheControl), "max-age=15");
            let rows: serde_json::Value = serde_json::from_slice(&rows.body).expect("JSON");
            rows[0]["size"].as_u64().expect("a size")
        };
        assert_eq!(size().await, 5);
        // The file grows; its directory does not change.
        std::fs::write(&file, "1234567").expect("write");
        assert_eq!(size().await, 5);
        site.clock.advance(std::time::Duration::from_secs(14));
        assert_eq!(size().await, 5);
        site.clock.advance(std::time::Duration::from_secs(1));
        assert_eq!(size().await, 7);
    });
}

#[test]
fn style_script_and_encoding_of_the_page_can_be_replaced() {
    let dir = tree(&[b"a.tar~", b"b"]);
    let config = "dir-listing.external-css = \"https://cdn.example/l.css\"\n\
                  dir-listing.external-js = \"/l.js\"\n\
                  dir-listing.encoding = \"\"\n\
                  dir-listing.exclude = ( \"~$\" )";
    run(async || {
        let site = Site::open(dir.path(), config);
        let page = site.get("/").await;
        assert_eq!(page.field(Known::ContentType), "text/html");
        assert!(page.text().contains("href=\"https://cdn.example/l.css\""));
        assert!(page.text().contains("<script src=\"/l.js\">"));
        assert!(!page.text().contains("charset"));
        assert!(!page.text().contains("a.tar"));
        let policy = page.field(Known::ContentSecurityPolicy);
        assert!(policy.contains("style-src https://cdn.example; script-src 'self';"), "{policy}");
        let bare = Site::open(dir.path(), "dir-listing.auto-layout = \"disable\"");
        let page = bare.get("/").await;
        assert!(page.text().starts_with("<table>"));
        assert!(!page.fields.contains(Known::ContentSecurityPolicy));
    });
}
