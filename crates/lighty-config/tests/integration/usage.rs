//! Minimal use of the crate: a table of one directive, and a file that sets it.

use lighty_config::{Directive, LoadOptions, Main, MemoryLoader, Table, load};

#[derive(Clone, Default)]
struct UsageSettings {
    port: u16,
}

#[test]
fn table_of_one_row_gives_a_typed_setting() {
    let set_port =
        |settings: &mut UsageSettings, port| settings.port = u16::try_from(port).unwrap();
    let table = Table::new().row(Directive::int("server.port", 1..=65535, set_port));
    let main = Main::Text { name: "example", text: b"server.port = 8000 + 80\n" };
    let loader = MemoryLoader::default();
    let (config, findings, _) = load(&loader, &main, &table, LoadOptions::default());
    assert!(findings.is_empty());
    assert_eq!(config.unwrap().global().port, 8080);
}

#[test]
fn directive_is_set_by_any_block_and_by_no_other_name() {
    let row =
        |name| Directive::int(name, 0..=9, |s: &mut UsageSettings, v| s.port += u16::from(v > 0));
    let table = Table::new().row(row("x.outside")).row(row("x.inside")).row(row("x.nowhere"));
    let text =
        b"x.outside = 1\n$HTTP[\"host\"] == \"a\" {\n$HTTP[\"url\"] == \"/\" { x.inside = 2 }\n}\n";
    let main = Main::Text { name: "example", text };
    let (config, ..) = load(&MemoryLoader::default(), &main, &table, LoadOptions::default());
    let config = config.unwrap();
    let set = ["x.outside", "x.inside", "x.nowhere", "variable"].map(|name| config.is_set(name));
    assert_eq!(set, [true, true, false, false]);
}
