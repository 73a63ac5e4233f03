//! Certificates that the server obtains by itself (ACME), as configured.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use lighty_acme::Demand;
use lighty_acme::{
    CertificateOptions, CertificateSpec, CertificateSpecError, ChallengeKind, DnsHook,
    ExternalAccount, Issuer, OnDemand, Store, address, file_name, public_host,
};
pub(crate) use lighty_acme::{CertificatePlan, Service};
use lighty_config::{Block, Config, Diagnostic, Field, Level, Op, Setting, Span};
use lighty_core::Settings;
use lighty_core::log::{About, Level as LogLevel, Log};
use lighty_core::machine::status_board::Statistics;
use lighty_core::settings::tls::TlsSettings;
use lighty_http::base64;
use lighty_io::clock::Clock;
use lighty_io::tls::{Materials, OnDemandPairs};
use lighty_modules::acme::AcmeSettings;

use crate::boot::block_settings;

/// Code of diagnostics about files.
const FILE_CODE: &str = "acme-file";

/// Returns the directory of certificates and accounts.
pub fn store(config: &Config<Settings>) -> Store {
    config.global().module::<AcmeSettings>().store()
}

/// Returns the certificates that the thread maintains; `None` if there are none. `pairs` receives
/// the certificates on demand.
pub fn plan(config: &Config<Settings>, pairs: &OnDemandPairs) -> Option<CertificatePlan> {
    let wanted = wanted(config).unwrap_or_default();
    let on_demand = on_demand(config, pairs);
    let has_work = !wanted.is_empty() || on_demand.is_some();
    has_work.then(|| CertificatePlan { store: store(config), wanted, on_demand })
}

/// Returns true if the server obtains certificates, also if their configuration has errors.
pub(crate) fn has_managed(config: &Config<Settings>, materials: &Materials) -> bool {
    wanted(config).map_or(true, |wanted| !wanted.is_empty())
        || on_demand(config, materials.on_demand()).is_some()
}

/// Names of a certificate that the server obtains, and its file in the store.
pub(crate) type ManagedPair = (Arc<[String]>, Arc<str>);

/// Returns the certificates that the server obtains, if the machine has the files and programs that
/// they need.
///
/// # Errors
/// All problems, with their places in the configuration.
pub(crate) fn managed(
    config: &Config<Settings>,
    materials: &Materials,
) -> Result<Vec<ManagedPair>, Vec<Diagnostic>> {
    let mut names: Vec<_> = checked(config)?.into_iter().map(|one| one.names).collect();
    if names.is_empty() && on_demand(config, materials.on_demand()).is_some() {
        // The certificate for clients that send no name, or one that is not admitted.
        names.push(Arc::default());
    }
    let store = store(config);
    let file = |names: &[String]| store.certificate(&file_name(names)).to_string_lossy().into();
    Ok(names.into_iter().map(|names| (Arc::clone(&names), file(&names))).collect())
}

/// Returns the file with the proof for a name that an authority checks in a handshake.
pub(crate) fn proof(settings: &Settings, name: &str) -> Option<PathBuf> {
    Some(settings.module::<AcmeSettings>().store().handshake_challenge(name))
}

/// Returns the rules for names that no condition has; `None` if certificates on demand are off.
fn on_demand(config: &Config<Settings>, pairs: &OnDemandPairs) -> Option<OnDemand> {
    let own = config.global().module::<AcmeSettings>();
    if !own.is_on_demand() {
        return None;
    }
    Some(OnDemand {
        ask: own.on_demand_ask.as_deref().map(str::to_owned),
        names: Arc::clone(&own.on_demand_names),
        names_max: own.on_demand_names_max,
        options: Arc::new(options(own, &[]).ok()?),
        pairs: pairs.clone(),
    })
}

