//! Recipes of the manual: each configuration runs with an application or a stand-in behind it, and
//! each command prints the output that the page shows.

mod access;
mod applications;
mod balancing;
mod caching;
mod files;
mod hosts;
mod observing;
mod page;
mod trial;

use std::path::{Path, PathBuf};

use page::Page;

fn manual() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/recipes")
}

/// The pages' names, without the index.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(manual()).expect("the recipes");
    let stem = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        name.strip_suffix(".md").map(str::to_owned)
    };
    entries.filter_map(stem).filter(|name| name != "index").collect()
}

#[test]
fn every_recipe_has_a_test() {
    let sources = [
        include_str!("recipes/access.rs"),
        include_str!("recipes/applications.rs"),
        include_str!("recipes/balancing.rs"),
        include_str!("recipes/caching.rs"),
        include_str!("recipes/files.rs"),
        include_str!("recipes/hosts.rs"),
        include_str!("recipes/observing.rs"),
    ];
    let names = names();
    assert!(names.len() >= 30, "{names:?}");
    for name in names {
        let calls = [format!("Recipe::new(\"{name}\")"), format!("Recipe::at(\"{name}\",")];
        let is_called = |source: &str| calls.iter().any(|call| source.contains(call));
        assert!(
            sources.iter().any(|source| is_called(source)),
            "docs/manual/recipes/{name}.md has no test"
        );
    }
}

#[test]
fn every_recipe_is_in_the_index_and_has_the_usual_parts() {
    let index = std::fs::read_to_string(manual().join("index.md")).expect("the index");
    for name in names() {
        assert_eq!(index.matches(&format!("]({name}.md)")).count(), 1, "{name} in the index");
        let text = std::fs::read_to_string(manual().join(format!("{name}.md"))).expect("a page");
        for part in ["# ", "## Try it", "## Pitfalls"] {
            assert!(text.lines().any(|line| line.starts_with(part)), "{name}: no {part:?}");
        }
        assert!(text.lines().count() <= 90, "{name} is too long for a recipe");
        let page = Page::read(&name);
        let asks = page.blocks.iter().any(|block| block.text.contains("curl "));
        assert!(asks, "{name} requests nothing");
    }
}
