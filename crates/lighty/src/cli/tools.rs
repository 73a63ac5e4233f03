//! Subcommands that are programs beside the server.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::ctl::RunningServer;
#[cfg(feature = "scripts")]
use super::fastcgi::ScriptLimits;
use super::fastcgi::{ProgramSite, Spawn};

/// A program beside the server.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Tool {
    /// Start FastCGI programs on a socket, with the command line of spawn-fcgi (see --help)
    #[command(disable_help_flag = true)]
    SpawnFcgi {
        /// Options of spawn-fcgi and the program, as in `-s /run/app.sock -- /usr/bin/php-cgi`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Keep FastCGI workers running on a socket: restart, ping, replace them without losing a
    /// request
    Spawn(Spawn),
    /// FastCGI program that opens files and has the server send them (X-LIGHTTPD-send-file)
    StatAccel {
        #[command(flatten)]
        site: ProgramSite,
        /// Threads that open files [default: $PHP_FCGI_CHILDREN, else 20]
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=4096))]
        threads: Option<u16>,
    },
    /// FastCGI program that runs Lua scripts (SCRIPT_FILENAME) as mod_magnet does
    #[cfg(feature = "scripts")]
    MagnetFcgi {
        #[command(flatten)]
        site: ProgramSite,
        #[command(flatten)]
        limits: ScriptLimits,
    },
    /// Show where the time of requests went
    Timing {
        /// Action
        #[command(subcommand)]
        what: Timing,
    },
    /// Generate load and report latency
    Load(LoadArguments),
    /// Show a server's activity, from its status page or control socket, until q is pressed
    Top(Top),
    /// Write generated documents: man page, shell completions, manual
    Generate {
        /// Document to write
        #[command(subcommand)]
        what: Document,
    },
}

/// Subcommands of `lighty timing`.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Timing {
    /// Draw a log: the picture of lighttpd 1.5, and one of all stages
    Plot {
        /// Error log with debug.log-timing, or access log in JSON; -: standard input
        log: PathBuf,
        /// File for the picture, as SVG [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// File for a gnuplot script with its data
        #[arg(long, value_name = "FILE")]
        gnuplot: Option<PathBuf>,
    },
}

/// Options of `lighty load`.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LoadArguments {
    #[command(subcommand)]
    pub(crate) command: Option<LoadCommand>,
    /// URL to request; several of one server are chosen from at random
    #[arg(required_unless_present = "urls_from")]
    pub(crate) urls: Vec<String>,
    /// File with URLs, one on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) urls_from: Option<PathBuf>,
    /// Connections at a time
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Threads that share them
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Requests a second, each at its time; otherwise a connection sends the next after a response
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) rate: Option<u64>,
    /// End after so many requests, not counting the warm-up
    #[arg(short = 'n', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// End after so many seconds, not counting the warm-up [default: 10, unless there is a number
    /// of requests]
    #[arg(short = 'd', long, value_name = "SECONDS",
          value_parser = |text: &str| seconds(text, SHORTEST_S, 864_000.0))]
    pub(crate) duration: Option<Duration>,
    /// Seconds before anything is counted
    #[arg(long, value_name = "SECONDS", default_value = "0",
          value_parser = |text: &str| seconds(text, 0.0, 86_400.0))]
    pub(crate) warm_up: Duration,
    /// Seconds that a response may take
    #[arg(long, value_name = "SECONDS", default_value = "60",
          value_parser = |text: &str| seconds(text, SHORTEST_S, 3600.0))]
    pub(crate) timeout: Duration,
    /// Speak HTTP/2: by ALPN over TLS, else with prior knowledge
    #[arg(long)]
    pub(crate) http2: bool,
    /// Requests at a time on each connection of HTTP/2
    #[arg(short = 'm', long, value_name = "COUNT", default_value_t = 1, requires = "http2",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) streams: u32,
    /// Unix socket that the server is reached by (@name: an abstract one)
    #[arg(long, value_name = "PATH")]
    pub(crate) unix_socket: Option<PathBuf>,
    /// Make a connection for each request
    #[arg(long)]
    pub(crate) no_keep_alive: bool,
    /// The method
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    pub(crate) method: String,
    /// A field, as "Name: value"
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub(crate) fields: Vec<String>,
    /// File with the body
    #[arg(long, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// The status that is expected [default: 200 to 399]
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..=999))]
    pub(crate) expect_status: Option<u16>,
    /// The length of bodies that is expected
    #[arg(long, value_name = "BYTES")]
    pub(crate) expect_length: Option<u64>,
    /// Expect bodies of one length of each URL
    #[arg(long)]
    pub(crate) same_length: bool,
    /// Expect the same content of each URL
    #[arg(long)]
    pub(crate) checksum: bool,
    /// TLS trust options
    #[command(flatten)]
    pub(crate) trust: Trust,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print results in http_load's format
    #[arg(long, conflicts_with = "json")]
    pub(crate) http_load: bool,
    /// Write a picture of the run
    #[arg(long, value_name = "FILE.SVG")]
    pub(crate) plot: Option<PathBuf>,
    /// Print progress even if standard error is not a terminal
    #[arg(long)]
    pub(crate) progress: bool,
}

