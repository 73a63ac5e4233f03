//! What can be typed: lighttpd's short flags, and subcommands.

mod fastcgi;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use lighty_server::certificates::Reason;

use crate::{address, trial};

pub(crate) use fastcgi::{ProgramSite, ScriptLimits, Spawn, StopWith};

/// The lighty web server.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "lighty",
    disable_version_flag = true,
    after_help = "Exit status: 0 success; 1 the configuration has errors, the server cannot start, \
                  or nobody can connect to it any more; 2 the command line is wrong.\n\
                  Signals: INT finishes the responses under way and stops, a second INT or TERM \
                  stops at once, HUP opens the log files again, USR1 reads the configuration again \
                  (lighty reload does, and tells how it went), USR2 writes the counters to the \
                  error log."
)]
pub(crate) struct Cli {
    /// Configuration file; `-` reads standard input
    #[arg(short = 'f', value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Stay in the foreground: the default, unless the program is called as lighttpd
    #[arg(short = 'D')]
    pub(crate) foreground: bool,

    /// Go to the background once the server serves: the default if the program is called as
    /// lighttpd
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) background: bool,

    /// True if the program is called as lighttpd
    #[arg(skip)]
    pub(crate) is_lighttpd: bool,

    /// Stop gracefully after so many seconds without a request; 0: never
    #[arg(short = 'i', value_name = "SECONDS")]
    pub(crate) idle_timeout: Option<u32>,

    /// Check the configuration and exit; twice (-tt): also open what it names, binding nothing
    #[arg(short = 't', action = ArgAction::Count)]
    pub(crate) test: u8,

    /// Print the effective configuration, defaults marked, and exit
    #[arg(short = 'p')]
    pub(crate) print: bool,

    /// Print version, features, engines and libraries
    #[arg(short = 'V')]
    pub(crate) build_info: bool,

    /// Print the version
    #[arg(short = 'v', long = "version")]
    pub(crate) version: bool,

    /// Module directory of lighttpd; read for compatibility, modules are built in
    #[arg(short = 'm', value_name = "DIR", hide = true)]
    pub(crate) module_dir: Option<PathBuf>,

    /// Treat warnings (directives without effect, missing machine features) as errors
    #[arg(long)]
    pub(crate) strict: bool,

    /// How diagnostics and explanations are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// Reads a command line, whose first word is the name that the program was called by. Exits if
    /// it is wrong.
    pub(crate) fn of_line(line: Vec<OsString>) -> Self {
        let name = line.first().and_then(|path| Path::new(path).file_name());
        let is_lighttpd = name.is_some_and(|name| name == "lighttpd");
        let parsed = Self::try_parse_from(line).unwrap_or_else(|wrong| with_hint(wrong).exit());
        let mut cli = Self { is_lighttpd, ..parsed };
        if let Some(reading) = cli.command.as_ref().and_then(Command::reading).cloned() {
            cli.config = reading.config.or(cli.config);
            cli.strict |= reading.strict;
            cli.format = reading.format.unwrap_or(cli.format);
        }
        cli
    }

    /// True if the server leaves the terminal.
    pub(crate) fn goes_to_background(&self) -> bool {
        self.background || self.is_lighttpd && !self.foreground
    }
}

/// Adds that a file in the place of a command may be meant as a configuration.
fn with_hint(mut wrong: clap::Error) -> clap::Error {
    let word = wrong.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    if let Some(word) = word.filter(|word| Path::new(word).is_file()) {
        let hint = format!("to run a server with this configuration, use '-f {word}'");
        wrong.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    wrong
}

/// Options of commands that read a configuration. They may also stand before the command.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Reading {
    /// Configuration file; `-` reads standard input
    #[arg(short = 'f', value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Treat warnings (directives without effect, missing machine features) as errors
    #[arg(long, global = true)]
    strict: bool,
    /// How diagnostics and explanations are printed [default: text]
    #[arg(long, value_enum, global = true)]
    format: Option<Format>,
}

