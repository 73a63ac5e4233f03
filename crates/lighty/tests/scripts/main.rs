//! Lua scripts in every phase of a request, and the programs beside the server that run them.

mod magnet;
mod magnet_corpus;
mod magnet_examples;
mod magnet_lighttpd;
mod magnet_modules;
mod magnet_reload;
mod programs;
