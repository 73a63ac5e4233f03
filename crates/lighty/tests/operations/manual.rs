//! The manual agrees with the binary: generated pages are current, examples load, diagnostics are
//! shown verbatim, and links lead to existing targets.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lighty_testkit::server::binary;

/// Command that refreshes the generated pages.
const REFRESH: &str = "cargo run -p lighty -- generate manual docs/manual";

pub(crate) fn source_tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the source tree")
}

/// Every file beneath `dir` with this ending: its path beneath `dir`, and its text.
pub(crate) fn files(dir: &Path, ending: &str) -> BTreeMap<String, String> {
    fn walk(top: &Path, dir: &Path, ending: &str, found: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry")) {
            let path = entry.path();
            if path.is_dir() {
                walk(top, &path, ending, found);
            } else if path.to_string_lossy().ends_with(ending) {
                let name = path.strip_prefix(top).expect("beneath").to_string_lossy().into_owned();
                found.insert(name, std::fs::read_to_string(&path).expect("UTF-8"));
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(dir, dir, ending, &mut found);
    found
}

/// The pages that people read, by path in the source tree.
fn pages() -> BTreeMap<String, String> {
    let tree = source_tree();
    let manual = files(&tree.join("docs/manual"), ".md");
    let mut pages: BTreeMap<String, String> =
        manual.into_iter().map(|(name, text)| (format!("docs/manual/{name}"), text)).collect();
    for name in ["README.md", "CONTRIBUTING.md", "packaging/README.md"] {
        pages.insert(name.to_owned(), std::fs::read_to_string(tree.join(name)).expect(name));
    }
    pages
}

pub(crate) fn lighty(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(binary(env!("CARGO_BIN_EXE_lighty")))
        .args(arguments)
        .current_dir(source_tree())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lighty starts");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("lighty reads its input");
    drop(stdin);
    child.wait_with_output().expect("lighty ends")
}

pub(crate) fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fenced block of a page: its language and its contents.
struct Fence {
    page: String,
    line: usize,
    language: String,
    text: String,
}

fn fences() -> Vec<Fence> {
    let mut found = Vec::new();
    for (page, text) in pages() {
        let mut open: Option<Fence> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    let (page, line) = (page.clone(), number + 1);
                    open = Some(Fence { page, line, language, text: String::new() });
                }
                (Some(_), Some(_)) => found.extend(open.take()),
                (Some(fence), None) => {
                    fence.text.push_str(line);
                    fence.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a fence is not closed");
    }
    found
}

#[test]
fn generated_pages_are_up_to_date() {
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manual");
    let _ = std::fs::remove_dir_all(&fresh);
    let output = lighty(&["generate", "manual", fresh.to_str().expect("UTF-8")], "");
    assert!(output.status.success(), "{}", printed(&output));
    let generated = files(&fresh, ".md");
    assert!(generated.contains_key("requests-faults.md"));
    let committed = files(&source_tree().join("docs/manual"), ".md");
    for (name, text) in &generated {
        assert!(committed.get(name) == Some(text), "docs/manual/{name} is stale: run {REFRESH}");
    }
    for name in committed.keys().filter(|name| name.starts_with("directives/")) {
        assert!(generated.contains_key(name), "docs/manual/{name} is not generated any more");
    }
}

#[test]
fn examples_of_configurations_load() {
    let fences = fences();
    let examples = fences.iter().filter(|fence| fence.language == "lighty");
    let mut count = 0;
    for fence in examples {
        let output = lighty(&["-t", "--strict", "-f", "-"], &fence.text);
        let place = format!("{}:{}", fence.page, fence.line);
        assert!(output.status.success(), "{place} does not load:\n{}", printed(&output));
        count += 1;
    }
    assert!(count > 50, "{count} examples were found");
}

/// A block `lighty broken` is followed by a block `text` with the output of `lighty -t`.
#[test]
fn diagnostics_that_are_shown_are_the_real_ones() {
    let fences = fences();
    let mut count = 0;
    for pair in fences.windows(2).filter(|pair| pair[0].language == "lighty broken") {
        let place = format!("{}:{}", pair[1].page, pair[1].line);
        let output = lighty(&["-t", "-f", "-"], &pair[0].text);
        let printed = printed(&output).replace("standard input:", "lighty.conf:");
        assert_eq!(printed, pair[1].text, "{place}: this is what is said now:\n{printed}");
        count += 1;
    }
    assert!(count > 0);
}

/// Anchor that forges generate for a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The targets of `[text](target)` outside fences.
fn links(text: &str) -> Vec<String> {
    let mut in_fence = false;
    let mut found = Vec::new();
    for line in text.lines() {
        in_fence ^= line.starts_with("```");
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.filter(|_| !in_fence).map(|(target, _)| target.to_owned()));
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let tree = source_tree();
    for (page, text) in pages() {
        let dir = tree.join(&page).parent().expect("a directory").to_owned();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { tree.join(&page) } else { dir.join(file) };
            assert!(path.exists(), "{page}: {link} leads nowhere");
            if !place.is_empty() {
                let target = std::fs::read_to_string(&path).expect("a page");
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                let found = headings.any(|line| anchor(line.trim_start_matches('#')) == place);
                assert!(found, "{page}: {link}: no such heading");
            }
        }
    }
}

/// Code spans that look like directives exist, or are known as planned.
#[test]
fn directives_that_the_prose_names_exist() {
    let committed = files(&source_tree().join("docs/manual/directives"), ".md");
    let known: String = committed.into_values().collect();
    let families = [
        "server.",
        "static-file.",
        "mimetype.",
        "etag.",
        "debug.",
        "index-file.",
        "dir-listing.",
        "accesslog.",
        "connection.",
        "proxy-core.",
    ];
    for (page, text) in pages() {
        let mut in_fence = false;
        for line in text.lines() {
            in_fence ^= line.starts_with("```");
            for word in line.split('`').skip(1).step_by(2).filter(|_| !in_fence) {
                let name: String = word
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
                    .collect();
                let family = families.iter().any(|f| name.starts_with(f) && name.len() > f.len());
                assert!(
                    !family
                        || word.contains('*')
                        || known.contains(&format!("`{name}`"))
                        || known.contains(&format!("## {name}\n")),
                    "{page} names {name}, which is not a directive"
                );
            }
        }
    }
}

#[test]
fn packaged_configurations_load() {
    let tree = source_tree();
    for (name, text) in files(&tree.join("packaging"), ".conf") {
        let path = tree.join("packaging").join(&name);
        let path = path.to_str().expect("UTF-8");
        let output = lighty(&["-t", "--strict", "-f", path], "");
        assert!(output.status.success(), "packaging/{name}:\n{}", printed(&output));
        let output = lighty(&["fmt", "--check"], &text);
        assert!(output.status.success(), "packaging/{name} is not formatted: lighty fmt");
    }
}

#[test]
fn the_man_page_and_completions_are_generated() {
    let man = lighty(&["generate", "man"], "");
    let man = String::from_utf8(man.stdout).expect("UTF-8");
    assert!(man.contains(".TH lighty") && man.contains("explain"), "{man}");
    // Options of the second level, too.
    assert!(man.contains("\\-\\-upstream"), "{man}");
    for shell in ["bash", "zsh", "fish"] {
        let script = lighty(&["generate", "completions", shell], "");
        assert!(String::from_utf8_lossy(&script.stdout).contains("explain"), "{shell}");
    }
}
