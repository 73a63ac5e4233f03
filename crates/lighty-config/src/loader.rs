//! The interface to the outside: how the language reads files, runs commands and sees the
//! environment. The caller implements it.

use std::io;
use std::path::{Path, PathBuf};

/// Everything outside that loading a configuration needs.
pub trait Loader {
    /// The bytes of a file. May stop after [`FILE_BYTES_MAX`](crate::limits::FILE_BYTES_MAX)
    /// + 1 bytes: more are refused anyway.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The paths that a pattern matches, sorted; none is not an error.
    fn glob(&self, pattern: &str) -> io::Result<Vec<PathBuf>>;

    /// The standard output of a command.
    ///
    /// # Errors
    /// It did not start, did not end in time, or failed.
    fn shell(&self, command: &str) -> io::Result<Vec<u8>>;

    /// A variable of the environment.
    fn env(&self, name: &str) -> Option<String>;

    /// The current directory: `var.CWD`, and what `./…` is relative to.
    fn cwd(&self) -> PathBuf;

    /// The process id: `var.PID`.
    fn pid(&self) -> u32;

    /// One name for all names of a file, so that cycles are seen. The path itself will do.
    fn identity(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }
}

/// A loader without I/O, for text in memory and for tests: files by name.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoader {
    /// Path and content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Environment.
    pub env: Vec<(String, String)>,
    /// Commands and their output.
    pub commands: Vec<(String, Result<String, String>)>,
}

impl MemoryLoader {
    /// A loader with these files.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| (path.into(), text.as_bytes().to_vec()));
        MemoryLoader { files: files.collect(), ..MemoryLoader::default() }
    }
}

impl Loader for MemoryLoader {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let found = self.files.iter().find(|(name, _)| name == path);
        found.map(|(_, bytes)| bytes.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Understands one `*` in the last place only, which is what tests need.
    fn glob(&self, pattern: &str) -> io::Result<Vec<PathBuf>> {
        let (head, tail) = pattern.split_once('*').unwrap_or((pattern, ""));
        let names = self.files.iter().filter_map(|(path, _)| path.to_str());
        let matches = |name: &&str| {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        };
        let mut list: Vec<PathBuf> = names.filter(matches).map(PathBuf::from).collect();
        list.sort();
        Ok(list)
    }

    fn shell(&self, command: &str) -> io::Result<Vec<u8>> {
        let found = self.commands.iter().find(|(name, _)| name == command);
        let (_, outcome) = found.ok_or_else(|| io::Error::other("no such command"))?;
        outcome.clone().map(String::into_bytes).map_err(io::Error::other)
    }

    fn env(&self, name: &str) -> Option<String> {
        self.env.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())
    }

    fn cwd(&self) -> PathBuf {
        PathBuf::from("/cwd")
    }

    fn pid(&self) -> u32 {
        4711
    }
}