/// Creates the service thread's handle, which writes to the log.
pub(crate) fn service(log: &Log, demand: &Demand) -> Service {
    let log = log.clone();
    let say = Arc::new(move |is_warning, text: &str| {
        let level = if is_warning { LogLevel::Warning } else { LogLevel::Notice };
        log.line(level, Clock::start().unix_s(), text, About::default());
    });
    Service::new(say, demand)
}

/// Figures of the thread, for the status page.
pub(crate) struct AcmeFigures<F>(pub F);

/// Figures that only grow. The others are of the present.
const COUNTERS: [&str; 3] =
    ["acme.on-demand.asked", "acme.on-demand.refused", "acme.on-demand.full"];

impl<F: Fn() -> Vec<(String, String)> + Send + Sync> Statistics for AcmeFigures<F> {
    fn collect(&self, figures: &mut Vec<(String, String)>) {
        let is_counter = |name: &str| COUNTERS.contains(&name);
        figures.extend((self.0)().into_iter().filter(|(name, _)| !is_counter(name)));
    }

    fn count(&self, counters: &mut Vec<(String, u64)>) {
        let is_counter = |name: &str| COUNTERS.contains(&name);
        let own = (self.0)().into_iter().filter(|(name, _)| is_counter(name));
        counters.extend(own.filter_map(|(name, value)| Some((name, value.parse().ok()?))));
    }
}

/// Returns the configured certificates.
///
/// # Errors
/// All problems, with their places in the configuration.
pub fn wanted(config: &Config<Settings>) -> Result<Vec<CertificateSpec>, Vec<Diagnostic>> {
    let mut search = Search::new(config);
    search.on_demand();
    for (id, block) in config.blocks().iter().enumerate() {
        if let Err((span, why)) = search.block(id, block) {
            search.problems.push(problem(Some(span), &why));
        }
    }
    match search.problems {
        problems if problems.is_empty() => Ok(search.wanted),
        problems => Err(problems),
    }
}

/// Returns conflicts between directives, without reading the files that they name.
pub fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let mut problems = wanted(config).err().unwrap_or_default();
    problems.retain(|problem| problem.code != FILE_CODE);
    problems
}

fn problem(span: Option<Span>, why: &Unwanted) -> Diagnostic {
    let code = if matches!(why, Unwanted::AccountFile(..)) { FILE_CODE } else { "acme" };
    let (level, message) = (Level::Error, why.to_string());
    Diagnostic { level, code, message, span, help: None, notes: Vec::new() }
}

/// Returns the configured certificates, if the machine has the files and programs that they need.
///
/// # Errors
/// All problems, with their places in the configuration.
fn checked(config: &Config<Settings>) -> Result<Vec<CertificateSpec>, Vec<Diagnostic>> {
    let wanted = wanted(config)?;
    // Paths inside a chroot cannot be checked from outside.
    if wanted.is_empty() || config.global().server.chroot.is_some() {
        return Ok(wanted);
    }
    let mut problems = Vec::new();
    let mut report = |name: &str, message: String| {
        let span = config.assigned(name).map(|value| value.span).last();
        let (level, code, help, notes) = (Level::Error, "acme", None, Vec::new());
        problems.push(Diagnostic { level, code, message, span, help, notes });
    };
    let store = config.global().module::<AcmeSettings>().store.clone();
    let there = Path::new(&*store).ancestors().find_map(|path| Some((path, path.metadata().ok()?)));
    if let Some((path, _)) = there.filter(|(_, meta)| !meta.is_dir()) {
        report("acme.store", format!("acme.store: {} is not a directory", path.display()));
    }
    let mut authorities: Vec<PathBuf> =
        wanted.iter().filter_map(|one| one.options.ca_file.clone()).collect();
    authorities.dedup();
    for file in authorities {
        if let Err(why) = lighty_acme::check_authorities(&file) {
            report("acme.ca-file", format!("acme.ca-file: {why}"));
        }
    }
    let program = |one: &'_ CertificateSpec| match &one.options.dns_hook {
        Some(DnsHook::Program(path)) => Some(path.clone()),
        _ => None,
    };
    let mut hooks: Vec<PathBuf> = wanted.iter().filter_map(program).collect();
    hooks.dedup();
    for hook in hooks {
        if let Err(why) = executable(&hook) {
            report("acme.dns-hook", format!("acme.dns-hook: {}: {why}", hook.display()));
        }
    }
    match problems {
        none if none.is_empty() => Ok(wanted),
        problems => Err(problems),
    }
}

