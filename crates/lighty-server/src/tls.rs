//! TLS of the process: certificates and keys are loaded before a configuration takes effect,
//! refreshed while it is in use, and made into policies by each worker.
//!
//! `load` reads the server's files and reports their faults, `backends` reads the files for
//! backends, `keeper` reads them again when they change, `clear` warns of settings without a TLS
//! listener, `policies` has a worker's policies, `causes` limits the log of failed handshakes.
//! Handshakes are in `conn/tls`.

mod backends;
mod causes;
mod clear;
mod keeper;
mod load;
mod policies;

use std::io;
use std::path::Path;
use std::sync::Arc;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::settings::tls::TlsSettings;
use lighty_io::os_text;
use lighty_io::tls::{KeyLog, Materials, TicketKeys};

use crate::acme::Demand;
use crate::listen::listeners;

pub use keeper::check_keys;
pub(crate) use keeper::{Keeper, read_keys};
pub use load::{check, load};
pub(crate) use policies::{SharedVariables, WorkerTls};

/// TLS state that the workers of one configuration share.
#[derive(Clone, Default)]
pub struct Tls {
    /// Certificates, keys and rules.
    pub materials: Arc<Materials>,
    /// The process's ticket keys, whatever its configuration.
    pub tickets: TicketKeys,
    /// Names that clients request and that are not in the configuration.
    pub demand: Demand,
    /// File for TLS secrets (`ssl.key-log-file`).
    pub key_log: Option<KeyLog>,
}

/// Opens the file for TLS secrets, or keeps it if it is open already.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn open_key_log(
    global: &Settings,
    present: Option<&KeyLog>,
) -> io::Result<Option<KeyLog>> {
    let Some(path) = global.module::<TlsSettings>().key_log_file.as_deref().map(Path::new) else {
        return Ok(None);
    };
    if let Some(present) = present.filter(|present| present.path() == path) {
        return Ok(Some(present.clone()));
    }
    let opened = KeyLog::open(path);
    opened.map(Some).map_err(|error| {
        let why = format!("ssl.key-log-file: {}: {}", path.display(), os_text(&error));
        io::Error::new(error.kind(), why)
    })
}

/// Returns true if the listener of this name speaks TLS.
pub(crate) fn is_spoken_at(config: &Config<Settings>, name: &str) -> bool {
    listeners::settings_at(config, name).module::<TlsSettings>().engine
}

/// Returns the ALPN protocols, the preferred one first; none if connections carry no HTTP.
fn alpn(settings: &Settings, is_raw: bool) -> Vec<&'static str> {
    match (is_raw, settings.server.http2) {
        (true, _) => Vec::new(),
        (false, true) => vec!["h2", "http/1.1", "http/1.0"],
        (false, false) => vec!["http/1.1", "http/1.0"],
    }
}
