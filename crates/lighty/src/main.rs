//! The door: the command line of the server.
//!
//! `cli` says what can be typed, `commands` does it; `programs` are the small programs that the
//! binary is too, under names of their own. Everything else is in the crates below.
#![forbid(unsafe_code)]

mod address;
mod cli;
mod commands;
mod explain;
mod failure;
mod http_load;
mod man;
mod programs;
mod report;
mod script_run;
mod site;
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
    match programs::called(std::env::args_os()) {
        programs::Called::SpawnFcgi(arguments) => programs::spawn_fcgi(arguments),
        programs::Called::HttpLoad(wrong) => programs::refuse_http_load(wrong),
        programs::Called::Lighty(line) => commands::run(cli::Cli::of_line(line)),
    }
}
