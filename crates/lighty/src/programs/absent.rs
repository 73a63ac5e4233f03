//! `programs` of a build without the feature `tools`: reports programs called by another name as
//! missing.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::absent::TOOLS;
use crate::cli::Cli;

/// Names of links to the binary that call a program beside the server.
const LINKS: [&str; 4] = ["fcgi-stat-accel", "http_load", "lua-fastcgi-magnet", "spawn-fcgi"];

/// The command line of lighty, its own name first, or the name of a program that this build lacks.
pub(crate) type Called = Result<Vec<OsString>, MissingProgram>;

/// A program that this build lacks, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this build has no {0}; build with the feature {TOOLS:?}")]
pub(crate) struct MissingProgram(&'static str);

/// Selects the program by the name of the binary.
pub(crate) fn called(line: impl Iterator<Item = OsString>) -> Called {
    let line: Vec<OsString> = line.collect();
    let name = line.first().and_then(|path| Path::new(path).file_name());
    let found = LINKS.into_iter().find(|link| name.is_some_and(|name| name == *link));
    found.map_or(Ok(line), |program| Err(MissingProgram(program)))
}

/// Returns the command line of lighty, or reports that a program is missing.
pub(crate) fn run_called(called: Called) -> Result<Vec<OsString>, ExitCode> {
    called.map_err(|missing| {
        eprintln!("lighty: {missing}");
        ExitCode::from(2)
    })
}

/// Returns false: this build has no supervisor.
pub(crate) fn is_supervisor(_: &Cli) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_under_other_names_are_missing() {
        let called = |line: &str| super::called(line.split(' ').map(OsString::from));
        assert_eq!(called("/usr/bin/spawn-fcgi -h"), Err(MissingProgram("spawn-fcgi")));
        assert_eq!(called("lighty -h").map(|line| line.len()), Ok(2));
    }
}
