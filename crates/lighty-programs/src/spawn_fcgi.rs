//! spawn-fcgi: opens a listening socket, drops privileges, starts programs on the socket, and
//! exits.
//!
//! Command line, output, exit codes and pid file are those of spawn-fcgi 1.6.4, so that existing
//! scripts work. Differences: invalid numbers are rejected, a regular file at the socket's path is
//! not removed, a numeric user id without an account also drops root's group, and every program
//! that ends at once is reported.
//!
//! `options` parses the command line, this file executes it, `refusal` describes errors.

mod options;
mod refusal;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use lighty_io::listen::{BindSpec, BoundSocket, ProgramSocket};
use lighty_io::os_text;
use lighty_io::process::privileges::{self, Identity};
use lighty_io::process::spawn::Exit;
use lighty_io::process::spawn::detached::{self, Detached};

use options::{Address, Options, SpawnCommand, Started};
use refusal::Refusal;

/// Time within which a program may fail; afterwards it counts as started.
const PROBATION: Duration = Duration::from_millis(100);

/// Exit code for our own errors.
const FAILED: u8 = 255;

/// Runs the program with its arguments (without its own name). Returns the exit code. Call before
/// there are threads.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let options = match options::read(arguments) {
        Ok(SpawnCommand::Spawn(options)) => options,
        Ok(SpawnCommand::Help) => return print(options::USAGE, 0),
        Ok(SpawnCommand::Version) => return print(options::VERSION, 0),
        Err(options::Misuse::Empty) => return print(options::USAGE, FAILED),
        Err(misuse) => {
            crate::print_error(NAME, &misuse.to_string());
            return if misuse.is_syntax() { print(options::USAGE, 0) } else { FAILED };
        }
    };
    spawn(&options).unwrap_or_else(|refusal| {
        crate::print_error(NAME, &refusal.to_string());
        FAILED
    })
}

const NAME: &str = "spawn-fcgi";

fn print(text: &str, code: u8) -> u8 {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => FAILED,
    }
}

fn spawn(options: &Options) -> Result<u8, Refusal> {
    let mut pid_file = match &options.pid_file {
        Some(path) if !options.no_fork => Some(open_pid_file(path)?),
        _ => None,
    };
    let socket = take_rights(options)?;
    if let Some(directory) = &options.directory {
        std::env::set_current_dir(directory)
            .map_err(|error| Refusal::Directory(directory.clone(), error))?;
    }
    let program = program(options, &socket)?;
    // From now on only the programs accept connections on it.
    drop(socket);
    if options.no_fork {
        // `-F 0` does not replace this process either.
        if options.forks == 0 {
            return Ok(0);
        }
        let error = program.replace_us();
        crate::print_error(NAME, &format!("exec failed: {}", os_text(&error)));
        return Ok(code_of(&error));
    }
    start(&program, options.forks, pid_file.as_mut())
}

/// Opens the socket and changes root directory and identity, in the order required by each step.
fn take_rights(options: &Options) -> Result<BoundSocket, Refusal> {
    if !privileges::is_root() {
        return listen(options, None);
    }
    let identity = identity(options.user.as_deref(), options.group.as_deref())?;
    let owner = identity_of_socket(options, &identity)?;
    let before = options.socket_before_chroot.then(|| listen(options, Some(&owner))).transpose()?;
    // While /etc/group is readable.
    privileges::assume_group(&identity).map_err(Refusal::Identity)?;
    if let Some(root) = &options.chroot {
        privileges::enter_chroot(root).map_err(|error| {
            let message = error.to_string();
            let message = message.strip_prefix("chroot: ").unwrap_or(&message);
            let error = io::Error::other(message.to_owned());
            Refusal::Chroot(root.clone(), error)
        })?;
    }
    let socket = match before {
        Some(socket) => socket,
        None => listen(options, Some(&owner))?,
    };
    privileges::assume_user(&identity).map_err(Refusal::Identity)?;
    Ok(socket)
}

/// Looks up the identity. Never root's: an empty or missing name must not start a program with all
/// privileges.
fn identity(user: Option<&str>, group: Option<&str>) -> Result<Identity, Refusal> {
    let known = |user, group| match Identity::lookup(user, group) {
        // Zero is not a user's name, and was probably meant as no user.
        Ok(_) if [user, group].into_iter().flatten().any(is_zero) => None,
        Ok(identity) => Some(identity),
        Err(_) => None,
    };
    let unknown_user = || Refusal::User(user.unwrap_or_default().to_owned());
    let found = known(user, None).ok_or_else(unknown_user)?;
    if found.user.as_ref().is_some_and(|user| user.uid == 0) {
        return Err(Refusal::RootUser);
    }
    let unknown_group = || Refusal::Group(group.unwrap_or_default().to_owned());
    let found = known(user, group).ok_or_else(unknown_group)?;
    if found.gid == Some(0) { Err(Refusal::RootGroup) } else { Ok(found) }
}

