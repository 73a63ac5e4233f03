//! Every limit, at n and at n + 1.

use lighty_config::limits::*;
use lighty_config::{
    Active, Directive, Facts, Field, LoadOptions, Main, MemoryLoader, SnapshotCache, Table, load,
};

fn table() -> Table<i64> {
    Table::new().row(Directive::int("server.port", 0..=9, |s: &mut i64, v| *s = v))
}

fn errors_with(loader: &MemoryLoader, text: &str) -> Vec<&'static str> {
    let main = Main::Text { name: "x", text: text.as_bytes() };
    let (_, findings, _) = load(loader, &main, &table(), LoadOptions::default());
    findings.iter().map(|d| d.code).collect()
}

fn errors(text: &str) -> Vec<&'static str> {
    errors_with(&MemoryLoader::default(), text)
}

#[test]
fn nesting_of_arrays() {
    let nested = |n: usize| format!("a = {}{}\nb = 1\n", "(".repeat(n), ")".repeat(n));
    assert!(errors(&nested(NESTING_MAX)).is_empty());
    assert_eq!(errors(&nested(NESTING_MAX + 1)), ["limit"]);
    assert_eq!(errors(&format!("a = {}", "(".repeat(100_000)))[0], "unclosed");
    assert!(errors(&format!("a = {}", "(".repeat(100_000))).contains(&"limit"));
}

#[test]
fn nesting_of_arrays_through_variables() {
    let nested = |n: usize| format!("a = ()\n{}", "a := ( a )\n".repeat(n - 1));
    assert!(errors(&nested(NESTING_MAX)).is_empty());
    assert_eq!(errors(&nested(NESTING_MAX + 1)), ["limit"]);
    assert_eq!(errors(&nested(100_000)), ["limit"]);
}

#[test]
fn arrays_that_name_a_large_variable_many_times() {
    let text = format!("a = \"{}\"\n", "x".repeat(VALUE_BYTES_MAX / 4));
    let many = |n: usize| errors(&format!("{text}b = ({})\n", "a,".repeat(n)));
    assert!(many(3).is_empty());
    assert_eq!(many(5_000), ["limit"]);
}

#[test]
fn size_of_a_condition() {
    let cond = |n: usize| errors(&format!("$HTTP[\"url\"] == \"{}\" {{ }}", "x".repeat(n)));
    assert!(cond(CONDITION_BYTES_MAX).is_empty());
    assert_eq!(cond(CONDITION_BYTES_MAX + 1), ["condition"]);
}

#[test]
fn nesting_of_blocks() {
    let nested = |n: usize| {
        let open: String = (0..n).map(|_| "$HTTP[\"url\"] == \"a\" {\n").collect();
        format!("{open}{}", "}\n".repeat(n))
    };
    assert!(errors(&nested(NESTING_MAX)).is_empty());
    assert_eq!(errors(&nested(NESTING_MAX + 1)), ["limit"]);
    assert!(errors(&nested(20_000)).contains(&"limit"));
    assert!(errors(&"{".repeat(100_000)).len() <= DIAGNOSTICS_MAX);
}

#[test]
fn depth_of_includes() {
    let chain = |n: usize| {
        let names: Vec<String> = (1..=n).map(|i| format!("/cwd/f{i}")).collect();
        let texts: Vec<String> = (1..=n)
            .map(|i| if i < n { format!("include \"f{}\"", i + 1) } else { String::new() })
            .collect();
        let files: Vec<(&str, &str)> =
            names.iter().zip(&texts).map(|(n, t)| (n.as_str(), t.as_str())).collect();
        errors_with(&MemoryLoader::new(&files), "include \"f1\"")
    };
    assert!(chain(INCLUDE_DEPTH_MAX).is_empty());
    assert_eq!(chain(INCLUDE_DEPTH_MAX + 1), ["limit"]);
}

#[test]
fn number_of_files() {
    let loader = MemoryLoader::new(&[("/cwd/f", "")]);
    assert!(errors_with(&loader, &"include \"f\"\n".repeat(FILES_MAX - 1)).is_empty());
    assert_eq!(errors_with(&loader, &"include \"f\"\n".repeat(FILES_MAX)), ["limit"]);
}

#[test]
fn size_of_a_file_and_of_all() {
    let comment = |n: usize| "#".repeat(n);
    assert!(errors(&comment(FILE_BYTES_MAX)).is_empty());
    assert_eq!(errors(&comment(FILE_BYTES_MAX + 1)), ["limit"]);
    let large = comment(FILE_BYTES_MAX);
    let small = comment(TOTAL_BYTES_MAX - FILE_BYTES_MAX - 24);
    let loader = MemoryLoader::new(&[("/cwd/l", &large), ("/cwd/s", &small)]);
    let text = "include \"l\"\ninclude \"s\"\n";
    assert_eq!(text.len(), 24);
    assert!(errors_with(&loader, text).is_empty());
    assert_eq!(errors_with(&loader, &format!("{text}\n")), ["limit"]);
}

