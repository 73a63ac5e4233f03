//! The loader for real files, commands and the real environment.
//!
//! This is the one place in the crate that does I/O, and only for a caller that opts in by
//! making an [`FsLoader`]. It is here, and not with the callers, because the server, the
//! formatter and the checker all need the same one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::glob;
use crate::limits::FILE_BYTES_MAX;
use crate::loader::Loader;

/// Reads files, runs commands with `/bin/sh -c`, sees the process environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsLoader;

impl Loader for FsLoader {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_limited(File::open(path)?)
    }

    fn glob(&self, pattern: &str) -> io::Result<Vec<PathBuf>> {
        glob::expand(pattern)
    }

    fn shell(&self, command: &str) -> Result<Vec<u8>, String> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let output = child.stdout.take().map_or(Ok(Vec::new()), read_limited);
        if output.as_ref().map_or(true, |bytes| bytes.len() > FILE_BYTES_MAX) {
            // The command may never exit by itself, and its output is no longer needed.
            let _ = child.kill();
            let _ = child.wait();
            return output.map_err(|error| error.to_string());
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(status.to_string());
        }
        output.map_err(|error| error.to_string())
    }

    fn env(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn cwd(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_default()
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
    }
}

/// One byte more than is allowed, so that the caller sees that there is too much.
fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_give_their_output_or_the_reason() {
        assert_eq!(FsLoader.shell("echo 'a = 1'").unwrap(), b"a = 1\n");
        assert!(FsLoader.shell("exit 3").unwrap_err().contains('3'));
    }

    #[test]
    fn a_command_that_never_stops_is_stopped() {
        let bytes = FsLoader.shell("yes").unwrap();
        assert_eq!(bytes.len(), FILE_BYTES_MAX + 1);
    }

    #[test]
    fn a_missing_file_says_so() {
        let error = FsLoader.read(Path::new("/nonexistent/x.conf")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
