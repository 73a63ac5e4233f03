//! Random configurations and requests: the indexed evaluation agrees with the plain one, and a dump
//! has the same meaning as the original.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;

use lighty_config::{
    Active, ConditionOutcome, Config, Directive, Facts, Field, LoadOptions, Main, MemoryLoader,
    SnapshotCache, Sources, Style, Table, load,
};
use proptest::prelude::*;

#[derive(Clone, Debug, Default, PartialEq)]
struct TagSettings {
    tag: String,
    list: Vec<String>,
}

fn table() -> Table<TagSettings> {
    Table::new()
        .row(
            Directive::string("server.tag", |s: &mut TagSettings, v| s.tag = v.to_string())
                .default("")
                .alias("server.tag-alias"),
        )
        .row(
            Directive::strings("index-file.names", |s: &mut TagSettings, v| {
                s.list = v.iter().map(|v| v.to_string()).collect();
            })
            .default("()"),
        )
}

fn read(text: &str) -> (Config<TagSettings>, Sources) {
    let main = Main::Text { name: "x", text: text.as_bytes() };
    let (config, list, sources) =
        load(&MemoryLoader::default(), &main, &table(), LoadOptions::default());
    let shown = list.render(&sources, Style::default());
    (config.unwrap_or_else(|| panic!("{shown}\n{text}")), sources)
}

#[derive(Clone, Debug)]
struct EvaluatedRequest {
    host: Option<String>,
    url: Option<String>,
    header: Option<String>,
    ip: Option<IpAddr>,
}

impl Facts for EvaluatedRequest {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        let value = match field {
            Field::Host => self.host.as_deref(),
            Field::Url => self.url.as_deref(),
            Field::RequestHeader(name) if name == "x-a" => self.header.as_deref(),
            Field::RequestHeader(_) => self.header.as_ref().map(|_| ""),
            Field::RemoteIp => return self.ip.map(|ip| ip.to_string().into()),
            Field::Socket => Some(":80"),
            _ => Some(""),
        };
        value.map(Cow::from)
    }
    fn remote_ip(&self) -> Option<IpAddr> {
        self.ip
    }
}

fn condition() -> impl Strategy<Value = String> {
    let op = prop::sample::select(vec!["==", "==", "==", "!=", "=~", "!~", "=^", "=$"]);
    let text = prop::sample::select(vec!["a", "b", "c", "A", "a:80", "a:81", "^a$", "(a|b)", "^b"]);
    let field = prop::sample::select(vec![
        "$HTTP[\"host\"]",
        "$HTTP[\"host\"]",
        "$HTTP[\"url\"]",
        "$REQUEST_HEADER[\"X-A\"]",
        "$REQUEST_HEADER[\"X-B\"]",
        "$SERVER[\"socket\"]",
    ]);
    let ip = prop::sample::select(vec!["10.0.0.1", "10.0.0.2", "10.0.0.0/8", "::1", "::/0"]);
    prop_oneof![
        6 => (field, op, text).prop_map(|(field, op, text)| format!("{field} {op} \"{text}\"")),
        1 => ip.prop_map(|ip| format!("$HTTP[\"remoteip\"] == \"{ip}\"")),
    ]
}

fn body() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-z]{1,3}".prop_map(|v| format!("server.tag := \"{v}\"\n")),
        "[a-z]{1,3}".prop_map(|v| format!("index-file.names += ( \"{v}\" )\n")),
        Just(String::new()),
    ];
    leaf.prop_recursive(4, 48, 12, |inner| {
        let arm = (condition(), inner.clone());
        let chain = (prop::collection::vec(arm, 1..4), proptest::option::of(inner.clone()));
        let chain = chain.prop_map(|(arms, last)| {
            let arms = arms.iter().map(|(c, b)| format!("{c} {{\n{b}}}\n"));
            let arms = arms.collect::<Vec<_>>().join("else ");
            arms + &last.map_or(String::new(), |body| format!("else {{\n{body}}}\n"))
        });
        prop::collection::vec(prop_oneof![2 => chain, 1 => inner], 1..12).prop_map(|l| l.concat())
    })
}