#[test]
fn size_of_a_value_and_of_all() {
    let half = "x".repeat(VALUE_BYTES_MAX / 2);
    let text = format!("a = \"{half}\"\nb = a + a\n");
    assert!(errors(&text).is_empty());
    assert_eq!(errors(&format!("{text}c = b + \"y\"\n")), ["limit"]);
    // 8 values of 8 MiB fit, and nothing else.
    let more = |n: usize| {
        let lines: String = (0..n).map(|i| format!("b{i} = b + \"\"\n")).collect();
        errors(&format!("{text}a := \"\"\n{lines}"))
    };
    let fit = VALUES_BYTES_MAX / VALUE_BYTES_MAX - 1;
    assert!(more(fit).is_empty());
    assert_eq!(more(fit + 1), ["limit"]);
}

#[test]
fn number_of_conditions() {
    let conditions = |n: usize| {
        let lines = (0..n).map(|i| format!("$HTTP[\"host\"] == \"h{i}\" {{ }}\n"));
        errors(&lines.collect::<String>())
    };
    assert!(conditions(CONDITIONS_MAX).is_empty());
    assert_eq!(conditions(CONDITIONS_MAX + 1), ["limit"]);
    assert_eq!(conditions(CONDITIONS_MAX + 5), ["limit"]);
}

struct OnlyHost(String);

impl Facts for OnlyHost {
    fn get(&self, _: &Field) -> Option<std::borrow::Cow<'_, str>> {
        Some(self.0.as_str().into())
    }
    fn remote_ip(&self) -> Option<std::net::IpAddr> {
        None
    }
}

#[test]
fn snapshots_start_over_past_their_limit() {
    let text: String =
        (0..4).map(|i| format!("$HTTP[\"host\"] == \"{i}\" {{ server.port = {i} }}\n")).collect();
    let main = Main::Text { name: "x", text: text.as_bytes() };
    let (config, ..) = load(&MemoryLoader::default(), &main, &table(), LoadOptions::default());
    let (config, mut active) = (config.unwrap(), Active::new());
    let mut cache = SnapshotCache::with_limit(3);
    let mut get = |host: i64, cache: &mut SnapshotCache<i64>| {
        config.evaluate(&OnlyHost(host.to_string()), &mut active);
        assert_eq!(**cache.get(&config, &active), host);
        cache.len()
    };
    assert_eq!([0, 1, 1, 2, 0].map(|host| get(host, &mut cache)), [1, 2, 2, 3, 3]);
    assert_eq!(get(3, &mut cache), 1, "a fourth variant empties the cache first");
    assert_eq!(get(0, &mut cache), 2);
}

/// Each of these took quadratic time, or could: a quarter of a megabyte would take minutes.
#[test]
fn time_grows_with_the_length_of_the_text_only() {
    let units = ["\\\"\n", "\"\nx\"", "a+=(1)\n", "a+=\"x\"\n", "a=(\n", "(a,", "a=b+\n"];
    for unit in units {
        errors(&unit.repeat((1 << 18) / unit.len()));
    }
}

#[test]
fn long_chains_and_many_mistakes_take_no_more_than_their_share() {
    // Each takes seconds at most; quadratic growth took minutes and gigabytes.
    let branches = |field: &dyn Fn(usize) -> String| -> String {
        let branch = |n| format!("else ${} == \"h{n}\" {{ server.port = {} }}\n", field(n), n % 10);
        let rest: String = (1..10_000).map(branch).collect();
        format!("$HTTP[\"host\"] == \"x\" {{ }}\n{rest}")
    };
    for text in [
        branches(&|n| format!("REQUEST_HEADER[\"X-{n}\"]")),
        branches(&|_| "SERVER[\"socket\"]".to_owned()),
    ] {
        let main = Main::Text { name: "x", text: text.as_bytes() };
        let (config, ..) = load(&MemoryLoader::default(), &main, &table(), LoadOptions::default());
        let dump = config.expect("no errors").dump();
        assert_eq!(errors(&dump), [""; 0]);
    }
    let unknown: String = (0..20_000).map(|n| format!("foo.bar{n} = 1\n")).collect();
    assert_eq!(errors(&unknown).len(), DIAGNOSTICS_MAX);
    let undefined: String = (0..20_000).map(|n| format!("a{n} = b{n}\n")).collect();
    assert_eq!(errors(&undefined).len(), DIAGNOSTICS_MAX);
}
