//! Semantics of the language: text in, settings and findings out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use lighty_config::{
    Active, CaptureId, Config, Diagnostics, Directive, Facts, Field, Kind, LoadOptions, Main,
    MemoryLoader, Pairs, Scope, Sources, Strings, Style, Table, load,
};

#[derive(Clone, Debug, Default, PartialEq)]
struct LanguageSettings {
    root: Arc<str>,
    tag: Arc<str>,
    workers: i64,
    ranges: bool,
    engine: usize,
    index: Strings,
    alias: Pairs,
    tls: bool,
    rewrite: Option<(Option<u32>, Arc<str>)>,
    capture: Option<CaptureId>,
}

fn table() -> Table<LanguageSettings> {
    Table::new()
        .row(Directive::string("server.document-root", |s: &mut LanguageSettings, v| s.root = v))
        .row(
            Directive::string("server.tag", |s: &mut LanguageSettings, v| s.tag = v)
                .default("lighty"),
        )
        .row(
            Directive::int("server.max-worker", 0..=64, |s: &mut LanguageSettings, v| {
                s.workers = v
            })
            .scope(Scope::Server)
            .default_prose("one per core"),
        )
        .row(
            Directive::bool("server.range-requests", |s: &mut LanguageSettings, v| s.ranges = v)
                .default("enable"),
        )
        .row(
            Directive::choice(
                "server.network-backend",
                &["auto", "writev"],
                |s: &mut LanguageSettings, v| s.engine = v,
            )
            .default("auto"),
        )
        .row(
            Directive::strings("index-file.names", |s: &mut LanguageSettings, v| s.index = v)
                .default("()")
                .alias("server.indexfiles"),
        )
        .row(Directive::map("alias.url", |s: &mut LanguageSettings, v| s.alias = v).default("()"))
        .row(
            Directive::bool("ssl.engine", |s: &mut LanguageSettings, v| s.tls = v)
                .scope(Scope::Socket)
                .default("disable"),
        )
        .row(Directive::parsed(
            "url.rewrite",
            Kind::String,
            |value, ctx| Ok((ctx.captures, value.as_str().unwrap_or("").into())),
            |s: &mut LanguageSettings, v: &(Option<CaptureId>, Arc<str>)| {
                s.capture = v.0;
                s.rewrite = Some((None, v.1.clone()));
            },
        ))
        .planned([("cgi.assign", "mod_cgi")])
        .removed([("server.userid", "server.username")])
}

type Loaded = (Option<Config<LanguageSettings>>, Diagnostics, Sources);

fn read_with(loader: &MemoryLoader, text: &str) -> Loaded {
    let main = Main::Text { name: "test.conf", text: text.as_bytes() };
    load(loader, &main, &table(), LoadOptions::default())
}

fn read(text: &str) -> Loaded {
    read_with(&MemoryLoader::default(), text)
}

#[track_caller]
fn good(text: &str) -> Config<LanguageSettings> {
    let (config, findings, sources) = read(text);
    assert!(findings.is_empty(), "{}", findings.render(&sources, Style::default()));
    config.unwrap()
}

/// The errors and warnings as `line:column code`.
fn findings(text: &str) -> Vec<String> {
    let (config, findings, sources) = read(text);
    assert_eq!(config.is_none(), findings.has_errors());
    let line = |d: &lighty_config::Diagnostic| {
        let at = sources.locate(d.span.unwrap());
        format!("{}:{} {}", at.line, at.column, d.code)
    };
    findings.iter().map(line).collect()
}

fn rendered(text: &str) -> String {
    let (_, findings, sources) = read(text);
    findings.render(&sources, Style::default())
}

#[derive(Default)]
struct LanguageRequest {
    fields: HashMap<Field, String>,
    unknown: Vec<Field>,
    ip: Option<IpAddr>,
}

impl LanguageRequest {
    fn with(mut self, field: Field, value: &str) -> Self {
        self.fields.insert(field, value.to_owned());
        self
    }
    fn host(value: &str) -> Self {
        LanguageRequest::default().with(Field::Host, value)
    }
    fn without(mut self, field: Field) -> Self {
        self.unknown.push(field);
        self
    }
}

