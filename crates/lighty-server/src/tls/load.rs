//! Loads the files that a configuration's `ssl.*` names, and reports their faults.

use std::sync::Arc;

use lighty_config::{Block, Config, Diagnostic, Field, Level, Setting, Span};
use lighty_core::Settings;
use lighty_core::settings::tls::TlsSettings;
use lighty_io::tls::{Materials, PairError, Policy, TicketKeys, check_key};

use super::{backends, clear};
use crate::{acme, boot::block_settings, listen::listeners};

/// Loads the configured files, if a listener or a backend speaks TLS. Checks every condition,
/// whether it holds on a listener or for a host that clients name. A file that cannot be read any
/// more, because privileges are dropped, stays as in `before`.
///
/// # Errors
/// All problems, with their places in the configuration.
pub fn load(config: &Config<Settings>, before: &Materials) -> Result<Materials, Vec<Diagnostic>> {
    let listening = listening(config);
    let materials = Materials::after(before);
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

/// Returns conflicts between directives, without reading the files that they name.
pub fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let before = Materials::default();
    let mut load =
        Load { config, materials: &Materials::default(), before: &before, problems: Vec::new() };
    let listening = listening(config);
    if listening.is_empty() {
        load.problems.extend(clear::look(config));
    } else {
        for (id, block) in config.blocks().iter().enumerate() {
            load.lone_key(id, block);
            load.unknown_in_handshake(id, block);
        }
    }
    // Faults of certificates to be obtained are reported elsewhere, without consequential errors.
    let has_managed = acme::has_managed(config, &before);
    for (name, settings) in &listening {
        let tls = settings.module::<TlsSettings>();
        if load.has_pair(name, settings, has_managed)
            && let Err(why) = tls.policy_options(Vec::new())
        {
            load.say(load.place("ssl.verifyclient.activate"), why.to_string());
        }
    }
    load.problems
}

/// Returns the names and settings of the listeners that speak TLS.
fn listening(config: &Config<Settings>) -> Vec<(String, Settings)> {
    let wanted = listeners::wanted(config, &config.global().server).unwrap_or_default();
    let named = wanted
        .into_iter()
        .map(|listener| (listeners::settings_at(config, &listener.name), listener.name));
    let speaks_tls = |(settings, _): &(Settings, String)| settings.module::<TlsSettings>().engine;
    named.filter(speaks_tls).map(|(settings, name)| (name, settings)).collect()
}

/// Returns the first condition around a block that a handshake cannot evaluate.
fn unknown_condition(blocks: &[Block<Settings>], id: usize) -> Option<String> {
    let around = |id: &usize| (*id != 0).then(|| blocks[*id].parent as usize);
    std::iter::successors(Some(id), around).find_map(|id| {
        let before = |id: &usize| blocks[*id].prev.map(|id| id as usize);
        let mut chain = std::iter::successors(Some(id), before);
        let unknown = chain.find_map(|id| {
            let cond = blocks[id].cond.as_ref()?;
            let is_known =
                matches!(cond.field, Field::Socket | Field::Scheme | Field::Host | Field::RemoteIp);
            (!is_known).then_some(cond)
        });
        unknown.map(ToString::to_string)
    })
}

fn set<'a>(block: &'a Block<Settings>, name: &str) -> Option<&'a Setting<Settings>> {
    block.settings.iter().rfind(|setting| setting.name == name)
}

struct Load<'a> {
    config: &'a Config<Settings>,
    materials: &'a Materials,
    before: &'a Materials,
    problems: Vec<Diagnostic>,
}

/// Directives with certificate files other than the server's own.
const FILES: [&str; 3] =
    ["ssl.verifyclient.ca-file", "ssl.verifyclient.ca-dn-file", "ssl.verifyclient.ca-crl-file"];

