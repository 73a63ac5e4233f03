//! Options of the programs that speak FastCGI.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::argument_error::ArgumentError;

/// Socket of a FastCGI program, and its limits.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ProgramSite {
    /// Address to listen on: ADDR:PORT, :PORT, [V6]:PORT or /unix/path; without it the socket that
    /// spawn-fcgi or another spawner passed as standard input
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Access bits of a unix socket, octal; by default 0660 less the umask
    #[arg(long, value_name = "MODE", value_parser = octal)]
    pub(crate) mode: Option<u32>,
    /// Connections that may wait to be accepted
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub(crate) backlog: u32,
    /// Connections at a time; beyond it an idle one is closed
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub(crate) max_connections: usize,
    /// Seconds that the server may be silent within a request
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) io_timeout: u64,
    /// Seconds that requests under way have after TERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) stop_timeout: u64,
}

/// Limits of a script.
#[cfg(feature = "scripts")]
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct ScriptLimits {
    /// Milliseconds that a script may take
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    pub(crate) max_time: u64,
    /// KB that a script may use
    #[arg(long, value_name = "KB", default_value_t = 8_192)]
    pub(crate) max_memory: usize,
    /// Instructions that a script may execute
    #[arg(long, value_name = "COUNT", default_value_t = 100_000_000)]
    pub(crate) max_instructions: u64,
    /// KB of a request's body
    #[arg(long, value_name = "KB", default_value_t = 8_192)]
    pub(crate) max_body: usize,
    /// Allow os.execute, io.popen and files open for writing
    #[arg(long = "unsafe")]
    pub(crate) allows_unsafe: bool,
}

fn octal(text: &str) -> Result<u32, ArgumentError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or(ArgumentError::Mode)
}

/// Options of the supervisor of FastCGI workers.
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Rolling restart: send HUP or USR1 to the supervisor, or run `lighty spawn \
                        --restart FILE`, which waits until it is done and exits with 1 if it was \
                        given up. Each worker is replaced by a new one that has lived for \
                        --settle; then the old one is asked to end by --stop-signal and finishes \
                        its request. The socket stays open, so no connection is refused.\n\
                        TERM and INT end the workers in the same way, and the supervisor; sent \
                        twice they kill. USR2 writes a line for each worker to standard error."
)]
pub(crate) struct Spawn {
    /// Address to listen on: ADDR:PORT, :PORT, [V6]:PORT or /unix/path
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["restart", "status"])]
    pub(crate) listen: Option<String>,
    /// Access bits of a unix socket, octal; by default 0660 less the umask
    #[arg(long, value_name = "MODE", value_parser = octal)]
    pub(crate) mode: Option<u32>,
    /// Connections that may wait to be accepted
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub(crate) backlog: u32,
    /// Number of workers
    #[arg(long, short = 'n', default_value_t = 1, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) workers: u16,
    /// Working directory of the workers
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// User of the workers and owner of a unix socket
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Group of the workers and of a unix socket
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Signal that asks a worker to finish its request and end; USR1 for applications of libfcgi's
    #[arg(long, value_enum, default_value_t = StopWith::Term)]
    pub(crate) stop_signal: StopWith,
    /// Seconds that a worker then has before it is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) grace: u64,
    /// Milliseconds that a new worker has to live before the old one is stopped
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pub(crate) settle: u64,
    /// Kind of ping: values (FCGI_GET_VALUES), none, or a path to request
    #[arg(long, value_name = "HOW", default_value = "values")]
    pub(crate) ping: String,
    /// Seconds from one ping to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ping_interval: u64,
    /// Seconds that a ping may take
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ping_timeout: u64,
    /// Pings in succession that fail before all workers are replaced
    #[arg(long, value_name = "COUNT", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ping_failures: u32,
    /// File for the supervisor's process id; beside it lies the socket for --restart and --status
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Have the supervisor with this pid file replace its workers, and wait until it has
    #[arg(long, value_name = "PID_FILE", exclusive = true)]
    pub(crate) restart: Option<PathBuf>,
    /// Print a line for each worker of the supervisor with this pid file
    #[arg(long, value_name = "PID_FILE", exclusive = true)]
    pub(crate) status: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present_any = ["restart", "status"])]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Signals on which applications shut down gracefully.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum StopWith {
    Term,
    Usr1,
    Int,
    Quit,
}
