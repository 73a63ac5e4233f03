//! Messages between the server and the launcher about programs.
//!
//! An order to start a program goes over the launcher's socket and brings one end of a pair of
//! sockets for this program alone. The rest of a long order, signals and the end of the program go
//! over that pair, so an order can concern no foreign process.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::process::program::Exit;

/// Maximum bytes of an order; the kernel takes fewer for arguments and variables.
pub(super) const ORDER_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of an order in one message.
pub(super) const PART_BYTES: usize = 48 << 10;

/// Bytes of a detail of a refusal.
const DETAIL_BYTES_MAX: usize = 200;

/// Reason why the launcher does not start a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchRefusal {
    /// The order is malformed, or too long.
    #[error("the launcher of the sandbox does not understand the order")]
    Malformed,
    /// The configuration of the start does not name the program.
    #[error(
        "the sandbox permits only the programs that the configuration named at the start: restart \
         the server, or run \"lighty ctl upgrade\""
    )]
    UnknownProgram,
    /// The script is outside of served directories.
    #[error("the sandbox permits only programs beneath directories that the configuration serves")]
    OutsideRoots,
    /// The server may write where the script is, or where a link to it is.
    #[error("the sandbox permits no programs beneath directories that the server writes to")]
    WrittenDirectory,
    /// A variable that the configuration does not name, or with another value.
    #[error("the sandbox permits the variable {0} of programs only as setenv.* sets it")]
    Variable(String),
    /// Too many orders are incomplete.
    #[error("the launcher of the sandbox waits for too many orders")]
    TooManyOrders,
}

/// Reason why a program was not started.
#[derive(Debug)]
pub(super) enum LaunchFault {
    /// The plan does not permit it.
    Refused(LaunchRefusal),
    /// An error of the system.
    Failed(io::Error),
}

impl From<LaunchRefusal> for LaunchFault {
    fn from(refusal: LaunchRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for LaunchFault {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl LaunchRefusal {
    fn code(&self) -> u8 {
        match self {
            Self::Malformed => 0,
            Self::UnknownProgram => 1,
            Self::OutsideRoots => 2,
            Self::WrittenDirectory => 3,
            Self::Variable(_) => 4,
            Self::TooManyOrders => 5,
        }
    }

    fn of_code(code: u8, detail: &[u8]) -> Option<Self> {
        Some(match code {
            0 => Self::Malformed,
            1 => Self::UnknownProgram,
            2 => Self::OutsideRoots,
            3 => Self::WrittenDirectory,
            4 => Self::Variable(String::from_utf8_lossy(detail).into_owned()),
            5 => Self::TooManyOrders,
            _ => return None,
        })
    }
}

/// A message of the launcher about a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LaunchReply {
    /// A process with this number was made.
    Started(i32),
    /// No process was made: an error of the system.
    Failed(i32),
    Refused(LaunchRefusal),
    Ended(Exit),
}

impl LaunchReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let with = |kind: u8, number: i32| [&[kind][..], &number.to_ne_bytes()].concat();
        match self {
            Self::Started(pid) => with(b's', *pid),
            Self::Failed(error) => with(b'f', *error),
            Self::Ended(Exit::Code(code)) => with(b'c', *code),
            Self::Ended(Exit::Signal(number)) => with(b'k', *number),
            Self::Ended(Exit::Unseen) => with(b'u', 0),
            Self::Refused(refusal) => {
                let mut message = vec![b'r', refusal.code()];
                if let LaunchRefusal::Variable(name) = refusal {
                    message.extend(name.bytes().take(DETAIL_BYTES_MAX));
                }
                message
            }
        }
    }

    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        if *kind == b'r' {
            let (code, detail) = rest.split_first()?;
            return LaunchRefusal::of_code(*code, detail).map(Self::Refused);
        }
        let number = i32::from_ne_bytes(rest.try_into().ok()?);
        Some(match kind {
            b's' => Self::Started(number),
            b'f' => Self::Failed(number),
            b'c' => Self::Ended(Exit::Code(number)),
            b'k' => Self::Ended(Exit::Signal(number)),
            b'u' => Self::Ended(Exit::Unseen),
            _ => return None,
        })
    }

    /// Bytes of the longest reply.
    pub(super) const BYTES_MAX: usize = 2 + DETAIL_BYTES_MAX;
}

/// A message of the server about a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildOrder<'a> {
    /// The next part of the order to start it.
    More(&'a [u8]),
    /// A signal to its process group.
    Signal(i32),
    /// Its exit status is known: frees its process id.
    Reap,
}

impl<'a> ChildOrder<'a> {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Self::More(part) => [&b"+"[..], part].concat(),
            Self::Signal(number) => [&b"k"[..], &number.to_ne_bytes()].concat(),
            Self::Reap => b"w".to_vec(),
        }
    }

    pub(super) fn decode(message: &'a [u8]) -> Option<Self> {
        Some(match message.split_first()? {
            (b'+', part) => Self::More(part),
            (b'k', number) => Self::Signal(i32::from_ne_bytes(number.try_into().ok()?)),
            (b'w', []) => Self::Reap,
            _ => return None,
        })
    }
}

