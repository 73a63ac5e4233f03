//! Random configurations, combined from fragments, and random requests from a grammar.
//!
//! Half of the configurations combine features that are used together in practice ([`THEMES`]).
//! Everything follows from a seed and the number of the configuration, so `LIGHTY_COMPAT_SEED` and
//! `LIGHTY_COMPAT_CONFIGURATION` replay a failure. The first failure of each kind is minimized.

use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::case::{self, Ask, Case};
use super::compare::{Finding, compare};
use super::known::KnownDifferences;
use super::pair::ServerPair;
use super::shown;

/// Requests per configuration.
const ASKS: usize = 25;

/// Default number of requests, without `LIGHTY_COMPAT_PAIRS`.
const PAIRS: usize = 1000;

/// Default seed, without `LIGHTY_COMPAT_SEED`; `today` is a different one each day.
const SEED: u64 = 1;

/// Requests of the seed of the day: few, because the gate runs every day.
const PAIRS_OF_THE_DAY: usize = 500;

/// Number of failures that are minimized and shown; later ones are mostly repetitions.
const SHOWN_MAX: usize = 12;

/// Fragments: the required modules, `!` if allowed outside of conditions only, lines.
const FRAGMENTS: &[(&str, &str)] = &[
    ("mod_alias", "alias.url += ( \"/al/\" => \"@DIR@/other/\" )"),
    ("mod_alias", "alias.url += ( \"/bare\" => \"@DIR@/other\" )"),
    ("mod_redirect", "url.redirect += ( \"^/re/(.*)\" => \"/al/$1\" )"),
    ("mod_redirect", "url.redirect += ( \"^/hop/([^?]*)\" => \"http://b.example/$1${qsa}\" )"),
    ("mod_redirect", "url.redirect-code = 302\nurl.redirect += ( \"^/(sub|x)$\" => \"/$1/\" )"),
    ("mod_rewrite", "url.rewrite-once += ( \"^/rw/(.*)\" => \"/$1\" )"),
    ("mod_rewrite", "url.rewrite-once += ( \"^/([a-z]+)\\.html\" => \"/$1.txt\" )"),
    (
        "mod_rewrite",
        "url.rewrite-repeat += ( \"^/rr/rr/(.*)\" => \"/rr/$1\", \"^/rr/(.*)\" => \"/$1\" )",
    ),
    (
        "mod_rewrite",
        "url.rewrite-if-not-file += ( \"^/app/([^?]*)(?:\\?(.*))?\" => \"/prog.sh/$1?$2\" )",
    ),
    ("mod_access", "url.access-deny += ( \".inc\", \"~\" )"),
    ("mod_access", "url.access-deny += ( \".php\" )"),
    ("mod_access", "url.access-deny += ( \"\" )"),
    ("mod_access", "url.access-allow += ( \".txt\", \".css\", \"/\" )"),
    ("mod_setenv", "setenv.add-response-header += ( \"X-One\" => \"1\" )"),
    ("mod_setenv", "setenv.set-response-header += ( \"X-Two\" => \"2\" )"),
    ("mod_setenv", "setenv.add-environment += ( \"MY_VAR\" => \"v\" )"),
    ("mod_setenv", "setenv.add-request-header += ( \"X-Key\" => \"yes\" )"),
    ("mod_expire", "expire.url += ( \"/sub/\" => \"access plus 2 hours\" )"),
    ("", "index-file.names += ( \"start.htm\", \"prog.sh\" )"),
    ("", "dir-listing.activate = \"enable\""),
    ("", "server.tag = \"other\""),
    ("", "server.follow-symlink = \"disable\""),
    ("", "server.range-requests = \"disable\""),
    ("", "etag.use-inode = \"disable\"\netag.use-mtime = \"disable\"\netag.use-size = \"disable\""),
    ("", "static-file.exclude-extensions += ( \".php\", \".inc\", \".sh\" )"),
    ("", "!server.error-handler-404 = \"/prog.sh\""),
    ("", "!server.errorfile-prefix = \"@DIR@/errors/\""),
    ("", "!server.name = \"name.example\""),
    ("", "!server.force-lowercase-filenames = \"enable\""),
    (
        "",
        "!server.http-parseopts = ( \"url-path-2f-decode\" => \"disable\", \"url-path-2f-reject\" => \"enable\" )",
    ),
    (
        "",
        "!server.http-parseopts = ( \"url-path-dotseg-remove\" => \"disable\", \"url-path-dotseg-reject\" => \"enable\" )",
    ),
    ("mod_cgi", "cgi.assign += ( \".sh\" => \"/bin/sh\" )"),
    ("mod_cgi", "cgi.assign += ( \"/prog\" => \"/bin/sh\" )"),
    (
        "mod_fastcgi",
        "fastcgi.server += ( \".php\" => (( \"host\" => \"127.0.0.1\", \"port\" => @FASTCGI_PORT@ )) )",
    ),
    (
        "mod_fastcgi",
        "fastcgi.server += ( \"/fc\" => (( \"host\" => \"127.0.0.1\", \"port\" => @FASTCGI_PORT@, \"check-local\" => \"disable\" )) )",
    ),
    (
        "mod_scgi",
        "scgi.server += ( \"/sc/\" => (( \"host\" => \"127.0.0.1\", \"port\" => @SCGI_PORT@, \"check-local\" => \"disable\" )) )",
    ),
    (
        "mod_scgi",
        "scgi.server += ( \".rb\" => (( \"host\" => \"127.0.0.1\", \"port\" => @SCGI_PORT@ )) )",
    ),
    (
        "mod_proxy",
        "proxy.server += ( \"/px\" => (( \"host\" => \"127.0.0.1\", \"port\" => @HTTP_PORT@ )) )",
    ),
    ("mod_userdir", "!userdir.path = \"web\"\nuserdir.basepath = \"@DIR@/homes/\""),
    (
        "mod_simple_vhost",
        "!simple-vhost.server-root = \"@DIR@/v/\"\nsimple-vhost.document-root = \"htdocs\"",
    ),
    ("mod_evhost", "!evhost.path-pattern = \"@DIR@/v/%0/htdocs/\""),
    (
        "mod_auth mod_authn_file",
        "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
     auth.require = ( \"/sub\" => ( \"method\" => \"basic\", \"realm\" => \"r\", \"require\" => \"valid-user\" ) )",
    ),
    ("mod_deflate", "deflate.mimetypes = ( \"text/\" )\ndeflate.allowed-encodings = ( \"gzip\" )"),
    ("mod_ssi", "ssi.extension = ( \".shtml\" )"),
    ("mod_redirect", "url.redirect += ( \"^/ins/([^?]*)\" => \"/n/${esc:$1}|${url.path}|%1|%0\" )"),
    (
        "mod_redirect",
        "url.redirect += ( \"^/ins2/(.*)\" => \"/n/${encb64u:1}?${url.query}&%{1}\" )",
    ),
    (
        "mod_rewrite",
        "url.rewrite-repeat-if-not-file += ( \"^/app/([^?]*)\" => \"/prog.sh?p=${escnde:1}&q=%1\" )",
    ),
    ("mod_expire", "expire.mimetypes = ( \"text/\" => \"access plus 1 minutes\" )"),
    ("mod_extforward", "!extforward.forwarder = ( \"127.0.0.1\" => \"trust\" )"),
    ("mod_setenv", "setenv.set-request-header += ( \"X-New\" => \"set\" )"),
    (
        "mod_auth mod_authn_file",
        "auth.backend = \"plain\"\nauth.backend.plain.userfile = \"@DIR@/users\"\n\
     auth.require = ( \"/prog.sh\" => ( \"method\" => \"basic\", \"realm\" => \"p\", \"require\" => \"user=anna\" ) )",
    ),
    ("", "!server.error-intercept = \"enable\""),
    ("", "static-file.disable-pathinfo = \"enable\""),
    ("mod_cgi", "!cgi.execute-x-only = \"enable\""),
    ("mod_cgi", "!cgi.local-redir = \"enable\""),
    ("mod_setenv", "setenv.set-response-header += ( \"ETag\" => \"\\\"x\\\"\" )"),
    ("mod_magnet", "magnet.attract-raw-url-to += ( \"@DIR@/lua/variable.lua\" )"),
    ("mod_magnet", "magnet.attract-raw-url-to += ( \"@DIR@/lua/answer.lua\" )"),
    ("mod_magnet", "magnet.attract-physical-path-to += ( \"@DIR@/lua/other-file.lua\" )"),
    ("mod_magnet", "magnet.attract-response-start-to += ( \"@DIR@/lua/field.lua\" )"),
];

const CONDITIONS: &[&str] = &[
    "$HTTP[\"host\"] == \"a.example\"",
    "$HTTP[\"host\"] != \"a.example\"",
    "$HTTP[\"host\"] =~ \"^(www\\.)?b\\.\"",
    "$HTTP[\"host\"] =$ \".example\"",
    "$HTTP[\"url\"] =~ \"^/sub/\"",
    "$HTTP[\"url\"] =^ \"/al\"",
    "$HTTP[\"url\"] !~ \"\\.txt$\"",
    "$HTTP[\"url\"] == \"/a.txt\"",
    "$HTTP[\"url\"] =~ \"\"",
    "$HTTP[\"query-string\"] =~ \"x=([^&]*)\"",
    "$HTTP[\"query-string\"] != \"\"",
    "$HTTP[\"request-method\"] == \"GET\"",
    "$HTTP[\"request-method\"] =~ \"^(POST|PUT)$\"",
    "$HTTP[\"referer\"] =~ \"b\\.example\"",
    "$HTTP[\"user-agent\"] !~ \"bot\"",
    "$HTTP[\"cookie\"] =~ \"s=([a-z]+)\"",
    "$HTTP[\"scheme\"] == \"http\"",
    "$HTTP[\"remote-ip\"] == \"127.0.0.0/8\"",
    "$HTTP[\"remote-ip\"] == \"10.0.0.0/8\"",
    "$HTTP[\"language\"] =~ \"de\"",
    "$REQUEST_HEADER[\"X-Key\"] == \"yes\"",
    "$REQUEST_HEADER[\"X-Key\"] != \"yes\"",
    "$REQUEST_HEADER[\"Accept\"] =~ \"json\"",
];

/// Features combined in real configurations: one fragment of each list, selected by its beginning.
const THEMES: &[&[&[&str]]] = &[
    &[
        &["url.rewrite"],
        &["fastcgi.server", "scgi.server", "proxy.server", "cgi.assign"],
        &["!server.error-handler-404", "!server.errorfile-prefix", "!server.error-intercept"],
    ],
    &[
        &["index-file.names"],
        &["cgi.assign", "fastcgi.server", "scgi.server"],
        &["static-file.disable-pathinfo", "expire.", "url.access-", "auth."],
    ],
    &[
        &["deflate.mimetypes"],
        &["etag.", "server.range-requests", "setenv.set-response-header"],
        &["proxy.server", "fastcgi.server", "cgi.assign", "ssi.", "dir-listing."],
    ],
    &[&["setenv."], &["cgi.assign", "fastcgi.server", "scgi.server"], &["proxy.server"]],
    &[&["setenv."], &["magnet."], &["proxy.server", "fastcgi.server", "scgi.server", "cgi."]],
    &[
        &["magnet."],
        &["url.rewrite", "url.redirect", "auth.", "url.access-"],
        &["!server.error-handler-404", "index-file.names", "deflate.mimetypes"],
    ],
];

/// Files of every configuration.
const SITE: &str = include_str!("site.txt");

const STEMS: &[&str] = &[
    "/",
    "/a.txt",
    "/a.html",
    "/b.inc",
    "/c.php",
    "/d.rb",
    "/prog.sh",
    "/page.shtml",
    "/sub",
    "/sub/",
    "/sub/a.txt",
    "/sub/c.php",
    "/sub/deep/",
    "/sub/deep/x.css",
    "/x",
    "/none",
    "/none.php",
    "/al/",
    "/al/f.txt",
    "/al/f.php",
    "/al",
    "/bare/f.txt",
    "/baref.txt",
    "/bare",
    "/re/f.txt",
    "/hop/x",
    "/rw/a.txt",
    "/rw/sub/",
    "/rr/rr/a.txt",
    "/app/x/y",
    "/ins/x/%20y%2f",
    "/ins2/X_y",
    "/app/here.txt",
    "/fc",
    "/fc/x",
    "/fcx",
    "/sc/",
    "/sc/x/y",
    "/px/x",
    "/px",
    "/~anna/p.txt",
    "/~anna/",
    "/~none/x",
    "/link.txt",
    "/dirlink/f.txt",
    "/UPPER.txt",
    "/with space.txt",
    "/.hidden",
    "/empty/",
    "/b.txt~",
    "/index/",
    "/.well-known/x",
    "/f.unknown",
];

const TAILS: &[&str] = &[
    "", "", "", "", "", "", "/", "/info", "/x.php", "//", "/.", "/..", "%00", ".", "~", "%20", ";x",
];

const QUERIES: &[&str] = &[
    "", "", "", "", "", "", "?", "?x=1", "?a=b&x=1", "?a%20b", "?a=/../b", "?x=%31", "?a?b", "?&&",
];

const FIELDS: &[&str] = &[
    "Referer: http://b.example/x",
    "Referer: http://a.example/",
    "User-Agent: robot",
    "User-Agent: curl/8",
    "Cookie: s=abc",
    "Cookie: a=1; s=x",
    "X-Key: yes",
    "X-Key: no",
    "X-Key: yes | X-Key: no",
    "Range: bytes=0-1",
    "Range: bytes=-1",
    "Range: bytes=1-",
    "Range: bytes=0-0,2-2",
    "Range: bytes=9-",
    "If-Modified-Since: Sun, 13 Sep 2020 12:26:40 GMT",
    "If-Modified-Since: Sun, 13 Sep 2015 12:26:40 GMT",
    "If-None-Match: \"x\"",
    "Accept-Encoding: gzip",
    "Accept-Encoding: br, gzip;q=0.5",
    "Accept: application/json",
    "Accept: */*",
    "Accept-Language: de",
    "Authorization: Basic YW5uYTpzZWNyZXQ=",
    "Authorization: Basic YW5uYTp3cm9uZw==",
    "X-Forwarded-For: 10.0.0.1",
    "X-Forwarded-For: 10.0.0.1, 192.168.0.9",
    "Content-Type: text/plain",
    "X_Under: 1",
    "Proxy: x",
    "If-Range: \"x\"",
];

const HOSTS: &[&str] = &[
    "a.example",
    "a.example",
    "a.example",
    "b.example",
    "www.b.example",
    "A.Example",
    "a.example:8080",
    "127.0.0.1",
    "[::1]",
    "none",
];

/// splitmix64: good enough for random choices.
pub(crate) struct Dice(u64);

impl Dice {
    fn new(seed: u64, number: usize) -> Self {
        Self(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03),
        )
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// A fragment, and the conditions around it.
#[derive(Clone)]
struct ConditionedFragment {
    fragment: usize,
    conditions: Vec<usize>,
}

/// A request before its serialization.
#[derive(Clone)]
struct Wish {
    method: &'static str,
    target: String,
    version: &'static str,
    fields: Vec<&'static str>,
    host: &'static str,
    body: bool,
}

fn parts(dice: &mut Dice) -> Vec<ConditionedFragment> {
    let mut chosen: Vec<ConditionedFragment> = Vec::new();
    let mut wanted = theme(dice);
    let others = if wanted.is_empty() { 2 + dice.roll(6) } else { dice.roll(3) };
    wanted.extend((0..others).map(|_| dice.roll(FRAGMENTS.len())));
    for fragment in wanted {
        if chosen.iter().any(|part| same_switch(part.fragment, fragment)) {
            continue;
        }
        let depth =
            if FRAGMENTS[fragment].1.starts_with('!') { 0 } else { [0, 0, 1, 1, 2][dice.roll(5)] };
        let conditions = (0..depth).map(|_| dice.roll(CONDITIONS.len())).collect();
        chosen.push(ConditionedFragment { fragment, conditions });
    }
    if chosen.iter().any(|part| refers_to_captures(FRAGMENTS[part.fragment].1)) {
        for part in &mut chosen {
            part.conditions.retain(|condition| !breaks_captures(CONDITIONS[*condition]));
        }
    }
    chosen
}

/// Returns true if a fragment refers to captures of the condition around it.
fn refers_to_captures(lines: &str) -> bool {
    ["%0", "%1", "%{1}"].iter().any(|capture| lines.contains(capture))
}

/// Returns true if lighttpd ends, or ignores the block, once a rule refers to captures of this
/// condition (row `captures-of-nothing` of the differences).
fn breaks_captures(condition: &str) -> bool {
    condition.contains("!~") || condition.contains("remote-ip")
}

/// Fragments of a theme; empty for every other configuration.
fn theme(dice: &mut Dice) -> Vec<usize> {
    if dice.roll(2) == 0 {
        return Vec::new();
    }
    let theme = THEMES[dice.roll(THEMES.len())];
    let one = |begins: &&[&str]| {
        let fits = |text: &str| begins.iter().any(|begin| text.starts_with(begin));
        let fitting: Vec<usize> =
            (0..FRAGMENTS.len()).filter(|at| fits(FRAGMENTS[*at].1)).collect();
        fitting[dice.roll(fitting.len())]
    };
    theme.iter().map(one).collect()
}

/// Returns true if two fragments set the same directive.
fn same_switch(one: usize, other: usize) -> bool {
    let first = |index: usize| {
        let line = FRAGMENTS[index].1.trim_start_matches('!');
        line.split(' ').next().filter(|_| !line.contains("+=") || line.contains("redirect-code"))
    };
    one == other || first(one).is_some_and(|name| Some(name) == first(other))
}

fn case(parts: &[ConditionedFragment]) -> Case {
    let mut made = case::read_text("site.txt", SITE).remove(0);
    for part in parts {
        let (modules, lines) = FRAGMENTS[part.fragment];
        for module in modules.split_whitespace() {
            if !made.modules.iter().any(|known| known == module) {
                made.modules.push(module.to_owned());
            }
        }
        for condition in &part.conditions {
            let _ = writeln!(made.config, "{} {{", CONDITIONS[*condition]);
        }
        let _ = writeln!(made.config, "{}", lines.trim_start_matches('!'));
        made.config.push_str(&"}\n".repeat(part.conditions.len()));
    }
    // lighttpd runs scripts at the place of mod_magnet in the list, lighty after all other modules.
    made.modules.sort_by_key(|module| module == "mod_magnet");
    made
}

fn wish(dice: &mut Dice) -> Wish {
    let methods = ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "PUT"];
    let method = dice.one(&methods);
    let mut target = dice.one(STEMS).replace(' ', "%20");
    match dice.roll(12) {
        0 => target = format!("/x/..{target}"),
        1 => target = format!("/.{target}"),
        2 => target = format!("/{target}"),
        3 => target = target.replacen('a', "%61", 1),
        4 => target = target.replacen('/', "/%2e/", 1),
        5 => target = target.replacen("sub/", "sub%2f", 1),
        6 => target = target.replacen("sub/", "sub/none/%2E%2e/", 1),
        7 => target = target.to_ascii_uppercase(),
        _ => {}
    }
    target.push_str(dice.one(TAILS));
    target.push_str(dice.one(QUERIES));
    let count = [0, 0, 1, 1, 2, 3][dice.roll(6)];
    let mut fields: Vec<&str> = (0..count).map(|_| dice.one(FIELDS)).collect();
    // Repeated fields have a meaning for some fields alone, which the cases cover.
    let mut names: Vec<&str> = Vec::new();
    fields.retain(|field| {
        let name = field.split(':').next().unwrap_or("");
        let fresh = !names.contains(&name);
        names.push(name);
        fresh
    });
    let version = if dice.roll(15) == 0 { "HTTP/1.0" } else { "HTTP/1.1" };
    let body = matches!(method, "POST" | "PUT");
    Wish { method, target, version, fields, host: dice.one(HOSTS), body }
}

impl Wish {
    fn ask(&self) -> Ask {
        let mut line = format!("{} {} | Host: {}", self.target, self.version, self.host);
        for field in &self.fields {
            let _ = write!(line, " | {field}");
        }
        if self.body {
            line.push_str(" || body");
        }
        let mut asks = case::requests(self.method, &line).expect("a request of the grammar");
        asks.remove(0)
    }
}

/// Differences between both responses to a request that no row explains.
fn findings(case: &Case, pair: &ServerPair, wish: &Wish, known: &KnownDifferences) -> Vec<Finding> {
    let (theirs, ours) = match (&pair.lighttpd, &pair.lighty) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (Err(_), Err(_)) => return Vec::new(),
        (theirs, ours) => {
            let printed =
                |side: &Result<_, String>| side.as_ref().err().cloned().unwrap_or_default();
            return vec![Finding {
                what: "start".into(),
                lighttpd: printed(theirs),
                lighty: printed(ours),
            }];
        }
    };
    let ask = wish.ask();
    let (a, b) = (theirs.ask(&ask), ours.ask(&ask));
    let mut findings = compare(&a, &b, ask.to_head, ask.loose);
    known.remove_from(&mut findings, case, &ask, &a);
    findings
}

