//! The state of all limits, for operators.

use std::net::IpAddr;

use lighty_config::Config;
use lighty_core::Settings;

use super::settings::{LimitSettings, key_of};

/// State of one limit: of an assignment in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReport {
    /// The directive.
    pub directive: &'static str,
    /// The condition around it; empty without one.
    pub condition: String,
    /// Its value as written.
    pub value: String,
    /// Number of keys, such as addresses, that it counts.
    pub keys: usize,
    /// Requests under way of the client in question, where it limits these.
    pub requests: Option<u32>,
    /// Microseconds until the client may send another request, where it limits their rate.
    pub wait_us: Option<u64>,
}

const DIRECTIVES: [&str; 4] =
    ["evasive.max-conns-per-ip", "limit.requests", "limit.connections", "limit.bandwidth"];

/// Lists the limits of a configuration, with the state of a client's address. `now_us` is
/// monotonic.
pub fn limits(config: &Config<Settings>, client: Option<IpAddr>, now_us: u64) -> Vec<LimitReport> {
    let key = client.map(key_of);
    let mut found = Vec::new();
    for_each(config, |directive, condition, own| {
        let mut report = LimitReport {
            directive,
            condition: condition.to_owned(),
            value: String::new(),
            keys: 0,
            requests: None,
            wait_us: None,
        };
        let counted = if directive == DIRECTIVES[0] { &own.per_ip } else { &own.connections };
        match directive {
            "limit.requests" => {
                let Some(limit) = &own.requests else { return };
                (report.value, report.keys) = (format!("{limit:?}"), limit.table.keys());
                report.wait_us = key.map(|key| limit.table.wait_us(key, now_us));
            }
            "limit.bandwidth" => {
                let Some(limit) = &own.bandwidth else { return };
                (report.value, report.keys) = (format!("{limit:?}"), limit.table.keys());
            }
            _ => {
                let Some(limit) = counted else { return };
                (report.value, report.keys) = (format!("{limit:?}"), limit.table.keys());
                report.requests = key.map(|key| limit.table.count(key));
            }
        }
        found.push(report);
    });
    found
}

/// Forgets the rate of a client's requests and responses. Returns the number of limits that had
/// counted it.
pub fn clear(config: &Config<Settings>, client: IpAddr) -> usize {
    let key = key_of(client);
    let mut count = 0;
    for_each(config, |directive, _, own| {
        let had = match directive {
            "limit.requests" => own.requests.as_ref().is_some_and(|limit| limit.table.clear(key)),
            "limit.bandwidth" => own.bandwidth.as_ref().is_some_and(|limit| limit.table.clear(key)),
            _ => false,
        };
        count += usize::from(had);
    });
    count
}

/// Calls `see` with each assignment of a limit: the directive, the condition around it, and
/// settings that have it.
fn for_each(config: &Config<Settings>, mut see: impl FnMut(&'static str, &str, &LimitSettings)) {
    for (at, block) in config.blocks().iter().enumerate() {
        let condition = if at == 0 { String::new() } else { block.head() };
        for setting in &block.settings {
            if let Some(directive) = DIRECTIVES.into_iter().find(|name| *name == setting.name) {
                let mut settings = config.global().clone();
                setting.apply(&mut settings);
                see(directive, &condition, settings.module::<LimitSettings>());
            }
        }
    }
}
