//! Operator's interfaces: command line, configuration check, logs, metrics, tracing, reload, load
//! generator, manual, packages.

mod background;
mod browser;
mod config;
mod container;
mod ctl;
mod debug_log;
mod directories;
mod documentation;
mod environment;
mod error_log;
mod explain;
mod health;
mod hosts;
mod lifecycle;
mod load;
mod login_bans;
mod logs;
mod maintenance;
mod manual;
mod metrics;
mod mptcp;
mod other_servers;
mod packages;
mod pam;
mod recipes;
mod reload;
mod rotation;
mod sandbox;
mod serve;
mod status;
mod telemetry;
mod timings;
mod top;
mod tracing;
mod upgrade;
