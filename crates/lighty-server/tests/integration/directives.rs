//! The directive table as a whole: every row is documented, its example and default load.

use lighty_config::{LoadOptions, Main, MemoryLoader, Table, load};
use lighty_core::Settings;
use lighty_core::settings::directives;
use lighty_server::modules;

fn table() -> Table<Settings> {
    Table::new()
        .rows(modules::directives())
        .planned(directives::PLANNED.iter().copied())
        .instead(directives::INSTEAD.iter().copied())
        .gone(directives::GONE.iter().copied())
        .removed(directives::REMOVED.iter().copied())
}

#[test]
fn every_row_is_documented() {
    assert_eq!(table().lint(), Vec::<String>::new());
}

#[test]
fn a_written_default_is_what_holds_without_it() {
    let table = table();
    let unset = format!("{:?}", Settings::default());
    for row in table.iter() {
        let Some(default) = row.default_source() else { continue };
        let text = format!("{} = {default}\n", row.name);
        let main = Main::Text { name: row.name, text: text.as_bytes() };
        let (config, findings, sources) =
            load(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
        let report = findings.render(&sources, lighty_config::Style { color: false });
        let config = config.unwrap_or_else(|| panic!("default of {}:\n{report}", row.name));
        let set = format!("{:?}", config.settings(&lighty_config::Active::new()));
        assert_eq!(set, unset, "{} = {default} is not the default", row.name);
    }
}

#[test]
fn every_example_is_a_valid_configuration() {
    let table = table();
    for row in table.iter() {
        let main = Main::Text { name: row.name, text: row.example.as_bytes() };
        let (config, findings, sources) =
            load(&MemoryLoader::default(), &main, &table, LoadOptions { strict: true });
        let text = findings.render(&sources, lighty_config::Style { color: false });
        let is_clean = findings.error_count() + findings.warning_count() == 0;
        assert!(config.is_some() && is_clean, "example of {}:\n{text}", row.name);
        assert!(row.example.contains(row.name), "the example of {} shows it", row.name);
    }
}

#[test]
fn no_planned_name_is_available_already() {
    let table = table();
    for (name, _) in directives::PLANNED.iter().chain(directives::GONE).chain(directives::REMOVED) {
        assert!(table.get(name).is_none(), "{name} is both available and not");
    }
}
