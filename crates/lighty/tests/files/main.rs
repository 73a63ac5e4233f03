//! Static files and the modules that process requests: listings, compression, limits, access rules,
//! SSI, WebDAV, upload progress.

mod auth;
mod conditions;
mod cors;
mod deflate;
mod disk_turns;
mod encodings;
mod error_output;
mod extforward;
mod lenient_values;
mod limits;
mod listing;
mod memory;
mod patterns;
mod places;
mod protocol;
mod rates;
mod resting;
mod rules;
mod ssi;
mod stall;
mod static_files;
mod try_files;
mod uploadprogress;
mod url_modules;
mod values;
mod vhostdb;
mod webdav;
mod webdav_database;
mod webdav_guards;
mod webdav_locks;