/// Checks that the mode of a program's file makes it executable. Looks a bare name up in `PATH`.
fn executable(program: &Path) -> io::Result<()> {
    let look = |path: &Path| {
        let meta = path.metadata()?;
        match meta.is_file() && meta.permissions().mode() & 0o111 != 0 {
            true => Ok(()),
            false => Err(io::Error::other("it is no program that can be run")),
        }
    };
    let looked = match program.parent() {
        Some(parent) if parent.as_os_str().is_empty() => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let mut found = std::env::split_paths(&path).map(|place| look(&place.join(program)));
            found.find(Result::is_ok).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
        }
        _ => look(program),
    };
    looked.map_err(|error| io::Error::other(lighty_io::os_text(&error)))
}

type Problem = (Span, Unwanted);

struct Search<'a> {
    config: &'a Config<Settings>,
    /// A listener has `acme.activate`, which is then for all hosts.
    has_listener: bool,
    has_hosts: bool,
    is_on_demand: bool,
    wanted: Vec<CertificateSpec>,
    problems: Vec<Diagnostic>,
}

fn set<'a>(block: &'a Block<Settings>, name: &str) -> Option<&'a Setting<Settings>> {
    block.settings.iter().rfind(|setting| setting.name == name)
}

/// Returns the host that a condition names.
fn host(block: &Block<Settings>) -> Option<&str> {
    let cond = block.cond.as_ref()?;
    let is_name = cond.field == Field::Host && cond.op == Op::Eq;
    is_name.then(|| match cond.text.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => &cond.text,
    })
}

fn is_listener(block: &Block<Settings>) -> bool {
    block.cond.as_ref().is_some_and(|cond| cond.field == Field::Socket)
}

impl<'a> Search<'a> {
    fn new(config: &'a Config<Settings>) -> Self {
        let blocks = || config.blocks().iter().enumerate();
        let activates = |(id, block): (usize, &Block<Settings>)| {
            is_listener(block)
                && set(block, "acme.activate").is_some()
                && block_settings::of(config, id).module::<TlsSettings>().is_managed
        };
        let has_listener = blocks().any(activates);
        let has_hosts = blocks().any(|(_, block)| host(block).is_some());
        let is_on_demand = config.global().module::<AcmeSettings>().is_on_demand();
        let (wanted, problems) = (Vec::new(), Vec::new());
        Self { config, has_listener, has_hosts, is_on_demand, wanted, problems }
    }

    /// Checks certificates on demand: a directive must activate them, and the options that every
    /// certificate needs must be valid.
    fn on_demand(&mut self) {
        if !self.is_on_demand {
            return;
        }
        let mut blocks = 0..self.config.blocks().len();
        let is_active =
            blocks.any(|id| block_settings::of(self.config, id).module::<AcmeSettings>().is_active);
        let own = self.config.global().module::<AcmeSettings>();
        let why = match options(own, &[]) {
            Ok(_) if is_active => return,
            Ok(_) => Unwanted::Inactive,
            Err(why) => why,
        };
        let assigned = |name| self.config.assigned(name).map(|value| value.span).last();
        let span = assigned("acme.on-demand-ask").or_else(|| assigned("acme.on-demand-names"));
        self.problems.push(problem(span, &why));
    }

