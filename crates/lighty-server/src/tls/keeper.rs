//! Keeps certificates, keys and tickets up to date, on a thread of its own because a disk may hang.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lighty_core::Settings;
use lighty_core::log::{About, Level, Log};
use lighty_core::settings::tls::TlsSettings;
use lighty_io::clock::Clock;
use lighty_io::{os_text, threads};

use super::Tls;

/// Interval at which the files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Seconds before a certificate's expiry from which warnings are logged.
const WARN_S: i64 = 7 * 86_400;

/// Seconds between two such warnings.
const WARN_EVERY_S: i64 = 86_400;

/// The files to watch.
#[derive(Clone, Default)]
struct Watched {
    tls: Tls,
    stek_file: Option<PathBuf>,
}

impl Watched {
    fn of(global: &Settings, tls: &Tls) -> Self {
        let stek_file = global.module::<TlsSettings>().stek_file.as_deref().map(PathBuf::from);
        Self { tls: tls.clone(), stek_file }
    }
}

/// The thread, started once something speaks TLS.
pub(crate) struct Keeper {
    watched: Arc<Mutex<Watched>>,
    log: Log,
    is_running: bool,
}

impl Keeper {
    /// Starts to watch the files of the first configuration.
    ///
    /// # Errors
    /// As for [`follow`](Self::follow).
    pub(crate) fn start(log: &Log, global: &Settings, tls: &Tls) -> io::Result<Self> {
        let (watched, log) = (Arc::default(), log.clone());
        let mut keeper = Self { watched, log, is_running: false };
        keeper.follow(global, tls)?;
        Ok(keeper)
    }

    /// Watches the files of another configuration from now on. Loads its ticket keys.
    ///
    /// # Errors
    /// The ticket key file is malformed, or no thread can be started; the message names the fault.
    /// The previous files are still watched then.
    pub(crate) fn follow(&mut self, global: &Settings, tls: &Tls) -> io::Result<()> {
        let next = Watched::of(global, tls);
        check(&next)?;
        if let Some(key_log) = &next.tls.key_log {
            let (path, now_s) = (key_log.path().display(), Clock::start().unix_s());
            let message = format!(
                "ssl.key-log-file: the secrets of every TLS connection are written to {path}: \
                 whoever reads it can read what passes"
            );
            self.log.line(Level::Warning, now_s, &message, About::default());
        }
        if !self.is_running && !tls.materials.is_empty() {
            *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
            let (watched, log) = (Arc::clone(&self.watched), self.log.clone());
            let started = threads::start("tls", None, move || look(&watched, &log));
            started?;
            self.is_running = true;
        }
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

/// Reads the ticket keys that a configuration names, if something speaks TLS.
///
/// # Errors
/// The file exists and cannot be read, or is malformed; the message names the fault.
pub(crate) fn read_keys(global: &Settings, tls: &Tls) -> io::Result<()> {
    check(&Watched::of(global, tls))
}

/// Checks the ticket key file that a configuration names, if something speaks TLS.
///
/// # Errors
/// The file cannot be used; the message names the fault. A start tolerates `NotFound`.
pub fn check_keys(global: &Settings, tls: &Tls) -> io::Result<()> {
    match tls.materials.is_empty() {
        true => Ok(()),
        false => keep_tickets(&Watched::of(global, tls)),
    }
}

/// Checks the ticket key file. A missing file may come later, from a program that shares keys
/// between servers: the thread keeps looking for it, and sessions are not resumed until then.
fn check(next: &Watched) -> io::Result<()> {
    let kept = if next.tls.materials.is_empty() { Ok(()) } else { keep_tickets(next) };
    kept.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

fn look(watched: &Mutex<Watched>, log: &Log) {
    let say = |level, text: &str| {
        log.line(level, Clock::start().unix_s(), text, About::default());
    };
    let (mut last_error, mut looked_s, mut version) = (String::new(), 0, None);
    // Time of each warning.
    let mut warned_s: HashMap<String, i64> = HashMap::new();
    loop {
        let now = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for text in now.tls.materials.refresh(Clock::start().unix_s()) {
            say(Level::Notice, &format!("ssl: {text}"));
        }
        let now_s = Clock::start().unix_s();
        let loaded = Some((Arc::as_ptr(&now.tls.materials).addr(), now.tls.materials.version()));
        if loaded != version || now_s - looked_s >= WARN_EVERY_S {
            (looked_s, version) = (now_s, loaded);
            warned_s.retain(|_, at_s| now_s - *at_s < WARN_EVERY_S);
            for text in now.tls.materials.warnings(now_s, WARN_S) {
                if warned_s.contains_key(&text) {
                    continue;
                }
                say(Level::Warning, &format!("ssl: {text}"));
                warned_s.insert(text, now_s);
            }
        }
        let error_text =
            keep_tickets(&now).err().map(|error| error.to_string()).unwrap_or_default();
        if error_text != last_error && !error_text.is_empty() {
            say(
                Level::Warning,
                &format!("{error_text}; it is looked for again, and the keys read before stay"),
            );
        }
        last_error = error_text;
        std::thread::sleep(LOOK_EVERY);
    }
}

fn keep_tickets(watched: &Watched) -> io::Result<()> {
    let now_s = Clock::start().unix_s();
    match &watched.stek_file {
        Some(path) => watched.tls.tickets.read_file(path, now_s).map_err(|error| {
            let why = os_text(&error);
            io::Error::new(error.kind(), format!("ssl.stek-file: {}: {why}", path.display()))
        }),
        None => {
            watched.tls.tickets.rotate(now_s);
            Ok(())
        }
    }
}
