//! The table of effects in docs/simulation.md, compared with the system calls in the sources.
//!
//! Commands and programs beside the server are not simulated.

use super::read_sources;
use super::source::Source;
use super::waits::{effect_paths, names_file, simulation_page};

/// Types of libc whose names look like functions.
const TYPES: &[&str] = &[
    "c_char", "c_int", "c_long", "c_uint", "c_ulong", "c_void", "dev_t", "gid_t", "ino_t",
    "mode_t", "off_t", "pid_t", "size_t", "ssize_t", "time_t", "uid_t", "in_addr", "in6_addr",
    "iovec", "msghdr", "sockaddr", "timespec",
];

/// Crates that do not belong to a running server.
const BESIDE: &[&str] = &["lighty", "lighty-admin", "lighty-programs", "lighty-testkit"];

fn calls_system(source: &Source) -> Option<String> {
    let is_call = |path: &[String]| {
        let last = path.last().map_or("", String::as_str);
        let is_function = last.starts_with(|first: char| first.is_ascii_lowercase());
        let is_std = path.windows(2).any(|pair| pair == ["std", "fs"]);
        match path[0].as_str() {
            "rustix" => is_function && path.len() > 2,
            "libc" => is_function && path.len() == 2 && !TYPES.contains(&last),
            _ => is_std && is_function && path.len() > 2,
        }
    };
    source.all_paths().into_iter().find(|(path, _)| is_call(path)).map(|(path, _)| path.join("::"))
}

#[test]
fn simulation_lists_each_file_with_system_calls() {
    let listed = effect_paths(&simulation_page());
    let mut found = Vec::new();
    for source in read_sources() {
        let (name, below) = (source.file.crate_name(), source.file.below_src().expect("a source"));
        if BESIDE.contains(&name) || source.file.is_test() {
            continue;
        }
        let Some(call) = calls_system(&source) else { continue };
        if !listed.iter().any(|path| names_file(path, name, below)) {
            found.push(format!("{}: calls {call}", source.file.path));
        }
    }
    assert!(found.is_empty(), "{} files\n{}", found.len(), found.join("\n"));
}
