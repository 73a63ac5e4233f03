//! The command line of spawn-fcgi, parsed as `getopt` parses it: `-p8080` and `-p 8080`, `-nS`; the
//! first word that is not an option is the program.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use lexopt::Arg;

/// Output of `-h`.
pub(super) const USAGE: &str = "\
Usage: spawn-fcgi [options] [-- <program> [arguments of the program]]

Makes a listening socket and starts FastCGI programs on it.

Options:
 -f <command>   the program, as a command of /bin/sh (ignored if <program> is given)
 -d <directory> working directory of the program
 -a <address>   IPv4 or IPv6 address to bind to (default: 0.0.0.0)
 -p <port>      TCP port to bind to
 -s <path>      unix socket to bind to
 -M <mode>      access bits of the unix socket, octal (default: read and write for
                user and group, as far as the umask allows)
 -C <children>  PHP only: sets PHP_FCGI_CHILDREN (default: not set)
 -F <children>  how many of the program to start (default: 1)
 -b <backlog>   connections that may wait on the socket (default: 1024)
 -P <path>      file for the process ids of the programs (ignored with -n)
 -n             become the program instead of starting it (for supervisors)
 -v             print the version
 -?, -h         print this help
For root only:
 -c <directory> root directory of the program
 -S             make the socket before the change of root, not in it
 -u <user>      user of the program
 -g <group>     group of the program (default: that of -u)
 -U <user>      owner of the unix socket (default: -u)
 -G <group>     group of the unix socket (default: -g)
";

/// Output of `-v`.
pub(super) const VERSION: &str = concat!(
    "spawn-fcgi of lighty/",
    env!("CARGO_PKG_VERSION"),
    " (as 1.6.4) (ipv6) - spawns FastCGI processes\n"
);

/// Maximum number of programs: each is a process.
const FORKS_MAX: u32 = 4_096;

/// unix(7): 108 bytes with the terminating zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// Action requested by the command line.
#[derive(Debug)]
pub(super) enum SpawnCommand {
    Spawn(Box<Options>),
    Help,
    Version,
}

/// Error in the command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misuse {
    /// There are no arguments.
    #[error("no options")]
    Empty,
    /// Unknown option.
    #[error("invalid option -- '{0}'")]
    Unknown(char),
    /// An option without its value.
    #[error("option requires an argument -- '{0}'")]
    Valueless(char),
    /// An invalid value or combination.
    #[error("{0}")]
    Wrong(Wrong),
}

impl Misuse {
    /// True if the options themselves cannot be parsed.
    pub(super) fn is_syntax(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Valueless(_))
    }
}

/// An invalid value or combination.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("no FastCGI application given")]
    NoProgram,
    #[error("no socket given (use either -p or -s)")]
    NoSocket,
    #[error("either a Unix domain socket or a TCP-port, but not both")]
    TwoSockets,
    #[error("path of the Unix domain socket is too long")]
    PathTooLong,
    #[error("'{0}' is not a valid IP address")]
    NotAnAddress(String),
    #[error("invalid {what}: {text}")]
    Number { what: &'static str, text: String },
    /// A number above [`FORKS_MAX`].
    #[error("invalid children count: {0} (limit: {FORKS_MAX})")]
    TooMany(u32),
    #[error("invalid mode: {0} (octal, such as 0660)")]
    Mode(String),
}

/// The parsed options.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) program: Started,
    pub(super) address: Address,
    pub(super) directory: Option<PathBuf>,
    pub(super) mode: Option<u32>,
    pub(super) php_children: Option<u32>,
    pub(super) forks: u32,
    pub(super) backlog: i32,
    pub(super) pid_file: Option<PathBuf>,
    pub(super) no_fork: bool,
    pub(super) chroot: Option<PathBuf>,
    pub(super) socket_before_chroot: bool,
    pub(super) user: Option<String>,
    pub(super) group: Option<String>,
    pub(super) socket_user: Option<String>,
    pub(super) socket_group: Option<String>,
}

/// The program to start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// A file with its arguments.
    Arguments(OsString, Vec<OsString>),
    /// A command of the shell.
    Shell(OsString),
}

/// Address of the socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    Inet(SocketAddr),
    Unix(PathBuf),
}

/// Options with a value; [`PLAIN`] has the options without one.
const VALUED: &str = "cdfgapbusCFPUGM";
const PLAIN: &str = "?hnvS";

/// Option letters with their values, and the operands after them.
#[derive(Default)]
struct Typed {
    options: Vec<(char, OsString)>,
    operands: Vec<OsString>,
}

impl Typed {
    /// The value of an option. The last one counts.
    fn value(&self, letter: char) -> Option<&OsStr> {
        let same = self.options.iter().rev().find(|(known, _)| *known == letter);
        same.map(|(_, value)| value.as_os_str())
    }

    fn has(&self, letter: char) -> bool {
        self.value(letter).is_some()
    }

    fn text(&self, letter: char) -> Option<String> {
        self.value(letter).map(|value| value.to_string_lossy().into_owned())
    }

