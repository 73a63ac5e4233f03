//! The packages: manual pages, units, the files of each format, and their scripts. The binary in
//! them is a small one of the system, because the gate has no release at this point.

mod formats;
mod scripts;
mod units;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lighty_testkit::real::find_optional;

use crate::manual::{files, lighty, printed, source_tree};

/// Path in `packaging/`.
fn packaging(name: &str) -> PathBuf {
    source_tree().join("packaging").join(name)
}

/// Empty directory of a test.
fn empty_directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// Runs a program to its end. Returns its standard output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}{}", printed(&output));
    text
}

fn man_page(name: &str) -> String {
    let output = lighty(&["generate", "man", name], "");
    assert!(output.status.success(), "{}", printed(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The reference of directives is generated from the same table, and a test of its own holds it
/// against the table.
#[test]
fn configuration_page_has_every_directive_with_its_example() {
    let page = man_page("lighty.conf");
    let plain = page.replace("\\-", "-").replace("\\e", "\\").replace("\\(aq", "'");
    let mut count = 0;
    for (name, text) in files(&source_tree().join("docs/manual/directives"), ".md") {
        for section in
            text.split("\n## ").skip(1).filter(|_| name.starts_with("mod_") || name == "core.md")
        {
            let (heading, rest) = section.split_once('\n').expect("a heading");
            assert!(plain.contains(&format!("\n.SS {heading}\n")), "{name}: {heading}");
            let example = rest.split("```lighty\n").nth(1).and_then(|rest| rest.lines().next());
            let example = example.expect("an example").replace('`', "\\(ga").replace('^', "\\(ha");
            assert!(plain.contains(&example.replace('~', "\\(ti")), "{heading}: {example}");
            count += 1;
        }
    }
    assert!(count > 400, "{count} directives were found");
}

#[test]
fn manual_pages_are_formatted_without_a_warning() {
    let Some(groff) = find_optional(&["groff"]) else { return };
    for name in ["lighty", "lighty.conf"] {
        let path = empty_directory(&format!("man-{name}")).join("page");
        std::fs::write(&path, man_page(name)).expect("written");
        let mut command = Command::new(&groff);
        command.args(["-man", "-Tutf8", "-ww", "-z"]).arg(&path).stdin(Stdio::null());
        let output: Output = command.output().expect("groff starts");
        assert!(output.status.success() && printed(&output).is_empty(), "{}", printed(&output));
    }
}
