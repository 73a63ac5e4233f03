//! Every file of `testdata/config`, whole and truncated at every byte.

use std::path::PathBuf;

use lighty_config::{
    Diagnostics, Directive, LoadOptions, Main, MemoryLoader, Sources, Style, Table, format, load,
};

fn corpus() -> Vec<(String, Vec<u8>)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/config");
    let entries = std::fs::read_dir(root).expect("the corpus is part of the repository");
    let mut list: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "conf"))
        .map(|path| {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            (name, std::fs::read(path).expect("readable"))
        })
        .collect();
    list.sort();
    assert!(list.len() > 30, "the corpus is there");
    list
}

fn table() -> Table<String> {
    Table::new().row(Directive::string("server.tag", |s: &mut String, v| *s = v.to_string()))
}

fn read(text: &[u8]) -> (bool, Diagnostics, Sources) {
    let main = Main::Text { name: "x.conf", text };
    let options = LoadOptions::default();
    let (config, list, sources) = load(&MemoryLoader::default(), &main, &table(), options);
    (config.is_some(), list, sources)
}

fn every_finding_has_a_place(list: &Diagnostics, sources: &Sources) {
    for finding in list {
        let span = finding.span.expect("a place");
        let place = sources.locate(span);
        assert!(place.line >= 1 && place.line <= sources.get(span.file).line_count());
        assert!(span.start <= span.end && !finding.message.is_empty());
    }
    list.render(sources, Style { color: true });
    let _: serde_json::Value = serde_json::from_str(&list.to_json(sources)).expect("JSON");
}

#[test]
fn valid_files_load_and_invalid_ones_say_why() {
    for (name, text) in corpus() {
        let (loaded, list, sources) = read(&text);
        let shown = list.render(&sources, Style::default());
        assert_eq!(loaded, name.starts_with("valid-"), "{name}\n{shown}");
        assert_eq!(list.has_errors(), !loaded, "{name}");
        every_finding_has_a_place(&list, &sources);
    }
}

#[test]
fn files_cut_at_any_byte_do_no_harm() {
    for (_, text) in corpus() {
        for end in 0..text.len() {
            let (loaded, list, sources) = read(&text[..end]);
            assert_eq!(loaded, !list.has_errors());
            every_finding_has_a_place(&list, &sources);
        }
    }
}

#[test]
fn formatted_files_mean_the_same() {
    for (name, text) in corpus().into_iter().filter(|(name, _)| name.starts_with("valid-")) {
        let text = String::from_utf8(text).expect("valid files are UTF-8");
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let Ok(once) = format(&name, &text[..end]) else {
                assert!(end < text.len(), "{name} can be formatted");
                continue;
            };
            assert_eq!(format(&name, &once).ok().as_ref(), Some(&once), "{name} to {end}");
            let dump = |text: &str| {
                let main = Main::Text { name: "x", text: text.as_bytes() };
                let loader = MemoryLoader::default();
                load(&loader, &main, &table(), LoadOptions::default()).0.map(|c| c.dump())
            };
            assert_eq!(dump(&once), dump(&text[..end]), "{name} to {end}");
        }
    }
}
