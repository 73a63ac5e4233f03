//! The door: the command line of the server.
//!
//! `cli` says what can be typed, `commands` does it. Everything else is in the crates below.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod explain;
mod failure;
mod man;
mod report;
mod site;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    commands::run(cli::Cli::parse())
}
