//! The registry of network backends, and which of them this machine can run.

use std::fmt;
use std::io;
use std::str::FromStr;

use super::ways::{Cold, Fill, Warm};
use super::{linux_aio, posix_aio};

/// Properties that distinguish a backend from others.
pub(super) struct Ways {
    pub warm: Warm,
    pub cold: Cold,
    pub fill: Fill,
    /// Checks that this machine can run it.
    probe: fn() -> io::Result<()>,
}

/// Each line: documentation, variant, name, and the [`Ways`].
macro_rules! registry {
    ($($(#[$about:meta])* $variant:ident $name:literal: $warm:ident $cold:ident $fill:ident $probe:expr;)*) => {
        /// Method of sending file data to a client (`server.network-backend`).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum NetworkBackend {
            $($(#[$about])* $variant,)*
        }

        impl NetworkBackend {
            /// All backends, the default first.
            pub const ALL: [NetworkBackend; [$($name),*].len()] = [$(Self::$variant),*];

            /// The configuration name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            #[inline]
            pub(super) fn ways(self) -> &'static Ways {
                const WAYS: [Ways; NetworkBackend::ALL.len()] = [$(Ways {
                    warm: Warm::$warm,
                    cold: Cold::$cold,
                    fill: Fill::$fill,
                    probe: $probe,
                }),*];
                &WAYS[self as usize]
            }
        }
    };
}

registry! {
    /// Resident data is sent with sendfile immediately; cold data is first loaded by the file
    /// engine.
    #[default]
    Auto "auto": ResidentChunk PageCache Engine always;
    /// All reads through the file engine (io_uring if available, else threads, as its report says),
    /// into buffers.
    IoUring "io-uring": Never Buffer Engine always;
    /// sendfile in the loop. Blocks on cold files.
    LinuxSendfile "linux-sendfile": Sendfile PageCache Engine always;
    /// Kernel AIO with O_DIRECT into pages of a memory file, then sendfile from that.
    LinuxAioSendfile "linux-aio-sendfile": ResidentRest Pages Engine linux_aio::probe;
    /// POSIX AIO of the C library, into buffers.
    PosixAio "posix-aio": ResidentRest Buffer PosixAio posix_aio::probe;
    /// pread in the thread pool into buffers.
    GthreadAio "gthread-aio": ResidentRest Buffer Threads always;
    /// The sendfile call itself in the thread pool.
    GthreadSendfile "gthread-sendfile": ResidentRest ThreadSendfile Engine always;
    /// Read in the loop, then one writev for memory and file together. Blocks.
    Writev "writev": Copy PageCache Engine always;
    /// Read in the loop, then one write for each piece. Blocks.
    Write "write": Copy PageCache Engine always;
}

fn always() -> io::Result<()> {
    Ok(())
}

impl NetworkBackend {
    /// Checks that this machine can run the backend.
    ///
    /// # Errors
    /// The reason why it cannot run.
    pub fn available(self) -> io::Result<()> {
        (self.ways().probe)()
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
    fn each_line_is_at_its_place_and_has_its_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/send/");
        let essay = include_str!("../send.rs");
        let rows: Vec<&str> = essay.lines().filter(|line| line.starts_with("//! | `")).collect();
        for (at, backend) in NetworkBackend::ALL.into_iter().enumerate() {
            assert_eq!(backend as usize, at);
            let named = format!("`{backend}`");
            let row = rows.iter().find(|row| row.contains(&named)).expect("a row of the table");
            let file = row.split('|').nth(2).and_then(|cell| cell.split('`').nth(1));
            let file = format!("{folder}{}.rs", file.expect("a file"));
            assert!(std::path::Path::new(&file).exists(), "{file}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "freebsd-sendfile".parse::<NetworkBackend>().expect_err("unknown");
        let text = error.to_string();
        assert!(text.contains("freebsd-sendfile"), "{text}");
        for backend in NetworkBackend::ALL {
            assert!(text.contains(backend.name()), "{text}");
        }
    }
}
