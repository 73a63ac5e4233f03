//! Interface to files, commands and the environment. The caller implements it.

use std::io;
use std::path::{Path, PathBuf};

/// External access needed to load a configuration.
pub trait Loader {
    /// Reads a file. May stop after [`FILE_BYTES_MAX`](crate::limits::FILE_BYTES_MAX) + 1 bytes,
    /// because a larger file is rejected anyway.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The paths that match a pattern, sorted. An empty result is not an error.
    fn glob(&self, pattern: &str) -> io::Result<Vec<PathBuf>>;

    /// The standard output of a command.
    ///
    /// # Errors
    /// The command could not be started, exceeded its time limit, or failed.
    fn shell(&self, command: &str) -> io::Result<Vec<u8>>;

    /// An environment variable.
    fn env(&self, name: &str) -> Option<String>;

    /// The current directory: `var.CWD`, and the base of `./…`.
    fn cwd(&self) -> PathBuf;

    /// The process id: `var.PID`.
    fn pid(&self) -> u32;

    /// A name shared by all paths of a file, to detect cycles. The path itself is sufficient.
    fn identity(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }
}

/// A loader without I/O, for text in memory and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryLoader {
    /// Paths and contents.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Commands and their output.
    pub commands: Vec<(String, Result<String, String>)>,
}

impl MemoryLoader {
    /// Creates a loader with these files.
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

    /// Supports one `*`, in the last component only, which suffices for tests.
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
