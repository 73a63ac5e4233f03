//! TLS of the process: what a configuration needs is loaded before it is used, kept up to date
//! behind it, and made into policies by each worker.
//!
//! `load` reads files and says what is wrong with them, `backends` those for backends, `keeper`
//! reads them again when they change, `clear` warns where no listener speaks it, `policies` has
//! what a worker makes of them, `causes` why handshakes fail. Handshakes are in `conn/tls`.

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
use crate::listeners;

pub(crate) use keeper::{Keeper, check_keys, read_keys};
pub(crate) use load::{check, load};
pub(crate) use policies::{SharedVariables, WorkerTls};

/// What the workers of one configuration share.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub materials: Arc<Materials>,
    /// The process's, whatever its configuration.
    pub tickets: TicketKeys,
    /// Names that clients want and no configuration says.
    pub demand: Demand,
    /// Where secrets are written to (`ssl.key-log-file`).
    pub key_log: Option<KeyLog>,
}

/// Opens the file that secrets are to be written to, or goes on with it if it is open.
///
/// # Errors
/// The system's, about the file.
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

/// Whether the listener of this name speaks TLS.
pub(crate) fn is_spoken_at(config: &Config<Settings>, name: &str) -> bool {
    listeners::settings_at(config, name).module::<TlsSettings>().engine
}

/// The protocols above TLS, the preferred one first; none where connections carry no HTTP.
fn alpn(settings: &Settings, is_raw: bool) -> Vec<&'static str> {
    match (is_raw, settings.server.http2) {
        (true, _) => Vec::new(),
        (false, true) => vec!["h2", "http/1.1", "http/1.0"],
        (false, false) => vec!["http/1.1", "http/1.0"],
    }
}