/// Trust options of a TLS client.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Trust {
    /// File of authorities that are trusted instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<String>,
    /// Do not verify the server's certificate
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
}

/// Subcommands of `lighty load`.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum LoadCommand {
    /// Report whether two runs differ by more than noise
    Compare {
        /// Output of `--json` of one run
        one: PathBuf,
        /// Output of `--json` of the other run
        other: PathBuf,
    },
}

/// Options of `lighty top`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Top {
    /// URL of its status page (status.status-url)
    #[arg(default_value = "http://127.0.0.1/server-status")]
    pub(crate) url: String,
    /// The server on this machine, in place of a URL
    #[command(flatten)]
    pub(crate) server: RunningServer,
    /// The table to begin with
    #[arg(long, value_enum, default_value_t = TopView::Routes)]
    pub(crate) view: TopView,
    /// Sort by this column
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort: Option<String>,
    /// Show only rows that contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub(crate) interval: u16,
    /// TLS trust options
    #[command(flatten)]
    pub(crate) trust: Trust,
    /// Print the table once and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the status as JSON and exit
    #[arg(long)]
    pub(crate) json: bool,
}

/// A table of `lighty top`.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum TopView {
    Routes,
    Stages,
    Backends,
    Workers,
    Connections,
    Hosts,
}

/// Documents made from the command line's and the directives' own descriptions.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Document {
    /// A manual page, to standard output
    Man {
        /// Page
        #[arg(value_enum, default_value_t = ManPage::Program)]
        page: ManPage,
    },
    /// A completion script, to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The generated pages of the manual, beneath a directory
    Manual {
        /// The directory: docs/manual in the source tree
        dir: PathBuf,
    },
}

/// A manual page.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ManPage {
    /// lighty(8), the command line
    #[value(name = "lighty")]
    Program,
    /// lighty.conf(5), the configuration
    #[value(name = "lighty.conf")]
    Configuration,
}

/// The shortest accepted run, or response time.
const SHORTEST_S: f64 = 0.001;

/// Parses seconds, with an optional fraction.
fn seconds(text: &str, least: f64, most: f64) -> Result<Duration, SecondsError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let given = text.parse::<f64>().ok().filter(|given| is_plain && (least..=most).contains(given));
    let given = given.and_then(|given| Duration::try_from_secs_f64(given).ok());
    given.ok_or(SecondsError { least, most })
}

/// The error of a text that is not a number of seconds in this range.
#[derive(Debug, thiserror::Error)]
#[error("expected {least} to {most} seconds, such as 0.5")]
struct SecondsError {
    least: f64,
    most: f64,
}
