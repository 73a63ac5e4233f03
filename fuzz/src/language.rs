//! The configuration language: takes any bytes, and panics when a promise is broken.

use lighty_config::{LoadOptions, Main, MemoryLoader, Style, Table, load};

/// Any text gives a configuration or errors, never both and never neither, and every error can be
/// shown.
pub fn config(data: &[u8]) {
    let loader = MemoryLoader::new(&[("inc.conf", "var.inc = \"x\"\nserver.tag = var.inc\n")]);
    let table: Table<()> = Table::new();
    let main = Main::Text { name: "fuzz", text: data };
    for strict in [false, true] {
        let (config, diagnostics, sources) = load(&loader, &main, &table, LoadOptions { strict });
        assert_ne!(config.is_some(), diagnostics.has_errors());
        let shown = diagnostics.render(&sources, Style::default());
        assert_eq!(shown.is_empty(), diagnostics.is_empty());
        assert!(!diagnostics.to_json(&sources).is_empty());
    }
}
