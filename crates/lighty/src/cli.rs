//! The command line: lighttpd's short flags, and subcommands.

mod ctl;
#[cfg(feature = "tools")]
mod fastcgi;
#[cfg(feature = "scripts")]
mod scripts;
#[cfg(feature = "tools")]
mod tools;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, Parser, Subcommand, ValueEnum};
#[cfg(feature = "acme")]
use lighty_admin::certificates::Reason;
use lighty_admin::passwords::PasswordScheme;

use crate::{absent, address};
pub(crate) use ctl::{Ctl, RunningServer};

#[cfg(all(feature = "tools", feature = "scripts"))]
pub(crate) use fastcgi::ScriptLimits;
#[cfg(feature = "tools")]
pub(crate) use fastcgi::{ProgramSite, Spawn, StopWith};
#[cfg(feature = "scripts")]
pub(crate) use scripts::{ScriptCommand, ScriptRun};
#[cfg(feature = "tools")]
pub(crate) use tools::{Document, LoadArguments, LoadCommand, ManPage, Timing, Tool, Top, TopView};

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

    /// True if an option names the format
    #[arg(skip)]
    is_format_chosen: bool,

    /// Stop gracefully after so many seconds without a request; 0: never
    #[arg(short = 'i', value_name = "SECONDS")]
    pub(crate) idle_timeout: Option<u32>,

    /// Check the configuration and exit; twice (-tt): also open its files, binding nothing
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

    /// Format of diagnostics and explanations
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Cli {
    /// Parses a command line; its first word is the program's name. Exits on errors.
    pub(crate) fn of_line(line: Vec<OsString>) -> Self {
        let name = line.first().and_then(|path| Path::new(path).file_name());
        let is_lighttpd = name.is_some_and(|name| name == "lighttpd");
        // Commands inherit the default of the option, so its value does not tell.
        let names_format = |word: &OsString| word.as_encoded_bytes().starts_with(b"--format");
        let is_format_chosen = line.iter().any(names_format);
        let parsed = Self::try_parse_from(line).unwrap_or_else(|wrong| with_hint(wrong).exit());
        let mut cli = Self { is_lighttpd, is_format_chosen, ..parsed };
        if let Some(reading) = cli.command.as_ref().and_then(Command::reading).cloned() {
            cli.config = reading.config.or(cli.config);
            cli.strict |= reading.strict;
            cli.format = reading.format.unwrap_or(cli.format);
        }
        cli
    }

    /// Returns true if results are printed as JSON. Queries are where no person reads them.
    pub(crate) fn prints_json(&self, is_query: bool) -> bool {
        let is_piped = is_query && !std::io::stdout().is_terminal();
        self.format == Format::Json || !self.is_format_chosen && is_piped
    }

    /// Returns true if the server detaches from the terminal.
    pub(crate) fn goes_to_background(&self) -> bool {
        self.background || self.is_lighttpd && !self.foreground
    }
}

/// Adds a hint that this build lacks a command, or that a file name in a command's place may be
/// meant as a configuration.
fn with_hint(mut wrong: clap::Error) -> clap::Error {
    let word = wrong.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    let Some(word) = word else { return wrong };
    if let Some(feature) = absent::command(&word) {
        wrong.remove(ContextKind::SuggestedSubcommand);
        let hint = format!("this build has no '{word}'; build with the feature {feature:?}");
        wrong.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    } else if Path::new(&word).is_file() {
        let hint = format!("to run a server with this configuration, use '-f {word}'");
        wrong.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    wrong
}

/// Options of commands that read a configuration. They are also accepted before the command.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Reading {
    /// Configuration file; `-` reads standard input
    #[arg(short = 'f', value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Treat warnings (directives without effect, missing machine features) as errors
    #[arg(long, global = true)]
    strict: bool,
    /// Format of diagnostics and explanations [default: text]
    #[arg(long, value_enum, global = true)]
    format: Option<Format>,
}