impl Facts for LanguageRequest {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        if self.unknown.contains(field) {
            return None;
        }
        Some(self.fields.get(field).map_or("", String::as_str).into())
    }
    fn remote_ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

fn settings(config: &Config<LanguageSettings>, request: &LanguageRequest) -> LanguageSettings {
    let mut active = Active::new();
    config.evaluate(request, &mut active);
    config.settings(&active)
}

#[track_caller]
fn tag(config: &Config<LanguageSettings>, request: &LanguageRequest) -> String {
    settings(config, request).tag.to_string()
}

fn global_tag(text: &str) -> String {
    good(text).global().tag.to_string()
}

#[test]
fn every_kind_of_directive_is_set() {
    let config = good(
        r#"
        server.document-root = "/srv"
        server.max-worker = 4
        server.range-requests = "enable"
        server.network-backend = "writev"
        index-file.names = ( "a", "b", )
        alias.url = ( "/x" => "/y", # a comment
                      "/z" => "/w" )
        "#,
    );
    let s = config.global();
    assert_eq!((&*s.root, s.workers, s.ranges, s.engine), ("/srv", 4, true, 1));
    assert_eq!(s.index.iter().map(|v| &**v).collect::<Vec<_>>(), ["a", "b"]);
    let alias: Vec<_> = s.alias.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(alias, [("/x", "/y"), ("/z", "/w")]);
}

