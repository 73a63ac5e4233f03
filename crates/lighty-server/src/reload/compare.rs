//! Compares the running configuration with the next one, for a dry run.

use std::collections::BTreeMap;

use lighty_config::Config;
use lighty_core::Settings;
use lighty_core::settings::ServerSettings;
use lighty_io::tls::Materials;
use lighty_modules::accesslog;
use lighty_proxy::upstream::configured::{self, Configured};
use lighty_proxy::upstream::operator::OperatorState;
use lighty_proxy::upstream::registry::Registry;
use lighty_proxy::upstream::spec::{BackendSpec, UpstreamSpec};

use super::changes::{ChangeAction, ObjectChange, names};
use super::fixed;
use crate::listen::listeners::Wanted;
use crate::listen::opened::{ListenerChange, OpenListeners};
use crate::modules;
use crate::tls;
use crate::worker::shares::worker_count;

/// Two configurations.
pub(super) struct Compared<'a> {
    pub(super) present: &'a Config<Settings>,
    pub(super) next: &'a Config<Settings>,
}

impl Compared<'_> {
    fn servers(&self) -> (&ServerSettings, &ServerSettings) {
        (&self.present.global().server, &self.next.global().server)
    }

    /// Settings that need a restart.
    pub(super) fn restarts(&self) -> Vec<ObjectChange> {
        let changes = fixed::needs_restart(self.present, self.next).into_iter();
        changes.map(|change| of_setting(change, ChangeAction::RestartNeeded)).collect()
    }

    /// Number of workers, and settings for which new ones take over.
    pub(super) fn workers(&self) -> Vec<ObjectChange> {
        let (present, next) = self.servers();
        let (before, after) = (worker_count(present), worker_count(next));
        let mut changes = Vec::new();
        if before != after {
            let counts = (before.to_string(), after.to_string());
            changes.push(ObjectChange::field("workers", "all", "number", counts));
        }
        for change in fixed::needs_workers(present, next) {
            let values = (change.before, change.after);
            changes.push(ObjectChange::field("workers", "all", change.name, values));
        }
        changes
    }

    /// Listeners, with what they speak.
    pub(super) fn listeners(&self, open: &OpenListeners, wanted: &[Wanted]) -> Vec<ObjectChange> {
        let object = "listener";
        let differences = open.changes(self.next, wanted).into_iter();
        let mut changes: Vec<_> = differences
            .map(|difference| match difference {
                ListenerChange::Added(name) => ObjectChange::add(object, name),
                ListenerChange::Removed(name) => ObjectChange::remove(object, name),
                ListenerChange::Changed { name, option, before, after } => {
                    ObjectChange::field(object, name, option, (before, after))
                }
            })
            .collect();
        let is_removed = |name: &str| {
            let mut removed = changes.iter().filter(|one| one.action == ChangeAction::Remove);
            removed.any(|one| one.name == name)
        };
        let kept: Vec<String> =
            open.names().filter(|name| !is_removed(name)).map(ToString::to_string).collect();
        for name in kept {
            let speaks = |config| tls::is_spoken_at(config, &name).to_string();
            let values = (speaks(self.present), speaks(self.next));
            if values.0 != values.1 {
                changes.push(ObjectChange::field(object, name, "ssl.engine", values));
            }
        }
        changes
    }

    /// Error log and access logs.
    pub(super) fn logs(&self) -> Vec<ObjectChange> {
        let (present, next) = self.servers();
        let (before, after) = (error_log(present), error_log(next));
        let mut changes = Vec::new();
        if before != after {
            changes.push(ObjectChange::field("log", "error log", "target", (before, after)));
        }
        let (before, after) = (logs_of(self.present), logs_of(self.next));
        changes.extend(names("log", &before, &after));
        changes
    }

    /// Modules that take part.
    pub(super) fn modules(&self) -> Vec<ObjectChange> {
        let included = |config| -> Vec<String> {
            modules::included(config).into_iter().map(str::to_owned).collect()
        };
        names("module", &included(self.present), &included(self.next)).collect()
    }

    /// Upstreams, their backends and programs.
    pub(super) fn upstreams(&self, registry: &Registry) -> Vec<ObjectChange> {
        let (before, after) = (
            by_label(configured::upstreams(self.present)),
            by_label(configured::upstreams(self.next)),
        );
        let mut changes = Vec::new();
        for (label, spec) in &before {
            match after.get(label) {
                Some(next) => compare_upstreams(label, spec, next, &mut changes),
                None => {
                    changes.push(ObjectChange::remove("upstream", label));
                    let programs = spec.backends.iter().filter_map(program);
                    changes.extend(programs.map(|name| ObjectChange::remove("program", name)));
                }
            }
        }
        for (label, spec) in after.iter().filter(|(label, _)| !before.contains_key(*label)) {
            changes.push(ObjectChange::add("upstream", label));
            let programs = spec.backends.iter().filter_map(program);
            changes.extend(programs.map(|name| ObjectChange::add("program", name)));
        }
        changes.extend(orders_kept(registry, &after));
        changes
    }

    /// Directives with another value, by the conditions around them.
    pub(super) fn settings(&self) -> Vec<ObjectChange> {
        let restarts = fixed::needs_restart(self.present, self.next);
        let is_fixed = |name: &str| restarts.iter().any(|change| change.name == name);
        let (before, after) = (settings_of(self.present), settings_of(self.next));
        let mut changes = Vec::new();
        for (key, value) in &before {
            let (old, new) = (Some(value.clone()), after.get(key).cloned());
            if old == new || is_fixed(key.1) {
                continue;
            }
            let change = match new.is_some() {
                true => ChangeAction::Change,
                false => ChangeAction::Remove,
            };
            changes.push(ObjectChange { old, new, ..of_key(key).with_action(change) });
        }
        for (key, value) in after.iter().filter(|(key, _)| !before.contains_key(*key)) {
            if !is_fixed(key.1) {
                changes.push(ObjectChange { new: Some(value.clone()), ..of_key(key) });
            }
        }
        changes
    }
}

