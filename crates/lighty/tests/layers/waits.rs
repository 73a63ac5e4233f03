//! The tables of effects and wake-ups in docs/simulation.md, compared with the sources.

use std::fs;

use super::files::workspace;
use super::read_sources;
use super::source::Source;

/// Parts of paths to source files in the tables, which leave out `crates/lighty-` and `src`.
pub(super) fn listed_paths(page: &str) -> Vec<String> {
    let tables = page.split_once("## Effects and wake-ups").expect("the section").1;
    let tables = tables.split_once("\n## ").map_or(tables, |(section, _)| section);
    let rows = tables.lines().filter(|line| line.starts_with('|'));
    paths_in(rows)
}

/// The paths of the first of the two tables, which has the effects.
pub(super) fn effect_paths(page: &str) -> Vec<String> {
    let tables = page.split_once("\n| effect |").expect("the table").1;
    paths_in(tables.lines().take_while(|line| !line.is_empty()))
}

fn paths_in<'a>(rows: impl Iterator<Item = &'a str>) -> Vec<String> {
    let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    quoted.filter(|text| text.contains('/')).map(str::to_owned).collect()
}

pub(super) fn simulation_page() -> String {
    fs::read_to_string(workspace().join("docs/simulation.md")).expect("the page")
}

/// Returns true if `listed` names the file, which stands in `crate_name` at `below_src`, or a
/// directory above it. A row may leave out the first parts of a path that it has given before.
pub(super) fn names_file(listed: &str, crate_name: &str, below_src: &str) -> bool {
    let short = crate_name.trim_start_matches("lighty-");
    let full = format!("/{short}/{below_src}");
    match listed.strip_suffix('/') {
        Some(directory) => full.contains(&format!("/{directory}/")),
        None => full.ends_with(&format!("/{listed}")),
    }
}

/// Files without rows: they are the simulation's own, or wait in threads that it does not have.
const OUTSIDE: &[&str] = &["io/file/fault.rs", "io/process/simulated.rs"];

/// Beginnings of waits for a timer, or for another task or thread.
const WAITS: &[&[&str]] = &[
    &["sleep"],
    &["sleep_until"],
    &["notified"],
    &["oneshot", "channel"],
    &["mpsc", "channel"],
    &["mpsc", "unbounded_channel"],
    &["watch", "channel"],
    &["Semaphore", "new"],
    &["Waker"],
    &["time", "timeout"],
];

fn waits(source: &Source) -> bool {
    WAITS.iter().any(|wait| {
        let is_method = matches!(wait, [name] if source.facts.names.contains_key(*name));
        is_method || source.facts.paths.keys().any(|path| ends_with(path, wait))
    })
}

fn ends_with(path: &[String], names: &[&str]) -> bool {
    path.len() >= names.len() && path[path.len() - names.len()..].iter().eq(names)
}

#[test]
fn simulation_lists_each_file_that_waits() {
    let listed = listed_paths(&simulation_page());
    assert!(listed.len() > 60, "{listed:?}");
    let sources = read_sources();
    let places: Vec<_> = sources
        .iter()
        .filter_map(|source| Some((source, source.file.crate_name(), source.file.below_src()?)))
        .collect();
    let mut found: Vec<String> = listed
        .iter()
        .filter(|path| !places.iter().any(|(_, name, below)| names_file(path, name, below)))
        .map(|path| format!("the tables list {path}, which does not exist"))
        .collect();
    let beside = ["lighty-programs", "lighty-testkit", "lighty-admin", "lighty-fetch"];
    for (source, name, below) in places {
        let is_simulated = !beside.contains(&name) && !source.file.is_test();
        let mut known = listed.iter().map(String::as_str).chain(OUTSIDE.iter().copied());
        let is_listed = known.any(|path| names_file(path, name, below));
        if is_simulated && waits(source) && !is_listed {
            found.push(format!("{}: waits, and docs/simulation.md has no row", source.file.path));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn files_and_directories_of_a_row_are_found() {
    assert!(names_file("io/process/spawn/", "lighty-io", "process/spawn/lines.rs"));
    assert!(names_file("proxy/serve.rs", "lighty-proxy", "serve.rs"));
    assert!(names_file("h2/shared.rs", "lighty-server", "conn/h2/shared.rs"));
    assert!(!names_file("proxy/serve.rs", "lighty-proxy", "observe.rs"));
    assert!(!names_file("io/process/", "lighty-io", "process.rs"));
    let page = "`a/b.rs`\n## Effects and wake-ups\n| x `c/d.rs` | `e` |\n## Next\n| `f/g.rs` |";
    assert_eq!(listed_paths(page), ["c/d.rs"]);
}