    fn block(&mut self, id: usize, block: &Block<Settings>) -> Result<(), Problem> {
        let settings = block_settings::of(self.config, id);
        let (activates, names) = (set(block, "acme.activate"), set(block, "acme.names"));
        let is_own = set(block, "ssl.pemfile").is_some();
        if let Some(activate) = activates.filter(|_| is_own)
            && settings.module::<AcmeSettings>().is_active
        {
            return Err((activate.key_span, Unwanted::TwoSources));
        }
        let inherits = self.has_listener && host(block).is_some() && activates.is_none() && !is_own;
        if !settings.module::<TlsSettings>().is_managed && !inherits {
            return Ok(());
        }
        let span = activates.or(names).map_or(block.span, |setting| setting.key_span);
        let own = settings.module::<AcmeSettings>();
        let names: Arc<[String]> = match (names, host(block)) {
            (Some(_), _) => Arc::clone(&own.names),
            (None, Some(host)) => match public_host(host) {
                // Few authorities sign for addresses, so an address needs a block of its own.
                Ok(name) if activates.is_none() && address(&name).is_some() => return Ok(()),
                Ok(name) => Arc::new([name]),
                // The condition serves another purpose.
                Err(_) if activates.is_none() => return Ok(()),
                Err(why) => return Err((span, Unwanted::Name(why))),
            },
            (None, None) if activates.is_none() => return Ok(()),
            (None, None)
                if (self.has_hosts || self.is_on_demand) && (id == 0 || is_listener(block)) =>
            {
                return Ok(());
            }
            (None, None) => Arc::default(),
        };
        if names.is_empty() {
            return Err((span, Unwanted::NoNames));
        }
        let options = options(own, &names).map_err(|why| (span, why))?;
        self.add(CertificateSpec { names, options: Arc::new(options) }).map_err(|why| (span, why))
    }

    fn add(&mut self, new: CertificateSpec) -> Result<(), Unwanted> {
        let same = self.wanted.iter().find(|one| file_name(&one.names) == file_name(&new.names));
        match same {
            Some(same) if *same == new => Ok(()),
            Some(_) => Err(Unwanted::Twice(new.names[0].clone())),
            None => {
                self.wanted.push(new);
                Ok(())
            }
        }
    }
}

/// Returns the options for obtaining certificates for these names.
fn options(own: &AcmeSettings, names: &[String]) -> Result<CertificateOptions, Unwanted> {
    let wildcard = names.iter().find(|name| name.starts_with("*."));
    let number = names.iter().find(|name| address(name).is_some());
    if let Some(number) = number.filter(|_| own.challenge.is_by_dns()) {
        return Err(Unwanted::AddressInDns(number.clone()));
    }
    match (own.challenge, wildcard) {
        (ChallengeKind::Dns01, _) if own.dns_hook.is_none() => return Err(Unwanted::NoHook),
        (ChallengeKind::Dns01 | ChallengeKind::DnsPersist01, _) | (_, None) => {}
        (_, Some(name)) => return Err(Unwanted::Wildcard(name.clone())),
    }
    let path = |text: &Option<Arc<str>>| text.as_deref().map(PathBuf::from);
    Ok(CertificateOptions {
        contact: own.contact.iter().map(|to| to.to_string()).collect(),
        issuers: own.issuers.iter().map(|issuer| rehearsed(issuer, own)).collect(),
        external_account: external_account(own)?,
        profile: own.profile.as_deref().map(str::to_owned),
        key_type: own.key_type,
        challenge: own.challenge,
        dns_hook: own.dns_hook.as_deref().map(|hook| DnsHook::new(hook, hook_fields(own))),
        ca_file: path(&own.ca_file),
    })
}

/// Returns the options for names that no condition has.
///
/// # Errors
/// The options are invalid.
pub fn global_options(
    config: &Config<Settings>,
) -> Result<Arc<CertificateOptions>, AcmeOptionsError> {
    let own = config.global().module::<AcmeSettings>();
    Ok(Arc::new(options(own, &[])?))
}