/// Compares the certificates of two configurations.
pub(super) fn certificates(present: &Materials, next: &Materials) -> Vec<ObjectChange> {
    let object = "certificate";
    let by_name = |materials: &Materials| -> BTreeMap<String, i64> {
        materials.expiries().into_iter().map(|(name, at_s)| (name.to_string(), at_s)).collect()
    };
    let (before, after) = (by_name(present), by_name(next));
    let mut changes = Vec::new();
    for (name, old) in &before {
        match after.get(name) {
            None => changes.push(ObjectChange::remove(object, name)),
            Some(new) if new != old => {
                let values = (old.to_string(), new.to_string());
                changes.push(ObjectChange::field(object, name, "expires_s", values));
            }
            Some(_) => {}
        }
    }
    let new = after.keys().filter(|name| !before.contains_key(*name));
    changes.extend(new.map(|name| ObjectChange::add(object, name)));
    changes
}

fn of_setting(change: fixed::ChangedSetting, action: ChangeAction) -> ObjectChange {
    let (old, new) = (Some(change.before), Some(change.after));
    ObjectChange { old, new, ..ObjectChange::add("setting", change.name).with_action(action) }
}

/// The conditions around a setting, and its directive.
type SettingKey = (String, &'static str);

fn of_key((place, name): &SettingKey) -> ObjectChange {
    let is_limit = name.contains(".max-")
        || name.contains("kbytes-per-second")
        || ["limit.", "evasive."].iter().any(|module| name.starts_with(module));
    let full = if place.is_empty() { (*name).to_owned() } else { format!("{name} in {place}") };
    ObjectChange::add(if is_limit { "limit" } else { "setting" }, full)
}

fn settings_of(config: &Config<Settings>) -> BTreeMap<SettingKey, String> {
    let blocks = config.blocks();
    let mut places: Vec<String> = Vec::with_capacity(blocks.len());
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for (id, block) in blocks.iter().enumerate() {
        let place = match id {
            0 => String::new(),
            _ => match places.get(block.parent as usize).filter(|around| !around.is_empty()) {
                Some(around) => format!("{} in {around}", block.head()),
                None => block.head(),
            },
        };
        // Branches of one chain may have the same head.
        let count = seen.entry(place.clone()).or_default();
        *count += 1;
        let place = if *count > 1 { format!("{place} ({count})") } else { place };
        for setting in &block.settings {
            found.insert((place.clone(), setting.name), setting.value.value.to_source());
        }
        places.push(place);
    }
    found
}

fn logs_of(config: &Config<Settings>) -> Vec<String> {
    accesslog::log_names(config).iter().map(ToString::to_string).collect()
}

fn error_log(server: &ServerSettings) -> String {
    match (&server.errorlog, server.errorlog_use_syslog) {
        (_, true) => format!("syslog ({})", server.syslog_facility),
        (Some(path), false) => path.to_string(),
        (None, false) => "standard error".to_owned(),
    }
}

type UpstreamsByLabel = BTreeMap<String, std::sync::Arc<UpstreamSpec>>;

fn by_label(upstreams: Vec<Configured>) -> UpstreamsByLabel {
    let mut named = UpstreamsByLabel::new();
    for Configured { spec, place } in upstreams {
        let label = match place.as_str() {
            "" => spec.name.to_string(),
            place => format!("{} in {place}", spec.name),
        };
        // Several upstreams of one name and place differ by the branch of a condition.
        let repeats = (1..).map(|nth: usize| match nth {
            1 => label.clone(),
            nth => format!("{label} ({nth})"),
        });
        let free = repeats.into_iter().find(|label| !named.contains_key(label));
        named.insert(free.unwrap_or(label), spec);
    }
    named
}

type SpecText = fn(&UpstreamSpec) -> String;

/// Properties of an upstream, by their directives.
const OF_UPSTREAM: &[(&str, SpecText)] = &[
    ("proxy-core.protocol", |s| format!("{:?}", s.protocol)),
    ("proxy-core.balancer", |s| format!("{:?}", s.balancer)),
    ("proxy-core.max-pool-size", |s| s.pool.size_max.to_string()),
    ("proxy-core.max-idle-connections", |s| s.pool.idle_max.to_string()),
    ("proxy-core.max-idle-time", |s| format!("{} ms", s.pool.idle_ms)),
    ("proxy-core.max-lifetime", |s| format!("{} ms", s.pool.lifetime_ms)),
    ("proxy-core.max-keep-alive-requests", |s| s.pool.requests_max.to_string()),
    ("proxy-core.ping-interval", |s| format!("{} ms", s.pool.ping_ms)),
    ("proxy-core.ping-timeout", |s| format!("{} ms", s.pool.ping_timeout_ms)),
    ("proxy-core.max-backlog-size", |s| s.backlog.length_max.to_string()),
    ("proxy-core.backlog-timeout", |s| format!("{} ms", s.backlog.wait_ms)),
    ("proxy-core.connect-timeout", |s| format!("{} ms", s.timeouts.connect_ms)),
    ("proxy-core.read-timeout", |s| format!("{} ms", s.timeouts.read_ms)),
    ("proxy-core.write-timeout", |s| format!("{} ms", s.timeouts.write_ms)),
    ("proxy-core.tunnel-timeout", |s| format!("{} ms", s.timeouts.tunnel_ms)),
    ("proxy-core.disable-time", |s| format!("{} ms", s.health.disable_ms)),
    ("proxy-core.max-disable-time", |s| format!("{} ms", s.health.disable_ms_max)),
    ("proxy-core.max-fails", |s| s.health.fails_max.to_string()),
    ("proxy-core.hold-time", |s| format!("{} ms", s.health.hold_ms)),
    ("proxy-core.slow-start", |s| format!("{} ms", s.health.slow_start_ms)),
    ("proxy-core.check", |s| format!("{:?}", s.health.check)),
    ("proxy-core.split-hostnames", |s| s.split_hostnames.to_string()),
    ("proxy-protocol", |s| format!("{:?}", s.proxy_protocol)),
];

type BackendText = fn(&BackendSpec) -> String;

/// Properties of a backend.
const OF_BACKEND: &[(&str, BackendText)] = &[
    ("weight", |b| b.weight.to_string()),
    ("max-connections", |b| b.max_connections.map_or("of the pool".to_owned(), |n| n.to_string())),
    ("backup", |b| b.backup.to_string()),
    ("name", |b| b.label.as_deref().unwrap_or("none").to_owned()),
    ("address", |b| format!("{:?}", b.address)),
    ("host", |b| b.http_host.as_deref().unwrap_or("the client's").to_owned()),
    ("tls", |b| format!("{:?}", b.tls)),
];

fn compare_upstreams(
    label: &str,
    before: &UpstreamSpec,
    after: &UpstreamSpec,
    changes: &mut Vec<ObjectChange>,
) {
    for (field, text) in OF_UPSTREAM {
        let values = (text(before), text(after));
        if values.0 != values.1 {
            changes.push(ObjectChange::field("upstream", label, field, values));
        }
    }
    let (old, new) = (numbered(&before.backends), numbered(&after.backends));
    for (key, backend) in &old {
        let name = format!("{} of {label}", backend.text);
        let Some(next) = new.get(key) else {
            changes.push(ObjectChange::remove("backend", name));
            changes.extend(program(backend).map(|name| ObjectChange::remove("program", name)));
            continue;
        };
        for (field, text) in OF_BACKEND {
            let values = (text(backend), text(next));
            if values.0 != values.1 {
                changes.push(ObjectChange::field("backend", &name, field, values));
            }
        }
        if backend.spawn != next.spawn {
            changes.extend(program(backend).map(|name| ObjectChange::remove("program", name)));
            changes.extend(program(next).map(|name| ObjectChange::add("program", name)));
        }
    }
    for (_, backend) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
        changes.push(ObjectChange::add("backend", format!("{} of {label}", backend.text)));
        changes.extend(program(backend).map(|name| ObjectChange::add("program", name)));
    }
}

