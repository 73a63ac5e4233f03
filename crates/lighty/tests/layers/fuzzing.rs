//! Fuzz targets, and the tests that replay their corpora.

use std::fs;

use super::files::{all_files, workspace};

/// Targets without a corpus, or without a test that replays it.
fn unreplayed(targets: &[String], has_corpus: impl Fn(&str) -> bool, tests: &str) -> Vec<String> {
    let forms = ["replay(\"NAME\"", "fuzz/corpus/NAME\""];
    let is_replayed =
        |name: &str| forms.iter().any(|form| tests.contains(&form.replace("NAME", name)));
    let lacking = targets.iter().filter(|name| !has_corpus(name) || !is_replayed(name));
    lacking.cloned().collect()
}

#[test]
fn each_fuzz_target_has_a_corpus_that_a_test_replays() {
    let fuzz = workspace().join("fuzz");
    let names = fs::read_dir(fuzz.join("fuzz_targets")).expect("targets").map(|entry| {
        let path = entry.expect("an entry").path();
        path.file_stem().expect("a name").to_string_lossy().into_owned()
    });
    let names: Vec<String> = names.collect();
    assert!(names.len() >= 28, "only {} targets", names.len());
    let has_corpus = |name: &str| {
        fs::read_dir(fuzz.join("corpus").join(name)).is_ok_and(|mut inputs| inputs.next().is_some())
    };
    let rust = all_files().into_iter().filter(|file| file.is_rust());
    let tests: String = rust.map(|file| file.text).filter(|text| text.contains("fuzz")).collect();
    assert_eq!(unreplayed(&names, has_corpus, &tests), Vec::<String>::new());
    assert_eq!(unreplayed(&["absent".into()], |_| true, &tests), ["absent"]);
    assert_eq!(unreplayed(&["uri".into()], |_| false, &tests), ["uri"]);
}