    fn path(&self, letter: char) -> Option<PathBuf> {
        self.value(letter).map(PathBuf::from)
    }
}

/// Parses the arguments, without the program's own name.
pub(super) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<SpawnCommand, Misuse> {
    let typed = split(arguments)?;
    if typed.options.is_empty() && typed.operands.is_empty() {
        return Err(Misuse::Empty);
    }
    // The first of them decides, as in a parser that executes options immediately.
    let first = typed.options.iter().find(|(letter, _)| "?hv".contains(*letter));
    match first {
        Some(('v', _)) => return Ok(SpawnCommand::Version),
        Some(_) => return Ok(SpawnCommand::Help),
        None => {}
    }
    options(typed).map(|options| SpawnCommand::Spawn(Box::new(options))).map_err(Misuse::Wrong)
}

fn split(arguments: impl IntoIterator<Item = OsString>) -> Result<Typed, Misuse> {
    let mut typed = Typed::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    // As in getopt, the value of `-s=path` is `=path`.
    parser.set_short_equals(false);
    loop {
        let letter = match parser.next() {
            Ok(Some(Arg::Short(letter))) => letter,
            Ok(Some(Arg::Long("help"))) => 'h',
            Ok(Some(Arg::Long(_))) | Err(_) => return Err(Misuse::Unknown('-')),
            Ok(Some(Arg::Value(word))) => {
                typed.operands.push(word);
                typed.operands.extend(parser.raw_args().into_iter().flatten());
                return Ok(typed);
            }
            Ok(None) => return Ok(typed),
        };
        let value = if PLAIN.contains(letter) {
            OsString::new()
        } else if VALUED.contains(letter) {
            parser.value().map_err(|_| Misuse::Valueless(letter))?
        } else {
            return Err(Misuse::Unknown(letter));
        };
        typed.options.push((letter, value));
    }
}

fn options(mut typed: Typed) -> Result<Options, Wrong> {
    let port = typed.value('p').map(port).transpose()?.filter(|port| *port != 0);
    let program = program(&mut typed)?;
    let address = address(&typed, port)?;
    let forks = number(&typed, 'F', "children count")?.unwrap_or(1);
    if forks > FORKS_MAX {
        return Err(Wrong::TooMany(forks));
    }
    // A negative number leaves the variable unchanged, as in spawn-fcgi.
    let php_children = match typed.text('C') {
        Some(text) if text.starts_with('-') => None,
        _ => number(&typed, 'C', "children count")?,
    };
    let backlog = number(&typed, 'b', "backlog")?.unwrap_or(1024);
    let beyond = |_| Wrong::Number { what: "backlog", text: backlog.to_string() };
    Ok(Options {
        program,
        address,
        directory: typed.path('d'),
        mode: typed.value('M').map(mode).transpose()?,
        php_children,
        forks,
        backlog: i32::try_from(backlog).map_err(beyond)?,
        pid_file: typed.path('P'),
        no_fork: typed.has('n'),
        chroot: typed.path('c').filter(|path| !path.as_os_str().is_empty()),
        socket_before_chroot: typed.has('S'),
        user: typed.text('u'),
        group: typed.text('g'),
        socket_user: typed.text('U'),
        socket_group: typed.text('G'),
    })
}

/// The program to start. Operands take precedence over `-f`.
fn program(typed: &mut Typed) -> Result<Started, Wrong> {
    if !typed.operands.is_empty() {
        let path = typed.operands.remove(0);
        return Ok(Started::Arguments(path, std::mem::take(&mut typed.operands)));
    }
    match typed.value('f') {
        Some(command) if !command.is_empty() => Ok(Started::Shell(command.to_owned())),
        _ => Err(Wrong::NoProgram),
    }
}

fn address(typed: &Typed, port: Option<u16>) -> Result<Address, Wrong> {
    let path = typed.value('s').filter(|path| !path.is_empty());
    match (path, port) {
        (None, None) => Err(Wrong::NoSocket),
        (Some(_), Some(_)) => Err(Wrong::TwoSockets),
        (Some(path), None) if path.len() > UNIX_PATH_BYTES_MAX => Err(Wrong::PathTooLong),
        (Some(path), None) => Ok(Address::Unix(PathBuf::from(path))),
        (None, Some(port)) => {
            let ip = match typed.text('a') {
                None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                Some(text) => text.parse().map_err(|_| Wrong::NotAnAddress(text))?,
            };
            Ok(Address::Inet(SocketAddr::new(ip, port)))
        }
    }
}

fn port(text: &OsStr) -> Result<u16, Wrong> {
    let text = text.to_string_lossy();
    text.trim().parse().map_err(|_| Wrong::Number { what: "port", text: text.into_owned() })
}

fn number(typed: &Typed, letter: char, what: &'static str) -> Result<Option<u32>, Wrong> {
    let Some(text) = typed.text(letter) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| Wrong::Number { what, text })
}

fn mode(text: &OsStr) -> Result<u32, Wrong> {
    let text = text.to_string_lossy();
    let mode = u32::from_str_radix(text.trim(), 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Wrong::Mode(text.into_owned()))
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
