//! Subcommands about Lua scripts.

use std::path::PathBuf;

use crate::trial;

/// Subcommands of `lighty script`.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum ScriptCommand {
    /// Check the syntax of Lua scripts; exit with 1 if one is wrong
    Check {
        /// The scripts
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Run a script for a request and print its effects
    Run(ScriptRun),
}

/// Input of a trial run: a request and, for later stages, a response.
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
