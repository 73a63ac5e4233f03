//! The semantics of the language, seen from outside: text in, settings and findings out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use lighty_config::{
    Active, CaptureId, Config, Diagnostics, Directive, Facts, Field, Kind, LoadOptions, Main,
    MemoryLoader, Pairs, Scope, SnapshotCache, Sources, Strings, Style, Table, limits, load,
};

#[derive(Clone, Debug, Default, PartialEq)]
struct Settings {
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

fn table() -> Table<Settings> {
    Table::new()
        .row(Directive::string("server.document-root", |s: &mut Settings, v| s.root = v))
        .row(Directive::string("server.tag", |s: &mut Settings, v| s.tag = v).default("lighty"))
        .row(
            Directive::int("server.max-worker", 0..=64, |s: &mut Settings, v| s.workers = v)
                .scope(Scope::Server)
                .default_prose("one per core"),
        )
        .row(
            Directive::bool("server.range-requests", |s: &mut Settings, v| s.ranges = v)
                .default("enable"),
        )
        .row(
            Directive::choice(
                "server.network-backend",
                &["auto", "writev"],
                |s: &mut Settings, v| s.engine = v,
            )
            .default("auto"),
        )
        .row(
            Directive::strings("index-file.names", |s: &mut Settings, v| s.index = v)
                .default("()")
                .alias("server.indexfiles")
                .deprecated_alias("server.index-files-old"),
        )
        .row(Directive::map("alias.url", |s: &mut Settings, v| s.alias = v).default("()"))
        .row(
            Directive::bool("ssl.engine", |s: &mut Settings, v| s.tls = v)
                .scope(Scope::Socket)
                .default("disable"),
        )
        .row(Directive::parsed(
            "url.rewrite",
            Kind::String,
            |value, ctx| Ok((ctx.captures, value.as_str().unwrap_or("").into())),
            |s: &mut Settings, v: &(Option<CaptureId>, Arc<str>)| {
                s.capture = v.0;
                s.rewrite = Some((None, v.1.clone()));
            },
        ))
        .planned([("cgi.assign", "mod_cgi")])
        .removed([("server.userid", "server.username")])
}

type Loaded = (Option<Config<Settings>>, Diagnostics, Sources);

fn read_with(loader: &MemoryLoader, text: &str) -> Loaded {
    let main = Main::Text { name: "test.conf", text: text.as_bytes() };
    load(loader, &main, &table(), LoadOptions::default())
}

fn read(text: &str) -> Loaded {
    read_with(&MemoryLoader::default(), text)
}

#[track_caller]
fn good(text: &str) -> Config<Settings> {
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
struct Request {
    fields: HashMap<Field, String>,
    unknown: Vec<Field>,
    ip: Option<IpAddr>,
}

impl Request {
    fn with(mut self, field: Field, value: &str) -> Self {
        self.fields.insert(field, value.to_owned());
        self
    }
    fn host(value: &str) -> Self {
        Request::default().with(Field::Host, value)
    }
    fn without(mut self, field: Field) -> Self {
        self.unknown.push(field);
        self
    }
}

impl Facts for Request {
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

fn settings(config: &Config<Settings>, request: &Request) -> Settings {
    let mut active = Active::new();
    config.evaluate(request, &mut active);
    config.settings(&active)
}

#[track_caller]
fn tag(config: &Config<Settings>, request: &Request) -> String {
    settings(config, request).tag.to_string()
}

fn tag_of(text: &str, request: &Request) -> String {
    tag(&good(text), request)
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
    let join = |r: &Request| {
        settings(&config, r).index.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(",")
    };
    assert_eq!(join(&Request::host("x")), "g");
    assert_eq!(join(&Request::host("a")), "g,a,b");
    assert_eq!(join(&Request::host("a").with(Field::Url, "/")), "g,a,u");
}
