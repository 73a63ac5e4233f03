//! SSI pages: the effect of each command, the restrictions on commands, and equality with lighttpd
//! 1.4 for the same pages.

use std::fmt::Write;
use std::time::{Duration, Instant};

use lighty_testkit::peer::{LighttpdPeer, ask};
use lighty_testkit::response::Response;
use lighty_testkit::server::{Server, Setup};
use lighty_testkit::{lighty, wait_until};

const SOON: Duration = Duration::from_secs(10);

fn pages(pages: &[(&str, &str)]) -> Setup {
    let setup = lighty!().config("ssi.extension = ( \".shtml\" )");
    pages.iter().fold(setup, |setup, (path, text)| setup.file(path, text))
}

fn request(server: &Server, method: &str, target: &str) -> Response {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    ask(server.connect(), &request)
}

#[track_caller]
fn says(server: &Server, target: &str, wanted: &str) {
    let answer = server.get(target);
    assert_eq!((answer.status, answer.text()), (200, wanted), "{target}:\n{}", server.log());
    let head = request(server, "HEAD", target);
    let reported = |answer: &Response| {
        answer
            .fields
            .iter()
            .filter(|(name, _)| name != "Date" && name != "Connection")
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(reported(&head), reported(&answer), "{target}: HEAD agrees");
}

#[test]
fn request_text_in_a_page_is_escaped_by_default() {
    let server = pages(&[(
        "d/a.shtml",
        "<!--#echo var=\"QUERY_STRING\"-->|<!--#echo var=\"HTTP_X\" encoding=\"url\" -->|\
         <!--#echo encoding=\"none\" var=\"HTTP_X\"-->|<!--#echo var=HTTP_X-->|\
         <!--#echo var='DOCUMENT_URI'-->|<!--#echo var=\"DOCUMENT_NAME\" var=\"REQUEST_METHOD\"-->|\
         <!--#echo var=\"SET\"-->|<!--#echo var=\"NOPE\"-->",
    )])
    .config("setenv.add-environment = ( \"SET\" => \"by <us>\" )")
    .start();
    let mut client = server.connect();
    client.send("GET /d/a.shtml?<script> HTTP/1.1\r\nHost: a\r\nX: <b>\"'&\r\n\r\n");
    let answer = client.response();
    let shown = "&lt;b&gt;&quot;&#39;&amp;";
    assert_eq!(
        answer.text(),
        format!(
            "%3Cscript%3E|%3Cb%3E%22%27%26|<b>\"'&|{shown}|/d/a.shtml|a.shtmlGET|by &lt;us&gt;|(none)"
        )
    );
    assert_eq!(answer.field("Content-Type"), Some("text/html"));
    assert_eq!((answer.field("ETag"), answer.field("Last-Modified")), (None, None));
    let all = pages(&[("a.shtml", "<!--#set var=\"mine\" value=\"<i>\"--><!--#printenv -->")]);
    let all = all.start();
    let answer = all.get("/a.shtml/info?<q>");
    for line in
        ["mine=&lt;i&gt;", "DOCUMENT_NAME=a.shtml", "PATH_INFO=/info", "SCRIPT_NAME=/a.shtml"]
    {
        assert!(answer.text().lines().any(|known| known == line), "{line}:\n{}", answer.text());
    }
    assert!(!answer.text().contains('<'));
}

#[test]
fn files_and_urls_are_put_in() {
    let long = "0123456789abcdef".repeat(20_000);
    let page = "[<!--#include file=\"part.txt\"-->|<!--#include virtual=\"/sub/%70.txt?x\"-->|\
        <!--#include virtual=\"../sub/p.txt\"-->|<!--#include virtual=\"/al/o.txt\"-->|\
        <!--#include file=\"part.txt\" virtual=\"in.shtml?a=b\"-->|<!--#include file=\"deep/p.shtml\"-->]";
    let server = pages(&[
        ("d/a.shtml", page),
        ("d/part.txt", "<part>"),
        ("d/in.shtml", "{<!--#echo var=\"QUERY_STRING\"-->,<!--#echo var=\"DOCUMENT_NAME\"-->}"),
        ("d/deep/p.shtml", "<!--#include file=\"q.txt\"--><!--#include virtual=\"q.txt\"-->"),
        ("d/deep/q.txt", "deep"),
        ("sub/p.txt", "sub"),
        ("../aliased/o.txt", "other"),
        ("long.shtml", &format!("{long}<!--#include virtual=\"/long.txt\"-->{long}")),
        ("long.txt", &long),
        ("empty.shtml", "<!--#set var=\"a\" value=\"b\"-->"),
    ])
    .config("alias.url = ( \"/al/\" => \"@DIR@/aliased/\" )")
    .start();
    says(&server, "/d/a.shtml", "[<part>|sub|sub|other|<part>{a=b,a.shtml}|deepdeep]");
    says(&server, "/long.shtml", &long.repeat(3));
    says(&server, "/empty.shtml", "");
    assert_eq!(server.get("/d/a.shtml").field("Content-Length"), Some("51"));
    let mut client = server.connect();
    client.send("POST /d/in.shtml HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na=b");
    assert_eq!(client.response().text(), "{,in.shtml}");
    assert_eq!(request(&server, "PUT", "/d/in.shtml").status, 405);
    let options = request(&server, "OPTIONS", "/d/in.shtml");
    assert_eq!((options.status, options.field("Allow")), (200, Some("OPTIONS, GET, HEAD, POST")));
}

#[test]
fn a_page_reaches_what_its_client_may_ask_for_and_no_more() {
    let setup = pages(&[
        (
            "d/file.shtml",
            "<!--#config errmsg=\"E\"--><!--#include file=\"../secret.txt\"-->\
            <!--#include file=\"/../../outside.txt\"--><!--#include file=\"none\"-->\
            <!--#include file=\".\"--><!--#include file=\"\"-->",
        ),
        (
            "d/climb.shtml",
            "<!--#config errmsg=\"E\"--><!--#include virtual=\"/../../outside.txt\"-->\
            <!--#include virtual=\"/%2e%2e/outside.txt\"--><!--#include virtual=\"/a%00b\"-->",
        ),
        (
            "d/denied.shtml",
            "<!--#config errmsg=\"E\"--><!--#include virtual=\"/secret.inc\"-->\
            <!--#include virtual=\"/private/p.txt\"--><!--#include virtual=\"/d\"-->\
            <!--#include virtual=\"/moved\"--><!--#fsize virtual=\"/private/p.txt\"-->\
            <!--#flastmod virtual=\"/secret.inc\"--><!--#fsize virtual=\"/d/\"-->",
        ),
        ("d/near.shtml", "<!--#include file=\"near.inc\"-->"),
        ("d/near.inc", "near"),
        ("secret.txt", "SECRET"),
        ("secret.inc", "SECRET"),
        ("private/p.txt", "PRIVATE"),
        ("../outside.txt", "OUTSIDE"),
        ("../users", "anna:pass\n"),
    ])
    .link("d/link.txt", "/etc/passwd")
    .file(
        "d/linked.shtml",
        "<!--#include file=\"link.txt\"-->x<!--#include virtual=\"link.txt\"-->",
    );
    let server = setup
        .config(
            "url.access-deny = ( \".inc\" )\nserver.follow-symlink = \"disable\"\n\
             url.redirect = ( \"^/moved\" => \"/secret.txt\" )\n\
             auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
             auth.require = ( \"/private\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \
             \"require\" => \"valid-user\" ) )",
        )
        .start();
    says(&server, "/d/file.shtml", "EEEEE");
    says(&server, "/d/climb.shtml", "EEE");
    says(&server, "/d/denied.shtml", "EEEEEEE");
    says(&server, "/d/linked.shtml", "x");
    // A file beside the page belongs to the page, even if its URL is denied.
    says(&server, "/d/near.shtml", "near");
    let mut client = server.connect();
    client.send(
        "GET /d/denied.shtml HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YW5uYTpwYXNz\r\n\r\n",
    );
    assert_eq!(client.response().text(), "EPRIVATEEE7EE");
    server.await_log("virtual \"/secret.inc\": answered 403");
    server.await_log("file \"../secret.txt\": it is not beneath the page's directory");
}

#[test]
fn programs_and_listings_can_be_put_in() {
    let server = pages(&[
        (
            "a.shtml",
            "<<!--#include virtual=\"/p.sh?x=1\"-->|<!--#include virtual=\"/fail.sh\"-->|\
            <!--#include virtual=\"/torn.sh\"-->>",
        ),
        (
            "p.sh",
            "printf 'Content-Type: text/plain\\n\\n'; printf \"$QUERY_STRING $REQUEST_METHOD\"",
        ),
        ("fail.sh", "printf 'Status: 404\\n\\nnot this'"),
        ("torn.sh", "printf 'Content-Length: 50\\n\\npart'"),
        ("ls.shtml", "<!--#include virtual=\"/dir/\"-->"),
        ("dir/listed.txt", ""),
    ])
    .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )\ndir-listing.activate = \"enable\"")
    .start();
    says(&server, "/a.shtml", "<x=1 GET||part>");
    assert!(server.get("/ls.shtml").text().contains("listed.txt"));
    server.await_log("virtual \"/fail.sh\": answered 404");
    server.await_log("virtual \"/torn.sh\": ");
}

