//! `proxy-core.*`: pools, the backlog, timeouts. They also apply to the upstreams of 1.4's
//! directives.

use super::of;
use super::period::period;
use lighty_core::settings::Directive;

pub(super) fn rows() -> Vec<Directive> {
    let mut rows = pools();
    rows.extend(backlog());
    rows.extend(timeouts());
    rows.extend(pings());
    rows
}

fn pools() -> Vec<Directive> {
    vec![
        Directive::int("proxy-core.max-pool-size", 1..=65_535, |s, v| {
            of(s).shared.pool.size_max = v as u32;
        })
        .default("256")
        .since("1.5")
        .doc(
            "Connections to each address of a backend, busy and idle, of all workers together. \
             Requests beyond it wait in the backlog. A backend with a fixed number of processes \
             should not be given more than it has.",
        )
        .example("proxy-core.max-pool-size = 32"),
        Directive::int("proxy-core.max-idle-connections", 0..=65_535, |s, v| {
            of(s).shared.idle_max = Some(v as u32);
        })
        .default_prose("`proxy-core.max-pool-size`")
        .since("lighty 0.1")
        .doc(
            "Maximum number of idle connections kept open to each address, at most \
             `proxy-core.max-pool-size`. They are closed, in all workers, when a request may be \
             waiting for a process of the backend. 0: connections are not kept.",
        )
        .example("proxy-core.max-idle-connections = 8"),
        period("proxy-core.max-idle-time", 1, |parts, ms| parts.shared.idle_ms = Some(ms))
            .default_prose("30 for HTTP, uwsgi and SCGI, 1 for FastCGI and AJP13")
            .since("lighty 0.1")
            .doc(
                "Seconds that a connection to a backend is kept without a request; or text with a \
                 unit (`\"500ms\"`, `\"2min30s\"`), as with every time here. It should be less \
                 than the backend's own limit. It is short for FastCGI and AJP13, because php-cgi \
                 does not end a process with an open connection, and keeps its port for that long \
                 after a signal to end.",
            )
            .example("proxy-core.max-idle-time = 4"),
        period("proxy-core.max-lifetime", 0, |parts, ms| parts.shared.pool.lifetime_ms = ms)
            .default("0")
            .since("lighty 0.1")
            .doc(
                "Maximum lifetime of a connection to a backend in seconds; an older one is not \
                  used again. 0: no limit.",
            )
            .example("proxy-core.max-lifetime = \"1h\""),
        Directive::int("proxy-core.max-keep-alive-requests", 0..=i64::from(u32::MAX), |s, v| {
            of(s).shared.pool.requests_max = v as u32;
        })
        .default("1000")
        .since("1.5")
        .doc(
            "Requests on one connection to a backend. 0: a new connection for each, which is the \
             default of lighttpd 1.5.",
        )
        .example("proxy-core.max-keep-alive-requests = 100"),
    ]
}

fn backlog() -> Vec<Directive> {
    vec![
        Directive::int("proxy-core.max-backlog-size", 0..=1_000_000, |s, v| {
            of(s).shared.backlog.length_max = v as u32;
        })
        .default("1024")
        .since("1.5")
        .doc(
            "Requests that may wait for a connection when every pool is full; one more is \
             answered 503 at once. In lighttpd 1.5 this was how often one request was tried \
             again.",
        )
        .example("proxy-core.max-backlog-size = 100"),
        period("proxy-core.backlog-timeout", 0, |parts, ms| parts.shared.backlog.wait_ms = ms)
            .default("10")
            .since("lighty 0.1")
            .doc("Seconds that a request waits in the backlog before it is answered 503.")
            .example("proxy-core.backlog-timeout = 2"),
        Directive::int("proxy-core.backlog-class", 0..=3, |s, v| of(s).shared.class = v as u8)
            .default("0")
            .since("lighty 0.1")
            .doc(
                "Priority of these requests in the backlog: class 0 is served first, class 3 last, \
                 each class in order of arrival.",
            )
            .example("$HTTP[\"url\"] =^ \"/export/\" { proxy-core.backlog-class = 2 }"),
    ]
}

fn timeouts() -> Vec<Directive> {
    vec![
        period("proxy-core.connect-timeout", 1, |parts, ms| parts.shared.timeouts.connect_ms = ms)
            .default("5")
            .since("lighty 0.1")
            .doc(
                "Seconds that a backend may take to accept a connection. Then the next one is \
                 tried; 504 if there is none.",
            )
            .example("proxy-core.connect-timeout = \"500ms\""),
        period("proxy-core.read-timeout", 1, |parts, ms| parts.shared.timeouts.read_ms = ms)
            .default("60")
            .since("lighty 0.1")
            .doc(
                "Seconds without a byte from the backend: 504 before its response has begun; after \
                 that the response is cut.",
            )
            .example("proxy-core.read-timeout = 300"),
        period("proxy-core.write-timeout", 1, |parts, ms| parts.shared.timeouts.write_ms = ms)
            .default("60")
            .since("lighty 0.1")
            .doc(
                "Seconds for which a backend may read nothing of a request: then 504 before its \
                 response has begun; later the response is cut.",
            )
            .example("proxy-core.write-timeout = 30"),
        period("proxy-core.tunnel-timeout", 1, |parts, ms| parts.shared.timeouts.tunnel_ms = ms)
            .default("3600")
            .since("lighty 0.1")
            .doc(
                "Seconds without a byte in either direction of a tunnel (WebSocket, \
                 `sockproxy.server`) before it is closed.",
            )
            .example("proxy-core.tunnel-timeout = \"10min\""),
    ]
}

fn pings() -> Vec<Directive> {
    vec![
        period("proxy-core.ping-interval", 0, |parts, ms| parts.shared.pool.ping_ms = ms)
            .default("10")
            .since("lighty 0.1")
            .doc(
                "Seconds of silence after which an HTTP/2 backend gets a PING: before another \
                 request is sent on the connection, and while requests wait on it. While only \
                 replies come, the interval of the next PINGs grows fourfold, up to five minutes, \
                 since gRPC libraries tolerate few of them. 0: no PINGs.",
            )
            .example("proxy-core.ping-interval = 30"),
        period("proxy-core.ping-timeout", 1, |parts, ms| parts.shared.pool.ping_timeout_ms = ms)
            .default("10")
            .since("lighty 0.1")
            .doc(
                "Seconds that a backend may take to send anything after a PING. Then the \
                 connection is closed, and its requests fail as if the backend had closed it: \
                 requests that the backend has not seen, and requests that are safe to repeat, are \
                 sent again.",
            )
            .example("proxy-core.ping-timeout = 3"),
    ]
}
