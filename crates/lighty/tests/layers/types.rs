//! Counts the types of each name. A name shared by many types does not say what kind they are.

use std::collections::BTreeMap;

use super::files::{TextFile, all_files};

/// Maximum number of types of one name in the workspace.
const SAME_NAME_MAX: usize = 4;

#[test]
fn type_names_say_their_kind() {
    let mut files = all_files();
    files.retain(|file| file.is_rust() && !file.crate_name().is_empty());
    let types = types_by_name(&files);
    assert!(types.len() > 1000, "only {} names were found", types.len());
    let found = violations(&types);
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

/// Collects the names of all types, each with the paths of the files that define one.
fn types_by_name(files: &[TextFile]) -> BTreeMap<&str, Vec<&str>> {
    let mut types: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for file in files {
        for name in file.text.lines().filter_map(defined_type) {
            types.entry(name).or_default().push(file.path.as_str());
        }
    }
    types
}

/// Returns the name of the type that a line defines. Indented aliases are associated types, whose
/// names their traits determine.
fn defined_type(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(scope) if scope.starts_with('(') => scope.split_once(')')?.1.trim_start(),
        Some(item) => item.trim_start(),
        None => item,
    };
    let (keyword, item) = item.split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "trait" | "union" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = item.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(item.len());
    let name = &item[..end];
    (is_definition && name.starts_with(char::is_uppercase)).then_some(name)
}

/// Describes names of too many types.
fn violations(types: &BTreeMap<&str, Vec<&str>>) -> Vec<String> {
    let too_many = types.iter().filter(|(_, paths)| paths.len() > SAME_NAME_MAX);
    too_many
        .map(|(name, paths)| {
            let (count, paths) = (paths.len(), paths.join(" "));
            format!("{count} types are named {name} (limit: {SAME_NAME_MAX}): {paths}")
        })
        .collect()
}

#[test]
fn type_names_are_unique_in_their_crates() {
    let mut files = all_files();
    files.retain(|file| file.is_rust() && file.below_src().is_some() && !file.is_test());
    assert_eq!(shared_names(&files), [""; 0]);
}

/// Names of types that a crate defines more than once. Tests do not count, nor do the types that
/// replace those of a part that is left out.
fn shared_names(files: &[TextFile]) -> Vec<String> {
    let mut types: BTreeMap<_, usize> = BTreeMap::new();
    for file in files.iter().filter(|file| !is_alternative(&file.path)) {
        let code = file.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for name in code.lines().filter_map(defined_type) {
            *types.entry((file.crate_name(), name)).or_default() += 1;
        }
    }
    types.retain(|_, count| *count > 1);
    types.into_keys().map(|(of, name)| format!("{of} {name}")).collect()
}

/// Returns true for files that replace another one: the types of both have the same names.
fn is_alternative(path: &str) -> bool {
    path.ends_with("/absent.rs") || path == "crates/lighty-io/src/connect/resolve/c_library.rs"
}

#[test]
fn names_that_a_crate_uses_twice_are_found() {
    let file = |path: &str, text: &str| TextFile::new(path, text);
    let files = [
        file("crates/lighty-io/src/a.rs", "struct Twice;\nstruct Once;"),
        file("crates/lighty-io/src/b.rs", "pub enum Twice {}"),
        file("crates/lighty-io/src/c.rs", "#[cfg(test)]\nmod tests {\nstruct Once;\n}"),
        file("crates/lighty-io/src/b/absent.rs", "struct Once;"),
        file("crates/lighty-lua/src/a.rs", "struct Once;"),
    ];
    assert_eq!(shared_names(&files), ["lighty-io Twice"]);
}

#[test]
fn names_of_too_many_types_are_found() {
    let definitions = [
        "pub struct State<'a> {",
        "struct State;",
        "    pub(in super::super) enum State {",
        "pub(crate) trait State: Send {",
        "type State = u8;",
    ];
    let others =
        "impl State {\n    type State = u8;\n}\nfn state(state: State) {}\n// struct State\n";
    let read =
        |count: usize| TextFile::new("crates/one/src/a.rs", &definitions[..count].join("\n"));
    let check = |count| {
        let files = [read(count), TextFile::new("crates/one/src/b.rs", others)];
        violations(&types_by_name(&files)).len()
    };
    assert_eq!((check(4), check(5)), (0, 1));
}
