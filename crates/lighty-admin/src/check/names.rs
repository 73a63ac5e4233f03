//! Checks that the host names of backends resolve. The server starts without them, because DNS may
//! start after it; requests to such a backend fail until then.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};

use lighty_config::{Span, Spanned, Value};

use super::Check;
use super::attempts::{self, FailedAttempt, PATIENCE};
use super::machine::{SERVERS, items};

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
    let look_up = |(name, span): (String, Span)| {
        let subject = name.clone();
        let attempt = move || (name.as_str(), 0).to_socket_addrs().map(drop);
        (subject, (span, attempt))
    };
    for FailedAttempt { subject, span, error } in
        attempts::make(names.into_iter().map(look_up).collect())
    {
        check.warn(
            span,
            match error {
                Some(error) => format!("the backend's host {subject} does not resolve: {error}"),
                None => format!("the backend's host {subject}: no answer from DNS in {PATIENCE:?}"),
            },
        );
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
