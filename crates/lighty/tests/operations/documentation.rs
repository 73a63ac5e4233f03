//! The documentation site (`scripts/docs.sh`) and the language of the documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

use lighty_testkit::real::find_optional;

use crate::manual::{files, printed, source_tree};

/// Builds the site in a directory of its own. `None`, and the test is skipped, where the generator
/// is not installed: `scripts/docs.sh --install`.
fn built_site(name: &str) -> Option<PathBuf> {
    let tree = source_tree();
    let generator = tree.join("target/docs/venv/bin/mkdocs");
    find_optional(&[generator.to_str().expect("UTF-8")])?;
    let site = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new(tree.join("scripts/docs.sh")).arg(&site).output();
    let output = output.expect("scripts/docs.sh starts");
    // A link to a page or heading that does not exist is an error of the generator.
    assert!(output.status.success(), "{}", printed(&output));
    Some(site)
}

#[test]
fn documentation_site_is_complete_searchable_and_local() {
    let Some(site) = built_site("docs-site") else { return };
    let rendered = files(&site, ".html");
    for page in files(&source_tree().join("docs/manual"), ".md").keys() {
        let page = page.replace(".md", ".html");
        assert!(rendered.contains_key(&page), "{page} is missing");
    }
    for (page, text) in &rendered {
        for element in text.split('<').filter(|element| !element.starts_with("a ")) {
            let tag = element.split('>').next().expect("split returns a part");
            let is_remote = ["src", "href"].iter().any(|name| {
                let is_host = |scheme| tag.contains(&format!("{name}=\"{scheme}"));
                ["http://", "https://", "//"].into_iter().any(is_host)
            });
            assert!(!is_remote, "{page}: <{tag}> is of another host");
        }
    }
    let Some(node) = find_optional(&["node"]) else { return };
    find_every_phrase(&node, &site);
}

/// `scripts/docs/keywords.txt` names the page that each phrase must find first; the search is the
/// site's own, run by Node.
fn find_every_phrase(node: &Path, site: &Path) {
    let script = source_tree().join("scripts/docs/search.js");
    let output = Command::new(node).arg(script).arg(site).output().expect("node starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", printed(&output));
    let count = text.trim().rsplit('\n').next().and_then(|line| line.split(' ').next());
    let count: usize = count.and_then(|count| count.parse().ok()).expect("a number of phrases");
    assert!(count >= 26, "{text}");
}

/// Words of a page's prose in lower case: without code, fences and links.
fn prose(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut is_fence = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_fence = !is_fence;
        } else if !is_fence {
            prose.extend(line.split('`').step_by(2).flat_map(|part| [part, " x "]));
            prose.push('\n');
        }
    }
    let separators = |c: char| !c.is_ascii_alphabetic() && c != '\'';
    prose.split(separators).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Relative clauses in place of nouns make pages hard to read and to search. These figures catch
/// the habit; comparable projects are at 0.5 of either.
#[test]
fn documentation_names_things_instead_of_paraphrasing_them() {
    const WHAT_MAX: usize = 2;
    const WHO_MAX: usize = 1;
    let tree = source_tree();
    let mut pages = files(&tree.join("docs/manual"), ".md");
    // The reference of directives is written beside the code of each.
    pages.retain(|name, _| !name.starts_with("directives/"));
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        pages.insert(name.to_owned(), std::fs::read_to_string(tree.join(name)).expect(name));
    }
    let (mut total, mut all_what, mut all_who) = (0, 0, 0);
    let mut worst = Vec::new();
    for (name, text) in &pages {
        let prose = prose(text);
        let count = |of: &[&str]| prose.iter().filter(|word| of.contains(&word.as_str())).count();
        let (what, who) = (count(&["what"]), count(&["who", "whom", "whose", "nobody", "those"]));
        total += prose.len();
        all_what += what;
        all_who += who;
        if what * 1000 > WHAT_MAX * prose.len() || who * 1000 > WHO_MAX * prose.len() {
            worst.push(format!("{name}: {what} what, {who} who in {} words", prose.len()));
        }
    }
    let message = format!(
        "{all_what} times what, {all_who} times who, whom, whose, nobody or those in {total} words; \
         at most {WHAT_MAX} and {WHO_MAX} of 1,000; pages over that:\n{}",
        worst.join("\n")
    );
    assert!(all_what * 1000 <= WHAT_MAX * total, "{message}");
    assert!(all_who * 1000 <= WHO_MAX * total, "{message}");
}