impl Command {
    /// The options of a command that reads a configuration.
    fn reading(&self) -> Option<&Reading> {
        match self {
            Command::Check { reading, .. }
            | Command::Print { reading }
            | Command::Explain { reading, .. }
            | Command::Reload { reading, .. }
            | Command::Cert { reading, .. } => Some(reading),
            _ => None,
        }
    }
}

/// Form of printed diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
}

/// Subcommands.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Command {
    /// Serve a directory or a single file, without a configuration
    Serve(Serve),
    /// Forward requests to backends, without a configuration
    Proxy {
        /// Address to listen on: PORT, ADDR:PORT, :PORT, [V6]:PORT or /unix/path
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080",
              value_parser = address::listen)]
        from: String,
        /// Backends: HOST:PORT, :PORT, [V6]:PORT, http://HOST:PORT, https://HOST:PORT,
        /// h2://HOST:PORT (HTTP/2 in clear text), unix:/path or srv:NAME; requests are balanced
        /// over several
        #[arg(long, value_name = "BACKEND", num_args = 1.., required = true,
              value_parser = address::backend)]
        to: Vec<String>,
        /// Protocol of the backends
        #[arg(long, value_name = "NAME", default_value = "http",
              value_parser = ["http", "h2", "fastcgi", "scgi", "uwsgi", "ajp13"])]
        protocol: String,
        /// Print no line for each request; without it, requests are printed if standard error is
        /// a terminal
        #[arg(long, short)]
        quiet: bool,
        /// Speak TLS with clients: with a certificate of a local authority, or, for NAMEs, with one
        /// of a public authority (ACME; it connects to port 80)
        #[arg(long, value_name = "NAME", num_args = 0.., require_equals = true,
              value_delimiter = ',')]
        tls: Option<Vec<String>>,
    },
    /// Check the configuration; as -t
    Check {
        /// Also open the files and directories that it names; as -tt
        #[arg(long)]
        deep: bool,
        #[command(flatten)]
        reading: Reading,
    },
    /// Print the effective configuration; as -p
    Print {
        #[command(flatten)]
        reading: Reading,
    },
    /// Say which conditions and directives apply to a request, why, and what answers it
    Explain {
        /// URL of the request, such as http://www.example.org/a.html?b=c
        url: String,
        /// Method of the request
        #[arg(long, default_value = "GET")]
        method: String,
        /// Header field of the request, as Name: value; may be repeated
        #[arg(short = 'H', long = "header", value_name = "FIELD")]
        headers: Vec<String>,
        /// Address of the client
        #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
        from: std::net::IpAddr,
        /// Listener that the request comes in by, as written in $SERVER["socket"]
        #[arg(long, value_name = "SOCKET")]
        socket: Option<String>,
        #[command(flatten)]
        reading: Reading,
    },
    /// Have a running server read its configuration again, and wait until it has, or says why not
    Reload {
        /// The running server's pid file, as server.pid-file names it; else that of -f FILE
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
        #[command(flatten)]
        reading: Reading,
    },
    /// Certificates that the server gets by itself (acme.activate)
    Cert {
        /// What to do with them
        #[command(subcommand)]
        what: Cert,
        #[command(flatten)]
        reading: Reading,
    },
    /// Make a line for auth.backend.htpasswd.userfile: bcrypt, as `htpasswd -B`
    HashPassword {
        /// Name of the user; without it only the hash is printed
        user: Option<String>,
        /// Cost of bcrypt: each step doubles the time that a guess takes
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(4..=17))]
        cost: u32,
    },
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
    MagnetFcgi {
        #[command(flatten)]
        site: ProgramSite,
        #[command(flatten)]
        limits: ScriptLimits,
    },
    /// Check Lua scripts, or run one for a request without a server
    Script {
        /// What to do with them
        #[command(subcommand)]
        what: Script,
    },
    /// Show where the time of requests went
    Timing {
        /// How
        #[command(subcommand)]
        what: Timing,
    },
    /// Generate load and report latency
    Load(Load),
    /// Show what a server is doing, from its status page, until q is pressed
    Top(Top),
    /// Format configuration files
    Fmt {
        /// Files; none: standard input to standard output
        files: Vec<PathBuf>,
        /// Change nothing; exit with 1 if a file is not formatted
        #[arg(long)]
        check: bool,
    },
    /// Write generated documents: man page, shell completions, manual
    Generate {
        /// What to write
        #[command(subcommand)]
        what: Document,
    },
}

