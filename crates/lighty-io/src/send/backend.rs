//! The network backends, and which of them this machine can run.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::{linux_aio, posix_aio};

/// How file data reaches a client (`server.network-backend`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NetworkBackend {
    /// Resident data is sent with sendfile immediately; cold data is first loaded by the file
    /// engine.
    #[default]
    Auto,
    /// Read in the loop, then one writev for memory and file together. Blocks.
    Writev,
    /// Read in the loop, then one write for each piece. Blocks.
    Write,
    /// sendfile in the loop. Blocks on cold files.
    LinuxSendfile,
    /// Kernel AIO with O_DIRECT into pages of a memory file, then sendfile from that.
    LinuxAioSendfile,
    /// POSIX AIO of the C library, into buffers.
    PosixAio,
    /// pread in the thread pool into buffers.
    GthreadAio,
    /// The sendfile call itself in the thread pool.
    GthreadSendfile,
    /// All reads through the file engine (io_uring if available), into buffers.
    IoUring,
}

impl NetworkBackend {
    /// All backends, the default first.
    pub const ALL: [NetworkBackend; 9] = [
        NetworkBackend::Auto,
        NetworkBackend::IoUring,
        NetworkBackend::LinuxSendfile,
        NetworkBackend::LinuxAioSendfile,
        NetworkBackend::PosixAio,
        NetworkBackend::GthreadAio,
        NetworkBackend::GthreadSendfile,
        NetworkBackend::Writev,
        NetworkBackend::Write,
    ];

    /// The configuration name.
    pub fn name(self) -> &'static str {
        match self {
            NetworkBackend::Auto => "auto",
            NetworkBackend::Writev => "writev",
            NetworkBackend::Write => "write",
            NetworkBackend::LinuxSendfile => "linux-sendfile",
            NetworkBackend::LinuxAioSendfile => "linux-aio-sendfile",
            NetworkBackend::PosixAio => "posix-aio",
            NetworkBackend::GthreadAio => "gthread-aio",
            NetworkBackend::GthreadSendfile => "gthread-sendfile",
            NetworkBackend::IoUring => "io-uring",
        }
    }

    /// Checks that this machine can run the backend. `io-uring` always can: it reads through the
    /// file engine, which falls back to threads and says so in its report.
    ///
    /// # Errors
    /// Why it cannot run.
    pub fn available(self) -> io::Result<()> {
        match self {
            NetworkBackend::LinuxAioSendfile => linux_aio::probe(),
            NetworkBackend::PosixAio => posix_aio::probe(),
            _ => Ok(()),
        }
    }
}

/// A name that is not a network backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend(String);

impl FromStr for NetworkBackend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        // lighttpd 1.4 uses the short name.
        if name == "sendfile" {
            return Ok(NetworkBackend::LinuxSendfile);
        }
        let found = NetworkBackend::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

impl fmt::Display for NetworkBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not a network backend; there are:", self.0)?;
        for backend in NetworkBackend::ALL {
            write!(f, " {backend}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownBackend {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for backend in NetworkBackend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert_eq!("sendfile".parse(), Ok(NetworkBackend::LinuxSendfile));
    }

    #[test]
    fn an_unknown_name_is_told_what_there_is() {
        let error = "freebsd-sendfile".parse::<NetworkBackend>().expect_err("unknown");
        let text = error.to_string();
        assert!(text.contains("freebsd-sendfile"), "{text}");
        for backend in NetworkBackend::ALL {
            assert!(text.contains(backend.name()), "{text}");
        }
    }
}
