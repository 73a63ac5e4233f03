//! Benchmark of conditions: time per request to evaluate them and look up the settings.
//!
//! `cargo run --release -p lighty-config --example conditions`

use std::borrow::Cow;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use lighty_config::{
    Active, Directive, Facts, Field, LoadOptions, Main, MemoryLoader, SnapshotCache, Table, load,
};

const REQUESTS: u32 = 2_000_000;

struct ExampleRequest {
    host: String,
}

impl Facts for ExampleRequest {
    fn get(&self, field: &Field) -> Option<Cow<'_, str>> {
        Some(Cow::from(if *field == Field::Host { &self.host } else { "/index.html" }))
    }
    fn remote_ip(&self) -> Option<IpAddr> {
        None
    }
}

fn measure(what: &str, conditions: usize, line: impl Fn(usize) -> String) {
    let table =
        Table::new().row(Directive::string("server.tag", |s: &mut String, v| *s = v.to_string()));
    let text: String = (0..conditions).map(line).collect();
    let main = Main::Text { name: "example", text: text.as_bytes() };
    let (config, findings, _) =
        load(&MemoryLoader::default(), &main, &table, LoadOptions::default());
    let Some(config) = config else { return eprintln!("{} errors", findings.error_count()) };
    let requests: Vec<ExampleRequest> =
        (0..16).map(|i| ExampleRequest { host: format!("h{}.example", i * 61 % 1000) }).collect();
    let (mut active, mut cache) = (Active::new(), SnapshotCache::new());
    let start = Instant::now();
    for i in 0..REQUESTS {
        config.evaluate(&requests[i as usize % requests.len()], &mut active);
        black_box(cache.get(&config, &active));
    }
    let each = start.elapsed().as_nanos() as f64 / f64::from(REQUESTS);
    println!("{conditions:>5} {what:<10} {each:>7.0} ns/request");
}

fn main() {
    for n in [0, 10, 100, 1000] {
        measure("host ==", n, |i| {
            format!("$HTTP[\"host\"] == \"h{i}.example\" {{ server.tag = \"{i}\" }}\n")
        });
    }
    for n in [10, 100, 1000] {
        measure("url =^", n, |i| {
            format!("$HTTP[\"url\"] =^ \"/p{i}/\" {{ server.tag = \"{i}\" }}\n")
        });
        measure("host =~", n, |i| {
            format!("$HTTP[\"host\"] =~ \"^(www\\.)?h{i}\\.example$\" {{ server.tag = \"{i}\" }}\n")
        });
    }
}