/// An order to start a program of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramOrder {
    /// Place in the list of programs.
    pub(super) index: u32,
    /// The arguments that the configuration leaves open.
    pub(super) args: Vec<OsString>,
    /// The variables that the configuration leaves open.
    pub(super) variables: Vec<(OsString, OsString)>,
}

impl ProgramOrder {
    /// Index, number of arguments, then arguments and variables, each with a zero byte at its end.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.index.to_ne_bytes());
        bytes.extend((self.args.len() as u32).to_ne_bytes());
        for argument in &self.args {
            bytes.extend(argument.as_bytes());
            bytes.push(0);
        }
        for (name, value) in &self.variables {
            bytes.extend(name.as_bytes());
            bytes.push(b'=');
            bytes.extend(value.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// `None` if it is malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (index, rest) = bytes.split_first_chunk::<4>()?;
        let (count, rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_ne_bytes(*count) as usize;
        let texts = match rest {
            [] => Vec::new(),
            rest => rest.strip_suffix(&[0])?.split(|byte| *byte == 0).collect(),
        };
        let (args, variables) = texts.split_at_checked(count)?;
        let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let variable = |text: &&[u8]| {
            let at = text.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
            Some((owned(&text[..at]), owned(&text[at + 1..])))
        };
        Some(Self {
            index: u32::from_ne_bytes(*index),
            args: args.iter().map(|text| owned(text)).collect(),
            variables: variables.iter().map(variable).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(args: &[&str], variables: &[(&str, &str)]) -> ProgramOrder {
        let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
        ProgramOrder {
            index: 7,
            args: args.iter().map(OsString::from).collect(),
            variables: variables.iter().map(pair).collect(),
        }
    }

    #[test]
    fn orders_pass_unchanged() {
        for order in [
            order(&[], &[]),
            order(&["/srv/a b"], &[]),
            order(&["", "x"], &[("A", ""), ("B", "c=d")]),
            order(&[], &[("A", "1")]),
        ] {
            assert_eq!(ProgramOrder::decode(&order.encode()).as_ref(), Some(&order));
        }
    }

    #[test]
    fn malformed_orders_are_refused() {
        let whole = order(&["/srv/a"], &[("A", "1")]).encode();
        for length in 0..whole.len() {
            // A cut after the argument is an order without variables.
            let is_whole = length == 8 + "/srv/a".len() + 1;
            assert_eq!(ProgramOrder::decode(&whole[..length]).is_some(), is_whole, "{length}");
        }
        let count_max = [&whole[..4], &u32::MAX.to_ne_bytes(), &whole[8..]].concat();
        assert_eq!(ProgramOrder::decode(&count_max), None);
        for variable in [&b"=x\0"[..], b"x\0", b"\0"] {
            let text = [&order(&[], &[]).encode()[..], variable].concat();
            assert_eq!(ProgramOrder::decode(&text), None, "{variable:?}");
        }
    }

    #[test]
    fn replies_pass_unchanged() {
        let long = LaunchRefusal::Variable("N".repeat(DETAIL_BYTES_MAX));
        for reply in [
            LaunchReply::Started(1),
            LaunchReply::Failed(libc::ENOENT),
            LaunchReply::Ended(Exit::Code(255)),
            LaunchReply::Ended(Exit::Signal(9)),
            LaunchReply::Ended(Exit::Unseen),
            LaunchReply::Refused(LaunchRefusal::Malformed),
            LaunchReply::Refused(LaunchRefusal::UnknownProgram),
            LaunchReply::Refused(LaunchRefusal::OutsideRoots),
            LaunchReply::Refused(LaunchRefusal::WrittenDirectory),
            LaunchReply::Refused(LaunchRefusal::TooManyOrders),
            LaunchReply::Refused(long),
        ] {
            let encoded = reply.encode();
            assert!(encoded.len() <= LaunchReply::BYTES_MAX);
            assert_eq!(LaunchReply::decode(&encoded), Some(reply));
        }
        for malformed in [&b""[..], b"s", b"s12", b"z1234", b"r", b"r\xff", b"s12345"] {
            assert_eq!(LaunchReply::decode(malformed), None, "{malformed:?}");
        }
        for order in [ChildOrder::More(b"x"), ChildOrder::Signal(15), ChildOrder::Reap] {
            assert_eq!(ChildOrder::decode(&order.encode()), Some(order));
        }
        for malformed in [&b""[..], b"k", b"k123", b"wx", b"q"] {
            assert_eq!(ChildOrder::decode(malformed), None, "{malformed:?}");
        }
    }
}