/// What is done with certificates. Which ones there are says the configuration, -f FILE.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Cert {
    /// A line for each: until when it is valid, who has signed it, what is wrong
    List,
    /// What is known of one
    Show {
        /// Its first name
        name: String,
    },
    /// Have the running server renew some at once
    Renew {
        /// Their first names
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Have the authority revoke one, and the running server order another in its place
    Revoke {
        /// Its first name
        name: String,
        /// Why
        #[arg(long, value_name = "WORD", default_value = "unspecified",
              value_parser = clap::builder::PossibleValuesParser::new(Reason::WORDS))]
        reason: String,
    },
    /// Give the accounts with authorities new keys
    Rollover,
}

/// How times are shown.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Timing {
    /// Draw a log: the picture of lighttpd 1.5, and one of all stages
    Plot {
        /// Error log with debug.log-timing, or access log in JSON; -: standard input
        log: PathBuf,
        /// Where the picture goes, as SVG [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Where a script for gnuplot goes, with its data
        #[arg(long, value_name = "FILE")]
        gnuplot: Option<PathBuf>,
    },
}

/// What load is made.
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Load {
    #[command(subcommand)]
    pub(crate) command: Option<LoadCommand>,
    /// URL to ask for; several of one server are chosen from at random
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
    /// Requests a second, each at its time; otherwise a connection asks again after its response
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) rate: Option<u64>,
    /// End after so many requests, those of the warm-up aside
    #[arg(short = 'n', long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    /// End after so many seconds, the warm-up aside [default: 10, unless there is a number of
    /// requests]
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
    /// Whom it trusts
    #[command(flatten)]
    pub(crate) trust: Trust,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what http_load prints
    #[arg(long, conflicts_with = "json")]
    pub(crate) http_load: bool,
    /// Write a picture of the run
    #[arg(long, value_name = "FILE.SVG")]
    pub(crate) plot: Option<PathBuf>,
    /// Tell how it goes on, although standard error is no terminal
    #[arg(long)]
    pub(crate) progress: bool,
}

/// Which servers a client over TLS trusts.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Trust {
    /// File of authorities that are trusted instead of the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<String>,
    /// Do not verify the server's certificate
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
}

/// What is done with runs that were made before.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum LoadCommand {
    /// Say whether two runs differ by more than noise
    Compare {
        /// What `--json` printed of the one run
        one: PathBuf,
        /// And of the other
        other: PathBuf,
    },
}

/// What is shown of a server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Top {
    /// URL of its status page (status.status-url)
    #[arg(default_value = "http://127.0.0.1/server-status")]
    pub(crate) url: String,
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
    /// Whom it trusts
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
}

/// What is done with scripts.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Script {
    /// Say whether scripts are Lua; exit with 1 if one is not
    Check {
        /// The scripts
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Run a script for a request and print what it does
    Run(ScriptRun),
}

