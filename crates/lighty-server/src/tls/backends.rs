//! Loads the files with which backends are verified (`proxy-core.tls-*`).

use std::sync::Arc;

use lighty_config::{Config, Need, NeedKind, Span};
use lighty_core::Settings;
use lighty_core::settings::services::SERVICE_DIRECTIVES;
use lighty_io::tls::{ClientOptions, ClientPolicy, Materials, PairError};
use lighty_proxy::upstream::configured;

/// Loads the files that backends with `https://` need. A file that cannot be read any more, because
/// privileges are dropped, stays as in `before`. Returns the faults, with the place of the
/// directive.
pub(super) fn load(
    config: &Config<Settings>,
    materials: &Materials,
    before: &Materials,
) -> Vec<(Option<Span>, String)> {
    let mut wanted: Vec<Arc<ClientOptions>> = Vec::new();
    for upstream in configured::upstreams(config) {
        let options = upstream.spec.backends.iter().filter_map(|backend| backend.tls.clone());
        wanted.extend(options);
    }
    wanted.dedup();
    let load = BackendTlsLoad { config, materials, before };
    wanted.iter().filter_map(|options| load.of(options).err()).collect()
}

struct BackendTlsLoad<'a> {
    config: &'a Config<Settings>,
    materials: &'a Materials,
    before: &'a Materials,
}

impl BackendTlsLoad<'_> {
    fn of(&self, options: &ClientOptions) -> Result<(), (Option<Span>, String)> {
        if options.is_verified {
            self.authorities(options)?;
        }
        if let Some(files) = &options.pair {
            let is_taken = self.materials.take_over_pair(files, self.before);
            let loaded = if is_taken { Ok(()) } else { self.materials.load_pair(files) };
            let why =
                |error: PairError| error.to_string().replace("ssl.privkey", "proxy-core.tls-key");
            loaded.map_err(|error| self.blame("proxy-core.tls-cert", &why(error)))?;
        }
        let made = ClientPolicy::new(options, self.materials);
        made.map(drop).map_err(|error| self.blame("proxy-core.tls-ca-file", &error.to_string()))
    }

    fn authorities(&self, options: &ClientOptions) -> Result<(), (Option<Span>, String)> {
        const NAME: &str = "proxy-core.tls-ca-file";
        let Some(path) = options.authorities() else {
            let why = "is not set, and the system has no file of authorities";
            return Err(self.blame("proxy-core.backends", &format!("{NAME} {why}")));
        };
        if self.materials.take_over_file(path, self.before) {
            return Ok(());
        }
        let loaded = self.materials.load_authorities(path);
        loaded.map_err(|error| self.blame(self.namer(path).unwrap_or(NAME), &error.to_string()))
    }

    /// The directive of a service that names this file of authorities.
    fn namer(&self, path: &str) -> Option<&'static str> {
        let need = Need { key: "ca-file", kind: NeedKind::Read };
        let names = |directive: &&str| {
            let mut given = self.config.assigned(directive);
            given.any(|given| need.texts(&given.value).contains(&path))
        };
        SERVICE_DIRECTIVES.iter().copied().find(names)
    }

    /// Returns the place where a directive got its last value, and the message.
    fn blame(&self, name: &str, why: &str) -> (Option<Span>, String) {
        let span = self.config.assigned(name).map(|given| given.span).last();
        (span, format!("{name}: {why}"))
    }
}