/// Reduces a failure to a smaller case.
fn shrink(
    mut parts: Vec<ConditionedFragment>,
    mut wish: Wish,
    lighttpd: &Path,
    known: &KnownDifferences,
) -> (Vec<ConditionedFragment>, Wish) {
    let fails = |parts: &[ConditionedFragment], wish: &Wish| {
        let case = case(parts);
        !findings(&case, &ServerPair::start(&case, lighttpd), wish, known).is_empty()
    };
    let mut at = 0;
    while at < parts.len() {
        let mut fewer = parts.clone();
        fewer.remove(at);
        if fails(&fewer, &wish) {
            parts = fewer;
            continue;
        }
        let mut bare = parts.clone();
        if !bare[at].conditions.is_empty() {
            bare[at].conditions.clear();
            if fails(&bare, &wish) {
                parts = bare;
            }
        }
        at += 1;
    }
    for at in (0..wish.fields.len()).rev() {
        let mut fewer = wish.clone();
        fewer.fields.remove(at);
        if fails(&parts, &fewer) {
            wish = fewer;
        }
    }
    (parts, wish)
}

/// A number from the environment.
fn given<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seed of `LIGHTY_COMPAT_SEED`: a number, or `today`. Without it, `otherwise`.
fn seed(otherwise: u64) -> u64 {
    match std::env::var("LIGHTY_COMPAT_SEED").as_deref() {
        Ok("today") => today(),
        _ => given("LIGHTY_COMPAT_SEED").unwrap_or(otherwise),
    }
}

