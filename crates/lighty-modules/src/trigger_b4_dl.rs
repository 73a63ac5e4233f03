//! `mod_trigger_b4_dl`: allows a download only to clients that visited another URL first, so that
//! links from other sites lead to a page and not to the file.
//!
//! lighttpd stores the clients' addresses in a gdbm file or in memcached. Here all workers share a
//! table in memory, which survives a reload but not a restart.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use lighty_config::{
    BytePattern, CompileCtx, Directive, Kind, NeedKind, Reject, Undecided, Value, parse_string,
};
use lighty_core::module::{Hooks, Module, Step, Traits};
use lighty_core::{Exchange, Fault, Level, Settings, module_settings};
use lighty_http::{Known, Status};

/// Settings of the module.
#[derive(Clone, Debug)]
pub struct TriggerSettings {
    trigger: Option<Arc<BytePattern>>,
    download: Option<Arc<BytePattern>>,
    deny_url: Arc<str>,
    timeout_s: u32,
    clients_max: usize,
    debug: bool,
}

impl Default for TriggerSettings {
    fn default() -> Self {
        Self {
            trigger: None,
            download: None,
            deny_url: "".into(),
            timeout_s: 10,
            clients_max: 65_536,
            debug: false,
        }
    }
}
module_settings!(TriggerSettings);

/// The time of each client's last visit to a trigger or a download, in seconds of the monotonic
/// clock. Clones are one table, which the workers share.
#[derive(Clone, Default)]
pub struct Visits(Arc<Mutex<HashMap<IpAddr, u64, foldhash::fast::RandomState>>>);

impl Visits {
    /// Records a visit. A full table first drops visits older than `timeout_s`, then the older
    /// half.
    fn note(&self, client: IpAddr, now_s: u64, own: &TriggerSettings) {
        let mut visits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if visits.len() >= own.clients_max && !visits.contains_key(&client) {
            visits.retain(|_, seen_s| is_recent(*seen_s, now_s, own.timeout_s));
            if visits.len() >= own.clients_max {
                let mut times: Vec<u64> = visits.values().copied().collect();
                let middle = times.len() / 2;
                let (_, limit_s, _) = times.select_nth_unstable(middle);
                let limit_s = *limit_s;
                visits.retain(|_, seen_s| *seen_s > limit_s);
            }
        }
        visits.insert(client, now_s);
    }

    /// Returns true if the client's visit is recent enough.
    fn has(&self, client: IpAddr, now_s: u64, timeout_s: u32) -> bool {
        let visits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        visits.get(&client).is_some_and(|seen_s| is_recent(*seen_s, now_s, timeout_s))
    }
}

fn is_recent(seen_s: u64, now_s: u64, timeout_s: u32) -> bool {
    now_s.saturating_sub(seen_s) <= u64::from(timeout_s)
}

/// The module.
pub struct TriggerB4Dl {
    visits: Visits,
}

impl TriggerB4Dl {
    /// Creates a worker's instance; all workers share `visits`.
    pub fn new(visits: Visits) -> Self {
        Self { visits }
    }

