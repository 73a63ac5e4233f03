//! Programs of the configuration, which the launcher may start. An order names one by its
//! place in the list, and has the parts that the configuration leaves open.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::addresses::PermittedPorts;
use super::messages::{LaunchFault, LaunchRefusal, ProgramOrder};
use super::scripts::ScriptPlaces;
use super::variables::{self, ConfiguredVariables};
use crate::process::program::Program;

/// Verbs of the program that sets records in DNS.
const HOOK_VERBS: [&str; 2] = ["present", "cleanup"];

/// Maximum bytes of an argument of that program; names of DNS have up to 253.
const HOOK_ARGUMENT_BYTES_MAX: usize = 512;

/// A program of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredProgram {
    /// Path, arguments and environment are those of the configuration (`bin-path`).
    Fixed {
        /// The file to execute.
        path: PathBuf,
        /// Its arguments.
        args: Vec<OsString>,
        /// Its complete environment.
        environment: Vec<(OsString, OsString)>,
    },
    /// A shell command that reads a log.
    LogCommand(String),
    /// A program that sets records in DNS, with the launcher's environment. Its arguments are a
    /// verb, a name and a value.
    DnsHook(PathBuf),
    /// Runs served files.
    Script {
        /// The end of their paths.
        ending: Vec<u8>,
        /// The program that gets the path as its argument; empty: the file is the program.
        interpreter: PathBuf,
    },
}

impl ConfiguredProgram {
    /// A program without open parts.
    pub fn fixed(program: Program) -> Self {
        let Program { path, args, environment, .. } = program;
        Self::Fixed { path, args, environment }
    }

    /// The open parts of a program that is started, if it is this one.
    fn open_parts(&self, program: &Program) -> Option<OpenParts> {
        match self {
            Self::Fixed { path, args, environment } => {
                let is_it = program.path == *path
                    && program.args == *args
                    && program.environment == *environment;
                is_it.then(OpenParts::default)
            }
            Self::LogCommand(_) => None,
            Self::DnsHook(path) => (program.path == *path && program.args.len() == 3)
                .then(|| (program.args.clone(), Vec::new())),
            Self::Script { ending, interpreter } => {
                let (script, is_it) = match program.args.as_slice() {
                    [] => (program.path.as_os_str(), interpreter.as_os_str().is_empty()),
                    [script] => (script.as_os_str(), program.path == *interpreter),
                    _ => return None,
                };
                (is_it && script.as_bytes().ends_with(ending))
                    .then(|| (vec![script.to_owned()], program.environment.clone()))
            }
        }
    }
}

/// Open arguments and variables of a program.
type OpenParts = (Vec<OsString>, Vec<(OsString, OsString)>);

impl fmt::Display for ConfiguredProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed { path, .. } | Self::DnsHook(path) => write!(f, "{}", path.display()),
            Self::LogCommand(command) => f.write_str(command),
            Self::Script { ending, interpreter } => {
                let ending = String::from_utf8_lossy(ending);
                match interpreter.as_os_str().is_empty() {
                    true => write!(f, "files *{ending}"),
                    false => write!(f, "{} for *{ending}", interpreter.display()),
                }
            }
        }
    }
}

/// Reads the configuration again, and plans its programs and ports.
pub type PlanReader = Box<dyn Fn() -> io::Result<LaunchPlan> + Send>;

/// Programs of the configuration, and limits of their open parts.
#[derive(Clone, Debug, Default)]
pub struct LaunchPlan {
    /// The programs.
    pub programs: Vec<ConfiguredProgram>,
    /// Places of programs that are served files.
    pub places: ScriptPlaces,
    /// Variables that the configuration sets for programs.
    pub variables: ConfiguredVariables,
    /// Ports of the configuration.
    pub ports: PermittedPorts,
}

