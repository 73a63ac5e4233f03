//! Reload: replaces the configuration of the running process, all of it or nothing.

mod backends;
mod dry_run;
mod listeners;
mod load;
mod memory;
mod outcome;
mod site;
mod tunnels;
mod workers;