/// A request, and for later stages a response, to try a script with.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ScriptRun {
    /// The script
    pub(crate) file: PathBuf,
    /// URL with http:// or https://, or its path
    #[arg(value_parser = trial::url)]
    pub(crate) url: String,
    /// Stage that the script runs in
    #[arg(long, value_enum, default_value = "raw-url")]
    pub(crate) stage: trial::Stage,
    /// Method of the request
    #[arg(short = 'X', long, default_value = "GET")]
    pub(crate) method: String,
    /// Header field of the request; may be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = trial::field)]
    pub(crate) header: Vec<(String, String)>,
    /// Body of the request; @FILE reads it from a file
    #[arg(short = 'd', long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) data: String,
    /// Directory in which the path of the URL is a file, for the stages after raw-url
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) document_root: PathBuf,
    /// Status of the response, for response-start
    #[arg(long, value_name = "CODE", default_value_t = 200,
          value_parser = clap::value_parser!(u16).range(200..=999))]
    pub(crate) status: u16,
    /// Header field of the response, for response-start; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = trial::field)]
    pub(crate) response_header: Vec<(String, String)>,
    /// Body of the response, for response-start and response-content; @FILE reads it from a file
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) response_data: String,
}

/// What is served, and how.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Serve {
    /// The directory; or a file, which is then served alone
    #[arg(default_value = ".", value_name = "DIR")]
    pub(crate) path: PathBuf,
    /// Address to listen on: PORT, ADDR:PORT, :PORT, [V6]:PORT or /unix/path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080",
          value_parser = address::listen)]
    pub(crate) listen: String,
    /// Port to listen on at 127.0.0.1; to listen on every address, use --listen :PORT
    #[arg(short, long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,
    /// Require this user name and password (basic authentication); without a password, ask for it
    #[arg(short, long, value_name = "NAME[:PASSWORD]", value_parser = address::user)]
    pub(crate) user: Option<String>,
    /// Show listings of directories that have no index file
    #[arg(long)]
    pub(crate) browse: bool,
    /// Accept uploads (PUT) into directories; listings, which are shown, have a control for them.
    /// Existing files are never replaced
    #[arg(long)]
    pub(crate) upload: bool,
    /// Offer each listed directory as a ZIP archive (?zip)
    #[arg(long)]
    pub(crate) zip: bool,
    /// Let uploads replace existing files
    #[arg(long, requires = "upload")]
    pub(crate) overwrite: bool,
    /// Serve names that begin with a dot, such as .env and .git, too; .well-known always is
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Name of the index file, in place of index.html and index.htm; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) index: Vec<String>,
    /// Answer what is not a file with the index file: the page itself looks at the URL
    #[arg(long)]
    pub(crate) spa: bool,
    /// Speak TLS: with a certificate of a local authority, whose file is printed, or, for NAMEs,
    /// with one of a public authority (ACME; it connects to port 80)
    #[arg(long, value_name = "NAME", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub(crate) tls: Option<Vec<String>>,
    /// Let the scripts of every other site read the responses (Access-Control-Allow-Origin: *)
    #[arg(long)]
    pub(crate) cors: bool,
    /// Send .br, .zst and .gz files that lie beside a file in its place
    #[arg(long)]
    pub(crate) precompressed: bool,
    /// Send text as it is, without br, zstd or gzip
    #[arg(long)]
    pub(crate) no_compress: bool,
    /// Print no line for each request; without it, requests are printed if standard error is a
    /// terminal
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl Serve {
    /// The address to listen on.
    pub(crate) fn address(&self) -> String {
        self.port.map_or_else(|| self.listen.clone(), |port| format!("127.0.0.1:{port}"))
    }
}

/// Documents made from the command line's and the directives' own descriptions.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Document {
    /// The manual page lighty(8), to standard output
    Man,
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

/// The shortest time that a run, or a response in it, may take.
const SHORTEST_S: f64 = 0.001;

/// Seconds, which may have a fraction.
fn seconds(text: &str, least: f64, most: f64) -> Result<Duration, SecondsError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let given = text.parse::<f64>().ok().filter(|given| is_plain && (least..=most).contains(given));
    let given = given.and_then(|given| Duration::try_from_secs_f64(given).ok());
    given.ok_or(SecondsError { least, most })
}

/// A text is no number of seconds between these two.
#[derive(Debug)]
struct SecondsError {
    least: f64,
    most: f64,
}

impl std::fmt::Display for SecondsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {} to {} seconds, such as 0.5", self.least, self.most)
    }
}

impl std::error::Error for SecondsError {}
