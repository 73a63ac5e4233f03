//! What can be typed: lighttpd's short flags, and subcommands.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

/// The lighty web server.
#[derive(Parser, Debug)]
#[command(
    name = "lighty",
    disable_version_flag = true,
    after_help = "Exit status: 0 success; 1 the configuration has errors, the server cannot start, \
                  or nobody can connect to it any more; 2 the command line is wrong.\n\
                  Signals: INT finishes the answers under way and stops, a second INT or TERM \
                  stops at once, HUP opens the log files again, USR1 reads the configuration again \
                  (lighty reload does, and tells how it went), USR2 writes the counters to the \
                  error log."
)]
pub(crate) struct Cli {
    /// Configuration file; `-` reads standard input
    #[arg(short = 'f', value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Stay in the foreground (lighty always does)
    #[arg(short = 'D')]
    pub(crate) foreground: bool,

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

    /// Make errors of directives without effect, and of what the machine lacks
    #[arg(long, global = true)]
    pub(crate) strict: bool,

    /// How diagnostics and explanations are printed
    #[arg(long, value_enum, default_value_t = Format::Text, global = true)]
    pub(crate) format: Format,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
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
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve a directory or one page, without a configuration
    Serve(Serve),
    /// Pass requests on to backends, without a configuration
    Proxy {
        /// Address to listen on: PORT, ADDR:PORT, :PORT, [V6]:PORT or /unix/path
        #[arg(long, default_value = "127.0.0.1:8080")]
        from: String,
        /// Backends: HOST:PORT, :PORT, [V6]:PORT, unix:/path or srv:NAME; several share the requests
        #[arg(long, value_name = "BACKEND", num_args = 1.., required = true)]
        to: Vec<String>,
        /// What is spoken with them: http, fastcgi, scgi, uwsgi or ajp13
        #[arg(long, default_value = "http")]
        protocol: String,
    },
    /// Check the configuration; as -t
    Check {
        /// Also open the files and directories that it names; as -tt
        #[arg(long)]
        deep: bool,
    },
    /// Print the effective configuration; as -p
    Print,
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
    },
    /// Have a running server read its configuration again, and wait until it has, or says why not
    Reload {
        /// The running server's pid file, as server.pid-file names it; else that of -f FILE
        #[arg(long, value_name = "FILE")]
        pid_file: Option<PathBuf>,
    },
    /// Make a line for auth.backend.htpasswd.userfile: bcrypt, as `htpasswd -B`
    HashPassword {
        /// Name of the user; without it only the hash is printed
        user: Option<String>,
        /// Cost of bcrypt: each step doubles the time that a guess takes
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(4..=17))]
        cost: u32,
    },
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

/// What is served, and how.
#[derive(clap::Args, Debug)]
pub(crate) struct Serve {
    /// The directory; or a file, which is then the index of the directory it lies in
    #[arg(default_value = ".", value_name = "DIR")]
    pub(crate) path: PathBuf,
    /// Address to listen on: PORT, ADDR:PORT, :PORT, [V6]:PORT or /unix/path
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// Show listings of directories that have no index file
    #[arg(long)]
    pub(crate) browse: bool,
    /// Name of the index file, in place of index.html and index.htm; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) index: Vec<String>,
    /// Answer what is not a file with the index file: the page itself looks at the URL
    #[arg(long)]
    pub(crate) spa: bool,
    /// Let the scripts of every other site read the answers (Access-Control-Allow-Origin: *)
    #[arg(long)]
    pub(crate) cors: bool,
    /// Send .br, .zst and .gz files that lie beside a file in its place
    #[arg(long)]
    pub(crate) precompressed: bool,
    /// Send text as it is, without br, zstd or gzip
    #[arg(long)]
    pub(crate) no_compress: bool,
    /// Print no line for each request, as is done where standard error is a terminal
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Documents made from the command line's and the directives' own descriptions.
#[derive(Subcommand, Debug)]
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
