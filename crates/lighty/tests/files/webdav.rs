//! WebDAV from the outside: litmus, cadaver, and cases that neither of them covers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lighty_testkit::client::Client;
use lighty_testkit::dav::{
    LOCK_BODY, color, lock, names, put, request, set_color, status, token_of,
};
use lighty_testkit::real::find;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::small_disk::SmallDisk;
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn litmus_passes_whole() {
    let Some(litmus) = find(&["litmus"]) else { return };
    let server = lighty!().webdav_with_database("server.max-worker = 2").start();
    let directory = tempfile::TempDir::with_prefix("lighty-litmus-").expect("a directory");
    let output = Command::new(litmus)
        .args(["-k", &format!("http://{}/", server.address())])
        .current_dir(directory.path())
        .output()
        .expect("litmus runs");
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
    let summaries: Vec<&str> = text.lines().filter(|line| line.contains("summary for")).collect();
    assert_eq!(summaries.len(), 5, "{text}");
    assert!(summaries.iter().all(|line| line.contains(" 0 failed")), "{text}");
    assert!(!text.contains("WARNING"), "{text}");
    let passed: u32 = summaries
        .iter()
        .map(|line| {
            let (before, _) = line.split_once(" passed").expect("a count");
            before.rsplit(' ').next().expect("a count").parse::<u32>().expect("a number")
        })
        .sum();
    assert_eq!(passed, 104, "{text}");
}

