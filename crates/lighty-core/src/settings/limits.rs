//! All request limits that do not belong to a codec: default, unit and reason.
//!
//! Each limit an operator may want to change has a directive of the same name in `directives`.

/// Bytes of a request head, request line included, unless the header section alone may be longer. A
/// browser sends under 2 KiB; cookies can raise that to 10 or 20.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Maximum bytes of a request head with a header section of at most `field_bytes`.
pub const fn head_bytes_max(field_bytes: usize) -> usize {
    let with_line = field_bytes + TARGET_BYTES_MAX;
    if with_line > HEAD_BYTES_MAX { with_line } else { HEAD_BYTES_MAX }
}

/// Bytes of the header section of a request (`server.max-request-field-size`, 431).
pub const FIELD_BYTES_MAX: usize = 8192;

/// HTTP/2's cost in bytes of the maximum number of fields, 32 for each (RFC 9113 section 6.5.2).
pub const HTTP2_FIELD_COST_BYTES: usize = 32 * 256;

/// Header fields in a request (`server.max-request-fields`, 431).
pub const FIELDS_MAX: u32 = 100;

/// Bytes of a request target (`server.max-url-length`, 414).
pub const TARGET_BYTES_MAX: usize = 8192;

/// Seconds a client has for the whole head, from its first byte (`server.max-head-time`). Sheds
/// clients that send a header byte by byte.
pub const HEAD_TIME_SECONDS: u32 = 10;

/// Seconds a client has for the TLS handshake, from its first byte (`server.max-handshake-time`).
pub const HANDSHAKE_TIME_SECONDS: u32 = 10;

/// TLS handshakes waiting for a worker (`server.max-handshake-backlog`): about 0.2 s of
/// computation.
pub const HANDSHAKE_BACKLOG_MAX: u32 = 1024;

/// Seconds that a tunnel may continue after a graceful stop has begun
/// (`server.tunnel-stop-timeout`). A tunnel has no response whose end could be awaited.
pub const TUNNEL_STOP_SECONDS: u32 = 10;

/// Maximum seconds between a graceful stop's order and the end of listening
/// (`server.drain-delay`): load balancers look every few seconds.
pub const DRAIN_DELAY_SECONDS_MAX: i64 = 3600;

/// Restarts of workers after panics within a minute (`server.max-worker-restarts`). More would be
/// a crash loop, which a supervisor should see.
pub const WORKER_RESTARTS_MAX: u32 = 5;

/// Largest value of `server.max-worker-restarts`.
pub const WORKER_RESTARTS_LIMIT: i64 = 1000;

/// Interim responses per request: a backend that sends nothing else would keep its client waiting
/// forever.
pub const INTERIM_MAX: u32 = 100;

/// Restarts of one request by rewriting, error handlers or scripts.
pub const RESTARTS_MAX: u8 = 10;

/// Rewrites of one request by `url.rewrite-repeat`.
pub const REWRITES_MAX: u8 = 100;

/// Rules of one `url.rewrite` or `url.redirect`; each costs memory for its regular expression.
pub const RULES_MAX: usize = 65_536;

/// Pipelined requests served in a row before yielding to other connections.
pub const PIPELINE_BURST_MAX: u32 = 32;

/// Bytes of an unread request body that are drained to keep a connection alive. A longer rest
/// closes the connection.
pub const DRAIN_BYTES_MAX: u64 = 64 * 1024;

/// KB of the error log that one program, command or request may fill
/// (`server.errorlog-max-per-program`).
pub const PROGRAM_LOG_KBYTES_MAX: u64 = 1024;

/// KB per second of the error log that all programs together may fill
/// (`server.errorlog-program-rate`). A program that never stops logging then takes days, not
/// minutes, to fill a disk.
pub const PROGRAM_LOG_KBYTES_PER_SECOND: u64 = 256;

/// Lines with the same message from the same place in a minute of the error log
/// (`server.errorlog-max-repeats`). A backend that is down would otherwise fill the disk.
pub const ERROR_LOG_REPEATS_MAX: u32 = 100;

/// Old files of a log that is rotated (`keep` of `server.log-rotate`): a week, if it is rotated
/// daily.
pub const ROTATED_FILES: u32 = 7;

/// Largest value of `server.errorlog-max-repeats`.
pub const ERROR_LOG_REPEATS_LIMIT: i64 = 1_000_000;

/// File parts in one `X-Sendfile2`; each may hold its own file open.
pub const SENDFILE_PARTS_MAX: usize = 256;

/// Idle exchanges that a worker keeps for reuse. More would only retain the memory of a past peak.
pub const IDLE_EXCHANGES_MAX: usize = 256;

/// Buffer pairs for HTTP/2 connections that a worker keeps for reuse.
pub const IDLE_BUFFERS_MAX: usize = 32;

/// Buffers with a larger capacity in bytes are not kept for the next request.
pub const KEPT_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Document roots that a worker holds open, one per virtual host with its own root. Each is a
/// descriptor; beyond it, another root is closed and opened anew when needed.
pub const ROOTS_MAX: usize = 4096;

/// Milliseconds after which an unused document root is closed: a file system with an open directory
/// cannot be unmounted.
pub const ROOT_IDLE_MS: u64 = 10_000;

/// Maximum bytes of a `server.errorfile-prefix` page, which is read into memory. Larger pages are
/// not sent.
pub const ERROR_PAGE_BYTES_MAX: usize = 1024 * 1024;

/// Missing document roots that a worker remembers for a second. Bounded, because clients can
/// request any host.
pub const MISSING_ROOTS_MAX: usize = 1024;

/// Bytes of a rewritten target: a repeated rule can double it every time.
pub const REWRITTEN_BYTES_MAX: usize = 64 * 1024;

/// Cached files closed at once when descriptors run out.
pub const SHED_ENTRIES: usize = 256;

/// Merged settings (one per set of matching conditions) cached per worker.
pub const SETTINGS_VARIANTS_MAX: usize = 4096;

/// Default for the bytes of one response held in `server.upload-dirs` at once. The rest waits in
/// its backend (`server.max-spool-size`).
pub const SPOOL_BYTES_MAX: u64 = 1 << 30;

/// Milliseconds that a request waits for a free file descriptor.
pub const DESCRIPTOR_WAIT_MS: u64 = 1_000;

/// Milliseconds between checks for a free descriptor.
pub const DESCRIPTOR_LOOK_MS: u64 = 20;

const _: () = assert!(FIELD_BYTES_MAX + TARGET_BYTES_MAX < HEAD_BYTES_MAX);
