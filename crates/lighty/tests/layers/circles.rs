//! Finds cycles between the modules of a crate. A module is a file. An edge leads from it to the
//! file that defines a used name, past any re-exports on the way. A re-export alone is no edge, and
//! neither are uses between a module and its own parts (`foo.rs` and `foo/`).

use std::collections::{BTreeMap, BTreeSet};

use super::files::TextFile;
use super::source::Source;

/// Allowed cycles: modules by crate, and the reason. A row that is no cycle fails, too.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "lighty-core",
        &["exchange", "generation", "module"],
        "an exchange pins its generation, whose table of hooks has functions over exchanges",
    ),
    (
        "lighty-wire",
        &["http2::schedule", "http2::streams"],
        "the lists of the schedule are linked through the streams",
    ),
];

type Sources<'a> = BTreeMap<String, &'a Source>;
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Cycles that no row allows, and rows that allow none.
pub(super) fn violations(sources: &[Source]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Sources<'_>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.file.is_test()) {
        let modules = crates.entry(source.file.crate_name()).or_default();
        modules.insert(source.module(), source);
    }
    let mut allowed: Vec<_> = CIRCLES.to_vec();
    let mut found = Vec::new();
    for (name, modules) in crates {
        let arrows = arrows(&modules);
        for circle in circles(&arrows) {
            let members: Vec<_> = circle.iter().map(String::as_str).collect();
            match allowed.iter().position(|row| row.0 == name && row.1 == members) {
                Some(at) => _ = allowed.swap_remove(at),
                None => found.push(describe(name, &circle, &arrows)),
            }
        }
    }
    let unused = |row: &(&str, &[&str], &str)| format!("{}: {:?} is no circle", row.0, row.1);
    found.extend(allowed.iter().map(unused));
    found
}

#[test]
fn planted_circles_are_found() {
    let plain = [
        ("", "mod one; mod two; pub use one::One;"),
        ("one", "mod part; pub use part::Part; use part::Whole; pub struct One(Whole);"),
        ("one::part", "use super::super::two; pub struct Part(two::Two, super::One);"),
        (
            "two",
            "//! use crate::one::One;\npub struct Two; #[cfg(test)] mod tests { use crate::One; }",
        ),
    ];
    assert_eq!(planted(&plain), Vec::<Vec<String>>::new());
    let planted_in = |name: &str, text: &str| {
        let mut tree = plain.to_vec();
        tree.retain(|(module, _)| *module != name);
        tree.push((name, text));
        planted(&tree)
    };
    let circle = vec![vec!["one::part".to_owned(), "two".to_owned()]];
    for text in [
        "use crate::one::Part;",
        "use crate::{one::{self, part::Part as Other}};",
        "use crate::one; fn f(_: &one::Part) {}",
        "fn f() { crate::one::part::make(\"a \\\" string\", '\"') }",
        "fn f() { print!(\"{}\", crate::one::part::make()) }",
        "use super::one::Part;",
        "mod inner { use super::super::one::Part; }",
        "mod inner { fn f() { super::super::one::part::make() } }",
        "use crate::one::part::*;",
        "#[cfg(test)] mod tests {} use crate::one::Part;",
    ] {
        assert_eq!(planted_in("two", text), circle, "{text}");
    }
    let root = vec![vec![String::new(), "two".to_owned()]];
    let mut tree = plain.to_vec();
    tree[0].1 = "mod one; mod two; use two::Two; struct Root(Two);";
    tree[3].1 = "pub struct Two(crate::Root);";
    assert_eq!(planted(&tree), root);
}

fn planted(tree: &[(&str, &str)]) -> Vec<Vec<String>> {
    let read = |(module, text): &(&str, &str)| {
        let module = if module.is_empty() { "lib" } else { module };
        let path = format!("crates/planted/src/{}.rs", module.replace("::", "/"));
        Source::read(TextFile::new(&path, text))
    };
    let sources: Vec<_> = tree.iter().map(read).collect();
    circles(&arrows(&sources.iter().map(|source| (source.module(), source)).collect()))
}

/// Collects the edges: each module, and the modules that it uses.
fn arrows(sources: &Sources<'_>) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, source) in sources {
        let imports = source.facts.imports.iter();
        let used = imports.filter(|i| !i.is_public || source.facts.names.contains_key(&i.alias));
        let paths = used.map(|i| &i.path).chain(source.facts.paths.keys());
        let known: BTreeSet<_> = paths
            .filter_map(|path| defined_in(sources, module, path, 0))
            .filter(|other| !is_part(module, other) && !is_part(other, module))
            .collect();
        arrows.insert(module.clone(), known);
    }
    arrows
}

/// Maximum number of re-exports that a name may pass through.
const HOPS_MAX: usize = 16;

/// Returns the module that defines `path`, resolved in `module`. Returns `None` for other crates,
/// and for a path that is itself a module: names used from it have paths of their own.
fn defined_in(sources: &Sources<'_>, module: &str, path: &[String], hops: usize) -> Option<String> {
    let here = sources[module];
    let (first, mut rest) = path.split_first()?;
    let mut current = match first.as_str() {
        _ if hops > HOPS_MAX => return None,
        "crate" => String::new(),
        "self" => module.to_owned(),
        "super" => parent(module),
        name if here.facts.children.contains(name) => child(module, name),
        name => {
            let import = here.import(name).filter(|import| import.path[0] != name)?;
            let path: Vec<_> = import.path.iter().chain(rest).cloned().collect();
            return defined_in(sources, module, &path, hops + 1);
        }
    };
    while let Some((name, after)) = rest.split_first() {
        if name == "super" {
            current = parent(&current);
        } else if sources.contains_key(&child(&current, name)) {
            current = child(&current, name);
        } else if let Some(import) = sources.get(&current)?.import(name) {
            let path: Vec<_> = import.path.iter().chain(after).cloned().collect();
            return defined_in(sources, &current, &path, hops + 1);
        } else {
            return Some(current);
        }
        rest = after;
    }
    None
}

/// True if `part` is `module` or lies below it; the root of a crate has no parts.
fn is_part(part: &str, module: &str) -> bool {
    part == module || !module.is_empty() && part.starts_with(&format!("{module}::"))
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map_or_else(String::new, |(parent, _)| parent.to_owned())
}

fn child(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// Strongly connected sets of modules, sorted.
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach: BTreeMap<_, _> =
        arrows.keys().map(|module| (module, reached(arrows, module))).collect();
    let circle = |module: &String| -> Vec<String> {
        let back = reach[module].iter().filter(|other| reach[other].contains(module));
        back.cloned().collect()
    };
    let found: BTreeSet<_> = arrows.keys().map(circle).filter(|c| c.len() > 1).collect();
    found.into_iter().collect()
}

/// Modules reachable from `module` in one or more steps.
fn reached(arrows: &Arrows, module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![module];
    while let Some(next) = waiting.pop() {
        for other in arrows.get(next).into_iter().flatten() {
            if found.insert(other.clone()) {
                waiting.push(other);
            }
        }
    }
    found
}

fn describe(name: &str, circle: &[String], arrows: &Arrows) -> String {
    let known = |module: &String| {
        let inside: Vec<_> = arrows[module].iter().filter(|m| circle.contains(m)).collect();
        format!("    {module} -> {inside:?}")
    };
    let lines: Vec<_> = circle.iter().map(known).collect();
    format!("{name}: {circle:?}\n{}", lines.join("\n"))
}