fn is_zero(name: &str) -> bool {
    name.parse::<u32>() == Ok(0)
}

/// The socket's owner: the user and group of `-U` and `-G`, else the identity of the programs.
fn identity_of_socket(options: &Options, programs: &Identity) -> Result<Identity, Refusal> {
    let named = identity(options.socket_user.as_deref(), options.socket_group.as_deref())?;
    Ok(Identity {
        user: named.user.or_else(|| programs.user.clone()),
        gid: named.gid.or(programs.gid),
    })
}

fn listen(options: &Options, owner: Option<&Identity>) -> Result<BoundSocket, Refusal> {
    let address = match &options.address {
        Address::Inet(address) => BindSpec::Inet(*address),
        Address::Unix(path) => BindSpec::Unix(path.clone()),
    };
    let socket = ProgramSocket {
        address,
        backlog: options.backlog,
        mode: options.mode,
        uid: owner.and_then(|owner| owner.user.as_ref()).map(|user| user.uid),
        gid: owner.and_then(|owner| owner.gid),
    };
    socket.listen().map_err(Refusal::Listen)
}

fn program(options: &Options, socket: &BoundSocket) -> Result<Detached, Refusal> {
    let (path, args) = match &options.program {
        Started::Arguments(path, args) => (path.clone(), args.clone()),
        Started::Shell(line) => {
            let mut command = OsString::from("exec ");
            command.push(line);
            ("/bin/sh".into(), vec!["-c".into(), command])
        }
    };
    let children = options
        .php_children
        .map(|count| (OsString::from("PHP_FCGI_CHILDREN"), OsString::from(count.to_string())));
    let socket = socket.duplicate().map_err(Refusal::Duplicate)?;
    Ok(Detached { path, args, environment: children.into_iter().collect(), socket })
}

/// Starts the programs and reports the outcome of each. The exit code is that of the last one that
/// ended at once.
fn start(
    program: &Detached,
    count: u32,
    mut pid_file: Option<&mut std::fs::File>,
) -> Result<u8, Refusal> {
    let nowhere = detached::nowhere();
    let started: Vec<io::Result<i32>> = (0..count)
        .map(|_| {
            let started = program.start(nowhere.as_ref().ok());
            if let Err(error) = &nowhere {
                report_output(error, started.as_ref().err());
            }
            started
        })
        .collect();
    if count > 0 {
        std::thread::sleep(PROBATION);
    }
    let (mut code, mut running) = (0, Vec::new());
    for one in started {
        match outcome(one) {
            Outcome::Runs(pid) => {
                running.push(pid.to_string());
                let line = format!("{NAME}: child spawned successfully: PID: {pid}\n");
                let _ = io::stdout().lock().write_all(line.as_bytes());
            }
            Outcome::Ended(message, its) => {
                crate::print_error(NAME, &message);
                code = its;
            }
        }
    }
    if let Some(file) = &mut pid_file {
        file.write_all(running.join("\n").as_bytes()).map_err(Refusal::WritePidFile)?;
    }
    Ok(code)
}

/// Reports that `/dev/null` is missing in the root directory: the program then keeps our standard
/// error, so an error of `exec` is shown.
fn report_output(error: &io::Error, exec: Option<&io::Error>) {
    let text = "couldn't open and redirect stdout/stderr to '/dev/null'";
    crate::print_error(NAME, &format!("{text}: {}", os_text(error)));
    if let Some(error) = exec {
        crate::print_error(NAME, &format!("exec failed: {}", os_text(error)));
    }
}

enum Outcome {
    /// The program is running with this process id.
    Runs(i32),
    /// The program has ended: a description, and our exit code.
    Ended(String, u8),
}

fn outcome(started: io::Result<i32>) -> Outcome {
    let pid = match started {
        Ok(pid) => pid,
        Err(error) => {
            // The process that failed to execute the program exits with the error number.
            let code = code_of(&error);
            return Outcome::Ended(format!("child exited with: {code}"), code);
        }
    };
    match detached::ended(pid) {
        Ok(None) | Err(_) => Outcome::Runs(pid),
        Ok(Some(Exit::Code(code))) => {
            let low = u8::try_from(code & 0xff).unwrap_or(FAILED);
            Outcome::Ended(format!("child exited with: {code}"), low)
        }
        Ok(Some(Exit::Signal(number))) => Outcome::Ended(format!("child signaled: {number}"), 1),
        Ok(Some(Exit::Unseen)) => Outcome::Ended("child died somehow".to_owned(), 1),
    }
}

fn code_of(error: &io::Error) -> u8 {
    error.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}

/// Opens the pid file before privileges are dropped.
fn open_pid_file(path: &Path) -> Result<std::fs::File, Refusal> {
    let is_other = std::fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    if is_other {
        return Err(Refusal::PidFileKind(path.into()));
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path);
    opened.map_err(|error| Refusal::OpenPidFile(path.into(), error))
}
