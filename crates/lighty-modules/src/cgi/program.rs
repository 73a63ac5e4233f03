//! The program for a request and its environment: RFC 3875 section 4.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use lighty_core::Exchange;
use lighty_core::exchange::variables;
use lighty_io::process::spawn::{ChildInput, ChildOutput, Program};

/// Variables of the server's environment that programs inherit: search paths and the time zone.
const INHERITED: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "TZ"];

/// Describes the program for a file. Its input and output are pipes; with `upgrade`, a socket,
/// which is created later.
pub(super) fn describe(ex: &Exchange, interpreter: &str, upgrade: bool) -> Program {
    let script = ex.physical.path();
    let name_at = script.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let mut program = match interpreter {
        "" => Program::new(path(&script)),
        interpreter => {
            Program { args: vec![OsString::from_vec(script.clone())], ..Program::new(interpreter) }
        }
    };
    program.working_dir = Some(path(&script[..name_at]));
    program.copy_environment(INHERITED);
    variables::for_each(ex, &script, |name, value| {
        let variable = (OsString::from_vec(name.to_vec()), OsString::from_vec(value.to_vec()));
        program.environment.push(variable);
    });
    if !upgrade {
        program.stdin = if ex.body.exists() { ChildInput::Pipe } else { ChildInput::Null };
        program.stdout = ChildOutput::Pipe;
    }
    program.stderr = ChildOutput::Pipe;
    program
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
