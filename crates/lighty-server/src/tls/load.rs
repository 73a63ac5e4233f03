//! Loads the files that a configuration's `ssl.*` names, and says what is wrong with them.

use std::sync::Arc;

use lighty_config::{Block, Config, Diagnostic, Level, Setting, Span};
use lighty_core::Settings;
use lighty_core::settings::tls::TlsSettings;
use lighty_io::tls::{Materials, PairError, Policy, TicketKeys, TlsError};

use super::backends;
use crate::{acme, block_settings, listeners};

/// Loads what the configuration names, if a listener or a backend speaks TLS. Every condition is
/// looked at, whether it holds on a listener or for a host that clients name. A file that cannot be
/// read any more, for rights that are given up, stays as `before` has it.
///
/// # Errors
/// Everything that is wrong, with its place.
pub(crate) fn load(
    config: &Config<Settings>,
    before: &Materials,
) -> Result<Materials, Vec<Diagnostic>> {
    let server = &config.global().server;
    let wanted = listeners::wanted(config, server).unwrap_or_default();
    let listening: Vec<(String, Settings)> = wanted
        .into_iter()
        .map(|listener| (listeners::settings_at(config, &listener.name), listener.name))
        .filter(|(settings, _)| settings.module::<TlsSettings>().engine)
        .map(|(settings, name)| (name, settings))
        .collect();
    let materials = Materials::default();
    let mut load = Load { config, materials: &materials, before, problems: Vec::new() };
    load.managed();
    for (span, message) in backends::load(config, &materials, before) {
        load.say(span, message);
    }
    if !listening.is_empty() {
        config.blocks().iter().enumerate().for_each(|(id, block)| load.block(id, block));
    }
    if load.problems.is_empty() {
        listening.iter().for_each(|(name, settings)| load.listener(name, settings));
    }
    match load.problems {
        problems if problems.is_empty() => Ok(materials),
        problems => Err(problems),
    }
}

struct Load<'a> {
    config: &'a Config<Settings>,
    materials: &'a Materials,
    before: &'a Materials,
    problems: Vec<Diagnostic>,
}

/// Directives whose files hold certificates beside those of the server.
const FILES: [&str; 3] =
    ["ssl.verifyclient.ca-file", "ssl.verifyclient.ca-dn-file", "ssl.verifyclient.ca-crl-file"];

impl Load<'_> {
    /// The certificates that the server gets by itself.
    fn managed(&mut self) {
        let wanted = match acme::checked(self.config) {
            Ok(wanted) => wanted,
            Err(problems) => return self.problems.extend(problems),
        };
        let store = acme::store(self.config);
        for one in wanted {
            let file = store.certificate(&lighty_acme::file_name(&one.names));
            let file: Arc<str> = file.to_string_lossy().into();
            if let Err(why) = self.materials.load_managed(&one.names, &file, self.before) {
                self.say(None, format!("acme.activate: {why}"));
            }
        }
    }

    fn block(&mut self, id: usize, block: &Block<Settings>) {
        let set = |name: &str| block.settings.iter().rfind(|setting| setting.name == name);
        for name in FILES {
            if let Some(setting) = set(name) {
                self.file(name, setting);
            }
        }
        let Some(setting) = set("ssl.privkey").or(set("ssl.pemfile")) else {
            if set("ssl.stapling-file").is_some() {
                self.staples(&block_settings::of(self.config, id));
            }
            return;
        };
        let settings = block_settings::of(self.config, id);
        let pairs = settings.module::<TlsSettings>().pairs();
        if pairs.is_empty() && set("ssl.privkey").is_some() {
            return self.report(setting.value.span, "ssl.privkey needs ssl.pemfile".to_owned());
        }
        for files in &pairs {
            let loaded = match self.materials.take_over_pair(files, self.before) {
                true => Ok(()),
                false => self.materials.load_pair(files),
            };
            if let Err(why) = loaded {
                let blamed = match why {
                    PairError::Chain(_) => set("ssl.pemfile").unwrap_or(setting),
                    PairError::Key(_) => setting,
                };
                return self.report(blamed.value.span, format!("{}: {why}", blamed.written));
            }
        }
        self.staples(&settings);
        self.policy(&settings, Some(setting.value.span));
    }

    fn staples(&self, settings: &Settings) {
        for path in &settings.module::<TlsSettings>().staples {
            self.materials.load_staple(path, self.before);
        }
    }

    fn file(&mut self, name: &str, setting: &Setting<Settings>) {
        let path: Arc<str> = match setting.value.value.as_str() {
            Some(path) if !path.is_empty() => path.into(),
            _ => return,
        };
        let loaded = match name {
            _ if self.materials.take_over_file(&path, self.before) => Ok(()),
            "ssl.verifyclient.ca-crl-file" => self.materials.load_revocations(&path),
            _ => self.materials.load_authorities(&path),
        };
        if let Err(why) = loaded {
            self.report(setting.value.span, format!("{}: {why}", setting.written));
        }
    }

    fn listener(&mut self, name: &str, settings: &Settings) {
        if settings.module::<TlsSettings>().pemfiles.is_empty() && !self.materials.has_managed() {
            let span = self.config.assigned("ssl.engine").map(|value| value.span).last();
            let text = format!("ssl.engine is on for {name}, and ssl.pemfile is not set there");
            return self.say(span, text);
        }
        let span = self.config.assigned("ssl.pemfile").map(|value| value.span).last();
        self.policy(settings, span);
    }

    /// Puts a policy together as connections will.
    fn policy(&mut self, settings: &Settings, span: Option<Span>) {
        let options = settings.module::<TlsSettings>().policy_options(Vec::new());
        let made = options
            .map_err(TlsError::from)
            .and_then(|options| Policy::new(&options, self.materials, &TicketKeys::default()));
        if let Err(error) = made {
            self.say(span, error.to_string());
        }
    }

    fn report(&mut self, span: Span, message: String) {
        self.say(Some(span), message);
    }

    fn say(&mut self, span: Option<Span>, message: String) {
        let (level, code, help, notes) = (Level::Error, "tls", None, Vec::new());
        self.problems.push(Diagnostic { level, code, message, span, help, notes });
    }
}
