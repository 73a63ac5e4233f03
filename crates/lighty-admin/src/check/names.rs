//! Checks that the host names of backends resolve. The server starts without them, because DNS may
//! start after it; requests to such a backend fail until then.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::time::Duration;

use lighty_config::{Span, Spanned, Value};
use lighty_io::clock::deadline::Deadline;

use super::Check;
use super::machine::{SERVERS, items};

/// Limit on the names looked up. Each takes a thread, because the system's resolver cannot be
/// interrupted.
const NAMES_MAX: usize = 32;

/// Time limit for all lookups together: `-tt` runs before a service starts.
const PATIENCE: Duration = Duration::from_secs(4);

/// Looks all names up at the same time and warns of names without an address.
pub(super) fn look(check: &mut Check<'_>) {
    let config = check.config;
    let mut names = BTreeMap::new();
    for server in SERVERS {
        config.assigned(server).for_each(|value| hosts(value, &mut names));
    }
    for value in config.assigned("proxy-core.backends") {
        backends(value, &mut names);
    }
    let (sender, results) = mpsc::channel();
    let mut waiting = BTreeMap::new();
    for (name, span) in names.into_iter().take(NAMES_MAX) {
        let (sender, name_of_thread) = (sender.clone(), name.clone());
        let lookup = move || {
            let found = (name_of_thread.as_str(), 0).to_socket_addrs();
            let error = found.err().map(|error| error.to_string());
            let _ = sender.send((name_of_thread, error));
        };
        if std::thread::Builder::new().spawn(lookup).is_ok() {
            waiting.insert(name, span);
        }
    }
    let deadline = Deadline::after(PATIENCE);
    while !waiting.is_empty() {
        let Ok((name, error)) = results.recv_timeout(deadline.left()) else { break };
        let span = waiting.remove(&name);
        if let (Some(span), Some(error)) = (span, error) {
            check.warn(span, format!("the backend's host {name} does not resolve: {error}"));
        }
    }
    for (name, span) in waiting {
        let text = format!("the backend's host {name}: no answer from DNS in {PATIENCE:?}");
        check.warn(span, text);
    }
}

/// Collects the names of `fastcgi.server` and its like.
fn hosts(value: &Spanned<Value>, names: &mut BTreeMap<String, Span>) {
    let has = |name: &str| items(value).any(|(key, _)| key == Some(name));
    for (key, item) in items(value) {
        match item.value.as_str() {
            Some(host) if key == Some("host") && !has("socket") => {
                authority(host, item.span, names);
            }
            Some(_) => {}
            None => hosts(item, names),
        }
    }
}

/// Collects the names of `proxy-core.backends`.
fn backends(value: &Spanned<Value>, names: &mut BTreeMap<String, Span>) {
    items(value).for_each(|(_, item)| backends(item, names));
    if let Some(text) = value.value.as_str() {
        authority(text, value.span, names);
    }
}

/// Adds the name in `https://name:port`; addresses, paths and services have none.
fn authority(text: &str, span: Span, names: &mut BTreeMap<String, Span>) {
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
    let is_name = !authority.starts_with(['/', '[', ':', '@'])
        && !authority.starts_with("unix:")
        && !authority.starts_with("srv:")
        && authority.parse::<IpAddr>().is_err();
    let host = authority.split([':', '/']).next().unwrap_or_default();
    if is_name && !host.is_empty() && host.parse::<IpAddr>().is_err() {
        names.entry(host.to_owned()).or_insert(span);
    }
}
