//! `lighty ctl reload --dry-run`: announces exactly what the reload then does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use lighty_server::control::client::{CallError, call};
use lighty_testkit::backend::Port;
use lighty_testkit::server::binary;
use lighty_testkit::wait_until;
use serde_json::{Value, json};

use super::site::{Echo, FRONT, ReloadSite};

const PATIENCE: Duration = Duration::from_secs(20);

fn ask(site: &ReloadSite, method: &str, path: &str) -> Result<Value, CallError> {
    let socket = site.server.directory().join("lighty.pid.ctl");
    call(&socket, method, path, &json!({}))
}

fn dry_run(site: &ReloadSite) -> Value {
    ask(site, "GET", "/reload/dry-run").expect("a result")
}

/// The differences as lines.
fn lines(run: &Value) -> Vec<String> {
    let changes = run["changes"].as_array().expect("a list");
    changes.iter().map(|change| change["text"].as_str().expect("a text").to_owned()).collect()
}

/// `lighty ctl reload --dry-run`: exit status, standard output and error output.
fn command(site: &ReloadSite, more: &[&str]) -> (i32, String, String) {
    let output = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .args(["ctl", "reload", "--dry-run", "--pid-file"])
        .arg(site.server.directory().join("lighty.pid"))
        .args(more)
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn differences_are_listed_and_nothing_changes() {
    let site = ReloadSite::start(1, "server.tag = \"one\"", &[("a", b"static")]);
    let port = Port::reserve();
    let descriptors = site.descriptors();
    site.write(&format!(
        "server.tag = \"two\"\nserver.max-keep-alive-requests = 7\n\
         accesslog.filename = \"@DIR@/access.log\"\n\
         $SERVER[\"socket\"] == \"{}\" {{ }}\n\
         $SERVER[\"socket\"] == \"@DIR@/s\" {{ }}\n",
        port.address()
    ));
    let (status, out, err) = command(&site, &[]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    for line in [
        &format!("add listener {}", port.address()),
        "change setting server.tag: \"one\" -> \"two\"",
        "add limit server.max-keep-alive-requests = 7",
        "add module mod_accesslog",
    ] {
        assert!(out.lines().any(|one| one == line), "{line}: {out}");
    }
    assert!(out.contains("add log ") && out.contains("/access.log\n"), "{out}");
    assert_eq!((site.tag(), site.server.listening().len()), ("one".into(), 1));
    assert!(!site.server.directory().join("s").exists());
    assert!(wait_until(PATIENCE, || site.server.descriptors() == descriptors));
    let (_, out, _) = command(&site, &["--format", "json"]);
    let run: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(run["outcome"], "reloads");
    let change = run["changes"].as_array().expect("a list").iter();
    let added = change.filter(|change| change["object"] == "listener");
    assert!(added.clone().count() == 2 && added.clone().all(|one| one["action"] == "add"), "{out}");
    assert_eq!(ask(&site, "GET", "/status").expect("a status")["generation"], 0);
}

#[test]
fn expected_refusal_has_all_reasons() {
    let site = ReloadSite::start(1, "server.tag = \"one\"", &[("a", b"static")]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = (taken.local_addr().expect("its address"), taken);
    site.write(&format!(
        "server.username = \"nobody\"\nserver.errorlog = \"@DIR@/none/e\"\n\
         $SERVER[\"socket\"] == \"{}\" {{ }}\n",
        taken.0
    ));
    let (status, out, err) = command(&site, &[]);
    assert_eq!(status, 1, "{out}");
    let restart = "needs a restart: setting server.username: not set -> \"nobody\"\n";
    assert!(out.contains(restart), "{out}");
    assert!(err.contains("the reload would be refused:"), "{err}");
    for reason in ["needs a restart: server.username", "none/e", "cannot bind 127.0.0.1:"] {
        assert!(err.contains(reason), "{reason}: {err}");
    }
    let refused = site.refused();
    let refused = refused.trim_start_matches("lighty: ").trim();
    assert!(err.contains(refused), "{err}\n{refused}");
    site.write("server.tag = ");
    let (status, _, err) = command(&site, &[]);
    assert!(status == 1 && err.contains("lighty.conf:"), "{err}");
    assert_eq!(ask(&site, "GET", "/status").expect("a status")["generation"], 0);
}

#[test]
fn orders_of_an_operator_are_kept_unless_the_file_changes_them() {
    let echo = Echo::start();
    let weight = |weight: u32| {
        format!(
            "proxy-core.protocol = \"http\"\nproxy-core.backends = ( \"{0}\" )\n\
             proxy-core.weights = ( \"{0}\" => {weight} )\n",
            echo.address
        )
    };
    let site = ReloadSite::start(1, &weight(1), &[]);
    let socket = site.server.directory().join("lighty.pid.ctl");
    let backend = echo.address.to_string();
    let order = |path: &str, body: Value| call(&socket, "POST", path, &body).expect("done");
    order("/backends/weight", json!({ "backend": backend, "weight": 9 }));
    site.write(&format!("{}server.tag = \"two\"\n", weight(1)));
    let kept = |run: &Value| {
        lines(run).into_iter().filter(|line| line.starts_with("keep the order for")).count()
    };
    assert_eq!(kept(&dry_run(&site)), 1);
    order("/backends/drain", json!({ "backend": backend }));
    assert_eq!(kept(&dry_run(&site)), 2);
    site.write(&weight(3));
    let run = dry_run(&site);
    assert!(lines(&run).iter().any(|line| line.ends_with(": weight 1 -> 3")), "{run}");
    assert_eq!(kept(&run), 1, "the file has another weight: {run}");
}

/// Numbers of a fixed sequence.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn is_one_of(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }
}

/// Addresses that random configurations use.
struct Parts {
    ports: Vec<Port>,
    backends: Vec<Echo>,
    taken: TcpListener,
}

/// A random configuration, with faults now and then.
fn random_lines(numbers: &mut Numbers, parts: &Parts) -> String {
    let mut text = format!("server.max-worker = {}\n", 1 + numbers.below(2));
    text += &format!("server.tag = \"tag-{}\"\n", numbers.below(3));
    for port in parts.ports.iter().filter(|_| numbers.below(2) == 0).collect::<Vec<_>>() {
        let option = match numbers.below(3) {
            0 => "server.listen-backlog = 7",
            1 => "server.tag = \"of a listener\"",
            _ => "",
        };
        text += &format!("$SERVER[\"socket\"] == \"{}\" {{ {option} }}\n", port.address());
    }
    let chosen: Vec<_> = parts.backends.iter().filter(|_| numbers.below(2) == 0).collect();
    if !chosen.is_empty() {
        let list = |of: &mut dyn FnMut(&Echo) -> String| {
            chosen.iter().map(|one| of(one)).collect::<Vec<_>>().join(", ")
        };
        let backends = list(&mut |one| format!("\"{}\"", one.address));
        let weights = list(&mut |one| format!("\"{}\" => {}", one.address, 1 + numbers.below(3)));
        text += &format!(
            "$HTTP[\"url\"] =^ \"/p\" {{ proxy-core.protocol = \"http\"\n\
             proxy-core.backends = ( {backends} )\nproxy-core.weights = ( {weights} )\n\
             proxy-core.connect-timeout = {} }}\n",
            3 + numbers.below(3)
        );
    }
    if numbers.below(2) == 0 {
        text += &format!("accesslog.filename = \"@DIR@/access-{}.log\"\n", numbers.below(2));
    }
    if numbers.below(2) == 0 {
        text += "setenv.add-response-header = ( \"X-Odd\" => \"yes\" )\n";
    }
    if numbers.is_one_of(6) {
        text += &match numbers.below(4) {
            0 => "server.no-such-directive = 1\nserver.tag = (\n".to_owned(),
            1 => "server.max-fds = 5000\n".to_owned(),
            2 => "server.errorlog = \"@DIR@/none/e.log\"\n".to_owned(),
            _ => {
                let taken = parts.taken.local_addr().expect("its address");
                format!("$SERVER[\"socket\"] == \"{taken}\" {{ }}\n")
            }
        };
    }
    text
}

/// State of the running server, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Observed {
    listeners: BTreeSet<String>,
    /// Weights of the backends.
    backends: BTreeMap<String, u64>,
    logs: BTreeSet<String>,
    workers: usize,
    tag: String,
    has_odd_field: bool,
}

fn observe(site: &ReloadSite) -> Observed {
    let response = site.server.get("/a");
    let entries = std::fs::read_dir(format!("/proc/{}/fd", site.server.pid())).expect("/proc");
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let rows = ask(site, "GET", "/backends").expect("backends");
    let weight = |row: &Value| {
        let name = row["backend"].as_str().expect("a name").to_owned();
        (name, row["weight"].as_u64().expect("a weight"))
    };
    let workers = ask(site, "GET", "/status").expect("a status")["workers"].clone();
    Observed {
        listeners: site.server.listening().iter().map(ToString::to_string).collect(),
        backends: rows.as_array().expect("rows").iter().map(weight).collect(),
        logs: links
            .map(|path| path.to_string_lossy().into_owned())
            .filter(|path| path.contains("/access-"))
            .collect(),
        workers: workers.as_array().expect("workers").len(),
        tag: response.field("Server").unwrap_or_default().to_owned(),
        has_odd_field: response.field("X-Odd").is_some(),
    }
}

/// Applies announced differences to an observed state.
fn apply(before: &Observed, run: &Value) -> Observed {
    let mut after = before.clone();
    for change in run["changes"].as_array().expect("a list") {
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        let (name, new) = (text("name"), text("new"));
        let address = name.split(" of ").next().unwrap_or_default().to_owned();
        match (&*text("object"), &*text("action")) {
            ("listener", "add") => _ = after.listeners.insert(name),
            ("listener", "remove") => assert!(after.listeners.remove(&name), "{name}"),
            ("log", "add") => _ = after.logs.insert(name),
            ("log", "remove") => assert!(after.logs.remove(&name), "{name}"),
            ("backend", "add") => _ = after.backends.insert(address, 0),
            ("backend", "remove") => assert!(after.backends.remove(&address).is_some(), "{name}"),
            ("backend", "change") => {
                assert_eq!(text("field"), "weight", "{change}");
                let known = after.backends.insert(address, new.parse().expect("a number"));
                assert_eq!(known.map(|weight| weight.to_string()), Some(text("old")), "{change}");
            }
            ("upstream", "remove") => after.backends.clear(),
            // Added upstreams are compared by the next test of no differences.
            ("upstream", "add") => after.backends = BTreeMap::from([("new".to_owned(), 0)]),
            ("workers", "change") => after.workers = new.parse().expect("a number"),
            ("setting", "change") if name == "server.tag" => {
                after.tag = new.trim_matches('"').to_owned();
            }
            ("module", "add") if name == "mod_setenv" => after.has_odd_field = true,
            ("module", "remove") if name == "mod_setenv" => after.has_odd_field = false,
            _ => {}
        }
    }
    after
}

/// Compares one dry run with the reload that follows it. Returns false for a refused one.
fn announced_reload_is_done(site: &ReloadSite, lines_next: &str, number: usize) -> bool {
    site.write_whole(&format!("{FRONT}{lines_next}"));
    let before = observe(site);
    let run = dry_run(site);
    let is_unchanged = || observe(site) == before;
    assert!(wait_until(PATIENCE, is_unchanged), "{run}\n{before:?}\n{:?}", observe(site));
    let diagnostics = run["diagnostics"].as_str().expect("a text").trim().to_owned();
    match ask(site, "POST", "/reload") {
        Ok(_) => assert_eq!(run["outcome"], "reloads", "{number}: {run}\n{lines_next}"),
        Err(why) => {
            assert_eq!(run["outcome"], "refused", "{number}: {why}\n{lines_next}");
            assert_eq!(diagnostics, why.to_string().trim(), "{number}");
            assert!(wait_until(PATIENCE, is_unchanged), "{number}: {why}\n{:?}", observe(site));
            return false;
        }
    }
    let expected = apply(&before, &run);
    let is_expected = |expected: &mut Observed| {
        let found = observe(site);
        if expected.backends.contains_key("new") && !found.backends.is_empty() {
            expected.backends.clone_from(&found.backends);
        }
        for (name, weight) in &mut expected.backends {
            // The weight of a backend that is new is announced by its presence alone.
            if *weight == 0 {
                *weight = found.backends.get(name).copied().unwrap_or(0);
            }
        }
        found == *expected
    };
    let done = wait_until(PATIENCE, || is_expected(&mut expected.clone()));
    assert!(done, "{number}: {run}\nexpected {expected:?}\nfound {:?}", observe(site));
    let again = dry_run(site);
    assert_eq!(again["changes"], json!([]), "{number}: {again}\n{lines_next}");
    true
}

#[test]
fn announced_differences_are_those_of_the_reload() {
    let parts = Parts {
        ports: (0..3).map(|_| Port::reserve()).collect(),
        backends: (0..3).map(|_| Echo::start()).collect(),
        taken: TcpListener::bind("127.0.0.1:0").expect("a port"),
    };
    let mut numbers = Numbers(1);
    let site = ReloadSite::start(1, "server.tag = \"tag-0\"\n", &[("a", b"static")]);
    let count = std::env::var("LIGHTY_DRY_RUNS").ok().and_then(|text| text.parse().ok());
    let (mut done, mut refused) = (0, 0);
    for number in 0..count.unwrap_or(40) {
        let next = random_lines(&mut numbers, &parts);
        match announced_reload_is_done(&site, &next, number) {
            true => done += 1,
            false => refused += 1,
        }
    }
    assert!(done > 0 && refused > 0, "{done} {refused}");
}