#[test]
fn conditions_choose() {
    let server = pages(&[
        (
            "a.shtml",
            "<!--#if expr=\"$QUERY_STRING = a\"-->A<!--#elif expr=\"$QUERY_STRING = b \
            || $QUERY_STRING = c\"-->BC<!--#else-->else<!--#endif-->.",
        ),
        (
            "nested.shtml",
            "<!--#if expr=\"$QUERY_STRING\"-->1<!--#if expr=\"$nope\"-->2\
            <!--#echo var=\"x\"--><!--#else-->3<!--#endif-->4<!--#else-->5\
            <!--#if expr=\"a\"-->6<!--#endif--><!--#endif-->7",
        ),
        (
            "wrong.shtml",
            "<!--#config errmsg=\"E\"--><!--#if expr=\"(\"-->1<!--#else-->2<!--#endif-->\
            <!--#endif--><!--#else--><!--#elif expr=\"a\"--><!--#if-->3<!--#endif-->\
            <!--#foo--><!--#echo var-->\
            <!--#if expr=\"\"--><!--#foo--><!--#echo var--><!--#endif-->\
            <!--#if expr=\"a\"-->4<!--#else-->5<!--#else-->6<!--#endif--><!--#if expr=\"a\"-->7",
        ),
        (
            "set.shtml",
            "<!--#set var=\"x\" value=\"a \\\"b\\\"\"--><!--#if expr='$x = \"a \\\"b\\\"\"'-->\
            yes<!--#endif--><!--#echo var=\"x\" encoding=\"none\"--><!--#comment no more -->",
        ),
    ])
    .start();
    says(&server, "/a.shtml?a", "A.");
    says(&server, "/a.shtml?c", "BC.");
    says(&server, "/a.shtml", "else.");
    says(&server, "/nested.shtml?x", "1347");
    says(&server, "/nested.shtml", "567");
    says(&server, "/wrong.shtml", "E2EEEEEE4E7");
    says(&server, "/set.shtml", "yesa \"b\"");
    server.await_log("an if has no endif");
    server.await_log("/wrong.shtml");
}

