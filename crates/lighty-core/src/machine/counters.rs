//! Counters of one worker. Plain cells, written only by the worker's own thread. To sum over
//! workers, ask each for a copy.

use std::cell::Cell;

/// A counter changed only by its own thread.
#[derive(Default, Debug)]
pub struct Counter(Cell<u64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A worker's counters of connections and requests.
#[derive(Default, Debug)]
pub struct Counters {
    /// Connections accepted.
    pub connections: Counter,
    /// Idle connections closed early because `server.max-connections` or descriptors ran out.
    pub reaped: Counter,
    /// Requests served.
    pub requests: Counter,
    /// Bytes sent to clients, heads included.
    pub bytes_out: Counter,
    /// Bytes received from clients.
    pub bytes_in: Counter,
    /// HTTP/2 connections.
    pub http2_connections: Counter,
    /// HTTP/2 connections that ended because the client broke a rule or exceeded a limit.
    pub http2_faults: Counter,
    /// TLS handshakes completed.
    pub tls_handshakes: Counter,
    /// TLS handshakes that resumed an earlier session.
    pub tls_resumed: Counter,
    /// TLS handshakes that failed.
    pub tls_failed: Counter,
    /// TLS handshakes refused because too many were waiting.
    pub tls_shed: Counter,
    /// Requests rejected by the codec (400, 414, 431 ...).
    pub refused: Counter,
    /// Responses cut short.
    pub cut: Counter,
    /// Connections ended by a timeout or a minimum rate.
    pub timed_out: Counter,
    /// Connections of banned clients, closed at once.
    pub banned: Counter,
    /// Wrong credentials.
    pub login_failures: Counter,
    /// Clients banned for wrong credentials.
    pub login_bans: Counter,
    /// Requests of these clients that were refused.
    pub login_refusals: Counter,
    /// Times that accepting paused for lack of descriptors or connection slots.
    pub accept_pauses: Counter,
    /// Request fields withheld from programs because their names collide.
    pub fields_withheld: Counter,
    /// Requests that a service of `auth.forward` has permitted.
    pub auth_forward_allowed: Counter,
    /// Permitted requests by a kept permission, or by that of an equal request.
    pub auth_forward_cached: Counter,
    /// Requests that a service of `auth.forward` has refused.
    pub auth_forward_denied: Counter,
    /// Requests about which a service of `auth.forward` has not decided.
    pub auth_forward_failed: Counter,
    /// Requests admitted because of a token.
    pub auth_bearer_accepted: Counter,
    /// Requests refused because of a token.
    pub auth_bearer_refused: Counter,
    /// Users signed in by a provider.
    pub auth_sign_ins: Counter,
    /// Sign-ins that failed.
    pub auth_sign_ins_failed: Counter,
    /// Wall-clock second of the last error-log line about withheld fields.
    pub logged_withheld_s: Cell<i64>,
}
