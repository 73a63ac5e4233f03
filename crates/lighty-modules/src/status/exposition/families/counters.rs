//! The figures of `status.statistics-url`, under Prometheus names.

use crate::status::exposition::family::{Family, MetricKind};

/// A figure: its name in the statistics, its name as a metric, its kind, the divisor that yields
/// base units, and its help text.
struct CounterRow(&'static str, &'static str, MetricKind, f64, &'static str);

const COUNTER: MetricKind = MetricKind::Counter;
const GAUGE: MetricKind = MetricKind::Gauge;
const US: f64 = 1e6;

const ROWS: &[CounterRow] = &[
    CounterRow("server.requests", "lighty_requests", COUNTER, 1.0, "Requests served."),
    CounterRow(
        "server.connections",
        "lighty_connections_accepted",
        COUNTER,
        1.0,
        "Connections accepted.",
    ),
    CounterRow("server.bytes-in", "lighty_received_bytes", COUNTER, 1.0, "Bytes from clients."),
    CounterRow("server.bytes-out", "lighty_sent_bytes", COUNTER, 1.0, "Bytes to clients."),
    CounterRow(
        "server.refused",
        "lighty_refused_requests",
        COUNTER,
        1.0,
        "Requests that are not HTTP, or beyond a limit.",
    ),
    CounterRow("server.cut", "lighty_cut_responses", COUNTER, 1.0, "Responses cut short."),
    CounterRow(
        "server.timed-out",
        "lighty_timed_out_connections",
        COUNTER,
        1.0,
        "Connections ended by a time limit or a minimum rate.",
    ),
    CounterRow(
        "server.reaped",
        "lighty_reaped_connections",
        COUNTER,
        1.0,
        "Idle connections closed to make room.",
    ),
    CounterRow(
        "server.accept-pauses",
        "lighty_accept_pauses",
        COUNTER,
        1.0,
        "Times that accepting paused for lack of places or descriptors.",
    ),
    CounterRow(
        "server.fields-withheld",
        "lighty_withheld_fields",
        COUNTER,
        1.0,
        "Request fields withheld from programs because their names collide.",
    ),
    CounterRow(
        "server.auth-forward-allowed",
        "lighty_auth_forward_allowed_requests",
        COUNTER,
        1.0,
        "Requests that a service of auth.forward has permitted.",
    ),
    CounterRow(
        "server.auth-forward-cached",
        "lighty_auth_forward_cached_requests",
        COUNTER,
        1.0,
        "Permitted requests for which the service was not asked again.",
    ),
    CounterRow(
        "server.auth-forward-denied",
        "lighty_auth_forward_denied_requests",
        COUNTER,
        1.0,
        "Requests that a service of auth.forward has refused.",
    ),
    CounterRow(
        "server.auth-forward-failed",
        "lighty_auth_forward_failed_requests",
        COUNTER,
        1.0,
        "Requests answered 503, because a service of auth.forward gave no verdict.",
    ),
    CounterRow(
        "server.banned-connections",
        "lighty_banned_connections",
        COUNTER,
        1.0,
        "Connections of banned clients, closed at once.",
    ),
    CounterRow(
        "server.login-failures",
        "lighty_login_failures",
        COUNTER,
        1.0,
        "Wrong credentials.",
    ),
    CounterRow(
        "server.login-bans",
        "lighty_login_bans",
        COUNTER,
        1.0,
        "Clients banned for wrong credentials.",
    ),
    CounterRow(
        "server.login-refusals",
        "lighty_login_refused_requests",
        COUNTER,
        1.0,
        "Requests refused because their client is banned for wrong credentials.",
    ),
    CounterRow(
        "server.auth-bearer-accepted",
        "lighty_auth_bearer_accepted_requests",
        COUNTER,
        1.0,
        "Requests admitted because of a token.",
    ),
    CounterRow(
        "server.auth-bearer-refused",
        "lighty_auth_bearer_refused_requests",
        COUNTER,
        1.0,
        "Requests refused because of a token.",
    ),
    CounterRow(
        "server.auth-sign-ins",
        "lighty_auth_sign_ins",
        COUNTER,
        1.0,
        "Users signed in by a provider.",
    ),
    CounterRow(
        "server.auth-sign-ins-failed",
        "lighty_auth_failed_sign_ins",
        COUNTER,
        1.0,
        "Sign-ins that failed.",
    ),
    CounterRow("server.panics", "lighty_panics", COUNTER, 1.0, "Panics, each of them a bug."),
    CounterRow(
        "server.log-lines-lost",
        "lighty_log_lines_lost",
        COUNTER,
        1.0,
        "Lines of logs that could not be written.",
    ),
    CounterRow(
        "server.http2-connections",
        "lighty_http2_connections",
        COUNTER,
        1.0,
        "Connections that went on with HTTP/2.",
    ),
    CounterRow(
        "server.http2-faults",
        "lighty_http2_faults",
        COUNTER,
        1.0,
        "Connections of HTTP/2 ended because the client broke a rule or exceeded a limit.",
    ),
    CounterRow(
        "server.tls-handshakes",
        "lighty_tls_handshakes",
        COUNTER,
        1.0,
        "TLS handshakes completed.",
    ),
    CounterRow(
        "server.tls-resumed",
        "lighty_tls_resumed_handshakes",
        COUNTER,
        1.0,
        "TLS handshakes that resumed a session.",
    ),
    CounterRow(
        "server.tls-failed",
        "lighty_tls_failed_handshakes",
        COUNTER,
        1.0,
        "TLS handshakes that came to nothing.",
    ),
    CounterRow(
        "server.tls-shed",
        "lighty_tls_shed_handshakes",
        COUNTER,
        1.0,
        "TLS handshakes refused because too many waited.",
    ),
    CounterRow(
        "config.generation",
        "lighty_config_generation",
        GAUGE,
        1.0,
        "Number of the configuration; the first is 0.",
    ),
    CounterRow(
        "config.last-reload-success",
        "lighty_config_last_reload_successful",
        GAUGE,
        1.0,
        "1 unless the last reload was refused.",
    ),
    CounterRow(
        "config.last-reload-s",
        "lighty_config_last_reload_timestamp_seconds",
        GAUGE,
        1.0,
        "When the last reload ended, whatever its outcome, or the start, in seconds since 1970.",
    ),
    CounterRow(
        "config.last-reload-success-s",
        "lighty_config_last_reload_success_timestamp_seconds",
        GAUGE,
        1.0,
        "When the configuration in use took effect, in seconds since 1970.",
    ),
    CounterRow(
        "config.old-generations",
        "lighty_config_old_generations",
        GAUGE,
        1.0,
        "Earlier configurations that requests under way use.",
    ),
    CounterRow("send.bytes", "lighty_file_sent_bytes", COUNTER, 1.0, "Bytes of files sent."),
    CounterRow(
        "send.sendfile-bytes",
        "lighty_file_sendfile_bytes",
        COUNTER,
        1.0,
        "Bytes of files sent by sendfile.",
    ),
    CounterRow(
        "send.async-reads",
        "lighty_file_send_async_reads",
        COUNTER,
        1.0,
        "Reads for sending that waited for the disk.",
    ),
    CounterRow(
        "send.sync-reads",
        "lighty_file_send_sync_reads",
        COUNTER,
        1.0,
        "Reads for sending that found all in memory.",
    ),
    CounterRow(
        "send.read-wait-us",
        "lighty_file_send_read_wait_seconds",
        COUNTER,
        US,
        "Time that responses waited for the disk.",
    ),
    CounterRow("files.opens", "lighty_file_opens", COUNTER, 1.0, "Files opened."),
    CounterRow("files.stats", "lighty_file_stats", COUNTER, 1.0, "Files looked up."),
    CounterRow(
        "files.lookups-cached",
        "lighty_file_lookups_cached",
        COUNTER,
        1.0,
        "Files looked up that the kernel had in memory.",
    ),
    CounterRow(
        "files.async-reads",
        "lighty_file_async_reads",
        COUNTER,
        1.0,
        "Reads of the file engine that waited for the disk.",
    ),
    CounterRow(
        "files.sync-reads",
        "lighty_file_sync_reads",
        COUNTER,
        1.0,
        "Reads of the file engine that found all in memory.",
    ),
    CounterRow(
        "files.bytes",
        "lighty_file_read_bytes",
        COUNTER,
        1.0,
        "Bytes read by the file engine.",
    ),
    CounterRow(
        "files.open-wait-us",
        "lighty_file_open_wait_seconds",
        COUNTER,
        US,
        "Time that requests waited for files to be opened.",
    ),
    CounterRow(
        "files.stat-wait-us",
        "lighty_file_stat_wait_seconds",
        COUNTER,
        US,
        "Time that requests waited for files to be looked up.",
    ),
    CounterRow(
        "files.read-wait-us",
        "lighty_file_read_wait_seconds",
        COUNTER,
        US,
        "Time that requests waited for files to be read.",
    ),
    CounterRow(
        "files.urgent",
        "lighty_file_urgent_operations",
        COUNTER,
        1.0,
        "Look-ups, first reads and reads of small files on disks where reads take turns.",
    ),
    CounterRow(
        "files.urgent-us",
        "lighty_file_urgent_seconds",
        COUNTER,
        US,
        "Time that these operations took.",
    ),
    CounterRow(
        "files.bulk-reads",
        "lighty_file_bulk_reads",
        COUNTER,
        1.0,
        "Other reads on these disks.",
    ),
    CounterRow(
        "files.bulk-wait-us",
        "lighty_file_bulk_wait_seconds",
        COUNTER,
        US,
        "Time that these reads waited for their turns.",
    ),
    CounterRow(
        "files.bulk-overdue",
        "lighty_file_bulk_overdue",
        COUNTER,
        1.0,
        "Bulk reads that began beside urgent operations after 50 ms.",
    ),
    CounterRow(
        "files.bulk-abandoned",
        "lighty_file_bulk_abandoned",
        COUNTER,
        1.0,
        "Bulk reads given up while they waited for their turns.",
    ),
    CounterRow(
        "files.turns-expired",
        "lighty_file_expired_turns",
        COUNTER,
        1.0,
        "Turns that ended after 5 s, before their operations.",
    ),
    CounterRow(
        "files.bulk-waiting",
        "lighty_file_bulk_waiting",
        GAUGE,
        1.0,
        "Bulk reads that wait for their turns.",
    ),
    CounterRow(
        "stat-cache.hits",
        "lighty_stat_cache_hits",
        COUNTER,
        1.0,
        "Files known without asking the kernel.",
    ),
    CounterRow(
        "stat-cache.revalidated",
        "lighty_stat_cache_revalidations",
        COUNTER,
        1.0,
        "Known files looked at again.",
    ),
    CounterRow(
        "stat-cache.loads",
        "lighty_stat_cache_loads",
        COUNTER,
        1.0,
        "Files that were not known.",
    ),
    CounterRow(
        "stat-cache.joined",
        "lighty_stat_cache_joins",
        COUNTER,
        1.0,
        "Requests that waited for another's look-up.",
    ),
    CounterRow(
        "stat-cache.invalidated",
        "lighty_stat_cache_invalidations",
        COUNTER,
        1.0,
        "Known files that had changed.",
    ),
    CounterRow(
        "stat-cache.evicted",
        "lighty_stat_cache_evictions",
        COUNTER,
        1.0,
        "Known files forgotten for lack of room.",
    ),
    CounterRow(
        "tracing.exported",
        "lighty_trace_spans_exported",
        COUNTER,
        1.0,
        "Spans that a collector took.",
    ),
    CounterRow(
        "tracing.dropped",
        "lighty_trace_spans_dropped",
        COUNTER,
        1.0,
        "Spans dropped because the queue was full or the collector refused them.",
    ),
    CounterRow(
        "tracing.failures",
        "lighty_trace_export_failures",
        COUNTER,
        1.0,
        "Times that the collector could not be reached or refused.",
    ),
    CounterRow(
        "tracing.access-logs-exported",
        "lighty_access_log_records_exported",
        COUNTER,
        1.0,
        "Access log records that a collector took.",
    ),
    CounterRow(
        "tracing.access-logs-dropped",
        "lighty_access_log_records_dropped",
        COUNTER,
        1.0,
        "Access log records dropped because the queue was full or the collector refused them.",
    ),
    CounterRow(
        "acme.on-demand.names",
        "lighty_acme_on_demand_names",
        GAUGE,
        1.0,
        "Names that have certificates on demand, or wait for one.",
    ),
    CounterRow(
        "acme.on-demand.asked",
        "lighty_acme_on_demand_questions",
        COUNTER,
        1.0,
        "Questions whether a name gets a certificate on demand.",
    ),
    CounterRow(
        "acme.on-demand.refused",
        "lighty_acme_on_demand_refusals",
        COUNTER,
        1.0,
        "Names refused a certificate on demand.",
    ),
    CounterRow(
        "acme.on-demand.full",
        "lighty_acme_on_demand_overflows",
        COUNTER,
        1.0,
        "Names refused a certificate on demand because there were too many.",
    ),
];

/// Returns the families that have a figure.
pub(super) fn families(figures: &[(String, String)]) -> Vec<Family> {
    // The figures are sorted by name.
    let find = |name: &str| {
        let at = figures.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        figures[at].1.parse::<f64>().ok()
    };
    let family = |row: &CounterRow| {
        let CounterRow(name, metric, kind, divisor, help) = *row;
        Some(Family::single(metric, kind, help, find(name)? / divisor))
    };
    let mut families: Vec<_> = ROWS.iter().filter_map(family).collect();
    families.push(reloads(find));
    families.push(bans(find));
    families
}

/// Present bans by cause.
fn bans(find: impl Fn(&str) -> Option<f64>) -> Family {
    let mut family = Family::new("lighty_bans", GAUGE, "Banned clients by the reason for it.");
    for (cause, name) in [("operator", "bans.operator"), ("logins", "bans.logins")] {
        if let Some(count) = find(name) {
            family.add(vec![("cause", cause.into())], count);
        }
    }
    family
}

/// Reloads by outcome.
fn reloads(find: impl Fn(&str) -> Option<f64>) -> Family {
    let help = "Reloads of the configuration by outcome.";
    let mut family = Family::new("lighty_config_reloads", COUNTER, help);
    let outcomes = [("success", "config.reloads.succeeded"), ("refused", "config.reloads.refused")];
    for (outcome, name) in outcomes {
        if let Some(count) = find(name) {
            family.add(vec![("outcome", outcome.into())], count);
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_base_units() {
        let figures =
            [("files.open-wait-us", "1500000"), ("proxy-core.0.name", "x"), ("server.panics", "2")];
        let figures = figures.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut families = families(&figures);
        families.retain(|family| !family.samples.is_empty());
        let all: Vec<_> =
            families.iter().map(|family| (family.name, &family.samples[0].value)).collect();
        let shown = format!("{all:?}");
        assert!(shown.contains("(\"lighty_panics\", Number(2.0))"), "{shown}");
        assert!(shown.contains("(\"lighty_file_open_wait_seconds\", Number(1.5))"), "{shown}");
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn no_name_is_there_twice() {
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.1).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