#[test]
fn cadaver_works_in_a_directory_that_asks_for_a_user() {
    let Some(cadaver) = find(&["cadaver"]) else { return };
    let setup = lighty!()
        .webdav_with_database(
            "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
         auth.require = ( \"/\" => ( \"method\" => \"basic\", \"realm\" => \"dav\", \
         \"require\" => \"valid-user\" ) )",
        )
        .file("../users", "alice:secret\n")
        .file("../local.txt", "from here")
        .file("../.netrc", "machine 127.0.0.1 login alice password secret\n");
    let home: PathBuf = setup.directory().to_owned();
    let server = setup.start();
    let script = home.join("script");
    let commands = "mkcol d\ncd d\nput local.txt a.txt\nlock a.txt\npropset a.txt mood calm\n\
                    propget a.txt mood\nunlock a.txt\ncopy a.txt b.txt\nmove b.txt c.txt\n\
                    get c.txt back.txt\nls\ndelete a.txt\nquit\n";
    std::fs::write(&script, commands).expect("a script");
    let output = Command::new(cadaver)
        .arg(format!("http://{}/", server.address()))
        .current_dir(&home)
        .env("HOME", &home)
        .stdin(std::fs::File::open(&script).expect("the script"))
        .output()
        .expect("cadaver runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("failed") && text.contains("calm"), "{text}");
    assert_eq!(std::fs::read(home.join("back.txt")).expect("it came back"), b"from here");
    assert_eq!(names(&server.root("d")), ["c.txt"], "{text}");
}

#[test]
fn options_say_what_there_is() {
    let server = lighty!().webdav("").file("a.txt", "A").start();
    let reported = request(&server, "OPTIONS", "/nothing", "", "");
    assert_eq!((reported.status, reported.field("DAV")), (200, Some("1, 3")));
    assert!(!reported.field("Allow").unwrap_or_default().contains("LOCK"));
    assert_eq!(request(&server, "LOCK", "/a.txt", "", LOCK_BODY).status, 405);
    assert!(set_color(&server, "/a.txt", "red").text().contains("403 Forbidden"));
    let with = lighty!().webdav_with_database("").start();
    let reported = request(&with, "OPTIONS", "/", "", "");
    assert_eq!(reported.field("DAV"), Some("1, 2, 3"));
    assert_eq!(reported.field("MS-Author-Via"), Some("DAV"));
    assert!(reported.field("Allow").unwrap_or_default().contains("LOCK, UNLOCK"));
}

#[test]
fn options_have_one_of_each_field_beside_a_script_that_sets_them() {
    let names = ["DAV", "MS-Author-Via", "Allow"];
    let lines: String = names.map(|name| format!("lighty.header['{name}'] = 'x'\n")).concat();
    let script = "magnet.attract-physical-path-to = ( \"@DIR@/root/set.lua\" )";
    for setup in [lighty!(), lighty!().webdav("")] {
        let server = setup.config(script).file("set.lua", &lines).file("a.txt", "A").start();
        for (method, status) in [("OPTIONS", 200), ("TRACE", 405)] {
            let reported = request(&server, method, "/a.txt", "", "");
            assert_eq!(reported.status, status);
            for name in names {
                assert!(reported.all(name).count() <= 1, "{method}: {reported:?}");
            }
            assert_ne!(reported.field("Allow"), Some("x"), "{reported:?}");
        }
    }
}

#[test]
fn without_webdav_nothing_is_changed() {
    let server = lighty!()
        .config(
            "webdav.activate = \"disable\"\n$HTTP[\"url\"] =^ \"/ro/\" { \
                 webdav.activate = \"enable\"\n webdav.is-readonly = \"enable\" }",
        )
        .file("a.txt", "A")
        .file("ro/a.txt", "A")
        .start();
    for method in ["PROPFIND", "DELETE", "MKCOL", "PROPPATCH"] {
        assert_eq!(status(&server, method, "/a.txt", ""), 405, "{method}");
    }
    assert_eq!(put(&server, "/a.txt", "B"), 405);
    assert_eq!(status(&server, "PROPFIND", "/ro/", "Depth: 1\r\n"), 207);
    for method in ["DELETE", "MKCOL", "PROPPATCH", "MOVE", "COPY", "LOCK", "UNLOCK"] {
        assert_eq!(status(&server, method, "/ro/a.txt", ""), 403, "{method}");
    }
    assert_eq!(put(&server, "/ro/b.txt", "B"), 403);
    assert_eq!(names(&server.root("ro")), ["a.txt"]);
}

#[test]
fn a_put_is_seen_at_once_by_every_worker_with_the_tag_it_was_answered_with() {
    let server = lighty!().webdav("server.max-worker = 2").file("a.txt", "before").start();
    for turn in 0..50 {
        let content = format!("content {turn}");
        let answer = request(&server, "PUT", "/a.txt", "", &content);
        assert_eq!(answer.status, 204);
        for _ in 0..4 {
            let got = server.get("/a.txt");
            assert_eq!(got.text(), content);
            assert_eq!(got.field("ETag"), answer.field("ETag"));
        }
    }
    let body = "<propfind xmlns='DAV:'><prop><getetag/></prop></propfind>";
    let found = request(&server, "PROPFIND", "/a.txt", "Depth: 0\r\n", body);
    let etag = server.get("/a.txt").field("ETag").expect("a tag").replace('"', "&quot;");
    assert!(found.text().contains(&etag), "{}", found.text());
}

#[test]
fn conditions_of_a_put_are_obeyed() {
    let server = lighty!().webdav("").file("a.txt", "A").start();
    let etag = server.get("/a.txt").field("ETag").expect("a tag").to_owned();
    let conditional = |lines: &str| request(&server, "PUT", "/a.txt", lines, "B").status;
    assert_eq!(conditional("If-None-Match: *\r\n"), 412);
    assert_eq!(conditional("If-Match: \"other\"\r\n"), 412);
    assert_eq!(conditional("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), 412);
    assert_eq!(conditional("If: ([\"other\"])\r\n"), 412);
    assert_eq!(conditional("If: (<urn:uuid:no>)\r\n"), 412);
    assert_eq!(conditional("If: ([\"other\"]\r\n"), 400);
    assert_eq!(server.get("/a.txt").text(), "A");
    assert_eq!(conditional(&format!("If: ([\"other\"]) (Not <urn:uuid:no> [{etag}])\r\n")), 204);
    assert_eq!(server.get("/a.txt").text(), "B");
    let tagged = format!("If: <http://localhost/a.txt> ([{etag}])\r\n");
    assert_eq!(conditional(&tagged), 412, "the tag is that of the old file");
    assert_eq!(conditional("If: <http://elsewhere/a.txt> (<urn:uuid:no>)\r\n"), 412);
    assert_eq!(request(&server, "PUT", "/new", "If-None-Match: *\r\n", "N").status, 201);
    assert_eq!(request(&server, "PUT", "/newer", "If-Match: *\r\n", "N").status, 412);
}

#[test]
fn places_that_cannot_be_written_are_refused() {
    let server = lighty!()
        .webdav("")
        .file("dir/a.txt", "A")
        .link("out", "/etc")
        .link("file", "dir/a.txt")
        .start();
    assert_eq!(put(&server, "/none/a.txt", "x"), 409);
    assert_eq!(put(&server, "/dir/a.txt/b", "x"), 409);
    assert_eq!(put(&server, "/dir", "x"), 405);
    assert_eq!(put(&server, "/dir/", "x"), 405);
    assert_eq!(put(&server, "/", "x"), 405);
    assert_eq!(put(&server, "/out/passwd", "x"), 403);
    assert_eq!(put(&server, "/out/new", "x"), 403);
    assert_eq!(put(&server, "/file", "x"), 403);
    assert_eq!(status(&server, "MKCOL", "/dir", ""), 405);
    assert_eq!(status(&server, "MKCOL", "/none/a", ""), 409);
    assert_eq!(status(&server, "MKCOL", "/out/x", ""), 403);
    assert_eq!(request(&server, "MKCOL", "/x", "", "body").status, 415);
    assert_eq!(status(&server, "DELETE", "/out/passwd", ""), 403);
    assert_eq!(status(&server, "DELETE", "/", ""), 403);
    assert_eq!(status(&server, "DELETE", "/none", ""), 404);
    assert_eq!(status(&server, "DELETE", "/dir#part", ""), 400);
    assert_eq!(status(&server, "DELETE", "/dir", "Depth: 0\r\n"), 400);
    assert_eq!(status(&server, "PROPFIND", "/out/", "Depth: 1\r\n"), 404);
    let listed = request(&server, "PROPFIND", "/", "Depth: 1\r\n", "");
    assert!(!listed.text().contains("/out") && !listed.text().contains("/file"));
    // DELETE removes the link itself, not its target.
    assert_eq!(status(&server, "DELETE", "/file", ""), 204);
    assert_eq!(names(&server.root("dir")), ["a.txt"]);
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn destinations_go_the_way_of_requests() {
    let setup = lighty!().webdav(
        "server.modules = ( \"mod_alias\" )\nalias.url = ( \"/store/\" => \"@DIR@/store/\" )\n\
         $HTTP[\"url\"] =^ \"/closed/\" { access.deny-all = \"enable\" }\n\
         $HTTP[\"url\"] =^ \"/ro/\" { webdav.is-readonly = \"enable\" }\n\
         $HTTP[\"url\"] =^ \"/plain/\" { webdav.activate = \"disable\" }",
    );
    let setup = setup.file("a.txt", "A").file("closed/x", "").file("ro/x", "").file("plain/x", "");
    let setup = setup.file("../store/s.txt", "S").link("out", "/tmp");
    let server = setup.start();
    let copy =
        |target: &str| status(&server, "COPY", "/a.txt", &format!("Destination: {target}\r\n"));
    assert_eq!(copy("http://elsewhere/b.txt"), 502);
    assert_eq!(copy("http://localhost:81/b.txt"), 502);
    assert_eq!(copy("ftp://localhost/b.txt"), 400);
    assert_eq!(copy("b.txt"), 400);
    assert_eq!(copy("/b.txt?x"), 400);
    assert_eq!(copy("/closed/b.txt"), 403);
    assert_eq!(copy("/ro/b.txt"), 403);
    assert_eq!(copy("/plain/b.txt"), 403);
    assert_eq!(copy("/out/b.txt"), 403);
    assert_eq!(copy("/none/b.txt"), 409);
    assert_eq!(copy("/a.txt"), 403);
    assert_eq!(copy("/x/../a.txt"), 403);
    // The destination always lies beneath the root.
    assert_eq!(copy("/../../../b.txt"), 201);
    assert_eq!(copy("/%2e%2e/c.txt"), 201);
    assert_eq!(copy("http://LOCALHOST/d%20e.txt"), 201);
    assert_eq!(copy("/store/a.txt"), 201);
    let moved =
        |from: &str, to: &str| status(&server, "MOVE", from, &format!("Destination: {to}\r\n"));
    assert_eq!(moved("/store/s.txt", "/s.txt"), 201);
    assert_eq!(moved("/store/../a.txt", "/store/b.txt"), 201);
    assert_eq!(status(&server, "COPY", "/b.txt", ""), 400);
    let found = names(&server.root(""));
    assert_eq!(found, ["b.txt", "c.txt", "closed", "d e.txt", "out", "plain", "ro", "s.txt"]);
    assert_eq!(names(&server.directory().join("store")), ["a.txt", "b.txt"]);
}

/// A destination that lacks its last segment must not cost a tree.
#[test]
fn a_file_goes_into_the_collection_at_its_destination() {
    let server = lighty!()
        .webdav_with_database("")
        .file("a.txt", "A")
        .file("b%c.txt", "B")
        .file("d/x.txt", "X")
        .file("e/a.txt/y", "Y")
        .start();
    let to = |target: &str| format!("Destination: {target}\r\n");
    assert_eq!(status(&server, "COPY", "/a.txt", &to("/d")), 204);
    assert_eq!(names(&server.root("d")), ["a.txt", "x.txt"]);
    assert_eq!(status(&server, "MOVE", "/b%25c.txt", &to("/d/")), 204);
    assert_eq!(names(&server.root("d")), ["a.txt", "b%c.txt", "x.txt"]);
    let refused = format!("{}Overwrite: F\r\n", to("/d"));
    assert_eq!(status(&server, "COPY", "/a.txt", &refused), 412);
    assert_eq!(status(&server, "COPY", "/a.txt", &to("/e")), 409, "another collection is inside");
    assert_eq!(names(&server.root("")), ["a.txt", "d", "e"]);
}

#[test]
fn trees_are_copied_moved_and_removed_whole() {
    let setup = lighty!()
        .webdav_with_database("")
        .file("t/a.txt", "A")
        .file("t/s/b.txt", "B")
        .file("old/x", "X");
    let server = setup.link("t/s/link", "/etc/passwd").start();
    assert_eq!(set_color(&server, "/t/s/b.txt", "red").status, 207);
    assert_eq!(set_color(&server, "/old/x", "blue").status, 207);
    let to = |target: &str, more: &str| format!("Destination: {target}\r\n{more}");
    assert_eq!(status(&server, "COPY", "/t", &to("/old", "Overwrite: F\r\n")), 412);
    assert_eq!(status(&server, "COPY", "/t", &to("/t/s/deeper", "")), 403);
    assert_eq!(status(&server, "MOVE", "/t/s", &to("/t", "")), 403);
    assert_eq!(status(&server, "COPY", "/t/", &to("/old/", "")), 204);
    assert_eq!(names(&server.root("old")), ["a.txt", "s"]);
    // Links are no resources.
    assert_eq!(names(&server.root("old/s")), ["b.txt"]);
    assert_eq!(color(&server, "/old/s/b.txt").as_deref(), Some("red"));
    assert_eq!(put(&server, "/old/x", "again"), 201);
    assert_eq!(color(&server, "/old/x"), None, "what was replaced has left nothing");
    assert_eq!(status(&server, "COPY", "/t", &to("/shallow", "Depth: 0\r\n")), 201);
    assert!(names(&server.root("shallow")).is_empty());
    assert_eq!(status(&server, "MOVE", "/t", &to("/moved", "Depth: 0\r\n")), 400);
    assert_eq!(status(&server, "MOVE", "/t", &to("/moved", "")), 201);
    assert_eq!(color(&server, "/moved/s/b.txt").as_deref(), Some("red"));
    assert_eq!(status(&server, "DELETE", "/moved/", ""), 204);
    assert_eq!(names(&server.root("")), ["old", "shallow"]);
    assert_eq!(status(&server, "MKCOL", "/moved", ""), 201);
    assert_eq!(color(&server, "/moved"), None);
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn an_upload_that_is_cut_or_killed_leaves_the_old_file() {
    let mut server = lighty!().webdav("").file("a.txt", "before").start();
    let begin = |server: &Server, target: &str| -> Client {
        let mut client = server.connect();
        client.send(format!("PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n"));
        client.send(vec![b'x'; 1_000_000]);
        client
    };
    let written = |server: &Server| {
        // The file has no name: it is seen through the descriptors of the server.
        let directory = format!("/proc/{}/fd", server.pid());
        let entries = std::fs::read_dir(directory).expect("the process is there");
        let sizes = entries.flatten().filter_map(|entry| std::fs::metadata(entry.path()).ok());
        sizes.filter(|meta| meta.is_file()).map(|meta| meta.len()).max().unwrap_or(0)
    };
    let cut = begin(&server, "/a.txt");
    assert!(wait_until(SOON, || written(&server) >= 500_000), "nothing is written");
    cut.reset();
    assert!(wait_until(SOON, || written(&server) < 500_000), "the cut upload is kept");
    assert_eq!(server.get("/a.txt").text(), "before");
    let _one = begin(&server, "/a.txt");
    let _two = begin(&server, "/new.txt");
    assert!(wait_until(SOON, || written(&server) >= 500_000), "nothing is written");
    server.kill();
    assert_eq!(std::fs::read(server.root("a.txt")).expect("the old file"), b"before");
    assert_eq!(names(&server.root("")), ["a.txt"]);
}

#[test]
fn staging_files_left_by_a_crash_are_hidden_and_swept() {
    let setup =
        lighty!().webdav("dir-listing.activate = \"enable\"").file(".lighty-dav-00/half", "x");
    let server = setup.file("a/.lighty-dav-01", "x").file("a/b", "B").start();
    for target in ["/.lighty-dav-00/half", "/a/.lighty-dav-01"] {
        assert_eq!(server.get(target).status, 404);
        assert_eq!(status(&server, "PROPFIND", target, "Depth: 0\r\n"), 404);
        assert_eq!(put(&server, target, "mine"), 404);
        assert_eq!(status(&server, "COPY", "/a/b", &format!("Destination: {target}\r\n")), 403);
    }
    for target in ["/", "/a/"] {
        let listed = request(&server, "PROPFIND", target, "Depth: 1\r\n", "");
        assert!(!listed.text().contains("lighty-dav"), "{}", listed.text());
    }
    let swept = || names(&server.root("")) == ["a"] && names(&server.root("a")) == ["b"];
    assert!(wait_until(SOON, swept));
}

#[test]
fn a_full_disk_costs_the_new_file_and_not_the_old_one() {
    let setup = lighty!().webdav("");
    let Some(_disk) = SmallDisk::mount(&setup.root(""), c"size=1m") else { return };
    std::fs::create_dir(setup.root("dir")).expect("a directory");
    std::fs::write(setup.root("dir/big"), vec![b'b'; 400_000]).expect("a file");
    std::fs::write(setup.root("a.txt"), "before").expect("a file");
    let server = setup.start();
    let too_much = "x".repeat(2_000_000);
    assert_eq!(put(&server, "/a.txt", &too_much), 507);
    assert_eq!(put(&server, "/new.txt", &too_much), 507);
    assert_eq!(server.get("/a.txt").text(), "before");
    assert_eq!(status(&server, "COPY", "/dir", "Destination: /copy\r\n"), 201);
    assert_eq!(status(&server, "COPY", "/dir", "Destination: /more\r\n"), 507);
    assert_eq!(status(&server, "COPY", "/dir/big", "Destination: /a.txt\r\n"), 507);
    assert_eq!(server.get("/a.txt").text(), "before");
    assert_eq!(names(&server.root("")), ["a.txt", "copy", "dir"]);
    let room = || put(&server, "/b.txt", "room again") == 201;
    assert!(wait_until(SOON, room), "what was not finished takes room");
}

#[test]
fn limits_are_named_in_the_log() {
    let server = lighty!()
        .webdav_with_database(
            "webdav.max-locks = 2\nwebdav.max-property-size = 100\nwebdav.max-xml-size = 1000",
        )
        .file("a", "")
        .file("b", "")
        .file("c", "")
        .start();
    assert_eq!(lock(&server, "/a", "").status, 200);
    assert_eq!(lock(&server, "/b", "").status, 200);
    assert_eq!(lock(&server, "/c", "").status, 507);
    server.await_log("webdav.max-locks");
    assert_eq!(set_color(&server, "/c", "red").status, 207);
    assert_eq!(set_color(&server, "/c", &"r".repeat(100)).status, 507);
    server.await_log("webdav.max-property-size");
    assert_eq!(color(&server, "/c").as_deref(), Some("red"));
    let body = |length: usize| {
        let empty = "<D:propfind xmlns:D='DAV:'><D:allprop/></D:propfind>";
        format!("{empty}{}", " ".repeat(length - empty.len()))
    };
    let ask = |length| request(&server, "PROPFIND", "/c", "Depth: 0\r\n", &body(length)).status;
    assert_eq!((ask(1000), ask(1001)), (207, 413));
    server.await_log("webdav.max-xml-size");
}

#[test]
fn bodies_that_are_not_what_they_should_be_are_refused() {
    let server = lighty!().webdav_with_database("").file("a.txt", "A").start();
    let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>\
                <D:propfind xmlns:D='DAV:'><D:prop><D:x>&b;</D:x></D:prop></D:propfind>";
    let outside = "<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><x>&a;</x>";
    let deep = format!("<propfind xmlns='DAV:'>{}", "<a>".repeat(10_000));
    for body in [bomb, outside, &deep, "<x/>", "no xml", "<D:propfind xmlns:D='DAV:'/>"] {
        let answer = request(&server, "PROPFIND", "/a.txt", "Depth: 0\r\n", body);
        assert_eq!(answer.status, 400, "{body}");
    }
    assert_eq!(request(&server, "PROPPATCH", "/a.txt", "", "").status, 400);
    assert_eq!(request(&server, "LOCK", "/a.txt", "", "<x/>").status, 422);
    assert_eq!(request(&server, "LOCK", "/a.txt", "", "").status, 400);
    assert_eq!(status(&server, "PROPFIND", "/a.txt", "Depth: 2\r\n"), 400);
    assert_eq!(status(&server, "UNLOCK", "/a.txt", "Lock-Token: x\r\n"), 400);
}

#[test]
fn little_xml_does_not_stand_for_much() {
    let server = lighty!().webdav_with_database("").file("a", "A").start();
    let find = |names: usize| {
        let names: String = (0..names).map(|number| format!("<p{number}/>")).collect();
        let body = format!("<D:propfind xmlns:D='DAV:'><D:prop>{names}</D:prop></D:propfind>");
        request(&server, "PROPFIND", "/a", "Depth: 0\r\n", &body)
    };
    assert_eq!((find(256).status, find(257).status), (207, 400));
    assert_eq!(set_color(&server, "/a", &"r".repeat(10_000)).status, 207);
    let twice = "<D:propfind xmlns:D='DAV:'><D:prop><c:color xmlns:c='urn:x'/>\
                 <d:color xmlns:d='urn:x'/></D:prop></D:propfind>";
    let once = request(&server, "PROPFIND", "/a", "Depth: 0\r\n", twice);
    assert_eq!(once.text().matches(&"r".repeat(10_000)).count(), 1);
    // Each property would be kept with all namespaces around it.
    let spaces: String =
        (0..30).map(|number| format!(" xmlns:n{number}='{}'", "n".repeat(500))).collect();
    let many = "<p/>".repeat(1000);
    let set = format!(
        "<D:propertyupdate xmlns:D='DAV:'{spaces}><D:set><D:prop>{many}</D:prop></D:set>\
         </D:propertyupdate>"
    );
    assert_eq!(request(&server, "PROPPATCH", "/a", "", &set).status, 507);
    let owned = |length: usize| {
        let owner = "<D:owner xmlns:D=\"DAV:\"></D:owner>".len();
        let lock = format!(
            "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:shared/></D:lockscope><D:locktype>\
             <D:write/></D:locktype><D:owner>{}</D:owner></D:lockinfo>",
            "o".repeat(length - owner)
        );
        request(&server, "LOCK", "/a", "", &lock).status
    };
    assert_eq!((owned(4096), owned(4097)), (200, 400));
}

#[test]
fn move_or_copy_onto_the_same_tree_is_refused_by_any_path() {
    let server = lighty!().webdav("").file("col/f", "F").file("col/sub/g", "G").start();
    std::os::unix::fs::symlink("col", server.root("link")).expect("a link");
    for (from, to) in
        [("/link/f", "/col/f"), ("/link/sub", "/col"), ("/link/f", "/col"), ("/col", "/link/sub/x")]
    {
        for verb in ["MOVE", "COPY"] {
            let lines = format!("Destination: {to}\r\n");
            assert_eq!(status(&server, verb, from, &lines), 403, "{verb} {from} {to}");
        }
    }
    assert_eq!(server.get("/col/f").text(), "F");
    assert_eq!(server.get("/col/sub/g").text(), "G");
}

#[test]
fn whole_trees_are_listed_where_that_is_allowed() {
    let files = |setup: Setup| setup.file("t/a", "A").file("t/s/b", "B").file("t/s/d/c", "C");
    let refusing = files(lighty!().webdav("")).start();
    let refused = request(&refusing, "PROPFIND", "/t/", "", "");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("propfind-finite-depth"));
    let opts = "webdav.opts = ( \"propfind-depth-infinity\" => \"enable\" )";
    let server = files(lighty!().webdav(opts)).start();
    let listed = request(&server, "PROPFIND", "/t/", "Depth: infinity\r\n", "");
    for url in ["/t/", "/t/a", "/t/s/", "/t/s/b", "/t/s/d/", "/t/s/d/c"] {
        let count = listed.text().matches(&format!("<D:href>{url}</D:href>")).count();
        assert_eq!(count, 1, "{url}");
    }
}

#[test]
fn links_are_shown_where_that_is_asked_for_and_never_walked() {
    let opts = "webdav.opts = ( \"propfind-depth-infinity\" => \"enable\", \
                \"unsafe-propfind-follow-symlink\" => \"enable\" )";
    let setup = lighty!().webdav(opts).file("t/a", "A").link("t/file", "a").link("t/circle", ".");
    let server = setup.link("t/out", "/etc").start();
    let listed = request(&server, "PROPFIND", "/t/", "Depth: infinity\r\n", "");
    let hrefs: Vec<&str> = listed.text().split("<D:href>").skip(1).collect();
    let mut hrefs: Vec<_> = hrefs.iter().filter_map(|rest| rest.split_once('<')).collect();
    hrefs.sort_unstable();
    let urls: Vec<_> = hrefs.iter().map(|(url, _)| *url).collect();
    assert_eq!(urls, ["/t/", "/t/a", "/t/circle/", "/t/file"]);
    assert_eq!(status(&server, "PROPFIND", "/t/file", "Depth: 0\r\n"), 207);
    assert_eq!(status(&server, "PROPFIND", "/t/out/", "Depth: 1\r\n"), 403);
    assert_eq!(put(&server, "/t/file", "x"), 403);
}

#[test]
fn moves_between_file_systems_take_everything_along() {
    let setup = lighty!().webdav_with_database("alias.url = ( \"/here/\" => \"@DIR@/here/\" )");
    let setup = setup.file("../here/t/s/a.txt", "A").file("../here/b.txt", "B");
    let Some(_disk) = SmallDisk::mount(&setup.root(""), c"size=1m") else { return };
    let server = setup.start();
    assert_eq!(set_color(&server, "/here/t/s/a.txt", "red").status, 207);
    assert_eq!(status(&server, "MOVE", "/here/t", "Destination: /there\r\n"), 201);
    assert_eq!(server.get("/there/s/a.txt").text(), "A");
    assert_eq!(color(&server, "/there/s/a.txt").as_deref(), Some("red"));
    assert_eq!(status(&server, "MOVE", "/here/b.txt", "Destination: /there\r\n"), 204);
    assert_eq!(server.get("/there/b.txt").text(), "B");
    assert_eq!(names(&server.directory().join("here")).len(), 0);
    assert_eq!(names(&server.root("")), ["there"]);
}

#[test]
fn an_upload_is_watched_while_it_comes() {
    let id = "0123456789abcdef0123456789abcdef";
    let server = lighty!().webdav("upload-progress.progress-url = \"/progress\"").start();
    let mut client = server.connect();
    client.send(format!(
        "PUT /a.txt HTTP/1.1\r\nHost: a\r\nX-Progress-ID: {id}\r\nContent-Length: 1000\r\n\r\n"
    ));
    client.send(vec![b'x'; 600]);
    let seen = || server.get(&format!("/progress?X-Progress-ID={id}")).text().contains("600");
    assert!(wait_until(SOON, seen));
    client.send(vec![b'x'; 400]);
    assert_eq!(client.response().status, 201);
}

#[test]
fn long_collections_are_listed_in_constant_memory() {
    let setup = lighty!().webdav_with_database("");
    for (name, count) in [("few", 2_000), ("many", 30_000)] {
        std::fs::create_dir(setup.root(name)).expect("a directory");
        for number in 0..count {
            std::fs::File::create(setup.root(&format!("{name}/{number:05}"))).expect("a file");
        }
    }
    let server = setup.start();
    let list = |name: &str| request(&server, "PROPFIND", &format!("/{name}/"), "Depth: 1\r\n", "");
    let few = list("few");
    assert_eq!(few.text().matches("<D:response>").count(), 2_001);
    let before = server.peak_resident_kib();
    let listed = list("many");
    assert_eq!(listed.text().matches("<D:response>").count(), 30_001);
    assert!(listed.text().ends_with("</D:multistatus>\n"));
    let grown = server.peak_resident_kib().saturating_sub(before);
    assert!(listed.body.len() > 12 << 20 && grown < 6 << 10, "{grown} KiB");
}

#[test]
fn parts_are_put_only_where_that_is_allowed() {
    let part = |server: &Server, range: &str, body: &str| {
        request(server, "PUT", "/a.txt", &format!("Content-Range: {range}\r\n"), body).status
    };
    let refusing = lighty!().webdav("").file("a.txt", "0123456789").start();
    assert_eq!(part(&refusing, "bytes 2-3/10", "xx"), 400);
    assert_eq!(refusing.get("/a.txt").text(), "0123456789");
    let opts = "webdav.opts = ( \"partial-put-copy-modify\" => \"enable\" )";
    let server = lighty!().webdav(opts).file("a.txt", "0123456789").start();
    assert_eq!(part(&server, "bytes 2-3/10", "xx"), 204);
    assert_eq!(part(&server, "bytes 9-11/*", "yyy"), 204);
    assert_eq!(server.get("/a.txt").text(), "01xx45678yyy");
    assert_eq!(part(&server, "bytes 13-13/*", "z"), 400, "a gap");
    assert_eq!(part(&server, "bytes 0-1/*", "z"), 400, "too short");
    assert_eq!(part(&server, "bytes 0-1/*", "zzz"), 400, "too long");
    assert_eq!(server.get("/a.txt").text(), "01xx45678yyy");
}

#[test]
fn names_that_are_too_long_are_said_to_be() {
    let server = lighty!().webdav_with_database("").file("a", "A").start();
    let (fits, long) = (format!("/{}", "n".repeat(255)), format!("/{}", "n".repeat(256)));
    let to = |target: &str| format!("Destination: {target}\r\n");
    assert_eq!(status(&server, "COPY", "/a", &to(&long)), 414);
    assert_eq!(status(&server, "MOVE", "/a", &to(&long)), 414);
    assert_eq!(status(&server, "COPY", "/a", &to(&format!("{long}/b"))), 414);
    assert_eq!(put(&server, &long, "x"), 414);
    assert_eq!(status(&server, "MKCOL", &long, ""), 414);
    assert_eq!(lock(&server, &long, "").status, 414);
    assert_eq!(status(&server, "COPY", "/a", &to(&fits)), 201);
    assert_eq!(names(&server.root("")).len(), 2);
}

#[test]
fn many_properties_cost_bounded_memory() {
    let server = lighty!().webdav_with_database("").file("a", "A").start();
    assert_eq!(set_color(&server, "/a", "red").status, 207);
    let before = server.peak_resident_kib();
    // Each has the longest namespace with it, set and removed by turns.
    let space = "n".repeat(512);
    let body = |verb: &str, count: usize| {
        let names: String = (0..count).map(|number| format!("<p{number}/>")).collect();
        format!(
            "<D:propertyupdate xmlns:D='DAV:' xmlns='{space}'><D:{verb}><D:prop>{names}</D:prop>\
             </D:{verb}></D:propertyupdate>"
        )
    };
    let rounds = |count: usize| {
        for _ in 0..count {
            assert_eq!(request(&server, "PROPPATCH", "/a", "", &body("set", 900)).status, 207);
            assert_eq!(request(&server, "PROPPATCH", "/a", "", &body("remove", 4000)).status, 207);
            assert_eq!(request(&server, "PROPPATCH", "/a", "", &body("set", 4000)).status, 507);
        }
        server.peak_resident_kib()
    };
    // The peak is one or two times the data in flight, depending on the allocator's arenas. A leak
    // grows with each round of requests; the arenas stop growing.
    let first = rounds(10);
    assert!(first - before < 48 << 10, "{} KiB", first - before);
    let mut peaks = vec![first];
    let mut grows = || {
        peaks.push(rounds(20));
        // The kernel counts in batches: its peak may also fall by some pages.
        peaks[peaks.len() - 1].saturating_sub(peaks[peaks.len() - 2]) >= 4 << 10
    };
    assert!(!(grows() && grows() && grows()), "it grows on and on: {peaks:?} KiB");
}

#[test]
fn an_unknown_body_is_refused_and_nothing_is_done() {
    let server = lighty!().webdav_with_database("").file("a", "A").file("d/b", "B").start();
    let token = token_of(&lock(&server, "/d/b", ""));
    let unlock = format!("Lock-Token: {token}\r\n");
    let cases = [
        ("DELETE", "/a", ""),
        ("COPY", "/a", "Destination: /c\r\n"),
        ("MOVE", "/a", "Destination: /c\r\n"),
        ("MKCOL", "/new", ""),
        ("UNLOCK", "/d/b", &*unlock),
    ];
    for (method, target, lines) in cases {
        for body in [
            "Content-Length: 5\r\n\r\n<a/>\n",
            "Content-Length: 500\r\n\r\n<a",
            "Transfer-Encoding: chunked\r\n\r\n4\r\n<a/>\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\nff\r\n<a",
            "Transfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        ] {
            let mut client = server.connect();
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}{body}"));
            assert_eq!(client.response().status, 415, "{method} {body:?}");
        }
    }
    assert_eq!(names(&server.root("")), ["a", "d"]);
    assert_eq!(put(&server, "/d/b", "other"), 423, "it is locked still");
    // Every form of an empty body.
    for (method, target, lines, expected) in [
        ("COPY", "/a", "Destination: /c\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", 201),
        ("COPY", "/a", "Destination: /c\r\nContent-Length: 0\r\n", 204),
        ("DELETE", "/c", "Transfer-Encoding: chunked\r\n\r\n0\r\n", 204),
    ] {
        assert_eq!(status(&server, method, target, lines), expected, "{method} {lines:?}");
    }
    assert_eq!(status(&server, "UNLOCK", "/d/b", &unlock), 204);
}

#[test]
fn a_place_to_go_to_is_one() {
    let server = lighty!().webdav("").file("a", "A").start();
    for method in ["COPY", "MOVE"] {
        let two = "Destination: /b\r\nDestination: /c\r\n";
        assert_eq!(status(&server, method, "/a", two), 400, "{method}");
        let same = "Destination: /b\r\ndestination: /b\r\n";
        assert_eq!(status(&server, method, "/a", same), 400, "{method}");
        let overwrite = "Destination: /b\r\nOverwrite: F\r\nOverwrite: T\r\n";
        assert_eq!(status(&server, method, "/a", overwrite), 400, "{method}");
    }
    assert_eq!(status(&server, "PROPFIND", "/a", "Depth: 0\r\nDepth: 1\r\n"), 400);
    assert_eq!(names(&server.root("")), ["a"]);
}

/// Microsoft's clients leave the collection itself out (MS-WDV).
#[test]
fn listing_may_leave_out_its_collection() {
    let server = lighty!().webdav("").file("d/a.txt", "A").file("d/e/b.txt", "B").start();
    let hrefs = |depth: &str| {
        let listing = request(&server, "PROPFIND", "/d/", &format!("Depth: {depth}\r\n"), "");
        assert_eq!(listing.status, 207, "{depth}: {listing:?}");
        let text = listing.text().to_owned();
        let mut hrefs: Vec<_> = text
            .split("<D:href>")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('<')?.0.to_owned()))
            .collect();
        hrefs.sort();
        hrefs
    };
    assert_eq!(hrefs("1"), ["/d/", "/d/a.txt", "/d/e/"]);
    for depth in ["1,noroot", "1, NoRoot"] {
        assert_eq!(hrefs(depth), ["/d/a.txt", "/d/e/"], "{depth}");
    }
    for depth in ["0,noroot", "2,noroot", "1,root", "1,", ",noroot", "1,noroot,x"] {
        let refused = status(&server, "PROPFIND", "/d/", &format!("Depth: {depth}\r\n"));
        assert_eq!(refused, 400, "{depth}");
    }
    // Methods that change files reject doubtful header fields instead of guessing.
    assert_eq!(status(&server, "DELETE", "/d/", "Depth: infinity,noroot\r\n"), 400);
    assert!(server.root("d/e/b.txt").exists());
}

#[test]
fn members_without_a_url_are_not_listed() {
    use std::os::unix::ffi::OsStrExt;
    let server = lighty!().webdav("").file("d/good.txt", "G").start();
    let odd: [&[u8]; 4] = [b"bell\x07.txt", b"line\n.txt", b"latin\xfc.txt", b"del\x7f"];
    for name in odd {
        let path = server.root("d").join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, "odd").expect("written");
    }
    let listing = request(&server, "PROPFIND", "/d/", "Depth: 1\r\n", "");
    let text = listing.text();
    assert_eq!(text.matches("<D:href>").count(), 2 + usize::from(text.contains("%FC")), "{text}");
    for href in text.split("<D:href>").skip(1).filter_map(|rest| Some(rest.split_once('<')?.0)) {
        let got = server.get(href).status;
        assert!([200, 403].contains(&got), "{href} is listed, and {got}");
    }
}

/// The default port may be written or left out.
#[test]
fn destination_of_the_same_host_may_name_its_port() {
    let server = lighty!().webdav("").start();
    for (number, (host, destination, expected)) in [
        ("a.test", "http://a.test:80/", 201),
        ("a.test:80", "http://a.test/", 201),
        ("A.test", "http://a.TEST/", 201),
        ("a.test", "/", 201),
        ("a.test:8080", "http://a.test:8080/", 201),
        ("a.test:8080", "http://a.test/", 502),
        ("a.test", "http://b.test/", 502),
        ("a.test", "http://a.test:81/", 502),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(put(&server, "/from", "x") / 100, 2);
        let mut client = server.connect();
        client.send(format!(
            "COPY /from HTTP/1.1\r\nHost: {host}\r\nDestination: {destination}to{number}\r\n\r\n"
        ));
        assert_eq!(client.response().status, expected, "{host} {destination}");
    }
}