    /// Decides whether a request may download.
    fn judge(&self, ex: &Exchange, own: &TriggerSettings) -> Result<TriggerVerdict, Undecided> {
        let (Some(trigger), Some(download)) = (&own.trigger, &own.download) else {
            return Ok(TriggerVerdict::Pass);
        };
        // Clients of a unix socket have no address and count as one client.
        let client = ex.request.remote_ip().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        // Monotonic, because the wall clock may be set back.
        let now_s = ex.machine.clock.mono_ms() / 1000;
        let path = &ex.request.path;
        if trigger.is_match(path)? {
            self.visits.note(client, now_s, own);
        }
        if !download.is_match(path)? {
            return Ok(TriggerVerdict::Pass);
        }
        if !self.visits.has(client, now_s, own.timeout_s) {
            return Ok(TriggerVerdict::Deny);
        }
        self.visits.note(client, now_s, own);
        Ok(TriggerVerdict::Download)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TriggerVerdict {
    /// The request is not a download.
    Pass,
    Download,
    Deny,
}

impl Module for TriggerB4Dl {
    fn name(&self) -> &'static str {
        "mod_trigger_b4_dl"
    }

    fn traits(&self) -> Traits {
        Hooks { clean_url: true, ..Hooks::default() }.into()
    }

    fn hooks_under(&self, settings: &Settings) -> Hooks {
        let own = settings.module::<TriggerSettings>();
        self.traits().hooks.only_if(own.trigger.is_some() && own.download.is_some())
    }

    fn directives() -> Vec<Directive<Settings>> {
        rows()
    }

    fn clean_url<'a>(&'a self, ex: &'a mut Exchange) -> Step<'a> {
        let settings = Rc::clone(&ex.settings);
        let own = settings.module::<TriggerSettings>();
        match self.judge(ex, own) {
            Ok(TriggerVerdict::Pass) => Step::Next,
            Ok(TriggerVerdict::Download) => {
                if own.debug {
                    ex.log(Level::Notice, "trigger-before-download: the client may download");
                }
                Step::Next
            }
            Ok(TriggerVerdict::Deny) => {
                deny(ex, own);
                Step::Answered
            }
            Err(undecided) => {
                ex.fail_saying(Fault::PatternLimit, &undecided.message);
                Step::Answered
            }
        }
    }
}

fn deny(ex: &mut Exchange, own: &TriggerSettings) {
    if own.debug {
        ex.log(Level::Notice, "trigger-before-download: the client has not been at a trigger");
    }
    if own.deny_url.is_empty() {
        return ex.fail_saying(Fault::Forbidden, "trigger-before-download.trigger-url");
    }
    ex.response.status = Status::TEMPORARY_REDIRECT;
    ex.response.fields.set(Known::Location, own.deny_url.as_bytes());
    ex.response.answered = true;
}

fn pattern(
    name: &'static str,
    set: impl Fn(&mut TriggerSettings, Option<Arc<BytePattern>>) + Copy + Send + Sync + 'static,
) -> Directive<Settings> {
    let parse = |value: &Value, ctx: &CompileCtx| {
        let text = parse_string(value)?;
        if text.is_empty() {
            return Ok(None);
        }
        BytePattern::compile(&text, ctx.span, ctx).map(|pattern| Some(Arc::new(pattern)))
    };
    let row = Directive::parsed(name, Kind::String, parse, move |s: &mut Settings, pattern| {
        set(s.module_mut(), pattern.clone());
    });
    row.default("")
}

/// A directive for lighttpd's storage of addresses.
fn place(name: &'static str, kind: Kind, example: &'static str) -> Directive<Settings> {
    let parse = |_: &Value, ctx: &CompileCtx| {
        let message = "has no effect: the addresses are kept in memory, for all workers; a reload \
                     keeps them, a restart forgets them";
        ctx.note(Reject::new(message));
        Ok(())
    };
    Directive::parsed(name, kind, parse, |_: &mut Settings, ()| {})
        .needs(NeedKind::Nothing)
        .default_prose("none")
        .doc(
            "Read for the sake of lighttpd's configurations, and without effect, as a note says: \
             the addresses are kept in memory.",
        )
        .example(example)
}

fn rows() -> Vec<Directive<Settings>> {
    let lighttpd_rows =
        vec![
        pattern("trigger-before-download.trigger-url", |s, pattern| s.trigger = pattern)
            .doc(
                "Regular expression for the URLs' paths that a client has to ask for first: the \
                 page with the links, or an image on it. Without it and \
                 `trigger-before-download.download-url` nothing is checked.",
            )
            .example("trigger-before-download.trigger-url = \"^/downloads/$\""),
        pattern("trigger-before-download.download-url", |s, pattern| s.download = pattern)
            .doc(
                "Regular expression for the paths of downloads, which require a request for a \
                 trigger URL within the last `trigger-before-download.trigger-timeout` seconds, or \
                 another download since. Clients are identified by address, behind proxies by the \
                 address that `extforward.forwarder` accepts. This blocks deep links, not people: \
                 anybody can request the trigger.",
            )
            .example("trigger-before-download.download-url = \"^/downloads/.+\""),
        Directive::string("trigger-before-download.deny-url", |s: &mut Settings, url| {
            s.module_mut::<TriggerSettings>().deny_url = url;
        })
        .default("")
        .doc("URL to which other clients are redirected (307). Empty: they are answered 403.")
        .example("trigger-before-download.deny-url = \"/downloads/\""),
        Directive::int("trigger-before-download.trigger-timeout", 0..=86_400 * 365, |s, seconds| {
            let s: &mut Settings = s;
            s.module_mut::<TriggerSettings>().timeout_s = seconds as u32;
        })
        .default("10")
        .doc("Seconds for which a visit is valid. Each download restarts the period.")
        .example("trigger-before-download.trigger-timeout = 600"),
        Directive::bool("trigger-before-download.debug", |s: &mut Settings, on| {
            s.module_mut::<TriggerSettings>().debug = on;
        })
        .default("disable")
        .doc("Logs the outcome of each download.")
        .example("trigger-before-download.debug = \"enable\""),
        place(
            "trigger-before-download.gdbm-filename",
            Kind::String,
            "trigger-before-download.gdbm-filename = \"/var/cache/lighty/trigger.db\"",
        ),
        place(
            "trigger-before-download.memcache-hosts",
            Kind::List,
            "trigger-before-download.memcache-hosts = ( \"127.0.0.1:11211\" )",
        ),
        place(
            "trigger-before-download.memcache-namespace",
            Kind::String,
            "trigger-before-download.memcache-namespace = \"downloads\"",
        ),
    ];
    let limit = Directive::int("trigger-before-download.max-clients", 2..=10_000_000, |s, most| {
        let s: &mut Settings = s;
        s.module_mut::<TriggerSettings>().clients_max = most as usize;
    })
    .default("65536")
    .doc(
        "Maximum number of remembered addresses, about 40 bytes each. At the limit, expired \
         addresses are forgotten first, then the ones seen longest ago.",
    )
    .example("trigger-before-download.max-clients = 1000000")
    .since("lighty 0.1");
    let mut rows: Vec<_> = lighttpd_rows.into_iter().map(|row| row.since("1.4")).collect();
    rows.push(limit);
    rows.into_iter().map(|row| row.module("mod_trigger_b4_dl")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visit_counts_for_its_time() {
        let (visits, own) = (Visits::default(), TriggerSettings::default());
        let client = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        assert!(!visits.has(client(1), 100, 10));
        visits.note(client(1), 100, &own);
        assert!(visits.has(client(1), 110, 10) && !visits.has(client(1), 111, 10));
        assert!(!visits.has(client(2), 100, 10));
    }

    #[test]
    fn full_table_forgets_the_oldest() {
        let own = TriggerSettings { clients_max: 4, ..TriggerSettings::default() };
        let visits = Visits::default();
        let client = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        for last in 0..4 {
            visits.note(client(last), 100 + u64::from(last), &own);
        }
        visits.note(client(9), 104, &own);
        assert!(visits.has(client(9), 104, 10) && visits.has(client(3), 104, 10));
        assert!(!visits.has(client(0), 104, 10));
        visits.note(client(10), 200, &own);
        visits.note(client(11), 200, &own);
        visits.note(client(12), 200, &own);
        assert!(visits.has(client(10), 200, 10));
        assert!(visits.0.lock().expect("whole").len() <= 4);
    }
}
