//! Tracing switches: each writes lines about single requests to the error log.

use crate::settings::Directive;

pub(super) fn rows() -> Vec<Directive> {
    vec![
        Directive::bool("debug.log-request-handling", |s, v| s.core.log_request_handling = v)
            .default("disable")
            .since("1.4")
            .doc("Logs which handler answered each request, with its physical path.")
            .example("debug.log-request-handling = \"enable\""),
        Directive::bool("debug.log-request-header", |s, v| s.core.log_request_header = v)
            .default("disable")
            .since("1.4")
            .doc("Logs the header fields of each request.")
            .example("debug.log-request-header = \"enable\""),
        Directive::bool("debug.log-request-header-on-error", |s, v| {
            s.core.log_request_header_on_error = v;
        })
        .default("disable")
        .since("1.4")
        .doc("Logs the header fields of requests that are answered with an error.")
        .example("debug.log-request-header-on-error = \"enable\""),
        Directive::bool("debug.log-response-header", |s, v| s.core.log_response_header = v)
            .default("disable")
            .since("1.4")
            .doc("Logs the header fields of each response.")
            .example("debug.log-response-header = \"enable\""),
        Directive::bool("debug.log-file-not-found", |s, v| s.core.log_file_not_found = v)
            .default("disable")
            .since("1.4")
            .doc("Logs each request for a file that does not exist.")
            .example("debug.log-file-not-found = \"enable\""),
        Directive::bool("debug.log-condition-handling", |s, v| s.core.log_condition_handling = v)
            .default("disable")
            .since("1.4")
            .doc(
                "Logs for each request which conditions are true, and why; `lighty explain URL` \
                 prints the same without a running server.",
            )
            .example("debug.log-condition-handling = \"enable\""),
        Directive::bool("debug.log-timeouts", |s, v| s.core.log_timeouts = v)
            .default("disable")
            .since("1.4")
            .doc(
                "Logs every timeout and every rate below the limit, with the directive that set \
                 it, and closed idle connections. When disabled, timeouts of requests in progress \
                 are logged at level `info` and idle connections are not logged.",
            )
            .example("debug.log-timeouts = \"enable\""),
    ]
}
