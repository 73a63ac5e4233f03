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
