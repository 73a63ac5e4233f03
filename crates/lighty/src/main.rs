//! Entry point: the command line of the server.
//!
//! `cli` parses the command line, `commands` runs it; `programs` are the small programs that the
//! binary contains under other names. Everything else is in the crates below.
#![forbid(unsafe_code)]

mod absent;
mod address;
mod argument_error;
#[cfg(feature = "acme")]
mod cert;
mod cli;
mod commands;
mod explain;
mod failure;
#[cfg(feature = "tools")]
mod http_load;
#[cfg(feature = "tools")]
mod man;
#[cfg(feature = "tools")]
mod programs;
#[cfg(not(feature = "tools"))]
#[path = "programs/absent.rs"]
mod programs;
mod report;
#[cfg(feature = "scripts")]
mod script_run;
mod site;
mod table;
#[cfg(feature = "scripts")]
mod trial;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: lighty_server::Allocator = lighty_server::Allocator;

fn main() -> ExitCode {
    if cfg!(target_feature = "crt-static") {
        lighty_server::look_users_up_in_files();
    }
    lighty_server::with_usual_stack(run)
}

fn run() -> ExitCode {
    match programs::run_called(programs::called(std::env::args_os())) {
        Ok(line) => commands::run(cli::Cli::of_line(line)),
        Err(code) => code,
    }
}