#[test]
fn sizes_and_times() {
    let server = pages(&[
        ("a.shtml", "<!--#fsize file=\"f\"-->,<!--#config sizefmt=\"abbrev\"--><!--#fsize virtual=\"/f\"-->,\
            <!--#config timefmt=\"%Y-%m-%d %H:%M %Z\"--><!--#flastmod file=\"f\"-->,\
            <!--#flastmod virtual=\"f\"-->,<!--#fsize virtual=\"b.shtml\"-->"),
        ("b.shtml", "<!--#exec cmd=\"touch ran\"-->"),
        ("f", &"x".repeat(1500)),
        ("now.shtml", "<!--#config timefmt=\"%s\"--><!--#echo var=\"DATE_GMT\"--> \
            <!--#echo var=\"DATE_LOCAL\"--> <!--#echo var=\"LAST_MODIFIED\"--> <!--#echo var=\"USER_NAME\"-->"),
        ("gmt.shtml", "<!--#echo var=\"DATE_GMT\"-->"),
    ])
    .config("ssi.exec = \"enable\"")
    .env("TZ", "UTC")
    .start();
    let file = std::fs::File::open(server.root("f")).expect("a file");
    let then = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777);
    file.set_modified(then).expect("a time");
    says(&server, "/a.shtml", "1500,1 kB,1994-11-06 08:49 UTC,1994-11-06 08:49 UTC,28 B");
    assert!(!server.root("ran").exists(), "a page is not run for its size");
    let answer = server.get("/now.shtml");
    let parts: Vec<&str> = answer.text().split(' ').collect();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    for word in &parts[..3] {
        assert!(
            word.parse::<u64>().is_ok_and(|reported| reported <= now + 2 && reported + 60 > now),
            "{word}"
        );
    }
    assert_eq!(parts.len(), 4);
    assert!(!parts[3].is_empty());
    assert!(server.get("/gmt.shtml").text().ends_with(" GMT"));
}