fn request() -> impl Strategy<Value = EvaluatedRequest> {
    let text = || {
        let hosts = vec!["a", "b", "c", "A", "a:80", "a:81", "ba", ""];
        proptest::option::weighted(0.85, prop::sample::select(hosts))
    };
    let ip = proptest::option::of(prop::sample::select(vec!["10.0.0.1", "10.0.0.3", "::1"]));
    (text(), text(), text(), ip).prop_map(|(host, url, header, ip)| EvaluatedRequest {
        host: host.map(str::to_owned),
        url: url.map(str::to_owned),
        header: header.map(str::to_owned),
        ip: ip.and_then(|ip| ip.parse().ok()),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_index_finds_what_a_plain_walk_finds(
        text in body(),
        requests in prop::collection::vec(request(), 8),
    ) {
        let (config, sources) = read(&text);
        let dump = config.dump();
        let (again, _) = read(&dump);
        let unmarked = dump.replace(" # default", "");
        prop_assert_eq!(again.dump(), unmarked, "a dump of a dump is the same, with all values set");
        let (mut active, mut active_again) = (Active::new(), Active::new());
        let mut cache = SnapshotCache::with_limit(3);
        for request in requests {
            config.evaluate(&request, &mut active);
            let explained = config.explain(&request, &sources);
            let plain: Vec<u32> = explained
                .conditions
                .iter()
                .filter(|c| c.outcome == ConditionOutcome::True)
                .map(|c| c.block)
                .collect();
            prop_assert_eq!(active.iter().collect::<Vec<_>>(), plain, "{:?}\n{}", request, text);
            let settings = config.settings(&active);
            prop_assert_eq!(&**cache.get(&config, &active), &settings);
            again.evaluate(&request, &mut active_again);
            prop_assert_eq!(again.settings(&active_again), settings.clone(), "{}\n{}", text, dump);
            let tag = explained.directives.iter().find(|d| d.name == "server.tag");
            prop_assert_eq!(tag.map_or("\"\"".into(), |d| d.value.clone()), format!("{:?}", settings.tag));
        }
    }
}

/// Conditions on a part of a field, enough of them for a combined search.
fn parts() -> impl Strategy<Value = String> {
    let op = prop::sample::select(vec!["=^", "=$", "=~", "=~", "!~", "=="]);
    let text = prop::sample::select(vec![
        "ab",
        "AB",
        "a",
        "/ab",
        "/ab/",
        "ab/cd",
        "cd",
        "^ab",
        "cd$",
        "^(x|y)?ab",
        "(?i)Ab",
        "a.c",
        "a[b]c?d",
        "(ab)+",
        "b{2}",
        "ab|cd",
        "^/ab/.*cd$",
    ]);
    let field = prop::sample::select(vec!["$HTTP[\"host\"]", "$HTTP[\"url\"]"]);
    let arm = (field, op, text, "[a-z]").prop_map(|(field, op, text, tag)| {
        format!("{field} {op} \"{text}\" {{ server.tag := \"{tag}\" }}\n")
    });
    let other = proptest::option::weighted(0.2, Just("else { index-file.names += ( \"x\" ) }\n"));
    let chain = (arm, other).prop_map(|(arm, other)| arm + other.unwrap_or_default());
    prop::collection::vec(chain, 30..90).prop_map(|chains| {
        let nested = format!("$HTTP[\"url\"] =~ \"a\" {{\n{}}}\n", chains.concat());
        chains.concat() + &nested
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn parts_are_found_as_a_plain_walk_finds_them(
        text in parts(),
        values in prop::collection::vec(("(ab|AB|cd|/|x|c){0,6}", "(ab|cd|/|b|c){0,6}"), 8),
    ) {
        let (config, sources) = read(&text);
        let mut active = Active::new();
        for (host, url) in values {
            let request = EvaluatedRequest { host: Some(host), url: Some(url), header: None, ip: None };
            config.evaluate(&request, &mut active);
            let explained = config.explain(&request, &sources);
            let plain = explained.conditions.iter().filter(|c| c.outcome == ConditionOutcome::True);
            let plain: Vec<u32> = plain.map(|c| c.block).collect();
            prop_assert_eq!(active.iter().collect::<Vec<_>>(), plain, "{:?}\n{}", request, text);
        }
    }
}

fn hosts(n: usize) -> Config<TagSettings> {
    let line = |i| format!("$HTTP[\"host\"] == \"h{i}.example\" {{ server.tag = \"{i}\" }}\n");
    read(&(0..n).map(line).collect::<String>()).0
}

struct HostFacts(String);

impl Facts for HostFacts {
    fn get(&self, _: &Field) -> Option<Cow<'_, str>> {
        Some(self.0.as_str().into())
    }
    fn remote_ip(&self) -> Option<IpAddr> {
        None
    }
}

#[test]
fn a_thousand_hosts_are_each_found() {
    let (config, mut active) = (hosts(1000), Active::new());
    let mut cache = SnapshotCache::new();
    for i in 0..1000 {
        config.evaluate(&HostFacts(format!("H{i}.example:8080")), &mut active);
        assert_eq!(active.iter().collect::<Vec<_>>(), [i + 1]);
        assert_eq!(cache.get(&config, &active).tag, i.to_string());
    }
    config.evaluate(&HostFacts("h1000.example".into()), &mut active);
    assert_eq!(active.iter().count(), 0);
}

#[test]
fn equal_sets_share_one_snapshot() {
    let (config, mut active) = (hosts(10), Active::new());
    let mut cache = SnapshotCache::new();
    let mut get = |host: &str| {
        config.evaluate(&HostFacts(host.into()), &mut active);
        Rc::clone(cache.get(&config, &active))
    };
    let (a, b, c) = (get("h1.example"), get("h2.example"), get("h1.example"));
    assert!(Rc::ptr_eq(&a, &c) && !Rc::ptr_eq(&a, &b));
}

#[test]
fn cache_is_emptied_in_steps() {
    let (config, mut active) = (hosts(5), Active::new());
    let mut cache = SnapshotCache::new();
    for i in 0..5 {
        config.evaluate(&HostFacts(format!("h{i}.example")), &mut active);
        cache.get(&config, &active);
    }
    assert_eq!((cache.shrink(2), cache.shrink(2), cache.shrink(2)), (3, 1, 0));
    assert_eq!(cache.get(&config, &active).tag, "4");
}

#[test]
fn a_set_notices_that_the_configuration_was_reloaded() {
    let (small, large, mut active) = (hosts(2), hosts(200), Active::new());
    small.evaluate(&HostFacts("h1.example".into()), &mut active);
    large.evaluate(&HostFacts("h150.example".into()), &mut active);
    assert_eq!(active.iter().collect::<Vec<_>>(), [151]);
    small.evaluate(&HostFacts("h1.example".into()), &mut active);
    assert_eq!(active.iter().collect::<Vec<_>>(), [2]);
}

#[test]
fn an_explanation_says_why() {
    let (config, sources) = read(
        "server.tag = \"g\"\n$HTTP[\"host\"] == \"a\" {\n    server.tag = \"h\"\n} else {\n}\n\
         $HTTP[\"url\"] =~ \"x\" {\n    $HTTP[\"host\"] == \"a\" { }\n}\n",
    );
    let request = EvaluatedRequest { host: Some("a".into()), url: None, header: None, ip: None };
    let explained = config.explain(&request, &sources);
    let text = explained.to_text();
    let want = [
        r#"Conditions"#,
        r#"  true        $HTTP["host"] == "a"  (x:2)"#,
        r#"                $HTTP["host"] is "a""#,
        r#"  skipped     else  (x:4)"#,
        r#"                an earlier branch applies"#,
        r#"  unavailable $HTTP["url"] =~ "x"  (x:6)"#,
        r#"                $HTTP["url"] is not known yet"#,
        r#"  skipped       $HTTP["host"] == "a"  (x:7)"#,
        r#"                  the enclosing block does not apply"#,
        "",
        "Directives",
        r#"  server.tag = "h"  (x:3)"#,
        r#"    instead of "g"  (x:1)"#,
        "",
    ]
    .join("\n");
    assert_eq!(text, want);
    let json: serde_json::Value = serde_json::from_str(&explained.to_json()).unwrap();
    assert_eq!(json["conditions"][2]["outcome"], "unavailable");
    assert_eq!(json["directives"][0]["replaced"][0]["value"], "\"g\"");
}

#[test]
fn a_dump_marks_defaults() {
    let (config, _) = read("server.tag-alias = \"x\"\n$HTTP[\"host\"] == \"a\" { }\n");
    let want = "index-file.names = () # default\nserver.tag = \"x\"\n$HTTP[\"host\"] == \"a\" \
                {\n}\n";
    assert_eq!(config.dump(), want);
}
