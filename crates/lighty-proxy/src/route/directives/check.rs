//! Finds conflicts between several directives when the configuration is checked.

use std::collections::BTreeSet;
use std::sync::Arc;

use lighty_config::{Config, Diagnostic, Level, Reject, Setting, Span, Value};
use lighty_core::Settings;

use super::assemble::{self, Flaw};
use super::family::Family;
use super::service_check;
use crate::route::rules::Route;
use crate::route::settings::ProxySettings;
use crate::upstream::spec::{BackendAddress, BackendSpec, SpawnSpec};

type SettingRef<'a> = &'a Setting<Settings>;

/// Returns every finding, each with its place. Not all combinations of conditions are checked:
/// [`crate::route::rules::Routes::flaw`] reports the others at run time.
pub fn check(config: &Config<Settings>) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    (0..config.blocks().len()).for_each(|block| together(config, block, &mut findings));
    idle_protocol(config, &mut findings);
    named_backends(config, &mut findings);
    map_extensions(config, &mut findings);
    programs(config, &mut findings);
    service_check::check(config, &mut findings);
    findings
}

/// Collects the flaws of a block, together with all settings around it.
fn together(config: &Config<Settings>, block: usize, findings: &mut Vec<Diagnostic>) {
    let blocks = config.blocks();
    if !is_ours(config, block) {
        return;
    }
    let path = path(config, block);
    let mut settings = Settings::default();
    let set: Vec<SettingRef> = path.iter().flat_map(|&at| &blocks[at].settings).collect();
    set.iter().for_each(|setting| setting.apply(&mut settings));
    let parts = &settings.module::<ProxySettings>().parts;
    let flaws =
        assemble::flaws(parts).into_iter().map(|flaw| match protocol_elsewhere(config, &flaw) {
            Some(doubt) => (Level::Warning, doubt),
            None => (Level::Error, flaw),
        });
    let says_itself =
        block != 0 && blocks[block].settings.iter().any(|s| s.name == "proxy-core.upgrade");
    let is_for_others = !says_itself && carries_upgrades(config);
    let doubts = assemble::doubts(parts).into_iter();
    let doubts = doubts
        .filter(|doubt| doubt.directive != "proxy-core.upgrade" || !is_for_others)
        .map(|doubt| (Level::Warning, doubt));
    for (level, flaw) in flaws.chain(doubts) {
        let Some(place) = set.iter().rev().find(|setting| setting.name == flaw.directive) else {
            continue;
        };
        let span = place.value.span;
        if findings.iter().all(|found| found.span != Some(span)) {
            let text = format!("{} {}", flaw.directive, flaw.message);
            findings.push(Diagnostic::new(level, "value", span, text).help(flaw.help));
        }
    }
}

/// Returns true if some block speaks HTTP. A global setting for upgrades is then meant for that
/// block.
fn carries_upgrades(config: &Config<Settings>) -> bool {
    all(config).any(|setting| {
        setting.name == "proxy-core.protocol"
            && matches!(setting.value.value.as_str(), Some("http" | "h2"))
    })
}

/// Turns a missing protocol into a warning if some other condition sets one: that condition may be
/// true whenever this one is.
fn protocol_elsewhere(config: &Config<Settings>, flaw: &Flaw) -> Option<Flaw> {
    let is_set = all(config).any(|setting| setting.name == "proxy-core.protocol");
    (flaw.message == assemble::NO_PROTOCOL && is_set).then(|| Flaw {
        directive: flaw.directive,
        message: "have their proxy-core.protocol in another condition: where that does not hold, \
                  requests are answered 500"
            .into(),
        help: "set proxy-core.protocol where the backends are, or outside of every condition"
            .into(),
    })
}

/// Warns of a protocol without backends.
fn idle_protocol(config: &Config<Settings>, findings: &mut Vec<Diagnostic>) {
    if all(config).any(|setting| setting.name == "proxy-core.backends") {
        return;
    }
    for setting in all(config).filter(|setting| setting.name == "proxy-core.protocol") {
        let text =
            "proxy-core.protocol is set, and proxy-core.backends nowhere: nothing is proxied";
        let finding = Diagnostic::new(Level::Warning, "value", setting.value.span, text);
        findings.push(finding.help("add proxy-core.backends = ( \"127.0.0.1:8080\" )"));
    }
}

/// Returns true if a block sets a directive of the proxy.
fn is_ours(config: &Config<Settings>, block: usize) -> bool {
    let of_proxy = |setting: SettingRef| {
        setting.name.starts_with("proxy") || setting.name.ends_with(".server")
    };
    config.blocks()[block].settings.iter().any(of_proxy)
}

/// Returns the blocks that set a directive of the proxy.
pub(crate) fn blocks_of_ours(config: &Config<Settings>) -> impl Iterator<Item = usize> {
    (0..config.blocks().len()).filter(|block| is_ours(config, *block))
}

/// Returns the settings that apply if only a block and its ancestors are true.
pub(crate) fn settings_at(config: &Config<Settings>, block: usize) -> Settings {
    let mut settings = config.global().clone();
    for at in path(config, block).into_iter().filter(|at| *at != 0) {
        config.blocks()[at].settings.iter().for_each(|setting| setting.apply(&mut settings));
    }
    settings
}