/// Replaces an authority's directory by the one configured for rehearsals, if any.
fn rehearsed(issuer: &Issuer, own: &AcmeSettings) -> Issuer {
    let mut issuer = issuer.clone();
    let is_meant = |text: &str| text == issuer.name || text == issuer.directory;
    if let Some((_, directory)) = own.rehearsals.iter().find(|(text, _)| is_meant(text)) {
        // An empty text is not an issuer: it means no rehearsals.
        issuer.staging = Issuer::parse(directory).ok().map(|rehearsal| rehearsal.directory);
    }
    issuer
}

fn hook_fields(own: &AcmeSettings) -> Vec<(String, String)> {
    let fields = own.dns_hook_fields.iter();
    fields.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// Returns the external account with its key.
fn external_account(own: &AcmeSettings) -> Result<Option<ExternalAccount>, Unwanted> {
    let (kid, file) = match (&own.eab_kid, &own.eab_hmac_file) {
        (None, None) => return Ok(None),
        (Some(kid), Some(file)) => (kid.to_string(), file.to_string()),
        _ => return Err(Unwanted::HalfAnAccount),
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => return Err(Unwanted::AccountFile(file, error)),
    };
    // RFC 8555 section 7.3.4 leaves the form to the authority: some use the common alphabet.
    match base64::decode_url(text.as_bytes()).or_else(|| base64::decode(text.as_bytes())) {
        Some(hmac) if !hmac.is_empty() => Ok(Some(ExternalAccount { kid, hmac })),
        _ => Err(Unwanted::AccountFile(file, io::Error::other("it holds no key in base64"))),
    }
}

/// The options outside of conditions are no options of a certificate.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AcmeOptionsError(#[from] Unwanted);

/// Errors in the configuration of certificates.
#[derive(Debug, thiserror::Error)]
enum Unwanted {
    #[error("acme.activate needs acme.names: no condition `$HTTP[\"host\"] == \"…\"` says them")]
    NoNames,
    #[error("acme.activate: {0}")]
    Name(CertificateSpecError),
    #[error("acme.activate and ssl.pemfile stand in one block: whose certificate is it?")]
    TwoSources,
    #[error("two certificates begin with {0}: their names or options differ")]
    Twice(String),
    #[error("acme.challenge = \"dns-01\" needs acme.dns-hook")]
    NoHook,
    #[error("acme.on-demand-ask and acme.on-demand-names need acme.activate = \"enable\"")]
    Inactive,
    #[error(
        "{0} needs acme.challenge = \"dns-01\" and acme.dns-hook, or acme.challenge = \
         \"dns-persist-01\""
    )]
    Wildcard(String),
    #[error(
        "{0}: control over an address is not proven by DNS: acme.challenge has to be \
         \"http-01\" or \"tls-alpn-01\""
    )]
    AddressInDns(String),
    #[error("acme.eab-kid and acme.eab-hmac-file belong together")]
    HalfAnAccount,
    #[error("acme.eab-hmac-file: {0}: {1}")]
    AccountFile(String, io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rehearsals_are_those_of_the_configuration() {
        let staging = Issuer::parse("letsencrypt-staging").expect("a word").directory;
        let test = "https://ca-test.example.net/directory";
        for (issuer, pair, wanted) in [
            ("letsencrypt", None, Some(&*staging)),
            ("letsencrypt", Some(("letsencrypt", "")), None),
            ("letsencrypt", Some(("letsencrypt", test)), Some(test)),
            ("zerossl", Some(("zerossl", "letsencrypt-staging")), Some(&*staging)),
            ("zerossl", Some(("google", test)), None),
            ("https://a.test/dir", Some(("https://a.test/dir", test)), Some(test)),
        ] {
            let rehearsals = pair.into_iter().map(|(text, url)| (text.into(), url.into()));
            let own = AcmeSettings { rehearsals: rehearsals.collect(), ..AcmeSettings::default() };
            let issuer = rehearsed(&Issuer::parse(issuer).expect("an issuer"), &own);
            assert_eq!(issuer.staging.as_deref(), wanted, "{pair:?}");
        }
    }
}