#[test]
fn expressions_join_and_add() {
    let cases = [
        (r#"server.tag = "a" + "b""#, "ab"),
        (r#"server.tag = "a" + 1 + 2"#, "a12"),
        (r#"server.tag = 1 + 2"#, "3"),
        (r#"server.tag = 1 + 2 + "a""#, "3a"),
        ("x = \"v\"\nserver.tag = x + var.x", "vv"),
        ("server.document-root = \"/r\"\nserver.tag = server.document-root + \"/s\"", "/r/s"),
        ("server.tag = var.CWD", "/cwd"),
        ("server.tag = \"p\" + var.PID", "p4711"),
        ("server.tag = \"a\"\nserver.tag += \"b\"", "ab"),
        ("server.tag = \"a\"\nserver.tag := \"b\"", "b"),
        ("server.tag += \"b\"", "b"),
        (r#"server.tag = "a\"b\d""#, r#"a"b\d"#),
        ("\u{feff}server.tag\u{a0}=\u{a0}\"x\"", "x"),
        ("global { server.tag = \"g\" }", "g"),
    ];
    for (text, want) in cases {
        assert_eq!(global_tag(text), want, "{text}");
    }
}

#[test]
fn statements_may_share_a_line() {
    let text = r#"var.a = "x" server.tag = a $HTTP["host"] == "h" { server.tag = "y"
        url.rewrite = "r" server.range-requests = "disable" } index-file.names = ( "i" )"#;
    let on = settings(&good(text), &LanguageRequest::host("h"));
    assert_eq!((&*on.tag, on.ranges, on.index.len()), ("y", false, 1));
    assert_eq!(global_tag(text), "x");
    assert_eq!(
        findings("server.max-worker = 1 2\nserver.tag = \"a\" server.tag\n").len(),
        2,
        "what begins no statement is still refused"
    );
}

#[test]
fn the_environment_is_read() {
    let mut loader = MemoryLoader::default();
    loader.env.push(("HOST".into(), "h".into()));
    let (config, ..) = read_with(&loader, "server.tag = env.HOST + \"x\"");
    assert_eq!(&*config.unwrap().global().tag, "hx");
    assert_eq!(findings("server.tag = env.NOPE"), ["1:14 undefined"]);
    assert_eq!(findings("env.HOST = \"x\""), ["1:1 read-only"]);
}

#[test]
fn append_takes_the_value_of_the_nearest_enclosing_block() {
    let config = good(
        r#"
        index-file.names = ( "g" )
        $HTTP["host"] == "a" {
            index-file.names += ( "a" )
            $HTTP["url"] == "/" { server.indexfiles += ( "u" ) }
        }
        $HTTP["host"] == "a" { index-file.names += ( "b" ) }
        "#,
    );
    let join = |r: &LanguageRequest| {
        settings(&config, r).index.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(",")
    };
    assert_eq!(join(&LanguageRequest::host("x")), "g");
    assert_eq!(join(&LanguageRequest::host("a")), "g,a,b");
    assert_eq!(join(&LanguageRequest::host("a").with(Field::Url, "/")), "g,a,u");
}

#[test]
fn later_blocks_replace_whole_values_in_file_order() {
    let text = r#"
        $HTTP["host"] == "a" { server.tag = "host" index-file.names = ( "h" ) }
        $HTTP["url"] =~ "^/x" { server.tag = "url" }
        server.tag = "global"
        index-file.names = ( "g" )
    "#;
    let text = text.replace("\" index", "\"\n index");
    let config = good(&text);
    assert_eq!(tag(&config, &LanguageRequest::host("b")), "global");
    assert_eq!(tag(&config, &LanguageRequest::host("a")), "host");
    let both = LanguageRequest::host("a").with(Field::Url, "/x");
    assert_eq!(tag(&config, &both), "url");
    assert_eq!(settings(&config, &both).index.iter().map(|v| &**v).collect::<Vec<_>>(), ["h"]);
}

#[test]
fn all_condition_forms_of_both_versions() {
    let cases = [
        (r#"$HTTP["host"] == "a:80""#, Field::Host, "a:80"),
        (r#"$HTTP["host"] =~ "^(a|b)$""#, Field::Host, "b"),
        (r#"$HTTP["url"] =^ "/x""#, Field::Url, "/xy"),
        (r#"$HTTP["url"] =$ ".php""#, Field::Url, "/a.php"),
        (r#"$HTTP["url"] != "/a""#, Field::Url, "/b"),
        (r#"$HTTP["useragent"] !~ "a+""#, Field::UserAgent, "bot"),
        (r#"$HTTP["user-agent"] =~ "Bot""#, Field::UserAgent, "aBot"),
        (r#"$HTTP["referer"] =~ "x""#, Field::Referer, "x"),
        (r#"$HTTP["cookie"] =~ "x""#, Field::Cookie, "x"),
        (r#"$HTTP["scheme"] == "https""#, Field::Scheme, "https"),
        (r#"$HTTP["querystring"] == "a=b""#, Field::QueryString, "a=b"),
        (r#"$HTTP["query-string"] == "a=b""#, Field::QueryString, "a=b"),
        (r#"$HTTP["request-method"] == "PUT""#, Field::Method, "PUT"),
        (r#"$HTTP["language"] =~ "de""#, Field::Language, "de"),
        (r#"$SERVER["socket"] == ":81""#, Field::Socket, ":81"),
        (r#"$PHYSICAL["path"] =$ ".x""#, Field::PhysicalPath, "/a.x"),
        (r#"$PHYSICAL["existing-path"] =~ "x""#, Field::PhysicalExistingPath, "x"),
        (r#"$REQUEST_HEADER["X-A"] == "1""#, Field::RequestHeader("x-a".into()), "1"),
        (r#"if $HTTP["host"] == "a" + "b""#, Field::Host, "ab"),
    ];
    for (cond, field, value) in cases {
        let config = good(&format!("{cond} {{ server.tag = \"yes\" }}"));
        assert_eq!(
            tag(&config, &LanguageRequest::default().with(field.clone(), value)),
            "yes",
            "{cond}"
        );
        let other = LanguageRequest::default().with(field.clone(), "/a");
        assert_eq!(tag(&config, &other), "", "{cond}");
        let unknown = LanguageRequest::default().without(field.clone());
        assert_eq!(tag(&config, &unknown), "", "{cond}: not known yet, so it does not apply");
        assert!(config.uses(&field));
        assert_eq!(config.uses(&Field::Host), field == Field::Host);
    }
}

#[test]
fn networks_are_matched_by_address() {
    let text = r#"$HTTP["remoteip"] == "10.0.0.0/8" { server.tag = "v4" }
                  $HTTP["remote-ip"] == "2001:db8::/32" { server.tag = "v6" }
                  $HTTP["remoteip"] != "10.0.0.0/8" { server.document-root = "/out" }"#;
    let config = good(text);
    let from = |ip: &str| LanguageRequest { ip: ip.parse().ok(), ..LanguageRequest::default() };
    assert_eq!(tag(&config, &from("10.1.2.3")), "v4");
    assert_eq!(tag(&config, &from("2001:db8::1")), "v6");
    assert_eq!(tag(&config, &from("192.0.2.1")), "");
    assert_eq!(&*settings(&config, &from("192.0.2.1")).root, "/out");
    let unknown = from("192.0.2.1").without(Field::RemoteIp);
    assert_eq!(&*settings(&config, &unknown).root, "");
}

#[test]
fn else_chains_take_the_first_true_branch() {
    for (elif, elif2) in
        [("else", "else"), ("elif", "elsif"), ("elseif", "else if"), ("else\n", "\nelse")]
    {
        let text = format!(
            r#"$HTTP["host"] == "a" {{ server.tag = "1" }}
            {elif} $HTTP["url"] == "/u" {{ server.tag = "2" }} {elif2} $HTTP["host"] =~ "b" {{
                server.tag = "3"
            }} else {{ server.tag = "4" }}"#
        );
        let text = text.replace("else\n $", "else $");
        let config = good(&text);
        let u = |host: &str| LanguageRequest::host(host).with(Field::Url, "/u");
        assert_eq!(tag(&config, &u("a")), "1");
        assert_eq!(tag(&config, &u("b")), "2");
        assert_eq!(tag(&config, &LanguageRequest::host("b")), "3");
        assert_eq!(tag(&config, &LanguageRequest::host("c")), "4");
        let early = LanguageRequest::host("b").without(Field::Url);
        assert_eq!(tag(&config, &early), "", "the second branch is undecided, so all after it are");
        assert_eq!(tag(&config, &LanguageRequest::host("a").without(Field::Url)), "1");
    }
}

#[test]
fn nested_blocks_count_only_inside_true_ones() {
    let config = good(
        r#"$HTTP["host"] == "a" {
            $HTTP["url"] == "/u" { server.tag = "in" } else { server.tag = "else" }
        }"#,
    );
    assert_eq!(tag(&config, &LanguageRequest::host("a").with(Field::Url, "/u")), "in");
    assert_eq!(tag(&config, &LanguageRequest::host("a")), "else");
    assert_eq!(tag(&config, &LanguageRequest::host("b")), "");
}

#[test]
fn equal_blocks_of_one_level_are_one() {
    let same = "$HTTP[\"host\"] == \"a\" { server.tag = \"x\" }\n";
    assert_eq!(findings(&same.repeat(2)), ["2:24 duplicate"]);
    assert_eq!(good(&format!("{same}$HTTP[\"host\"] == \"a\" {{ }}")).blocks().len(), 2);
    let nested = format!("{same}$HTTP[\"url\"] == \"/\" {{ {same} }}");
    assert_eq!(good(&nested).blocks().len(), 4, "not on another level");
}

#[test]
fn a_chain_may_be_continued_in_two_ways() {
    let config = good(
        r#"
        $HTTP["host"] == "a" { } else $HTTP["host"] == "b" { server.tag = "b" }
        $HTTP["host"] == "a" { } else $HTTP["url"] == "/u" { server.tag = "u" }
        "#,
    );
    assert_eq!(config.blocks().len(), 4);
    assert_eq!(tag(&config, &LanguageRequest::host("b").with(Field::Url, "/u")), "u", "both apply");
    assert_eq!(tag(&config, &LanguageRequest::host("b")), "b");
    assert_eq!(tag(&config, &LanguageRequest::host("a").with(Field::Url, "/u")), "");
}

#[test]
fn duplicates_say_where_the_first_one_is() {
    let text = "server.tag = \"a\"\nserver.tag = \"b\"\n";
    assert_eq!(findings(text), ["2:1 duplicate"]);
    let shown = rendered(text);
    assert!(shown.contains("test.conf:1:1: first set here"), "{shown}");
    assert!(shown.contains("`server.tag := …` replaces"), "{shown}");
    let alias = "index-file.names = ()\nserver.indexfiles = ( \"x\" )\n";
    assert_eq!(findings(alias), ["2:1 duplicate"], "a warning: both spellings are one directive");
}

#[test]
fn array_keys_are_unique_unless_the_pair_is_identical() {
    assert_eq!(findings("alias.url = ( \"a\" => \"1\", \"a\" => \"2\" )"), ["1:34 duplicate"]);
    let config =
        good("alias.url = ( \"a\" => \"1\", \"a\" => \"1\" )\nalias.url += ( \"a\" => \"1\" )");
    assert_eq!(config.global().alias.len(), 1);
    assert_eq!(findings("alias.url = ( \"a\" => \"1\" ) + ( \"a\" => \"2\" )"), ["1:39 duplicate"]);
}

#[test]
fn captures_come_from_the_innermost_matching_condition() {
    let config = good(
        r#"$HTTP["host"] =~ "^(\w+)\.(\w+)$" {
            $HTTP["url"] != "/other" { url.rewrite = "/%0" }
            $HTTP["url"] == "/u" { url.rewrite = "/%1/%2" }
            $HTTP["url"] =~ "^/lit" { url.rewrite = "/%0" }
            $HTTP["url"] =^ "/begin" { url.rewrite = "/%0" }
            $HTTP["url"] =$ ".end" { url.rewrite = "/%0" }
        }"#,
    );
    let run = |url: &str, group: usize| {
        let mut active = Active::new();
        config.evaluate(&LanguageRequest::host("www.example").with(Field::Url, url), &mut active);
        let settings = config.settings(&active);
        let captures = settings.capture.and_then(|id| active.captures(id));
        captures.and_then(|c| c.get(group).map(str::to_owned))
    };
    assert_eq!(run("/u", 0).as_deref(), Some("/u"));
    assert_eq!(
        run("/u", 2).as_deref(),
        Some("example"),
        "groups are those of the expression around"
    );
    assert_eq!(run("/u", 3), None);
    assert_eq!(run("/beginning", 0).as_deref(), Some("/begin"));
    assert_eq!(run("/the.end", 0).as_deref(), Some(".end"));
    assert_eq!(run("/any", 0).as_deref(), Some("www.example"), "a negation finds nothing");
    assert_eq!(run("/literal", 0).as_deref(), Some("/lit"), "literal patterns have %0 too");
    assert_eq!(run("/other", 0), None);
    let whole = |text: &str, request: LanguageRequest| {
        let (config, mut active) = (good(text), Active::new());
        config.evaluate(&request, &mut active);
        let captures = config.settings(&active).capture.and_then(|id| active.captures(id));
        captures.and_then(|found| found.get(0).map(str::to_owned))
    };
    let port = "$HTTP[\"host\"] == \"a.test\" { url.rewrite = \"/%0\" }";
    assert_eq!(whole(port, LanguageRequest::host("a.test:8080")).as_deref(), Some("a.test"));
    let range = "$HTTP[\"remote-ip\"] == \"10.0.0.0/8\" { url.rewrite = \"/%0\" }";
    let from = LanguageRequest { ip: "10.1.2.3".parse().ok(), ..LanguageRequest::default() };
    let from = from.with(Field::RemoteIp, "10.1.2.3");
    assert_eq!(whole(range, from).as_deref(), Some("10.1.2.3"));
    let none = good("$HTTP[\"host\"] != \"b\" { url.rewrite = \"/%1\" }");
    assert_eq!(settings(&none, &LanguageRequest::host("a")).capture, None);
    let unused = good("$HTTP[\"host\"] =~ \"a\" { url.rewrite = \"/x\" }");
    assert_eq!(settings(&unused, &LanguageRequest::host("a")).capture, None, "nothing asks for it");
}

#[test]
fn scopes_are_checked() {
    let late = r#"
        server.max-worker = 1
        $HTTP["host"] == "a" { server.max-worker = 2 }
        $HTTP["host"] == "b" { server.max-worker = 3 }
    "#;
    assert_eq!(findings(late), ["3:32 scope", "4:32 scope"]);
    let (config, list, _) = read(late);
    assert!(!list.has_errors());
    let config = config.unwrap();
    assert_eq!(config.global().workers, 3, "the last one wins");
    assert_eq!(config.value("server.max-worker").and_then(|v| v.value.as_int()), Some(3));

    good("ssl.engine = \"enable\"\n$SERVER[\"socket\"] == \":1\" { ssl.engine = \"disable\" }");
    good("$SERVER[\"socket\"] == \":1\" { } else { ssl.engine = \"disable\" }");
    let wrong = "$SERVER[\"socket\"] == \":1\" {\n$HTTP[\"host\"] == \"a\" {\nssl.engine = 1\n}\n}";
    assert_eq!(findings(wrong), ["3:1 scope"]);
    let shown = rendered(wrong);
    assert!(shown.contains("$SERVER[\"socket\"] == \"…\""), "{shown}");
    assert_eq!(findings("$HTTP[\"host\"] == \"a\" {\n} else {\nssl.engine = 1\n}"), ["3:1 scope"]);
}

#[test]
fn listeners_are_the_equal_sockets() {
    let config = good(
        r#"$SERVER["socket"] == ":80" { }
        $SERVER["socket"] == "[::1]:" + 81 { }
        $SERVER["socket"] =~ "82" { }
        $HTTP["host"] == "x" { $SERVER["socket"] == ":80" { } }"#,
    );
    let list: Vec<String> = config.listen_sockets().into_iter().map(|s| s.text).collect();
    assert_eq!(list, [":80", "[::1]:81"]);
}

#[test]
fn listeners_are_compared_by_their_names() {
    let mut config = good(
        r#"$SERVER["socket"] == ":80" { server.tag = "a" }
        $SERVER["socket"] != "*:80" { server.tag = "b" }
        $SERVER["socket"] =~ "^:80$" { server.tag = "c" }"#,
    );
    let on = |socket| LanguageRequest::default().with(Field::Socket, socket);
    assert_eq!(tag(&config, &on(":80")), "c");
    let names = [(":80", "0.0.0.0:80"), ("*:80", "0.0.0.0:80")];
    config.name_sockets(names.map(|(from, to)| (from.to_owned(), to.to_owned())).into());
    assert_eq!(tag(&config, &on("0.0.0.0:80")), "a");
    assert_eq!(tag(&config, &on("0.0.0.0:81")), "b");
    assert_eq!(config.socket_name(":80"), "0.0.0.0:80");
    assert_eq!(config.socket_name(":81"), ":81");
    assert!(config.dump().contains("== \":80\""), "{}", config.dump());
}

#[test]
fn names_that_are_not_directives() {
    assert_eq!(findings("server.tagg = 1"), ["1:1 unknown-directive"]);
    assert!(rendered("server.tagg = 1").contains("did you mean server.tag?"));
    assert!(rendered("http.max-worker = 1").contains("did you mean server.max-worker?"));
    let planned = rendered("cgi.assign = ()");
    assert!(planned.contains("not available in this version of lighty yet"), "{planned}");
    assert!(planned.contains("mod_cgi"));
    let removed = rendered("server.userid = \"x\"");
    assert!(removed.contains("warning") && removed.contains("write server.username"), "{removed}");
    let main = Main::Text { name: "x", text: b"server.tagg = 1\ncgi.assign = ()\n" };
    let strict = LoadOptions { strict: true };
    let (config, list, _) = load(&MemoryLoader::default(), &main, &table(), strict);
    assert!(config.is_none());
    assert_eq!(list.error_count(), 2);
}

#[test]
fn values_are_checked_and_pointed_at() {
    let cases = [
        ("server.max-worker = 65", "1:21 value"),
        ("server.max-worker = -1", "1:21 value"),
        ("server.max-worker = \"many\"", "1:21 value"),
        ("server.range-requests = \"on\"", "1:25 value"),
        ("server.network-backend = \"writve\"", "1:26 value"),
        ("index-file.names = ( \"a\", ( \"b\" ) )", "1:27 value"),
        ("alias.url = ( \"a\" )", "1:15 value"),
        ("server.tag = ()", "1:14 value"),
    ];
    for (text, want) in cases {
        assert_eq!(findings(text), [want], "{text}");
    }
    good("server.max-worker = \"64\"");
    good("server.max-worker = 0");
    assert!(rendered("server.network-backend = \"writve\"").contains("did you mean \"writev\"?"));
}

#[test]
fn all_errors_of_a_file_are_reported_in_one_run() {
    let text = r#"
server.tag = "a
server.tag "b"
x = ( "a", "b"
server.max-worker = 99
$HTTP[host] == "a" {
    server.range-requests = 7
}
$HTTP["hots"] == "a" { y = undefined }
z = 1M
w = ( "a" "b" )
} else { v = "x" + () }
$HTTP["url"] =~ "(?!x)" { }
server.document-root = "/ok";
"#;
    assert_eq!(
        findings(text),
        [
            "2:14 unclosed",
            "3:12 syntax",
            "4:5 unclosed",
            "5:21 value",
            "6:7 syntax",
            "7:29 value",
            "9:7 condition",
            "9:28 undefined",
            "10:5 syntax",
            "11:9 syntax",
            "12:1 syntax",
            "12:3 syntax",
            "12:20 type",
            "13:18 condition",
            "14:29 syntax",
        ]
    );
}

#[test]
fn a_value_that_is_broken_does_not_cause_a_second_error() {
    assert_eq!(findings("root = \nserver.tag = root + \"x\"\nserver.tag += \"y\""), ["1:8 syntax"]);
}

#[test]
fn includes_are_relative_to_the_main_file() {
    let loader = MemoryLoader::new(&[
        ("/etc/l/main.conf", "root = \"r\"\ninclude \"conf.d/*.conf\"\ninclude \"none/*.conf\"\n"),
        ("/etc/l/conf.d/a.conf", "include \"b.inc\"\nserver.tag = root + b\n"),
        ("/etc/l/b.inc", "b = \"b\"\n"),
        ("/etc/l/conf.d/b.conf", "include \"/abs\"\n"),
        ("/abs", "$HTTP[\"host\"] == \"a\" { include \"./rel\" }"),
        ("/cwd/rel", "server.tag = \"rel\""),
    ]);
    let main = Main::File(Path::new("/etc/l/main.conf"));
    let (config, list, sources) = load(&loader, &main, &table(), LoadOptions::default());
    let config = config.unwrap_or_else(|| panic!("{}", list.render(&sources, Style::default())));
    assert_eq!(&*config.global().tag, "rb");
    assert_eq!(tag(&config, &LanguageRequest::host("a")), "rel");
    assert_eq!(sources.len(), 6);
}

#[test]
fn includes_that_fail_are_reported_where_they_stand() {
    let mut loader =
        MemoryLoader::new(&[("/cwd/loop", "include \"loop\"\n"), ("/cwd/bad", "\n\na = \n")]);
    loader.commands.push(("ok".into(), Ok("server.tag = \"shell\"".into())));
    loader.commands.push(("fails".into(), Err("exit status: 1".into())));
    let codes = |text: &str| {
        let (_, list, sources) = read_with(&loader, text);
        list.iter()
            .map(|d| format!("{} {}", sources.locate(d.span.unwrap()), d.code))
            .collect::<Vec<_>>()
    };
    assert_eq!(codes("include \"absent\""), ["test.conf:1:1 include"]);
    assert_eq!(codes("include \"loop\""), ["/cwd/loop:1:1 include"]);
    assert_eq!(codes("include \"bad\""), ["/cwd/bad:3:5 syntax"]);
    assert_eq!(codes("include_shell \"fails\""), ["test.conf:1:1 include"]);
    let (_, list, sources) = read_with(&loader, "include \"bad\"");
    let shown = list.render(&sources, Style::default());
    assert!(shown.contains("included from test.conf:1:1"), "{shown}");
    let (config, ..) = read_with(&loader, "include_shell \"ok\"");
    assert_eq!(&*config.unwrap().global().tag, "shell");
}

#[test]
fn text_that_is_not_utf8_is_refused_only_where_it_matters() {
    let read = |text: &[u8]| {
        let main = Main::Text { name: "x", text };
        let (_, list, _) = load(&MemoryLoader::default(), &main, &table(), LoadOptions::default());
        (list.error_count(), list.warning_count())
    };
    assert_eq!(read(b"# caf\xe9\nserver.tag = \"x\""), (0, 1));
    assert_eq!(read(b"server.tag = \"caf\xe9\""), (1, 1));
}

#[test]
fn a_missing_main_file_is_an_error() {
    let main = Main::File(Path::new("/none.conf"));
    let (config, list, sources) =
        load(&MemoryLoader::default(), &main, &table(), LoadOptions::default());
    assert!(config.is_none());
    assert!(list.render(&sources, Style::default()).starts_with("/none.conf:1:1: error: cannot"));
}

#[test]
fn lax_spellings_of_1_4_are_accepted_and_some_are_warned_of() {
    let index = |text: &str| {
        let (config, findings, _) = read(&format!("index-file.names = {text}"));
        assert_eq!(findings.error_count(), 0, "{text}");
        let config = config.expect("no errors");
        let names: Vec<String> =
            config.global().index.iter().map(|name| name.to_string()).collect();
        (names.join(" "), findings.warning_count())
    };
    assert_eq!(index(r#"( "a", "b", )"#), ("a b".to_owned(), 0));
    assert_eq!(index(r#"( "a",, "b" )"#), ("a b".to_owned(), 1));
    assert_eq!(index(r#"( , "a", , )"#), ("a".to_owned(), 2));
    assert_eq!(findings("server.range-requests = 1\n"), [""; 0]);
    assert!(good("server.range-requests = \"Enable\"").global().ranges);
    assert_eq!(findings("server.range-requests = 2\n"), ["1:25 value"]);
    assert!(rendered("server.range-requests = 2\n").contains("warning"));
}

#[test]
fn a_value_may_begin_on_a_line_below() {
    let config = good(
        "index-file.names =\n\n  # why\n  ( \"a\" )\n$HTTP[\"host\"]\n==\n\"b\"\n{\nserver.tag +=\n\"x\" }",
    );
    assert_eq!(&*config.global().index[0], "a");
    assert_eq!(tag(&config, &LanguageRequest::host("b")), "x");
    // A statement is not taken as the value, and is not lost.
    assert_eq!(
        findings("server.tag =\nserver.tagg = 1\n"),
        ["1:13 syntax", "2:1 unknown-directive"]
    );
    assert_eq!(findings("a =\ninclude \"none\"\n"), ["1:4 syntax", "2:1 include"]);
    assert_eq!(findings("a =\n$HTTP[\"host\"] == \"x\" { }\n"), ["1:4 syntax"]);
}

#[test]
fn statements_of_every_kind_share_a_line() {
    assert_eq!(findings("a = 1 include \"none\" b = 2 global { } include \"none\"").len(), 2);
    assert_eq!(findings("a = 1 b"), ["1:7 syntax"]);
}

/// A connection has its listener before there is a request, as in lighttpd.
#[test]
fn a_listener_inside_of_a_condition_is_a_listener() {
    let inside = "$HTTP[\"host\"] == \"a\" { $SERVER[\"socket\"] == \":80\" { PLACE } }";
    let text = inside.replace("PLACE", "ssl.engine = \"enable\"\nserver.tag = \"x\"");
    assert_eq!(findings(&text), ["1:53 scope"]);
    assert!(rendered(&text).contains("belongs to the listener :80"), "{}", rendered(&text));
    let elsewhere = "$HTTP[\"host\"] == \"a\" { ssl.engine = \"enable\" }";
    let report = rendered(elsewhere);
    assert!(report.contains("warning") && report.contains("has no effect here"), "{report}");
}

#[test]
fn errors_tell_of_missing_quotes() {
    for (text, help) in [
        ("server.document-root = /srv", "text needs double quotes"),
        ("server.document-root = '/srv'", "text needs double quotes"),
        ("server.tag = lighty", "text needs quotes"),
        ("server.range-requests = on", "like text: \"enable\""),
        ("server.range-requests = false", "like text: \"disable\""),
    ] {
        let shown = rendered(text);
        assert!(shown.contains(help), "{text}: {shown}");
    }
}
