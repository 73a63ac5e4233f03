//! A small file with state that outlives the process. It is replaced as a whole: a crash leaves the
//! old content or the new one.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum length of a state file, in bytes.
pub const STATE_BYTES_MAX: usize = 16 << 20;

/// Reads a state file; `None` if there is none.
///
/// # Errors
/// The system's error, or the file is longer than [`STATE_BYTES_MAX`].
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    file.take(STATE_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
    if content.len() > STATE_BYTES_MAX {
        let text = format!("the file is longer than {STATE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(Some(content))
}

/// Replaces a state file, and waits until the disk has it. Blocks.
///
/// # Errors
/// The system's error; the old content is still there then.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push("~");
    let next = Path::new(&name);
    let written = write(next, content).and_then(|()| std::fs::rename(next, path));
    if written.is_err() {
        let _ = std::fs::remove_file(next);
        return written;
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // The rename must be on the disk too.
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    // A file of an interrupted write is in the way.
    let _ = std::fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        assert_eq!(read(&path).expect("read"), None);
        std::fs::write(directory.path().join("state~"), "half").expect("an interrupted write");
        for content in ["one", "two"] {
            replace(&path, content.as_bytes()).expect("written");
            assert_eq!(read(&path).expect("read"), Some(content.into()));
        }
        let names: Vec<_> = std::fs::read_dir(directory.path()).expect("it").collect();
        assert_eq!(names.len(), 1, "{names:?}");
        replace(&directory.path().join("none/state"), b"").expect_err("no directory");
    }

    #[test]
    fn length_is_limited() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state");
        let file = File::create(&path).expect("created");
        file.set_len(STATE_BYTES_MAX as u64).expect("set");
        assert_eq!(read(&path).expect("read").map(|content| content.len()), Some(STATE_BYTES_MAX));
        file.set_len(STATE_BYTES_MAX as u64 + 1).expect("set");
        assert_eq!(read(&path).expect_err("too long").kind(), io::ErrorKind::FileTooLarge);
    }
}