impl Command {
    /// Returns the options of a command that reads a configuration.
    fn reading(&self) -> Option<&Reading> {
        match self {
            Command::Check { reading, .. }
            | Command::Print { reading }
            | Command::Explain { reading, .. }
            | Command::Ctl { reading, .. }
            | Command::Reload { reading, .. } => Some(reading),
            #[cfg(feature = "acme")]
            Command::Cert { reading, .. } => Some(reading),
            _ => None,
        }
    }
}

/// Form of printed diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// A single JSON document.
    Json,
}

/// Ways to hash a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HashScheme {
    Bcrypt,
    Argon2id,
}

impl HashScheme {
    /// The scheme with this cost of bcrypt.
    pub(crate) fn with(self, cost: u32) -> PasswordScheme {
        match self {
            Self::Bcrypt => PasswordScheme::Bcrypt(cost),
            Self::Argon2id => PasswordScheme::Argon2id,
        }
    }
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
    /// Show which conditions and directives apply to a request, why, and its handler
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
    /// Have a running server read its configuration again, and wait for the result
    Reload {
        #[command(flatten)]
        server: RunningServer,
        #[command(flatten)]
        reading: Reading,
    },
    /// Query or change a running server over its control socket
    Ctl {
        /// Action
        #[command(subcommand)]
        what: Ctl,
        #[command(flatten)]
        server: RunningServer,
        #[command(flatten)]
        reading: Reading,
    },
    /// Certificates that the server gets by itself (acme.activate)
    #[cfg(feature = "acme")]
    Cert {
        /// Action
        #[command(subcommand)]
        what: Cert,
        #[command(flatten)]
        reading: Reading,
    },
    /// Make a line for auth.backend.htpasswd.userfile: bcrypt, as `htpasswd -B`, or argon2id
    HashPassword {
        /// Name of the user; without it only the hash is printed
        user: Option<String>,
        /// bcrypt, which other servers read too, or argon2id, which takes 64 MiB for each guess
        #[arg(long, default_value = "bcrypt")]
        scheme: HashScheme,
        /// Cost of bcrypt: each step doubles the time that a guess takes
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(4..=17))]
        cost: u32,
    },
    /// Check Lua scripts, or run one for a request without a server
    #[cfg(feature = "scripts")]
    Script {
        /// Action
        #[command(subcommand)]
        what: ScriptCommand,
    },
    /// Format configuration files
    Fmt {
        /// Files; none: standard input to standard output
        files: Vec<PathBuf>,
        /// Change nothing; exit with 1 if a file is not formatted
        #[arg(long)]
        check: bool,
    },
    /// A program beside the server
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(Tool),
}

/// Subcommands of `lighty cert`, for the certificates in the configuration (`-f FILE`).
#[cfg(feature = "acme")]
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Cert {
    /// List certificates: expiry date, issuer and faults
    List,
    /// Show a certificate
    Show {
        /// Its first name
        name: String,
    },
    /// Have the running server renew certificates at once
    Renew {
        /// Their first names
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Have the authority revoke a certificate, and the running server order another in its place
    Revoke {
        /// Its first name
        name: String,
        /// Reason for the revocation
        #[arg(long, value_name = "WORD", default_value = "unspecified",
              value_parser = clap::builder::PossibleValuesParser::new(Reason::NAMES))]
        reason: String,
    },
    /// Give the accounts with authorities new keys
    Rollover,
}

/// Options of `lighty serve`.
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
    /// Send the index file for URLs without a file, for single-page applications
    #[arg(long)]
    pub(crate) spa: bool,
    /// Speak TLS: with a certificate of a local authority, printing the authority's file, or, for
    /// NAMEs, with one of a public authority (ACME; it connects to port 80)
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
    /// Open the URL in a browser once the server serves
    #[arg(long, short)]
    pub(crate) open: bool,
    /// Print no line for each request; without it, requests are printed if standard error is a
    /// terminal
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl Serve {
    /// Returns the address to listen on.
    pub(crate) fn address(&self) -> String {
        self.port.map_or_else(|| self.listen.clone(), |port| format!("127.0.0.1:{port}"))
    }

    /// The first name of a certificate that a public authority signs.
    pub(crate) fn public_name(&self) -> Option<&str> {
        self.tls.as_ref()?.first().map(String::as_str)
    }
}