impl LaunchPlan {
    /// The order by which the launcher starts a program; `None` if the configuration has none like
    /// it.
    pub(super) fn order_of(&self, program: &Program) -> Option<ProgramOrder> {
        let mut numbered = (0..).zip(&self.programs);
        numbered.find_map(|(index, configured)| {
            let (args, variables) = configured.open_parts(program)?;
            Some(ProgramOrder { index, args, variables })
        })
    }

    /// The order by which the launcher starts the command of a log.
    pub(super) fn order_of_log(&self, command: &str) -> Option<ProgramOrder> {
        let is_it = |known: &ConfiguredProgram| matches!(known, ConfiguredProgram::LogCommand(known) if known == command);
        let index = u32::try_from(self.programs.iter().position(is_it)?).ok()?;
        Some(ProgramOrder { index, ..ProgramOrder::default() })
    }

    /// The program of an order, in the launcher's process.
    ///
    /// # Errors
    /// A refusal, if the order asks for more than the configuration permits; the system's error
    /// about a script.
    pub(super) fn program_of(&self, order: ProgramOrder) -> Result<PermittedProgram, LaunchFault> {
        let ProgramOrder { index, args, variables } = order;
        let configured = self.programs.get(index as usize).ok_or(LaunchRefusal::UnknownProgram)?;
        let is_closed = args.is_empty() && variables.is_empty();
        match configured {
            ConfiguredProgram::Fixed { path, args, environment } if is_closed => {
                let mut program = Program::new(path);
                (program.args, program.environment) = (args.clone(), environment.clone());
                Ok(PermittedProgram::Bound(program))
            }
            ConfiguredProgram::LogCommand(command) if is_closed => {
                Ok(PermittedProgram::LogCommand(command.clone()))
            }
            ConfiguredProgram::DnsHook(path) if variables.is_empty() && are_of_hook(&args) => {
                let mut program = Program::new(path);
                program.args = args;
                program.copy_whole_environment();
                Ok(PermittedProgram::Bound(program))
            }
            ConfiguredProgram::Script { ending, interpreter } => match <[_; 1]>::try_from(args) {
                Ok([script]) if script.as_bytes().ends_with(ending) => {
                    self.script(PathBuf::from(script), interpreter, variables)
                }
                _ => Err(LaunchRefusal::UnknownProgram.into()),
            },
            _ => Err(LaunchRefusal::UnknownProgram.into()),
        }
    }

    fn script(
        &self,
        script: PathBuf,
        interpreter: &Path,
        variables: Vec<(OsString, OsString)>,
    ) -> Result<PermittedProgram, LaunchFault> {
        self.places.check(&script)?;
        variables::check(&variables, &script, &self.variables)?;
        let bytes = script.as_os_str().as_bytes();
        let name_at = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let directory = OsString::from_vec(bytes[..name_at].to_vec());
        let mut program = match interpreter.as_os_str().is_empty() {
            true => Program::new(&script),
            false => Program { args: vec![script.into()], ..Program::new(interpreter) },
        };
        program.working_dir = Some(directory.into());
        program.environment = variables;
        Ok(PermittedProgram::Bound(program))
    }
}

/// True for arguments of the program that sets records in DNS: a verb, a name and a value of
/// base64url (RFC 8555 section 8.4).
fn are_of_hook(args: &[OsString]) -> bool {
    let [verb, name, value] = args else { return false };
    let is_plain = |text: &OsString, others: &[u8]| {
        let bytes = text.as_bytes();
        let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || others.contains(byte);
        !bytes.is_empty() && bytes.len() <= HOOK_ARGUMENT_BYTES_MAX && bytes.iter().all(is_known)
    };
    HOOK_VERBS.iter().any(|known| verb == known)
        && is_plain(name, b"-_.*")
        && !name.as_bytes().starts_with(b"-")
        && is_plain(value, b"-_=")
}