impl Load<'_> {
    /// Loads the certificates that the server obtains by itself.
    fn managed(&mut self) {
        let managed = match acme::managed(self.config, self.materials) {
            Ok(managed) => managed,
            Err(problems) => return self.problems.extend(problems),
        };
        for (names, file) in managed {
            if let Err(why) = self.materials.load_managed(&names, &file, self.before) {
                self.say(None, format!("acme.activate: {why}"));
            }
        }
    }

    /// Reports a key without a certificate. Returns whether there is one.
    fn lone_key(&mut self, id: usize, block: &Block<Settings>) -> bool {
        let Some(setting) = set(block, "ssl.privkey") else { return false };
        let is_lone =
            block_settings::of(self.config, id).module::<TlsSettings>().pairs().is_empty();
        if is_lone {
            self.report(setting.value.span, "ssl.privkey needs ssl.pemfile".to_owned());
        }
        is_lone
    }

    /// Warns of client authentication under conditions that no handshake can evaluate.
    fn unknown_in_handshake(&mut self, id: usize, block: &Block<Settings>) {
        let mut settings = block.settings.iter();
        let Some(setting) = settings.find(|one| one.name.starts_with("ssl.verifyclient.")) else {
            return;
        };
        let Some(around) = unknown_condition(self.config.blocks(), id) else { return };
        let message = format!(
            "{} has no effect on handshakes under `{around}`, which is known only when a request \
             is there: such requests get 421 where more is wanted of the client than it has shown",
            setting.written
        );
        let (level, code, span) = (Level::Warning, "tls", Some(setting.key_span));
        self.problems.push(Diagnostic {
            level,
            code,
            message,
            span,
            help: None,
            notes: Vec::new(),
        });
    }

    /// Reports a listener without a certificate. Returns whether it has one.
    fn has_pair(&mut self, name: &str, settings: &Settings, has_managed: bool) -> bool {
        let has_pair = has_managed || !settings.module::<TlsSettings>().pemfiles.is_empty();
        if !has_pair {
            let text = format!("ssl.engine is on for {name}, and ssl.pemfile is not set there");
            self.say(self.place("ssl.engine"), text);
        }
        has_pair
    }

    /// Returns the place where a directive was set last.
    fn place(&self, name: &str) -> Option<Span> {
        self.config.assigned(name).map(|value| value.span).last()
    }

    fn block(&mut self, id: usize, block: &Block<Settings>) {
        for name in FILES {
            if let Some(setting) = set(block, name) {
                self.file(name, setting);
            }
        }
        let Some(setting) = set(block, "ssl.privkey").or(set(block, "ssl.pemfile")) else {
            if set(block, "ssl.stapling-file").is_some() {
                self.staples(&block_settings::of(self.config, id));
            }
            return;
        };
        let settings = block_settings::of(self.config, id);
        let pairs = settings.module::<TlsSettings>().pairs();
        if self.lone_key(id, block) {
            return;
        }
        // A condition may set a chain with its key, and inherit the key of another chain.
        let is_own = ["ssl.pemfile", "ssl.privkey"].iter().all(|name| set(block, name).is_some());
        for files in &pairs {
            let loaded = match self.materials.take_over_pair(files, self.before) {
                true => Ok(()),
                false if is_own => check_key(files).and_then(|()| self.materials.load_pair(files)),
                false => self.materials.load_pair(files),
            };
            if let Err(why) = loaded {
                let blamed = match why {
                    PairError::Chain(_) => set(block, "ssl.pemfile").unwrap_or(setting),
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
        if self.has_pair(name, settings, self.materials.has_managed()) {
            self.policy(settings, self.place("ssl.pemfile"));
        }
    }

    /// Builds a policy as connections will.
    fn policy(&mut self, settings: &Settings, span: Option<Span>) {
        let options = match settings.module::<TlsSettings>().policy_options(Vec::new()) {
            Ok(options) => options,
            Err(why) => return self.say(self.place("ssl.verifyclient.activate"), why.to_string()),
        };
        if let Err(error) = Policy::new(&options, self.materials, &TicketKeys::default()) {
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