/// Backends by their text, and their number among those of the same text.
fn numbered(backends: &[BackendSpec]) -> BTreeMap<(&str, usize), &BackendSpec> {
    let mut found = BTreeMap::new();
    for backend in backends {
        let text = &*backend.text;
        let repeat = found.keys().filter(|(known, _): &&(&str, usize)| *known == text).count();
        found.insert((text, repeat), backend);
    }
    found
}

/// The command of a backend's program, if the server starts one.
fn program(backend: &BackendSpec) -> Option<String> {
    Some(backend.spawn.as_ref()?.command.join(" "))
}

/// Orders of an operator that stay in effect under the next configuration.
fn orders_kept(registry: &Registry, next: &UpstreamsByLabel) -> Vec<ObjectChange> {
    let mut changes = Vec::new();
    for upstream in registry.all() {
        let Some(spec) = next.get(&*upstream.label) else { continue };
        for address in upstream.addresses().iter() {
            let text = &address.spec.text;
            let Some(backend) = spec.backends.iter().find(|one| one.text == *text) else {
                continue;
            };
            let name = format!("{text} of {}", upstream.label);
            let kept = |field: &str, new: String| {
                let change = ObjectChange::field("backend", &name, field, (String::new(), new));
                ObjectChange { old: None, ..change.with_action(ChangeAction::OverrideKept) }
            };
            let state = address.operator_state();
            if state != OperatorState::Ready {
                changes.push(kept("state", state.name().to_owned()));
            }
            if address.weight() != address.spec.weight && backend.weight == address.spec.weight {
                changes.push(kept("weight", address.weight().to_string()));
            }
        }
    }
    changes
}