#[test]
fn commands_are_run_where_that_is_allowed() {
    let server = pages(&[
        ("off/a.shtml", "<!--#config errmsg=\"E\"--><!--#exec cmd=\"touch ran\"-->"),
        ("on/a.shtml", "<<!--#exec cmd=\"printf '%s' \\\"$QUERY_STRING\\\"; basename $PWD; echo loud >&2; exit 3\"-->>"),
        ("on/slow.shtml", "<!--#config errmsg=\"E\"--><!--#exec cmd=\"echo $$ >pid; sleep 600\"-->"),
        ("on/much.shtml", "<!--#config errmsg=\"E\"--><!--#exec cmd=\"head -c 2048 /dev/zero\"-->"),
        ("on/more.shtml", "<!--#config errmsg=\"E\"--><!--#exec cmd=\"head -c 2049 /dev/zero\"-->"),
        ("on/none.shtml", "<!--#config errmsg=\"E\"--><!--#exec cgi=\"/x\"-->"),
        ("part.shtml", "<!--#include virtual=\"/off/a.shtml\"-->"),
    ])
    .config(
        "$HTTP[\"url\"] =^ \"/on/\" { ssi.exec = \"enable\" }\nssi.exec-timeout = 1\n\
         ssi.exec-max-output = 2",
    )
    .start();
    says(&server, "/off/a.shtml", "E");
    says(&server, "/part.shtml", "E");
    assert!(!server.root("off/ran").exists());
    says(&server, "/on/a.shtml?$(id)`id`", "<$(id)%60id%60on\n>");
    server.await_log("exec: loud");
    server.await_log("exec: exit code 3");
    let begun = Instant::now();
    assert_eq!(server.get("/on/slow.shtml").text(), "E");
    assert!(begun.elapsed() < SOON);
    server.await_log("ssi.exec-timeout = 1 ran out");
    let pid = std::fs::read_to_string(server.root("on/pid")).expect("a number");
    let is_there = || std::path::Path::new(&format!("/proc/{}", pid.trim())).exists();
    assert!(wait_until(SOON, || !is_there()), "the command is gone, and no zombie");
    assert_eq!(server.get("/on/much.shtml").body.len(), 2048);
    says(&server, "/on/more.shtml", "E");
    server.await_log("more than ssi.exec-max-output = 2");
    says(&server, "/on/none.shtml", "E");
}

