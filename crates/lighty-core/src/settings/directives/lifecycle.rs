//! Directives of the process's stop and of its workers' restarts.

use lighty_config::Scope;

use crate::settings::Directive;
use crate::settings::limits::{DRAIN_DELAY_SECONDS_MAX, WORKER_RESTARTS_LIMIT};

pub(super) fn rows() -> Vec<Directive> {
    vec![
        Directive::int("server.drain-delay", 0..=DRAIN_DELAY_SECONDS_MAX, |s, v| {
            s.server.drain_delay_s = v as u32;
        })
        .scope(Scope::Server)
        .default("0")
        .since("lighty 0.1")
        .doc(
            "Seconds for which the server accepts connections as before when a graceful stop has \
             been ordered, while `health.ready-url` says 503, so that load balancers send new \
             clients elsewhere before the listeners close. A second signal stops at once.",
        )
        .example("server.drain-delay = 5"),
        Directive::int("server.max-worker-restarts", 0..=WORKER_RESTARTS_LIMIT, |s, v| {
            s.server.worker_restarts_max = v as u32;
        })
        .scope(Scope::Server)
        .default("5")
        .since("lighty 0.1")
        .doc(
            "Restarts of workers within a minute. A worker that panics outside of a request loses \
             its own connections; a new one takes its listeners over. One panic more ends the \
             process with status 1, once the other workers have finished their responses. 0: the \
             first one does.",
        )
        .example("server.max-worker-restarts = 0"),
    ]
}
