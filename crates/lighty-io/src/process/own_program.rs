//! The program of this process, to be started again.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A program, and how it is started.
#[derive(Clone, Debug)]
pub struct OwnProgram {
    /// The file to execute.
    pub path: PathBuf,
    /// Its name in the process list, which may select the behaviour of the binary.
    pub name: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl OwnProgram {
    /// The program, name and arguments of this process. Its path leads to the same name as at the
    /// start, so that a package may put another file there. Call it before anything changes the
    /// working directory.
    ///
    /// # Errors
    /// Neither the command line nor `/proc` names the program.
    pub fn of_this_process() -> io::Result<Self> {
        let mut line = std::env::args_os();
        let name = line.next().unwrap_or_default();
        let path = match name.as_bytes() {
            [b'/', ..] => PathBuf::from(&name),
            called if called.contains(&b'/') => std::env::current_dir()?.join(&name),
            _ => in_search_path(&name).map_or_else(std::env::current_exe, Ok)?,
        };
        Ok(Self { path, name, args: line.collect() })
    }
}

/// The first executable of this name, as execvp(3) finds it.
fn in_search_path(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| path.is_absolute() && path.is_file() && is_program(path))
}
