//! Resource limits of the process. System call filters (seccomp of containers) may forbid
//! `prlimit64`, by which C libraries read and set them; then they are read from /proc.

use std::{fs, io};

/// A kind of limit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LimitKind {
    OpenFiles,
    CoreSize,
    StackSize,
}

/// A limit in its unit; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

impl LimitKind {
    /// Its number, whose type differs between C libraries.
    fn resource(self) -> u8 {
        let number = match self {
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::CoreSize => libc::RLIMIT_CORE,
            Self::StackSize => libc::RLIMIT_STACK,
        };
        number as u8
    }

    /// Its line in /proc/self/limits.
    fn label(self) -> &'static str {
        match self {
            Self::OpenFiles => "Max open files",
            Self::CoreSize => "Max core file size",
            Self::StackSize => "Max stack size",
        }
    }
}

/// Reads a limit. A limit that cannot be read counts as unlimited.
pub(crate) fn get(kind: LimitKind) -> Limit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the structure, which lives on this stack.
    let result = unsafe { libc::getrlimit(kind.resource().into(), &raw mut limit) };
    if result == 0 {
        let some = |value| (value != libc::RLIM_INFINITY).then_some(value);
        return Limit { soft: some(limit.rlim_cur), hard: some(limit.rlim_max) };
    }
    let text = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    parse(&text, kind).unwrap_or(Limit { soft: None, hard: None })
}

/// Sets a limit.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn set(kind: LimitKind, limit: Limit) -> io::Result<()> {
    let raw = |value: Option<u64>| value.unwrap_or(libc::RLIM_INFINITY);
    let limit = libc::rlimit { rlim_cur: raw(limit.soft), rlim_max: raw(limit.hard) };
    // SAFETY: the kernel reads the structure, which lives on this stack.
    match unsafe { libc::setrlimit(kind.resource().into(), &raw const limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn parse(text: &str, kind: LimitKind) -> Option<Limit> {
    let rest = text.lines().find_map(|line| line.strip_prefix(kind.label()))?;
    let mut values = rest.split_whitespace().map(|word| word.parse().ok());
    Some(Limit { soft: values.next()?, hard: values.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_and_the_system_call_agree() {
        let text = fs::read_to_string("/proc/self/limits").expect("/proc");
        for kind in [LimitKind::OpenFiles, LimitKind::CoreSize, LimitKind::StackSize] {
            assert_eq!(parse(&text, kind), Some(get(kind)), "{kind:?}");
        }
        assert_eq!(parse("Max open files", LimitKind::OpenFiles), None);
        assert_eq!(parse("", LimitKind::OpenFiles), None);
    }
}