/// Days since 1970.
fn today() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_secs() / 86_400
}

/// Progress of a run: the requests, and the findings so far.
struct RandomRun<'a> {
    lighttpd: &'a Path,
    seed: u64,
    requests: AtomicUsize,
    /// Configurations refused by both servers.
    refused: AtomicUsize,
    failures: Mutex<Vec<ResponseDifference>>,
}

/// A request with different responses.
struct ResponseDifference {
    /// Method and first finding: most of one kind have one cause.
    kind: String,
    /// Of the first of its kind.
    text: String,
    replay: String,
}

/// Sends the configured number of random requests; returns the findings as text.
pub(crate) fn run(lighttpd: &Path) -> String {
    let pairs = given("LIGHTY_COMPAT_PAIRS").unwrap_or(PAIRS);
    let (first, end) = match given::<usize>("LIGHTY_COMPAT_CONFIGURATION") {
        Some(number) => (number, number + 1),
        None => (0, pairs.div_ceil(ASKS)),
    };
    ask_all(lighttpd, seed(SEED), first, end)
}

/// Sends a few requests from the seed of the day; returns a report of the differences.
pub(crate) fn run_of_the_day(lighttpd: &Path) -> String {
    ask_all(lighttpd, seed(today()), 0, PAIRS_OF_THE_DAY.div_ceil(ASKS))
}