#[test]
fn processes_of_a_page_end_with_its_client() {
    let server = pages(&[
        ("exec.shtml", "<!--#exec cmd=\"echo $$ >pid; sleep 600\"-->"),
        ("part.shtml", "<!--#include virtual=\"/exec.shtml\"-->"),
        ("cgi.shtml", "<!--#include virtual=\"/run.sh\"-->"),
        ("run.sh", "printf 'X: y\\n\\n'; echo $$ >pid; exec sleep 600"),
    ])
    .config(
        "ssi.exec = \"enable\"\nssi.exec-timeout = 600\ncgi.assign = ( \".sh\" => \"/bin/sh\" )",
    )
    .start();
    let note = server.root("pid");
    for page in ["exec", "part", "cgi"] {
        let mut client = server.connect();
        client.send(format!("GET /{page}.shtml HTTP/1.1\r\nHost: a\r\n\r\n"));
        let noted = || std::fs::read_to_string(&note).unwrap_or_default();
        assert!(wait_until(SOON, || noted().ends_with('\n')), "{page}");
        let process = format!("/proc/{}", noted().trim());
        std::fs::remove_file(&note).expect("noted");
        client.reset();
        let is_there = || std::path::Path::new(&process).exists();
        assert!(wait_until(SOON, || !is_there()), "{page} runs on, or is a zombie");
    }
}