/// Returns a block and its ancestors, the global one first.
fn path(config: &Config<Settings>, block: usize) -> Vec<usize> {
    let mut path = vec![block];
    let mut at = block;
    while at != 0 {
        at = config.blocks()[at].parent as usize;
        path.push(at);
    }
    path.reverse();
    path
}

/// Returns the heads of a block and its ancestors, the innermost first.
pub(crate) fn heads(config: &Config<Settings>, block: usize) -> Vec<String> {
    let within = path(config, block).into_iter().rev().filter(|at| *at != 0);
    within.map(|at| config.blocks()[at].head()).collect()
}

fn all(config: &Config<Settings>) -> impl Iterator<Item = SettingRef<'_>> {
    config.blocks().iter().flat_map(|block| &block.settings)
}

/// Returns the elements of every array assigned to a directive.
fn elements<'a>(
    config: &'a Config<Settings>,
    name: &'static str,
) -> impl Iterator<Item = &'a lighty_config::Item> {
    all(config)
        .filter(move |setting| setting.name == name)
        .flat_map(|setting| setting.value.value.as_list().unwrap_or_default())
}

/// Checks that weights and reserves name existing backends.
fn named_backends(config: &Config<Settings>, findings: &mut Vec<Diagnostic>) {
    let listed: BTreeSet<&str> = all(config)
        .filter(|setting| setting.name == "proxy-core.backends")
        .flat_map(|setting| texts(&setting.value.value))
        .collect();
    let weights = elements(config, "proxy-core.weights")
        .filter_map(|(key, _)| key.as_ref().map(|key| ("proxy-core.weights", &**key, key.span)));
    let backups = elements(config, "proxy-core.backup").filter_map(|(_, item)| {
        item.value.as_str().map(|text| ("proxy-core.backup", text, item.span))
    });
    for (directive, name, span) in weights.chain(backups) {
        if !listed.contains(name) {
            let text = format!("{directive} has \"{name}\", which is not in proxy-core.backends");
            findings.push(finding(Level::Error, span, text, name, &listed));
        }
    }
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Str(text) => vec![text],
        other => other
            .as_list()
            .unwrap_or_default()
            .iter()
            .filter_map(|(_, v)| v.value.as_str())
            .collect(),
    }
}

/// Warns of several programs at one address: only the first one written is started.
fn programs(config: &Config<Settings>, findings: &mut Vec<Diagnostic>) {
    let mut known: Vec<(BackendAddress, Arc<SpawnSpec>)> = Vec::new();
    for block in blocks_of_ours(config) {
        let settings = settings_at(config, block);
        for route in &ProxySettings::routes(&settings).servers {
            let named = route.upstream.backends.iter().filter(|backend| !is_nameless(backend));
            let started = named.filter_map(|b| Some((b, b.spawn.as_ref()?)));
            for (backend, spawn) in started {
                match known.iter().find(|(address, _)| *address == backend.address) {
                    None => known.push((backend.address.clone(), Arc::clone(spawn))),
                    Some((_, first)) if first != spawn => {
                        findings.extend(second_program(config, block, route, backend, first));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// Returns true for a program with a socket of the server's own making, which no other can share.
fn is_nameless(backend: &BackendSpec) -> bool {
    matches!(&backend.address, BackendAddress::Unix(path) if path.is_empty())
}

fn second_program(
    config: &Config<Settings>,
    block: usize,
    route: &Route,
    backend: &BackendSpec,
    first: &SpawnSpec,
) -> Option<Diagnostic> {
    let name = route.upstream.name.split(' ').next()?;
    // If the block does not set the directive, the block around it has the warning already.
    let setting = config.blocks()[block].settings.iter().rfind(|setting| setting.name == name)?;
    let program = |spawn: &SpawnSpec| spawn.command.first().cloned().unwrap_or_default();
    let spawn = backend.spawn.as_ref()?;
    let (first, second) = (program(first), program(spawn));
    let what = match first == second {
        true => format!("the same program {first} with other keys"),
        false => format!("{second}, but {first} is started"),
    };
    let text = format!("{} has {what} for {}: the first counts", route.upstream.name, backend.text);
    let help = "give each program a \"socket\" or \"port\" of its own, or write both hosts alike";
    Some(Diagnostic::new(Level::Warning, "value", setting.value.span, text).help(help))
}

/// Checks that endings are mapped to keys that have hosts.
fn map_extensions(config: &Config<Settings>, findings: &mut Vec<Diagnostic>) {
    let maps = [
        "fastcgi.map-extensions",
        "scgi.map-extensions",
        "ajp13.map-extensions",
        "proxy.map-extensions",
        "sockproxy.map-extensions",
        "wstunnel.map-extensions",
    ];
    for (family, map) in Family::ALL.into_iter().zip(maps) {
        let server = family.server();
        let keys: BTreeSet<&str> =
            elements(config, server).filter_map(|(key, _)| key.as_deref()).collect();
        for (_, item) in elements(config, map) {
            let Some(target) = item.value.as_str().filter(|target| !keys.contains(target)) else {
                continue;
            };
            let text = format!("{map} leads to \"{target}\", which {server} does not have");
            findings.push(finding(Level::Warning, item.span, text, target, &keys));
        }
    }
}

fn finding(
    level: Level,
    span: Span,
    text: String,
    written: &str,
    known: &BTreeSet<&str>,
) -> Diagnostic {
    let near = Reject::new("").did_you_mean(written, known.iter().copied());
    Diagnostic::new(level, "value", span, text).maybe_help(near.help)
}