fn ask_all(lighttpd: &Path, seed: u64, first: usize, end: usize) -> String {
    let run = RandomRun {
        lighttpd,
        seed,
        requests: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        failures: Mutex::new(Vec::new()),
    };
    let next = AtomicUsize::new(first);
    let work = || {
        let known = KnownDifferences::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end {
                return;
            }
            run.ask_configuration(number, &known);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    run.report(end - first)
}

impl RandomRun<'_> {
    fn ask_configuration(&self, number: usize, known: &KnownDifferences) {
        let mut dice = Dice::new(self.seed, number);
        let parts = parts(&mut dice);
        let made = case(&parts);
        let pair = ServerPair::start(&made, self.lighttpd);
        if pair.lighttpd.is_err() && pair.lighty.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for _ in 0..ASKS {
            let wish = wish(&mut dice);
            let found = findings(&made, &pair, &wish, known);
            self.requests.fetch_add(1, Ordering::Relaxed);
            let Some(first) = found.first() else { continue };
            let kind = format!("{} {}", wish.method, first.what);
            let is_shown = {
                let failures = self.failures.lock().expect("nobody panics with it");
                let shown = failures.iter().filter(|failure| !failure.text.is_empty()).count();
                shown < SHOWN_MAX && failures.iter().all(|failure| failure.kind != kind)
            };
            let text = match is_shown {
                true => describe(number, &parts, &wish, &found, self.lighttpd, known),
                false => String::new(),
            };
            let replay = format!(
                "{} {kind}: LIGHTY_COMPAT_SEED={} LIGHTY_COMPAT_CONFIGURATION={number} \
                 cargo test -p lighty --test differential -- random",
                wish.target, self.seed
            );
            eprintln!("{text}{replay}");
            let mut failures = self.failures.lock().expect("nobody panics with it");
            failures.push(ResponseDifference { kind, text, replay });
        }
    }

    /// Formats the findings.
    fn report(self, configurations: usize) -> String {
        let failures = self.failures.into_inner().expect("nobody panicked with it");
        let (requests, seed) = (self.requests.into_inner(), self.seed);
        let (count, refused) = (failures.len(), self.refused.into_inner());
        eprintln!(
            "{requests} requests, {configurations} configurations, {refused} refused by both, \
             seed {seed}: {count} differ"
        );
        assert!(refused <= configurations / 5, "most configurations have to start");
        if count == 0 {
            return String::new();
        }
        let mut report: String = failures.iter().map(|failure| failure.text.as_str()).collect();
        for failure in &failures {
            let _ = writeln!(report, "{}", failure.replay);
        }
        report + &format!("{count} of {requests} requests differ")
    }
}

fn describe(
    number: usize,
    parts: &[ConditionedFragment],
    wish: &Wish,
    first: &[Finding],
    lighttpd: &Path,
    known: &KnownDifferences,
) -> String {
    let (parts, wish) = shrink(parts.to_vec(), wish.clone(), lighttpd, known);
    let case = case(&parts);
    let found = findings(&case, &ServerPair::start(&case, lighttpd), &wish, known);
    let mut text = format!("--- random configuration {number}\n");
    if found.is_empty() {
        text.push_str("  is answered alike when it is asked once more; before:\n");
        for finding in first {
            let _ = writeln!(text, "  {finding}");
        }
    }
    let _ = writeln!(text, "  | server.modules = {:?}", case.modules);
    for line in case.config.lines() {
        let _ = writeln!(text, "  | {line}");
    }
    let _ = writeln!(text, "{}", shown(&wish.ask()));
    for finding in found {
        let _ = writeln!(text, "  {finding}");
    }
    text
}