#[test]
fn half_closed_client_gets_a_page_that_is_ready_soon() {
    let server = pages(&[
        ("a.shtml", "<!--#exec cmd=\"sleep 1; printf done\"-->"),
        ("slow.shtml", "<!--#exec cmd=\"sleep 600\"-->"),
        ("cgi.shtml", "<!--#include virtual=\"/run.sh\"-->"),
        ("run.sh", "exec sleep 600"),
    ])
    .config("ssi.exec = \"enable\"\nssi.exec-timeout = 600\nserver.max-half-closed-idle = 3")
    .config("cgi.assign = ( \".sh\" => \"/bin/sh\" )")
    .start();
    let ask = |page: &str| {
        let mut client = server.connect();
        client.send(format!("GET /{page}.shtml HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.half_close();
        client.response()
    };
    assert_eq!(ask("a").text(), "done");
    assert_eq!(ask("slow").status, 408);
    assert_eq!(ask("cgi").status, 408);
}

#[test]
fn a_command_that_runs_delays_no_other_request() {
    let server = pages(&[("a.shtml", "<!--#exec cmd=\"sleep 600\"-->"), ("b", "b")])
        .config("ssi.exec = \"enable\"\nssi.exec-timeout = 2\nssi.max-processes = 1")
        .start();
    let mut waiting = server.connect();
    waiting.send("GET /a.shtml HTTP/1.1\r\nHost: a\r\n\r\n");
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed() < Duration::from_millis(500) {
        assert_eq!(server.get("/b").text(), "b");
        count += 1;
    }
    assert!(count > 5, "{count} requests in half a second");
    assert_eq!(server.get("/a.shtml").text(), "");
    server.await_log("ssi.max-processes = 1 is reached");
    assert_eq!(waiting.response().text(), "");
}

#[test]
fn pages_within_pages_have_limits() {
    let mut setup = pages(&[
        ("self.shtml", "s<!--#include file=\"self.shtml\"-->"),
        ("selfurl.shtml", "u<!--#include virtual=\"selfurl.shtml\"-->"),
        (
            "twice.shtml",
            "<!--#include virtual=\"twice.shtml\"--><!--#include virtual=\"twice.shtml\"-->",
        ),
        ("raw/a.shtml", "<!--#include virtual=\"b.shtml\"--><!--#include file=\"b.shtml\"-->"),
        ("raw/b.shtml", "<!--#echo var=\"x\"-->"),
        (
            "three.shtml",
            "<!--#set var=\"a\" value=\"1\"--><!--#echo var=\"a\"--><!--#echo var=\"a\"-->",
        ),
        ("four.shtml", "<!--#include virtual=\"three.shtml\"-->"),
        ("much.shtml", "<!--#include file=\"1000\"-->"),
        ("more.shtml", "<!--#include file=\"1000\"--><!--#include virtual=\"/1000\"-->"),
        ("1000", &"x".repeat(1000)),
    ]);
    for (name, depth) in [("ifs64", 64), ("ifs65", 65)] {
        let mut page = "<!--#if expr=\"a\"-->".repeat(depth);
        write!(page, "in{}", "<!--#endif-->".repeat(depth)).expect("a text");
        setup = setup.file(&format!("{name}.shtml"), page);
    }
    let server = setup
        .config(
            "ssi.recursion-max = 2\n$HTTP[\"url\"] =^ \"/raw/\" { ssi.recursion-max = 0 }\n\
             $HTTP[\"url\"] =~ \"^/(three|four|twice)\" { ssi.max-commands = 3 }\n\
             $HTTP[\"url\"] =~ \"^/(much|more)\" { ssi.max-memory = 1 }",
        )
        .start();
    says(&server, "/self.shtml", "sss");
    says(&server, "/selfurl.shtml", "uuu");
    server.await_log("ssi.recursion-max = 2");
    says(&server, "/raw/a.shtml", &"<!--#echo var=\"x\"-->".repeat(2));
    says(&server, "/three.shtml", "11");
    for (target, limit) in
        [("/four.shtml", "ssi.max-commands = 3"), ("/twice.shtml", "ssi.max-commands = 3")]
    {
        assert_eq!(server.get(target).status, 500, "{target}");
        server.await_log(limit);
    }
    says(&server, "/much.shtml", &"x".repeat(1000));
    assert_eq!(server.get("/more.shtml").status, 500);
    server.await_log("ssi.max-memory = 1");
    says(&server, "/ifs64.shtml", "in");
    assert_eq!(server.get("/ifs65.shtml").status, 500);
    server.await_log("more than 64 ifs");
}

#[test]
fn clients_that_have_the_page_get_304() {
    let server = pages(&[("a.shtml", "<!--#include virtual=\"/f\"-->"), ("f", "one")])
        .config("ssi.conditional-requests = \"enable\"\nserver.stat-cache-engine = \"disable\"")
        .start();
    let then = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777);
    for name in ["a.shtml", "f"] {
        let file = std::fs::File::open(server.root(name)).expect("a file");
        file.set_modified(then).expect("a time");
    }
    let answer = server.get("/a.shtml");
    assert_eq!(answer.field("Last-Modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    let tag = answer.field("ETag").expect("a tag").to_owned();
    let again = |tag: &str| {
        let mut client = server.connect();
        client.send(format!("GET /a.shtml HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\r\n"));
        client.response()
    };
    let same = again(&tag);
    assert_eq!((same.status, same.field("ETag"), same.text()), (304, Some(&*tag), ""));
    std::fs::write(server.root("f"), "two").expect("a file");
    let changed = again(&tag);
    assert_eq!((changed.status, changed.text()), (200, "two"));
    assert_ne!(changed.field("ETag"), Some(&*tag));
    assert_ne!(changed.field("Last-Modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
}

/// Pages with the same result in lighttpd 1.4. Intended differences and lighttpd's bugs (values as
/// markup, pages included by `file` as text, URLs that are looked up as files) are left out.
const SAME_PAGES: [(&str, &str); 8] = [
    (
        "echo",
        "<!--#echo var=\"DOCUMENT_URI\"-->|<!--#echo var=\"DOCUMENT_NAME\"-->|\
            <!--#echo var=\"USER_NAME\"-->|<!--#echo var=\"QUERY_STRING\" encoding=\"none\"-->|\
            <!--#echo var=\"NOPE\"-->|<!--#echo var='REQUEST_METHOD'-->|<!--#echo var=SERVER_PROTOCOL-->",
    ),
    (
        "include",
        "<!--#include file=\"inc.txt\"-->|<!--#include virtual=\"/sub/s.txt\"-->|\
            <!--#include virtual=\"sub/s.txt\"-->|<!--#include virtual=\"../../sub/s.txt\"-->|\
            <!--#include file=\"none\"-->|<!--#include virtual=\"/sub/%73.txt\"-->|\
            <!--#include file=\"/inc.txt\"-->|<!--#include file=inc.txt-->|<!--#include-->",
    ),
    (
        "size",
        "<!--#fsize file=\"big\"-->|<!--#config sizefmt=\"abbrev\"--><!--#fsize file=\"big\"-->|\
            <!--#fsize file=\"inc.txt\"-->|<!--#config sizefmt=\"bytes\"--><!--#fsize virtual=\"/big\"-->|\
            <!--#fsize file=\"none\"-->",
    ),
    (
        "time",
        "<!--#flastmod file=\"big\"-->|<!--#config timefmt=\"%Y-%m-%d %H:%M %A %B %j %U\"-->\
            <!--#flastmod file=\"big\"-->|<!--#flastmod virtual=\"/none\"-->",
    ),
    (
        "set",
        "<!--#set var=\"x\" value=\"$x ${x}\"--><!--#echo var=\"x\"-->|\
            <!--#set value=\"q\" var=\"y\"--><!--#echo var=\"y\"-->|<!--#set var=\"z\"-->\
            <!--#echo var=\"z\"-->|<!--#set var=\"e\" value=\"\"--><!--#echo var=\"e\"-->",
    ),
    (
        "nest",
        "<!--#set var=\"x\" value=\"v\"--><!--#include virtual=\"n1.shtml\"-->\
            <!--#echo var=\"inner\"-->|<!--#include virtual=\"/n1.shtml\"-->",
    ),
    ("text", "<!-- plain --><!--# echo var=\"x\" --><!--#-->|<!--#unknown a=\"b\"-->|<!-"),
    ("exec", "<!--#exec cmd=\"echo hi; echo there\"-->|"),
];

/// Conditions with the same result in lighttpd; an empty one is true in lighttpd.
const SAME_CONDITIONS: [&str; 22] = [
    "a",
    "$x",
    "$nope",
    "0",
    "$x = v",
    "$x != v",
    "'a b' = 'a b'",
    "$x = ${x}",
    "10 < 9",
    "a < b && b > a && a <= a && a >= a",
    "a = b || c = c && 1",
    "!a",
    "!$nope",
    "!a = b",
    "!($x = '')",
    "$x && (a = b || ($x = v && !($nope)))",
    "$nope = ''",
    "'$x' = v",
    "$REQUEST_METHOD = GET",
    "(",
    "a & b",
    "a<b",
];

/// A page with all of them, each with a digit for its result.
fn conditions() -> String {
    let mut page = String::from("<!--#set var=\"x\" value=\"v\"-->");
    for expression in SAME_CONDITIONS {
        write!(page, "<!--#if expr=\"{expression}\"-->1<!--#else-->0<!--#endif-->")
            .expect("a text");
    }
    page
}

#[test]
fn pages_are_the_same_as_those_of_lighttpd() {
    let Some(peer) = LighttpdPeer::setup("\"mod_ssi\"") else { return };
    let with = |setup: Setup| {
        let setup = setup
            .file("inc.txt", "inc<&>")
            .file("sub/s.txt", "sub")
            .file("big", "12345".repeat(300))
            .file(
                "n1.shtml",
                "<<!--#echo var=\"x\"--><!--#include virtual=\"n2.shtml\"-->\
                <!--#set var=\"inner\" value=\"in\"-->>",
            )
            .file("n2.shtml", "{<!--#echo var=\"x\"-->}")
            .file("if.shtml", conditions())
            .config("ssi.extension = ( \".shtml\" )\nssi.exec = \"enable\"\nssi.recursion-max = 4");
        let setup = SAME_PAGES
            .iter()
            .fold(setup, |setup, (name, text)| setup.file(&format!("{name}.shtml"), text));
        let file = std::fs::File::open(setup.root("big")).expect("a file");
        let then = std::time::UNIX_EPOCH + Duration::from_secs(784_111_777);
        file.set_modified(then).expect("a time");
        setup
    };
    let (lighty, lighttpd) = (with(lighty!()).start(), LighttpdPeer::start(with(peer)));
    for name in SAME_PAGES.iter().map(|(name, _)| *name).chain(["if"]) {
        let request =
            format!("GET /{name}.shtml?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let (ours, theirs) = (ask(lighty.connect(), &request), lighttpd.ask(&request));
        assert_eq!((ours.status, ours.text()), (theirs.status, theirs.text()), "{name}");
        assert_eq!(ours.field("Content-Type"), theirs.field("Content-Type"), "{name}");
        assert!(!ours.text().is_empty(), "{name}");
    }
}

/// The deepest chain of pages that a configuration may allow.
const DEEPEST: usize = 32;

#[test]
fn pages_nest_as_deep_as_the_limit_goes_and_no_deeper() {
    let mut setup = lighty!()
        .config("ssi.extension = ( \".shtml\" )")
        .config(&format!("ssi.recursion-max = {DEEPEST}"))
        .config("setenv.add-response-header = ( \"X-A\" => \"b\" )");
    for level in 0..=DEEPEST {
        let next = format!("{level} <!--#include virtual=\"/{}.shtml?a=%{{b}}\" -->", level + 1);
        setup = setup.file(&format!("{level}.shtml"), next);
    }
    let server = setup.file(&format!("{}.shtml", DEEPEST + 1), "too deep").start();
    let answer = server.get("/0.shtml");
    assert_eq!(answer.status, 200, "{}", server.log());
    let wanted: String = (0..=DEEPEST).map(|level| format!("{level} ")).collect();
    assert!(answer.text().starts_with(&wanted), "{}", answer.text());
    assert!(!answer.text().contains("too deep"), "{}", answer.text());
    server.await_log(&format!("ssi.recursion-max = {DEEPEST}"));
    assert_eq!(server.get(&format!("/{}.shtml", DEEPEST + 1)).text(), "too deep");
}

#[test]
fn a_depth_that_no_stack_bears_is_clamped() {
    let setup = lighty!().config(&format!("ssi.recursion-max = {}", DEEPEST + 1));
    let (code, _, err) = setup.run(&["-t", "-f", "@CONF@"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(&format!("ssi.recursion-max is at most {DEEPEST}")), "{err}");
}

/// The maximum length of a file; only a file system in memory supports it.
const LONGEST: u64 = i64::MAX as u64;

#[test]
fn files_whose_lengths_add_up_to_no_length_are_refused_and_nothing_panics() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("SKIPPED: no file system in memory at /dev/shm");
        return;
    };
    let sparse = std::fs::File::create(directory.path().join("sparse")).expect("a file");
    if sparse.set_len(LONGEST).is_err() {
        eprintln!("SKIPPED: /dev/shm takes no file of 2^63 - 1 bytes");
        return;
    }
    let page = "<!--#include file=\"sparse\" -->".repeat(3);
    std::fs::write(directory.path().join("three.shtml"), page).expect("written");
    let one = "<!--#include file=\"sparse\" -->";
    std::fs::write(directory.path().join("one.shtml"), one).expect("written");
    let alias = format!("alias.url = ( \"/m/\" => \"{}/\" )", directory.path().display());
    let server = pages(&[("a", "x")]).config(&alias).start();
    assert_eq!(request(&server, "HEAD", "/m/one.shtml").status, 200);
    assert_eq!(request(&server, "HEAD", "/m/three.shtml").status, 500);
    server.await_log("a response of more than 9223372036854775807 bytes");
    for ranges in ["0-0,1000-", "0-100,1000-100000,200000-"] {
        let mut client = server.connect();
        client.send(format!("GET /m/sparse HTTP/1.1\r\nHost: a\r\nRange: bytes={ranges}\r\n\r\n"));
        let head = client.response_head();
        assert_eq!(head.status, 200, "{ranges}: all of it rather than parts that are no length");
        assert_eq!(head.field("Content-Length"), Some(LONGEST.to_string().as_str()), "{ranges}");
    }
    assert_eq!(server.get("/a").text(), "x");
}
