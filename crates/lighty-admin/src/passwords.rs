//! Reads a password for a user file and hashes it for storage.

use std::io::{self, BufRead, IsTerminal, Write};

pub use lighty_io::process::memory_file::MemoryFile;
use lighty_io::process::terminal::Silenced;
pub use lighty_modules::auth::{PasswordScheme, hash_password as hash};

/// Prompts twice at a terminal without echo; otherwise reads the first line of standard input, for
/// scripts.
///
/// # Errors
/// If reading fails or the two entries differ.
pub fn ask() -> io::Result<Vec<u8>> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return line(&mut stdin.lock());
    }
    let _silenced = Silenced::new(&stdin)?;
    let typed = |prompt: &str| {
        write!(io::stderr(), "{prompt}: ")?;
        let typed = line(&mut stdin.lock());
        writeln!(io::stderr())?;
        typed
    };
    let password = typed("Password")?;
    match typed("Once more")? == password {
        true => Ok(password),
        false => Err(io::Error::other("the two passwords differ")),
    }
}

fn line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}
