//! Directives of the module.

use lighty_core::settings::Directive;
use lighty_core::{Settings, module_settings};

/// Settings of the module.
#[derive(Clone, Debug, Default)]
pub(super) struct TimingSettings {
    /// `debug.log-timing`.
    pub(super) is_logged: bool,
    /// `timing.server-timing`.
    pub(super) is_shown: bool,
    /// `timing.slow-request`; 0: slow requests are not logged.
    pub(super) slow_ms: u32,
}
module_settings!(TimingSettings);

fn own(s: &mut Settings) -> &mut TimingSettings {
    s.module_mut()
}

pub(super) fn rows() -> Vec<Directive> {
    let rows = vec![
        Directive::bool("debug.log-timing", |s, on| own(s).is_logged = on)
            .default("disable")
            .since("1.5")
            .doc(
                "Logs where each request's time went, in 1.5's form and then stage by stage, in \
                 milliseconds with three places: `lighty timing plot` draws it. See the \
                 [manual](../timings.md).",
            )
            .example("debug.log-timing = \"enable\""),
        Directive::int("timing.slow-request", 0..=86_400_000, |s, limit_ms| {
            own(s).slow_ms = u32::try_from(limit_ms).unwrap_or(0);
        })
        .default("0")
        .since("lighty 0.1")
        .doc(
            "Milliseconds beyond which a request is reported in the error log, with the time of \
             each stage; at most ten a second from each worker. 0: none.",
        )
        .example("timing.slow-request = 1000"),
        Directive::bool("timing.server-timing", |s, on| own(s).is_shown = on)
            .default("disable")
            .since("lighty 0.1")
            .doc(
                "Adds the field `Server-Timing` with the duration of each stage up to the \
                 response's head, for the developer tools of browsers. It reveals how the site is \
                 built, so put it into a condition.",
            )
            .example("$HTTP[\"remoteip\"] == \"10.0.0.0/8\" { timing.server-timing = \"enable\" }"),
    ];
    rows.into_iter().map(|row| row.module("mod_timing")).collect()
}
