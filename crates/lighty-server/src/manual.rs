//! The reference of directives, made from the table: one page per module and an index.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use lighty_config::{Directive, Table};
use lighty_core::Settings;

/// Writes `<module>.md` for each module and `index.md` into `dir`.
pub fn write(table: &Table<Settings>, dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for (name, text) in pages(table) {
        std::fs::write(dir.join(name), text)?;
    }
    Ok(())
}

/// The pages by file name.
pub fn pages(table: &Table<Settings>) -> BTreeMap<String, String> {
    let mut by_module: BTreeMap<&str, Vec<&Directive<Settings>>> = BTreeMap::new();
    for row in table.iter() {
        by_module.entry(row.module).or_default().push(row);
    }
    let mut pages = BTreeMap::new();
    let mut index = String::from("# Directives\n\n");
    for (module, rows) in by_module {
        let _ = writeln!(index, "## [{module}]({module}.md)\n");
        let mut page = format!("# {module}\n\n");
        for row in rows {
            let anchor = row.name.replace(['.', '_'], "-");
            let _ =
                writeln!(index, "- [`{0}`]({module}.md#{anchor}): {1}", row.name, row.summary());
            page.push_str(&section(row, &anchor));
        }
        index.push('\n');
        pages.insert(format!("{module}.md"), page);
    }
    pages.insert("index.md".to_owned(), index);
    pages
}

fn section(row: &Directive<Settings>, anchor: &str) -> String {
    format!(
        "## <a id=\"{anchor}\"></a>{name}\n\n\
         | type | default | may stand in | since |\n|---|---|---|---|\n\
         | {kind} | `{default}` | {scope} | {since} |\n\n{doc}\n\n```lighty\n{example}\n```\n\n",
        name = row.name,
        kind = row.kind.describe(),
        default = row.default,
        scope = row.scope.describe(),
        since = row.since,
        doc = row.doc,
        example = row.example,
    )
}