/// A program that the launcher starts.
#[derive(Debug)]
pub(super) enum PermittedProgram {
    /// It leads a process group, and ends with the server.
    Bound(Program),
    /// A shell command that ends when it has read the log.
    LogCommand(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> LaunchPlan {
        let mut program = Program::new("/usr/bin/php-cgi");
        program.args = vec!["-b".into()];
        program.environment = vec![("A".into(), "1".into())];
        let script = |ending: &str, interpreter: &str| ConfiguredProgram::Script {
            ending: ending.as_bytes().to_vec(),
            interpreter: interpreter.into(),
        };
        LaunchPlan {
            programs: vec![
                ConfiguredProgram::fixed(program),
                ConfiguredProgram::LogCommand("cat > log".to_owned()),
                ConfiguredProgram::DnsHook("/bin/hook".into()),
                script(".pl", "/usr/bin/perl"),
                script(".cgi", ""),
            ],
            ..LaunchPlan::default()
        }
    }

    fn with_args(path: &str, args: &[&str]) -> Program {
        Program { args: args.iter().map(OsString::from).collect(), ..Program::new(path) }
    }

    #[test]
    fn programs_of_the_configuration_have_orders() {
        let plan = plan();
        let index = |program: &Program| plan.order_of(program).map(|order| order.index);
        let mut fixed = with_args("/usr/bin/php-cgi", &["-b"]);
        assert_eq!(index(&fixed), None, "another environment");
        fixed.environment = vec![("A".into(), "1".into())];
        assert_eq!(index(&fixed), Some(0));
        assert_eq!(plan.order_of_log("cat > log").map(|order| order.index), Some(1));
        assert_eq!(plan.order_of_log("cat > other"), None);
        assert_eq!(index(&with_args("/bin/hook", &["present", "n", "v"])), Some(2));
        assert_eq!(index(&with_args("/usr/bin/perl", &["/srv/www/a.pl"])), Some(3));
        assert_eq!(index(&with_args("/srv/www/a.cgi", &[])), Some(4));
        for program in [
            with_args("/usr/bin/perl", &["/srv/www/a.cgi"]),
            with_args("/usr/bin/perl", &["-e", "/srv/www/a.pl"]),
            with_args("/srv/www/a.pl", &[]),
            with_args("/bin/sh", &[]),
        ] {
            assert_eq!(index(&program), None, "{program:?}");
        }
    }

    #[test]
    fn orders_beyond_the_configuration_are_refused() {
        let plan = plan();
        let refused = |index: u32, args: &[&str], variables: &[(&str, &str)]| {
            let pair = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
            let args = args.iter().map(OsString::from).collect();
            let variables = variables.iter().map(pair).collect();
            match plan.program_of(ProgramOrder { index, args, variables }) {
                Ok(_) => None,
                Err(LaunchFault::Refused(refusal)) => Some(refusal),
                Err(LaunchFault::Failed(error)) => panic!("{error}"),
            }
        };
        for index in 0..2 {
            assert_eq!(refused(index, &[], &[]), None);
        }
        assert_eq!(refused(2, &["present", "_acme-challenge.a.test", "ab-_0="], &[]), None);
        for (index, args, variables) in [
            (0, &["-n"][..], &[][..]),
            (0, &[], &[("A", "2")]),
            (1, &["x"], &[]),
            (2, &["remove", "n", "v"], &[]),
            (2, &["present", "-n", "v"], &[]),
            (2, &["present", "n;x", "v"], &[]),
            (2, &["present", "n", "v"], &[("LD_PRELOAD", "/x")]),
            (2, &["present", "n"], &[]),
            (3, &["-e", "/srv/www/a.pl"], &[]),
            (3, &["/srv/www/a.txt"], &[]),
            (3, &[], &[]),
            (5, &[], &[]),
            (u32::MAX, &[], &[]),
        ] {
            let found = refused(index, args, variables);
            assert_eq!(found, Some(LaunchRefusal::UnknownProgram), "{index} {args:?}");
        }
        let long = "n".repeat(HOOK_ARGUMENT_BYTES_MAX);
        assert_eq!(refused(2, &["present", &long, "v"], &[]), None);
        assert!(refused(2, &["present", &format!("{long}n"), "v"], &[]).is_some());
    }
}
